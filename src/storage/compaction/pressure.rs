//! The work that waits for compaction, and its effects.
//!
//! SSTables *wait* that would be gone if each due merge were done. A few of them loosen the
//! throttle of all compactions, more lift it. If that does not suffice, each write to the family is
//! delayed a little, so that the number of files a read has to look at stays bounded under any
//! load.

use super::thresholds::Thresholds;
use crate::base::lock::{Mutex, rank};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Waiting SSTables, as a multiple of the minimum threshold, that have no effect yet: some
/// compaction is always running.
const UNHURRIED: f64 = 1.0;

/// Waiting SSTables, as a multiple of the minimum threshold, from which on there is no throttle.
const UNTHROTTLED: f64 = 4.0;

/// Waiting SSTables, as a multiple of the minimum threshold, from which on writes are delayed; the
/// maximum threshold if that is more.
const DELAYED_FROM: usize = 8;

/// Multiple of the number at which the delay begins, at which it is greatest.
const DELAYED_MOST: usize = 4;

/// The longest delay of a write: clients of one node with 32 threads still write 1600 times a
/// second, and no call takes notably longer than a slow disk would make it.
const LONGEST_DELAY: Duration = Duration::from_millis(20);

/// Due work in one column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// SSTables that would be gone if all due merges were done.
    pub waiting: usize,
    /// Estimated number of due compactions.
    pub compactions: usize,
}

impl Backlog {
    /// Factor by which the throttle is loosened; infinite for no throttle.
    pub fn haste(self, thresholds: Thresholds) -> f64 {
        if !thresholds.are_on() {
            return 1.0;
        }
        let behind = self.waiting as f64 / thresholds.min as f64;
        if behind >= UNTHROTTLED { f64::INFINITY } else { (behind - UNHURRIED).exp2().max(1.0) }
    }

    /// The delay of a write.
    pub fn write_delay(self, thresholds: Thresholds) -> Duration {
        if !thresholds.are_on() {
            // The operator asked for it.
            return Duration::ZERO;
        }
        let from = thresholds.max.max(thresholds.min.saturating_mul(DELAYED_FROM));
        let most = from.saturating_mul(DELAYED_MOST);
        let share = self.waiting.saturating_sub(from) as f64 / (most - from).max(1) as f64;
        LONGEST_DELAY.mul_f64(share.min(1.0).powi(2))
    }
}

/// The backlog of a column family as writers and operators see it.
#[derive(Debug, Default)]
pub struct Pressure {
    waiting: AtomicUsize,
    compactions: AtomicUsize,
    write_delay_micros: AtomicU64,
    noting: Mutex<rank::Files, ()>,
}

impl Pressure {
    /// Notes the present backlog and delay. One thread at a time looks and notes: a slow one does
    /// not overwrite what has changed since.
    pub fn note(&self, look: impl FnOnce() -> (Backlog, Duration)) {
        let _noting = self.noting.lock();
        let (backlog, write_delay) = look();
        self.waiting.store(backlog.waiting, Ordering::Relaxed);
        self.compactions.store(backlog.compactions, Ordering::Relaxed);
        self.write_delay_micros.store(write_delay.as_micros() as u64, Ordering::Relaxed);
    }

    /// The backlog that was noted last.
    pub fn backlog(&self) -> Backlog {
        Backlog {
            waiting: self.waiting.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
        }
    }

    /// The delay of each write.
    pub fn write_delay(&self) -> Duration {
        Duration::from_micros(self.write_delay_micros.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Thresholds = Thresholds { min: 4, max: 32 };

    fn waiting(waiting: usize) -> Backlog {
        Backlog { waiting, compactions: 1 }
    }

    #[test]
    fn the_throttle_is_loosened_when_files_wait() {
        let percent = |number, thresholds| (waiting(number).haste(thresholds) * 100.0) as u64;
        assert_eq!([0, 4, 8, 12].map(|number| percent(number, USUAL)), [100, 100, 200, 400]);
        assert!(waiting(16).haste(USUAL).is_infinite());
        assert_eq!(percent(1000, Thresholds { min: 4, max: 0 }), 100);
    }

    #[test]
    fn writes_are_delayed_late_and_never_for_long() {
        let delay = |number| waiting(number).write_delay(USUAL);
        assert_eq!(delay(32), Duration::ZERO);
        assert!(delay(40) > Duration::ZERO && delay(40) < Duration::from_millis(1));
        assert_eq!(delay(128), LONGEST_DELAY);
        assert_eq!(delay(1_000_000), LONGEST_DELAY);
        assert!((32..128).all(|number| delay(number) <= delay(number + 1)));
        assert!(LONGEST_DELAY < Duration::from_millis(50));
        let off = Thresholds { min: 0, max: 32 };
        assert_eq!(waiting(1_000_000).write_delay(off), Duration::ZERO);
    }
}
