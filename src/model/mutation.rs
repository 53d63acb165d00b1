//! A write to one row, in the form in which it is logged.
//!
//! A mutation is built straight into its commit log record; the cells that go to the memtables are
//! views into that record. The record names keyspace and column families, so that it stays readable
//! when the configuration changes:
//!
//! ```text
//! u16 length, keyspace     u16 length, row key     u16 number of column families, each:
//!     u16 length, name     i64 marked for delete at, i32 local deletion time of the row
//!     u32 number of cells, then the cells as in Cell::encode
//! ```

use super::cell::{Cell, CellParts, CellState, Expiry};
use super::deletion::Deletion;
use super::key::RowKey;
use super::range_deletion::{self, NameRange, encode_range};
use super::schema::{FamilyId, Schema};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::base::context::TooLarge;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;

/// A write to one row of one keyspace: the unit of atomicity.
#[derive(Debug, Clone)]
pub struct RowMutation {
    /// The row.
    pub key: RowKey,
    /// Changes of each column family; a family may stand here more than once.
    pub families: SmallVec<[FamilyMutation; 1]>,
    /// Empty if there is only one.
    family_numbers: Vec<u32>,
    record: Arc<[u8]>,
}

/// The part of a mutation that concerns one column family: the unit of isolation.
#[derive(Debug, Clone)]
pub struct FamilyMutation {
    /// The column family.
    pub family: FamilyId,
    /// Deletion of the whole row in this family, or [`Deletion::NONE`].
    pub deletion: Deletion,
    /// Columns, tombstones and super column tombstones, in no order.
    pub cells: SmallVec<[Cell; 1]>,
}

/// Why bytes are not a mutation that can be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not have the form of a mutation.
    #[error("not a row mutation: byte {0} does not fit the format")]
    Malformed(usize),
    /// The configuration no longer has this column family.
    #[error("column family {keyspace}.{family} is not configured")]
    UnknownFamily {
        /// The keyspace that the record names.
        keyspace: String,
        /// The column family that the record names.
        family: String,
    },
    /// A column has a name that the column family cannot hold as it is configured now.
    #[error(
        "column family {keyspace}.{family} had another ColumnType or another comparator when this \
         was written. Set it back"
    )]
    OtherNames {
        /// The keyspace that the record names.
        keyspace: String,
        /// The column family that the record names.
        family: String,
    },
    /// The write was made by a node that is configured otherwise. Only bytes of 0.6 say so.
    #[error("column family {family} has {part} {ours} here, and {theirs} where it was written")]
    OtherType {
        /// Keyspace and name of the column family.
        family: String,
        /// The difference: column type or a comparator.
        part: &'static str,
        /// As it is configured here.
        ours: String,
        /// As the bytes say.
        theirs: String,
    },
    /// No column can have this name, or none of this kind can stand in the column family.
    #[error("column family {family} cannot hold a column that is named {name}")]
    Name {
        /// Keyspace and name of the column family.
        family: String,
        /// The name as its comparator shows it.
        name: String,
    },
    /// Rows have keys.
    #[error("the row key is empty")]
    EmptyKey,
    /// Super columns with long names and very many columns.
    #[error("the columns would take more than {0} bytes of memory")]
    TooLarge(usize),
    /// The memory that all requests share is used up.
    #[error(transparent)]
    NoMemory(#[from] TooLarge),
}

impl RowMutation {
    /// The bytes to log; [`RowMutation::decode`] reads them.
    pub fn record(&self) -> &[u8] {
        &self.record
    }

    /// Whether 0.6 has such keys and such cells.
    pub fn is_original(&self) -> bool {
        let mut cells = self.families.iter().flat_map(|family| &family.cells);
        cells.all(|cell| cell.state().is_original()) && self.key.is_text()
    }

    /// Memory that it takes, in bytes.
    pub fn memory(&self) -> usize {
        let cells = |family: &FamilyMutation| size_of_val(&family.cells[..]);
        self.record.len() + self.families.iter().map(cells).sum::<usize>()
    }

