//! One column family on this node: its memtables, its SSTables, and the operations on them.
//!
//! Readers take the [`View`] and are not disturbed by later changes: a flush or compaction
//! publishes a new view. The set of SSTables changes under the lock of the manifest: first on disk,
//! then in the view.
//!
//! ```text
//!   open        finds the files after a start
//!   adopt       makes SSTables of the original live, and opens them
//!   read        reads of one row and of ranges
//!   pieces      pages of rows for other nodes
//!   new_tables  flushes, and the outputs of compactions
//!   exchange    replaces SSTables by others
//!   claims      keeps an SSTable from being compacted twice
//!   merges      notes of the last compactions
//!   caches      key cache and row cache
//!   statistics  sizes and counts
//!   sampler     counts which rows are read and written most
//!   widest      the rows that take the most room
//! ```
//!
//! Locks: flushing before the manifest, the manifest before the merges, the replaced SSTables and
//! the view, the claims of compactions before the view.

mod adopt;
mod caches;
mod claims;
mod exchange;
mod merges;
mod new_tables;
mod open;
mod pieces;
mod read;
mod sampler;
mod statistics;
mod widest;

pub use adopt::Originals;
pub use claims::{Choosable, Claim};
pub use exchange::Cause;
pub use merges::{Merge, MergeNotes, TablesNow};
pub use new_tables::{FLUSH_TARGET, rows_after_merge};
pub use open::OpenError;
pub(in crate::storage) use open::{Found, check_node, find};
pub use pieces::Piece;
pub use sampler::{BusyRows, Sample, Sampler, Sampling};
pub use statistics::{FamilyStatistics, RowSizes};

use super::caches::{BlockCache, ByteBudget, KeyCache, RowCache};
use super::commitlog::Position;
use super::compaction::{Pressure, Thresholds};
use super::directory::DirectorySync;
use super::flush_queue::FlushCause;
use super::manifest::Manifest;
use super::memtable::Memtable;
use super::options::FamilyOptions;
use super::snapshot::Captured;
use super::sstable::SsTable;
use super::system::node_id::NodeId;
use crate::base::clock::Clock;
use crate::base::events::Events;
use crate::base::fs::FileSystem;
use crate::base::latest::Latest;
use crate::base::lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, rank};
use crate::base::operations::{Operations, Transfers};
use crate::model::mutation::FamilyMutation;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::ring::{DecoratedKey, Partitioner};
use caches::CacheSizes;
use claims::Claims;
use merges::Merges;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Kinds of operations that are counted and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A slice of one row.
    Read,
    /// A slice of the rows of a range, which counts once.
    RangeRead,
    /// The part of one mutation in the column family.
    Write,
}

/// State that all column families of a node share.
#[derive(Debug)]
pub struct Environment {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Receiver of log lines.
    pub events: Events,
    /// The blocks of all SSTables.
    pub cache: Arc<BlockCache>,
    /// The bytes of all key caches.
    pub key_cache_budget: Arc<ByteBudget>,
    /// The bytes of all row caches.
    pub row_cache_budget: Arc<ByteBudget>,
    /// Whether key caches learn where a compaction has put the rows that they knew.
    pub preheats_keys: bool,
    /// The order of rows.
    pub partitioner: Partitioner,
    /// Memory of all memtables, those being flushed included, in bytes.
    pub memtable_memory: AtomicU64,
    /// Memtables that were written to disk.
    pub flushes: Transfers,
    /// Counts operations by row, while somebody asks.
    pub sampler: Arc<Sampler>,
    /// Number of the node, which its manifests have.
    pub node: NodeId,
    /// Makes new files durable by name.
    pub directory_sync: DirectorySync,
    /// Handling of SSTables of the original that no manifest names.
    pub originals: Originals,
}

/// Memtables and SSTables of a column family at one moment. Each write is in one of the three
/// parts; while rows are cached, for a moment in a memtable and in the SSTable to which it was
/// written.
#[derive(Debug, Clone)]
pub struct View {
    /// Takes the writes.
    pub active: Arc<Memtable>,
    /// Full memtables on their way to disk, the oldest first.
    pub flushing: Vec<Arc<Memtable>>,
    /// The live SSTables, by generation.
    pub tables: Vec<Arc<SsTable>>,
    /// The places of its rows; `None` if that cache is off.
    pub key_cache: Option<Arc<KeyCache>>,
    /// Its rows; `None` if that cache is off.
    pub row_cache: Option<Arc<RowCache>>,
    /// Grows whenever the SSTables gain content, or deletions or rows are dropped: rows that were
    /// read from them before must not go into the row cache any more.
    pub epoch: u64,
}

