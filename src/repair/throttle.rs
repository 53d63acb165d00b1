//! Keeps what is fetched from other nodes from taking the network and their disks for itself.

use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use std::sync::Arc;
use std::time::Duration;

/// Holds all fetching of a node together to a number of bytes per second
/// (`StreamThroughputInMBPerSecond`).
#[derive(Debug)]
pub(super) struct Throttle {
    clock: Arc<dyn Clock>,
    /// `None` for no limit.
    bytes_per_second: Option<u64>,
    /// When all that has come would have come at that pace, on the monotonic clock.
    due: Mutex<rank::Throttle, Duration>,
}

impl Throttle {
    pub(super) fn new(clock: Arc<dyn Clock>, bytes_per_second: Option<u64>) -> Self {
        let bytes_per_second = bytes_per_second.filter(|rate| *rate > 0);
        Self { clock, bytes_per_second, due: Mutex::default() }
    }

    /// Waits until so many bytes more may have come.
    pub(super) async fn take(&self, bytes: usize) {
        let pause = self.pause(bytes);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    fn pause(&self, bytes: usize) -> Duration {
        let Some(rate) = self.bytes_per_second else { return Duration::ZERO };
        let now = self.clock.monotonic();
        let mut due = self.due.lock();
        *due = (*due).max(now) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        due.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    #[test]
    fn all_together_get_so_many_bytes_per_second() {
        let clock = Arc::new(ManualClock::default());
        let throttle = Throttle::new(Arc::clone(&clock) as _, Some(1000));
        assert_eq!(throttle.pause(500), Duration::from_millis(500));
        assert_eq!(throttle.pause(500), Duration::from_secs(1));
        clock.advance(Duration::from_secs(5));
        // What was not used is not made up for.
        assert_eq!(throttle.pause(100), Duration::from_millis(100));
        assert_eq!(Throttle::new(clock, Some(0)).pause(1 << 30), Duration::ZERO);
    }
}
