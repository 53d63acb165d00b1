//! The key cache and the row cache of one column family: how large they are, and what the
//! replacement of SSTables means for them.

use super::{Cause, ColumnFamily, View};
use crate::base::context::RequestContext;
use crate::base::lock::MutexGuard;
use crate::config::settings::CacheSize;
use crate::model::key::RowKey;
use crate::ring::DecoratedKey;
use crate::storage::caches::rows::{CachedRow, LoadedRow};
use crate::storage::caches::{CacheKind, FamilyCacheStats, KeyCache, RowCache};
use crate::storage::error::ReadError;
use crate::storage::memtable::{Memtable, MemtableRow};
use crate::storage::row::{Budget, FoundRow, RowReader};
use crate::storage::sstable::{Access, Blocks, SsTable, filter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How large the caches of a column family are to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheSizes {
    pub(super) keys: CacheSize,
    pub(super) rows: CacheSize,
}

/// What a change of the SSTables means for cached rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowsChange<'a> {
    /// Nothing: the rows are the same.
    None,
    /// What this memtable held is in SSTables now.
    Flushed(&'a Arc<Memtable>),
    /// Deletions may be gone.
    Purged,
    /// Rows may be others: they were added or dropped.
    Others,
}

impl ColumnFamily {
    /// Makes the caches as large as the operator says, from now on until the next start. A number
    /// does not change any more as a share of all keys would.
    pub fn set_cache_capacity(&self, keys: u64, rows: u64) {
        let size =
            |entries| if entries == 0 { CacheSize::Off } else { CacheSize::Entries(entries) };
        let mut sizes = self.cache_sizes();
        *sizes = CacheSizes { keys: size(keys), rows: size(rows) };
        self.resize(*sizes);
    }

    /// Makes caches that are to hold a share of all keys as large as that is now.
    pub(super) fn resize_caches(&self) {
        let sizes = self.cache_sizes();
        self.resize(*sizes);
    }

    fn cache_sizes(&self) -> MutexGuard<'_, CacheSizes> {
        self.cache_sizes.lock()
    }

    fn resize(&self, sizes: CacheSizes) {
        let view = self.view();
        let rows = view.tables.iter().map(|table| table.rows());
        let keys_on_disk = rows.fold(0, u64::saturating_add);
        let [keys, rows] = [sizes.keys, sizes.rows].map(|size| size.entries(keys_on_disk));
        let is_final = |size: CacheSize| !matches!(size, CacheSize::Fraction(_));
        if let Some(cache) = view.caches.keys.as_ref().filter(|_| keys > 0) {
            cache.set_capacity(keys);
        } else if view.caches.keys.is_some() || keys > 0 {
            let budget = &self.environment.key_cache_budget;
            let cache = || Arc::new(KeyCache::new(keys, is_final(sizes.keys), budget));
            let cache = (keys > 0).then(cache);
            self.publish(|view| view.caches.keys = cache);
        }
        if let Some(cache) = view.caches.rows.as_ref().filter(|_| rows > 0) {
            cache.set_capacity(rows);
        } else if view.caches.rows.is_some() || rows > 0 {
            let budget = &self.environment.row_cache_budget;
            let cache = || Arc::new(RowCache::new(rows, is_final(sizes.rows), budget));
            let cache = (rows > 0).then(cache);
            self.publish(|view| {
                view.epoch += 1;
                view.caches.rows = cache;
            });
        }
    }

    /// The figures of its caches.
    pub fn cache_stats(&self) -> FamilyCacheStats {
        let view = self.view();
        FamilyCacheStats {
            keys: view.caches.keys.as_ref().map(|keys| keys.stats()),
            rows: view.caches.rows.as_ref().map(|rows| rows.stats()),
        }
    }

    /// Forgets all cached rows.
    pub fn invalidate_row_cache(&self) {
        if let Some(rows) = &self.view().caches.rows {
            rows.clear();
        }
    }

    /// The keys of a cache, each once and in no order; `None` if the cache is off. With those of
    /// the key cache there is one for each index block that is pinned, which is the part of the
    /// row index that the key cache need not hold.
    pub fn cached_keys(&self, kind: CacheKind) -> Option<BTreeSet<RowKey>> {
        let view = self.view();
        match kind {
            CacheKind::Rows => {
                let rows = view.caches.rows.as_ref()?;
                Some(rows.keys().map(DecoratedKey::into_key).collect())
            }
            CacheKind::Keys => {
                let keys = view.caches.keys.as_ref()?;
                let pinned = view.tables.iter().flat_map(|table| table.pinned_keys());
                let pinned = pinned.map(|key| key.key().clone());
                Some(pinned.chain(keys.keys()).collect())
            }
        }
    }

    /// Most entries that a cache may have; 0 if it is off.
    pub fn cache_capacity(&self, kind: CacheKind) -> u64 {
        let stats = self.cache_stats();
        let stats = match kind {
            CacheKind::Keys => stats.keys,
            CacheKind::Rows => stats.rows,
        };
        stats.map_or(0, |stats| stats.capacity)
    }

    /// Reads what a cache is to know of a row, as if somebody had asked for the row.
    pub fn warm(&self, kind: CacheKind, key: &DecoratedKey) -> Result<(), ReadError> {
        let view = self.view();
        match (kind, &view.caches.rows) {
            (CacheKind::Keys, _) => {
                let hash = filter::hash(key.key().as_bytes());
                for table in view.tables.iter().filter(|table| table.may_contain(key, hash)) {
                    table.find(key, hash, &view.blocks(table, Access::Cached))?;
                }
            }
            (CacheKind::Rows, Some(rows)) => {
                let context = RequestContext::default();
                let mut budget = Budget::counting(Access::Cached, &context);
                self.cached_row(rows, &view, key, &mut budget, Access::Cached)?;
            }
            (CacheKind::Rows, None) => {}
        }
        Ok(())
    }

    /// Looks up in the SSTables of now what the key cache knew of those that were replaced, if that
    /// is wanted. It is what the reads to come would do.
    pub(super) fn preheat_keys(&self, replaced: &[Arc<SsTable>]) {
        let view = self.view();
        let wanted = self.environment.preheats_keys && !replaced.is_empty();
        let Some(cache) = view.caches.keys.as_ref().filter(|_| wanted) else { return };
        let replaced: Vec<u64> = replaced.iter().map(|table| table.cache_id()).collect();
        let partitioner = self.environment.partitioner;
        let keys = cache.keys_of(&replaced).into_iter();
        let mut keys: Vec<DecoratedKey> = keys.map(|key| partitioner.decorate(key)).collect();
        // Else the old entries would drive out the new ones.
        cache.forget_tables(&replaced);
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            if let Err(error) = self.warm(CacheKind::Keys, &key) {
                log::debug!("{}: {key:?} is not cached again: {error}", self.schema);
                return;
            }
        }
    }

    /// All that SSTables have of a row, from the row cache or for it; `None` if it is not to be
    /// cached, or there is nothing of it.
    pub(super) fn cached_row(
        &self,
        rows: &RowCache,
        view: &View,
        key: &DecoratedKey,
        budget: &mut Budget<'_>,
        access: Access,
    ) -> Result<Option<MemtableRow>, ReadError> {
        let loaded = match rows.get(key, view.epoch) {
            Some(known) => known,
            None => match self.load_row(rows, view, key, budget, access) {
                Ok(Some(loaded)) => {
                    self.keep_row(rows, view, key, loaded.clone());
                    loaded.into_row()
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    if matches!(error, ReadError::WouldBlock) {
                        rows.note_repeated();
                    }
                    return Err(error);
                }
            },
        };
        Ok(match loaded {
            CachedRow::Whole(row) => Some(row),
            CachedRow::Refused => None,
        })
    }

    fn load_row(
        &self,
        rows: &RowCache,
        view: &View,
        key: &DecoratedKey,
        budget: &mut Budget<'_>,
        access: Access,
    ) -> Result<Option<LoadedRow>, ReadError> {
        let hash = filter::hash(key.key().as_bytes());
        let holders = view.tables.iter().filter(|table| table.may_contain(key, hash));
        let blocks: Vec<_> = holders.map(|table| view.blocks(table, access)).collect();
        let found = FoundRow::find_all(&blocks, key, hash)?;
        let Some(most_cells) = found.iter().map(|row| row.entry.cells).max() else {
            return Ok(None);
        };
        let sources = found.iter().map(FoundRow::source).collect();
        let reader = RowReader::new(&self.schema, sources);
        match rows.load(&reader, (view.epoch, most_cells), budget) {
            Ok(loaded) => Ok(Some(loaded)),
            // What is asked for may stand in a sound part of the row.
            Err(ReadError::Corrupt(_)) => Ok(Some(LoadedRow::refused(view.epoch))),
            Err(ReadError::Io(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts a row into the cache, unless SSTables have gained content since the view was taken.
    fn keep_row(&self, rows: &RowCache, view: &View, key: &DecoratedKey, row: LoadedRow) {
        let current = self.view.read();
        if current.epoch == view.epoch {
            rows.insert(key, row);
        }
        drop(current);
        rows.enforce();
    }

    /// What a change of the SSTables means for cached rows.
    pub(super) fn rows_change<'a>(
        old: &[Arc<SsTable>],
        new: &[SsTable],
        cause: Cause<'a>,
    ) -> RowsChange<'a> {
        let add = |sum: u64, table: &SsTable| sum.saturating_add(table.properties().tombstones);
        let before = old.iter().fold(0, |sum, table| add(sum, table));
        let after = new.iter().fold(0, add);
        match cause {
            Cause::Flushed(memtable) => RowsChange::Flushed(memtable),
            Cause::RowsDropped | Cause::AllDropped(_) => RowsChange::Others,
            Cause::Merged(_) if old.is_empty() && !new.is_empty() => RowsChange::Others,
            // Some of these may only have been merged with others; which ones, nobody has noted.
            Cause::Merged(_) if after < before => RowsChange::Purged,
            Cause::Merged(_) => RowsChange::None,
        }
    }

    /// Removes from the row cache what is not right any more, after a view with the change was
    /// published; then lets go of the memtable.
    pub(super) fn settle_rows(&self, change: RowsChange<'_>) {
        if let Some(rows) = &self.view().caches.rows {
            match change {
                RowsChange::None => {}
                RowsChange::Flushed(memtable) => rows.forget_flushed(memtable),
                RowsChange::Purged => rows.forget_deletions(),
                RowsChange::Others => rows.clear(),
            }
        }
        if let RowsChange::Flushed(flushed) = change
            && self.view().flushing.iter().any(|memtable| Arc::ptr_eq(memtable, flushed))
        {
            self.publish(|view| view.forget(flushed));
        }
    }
}

impl View {
    /// Takes in what a change of the SSTables means. Without a row cache nobody needs to see a
    /// memtable beside the SSTable that it was written to.
    pub(super) fn note_change(&mut self, change: RowsChange<'_>) {
        match change {
            RowsChange::None => {}
            RowsChange::Flushed(_) | RowsChange::Purged | RowsChange::Others => self.epoch += 1,
        }
        if let RowsChange::Flushed(memtable) = change
            && self.caches.rows.is_none()
        {
            self.forget(memtable);
        }
    }

    fn forget(&mut self, flushed: &Arc<Memtable>) {
        self.flushing.retain(|memtable| !Arc::ptr_eq(memtable, flushed));
    }

    /// The blocks of one of its SSTables, which its key cache hears of.
    pub(super) fn blocks<'a>(&'a self, table: &'a SsTable, access: Access) -> Blocks<'a> {
        Blocks::new(table, access).with_key_cache(self.caches.keys.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::events::Events;
    use crate::kit::clock::ManualClock;
    use crate::kit::disk::SimFileSystem;
    use crate::model::comparator::Comparator;
    use crate::model::deletion::Deletion;
    use crate::model::mutation::MutationBuilder;
    use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
    use crate::model::slice::Slice;
    use crate::ring::Partitioner;
    use crate::storage::database::Components;
    use crate::storage::{Database, FamilyOptions, Options};
    use std::time::Duration;

    const FAMILY: FamilyId = FamilyId(0);

    fn insert(storage: &Database, name: &str, timestamp: i64) {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", b"ada");
        mutation.family(FAMILY).insert((b"", name.as_bytes()), b"value", timestamp);
        storage.apply(&mutation.finish(), true).unwrap();
    }

    fn open(rows_cached: CacheSize) -> Database {
        let components = Components {
            fs: Arc::new(SimFileSystem::new(1)),
            clock: Arc::new(ManualClock::default()),
            events: Events::ignored(),
        };
        let options = Options {
            segment_bytes: 1 << 16,
            memtable_budget_bytes: 1 << 20,
            block_cache_bytes: 1 << 20,
            ..Options::new("/data", "/log")
        };
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let family = ColumnFamilySchema {
            gc_grace: Duration::ZERO,
            ..ColumnFamilySchema::new("Blog".into(), "Authors".into(), kind)
        };
        let schema = Arc::new(Schema::new([Arc::new(family)]));
        let family_options = move |_| FamilyOptions { rows_cached, ..FamilyOptions::default() };
        Database::open(components, options, Partitioner::Random, schema, family_options).unwrap()
    }

    /// Between the view that has the new SSTable and the removal of its rows from the cache, a
    /// reader may find a row there that lacks what was flushed. The memtable must still have it.
    #[test]
    fn a_flushed_memtable_stays_until_its_rows_have_left_the_row_cache() {
        for (cached, stays) in [(CacheSize::Off, false), (CacheSize::Entries(10), true)] {
            let storage = open(cached);
            insert(&storage, "email", 1);
            let store = storage.family(FAMILY);
            let memtable = store.switch_memtable().unwrap();
            let change = RowsChange::Flushed(&memtable);
            let before = store.view();
            store.publish(|view| view.note_change(change));
            assert_eq!(!store.view().flushing.is_empty(), stays, "{cached:?}");
            assert!(store.view().epoch > before.epoch);
            let key = storage.partitioner().decorate(RowKey::from("ada"));
            if let Some(rows) = &before.caches.rows {
                // Who took the view before comes too late to keep anything.
                store.keep_row(rows, &before, &key, LoadedRow::refused(before.epoch));
                assert!(rows.get(&key, u64::MAX).is_none());
                let now = store.view();
                store.keep_row(rows, &now, &key, LoadedRow::refused(now.epoch));
                assert!(rows.get(&key, u64::MAX).is_some());
            }
            store.settle_rows(change);
            assert!(store.view().flushing.is_empty());
            let rows = before.caches.rows.as_ref();
            assert!(rows.is_none_or(|rows| rows.get(&key, u64::MAX).is_none()));
        }
    }

    /// A reader holds a memtable with a column that a deletion on disk covers. Before it looks at
    /// the row cache the memtable is flushed, a compaction drops both, and another reader puts what
    /// is left of the row into the cache.
    #[test]
    fn a_slow_reader_is_not_shown_what_a_purged_deletion_covered() {
        let storage = open(CacheSize::Entries(10));
        let (store, key) =
            (storage.family(FAMILY), storage.partitioner().decorate(RowKey::from("ada")));
        insert(&storage, "name", 1);
        let mut deletion = MutationBuilder::new(storage.schema(), "Blog", b"ada");
        deletion.family(FAMILY).delete_column((b"", b"email"), Deletion::at(6, 0));
        storage.apply(&deletion.finish(), true).unwrap();
        storage.flush(FAMILY).unwrap();
        insert(&storage, "email", 5);
        let slow = store.view();
        storage.flush(FAMILY).unwrap();
        storage.compact(FAMILY).unwrap();
        let all = Slice::all(None);
        let context = RequestContext::default();
        let read =
            |view: &View| store.read_from(view, &key, &all, &context, Access::Cached).unwrap();
        assert_eq!(store.view().tables[0].properties().tombstones, 0, "it is purged");
        assert_eq!(read(&store.view()).count, 1);
        assert_eq!(store.cache_stats().rows.unwrap().size, 1);
        assert_eq!(read(&slow).count, 1);
    }
}
