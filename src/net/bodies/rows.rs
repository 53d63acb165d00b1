//! The call for single rows: all that a node has of them, from a position on. Not part of 0.6.
//!
//! ```text
//! command  UTF keyspace, UTF column family, i32 number of rows, each: KEY,
//!          POSITION after, i32 bytes wanted
//! answer   as for a piece of a range
//! ```

use super::error::{BodyError, EncodeError};
use super::key::{check_end, put_any_key, read_any_key};
use super::piece::{put_position, read_position};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::{FamilyId, Schema};

/// Asks a node for what it has of some rows. The answer is a
/// [`PieceReply`](super::PieceReply).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsCommand {
    /// The column family.
    pub family: FamilyId,
    /// The rows, in the order of their tokens.
    pub keys: Vec<RowKey>,
    /// Behind what of the first of them the answer begins; at its start if there is none.
    pub after: Option<RowPosition>,
    /// About how many bytes of columns are wanted.
    pub max_bytes: u32,
}

impl RowsCommand {
    /// The body that [`RowsCommand::decode`] reads.
    pub fn encode(&self, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
        let family = schema.family(self.family);
        let mut out = Vec::with_capacity(128);
        out.put_utf(family.keyspace.as_bytes())?;
        out.put_utf(family.name.as_bytes())?;
        out.extend_from_slice(&(self.keys.len() as u32).to_be_bytes());
        self.keys.iter().try_for_each(|key| put_any_key(&mut out, key))?;
        put_position(&mut out, self.after.as_ref())?;
        out.extend_from_slice(&self.max_bytes.to_be_bytes());
        Ok(out)
    }

    /// Reads a command, which then may be executed as it is.
    pub fn decode(body: &[u8], schema: &Schema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let (keyspace, name) = (reader.utf()?, reader.utf()?);
        let Some(family) = schema.family_id(&keyspace, &name) else {
            return Err(BodyError::unknown_family(&keyspace, &name));
        };
        // Memory is taken as keys are read, not as they are announced.
        let count = reader.u32()?;
        let mut keys = Vec::new();
        for _ in 0..count {
            keys.push(read_any_key(&mut reader)?);
        }
        let after = read_position(&mut reader)?;
        let max_bytes = reader.u32()?;
        check_end(&reader)?;
        Ok(Self { family, keys, after, max_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};

    fn schema() -> Schema {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = ("Blog".into(), "Authors".into());
        Schema::new([ColumnFamilySchema { keyspace, name, kind, comment: None }.into()])
    }

    #[test]
    fn commands_are_read_as_written_and_damage_is_noticed() {
        let after = RowPosition { key: RowKey::new(&[0xff]), cell: Some((vec![], vec![1, 2])) };
        for after in [None, Some(after)] {
            let (family, keys) = (FamilyId(0), vec!["a".into(), RowKey::new(b"\xff\0b")]);
            let command = RowsCommand { family, keys, after, max_bytes: 77 };
            let body = command.encode(&schema()).unwrap();
            assert_eq!(RowsCommand::decode(&body, &schema()).unwrap(), command);
            for end in 0..body.len() {
                RowsCommand::decode(&body[..end], &schema()).unwrap_err();
            }
        }
    }

    #[test]
    fn a_number_of_rows_that_is_a_lie_takes_no_memory() {
        let command = RowsCommand { family: FamilyId(0), keys: vec![], after: None, max_bytes: 1 };
        let mut body = command.encode(&schema()).unwrap();
        let count = 2 + "Blog".len() + 2 + "Authors".len();
        body[count..count + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        RowsCommand::decode(&body, &schema()).unwrap_err();
    }
}
