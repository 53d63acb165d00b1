//! The files of a column family coming and going.

use std::fmt;
use std::path::PathBuf;

use log::Level;

/// The set of files of a column family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SSTableEvent {
    /// A file was opened at start and its data are served.
    Opened {
        /// The data file.
        file: PathBuf,
    },
    /// A file was written and its data are served.
    Created {
        /// The data file.
        file: PathBuf,
        /// Its size in bytes.
        bytes: u64,
    },
    /// A file that nobody needs any more is gone from the disk.
    Deleted {
        /// The data file.
        file: PathBuf,
    },
    /// A file says something impossible, or its checksum does not hold.
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
}

impl SSTableEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Opened { .. } | Self::Created { .. } => Level::Debug,
            Self::Deleted { .. } => Level::Info,
            Self::Damaged { .. } => Level::Error,
        }
    }
}

impl fmt::Display for SSTableEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { file } => write!(f, "Sampling index for {}", file.display()),
            Self::Created { file, bytes } => {
                write!(f, "Created {} ({bytes} bytes)", file.display())
            }
            Self::Deleted { file } => write!(f, "Deleted {}", file.display()),
            Self::Damaged { file, offset, reason } => {
                write!(f, "Damaged SSTable {} at byte {offset}: {reason}", file.display())
            }
        }
    }
}
