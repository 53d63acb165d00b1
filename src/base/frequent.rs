//! The most frequent of many keys, in bounded memory: the algorithm Space-Saving of Metwally,
//! Agrawal and El Abbadi.

use std::collections::{BTreeMap, BTreeSet};

/// Counters of the keys that seem to be the most frequent. Without a free counter a new key takes
/// that of the rarest one, with its count: a count may be too high by its error, never too low.
/// Every key that makes up more than one part in `capacity` of all is among them.
#[derive(Debug)]
pub struct Frequent<K> {
    capacity: usize,
    total: u64,
    counters: BTreeMap<K, Counter>,
    by_count: BTreeSet<(u64, K)>,
}

/// How often a key came, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Upper bound.
    pub count: u64,
    /// Part of it that may be of keys that had the counter before.
    pub error: u64,
}

impl<K: Ord + Clone> Frequent<K> {
    /// Counts nothing yet, and will have this number of counters, at least one.
    pub fn new(capacity: usize) -> Self {
        let (counters, by_count) = Default::default();
        Self { capacity: capacity.max(1), total: 0, counters, by_count }
    }

    /// Counts a key.
    pub fn add(&mut self, key: K) {
        self.total += 1;
        let mut counter = match self.counters.get(&key) {
            Some(counter) => {
                self.by_count.remove(&(counter.count, key.clone()));
                *counter
            }
            None if self.counters.len() < self.capacity => Counter::default(),
            None => self.replace_rarest(),
        };
        counter.count += 1;
        self.by_count.insert((counter.count, key.clone()));
        self.counters.insert(key, counter);
    }

    fn replace_rarest(&mut self) -> Counter {
        let Some((count, rarest)) = self.by_count.pop_first() else { return Counter::default() };
        self.counters.remove(&rarest);
        Counter { count, error: count }
    }

    /// How many keys were counted, each as often as it came.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The keys with the highest counts, the highest first.
    pub fn top(&self) -> impl Iterator<Item = (&K, Counter)> {
        self.by_count.iter().rev().map(|(_, key)| (key, self.counters[key]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut frequent = Frequent::new(3);
        for key in "abacab".chars() {
            frequent.add(key);
        }
        let exactly = |count| Counter { count, error: 0 };
        let top: Vec<_> = frequent.top().collect();
        assert_eq!(top, [(&'a', exactly(3)), (&'b', exactly(2)), (&'c', exactly(1))]);
        assert_eq!(frequent.total(), 6);
    }

    proptest::proptest! {
        #[test]
        fn counts_are_bounds_and_frequent_keys_are_found(
            keys in proptest::collection::vec(proptest::prelude::any::<u8>(), 1..500),
            squeeze in 1_u8..40,
            capacity in 1_usize..20,
        ) {
            let keys: Vec<u8> = keys.into_iter().map(|key| key / squeeze).collect();
            let mut frequent = Frequent::new(capacity);
            let mut counts = BTreeMap::new();
            for key in &keys {
                frequent.add(*key);
                *counts.entry(*key).or_insert(0_u64) += 1;
            }
            let of = |key: u8| counts.get(&key).copied().unwrap_or(0);
            let found: BTreeMap<u8, Counter> = frequent.top().map(|(k, c)| (*k, c)).collect();
            assert!(found.len() <= capacity);
            for (key, Counter { count, error }) in &found {
                assert!((count - error..=*count).contains(&of(*key)));
            }
            for key in 0..=u8::MAX {
                let is_frequent = of(key) > (keys.len() / capacity) as u64;
                assert!(!is_frequent || found.contains_key(&key));
            }
        }
    }
}
