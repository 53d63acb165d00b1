//! Remembered hashes of leaves, so that unchanged leaves are not read again.
//!
//! They are of the rows in certain SSTables. A merge of SSTables keeps them valid, since the rows
//! stay the same, unless it purged a deletion that counted. The keys of an added SSTable show which
//! leaves have changed; a merge records the keys of small ones. If an SSTable is gone otherwise,
//! the hashes are dropped. Each leaf has times for which its hash is valid, since deletions expire.

mod file;

use super::leaves::{Leaves, Shape};
use crate::model::schema::FamilyId;
use crate::net::bodies::BodyContext;
use crate::ring::TokenRange;
use crate::storage::family::Merge;
use crate::storage::manifest::TableIdentity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub(super) use file::MAX_BYTES;

/// Most remembered leaves of all column families together: some 30 MB.
const MOST_KEPT: usize = 1 << 18;

/// Ranges and their division.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) ranges: Vec<TokenRange>,
    pub(super) shape: Shape,
}

/// The last known leaves.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// In the order of their last update.
    entries: VecDeque<Entry>,
    /// Column families whose file was read.
    loaded: BTreeSet<FamilyId>,
}

/// The SSTables of a column family, and the merges that made them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) now: &'a BTreeMap<u64, TableIdentity>,
    pub(super) merges: &'a [Arc<Merge>],
}

/// Known hashes of requested leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) leaves: Leaves,
    /// Generations of SSTables that were added since, whose rows change leaves.
    pub(super) added: BTreeSet<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    family: FamilyId,
    division: Division,
    /// The hashed SSTables.
    tables: BTreeMap<u64, TableIdentity>,
    leaves: Leaves,
}

impl Entry {
    /// Follows merges. Returns the added SSTables, or `None` if the hashes are void.
    fn catch_up(&mut self, tables: Tables<'_>) -> Option<BTreeSet<u64>> {
        for merge in tables.merges {
            if !merge.old.iter().any(|table| self.tables.contains_key(table)) {
                continue;
            }
            // For unknown SSTables the merge has recorded the keys, or they count as added.
            let mut unknown = merge.old.iter().filter(|table| !self.tables.contains_key(table));
            let is_whole = unknown.all(|table| match merge.notes.keys.get(table) {
                Some(keys) => {
                    for token in keys {
                        self.leaves.lose(token);
                    }
                    true
                }
                None => false,
            });
            match merge.notes.latest_dropped {
                Some(_) if !is_whole => return None,
                Some(latest) => self.leaves.lose_if(|span| span.earliest_kept <= latest),
                None => {}
            }
            for old in &merge.old {
                self.tables.remove(old);
            }
            if is_whole {
                // A later merge follows for SSTables that were merged again.
                let identity = |new: &u64| tables.now.get(new).copied().unwrap_or_default();
                self.tables.extend(merge.new.iter().map(|new| (*new, identity(new))));
            }
        }
        let is_there = |(table, identity): (&u64, _)| tables.now.get(table) == Some(identity);
        let added = || tables.now.keys().filter(|it| !self.tables.contains_key(it)).copied();
        self.tables.iter().all(is_there).then(|| added().collect())
    }
}

impl Remembered {
    /// Whether the file of a family was read.
    pub(super) fn is_loaded(&self, family: FamilyId) -> bool {
        self.loaded.contains(&family)
    }

    /// Takes the hashes from the file of a family, the first time. A missing or damaged file has
    /// none.
    pub(super) fn load(&mut self, family: FamilyId, file: &[u8], context: BodyContext<'_>) {
        if self.loaded.insert(family) {
            let entries = file::decode(file, family, context).unwrap_or_default();
            // Before newer entries.
            entries.into_iter().rev().for_each(|entry| self.entries.push_front(entry));
            self.make_room();
        }
    }

    /// The content of the file of a family.
    pub(super) fn save(&self, family: FamilyId, context: BodyContext<'_>) -> Vec<u8> {
        let entries: Vec<&Entry> = self.entries.iter().filter(|it| it.family == family).collect();
        // Tokens and numbers can always be encoded.
        file::encode(&entries, family, context).unwrap_or_default()
    }

    /// The known hashes of these leaves.
    pub(super) fn find(
        &mut self,
        family: FamilyId,
        tables: Tables<'_>,
        division: &Division,
        empty: &Leaves,
    ) -> Option<Known> {
        self.catch_up(family, tables);
        let of_family = || self.entries.iter().rev().filter(|entry| entry.family == family);
        let same = of_family().filter(|entry| entry.division == *division);
        let others = of_family().filter(|entry| entry.division != *division);
        same.chain(others).find_map(|entry| {
            let leaves = empty.gathered_from(&entry.leaves)?;
            let is_added = |table: &&u64| !entry.tables.contains_key(table);
            Some(Known { leaves, added: tables.now.keys().filter(is_added).copied().collect() })
        })
    }

    /// Follows merges of SSTables of a family. Returns whether any hashes changed.
    pub(super) fn catch_up(&mut self, family: FamilyId, tables: Tables<'_>) -> bool {
        let mut has_changed = false;
        self.entries.retain_mut(|entry| {
            if entry.family != family {
                return true;
            }
            let before = entry.tables.clone();
            let is_of_use = entry.catch_up(tables).is_some();
            has_changed |= !is_of_use || entry.tables != before;
            is_of_use
        });
        has_changed
    }

    /// The families with remembered hashes.
    pub(super) fn families(&self) -> BTreeSet<FamilyId> {
        self.entries.iter().map(|entry| entry.family).collect()
    }

    /// The last division of these ranges.
    pub(super) fn shape(&self, family: FamilyId, ranges: &[TokenRange]) -> Option<&Shape> {
        let is_it = |entry: &&Entry| entry.family == family && entry.division.ranges == ranges;
        self.entries.iter().rev().find(is_it).map(|entry| &entry.division.shape)
    }

    /// Remembers leaves of these SSTables. Entries that follow from them are dropped.
    pub(super) fn keep(
        &mut self,
        family: FamilyId,
        tables: BTreeMap<u64, TableIdentity>,
        division: Division,
        leaves: Leaves,
    ) {
        self.entries.retain(|entry| {
            let follows = || entry.leaves.gathered_from(&leaves).is_some();
            entry.family != family || entry.division != division && !follows()
        });
        self.entries.push_back(Entry { family, division, tables, leaves });
        self.make_room();
    }

    fn make_room(&mut self) {
        let leaves = |entry: &Entry| entry.leaves.0.len();
        while self.entries.iter().map(leaves).sum::<usize>() > MOST_KEPT {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
