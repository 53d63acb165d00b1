//! Blocks of one SSTable, from the cache or the disk, for one reader.

use super::block::{self, Block, BlockHandle, BlockKind};
use super::reader::SsTable;
use crate::base::lock::{Mutex, rank};
use crate::storage::caches::KeyCache;
use crate::storage::error::{Corrupt, FileContext, ReadError};
use crate::storage::legacy::{Untranslated, is_large};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Sources from which a reader may take blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// From the cache or, some blocks, the page cache of the system, and then into the cache. What
    /// would take a wait or many blocks is [`ReadError::WouldBlock`].
    CachedOnly,
    /// From the cache, else from the disk, and then into the cache.
    Cached,
    /// From the cache, else from the disk; the cache stays as it is. For reading a whole file.
    Bypass,
}

/// Bytes that a reader of a whole file reads at a time.
const READ_AHEAD: u64 = 256 << 10;

/// Blocks of a file that one reader takes from the page cache before it would block: enough for a
/// row. Each costs 10 to 20 microseconds of the thread of a connection, mostly for decompression.
const READY_BLOCKS: usize = 4;

/// Bytes on disk of the largest block that is taken so: one huge value makes a block of its own.
const READY_BYTES: u32 = 64 << 10;

/// The same in a file of the original, whose blocks are not compressed.
const READY_LEGACY_BYTES: u32 = 80 << 10;

/// Bytes of the front of a large row that are read at first: its key, filter and column index.
const HEAD_BYTES: usize = 64 << 10;

/// A stretch of a file.
#[derive(Debug, Default)]
struct ReadAhead {
    offset: u64,
    bytes: Vec<u8>,
    /// End of the last block.
    last_end: u64,
}

impl ReadAhead {
    /// Returns the bytes of a block, if they were read ahead or can be read together with the
    /// following ones: blocks follow each other, with blocks of other kinds in between.
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
    /// A key cache, which is asked for rows and told of them.
    pub(in crate::storage) keys: Option<&'a KeyCache>,
    /// Whether the last data block is kept, for a reader of row after row: rows share blocks.
    pub(in crate::storage) keeps_last: bool,
    last: Mutex<rank::State, Option<(u64, Block)>>,
    /// Bytes read ahead, for a reader of the whole file.
    ahead: Mutex<rank::State, ReadAhead>,
    /// Counts the bytes of the blocks that were handed out, as they are on disk: how far a reader
    /// of the whole file is.
    pub(in crate::storage) passed: Option<&'a AtomicU64>,
    /// Blocks taken from the page cache so far.
    ready: AtomicUsize,
}

impl<'a> Blocks<'a> {
    /// Blocks of this file, taken from where `access` allows.
    pub fn new(table: &'a SsTable, access: Access) -> Self {
        let keeps_last = access == Access::Bypass;
        let (last, ahead, ready) = Default::default();
        Self { table, access, keys: None, keeps_last, last, ahead, passed: None, ready }
    }

    /// The blocks of another file, for the same reader.
    #[must_use]
    pub fn of(&self, table: &'a SsTable) -> Self {
        let Self { access, keeps_last, passed, .. } = *self;
        Self { keeps_last, passed, ..Blocks::new(table, access) }
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
        let is_head = table.is_legacy() && kind == BlockKind::RowIndex && is_large(handle);
        if let Some(passed) = self.passed
            && !is_head
        {
            passed.fetch_add(u64::from(handle.length), Ordering::Relaxed);
        }
        if let Some(block) = table.cache.get(table.cache_id, handle.offset) {
            return Ok(block);
        }
        // The handle comes from another block. Damage must not decide on an allocation.
        if handle.offset.saturating_add(u64::from(handle.length)) > table.size {
            return Err(table.malformed(handle));
        }
        if is_head {
            let block = self.head_of_row(handle)?;
            if self.access != Access::Bypass {
                table.cache.insert(table.cache_id, handle.offset, block.clone());
            }
            return Ok(block);
        }
        if self.access == Access::Bypass {
            let mut ahead = self.ahead.lock();
            if let Some(bytes) = ahead.bytes(table, handle) {
                return self.open(handle, kind, bytes);
            }
            drop(ahead);
            let mut bytes = vec![0; handle.length as usize];
            table.file.read_exact_at(&mut bytes, handle.offset).context("read", &table.path)?;
            return self.open(handle, kind, &bytes);
        }
        // A thread that serves other connections too must not decompress much.
        let is_bounded = self.access == Access::CachedOnly;
        let most = if table.is_legacy() { READY_LEGACY_BYTES } else { READY_BYTES };
        if is_bounded
            && (handle.length > most || self.ready.fetch_add(1, Ordering::Relaxed) >= READY_BLOCKS)
        {
            return Err(ReadError::WouldBlock);
        }
        let mut bytes = vec![0; handle.length as usize];
        if is_bounded {
            if !table.file.read_if_ready(&mut bytes, handle.offset) {
                return Err(ReadError::WouldBlock);
            }
        } else {
            table.file.read_exact_at(&mut bytes, handle.offset).context("read", &table.path)?;
        }
        let block = self.open(handle, kind, &bytes)?;
        table.cache.insert(table.cache_id, handle.offset, block.clone());
        Ok(block)
    }

    /// The block that these bytes of the file are.
    fn open(&self, handle: BlockHandle, kind: BlockKind, bytes: &[u8]) -> Result<Block, ReadError> {
        let table = self.table;
        if let Some(legacy) = &table.legacy {
            return match legacy.block(handle, kind, bytes) {
                Ok(block) => Ok(block),
                Err(Untranslated::Corrupt(corrupt)) => Err(corrupt.into()),
                Err(Untranslated::Needs(_)) => Err(table.malformed(handle)),
            };
        }
        let is_kept = self.access != Access::Bypass;
        let buffer = |bytes| if is_kept { table.cache.buffers().take(bytes) } else { None };
        let block = block::open_into(bytes, handle.offset, kind, buffer);
        block.map_err(|reason| Corrupt::new(&table.path, handle.offset, reason).into())
    }

    /// The entry of a large row of a file of the original, from the front of the row.
    fn head_of_row(&self, row: BlockHandle) -> Result<Block, ReadError> {
        let Some(legacy) = &self.table.legacy else { return Err(self.table.malformed(row)) };
        if self.access == Access::CachedOnly {
            return Err(ReadError::WouldBlock);
        }
        let mut bytes = Vec::new();
        let mut wanted = HEAD_BYTES.min(row.length as usize);
        loop {
            let had = bytes.len();
            bytes.resize(wanted, 0);
            let read = self.table.file.read_exact_at(&mut bytes[had..], row.offset + had as u64);
            read.context("read", &self.table.path)?;
            match legacy.block(row, BlockKind::RowIndex, &bytes) {
                Ok(block) => return Ok(block),
                Err(Untranslated::Needs(more)) if more > wanted => wanted = more,
                Err(Untranslated::Needs(_)) => return Err(self.table.malformed(row)),
                Err(Untranslated::Corrupt(corrupt)) => return Err(corrupt.into()),
            }
        }
    }
}
