//! The answer to a READ.
//!
//! ```text
//! data:    BYTES (none), BOOL false, UTF row key, the row
//! digest:  BYTES MD5, BOOL true
//! ```

use super::error::{BodyError, EncodeError};
use super::family::{Room, put_version, read_version};
use super::key::{check_end, put_key, read_key};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::{Digest, RowVersion};

/// What a replica knows of the slice that it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadReply {
    /// All of it.
    Data {
        /// The row that was asked for.
        key: RowKey,
        /// What the replica knows of the slice.
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
