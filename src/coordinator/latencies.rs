//! How long replicas take, and how long one is waited for before another is asked as well.

use crate::base::latest::Latest;
use crate::ring::{DynamicSnitch, RecentLatencies};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Delay before any latency is known.
const FIRST_DELAY: Duration = Duration::from_millis(50);

/// Less than this is not worth a second question: a thread that gets its turn late is no slow
/// replica.
const LEAST_DELAY: Duration = Duration::from_millis(2);

/// The delay never exceeds this multiple of the recent median: if one replica is slow in more reads
/// than the percentile leaves out, all reads would wait for it.
const MEDIANS: u32 = 16;

/// Answers that have to be known before their percentiles mean something.
const ENOUGH: u64 = 100;

/// The latencies of the replicas of all rows.
#[derive(Debug)]
pub(super) struct Latencies {
    /// After this percentile of recent answers one more replica is asked; `None`: never.
    percentile: Latest<Option<f64>>,
    rows: SpeculativeDelay,
    ranges: SpeculativeDelay,
    dynamic_snitch: Option<Arc<DynamicSnitch>>,
}

/// The latencies of one kind of read.
#[derive(Debug, Default)]
struct SpeculativeDelay {
    recent: RecentLatencies,
    /// The delay in microseconds, as of the last update.
    micros: AtomicU64,
}

impl SpeculativeDelay {
    fn update(&self, percentile: Option<f64>, most: Duration, now: Duration) {
        self.recent.decay(now);
        let Some(percentile) = percentile else { return };
        let known = |percentile| {
            let latency = self.recent.percentile(percentile);
            latency.filter(|_| self.recent.count() >= ENOUGH).unwrap_or(FIRST_DELAY)
        };
        let delay = known(percentile).min(known(50.0) * MEDIANS);
        let delay = delay.clamp(LEAST_DELAY.min(most), most);
        self.micros.store(delay.as_micros() as u64, Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}

impl Latencies {
    pub(super) fn new(
        percentile: Option<f64>,
        timeout: Duration,
        dynamic_snitch: Option<Arc<DynamicSnitch>>,
    ) -> Self {
        let (rows, ranges) = (SpeculativeDelay::default(), SpeculativeDelay::default());
        let percentile = Latest::new(percentile);
        let latencies = Self { percentile, rows, ranges, dynamic_snitch };
        latencies.update(Duration::ZERO, timeout);
        latencies
    }

    /// Asks one more replica after this percentile from now on; `None`: never.
    pub(super) fn set_percentile(&self, percentile: Option<f64>) {
        self.percentile.set(percentile);
    }

    /// Notes how long a replica took for a row.
    pub(super) fn record(&self, endpoint: IpAddr, took: Duration) {
        self.rows.recent.record(took);
        self.record_answer(endpoint, took);
    }

    /// Notes how long a replica took for a range, this node for a row that may have been in memory,
    /// or for how long a silent replica was waited for. That sorts replicas, but does not change
    /// the delay of rows.
    pub(super) fn record_answer(&self, endpoint: IpAddr, took: Duration) {
        if let Some(dynamic) = &self.dynamic_snitch {
            dynamic.record(endpoint, took);
        }
    }

    /// Notes how long the replicas of a range took.
    pub(super) fn record_range(&self, took: Duration) {
        self.ranges.recent.record(took);
    }

    /// Delay before one more replica is asked for a row; `None`: never.
    pub(super) fn row_delay(&self) -> Option<Duration> {
        self.percentile.map(|_| self.rows.get())
    }

    /// Delay before one more replica is asked for a range; `None`: never.
    pub(super) fn range_delay(&self) -> Option<Duration> {
        self.percentile.map(|_| self.ranges.get())
    }

    /// The snitch that sorts replicas by latency, if configured.
    pub(super) fn dynamic_snitch(&self) -> Option<&Arc<DynamicSnitch>> {
        self.dynamic_snitch.as_ref()
    }

    /// Draws conclusions. To be called some times in a second. No delay exceeds half of the
    /// timeout.
    pub(super) fn update(&self, now: Duration, timeout: Duration) {
        for delay in [&self.rows, &self.ranges] {
            delay.update(*self.percentile, timeout / 2, now);
        }
        if let Some(dynamic) = &self.dynamic_snitch {
            dynamic.update(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn row_delay(latencies: &Latencies) -> u128 {
        latencies.update(Duration::from_secs(1), TIMEOUT);
        latencies.row_delay().expect("there is a percentile").as_millis()
    }

    #[test]
    fn replicas_that_are_slow_or_silent_do_not_make_all_wait() {
        let latencies = Latencies::new(Some(99.0), TIMEOUT, None);
        assert_eq!(row_delay(&latencies), FIRST_DELAY.as_millis());
        let endpoint = IpAddr::from([127, 0, 0, 2]);
        for _ in 0..300 {
            latencies.record(endpoint, Duration::from_millis(1));
            latencies.record_answer(endpoint, TIMEOUT);
        }
        assert_eq!(row_delay(&latencies), LEAST_DELAY.as_millis());
        for _ in 0..100 {
            latencies.record(endpoint, Duration::from_secs(9));
        }
        assert!((16..=18).contains(&row_delay(&latencies)));
        for _ in 0..1000 {
            latencies.record(endpoint, Duration::from_secs(9));
        }
        assert_eq!(row_delay(&latencies), 5000, "all are slow");
        latencies.set_percentile(None);
        assert_eq!(latencies.row_delay(), None);
    }
}
