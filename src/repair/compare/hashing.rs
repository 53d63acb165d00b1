//! Hashes of the rows of this node: SHA-256 over the key, and the body as a file of 0.6 has it
//! after a compaction of all files. Equal hashes need the same block size and the same purged
//! tombstones.

use super::TreeHash;
use super::leaves::Leaves;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::repair::error::{OperationError, Result};
use crate::repair::job::JobControl;
use crate::ring::DecoratedKey;
use crate::storage::compaction::{GcSpan, RowSink};
use crate::storage::legacy::{RowBuilder, WriteError};
use sha2::{Digest, Sha256};

/// Block size of hashed rows: the default of 0.6. It is the same on all nodes, whatever their
/// `ColumnIndexSizeInKB`.
pub(super) const COLUMN_INDEX_BYTES: u64 = 64 << 10;

/// Most rows of a list, most bytes of their keys, and approximate bytes of rows read for it.
const LIST_ROWS: usize = 4096;
const LIST_KEY_BYTES: usize = 64 << 10;
const LIST_READ_BYTES: u64 = 64 << 20;

/// Hashes rows one after the other, and passes each to `take`.
pub(crate) struct HashSink<T> {
    /// Keeps a row in memory, or in a file if it is wide.
    row: RowBuilder,
    control: JobControl,
    /// Bytes of the open row.
    row_bytes: u64,
    take: T,
}

/// A hashed row.
pub(crate) struct HashedRow<'a> {
    pub(crate) key: &'a DecoratedKey,
    /// `None` if nothing is left of the row: then it is in no tree.
    pub(crate) hash: Option<TreeHash>,
    /// Approximate size.
    pub(crate) bytes: u64,
    /// Times for which the hash is valid.
    pub(crate) span: GcSpan,
}

impl<T: FnMut(HashedRow<'_>) -> bool> HashSink<T> {
    /// A sink that ends when `take` returns false.
    pub(crate) fn new(row: RowBuilder, control: &JobControl, take: T) -> Self {
        Self { row, control: control.clone(), row_bytes: 0, take }
    }

    fn check(&self) -> Result<()> {
        if self.control.stop.is_cancelled() { Err(OperationError::GivenUp) } else { Ok(()) }
    }

    fn hash(&mut self, key: &RowKey) -> Result<Option<TreeHash>, WriteError> {
        if self.row.is_empty() {
            return Ok(None);
        }
        let mut digest = Sha256::new();
        digest.update(key.as_bytes());
        self.row.finish()?.read(&mut |bytes| {
            digest.update(bytes);
            Ok::<_, WriteError>(())
        })?;
        Ok(Some(TreeHash::from(<[u8; 32]>::from(digest.finalize()))))
    }
}

impl<T: FnMut(HashedRow<'_>) -> bool> RowSink for HashSink<T> {
    type Error = OperationError;

    fn begin(&mut self, deletion: Deletion) -> Result<()> {
        self.check()?;
        self.row_bytes = 0;
        self.row.clear();
        self.row.delete(deletion);
        Ok(())
    }

    fn push(&mut self, cell: &Cell) -> Result<()> {
        self.check()?;
        self.row_bytes += cell.encoded_length() as u64;
        Ok(self.row.push(cell)?)
    }

    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool> {
        self.control.progress.add(0, 1);
        let hash = self.hash(key.key())?;
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
pub(crate) struct ListedRow {
    pub(crate) key: DecoratedKey,
    pub(crate) hash: TreeHash,
    /// Approximate bytes to transfer.
    pub(crate) bytes: u64,
}

/// Rows with their hashes, until there are enough.
#[derive(Debug, Default)]
pub(super) struct RowList {
    pub(super) rows: Vec<ListedRow>,
    /// The last row that was read.
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
            self.rows.push(ListedRow { key: row.key.clone(), hash, bytes: row.bytes });
        }
        self.last = Some(key.clone());
        self.rows.len() < LIST_ROWS
            && self.key_bytes < LIST_KEY_BYTES
            && self.read_bytes < LIST_READ_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hex::hex;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use crate::model::version::RowVersion;
    use crate::repair::legacy::trees::java::tests::recorded;
    use crate::ring::Partitioner;
    use std::sync::Arc;

    /// A row of which a node of 0.6.13 has sent the hash.
    #[test]
    fn rows_have_the_hashes_of_0_6() {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let family = ColumnFamilySchema::new("Keyspace1".into(), "Standard1".into(), kind);
        let builder = || RowBuilder::in_memory(Arc::new(family.clone()), 64 << 10);
        let cell = Cell::live(b"", "é".as_bytes(), b"2", 7);
        let version = RowVersion { deletion: Deletion::NONE, cells: vec![cell] };
        let mut row = builder();
        row.push_version(&version).unwrap();
        let mut body = Vec::new();
        let mut take = |bytes: &[u8]| {
            body.extend_from_slice(bytes);
            Ok::<_, WriteError>(())
        };
        row.finish().unwrap().read(&mut take).unwrap();
        assert_eq!(body, recorded()["repair 6"]);

        let (control, mut hashes) = (JobControl::default(), Vec::new());
        let key = Partitioner::OrderPreserving.decorate(RowKey::from("bkey"));
        let mut sink = HashSink::new(builder(), &control, |row: HashedRow<'_>| {
            hashes.push(row.hash.map(|hash| hex(hash.as_bytes())));
            true
        });
        sink.begin(Deletion::NONE).unwrap();
        sink.end(&key, GcSpan::default()).unwrap();
        for _ in 0..2 {
            sink.begin(Deletion::NONE).unwrap();
            sink.push(&version.cells[0]).unwrap();
            sink.end(&key, GcSpan::default()).unwrap();
        }
        drop(sink);
        let hash = "219b15d1be5d7a22c22024e8d054df30ef924373f8bc86a687cf96b6a5526300";
        assert_eq!(hashes, [None, Some(hash.to_owned()), Some(hash.to_owned())]);
    }
}