impl View {
    /// All memtables.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.flushing.iter().chain([&self.active])
    }

    /// Memory of all memtables, in bytes.
    pub fn memory(&self) -> u64 {
        self.memtables().map(|memtable| memtable.memory()).sum()
    }
}

/// One column family.
#[derive(Debug)]
pub struct ColumnFamily {
    id: FamilyId,
    schema: Latest<Arc<ColumnFamilySchema>>,
    options: Latest<FamilyOptions>,
    environment: Arc<Environment>,
    /// The folder of the keyspace in each data directory.
    folders: Vec<PathBuf>,
    manifest: Mutex<rank::Files, Manifest>,
    view: RwLock<rank::View, Arc<View>>,
    next_generation: AtomicU64,
    flushing: Mutex<rank::Flush, ()>,
    /// Shared by writers, exclusive for a switch of the memtable: a position of the log then tells
    /// the content of the old memtable.
    gate: RwLock<rank::Gate, ()>,
    claims: Claims,
    thresholds: Mutex<rank::State, Thresholds>,
    /// The work that waits for compaction.
    pressure: Pressure,
    /// Replaced SSTables, until no reader has them. Dropping the last reference removes the file,
    /// which takes time, and no reader is to pay for it.
    replaced: Mutex<rank::State, Vec<Arc<SsTable>>>,
    merges: Mutex<rank::State, Merges>,
    cache_sizes: Mutex<rank::Files, CacheSizes>,
    /// Set by the first failure after which further writes could lose data.
    failure: OnceLock<String>,
    /// Set while the family is being dropped or emptied, and after a drop.
    refuses_writes: AtomicBool,
    is_dropped: AtomicBool,
    operations: [Operations; 3],
    memtable_switches: AtomicU64,
}

impl ColumnFamily {
    /// Its number.
    pub fn id(&self) -> FamilyId {
        self.id
    }

    /// Its definition.
    pub fn schema(&self) -> &Arc<ColumnFamilySchema> {
        &self.schema
    }

    /// Changes its definition and settings. The caller holds a lock against others that do.
    pub fn alter(&self, schema: Arc<ColumnFamilySchema>, options: FamilyOptions) {
        // Those that an operator has set stand as long as the configured ones do.
        if options.thresholds() != self.options.thresholds() {
            self.set_compaction_thresholds(options.thresholds());
        }
        self.follow_cache_sizes(self.options(), &options);
        self.schema.set(schema);
        self.options.set(options);
    }

    /// Its settings.
    pub fn options(&self) -> &FamilyOptions {
        &self.options
    }

    /// State that it shares with the others.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Counters of reads or writes.
    pub fn operations(&self, operation: Operation) -> &Operations {
        &self.operations[operation as usize]
    }

