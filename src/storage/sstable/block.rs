//! Blocks: what an SSTable is made of, each compressed and checked on its own.
//!
//! On disk a block is its payload, compressed or not, within a frame:
//!
//! ```text
//! u8 kind | u8 compression: 0 none, 1 LZ4 | u32 length of the payload | u32 length of the raw one
//!         | payload | u32 CRC32 of the u64 offset of the block and of everything before
//! ```
//!
//! A file can so be walked through from its front when what points to its blocks is lost. A block
//! that a disk hands out in place of another does not go unnoticed, since the checksum covers the
//! offset.
//!
//! The raw payload of a block of entries ends with a directory: the u32 offset of each entry, then
//! their u32 number. Entries can so be found by halving. In a row index block the u16 tags of all
//! entries stand before the directory: looking for one key walks over these few neighbouring bytes
//! instead of halving through entries all over the block. In a data block the parts of rows stand
//! there (row_part.rs), at which reads by an index do not look.

use crate::base::bytes::{ByteReader, Malformed};
use crate::base::fs::File;
use crate::storage::error::{Corrupt, FileContext, ReadError};
use lz4_flex::block::{CompressTable, compress_into_with_table};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes before the payload.
pub const HEAD_LENGTH: usize = 10;

/// Bytes of the frame around the payload.
pub const FRAME_LENGTH: usize = HEAD_LENGTH + 4;

/// Bytes of a tag.
const TAG_LENGTH: usize = 2;

/// Most bytes that a raw payload may have; a single huge value makes a block of its own.
const MAX_RAW_LENGTH: u32 = 1 << 31;

/// Content of a block. The numbers are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Cells.
    Data = 1,
    /// Places of the blocks of a wide row.
    ColumnIndex = 2,
    /// Places of the rows.
    RowIndex = 3,
    /// Places of the blocks of the row index.
    Summary = 4,
    /// The Bloom filter.
    Filter = 5,
    /// Facts about the whole file.
    Properties = 6,
}

impl BlockKind {
    /// The kind of this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Data,
            2 => Self::ColumnIndex,
            3 => Self::RowIndex,
            4 => Self::Summary,
            5 => Self::Filter,
            6 => Self::Properties,
            _ => return None,
        })
    }

    /// Name for operators.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::ColumnIndex => "column index",
            Self::RowIndex => "row index",
            Self::Summary => "summary",
            Self::Filter => "filter",
            Self::Properties => "properties",
        }
    }
}

/// Compression of blocks. The numbers are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
}

/// Place of a block in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes on disk, trailer included.
    pub length: u32,
}

impl BlockHandle {
    /// Its bytes in the file.
    pub fn range(self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.length)
    }
}

/// A raw payload in memory, shared.
#[derive(Debug, Clone)]
pub struct Block {
    /// The payload, at the front of a buffer that may be longer.
    bytes: Arc<[u8]>,
    /// Start of the directory; the end of the payload for a block without entries.
    directory: u32,
    /// Length of the payload.
    end: u32,
}

impl Block {
    /// The raw payload. After the directory of a block with entries, unused bytes may follow.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        ((self.end - self.directory) as usize).saturating_sub(4) / 4
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the offset of an entry; `None` beyond the last one.
    pub fn entry(&self, index: usize) -> Option<usize> {
        if index >= self.len() {
            return None;
        }
        let at = self.directory as usize + index * 4;
        Some(ByteReader::at(&self.bytes, at).u32().ok()? as usize)
    }

    /// Returns the number of the first entry within a range that is not before a place. The range
    /// is sorted; `is_before` gets the offset of an entry.
    pub fn partition_point(
        &self,
        mut range: Range<usize>,
        is_before: impl Fn(usize) -> Result<bool, Malformed>,
    ) -> Result<usize, Malformed> {
        while !range.is_empty() {
            let middle = usize::midpoint(range.start, range.end);
            if is_before(self.entry(middle).ok_or(Malformed(0))?)? {
                range.start = middle + 1;
            } else {
                range.end = middle;
            }
        }
        Ok(range.start)
    }

