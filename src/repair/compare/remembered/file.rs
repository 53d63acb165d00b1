//! The file in which hashes of a column family outlive a restart. It is no loss if it is damaged or
//! of another version: then all is read again.
//!
//! ```text
//! "alexandra hashes 1\n"
//! u32 length of the head, the head in JSON: the column family, and for each division of ranges
//!     the SSTables by generation, with their bytes and the CRC32 of their properties, the ranges,
//!     how these are divided, and how many leaves there are
//! for each leaf: u8 length of the hash, the hash,
//!     i32 latest dropped, i32 earliest kept: for which times the hash is right
//! u32 CRC32 of all bytes before
//! ```
//!
//! Numbers are big-endian.

use super::super::calls::{TextRange, token_ranges};
use super::super::leaves::{Leaves, Shape};
use super::{Division, Entry, MOST_KEPT};
use crate::base::bytes::ByteReader;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::repair::compare::TreeHash;
use crate::ring::Partitioner;
use crate::storage::compaction::GcSpan;
use crate::storage::manifest::TableIdentity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MAGIC: &[u8] = b"alexandra hashes 1\n";

/// Longest file that is read: all leaves that are kept, and the heads.
pub(in crate::repair::compare) const MAX_BYTES: u64 = (MOST_KEPT as u64) * 64;

#[derive(Serialize, Deserialize)]
struct Head {
    /// Its kind and comparators: in another order of columns a row has another hash.
    family: String,
    entries: Vec<EntryHead>,
}

#[derive(Serialize, Deserialize)]
struct EntryHead {
    tables: BTreeMap<u64, (u64, u32)>,
    ranges: Vec<TextRange>,
    shape: Shape,
    leaves: usize,
}

pub(super) fn encode<'a>(
    entries: impl Iterator<Item = &'a Entry> + Clone,
    schema: &ColumnFamilySchema,
) -> Vec<u8> {
    let identity =
        |(generation, it): (&u64, &TableIdentity)| (*generation, (it.bytes, it.properties_crc));
    let head = |entry: &Entry| EntryHead {
        tables: entry.tables.iter().map(identity).collect(),
        ranges: entry.division.ranges.clone(),
        shape: entry.division.shape.clone(),
        leaves: entry.leaves.hashes().len(),
    };
    let head = Head { family: name(schema), entries: entries.clone().map(head).collect() };
    // Numbers and texts: there is nothing in it that JSON cannot hold.
    let head = serde_json::to_vec(&head).unwrap_or_default();
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&(head.len() as u32).to_be_bytes());
    content.extend_from_slice(&head);
    for entry in entries {
        for (hash, span) in entry.leaves.hashes().iter().zip(entry.leaves.spans()) {
            content.push(hash.as_bytes().len() as u8);
            content.extend_from_slice(hash.as_bytes());
            content.extend_from_slice(&span.latest_dropped.to_be_bytes());
            content.extend_from_slice(&span.earliest_kept.to_be_bytes());
        }
    }
    let crc = crc32fast::hash(&content);
    content.extend_from_slice(&crc.to_be_bytes());
    content
}

/// `None` if that is no such file, or that of another column family.
pub(super) fn decode(
    content: &[u8],
    family: FamilyId,
    partitioner: Partitioner,
    schema: &ColumnFamilySchema,
) -> Option<Vec<Entry>> {
    let (content, crc) = content.split_last_chunk::<4>()?;
    if u32::from_be_bytes(*crc) != crc32fast::hash(content) {
        return None;
    }
    let mut bytes = ByteReader::new(content.strip_prefix(MAGIC)?);
    let length = bytes.u32().ok()?;
    let head: Head = serde_json::from_slice(bytes.take(length as usize).ok()?).ok()?;
    if head.family != name(schema) {
        return None;
    }
    let entry = |EntryHead { tables, ranges, shape, leaves: count }| {
        let decoded = token_ranges(partitioner, &ranges).ok()?;
        let empty = Leaves::new(partitioner, &decoded, &shape).ok()?;
        if empty.ranges().len() != count {
            return None;
        }
        let leaves = read_leaves(&mut bytes, empty)?;
        let identity =
            |(table, (bytes, properties_crc))| (table, TableIdentity { bytes, properties_crc });
        let tables = tables.into_iter().map(identity).collect();
        Some(Entry { family, division: Division { ranges, shape }, tables, leaves })
    };
    head.entries.into_iter().map(entry).collect()
}

fn read_leaves(bytes: &mut ByteReader<'_>, empty: Leaves) -> Option<Leaves> {
    let (mut hashes, mut spans) = (Vec::new(), Vec::new());
    for _ in empty.ranges() {
        let length = bytes.u8().ok()?;
        hashes.push(TreeHash::new(bytes.take(length.into()).ok()?)?);
        let (latest_dropped, earliest_kept) = (bytes.i32().ok()?, bytes.i32().ok()?);
        spans.push(GcSpan { latest_dropped, earliest_kept });
    }
    empty.with_hashes(hashes)?.with_spans(spans)
}

fn name(schema: &ColumnFamilySchema) -> String {
    format!("{schema} {:?}", schema.kind)
}
