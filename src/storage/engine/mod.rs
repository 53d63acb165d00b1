//! All column families of a node together with the commit log: what the rest of the server uses.
//!
//! ```text
//!   open         directories, locks, column families, threads
//!   replay       what the commit log holds is applied, and the log is opened behind it
//!   write        the path of a mutation; back pressure
//!   flushes      the threads that write memtables to disk
//!   compactions  the threads that merge SSTables, and the housekeeper
//!   cleanup      drops what other nodes own, or everything
//!   caches       the thread that fills caches after a start, and saves their keys
//!   ingest       rows that come from other nodes
//!   exchange     rows that come from nodes of 0.6 and go to them, as files
//!   known_families  which column families have had data, so that lost ones are missed
//!   validation   what this node has, for who compares replicas
//!   health       why the node does not serve as it should
//!   counting     how often there was what, for operators
//!   snapshots    hard links to the SSTables of one moment
//!   unconfigured data of column families that are not configured
//! ```
//!
//! Locks: that of a flush first, then the gate; then as [`super::store`] and
//! [`super::memtable`] say.

mod caches;
mod cleanup;
mod compactions;
mod counting;
mod exchange;
mod flushes;
mod health;
mod ingest;
mod known_families;
mod open;
mod replay;
mod snapshots;
#[cfg(test)]
mod tests;
mod unconfigured;
mod validation;
mod write;

pub use cleanup::CleanupReport;
pub use counting::MemoryUse;
pub use exchange::{ExchangeError, OutgoingTable, SpooledFile, TakenIn};
pub use health::{Trouble, TroubleKind};
pub use ingest::{Ingest, IngestError};
pub use open::StorageError;
pub(super) use open::{lock_present_directories, new_environment, prepare_directories};
pub use validation::ValidationSet;

use self::health::{Shortages, note_damage};
use self::snapshots::Snapshots;
use super::background::{FlushCause, WorkQueue};
use super::caches::{CacheStats, FamilyCacheStats};
use super::commitlog::{CommitLog, LogError, Position};
use super::compaction::{
    CompactionError, CompactionProgress, CompactionTotals, Compactor, Plan, ThresholdError,
    Thresholds,
};
use super::error::{FileError, ReadError};
use super::memtable::Memtable;
use super::snapshot::{Snapshot, SnapshotError};
use super::sstable::Access;
use super::store::{Environment, Operation, Piece, Store};
use super::system::log_guard::LogGuard;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::base::events::Events;
use crate::base::fs::{FileSystem, Lock};
use crate::base::lock::{Condvar, Mutex, RwLock, rank};
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::position::RowPosition;
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner, RowRange, RowSamples, Token, TokenRange};
use caches::SavedCaches;
use compactions::CompactionQueue;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// The outer world of a storage core.
#[derive(Debug, Clone)]
pub struct Components {
    /// Where files are.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Who hears of what happens.
    pub events: Events,
}

/// Why a write was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Memtables are at their bound, or the commit log needs a new segment, and the caller must
    /// not wait. Nothing happened.
    #[error("the write has to wait")]
    WouldBlock,
    /// The store has failed and takes no more writes. Nothing happened.
    #[error("{family} takes no more writes: {reason}")]
    Failed {
        /// The column family.
        family: String,
        /// What went wrong.
        reason: String,
    },
    /// The commit log did not take it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The node is stopping. Nothing happened.
    #[error("the node is stopping")]
    Closed,
}

/// When a write may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Now.
    Done,
    /// When [`Storage::on_durable`] has called back for this position.
    Pending(Position),
}

/// All column families of a node.
#[derive(Debug)]
pub struct Storage {
    shared: Arc<Shared>,
    threads: Mutex<rank::Threads, Vec<JoinHandle<()>>>,
    closed: AtomicBool,
}

