//! Writes to one row, and their acknowledgement.
//!
//! ```text
//! MUTATION, READ_REPAIR      a write as `model::original_mutation` has it
//!
//! BINARY: a row as the bulk loader of 0.6 sends it, in the form that rows have in files
//!   UTF keyspace, UTF row key
//!   i32 1, UTF any name                      one column family, which is none, like a mutation's:
//!       UTF name, UTF, UTF, UTF, i32, i64        of which nothing counts but its columns
//!   i32 number of columns, each:
//!       NAME column family, BOOL, i64, BYTES row:
//!           BYTES bloom filter, BYTES index      of the columns
//!           i32 local deletion time, i64 marked for delete at, and columns as in a mutation
//!
//! acknowledgement   UTF keyspace, UTF row key, BOOL true
//!
//! header HINT       the addresses for which the receiver also keeps the mutation, one after the
//!                   other, each of 4 or 16 bytes, as all of the cluster have
//! ```
//!
//! 0.6 writes rows of its bulk loader past the commit log. Here they are mutations like others.

use super::body::put_key;
use super::error::{BodyError, EncodeError};
use super::family;
use crate::base::bytes::ByteReader;
use crate::base::context::RequestContext;
use crate::base::java::{JavaReader, JavaWriter};
use crate::config::settings::{BATCHES, SYSTEM_KEYSPACE};
use crate::model::cell::{Cell, CellParts};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{FamilyMutation, MutationBuilder, RowMutation};
use crate::model::original_mutation::{
    Room, check_end, family_named, read_key, read_mutation, read_row,
};
use crate::model::schema::{FamilyId, Schema};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Fewest bytes that a column family takes: two empty names.
const LEAST_FAMILY_BYTES: usize = 4;

/// The body that [`decode_mutation`] reads. A column family that stands in the mutation more than
/// once is put together, and of several cells at one place only the one that counts is sent.
pub fn encode_mutation(mutation: &RowMutation, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
    let parts = by_family(mutation);
    let mut out = Vec::with_capacity(256 + mutation.record().len());
    out.put_utf(mutation.keyspace().as_bytes())?;
    put_key(&mut out, &mutation.key)?;
    out.extend_from_slice(&(parts.len() as u32).to_be_bytes());
    for (id, deletion, cells) in parts {
        let family = schema.family(id);
        out.put_utf(family.name.as_bytes())?;
        family::put_family(&mut out, family, deletion, &family::in_order(family, cells))?;
    }
    Ok(out)
}

/// The families of a mutation, each once, in the order in which they first stand there.
fn by_family(mutation: &RowMutation) -> Vec<(FamilyId, Deletion, Vec<Cell>)> {
    let mut parts: Vec<(FamilyId, Deletion, Vec<Cell>)> = Vec::new();
    for part in &mutation.families {
        match parts.iter_mut().find(|(id, ..)| *id == part.family) {
            Some((_, deletion, cells)) => {
                *deletion = deletion.merge(part.deletion);
                cells.extend_from_slice(&part.cells);
            }
            None => parts.push((part.family, part.deletion, part.cells.to_vec())),
        }
    }
    parts
}

/// Reads a write to one row, which then may be applied as it is. Of the system keyspace it may be a
/// batch to be kept. Its memory is that of `context`.
pub fn decode_mutation(
    body: &[u8],
    schema: &Schema,
    context: &RequestContext,
) -> Result<RowMutation, BodyError> {
    let refused = read_keyspace(&mut ByteReader::new(body)).err();
    let decoded = read_mutation(body, schema, &mut Room::to_apply(body, context), true);
    // Nodes keep the logged batches of others.
    let is_batch = |it: &FamilyMutation| schema.family(it.family).name == BATCHES;
    match refused {
        Some(error) if !decoded.as_ref().is_ok_and(|it| it.families.iter().all(is_batch)) => {
            Err(error)
        }
        _ => Ok(decoded?),
    }
}

/// Reads a keyspace that peers may write to.
fn read_keyspace<'a>(reader: &mut ByteReader<'a>) -> Result<Cow<'a, str>, BodyError> {
    match reader.utf()? {
        system if system == SYSTEM_KEYSPACE => Err(BodyError::SystemKeyspace(system.into_owned())),
        keyspace => Ok(keyspace),
    }
}

/// Fewest bytes of a row with its name.
const LEAST_ROW_BYTES: usize = 2 + 1 + 8 + 4;

/// Bytes of a local deletion time and a deletion timestamp.
const DELETION_BYTES: usize = 4 + 8;

