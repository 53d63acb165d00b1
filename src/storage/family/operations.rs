//! Counts and latencies of the reads and writes of a column family.
//!
//! The counters are on the path of every read and write. They are spread over stripes, each with
//! cache lines of its own, and a thread stays with one stripe, so that cores do not contend. Only
//! each [`TIMED_EVERY`]th operation is timed: a mean needs no more, and two looks at the clock cost
//! several times as much as counting.

use super::histogram::{Histogram, Recorder};
use crate::base::clock::Clock;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Copies of the counters. Some 4 KB for each column family, and 700 bytes for each kind of
/// operation that a thread with a stripe of its own has done.
const STRIPES: usize = 16;

/// Operations of which one is timed.
const TIMED_EVERY: u64 = 16;

/// First operations of each stripe, which are all timed: a mean of few should be of all.
const FIRST_TIMED: u64 = 64;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A slice of one row.
    Read,
    /// A slice of the rows of a range, which counts once.
    RangeRead,
    /// The part of one mutation in the column family.
    Write,
}

/// Counters of one column family.
#[derive(Debug, Default)]
pub struct Operations {
    stripes: [Stripe; STRIPES],
}

/// Counters of each [`Operation`], aligned to two cache lines: processors fetch pairs of them.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([Counters; 3]);

#[derive(Debug, Default)]
struct Counters {
    count: AtomicU64,
    timed: AtomicU64,
    timed_nanos: AtomicU64,
    /// The count when the last one was timed, which stands for those before it as well.
    recorded: AtomicU64,
    recorder: Recorder,
}

/// Number of operations since the start, and time of the timed ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// All of them.
    pub count: u64,
    /// Timed ones.
    pub timed: u64,
    /// Sum of their latencies.
    pub timed_nanos: u64,
}

impl Totals {
    /// The difference to earlier totals.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            timed: self.timed.saturating_sub(earlier.timed),
            timed_nanos: self.timed_nanos.saturating_sub(earlier.timed_nanos),
        }
    }

    /// Mean latency; `None` if none was timed.
    pub fn mean(&self) -> Option<Duration> {
        self.timed_nanos.checked_div(self.timed).map(Duration::from_nanos)
    }
}

/// Start of an operation, if it is timed.
#[derive(Debug, Clone, Copy)]
#[must_use = "an operation is counted when it ends"]
pub struct Begun(Option<Duration>);

impl Operations {
    /// Begins an operation. It is counted if it is ended.
    pub fn begin(&self, operation: Operation, clock: &dyn Clock) -> Begun {
        let done = self.of_this_thread(operation).count.load(Ordering::Relaxed);
        let is_timed = done < FIRST_TIMED || done.is_multiple_of(TIMED_EVERY);
        Begun(is_timed.then(|| clock.monotonic()))
    }

    /// Counts operations that took from `begun` until now.
    pub fn end(&self, operation: Operation, count: u64, begun: Begun, clock: &dyn Clock) {
        let counters = self.of_this_thread(operation);
        let now = counters.count.fetch_add(count, Ordering::Relaxed) + count;
        if let Begun(Some(begun)) = begun {
            let took = clock.monotonic().saturating_sub(begun);
            counters.timed.fetch_add(1, Ordering::Relaxed);
            counters.timed_nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            let recorded = counters.recorded.fetch_max(now, Ordering::Relaxed);
            counters.recorder.record(took, now.saturating_sub(recorded));
        }
    }

    /// Totals of all stripes. A running operation may be counted in part.
    pub fn totals(&self, operation: Operation) -> Totals {
        let mut totals = Totals::default();
        for stripe in &self.stripes {
            let counters = &stripe.0[operation as usize];
            totals.count += counters.count.load(Ordering::Relaxed);
            totals.timed += counters.timed.load(Ordering::Relaxed);
            totals.timed_nanos += counters.timed_nanos.load(Ordering::Relaxed);
        }
        totals
    }

    /// Latencies: a timed operation counts for itself and the untimed ones before it.
    pub fn histogram(&self, operation: Operation) -> Histogram {
        let mut histogram = Histogram::default();
        for stripe in &self.stripes {
            stripe.0[operation as usize].recorder.add_to(&mut histogram);
        }
        histogram
    }

    fn of_this_thread(&self, operation: Operation) -> &Counters {
        let stripe = STRIPE.with(|stripe| *stripe);
        &self.stripes[stripe % STRIPES].0[operation as usize]
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
    use crate::kit::clock::ManualClock;

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
    fn the_histogram_counts_all_up_to_the_last_that_was_timed() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        for micros in 0..FIRST_TIMED + 5 * TIMED_EVERY {
            let begun = operations.begin(Operation::Write, &clock);
            clock.advance(Duration::from_micros(micros));
            // Several at a time, so that the numbers that are timed are not all met.
            operations.end(Operation::Write, 3, begun, &clock);
            let all: u64 = operations.histogram(Operation::Write).buckets().iter().sum();
            let count = operations.totals(Operation::Write).count;
            assert!(all <= count && count - all < 3 * TIMED_EVERY, "{all} {count}");
            if begun.0.is_some() {
                assert_eq!(all, count);
            }
        }
        let reads = operations.histogram(Operation::Read);
        assert_eq!(reads, Histogram::default());
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
        let used = |stripe: &&Stripe| {
            stripe.0[Operation::RangeRead as usize].count.load(Ordering::Relaxed) > 0
        };
        // Other tests start threads as well, and take numbers in between.
        assert!(operations.stripes.iter().filter(used).count() > 1);
        assert_eq!(operations.totals(Operation::RangeRead).count, STRIPES as u64);
    }
}
