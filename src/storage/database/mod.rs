//! All column families of a node together with the commit log: the face of the storage core.
//!
//! ```text
//!   open            directories, locks, column families, workers
//!   known_families  which column families have had data, so that lost ones are missed
//!   replay          applies the commit log, and opens it
//!   unconfigured    data of column families that are not configured
//!   write           the path of a mutation; back pressure
//!   memory          bounds the memory of memtables
//!   flushes         writes memtables to disk
//!   compactions     merges SSTables; the housekeeper
//!   cleanup         drops rows that other nodes own, or all rows
//!   caches          fills caches after a start, and saves their keys
//!   ingest          rows from other nodes
//!   exchange        rows from and for nodes of 0.6, as files
//!   validation      rows for a comparison of replicas
//!   snapshots       hard links to the SSTables of one moment
//!   schema_changes  adds and drops column families
//!   health          reasons why the node does not serve as it should
//! ```
//!
//! Locks: the flush lock before the gate; then as in [`super::family`] and [`super::memtable`].

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
pub(super) use open::{
    lock_present_directories, new_environment, open_family, prepare_directories,
};
pub(super) use replay::{Opening, Replayer, Unapplied, flush_all};
pub use schema_changes::SchemaChangeError;
pub(super) use unconfigured::Records;
pub use validation::ValidationSet;

use self::health::Shortages;
use super::caches::CacheStats;
use super::commitlog::{CommitLog, LogError, Position, SyncCallback};
use super::compaction::{
    CompactionError, CompactionProgress, CompactionTotals, Compactor, Plan, ThresholdError,
    Thresholds,
};
use super::error::ReadError;
use super::family::{ColumnFamily, Environment, Refusal, Sampler};
use super::flush_queue::{FlushCause, FlushQueue};
use super::legacy::takeover::{Takeover, TakeoverError};
use super::memtable::Memtable;
use super::options::Options;
use super::system::log_guard::LogGuard;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::base::context::RequestContext;
use crate::base::events::Events;
use crate::base::fs::{FileSystem, Lock};
use crate::base::lock::{Condvar, Mutex, rank};
use crate::base::operations::Transfers;
use crate::base::worker::{Gauge, Spawner, Workers};
use crate::model::schema::{FamilyId, Schema};
use crate::ring::{Partitioner, RowSamples, Token, TokenRange};
use compactions::CompactionQueue;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Environment of a storage core.
#[derive(Debug, Clone)]
pub struct Components {
    /// The disk.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Receiver of log lines.
    pub events: Events,
    /// Starts the threads that work in the background.
    pub spawner: Spawner,
}

impl Components {
    /// A storage core with background threads, whose log lines are dropped.
    pub fn new(fs: Arc<dyn FileSystem>, clock: Arc<dyn Clock>) -> Self {
        Self { fs, clock, events: Events::ignored(), spawner: Spawner::Threads }
    }
}

/// Reason why a write was not taken.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Memtables are at their bound, or the commit log needs a new segment, and the caller must
    /// not wait. Nothing happened.
    #[error("the write has to wait")]
    WouldBlock,
    /// A column family takes no more writes. Nothing happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The commit log did not take it.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The node is stopping. Nothing happened.
    #[error("the node is stopping")]
    Closed,
}

/// Time when a write may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Now.
    Done,
    /// When [`Core::on_durable`] has called back for this position.
    Pending(Position),
}

/// All column families of a node, open. Dropping it closes them.
#[derive(Debug, derive_more::Deref)]
pub struct Database {
    #[deref(forward)]
    core: Arc<Core>,
    is_closed: AtomicBool,
}

/// All column families of a node, as callers and background threads share them.
#[derive(Debug)]
pub struct Core {
    schema: Arc<Schema>,
    /// By number, dropped ones included.
    families: boxcar::Vec<Arc<ColumnFamily>>,
    environment: Arc<Environment>,
    /// Start of all periods, on the monotonic clock, however late a background thread gets to run.
    opened_at: Duration,
    log: CommitLog,
    options: Options,
    workers: Workers,
    flushes: FlushQueue,
    /// Memtables of each family with replayed records. The replayed segments may go when none of
    /// these is read any more.
    replayed_into: Vec<Vec<Weak<Memtable>>>,
    has_replayed: AtomicBool,
    /// Memtables that are being written to disk.
    writing: Gauge,
    compactions: CompactionQueue,
    compactor: Compactor,
    /// Held while the file of a cache is written.
    saving_caches: Mutex<rank::Files, ()>,
    /// Whether everything that was saved before the start has been read.
    are_caches_filled: AtomicBool,
    /// Held by an operator's call: snapshots are taken and cleared, and column families added and
    /// dropped, one after the other.
    administration: Mutex<rank::Job, ()>,
    /// Time of the newest snapshot, in milliseconds: no two have the same.
    newest_snapshot: AtomicU64,
    /// Woken when a flush has freed memory.
    memory_freed: (Mutex<rank::Files, ()>, Condvar),
    shortages: Shortages,
    stopping: Arc<AtomicBool>,
    /// Families of users that are noted as having had data. Taken after the lock of a flush, and
    /// before the gate.
    noted_families: Mutex<rank::FamilyNotes, BTreeSet<FamilyId>>,
    /// A takeover of directories of the original, as long as it is not complete.
    takeover: Mutex<rank::State, Option<Takeover>>,
    /// Keep other servers out of the directories.
    _locks: Arc<Vec<Box<dyn Lock>>>,
}

