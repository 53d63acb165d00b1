//! Memtables: recent writes in memory, by row and in order.
//!
//! Rows are spread over shards by their key, so that writers to different rows rarely meet. Each
//! row is a [`CellTree`] behind a lock that is held for one mutation or one snapshot, never while
//! cells are read: a reader sees a mutation whole or not at all.
//!
//! Locks: a shard before a row, never two of either; only a flush of a sealed memtable reads all
//! its shards at once, in their order.

mod tree;
mod walk;

pub use tree::{CellTree, TreeCursor};
pub use walk::MemtableWalk;

use super::commitlog::Position;
use crate::base::lock::{Mutex, RwLock, rank};
use crate::model::deletion::Deletion;
use crate::model::mutation::FamilyMutation;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Token};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Shards of a memtable. More than the machine has cores, few enough that scans can merge them.
const SHARDS: usize = 8;

/// Memory of a row besides its cells: key, token, locks, nodes.
const ROW_OVERHEAD: u64 = 256;

/// Cells that are written while a shard is locked against readers.
const QUICK_CELLS: usize = 16;

/// Memory of a cell besides names and value: the cell itself and its share of the mutation.
const CELL_OVERHEAD: u64 = 80;

/// A row that may change. A panic in the middle of a mutation leaves the tree sound: every step of
/// an insertion does. The mutation may be there in part, as if the server had been stopped; its
/// client got no acknowledgement.
type Row = Mutex<rank::MemtableRow, MemtableRow>;

/// The rows of a shard.
type Rows = BTreeMap<DecoratedKey, Row>;

/// Rows of some keys.
#[derive(Debug)]
struct Shard {
    rows: RwLock<rank::MemtableShard, Rows>,
    /// Whether the last mutation made a row, as the next one is likely to do: then no look for it
    /// comes first.
    grows: AtomicBool,
}

impl Shard {
    fn new(index: usize) -> Self {
        let rows = RwLock::numbered(index as u64, Rows::new());
        Self { rows, grows: AtomicBool::new(false) }
    }
}

/// The recent writes of one column family.
#[derive(Debug)]
pub struct Memtable {
    family: Arc<ColumnFamilySchema>,
    shards: [Shard; SHARDS],
    /// Time of its creation, on the monotonic clock.
    created_at: Duration,
    weight: AtomicU64,
    operations: AtomicU64,
    memory: AtomicU64,
    /// Least timestamp of all writes, deletions included.
    min_timestamp: AtomicI64,
    /// Set when it takes no more writes.
    log_end: OnceLock<Position>,
}

/// A snapshot of a row.
#[derive(Debug, Clone)]
pub struct MemtableRow {
    /// Deletion of the whole row.
    pub deletion: Deletion,
    /// Its cells.
    pub cells: CellTree,
}

impl Default for MemtableRow {
    fn default() -> Self {
        Self { deletion: Deletion::NONE, cells: CellTree::default() }
    }
}

impl Memtable {
    /// An empty memtable.
    pub fn new(family: Arc<ColumnFamilySchema>, created_at: Duration) -> Self {
        Self {
            family,
            shards: std::array::from_fn(Shard::new),
            created_at,
            weight: AtomicU64::new(0),
            operations: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            min_timestamp: AtomicI64::new(i64::MAX),
            log_end: OnceLock::new(),
        }
    }

    fn shard(&self, key: &DecoratedKey) -> &Shard {
        let hash = crc32fast::hash(key.key().as_bytes());
        &self.shards[hash as usize % SHARDS]
    }

    /// Writes to a row, whole or not at all as far as readers can see. Returns how many bytes of
    /// memory that took.
    pub fn apply(&self, key: &DecoratedKey, mutation: &FamilyMutation) -> u64 {
        let weight: u64 = mutation.cells.iter().map(|cell| cell.weight() as u64).sum();
        let operations = mutation.cells.len() as u64 + u64::from(!mutation.deletion.is_none());
        if operations == 0 {
            // Else range reads would show an empty row until the flush.
            return 0;
        }
        // Before the row: a reader that finds the row must find this.
        self.note_timestamps(mutation);
        let mut memory = weight + operations * CELL_OVERHEAD;
        if self.change_row(key, mutation) {
            memory += ROW_OVERHEAD + key.key().as_bytes().len() as u64;
        }
        self.weight.fetch_add(weight, Ordering::Relaxed);
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.memory.fetch_add(memory, Ordering::Relaxed);
        memory
    }

    /// Writes to the row; whether it is new.
    fn change_row(&self, key: &DecoratedKey, mutation: &FamilyMutation) -> bool {
        let shard = self.shard(key);
        // Readers of the shard would wait for a large one.
        let is_quick = mutation.cells.len() <= QUICK_CELLS;
        if !(is_quick && shard.grows.load(Ordering::Relaxed))
            && let Some(row) = shard.rows.read().get(key)
        {
            self.change(row, mutation);
            return false;
        }
        let mut rows = shard.rows.write();
        let (row, is_new) = match rows.entry(key.clone()) {
            Entry::Occupied(row) => (row.into_mut(), false),
            Entry::Vacant(place) => (place.insert(Row::default()), true),
        };
        self.change(row, mutation);
        shard.grows.store(is_new, Ordering::Relaxed);
        is_new
    }

