//! The path of a mutation: log, memtables, and waiting when there is no room for more.

use super::super::commitlog::{LogError, SyncPolicy};
use super::super::family::{ColumnFamily, Operation};
use super::{Applied, Core, WriteError};
use crate::base::lock::RwLockReadGuard;
use crate::model::mutation::{FamilyMutation, RowMutation};
use crate::model::schema::FamilyId;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

impl Core {
    /// Writes to the log and to the memtables. With `may_block` it waits for memory and for the
    /// disk, else that is [`WriteError::WouldBlock`].
    pub fn apply(&self, mutation: &RowMutation, may_block: bool) -> Result<Applied, WriteError> {
        self.apply_all(std::slice::from_ref(mutation), may_block)
    }

    /// [`Core::apply`] for several rows, logged by one write. After an error of the log some of the
    /// rows may be written at the next start, each whole or not at all. Counts the writes of each
    /// column family, with the time until they may be acknowledged or wait for a sync of the log.
    pub fn apply_all(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let clock = &*self.environment.clock;
        let mut ids = mutations.iter().flat_map(|m| &m.families).map(|f| f.family);
        let first = ids.next();
        let writes = |id| self.family(id).operations(Operation::Write);
        let begun = first.map(|first| writes(first).begin(clock));
        self.wait_for_memory(may_block)?;
        let applied = self.apply_with_memory(mutations, may_block)?;
        let (Some(mut current), Some(begun)) = (first, begun) else { return Ok(applied) };
        // The rows of a batch are mostly of one family.
        let mut count = 1;
        for id in ids {
            if id != current {
                writes(current).end(count, begun, clock);
                (current, count) = (id, 0);
            }
            count += 1;
        }
        writes(current).end(count, begun, clock);
        Ok(applied)
    }

    /// [`Core::apply`] for the node's own notes, which are few: it does not wait for memory, so
    /// that a node whose disk is full can start and serve reads.
    pub fn apply_own(&self, mutation: &RowMutation) -> Result<Applied, WriteError> {
        self.apply_with_memory(std::slice::from_ref(mutation), true)
    }

    fn apply_with_memory(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let families = self.families_of(mutations);
        let delays = families.iter().map(|family| family.pressure().write_delay());
        let delay = delays.max().unwrap_or_default();
        if !delay.is_zero() {
            if !may_block {
                return Err(WriteError::WouldBlock);
            }
            // Compaction is far behind: the more writes now, the more files a read has to look at.
            std::thread::sleep(delay);
        }
        let gates = enter_gates(&families, may_block)?;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        families.iter().try_for_each(|family| family.check_writable())?;
        self.apply_in_gates(gates, mutations, may_block)
    }

    /// Writes a note of the node itself, also while it stops.
    pub(super) fn apply_note(&self, note: RowMutation) -> Result<Applied, WriteError> {
        let mutations = &[note];
        let families = self.families_of(mutations);
        self.apply_in_gates(enter_gates(&families, true)?, mutations, true)
    }

    /// The column families of some mutations, each once and by number.
    fn families_of(&self, mutations: &[RowMutation]) -> SmallVec<[&ColumnFamily; 2]> {
        let mut ids: SmallVec<[FamilyId; 4]> = SmallVec::new();
        for FamilyMutation { family, .. } in mutations.iter().flat_map(|it| &it.families) {
            // The rows of a batch are mostly of one family.
            if ids.last() != Some(family) {
                ids.push(*family);
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids.into_iter().map(|id| &**self.family(id)).collect()
    }

    fn apply_in_gates(
        &self,
        gates: Gates<'_>,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let records = mutations.iter().map(|m| (m.record(), m.family_numbers()));
        let position = match self.log.append_all(records, may_block) {
            Err(LogError::WouldBlock) => return Err(WriteError::WouldBlock),
            Err(full @ LogError::NoSpace { .. }) => {
                // A log that is smaller than it may grow must not wait until memtables are old.
                self.request_what_pins_the_oldest_segment();
                self.shortages.log_is_full(&full);
                return Err(full.into());
            }
            appended => appended?,
        };
        for mutation in mutations {
            let key = self.environment.partitioner.decorate(mutation.key.clone());
            for family in &mutation.families {
                self.family(family.family).apply(&key, family);
            }
        }
        for (family, gate) in gates {
            drop(gate);
            if let Some(cause) = family.full_cause() {
                self.flushes.push(family.id(), cause);
            }
        }
        Ok(match position {
            Some(position) if matches!(self.options.sync, SyncPolicy::Batch { .. }) => {
                Applied::Pending(position)
            }
            _ => Applied::Done,
        })
    }
}

/// Column families with their gates, which are held.
type Gates<'a> = SmallVec<[(&'a ColumnFamily, RwLockReadGuard<'a, ()>); 2]>;

fn enter_gates<'a>(
    families: &[&'a ColumnFamily],
    may_block: bool,
) -> Result<Gates<'a>, WriteError> {
    let enter = |family: &&'a ColumnFamily| Some((*family, family.enter(may_block)?));
    families.iter().map(enter).collect::<Option<_>>().ok_or(WriteError::WouldBlock)
}
