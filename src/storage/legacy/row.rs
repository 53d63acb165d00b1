//! The body of a row in a file of 0.6: the bytes after its key and its size. Repair hashes the same
//! bytes.
//!
//! ```text
//! BYTES  Bloom filter of the names of columns, super columns and columns within these
//! BYTES  column index: for each block of columns
//!            NAME first, NAME last, i64 offset after the number of columns, i64 bytes
//! i32 local deletion time, i64 marked for delete at, i32 number of columns, the columns
//! ```
//!
//! The columns are those of [`crate::model::original`]. A block ends with the column, or super
//! column, that makes it as long as `ColumnIndexSizeInKB` asks for.

use super::WriteError;
use super::bloom::{BloomFilter, ElementHash};
use super::spool::Spool;
use crate::base::bytes::ByteWriter;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::original::{put_column, put_deletion, put_super_column, put_super_column_counts};
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;
use std::cmp::Ordering;
use std::sync::Arc;

/// Longest body: its size is a signed number of 32 bits.
const MOST_BYTES: u64 = i32::MAX as u64;

/// Puts the body of one row after the other together, from cells in order. The body begins with
/// what follows from all its columns, which wait in spools therefore: a row may be wider than the
/// memory.
#[derive(Debug)]
pub struct RowBuilder {
    family: Arc<ColumnFamilySchema>,
    block_bytes: u64,
    /// The columns as they will stand in the file.
    columns: Spool,
    /// Hashes of all names.
    hashes: Spool,
    deletion: Deletion,
    /// Columns, or super columns, without the open one.
    count: u32,
    index: Vec<u8>,
    /// Start and first name of the open block.
    block: Option<(u64, Vec<u8>)>,
    /// The name of the last column or super column that has ended.
    last: Vec<u8>,
    super_column: Option<OpenSuperColumn>,
    place: LastPlace,
    scratch: Vec<u8>,
}

/// Place of the last cell of a row.
#[derive(Debug, Default)]
pub(super) struct LastPlace(Option<(Vec<u8>, Vec<u8>)>);

impl LastPlace {
    /// Goes on to the next cell. Returns false if that does not sort after the last one.
    pub(super) fn advance(&mut self, family: &ColumnFamilySchema, place: (&[u8], &[u8])) -> bool {
        let last = self.0.as_ref().map(|(super_name, name)| (&**super_name, &**name));
        if last.is_some_and(|last| family.compare(last, place).is_ge()) {
            return false;
        }
        let (super_name, name) = self.0.get_or_insert_default();
        place.0.clone_into(super_name);
        place.1.clone_into(name);
        true
    }
}

/// A super column that may go on.
#[derive(Debug)]
struct OpenSuperColumn {
    /// Offset of its deletion in the spool.
    counts_at: u64,
    deletion: Deletion,
    columns: u32,
}

/// A body that is ready.
#[derive(Debug)]
pub struct RowBody<'a> {
    head: Vec<u8>,
    columns: &'a Spool,
}

impl RowBuilder {
    /// A builder of rows of this column family, in blocks of this size (`ColumnIndexSizeInKB`). The
    /// spools are for columns and for hashes of names.
    pub fn new(
        family: Arc<ColumnFamilySchema>,
        column_index_bytes: u64,
        [columns, hashes]: [Spool; 2],
    ) -> Self {
        Self {
            family,
            block_bytes: column_index_bytes,
            columns,
            hashes,
            deletion: Deletion::NONE,
            count: 0,
            index: Vec::new(),
            block: None,
            last: Vec::new(),
            super_column: None,
            place: LastPlace::default(),
            scratch: Vec::new(),
        }
    }

    /// A builder that keeps a row in memory.
    pub fn in_memory(family: Arc<ColumnFamilySchema>, column_index_bytes: u64) -> Self {
        let spools = [Spool::in_memory(), Spool::in_memory()];
        Self::new(family, column_index_bytes, spools)
    }

    /// Adds a part of the row: its cells sort after all that were added before. Deletions of the
    /// row, and that of the super column in which the parts were cut, may be repeated.
    pub fn push_version(&mut self, version: &RowVersion) -> Result<(), WriteError> {
        self.delete(version.deletion);
        version.cells.iter().try_for_each(|cell| self.push(cell))
    }

    /// Adds a deletion of the row.
    pub fn delete(&mut self, deletion: Deletion) {
        self.deletion = self.deletion.merge(deletion);
    }

    /// Adds a cell, which sorts after all that were added before. The deletion of the super
    /// column that is open may be repeated.
    pub fn push(&mut self, cell: &Cell) -> Result<(), WriteError> {
        let is_marker = cell.super_deletion().is_some();
        let is_open = self.super_column.is_some() && self.is_of_super_column(cell);
        if let (Some(open), true, true) = (&mut self.super_column, is_open, is_marker) {
            open.deletion = open.deletion.merge(cell.deletion().unwrap_or(Deletion::NONE));
            return Ok(());
        }
        if !self.place.advance(&self.family, cell.place()) {
            return Err(WriteError::OutOfOrder);
        }
        if self.columns.len() > MOST_BYTES {
            return Err(WriteError::RowTooLarge(self.columns.len()));
        }
        if !self.family.is_super() {
            let start = self.columns.len();
            self.push_column(cell)?;
            self.end_top_level(start, cell.name());
            return Ok(());
        }
        if !is_open {
            self.end_super_column()?;
            self.begin_super_column(cell)?;
        }
        if !is_marker {
            self.push_column(cell)?;
            if let Some(open) = &mut self.super_column {
                open.columns += 1;
            }
        }
        Ok(())
    }

