//! RANGE_SLICE: a slice of each row of a range.
//!
//! ```text
//! UTF   keyspace, UTF column family
//! BYTES super column, or none
//! BYTES the columns, as a struct of the Thrift interface
//! i32   form, BYTES left token, BYTES right token
//! i32   most rows
//! ```

use super::bounds::{put_bounds, read_bounds};
use super::error::{BodyError, EncodeError};
use super::key::check_end;
use super::predicate::{predicate, read_predicate};
use super::slice::{Parent, limit_from_wire, limit_to_wire};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::Slice;
use crate::ring::{Partitioner, RowRange};

/// Asks a replica for a slice of each row of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeCommand {
    /// The column family.
    pub family: FamilyId,
    /// Which columns of each row.
    pub slice: Slice,
    /// Which rows. A range that no node's token lies inside of.
    pub range: RowRange,
    /// How many rows may be answered, whether or not anything of them is visible.
    pub max_rows: usize,
}

impl RangeCommand {
    /// The body that [`RangeCommand::decode`] reads.
    pub fn encode(
        &self,
        schema: &Schema,
        partitioner: Partitioner,
    ) -> Result<Vec<u8>, EncodeError> {
        let family = schema.family(self.family);
        let mut out = Vec::with_capacity(160);
        out.put_utf(family.keyspace.as_bytes())?;
        out.put_utf(family.name.as_bytes())?;
        out.put_bytes(self.slice.super_name().unwrap_or_default());
        out.put_bytes(&predicate(&self.slice));
        put_bounds(&mut out, &self.range, partitioner)?;
        out.extend_from_slice(&limit_to_wire(self.max_rows).to_be_bytes());
        Ok(out)
    }

    /// Reads a command, which then may be executed as it is.
    pub fn decode(
        body: &[u8],
        schema: &Schema,
        partitioner: Partitioner,
    ) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let (keyspace, name) = (reader.utf()?, reader.utf()?);
        let Some(family) = schema.family_id(&keyspace, &name) else {
            return Err(BodyError::unknown_family(&keyspace, &name));
        };
        let parent = Parent::new(schema.family(family), reader.bytes()?)?;
        let slice = read_predicate(reader.bytes()?, parent)?;
        let range = read_bounds(&mut reader, partitioner)?;
        let at = reader.position();
        let max_rows = limit_from_wire(reader.i32()?).ok_or(BodyError::Malformed(at))?;
        check_end(&reader)?;
        Ok(Self { family, slice, range, max_rows })
    }
}
