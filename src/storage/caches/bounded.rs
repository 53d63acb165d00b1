//! The entries of one column family in one kind of cache: as many as the operator allows, in no
//! more memory than is left for them.

use super::CacheStats;
use super::budget::{ByteBudget, Member};
use crate::base::lock::{Mutex, rank};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{Equivalent, UnitWeighter};
use std::collections::hash_map::RandomState;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Approximate memory of an entry besides key and value.
const ENTRY_OVERHEAD: u64 = 128;

/// Attempts to come down to a size in bytes by giving up entries, which are of different sizes.
const SHRINK_ROUNDS: usize = 4;

/// Entries for which a cache is divided into shards if its capacity will change.
const EXPECTED_ENTRIES: u64 = 4096;

/// A cache of values by key. Keys come from clients: the hash is seeded, so that no client can
/// choose them to collide.
#[derive(Debug)]
pub(in crate::storage) struct BoundedCache<K, V>(Arc<Inner<K, V>>);

#[derive(Debug)]
struct Inner<K, V> {
    entries: Cache<K, Arc<Charged<V>>, UnitWeighter, RandomState>,
    bounds: Mutex<rank::State, Bounds>,
    meter: Arc<Meter>,
    /// Misses of reads that were repeated, and miss again.
    repeated: AtomicU64,
}

/// Bounds of the number of entries.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The bound of the operator.
    capacity: u64,
    /// Fewer, when the bytes do not suffice for them.
    in_force: u64,
}

/// Memory of the entries.
#[derive(Debug)]
struct Meter {
    bytes: AtomicU64,
    budget: Arc<ByteBudget>,
}

/// A value with its share of the budget, which is given back when its last user drops it.
#[derive(Debug, derive_more::Deref)]
pub(in crate::storage) struct Charged<V> {
    #[deref]
    value: V,
    bytes: u64,
    meter: Arc<Meter>,
}

impl<V> Drop for Charged<V> {
    fn drop(&mut self) {
        self.meter.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.meter.budget.give_back(self.bytes);
    }
}

impl<K, V> BoundedCache<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + Debug + 'static,
    V: Send + Sync + Debug + 'static,
{
    /// A cache for at most this many entries. `is_final` is false for a share of all keys, which
    /// will change.
    pub(in crate::storage) fn new(capacity: u64, is_final: bool, budget: &Arc<ByteBudget>) -> Self {
        let expected = if is_final { capacity } else { capacity.max(EXPECTED_ENTRIES) };
        let entries = Cache::with(
            usize::try_from(expected.max(1)).unwrap_or(usize::MAX),
            capacity,
            UnitWeighter,
            RandomState::new(),
            DefaultLifecycle::default(),
        );
        let meter = Arc::new(Meter { bytes: AtomicU64::new(0), budget: Arc::clone(budget) });
        let bounds = Mutex::new(Bounds { capacity, in_force: capacity });
        let inner = Arc::new(Inner { entries, bounds, meter, repeated: AtomicU64::new(0) });
        let member: Weak<Inner<K, V>> = Arc::downgrade(&inner);
        budget.join(member);
        Self(inner)
    }

    pub(in crate::storage) fn get<Q>(&self, key: &Q) -> Option<Arc<Charged<V>>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        self.0.entries.get(key)
    }

    /// Keeps a value of this many bytes, key included; others may have to leave. The caller calls
    /// [`BoundedCache::enforce`] as soon as it holds no lock.
    pub(in crate::storage) fn insert(&self, key: K, value: V, bytes: u64) {
        let (bytes, meter) = (bytes + ENTRY_OVERHEAD, Arc::clone(&self.0.meter));
        meter.bytes.fetch_add(bytes, Ordering::Relaxed);
        meter.budget.take(bytes);
        self.0.entries.insert(key, Arc::new(Charged { value, bytes, meter }));
    }

    /// Enforces the bound in bytes.
    pub(in crate::storage) fn enforce(&self) {
        self.0.meter.budget.enforce();
    }

    pub(in crate::storage) fn remove<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ?Sized,
    {
        drop(self.0.entries.remove(key));
    }

    pub(in crate::storage) fn retain(&self, keeps: impl Fn(&K, &V) -> bool) {
        self.0.entries.retain(|key, value| keeps(key, value));
    }

    pub(in crate::storage) fn clear(&self) {
        self.0.entries.clear();
    }

    /// All keys, in no order.
    pub(in crate::storage) fn keys(&self) -> impl Iterator<Item = K> {
        self.0.entries.iter().map(|(key, _)| key)
    }

    /// Changes the bound of the number of entries.
    pub(in crate::storage) fn set_capacity(&self, capacity: u64) {
        let mut bounds = self.0.bounds.lock();
        if bounds.capacity == capacity {
            return;
        }
        let is_squeezed = bounds.in_force < bounds.capacity;
        bounds.capacity = capacity;
        if !is_squeezed || capacity < bounds.in_force {
            bounds.in_force = capacity;
            self.0.entries.set_capacity(capacity);
        }
    }

    /// Notes a miss of a read that must not wait for the disk: it is repeated where it may, as the
    /// same request.
    pub(in crate::storage) fn note_repeated(&self) {
        self.0.repeated.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::storage) fn stats(&self) -> CacheStats {
        let repeated = self.0.repeated.load(Ordering::Relaxed);
        let hits = self.0.entries.hits();
        CacheStats {
            capacity: self.0.bounds.lock().capacity,
            size: self.0.entries.len() as u64,
            bytes: self.0.meter.bytes.load(Ordering::Relaxed),
            hits,
            requests: (hits + self.0.entries.misses()).saturating_sub(repeated).max(hits),
        }
    }
}

