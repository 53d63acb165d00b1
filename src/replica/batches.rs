//! The logged batches that this node keeps for coordinators, each a row of the column family
//! `Batches` of the keyspace `system`. Coordinators write and delete it by mutations.
//!
//! The ids of those that are left stand in memory: to look for them would be to read the tombstones
//! of all others.

use super::verbs::Replica;
use crate::base::lock::{Mutex, rank};
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::{FamilyId, Schema};
use crate::storage::system::{KEYSPACE, batches::BATCHES};
use std::collections::BTreeMap;

/// Batches that this node does not know to be done.
#[derive(Debug)]
pub(super) struct Batches {
    /// `None` if the node keeps no batches.
    family: Option<FamilyId>,
    /// By id. True if a round has seen it.
    left: Mutex<rank::Last, BTreeMap<RowKey, bool>>,
}

impl Batches {
    pub(super) fn new(schema: &Schema) -> Self {
        Self { family: schema.family_id(KEYSPACE, BATCHES), left: Mutex::default() }
    }

    /// Takes note of batches that begin or end with these mutations.
    pub(super) fn note(&self, mutations: &[RowMutation]) {
        for mutation in mutations {
            let first = mutation.families.first();
            let Some(family) = first.filter(|it| Some(it.family) == self.family) else { continue };
            let mut left = self.left.lock();
            if family.deletion.is_none() {
                left.entry(mutation.key.clone()).or_default();
            } else {
                left.remove(&mutation.key);
            }
        }
    }
}

impl Replica {
    /// Takes note of a batch that was found on the disk, or could not be written again.
    pub fn note_batch(&self, id: RowKey) {
        self.batches.left.lock().entry(id).or_default();
    }

    /// Takes out the batches that were there in the last round already. Each call is a round.
    pub fn take_overdue_batches(&self) -> Vec<RowKey> {
        let mut left = self.batches.left.lock();
        let new = left.iter().filter(|(_, is_seen)| !**is_seen).map(|(id, _)| (id.clone(), true));
        let new = new.collect();
        std::mem::replace(&mut *left, new)
            .into_iter()
            .filter_map(|(id, seen)| seen.then_some(id))
            .collect()
    }
}
