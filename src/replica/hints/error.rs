//! What can go wrong with hints, named for what the caller can do about it.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use crate::base::fs::is_disk_full;
use crate::storage::error::FileError;

/// Why a hint was not stored, made durable or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum HintError {
    /// The log of this target is as large as it may get. Nothing was stored; it will take hints
    /// again when some are delivered or have expired.
    #[error("the hints for {target} have reached their limit of {limit} bytes (HintMaxSizeInMB)")]
    Full {
        /// Whom the hint is for.
        target: IpAddr,
        /// Most bytes of its log.
        limit: u64,
    },
    /// The disk is full. Nothing was stored; a later hint is once there is space.
    #[error("no space for hints: {0}")]
    NoSpace(FileError),
    /// The mutation is larger than a message to its target, or the format, can hold: it could never
    /// be delivered.
    #[error(
        "a write of {bytes} bytes to one row is larger than the {limit} that a message between \
         nodes can hold"
    )]
    TooLarge {
        /// Size of the mutation.
        bytes: u64,
        /// Largest size of one.
        limit: u64,
    },
    /// The system refused. When storing: the hint is not stored, and the next one goes to another
    /// file. When syncing: what was not durable before may be lost. When reading: may be tried
    /// again.
    #[error("hints: {0}")]
    Io(#[from] FileError),
    /// The hints for this target were thrown away before they were durable.
    #[error("the hints for {target} were discarded")]
    Discarded {
        /// Whom they were for.
        target: IpAddr,
    },
}

impl HintError {
    /// An error of the system; a full disk is told apart because it passes.
    pub(super) fn of(action: &'static str, path: &Path, source: io::Error) -> Self {
        let is_full = is_disk_full(&source);
        let error = FileError::new(action, path, source);
        if is_full { Self::NoSpace(error) } else { Self::Io(error) }
    }
}
