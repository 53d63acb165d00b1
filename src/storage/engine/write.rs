//! The path of a mutation: log, memtables, and waiting when there is no room for more.

use super::super::background::{FlushCause, Work};
use super::super::commitlog::LogError;
use super::super::store::Store;
use super::flushes::RETRY_PAUSE;
use super::{Applied, Shared, WriteError};
use crate::base::lock::RwLockReadGuard;
use crate::model::mutation::{FamilyMutation, RowMutation};
use crate::model::schema::FamilyId;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// Before memtables take up this part of the budget, none is flushed for memory unless a writer
/// waits for it: each would make a tiny SSTable.
const WORTH_FLUSHING: u64 = 64;

impl Shared {
    pub(super) fn apply(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        self.wait_for_memory(may_block)?;
        self.apply_with_memory(mutations, may_block)
    }

    /// [`Self::apply`] for a caller that has waited for memory.
    pub(super) fn apply_with_memory(
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
    fn stores_of(&self, mutations: &[RowMutation]) -> SmallVec<[&Store; 2]> {
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
        ids.into_iter().map(|id| &**self.store(id)).collect()
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
                self.store(family.family).apply(&key, family);
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

    /// Memtables being full is no reason to fail: writers go as fast as the disk does.
    fn wait_for_memory(&self, may_block: bool) -> Result<(), WriteError> {
        let used = || self.environment.memtable_memory.load(Ordering::Relaxed);
        self.request_for_memory();
        if used() <= self.memtable_budget {
            return Ok(());
        }
        if !may_block {
            return Err(WriteError::WouldBlock);
        }
        let (lock, freed) = &self.memory_freed;
        let mut guard = lock.lock();
        while used() > self.memtable_budget {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(WriteError::Closed);
            }
            if !self.can_free_memory()
                && let Some(refusal) = self.stores().find_map(|store| refusal(store))
            {
                return Err(refusal);
            }
            self.request_largest();
            freed.wait_for(&mut guard, RETRY_PAUSE);
        }
        Ok(())
    }

    /// Lets writers that wait for memory look again.
    pub(super) fn wake_writers(&self) {
        let (lock, freed) = &self.memory_freed;
        // Taken, so that a writer between its look and its wait is not missed.
        drop(lock.lock());
        freed.notify_all();
    }

    /// Asks for a flush when half of the memory is used.
    pub(super) fn request_for_memory(&self) {
        let used = self.environment.memtable_memory.load(Ordering::Relaxed);
        if used > self.memtable_budget / 2 && self.is_half_full(used) {
            self.request_largest();
        }
    }

    /// Whether half of the memory is used that failed families leave to the others. No flush gets
    /// back what those hold, so that it must not make the others flush with every write.
    fn is_half_full(&self, used: u64) -> bool {
        let failed = self.stores().filter(|store| store.failure().is_some());
        let held: u64 = failed.map(|store| store.view().memory()).sum();
        let half = self.memtable_budget.saturating_sub(held) / 2;
        used.saturating_sub(held) > half.max(self.memtable_budget / WORTH_FLUSHING)
    }

    /// Asks for a flush of the largest memtable, unless one that frees memory is due or under way:
    /// until it has, the next one grows.
    fn request_largest(&self) {
        if self.flushing.load(Ordering::Relaxed) > 0 || self.flushes.has_urgent() {
            return;
        }
        let work = |store: &Store| Work::Flush(store.id(), FlushCause::Memory);
        let able = self
            .stores()
            .filter(|store| store.failure().is_none() && !self.flushes.is_put_off(work(store)));
        let largest = able.max_by_key(|store| store.view().active.memory());
        if let Some(store) = largest.filter(|store| !store.view().active.is_empty()) {
            self.flushes.push(work(store));
        }
    }

    /// Whether a flush may free memory. What a failed family holds stays in memory, and readable.
    fn can_free_memory(&self) -> bool {
        let mut sound = self.stores().filter(|store| store.failure().is_none());
        sound.any(|store| store.view().memtables().any(|memtable| !memtable.is_empty()))
    }

    pub(super) fn request_all(&self, cause: FlushCause) {
        for store in self.stores() {
            if store.view().memtables().any(|memtable| !memtable.is_empty()) {
                self.flushes.push(Work::Flush(store.id(), cause));
            }
        }
    }
}

/// Column families with their gates, which are held.
type Gates<'a> = SmallVec<[(&'a Store, RwLockReadGuard<'a, ()>); 2]>;

fn enter_gates<'a>(stores: &[&'a Store], may_block: bool) -> Result<Gates<'a>, WriteError> {
    let enter = |store: &&'a Store| Some((*store, store.enter(may_block)?));
    stores.iter().map(enter).collect::<Option<_>>().ok_or(WriteError::WouldBlock)
}

fn refusal(store: &Store) -> Option<WriteError> {
    let dropped = || store.is_dropped().then_some("it was dropped");
    let reason = store.failure().or_else(dropped)?.to_owned();
    Some(WriteError::Failed { family: store.schema().to_string(), reason })
}
