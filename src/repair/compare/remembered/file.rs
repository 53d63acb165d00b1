//! The file that keeps the hashes of a column family over a restart. If it is damaged or of another
//! version, all rows are read again.
//!
//! ```text
//! "alexandra hashes 3\n"
//! text column family with its kind and comparators: the hash of a row depends on the order of its
//!     columns
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

use super::{Division, Entry, MOST_KEPT};
use crate::base::bytes::ByteReader;
use crate::model::schema::FamilyId;
use crate::net::bodies::{Body, BodyContext, BodyError, EncodeError, put_all};
use crate::repair::compare::leaves::{Leaf, Leaves, Shape, TreeHash};
use crate::ring::TokenRange;
use crate::storage::compaction::GcSpan;
use crate::storage::manifest::TableIdentity;

const MAGIC: &[u8] = b"alexandra hashes 3\n";

/// Longest file that is read: all kept leaves, and the heads.
pub(crate) const MAX_BYTES: u64 = (MOST_KEPT as u64) * 64;

/// Bit beside the checksum of an SSTable of the original.
const IS_LEGACY: u64 = 1 << 32;

impl Body for Entry {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        let table = |(generation, it): (&u64, &TableIdentity)| {
            let crc = u64::from(it.properties_crc);
            (*generation, (it.bytes, if it.is_legacy { crc | IS_LEGACY } else { crc }))
        };
        let leaf =
            |Leaf { hash, span, .. }: &Leaf| (*hash, (span.latest_dropped, span.earliest_kept));
        let tables: Vec<_> = self.tables.iter().map(table).collect();
        let Division { ranges, shape } = &self.division;
        let leaves: Vec<_> = self.leaves.0.iter().map(leaf).collect();
        put_all(&[&self.family, &tables, ranges, shape, &leaves], out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let malformed = BodyError::Malformed(reader.position());
        let table = |(generation, (bytes, crc)): (u64, (u64, u64))| {
            let is_legacy = crc & IS_LEGACY != 0;
            (generation, TableIdentity { bytes, properties_crc: crc as u32, is_legacy })
        };
        let span = |(latest_dropped, earliest_kept)| GcSpan { latest_dropped, earliest_kept };
        let (family, tables) = <(_, Vec<_>)>::read(reader, context)?;
        let (ranges, shape) = <(Vec<TokenRange>, Shape)>::read(reader, context)?;
        let hashes = Vec::<(TreeHash, (i32, i32))>::read(reader, context)?;
        let hashes = hashes.into_iter().map(|(hash, it)| (hash, span(it)));
        let empty = Leaves::new(context.partitioner, &ranges, &shape).ok();
        let leaves = empty.and_then(|it| it.with_hashes(hashes));
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

/// `None` if the file is damaged, or of another column family.
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
