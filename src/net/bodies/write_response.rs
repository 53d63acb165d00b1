//! The answer to a MUTATION: `UTF keyspace, UTF row key, BOOL true`.

use super::error::{BodyError, EncodeError};
use super::key::{check_end, put_key, read_key};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;

/// A write was applied. Nobody needs to read it: the id of the message says which write, and one
/// that failed has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteResponse {
    /// The keyspace of the mutation.
    pub keyspace: String,
    /// The row.
    pub key: RowKey,
}

impl WriteResponse {
    /// The body that [`WriteResponse::decode`] reads.
    pub fn encode(keyspace: &str, key: &RowKey) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(5 + keyspace.len() + key.as_bytes().len());
        out.put_utf(keyspace.as_bytes())?;
        put_key(&mut out, key)?;
        out.push(1);
        Ok(out)
    }

    /// Reads the answer. One that says false is malformed: no node sends it.
    pub fn decode(body: &[u8]) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let (keyspace, key) = (reader.utf()?.into_owned(), read_key(&mut reader)?);
        let at = reader.position();
        if !reader.bool()? {
            return Err(BodyError::Malformed(at));
        }
        check_end(&reader)?;
        Ok(Self { keyspace, key })
    }
}
