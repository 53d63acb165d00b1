//! The hash of a row: SHA-256 over its key, and its body as it would stand in a file of 0.6 after
//! all files were compacted.

use super::tree_hash::TreeHash;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::storage::compaction::CompactionError;
use crate::storage::error::{FileError, ReadError};
use crate::storage::original::{RowBuilder, WriteError};
use sha2::{Digest, Sha256};

/// Why rows are not hashed.
#[derive(Debug, thiserror::Error)]
pub(in crate::repair) enum HashError {
    /// They cannot be read.
    #[error(transparent)]
    Read(#[from] CompactionError),
    /// One of them has no form in a file of 0.6.
    #[error("a row cannot be put together: {0}")]
    Row(#[from] WriteError),
    /// What is in memory cannot be put on disk before.
    #[error("the column family cannot be flushed: {0}")]
    Flush(#[from] ReadError),
    /// A wide row has no place to wait in.
    #[error(transparent)]
    File(#[from] FileError),
    /// Who wanted the hashes is gone, or the node stops.
    #[error("nobody waits for it any more")]
    GivenUp,
}

/// Hashes one row after the other. Replicas agree only if they have the same
/// `ColumnIndexSizeInKB`, and have left out the same tombstones.
#[derive(Debug)]
pub(in crate::repair) struct RowHasher {
    row: RowBuilder,
}

impl RowHasher {
    /// A hasher that puts rows together with this builder, which keeps wide ones in a file or all
    /// of them in memory.
    pub(in crate::repair) fn new(row: RowBuilder) -> Self {
        Self { row }
    }

    /// Adds a deletion of the row.
    pub(in crate::repair) fn delete(&mut self, deletion: Deletion) {
        self.row.delete(deletion);
    }

    /// Adds a cell after those that were added before. After an error call [`Self::clear`].
    pub(in crate::repair) fn push(&mut self, cell: &Cell) -> Result<(), WriteError> {
        self.row.push(cell)
    }

    /// The hash of the row that was added under this key, and begins the next one. `None` if there
    /// is nothing to say of the row: then it is in no tree.
    pub(in crate::repair) fn finish(
        &mut self,
        key: &RowKey,
    ) -> Result<Option<TreeHash>, WriteError> {
        let hash = self.hash(key);
        self.row.clear();
        hash
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

    /// Forgets what was added.
    pub(in crate::repair) fn clear(&mut self) {
        self.row.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::{Comparator, hex};
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use crate::model::version::RowVersion;
    use crate::repair::legacy::trees::java::tests::recorded;
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

        let mut hasher = RowHasher::new(builder());
        let key = RowKey::from("bkey");
        assert_eq!(hasher.finish(&key).unwrap(), None);
        for _ in 0..2 {
            hasher.push(&version.cells[0]).unwrap();
            let hash = hasher.finish(&key).unwrap().unwrap();
            assert_eq!(
                hex(hash.as_bytes()),
                "219b15d1be5d7a22c22024e8d054df30ef924373f8bc86a687cf96b6a5526300"
            );
        }
    }
}
