//! Running compactions: their list, pace, progress and log lines, in the words of 0.6 where it has
//! some.

use super::throttle::Throttle;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::model::schema::ColumnFamilySchema;
use crate::storage::error::{FileError, ReadError};
use crate::storage::family::{ColumnFamily, Refusal};
use crate::storage::sstable::{Access, Blocks, SsTable, WrittenFile};
use log::Level;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Log target of compactions.
pub(in crate::storage) const TARGET: &str = "alexandra::compaction";

/// Bytes after which a compaction adjusts its pace: small enough not to be felt as a burst.
const STRIDE: u64 = 64 << 10;

/// A long compaction logs its progress after this many percent,
const TELL_EVERY_PERCENT: u64 = 10;

/// but not more often than this.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Reason why a compaction did not come to its end. Its inputs stay live.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
    /// An operator has stopped it, or drops the column family.
    #[error("an operator has stopped it, or drops the column family")]
    Cancelled,
    /// No data directory has room for the result. Nothing was written.
    #[error("no data directory has room for the {needed} bytes that the result may take")]
    NoRoom {
        /// Bytes that have to be free.
        needed: u64,
    },
    /// The column family has failed. Nothing was written.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An input is damaged, or the disk refused.
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl From<FileError> for CompactionError {
    fn from(error: FileError) -> Self {
        Self::Failed(error.into())
    }
}

/// Purpose of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum CompactionKind {
    /// Merges some SSTables of similar size.
    #[display("minor")]
    Minor,
    /// Merges all SSTables of the column family.
    #[display("major")]
    Major,
    /// Drops rows that this node no longer owns.
    #[display("cleanup")]
    Cleanup,
    /// Drops deletions that have outlived their grace period.
    #[display("tombstone")]
    Tombstones,
    /// Merges all SSTables without writing anything, to compare them with other replicas.
    #[display("validation")]
    Validation,
}

/// A running compaction.
#[derive(Debug, Clone)]
pub struct CompactionProgress {
    /// Its number since the start of the node.
    pub id: u64,
    /// The column family.
    pub family: Arc<ColumnFamilySchema>,
    /// Its purpose.
    pub kind: CompactionKind,
    /// The files that are merged.
    pub inputs: Vec<PathBuf>,
    /// Bytes of the inputs.
    pub bytes_total: u64,
    /// Bytes of them that were read so far.
    pub bytes_read: u64,
    /// Bytes of the output so far.
    pub bytes_written: u64,
    /// Rows of the output so far.
    pub rows: u64,
    /// Time of its start, on the monotonic clock.
    pub started: Duration,
}

/// Totals of all compactions since the start of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CompactionTotals {
    /// Compactions that came to their end.
    pub completed: u64,
    /// Compactions that ended with an error or for want of room.
    pub failed: u64,
    /// Bytes of the inputs of the completed ones.
    pub bytes_in: u64,
    /// Bytes of their outputs.
    pub bytes_out: u64,
}

/// The compactions of a node, which share one throttle.
#[derive(Debug)]
pub struct Compactor {
    pub(super) throttle: Throttle,
    /// Set when the node stops, which ends all compactions.
    stop: Arc<AtomicBool>,
    next_id: AtomicU64,
    running: Mutex<rank::State, Vec<Arc<Task>>>,
    pub(super) totals: Mutex<rank::State, CompactionTotals>,
    /// Held from the look at the room on the disk until the compaction is listed: two that begin
    /// at once must not both count on the same room.
    pub(super) admission: Mutex<rank::Job, ()>,
}

/// A listed compaction. Its thread writes the counters, others read them.
#[derive(Debug)]
pub(super) struct Task {
    /// Its progress at the beginning.
    begun: CompactionProgress,
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) rows: AtomicU64,
    /// Set by an operator.
    is_cancelled: AtomicBool,
}

impl Task {
    /// The blocks of an input, whose bytes are counted as they are read.
    pub(super) fn blocks<'a>(&'a self, table: &'a SsTable) -> Blocks<'a> {
        let mut blocks = Blocks::new(table, Access::Bypass);
        blocks.passed = Some(&self.read);
        blocks
    }
}

impl Compactor {
    /// A compactor whose compactions together read at most this many bytes per second; `None` for
    /// no limit.
    pub fn new(clock: Arc<dyn Clock>, rate: Option<u64>, stop: Arc<AtomicBool>) -> Self {
        Self {
            throttle: Throttle::new(clock, rate),
            stop,
            next_id: AtomicU64::new(0),
            running: Mutex::default(),
            totals: Mutex::default(),
            admission: Mutex::default(),
        }
    }

    /// The limit of the throttle; `None` for none.
    pub fn rate(&self) -> Option<u64> {
        self.throttle.rate()
    }

