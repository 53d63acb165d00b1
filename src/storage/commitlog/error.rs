//! Errors of the commit log, named for what the caller can do about them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::Position;
use crate::storage::error::FileError;
use crate::storage::log::Reason;

/// Why the log did not take a record or could not make it durable. Cheap to clone: all waiters get
/// the error of one failed sync.
#[derive(Debug, Clone, Error)]
pub enum LogError {
    /// The disk is full. Nothing was written; a later append succeeds once there is space.
    #[error("no space for a commit log segment of {bytes} bytes in {}: {source}", dir.display())]
    NoSpace {
        /// The commit log directory.
        dir: PathBuf,
        /// Size of the segment that was to be created.
        bytes: u64,
        /// Error of the operating system.
        source: Arc<io::Error>,
    },

    /// A segment could not be created, opened or removed. Nothing was written; may be tried again.
    #[error(transparent)]
    Io(#[from] FileError),

    /// A write or a sync has failed: the log takes nothing any more until the next start. What
    /// was reported as durable is; whether the failed record is there is not known.
    #[error(
        "the commit log has stopped, it could not {} {}: {}",
        .0.action, .0.path.display(), .0.source
    )]
    Failed(FileError),

    /// The record is larger than the format can hold.
    #[error("a commit log record of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Size of the body.
        bytes: u64,
        /// Largest size of a body.
        limit: u64,
    },

    /// The next segment has to be made first, and the caller must not wait for that. Nothing was
    /// written; ask again on a thread that may block.
    #[error("the next commit log segment is not there yet")]
    WouldBlock,

    /// The log has been closed.
    #[error("the commit log is closed")]
    Closed,
}

impl LogError {
    /// An operation after which the log must stop.
    pub(super) fn failed(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Failed(FileError::new(action, path, source))
    }
}

/// The first failure that stopped the log. It is never taken back: after a failed sync Linux has
/// dropped the dirty pages, so that a second sync would report a success that is none.
#[derive(Debug, Default)]
pub(super) struct Poison(OnceLock<LogError>);

impl Poison {
    /// The failure, if the log has stopped.
    pub(super) fn check(&self) -> Result<(), LogError> {
        self.0.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Stops the log, and returns what stopped it first.
    pub(super) fn set(&self, error: LogError) -> LogError {
        self.0.get_or_init(|| error).clone()
    }
}

/// Why replay stopped.
#[derive(Debug, Error)]
pub enum ReplayError<E> {
    /// Something that had been synced cannot be read back.
    #[error("{0}")]
    Damaged(Damage),

    /// A later version of this program wrote the segment.
    #[error("{} has commit log version {version}, which this program cannot read", file.display())]
    Version {
        /// The segment.
        file: PathBuf,
        /// Its version.
        version: u32,
    },

    /// The segment is of another log: the directory, or the file, is that of another server.
    #[error(
        "{} belongs to the commit log of another server, whose writes are not to be mixed with \
         those of this one. Set CommitLogDirectory back, or move the file out of it",
        file.display()
    )]
    OtherLog {
        /// The segment.
        file: PathBuf,
    },

    /// The log could not be read, or not be made durable before it is replayed.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The caller could not take a record.
    #[error("cannot replay the commit log record that ends at {position}: {source}")]
    Apply {
        /// The record.
        position: Position,
        /// Error of the caller.
        source: E,
    },
}

/// A part of the log that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{} at offset {offset}: {reason} ({bytes} bytes)", file.display())]
pub struct Damage {
    /// The segment.
    pub file: PathBuf,
    /// Start of the unreadable part.
    pub offset: u64,
    /// Length of the unreadable part; 0 if the file is missing.
    pub bytes: u64,
    /// The fault.
    pub reason: Reason,
}