    /// Returns a block of this entry alone, without a directory; `None` beyond the last one.
    /// For row index blocks only.
    pub fn only(&self, index: usize) -> Option<Self> {
        let (start, tags) = (self.entry(index)?, self.directory as usize - self.len() * TAG_LENGTH);
        let end = self.entry(index + 1).unwrap_or(tags);
        let bytes: Arc<[u8]> = self.bytes.get(start..end)?.into();
        let end = bytes.len() as u32;
        Some(Self { bytes, directory: end, end })
    }

    /// The entries that were tagged so, by their numbers. For row index blocks only.
    pub fn tagged(&self, tag: u16) -> impl Iterator<Item = usize> {
        let end = self.directory as usize;
        let tags = self.bytes.get(end - self.len() * TAG_LENGTH..end).unwrap_or_default();
        let tag = tag.to_be_bytes();
        let (tags, _) = tags.as_chunks::<TAG_LENGTH>();
        tags.iter().enumerate().filter(move |(_, other)| **other == tag).map(|(index, _)| index)
    }

    /// The tag of an entry. For row index blocks only.
    pub fn tag(&self, index: usize) -> Option<u16> {
        let tags = self.directory().checked_sub(self.len() * TAG_LENGTH)?;
        ByteReader::at(&self.bytes, tags + index * TAG_LENGTH).u16().ok()
    }

    /// Returns the offset of the directory.
    pub fn directory(&self) -> usize {
        self.directory as usize
    }

    /// Takes a payload of this length apart whose directory is to be used.
    fn with_directory(bytes: Arc<[u8]>, length: usize, is_tagged: bool) -> Option<Self> {
        let count = u32::from_be_bytes(*bytes.get(..length)?.last_chunk()?) as usize;
        let directory = length.checked_sub(4 + count.checked_mul(4)?)?;
        if is_tagged && directory < count * TAG_LENGTH {
            return None;
        }
        let (directory, end) = (u32::try_from(directory).ok()?, u32::try_from(length).ok()?);
        Some(Self { bytes, directory, end })
    }
}

/// Collects entries and closes them into a payload with a directory.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    payload: Vec<u8>,
    tags: Vec<u16>,
    offsets: Vec<u32>,
}

impl BlockBuilder {
    /// A builder that takes about this many bytes before it grows.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { payload: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Begins an entry; what is appended to the returned buffer belongs to it.
    pub fn entry(&mut self) -> &mut Vec<u8> {
        self.offsets.push(self.payload.len() as u32);
        &mut self.payload
    }

    /// [`BlockBuilder::entry`] for a row index block, all of whose entries are tagged.
    pub fn tagged_entry(&mut self, tag: u16) -> &mut Vec<u8> {
        self.tags.push(tag);
        self.entry()
    }

    /// Bytes so far.
    pub fn size(&self) -> usize {
        self.payload.len() + self.tags.len() * TAG_LENGTH + self.offsets.len() * 4 + 4
    }

    /// Number of entries so far.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Room between the last entry and the directory, for what belongs to the whole block.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Appends the directory, and hands out the raw payload. Nothing more can be added before
    /// [`BlockBuilder::clear`].
    pub fn finish(&mut self) -> &[u8] {
        debug_assert!(self.tags.is_empty() || self.tags.len() == self.offsets.len());
        for tag in &self.tags {
            self.payload.extend_from_slice(&tag.to_be_bytes());
        }
        for offset in &self.offsets {
            self.payload.extend_from_slice(&offset.to_be_bytes());
        }
        self.payload.extend_from_slice(&(self.offsets.len() as u32).to_be_bytes());
        &self.payload
    }

    /// The block that was collected; `None` if it is larger than one may be.
    pub fn build(mut self) -> Option<Block> {
        let is_tagged = !self.tags.is_empty();
        if self.size() > MAX_RAW_LENGTH as usize {
            return None;
        }
        self.finish();
        let length = self.payload.len();
        Block::with_directory(self.payload.into(), length, is_tagged)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.tags.clear();
        self.offsets.clear();
    }
}

