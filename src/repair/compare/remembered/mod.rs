//! Hashes of leaves that were worked out before: what has not changed is not read again.
//!
//! They are those of the rows in certain SSTables. When SSTables are merged they hold on, for the
//! rows stay the same, except where a deletion was dropped that counted. SSTables that were added
//! say by their keys which leaves have changed; of small ones a merge says it. When an SSTable is
//! gone otherwise, nothing is known. Each leaf has the times for which its hash is right: deletions
//! come of age.

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

/// Most leaves that are kept, of all column families together: some 30 MB.
const MOST_KEPT: usize = 1 << 18;

/// Ranges, and how they are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) ranges: Vec<TokenRange>,
    pub(super) shape: Shape,
}

/// The leaves that were worked out last.
#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// The last one is the one that was worked out last.
    entries: VecDeque<Entry>,
    /// Column families of which the file was read.
    loaded: BTreeSet<FamilyId>,
}

/// The SSTables of a column family, and how they came to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) now: &'a BTreeMap<u64, TableIdentity>,
    pub(super) merges: &'a [Arc<Merge>],
}

/// Known hashes of leaves that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) leaves: Leaves,
    /// Generations of SSTables that were added since: the leaves of their rows are not known.
    pub(super) added: BTreeSet<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    family: FamilyId,
    division: Division,
    /// SSTables whose rows were hashed.
    tables: BTreeMap<u64, TableIdentity>,
    leaves: Leaves,
}

impl Entry {
    /// Follows merges. Returns which SSTables were added, or `None` if nothing is known any more.
    fn catch_up(&mut self, tables: Tables<'_>) -> Option<BTreeSet<u64>> {
        for merge in tables.merges {
            if !merge.old.iter().any(|table| self.tables.contains_key(table)) {
                continue;
            }
            // Of those that are not known it says which rows they have, or is taken for one.
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
                // What was merged again since is told by a later merge.
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
    /// Whether the file of the family was read.
    pub(super) fn is_loaded(&self, family: FamilyId) -> bool {
        self.loaded.contains(&family)
    }

    /// Takes up what the file of a family says; if there is none, or it is not of this kind,
    /// nothing. Only the first one counts.
    pub(super) fn load(&mut self, family: FamilyId, file: &[u8], context: BodyContext<'_>) {
        if self.loaded.insert(family) {
            let entries = file::decode(file, family, context).unwrap_or_default();
            // Before what was worked out meanwhile.
            entries.into_iter().rev().for_each(|entry| self.entries.push_front(entry));
            self.make_room();
        }
    }

    /// The content of the file of a family.
    pub(super) fn save(&self, family: FamilyId, context: BodyContext<'_>) -> Vec<u8> {
        let entries: Vec<&Entry> = self.entries.iter().filter(|it| it.family == family).collect();
        // Tokens and numbers: there is nothing in it that cannot be written.
        file::encode(&entries, family, context).unwrap_or_default()
    }

    /// Known hashes of these leaves, if there are any.
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

    /// Follows merges of SSTables of a family. Returns whether that has changed anything.
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

    /// The families of which anything is known.
    pub(super) fn families(&self) -> BTreeSet<FamilyId> {
        self.entries.iter().map(|entry| entry.family).collect()
    }

    /// How these ranges were divided the last time.
    pub(super) fn shape(&self, family: FamilyId, ranges: &[TokenRange]) -> Option<&Shape> {
        let is_it = |entry: &&Entry| entry.family == family && entry.division.ranges == ranges;
        self.entries.iter().rev().find(is_it).map(|entry| &entry.division.shape)
    }

    /// Keeps leaves of the rows of these SSTables, in place of what follows from them.
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
        let kept = |entries: &VecDeque<Entry>| {
            entries.iter().map(|entry| entry.leaves.ranges().len()).sum::<usize>()
        };
        while kept(&self.entries) > MOST_KEPT {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
