//! Streams of data between this node and others, for operators; and the limit of their pace.

use crate::base::clock::Clock;
use crate::base::latest::Latest;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::FamilyId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Silence after which a stream is over.
const OVER_AFTER: Duration = Duration::from_secs(10);

/// Data between this node and another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The other node.
    pub peer: IpAddr,
    /// The column family.
    pub family: FamilyId,
    /// Bytes of messages so far.
    pub bytes: u64,
}

/// Streams in one direction.
#[derive(Debug)]
pub(super) struct Traffic {
    clock: Arc<dyn Clock>,
    streams: Mutex<rank::State, Streams>,
}

/// Bytes of each stream, and the time of the last ones.
type Streams = BTreeMap<(IpAddr, FamilyId), (u64, Duration)>;

impl Traffic {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, streams: Mutex::default() }
    }

    pub(super) fn add(&self, peer: IpAddr, family: FamilyId, bytes: usize) {
        let now = self.clock.monotonic();
        let mut streams = self.current(now);
        let (sum, last) = streams.entry((peer, family)).or_insert((0, now));
        *sum += bytes as u64;
        *last = now;
    }

    /// The present streams.
    pub(super) fn now(&self) -> Vec<Stream> {
        let streams = self.current(self.clock.monotonic());
        let stream = |(&(peer, family), &(bytes, _)): (&(IpAddr, FamilyId), &(u64, Duration))| {
            Stream { peer, family, bytes }
        };
        streams.iter().map(stream).collect()
    }

    fn current(&self, now: Duration) -> MutexGuard<'_, Streams> {
        let mut streams = self.streams.lock();
        streams.retain(|_, (_, last)| now.saturating_sub(*last) < OVER_AFTER);
        streams
    }
}

/// Limits all fetching of a node together to a number of bytes per second
/// (`StreamThroughputInMBPerSecond`), so that it leaves network and disks to others.
#[derive(Debug)]
pub(super) struct Throttle {
    clock: Arc<dyn Clock>,
    /// `None` for no limit.
    bytes_per_second: Latest<Option<u64>>,
    /// Monotonic time at which all received bytes would have come at that pace.
    due: Mutex<rank::State, Duration>,
}

impl Throttle {
    pub(super) fn new(clock: Arc<dyn Clock>, bytes_per_second: Option<u64>) -> Self {
        let bytes_per_second = Latest::new(bytes_per_second.filter(|rate| *rate > 0));
        Self { clock, bytes_per_second, due: Mutex::default() }
    }

    /// The present pace.
    pub(super) fn rate(&self) -> Option<u64> {
        *self.bytes_per_second
    }

    /// Goes at another pace from now on; `None` for no limit.
    pub(super) fn set(&self, bytes_per_second: Option<u64>) {
        self.bytes_per_second.set(bytes_per_second.filter(|rate| *rate > 0));
    }

    /// Waits until this number of further bytes is allowed.
    pub(super) async fn take(&self, bytes: usize) {
        let pause = self.pause(bytes);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    fn pause(&self, bytes: usize) -> Duration {
        let Some(rate) = *self.bytes_per_second else { return Duration::ZERO };
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
    fn a_stream_is_shown_until_it_is_over() {
        let clock = Arc::new(ManualClock::default());
        let traffic = Traffic::new(Arc::clone(&clock) as _);
        let (peer, family) = (IpAddr::from([10, 0, 0, 2]), FamilyId(3));
        traffic.add(peer, family, 100);
        clock.advance(OVER_AFTER / 2);
        traffic.add(peer, family, 50);
        clock.advance(OVER_AFTER / 2);
        assert_eq!(traffic.now(), [Stream { peer, family, bytes: 150 }]);
        clock.advance(OVER_AFTER / 2);
        assert_eq!(traffic.now(), []);
        traffic.add(peer, family, 1);
        assert_eq!(traffic.now(), [Stream { peer, family, bytes: 1 }]);
    }

    #[test]
    fn all_together_get_so_many_bytes_per_second() {
        let clock = Arc::new(ManualClock::default());
        let throttle = Throttle::new(Arc::clone(&clock) as _, Some(1000));
        assert_eq!(throttle.pause(500), Duration::from_millis(500));
        assert_eq!(throttle.pause(500), Duration::from_secs(1));
        clock.advance(Duration::from_secs(5));
        // Unused time is not made up for.
        assert_eq!(throttle.pause(100), Duration::from_millis(100));
        throttle.set(Some(0));
        assert_eq!(throttle.pause(1 << 30), Duration::ZERO);
    }
}
