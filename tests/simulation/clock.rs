//! The clocks of a simulated node.

use alexandra::base::clock::Clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Wall time at the start of a simulation, in microseconds since the Unix epoch.
const EPOCH: i64 = 1_300_000_000_000_000;

/// The clocks of one node. Both follow the time of the simulation; while a node runs, its runtime
/// knows that exactly, and at other times the simulator has said how late it is.
#[derive(Debug)]
pub(crate) struct NodeClock {
    /// How far the wall clock is off, in microseconds.
    skew: AtomicI64,
    /// Time of the monotonic clock when the simulation began.
    uptime: Duration,
    /// The time of the simulation that the simulator told last, in milliseconds.
    told: AtomicU64,
    /// When the runtime of the node was started, by its own time and by that of the simulation.
    started: OnceLock<(Instant, u64)>,
}

impl NodeClock {
    pub(crate) fn new(skew: i64, uptime: Duration, now_ms: u64) -> Self {
        let (skew, told) = (AtomicI64::new(skew), AtomicU64::new(now_ms));
        Self { skew, uptime, told, started: OnceLock::new() }
    }

    /// Somebody sets the wall clock, by so many microseconds.
    pub(crate) fn set(&self, by: i64) {
        self.skew.fetch_add(by, Ordering::SeqCst);
    }

    /// To be called within the new runtime of the node.
    pub(crate) fn start(&self) {
        let started = (Instant::now(), self.told.load(Ordering::SeqCst));
        self.started.set(started).expect("a node has a new clock at each start");
    }

    pub(crate) fn tell(&self, now_ms: u64) {
        self.told.store(now_ms, Ordering::SeqCst);
    }

    /// The time since the start of the simulation.
    pub(crate) fn elapsed(&self) -> Duration {
        match (Handle::try_current(), self.started.get()) {
            (Ok(_), Some((instant, ms))) => Duration::from_millis(*ms) + instant.elapsed(),
            _ => Duration::from_millis(self.told.load(Ordering::SeqCst)),
        }
    }
}

impl Clock for NodeClock {
    fn now_micros(&self) -> i64 {
        EPOCH + self.skew.load(Ordering::SeqCst) + self.elapsed().as_micros() as i64
    }

    fn monotonic(&self) -> Duration {
        self.uptime + self.elapsed()
    }
}
