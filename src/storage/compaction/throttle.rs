//! Keeps a compaction from taking the disk for itself.

use crate::base::clock::Clock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes after which the pace is looked at: small enough not to be felt as a burst.
const STRIDE: u64 = 256 << 10;

/// Longest pause at a time, so that a stopping node is not kept waiting.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Holds the writing of one compaction to a number of bytes per second.
#[derive(Debug)]
pub(super) struct Throttle<'a> {
    clock: &'a dyn Clock,
    /// `None` for no limit.
    bytes_per_second: Option<u64>,
    begun: Duration,
    looked_at: u64,
}

impl<'a> Throttle<'a> {
    /// A throttle that begins to count now.
    pub(super) fn new(clock: &'a dyn Clock, bytes_per_second: Option<u64>) -> Self {
        Self { clock, bytes_per_second, begun: clock.monotonic(), looked_at: 0 }
    }

    /// Waits until so many bytes may be written in all. Returns early when the node stops.
    pub(super) fn pace(&mut self, written: u64, stop: &AtomicBool) {
        if written < self.looked_at + STRIDE {
            return;
        }
        self.looked_at = written;
        while !stop.load(Ordering::Relaxed) {
            let ahead = self.ahead(written);
            if ahead.is_zero() {
                return;
            }
            std::thread::sleep(ahead.min(LONGEST_PAUSE));
        }
    }

    /// How much too early so many bytes are.
    fn ahead(&self, written: u64) -> Duration {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else {
            return Duration::ZERO;
        };
        let due = Duration::from_secs_f64(written as f64 / rate as f64);
        due.saturating_sub(self.clock.monotonic().saturating_sub(self.begun))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn it_knows_how_far_ahead_the_writing_is() {
        let clock = ManualClock::default();
        let throttle = Throttle::new(&clock, Some(1000));
        assert_eq!(throttle.ahead(500), Duration::from_millis(500));
        clock.advance(Duration::from_millis(300));
        assert_eq!(throttle.ahead(500), Duration::from_millis(200));
        clock.advance(Duration::from_secs(1));
        assert_eq!(throttle.ahead(500), Duration::ZERO);
        assert_eq!(Throttle::new(&clock, None).ahead(u64::MAX), Duration::ZERO);
    }

    #[test]
    fn a_stopping_node_is_not_kept_waiting() {
        let clock = ManualClock::default();
        let mut throttle = Throttle::new(&clock, Some(1));
        throttle.pace(STRIDE - 1, &AtomicBool::new(false));
        throttle.pace(1 << 40, &AtomicBool::new(true));
    }
}
