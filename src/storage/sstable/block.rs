//! Blocks: what an SSTable is made of, each compressed and checked on its own.
//!
//! On disk a block is its payload, compressed or not, and a trailer of ten bytes:
//!
//! ```text
//! payload | u8 kind | u8 compression: 0 none, 1 LZ4 | u32 length of the raw payload
//!         | u32 CRC32 of everything before it
//! ```
//!
//! The raw payload of a block of entries ends with a directory: the u32 offset of each entry, then
//! their u32 number. Entries can so be found by halving. In a row index block the u32 tags of all
//! entries stand before the directory: looking for one key walks over these few neighbouring bytes
//! instead of halving through entries all over the block.

use crate::base::bytes::ByteReader;
use crate::base::fs::File;
use crate::storage::error::{Corrupt, FileContext, ReadError};
use std::path::Path;
use std::sync::Arc;

/// Bytes of the trailer.
pub const TRAILER_LENGTH: usize = 10;

/// Most bytes that a raw payload may have; a single huge value makes a block of its own.
const MAX_RAW_LENGTH: u32 = 1 << 31;

/// What a block holds. The numbers are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockKind {
    /// Cells.
    Data = 1,
    /// Where the blocks of a wide row are.
    ColumnIndex = 2,
    /// Where the rows are.
    RowIndex = 3,
    /// Where the blocks of the row index are.
    Summary = 4,
    /// The Bloom filter.
    Filter = 5,
    /// Facts about the whole file.
    Properties = 6,
}

/// How blocks are compressed. The numbers are stored: do not change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Compression {
    /// As they are.
    None = 0,
    /// LZ4 block format.
    #[default]
    Lz4 = 1,
}

/// Where a block stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockHandle {
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes on disk, trailer included.
    pub length: u32,
}

/// A raw payload in memory, shared.
#[derive(Debug, Clone)]
pub struct Block {
    bytes: Arc<[u8]>,
    /// Where the directory begins; the end of the payload for a block without entries.
    directory: u32,
}

impl Block {
    /// The raw payload.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        (self.bytes.len() - self.directory as usize).saturating_sub(4) / 4
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the entry begins; `None` if there are not so many.
    pub fn entry(&self, index: usize) -> Option<usize> {
        if index >= self.len() {
            return None;
        }
        let at = self.directory as usize + index * 4;
        Some(ByteReader::at(&self.bytes, at).u32().ok()? as usize)
    }

    /// The entries that were tagged so, by their numbers. For row index blocks only.
    pub fn tagged(&self, tag: u32) -> impl Iterator<Item = usize> {
        let end = self.directory as usize;
        let tags = self.bytes.get(end - self.len() * 4..end).unwrap_or_default();
        let tag = tag.to_be_bytes();
        let (tags, _) = tags.as_chunks::<4>();
        tags.iter().enumerate().filter(move |(_, other)| **other == tag).map(|(index, _)| index)
    }

    /// Takes a payload apart whose directory is to be used.
    fn with_directory(bytes: Arc<[u8]>, is_tagged: bool) -> Option<Self> {
        let count = u32::from_be_bytes(*bytes.last_chunk()?) as usize;
        let directory = bytes.len().checked_sub(4 + count.checked_mul(4)?)?;
        if is_tagged && directory < count * 4 {
            return None;
        }
        Some(Self { bytes, directory: u32::try_from(directory).ok()? })
    }
}

/// Collects entries and closes them into a payload with a directory.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    payload: Vec<u8>,
    tags: Vec<u32>,
    offsets: Vec<u32>,
}

impl BlockBuilder {
    /// Begins an entry; what is appended to the returned buffer belongs to it.
    pub fn entry(&mut self) -> &mut Vec<u8> {
        self.offsets.push(self.payload.len() as u32);
        &mut self.payload
    }

    /// [`BlockBuilder::entry`] for a row index block, all of whose entries are tagged.
    pub fn tagged_entry(&mut self, tag: u32) -> &mut Vec<u8> {
        self.tags.push(tag);
        self.entry()
    }

    /// Bytes so far.
    pub fn size(&self) -> usize {
        self.payload.len() + self.offsets.len() * 4 + 4
    }

    /// Number of entries so far.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Appends the directory, hands out the raw payload, and begins anew.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.payload);
        debug_assert!(self.tags.is_empty() || self.tags.len() == self.offsets.len());
        for number in self.tags.drain(..).chain(self.offsets.iter().copied()) {
            payload.extend_from_slice(&number.to_be_bytes());
        }
        payload.extend_from_slice(&(self.offsets.len() as u32).to_be_bytes());
        self.payload = Vec::with_capacity(payload.len());
        self.offsets.clear();
        payload
    }
}

