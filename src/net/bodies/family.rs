//! A row of one column family, in mutations and in answers.
//!
//! ```text
//! UTF  column family          empty: no data, and nothing follows
//! UTF  "Standard" or "Super"
//! UTF  comparator, UTF subcolumn comparator      full class names; empty where there is none
//! i32  local deletion time, i64 marked for delete at          of the row
//! i32  number of columns or super columns, each:
//!     column        NAME name, BOOL deleted, i64 timestamp, BYTES value
//!     super column  NAME name, i32 local deletion time, i64 marked for delete at,
//!                   i32 number of columns, these
//! ```
//!
//! A NAME is a u16 length and bytes. The value of a deleted column is its local deletion time.

use super::error::{BodyError, EncodeError, FamilyPart};
use crate::base::bytes::{ByteReader, ByteWriter};
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::cell::{Cell, CellParts, CellState};
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;
use std::cmp::Ordering;
use std::sync::Arc;

/// Fewest bytes that a column or a super column takes.
const LEAST_COLUMN_BYTES: usize = 2 + 1 + 8 + 4;

/// What the columns of a message may take in memory: so many times its length, or
/// [`LEAST_ROOM_BYTES`].
const ROOM_FACTOR: usize = 16;

/// Enough for a super column of a long name and many columns.
const LEAST_ROOM_BYTES: usize = 32 << 20;

/// Bytes that the columns of a message may yet take.
#[derive(Debug)]
pub(super) struct Room {
    all: usize,
    left: usize,
}

impl Room {
    pub(super) fn for_body(body: &[u8]) -> Self {
        let all = body.len().saturating_mul(ROOM_FACTOR).max(LEAST_ROOM_BYTES);
        Self { all, left: all }
    }

    fn take(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.left = self.left.checked_sub(bytes).ok_or(BodyError::TooLarge(self.all))?;
        Ok(())
    }
}

/// Appends what a node knows of a row. A row of which nothing is known has no column family.
pub(super) fn put_version(
    out: &mut Vec<u8>,
    family: &ColumnFamilySchema,
    version: &RowVersion,
) -> Result<(), EncodeError> {
    if version.is_empty() {
        return Ok(out.put_utf(b"")?);
    }
    put_family(out, family, version.deletion, &version.cells)
}

/// Appends a row of cells that are in order.
pub(super) fn put_family(
    out: &mut Vec<u8>,
    family: &ColumnFamilySchema,
    deletion: Deletion,
    cells: &[Cell],
) -> Result<(), EncodeError> {
    let subcolumns = family.subcolumn_comparator().map(|columns| columns.class_name());
    out.put_utf(family.name.as_bytes())?;
    out.put_utf(column_type(family).as_bytes())?;
    out.put_utf(family.comparator().class_name().as_bytes())?;
    out.put_utf(subcolumns.unwrap_or_default().as_bytes())?;
    put_deletion(out, deletion);
    if family.is_super() {
        put_super_columns(out, family, cells);
    } else {
        put_columns(out, cells);
    }
    Ok(())
}

fn column_type(family: &ColumnFamilySchema) -> &'static str {
    if family.is_super() { "Super" } else { "Standard" }
}

fn put_deletion(out: &mut Vec<u8>, deletion: Deletion) {
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
}

fn put_columns(out: &mut Vec<u8>, cells: &[Cell]) {
    out.extend_from_slice(&(cells.len() as u32).to_be_bytes());
    for cell in cells {
        out.put_prefixed(cell.name());
        out.push(u8::from(!cell.is_live()));
        out.extend_from_slice(&cell.timestamp().to_be_bytes());
        out.put_bytes(cell.value());
    }
}

