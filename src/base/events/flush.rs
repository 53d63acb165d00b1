//! Memtables on their way to disk.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The column family that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Family {
    /// Its keyspace.
    pub keyspace: Arc<str>,
    /// Its name within the keyspace.
    pub name: Arc<str>,
}

impl Family {
    /// Names a column family.
    pub fn new(keyspace: &str, name: &str) -> Self {
        Self { keyspace: keyspace.into(), name: name.into() }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.name)
    }
}

/// A memtable that is no longer written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memtable {
    /// Whose data it holds.
    pub family: Family,
    /// Tells the memtables of one family apart.
    pub id: u64,
    /// Bytes of column data, overwritten ones included, as the threshold counts them.
    pub bytes: u64,
    /// Columns written, overwritten ones included, as the threshold counts them.
    pub operations: u64,
}

impl fmt::Display for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, id, bytes, operations } = self;
        write!(f, "Memtable-{}@{id}({bytes} bytes, {operations} operations)", family.name)
    }
}

/// Why a memtable is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FlushCause {
    /// `MemtableThroughputInMB` is reached.
    Throughput,
    /// `MemtableOperationsInMillions` is reached.
    Operations,
    /// `MemtableFlushAfterMinutes` have passed.
    Age,
    /// All memtables and caches together outgrew `MemoryBudgetInMB`.
    Memory,
    /// It pins the oldest commit log segment, and the log is at its bound.
    CommitLogSize,
    /// The operator asked, or a snapshot, drain or repair did on the operator's behalf.
    Request,
    /// The commit log has been replayed.
    Replay,
    /// The node stops.
    Shutdown,
}

impl fmt::Display for FlushCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throughput => "has reached its threshold of bytes",
            Self::Operations => "has reached its threshold of operations",
            Self::Age => "has reached its threshold of age",
            Self::Memory => "is flushed to free memory",
            Self::CommitLogSize => "is flushed to free commit log segments",
            Self::Request => "is flushed on request",
            Self::Replay => "is flushed after the commit log replay",
            Self::Shutdown => "is flushed before shutdown",
        })
    }
}

/// A memtable on its way to disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FlushEvent {
    /// A fresh memtable takes the writes; the old one waits for a flush thread.
    Switched {
        /// The memtable that is no longer written to.
        memtable: Memtable,
        /// Why it was time.
        cause: FlushCause,
        /// The commit log segment that was written to at that moment.
        log_file: PathBuf,
        /// The offset in the segment up to which the old memtable has everything.
        log_position: u64,
    },
    /// A flush thread writes it.
    Begin {
        /// What is written.
        memtable: Memtable,
    },
    /// It is on disk, and visible there.
    End {
        /// Whose data were flushed.
        family: Family,
        /// The new `SSTable`'s data file.
        file: PathBuf,
        /// Its size in bytes.
        bytes: u64,
        /// Rows in it.
        rows: u64,
        /// Time since the beginning.
        took: Duration,
    },
}

impl fmt::Display for FlushEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switched { memtable, cause, log_file, log_position } => write!(
                f,
                "{} {cause}; switching in a fresh Memtable at \
                 CommitLogContext(file='{}', position={log_position}). \
                 Enqueuing flush of {memtable}",
                memtable.family.name,
                log_file.display(),
            ),
            Self::Begin { memtable } => write!(f, "Writing {memtable}"),
            Self::End { file, bytes, rows, took, .. } => write!(
                f,
                "Completed flushing {} ({bytes} bytes)  {rows} rows.  Time: {}ms",
                file.display(),
                took.as_millis(),
            ),
        }
    }
}