/// Appends a block in its form on disk.
pub fn seal(kind: BlockKind, compression: Compression, raw: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    let packed = match compression {
        Compression::Lz4 => Some(lz4_flex::block::compress(raw)),
        Compression::None => None,
    };
    // What compression does not shrink is kept as it is.
    let used = match packed {
        Some(packed) if packed.len() < raw.len() => {
            out.extend_from_slice(&packed);
            Compression::Lz4
        }
        _ => {
            out.extend_from_slice(raw);
            Compression::None
        }
    };
    out.push(kind as u8);
    out.push(used as u8);
    let raw_length = u32::try_from(raw.len()).expect("requests are bounded far below 4 GB");
    out.extend_from_slice(&raw_length.to_be_bytes());
    let crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&crc.to_be_bytes());
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
    open(sealed, kind).map_err(|reason| {
        ReadError::Corrupt(Corrupt { file: path.to_owned(), offset: handle.offset, reason })
    })
}

/// Checks a block that was read from disk and takes its payload out.
fn open(mut sealed: Vec<u8>, kind: BlockKind) -> Result<Block, &'static str> {
    let payload_length =
        sealed.len().checked_sub(TRAILER_LENGTH).ok_or("a block is shorter than its trailer")?;
    let mut trailer = ByteReader::at(&sealed, payload_length);
    let (stored_kind, compression) =
        (trailer.u8().unwrap_or_default(), trailer.u8().unwrap_or_default());
    let raw_length = trailer.u32().unwrap_or_default();
    let crc = trailer.u32().unwrap_or_default();
    if crc32fast::hash(&sealed[..sealed.len() - 4]) != crc {
        return Err("the checksum of a block does not match");
    }
    if stored_kind != kind as u8 {
        return Err("a block of another kind stands here");
    }
    if raw_length > MAX_RAW_LENGTH {
        return Err("a block claims an impossible size");
    }
    sealed.truncate(payload_length);
    let raw: Arc<[u8]> = match compression {
        0 => sealed.into(),
        1 => lz4_flex::block::decompress(&sealed, raw_length as usize)
            .map_err(|_| "a block cannot be decompressed")?
            .into(),
        _ => return Err("a block is compressed in an unknown way"),
    };
    if raw.len() != raw_length as usize {
        return Err("a block has another size than it claims");
    }
    match kind {
        BlockKind::Data | BlockKind::ColumnIndex | BlockKind::RowIndex => {
            let is_tagged = kind == BlockKind::RowIndex;
            Block::with_directory(raw, is_tagged).ok_or("the directory of a block is broken")
        }
        BlockKind::Summary | BlockKind::Filter | BlockKind::Properties => {
            let directory = raw.len() as u32;
            Ok(Block { bytes: raw, directory })
        }
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
        seal(BlockKind::Data, compression, &builder.finish(), &mut sealed);
        sealed
    }

    #[test]
    fn entries_are_found_again() {
        for compression in [Compression::None, Compression::Lz4] {
            let block = open(sample(compression), BlockKind::Data).unwrap();
            assert_eq!(block.len(), 50);
            let at = block.entry(49).unwrap();
            assert!(block.bytes()[at..].starts_with(b"entry number 49"));
            assert_eq!(block.entry(50), None);
        }
        assert!(sample(Compression::Lz4).len() < sample(Compression::None).len());
    }

    #[test]
    fn a_block_of_another_kind_is_refused() {
        let error = open(sample(Compression::Lz4), BlockKind::RowIndex).unwrap_err();
        assert_eq!(error, "a block of another kind stands here");
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(bit in 0usize..100_000) {
            for compression in [Compression::None, Compression::Lz4] {
                let mut sealed = sample(compression);
                let bit = bit % (sealed.len() * 8);
                sealed[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(open(sealed, BlockKind::Data).is_err());
            }
        }

        #[test]
        fn arbitrary_bytes_with_a_right_checksum_do_no_harm(mut bytes: Vec<u8>) {
            let crc = crc32fast::hash(&bytes);
            bytes.extend_from_slice(&crc.to_be_bytes());
            for kind in [BlockKind::Data, BlockKind::RowIndex, BlockKind::Filter] {
                if let Ok(block) = open(bytes.clone(), kind) {
                    let _ = block.entry(block.len().saturating_sub(1));
                    let _ = kind == BlockKind::RowIndex && block.tagged(7).count() > 0;
                }
            }
        }
    }
}
