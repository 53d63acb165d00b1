//! Replay during a restore, into stores that no server has open.

use super::plan::{FamilyPlan, Plan};
use super::{RestoreError, Setup};
use crate::model::mutation::{DecodeError, RowMutation};
use crate::model::schema::FamilyId;
use crate::storage::commitlog::archive::ArchiveReplay;
use crate::storage::commitlog::{Position, ReplayError};
use crate::storage::database::new_environment;
use crate::storage::family::{ColumnFamily, Environment};
use crate::storage::files;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The column families that are restored, open.
struct Stores<'a> {
    setup: &'a Setup,
    environment: Arc<Environment>,
    open: BTreeMap<FamilyId, ColumnFamily>,
    /// Mutations that any of them took.
    mutations: u64,
}

impl<'a> Stores<'a> {
    fn open(setup: &'a Setup, plan: &Plan) -> Result<Self, RestoreError> {
        let Setup { components, options, partitioner, .. } = setup;
        let environment = new_environment(components, options, *partitioner, plan.node.clone());
        let mut open = BTreeMap::new();
        for FamilyPlan { id, schema, .. } in &plan.families {
            let directories = setup.options.data_directories.iter();
            let folders = directories.map(|it| files::keyspace_folder(it, &schema.keyspace));
            let options = setup.family_options(*id);
            let store = ColumnFamily::open(&environment, *id, schema, options, folders.collect())?;
            open.insert(*id, store);
        }
        Ok(Self { setup, environment, open, mutations: 0 })
    }

    /// Applies what of a record is not in SSTables. One that the configuration cannot take counts
    /// only if it is of a keyspace that is restored.
    fn apply(&mut self, position: Position, record: &[u8]) -> Result<(), RestoreError> {
        let mutation = match RowMutation::decode(record, &self.setup.schema) {
            Ok(mutation) => mutation,
            Err(error) if unconfigured(&error).is_some_and(|it| !self.restores(it)) => {
                return Ok(());
            }
            Err(error)
                if unconfigured(&error).is_some() && self.setup.options.accept_commitlog_loss =>
            {
                log::warn!("a replayed mutation is dropped: {error}");
                return Ok(());
            }
            Err(error) => {
                return Err(RestoreError::Replay(format!("record {position}: {error}")));
            }
        };
        let key = self.setup.partitioner.decorate(mutation.key.clone());
        let mut is_applied = false;
        for family in &mutation.families {
            if let Some(store) = self.open.get(&family.family)
                && position > store.flushed_position()
            {
                store.apply(&key, family);
                is_applied = true;
            }
        }
        self.mutations += u64::from(is_applied);
        let used = self.environment.memtable_memory.load(Ordering::Relaxed);
        if used > self.setup.options.memtable_budget_bytes {
            self.flush(position)?;
        }
        Ok(())
    }

    fn restores(&self, keyspace: &str) -> bool {
        self.open.values().any(|store| store.schema().keyspace == keyspace)
    }

    /// Writes everything to SSTables, which hold all up to this position.
    fn flush(&self, position: Position) -> Result<(), RestoreError> {
        for store in self.open.values() {
            if let Some(memtable) = store.switch_memtable() {
                memtable.seal(position);
                store.flush(&memtable)?;
            }
        }
        Ok(())
    }
}

/// The keyspace of a record that the configuration cannot take.
fn unconfigured(error: &DecodeError) -> Option<&str> {
    match error {
        DecodeError::UnknownFamily { keyspace, .. } | DecodeError::OtherNames { keyspace, .. } => {
            Some(keyspace)
        }
        DecodeError::Malformed(_) => None,
    }
}

/// Opens what was restored, replays the folder of an archive, if that is wanted, and flushes. From
/// then on nothing that is in any present segment will ever be replayed. Returns the mutations
/// applied.
pub(super) fn apply(
    setup: &Setup,
    plan: &Plan,
    replay: Option<(&ArchiveReplay, &Path)>,
) -> Result<u64, RestoreError> {
    let mut stores = Stores::open(setup, plan)?;
    if let Some((replay, folder)) = replay {
        let fs = &*setup.components.fs;
        let delivered =
            replay.deliver(fs, folder, &mut |position, record| stores.apply(position, record));
        delivered.map_err(|error| match error {
            ReplayError::Apply { source, .. } => source,
            other => other.into(),
        })?;
    }
    stores.flush(plan.newest)?;
    for store in stores.open.values() {
        store.advance_flushed(plan.newest)?;
    }
    Ok(stores.mutations)
}
