//! What the cache thread does: fills key and row caches with what was saved before the start, and
//! saves their keys from time to time.
//!
//! Filling begins when the node can serve, and takes one row after the other in the order in which
//! they stand on disk, until everything is read, the cache is full, or the node stops.

use super::super::background::{Next, WorkQueue};
use super::super::caches::{ByteBudget, CacheKind, saved};
use super::super::directory;
use super::super::error::FileContext;
use super::super::family::ColumnFamily;
use super::Core;
use crate::base::lock::{Mutex, rank};
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::ring::DecoratedKey;
use log::Level;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the thread looks whether a cache is to be saved.
const TICK: Duration = Duration::from_secs(1);

const TARGET: &str = "alexandra::cache";

const KINDS: [CacheKind; 2] = [CacheKind::Keys, CacheKind::Rows];

/// What the cache thread and those who save caches on request share.
#[derive(Debug)]
pub(super) struct SavedCaches {
    /// Carries no work: the thread waits on it.
    ticks: WorkQueue,
    directory: Option<PathBuf>,
    /// Held while the file of a cache is written.
    saving: Mutex<rank::Files, ()>,
    /// What was saved before the start has been read.
    are_filled: AtomicBool,
}

impl SavedCaches {
    pub(super) fn new(directory: Option<PathBuf>) -> Self {
        let (ticks, saving) = (WorkQueue::default(), Mutex::new(()));
        Self { ticks, directory, saving, are_filled: AtomicBool::new(false) }
    }

    /// Whether there is anything for a thread to do.
    pub(super) fn are_wanted(&self) -> bool {
        self.directory.is_some()
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.ticks.close();
    }
}

impl Core {
    /// Saves the keys of all key and row caches, whether they are saved from time to time or not.
    /// Failures are told to the operator.
    pub fn save_caches(&self) {
        self.save_caches_if(|_| true);
    }

    pub(super) fn run_caches(&self) {
        self.fill_caches();
        let mut saved_at: BTreeMap<(FamilyId, CacheKind), Duration> = BTreeMap::new();
        loop {
            if self.caches.ticks.next(TICK) == Next::Closed {
                return;
            }
            let now = self.environment.clock.monotonic();
            for (store, kind) in self.families().flat_map(|it| KINDS.map(|kind| (it, kind))) {
                let Some(period) = save_period(store, kind) else { continue };
                let saved_at = saved_at.entry((store.id(), kind)).or_insert(self.opened_at);
                if now.saturating_sub(*saved_at) >= period {
                    self.save_cache(store, kind);
                    *saved_at = now;
                }
            }
        }
    }

    /// Saves those caches at the end that are saved from time to time, when the cache thread has
    /// ended. If the node stopped before they were filled, what was saved before is worth more.
    pub(super) fn save_caches_at_end(&self) {
        if self.caches.are_filled.load(Ordering::Acquire) {
            self.save_caches_if(|period| period.is_some());
        }
    }

    fn save_caches_if(&self, which: impl Fn(Option<Duration>) -> bool) {
        for store in self.families() {
            for kind in KINDS {
                if which(save_period(store, kind)) {
                    self.save_cache(store, kind);
                }
            }
        }
    }

    fn save_cache(&self, store: &ColumnFamily, kind: CacheKind) {
        let Some(path) = self.saved_cache(store, kind) else { return };
        let Some(keys) = store.cached_keys(kind) else { return };
        let (fs, clock) = (&*self.environment.fs, &self.environment.clock);
        let begun = clock.monotonic();
        let _one_at_a_time = self.caches.saving.lock();
        let folder = path.parent().unwrap_or(Path::new("."));
        let written = directory::create(fs, folder)
            .context("create", folder)
            .and_then(|()| saved::write(fs, &path, keys));
        let (events, family) = (&self.environment.events, store.schema());
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

    fn fill_caches(&self) {
        let caches = self.families().flat_map(|store| KINDS.map(|kind| (store, kind)));
        if caches.into_iter().all(|(store, kind)| self.fill_cache(store, kind)) {
            self.caches.are_filled.store(true, Ordering::Release);
        }
    }

    /// Returns whether all was read that was to be read: the node did not stop meanwhile.
    fn fill_cache(&self, store: &ColumnFamily, kind: CacheKind) -> bool {
        let (capacity, fs) = (store.cache_capacity(kind), &*self.environment.fs);
        let Some(path) = self.saved_cache(store, kind).filter(|path| fs.exists(path)) else {
            return true;
        };
        let (events, family) = (&self.environment.events, store.schema());
        let (keys, result) = saved::read(fs, &path, capacity);
        if let Err(error) = result {
            let line = format_args!("error reading saved {kind} cache of {family}: {error}");
            events.tell(Level::Warn, TARGET, line);
        }
        if keys.is_empty() {
            return true;
        }
        let clock = &self.environment.clock;
        let begun = clock.monotonic();
        let Some(keys) = self.warm(store, kind, keys) else { return false };
        let took = clock.monotonic().saturating_sub(begun).as_millis();
        let ColumnFamilySchema { keyspace, name, .. } = &**family;
        let line = format_args!(
            "completed loading ({took} ms; {keys} keys) {kind} cache for {name} of {keyspace}"
        );
        events.tell(Level::Info, TARGET, line);
        true
    }

    /// Reads rows into a cache; returns how many were read, and nothing if the node stopped.
    fn warm(&self, store: &ColumnFamily, kind: CacheKind, keys: Vec<RowKey>) -> Option<u64> {
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
            // What would come after this would push out what came before.
            if self.budget(kind).is_used_up() {
                break;
            }
            match store.warm(kind, &key) {
                Ok(()) => read += 1,
                // Whoever asks for the row will hear of it.
                Err(error) => log::debug!("{}: {key:?} is not cached: {error}", store.schema()),
            }
        }
        Some(read)
    }

    fn budget(&self, kind: CacheKind) -> &ByteBudget {
        match kind {
            CacheKind::Keys => &self.environment.key_cache_budget,
            CacheKind::Rows => &self.environment.row_cache_budget,
        }
    }

    fn saved_cache(&self, store: &ColumnFamily, kind: CacheKind) -> Option<PathBuf> {
        let schema = store.schema();
        let name = saved::file_name(&schema.keyspace, &schema.name, kind);
        Some(self.caches.directory.as_ref()?.join(name))
    }
}

fn save_period(store: &ColumnFamily, kind: CacheKind) -> Option<Duration> {
    match kind {
        CacheKind::Keys => store.options().key_cache_save_period,
        CacheKind::Rows => store.options().row_cache_save_period,
    }
}
