//! How often a column family was read and written, and how long that took.
//!
//! The counters lie on the path of every read and write. They are spread over stripes, each with
//! cache lines of its own, and a thread stays with one stripe, so that cores do not take the
//! counters from each other. The clock is not asked at every operation but at each
//! [`TIMED_EVERY`]th: a mean needs no more, and two looks at the clock cost several times what the
//! counting does.

use crate::base::clock::Clock;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Copies of the counters. Some 2 KB for each column family.
const STRIPES: usize = 16;

/// Of so many operations one is timed.
const TIMED_EVERY: u64 = 16;

/// The first operations of each stripe are timed, all of them: a mean of few should be of all.
const FIRST_TIMED: u64 = 64;

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A slice of one row.
    Read,
    /// A slice of each row of a range: one, however many rows.
    RangeRead,
    /// What one mutation does to the column family.
    Write,
}

/// Counters of one column family.
#[derive(Debug, Default)]
pub struct Operations {
    stripes: [Stripe; STRIPES],
}

/// Aligned to two cache lines, since processors fetch pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    reads: Counters,
    range_reads: Counters,
    writes: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    count: AtomicU64,
    timed: AtomicU64,
    timed_nanos: AtomicU64,
}

/// How often something was done since the start, and how long those took that were timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// All of them.
    pub count: u64,
    /// How many were timed.
    pub timed: u64,
    /// How long these took together.
    pub timed_nanos: u64,
}

impl Totals {
    /// What was added since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            timed: self.timed.saturating_sub(earlier.timed),
            timed_nanos: self.timed_nanos.saturating_sub(earlier.timed_nanos),
        }
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            timed: self.timed + other.timed,
            timed_nanos: self.timed_nanos + other.timed_nanos,
        }
    }

    /// How long one took on average; `None` if none was timed.
    pub fn mean(&self) -> Option<Duration> {
        self.timed_nanos.checked_div(self.timed).map(Duration::from_nanos)
    }
}

/// When an operation began, if it is one of those that are timed.
#[derive(Debug, Clone, Copy)]
#[must_use = "an operation is counted when it ends"]
pub struct Begun(Option<Duration>);

impl Operations {
    /// Looks at the clock if this operation is to be timed. What is not ended is not counted.
    pub fn begin(&self, operation: Operation, clock: &dyn Clock) -> Begun {
        let done = self.of_this_thread(operation).count.load(Ordering::Relaxed);
        let is_timed = done < FIRST_TIMED || done.is_multiple_of(TIMED_EVERY);
        Begun(is_timed.then(|| clock.monotonic()))
    }

    /// Counts so many operations that took from `begun` until now.
    pub fn end(&self, operation: Operation, count: u64, begun: Begun, clock: &dyn Clock) {
        let counters = self.of_this_thread(operation);
        counters.count.fetch_add(count, Ordering::Relaxed);
        if let Begun(Some(begun)) = begun {
            let nanos = clock.monotonic().saturating_sub(begun).as_nanos() as u64;
            counters.timed.fetch_add(1, Ordering::Relaxed);
            counters.timed_nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }

    /// All stripes together. Operations under way may be seen by half.
    pub fn totals(&self, operation: Operation) -> Totals {
        let stripes = self.stripes.iter().map(|stripe| stripe.counters(operation));
        stripes.fold(Totals::default(), |totals, counters| {
            totals.plus(&Totals {
                count: counters.count.load(Ordering::Relaxed),
                timed: counters.timed.load(Ordering::Relaxed),
                timed_nanos: counters.timed_nanos.load(Ordering::Relaxed),
            })
        })
    }

    fn of_this_thread(&self, operation: Operation) -> &Counters {
        let stripe = STRIPE.with(|stripe| *stripe);
        self.stripes[stripe % STRIPES].counters(operation)
    }
}

impl Stripe {
    fn counters(&self, operation: Operation) -> &Counters {
        match operation {
            Operation::Read => &self.reads,
            Operation::RangeRead => &self.range_reads,
            Operation::Write => &self.writes,
        }
    }
}

thread_local! {
    /// The stripe of a thread. Numbers of threads follow each other, so that those which are
    /// started together, one for each core, all get another.
    static STRIPE: usize = {
        let numbering = BuildHasherDefault::<ThreadNumber>::default();
        numbering.hash_one(std::thread::current().id()) as usize
    };
}

/// Takes the number out of a thread's id, which gives it to nothing but a hasher.
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
    use crate::base::clock::ManualClock;

    #[test]
    fn every_operation_is_counted_and_some_are_timed() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        let total = FIRST_TIMED + 10 * TIMED_EVERY;
        for _ in 0..total {
            let begun = operations.begin(Operation::Read, &clock);
            clock.advance(Duration::from_micros(3));
            operations.end(Operation::Read, 1, begun, &clock);
        }
        let reads = operations.totals(Operation::Read);
        assert_eq!((reads.count, reads.timed), (total, FIRST_TIMED + 10));
        assert_eq!(reads.mean(), Some(Duration::from_micros(3)));
        assert_eq!(operations.totals(Operation::Write).mean(), None);
        let since = reads.since(&Totals { count: total - 1, ..reads });
        assert_eq!((since.count, since.timed), (1, 0));
    }

    #[test]
    fn what_was_not_ended_does_not_count() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        let _refused = operations.begin(Operation::Write, &clock);
        assert_eq!(operations.totals(Operation::Write), Totals::default());
        let begun = operations.begin(Operation::Write, &clock);
        operations.end(Operation::Write, 5, begun, &clock);
        assert_eq!(operations.totals(Operation::Write).count, 5);
    }

    #[test]
    fn threads_that_are_started_together_count_apart() {
        let operations = Operations::default();
        let clock = ManualClock::default();
        std::thread::scope(|scope| {
            for _ in 0..STRIPES {
                let count = || {
                    let begun = operations.begin(Operation::RangeRead, &clock);
                    operations.end(Operation::RangeRead, 1, begun, &clock);
                };
                scope.spawn(count);
            }
        });
        let used = |stripe: &&Stripe| stripe.range_reads.count.load(Ordering::Relaxed) > 0;
        // Other tests start threads as well, and take numbers in between.
        assert!(operations.stripes.iter().filter(used).count() > 1);
        assert_eq!(operations.totals(Operation::RangeRead).count, STRIPES as u64);
    }
}