    /// Changes the limit of the throttle from now on; `None` for none.
    pub fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.throttle.set_rate(bytes_per_second);
    }

    /// Multiplies the limit of the throttle from now on; infinity lifts it.
    pub fn set_haste(&self, haste: f64) {
        self.throttle.set_haste(haste);
    }

    /// The running compactions, the oldest first.
    pub fn running(&self) -> Vec<CompactionProgress> {
        let progress = |task: &Arc<Task>| CompactionProgress {
            bytes_read: task.read.load(Ordering::Relaxed),
            bytes_written: task.written.load(Ordering::Relaxed),
            rows: task.rows.load(Ordering::Relaxed),
            ..task.begun.clone()
        };
        self.running.lock().iter().map(progress).collect()
    }

    /// Has a running compaction end before long, with [`CompactionError::Cancelled`]; without a
    /// number all of them. Returns the numbers of those.
    pub fn cancel(&self, id: Option<u64>) -> Vec<u64> {
        let running = self.running.lock();
        let chosen = running.iter().filter(|task| id.is_none_or(|id| id == task.begun.id));
        let cancel = |task: &Arc<Task>| {
            task.is_cancelled.store(true, Ordering::Relaxed);
            task.begun.id
        };
        chosen.map(cancel).collect()
    }

    /// Totals since the start.
    pub fn totals(&self) -> CompactionTotals {
        *self.totals.lock()
    }

    /// Most bytes that the running compactions will still write.
    pub(super) fn outstanding_bytes(&self) -> u64 {
        let outstanding = |task: &Arc<Task>| match task.begun.kind {
            // It writes nothing.
            CompactionKind::Validation => 0,
            _ => task.begun.bytes_total.saturating_sub(task.written.load(Ordering::Relaxed)),
        };
        self.running.lock().iter().map(outstanding).sum()
    }

    /// Lists a compaction of these SSTables.
    pub(in crate::storage) fn begin<'a>(
        &'a self,
        family: &'a ColumnFamily,
        kind: CompactionKind,
        inputs: &[Arc<SsTable>],
    ) -> Job<'a> {
        let started = family.environment().clock.monotonic();
        let begun = CompactionProgress {
            id: self.next_id.fetch_add(1, Ordering::Relaxed),
            family: Arc::clone(family.schema()),
            kind,
            inputs: inputs.iter().map(|table| table.path().to_owned()).collect(),
            bytes_total: inputs.iter().map(|table| table.size()).sum(),
            bytes_read: 0,
            bytes_written: 0,
            rows: 0,
            started,
        };
        let (read, written, rows, is_cancelled) = Default::default();
        let task = Arc::new(Task { begun, read, written, rows, is_cancelled });
        self.running.lock().push(Arc::clone(&task));
        Job { compactor: self, task, family, seen: 0, told_at: started, told_percent: 0 }
    }
}

/// A compaction on its thread. Listed until it is dropped.
#[derive(Debug)]
pub(in crate::storage) struct Job<'a> {
    compactor: &'a Compactor,
    pub(super) task: Arc<Task>,
    family: &'a ColumnFamily,
    /// Bytes that were read when the pace was last adjusted.
    seen: u64,
    told_at: Duration,
    told_percent: u64,
}

impl Job<'_> {
    /// Logs the start of the compaction. The caller holds no lock that other compactions need.
    pub(in crate::storage) fn tell_begin(&self) {
        let CompactionProgress { inputs, kind, family, .. } = &self.task.begun;
        let inputs = listed(inputs);
        let line = format_args!("Compacting [{inputs}] ({kind} compaction of {family})");
        self.family.environment().events.tell(Level::Info, TARGET, line);
    }

    /// Ends a compaction when it or the node is stopped, slows it down where it is too fast, and
    /// logs its progress. To be called for each cell and row.
    pub(in crate::storage) fn keep_pace(&mut self) -> Result<(), CompactionError> {
        if self.compactor.stop.load(Ordering::Relaxed) {
            return Err(CompactionError::Stopped);
        }
        // Who drops a family waits for its compactions.
        if self.task.is_cancelled.load(Ordering::Relaxed) || self.family.is_being_dropped() {
            return Err(CompactionError::Cancelled);
        }
        if self.task.read.load(Ordering::Relaxed) >= self.seen + STRIDE {
            self.settle();
            self.tell_progress();
        }
        Ok(())
    }

    /// Waits for the bytes that were read since the last time.
    pub(super) fn settle(&mut self) {
        let read = self.task.read.load(Ordering::Relaxed);
        self.compactor.throttle.take(read - self.seen, &self.compactor.stop);
        self.seen = read;
    }

    fn tell_progress(&mut self) {
        let environment = self.family.environment();
        let now = environment.clock.monotonic();
        let CompactionProgress { bytes_total: total, kind, family, .. } = &self.task.begun;
        let percent = self.seen * 100 / total.max(&1);
        if now.saturating_sub(self.told_at) < TELL_EVERY
            || percent < self.told_percent + TELL_EVERY_PERCENT
        {
            return;
        }
        (self.told_at, self.told_percent) = (now, percent);
        let read = self.seen;
        let line = format_args!("Compacting {family} ({kind}): {read}/{total} bytes, {percent}%");
        environment.events.tell(Level::Info, TARGET, line);
    }

    /// Notes that nothing is written, so that no other compaction leaves room for it.
    pub(in crate::storage) fn writes_nothing(&self) {
        self.task.written.store(self.task.begun.bytes_total, Ordering::Relaxed);
    }

    /// Logs the end of the compaction.
    pub(in crate::storage) fn tell_end(&self, new: &[WrittenFile], bytes_in: u64, rows: u64) {
        let environment = self.family.environment();
        let took = environment.clock.monotonic().saturating_sub(self.task.begun.started);
        let took = took.as_millis();
        let paths: Vec<_> = new.iter().map(|file| file.path.with_extension("")).collect();
        let outputs = listed(&paths);
        let bytes_out: u64 = new.iter().map(|file| file.bytes).sum();
        let line = format_args!(
            "Compacted to {outputs}.  {bytes_in}/{bytes_out} bytes for {rows} keys.  Time: \
             {took}ms"
        );
        environment.events.tell(Level::Info, TARGET, line);
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        self.compactor.running.lock().retain(|task| !Arc::ptr_eq(task, &self.task));
    }
}

/// Paths as 0.6 listed them, separated by a comma and a blank.
pub(super) fn listed(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    if paths.is_empty() { "nothing".to_owned() } else { paths.join(", ") }
}
