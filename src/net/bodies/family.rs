//! A row of one column family, in mutations and in answers, as `model::original_mutation` has it.
//! Where there are no data its name is empty, and nothing follows.

use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::original::{cells_of, put_column, put_deletion, put_super_column};
use crate::model::original_mutation::{CELLS, Room, column_type, read_family};
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;
use std::cmp::Ordering;

/// Appends the version of a row. An empty one has no column family. One that 0.6 cannot have has a
/// form that only nodes read that announce [`crate::net::extensions::CELLS`].
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
    let is_original = cells.iter().all(|cell| cell.state().is_original());
    let kind = if is_original { column_type(family) } else { CELLS };
    out.put_utf(kind.as_bytes())?;
    out.put_utf(family.comparator().class_name().as_bytes())?;
    out.put_utf(subcolumns.unwrap_or_default().as_bytes())?;
    put_deletion(out, deletion);
    if !is_original {
        out.extend_from_slice(&(cells.len() as u32).to_be_bytes());
        for cell in cells {
            cell.encode(out);
        }
    } else if family.is_super() {
        put_super_columns(out, family, cells);
    } else {
        put_columns(out, cells);
    }
    Ok(())
}

fn put_columns(out: &mut Vec<u8>, cells: &[Cell]) {
    out.extend_from_slice(&(cells.len() as u32).to_be_bytes());
    for cell in cells {
        put_column(out, cell);
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
            [marker, columns @ ..] if marker.super_deletion().is_some() => {
                (marker.deletion().unwrap_or(Deletion::NONE), columns)
            }
            columns => (Deletion::NONE, columns),
        };
        put_super_column(out, super_column[0].super_name(), deletion, columns.len() as u32);
        for cell in columns {
            put_column(out, cell);
        }
        count += 1;
    }
    out[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
}

/// Reads the version of a row of `family`.
pub(super) fn read_version(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room<'_>,
) -> Result<RowVersion, BodyError> {
    let theirs = reader.utf()?;
    if theirs.is_empty() {
        return Ok(RowVersion::default());
    }
    if theirs != family.name {
        return Err(BodyError::other_family(family, &theirs));
    }
    let mut record = Vec::new();
    let deletion = read_family(reader, family, room, &mut |parts| parts.encode(&mut record))?;
    let mut version = RowVersion { deletion, cells: in_order(family, cells_of(record)) };
    version.drop_hidden(family);
    Ok(version)
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
