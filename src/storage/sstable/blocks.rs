//! Blocks of one SSTable, from the cache or the disk, for one reader.

use super::block::{self, Block, BlockHandle, BlockKind};
use super::reader::SsTable;
use crate::base::bytes::Malformed;
use crate::base::lock::{Mutex, rank};
use crate::storage::caches::KeyCache;
use crate::storage::error::{Corrupt, ReadError};
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a reader may take blocks from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// From the cache alone; what is not there is [`ReadError::WouldBlock`].
    CachedOnly,
    /// From the cache, else from the disk, and then into the cache.
    Cached,
    /// From the cache, else from the disk; the cache stays as it is. For reading a whole file.
    Bypass,
}

/// Bytes that who reads a whole file reads at a time.
const READ_AHEAD: u64 = 128 << 10;

/// A stretch of a file.
#[derive(Debug, Default)]
struct ReadAhead {
    offset: u64,
    bytes: Vec<u8>,
    /// Where the last block ended.
    last_end: u64,
}

impl ReadAhead {
    /// The bytes of a block, if they were read or are worth to be read with what comes behind
    /// them: blocks follow each other, with blocks of other kinds in between.
    fn bytes(&mut self, table: &SsTable, handle: BlockHandle) -> Option<&[u8]> {
        let (start, end) = (handle.offset, handle.offset + u64::from(handle.length));
        let gap = start.checked_sub(std::mem::replace(&mut self.last_end, end));
        let is_there = self.offset <= start && end <= self.offset + self.bytes.len() as u64;
        if !is_there {
            self.bytes.clear();
            let is_near = gap.is_some_and(|gap| gap <= READ_AHEAD);
            if !is_near || u64::from(handle.length) > READ_AHEAD {
                return None;
            }
            self.bytes.resize(READ_AHEAD.min(table.size - start) as usize, 0);
            self.offset = start;
            if table.file.read_exact_at(&mut self.bytes, start).is_err() {
                // The fault may lie in another block.
                self.bytes.clear();
                return None;
            }
        }
        self.bytes.get((start - self.offset) as usize..(end - self.offset) as usize)
    }
}

/// Hands out the blocks of one SSTable to one reader.
#[derive(Debug)]
pub struct Blocks<'a> {
    pub(super) table: &'a SsTable,
    pub(super) access: Access,
    /// Remembers where rows are.
    pub(super) keys: Option<&'a KeyCache>,
    /// Whether the last data block stays at hand.
    keeps_last: bool,
    last: Mutex<rank::State, Option<(u64, Block)>>,
    /// What was read ahead, for who reads the whole file.
    ahead: Mutex<rank::State, ReadAhead>,
    /// Counts the bytes of the blocks that were handed out, as they are on disk.
    passed: Option<&'a AtomicU64>,
}

impl<'a> Blocks<'a> {
    /// Blocks of this file, taken from where `access` allows.
    pub fn new(table: &'a SsTable, access: Access) -> Self {
        let keeps_last = access == Access::Bypass;
        let (last, ahead) = Default::default();
        Self { table, access, keys: None, keeps_last, last, ahead, passed: None }
    }

    /// Keeps the last data block at hand, for who reads row after row: small rows share blocks.
    #[must_use]
    pub fn keeping_last(self) -> Self {
        Self { keeps_last: true, ..self }
    }

    /// Also counts the bytes on disk of what it hands out: how far a reader of the whole file is.
    #[must_use]
    pub fn counting(self, passed: &'a AtomicU64) -> Self {
        Self { passed: Some(passed), ..self }
    }

    /// The blocks of another file, for the same reader.
    #[must_use]
    pub fn of(&self, table: &'a SsTable) -> Self {
        let Self { access, keeps_last, passed, .. } = *self;
        Self { keeps_last, passed, ..Blocks::new(table, access) }
    }

    /// The same with a key cache, which is asked for rows and told of them.
    #[must_use]
    pub fn with_key_cache(self, keys: Option<&'a KeyCache>) -> Self {
        Self { keys, ..self }
    }

    /// The file.
    pub fn table(&self) -> &'a SsTable {
        self.table
    }

    pub(super) fn block(&self, handle: BlockHandle, kind: BlockKind) -> Result<Block, ReadError> {
        let keeps = self.keeps_last && kind == BlockKind::Data;
        if keeps {
            let last = self.last.lock();
            if let Some((offset, block)) = &*last
                && *offset == handle.offset
            {
                return Ok(block.clone());
            }
        }
        let block = self.fetch(handle, kind)?;
        if keeps {
            let mut last = self.last.lock();
            *last = Some((handle.offset, block.clone()));
        }
        Ok(block)
    }

    fn fetch(&self, handle: BlockHandle, kind: BlockKind) -> Result<Block, ReadError> {
        let table = self.table;
        if let Some(passed) = self.passed {
            passed.fetch_add(u64::from(handle.length), Ordering::Relaxed);
        }
        if let Some(block) = table.cache.get(table.cache_id, handle.offset) {
            return Ok(block);
        }
        if self.access == Access::CachedOnly {
            return Err(ReadError::WouldBlock);
        }
        // Where a block stands is told by another one. Nothing damaged decides on an allocation.
        if handle.offset.saturating_add(u64::from(handle.length)) > table.size {
            return Err(table.malformed(handle, Malformed(0)));
        }
        if self.access == Access::Bypass {
            let mut ahead = self.ahead.lock();
            return match ahead.bytes(table, handle) {
                Some(sealed) => block::open(sealed, handle.offset, kind)
                    .map_err(|reason| Corrupt::new(&table.path, handle.offset, reason).into()),
                None => block::read(&*table.file, &table.path, handle, kind),
            };
        }
        let buffer = |bytes| table.cache.buffers().take(bytes);
        let block = block::read_into(&*table.file, &table.path, handle, kind, buffer)?;
        table.cache.insert(table.cache_id, handle.offset, block.clone());
        Ok(block)
    }
}
