//! Time as an input. Only this file reads the machine's clocks; timers are those of tokio, which
//! tests pause and move.

use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Source of time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Microseconds since the Unix epoch. May jump when the operator sets the clock.
    fn now_micros(&self) -> i64;

    /// Time since some fixed moment. Never goes back, and counts the time in which the process or
    /// the machine was suspended.
    fn monotonic(&self) -> Duration;

    /// Milliseconds since the Unix epoch, at most some milliseconds late: for frequent calls. Never
    /// before the epoch.
    fn coarse_millis(&self) -> u64 {
        u64::try_from(self.now_micros() / 1000).unwrap_or(0)
    }

    /// Seconds since the Unix epoch, as local deletion times are kept.
    fn now_secs(&self) -> i32 {
        i32::try_from(self.now_micros() / 1_000_000).unwrap_or(i32::MAX)
    }
}

/// A time to go by, in seconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub enum Now<'a> {
    /// This second.
    At(i64),
    /// The present one, which is looked up only if it is needed, and once.
    Of(&'a dyn Clock),
}

impl Now<'_> {
    /// The second.
    pub fn second(&mut self) -> i64 {
        let second = match self {
            Self::At(second) => *second,
            Self::Of(clock) => clock.now_micros().div_euclid(1_000_000),
        };
        *self = Self::At(second);
        second
    }
}

/// The machine's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Duration,
}

impl SystemClock {
    /// A clock whose monotonic side starts now.
    pub fn new() -> Self {
        Self { started: since_boot() }
    }
}

/// Unlike `CLOCK_MONOTONIC` this clock counts the suspend of the machine.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the clock")]
    fn now_micros(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn monotonic(&self) -> Duration {
        since_boot().saturating_sub(self.started)
    }

    /// The time of the kernel's last tick, read in a few nanoseconds without the hardware.
    fn coarse_millis(&self) -> u64 {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    #[test]
    fn the_coarse_time_is_the_time() {
        let clock = SystemClock::new();
        let exact = || u64::try_from(clock.now_micros() / 1000).unwrap();
        let before = exact();
        let coarse = clock.coarse_millis();
        assert!(coarse + 100 >= before && coarse <= exact(), "{before} {coarse}");
        assert_eq!(ManualClock::at_micros(1_234_567).coarse_millis(), 1234);
        assert_eq!(ManualClock::at_micros(-5).coarse_millis(), 0);
    }
}
