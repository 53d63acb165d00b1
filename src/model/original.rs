//! The columns of a row in the form of 0.6, which is that of its messages and of its files.
//!
//! ```text
//! i32  local deletion time, i64 marked for delete at          of the row
//! i32  number of columns or super columns, each:
//!     column        NAME name, BOOL deleted, i64 timestamp, BYTES value
//!     super column  NAME name, i32 local deletion time, i64 marked for delete at,
//!                   i32 number of columns, these
//! ```
//!
//! A NAME is a u16 length and bytes. The value of a deleted column is its local deletion time. What
//! was never deleted has the least numbers there are.

use super::cell::{Cell, CellParts, CellState};
use super::deletion::Deletion;
use super::schema::ColumnFamilySchema;
use crate::base::bytes::{ByteReader, ByteWriter};
use crate::base::java::JavaWriter;
use std::sync::Arc;

/// Bytes of a deletion.
pub const DELETION_BYTES: usize = 4 + 8;

/// Why bytes are no columns of the column family. Offsets are those of the reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnError {
    /// They end too early.
    Truncated {
        /// Where something is missing.
        at: usize,
        /// How many bytes there must be at least, from where the reader began.
        needs: usize,
    },
    /// They do not have the form of columns.
    Malformed(usize),
    /// No column can have this name, or none of this kind can stand in the column family.
    Name {
        /// The super column that the name stands in, if it is that of a column in one.
        within: Option<Vec<u8>>,
        /// The name.
        name: Vec<u8>,
    },
}

/// Appends a deletion.
pub fn put_deletion(out: &mut Vec<u8>, deletion: Deletion) {
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
}

/// Appends a column, which may stand within a super column. Only hashes are made of those that are
/// neither live nor a tombstone: 0.6 does not have them.
pub fn put_column(out: &mut Vec<u8>, cell: &Cell) {
    out.put_prefixed(cell.name());
    out.push(cell.state() as u8);
    out.extend_from_slice(&cell.timestamp().to_be_bytes());
    out.put_bytes(cell.stored_value());
}

/// Appends what stands before the columns of a super column: its name, then
/// [`put_super_column_counts`].
pub fn put_super_column(out: &mut Vec<u8>, name: &[u8], deletion: Deletion, columns: u32) {
    out.put_prefixed(name);
    put_super_column_counts(out, deletion, columns);
}

/// Appends what stands between the name of a super column and its columns, which is of one length:
/// the deletion and the number of columns. 0.6 refuses all of a row for a super column that was
/// deleted before 1970: it was deleted in the first second of that year then.
pub fn put_super_column_counts(out: &mut Vec<u8>, deletion: Deletion, columns: u32) {
    let time = deletion.local_deletion_time;
    let local_deletion_time = if time == i32::MIN { time } else { time.max(1) };
    put_deletion(out, Deletion { local_deletion_time, ..deletion });
    out.extend_from_slice(&columns.to_be_bytes());
}

/// Reads a deletion.
pub fn read_deletion(reader: &mut ByteReader<'_>) -> Result<Deletion, ColumnError> {
    let local_deletion_time = i32::from_be_bytes(array(reader)?);
    Ok(Deletion { marked_for_delete_at: i64::from_be_bytes(array(reader)?), local_deletion_time })
}

/// Reads the columns of a row, one after the other, and takes no memory but for the name of a super
/// column. Each step happens as a whole or not at all: when bytes are missing it can be repeated
/// with more of them.
#[derive(Debug)]
pub struct ColumnReader {
    /// How many super columns have not begun yet.
    super_columns: u32,
    /// How many columns are left, of the row or of the super column.
    columns: u32,
    super_name: Vec<u8>,
}

/// Result of a step.
#[derive(Debug)]
pub enum ColumnStep<'a> {
    /// A column, or the deletion of a super column, that can stand in the column family.
    Cell(CellParts<'a>),
    /// The name of a super column that was never deleted.
    Nothing,
    /// There is nothing left. Nothing was read.
    Done,
}

impl ColumnReader {
    /// Reads what stands before the columns: the deletion of the row, and how many there are.
    pub fn begin(
        reader: &mut ByteReader<'_>,
        family: &ColumnFamilySchema,
    ) -> Result<(Deletion, Self), ColumnError> {
        let deletion = read_deletion(reader)?;
        Ok((deletion, Self::new(count(reader)?, family)))
    }

    /// A reader of this number of columns or super columns.
    pub fn new(count: u32, family: &ColumnFamilySchema) -> Self {
        let (super_columns, columns) = if family.is_super() { (count, 0) } else { (0, count) };
        Self { super_columns, columns, super_name: Vec::new() }
    }