/// Bytes before the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    /// Content of the block.
    pub kind: BlockKind,
    /// Compression of its payload.
    pub compression: Compression,
    /// Bytes of the payload on disk.
    pub payload_length: u32,
    /// Bytes of the raw payload.
    pub raw_length: u32,
}

impl BlockHead {
    /// Reads the front of a block; `None` if this cannot be one.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = ByteReader::new(bytes);
        let kind = BlockKind::from_number(reader.u8().ok()?)?;
        let compression = match reader.u8().ok()? {
            0 => Compression::None,
            1 => Compression::Lz4,
            _ => return None,
        };
        let (payload_length, raw_length) = (reader.u32().ok()?, reader.u32().ok()?);
        let is_possible = raw_length <= MAX_RAW_LENGTH && payload_length <= raw_length;
        is_possible.then_some(Self { kind, compression, payload_length, raw_length })
    }

    /// Bytes of the whole block on disk.
    pub fn block_length(&self) -> u64 {
        u64::from(self.payload_length) + FRAME_LENGTH as u64
    }
}

fn checksum(offset: u64, framed: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&offset.to_be_bytes());
    crc.update(framed);
    crc.finalize()
}

/// Brings blocks into their form on disk, one after the other.
#[derive(Default, derive_more::Debug)]
#[debug("Sealer {{ .. }}")]
pub struct Sealer {
    table: CompressTable,
    packed: Vec<u8>,
}

impl Sealer {
    /// Appends a block in its form on disk, where it will stand at this offset.
    pub fn seal(
        &mut self,
        kind: BlockKind,
        compression: Compression,
        raw: &[u8],
        offset: u64,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        let packed = match compression {
            Compression::Lz4 => self.compress(raw),
            Compression::None => None,
        };
        // What compression does not shrink is kept as it is.
        let packed = packed.filter(|packed| packed.len() < raw.len());
        let used = packed.as_ref().map_or(Compression::None, |_| Compression::Lz4);
        let payload = packed.unwrap_or(raw);
        let length = |bytes: &[u8]| {
            u32::try_from(bytes.len()).expect("requests are bounded far below 4 GB").to_be_bytes()
        };
        out.extend_from_slice(&[kind as u8, used as u8]);
        out.extend_from_slice(&length(payload));
        out.extend_from_slice(&length(raw));
        out.extend_from_slice(payload);
        let crc = checksum(offset, &out[start..]);
        out.extend_from_slice(&crc.to_be_bytes());
    }

    fn compress(&mut self, raw: &[u8]) -> Option<&[u8]> {
        let most = lz4_flex::block::get_maximum_output_size(raw.len());
        if self.packed.len() < most {
            self.packed.resize(most, 0);
        }
        let packed = compress_into_with_table(raw, &mut self.packed, &mut self.table).ok();
        let bytes = packed.and_then(|length| self.packed.get(..length));
        debug_assert!(bytes.is_some(), "there is room for the longest result");
        bytes
    }
}

/// Reads a block and checks it.
pub fn read(
    file: &dyn File,
    path: &Path,
    handle: BlockHandle,
    kind: BlockKind,
) -> Result<Block, ReadError> {
    let mut sealed = vec![0; handle.length as usize];
    file.read_exact_at(&mut sealed, handle.offset).context("read", path)?;
    open(&sealed, handle.offset, kind)
        .map_err(|reason| Corrupt::new(path, handle.offset, reason).into())
}

/// Checks a block that was read from this offset and takes its payload out.
pub fn open(sealed: &[u8], offset: u64, kind: BlockKind) -> Result<Block, &'static str> {
    open_into(sealed, offset, kind, |_| None)
}

