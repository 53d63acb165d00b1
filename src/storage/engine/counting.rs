//! Counts reads and writes where they enter the storage core, and tells what it takes up.

use super::super::caches::{ByteBudget, CacheStats};
use super::super::error::ReadError;
use super::super::store::{Operation, Store};
use super::health::note_damage;
use super::{Applied, Shared, WriteError};
use crate::model::mutation::RowMutation;
use std::sync::atomic::Ordering;

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

impl Shared {
    /// Counts the operation if it succeeds. One that must not block and would is no operation: its
    /// caller asks again.
    pub(super) fn counted<T>(
        &self,
        store: &Store,
        operation: Operation,
        work: impl FnOnce(&Store) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let clock = &*self.environment.clock;
        let begun = store.operations().begin(operation, clock);
        let result = work(store).inspect_err(|error| note_damage(store, error))?;
        store.operations().end(operation, 1, begun, clock);
        Ok(result)
    }

    /// Writes, and counts for each column family what was written to it. The time is that until
    /// the writes may be acknowledged, or until they wait for a sync of the log.
    pub(super) fn apply_counted(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        let clock = &*self.environment.clock;
        let mut families = mutations.iter().flat_map(|m| &m.families).map(|f| f.family);
        let Some(first) = families.next() else { return self.apply(mutations, may_block) };
        let begun = self.store(first).operations().begin(Operation::Write, clock);
        let applied = self.apply(mutations, may_block)?;
        // The rows of a batch are mostly of one family.
        let (mut current, mut count) = (first, 1);
        for family in families {
            if family != current {
                self.store(current).operations().end(Operation::Write, count, begun, clock);
                (current, count) = (family, 0);
            }
            count += 1;
        }
        self.store(current).operations().end(Operation::Write, count, begun, clock);
        Ok(applied)
    }

    pub(super) fn memory_use(&self) -> MemoryUse {
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