    /// Reads the next part of the row, and moves the reader behind it unless there is an error.
    pub fn step<'a, 'b: 'a>(
        &'a mut self,
        reader: &mut ByteReader<'b>,
        family: &ColumnFamilySchema,
    ) -> Result<ColumnStep<'a>, ColumnError> {
        let mut ahead = reader.clone();
        let parts = if self.columns > 0 {
            let parts = read_column(&mut ahead, family, &self.super_name)?;
            self.columns -= 1;
            Some(parts)
        } else if self.super_columns > 0 {
            let (name, deletion, columns) = read_super_column(&mut ahead, family)?;
            self.super_columns -= 1;
            self.columns = columns;
            name.clone_into(&mut self.super_name);
            deletion
        } else {
            return Ok(ColumnStep::Done);
        };
        *reader = ahead;
        Ok(parts.map_or(ColumnStep::Nothing, ColumnStep::Cell))
    }

    /// Number of columns, or super columns, that have not begun. Those of a super column that has
    /// begun count too.
    pub fn left(&self) -> u32 {
        self.columns.saturating_add(self.super_columns)
    }

    /// Whether there is nothing left to read.
    pub fn is_done(&self) -> bool {
        self.columns == 0 && self.super_columns == 0
    }

    /// The super column of which columns are left to read.
    pub fn open_super_column(&self) -> Option<&[u8]> {
        (self.columns > 0 && !self.super_name.is_empty()).then_some(&self.super_name)
    }
}

/// The cells that [`CellParts::encode`] has written one after the other. They share the bytes.
pub fn cells_of(record: Vec<u8>) -> Vec<Cell> {
    let (record, mut at): (Arc<[u8]>, _) = (record.into(), 0);
    let cells = std::iter::from_fn(move || {
        let cell = Cell::decode(&record, at)?;
        at += cell.encoded_length();
        Some(cell)
    });
    cells.collect()
}

fn read_column<'a, 'b: 'a>(
    reader: &mut ByteReader<'b>,
    family: &ColumnFamilySchema,
    super_name: &'a [u8],
) -> Result<CellParts<'a>, ColumnError> {
    let name = name(reader)?;
    let is_deleted = array::<1>(reader)? != [0];
    let timestamp = i64::from_be_bytes(array(reader)?);
    let at = reader.position();
    let length = i32::from_be_bytes(array(reader)?);
    let length = usize::try_from(length).map_err(|_| ColumnError::Malformed(at))?;
    if is_deleted && length != 4 {
        return Err(ColumnError::Malformed(at));
    }
    let value = take(reader, length)?;
    let state = if is_deleted { CellState::Tombstone } else { CellState::Live };
    // An empty name is that of no column; within a super column its deletion stands there.
    if name.is_empty() || !family.can_hold(state, (super_name, name)) {
        let within = (!super_name.is_empty()).then(|| super_name.to_vec());
        return Err(ColumnError::Name { within, name: name.to_vec() });
    }
    Ok(CellParts { state, super_name, name, value, timestamp })
}

/// The name, its deletion if there is one, and the number of columns.
#[allow(clippy::type_complexity, reason = "a name for it would say no more")]
fn read_super_column<'b>(
    reader: &mut ByteReader<'b>,
    family: &ColumnFamilySchema,
) -> Result<(&'b [u8], Option<CellParts<'b>>, u32), ColumnError> {
    let super_name = name(reader)?;
    let at = reader.position();
    let value = reader.clone().take(4).unwrap_or_default();
    let deletion = read_deletion(reader)?;
    let time = deletion.local_deletion_time;
    if time <= 0 && time != i32::MIN {
        return Err(ColumnError::Malformed(at));
    }
    let columns = count(reader)?;
    if deletion.is_none() {
        return Ok((super_name, None, columns));
    }
    let (state, timestamp) = (CellState::SuperTombstone, deletion.marked_for_delete_at);
    if !family.can_hold(state, (super_name, b"")) {
        return Err(ColumnError::Name { within: None, name: super_name.to_vec() });
    }
    let parts = CellParts { state, super_name, name: b"", value, timestamp };
    Ok((super_name, Some(parts), columns))
}

fn take<'b>(reader: &mut ByteReader<'b>, length: usize) -> Result<&'b [u8], ColumnError> {
    let at = reader.position();
    let needs = at.saturating_add(length);
    reader.take(length).map_err(|_| ColumnError::Truncated { at, needs })
}

