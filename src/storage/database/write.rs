//! The path of a mutation: log, memtables, and waiting when there is no room for more.

use super::super::background::{FlushCause, Work};
use super::super::commitlog::LogError;
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
    /// rows may be written at the next start, each whole or not at all. Counts for each column
    /// family what was written; the time is that until the writes may be acknowledged, or until
    /// they wait for a sync of the log.
    pub fn apply_all(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let clock = &*self.environment.clock;
        let mut families = mutations.iter().flat_map(|m| &m.families).map(|f| f.family);
        let Some(first) = families.next() else { return self.write(mutations, may_block) };
        let begun = self.family(first).operations().begin(Operation::Write, clock);
        let applied = self.write(mutations, may_block)?;
        // The rows of a batch are mostly of one family.
        let (mut current, mut count) = (first, 1);
        for family in families {
            if family != current {
                self.family(current).operations().end(Operation::Write, count, begun, clock);
                (current, count) = (family, 0);
            }
            count += 1;
        }
        self.family(current).operations().end(Operation::Write, count, begun, clock);
        Ok(applied)
    }

    /// [`Core::apply`] for what the node notes for itself, which is little and seldom: it does
    /// not wait for memory, so that a node whose disk is full can start and serve reads.
    pub fn apply_own(&self, mutation: &RowMutation) -> Result<Applied, WriteError> {
        self.apply_with_memory(std::slice::from_ref(mutation), true)
    }

    fn write(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError> {
        self.wait_for_memory(may_block)?;
        self.apply_with_memory(mutations, may_block)
    }

    /// [`Self::write`] for a caller that has waited for memory.
    fn apply_with_memory(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let stores = self.stores_of(mutations);
        let delays = stores.iter().map(|store| store.pressure().write_delay());
        let delay = delays.max().unwrap_or_default();
        if !delay.is_zero() {
            if !may_block {
                return Err(WriteError::WouldBlock);
            }
            // Compaction is far behind: the more writes now, the more files a read has to look at.
            std::thread::sleep(delay);
        }
        let gates = enter_gates(&stores, may_block)?;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        if let Some(refusal) = stores.iter().find_map(|store| refusal(store)) {
            return Err(refusal);
        }
        self.apply_in_gates(gates, mutations, may_block)
    }

    /// Writes a note of the node itself, also while it stops.
    pub(super) fn apply_note(&self, note: RowMutation) -> Result<Applied, WriteError> {
        let mutations = &[note];
        let stores = self.stores_of(mutations);
        self.apply_in_gates(enter_gates(&stores, true)?, mutations, true)
    }

    /// The column families of some mutations, each once and by number.
    fn stores_of(&self, mutations: &[RowMutation]) -> SmallVec<[&ColumnFamily; 2]> {
        let families = mutations.iter().flat_map(|mutation| &mutation.families);
        let mut ids: SmallVec<[FamilyId; 4]> = SmallVec::new();
        for FamilyMutation { family, .. } in families {
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
        let stores = gates.into_iter().map(|(store, _)| store);
        for store in stores {
            if let Some(cause) = store.full_cause() {
                self.flushes.push(Work::Flush(store.id(), cause));
            }
        }
        Ok(match position {
            Some(position) if self.waits_for_sync => Applied::Pending(position),
            _ => Applied::Done,
        })
    }

    pub(super) fn request_all(&self, cause: FlushCause) {
        for store in self.families() {
            if store.view().memtables().any(|memtable| !memtable.is_empty()) {
                self.flushes.push(Work::Flush(store.id(), cause));
            }
        }
    }
}

/// Column families with their gates, which are held.
type Gates<'a> = SmallVec<[(&'a ColumnFamily, RwLockReadGuard<'a, ()>); 2]>;

fn enter_gates<'a>(stores: &[&'a ColumnFamily], may_block: bool) -> Result<Gates<'a>, WriteError> {
    let enter = |store: &&'a ColumnFamily| Some((*store, store.enter(may_block)?));
    stores.iter().map(enter).collect::<Option<_>>().ok_or(WriteError::WouldBlock)
}

/// Why a column family takes no writes, if it does not.
pub(super) fn refusal(store: &ColumnFamily) -> Option<WriteError> {
    let dropped = || store.refuses_writes().then_some("it was dropped");
    let reason = store.failure().or_else(dropped)?.to_owned();
    Some(WriteError::Failed { family: store.schema().to_string(), reason })
}
