//! The key cache: places of the rows of a column family, by SSTable and row key.
//!
//! It is asked after the index blocks that SSTables pin. Finding a row in a pinned block costs
//! about as much as finding it here (a read of five columns takes 1.26 µs of a processor by the one
//! and 1.29 µs by the other), so nothing is gained by asking here first, and keeping it twice costs
//! memory. Where there is no room for a file's index, each row that is read often would hold a
//! block of more than a hundred rows' entries in the block cache (1.50 µs), or have it read and
//! unpacked again and again (5.5 µs instead of 2.9 µs, and a seek on a disk that has them). Here it
//! costs its own entry, a few hundred bytes. `cargo bench --bench caches` has these figures.
//!
//! Rows whose cells are in the row index itself are not kept here: the block that has the
//! entry has all of the row, and is cached like any other.
//!
//! Entries come from blocks with sound checksums, and SSTables never change, so that none can
//! become wrong. That a row is *not* in a file is left to the filters.

use super::ByteBudget;
use super::bounded::BoundedCache;
use crate::model::key::RowKey;
use crate::storage::sstable::block::Block;
use quick_cache::Equivalent;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The key cache of one column family.
#[derive(Debug)]
pub struct KeyCache {
    /// Index entries by place.
    pub(in crate::storage) entries: BoundedCache<Place, Block>,
}

/// An SSTable, by its number in the block cache, and a row key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::storage) struct Place {
    table: u64,
    key: RowKey,
}

/// A [`Place`] to look for.
struct Sought<'a> {
    table: u64,
    key: &'a [u8],
}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Sought { table: self.table, key: self.key.as_bytes() }.hash(state);
    }
}

impl Hash for Sought<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.table.hash(state);
        self.key.hash(state);
    }
}

impl Equivalent<Place> for Sought<'_> {
    fn equivalent(&self, place: &Place) -> bool {
        self.table == place.table && self.key == place.key.as_bytes()
    }
}

impl KeyCache {
    /// A cache of at most this many entries. `is_final` is false if that will change by itself.
    pub fn new(capacity: u64, is_final: bool, budget: &Arc<ByteBudget>) -> Self {
        Self { entries: BoundedCache::new(capacity, is_final, budget) }
    }

    /// The index entry of a row in an SSTable, as a block of its own.
    pub fn get(&self, table: u64, key: &RowKey) -> Option<Block> {
        let found = self.entries.get(&Sought { table, key: key.as_bytes() })?;
        Some(Block::clone(&found))
    }

    /// Keeps the index entry of a row in an SSTable.
    pub fn insert(&self, table: u64, key: &RowKey, entry: Block) {
        let bytes = (entry.bytes().len() + key.as_bytes().len()) as u64;
        self.entries.insert(Place { table, key: key.clone() }, entry, bytes);
        self.entries.enforce();
    }

    /// Drops the entries of SSTables that are gone.
    pub fn forget_tables(&self, tables: &[u64]) {
        self.entries.retain(|place, _| !tables.contains(&place.table));
    }

    /// The row keys with an entry for one of these SSTables.
    pub fn keys_of(&self, tables: &[u64]) -> Vec<RowKey> {
        let known = self.entries.keys().filter(|place| tables.contains(&place.table));
        known.map(|place| place.key).collect()
    }

    /// The row keys that it holds, in no order, each once for each SSTable that has it.
    pub fn keys(&self) -> impl Iterator<Item = RowKey> {
        self.entries.keys().map(|place| place.key)
    }
}
