//! READ: a slice of one row.
//!
//! ```text
//! u8    1: by names, 2: a range of columns
//! BOOL  only the digest
//! UTF   keyspace, UTF row key, UTF column family
//! NAME  super column, or empty
//! NAME  always empty
//! by names: i32 count, count × NAME
//! range:    NAME start, NAME finish, BOOL reversed, i32 limit
//! ```

use super::error::{BodyError, EncodeError};
use super::key::{check_end, put_key, read_key};
use super::slice::{Parent, WireRange, count_names, limit_from_wire, limit_to_wire};
use crate::base::bytes::{ByteReader, ByteWriter};
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;
use crate::model::schema::{FamilyId, Schema};
use crate::model::slice::Slice;

const BY_NAMES: u8 = 1;
const RANGE: u8 = 2;

/// Asks a replica for a slice of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCommand {
    /// The column family.
    pub family: FamilyId,
    /// The row.
    pub key: RowKey,
    /// Which columns.
    pub slice: Slice,
    /// Whether the digest of the answer is enough.
    pub digest_only: bool,
}

impl ReadCommand {
    /// The body that [`ReadCommand::decode`] reads.
    pub fn encode(&self, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
        let family = schema.family(self.family);
        let mut out = Vec::with_capacity(96);
        out.push(if self.slice.asked_names().is_some() { BY_NAMES } else { RANGE });
        out.push(u8::from(self.digest_only));
        out.put_utf(family.keyspace.as_bytes())?;
        put_key(&mut out, &self.key)?;
        out.put_utf(family.name.as_bytes())?;
        out.put_prefixed(self.slice.super_name().unwrap_or_default());
        out.put_prefixed(b"");
        if let Some(names) = self.slice.asked_names() {
            out.extend_from_slice(&(names.len() as u32).to_be_bytes());
            for name in names {
                out.put_prefixed(name);
            }
        } else if let Some((start, finish)) = self.slice.bounds() {
            out.put_prefixed(start);
            out.put_prefixed(finish);
            out.push(u8::from(self.slice.is_reversed()));
            out.extend_from_slice(&limit_to_wire(self.slice.limit()).to_be_bytes());
        }
        Ok(out)
    }

    /// Reads a command, which then may be executed as it is.
    pub fn decode(body: &[u8], schema: &Schema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let form = reader.u8()?;
        let digest_only = reader.bool()?;
        let keyspace = reader.utf()?;
        let key = read_key(&mut reader)?;
        let name = reader.utf()?;
        let Some(family) = schema.family_id(&keyspace, &name) else {
            return Err(BodyError::unknown_family(&keyspace, &name));
        };
        let parent = Parent::new(schema.family(family), reader.prefixed()?)?;
        let at = reader.position();
        if !reader.prefixed()?.is_empty() {
            return Err(BodyError::Malformed(at));
        }
        let slice = match form {
            BY_NAMES => read_names(&mut reader, parent)?,
            RANGE => read_range(&mut reader, parent)?,
            _ => return Err(BodyError::Malformed(0)),
        };
        check_end(&reader)?;
        Ok(Self { family, key, slice, digest_only })
    }
}

fn read_names(reader: &mut ByteReader<'_>, parent: Parent<'_>) -> Result<Slice, BodyError> {
    let count = count_names(reader, 2)?;
    let names = (0..count).map(|_| reader.prefixed()).collect::<Result<Vec<_>, _>>()?;
    parent.names(&names)
}

fn read_range(reader: &mut ByteReader<'_>, parent: Parent<'_>) -> Result<Slice, BodyError> {
    let (start, finish, reversed) = (reader.prefixed()?, reader.prefixed()?, reader.bool()?);
    let at = reader.position();
    let limit = limit_from_wire(reader.i32()?).ok_or(BodyError::Malformed(at))?;
    parent.range(WireRange { start, finish, reversed, limit })
}