fn array<const N: usize>(reader: &mut ByteReader<'_>) -> Result<[u8; N], ColumnError> {
    Ok(*take(reader, N)?.first_chunk().expect("take returned N bytes"))
}

fn name<'b>(reader: &mut ByteReader<'b>) -> Result<&'b [u8], ColumnError> {
    let length = u16::from_be_bytes(array(reader)?);
    take(reader, length.into())
}

fn count(reader: &mut ByteReader<'_>) -> Result<u32, ColumnError> {
    let at = reader.position();
    u32::try_from(i32::from_be_bytes(array(reader)?)).map_err(|_| ColumnError::Malformed(at))
}

#[cfg(test)]
mod tests {
    use super::super::comparator::Comparator;
    use super::super::schema::ColumnFamilyKind;
    use super::*;

    fn family() -> ColumnFamilySchema {
        let (columns, super_columns) = (Comparator::Bytes, Comparator::Bytes);
        let kind = ColumnFamilyKind::Super { super_columns, columns };
        ColumnFamilySchema::new("Blog".into(), "Rows".into(), kind)
    }

    fn row() -> (Vec<Cell>, Vec<u8>) {
        let cells = vec![
            Cell::super_tombstone(b"s", Deletion::at(3, 7)),
            Cell::live(b"s", b"a", b"value", 4),
            Cell::tombstone(b"t", b"b", Deletion::at(5, 8)),
        ];
        let mut out = Vec::new();
        put_deletion(&mut out, Deletion::at(1, 2));
        out.extend([0, 0, 0, 2]);
        put_super_column(&mut out, b"s", Deletion::at(3, 7), 1);
        put_column(&mut out, &cells[1]);
        put_super_column(&mut out, b"t", Deletion::NONE, 1);
        put_column(&mut out, &cells[2]);
        (cells, out)
    }

    /// A reader that gets no more bytes than it has said it needs.
    #[test]
    fn a_row_is_read_in_as_small_pieces_as_it_asks_for() {
        let ((cells, bytes), family) = (row(), family());
        let mut reader = ByteReader::new(&bytes[..DELETION_BYTES + 4]);
        let (deletion, mut columns) = ColumnReader::begin(&mut reader, &family).unwrap();
        assert_eq!(deletion, Deletion::at(1, 2));
        let (mut record, mut at, mut there) = (Vec::new(), reader.position(), 0);
        while !columns.is_done() {
            let mut reader = ByteReader::new(&bytes[at..at + there]);
            match columns.step(&mut reader, &family) {
                Ok(ColumnStep::Cell(parts)) => parts.encode(&mut record),
                Ok(ColumnStep::Nothing) => {}
                Ok(ColumnStep::Done) => panic!("it was not done"),
                Err(ColumnError::Truncated { needs, .. }) => {
                    assert!(needs > there);
                    there = needs;
                    continue;
                }
                Err(error) => panic!("{error:?}"),
            }
            (at, there) = (at + reader.position(), 0);
        }
        assert_eq!(at, bytes.len());
        assert_eq!(cells_of(record), cells);
    }

    #[test]
    fn what_cannot_be_is_not_read() {
        let ((_, bytes), family) = (row(), family());
        let first_error = |bytes: &[u8]| {
            let mut reader = ByteReader::new(bytes);
            let (_, mut columns) = ColumnReader::begin(&mut reader, &family)?;
            loop {
                match columns.step(&mut reader, &family)? {
                    ColumnStep::Done => return Ok(()),
                    ColumnStep::Cell(_) | ColumnStep::Nothing => {}
                }
            }
        };
        assert_eq!(first_error(&bytes), Ok(()));
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            first_error(&bytes)
        };
        assert_eq!(changed(12, 0x80), Err(ColumnError::Malformed(12)), "a negative count");
        assert_eq!(changed(19, 0x81), Err(ColumnError::Malformed(19)), "a time before 1970");
        assert_eq!(changed(31, 0x80), Err(ColumnError::Malformed(31)), "a negative count");
        assert_eq!(changed(47, 0x80), Err(ColumnError::Malformed(47)), "a negative length");
        assert_eq!(changed(38, 1), Err(ColumnError::Malformed(47)), "a time of five bytes");
        let nameless = ColumnError::Name { within: Some(b"s".to_vec()), name: Vec::new() };
        let mut without = bytes.clone();
        without[36] = 0;
        without.remove(37);
        assert_eq!(first_error(&without), Err(nameless));
        for length in 0..bytes.len() {
            let error = first_error(&bytes[..length]);
            assert!(matches!(error, Err(ColumnError::Truncated { .. })), "{length}: {error:?}");
        }
    }
}
