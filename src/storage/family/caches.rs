//! The key cache and the row cache of one column family: their sizes, and their changes when
//! SSTables are replaced.

use super::{Cause, ColumnFamily, View};
use crate::base::context::RequestContext;
use crate::config::settings::CacheSize;
use crate::model::key::RowKey;
use crate::ring::DecoratedKey;
use crate::storage::caches::rows::{CachedRow, LoadedRow};
use crate::storage::caches::{CacheKind, FamilyCacheStats, KeyCache, RowCache};
use crate::storage::error::ReadError;
use crate::storage::memtable::{Memtable, MemtableRow};
use crate::storage::options::FamilyOptions;
use crate::storage::row::{Budget, FoundRow, RowReader};
use crate::storage::sstable::{Access, Blocks, SsTable, filter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Wanted sizes of the caches of a column family.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheSizes {
    pub(super) keys: CacheSize,
    pub(super) rows: CacheSize,
}

/// Effect of a change of the SSTables on cached rows.
#[derive(Debug, Clone, Copy)]
pub(super) enum RowsChange<'a> {
    /// None: the rows are the same.
    None,
    /// The rows of this memtable are in SSTables now.
    Flushed(&'a Arc<Memtable>),
    /// Deletions may be gone.
    Purged,
    /// Rows may be others: they were added or dropped.
    Others,
}

impl ColumnFamily {
    /// Sets the sizes of the caches until the next start. Unlike a share of all keys, these do not
    /// change by themselves.
    pub fn set_cache_capacity(&self, keys: u64, rows: u64) {
        let size =
            |entries| if entries == 0 { CacheSize::Off } else { CacheSize::Entries(entries) };
        self.set_cache_sizes(CacheSizes { keys: size(keys), rows: size(rows) });
    }

    fn set_cache_sizes(&self, to: CacheSizes) {
        let mut sizes = self.cache_sizes.lock();
        *sizes = to;
        self.resize(to);
    }

    /// Takes over the sizes that have changed.
    pub(super) fn follow_cache_sizes(&self, before: &FamilyOptions, now: &FamilyOptions) {
        let CacheSizes { mut keys, mut rows } = *self.cache_sizes.lock();
        if now.keys_cached != before.keys_cached {
            keys = now.keys_cached;
        }
        if now.rows_cached != before.rows_cached {
            rows = now.rows_cached;
        }
        self.set_cache_sizes(CacheSizes { keys, rows });
    }

    /// Resizes caches for a share of all keys.
    pub(super) fn resize_caches(&self) {
        let sizes = self.cache_sizes.lock();
        self.resize(*sizes);
    }

    fn resize(&self, sizes: CacheSizes) {
        let view = self.view();
        let rows = view.tables.iter().map(|table| table.rows());
        let keys_on_disk = rows.fold(0, u64::saturating_add);
        let [keys, rows] = [sizes.keys, sizes.rows].map(|size| size.entries(keys_on_disk));
        let is_final = |size: CacheSize| !matches!(size, CacheSize::Fraction(_));
        if let Some(cache) = view.key_cache.as_ref().filter(|_| keys > 0) {
            cache.entries.set_capacity(keys);
        } else if view.key_cache.is_some() || keys > 0 {
            let budget = &self.environment.key_cache_budget;
            let cache = || Arc::new(KeyCache::new(keys, is_final(sizes.keys), budget));
            let cache = (keys > 0).then(cache);
            self.publish(|view| view.key_cache = cache);
        }
        if let Some(cache) = view.row_cache.as_ref().filter(|_| rows > 0) {
            cache.entries.set_capacity(rows);
        } else if view.row_cache.is_some() || rows > 0 {
            let budget = &self.environment.row_cache_budget;
            let cache = || Arc::new(RowCache::new(rows, is_final(sizes.rows), budget));
            let cache = (rows > 0).then(cache);
            self.publish(|view| {
                view.epoch += 1;
                view.row_cache = cache;
            });
        }
    }

    /// Statistics of its caches.
    pub fn cache_stats(&self) -> FamilyCacheStats {
        let view = self.view();
        FamilyCacheStats {
            keys: view.key_cache.as_ref().map(|keys| keys.entries.stats()),
            rows: view.row_cache.as_ref().map(|rows| rows.stats()),
        }
    }

    /// The keys of a cache, each once and in no order; `None` if the cache is off. With those of
    /// the key cache there is one for each index block that is pinned, which is the part of the
    /// row index that the key cache need not hold.
    pub fn cached_keys(&self, kind: CacheKind) -> Option<BTreeSet<RowKey>> {
        let view = self.view();
        match kind {
            CacheKind::Rows => {
                let rows = view.row_cache.as_ref()?;
                Some(rows.entries.keys().map(DecoratedKey::into_key).collect())
            }
            CacheKind::Keys => {
                let keys = view.key_cache.as_ref()?;
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

    /// Reads a row into a cache, as a request would.
    pub fn warm(&self, kind: CacheKind, key: &DecoratedKey) -> Result<(), ReadError> {
        let view = self.view();
        match (kind, &view.row_cache) {
            (CacheKind::Keys, _) => {
                let hash = filter::hash(key.key().as_bytes());
                for table in view.tables.iter().filter(|table| table.may_contain(key, hash)) {
                    table.find(key, hash, &view.blocks(table, Access::Cached))?;
                }
            }
            (CacheKind::Rows, Some(rows)) => {
                let context = RequestContext::default();
                let mut budget = Budget::counting(Access::Cached, &context);
                self.cached_row(rows, &view, key, &mut budget)?;
            }
            (CacheKind::Rows, None) => {}
        }
        Ok(())
    }

    /// Looks up in the present SSTables the keys that the key cache had of replaced ones, if that
    /// is wanted. Later reads would do so otherwise.
    pub(super) fn preheat_keys(&self, replaced: &[Arc<SsTable>]) {
        let view = self.view();
        let wanted = self.environment.preheats_keys && !replaced.is_empty();
        let Some(cache) = view.key_cache.as_ref().filter(|_| wanted) else { return };
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
                log::debug!("{}: row {} is not cached again: {error}", self.schema(), key.key());
                return;
            }
        }
    }

    /// The merged row of all SSTables, from the row cache or for it; `None` if it is not to be
    /// cached, or there is none.
    pub(super) fn cached_row(
        &self,
        rows: &RowCache,
        view: &View,
        key: &DecoratedKey,
        budget: &mut Budget<'_>,
    ) -> Result<Option<MemtableRow>, ReadError> {
        let loaded = match rows.get(key, view.epoch) {
            Some(known) => known,
            None => match self.load_row(rows, view, key, budget) {
                Ok(Some(loaded)) => {
                    self.keep_row(rows, view, key, loaded.clone());
                    loaded.into_row()
                }
                Ok(None) => return Ok(None),
                Err(error) => {
                    if matches!(error, ReadError::WouldBlock) {
                        rows.entries.note_repeated();
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
    ) -> Result<Option<LoadedRow>, ReadError> {
        let hash = filter::hash(key.key().as_bytes());
        let holders = view.tables.iter().filter(|table| table.may_contain(key, hash));
        let blocks: Vec<_> = holders.map(|table| view.blocks(table, budget.access)).collect();
        let found = FoundRow::find_all(&blocks, key, hash)?;
        let Some(most_cells) = found.iter().map(|row| row.entry.cells).max() else {
            return Ok(None);
        };
        let sources = found.iter().map(FoundRow::source).collect();
        let reader = RowReader::new(&self.schema, sources);
        match rows.load(&reader, (view.epoch, most_cells), budget) {
            Ok(loaded) => Ok(Some(loaded)),
            // The wanted slice may be in a sound part of the row.
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
        rows.entries.enforce();
    }

    /// Effect of a change of the SSTables on cached rows.
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
            Cause::Added | Cause::RowsDropped | Cause::AllDropped(_) => RowsChange::Others,
            // Some of these may only have been merged with others.
            Cause::Merged(_) if after < before || old.iter().any(|table| table.is_legacy()) => {
                RowsChange::Purged
            }
            Cause::Merged(_) => RowsChange::None,
        }
    }

    /// Removes outdated rows from the row cache, after a view with the change was published; then
    /// drops the memtable.
    pub(super) fn settle_rows(&self, change: RowsChange<'_>) {
        if let Some(rows) = &self.view().row_cache {
            match change {
                RowsChange::None => {}
                RowsChange::Flushed(memtable) => rows.forget_flushed(memtable),
                RowsChange::Purged => rows.forget_deletions(),
                RowsChange::Others => rows.entries.clear(),
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
    /// Applies a change of the SSTables. Without a row cache no reader needs a memtable beside the
    /// SSTable to which it was written.
    pub(super) fn note_change(&mut self, change: RowsChange<'_>) {
        match change {
            RowsChange::None => {}
            RowsChange::Flushed(_) | RowsChange::Purged | RowsChange::Others => self.epoch += 1,
        }
        if let RowsChange::Flushed(memtable) = change
            && self.row_cache.is_none()
        {
            self.forget(memtable);
        }
    }

    fn forget(&mut self, flushed: &Arc<Memtable>) {
        self.flushing.retain(|memtable| !Arc::ptr_eq(memtable, flushed));
    }

    /// The blocks of one of its SSTables, with its key cache.
    pub(super) fn blocks<'a>(&'a self, table: &'a SsTable, access: Access) -> Blocks<'a> {
        let mut blocks = Blocks::new(table, access);
        blocks.keys = self.key_cache.as_deref();
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::Now;
    use crate::kit::disk::SimFileSystem;
    use crate::kit::storage::Blog;
    use crate::model::deletion::Deletion;
    use crate::model::mutation::MutationBuilder;
    use crate::model::schema::FamilyId;
    use crate::model::slice::Slice;
    use crate::storage::{Database, FamilyOptions};
    use std::time::Duration;

    const FAMILY: FamilyId = FamilyId(0);

    fn insert(storage: &Database, name: &str, timestamp: i64) {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", b"ada");
        mutation.family(FAMILY).insert((b"", name.as_bytes()), b"value", timestamp);
        storage.apply(&mutation.finish(), true).unwrap();
    }

    fn open(rows_cached: CacheSize) -> Database {
        let family = FamilyOptions { rows_cached, ..FamilyOptions::default() };
        let blog = Blog { family, gc_grace: Duration::ZERO, ..Blog::default() };
        blog.open(&SimFileSystem::new(1)).unwrap()
    }

    /// Between the view that has the new SSTable and the removal of its rows from the cache, a
    /// reader may find a row there that lacks what was flushed. The memtable must still have it.
    #[test]
    fn a_flushed_memtable_stays_until_its_rows_have_left_the_row_cache() {
        for (cached, stays) in [(CacheSize::Off, false), (CacheSize::Entries(10), true)] {
            let storage = open(cached);
            insert(&storage, "email", 1);
            let family = storage.family(FAMILY);
            let memtable = family.switch_memtable().unwrap();
            let change = RowsChange::Flushed(&memtable);
            let before = family.view();
            family.publish(|view| view.note_change(change));
            assert_eq!(!family.view().flushing.is_empty(), stays, "{cached:?}");
            assert!(family.view().epoch > before.epoch);
            let key = storage.partitioner().decorate(RowKey::from("ada"));
            if let Some(rows) = &before.row_cache {
                // Who took the view before comes too late to keep anything.
                family.keep_row(rows, &before, &key, LoadedRow::refused(before.epoch));
                assert!(rows.get(&key, u64::MAX).is_none());
                let now = family.view();
                family.keep_row(rows, &now, &key, LoadedRow::refused(now.epoch));
                assert!(rows.get(&key, u64::MAX).is_some());
            }
            family.settle_rows(change);
            assert!(family.view().flushing.is_empty());
            let rows = before.row_cache.as_ref();
            assert!(rows.is_none_or(|rows| rows.get(&key, u64::MAX).is_none()));
        }
    }

    /// A reader holds a memtable with a column that a deletion on disk covers. Before it looks at
    /// the row cache the memtable is flushed, a compaction drops both, and another reader puts what
    /// is left of the row into the cache.
    #[test]
    fn a_slow_reader_is_not_shown_what_a_purged_deletion_covered() {
        let storage = open(CacheSize::Entries(10));
        let (family, key) =
            (storage.family(FAMILY), storage.partitioner().decorate(RowKey::from("ada")));
        insert(&storage, "name", 1);
        let mut deletion = MutationBuilder::new(storage.schema(), "Blog", b"ada");
        deletion.family(FAMILY).delete_column((b"", b"email"), Deletion::at(6, 0));
        storage.apply(&deletion.finish(), true).unwrap();
        storage.flush(FAMILY).unwrap();
        insert(&storage, "email", 5);
        let slow = family.view();
        storage.flush(FAMILY).unwrap();
        storage.compact(FAMILY).unwrap();
        let all = Slice::all(None);
        let context = RequestContext::default();
        let read = |view: &View| {
            let budget = Budget::collecting(Access::Cached, &context);
            let collect = |row: &RowReader<'_, '_>, budget: &mut Budget<'_>| {
                row.slice((&all, Now::At(0)), false, budget)
            };
            family.read_with(view, &key, budget, collect).unwrap()
        };
        assert_eq!(family.view().tables[0].properties().tombstones, 0, "it is purged");
        assert_eq!(read(&family.view()).count, 1);
        assert_eq!(family.cache_stats().rows.unwrap().size, 1);
        assert_eq!(read(&slow).count, 1);
    }
}