    /// The present memtables and SSTables.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut slot = self.view.write();
        let mut view = View::clone(&slot);
        change(&mut view);
        *slot = Arc::new(view);
    }

    /// Whether there are rows or deletions, on disk or in memory.
    pub fn has_data(&self) -> bool {
        let view = self.view();
        !view.tables.is_empty() || view.memtables().any(|memtable| !memtable.is_empty())
    }

    /// Writes to the active memtable. The caller holds the gate that keeps it active.
    pub fn apply(&self, key: &DecoratedKey, mutation: &FamilyMutation) {
        let memory = self.view.read().active.apply(key, mutation);
        self.environment.memtable_memory.fetch_add(memory, Ordering::Relaxed);
        self.environment.sampler.note(Operation::Write, self.id, key.key());
    }

    /// Puts a fresh memtable in place of the active one, which is returned and stays readable until
    /// it is flushed; `None` if nothing was written to it. The caller holds the gate exclusively.
    pub fn switch_memtable(&self) -> Option<Arc<Memtable>> {
        let full = Arc::clone(&self.view().active);
        if full.is_empty() {
            return None;
        }
        let now = self.environment.clock.monotonic();
        let fresh = Arc::new(Memtable::new(Arc::clone(self.schema()), now));
        self.publish(|view| {
            view.active = fresh;
            view.flushing.push(Arc::clone(&full));
        });
        self.memtable_switches.fetch_add(1, Ordering::Relaxed);
        Some(full)
    }

    /// Held during a write, from its record in the log to the memtable. A switch of the memtable
    /// waits for running writers, and one of these may wait for the disk: `None` if the caller must
    /// not wait for that.
    pub fn enter(&self, may_block: bool) -> Option<RwLockReadGuard<'_, ()>> {
        if may_block { Some(self.gate.read()) } else { self.gate.try_read() }
    }

    /// Keeps writers out.
    pub fn close_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Held during a flush: memtables are written in the order in which they became full.
    pub fn flush_lock(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// Numbers of SSTables of similar size that are merged.
    pub fn compaction_thresholds(&self) -> Thresholds {
        *self.thresholds.lock()
    }

    /// Changes the thresholds until the next start, or until other ones are configured.
    pub fn set_compaction_thresholds(&self, thresholds: Thresholds) {
        *self.thresholds.lock() = thresholds;
    }

    /// Deletions made at or before this second may be dropped, where that is safe.
    pub fn gc_before(&self) -> i32 {
        let grace = i32::try_from(self.schema.gc_grace.as_secs()).unwrap_or(i32::MAX);
        self.environment.clock.now_secs().saturating_sub(grace)
    }

    /// The work that waits for compaction.
    pub fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Everything that the commit log holds of the family up to here is in SSTables.
    pub fn flushed_position(&self) -> Position {
        self.manifest.lock().flushed
    }

    /// Whether a manifest has been stored, of format version 2 or later.
    pub fn has_manifest(&self) -> bool {
        self.manifest.lock().sequence > 0
    }

    /// Whether a node has written the manifest, and not a restore or an operator.
    pub fn is_of_node(&self) -> bool {
        self.manifest.lock().node.is_some()
    }

    /// Manifest and live SSTables at one moment.
    pub fn capture(&self) -> Captured {
        // Both change under this lock.
        let manifest = self.manifest.lock();
        Captured {
            family: self.schema.name.clone(),
            manifest_folder: self.folders[0].clone(),
            manifest: manifest.clone(),
            tables: self.view().tables.clone(),
        }
    }

    /// Reason to flush the active memtable, if there is one.
    pub fn full_cause(&self) -> Option<FlushCause> {
        let view = self.view.read();
        if view.active.weight() >= self.options.memtable_bytes {
            Some(FlushCause::Throughput)
        } else if view.active.operations() >= self.options.memtable_operations {
            Some(FlushCause::Operations)
        } else {
            None
        }
    }

    /// Stops all writing to this column family until the next start. Reading goes on.
    pub fn fail(&self, reason: String) {
        if self.failure.set(reason).is_ok() {
            let reason = self.failure.get().map_or("", String::as_str);
            log::error!("{} takes no more writes: {reason}", self.schema());
        }
    }

    /// The failure that has stopped all writing.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Refuses work on a family that has failed.
    pub fn check_sound(&self) -> Result<(), Refusal> {
        self.failure().map_or(Ok(()), |reason| Err(self.refusal(Some(reason))))
    }

    /// Refuses writes to a family that has failed, was dropped or is about to be.
    pub fn check_writable(&self) -> Result<(), Refusal> {
        self.check_sound()?;
        if self.is_being_dropped() { Err(self.refusal(None)) } else { Ok(()) }
    }

    /// Whether it was dropped, or is about to be dropped or emptied.
    pub fn is_being_dropped(&self) -> bool {
        self.refuses_writes.load(Ordering::Acquire)
    }

    fn refusal(&self, failure: Option<&str>) -> Refusal {
        Refusal { family: self.schema.to_string(), failure: failure.map(str::to_owned) }
    }

    /// Keeps writes out, or lets them in again. What is being written is written when this returns:
    /// no exchange of SSTables runs meanwhile, so that one that adds rows is complete, or will be
    /// refused.
    pub fn refuse_writes(&self, refuses: bool) {
        let manifest = self.manifest.lock();
        self.refuses_writes.store(refuses, Ordering::Release);
        drop(manifest);
        drop(self.close_gate());
    }

    /// Whether the family was dropped: it is empty, and takes no writes.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Takes the family, which is empty, from the list of those that exist.
    pub fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }
}

/// The column family takes no more writes.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{family} takes no more writes: {}", failure.as_deref().unwrap_or("it was dropped"))]
pub struct Refusal {
    family: String,
    failure: Option<String>,
}

impl Refusal {
    /// Whether the family was dropped, or is being dropped or emptied. It has not failed.
    pub fn is_of_dropped(&self) -> bool {
        self.failure.is_none()
    }
}
