//! Count and latencies of operations of one kind.
//!
//! The counters are on the path of every read and write. Only each sixteenth operation is
//! timed: percentiles need no more, and two looks at the clock cost several times as much as
//! counting.

use super::clock::Clock;
use super::histogram::{Histogram, Recorder};
use super::striped::Striped;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Operations of which one is timed.
const TIMED_EVERY: u64 = 16;

/// First operations of each stripe, which are all timed: a mean of few should be of all.
const FIRST_TIMED: u64 = 64;

/// Counters of operations. Some 2 KB, and 700 bytes for each thread with a stripe of its own that
/// has done some.
#[derive(Debug, Default)]
pub struct Operations {
    stripes: Striped<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    count: AtomicU64,
    /// The count when the last one was timed, which stands for those before it as well.
    recorded: AtomicU64,
    recorded_nanos: AtomicU64,
    recorder: Recorder,
}

/// Number of operations since the start, and time of those that were recorded: timed, or counted
/// for by the next one that was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// All of them.
    pub count: u64,
    /// Recorded ones.
    pub recorded: u64,
    /// Sum of their latencies.
    pub recorded_nanos: u64,
}

impl Totals {
    /// The difference to earlier totals.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            recorded: self.recorded.saturating_sub(earlier.recorded),
            recorded_nanos: self.recorded_nanos.saturating_sub(earlier.recorded_nanos),
        }
    }

    /// Mean latency; `None` if none was recorded.
    pub fn mean(&self) -> Option<Duration> {
        self.recorded_nanos.checked_div(self.recorded).map(Duration::from_nanos)
    }
}

/// Start of an operation, if it is timed.
#[derive(Debug, Clone, Copy)]
#[must_use = "an operation is counted when it ends"]
pub struct Begun(Option<Duration>);

impl Operations {
    /// Begins an operation. It is counted if it is ended.
    pub fn begin(&self, clock: &dyn Clock) -> Begun {
        let done = self.stripes.own().count.load(Ordering::Relaxed);
        let is_timed = done < FIRST_TIMED || done.is_multiple_of(TIMED_EVERY);
        Begun(is_timed.then(|| clock.monotonic()))
    }

    /// Counts operations that took from `begun` until now.
    pub fn end(&self, count: u64, begun: Begun, clock: &dyn Clock) {
        let took = begun.0.map(|begun| clock.monotonic().saturating_sub(begun));
        self.count(count, took);
    }

    /// Counts an operation that took so long: for those that are few, and all timed.
    pub fn record(&self, took: Duration) {
        self.count(1, Some(took));
    }

    fn count(&self, count: u64, took: Option<Duration>) {
        let counters = self.stripes.own();
        let now = counters.count.fetch_add(count, Ordering::Relaxed) + count;
        if let Some(took) = took {
            let before = counters.recorded.fetch_max(now, Ordering::Relaxed);
            let stands_for = now.saturating_sub(before);
            let nanos = stands_for.saturating_mul(took.as_nanos() as u64);
            counters.recorded_nanos.fetch_add(nanos, Ordering::Relaxed);
            counters.recorder.record(took, stands_for);
        }
    }

    /// Totals of all stripes. A running operation may be counted in part.
    pub fn totals(&self) -> Totals {
        Totals {
            count: self.stripes.sum(|counters| &counters.count),
            recorded: self.stripes.sum(|counters| &counters.recorded),
            recorded_nanos: self.stripes.sum(|counters| &counters.recorded_nanos),
        }
    }

    /// Latencies: a timed operation counts for itself and the untimed ones before it.
    pub fn histogram(&self) -> Histogram {
        let mut histogram = Histogram::default();
        self.stripes.all().for_each(|counters| counters.recorder.add_to(&mut histogram));
        histogram
    }
}

/// Operations that move bytes.
#[derive(Debug, Default)]
pub struct Transfers {
    /// The operations.
    pub operations: Operations,
    /// The bytes of all.
    pub bytes: AtomicU64,
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
        let mut timed = 0;
        for _ in 0..total {
            let begun = operations.begin(&clock);
            timed += u64::from(begun.0.is_some());
            clock.advance(Duration::from_micros(3));
            operations.end(1, begun, &clock);
        }
        assert_eq!(timed, FIRST_TIMED + 10);
        let totals = operations.totals();
        // Those after the last that was timed are not recorded yet.
        assert_eq!((totals.count, totals.recorded), (total, total - TIMED_EVERY + 1));
        assert_eq!(totals.mean(), Some(Duration::from_micros(3)));
        assert_eq!(Operations::default().totals().mean(), None);
        let since = totals.since(&Totals { count: total - 1, ..totals });
        assert_eq!((since.count, since.recorded), (1, 0));
    }

    #[test]
    fn a_slow_operation_weighs_as_much_as_those_it_stands_for() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        let begun = operations.begin(&clock);
        operations.end(9, Begun(None), &clock);
        clock.advance(Duration::from_micros(5));
        operations.end(1, begun, &clock);
        operations.record(Duration::from_micros(16));
        let totals = operations.totals();
        assert_eq!((totals.count, totals.recorded), (11, 11));
        assert_eq!(totals.recorded_nanos, 10 * 5000 + 16_000);
    }

    #[test]
    fn the_histogram_counts_all_up_to_the_last_that_was_timed() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        for micros in 0..FIRST_TIMED + 5 * TIMED_EVERY {
            let begun = operations.begin(&clock);
            clock.advance(Duration::from_micros(micros));
            // Several at a time, so that the numbers that are timed are not all met.
            operations.end(3, begun, &clock);
            let all: u64 = operations.histogram().buckets().iter().sum();
            let count = operations.totals().count;
            assert!(all <= count && count - all < 3 * TIMED_EVERY, "{all} {count}");
            assert_eq!(all, operations.totals().recorded);
            if begun.0.is_some() {
                assert_eq!(all, count);
            }
        }
    }

    #[test]
    fn what_was_not_ended_does_not_count() {
        let clock = ManualClock::default();
        let operations = Operations::default();
        let _refused = operations.begin(&clock);
        assert_eq!(operations.totals(), Totals::default());
        let begun = operations.begin(&clock);
        operations.end(5, begun, &clock);
        assert_eq!(operations.totals().count, 5);
    }
}
