//! The call for a piece of a range: all that a node has of its rows, from a position on. Not part
//! of 0.6.
//!
//! ```text
//! command  UTF keyspace, UTF column family, BOUNDS range, POSITION after, i32 bytes wanted
//! answer   POSITION next, then as for RANGE_SLICE: i32 number of rows, each: KEY, the row
//!
//! KEY      = u16 number of bytes, then the row key
//! POSITION = u8: 0 none, 1 behind a row, 2 behind a column; KEY unless none;
//!            NAME super column, NAME column if behind a column
//! ```

use super::bounds::{put_bounds, read_bounds};
use super::error::{BodyError, EncodeError};
use super::key::{check_end, put_any_key, read_any_key};
use super::range_reply::RangeReply;
use crate::base::bytes::{ByteReader, ByteWriter};
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::position::RowPosition;
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::ring::{Partitioner, RowRange};

const NONE: u8 = 0;
const ROW: u8 = 1;
const COLUMN: u8 = 2;

/// Asks a node for what it has of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceCommand {
    /// The column family.
    pub family: FamilyId,
    /// The range.
    pub range: RowRange,
    /// Behind what of it the piece begins; at its start if there is none.
    pub after: Option<RowPosition>,
    /// About how many bytes of columns are wanted.
    pub max_bytes: u32,
}

/// What a node has of a range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PieceReply {
    /// Rows in the order of their tokens. The first may have begun in an earlier piece, and the
    /// last go on in the next.
    pub rows: RangeReply,
    /// Behind what the next piece begins; none at the end of the range.
    pub next: Option<RowPosition>,
}

impl PieceCommand {
    /// The body that [`PieceCommand::decode`] reads.
    pub fn encode(
        &self,
        schema: &Schema,
        partitioner: Partitioner,
    ) -> Result<Vec<u8>, EncodeError> {
        let family = schema.family(self.family);
        let mut out = Vec::with_capacity(128);
        out.put_utf(family.keyspace.as_bytes())?;
        out.put_utf(family.name.as_bytes())?;
        put_bounds(&mut out, &self.range, partitioner)?;
        put_position(&mut out, self.after.as_ref())?;
        out.extend_from_slice(&self.max_bytes.to_be_bytes());
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
        let range = read_bounds(&mut reader, partitioner)?;
        let after = read_position(&mut reader)?;
        let max_bytes = reader.u32()?;
        check_end(&reader)?;
        Ok(Self { family, range, after, max_bytes })
    }
}

impl PieceReply {
    /// The body that [`PieceReply::decode`] reads.
    pub fn encode(&self, family: &ColumnFamilySchema) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        put_position(&mut out, self.next.as_ref())?;
        self.rows.append(&mut out, family, put_any_key)?;
        Ok(out)
    }

    /// Reads the answer to a command for this column family.
    pub fn decode(body: &[u8], family: &ColumnFamilySchema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let next = read_position(&mut reader)?;
        let rows = RangeReply::decode_by(reader.rest(), family, read_any_key)?;
        Ok(Self { rows, next })
    }
}

pub(super) fn put_position(
    out: &mut Vec<u8>,
    position: Option<&RowPosition>,
) -> Result<(), EncodeError> {
    let Some(RowPosition { key, cell }) = position else {
        out.push(NONE);
        return Ok(());
    };
    out.push(if cell.is_some() { COLUMN } else { ROW });
    put_any_key(out, key)?;
    if let Some((super_name, name)) = cell {
        out.put_prefixed(super_name);
        out.put_prefixed(name);
    }
    Ok(())
}

pub(super) fn read_position(reader: &mut ByteReader<'_>) -> Result<Option<RowPosition>, BodyError> {
    let at = reader.position();
    let form = reader.u8()?;
    if form == NONE {
        return Ok(None);
    }
    let key = read_any_key(reader)?;
    let cell = match form {
        ROW => None,
        COLUMN => Some((reader.prefixed()?.to_vec(), reader.prefixed()?.to_vec())),
        _ => return Err(BodyError::Malformed(at)),
    };
    Ok(Some(RowPosition { key, cell }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::key::RowKey;
    use crate::model::schema::ColumnFamilyKind;
    use crate::model::version::RowVersion;

    fn family() -> ColumnFamilySchema {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        ColumnFamilySchema { keyspace: "Blog".into(), name: "Authors".into(), kind, comment: None }
    }

    fn reply(key: &[u8]) -> PieceReply {
        let key = RowKey::new(key);
        let rows = RangeReply { rows: vec![(key.clone(), RowVersion::default())] };
        PieceReply { rows, next: Some(RowPosition { key, cell: None }) }
    }

    #[test]
    fn keys_need_not_be_texts() {
        for key in [&b"plain"[..], b"\xff\0\xc0", "\0hex:ff \u{1f600}".as_bytes(), &vec![0; 65535]]
        {
            let body = reply(key).encode(&family()).unwrap();
            assert_eq!(PieceReply::decode(&body, &family()), Ok(reply(key)));
            let body = body.split_last().unwrap().1;
            PieceReply::decode(body, &family()).unwrap_err();
        }
    }

    #[test]
    fn texts_stand_as_in_answers_of_0_6() {
        let PieceReply { rows, next } = reply("caf\u{e9}".as_bytes());
        let body = PieceReply { rows: rows.clone(), next }.encode(&family()).unwrap();
        assert!(body.ends_with(&rows.encode(&family()).unwrap()));
    }

    #[test]
    fn no_row_has_an_empty_key_or_one_that_is_too_long() {
        let body = reply(b"").encode(&family()).unwrap();
        assert_eq!(PieceReply::decode(&body, &family()), Err(BodyError::EmptyKey));
        let refused = reply(&vec![b'k'; 65536]).encode(&family());
        assert!(matches!(refused, Err(EncodeError::TooLong(_))));
    }
}
