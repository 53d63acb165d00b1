//! Hashes of the rows of this node.

use super::leaves::Leaves;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::repair::compare::{HashError, RowHasher, TreeHash};
use crate::ring::DecoratedKey;
use crate::storage::compaction::{GcSpan, RowSink};
use crate::storage::original::RowBuilder;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_util::sync::CancellationToken;

/// Blocks in which a row is put together for its hash: as 0.6 does where nothing else is
/// configured. It is the same on all nodes, whatever their `ColumnIndexSizeInKB`.
pub(super) const COLUMN_INDEX_BYTES: u64 = 64 << 10;

/// Most rows of a list, most bytes of their keys, and about how many bytes of rows are read for it.
const LIST_ROWS: usize = 4096;
const LIST_KEY_BYTES: usize = 64 << 10;
const LIST_READ_BYTES: usize = 64 << 20;

/// Hashes one row after the other.
#[derive(Debug)]
struct Rows {
    hasher: RowHasher,
    stop: CancellationToken,
}

impl Rows {
    fn new(builder: RowBuilder, stop: CancellationToken) -> Self {
        Self { hasher: RowHasher::new(builder), stop }
    }

    fn begin(&mut self, deletion: Deletion) -> Result<(), HashError> {
        if self.stop.is_cancelled() {
            return Err(HashError::GivenUp);
        }
        self.hasher.clear();
        self.hasher.delete(deletion);
        Ok(())
    }

    fn push(&mut self, cell: &Cell) -> Result<(), HashError> {
        if self.stop.is_cancelled() {
            return Err(HashError::GivenUp);
        }
        Ok(self.hasher.push(cell)?)
    }
}

/// Adds rows to the leaves in which they lie.
#[derive(Debug)]
pub(super) struct LeafSink {
    rows: Rows,
    leaves: Leaves,
    /// How many rows there were.
    read: Arc<AtomicU64>,
}

impl LeafSink {
    pub(super) fn new(
        builder: RowBuilder,
        leaves: Leaves,
        read: Arc<AtomicU64>,
        stop: CancellationToken,
    ) -> Self {
        Self { rows: Rows::new(builder, stop), leaves, read }
    }

    pub(super) fn finish(self) -> Leaves {
        self.leaves
    }
}

impl RowSink for LeafSink {
    type Error = HashError;

    fn begin(&mut self, deletion: Deletion) -> Result<(), HashError> {
        self.rows.begin(deletion)
    }

    fn push(&mut self, cell: &Cell) -> Result<(), HashError> {
        self.rows.push(cell)
    }

    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, HashError> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let hash = self.rows.hasher.finish(key.key())?;
        self.leaves.add(key.token(), hash.as_ref(), span);
        Ok(true)
    }
}

/// A row in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedRow {
    pub(super) key: RowKey,
    pub(super) hash: TreeHash,
    /// About how many bytes would travel.
    pub(super) bytes: u64,
}

/// Keeps the hash of each row, until there are enough.
#[derive(Debug)]
pub(super) struct ListSink {
    rows: Rows,
    read: Arc<AtomicU64>,
    pub(super) list: Vec<ListedRow>,
    /// The last row that was looked at.
    pub(super) last: Option<RowKey>,
    key_bytes: usize,
    read_bytes: usize,
    /// Of the row that is open.
    row_bytes: u64,
}

impl ListSink {
    pub(super) fn new(builder: RowBuilder, read: Arc<AtomicU64>, stop: CancellationToken) -> Self {
        let rows = Rows::new(builder, stop);
        let list = Vec::new();
        Self { rows, read, list, last: None, key_bytes: 0, read_bytes: 0, row_bytes: 0 }
    }
}

impl RowSink for ListSink {
    type Error = HashError;

    fn begin(&mut self, deletion: Deletion) -> Result<(), HashError> {
        self.row_bytes = 0;
        self.rows.begin(deletion)
    }

    fn push(&mut self, cell: &Cell) -> Result<(), HashError> {
        let bytes = cell.encoded_length();
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        self.row_bytes += bytes as u64;
        self.rows.push(cell)
    }

    fn end(&mut self, key: &DecoratedKey, _: GcSpan) -> Result<bool, HashError> {
        self.read.fetch_add(1, Ordering::Relaxed);
        let key = key.key();
        if let Some(hash) = self.rows.hasher.finish(key)? {
            self.key_bytes += key.as_bytes().len();
            let bytes = self.row_bytes + key.as_bytes().len() as u64;
            self.list.push(ListedRow { key: key.clone(), hash, bytes });
        }
        self.last = Some(key.clone());
        let is_full = self.list.len() >= LIST_ROWS
            || self.key_bytes >= LIST_KEY_BYTES
            || self.read_bytes >= LIST_READ_BYTES;
        Ok(!is_full)
    }
}
