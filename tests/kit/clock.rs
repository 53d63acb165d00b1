//! Time that a test moves.

use alexandra::base::clock::Clock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A clock that moves only when it is told to.
#[derive(Debug, Default)]
pub(crate) struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at this many microseconds since the Unix epoch.
    pub(crate) fn at_micros(micros: i64) -> Self {
        Self { micros: AtomicI64::new(micros) }
    }

    /// Moves the clock forward.
    pub(crate) fn advance(&self, by: Duration) {
        self.micros.fetch_add(by.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.micros.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::SeqCst).max(0) as u64)
    }
}