    fn note_timestamps(&self, mutation: &FamilyMutation) {
        let deletion = Some(mutation.deletion).filter(|deletion| !deletion.is_none());
        let timestamps = mutation.cells.iter().map(|cell| cell.timestamp());
        let least = timestamps.chain(deletion.map(|d| d.marked_for_delete_at)).min();
        // Timestamps mostly grow: looking is cheaper than writing.
        let least = least.unwrap_or(i64::MAX);
        if least < self.min_timestamp.load(Ordering::Relaxed) {
            self.min_timestamp.fetch_min(least, Ordering::Relaxed);
        }
    }

    fn change(&self, row: &Row, mutation: &FamilyMutation) {
        let mut row = row.lock();
        row.deletion = row.deletion.merge(mutation.deletion);
        for cell in &mutation.cells {
            row.cells.insert(&self.family, cell.clone());
        }
    }

    /// The row as it is now.
    pub fn row(&self, key: &DecoratedKey) -> Option<MemtableRow> {
        self.shard(key).rows.read().get(key).map(snapshot)
    }

    /// Whether anything was written to the row.
    pub fn contains(&self, key: &DecoratedKey) -> bool {
        self.shard(key).rows.read().contains_key(key)
    }

    /// Visits the key of each row, in no order. A shard is locked against new rows meanwhile.
    pub fn for_each_key(&self, mut visit: impl FnMut(&DecoratedKey)) {
        for shard in &self.shards {
            shard.rows.read().keys().for_each(&mut visit);
        }
    }

    /// Visits samples of about `interval` rows, in no order, each with the token of its first row
    /// and its number of rows. Together they are all rows. A shard is locked against new rows
    /// meanwhile.
    pub fn for_each_sample(&self, interval: usize, mut visit: impl FnMut(&Token, u64)) {
        // The rows of a sample are neighbours among those of their shard only.
        let interval = (interval / SHARDS).max(1);
        for shard in &self.shards {
            let rows = shard.rows.read();
            for (number, first) in rows.keys().step_by(interval).enumerate() {
                let in_sample = interval.min(rows.len() - number * interval);
                visit(first.token(), in_sample as u64);
            }
        }
    }

    /// The rows from a place on, in order.
    pub fn walk(&self, from: Bound<&DecoratedKey>) -> MemtableWalk<'_> {
        MemtableWalk::new(self, from)
    }

    /// Visits all rows in order, up to the first error. For a memtable that is no longer written
    /// to: writers would wait.
    pub fn for_each_row<E>(
        &self,
        mut visit: impl FnMut(&DecoratedKey, &MemtableRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let shards = self.shards.each_ref().map(|shard| shard.rows.read());
        let mut rows = Vec::with_capacity(shards.iter().map(|shard| shard.len()).sum());
        for shard in &shards {
            rows.extend(shard.iter());
        }
        // Eight sorted runs, which a stable sort recognises and merges.
        rows.sort_by_key(|(key, _)| *key);
        rows.into_iter().try_for_each(|(key, row)| visit(key, &snapshot(row)))
    }

    /// Number of rows.
    pub fn row_count(&self) -> usize {
        self.shards.iter().map(|shard| shard.rows.read().len()).sum()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.operations.load(Ordering::Relaxed) == 0
    }

    /// Bytes written, overwrites included: what `MemtableThroughputInMB` bounds.
    pub fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Describes it for the operator, as 0.6 did, with a number that tells it from others.
    pub fn described(&self, family: &str, number: u64) -> String {
        let (bytes, operations) = (self.weight(), self.operations());
        format!("Memtable-{family}@{number}({bytes} bytes, {operations} operations)")
    }

    /// Columns and deletions written: what `MemtableOperationsInMillions` bounds.
    pub fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Estimate of the bytes of memory it takes, overwritten values included.
    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// Least timestamp of all writes, deletions included; the greatest number if it is empty.
    pub fn min_timestamp(&self) -> i64 {
        self.min_timestamp.load(Ordering::Relaxed)
    }

    /// Notes that it takes no more writes: it and the memtables before it hold everything that the
    /// commit log has of the family up to here.
    pub fn seal(&self, log_end: Position) {
        self.log_end.get_or_init(|| log_end);
    }

    /// Position of the commit log when it was sealed; the beginning if it was not.
    pub fn log_end(&self) -> Position {
        self.log_end.get().copied().unwrap_or_default()
    }

    /// Time of its creation, on the monotonic clock.
    pub fn created_at(&self) -> Duration {
        self.created_at
    }
}

fn snapshot(row: &Row) -> MemtableRow {
    row.lock().clone()
}
