//! The cache thread: fills key and row caches with the rows that were saved before the start, and
//! saves their keys periodically.
//!
//! Filling begins when the node can serve, and reads one row after the other in the order of the
//! disk, until everything is read, the cache is full, or the node stops.

use super::super::caches::{ByteBudget, CacheKind, saved};
use super::super::directory;
use super::super::error::FileContext;
use super::super::family::ColumnFamily;
use super::Core;
use crate::model::key::RowKey;
use crate::ring::DecoratedKey;
use log::Level;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Period at which the thread looks for caches to save.
const TICK: Duration = Duration::from_secs(1);

const TARGET: &str = "alexandra::cache";

impl Core {
    fn all_caches(&self) -> impl Iterator<Item = (&Arc<ColumnFamily>, CacheKind)> {
        let kinds = [CacheKind::Keys, CacheKind::Rows];
        self.families().flat_map(move |family| kinds.map(|kind| (family, kind)))
    }

    /// The loop of the cache thread.
    pub(super) fn run_caches(&self) {
        if self.all_caches().all(|(family, kind)| self.fill_cache(family, kind)) {
            self.are_caches_filled.store(true, Ordering::Release);
        }
        let mut saved_at = BTreeMap::new();
        while self.workers.rest(TICK) {
            let now = self.environment.clock.monotonic();
            for (family, kind) in self.all_caches() {
                let Some(period) = save_period(family, kind) else { continue };
                let saved_at = saved_at.entry((family.id(), kind)).or_insert(self.opened_at);
                if now.saturating_sub(*saved_at) >= period {
                    self.save_cache(family, kind);
                    *saved_at = now;
                }
            }
        }
    }

    /// Saves at the end the caches that are saved periodically. If the node stopped before they
    /// were filled, the older files are worth more.
    pub(super) fn save_caches_at_end(&self) {
        if self.are_caches_filled.load(Ordering::Acquire) {
            let periodic = self.all_caches().filter(|(it, kind)| save_period(it, *kind).is_some());
            periodic.for_each(|(family, kind)| self.save_cache(family, kind));
        }
    }

    fn save_cache(&self, family: &ColumnFamily, kind: CacheKind) {
        let Some(path) = self.saved_cache(family, kind) else { return };
        let Some(keys) = family.cached_keys(kind) else { return };
        let (fs, clock) = (&*self.environment.fs, &self.environment.clock);
        let begun = clock.monotonic();
        let _one_at_a_time = self.saving_caches.lock();
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = directory::create(fs, folder)
            .context("create", folder)
            .and_then(|()| saved::write(fs, &path, keys));
        let (events, family) = (&self.environment.events, family.schema());
        match written {
            Ok(keys) => {
                let took = clock.monotonic().saturating_sub(begun).as_millis();
                let line =
                    format_args!("saved {keys} keys of the {kind} cache of {family} in {took} ms");
                events.tell(Level::Debug, TARGET, line);
            }
            Err(error) => {
                let line = format_args!("the {kind} cache of {family} is not saved: {error}");
                events.tell(Level::Warn, TARGET, line);
            }
        }
    }

    /// Fills a cache. False if the node stopped before all was read.
    fn fill_cache(&self, family: &ColumnFamily, kind: CacheKind) -> bool {
        let fs = &*self.environment.fs;
        let Some(path) = self.saved_cache(family, kind) else { return true };
        let (events, schema) = (&self.environment.events, family.schema());
        let (keys, result) = saved::read(fs, &path, family.cache_capacity(kind));
        if let Err(error) = result {
            let line = format_args!("error reading saved {kind} cache of {schema}: {error}");
            events.tell(Level::Warn, TARGET, line);
        }
        if keys.is_empty() {
            return true;
        }
        let clock = &self.environment.clock;
        let begun = clock.monotonic();
        let Some(keys) = self.warm(family, kind, keys) else { return false };
        let took = clock.monotonic().saturating_sub(begun).as_millis();
        let (keyspace, name) = (&schema.keyspace, &schema.name);
        let line = format_args!(
            "completed loading ({took} ms; {keys} keys) {kind} cache for {name} of {keyspace}"
        );
        events.tell(Level::Info, TARGET, line);
        true
    }

    /// Reads rows into a cache. Returns their number; `None` if the node stopped.
    fn warm(&self, family: &ColumnFamily, kind: CacheKind, keys: Vec<RowKey>) -> Option<u64> {
        let partitioner = self.environment.partitioner;
        let mut keys: Vec<DecoratedKey> =
            keys.into_iter().map(|key| partitioner.decorate(key)).collect();
        keys.sort_unstable();
        keys.dedup();
        let mut read = 0;
        for key in keys {
            if self.stopping.load(Ordering::Relaxed) {
                return None;
            }
            // Further rows would push out the first ones.
            if self.cache_budget(kind).is_used_up() {
                break;
            }
            match family.warm(kind, &key) {
                Ok(()) => read += 1,
                // A read of the row will fail as well.
                Err(error) => {
                    log::debug!("{}: row {} is not cached: {error}", family.schema(), key.key());
                }
            }
        }
        Some(read)
    }

    fn cache_budget(&self, kind: CacheKind) -> &ByteBudget {
        match kind {
            CacheKind::Keys => &self.environment.key_cache_budget,
            CacheKind::Rows => &self.environment.row_cache_budget,
        }
    }

    fn saved_cache(&self, family: &ColumnFamily, kind: CacheKind) -> Option<PathBuf> {
        let schema = family.schema();
        let name = saved::file_name(&schema.keyspace, &schema.name, kind);
        Some(self.options.caches.saved_directory.as_ref()?.join(name))
    }
}

fn save_period(family: &ColumnFamily, kind: CacheKind) -> Option<Duration> {
    match kind {
        CacheKind::Keys => family.options().key_cache_save_period,
        CacheKind::Rows => family.options().row_cache_save_period,
    }
}
