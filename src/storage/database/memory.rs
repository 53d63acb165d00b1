//! The memory of memtables: writers wait when it is used up, and the largest memtable is flushed
//! when half of it is.

use super::super::background::{FlushCause, Work};
use super::super::caches::{ByteBudget, CacheStats};
use super::super::family::ColumnFamily;
use super::flushes::RETRY_PAUSE;
use super::write::refusal;
use super::{Core, WriteError};
use std::sync::atomic::Ordering;

/// Before memtables take up this part of the budget, none is flushed for memory unless a writer
/// waits for it: each would make a tiny SSTable.
const WORTH_FLUSHING: u64 = 64;

/// Memory that a storage core uses and may use, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// All memtables, those being flushed included.
    pub memtables: u64,
    /// Most that they may take together; writers wait then.
    pub memtable_budget: u64,
    /// The key caches of all column families, and what they may take together.
    pub key_caches: (u64, u64),
    /// The row caches of all column families, and what they may take together.
    pub row_caches: (u64, u64),
    /// The block cache, in bytes.
    pub block_cache: CacheStats,
}

impl Core {
    /// Memtables being full is no reason to fail: writers go as fast as the disk does.
    pub(super) fn wait_for_memory(&self, may_block: bool) -> Result<(), WriteError> {
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
                && let Some(refusal) = self.families().find_map(|store| refusal(store))
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
        let failed = self.families().filter(|store| store.failure().is_some());
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
        let work = |store: &ColumnFamily| Work::Flush(store.id(), FlushCause::Memory);
        let able = self
            .families()
            .filter(|store| store.failure().is_none() && !self.flushes.is_put_off(work(store)));
        let largest = able.max_by_key(|store| store.view().active.memory());
        if let Some(store) = largest.filter(|store| !store.view().active.is_empty()) {
            self.flushes.push(work(store));
        }
    }

    /// Whether a flush may free memory. What a failed family holds stays in memory, and readable.
    fn can_free_memory(&self) -> bool {
        let mut sound = self.families().filter(|store| store.failure().is_none());
        sound.any(|store| store.view().memtables().any(|memtable| !memtable.is_empty()))
    }

    /// Memory that memtables and blocks use and may use.
    pub fn memory_use(&self) -> MemoryUse {
        let environment = &self.environment;
        let of = |budget: &ByteBudget| (budget.used(), budget.limit());
        MemoryUse {
            memtables: environment.memtable_memory.load(Ordering::Relaxed),
            memtable_budget: self.memtable_budget,
            key_caches: of(&environment.key_cache_budget),
            row_caches: of(&environment.row_cache_budget),
            block_cache: environment.cache.stats(),
        }
    }
}
