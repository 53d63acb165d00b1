//! Walks through a file from its front to its end, block by block, without what points to them: for
//! files that are damaged, and to find out whether they are.

use super::block::{self, Block, BlockHandle, BlockHead, BlockKind, FRAME_LENGTH, HEAD_LENGTH};
use super::properties::Properties;
use super::{FOOTER_LENGTH, HEADER_LENGTH, MAGIC, VERSION};
use crate::base::bytes::ByteReader;
use crate::base::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Bytes in which the next block is looked for at a time.
const WINDOW: usize = 1 << 20;

/// Bytes that are read at a time around a place that the disk refuses to read.
const SECTOR: usize = 4 << 10;

/// The outermost parts of a file.
#[derive(Debug)]
pub struct Frame {
    /// Range of the blocks: between header and footer, or up to the end if the footer is damaged.
    pub blocks: Range<u64>,
    /// Fault of the header.
    pub header_fault: Option<&'static str>,
    /// Places of summary, filter and properties; `None` if the footer is damaged.
    pub footer: Option<[BlockHandle; 3]>,
}

impl Frame {
    /// Reads header and footer.
    pub fn read(file: &dyn File) -> io::Result<Self> {
        let size = file.size()?;
        let start = HEADER_LENGTH.min(size);
        let mut header = [0; HEADER_LENGTH as usize];
        let header_fault = match file.read_exact_at(&mut header, 0) {
            Err(_) => Some("its first bytes cannot be read"),
            Ok(()) => header_fault(header),
        };
        let mut bytes = [0; FOOTER_LENGTH];
        let end = size.checked_sub(FOOTER_LENGTH as u64).filter(|end| *end >= start);
        let footer = end.and_then(|end| {
            file.read_exact_at(&mut bytes, end).ok()?;
            decode_footer(&bytes, end)
        });
        let end = if footer.is_some() { end.unwrap_or(size) } else { size };
        Ok(Self { blocks: start..end, header_fault, footer })
    }

    /// The properties of the file and their place, if they can be found and read.
    pub fn properties(&self, file: &dyn File) -> Option<(BlockHandle, Properties)> {
        let (handle, block) = self.properties_block(file)?;
        Some((handle, Properties::decode(block.bytes()).ok()?))
    }

    /// CRC32 of the properties as they are stored, by which a manifest knows the file.
    pub fn properties_crc(&self, file: &dyn File) -> Option<u32> {
        self.properties_block(file).map(|(_, block)| crc32fast::hash(block.bytes()))
    }

    fn properties_block(&self, file: &dyn File) -> Option<(BlockHandle, Block)> {
        let kind = BlockKind::Properties;
        if let Some([_, _, handle]) = self.footer {
            return Some((handle, block::read(file, Path::new(""), handle, kind).ok()?));
        }
        // Without a footer they are the last block, if that is there.
        let found = BlockScan::within(file, self).filter_map(|piece| match piece {
            Piece::Block { handle, kind: found, block } if found == kind => Some((handle, block)),
            _ => None,
        });
        found.last()
    }

    /// Whether data and their indexes can stand here. The footer names the places of all others.
    pub fn may_hold_data(&self, offset: u64) -> bool {
        self.footer.is_none_or(|[summary, ..]| offset < summary.offset)
    }
}

/// Bytes of the three handles, which the checksum covers.
const HANDLES_LENGTH: usize = 3 * 12;

/// Fault of the first bytes of a file, if they have one.
pub(super) fn header_fault(
    [magic @ .., version]: [u8; HEADER_LENGTH as usize],
) -> Option<&'static str> {
    if magic == *MAGIC {
        (!(1..=VERSION).contains(&version)).then_some("its format version is not known")
    } else {
        Some("it does not begin like an SSTable of Alexandra")
    }
}

/// Reads the places of summary, filter and properties from a footer at this offset; `None` if it
/// is damaged.
pub(super) fn decode_footer(footer: &[u8; FOOTER_LENGTH], start: u64) -> Option<[BlockHandle; 3]> {
    let (checked, rest) = footer.split_at(HANDLES_LENGTH);
    let (crc, end) = rest.split_at(4);
    let (magic, version) = end.split_at(MAGIC.len());
    let is_known = version.first().is_some_and(|version| (1..=VERSION).contains(version));
    if crc != crc32fast::hash(checked).to_be_bytes() || magic != MAGIC || !is_known {
        return None;
    }
    let mut reader = ByteReader::new(checked);
    let mut handle = || {
        let (offset, length) = (reader.u64().ok()?, reader.u32().ok()?);
        let end = offset.checked_add(u64::from(length))?;
        (end <= start).then_some(BlockHandle { offset, length })
    };
    Some([handle()?, handle()?, handle()?])
}

