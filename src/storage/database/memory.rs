//! The memory of memtables: writers wait when it is used up, and the largest memtable is flushed
//! when half of it is.

use super::super::caches::{ByteBudget, CacheStats};
use super::super::family::ColumnFamily;
use super::super::flush_queue::FlushCause;
use super::flushes::RETRY_PAUSE;
use super::{Core, WriteError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Part of the budget below which no memtable is flushed for memory unless a writer waits for it:
/// each would make a tiny SSTable.
const WORTH_FLUSHING: u64 = 64;

/// Memory of a storage core, in bytes.
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
    /// The block cache.
    pub block_cache: CacheStats,
}

impl Core {
    /// Waits while memtables are full: writers go as fast as the disk does.
    pub(super) fn wait_for_memory(&self, may_block: bool) -> Result<(), WriteError> {
        self.request_for_memory();
        if self.memtable_memory() <= self.options.memtable_budget_bytes {
            return Ok(());
        }
        if !may_block {
            return Err(WriteError::WouldBlock);
        }
        let (lock, freed) = &self.memory_freed;
        let mut guard = lock.lock();
        while self.memtable_memory() > self.options.memtable_budget_bytes {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(WriteError::Closed);
            }
            if !self.can_free_memory() {
                self.families().try_for_each(|family| family.check_writable())?;
            }
            self.request_largest();
            freed.wait_for(&mut guard, RETRY_PAUSE);
        }
        Ok(())
    }

    /// Lets writers that wait for memory look again.
    pub(super) fn wake_writers(&self) {
        let (lock, freed) = &self.memory_freed;
        // A writer between its look and its wait must not miss this.
        drop(lock.lock());
        freed.notify_all();
    }

    /// Requests a flush when half of the memory is used.
    pub(super) fn request_for_memory(&self) {
        let used = self.memtable_memory();
        if used > self.options.memtable_budget_bytes / 2 && self.is_half_full(used) {
            self.request_largest();
        }
    }

    pub(super) fn memtable_memory(&self) -> u64 {
        self.environment.memtable_memory.load(Ordering::Relaxed)
    }

    /// Whether half of the memory is used that failed families leave to the others. No flush frees
    /// what those hold, so that it must not make the others flush with every write.
    fn is_half_full(&self, used: u64) -> bool {
        let failed = self.families().filter(|family| family.failure().is_some());
        let held: u64 = failed.map(|family| family.view().memory()).sum();
        let half = self.options.memtable_budget_bytes.saturating_sub(held) / 2;
        used.saturating_sub(held) > half.max(self.options.memtable_budget_bytes / WORTH_FLUSHING)
    }

    /// Requests a flush of the largest memtable, unless one that frees memory is due or running:
    /// until it ends, the next one grows.
    fn request_largest(&self) {
        if self.flushes.is_busy() {
            return;
        }
        let able = self.sound_families().filter(|family| !self.flushes.is_deferred(family.id()));
        let largest = able.max_by_key(|family| family.view().active.memory());
        if let Some(family) = largest.filter(|family| !family.view().active.is_empty()) {
            self.flushes.push(family.id(), FlushCause::Memory);
        }
    }

    /// Whether a flush may free memory. The memtables of a failed family stay in memory, and
    /// readable.
    fn can_free_memory(&self) -> bool {
        let has_data = |family: &Arc<ColumnFamily>| {
            family.view().memtables().any(|memtable| !memtable.is_empty())
        };
        self.sound_families().any(has_data)
    }

    /// The families that have not failed.
    pub(super) fn sound_families(&self) -> impl Iterator<Item = &Arc<ColumnFamily>> {
        self.families().filter(|family| family.failure().is_none())
    }

    /// Memory of memtables and caches, and their bounds.
    pub fn memory_use(&self) -> MemoryUse {
        let environment = &self.environment;
        let of = |budget: &ByteBudget| (budget.used(), budget.limit());
        MemoryUse {
            memtables: self.memtable_memory(),
            memtable_budget: self.options.memtable_budget_bytes,
            key_caches: of(&environment.key_cache_budget),
            row_caches: of(&environment.row_cache_budget),
            block_cache: environment.cache.stats(),
        }
    }
}