/// What the caller and the threads in the background share.
#[derive(Debug)]
struct Shared {
    schema: Arc<Schema>,
    stores: Vec<Arc<Store>>,
    environment: Arc<Environment>,
    /// On the monotonic clock. What is done from time to time counts from here, however late the
    /// thread that does it gets to run.
    opened_at: Duration,
    log: CommitLog,
    log_directory: PathBuf,
    data_directories: Vec<PathBuf>,
    segment_bytes: u64,
    waits_for_sync: bool,
    /// Shared by writers, exclusive for who switches a memtable: a position of the log then tells
    /// what the old memtable holds.
    gate: RwLock<rank::Gate, ()>,
    flushes: WorkQueue,
    /// The memtables of each family that hold what was replayed: the segments that it came from may
    /// go when none of them is read any more.
    replayed_into: Vec<Vec<Weak<Memtable>>>,
    /// Flushes that are under way on the flush threads.
    flushing: AtomicUsize,
    /// Memtables that are being written to disk, by whichever thread.
    writing: AtomicUsize,
    compactions: CompactionQueue,
    compactor: Compactor,
    compaction_niceness: i32,
    caches: SavedCaches,
    memtable_budget: u64,
    snapshots: Snapshots,
    /// Woken when a flush has freed memory.
    memory_freed: (Mutex<rank::MemtableRoom, ()>, Condvar),
    shortages: Shortages,
    stopping: AtomicBool,
    /// The families of users that are noted as having had data. Taken after the lock of a flush,
    /// and before the gate.
    noted_families: Mutex<rank::FamilyNotes, BTreeSet<FamilyId>>,
    /// Keep other servers out of the directories.
    /// Set when nothing can refuse the start any more.
    locks: OnceLock<Vec<Box<dyn Lock>>>,
}

