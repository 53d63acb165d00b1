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
//!   memory       waits for memory, and flushes that free some
//!   schema_changes  families that are added and dropped
//!   snapshots    hard links to the SSTables of one moment
//!   unconfigured data of column families that are not configured
//! ```
//!
//! Locks: that of a flush first, then the gate; then as [`super::family`] and
//! [`super::memtable`] say.

mod caches;
mod cleanup;
mod compactions;
mod exchange;
mod flushes;
mod health;
mod ingest;
mod known_families;
mod memory;
mod open;
mod replay;
mod schema_changes;
mod snapshots;
#[cfg(test)]
mod tests;
mod unconfigured;
mod validation;
mod write;

pub use cleanup::CleanupReport;
pub use exchange::{ExchangeError, OutgoingTable, SpooledFile, TakenIn};
pub use health::{Trouble, TroubleKind};
pub use ingest::{Ingest, IngestError};
pub use memory::MemoryUse;
pub use open::StorageError;
pub(super) use open::{lock_present_directories, new_environment, prepare_directories};
pub use schema_changes::SchemaChangeError;
pub use validation::ValidationSet;

use self::health::Shortages;
use self::snapshots::Snapshots;
use super::background::{FlushCause, WorkQueue};
use super::caches::CacheStats;
use super::commitlog::{CommitLog, LogError, Position};
use super::compaction::{
    CompactionError, CompactionProgress, CompactionTotals, Compactor, Plan, ThresholdError,
    Thresholds,
};
use super::error::ReadError;
use super::family::{ColumnFamily, Environment};
use super::memtable::Memtable;
use super::system::log_guard::LogGuard;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::base::events::Events;
use crate::base::fs::{FileSystem, Lock};
use crate::base::lock::{Condvar, Mutex, rank};
use crate::model::schema::{FamilyId, Schema};
use crate::ring::{Partitioner, RowSamples, Token, TokenRange};
use caches::SavedCaches;
use compactions::CompactionQueue;
use std::collections::BTreeSet;
use std::ops::Deref;
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
    /// When [`Core::on_durable`] has called back for this position.
    Pending(Position),
}

/// All column families of a node, open. The end of its life closes them.
#[derive(Debug)]
pub struct Database {
    core: Arc<Core>,
    threads: Mutex<rank::State, Vec<JoinHandle<()>>>,
    closed: AtomicBool,
}

impl Deref for Database {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// All column families of a node: what callers and the threads in the background share.
#[derive(Debug)]
pub struct Core {
    schema: Arc<Schema>,
    /// By number, also those that were dropped.
    stores: boxcar::Vec<Arc<ColumnFamily>>,
    environment: Arc<Environment>,
    /// On the monotonic clock. What is done from time to time counts from here, however late the
    /// thread that does it gets to run.
    opened_at: Duration,
    log: CommitLog,
    log_directory: PathBuf,
    data_directories: Vec<PathBuf>,
    segment_bytes: u64,
    waits_for_sync: bool,
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
    memory_freed: (Mutex<rank::Files, ()>, Condvar),
    shortages: Shortages,
    stopping: AtomicBool,
    /// The families of users that are noted as having had data. Taken after the lock of a flush,
    /// and before the gate.
    noted_families: Mutex<rank::FamilyNotes, BTreeSet<FamilyId>>,
    /// Keep other servers out of the directories.
    /// Set when nothing can refuse the start any more.
    locks: OnceLock<Vec<Box<dyn Lock>>>,
}

impl Core {
    /// The column families.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Decides on the order of rows.
    pub fn partitioner(&self) -> Partitioner {
        self.environment.partitioner
    }

    /// Calls back, on a thread that must not be kept, when everything up to the position is
    /// durable or never will be.
    pub fn on_durable(
        &self,
        position: Position,
        callback: Box<dyn FnOnce(Result<(), LogError>) + Send>,
    ) {
        self.log.on_synced(position, callback);
    }