impl Core {
    /// The column families as clients know them.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The order of rows.
    pub fn partitioner(&self) -> Partitioner {
        self.environment.partitioner
    }

    /// The column family with this number, even if it was dropped.
    pub fn family(&self, id: FamilyId) -> &Arc<ColumnFamily> {
        &self.families[id.0 as usize]
    }

    /// The column families that exist, by number.
    pub fn families(&self) -> impl Iterator<Item = &Arc<ColumnFamily>> {
        self.families_since_start().filter(|family| !family.is_dropped())
    }

    /// The same with those that were dropped, whose work has been done.
    pub fn families_since_start(&self) -> impl Iterator<Item = &Arc<ColumnFamily>> {
        self.families.iter().map(|(_, family)| family)
    }

    /// Calls back, on a thread that must not be kept, when everything up to the position is
    /// durable or never will be.
    pub fn on_durable(&self, position: Position, callback: SyncCallback) {
        self.log.on_synced(position, callback);
    }

    /// Samples of about `IndexInterval` rows, of all rows of a range that are stored here, in
    /// memory and on disk, without the node's own column families.
    pub fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        let mut samples = RowSamples::new(range);
        let mut add = |first: &Token, rows| samples.add(first, rows);
        for family in self.families().filter(|it| known_families::is_of_users(it)) {
            let view = family.view();
            for memtable in view.memtables() {
                context.check()?;
                memtable.for_each_sample(family.options().index_interval, &mut add);
            }
            for table in &view.tables {
                context.check()?;
                table.for_each_sample(&mut add);
            }
        }
        Ok(samples)
    }

    /// The failure that has stopped the commit log. All writes are refused until the next start.
    pub fn log_failure(&self) -> Option<LogError> {
        self.log.failure()
    }

    /// Writes the memtable of a column family to disk. If the disk has no room that is retried
    /// later; after any other failure the family takes no more writes.
    pub fn flush(&self, id: FamilyId) -> Result<(), ReadError> {
        self.flush_for(self.family(id), FlushCause::Request)
    }

    /// Number of memtables with data that are not on disk yet.
    pub fn unflushed_memtables(&self) -> usize {
        let unflushed = |family: &Arc<ColumnFamily>| {
            family.view().memtables().filter(|memtable| !memtable.is_empty()).count()
        };
        self.families().map(unflushed).sum()
    }

    /// Number of memtables that are being written to disk.
    pub fn flushes_running(&self) -> usize {
        self.writing.get()
    }

    /// Ends the takeover of directories of the original, if one was begun: see
    /// [`Takeover`]. To be called when the node knows who it is, and before it takes writes.
    pub fn finish_takeover(&self) -> Result<(), TakeoverError> {
        let Some(takeover) = self.takeover.lock().take() else { return Ok(()) };
        let Options { data_directories, commit_log_directory, .. } = &self.options;
        takeover.finish(&*self.environment.fs, self, data_directories, commit_log_directory)
    }

    /// Whether directories of the original are being taken over.
    pub fn is_taking_over(&self) -> bool {
        self.takeover.lock().is_some()
    }

    /// Merges all SSTables of a column family into one, after the compactions of the family that
    /// are running. If the disk has no room for the result the largest are left out.
    pub fn compact(&self, id: FamilyId) -> Result<(), CompactionError> {
        let family = self.family(id);
        let mut claim = family.claim_all(&self.stopping).ok_or(CompactionError::Stopped)?;
        let result = if claim.tables().is_empty() {
            Ok(())
        } else {
            let plan = Plan::major(family.options(), claim.bytes());
            self.compact_claimed(&mut claim, plan)
        };
        drop(claim);
        family.remove_replaced();
        self.request_compaction(family);
        result
    }

    /// The running compactions, the oldest first.
    pub fn compactions(&self) -> Vec<CompactionProgress> {
        self.compactor.running()
    }

    /// Stops a running compaction, or all, which leave the SSTables as they were. Returns their
    /// numbers. Minor compactions start again after a pause.
    pub fn cancel_compactions(&self, id: Option<u64>) -> Vec<u64> {
        self.compactor.cancel(id)
    }

    /// Totals of all compactions since the start.
    pub fn compaction_totals(&self) -> CompactionTotals {
        self.compactor.totals()
    }

    /// Memtables that were written to disk since the start.
    pub fn flushes(&self) -> &Transfers {
        &self.environment.flushes
    }

    /// Counts operations by row, while somebody asks.
    pub fn sampler(&self) -> &Arc<Sampler> {
        &self.environment.sampler
    }

    /// Bytes in the segments of the commit log that are needed, and the number of all.
    pub fn log_size(&self) -> (u64, usize) {
        (self.log.total_bytes(), self.log.segments())
    }

    /// Syncs of the commit log since the start, and the bytes that were written to it.
    pub fn log_syncs(&self) -> &Transfers {
        self.log.syncs()
    }

    /// The directories of the data, and of the commit log.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        let Options { data_directories, commit_log_directory, .. } = &self.options;
        data_directories.iter().chain([commit_log_directory]).map(PathBuf::as_path)
    }

    /// Estimated number of due minor compactions, for each family that has any.
    pub fn pending_compactions(&self) -> Vec<(FamilyId, usize)> {
        let pending = |it: &Arc<ColumnFamily>| (it.id(), it.pressure().backlog().compactions);
        self.families().map(pending).filter(|(_, count)| *count > 0).collect()
    }

    /// Changes the numbers of SSTables of similar size that are merged, until the next start. A
    /// maximum of 0 switches minor compactions of the family off.
    pub fn set_compaction_thresholds(
        &self,
        id: FamilyId,
        min: usize,
        max: usize,
    ) -> Result<(), ThresholdError> {
        let family = self.family(id);
        family.set_compaction_thresholds(Thresholds::new(min, max)?);
        self.request_compaction(family);
        Ok(())
    }

    /// Bytes per second that all compactions together may read; `None` for no limit.
    pub fn compaction_rate(&self) -> Option<u64> {
        self.compactor.rate()
    }

    /// Lets all compactions together read at most this many bytes per second from now on; `None`
    /// for no limit.
    pub fn set_compaction_rate(&self, bytes_per_second: Option<u64>) {
        self.compactor.set_rate(bytes_per_second);
    }

    /// Statistics of the block cache, in bytes.
    pub fn block_cache_stats(&self) -> CacheStats {
        self.environment.cache.stats()
    }

    /// Lets requests use this much of the block cache when their own memory is used up.
    pub fn lend_block_cache(&self, requests: &Budget, bytes: usize) {
        requests.borrow_from(Arc::clone(&self.environment.cache) as _, bytes);
    }

    /// Milliseconds since 1970, the timestamp of the node's own notes.
    pub fn now_millis(&self) -> i64 {
        self.environment.clock.now_micros() / 1000
    }

    /// Makes everything durable that was written so far.
    pub fn sync(&self) -> Result<(), LogError> {
        self.log.sync_now()
    }

    /// Refuses writes from now on, also those that wait for memory: on a full disk they would wait
    /// forever. Reads go on. To be called before a caller waits for the end of a writer.
    pub fn stop_writes(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake_writers();
    }

    /// Removes the guard of the log, so that the next start needs no segment of it. False if that
    /// fails.
    fn forget_log(&self) -> bool {
        let removed = LogGuard::release(&*self.environment.fs, &self.options.data_directories);
        removed
            .inspect_err(|error| log::warn!("the commit log stays though it is flushed: {error}"))
            .is_ok()
    }

    /// Keeps a thread alive when a bug makes its work panic. The family takes no more writes, since
    /// the bug may damage them; its data stay in the log and readable.
    fn guarded(family: &ColumnFamily, what: &str, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            family.fail(format!("its {what} panicked: please report the lines above"));
        }
    }
}

impl Database {
    /// Stops the threads, writes memtables to disk, and closes the log. Data that cannot be flushed
    /// stay in the log. Until a takeover is complete the files of the original hold everything, and
    /// nothing is put beside them.
    pub fn close(&self) {
        self.stop_writes();
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.flushes.close();
        self.compactions.close();
        self.environment.cache.buffers().close();
        self.workers.join();
        if !self.is_taking_over() {
            self.flush_at_end();
        }
        self.forget_replayed();
        if let Err(error) = self.log.close_and_clear(|| self.forget_log()) {
            log::error!("the commit log was not closed cleanly: {error}");
        }
    }

    fn flush_at_end(&self) {
        // Before the flushes, as rows that are written to disk leave the row cache.
        self.save_caches_at_end();
        // Those of users first: that they have data now is noted in one of the others.
        let mut families: Vec<&Arc<ColumnFamily>> = self.families().collect();
        families.sort_by_key(|family| !known_families::is_of_users(family));
        for family in families {
            if let Err(error) = self.flush_once(family, FlushCause::Shutdown) {
                log::warn!("{} stays in the commit log: {error}", family.schema());
            }
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.close();
    }
}