impl Storage {
    /// The column families.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.shared.schema
    }

    /// Decides on the order of rows.
    pub fn partitioner(&self) -> Partitioner {
        self.shared.environment.partitioner
    }

    /// Writes to the log and to the memtables. With `may_block` it waits for memory and for the
    /// disk, else that is [`WriteError::WouldBlock`].
    pub fn apply(&self, mutation: &RowMutation, may_block: bool) -> Result<Applied, WriteError> {
        self.apply_all(std::slice::from_ref(mutation), may_block)
    }

    /// [`Storage::apply`] for several rows, logged by one write. After an error of the log some of
    /// the rows may be written at the next start, each whole or not at all.
    pub fn apply_all(
        &self,
        mutations: &[RowMutation],
        may_block: bool,
    ) -> Result<Applied, WriteError> {
        self.shared.apply_counted(mutations, may_block)
    }

    /// [`Storage::apply`] for what the node notes for itself, which is little and seldom: it does
    /// not wait for memory, so that a node whose disk is full can start and serve reads.
    pub fn apply_own(&self, mutation: &RowMutation) -> Result<Applied, WriteError> {
        self.shared.apply_with_memory(std::slice::from_ref(mutation), true)
    }

    /// Calls back, on a thread that must not be kept, when everything up to the position is
    /// durable or never will be.
    pub fn on_durable(
        &self,
        position: Position,
        callback: Box<dyn FnOnce(Result<(), LogError>) + Send>,
    ) {
        self.shared.log.on_synced(position, callback);
    }

    /// The visible part of a slice of one row, as an answer of its own.
    pub fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        self.read_within(family, key, slice, &RequestContext::default(), access)
    }

    /// [`Storage::read`] for an answer that may consist of several rows.
    pub fn read_within(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        let key = self.partitioner().decorate(key.clone());
        self.shared.counted(self.shared.store(family), Operation::Read, |store| {
            store.read(&key, slice, context, access)
        })
    }

    /// How many columns or super columns of the slice are visible.
    pub fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        let key = self.partitioner().decorate(key.clone());
        self.shared.counted(self.shared.store(family), Operation::Read, |store| {
            store.count(&key, slice, context, access)
        })
    }

    /// The slice of each row of a range, in token order, rows without visible columns included.
    pub fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.scan_within(family, range, slice, max_rows, &RequestContext::default(), access)
    }

    /// [`Storage::scan`] for an answer that may consist of several ranges.
    pub fn scan_within(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.shared.counted(self.shared.store(family), Operation::RangeRead, |store| {
            store.scan(range, slice, max_rows, context, access)
        })
    }

    /// What is known here of a slice of one row, deletions included: what other replicas have to
    /// hear. Tombstones that are older than `GCGraceSeconds` are left out.
    pub fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        let key = self.partitioner().decorate(key.clone());
        self.shared.counted(self.shared.store(family), Operation::Read, |store| {
            store.read_version(&key, slice, context, access)
        })
    }

    /// [`Storage::read_version`] of each row of a range, in token order.
    pub fn scan_versions(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError> {
        self.shared.counted(self.shared.store(family), Operation::RangeRead, |store| {
            store.scan_versions(range, slice, max_rows, context, access)
        })
    }

    /// All that is stored of the rows of a range behind a place, deletions included, until about
    /// `max_bytes` were looked at: what other nodes copy. See [`Store::read_piece`].
    pub fn read_piece(
        &self,
        family: FamilyId,
        range: &RowRange,
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let store = self.shared.store(family);
        let piece = store.read_piece(range, after, max_bytes);
        piece.inspect_err(|error| note_damage(store, error))
    }

    /// The same of single rows, whose keys ascend. See [`Store::read_rows_piece`].
    pub fn read_rows_piece(
        &self,
        family: FamilyId,
        keys: &[DecoratedKey],
        after: Option<&RowPosition>,
        max_bytes: usize,
    ) -> Result<Piece, ReadError> {
        let store = self.shared.store(family);
        let piece = store.read_rows_piece(keys, after, max_bytes);
        piece.inspect_err(|error| note_damage(store, error))
    }

    /// The rows of a range that are stored here, in memory and on disk, as samples of about
    /// `IndexInterval`: those of all column families but the node's own.
    pub fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        let mut samples = RowSamples::new(range);
        for store in &self.shared.stores {
            if store.schema().keyspace == super::system::KEYSPACE {
                continue;
            }
            let (view, interval) = (store.view(), store.options().index_interval);
            let mut add = |first: &Token, rows| samples.add(first, rows);
            for memtable in view.memtables() {
                context.check()?;
                memtable.for_each_sample(interval, &mut add);
            }
            for table in &view.tables {
                context.check()?;
                table.for_each_sample(&mut add);
            }
        }
        Ok(samples)
    }

    /// One column family.
    pub fn store(&self, family: FamilyId) -> &Arc<Store> {
        self.shared.store(family)
    }

    /// All column families, in the order of their numbers.
    pub fn stores(&self) -> &[Arc<Store>] {
        &self.shared.stores
    }

    /// Why all writes are refused until the next start, if they are: the commit log has stopped.
    pub fn log_failure(&self) -> Option<LogError> {
        self.shared.log.failure()
    }

    /// Memory that memtables and blocks use and may use.
    pub fn memory_use(&self) -> MemoryUse {
        self.shared.memory_use()
    }

    /// Writes what is in the memtable of a column family to disk before it returns. If the disk has
    /// no room it is tried again later; after any other failure the family takes no more writes.
    pub fn flush(&self, family: FamilyId) -> Result<(), ReadError> {
        self.shared.flush(self.shared.store(family), FlushCause::Request)
    }

    /// How many memtables hold something that is not on disk yet.
    pub fn unflushed_memtables(&self) -> usize {
        let held = |store: &Arc<Store>| {
            store.view().memtables().filter(|memtable| !memtable.is_empty()).count()
        };
        self.shared.stores.iter().map(held).sum()
    }

    /// How many memtables are being written to disk now.
    pub fn flushes_running(&self) -> usize {
        self.shared.writing.load(Ordering::Relaxed)
    }

    /// Merges all SSTables of a column family into one before it returns; waits for compactions of
    /// the family that are running. Nothing happens if there is no SSTable. If the disk has no room
    /// for the result the largest are left out.
    pub fn compact(&self, family: FamilyId) -> Result<(), CompactionError> {
        let stopping = &self.shared.stopping;
        let store = self.shared.store(family);
        let mut claim = store.claim_all(stopping).ok_or(CompactionError::Stopped)?;
        let result = if claim.tables().is_empty() {
            Ok(())
        } else {
            let plan = Plan::major(store.options(), claim.bytes());
            self.shared.compact(&mut claim, plan)
        };
        drop(claim);
        store.remove_replaced();
        self.shared.request_compaction(store);
        result
    }

    /// The compactions that are running, the oldest first.
    pub fn compactions(&self) -> Vec<CompactionProgress> {
        self.shared.compactor.running()
    }

    /// What all compactions did since the start.
    pub fn compaction_totals(&self) -> CompactionTotals {
        self.shared.compactor.totals()
    }

    /// How many minor compactions are due, as an estimate, for each family that has any.
    pub fn pending_compactions(&self) -> Vec<(FamilyId, usize)> {
        let pending = |store: &Arc<Store>| (store.id(), store.pressure().backlog().compactions);
        self.shared.stores.iter().map(pending).filter(|(_, count)| *count > 0).collect()
    }

    /// From how many SSTables of similar size on, and at most how many at once, are merged, until
    /// the next start. A maximum of 0 switches minor compactions of the family off.
    pub fn set_compaction_thresholds(
        &self,
        family: FamilyId,
        min: usize,
        max: usize,
    ) -> Result<(), ThresholdError> {
        let store = self.shared.store(family);
        store.set_compaction_thresholds(Thresholds::new(min, max)?);
        self.shared.request_compaction(store);
        Ok(())
    }

    /// The figures of the key and row cache of a column family.
    pub fn cache_stats(&self, family: FamilyId) -> FamilyCacheStats {
        self.shared.store(family).cache_stats()
    }

    /// The figures of the block cache, in bytes.
    pub fn block_cache_stats(&self) -> CacheStats {
        self.shared.environment.cache.stats()
    }

    /// Lets requests use this much of the block cache when their own memory is used up.
    pub fn lend_block_cache(&self, requests: &Budget, bytes: usize) {
        requests.borrow_from(Arc::clone(&self.shared.environment.cache) as _, bytes);
    }

    /// Changes how many entries the key cache and the row cache of a column family may have, until
    /// the next start; 0 switches one off. A share of all keys is then no longer kept to.
    pub fn set_cache_capacity(&self, family: FamilyId, keys: u64, rows: u64) {
        self.shared.store(family).set_cache_capacity(keys, rows);
    }

    /// Forgets all cached rows of a column family.
    pub fn invalidate_row_cache(&self, family: FamilyId) {
        self.shared.store(family).invalidate_row_cache();
    }

    /// Takes a snapshot of one keyspace or of all, durable when this returns: everything that was
    /// written before, and nothing that is written after one moment, the same for all column
    /// families. Its name is that moment, with the tag if there is one.
    pub fn snapshot(
        &self,
        keyspace: Option<&str>,
        tag: Option<&str>,
    ) -> Result<Vec<Snapshot>, SnapshotError> {
        self.shared.snapshot(keyspace, tag)
    }

    /// All snapshots, by keyspace and time.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, FileError> {
        self.shared.list_snapshots()
    }

    /// Removes the snapshots of one keyspace or of all; only those of this name or tag, if one is
    /// given. Returns which they were.
    pub fn clear_snapshots(
        &self,
        keyspace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Vec<Snapshot>, FileError> {
        self.shared.clear_snapshots(keyspace, name)
    }

    /// Milliseconds since 1970, by which the node dates its own notes.
    pub fn now_millis(&self) -> i64 {
        self.shared.environment.clock.now_micros() / 1000
    }

    /// Makes everything durable that was written so far.
    pub fn sync(&self) -> Result<(), LogError> {
        self.shared.log.sync_now()
    }

    /// Refuses writes from now on, also those that wait for memory: on a full disk they would wait
    /// for ever. Reads go on. To be called before anybody waits for the end of a writer.
    pub fn stop_writes(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.wake_writers();
    }

    /// Stops the threads, writes memtables to disk, and closes the log. What cannot be flushed
    /// stays in the log.
    pub fn close(&self) {
        self.stop_writes();
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.shared.flushes.close();
        self.shared.compactions.close();
        self.shared.caches.end();
        self.shared.environment.cache.buffers().close();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a background thread of the storage ended by a panic");
            }
        }
        // Rows that are written to disk leave the row cache.
        self.shared.save_caches_at_end();
        // Those of users first: that they have data now is noted in one of the others.
        let mut stores: Vec<&Arc<Store>> = self.shared.stores.iter().collect();
        stores.sort_by_key(|store| !known_families::is_of_users(store));
        for store in stores {
            if let Err(error) = self.shared.flush_once(store, FlushCause::Shutdown) {
                log::warn!("{} stays in the commit log: {error}", store.schema());
            }
        }
        // The flush thread may not have come to it.
        self.shared.forget_replayed();
        if let Err(error) = self.shared.log.close_and_clear(|| self.shared.forget_log()) {
            log::error!("the commit log was not closed cleanly: {error}");
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn store(&self, family: FamilyId) -> &Arc<Store> {
        &self.stores[family.0 as usize]
    }

    /// Says that the next start needs no segment of the log. False if that cannot be said.
    fn forget_log(&self) -> bool {
        let removed = LogGuard::release(&*self.environment.fs, &self.data_directories);
        removed
            .inspect_err(|error| log::warn!("the commit log stays though it is flushed: {error}"))
            .is_ok()
    }

    /// Keeps a thread alive when a bug makes its work panic. The family takes no more writes, since
    /// nobody knows what the bug would do to them; what it has stays in the log and readable.
    fn guarded(&self, family: FamilyId, what: &str, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            let store = self.store(family);
            store.fail(format!("its {what} panicked: please report the lines above"));
        }
    }
}
