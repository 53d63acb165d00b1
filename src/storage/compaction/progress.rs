//! Which compactions are running and how far they are; what all of them did since the start.

use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::ColumnFamilySchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Purpose of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionKind {
    /// Merges some SSTables of similar size.
    Minor,
    /// Merges all SSTables of the column family.
    Major,
    /// Drops rows that this node no longer owns.
    Cleanup,
    /// Drops deletions that have outlived their grace period.
    Tombstones,
    /// Merges all SSTables without writing anything, to compare them with other replicas.
    Validation,
}

impl fmt::Display for CompactionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Cleanup => "cleanup",
            Self::Tombstones => "tombstone",
            Self::Validation => "validation",
        })
    }
}

/// A compaction that is running.
#[derive(Debug, Clone)]
pub struct CompactionProgress {
    /// Its number since the start of the node.
    pub id: u64,
    /// The column family.
    pub family: Arc<ColumnFamilySchema>,
    /// What for.
    pub kind: CompactionKind,
    /// The data files that are merged.
    pub inputs: Vec<PathBuf>,
    /// Bytes of the inputs.
    pub bytes_total: u64,
    /// Bytes of them that were read so far.
    pub bytes_read: u64,
    /// Bytes of the output so far.
    pub bytes_written: u64,
    /// Rows of the output so far.
    pub rows: u64,
    /// When it began, on the monotonic clock.
    pub started: Duration,
}

/// What all compactions did since the start of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CompactionTotals {
    /// Compactions that came to their end.
    pub completed: u64,
    /// Compactions that were given up for an error or for want of room.
    pub failed: u64,
    /// Bytes of the inputs of the completed ones.
    pub bytes_in: u64,
    /// Bytes of their outputs.
    pub bytes_out: u64,
}

/// The running compactions of a node.
#[derive(Debug, Default)]
pub(super) struct Board {
    next_id: AtomicU64,
    running: Mutex<rank::State, Vec<Arc<Task>>>,
    completed: AtomicU64,
    failed: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// One of them. Counters are written by its thread and read by anybody.
#[derive(Debug)]
pub(super) struct Task {
    /// What does not change; its counters are those of the beginning.
    begun: CompactionProgress,
    /// Bytes read so far.
    pub(super) read: AtomicU64,
    /// Bytes written so far.
    pub(super) written: AtomicU64,
    /// Rows written so far.
    pub(super) rows: AtomicU64,
}

/// Stands on the board as long as this lives.
#[derive(Debug)]
pub(super) struct Running<'a> {
    board: &'a Board,
    task: Arc<Task>,
}

impl Board {
    /// Notes a compaction that begins. Its number is given here.
    pub(super) fn begin(&self, begun: CompactionProgress) -> Running<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let task = Arc::new(Task {
            begun: CompactionProgress { id, ..begun },
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            rows: AtomicU64::new(0),
        });
        self.lock().push(Arc::clone(&task));
        Running { board: self, task }
    }

    /// The running compactions, the oldest first.
    pub(super) fn running(&self) -> Vec<CompactionProgress> {
        self.lock().iter().map(|task| task.progress()).collect()
    }

    /// Most bytes that the running compactions will still write.
    pub(super) fn outstanding_bytes(&self) -> u64 {
        let outstanding = |task: &Arc<Task>| match task.begun.kind {
            // It writes nothing.
            CompactionKind::Validation => 0,
            _ => task.begun.bytes_total.saturating_sub(task.written.load(Ordering::Relaxed)),
        };
        self.lock().iter().map(outstanding).sum()
    }

    /// Counts one that came to its end.
    pub(super) fn completed(&self, bytes_in: u64, bytes_out: u64) {
        self.completed.fetch_add(1, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes_in, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
    }

    /// Counts one that was given up.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted.
    pub(super) fn totals(&self) -> CompactionTotals {
        CompactionTotals {
            completed: self.completed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Task>>> {
        self.running.lock()
    }
}

impl Task {
    fn progress(&self) -> CompactionProgress {
        CompactionProgress {
            bytes_read: self.read.load(Ordering::Relaxed),
            bytes_written: self.written.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            ..self.begun.clone()
        }
    }
}

impl std::ops::Deref for Running<'_> {
    type Target = Task;

    fn deref(&self) -> &Task {
        &self.task
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.board.lock().retain(|task| !Arc::ptr_eq(task, &self.task));
    }
}
