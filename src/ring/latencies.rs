//! Histogram of recent latencies, for percentiles.

use crate::base::lock::{Mutex, rank};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Buckets for each doubling, as a power of two: a percentile is right within an eighth.
const STEP_BITS: u32 = 3;

/// Buckets for each doubling.
const STEPS: u32 = 1 << STEP_BITS;

/// All latencies that 32 bits of microseconds can say, more than an hour.
const BUCKETS: usize = ((u32::BITS - STEP_BITS + 1) * STEPS) as usize;

/// Time after which an answer counts half.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Recent latencies. A bucket holds those from its least up to the next one's; recording is one
/// addition to one of them, so threads record without waiting for each other.
#[derive(Debug)]
pub struct RecentLatencies {
    buckets: [AtomicU32; BUCKETS],
    /// Time of the last halving of the counts; `None` before the first call. Lock: held
    /// while they are halved.
    halved: Mutex<rank::State, Option<Duration>>,
}

impl RecentLatencies {
    /// Takes the latency of an answer.
    pub fn record(&self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        // The count cannot overflow between two halvings.
        self.buckets[bucket(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// Lets earlier answers count less, by the time that has passed since the last call. `now` is
    /// a monotonic time. To be called every few seconds.
    pub fn decay(&self, now: Duration) {
        let mut halved = self.halved.lock();
        let last = halved.get_or_insert(now);
        let times = now.saturating_sub(*last).as_nanos() / HALF_LIFE.as_nanos();
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        *last = last.saturating_add(HALF_LIFE.saturating_mul(times));
        if times == 0 {
            return;
        }
        for bucket in &self.buckets {
            let count = bucket.load(Ordering::Relaxed);
            let left = count.checked_shr(times).unwrap_or(0);
            // What is added meanwhile stays.
            bucket.fetch_sub(count - left, Ordering::Relaxed);
        }
    }

    /// Number of recent answers, with earlier ones as they have decayed.
    pub fn count(&self) -> u64 {
        self.counts().iter().copied().map(u64::from).sum()
    }

    /// The latency that this percentage of recent answers did not exceed, up to an eighth more than
    /// it was; `None` if there are no recent answers. Reads all buckets, so frequent callers should
    /// keep the result for a while.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let counts = self.counts();
        let all: u64 = counts.iter().copied().map(u64::from).sum();
        let wanted = (all as f64 * percent / 100.0).ceil().clamp(1.0, all.max(1) as f64) as u64;
        let mut seen = 0;
        let found = counts.iter().position(|&count| {
            seen += u64::from(count);
            seen >= wanted
        });
        found.map(|place| Duration::from_micros(greatest(place)))
    }

    /// All buckets, each looked at once.
    fn counts(&self) -> [u32; BUCKETS] {
        std::array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed))
    }
}

impl Default for RecentLatencies {
    fn default() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], halved: Mutex::new(None) }
    }
}

/// The bucket of a latency: the first sixteen hold one number each, the next eight two, and so on.
fn bucket(micros: u32) -> usize {
    let doublings = micros.checked_ilog2().unwrap_or(0).saturating_sub(STEP_BITS);
    (doublings * STEPS + (micros >> doublings)) as usize
}

/// The greatest latency of a bucket, in microseconds.
fn greatest(bucket: usize) -> u64 {
    let (bucket, steps) = (bucket as u64, u64::from(STEPS));
    let doublings = (bucket / steps).saturating_sub(1);
    let step = bucket - doublings * steps;
    ((step + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn each_bucket_ends_where_the_next_begins() {
        for place in 0..BUCKETS - 1 {
            let last = u32::try_from(greatest(place)).unwrap();
            assert_eq!((bucket(last), bucket(last + 1)), (place, place + 1));
        }
        assert_eq!(bucket(0), 0);
        assert_eq!((bucket(u32::MAX), greatest(BUCKETS - 1)), (BUCKETS - 1, u32::MAX.into()));
    }

    #[test]
    fn old_answers_count_less_and_less() {
        let latencies = RecentLatencies::default();
        assert_eq!(latencies.percentile(99.0), None);
        (0..64).for_each(|_| latencies.record(micros(1000)));
        latencies.decay(Duration::from_secs(100));
        latencies.decay(Duration::from_secs(109));
        assert_eq!(latencies.count(), 64);
        latencies.decay(Duration::from_secs(111));
        latencies.decay(Duration::from_secs(119));
        assert_eq!(latencies.count(), 32);
        latencies.decay(Duration::from_secs(131));
        assert_eq!(latencies.count(), 8);
        (0..8).for_each(|_| latencies.record(micros(7)));
        assert_eq!(latencies.percentile(50.0), Some(micros(7)));
        assert_eq!(latencies.percentile(50.1), Some(micros(1023)));
        latencies.decay(Duration::MAX);
        assert_eq!(latencies.percentile(0.0), None);
        latencies.record(Duration::MAX);
        assert_eq!(latencies.percentile(0.0), Some(micros(u32::MAX.into())));
    }

    proptest! {
        #[test]
        fn percentiles_are_right_within_an_eighth(
            mut all in vec(prop_oneof![0..100u32, 0..=u32::MAX], 1..200),
            percent in 0.0..=100.0f64,
        ) {
            let latencies = RecentLatencies::default();
            for &latency in &all {
                latencies.record(micros(latency.into()));
            }
            all.sort_unstable();
            let rank = (all.len() as f64 * percent / 100.0).ceil() as usize;
            let exact = u64::from(all[rank.max(1) - 1]);
            let found = latencies.percentile(percent).unwrap().as_micros() as u64;
            prop_assert!(exact <= found && found <= exact + exact / 8, "{} {}", exact, found);
        }
    }
}