    /// The keyspace of the row, as its record names it.
    pub fn keyspace(&self) -> Cow<'_, str> {
        let name = ByteReader::new(&self.record).prefixed();
        String::from_utf8_lossy(name.expect("the record begins with its keyspace"))
    }

    /// Numbers of the column families, in their order.
    pub fn family_numbers(&self) -> &[u32] {
        match &self.families[..] {
            [only] => std::slice::from_ref(&only.family.0),
            _ => &self.family_numbers,
        }
    }

    /// Whether none of its column families was dropped.
    pub fn has_families(&self, schema: &Schema) -> bool {
        self.families.iter().all(|it| schema.exists(it.family))
    }

    /// Reads a record. Its cells share the bytes.
    pub fn decode(record: &[u8], schema: &Schema) -> Result<Self, DecodeError> {
        Self::decode_except(record, schema, |_, _| false)
    }

    /// Reads a record without its parts for families that are unknown and that were dropped, by
    /// keyspace and name.
    pub fn decode_except(
        record: &[u8],
        schema: &Schema,
        is_dropped: impl Fn(&str, &str) -> bool,
    ) -> Result<Self, DecodeError> {
        let record: Arc<[u8]> = record.into();
        let mut reader = ByteReader::new(&record);
        let keyspace = String::from_utf8_lossy(reader.prefixed()?).into_owned();
        let key = RowKey::new(reader.prefixed()?);
        let mut families = SmallVec::new();
        for _ in 0..reader.u16()? {
            let family = String::from_utf8_lossy(reader.prefixed()?).into_owned();
            let Some(id) = schema.family_id(&keyspace, &family) else {
                if is_dropped(&keyspace, &family) {
                    decode_family(&mut reader, &record, FamilyId(u32::MAX))?;
                    continue;
                }
                return Err(DecodeError::UnknownFamily { keyspace, family });
            };
            let mutation = decode_family(&mut reader, &record, id)?;
            let schema = schema.family(id);
            if !mutation.cells.iter().all(|cell| schema.can_hold(cell.state(), cell.place())) {
                return Err(DecodeError::OtherNames { keyspace, family });
            }
            families.push(mutation);
        }
        if !reader.is_empty() {
            return Err(DecodeError::Malformed(reader.position()));
        }
        Ok(Self { key, family_numbers: numbers(&families), families, record })
    }
}

impl From<Malformed> for DecodeError {
    fn from(Malformed(at): Malformed) -> Self {
        Self::Malformed(at)
    }
}

fn decode_family(
    reader: &mut ByteReader<'_>,
    record: &Arc<[u8]>,
    family: FamilyId,
) -> Result<FamilyMutation, DecodeError> {
    let marked_for_delete_at = reader.i64()?;
    let local_deletion_time = reader.i32()?;
    let deletion = Deletion { marked_for_delete_at, local_deletion_time };
    let mut cells = SmallVec::new();
    for _ in 0..reader.u32()? {
        let at = reader.position();
        let cell = Cell::decode(record, at).ok_or(DecodeError::Malformed(at))?;
        reader.take(cell.encoded_length())?;
        cells.push(cell);
    }
    Ok(FamilyMutation { family, deletion, cells })
}

/// Builds a [`RowMutation`] piece by piece.
#[derive(Debug)]
pub struct MutationBuilder<'a> {
    schema: &'a Schema,
    key: RowKey,
    out: Vec<u8>,
    /// Where the number of families stands in `out`.
    count_at: usize,
    families: SmallVec<[FamilyDraft; 1]>,
}

#[derive(Debug)]
struct FamilyDraft {
    family: FamilyId,
    deletion: Deletion,
    /// Where the row deletion and the number of cells stand in the record.
    head_at: usize,
    cells: u32,
}

impl<'a> MutationBuilder<'a> {
    /// A mutation of one row that does nothing yet.
    ///
    /// # Panics
    /// If keyspace or key are longer than 65535 bytes: both are validated before.
    pub fn new(schema: &'a Schema, keyspace: &str, key: &[u8]) -> Self {
        Self::with_buffer(schema, keyspace, key, Vec::with_capacity(256))
    }

    /// The same in a buffer that [`MutationBuilder::finish_with_buffer`] returned: many mutations
    /// need only one.
    pub fn with_buffer(schema: &'a Schema, keyspace: &str, key: &[u8], mut out: Vec<u8>) -> Self {
        out.clear();
        out.put_prefixed(keyspace.as_bytes());
        out.put_prefixed(key);
        let count_at = out.len();
        out.extend_from_slice(&[0; 2]);
        Self { schema, key: RowKey::new(key), out, count_at, families: SmallVec::new() }
    }

