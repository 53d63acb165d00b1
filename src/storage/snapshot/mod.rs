//! Snapshots: folders of hard links to the SSTables that counted at one moment.
//!
//! ```text
//! <data directory>/<keyspace>/snapshots/<milliseconds since the Unix epoch>[-<tag>]/
//!     <family>-<generation>.sst    a hard link to an SSTable, in its own data directory
//!     <family>.manifest            which SSTables it has, and what of the commit log they hold
//! ```
//!
//! The manifest of a column family lies in the data directory in which its store keeps it. It names
//! exactly the files of the snapshot, so that copying the folder's files back is a restore.
//!
//! A snapshot is made in folders with a temporary name, which get their final name when everything
//! in them is durable. With several data directories that is one step for each; until the last one
//! is durable some folder still has its temporary name. So a snapshot counts if none of its folders
//! has, and the next start removes those of which one has. Removing one goes the same way back.

mod folders;
mod make;
mod name;

pub use folders::{Snapshot, SnapshotFolder, clear, find, list, tidy};
pub use make::{Captured, make};
pub use name::{BadTag, SnapshotName, Tag};

use super::error::{FileError, ReadError};

/// Why there is no snapshot. Nothing of it is left.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotError {
    /// The tag cannot be part of the name of a folder.
    #[error(transparent)]
    Tag(#[from] BadTag),
    /// There is no such keyspace.
    #[error("keyspace {0} does not exist")]
    UnknownKeyspace(String),
    /// A memtable could not be written to disk before.
    #[error("cannot flush before the snapshot: {0}")]
    Flush(#[from] ReadError),
    /// The disk refused.
    #[error("cannot make the snapshot: {0}")]
    File(#[from] FileError),
}

#[cfg(test)]
mod tests;