/// [`open`] into a buffer, if `buffer` has one for a payload of this length.
pub fn open_into(
    sealed: &[u8],
    offset: u64,
    kind: BlockKind,
    buffer: impl FnOnce(usize) -> Option<Arc<[u8]>>,
) -> Result<Block, &'static str> {
    let Some((framed, crc)) = sealed.split_last_chunk::<4>() else {
        return Err("a block is shorter than its frame");
    };
    if checksum(offset, framed) != u32::from_be_bytes(*crc) {
        return Err("the checksum of a block does not match");
    }
    let head = BlockHead::decode(framed).ok_or("a block claims what cannot be")?;
    if head.kind != kind {
        return Err("a block of another kind stands here");
    }
    let (payload, length) = (&framed[HEAD_LENGTH..], head.raw_length as usize);
    let is_stored = head.compression == Compression::None;
    if payload.len() != head.payload_length as usize || is_stored && payload.len() != length {
        return Err("a block has another size than it claims");
    }
    let has_directory =
        matches!(kind, BlockKind::Data | BlockKind::ColumnIndex | BlockKind::RowIndex);
    let buffer = if has_directory { buffer(length) } else { None };
    let mut bytes = buffer.unwrap_or_else(|| std::iter::repeat_n(0, length).collect());
    let target = Arc::get_mut(&mut bytes).and_then(|bytes| bytes.get_mut(..length));
    let target = target.expect("a buffer has room and no other holder");
    // Right into the shared allocation in which the payload stays.
    match head.compression {
        Compression::None => target.copy_from_slice(payload),
        Compression::Lz4 => match lz4_flex::block::decompress_into(payload, target) {
            Ok(written) if written == length => {}
            _ => return Err("a block cannot be decompressed"),
        },
    }
    if has_directory {
        Block::with_directory(bytes, length, kind == BlockKind::RowIndex)
            .ok_or("the directory of a block is broken")
    } else {
        Ok(Block { bytes, directory: head.raw_length, end: head.raw_length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(compression: Compression) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        for i in 0..50u32 {
            builder.entry().extend_from_slice(format!("entry number {i}").as_bytes());
        }
        let mut sealed = Vec::new();
        let raw = builder.finish();
        Sealer::default().seal(BlockKind::Data, compression, raw, 77, &mut sealed);
        sealed
    }

    #[test]
    fn entries_are_found_again() {
        for compression in [Compression::None, Compression::Lz4] {
            let block = open(&sample(compression), 77, BlockKind::Data).unwrap();
            assert_eq!(block.len(), 50);
            let at = block.entry(49).unwrap();
            assert!(block.bytes()[at..].starts_with(b"entry number 49"));
            assert_eq!(block.entry(50), None);
        }
        assert!(sample(Compression::Lz4).len() < sample(Compression::None).len());
    }

    #[test]
    fn a_block_of_another_kind_is_refused() {
        let error = open(&sample(Compression::Lz4), 77, BlockKind::RowIndex).unwrap_err();
        assert_eq!(error, "a block of another kind stands here");
    }

    #[test]
    fn a_block_from_another_place_is_refused() {
        let error = open(&sample(Compression::Lz4), 78, BlockKind::Data).unwrap_err();
        assert_eq!(error, "the checksum of a block does not match");
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(bit in 0usize..100_000) {
            for compression in [Compression::None, Compression::Lz4] {
                let mut sealed = sample(compression);
                let bit = bit % (sealed.len() * 8);
                sealed[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(open(&sealed, 77, BlockKind::Data).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_with_a_right_checksum_do_no_harm(
            bytes: Vec<u8>, is_compressed: bool, raw_length in 0u32..10_000,
        ) {
            let raw_length = if is_compressed { raw_length } else { bytes.len() as u32 };
            for kind in [BlockKind::Data, BlockKind::RowIndex, BlockKind::Filter] {
                let payload = (bytes.len() as u32).to_be_bytes();
                let mut sealed = vec![kind as u8, u8::from(is_compressed)];
                let lengths = payload.into_iter().chain(raw_length.to_be_bytes());
                sealed.extend(lengths.chain(bytes.clone()));
                sealed.extend(checksum(0, &sealed).to_be_bytes());
                if let Ok(block) = open(&sealed, 0, kind) {
                    let _ = block.entry(block.len().saturating_sub(1));
                    let _ = kind == BlockKind::RowIndex && block.tagged(7).count() > 0;
                }
            }
        }
    }
}
