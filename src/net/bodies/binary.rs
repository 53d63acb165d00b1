//! Verb 1: a row as the bulk loader of 0.6 sends it, in the form that rows have in files.
//!
//! ```text
//! UTF  keyspace, UTF row key
//! i32  1, UTF any name                      one column family, which is none, like a mutation's:
//!      UTF name, UTF, UTF, UTF, i32, i64        of which nothing counts but its columns
//! i32  number of columns, each:
//!      NAME column family, BOOL, i64, BYTES row:
//!          BYTES bloom filter, BYTES index      of the columns
//!          i32 local deletion time, i64 marked for delete at, and columns as in a mutation
//! ```
//!
//! 0.6 writes such rows past its commit log. Here they are mutations like others.

use super::error::BodyError;
use super::family::{self, Room};
use super::key::check_end;
use super::key::read_key;
use super::mutation;
use crate::base::bytes::ByteReader;
use crate::base::context::RequestContext;
use crate::base::java::JavaReader;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::model::cell::CellParts;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::Schema;

/// Fewest bytes that a column family takes.
const LEAST_FAMILY_BYTES: usize = 2 + 2;

/// Fewest bytes of a row with its name.
const LEAST_ROW_BYTES: usize = 2 + 1 + 8 + 4;

/// A local deletion time and what is marked for delete.
const DELETION_BYTES: usize = 4 + 8;

/// What stands between name and value of a column.
const FLAG_AND_TIMESTAMP_BYTES: usize = 1 + 8;

/// Reads a row of a bulk load, which then may be applied as it is. Its memory is that of `context`.
pub fn decode_binary(
    body: &[u8],
    schema: &Schema,
    context: &RequestContext,
) -> Result<RowMutation, BodyError> {
    let mut reader = ByteReader::new(body);
    let keyspace = reader.utf()?;
    if keyspace == SYSTEM_KEYSPACE {
        return Err(BodyError::SystemKeyspace(keyspace.into_owned()));
    }
    let key = read_key(&mut reader)?;
    let mut builder = MutationBuilder::new(schema, &keyspace, key.as_bytes());
    let mut room = Room::to_apply(body, context);
    let mut families = 0;
    for _ in 0..reader.count(LEAST_FAMILY_BYTES)? {
        reader.utf()?;
        if reader.utf()?.is_empty() {
            continue;
        }
        // Type, comparators and deletion of what is no column family.
        for _ in 0..3 {
            reader.utf()?;
        }
        reader.take(DELETION_BYTES)?;
        for _ in 0..reader.count(LEAST_ROW_BYTES)? {
            let at = reader.position();
            let name = String::from_utf8_lossy(reader.prefixed()?).into_owned();
            reader.take(FLAG_AND_TIMESTAMP_BYTES)?;
            let row = reader.bytes()?;
            let Some(id) = schema.family_id(&keyspace, &name) else {
                return Err(BodyError::unknown_family(&keyspace, &name));
            };
            families = u16::checked_add(families, 1).ok_or(BodyError::Malformed(at))?;
            builder.family(id);
            let mut row = ByteReader::new(row);
            // Filter and index are made anew here.
            for _ in 0..2 {
                row.bytes()?;
            }
            let mut take = |parts: CellParts<'_>| mutation::add(&mut builder, parts);
            let deletion = family::read_row(&mut row, schema.family(id), &mut room, &mut take)?;
            builder.delete_row(deletion);
            check_end(&row)?;
        }
    }
    check_end(&reader)?;
    if families == 0 {
        return Err(BodyError::Malformed(0));
    }
    Ok(builder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::java::JavaWriter;
    use crate::model::cell::Cell;
    use crate::model::comparator::Comparator;
    use crate::model::deletion::Deletion;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use crate::net::bodies::encode_mutation;
    use std::sync::Arc;

    fn schema() -> Schema {
        let columns = Comparator::Bytes;
        Schema::new([Arc::new(ColumnFamilySchema::new(
            "Keyspace1".into(),
            "Standard1".into(),
            ColumnFamilyKind::Standard { columns },
        ))])
    }

    /// A row of a file stands in place of the columns of a mutation.
    fn body(row: &[u8], family: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for text in ["Keyspace1", "key1"] {
            out.put_utf(text.as_bytes()).unwrap();
        }
        out.extend([0, 0, 0, 1]);
        for text in ["x", "x", "Standard", "org.apache.cassandra.db.marshal.BytesType", ""] {
            out.put_utf(text.as_bytes()).unwrap();
        }
        out.extend([0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        out.put_utf(family.as_bytes()).unwrap();
        out.extend([0; 9]);
        out.put_bytes(row);
        out
    }

    #[test]
    fn rows_of_files_become_mutations() {
        let schema = schema();
        let id = schema.family_id("Keyspace1", "Standard1").unwrap();
        let mut builder = MutationBuilder::new(&schema, "Keyspace1", b"key1");
        builder.family(id).delete_row(Deletion::at(3, 7)).insert((b"", b"c1"), b"value1", 1000);
        let sent = encode_mutation(&builder.finish(), &schema).unwrap();
        // What follows the names of types and comparators is the same in both.
        let row_at = sent.len() - (4 + 8 + 4 + 2 + 2 + 1 + 8 + 4 + 6);
        let row = [&[0, 0, 0, 2, 9, 9, 0, 0, 0, 0][..], &sent[row_at..]].concat();
        let read =
            decode_binary(&body(&row, "Standard1"), &schema, &RequestContext::default()).unwrap();
        assert_eq!(read.families.len(), 1);
        assert_eq!(read.families[0].deletion, Deletion::at(3, 7));
        assert_eq!(read.families[0].cells[..], [Cell::live(b"", b"c1", b"value1", 1000)]);
        let error =
            decode_binary(&body(&row, "Other"), &schema, &RequestContext::default()).unwrap_err();
        assert!(error.to_string().contains("Keyspace1.Other is not configured"), "{error}");
        let whole = body(&row, "Standard1");
        for length in 0..whole.len() {
            assert!(
                decode_binary(&whole[..length], &schema, &RequestContext::default()).is_err(),
                "{length}"
            );
        }
    }
}
