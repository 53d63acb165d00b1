//! Bounds the share of the disk that compactions take.

use crate::base::clock::Clock;
use crate::base::latest::Latest;
use crate::base::lock::{Mutex, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Longest pause at a time, so that a stopping node is not kept waiting, and a loosened throttle
/// is felt soon.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Holds all compactions of a node together to a number of bytes per second.
#[derive(Debug)]
pub(super) struct Throttle {
    clock: Arc<dyn Clock>,
    /// `None` for no limit.
    bytes_per_second: Latest<Option<u64>>,
    /// Factor of the present limit, as the bits of an `f64`.
    haste: AtomicU64,
    debt: Mutex<rank::State, Debt>,
}

/// Bytes that were read too early.
#[derive(Debug, Default)]
struct Debt {
    bytes: f64,
    /// Time of the last change.
    at: Duration,
}

impl Throttle {
    /// A throttle for this many bytes per second; `None` for no limit.
    pub(super) fn new(clock: Arc<dyn Clock>, bytes_per_second: Option<u64>) -> Self {
        let bytes_per_second = Latest::new(bytes_per_second.filter(|rate| *rate > 0));
        let haste = AtomicU64::new(1.0_f64.to_bits());
        Self { clock, bytes_per_second, haste, debt: Mutex::default() }
    }

    /// The limit, without haste.
    pub(super) fn rate(&self) -> Option<u64> {
        *self.bytes_per_second
    }

    /// Changes the limit from now on; `None` for none.
    pub(super) fn set_rate(&self, bytes_per_second: Option<u64>) {
        self.bytes_per_second.set(bytes_per_second.filter(|rate| *rate > 0));
    }

    /// Multiplies the limit from now on; infinity lifts it.
    pub(super) fn set_haste(&self, haste: f64) {
        self.haste.store(haste.to_bits(), Ordering::Relaxed);
    }

    /// Waits until this many bytes more may have been read. Returns early when the node stops.
    pub(super) fn take(&self, bytes: u64, stop: &AtomicBool) {
        let mut ahead = self.owe(bytes);
        while !ahead.is_zero() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(ahead.min(LONGEST_PAUSE));
            ahead = self.owe(0);
        }
    }

    /// Adds to the debt, and returns the time it lasts.
    fn owe(&self, bytes: u64) -> Duration {
        let haste = f64::from_bits(self.haste.load(Ordering::Relaxed));
        let mut debt = self.debt.lock();
        let now = self.clock.monotonic();
        let rate = match *self.bytes_per_second {
            Some(rate) if haste.is_finite() => rate as f64 * haste,
            _ => {
                *debt = Debt { bytes: 0.0, at: now };
                return Duration::ZERO;
            }
        };
        let paid = now.saturating_sub(debt.at).as_secs_f64() * rate;
        let bytes = (debt.bytes - paid).max(0.0) + bytes as f64;
        *debt = Debt { bytes, at: now };
        Duration::from_secs_f64(bytes / rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    fn throttle(rate: Option<u64>) -> (Arc<ManualClock>, Throttle) {
        let clock = Arc::new(ManualClock::default());
        (Arc::clone(&clock), Throttle::new(clock, rate))
    }

    #[test]
    fn what_several_compactions_do_adds_up() {
        let (clock, throttle) = throttle(Some(1000));
        assert_eq!(throttle.owe(500), Duration::from_millis(500));
        assert_eq!(throttle.owe(500), Duration::from_secs(1));
        clock.advance(Duration::from_millis(300));
        assert_eq!(throttle.owe(0), Duration::from_millis(700));
        clock.advance(Duration::from_secs(100));
        assert_eq!(throttle.owe(500), Duration::from_millis(500), "an idle time is not saved up");
    }

    #[test]
    fn haste_and_another_rate_change_it_at_once() {
        let (_, throttle) = throttle(Some(1000));
        assert_eq!(throttle.owe(1000), Duration::from_secs(1));
        throttle.set_haste(4.0);
        assert_eq!(throttle.owe(0), Duration::from_millis(250));
        throttle.set_haste(f64::INFINITY);
        assert_eq!(throttle.owe(1 << 40), Duration::ZERO);
        throttle.set_haste(1.0);
        assert_eq!(throttle.owe(0), Duration::ZERO);
        throttle.set_rate(Some(2000));
        assert_eq!(throttle.owe(1000), Duration::from_millis(500));
    }

    #[test]
    fn no_limit_is_none() {
        for rate in [None, Some(0)] {
            assert_eq!(self::throttle(rate).1.owe(u64::MAX), Duration::ZERO);
        }
    }

    #[test]
    fn a_stopping_node_is_not_kept_waiting() {
        let (_, throttle) = throttle(Some(1));
        throttle.take(1 << 40, &AtomicBool::new(true));
    }
}