/// Bytes between name and value of a column.
const FLAG_AND_TIMESTAMP_BYTES: usize = 1 + 8;

/// Reads a row of a bulk load, which then may be applied as it is. Its memory is that of `context`.
pub fn decode_binary(
    body: &[u8],
    schema: &Schema,
    context: &RequestContext,
) -> Result<RowMutation, BodyError> {
    let mut reader = ByteReader::new(body);
    let keyspace = read_keyspace(&mut reader)?;
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
            let id = family_named(schema, &keyspace, &name)?;
            families = u16::checked_add(families, 1).ok_or(BodyError::Malformed(at))?;
            builder.family(id);
            let mut row = ByteReader::new(row);
            // This node makes its own filter and index.
            for _ in 0..2 {
                row.bytes()?;
            }
            let mut take = |parts: CellParts<'_>| {
                builder.push(parts);
            };
            let deletion = read_row(&mut row, schema.family(id), &mut room, &mut take)?;
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

/// The value of the header for these nodes.
pub fn encode_hint(targets: &[IpAddr]) -> Vec<u8> {
    let mut out = Vec::with_capacity(targets.len() * 16);
    for target in targets {
        match target {
            IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
        }
    }
    out
}

/// Most nodes that one mutation is kept for: no row has as many replicas. Each costs a copy of the
/// mutation on the disk.
const MAX_TARGETS: usize = 64;

/// Reads the value: each target once. Addresses are of the kind of this node's own.
pub fn decode_hint(value: &[u8], local: IpAddr) -> Result<BTreeSet<IpAddr>, BodyError> {
    let length = if local.is_ipv4() { 4 } else { 16 };
    if value.len() > MAX_TARGETS * length {
        return Err(BodyError::Malformed(MAX_TARGETS * length));
    }
    let (targets, rest): (BTreeSet<IpAddr>, _) = match local {
        IpAddr::V4(_) => {
            let (addresses, rest) = value.as_chunks::<4>();
            (addresses.iter().map(|&address| address.into()).collect(), rest)
        }
        IpAddr::V6(_) => {
            let (addresses, rest) = value.as_chunks::<16>();
            let address = |&address: &[u8; 16]| IpAddr::from(address).to_canonical();
            (addresses.iter().map(address).collect(), rest)
        }
    };
    if rest.is_empty() { Ok(targets) } else { Err(BodyError::Malformed(value.len() - rest.len())) }
}

/// Acknowledgement of a write. Coordinators do not read it: the id of the message names the write,
/// and a failed write has no answer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
    use proptest::collection::vec;
    use proptest::prelude::*;
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
        // The bytes after the names of types and comparators are the same in both.
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

    #[test]
    fn nobody_makes_this_node_keep_a_mutation_for_the_whole_world() {
        let many: Vec<IpAddr> = (0..1000u32).map(|i| std::net::Ipv4Addr::from(i).into()).collect();
        let local = [127, 0, 0, 1].into();
        assert_eq!(
            decode_hint(&encode_hint(&many), local),
            Err(BodyError::Malformed(MAX_TARGETS * 4))
        );
        assert_eq!(decode_hint(&encode_hint(&[local; 32]), local), Ok(BTreeSet::from([local])));
    }

    proptest! {
        #[test]
        fn targets_are_read_back(
            v4 in vec(any::<std::net::Ipv4Addr>(), 0..MAX_TARGETS),
            v6 in vec(any::<std::net::Ipv6Addr>(), 0..MAX_TARGETS),
            odd in 1usize..4,
        ) {
            let v4: Vec<IpAddr> = v4.into_iter().map(IpAddr::from).collect();
            let v6: Vec<IpAddr> = v6.into_iter().map(|it| it.to_canonical()).collect();
            let set = |targets: &[IpAddr]| targets.iter().copied().collect::<BTreeSet<_>>();
            prop_assert_eq!(decode_hint(&encode_hint(&v4), [127, 0, 0, 1].into()), Ok(set(&v4)));
            let v6: Vec<IpAddr> = v6.into_iter().filter(IpAddr::is_ipv6).collect();
            prop_assert_eq!(decode_hint(&encode_hint(&v6), [0; 16].into()), Ok(set(&v6)));
            let mut cut = encode_hint(&v4);
            cut.extend(vec![1; odd]);
            prop_assert_eq!(
                decode_hint(&cut, [127, 0, 0, 1].into()),
                Err(BodyError::Malformed(v4.len() * 4))
            );
        }
    }
}
