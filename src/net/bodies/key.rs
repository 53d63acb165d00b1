//! Row keys in bodies: texts, never empty.

use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::key::RowKey;

/// Appends a row key. What is not UTF-8 would arrive as the key of another row.
pub(super) fn put_key(out: &mut Vec<u8>, key: &RowKey) -> Result<(), EncodeError> {
    if str::from_utf8(key.as_bytes()).is_err() {
        return Err(EncodeError::KeyNotText);
    }
    Ok(out.put_utf(key.as_bytes())?)
}

pub(super) fn read_key(reader: &mut ByteReader<'_>) -> Result<RowKey, BodyError> {
    let key = reader.utf()?;
    if key.is_empty() {
        return Err(BodyError::EmptyKey);
    }
    Ok(RowKey::from(&*key))
}

/// What comes behind the end of a body was read wrongly.
pub(super) fn check_end(reader: &ByteReader<'_>) -> Result<(), BodyError> {
    if reader.is_empty() { Ok(()) } else { Err(BodyError::Malformed(reader.position())) }
}
