//! Names of column families in bodies, and row keys: texts, never empty; in those that only nodes
//! of this program read, bytes.

use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter, TooLong};
use crate::model::key::RowKey;
use crate::model::schema::{FamilyId, Schema};

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

/// Appends a row key of any bytes, `u16` how many and these: what is no text, an import may bring.
/// Most texts stand there as they do in [`put_key`].
pub(super) fn put_any_key(out: &mut Vec<u8>, key: &RowKey) -> Result<(), EncodeError> {
    let key = key.as_bytes();
    let length = u16::try_from(key.len()).map_err(|_| TooLong(key.len()))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(key);
    Ok(())
}

pub(super) fn read_any_key(reader: &mut ByteReader<'_>) -> Result<RowKey, BodyError> {
    match reader.prefixed()? {
        [] => Err(BodyError::EmptyKey),
        key => Ok(RowKey::new(key)),
    }
}

/// Appends the names of a column family.
pub(super) fn put_family_name(
    out: &mut Vec<u8>,
    family: FamilyId,
    schema: &Schema,
) -> Result<(), EncodeError> {
    let family = schema.family(family);
    out.put_utf(family.keyspace.as_bytes())?;
    Ok(out.put_utf(family.name.as_bytes())?)
}

/// Reads the names of a column family, which is one of ours.
pub(super) fn read_family_name(
    reader: &mut ByteReader<'_>,
    schema: &Schema,
) -> Result<FamilyId, BodyError> {
    let (keyspace, name) = (reader.utf()?, reader.utf()?);
    let family = schema.family_id(&keyspace, &name);
    family.ok_or_else(|| BodyError::unknown_family(&keyspace, &name))
}

/// What comes behind the end of a body was read wrongly.
pub(super) fn check_end(reader: &ByteReader<'_>) -> Result<(), BodyError> {
    if reader.is_empty() { Ok(()) } else { Err(BodyError::Malformed(reader.position())) }
}
