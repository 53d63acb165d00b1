//! Counters on the path of every request.

use std::array::from_fn;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Copies of the counters.
const STRIPES: usize = 16;

/// Counters in several copies, each with cache lines of its own. A thread stays with one copy, so
/// that cores do not contend.
#[derive(Debug)]
pub struct Striped<T>([Stripe<T>; STRIPES]);

/// Aligned to two cache lines: processors fetch pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe<T>(T);

impl<T: Default> Default for Striped<T> {
    fn default() -> Self {
        Self(from_fn(|_| Stripe::default()))
    }
}

impl<T> Striped<T> {
    /// The copy of this thread.
    pub fn own(&self) -> &T {
        let stripe = STRIPE.with(|stripe| *stripe);
        &self.0[stripe % STRIPES].0
    }

    /// All copies.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|Stripe(counters)| counters)
    }

    /// Sum of one counter of all copies.
    pub fn sum(&self, counter: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.all().map(|counters| counter(counters).load(Ordering::Relaxed)).sum()
    }
}

thread_local! {
    /// The stripe of a thread. Thread numbers are consecutive, so that threads which are started
    /// together, one for each core, have different stripes.
    static STRIPE: usize = {
        let numbering = BuildHasherDefault::<ThreadNumber>::default();
        numbering.hash_one(std::thread::current().id()) as usize
    };
}

/// Extracts the number of a thread's id, which only a hasher can see.
#[derive(Debug, Default)]
struct ThreadNumber(u64);

impl Hasher for ThreadNumber {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_started_together_count_apart() {
        let counters = Striped::<AtomicU64>::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES {
                scope.spawn(|| counters.own().fetch_add(1, Ordering::Relaxed));
            }
        });
        // Other tests start threads as well, and take numbers in between.
        let used = counters.all().filter(|it| it.load(Ordering::Relaxed) > 0);
        assert!(used.count() > 1);
        assert_eq!(counters.sum(|it| it), STRIPES as u64);
    }
}
