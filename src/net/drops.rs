//! Messages that were not acted on, because their time was over or too many waited.

use super::verb::Verb;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many messages of each verb were dropped.
#[derive(Debug, Default)]
pub struct Drops {
    counts: [Count; Verb::ALL.len()],
}

#[derive(Debug, Default)]
struct Count {
    total: AtomicU64,
    told: AtomicU64,
}

impl Drops {
    /// Counts one.
    pub fn count(&self, verb: Verb) {
        self.of(verb).total.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were since the start.
    pub fn total(&self, verb: Verb) -> u64 {
        self.of(verb).total.load(Ordering::Relaxed)
    }

    /// Those that were not told of yet: a verb and how many, for each that has any.
    pub fn news(&self) -> Vec<(Verb, u64)> {
        let news = |verb: Verb| {
            let count = self.of(verb);
            let total = count.total.load(Ordering::Relaxed);
            (verb, total - count.told.swap(total, Ordering::Relaxed))
        };
        Verb::ALL.into_iter().map(news).filter(|(_, count)| *count > 0).collect()
    }

    fn of(&self, verb: Verb) -> &Count {
        &self.counts[verb.ordinal() as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once() {
        let drops = Drops::default();
        drops.count(Verb::Read);
        drops.count(Verb::Read);
        drops.count(Verb::Mutation);
        assert_eq!(drops.news(), [(Verb::Mutation, 1), (Verb::Read, 2)]);
        assert_eq!(drops.news(), []);
        drops.count(Verb::Read);
        assert_eq!((drops.news(), drops.total(Verb::Read)), (vec![(Verb::Read, 1)], 3));
    }
}
