//! Latencies of operations, in the buckets of 0.6.
//!
//! Only timed operations are recorded, each with the number of operations it stands for, so that
//! the counts add up to those of all operations, but for the last few.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds by which 0.6 names its buckets. One more bucket, without a name, is for longer
/// operations.
pub const BUCKET_OFFSETS: [u64; 91] = [
    1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 26, 31, 38, 46, 55, 66, 79, 95, 114, 137, 164, 197,
    237, 284, 341, 410, 492, 590, 708, 850, 1020, 1224, 1469, 1763, 2116, 2539, 3047, 3657, 4388,
    5266, 6319, 7583, 9100, 10920, 13104, 15725, 18870, 22644, 27173, 32608, 39130, 46956, 56347,
    67617, 81140, 97368, 116_842, 140_210, 168_252, 201_903, 242_283, 290_740, 348_888, 418_666,
    502_400, 602_880, 723_456, 868_147, 1_041_776, 1_250_132, 1_500_158, 1_800_190, 2_160_228,
    2_592_274, 3_110_728, 3_732_874, 4_479_449, 5_375_339, 6_450_407, 7_740_489, 9_288_586,
    11_146_304, 13_375_565, 16_050_678, 19_260_813, 23_112_976, 27_735_572, 33_282_686,
];

/// Buckets, with the one that has no name.
const BUCKETS: usize = BUCKET_OFFSETS.len() + 1;

/// Numbers of operations by latency. A bucket counts those that took less than its offset, and not
/// less than that of the bucket before: in 0.6 it is not "at most".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram([u64; BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Histogram {
    /// Operations by bucket, that for longer ones last.
    pub fn buckets(&self) -> &[u64] {
        &self.0
    }

    /// The difference to an earlier histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        for (count, earlier) in since.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(earlier);
        }
        since
    }
}

/// Recorder of operations. It takes memory from the first one on.
#[derive(Debug, Default)]
pub(super) struct Recorder(OnceLock<Box<[AtomicU64; BUCKETS]>>);

impl Recorder {
    /// Records operations with a latency.
    pub(super) fn record(&self, took: Duration, operations: u64) {
        let buckets = self.0.get_or_init(|| Box::new([const { AtomicU64::new(0) }; BUCKETS]));
        buckets[bucket_of(took)].fetch_add(operations, Ordering::Relaxed);
    }

    /// Adds the recorded operations to a histogram.
    pub(super) fn add_to(&self, histogram: &mut Histogram) {
        let Some(buckets) = self.0.get() else { return };
        for (count, bucket) in histogram.0.iter_mut().zip(buckets.iter()) {
            *count += bucket.load(Ordering::Relaxed);
        }
    }
}

/// Whole microseconds decide, as in 0.6.
fn bucket_of(took: Duration) -> usize {
    let micros = took.as_micros() as u64;
    BUCKET_OFFSETS.partition_point(|offset| *offset <= micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_counts_what_is_below_its_offset() {
        let offset = |nanos: u64| BUCKET_OFFSETS.get(bucket_of(Duration::from_nanos(nanos)));
        assert_eq!(offset(0), Some(&1));
        assert_eq!(offset(999), Some(&1));
        assert_eq!(offset(1000), Some(&2));
        assert_eq!(offset(9_999_000), Some(&10_920));
        assert_eq!(offset(33_282_685_999), Some(&33_282_686));
        assert_eq!(offset(33_282_686_000), None);
    }

    #[test]
    fn offsets_grow_by_about_a_fifth() {
        for pair in BUCKET_OFFSETS.windows(2) {
            let (smaller, larger) = (pair[0], pair[1]);
            let greatest = (smaller + smaller.div_ceil(4)).max(smaller + 1);
            assert!(larger > smaller && larger <= greatest, "{smaller} {larger}");
        }
    }

    #[test]
    fn what_was_recorded_counts_as_often_as_it_stands_for() {
        let recorder = Recorder::default();
        let look = || {
            let mut histogram = Histogram::default();
            recorder.add_to(&mut histogram);
            histogram
        };
        assert_eq!(look(), Histogram::default());
        recorder.record(Duration::from_micros(3), 1);
        let earlier = look();
        recorder.record(Duration::from_micros(3), 16);
        recorder.record(Duration::from_mins(1), 2);
        let since = look().since(&earlier);
        assert_eq!((since.buckets()[3], since.buckets()[91]), (16, 2));
        assert_eq!(since.buckets().iter().sum::<u64>(), 18);
    }
}
