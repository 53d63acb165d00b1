//! The answer to a RANGE_SLICE: `i32 number of rows, each: UTF row key, the row`.

use super::error::{BodyError, EncodeError};
use super::family::{Room, put_version, read_version};
use super::key::{check_end, put_key, read_key};
use crate::base::bytes::ByteReader;
use crate::base::java::JavaReader;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;

/// Fewest bytes that a row takes: a key of one character, and no column family.
const LEAST_ROW_BYTES: usize = 2 + 1 + 2;

/// What a replica knows of a range of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeReply {
    /// The rows, in the order of their tokens; also those of which nothing is visible.
    pub rows: Vec<(RowKey, RowVersion)>,
}

impl RangeReply {
    /// The body that [`RangeReply::decode`] reads.
    pub fn encode(&self, family: &ColumnFamilySchema) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(64 + 192 * self.rows.len());
        out.extend_from_slice(&(self.rows.len() as u32).to_be_bytes());
        for (key, version) in &self.rows {
            put_key(&mut out, key)?;
            put_version(&mut out, family, version)?;
        }
        Ok(out)
    }

    /// Reads the answer to a command for this column family. Whether the rows are those of its
    /// range, and in order, is for the coordinator to see.
    pub fn decode(body: &[u8], family: &ColumnFamilySchema) -> Result<Self, BodyError> {
        let (mut reader, mut room) = (ByteReader::new(body), Room::for_body(body));
        let count = reader.count(LEAST_ROW_BYTES)?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let key = read_key(&mut reader)?;
            rows.push((key, read_version(&mut reader, family, &mut room)?));
        }
        check_end(&reader)?;
        Ok(Self { rows })
    }
}
