//! Claims of SSTables for compactions: each is the input of one compaction at a time.

use super::ColumnFamily;
use crate::base::lock::{Condvar, Mutex, rank};
use crate::storage::compaction::CompactionError;
use crate::storage::sstable::SsTable;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Period at which a wait for SSTables checks whether the node is stopping.
const STOP_CHECK: Duration = Duration::from_millis(100);

/// Claimed SSTables of a family.
#[derive(Debug, Default)]
pub(super) struct Claims {
    state: Mutex<rank::Files, State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Generations of the claimed SSTables.
    generations: BTreeSet<u64>,
    /// Threads that wait until nothing is claimed. Nothing new is claimed meanwhile, or they would
    /// wait forever under load.
    waiting_for_all: usize,
}

/// SSTables that no other thread compacts as long as this lives. Reads of them go on.
#[derive(Debug)]
pub struct Claim<'a> {
    family: &'a ColumnFamily,
    tables: Vec<Arc<SsTable>>,
}

/// The SSTables of a family, by generation, for the choice of a compaction.
#[derive(Debug, Clone, Default)]
pub struct Choosable {
    /// SSTables that may be claimed; none while a thread waits to claim all.
    pub free: Vec<Arc<SsTable>>,
    /// The other ones.
    pub claimed: Vec<Arc<SsTable>>,
}

impl ColumnFamily {
    /// Claims the free SSTables that `choose` returns.
    pub fn claim(
        &self,
        choose: impl FnOnce(&Choosable) -> Option<Vec<Arc<SsTable>>>,
    ) -> Option<Claim<'_>> {
        let mut state = self.claims.state.lock();
        let tables = choose(&self.partitioned(&state))?;
        Some(self.take(&mut state, tables))
    }

    /// Waits for running compactions and then claims all SSTables; `None` if the
    /// node is stopping.
    pub fn claim_all(&self, stop: &AtomicBool) -> Option<Claim<'_>> {
        let mut state = self.claims.state.lock();
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

    /// Claims the oldest free SSTable that is wanted; `None` if none is left. Waits while others
    /// have claimed all of them.
    pub fn claim_one(
        &self,
        is_wanted: impl Fn(&SsTable) -> bool,
        stop: &AtomicBool,
    ) -> Result<Option<Claim<'_>>, CompactionError> {
        let mut state = self.claims.state.lock();
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

    /// The SSTables that may be claimed at this moment.
    pub fn choosable(&self) -> Choosable {
        self.partitioned(&self.claims.state.lock())
    }

    /// The view is taken under the lock: a compaction publishes its result before it releases its
    /// inputs, so that unclaimed SSTables in the view are free.
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
        Claim { family: self, tables }
    }
}

impl Claims {
    fn release<'a>(&self, tables: impl Iterator<Item = &'a Arc<SsTable>>) {
        let mut state = self.state.lock();
        for table in tables {
            state.generations.remove(&table.generation());
        }
        self.released.notify_all();
    }
}

impl<'a> Claim<'a> {
    /// Their column family.
    pub fn family(&self) -> &'a ColumnFamily {
        self.family
    }

    /// The SSTables, by generation.
    pub fn tables(&self) -> &[Arc<SsTable>] {
        &self.tables
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.size()).sum()
    }

    /// Releases and returns the largest of them.
    pub fn release_largest(&mut self) -> Option<Arc<SsTable>> {
        let sizes = self.tables.iter().enumerate().map(|(at, table)| (table.size(), at));
        let (_, at) = sizes.max()?;
        let largest = self.tables.remove(at);
        self.family.claims.release([&largest].into_iter());
        Some(largest)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.family.claims.release(self.tables.iter());
    }
}
