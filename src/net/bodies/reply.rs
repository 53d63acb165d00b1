//! Answers to READ and RANGE_SLICE.
//!
//! ```text
//! READ, data      BYTES (none), BOOL false, UTF row key, the row
//! READ, digest    BYTES MD5, BOOL true
//! RANGE_SLICE     i32 number of rows, each: UTF row key, the row
//! ```

use super::body::put_key;
use super::error::{BodyError, EncodeError};
use super::family::{put_version, read_version};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;
use crate::model::original_mutation::{Room, check_end, read_key};
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::{Digest, RowVersion};

/// The answer of a replica to a read of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadReply {
    /// All of it.
    Data {
        /// The row that was asked for.
        key: RowKey,
        /// The version of the slice.
        version: RowVersion,
    },
    /// Only its digest.
    Digest(Digest),
}

impl ReadReply {
    /// The body that [`ReadReply::decode`] reads.
    pub fn encode(&self, family: &ColumnFamilySchema) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(192);
        match self {
            Self::Data { key, version } => {
                out.put_bytes(b"");
                out.push(0);
                put_key(&mut out, key)?;
                put_version(&mut out, family, version)?;
            }
            Self::Digest(digest) => {
                out.put_bytes(digest);
                out.push(1);
            }
        }
        Ok(out)
    }

    /// Reads the answer to a command for this column family.
    pub fn decode(body: &[u8], family: &ColumnFamilySchema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let digest = reader.bytes()?;
        let reply = if reader.bool()? {
            Self::Digest(digest.try_into().map_err(|_| BodyError::Malformed(0))?)
        } else {
            let key = read_key(&mut reader)?;
            let version = read_version(&mut reader, family, &mut Room::for_body(body))?;
            Self::Data { key, version }
        };
        check_end(&reader)?;
        Ok(reply)
    }
}

/// Fewest bytes that a row takes: a key of one character, and no column family.
const LEAST_ROW_BYTES: usize = 2 + 1 + 2;

/// The answer of a replica to a read of a range.
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
        Self::decode_by(body, family, |reader| Ok(read_key(reader)?))
    }

    /// Reads the body with keys in another form.
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