/// Next part of a file.
#[derive(Debug)]
pub enum Piece {
    /// A sound block.
    Block {
        /// Its place.
        handle: BlockHandle,
        /// The kind of its contents.
        kind: BlockKind,
        /// Its payload.
        block: Block,
    },
    /// Bytes that are no sound block.
    Damage {
        /// The bytes.
        range: Range<u64>,
        /// Kind that its first bytes name, which may be damaged as well.
        kind: Option<BlockKind>,
        /// The fault.
        reason: &'static str,
    },
}

/// A walk through the blocks of a file, one of which is in memory at a time. Where the disk refuses
/// to read, that is damage like any other.
#[derive(Debug)]
pub struct BlockScan<'a> {
    file: &'a dyn File,
    at: u64,
    end: u64,
}

impl<'a> BlockScan<'a> {
    /// A walk through the blocks within a frame.
    pub fn within(file: &'a dyn File, frame: &Frame) -> Self {
        Self { file, at: frame.blocks.start, end: frame.blocks.end }
    }

    /// Returns the offset of the next piece.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The head of a block that may begin here, or why there is none.
    fn head_at(&self, offset: u64) -> Result<BlockHead, &'static str> {
        if self.end - offset < FRAME_LENGTH as u64 {
            return Err("the bytes are too few for a block");
        }
        let mut head = [0; HEAD_LENGTH];
        let read = self.file.read_exact_at(&mut head, offset);
        read.map_err(|_| "the disk cannot read a block")?;
        let head = BlockHead::decode(&head).ok_or("no block begins here")?;
        if head.block_length() > self.end - offset {
            return Err("a block claims to be longer than the file");
        }
        Ok(head)
    }

    /// The block of this head, or what is wrong with it.
    fn block_at(&self, offset: u64, head: &BlockHead) -> Result<Block, &'static str> {
        let mut sealed = vec![0; head.block_length() as usize];
        let read = self.file.read_exact_at(&mut sealed, offset);
        read.map_err(|_| "the disk cannot read a block")?;
        block::open(&sealed, offset, head.kind)
    }

    /// Finds the next sound block from here on. Returns its offset; the end if there is none.
    fn next_block(&self, from: u64) -> u64 {
        let mut at = from;
        while at < self.end {
            let length = (self.end - at).min((WINDOW + HEAD_LENGTH) as u64) as usize;
            let mut window = vec![0; length];
            self.read_what_can_be_read(&mut window, at);
            for start in 0..length.min(WINDOW) {
                let here = at + start as u64;
                let head = BlockHead::decode(&window[start..]);
                let head = head.filter(|head| head.block_length() <= self.end - here);
                if head.is_some_and(|head| self.block_at(here, &head).is_ok()) {
                    return here;
                }
            }
            at += length.min(WINDOW) as u64;
        }
        self.end
    }

    /// Fills the buffer; with zeroes where the disk refuses, which no block begins with.
    fn read_what_can_be_read(&self, buffer: &mut [u8], offset: u64) {
        if self.file.read_exact_at(buffer, offset).is_ok() {
            return;
        }
        let mut at = offset;
        for piece in buffer.chunks_mut(SECTOR) {
            if self.file.read_exact_at(piece, at).is_err() {
                piece.fill(0);
            }
            at += piece.len() as u64;
        }
    }
}

impl Iterator for BlockScan<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let offset = self.at;
        if offset >= self.end {
            return None;
        }
        let head = self.head_at(offset);
        let reason = match head.map(|head| (head, self.block_at(offset, &head))) {
            Ok((head, Ok(block))) => {
                let handle = BlockHandle { offset, length: head.block_length() as u32 };
                self.at += head.block_length();
                return Some(Piece::Block { handle, kind: head.kind, block });
            }
            Ok((_, Err(reason))) | Err(reason) => reason,
        };
        self.at = self.next_block(offset + 1);
        let range = offset..self.at;
        // A head that tells where the next block begins is likely to tell its own kind.
        let head = head.ok().filter(|head| head.block_length() == range.end - offset);
        Some(Piece::Damage { range, kind: head.map(|head| head.kind), reason })
    }
}
