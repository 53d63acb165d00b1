//! Rows of column families and writes to rows in the form of 0.6, which is that of its messages and
//! of its commit log.
//!
//! ```text
//! write
//!   UTF  keyspace, UTF row key
//!   i32  number of column families, each: UTF name, then the row, which repeats it
//! row
//!   UTF  column family
//!   UTF  "Standard" or "Super"
//!   UTF  comparator, UTF subcolumn comparator    full class names; empty where there is none
//!   the columns, with the deletion of the row, as `model::original` has them
//! ```
//!
//! The commit log of 0.4 has rows only: the name is not repeated.
//!
//! Nodes of this program send each other what 0.6 does not have in rows of the type [`CELLS`].
//! Behind the deletion of the row there are `i32` number of cells, then these as [`Cell::encode`]
//! has them.

use super::cell::{Cell, CellParts, CellState};
use super::deletion::Deletion;
use super::key::RowKey;
use super::mutation::{DecodeError, MutationBuilder, RowMutation};
use super::original::{ColumnError, ColumnReader, ColumnStep, read_deletion};
use super::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::base::bytes::ByteReader;
use crate::base::context::RequestContext;
use crate::base::java::JavaReader;

/// Memory that the columns of a write or an answer may take: this multiple of its length, at least
/// [`LEAST_ROOM_BYTES`].
const ROOM_FACTOR: usize = 16;

/// Enough for a super column of a long name and many columns.
const LEAST_ROOM_BYTES: usize = 32 << 20;

/// Fewest bytes that a column family takes: its name, another text, and the columns.
const LEAST_FAMILY_BYTES: usize = 4;

/// Types of column families by their names there.
pub const COLUMN_TYPES: [&str; 2] = ["Standard", "Super"];

/// Type of rows with cells that 0.6 does not have.
pub const CELLS: &str = "Cells";

/// Bytes that columns may yet take.
#[derive(Debug)]
pub struct Room<'a> {
    all: usize,
    left: usize,
    /// Whose memory they take, if a request needs them until it is done.
    context: Option<&'a RequestContext>,
}

impl<'a> Room<'a> {
    /// Room for the columns in these bytes.
    pub fn for_body(body: &[u8]) -> Self {
        let all = body.len().saturating_mul(ROOM_FACTOR).max(LEAST_ROOM_BYTES);
        Self { all, left: all, context: None }
    }

    /// Room for columns that a request applies, which are copied once.
    pub fn to_apply(body: &[u8], context: &'a RequestContext) -> Self {
        Self { context: Some(context), ..Self::for_body(body) }
    }

    fn take(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.left = self.left.checked_sub(bytes).ok_or(DecodeError::TooLarge(self.all))?;
        if let Some(context) = self.context {
            context.take(2 * (bytes + size_of::<Cell>()))?;
        }
        Ok(())
    }
}

/// Reads a write, which then may be applied as it is. Nothing may follow it.
pub fn read_mutation(
    body: &[u8],
    schema: &Schema,
    room: &mut Room<'_>,
    repeats_names: bool,
) -> Result<RowMutation, DecodeError> {
    let mut reader = ByteReader::new(body);
    let keyspace = reader.utf()?;
    let key = read_key(&mut reader)?;
    let mut builder = MutationBuilder::new(schema, &keyspace, key.as_bytes());
    let at = reader.position();
    let count = reader.count(LEAST_FAMILY_BYTES)?;
    if count > usize::from(u16::MAX) {
        return Err(DecodeError::Malformed(at));
    }
    for _ in 0..count {
        let at = reader.position();
        let name = reader.utf()?;
        if name.is_empty() || (repeats_names && reader.utf()? != name) {
            return Err(DecodeError::Malformed(at));
        }
        let id = family_named(schema, &keyspace, &name)?;
        builder.family(id);
        let mut take = |parts: CellParts<'_>| {
            builder.push(parts);
        };
        let deletion = read_family(&mut reader, schema.family(id), room, &mut take)?;
        builder.delete_row(deletion);
    }
    check_end(&reader)?;
    Ok(builder.finish())
}

/// First byte of a row key that is not text, before its own bytes. No UTF begins so, and no 0.6
/// has such keys.
pub const OTHER_KEY: u8 = 0xff;

/// Reads a row key.
pub fn read_key(reader: &mut ByteReader<'_>) -> Result<RowKey, DecodeError> {
    let at = reader.position();
    if let [OTHER_KEY, key @ ..] = reader.clone().prefixed()? {
        reader.prefixed()?;
        let key = RowKey::new(key);
        return if key.is_text() { Err(DecodeError::Malformed(at)) } else { Ok(key) };
    }
    let key = reader.utf()?;
    if key.is_empty() {
        return Err(DecodeError::EmptyKey);
    }
    Ok(RowKey::from(&*key))
}