    /// Begins the part of this column family: additions belong to it from now on.
    pub fn family(&mut self, family: FamilyId) -> &mut Self {
        self.out.put_prefixed(self.schema.family(family).name.as_bytes());
        let head_at = self.out.len();
        self.out.extend_from_slice(&Deletion::NONE.marked_for_delete_at.to_be_bytes());
        self.out.extend_from_slice(&Deletion::NONE.local_deletion_time.to_be_bytes());
        self.out.extend_from_slice(&[0; 4]);
        self.families.push(FamilyDraft { family, deletion: Deletion::NONE, head_at, cells: 0 });
        self
    }

    fn current(&mut self) -> &mut FamilyDraft {
        self.families.last_mut().expect("family() is called before anything is added")
    }

    /// Deletes the whole row in this column family.
    pub fn delete_row(&mut self, deletion: Deletion) -> &mut Self {
        let draft = self.current();
        // Several deletions in one batch: the greatest counts, in whatever order they stand.
        draft.deletion = draft.deletion.merge(deletion);
        let (merged, at) = (draft.deletion, draft.head_at);
        self.out[at..at + 8].copy_from_slice(&merged.marked_for_delete_at.to_be_bytes());
        self.out[at + 8..at + 12].copy_from_slice(&merged.local_deletion_time.to_be_bytes());
        self
    }

    /// Sets a column; the super column name is empty in a standard column family.
    pub fn insert(&mut self, place: (&[u8], &[u8]), value: &[u8], timestamp: i64) -> &mut Self {
        let (super_name, name) = place;
        self.push(CellParts { state: CellState::Live, super_name, name, value, timestamp })
    }

    /// Sets a column until a time.
    pub fn insert_expiring(
        &mut self,
        place: (&[u8], &[u8]),
        value: &[u8],
        timestamp: i64,
        expiry: Expiry,
    ) -> &mut Self {
        self.cell(&Cell::expiring(place, value, timestamp, expiry))
    }

    /// Deletes a column.
    pub fn delete_column(&mut self, place: (&[u8], &[u8]), deletion: Deletion) -> &mut Self {
        self.delete(CellState::Tombstone, place, deletion)
    }

    /// Deletes a super column.
    pub fn delete_super_column(&mut self, super_name: &[u8], deletion: Deletion) -> &mut Self {
        self.delete(CellState::SuperTombstone, (super_name, b""), deletion)
    }

    /// Deletes all columns whose names go on from this one with a zero byte.
    pub fn delete_prefix(&mut self, place: (&[u8], &[u8]), deletion: Deletion) -> &mut Self {
        self.delete(CellState::PrefixTombstone, place, deletion)
    }

    /// Deletes a range of columns, or of super columns in a super column family. An empty range
    /// deletes nothing.
    pub fn delete_range(&mut self, range: NameRange<'_>, deletion: Deletion) -> &mut Self {
        let schema = self.schema;
        let family = schema.family(self.current().family);
        if range_deletion::is_empty(family.comparator(), range) {
            return self;
        }
        let super_name = family.range_super_name();
        let name = encode_range(range);
        self.delete(CellState::RangeTombstone, (super_name, &name), deletion)
    }

    fn delete(
        &mut self,
        state: CellState,
        (super_name, name): (&[u8], &[u8]),
        deletion: Deletion,
    ) -> &mut Self {
        let value = &deletion.local_deletion_time.to_be_bytes();
        let timestamp = deletion.marked_for_delete_at;
        self.push(CellParts { state, super_name, name, value, timestamp })
    }

    /// Sets or deletes what this cell says, as it stands.
    pub fn cell(&mut self, cell: &Cell) -> &mut Self {
        cell.encode(&mut self.out);
        self.current().cells += 1;
        self
    }

    /// The same of the parts of a cell, which are sound.
    pub fn push(&mut self, parts: CellParts<'_>) -> &mut Self {
        parts.encode(&mut self.out);
        self.current().cells += 1;
        self
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.families.iter().all(|f| f.cells == 0 && f.deletion.is_none())
    }

    /// The mutation.
    pub fn finish(self) -> RowMutation {
        self.finish_with_buffer().0
    }