    /// The rows of a range that are stored here, in memory and on disk, as samples of about
    /// `IndexInterval`: those of all column families but the node's own.
    pub fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        let mut samples = RowSamples::new(range);
        for store in self.families() {
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

    /// Why all writes are refused until the next start, if they are: the commit log has stopped.
    pub fn log_failure(&self) -> Option<LogError> {
        self.log.failure()
    }

    /// Writes what is in the memtable of a column family to disk before it returns. If the disk has
    /// no room it is tried again later; after any other failure the family takes no more writes.
    pub fn flush(&self, family: FamilyId) -> Result<(), ReadError> {
        self.flush_for(self.family(family), FlushCause::Request)
    }

    /// How many memtables hold something that is not on disk yet.
    pub fn unflushed_memtables(&self) -> usize {
        let held = |store: &Arc<ColumnFamily>| {
            store.view().memtables().filter(|memtable| !memtable.is_empty()).count()
        };
        self.families().map(held).sum()
    }

    /// How many memtables are being written to disk now.
    pub fn flushes_running(&self) -> usize {
        self.writing.load(Ordering::Relaxed)
    }

    /// Merges all SSTables of a column family into one before it returns; waits for compactions of
    /// the family that are running. Nothing happens if there is no SSTable. If the disk has no room
    /// for the result the largest are left out.
    pub fn compact(&self, family: FamilyId) -> Result<(), CompactionError> {
        let stopping = &self.stopping;
        let store = self.family(family);
        let mut claim = store.claim_all(stopping).ok_or(CompactionError::Stopped)?;
        let result = if claim.tables().is_empty() {
            Ok(())
        } else {
            let plan = Plan::major(store.options(), claim.bytes());
            self.compact_claimed(&mut claim, plan)
        };
        drop(claim);
        store.remove_replaced();
        self.request_compaction(store);
        result
    }

    /// The compactions that are running, the oldest first.
    pub fn compactions(&self) -> Vec<CompactionProgress> {
        self.compactor.running()
    }

    /// What all compactions did since the start.
    pub fn compaction_totals(&self) -> CompactionTotals {
        self.compactor.totals()
    }

    /// How many minor compactions are due, as an estimate, for each family that has any.
    pub fn pending_compactions(&self) -> Vec<(FamilyId, usize)> {
        let pending =
            |store: &Arc<ColumnFamily>| (store.id(), store.pressure().backlog().compactions);
        self.families().map(pending).filter(|(_, count)| *count > 0).collect()
    }

    /// From how many SSTables of similar size on, and at most how many at once, are merged, until
    /// the next start. A maximum of 0 switches minor compactions of the family off.
    pub fn set_compaction_thresholds(
        &self,
        family: FamilyId,
        min: usize,
        max: usize,
    ) -> Result<(), ThresholdError> {
        let store = self.family(family);
        store.set_compaction_thresholds(Thresholds::new(min, max)?);
        self.request_compaction(store);
        Ok(())
    }

    /// The figures of the block cache, in bytes.
    pub fn block_cache_stats(&self) -> CacheStats {
        self.environment.cache.stats()
    }

    /// Lets requests use this much of the block cache when their own memory is used up.
    pub fn lend_block_cache(&self, requests: &Budget, bytes: usize) {
        requests.borrow_from(Arc::clone(&self.environment.cache) as _, bytes);
    }

    /// Milliseconds since 1970, by which the node dates its own notes.
    pub fn now_millis(&self) -> i64 {
        self.environment.clock.now_micros() / 1000
    }

    /// Makes everything durable that was written so far.
    pub fn sync(&self) -> Result<(), LogError> {
        self.log.sync_now()
    }

    /// Refuses writes from now on, also those that wait for memory: on a full disk they would wait
    /// for ever. Reads go on. To be called before anybody waits for the end of a writer.
    pub fn stop_writes(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_writers();
    }
}

impl Database {
    /// Stops the threads, writes memtables to disk, and closes the log. What cannot be flushed
    /// stays in the log.
    pub fn close(&self) {
        self.stop_writes();
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.flushes.close();
        self.compactions.close();
        self.caches.end();
        self.environment.cache.buffers().close();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a background thread of the storage ended by a panic");
            }
        }
        // Rows that are written to disk leave the row cache.
        self.save_caches_at_end();
        // Those of users first: that they have data now is noted in one of the others.
        let mut stores: Vec<&Arc<ColumnFamily>> = self.families().collect();
        stores.sort_by_key(|store| !known_families::is_of_users(store));
        for store in stores {
            if let Err(error) = self.flush_once(store, FlushCause::Shutdown) {
                log::warn!("{} stays in the commit log: {error}", store.schema());
            }
        }
        // The flush thread may not have come to it.
        self.forget_replayed();
        if let Err(error) = self.log.close_and_clear(|| self.forget_log()) {
            log::error!("the commit log was not closed cleanly: {error}");
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}

impl Core {
    /// The column family with this number, be it dropped.
    pub fn family(&self, family: FamilyId) -> &Arc<ColumnFamily> {
        &self.stores[family.0 as usize]
    }

    /// The column families that exist, in the order of their numbers.
    pub fn families(&self) -> impl Iterator<Item = &Arc<ColumnFamily>> {
        self.stores.iter().map(|(_, store)| store).filter(|store| !store.is_dropped())
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
            let store = self.family(family);
            store.fail(format!("its {what} panicked: please report the lines above"));
        }
    }
}
