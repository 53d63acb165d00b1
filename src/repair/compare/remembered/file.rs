//! The file in which hashes of a column family outlive a restart. It is no loss if it is damaged or
//! of another version: then all is read again.
//!
//! ```text
//! "alexandra hashes 3\n"
//! text column family with its kind and comparators: in another order of columns a row has another
//!     hash
//! list of divisions, each:
//!     column family
//!     list of u64 generation of an SSTable, u64 bytes of it, u64 CRC32 of its properties
//!     list of ranges, SHAPE
//!     list of leaves, each: HASH, i32 latest dropped, i32 earliest kept: the times for which the
//!         hash is right
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

const MAGIC: &[u8] = b"alexandra hashes 3\n";

/// Longest file that is read: all leaves that are kept, and the heads.
pub(crate) const MAX_BYTES: u64 = (MOST_KEPT as u64) * 64;

impl Body for Entry {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        let table = |(generation, it): (&u64, &TableIdentity)| {
            (*generation, (it.bytes, u64::from(it.properties_crc)))
        };
        let leaf =
            |(hash, span): (&TreeHash, &GcSpan)| (*hash, (span.latest_dropped, span.earliest_kept));
        self.family.put(out, context)?;
        self.tables.iter().map(table).collect::<Vec<_>>().put(out, context)?;
        self.division.ranges.put(out, context)?;
        self.division.shape.put(out, context)?;
        let leaves = self.leaves.hashes().iter().zip(self.leaves.spans());
        leaves.map(leaf).collect::<Vec<_>>().put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let malformed = BodyError::Malformed(reader.position());
        let table = |(generation, (bytes, crc)): (u64, (u64, u64))| {
            (generation, TableIdentity { bytes, properties_crc: crc as u32 })
        };
        let span = |(latest_dropped, earliest_kept)| GcSpan { latest_dropped, earliest_kept };
        let (family, tables) = <(_, Vec<_>)>::read(reader, context)?;
        let (ranges, shape) = <(Vec<TokenRange>, Shape)>::read(reader, context)?;
        let leaves = Vec::<(TreeHash, (i32, i32))>::read(reader, context)?;
        let (hashes, spans) = leaves.into_iter().map(|(hash, it)| (hash, span(it))).unzip();
        let empty = Leaves::new(context.partitioner, &ranges, &shape).ok();
        let leaves =
            empty.and_then(|it| it.with_hashes(hashes)).and_then(|it| it.with_spans(spans));
        Ok(Self {
            family,
            division: Division { ranges, shape },
            tables: tables.into_iter().map(table).collect(),
            leaves: leaves.ok_or(malformed)?,
        })
    }
}

pub(super) fn encode(
    entries: &[&Entry],
    family: FamilyId,
    context: BodyContext<'_>,
) -> Result<Vec<u8>, EncodeError> {
    let mut file = MAGIC.to_vec();
    name(family, context).put(&mut file, context)?;
    file.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    entries.iter().try_for_each(|entry| entry.put(&mut file, context))?;
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
    let (of, entries) = <(String, Vec<Entry>)>::decode(body, context).ok()?;
    (of == name(family, context)).then_some(entries)
}

fn name(family: FamilyId, context: BodyContext<'_>) -> String {
    let schema = context.schema.family(family);
    format!("{schema} {:?}", schema.kind)
}
