//! Caches of data on disk.
//!
//! ```text
//!   blocks    decompressed blocks of SSTables, for all column families, bounded in bytes
//!   keys      where rows are within SSTables: KeysCached of each column family
//!   rows      whole rows, merged from all SSTables: RowsCached of each column family
//!   bounded   what the last two are made of: entries of one family, as many as it may have
//!   budget    and all families together no more bytes than there are for them
//!   saved     the keys of a cache in a file, from which it is filled after a start
//!   ready_buffers   memory for blocks, touched before reads need it
//! ```
//!
//! A read of a row asks the row cache first, if its family has one; then for each SSTable whose
//! filter does not exclude the row, where the row is: a pinned index block, the key cache, the
//! block cache, the disk, in this order; and then takes blocks of data from the block cache or the
//! disk. What a cache holds never decides on an answer, only on its price.
//!
//! Hits and misses are counted where the shard of a cache is locked anyway: no two processors that
//! read different things write to the same line of memory on account of a counter.
//!
//! Locks: that of a budget before that of a cache's bounds, that before a shard of the cache.

pub mod blocks;
mod bounded;
mod budget;
pub mod keys;
mod ready_buffers;
pub mod rows;
pub mod saved;

pub use blocks::BlockCache;
pub use budget::ByteBudget;
pub use keys::KeyCache;
pub use rows::RowCache;
pub use saved::CacheKind;

use serde::{Deserialize, Serialize};

/// Statistics of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheStats {
    /// Capacity, in entries; that of the block cache in bytes.
    pub capacity: u64,
    /// Content, in the same unit.
    pub size: u64,
    /// Memory, in bytes.
    pub bytes: u64,
    /// Hits since the start.
    pub hits: u64,
    /// Requests since the start.
    pub requests: u64,
}

impl CacheStats {
    /// The hit rate since earlier statistics of the same cache; not a number without requests, as
    /// in 0.6. A cache that was replaced meanwhile counts from its start.
    pub fn hit_rate_since(&self, earlier: &Self) -> f64 {
        let begun_anew = self.requests < earlier.requests || self.hits < earlier.hits;
        let earlier = if begun_anew { Self::default() } else { *earlier };
        (self.hits - earlier.hits) as f64 / (self.requests - earlier.requests) as f64
    }
}

/// Statistics of a column family's caches; `None` for one that is switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FamilyCacheStats {
    /// Of the key cache.
    pub keys: Option<CacheStats>,
    /// Of the row cache.
    pub rows: Option<CacheStats>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recent_hit_rate_is_that_between_two_looks() {
        let stats = |hits, requests| CacheStats { hits, requests, ..CacheStats::default() };
        assert!(stats(0, 0).hit_rate_since(&stats(0, 0)).is_nan());
        assert!((stats(3, 4).hit_rate_since(&stats(0, 0)) - 0.75).abs() < 1e-9);
        assert!((stats(3, 6).hit_rate_since(&stats(3, 4)) - 0.0).abs() < 1e-9);
        // It was switched off and on.
        assert!((stats(1, 2).hit_rate_since(&stats(30, 60)) - 0.5).abs() < 1e-9);
    }
}