/// Finds a column family by its names.
pub fn family_named(schema: &Schema, keyspace: &str, name: &str) -> Result<FamilyId, DecodeError> {
    let family = schema.family_id(keyspace, name);
    family.ok_or_else(|| DecodeError::UnknownFamily {
        keyspace: clipped(keyspace),
        family: clipped(name),
    })
}

/// Fails unless everything was read.
pub fn check_end(reader: &ByteReader<'_>) -> Result<(), DecodeError> {
    if reader.is_empty() { Ok(()) } else { Err(DecodeError::Malformed(reader.position())) }
}

/// Reads a row after the name of its column family: returns its deletion, and gives `take` its
/// cells.
pub fn read_family(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room<'_>,
    take: &mut dyn FnMut(CellParts<'_>),
) -> Result<Deletion, DecodeError> {
    if reader.clone().utf()? == CELLS {
        reader.utf()?;
        check_types(reader, family, false)?;
        return read_cells(reader, family, room, take);
    }
    check_types(reader, family, true)?;
    read_row(reader, family, room, take)
}

fn read_cells(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room<'_>,
    take: &mut dyn FnMut(CellParts<'_>),
) -> Result<Deletion, DecodeError> {
    let deletion = read_deletion(reader).map_err(|error| DecodeError::columns(family, error))?;
    for _ in 0..reader.count(Cell::HEADER_LENGTH)? {
        let at = reader.position();
        let rest = reader.rest();
        let (parts, length) = CellParts::decode(rest).ok_or(DecodeError::Malformed(at))?;
        let place = (parts.super_name, parts.name);
        let is_column = parts.state != CellState::SuperTombstone;
        if is_column && parts.name.is_empty() || !family.can_hold(parts.state, place) {
            let within = Some(parts.super_name).filter(|name| !name.is_empty());
            return Err(DecodeError::name(family, within, parts.name));
        }
        room.take(length)?;
        reader.take(length)?;
        take(parts);
    }
    Ok(deletion)
}

/// Reads a row of a known column family: returns its deletion, and gives `take` its cells.
pub fn read_row(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    room: &mut Room<'_>,
    take: &mut dyn FnMut(CellParts<'_>),
) -> Result<Deletion, DecodeError> {
    let refused = |error| DecodeError::columns(family, error);
    let (deletion, mut columns) = ColumnReader::begin(reader, family).map_err(refused)?;
    loop {
        match columns.step(reader, family).map_err(refused)? {
            ColumnStep::Cell(parts) => {
                let CellParts { super_name, name, value, .. } = parts;
                let length = super_name.len() + name.len() + value.len();
                room.take(Cell::HEADER_LENGTH + length)?;
                take(parts);
            }
            ColumnStep::Nothing => {}
            ColumnStep::Done => return Ok(deletion),
        }
    }
}

/// Returns the type of a column family by its name there.
pub fn column_type(family: &ColumnFamilySchema) -> &'static str {
    COLUMN_TYPES[usize::from(family.is_super())]
}

const COLUMN_TYPE: &str = "the column type";

/// The keyspace that each node keeps for itself. Only commit logs have writes of it.
const OWN_KEYSPACE: &str = "system";

fn check_types(
    reader: &mut ByteReader<'_>,
    family: &ColumnFamilySchema,
    has_type: bool,
) -> Result<(), DecodeError> {
    let subcolumns = family.subcolumn_comparator().map(|columns| columns.class_name());
    let all = [
        (COLUMN_TYPE, column_type(family).to_owned()),
        ("the comparator", family.comparator().class_name()),
        ("the subcolumn comparator", subcolumns.unwrap_or_default()),
    ];
    for (part, ours) in all.into_iter().skip(usize::from(!has_type)) {
        let theirs = reader.utf()?;
        // The original has changed the comparators of its own keyspace, whose names are ASCII.
        let may_differ = family.keyspace == OWN_KEYSPACE && part != COLUMN_TYPE;
        if theirs != ours && !may_differ {
            let (family, theirs) = (family.to_string(), clipped(&theirs));
            return Err(DecodeError::OtherType { family, part, ours, theirs });
        }
    }
    Ok(())
}

impl DecodeError {
    /// The error of the columns of a row.
    fn columns(family: &ColumnFamilySchema, error: ColumnError) -> Self {
        match error {
            ColumnError::Truncated { at, .. } | ColumnError::Malformed(at) => Self::Malformed(at),
            ColumnError::Name { within, name } => Self::name(family, within.as_deref(), &name),
        }
    }

    /// A name of columns, or of super columns if `super_name` is none, that cannot be.
    pub fn name(family: &ColumnFamilySchema, super_name: Option<&[u8]>, name: &[u8]) -> Self {
        let columns = super_name.and_then(|_| family.subcolumn_comparator());
        let name = columns.unwrap_or(family.comparator()).render(name);
        Self::Name { family: family.to_string(), name: clipped(&name) }
    }
}

/// Longest text of a peer or a file that an error repeats, in characters: errors are logged.
const MOST_CHARACTERS: usize = 100;

/// Shortens a text that an error repeats.
pub fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
