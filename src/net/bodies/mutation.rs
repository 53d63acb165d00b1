//! MUTATION and READ_REPAIR: a write to one row.
//!
//! ```text
//! UTF keyspace, UTF row key
//! i32 number of column families, each: UTF name, then the row of the family, which repeats it
//! ```

use super::error::{BodyError, EncodeError};
use super::family::{self, Room};
use super::key::{check_end, put_key, read_key};
use crate::base::bytes::ByteReader;
use crate::base::context::RequestContext;
use crate::base::java::{JavaReader, JavaWriter};
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::cell::{Cell, CellParts, CellState};
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{FamilyId, Schema};

/// Fewest bytes that a column family takes: two empty names.
const LEAST_FAMILY_BYTES: usize = 4;

/// The body that [`decode_mutation`] reads. A column family that stands in the mutation more than
/// once is put together, and of several cells at one place only the one that counts is sent.
pub fn encode_mutation(mutation: &RowMutation, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
    let parts = by_family(mutation);
    let mut out = Vec::with_capacity(256 + mutation.record().len());
    out.put_utf(mutation.keyspace().as_bytes())?;
    put_key(&mut out, &mutation.key)?;
    out.extend_from_slice(&(parts.len() as u32).to_be_bytes());
    for (id, deletion, cells) in parts {
        let family = schema.family(id);
        out.put_utf(family.name.as_bytes())?;
        family::put_family(&mut out, family, deletion, &family::in_order(family, cells))?;
    }
    Ok(out)
}

/// The families of a mutation, each once, in the order in which they first stand there.
fn by_family(mutation: &RowMutation) -> Vec<(FamilyId, Deletion, Vec<Cell>)> {
    let mut parts: Vec<(FamilyId, Deletion, Vec<Cell>)> = Vec::new();
    for part in &mutation.families {
        match parts.iter_mut().find(|(id, ..)| *id == part.family) {
            Some((_, deletion, cells)) => {
                *deletion = deletion.merge(part.deletion);
                cells.extend_from_slice(&part.cells);
            }
            None => parts.push((part.family, part.deletion, part.cells.to_vec())),
        }
    }
    parts
}

/// Reads a write to one row, which then may be applied as it is. Its memory is that of `context`.
pub fn decode_mutation(
    body: &[u8],
    schema: &Schema,
    context: &RequestContext,
) -> Result<RowMutation, BodyError> {
    let mut reader = ByteReader::new(body);
    let mut room = Room::to_apply(body, context);
    let keyspace = reader.utf()?;
    if keyspace == SYSTEM_KEYSPACE {
        return Err(BodyError::SystemKeyspace(keyspace.into_owned()));
    }
    let key = read_key(&mut reader)?;
    let mut builder = MutationBuilder::new(schema, &keyspace, key.as_bytes());
    let at = reader.position();
    let count = reader.count(LEAST_FAMILY_BYTES)?;
    if count > usize::from(u16::MAX) {
        return Err(BodyError::Malformed(at));
    }
    for _ in 0..count {
        let at = reader.position();
        let name = family::read_name(&mut reader)?;
        if family::read_name(&mut reader)? != name {
            return Err(BodyError::Malformed(at));
        }
        let Some(id) = schema.family_id(&keyspace, &name) else {
            return Err(BodyError::unknown_family(&keyspace, &name));
        };
        builder.family(id);
        let mut take = |parts: CellParts<'_>| add(&mut builder, parts);
        let deletion = family::read_family(&mut reader, schema.family(id), &mut room, &mut take)?;
        builder.delete_row(deletion);
    }
    check_end(&reader)?;
    Ok(builder.finish())
}

pub(super) fn add(builder: &mut MutationBuilder<'_>, parts: CellParts<'_>) {
    let place = (parts.super_name, parts.name);
    let time = parts.value.first_chunk().copied().map_or(i32::MIN, i32::from_be_bytes);
    let deletion = Deletion::at(parts.timestamp, time);
    match parts.state {
        CellState::Live => builder.insert(place, parts.value, parts.timestamp),
        CellState::Tombstone => builder.delete_column(place, deletion),
        CellState::SuperTombstone => builder.delete_super_column(parts.super_name, deletion),
    };
}
