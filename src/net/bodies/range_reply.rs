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
        self.append(&mut out, family, put_key)?;
        Ok(out)
    }

    /// Appends the body with keys in a form of the caller's.
    pub(super) fn append(
        &self,
        out: &mut Vec<u8>,
        family: &ColumnFamilySchema,
        put_key: impl Fn(&mut Vec<u8>, &RowKey) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        out.extend_from_slice(&(self.rows.len() as u32).to_be_bytes());
        for (key, version) in &self.rows {
            put_key(out, key)?;
            put_version(out, family, version)?;
        }
        Ok(())
    }

    /// Reads the answer to a command for this column family. Whether the rows are those of its
    /// range, and in order, is for the coordinator to see.
    pub fn decode(body: &[u8], family: &ColumnFamilySchema) -> Result<Self, BodyError> {
        Self::decode_by(body, family, read_key)
    }

    /// The same with keys in a form of the caller's.
    pub(super) fn decode_by(
        body: &[u8],
        family: &ColumnFamilySchema,
        read_key: impl Fn(&mut ByteReader<'_>) -> Result<RowKey, BodyError>,
    ) -> Result<Self, BodyError> {
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
