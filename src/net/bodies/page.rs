//! The call for a page: the data of a node in a range or in single rows, from a position on. Not
//! part of 0.6.
//!
//! ```text
//! command  UTF keyspace, UTF column family, ROWS, POSITION after, i32 bytes wanted
//! answer   POSITION next, then as for RANGE_SLICE: i32 number of rows, each: KEY, the row
//!
//! ROWS     = u8: 0 BOUNDS of a range; 1 i32 number of rows, each: KEY
//! KEY      = u16 number of bytes, then the row key
//! POSITION = u8: 0 none, 1 after a row, 2 after a column; KEY unless none;
//!            NAME super column, NAME column if after a column
//! ```

use super::body::{Body, BodyContext, put_any_key, read_any_key};
use super::command::{put_bounds, read_bounds};
use super::error::{BodyError, EncodeError};
use super::reply::RangeReply;
use crate::base::bytes::{ByteReader, ByteWriter};
use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::ring::RowRange;

const NONE: u8 = 0;
const ROW: u8 = 1;
const COLUMN: u8 = 2;

const RANGE: u8 = 0;
const KEYS: u8 = 1;

/// Asks a node for its data of some rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCommand {
    /// The column family.
    pub family: FamilyId,
    /// The rows.
    pub rows: PageRows,
    /// The page begins after this position, of single rows in the first one; at the start if there
    /// is none.
    pub after: Option<RowPosition>,
    /// About how many bytes of columns are wanted.
    pub max_bytes: u32,
}

/// Rows of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageRows {
    /// The rows of a range.
    Range(RowRange),
    /// Single ones, in the order of their tokens.
    Keys(Vec<RowKey>),
}

/// Rows that a node has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageReply {
    /// Rows in the order of their tokens. The first may have begun in an earlier page, and the last
    /// go on in the next.
    pub rows: RangeReply,
    /// The next page begins after this position; none at the end.
    pub next: Option<RowPosition>,
}

impl Body for PageCommand {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.family.put(out, context)?;
        match &self.rows {
            PageRows::Range(range) => {
                out.push(RANGE);
                put_bounds(out, range, context.partitioner)?;
            }
            PageRows::Keys(keys) => {
                out.push(KEYS);
                keys.put(out, context)?;
            }
        }
        put_position(out, self.after.as_ref())?;
        out.extend_from_slice(&self.max_bytes.to_be_bytes());
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let family = FamilyId::read(reader, context)?;
        let at = reader.position();
        let rows = match reader.u8()? {
            RANGE => PageRows::Range(read_bounds(reader, context.partitioner)?),
            KEYS => PageRows::Keys(Vec::read(reader, context)?),
            _ => return Err(BodyError::Malformed(at)),
        };
        let after = read_position(reader)?;
        Ok(Self { family, rows, after, max_bytes: reader.u32()? })
    }
}

impl PageReply {
    /// The body that [`PageReply::decode`] reads.
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

fn put_position(out: &mut Vec<u8>, position: Option<&RowPosition>) -> Result<(), EncodeError> {
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

fn read_position(reader: &mut ByteReader<'_>) -> Result<Option<RowPosition>, BodyError> {
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
    use crate::model::mutation::DecodeError;
    use crate::model::schema::{ColumnFamilyKind, Schema};
    use crate::model::version::RowVersion;
    use crate::ring::Partitioner;

    fn family() -> ColumnFamilySchema {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        ColumnFamilySchema::new("Blog".into(), "Authors".into(), kind)
    }

    fn reply(key: &[u8]) -> PageReply {
        let key = RowKey::new(key);
        let rows = RangeReply { rows: vec![(key.clone(), RowVersion::default())] };
        PageReply { rows, next: Some(RowPosition { key, cell: None }) }
    }

    #[test]
    fn commands_are_read_as_written_and_damage_is_noticed() {
        let (schema, partitioner) = (Schema::new([family().into()]), Partitioner::Random);
        let context = BodyContext { schema: &schema, partitioner };
        let after = RowPosition { key: RowKey::new(&[0xff]), cell: Some((vec![], vec![1, 2])) };
        let keys = PageRows::Keys(vec!["a".into(), RowKey::new(b"\xff\0b")]);
        for (rows, after) in [(PageRows::Range(RowRange::all()), None), (keys, Some(after))] {
            let command = PageCommand { family: FamilyId(0), rows, after, max_bytes: 77 };
            let body = command.encode(context).unwrap();
            assert_eq!(PageCommand::decode(&body, context).unwrap(), command);
            for end in 0..body.len() {
                PageCommand::decode(&body[..end], context).unwrap_err();
            }
        }
    }

    #[test]
    fn keys_need_not_be_texts() {
        for key in [&b"plain"[..], b"\xff\0\xc0", "\0hex:ff \u{1f600}".as_bytes(), &vec![0; 65535]]
        {
            let body = reply(key).encode(&family()).unwrap();
            assert_eq!(PageReply::decode(&body, &family()), Ok(reply(key)));
            let body = body.split_last().unwrap().1;
            PageReply::decode(body, &family()).unwrap_err();
        }
    }

    #[test]
    fn texts_stand_as_in_answers_of_0_6() {
        let PageReply { rows, next } = reply("caf\u{e9}".as_bytes());
        let body = PageReply { rows: rows.clone(), next }.encode(&family()).unwrap();
        assert!(body.ends_with(&rows.encode(&family()).unwrap()));
    }

    #[test]
    fn no_row_has_an_empty_key_or_one_that_is_too_long() {
        let body = reply(b"").encode(&family()).unwrap();
        assert_eq!(PageReply::decode(&body, &family()), Err(DecodeError::EmptyKey.into()));
        let refused = reply(&vec![b'k'; 65536]).encode(&family());
        assert!(matches!(refused, Err(EncodeError::TooLong(_))));
    }
}