    fn is_of_super_column(&self, cell: &Cell) -> bool {
        let open = self.place.0.as_ref().map(|(super_name, _)| super_name);
        open.is_some_and(|open| {
            self.family.comparator().compare(open, cell.super_name()) == Ordering::Equal
        })
    }

    fn push_column(&mut self, cell: &Cell) -> Result<(), WriteError> {
        self.scratch.clear();
        put_column(&mut self.scratch, cell);
        self.columns.push(&self.scratch)?;
        Ok(self.hashes.push(&ElementHash::of_column(cell.name()).to_bytes())?)
    }

    /// Begins the super column of this cell, which may be its deletion.
    fn begin_super_column(&mut self, cell: &Cell) -> Result<(), WriteError> {
        let name = cell.super_name();
        let start = self.columns.len();
        if self.block.is_none() {
            self.block = Some((start, name.to_vec()));
        }
        name.clone_into(&mut self.last);
        let deletion = cell.super_deletion().unwrap_or(Deletion::NONE);
        self.scratch.clear();
        put_super_column(&mut self.scratch, name, deletion, 0);
        self.columns.push(&self.scratch)?;
        let counts_at = start + 2 + name.len() as u64;
        self.super_column = Some(OpenSuperColumn { counts_at, deletion, columns: 0 });
        Ok(self.hashes.push(&ElementHash::of_column(name).to_bytes())?)
    }

    fn end_super_column(&mut self) -> Result<(), WriteError> {
        let Some(open) = self.super_column.take() else { return Ok(()) };
        self.scratch.clear();
        put_super_column_counts(&mut self.scratch, open.deletion, open.columns);
        self.columns.replace(open.counts_at, &self.scratch)?;
        self.count += 1;
        self.end_block_if_full();
        Ok(())
    }

    /// Counts a column of a standard column family that began at this offset.
    fn end_top_level(&mut self, start: u64, name: &[u8]) {
        if self.block.is_none() {
            self.block = Some((start, name.to_vec()));
        }
        name.clone_into(&mut self.last);
        self.count += 1;
        self.end_block_if_full();
    }

    fn end_block_if_full(&mut self) {
        let end = self.columns.len();
        if self.block.as_ref().is_some_and(|(start, _)| end - start >= self.block_bytes) {
            self.end_block();
        }
    }

    fn end_block(&mut self) {
        let Some((start, first)) = self.block.take() else { return };
        self.index.put_prefixed(&first);
        self.index.put_prefixed(&self.last);
        self.index.extend_from_slice(&start.to_be_bytes());
        self.index.extend_from_slice(&(self.columns.len() - start).to_be_bytes());
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.deletion.is_none()
    }

    /// The body of the row. Call [`Self::clear`] before the next one.
    pub fn finish(&mut self) -> Result<RowBody<'_>, WriteError> {
        self.end_super_column()?;
        self.end_block();
        let mut filter = BloomFilter::for_columns(self.hashes.len() / ElementHash::LENGTH as u64);
        self.hashes.read(&mut |bytes| {
            let (hashes, _) = bytes.as_chunks::<{ ElementHash::LENGTH }>();
            for hash in hashes {
                filter.add(ElementHash::from_bytes(*hash));
            }
            Ok::<_, WriteError>(())
        })?;
        let fixed = 4 + filter.encoded_length() + 4 + self.index.len() + 12 + 4;
        let length = fixed as u64 + self.columns.len();
        if length > MOST_BYTES {
            return Err(WriteError::RowTooLarge(length));
        }
        let mut head = Vec::with_capacity(fixed);
        head.extend_from_slice(&(filter.encoded_length() as u32).to_be_bytes());
        filter.encode(&mut head);
        head.extend_from_slice(&(self.index.len() as u32).to_be_bytes());
        head.extend_from_slice(&self.index);
        put_deletion(&mut head, self.deletion);
        head.extend_from_slice(&self.count.to_be_bytes());
        Ok(RowBody { head, columns: &self.columns })
    }

    /// Forgets the row.
    pub fn clear(&mut self) {
        self.columns.clear();
        self.hashes.clear();
        self.index.clear();
        (self.block, self.super_column, self.place) = (None, None, LastPlace::default());
        (self.deletion, self.count) = (Deletion::NONE, 0);
    }
}

impl RowBody<'_> {
    /// Its length in bytes, which fits 31 bits.
    pub fn length(&self) -> u64 {
        self.head.len() as u64 + self.columns.len()
    }

    /// Gives its bytes, piece by piece.
    pub fn read<E: From<crate::storage::error::FileError>>(
        &self,
        take: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        take(&self.head)?;
        self.columns.read(take)
    }
}
