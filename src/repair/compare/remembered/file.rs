//! The file in which hashes of a column family outlive a restart. It is no loss if it is damaged or
//! of another version: then all is read again.
//!
//! ```text
//! "alexandra hashes 2\n"
//! text column family with its kind and comparators: in another order of columns a row has another
//!     hash
//! list of divisions, each: list of u64 generation of an SSTable, u64 bytes of it, u64 CRC32 of its
//!     properties; list of ranges; SHAPE; list of leaves, each: HASH,
//!     i32 latest dropped, i32 earliest kept: the times for which the hash is right
//! u32 CRC32 of all bytes before
//! ```
//!
//! Values are written as in calls.

use super::super::TreeHash;
use super::super::leaves::{Leaves, Shape};
use super::{Division, Entry, MOST_KEPT};
use crate::base::bytes::ByteReader;
use crate::model::schema::FamilyId;
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError};
use crate::ring::TokenRange;
use crate::storage::compaction::GcSpan;
use crate::storage::manifest::TableIdentity;

const MAGIC: &[u8] = b"alexandra hashes 2\n";

/// Longest file that is read: all leaves that are kept, and the heads.
pub(in crate::repair::compare) const MAX_BYTES: u64 = (MOST_KEPT as u64) * 64;

/// Generation of an SSTable, its bytes, and the CRC32 of its properties.
type TableHead = (u64, (u64, u64));

/// Hash of a leaf, and the times for which it is right.
type LeafBody = (TreeHash, (i32, i32));

/// An entry as it is written.
struct EntryBody {
    tables: Vec<TableHead>,
    ranges: Vec<TokenRange>,
    shape: Shape,
    leaves: Vec<LeafBody>,
}

impl Body for EntryBody {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.tables.put(out, context)?;
        self.ranges.put(out, context)?;
        self.shape.put(out, context)?;
        self.leaves.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let (tables, ranges) = Body::read(reader, context)?;
        let (shape, leaves) = Body::read(reader, context)?;
        Ok(Self { tables, ranges, shape, leaves })
    }
}

pub(super) fn encode(
    entries: &[&Entry],
    family: FamilyId,
    context: BodyContext<'_>,
) -> Result<Vec<u8>, EncodeError> {
    let body = |entry: &&Entry| {
        let tables = entry.tables.iter();
        let leaves = entry.leaves.hashes().iter().zip(entry.leaves.spans());
        EntryBody {
            tables: tables.map(|(it, of)| (*it, (of.bytes, of.properties_crc.into()))).collect(),
            ranges: entry.division.ranges.clone(),
            shape: entry.division.shape.clone(),
            leaves: leaves
                .map(|(hash, span)| (*hash, (span.latest_dropped, span.earliest_kept)))
                .collect(),
        }
    };
    let entries: Vec<EntryBody> = entries.iter().map(body).collect();
    let mut file = MAGIC.to_vec();
    (name(family, context), entries).put(&mut file, context)?;
    let crc = crc32fast::hash(&file);
    file.extend_from_slice(&crc.to_be_bytes());
    Ok(file)
}

/// `None` if that is no such file, or that of another column family.
pub(super) fn decode(
    file: &[u8],
    family: FamilyId,
    context: BodyContext<'_>,
) -> Option<Vec<Entry>> {
    let (file, crc) = file.split_last_chunk::<4>()?;
    if u32::from_be_bytes(*crc) != crc32fast::hash(file) {
        return None;
    }
    let body = file.strip_prefix(MAGIC)?;
    let (of, entries) = <(String, Vec<EntryBody>)>::decode(body, context).ok()?;
    if of != name(family, context) {
        return None;
    }
    let entry = |EntryBody { tables, ranges, shape, leaves }| {
        let empty = Leaves::new(context.partitioner, &ranges, &shape).ok()?;
        let span = |(latest_dropped, earliest_kept)| GcSpan { latest_dropped, earliest_kept };
        let (hashes, spans) = leaves.into_iter().map(|(hash, times)| (hash, span(times))).unzip();
        let leaves = empty.with_hashes(hashes)?.with_spans(spans)?;
        let identity = |(table, (bytes, crc)): TableHead| {
            let properties_crc = u32::try_from(crc).ok()?;
            Some((table, TableIdentity { bytes, properties_crc }))
        };
        let tables = tables.into_iter().map(identity).collect::<Option<_>>()?;
        Some(Entry { family, division: Division { ranges, shape }, tables, leaves })
    };
    entries.into_iter().map(entry).collect()
}

fn name(family: FamilyId, context: BodyContext<'_>) -> String {
    let schema = context.schema.family(family);
    format!("{schema} {:?}", schema.kind)
}
