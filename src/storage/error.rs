//! Errors of the storage core.

use crate::base::context::{Halt, TooLarge};
use crate::base::fs::is_disk_full;
use crate::model::key::RowKey;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reason why a read gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The answer needs the disk, or more work than the calling thread may do. Nothing happened;
    /// ask again on a thread that may do that.
    #[error("the answer is not in memory, or takes long")]
    WouldBlock,
    /// The file holds something else than what was written. The rest of it stays readable.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] FileError),
    /// The answer would take more memory than any may. The same question will not do better.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The request was cancelled.
    #[error("the read was given up, since nobody waits for it any more")]
    Cancelled,
    /// The file was written under another partitioner: its rows stand in another order.
    #[error(
        "{file} was written with {saved}. Detected partitioner mismatch! Did you change the \
         partitioner?",
        file = file.display()
    )]
    OtherPartitioner {
        /// The file.
        file: PathBuf,
        /// Class name of the partitioner that it was written with.
        saved: String,
    },
}

/// A damaged place in a file: what it holds is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt {
    /// The file.
    pub file: PathBuf,
    /// Start of the damaged part.
    pub offset: u64,
    /// The symptom.
    pub reason: &'static str,
    /// The row that was being read, if it was one row.
    pub row: Option<RowKey>,
}

impl Corrupt {
    /// Damage at this place of a file.
    pub fn new(file: &Path, offset: u64, reason: &'static str) -> Self {
        Self { file: file.to_owned(), offset, reason, row: None }
    }
}

impl std::error::Error for Corrupt {}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at byte {}", self.file.display(), self.offset)?;
        if let Some(row) = &self.row {
            write!(f, ", met in row {row}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl From<Halt> for ReadError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Cancelled => Self::Cancelled,
            Halt::TooLong => Self::WouldBlock,
        }
    }
}

impl ReadError {
    /// Whether the machine lacks something that it may have again later. Nothing was damaged.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Io(error) if error.is_shortage())
    }

    /// The same error, which now names the row that was being read.
    #[must_use]
    pub fn in_row(mut self, key: &RowKey) -> Self {
        if let Self::Corrupt(corrupt) = &mut self {
            corrupt.row.get_or_insert_with(|| key.clone());
        }
        self
    }
}

/// An operating system error with the file that it concerns.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot {action} {path}: {source}", path = path.display())]
pub struct FileError {
    /// The attempted action, as a verb.
    pub action: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Error of the operating system. Shared, because one failure can stop many writers.
    pub source: Arc<io::Error>,
}

impl FileError {
    /// Adds the attempted action to an error of the operating system.
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source: Arc::new(source) }
    }

    /// Whether the machine lacks something that it may have again later. Nothing was damaged.
    pub fn is_shortage(&self) -> bool {
        is_disk_full(&self.source) || is_out_of_handles(&self.source)
    }
}

/// Names the file and the action in an `io::Result`.
pub trait FileContext<T> {
    /// The same result, whose error says that `action` failed on `path`.
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError::new(action, path, source))
    }
}

/// Whether the process or the machine has no file handle left: clients may hold them all. No file
/// was opened then, and nothing was harmed.
pub fn is_out_of_handles(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}