fn put_super_columns(out: &mut Vec<u8>, family: &ColumnFamilySchema, cells: &[Cell]) {
    let count_at = out.len();
    out.extend_from_slice(&[0; 4]);
    let names = family.comparator();
    let is_same =
        |a: &Cell, b: &Cell| names.compare(a.super_name(), b.super_name()) == Ordering::Equal;
    let mut count = 0u32;
    for super_column in cells.chunk_by(is_same) {
        let (deletion, columns) = match super_column {
            [marker, columns @ ..] if marker.state() == CellState::SuperTombstone => {
                (marker.deletion().unwrap_or(Deletion::NONE), columns)
            }
            columns => (Deletion::NONE, columns),
        };
        out.put_prefixed(super_column[0].super_name());
        put_deletion(out, acceptable(deletion));
        put_columns(out, columns);
        count += 1;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
}

/// A node of 0.6 refuses a whole message for a super column that was deleted before 1970.
fn acceptable(deletion: Deletion) -> Deletion {
    let time = deletion.local_deletion_time;
    let local_deletion_time = if time == i32::MIN { time } else { time.max(1) };
    Deletion { local_deletion_time, ..deletion }
}

/// The name with which a row of a column family begins.
pub(super) fn read_name(reader: &mut ByteReader<'_>) -> Result<String, BodyError> {
    Ok(reader.utf()?.into_owned())
}

/// Reads what a node knows of a row of `family`.
pub(super) fn read_version(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room,
) -> Result<RowVersion, BodyError> {
    let theirs = read_name(reader)?;
    if theirs.is_empty() {
        return Ok(RowVersion::default());
    }
    if theirs != family.name {
        return Err(BodyError::other_family(family, &theirs));
    }
    let mut record = Vec::new();
    let deletion = read_family(reader, family, room, &mut |parts| parts.encode(&mut record))?;
    let mut version = RowVersion { deletion, cells: in_order(family, decode_cells(record)) };
    version.drop_covered(family);
    Ok(version)
}

fn decode_cells(record: Vec<u8>) -> Vec<Cell> {
    let (record, mut at): (Arc<[u8]>, _) = (record.into(), 0);
    let cells = std::iter::from_fn(move || {
        let cell = Cell::decode(&record, at)?;
        at += cell.encoded_length();
        Some(cell)
    });
    cells.collect()
}

/// The cells as a row holds them: in ascending order, one at each place.
pub(super) fn in_order(family: &ColumnFamilySchema, mut cells: Vec<Cell>) -> Vec<Cell> {
    let order = |a: &Cell, b: &Cell| family.compare(a.place(), b.place());
    if cells.is_sorted_by(|a, b| order(a, b) == Ordering::Less) {
        return cells;
    }
    cells.sort_by(order);
    cells.dedup_by(|later, kept| {
        let is_same = order(later, kept) == Ordering::Equal;
        if is_same {
            *kept = kept.clone().reconcile(later.clone());
        }
        is_same
    });
    cells
}

/// Reads a row behind the name of its column family: its deletion, and `take` gets its cells.
pub(super) fn read_family(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room,
    take: &mut dyn FnMut(CellParts<'_>),
) -> Result<Deletion, BodyError> {
    check_types(reader, family)?;
    read_row(reader, family, room, take)
}

/// Reads a row of a column family that is known: its deletion, and `take` gets its cells.
pub(super) fn read_row(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room,
    take: &mut dyn FnMut(CellParts<'_>),
) -> Result<Deletion, BodyError> {
    let deletion = read_deletion(reader)?;
    let mut columns = Columns { family, room, take };
    if !family.is_super() {
        columns.read(reader, b"")?;
        return Ok(deletion);
    }
    for _ in 0..reader.count(LEAST_COLUMN_BYTES)? {
        columns.read_super_column(reader)?;
    }
    Ok(deletion)
}

fn check_types(reader: &mut ByteReader<'_>, family: &ColumnFamilySchema) -> Result<(), BodyError> {
    let subcolumns = family.subcolumn_comparator().map(|columns| columns.class_name());
    let ours = [
        (FamilyPart::ColumnType, column_type(family).to_owned()),
        (FamilyPart::Comparator, family.comparator().class_name()),
        (FamilyPart::Subcomparator, subcolumns.unwrap_or_default()),
    ];
    for (part, ours) in ours {
        let theirs = reader.utf()?;
        if theirs != ours {
            return Err(BodyError::other_type(family, part, ours, &theirs));
        }
    }
    Ok(())
}

fn read_deletion(reader: &mut ByteReader<'_>) -> Result<Deletion, BodyError> {
    let local_deletion_time = reader.i32()?;
    Ok(Deletion { marked_for_delete_at: reader.i64()?, local_deletion_time })
}

/// Columns on their way from a message.
struct Columns<'a> {
    family: &'a ColumnFamilySchema,
    room: &'a mut Room,
    take: &'a mut dyn FnMut(CellParts<'_>),
}

impl Columns<'_> {
    fn read_super_column(&mut self, reader: &mut ByteReader<'_>) -> Result<(), BodyError> {
        let super_name = reader.prefixed()?;
        let at = reader.position();
        let deletion = read_deletion(reader)?;
        let time = deletion.local_deletion_time;
        if time <= 0 && time != i32::MIN {
            return Err(BodyError::Malformed(at));
        }
        if !deletion.is_none() {
            self.accept(CellParts {
                state: CellState::SuperTombstone,
                super_name,
                name: b"",
                value: &time.to_be_bytes(),
                timestamp: deletion.marked_for_delete_at,
            })?;
        }
        self.read(reader, super_name)
    }

    fn read(&mut self, reader: &mut ByteReader<'_>, super_name: &[u8]) -> Result<(), BodyError> {
        for _ in 0..reader.count(LEAST_COLUMN_BYTES)? {
            let name = reader.prefixed()?;
            let is_deleted = reader.bool()?;
            let timestamp = reader.i64()?;
            let at = reader.position();
            let value = reader.bytes()?;
            if is_deleted && value.len() != 4 {
                return Err(BodyError::Malformed(at));
            }
            let state = if is_deleted { CellState::Tombstone } else { CellState::Live };
            self.accept(CellParts { state, super_name, name, value, timestamp })?;
        }
        Ok(())
    }

    fn accept(&mut self, parts: CellParts<'_>) -> Result<(), BodyError> {
        let CellParts { state, super_name, name, value, .. } = parts;
        // An empty name is that of no column; within a super column its deletion stands there.
        let has_name = !name.is_empty() || state == CellState::SuperTombstone;
        if !has_name || !self.family.can_hold(state, (super_name, name)) {
            let within = (!super_name.is_empty()).then_some(super_name);
            return Err(BodyError::name(self.family, within, name));
        }
        self.room.take(Cell::HEADER_LENGTH + super_name.len() + name.len() + value.len())?;
        (self.take)(parts);
        Ok(())
    }
}
