//! Trouble with a disk.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use log::Level;

/// What was asked of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskOperation {
    /// Reading.
    Read,
    /// Writing into the page cache.
    Write,
    /// Making a file or directory durable.
    Sync,
    /// Reserving space.
    Allocate,
    /// Creating, renaming or removing an entry.
    Entry,
}

impl fmt::Display for DiskOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
            Self::Entry => "directory change",
        })
    }
}

/// The disk, whoever used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskEvent {
    /// A write or sync failed. The store takes no more writes until the node is started again.
    Poisoned {
        /// What takes no more writes: a column family, the commit log.
        store: String,
        /// The error.
        reason: String,
    },
    /// An operation took so long that clients noticed.
    Slow {
        /// What was asked.
        operation: DiskOperation,
        /// Of which file.
        file: PathBuf,
        /// How long it took.
        took: Duration,
    },
    /// There is no room for the next file.
    Full {
        /// The data or commit log directory.
        directory: PathBuf,
        /// Bytes that were needed.
        needed: u64,
        /// Bytes that are left.
        available: u64,
    },
}

impl DiskEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Slow { .. } => Level::Warn,
            Self::Poisoned { .. } | Self::Full { .. } => Level::Error,
        }
    }
}

impl fmt::Display for DiskEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poisoned { store, reason } => {
                write!(f, "{store} takes no more writes until a restart: {reason}")
            }
            Self::Slow { operation, file, took } => {
                write!(f, "Slow {operation} of {}: {}ms", file.display(), took.as_millis())
            }
            Self::Full { directory, needed, available } => write!(
                f,
                "Disk full: {} has {available} bytes left, {needed} are needed",
                directory.display(),
            ),
        }
    }
}