impl<K, V> Member for Inner<K, V>
where
    K: Eq + Hash + Clone + Send + Sync + Debug,
    V: Send + Sync + Debug,
{
    fn bytes(&self) -> u64 {
        self.meter.bytes.load(Ordering::Relaxed)
    }

    fn shrink_to(&self, bytes: u64) {
        let mut bounds = self.bounds.lock();
        for _ in 0..SHRINK_ROUNDS {
            let (entries, taken) = (self.entries.len() as u64, self.bytes());
            if taken <= bytes || entries == 0 {
                return;
            }
            let kept = u128::from(entries) * u128::from(bytes) / u128::from(taken);
            // At no entries the cache would forget how it divides its room.
            bounds.in_force = (kept as u64).max(1);
            self.entries.set_capacity(bounds.in_force);
        }
    }

    fn relax(&self) -> bool {
        let mut bounds = self.bounds.lock();
        if bounds.in_force < bounds.capacity {
            let grown = bounds.in_force + bounds.in_force / 8 + 1;
            bounds.in_force = grown.min(bounds.capacity);
            self.entries.set_capacity(bounds.in_force);
        }
        bounds.in_force < bounds.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: u64, budget: &Arc<ByteBudget>) -> BoundedCache<u64, u64> {
        BoundedCache::new(capacity, true, budget)
    }

    fn fill(cache: &BoundedCache<u64, u64>, keys: std::ops::Range<u64>, bytes: u64) {
        for key in keys {
            cache.insert(key, key, bytes);
            cache.enforce();
        }
    }

    #[test]
    fn entries_are_bounded_and_can_be_more_or_fewer_at_run_time() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let cache = cache(10, &budget);
        fill(&cache, 0..100, 1);
        assert_eq!((cache.stats().size, cache.stats().capacity), (10, 10));
        cache.set_capacity(20);
        fill(&cache, 0..100, 1);
        assert_eq!(cache.stats().size, 20);
        cache.set_capacity(3);
        assert_eq!(cache.stats().size, 3);
        assert_eq!(budget.used(), cache.stats().bytes);
        assert_eq!(budget.used(), 3 * (1 + ENTRY_OVERHEAD));
        cache.clear();
        assert_eq!((budget.used(), cache.stats().size), (0, 0));
    }

    #[test]
    fn hits_and_requests_are_counted() {
        let cache = cache(10, &Arc::new(ByteBudget::new(1 << 20)));
        fill(&cache, 0..2, 1);
        assert_eq!(cache.get(&0).map(|value| **value), Some(0));
        assert!(cache.get(&7).is_none());
        assert_eq!((cache.stats().hits, cache.stats().requests), (1, 2));
        assert!(cache.get(&8).is_none());
        cache.note_repeated();
        assert!(cache.get(&8).is_none());
        assert_eq!((cache.stats().hits, cache.stats().requests), (1, 3));
    }

    #[test]
    fn bytes_are_bounded_for_all_together_and_the_largest_gives_way() {
        let budget = Arc::new(ByteBudget::new(100 * (1000 + ENTRY_OVERHEAD)));
        let (large, small) = (cache(100_000, &budget), cache(100_000, &budget));
        fill(&large, 0..1000, 1000);
        assert!(budget.used() <= budget.limit());
        assert!(large.stats().size > 80, "one may use nearly all: {}", large.stats().size);
        fill(&small, 0..20, 1000);
        assert_eq!(small.stats().size, 20, "nobody takes from those who have little");
        assert!(budget.used() <= budget.limit());
        small.clear();
        fill(&large, 0..1000, 1000);
        assert!(large.stats().size > 80, "it grows again: {}", large.stats().size);
    }

    #[test]
    fn what_is_gone_is_given_back_when_the_last_reader_lets_go() {
        let budget = Arc::new(ByteBudget::new(1 << 20));
        let cache = cache(10, &budget);
        fill(&cache, 0..1, 100);
        let held = cache.get(&0);
        cache.remove(&0);
        assert_eq!(budget.used(), 100 + ENTRY_OVERHEAD);
        drop(held);
        assert_eq!(budget.used(), 0);
        fill(&cache, 0..5, 100);
        cache.retain(|key, _| *key > 2);
        assert_eq!(cache.keys().collect::<std::collections::BTreeSet<_>>(), [3, 4].into());
        drop(cache);
        assert_eq!(budget.used(), 0);
    }
}
