//! Hashes of the rows of this node.

use super::TreeHash;
use super::leaves::Leaves;
use super::row_hash::{HashError, RowHasher};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::repair::job::JobControl;
use crate::ring::DecoratedKey;
use crate::storage::compaction::{GcSpan, RowSink};
use crate::storage::original::RowBuilder;

/// Blocks in which a row is put together for its hash: as 0.6 does where nothing else is
/// configured. It is the same on all nodes, whatever their `ColumnIndexSizeInKB`.
pub(super) const COLUMN_INDEX_BYTES: u64 = 64 << 10;

/// Most rows of a list, most bytes of their keys, and about how many bytes of rows are read for it.
const LIST_ROWS: usize = 4096;
const LIST_KEY_BYTES: usize = 64 << 10;
const LIST_READ_BYTES: u64 = 64 << 20;

/// Hashes rows one after the other, and gives each to `take`.
pub(in crate::repair) struct HashSink<T> {
    hasher: RowHasher,
    control: JobControl,
    /// Of the row that is open.
    row_bytes: u64,
    take: T,
}

/// A row that was hashed.
pub(in crate::repair) struct HashedRow<'a> {
    pub(in crate::repair) key: &'a DecoratedKey,
    /// None if nothing is left of the row but that it was deleted.
    pub(in crate::repair) hash: Option<TreeHash>,
    /// About how many bytes it is.
    pub(in crate::repair) bytes: u64,
    /// Times for which the hash is right.
    pub(in crate::repair) span: GcSpan,
}

impl<T: FnMut(HashedRow<'_>) -> bool> HashSink<T> {
    /// A sink that goes on as long as `take` says so.
    pub(in crate::repair) fn new(builder: RowBuilder, control: &JobControl, take: T) -> Self {
        let (hasher, control) = (RowHasher::new(builder), control.clone());
        Self { hasher, control, row_bytes: 0, take }
    }

    fn check(&self) -> Result<(), HashError> {
        if self.control.stop.is_cancelled() { Err(HashError::GivenUp) } else { Ok(()) }
    }
}

impl<T: FnMut(HashedRow<'_>) -> bool> RowSink for HashSink<T> {
    type Error = HashError;

    fn begin(&mut self, deletion: Deletion) -> Result<(), HashError> {
        self.check()?;
        self.row_bytes = 0;
        self.hasher.clear();
        self.hasher.delete(deletion);
        Ok(())
    }

    fn push(&mut self, cell: &Cell) -> Result<(), HashError> {
        self.check()?;
        self.row_bytes += cell.encoded_length() as u64;
        Ok(self.hasher.push(cell)?)
    }

    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, HashError> {
        self.control.progress.add(0, 1);
        let hash = self.hasher.finish(key.key())?;
        let bytes = self.row_bytes + key.key().as_bytes().len() as u64;
        Ok((self.take)(HashedRow { key, hash, bytes, span }))
    }
}

/// Adds rows to the leaves in which they lie.
pub(super) fn add_to(leaves: &mut Leaves) -> impl FnMut(HashedRow<'_>) -> bool {
    |row| {
        leaves.add(row.key.token(), row.hash.as_ref(), row.span);
        true
    }
}

/// A row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repair) struct ListedRow {
    pub(in crate::repair) key: RowKey,
    pub(in crate::repair) hash: TreeHash,
    /// About how many bytes would travel.
    pub(in crate::repair) bytes: u64,
}

/// Rows with their hashes, until there are enough.
#[derive(Debug, Default)]
pub(super) struct RowList {
    pub(super) rows: Vec<ListedRow>,
    /// The last row that was looked at.
    pub(super) last: Option<RowKey>,
    key_bytes: usize,
    read_bytes: u64,
}

impl RowList {
    /// Adds a row. Returns whether there is room for more.
    pub(super) fn add(&mut self, row: &HashedRow<'_>) -> bool {
        let key = row.key.key();
        self.read_bytes += row.bytes;
        if let Some(hash) = row.hash {
            self.key_bytes += key.as_bytes().len();
            self.rows.push(ListedRow { key: key.clone(), hash, bytes: row.bytes });
        }
        self.last = Some(key.clone());
        self.rows.len() < LIST_ROWS
            && self.key_bytes < LIST_KEY_BYTES
            && self.read_bytes < LIST_READ_BYTES
    }
}