    /// The mutation, and the buffer for the next one.
    pub fn finish_with_buffer(mut self) -> (RowMutation, Vec<u8>) {
        let count = u16::try_from(self.families.len()).expect("fewer families than 65536");
        self.out[self.count_at..self.count_at + 2].copy_from_slice(&count.to_be_bytes());
        for draft in &self.families {
            let at = draft.head_at + 12;
            self.out[at..at + 4].copy_from_slice(&draft.cells.to_be_bytes());
        }
        let record: Arc<[u8]> = self.out.as_slice().into();
        let families: SmallVec<_> = self.families.iter().map(|draft| draft.view(&record)).collect();
        let family_numbers = numbers(&families);
        (RowMutation { key: self.key, family_numbers, families, record }, self.out)
    }
}

/// Nearly all mutations are of one family, and need no list.
fn numbers(families: &[FamilyMutation]) -> Vec<u32> {
    if families.len() == 1 {
        return Vec::new();
    }
    families.iter().map(|family| family.family.0).collect()
}

impl FamilyDraft {
    fn view(&self, record: &Arc<[u8]>) -> FamilyMutation {
        let mut at = self.head_at + 16;
        let mut cells = SmallVec::with_capacity(self.cells as usize);
        for _ in 0..self.cells {
            let cell = Cell::decode(record, at).expect("the builder encoded this cell");
            at += cell.encoded_length();
            cells.push(cell);
        }
        FamilyMutation { family: self.family, deletion: self.deletion, cells }
    }
}

#[cfg(test)]
mod tests {
    use super::super::comparator::Comparator;
    use super::super::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use super::*;
    use proptest::prelude::*;

    fn schema() -> Schema {
        let family = |name: &str| {
            ColumnFamilySchema::new(
                "Blog".into(),
                name.into(),
                ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            )
        };
        Schema::new([family("Authors"), family("Entries")].map(Arc::new))
    }

    fn sample(schema: &Schema) -> RowMutation {
        let mut builder = MutationBuilder::new(schema, "Blog", b"ada");
        builder.family(schema.family_id("Blog", "Authors").unwrap());
        builder.insert((b"", b"email"), b"ada@example.com", 5);
        builder.delete_row(Deletion::at(9, 100)).delete_row(Deletion::at(3, 90));
        builder.family(schema.family_id("Blog", "Entries").unwrap());
        builder.delete_column((b"", b"body"), Deletion::at(7, 101));
        builder.finish()
    }

    #[test]
    fn a_record_is_read_back() {
        let schema = schema();
        let mutation = sample(&schema);
        let read = RowMutation::decode(mutation.record(), &schema).unwrap();
        assert_eq!(read.key, mutation.key);
        assert_eq!(read.families.len(), 2);
        assert_eq!(read.family_numbers(), [0, 1]);
        assert_eq!(read.families[0].deletion, Deletion::at(9, 100));
        for (a, b) in read.families.iter().zip(&mutation.families) {
            assert_eq!((a.family, a.deletion, &a.cells), (b.family, b.deletion, &b.cells));
        }
    }

    #[test]
    fn a_family_that_is_gone_is_named() {
        let record = sample(&schema()).record().to_vec();
        let error = RowMutation::decode(&record, &Schema::new([])).unwrap_err();
        assert_eq!(error.to_string(), "column family Blog.Authors is not configured");
    }

    #[test]
    fn a_family_of_another_form_is_named() {
        let kinds = [
            ColumnFamilyKind::Standard { columns: Comparator::Long },
            ColumnFamilyKind::Super {
                super_columns: Comparator::Bytes,
                columns: Comparator::Bytes,
            },
        ];
        let record = sample(&schema()).record().to_vec();
        for kind in kinds {
            let families = schema().families_of("Blog").into_iter().cloned().collect::<Vec<_>>();
            let changed = families.into_iter().map(|family| {
                Arc::new(ColumnFamilySchema { kind: kind.clone(), ..(*family).clone() })
            });
            let error = RowMutation::decode(&record, &Schema::new(changed)).unwrap_err();
            let (keyspace, family) = ("Blog".to_owned(), "Authors".to_owned());
            assert_eq!(error, DecodeError::OtherNames { keyspace, family });
        }
    }

    proptest! {
        #[test]
        fn damaged_records_are_refused_or_sound(at in 0usize..120, to: u8, cut in 0usize..120) {
            let schema = schema();
            let mut record = sample(&schema).record().to_vec();
            let at = at % record.len();
            record[at] = to;
            let _ = RowMutation::decode(&record, &schema);
            record.truncate(cut);
            prop_assert!(RowMutation::decode(&record, &schema).is_err() || cut >= record.len());
        }
    }
}
