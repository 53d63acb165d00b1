//! SSTables in the form of 0.6, for nodes of 0.6 that rows come from and go to.
//!
//! The server itself keeps its rows in [`super::sstable`]. A table of 0.6 is three files, of which
//! one has the rows and the others follow from it: [`TableWriter`] makes all three, byte for byte
//! as 0.6.13 does, and [`TableReader`] reads the one, from its beginning to its end. Of a wide row
//! neither keeps more than a part in memory. [`RowBuilder`] alone makes the bytes of a row that
//! repair hashes.
//!
//! [`commitlog`] reads commit logs of 0.4 to 0.6. [`takeover`] is the way from directories of the
//! original, [`export`] the way back.
//!
//! A super column that has no columns and was never deleted, which 0.6 can have in a file, is
//! nothing here: it is not read.

pub mod bloom;
pub mod commitlog;
mod disk_key;
pub mod export;
mod reader;
mod row;
mod spool;
mod table;
pub mod takeover;
#[cfg(test)]
mod tests;
mod writer;

pub use disk_key::can_have_key;
pub(in crate::storage) use disk_key::parse_disk_key;
pub(in crate::storage) use reader::{RowHead, Step, Window};
pub use reader::{RowPart, TableReader};
pub use row::{RowBody, RowBuilder};
pub use spool::Spool;
pub(in crate::storage) use table::{LegacyTable, Untranslated, is_large};
pub use writer::{TableOptions, TableWriter, WrittenTable};

use super::error::{FileError, ReadError};
use crate::base::fs::FileSystem;
use crate::model::key::RowKey;
use std::path::Path;

/// Why a row cannot be written in the form of 0.6. What was written of the table does not count.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file that was just written cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A row comes before one that was added, or a column before another of its row.
    #[error("rows or columns are not in their order")]
    OutOfOrder,
    /// A row could not be added before, so that the table would lack it.
    #[error("a row is missing in the table")]
    Incomplete,
    /// A key of bytes, which came from a client of a later version than 0.6, or an empty one.
    #[error("0.6 cannot have the row key {0}")]
    KeyNotText(RowKey),
    /// A key of many characters beyond the basic plane, which take more bytes than in UTF-8.
    #[error("the row key {0} is too long for a file of 0.6")]
    KeyTooLong(RowKey),
    /// A row has no more than 2 GB.
    #[error("a row of {0} bytes or more is too large for a file of 0.6")]
    RowTooLarge(u64),
    /// 0.4 and 0.5 know two names as one, or sort them otherwise.
    #[error("columns of row {0} have another order before 0.6")]
    OtherOrder(RowKey),
    /// A value that expires, or a deletion that only CQL has.
    #[error("a file of 0.6 cannot have all cells of row {0}")]
    LaterCells(RowKey),
    /// A directory cannot take an export.
    #[error("{0}")]
    Folder(String),
}

/// Removes a file that is of no use any more.
pub(super) fn remove(fs: &dyn FileSystem, path: &Path) {
    if let Err(error) = fs.remove_file(path) {
        log::warn!("Cannot remove {}: {error}", path.display());
    }
}
