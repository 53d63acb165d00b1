//! The block cache: decompressed blocks of SSTables, bounded in bytes, shared by all of them.

use super::CacheStats;
use super::ready_buffers::ReadyBuffers;
use crate::base::budget::Lender;
use crate::storage::sstable::block::Block;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bookkeeping that a cached block costs besides its bytes.
const ENTRY_OVERHEAD: u64 = 96;

/// Typical size of a block, from which the cache estimates how many it will hold.
const TYPICAL_BLOCK_SIZE: u64 = 8 * 1024;

/// A cache of blocks by file and offset.
#[derive(Debug)]
pub struct BlockCache {
    blocks: Cache<(u64, u64), Block, BlockWeighter, BlockHashing>,
    /// Most bytes that it holds while it lends nothing.
    capacity_bytes: u64,
    next_file: AtomicU64,
    /// Bytes of blocks that SSTables hold themselves, because every read of them begins there.
    pinned: AtomicU64,
    buffers: ReadyBuffers,
}

/// The part of the capacity, as a divisor, that may be pinned besides.
const PINNED_SHARE: u64 = 4;

#[derive(Debug, Clone)]
struct BlockWeighter;

impl Weighter<(u64, u64), Block> for BlockWeighter {
    fn weight(&self, _: &(u64, u64), block: &Block) -> u64 {
        block.bytes().len() as u64 + ENTRY_OVERHEAD
    }
}

/// Hashes file numbers and offsets. No client can choose them to collide.
#[derive(Debug, Clone, Default)]
struct BlockHasher(u64);

type BlockHashing = BuildHasherDefault<BlockHasher>;

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0xf39c_c060_5ced_c835) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Lender for BlockCache {
    fn lend(&self, bytes: usize) {
        self.blocks.set_capacity(self.capacity_bytes.saturating_sub(bytes as u64));
    }
}

impl BlockCache {
    /// A cache that holds at most this many bytes.
    pub fn new(capacity_bytes: u64) -> Self {
        let items = (capacity_bytes / TYPICAL_BLOCK_SIZE).max(16) as usize;
        let blocks = Cache::with(
            items,
            capacity_bytes,
            BlockWeighter,
            BlockHashing::default(),
            DefaultLifecycle::default(),
        );
        let (next_file, pinned, buffers) = Default::default();
        Self { blocks, capacity_bytes, next_file, pinned, buffers }
    }

    /// Memory for blocks that are read into the cache.
    pub fn buffers(&self) -> &ReadyBuffers {
        &self.buffers
    }

    /// A number under which one more file keeps its blocks here.
    pub fn register_file(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether an SSTable may hold a block of this size itself, until [`BlockCache::unpin`].
    pub fn pin(&self, bytes: u64) -> bool {
        let before = self.pinned.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.capacity_bytes / PINNED_SHARE;
        if !fits {
            self.unpin(bytes);
        }
        fits
    }

    /// Gives back pinned bytes.
    pub fn unpin(&self, bytes: u64) {
        self.pinned.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The block of a file at an offset.
    pub fn get(&self, file: u64, offset: u64) -> Option<Block> {
        self.blocks.get(&(file, offset))
    }

    /// Keeps a block; others may have to leave.
    pub fn insert(&self, file: u64, offset: u64, block: Block) {
        self.blocks.insert((file, offset), block);
    }

    /// Forgets the blocks of a file that is gone.
    pub fn forget_file(&self, file: u64) {
        self.blocks.retain(|(owner, _), _| *owner != file);
    }

    /// Its statistics, in bytes.
    pub fn stats(&self) -> CacheStats {
        let (hits, size) = (self.blocks.hits(), self.blocks.weight());
        CacheStats {
            capacity: self.capacity_bytes,
            size,
            bytes: size,
            hits,
            requests: hits + self.blocks.misses(),
        }
    }
}
