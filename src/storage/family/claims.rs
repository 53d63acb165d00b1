//! Which SSTables are being compacted: each is the input of one compaction at a time.

use super::ColumnFamily;
use crate::base::lock::{Condvar, Mutex, MutexGuard, rank};
use crate::storage::compaction::CompactionError;
use crate::storage::sstable::SsTable;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often who waits for all SSTables looks whether the node is stopping.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// The SSTables of a store that are being compacted.
#[derive(Debug, Default)]
pub(super) struct Claims {
    state: Mutex<rank::Files, State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Generations of the claimed SSTables.
    generations: BTreeSet<u64>,
    /// So many wait until nothing is claimed. Nothing new is claimed meanwhile, or they would wait
    /// for ever under load.
    waiting_for_all: usize,
}

/// SSTables that nobody else compacts as long as this lives. Reads of them go on.
#[derive(Debug)]
pub struct Claim<'a> {
    store: &'a ColumnFamily,
    tables: Vec<Arc<SsTable>>,
}

/// The SSTables of a store, by generation, as who chooses some for a compaction sees them.
#[derive(Debug, Clone, Default)]
pub struct Choosable {
    /// Those that may be claimed; none while somebody waits to claim all.
    pub free: Vec<Arc<SsTable>>,
    /// The others.
    pub claimed: Vec<Arc<SsTable>>,
}

impl ColumnFamily {
    /// Claims those of the free SSTables that `choose` takes.
    pub fn claim(
        &self,
        choose: impl FnOnce(&Choosable) -> Option<Vec<Arc<SsTable>>>,
    ) -> Option<Claim<'_>> {
        let mut state = self.claims.lock();
        let tables = choose(&self.partitioned(&state))?;
        Some(self.take(&mut state, tables))
    }

    /// Waits for the compactions under way and claims all SSTables there are then; `None` if the
    /// node is stopping.
    pub fn claim_all(&self, stop: &AtomicBool) -> Option<Claim<'_>> {
        let mut state = self.claims.lock();
        state.waiting_for_all += 1;
        while !state.generations.is_empty() && !stop.load(Ordering::Relaxed) {
            self.claims.released.wait_for(&mut state, STOP_CHECK);
        }
        state.waiting_for_all -= 1;
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let tables = self.view().tables.clone();
        Some(self.take(&mut state, tables))
    }

    /// Claims the oldest free SSTable of those that are wanted; `None` if none is left. Waits as
    /// long as others have claimed all of them.
    pub fn claim_one(
        &self,
        is_wanted: impl Fn(&SsTable) -> bool,
        stop: &AtomicBool,
    ) -> Result<Option<Claim<'_>>, CompactionError> {
        let mut state = self.claims.lock();
        while !stop.load(Ordering::Relaxed) {
            let tables = self.partitioned(&state);
            if let Some(table) = tables.free.into_iter().find(|table| is_wanted(table)) {
                return Ok(Some(self.take(&mut state, vec![table])));
            }
            if !tables.claimed.iter().any(|table| is_wanted(table)) {
                return Ok(None);
            }
            self.claims.released.wait_for(&mut state, STOP_CHECK);
        }
        Err(CompactionError::Stopped)
    }

    /// Which SSTables may be claimed at the moment.
    pub fn choosable(&self) -> Choosable {
        self.partitioned(&self.claims.lock())
    }

    /// The view is taken under the lock: a compaction publishes its result before it releases its
    /// inputs, so that what is unclaimed and in view is nobody's.
    fn partitioned(&self, state: &State) -> Choosable {
        let may_claim = |table: &Arc<SsTable>| {
            state.waiting_for_all == 0 && !state.generations.contains(&table.generation())
        };
        let (free, claimed) = self.view().tables.iter().cloned().partition(may_claim);
        Choosable { free, claimed }
    }

    fn take(&self, state: &mut State, tables: Vec<Arc<SsTable>>) -> Claim<'_> {
        for table in &tables {
            let is_new = state.generations.insert(table.generation());
            assert!(is_new, "an SSTable is claimed once");
        }
        Claim { store: self, tables }
    }
}

impl Claims {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn release<'a>(&self, tables: impl Iterator<Item = &'a Arc<SsTable>>) {
        let mut state = self.lock();
        for table in tables {
            state.generations.remove(&table.generation());
        }
        self.released.notify_all();
    }
}

impl<'a> Claim<'a> {
    /// Whose SSTables they are.
    pub fn store(&self) -> &'a ColumnFamily {
        self.store
    }

    /// The SSTables, by generation.
    pub fn tables(&self) -> &[Arc<SsTable>] {
        &self.tables
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.size()).sum()
    }

    /// Gives up the largest of them, which is returned.
    pub fn release_largest(&mut self) -> Option<Arc<SsTable>> {
        let sizes = self.tables.iter().enumerate().map(|(at, table)| (table.size(), at));
        let (_, at) = sizes.max()?;
        let largest = self.tables.remove(at);
        self.store.claims.release([&largest].into_iter());
        Some(largest)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.store.claims.release(self.tables.iter());
    }
}
