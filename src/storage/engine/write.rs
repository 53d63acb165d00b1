//! The path of a mutation: log, memtables, and waiting when there is no room for more.

use super::super::background::{FlushCause, Work};
use super::super::commitlog::LogError;
use super::super::store::Store;
use super::flushes::RETRY_PAUSE;
use super::{Applied, Shared, WriteError};
use crate::base::lock::RwLockReadGuard;
use crate::model::mutation::RowMutation;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

    /// [`Self::apply`] for who has waited for memory.
    pub(super) fn apply_with_memory(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let mut delay = Duration::ZERO;
        for family in mutations.iter().flat_map(|mutation| &mutation.families) {
            let store = self.store(family.family);
            if let Some(refusal) = refusal(store) {
                return Err(refusal);
            }
            delay = delay.max(store.pressure().write_delay());
        }
        if !delay.is_zero() {
            if !may_block {
                return Err(WriteError::WouldBlock);
            }
            // Compaction is far behind: the more writes now, the more files a read has to look at.
            std::thread::sleep(delay);
        }
        let gate = self.enter_gate(may_block)?;
        if self.stopping.load(Ordering::Relaxed) {
            return Err(WriteError::Closed);
        }
        self.apply_behind(gate, mutations, may_block)
    }

    /// Writes a note of the node itself, also while it stops.
    pub(super) fn apply_note(&self, note: RowMutation) -> Result<Applied, WriteError> {
        let gate = self.enter_gate(true)?;
        self.apply_behind(gate, &[note], true)
    }

    fn apply_behind(
        &self,
        gate: RwLockReadGuard<'_, ()>,
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
        drop(gate);
        let mut last = None;
        for family in mutations.iter().flat_map(|mutation| &mutation.families) {
            // The rows of a batch are mostly of one family.
            if last.replace(family.family) != Some(family.family) {
                let store = self.store(family.family);
                if let Some(cause) = store.full_cause() {
                    self.flushes.push(Work::Flush(store.id(), cause));
                }
            }
        }
        Ok(match position {
            Some(position) if self.waits_for_sync => Applied::Pending(position),
            _ => Applied::Done,
        })
    }

    /// Who switches a memtable waits for the writers that are under way, and one of these may wait
    /// for the disk.
    fn enter_gate(&self, may_block: bool) -> Result<RwLockReadGuard<'_, ()>, WriteError> {
        if may_block {
            return Ok(self.gate.read());
        }
        self.gate.try_read().ok_or(WriteError::WouldBlock)
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
                && let Some(refusal) = self.stores.iter().find_map(|store| refusal(store))
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
        let failed = self.stores.iter().filter(|store| store.failure().is_some());
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
            .stores
            .iter()
            .filter(|store| store.failure().is_none() && !self.flushes.is_put_off(work(store)));
        let largest = able.max_by_key(|store| store.view().active.memory());
        if let Some(store) = largest.filter(|store| !store.view().active.is_empty()) {
            self.flushes.push(work(store));
        }
    }

    /// Whether a flush may free memory. What a failed family holds stays in memory, and readable.
    fn can_free_memory(&self) -> bool {
        let mut sound = self.stores.iter().filter(|store| store.failure().is_none());
        sound.any(|store| store.view().memtables().any(|memtable| !memtable.is_empty()))
    }

    pub(super) fn request_all(&self, cause: FlushCause) {
        for store in &self.stores {
            if store.view().memtables().any(|memtable| !memtable.is_empty()) {
                self.flushes.push(Work::Flush(store.id(), cause));
            }
        }
    }
}

fn refusal(store: &Store) -> Option<WriteError> {
    let reason = store.failure()?.to_owned();
    Some(WriteError::Failed { family: store.schema().to_string(), reason })
}
