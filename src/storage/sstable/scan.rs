//! Walks through a file from its front to its end, block by block, without what points to them: for
//! files that are damaged, and to find out whether they are.

use super::block::{self, Block, BlockHandle, BlockHead, BlockKind, FRAME_LENGTH, HEAD_LENGTH};
use super::entry::ContinuedRow;
use super::{FOOTER_LENGTH, HEADER_LENGTH, MAGIC};
use crate::base::bytes::Malformed;
use crate::base::fs::File;
use crate::model::cell::Cell;
use crate::storage::error::{FileContext, FileError};
use std::path::Path;

/// Bytes in which the next block is looked for at a time.
const WINDOW: usize = 1 << 20;

/// What stands next in a file.
#[derive(Debug)]
pub enum Piece {
    /// A sound block.
    Block {
        /// Where it stands.
        handle: BlockHandle,
        /// What it holds.
        kind: BlockKind,
        /// Its payload.
        block: Block,
    },
    /// Bytes that are no sound block.
    Damage {
        /// Where they begin.
        offset: u64,
        /// How many there are.
        length: u64,
        /// How it shows.
        reason: &'static str,
    },
}

/// A walk through the blocks of a file.
#[derive(Debug)]
pub struct BlockScan<'a> {
    file: &'a dyn File,
    path: &'a Path,
    at: u64,
    end: u64,
}

impl<'a> BlockScan<'a> {
    /// A walk that begins behind the header and ends at the footer, if there is one.
    pub fn new(file: &'a dyn File, path: &'a Path) -> Result<Self, FileError> {
        let size = file.size().context("read", path)?;
        let at = HEADER_LENGTH.min(size);
        let footer = size.saturating_sub(FOOTER_LENGTH as u64);
        let mut magic = [0; MAGIC.len()];
        let has_footer = footer >= HEADER_LENGTH
            && file.read_exact_at(&mut magic, size - HEADER_LENGTH).is_ok()
            && magic == *MAGIC;
        Ok(Self { file, path, at, end: if has_footer { footer } else { size } })
    }

    /// What stands next; `None` at the end.
    pub fn advance(&mut self) -> Result<Option<Piece>, FileError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let reason = match self.block_at(self.at)? {
            Ok((handle, kind, block)) => {
                self.at += u64::from(handle.length);
                return Ok(Some(Piece::Block { handle, kind, block }));
            }
            Err(reason) => reason,
        };
        let offset = self.at;
        self.at = self.next_block(offset + 1)?;
        Ok(Some(Piece::Damage { offset, length: self.at - offset, reason }))
    }

    /// The block that begins here, or why there is none.
    #[allow(clippy::type_complexity, reason = "within this file only")]
    fn block_at(
        &self,
        offset: u64,
    ) -> Result<Result<(BlockHandle, BlockKind, Block), &'static str>, FileError> {
        let mut head = [0; HEAD_LENGTH];
        if self.end - offset < FRAME_LENGTH as u64 {
            return Ok(Err("the bytes are too few for a block"));
        }
        self.file.read_exact_at(&mut head, offset).context("read", self.path)?;
        let Some(head) = BlockHead::decode(&head) else {
            return Ok(Err("no block begins here"));
        };
        if head.block_length() > self.end - offset {
            return Ok(Err("a block claims to be longer than the file"));
        }
        let mut sealed = vec![0; head.block_length() as usize];
        self.file.read_exact_at(&mut sealed, offset).context("read", self.path)?;
        let handle = BlockHandle { offset, length: sealed.len() as u32 };
        Ok(block::open(&sealed, offset, head.kind).map(|block| (handle, head.kind, block)))
    }

    /// Where the next sound block begins, from here on; the end if there is none.
    fn next_block(&self, from: u64) -> Result<u64, FileError> {
        let mut at = from;
        while at < self.end {
            let length = (self.end - at).min((WINDOW + HEAD_LENGTH) as u64) as usize;
            let mut window = vec![0; length];
            self.file.read_exact_at(&mut window, at).context("read", self.path)?;
            for start in 0..length.min(WINDOW) {
                let here = at + start as u64;
                let head = BlockHead::decode(&window[start..]);
                if head.is_some_and(|head| head.block_length() <= self.end - here)
                    && self.block_at(here)?.is_ok()
                {
                    return Ok(here);
                }
            }
            at += length.min(WINDOW) as u64;
        }
        Ok(self.end)
    }
}

/// The cells of a data block in their order, whatever rows they belong to, and the row that began
/// in an earlier block if the first of them are its.
pub fn data_cells(block: &Block) -> Result<(Vec<Cell>, Option<ContinuedRow<'_>>), Malformed> {
    let mut end = 0;
    let mut cells = Vec::with_capacity(block.len());
    for index in 0..block.len() {
        let at = block.entry(index).ok_or(Malformed(0))?;
        let cell = Cell::decode(block.bytes(), at).ok_or(Malformed(at))?;
        end = at + cell.encoded_length();
        cells.push(cell);
    }
    let tail = block.bytes().get(end..block.directory()).ok_or(Malformed(end))?;
    Ok((cells, ContinuedRow::decode(tail)?))
}
