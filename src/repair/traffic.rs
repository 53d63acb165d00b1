//! Which data move between this node and others, for operators.

use crate::base::clock::Clock;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::FamilyId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A stream of which nothing was heard for so long is over.
const OVER_AFTER: Duration = Duration::from_secs(10);

/// What moves between this node and another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// The other node.
    pub peer: IpAddr,
    /// The column family.
    pub family: FamilyId,
    /// Bytes of messages so far.
    pub bytes: u64,
}

/// What moves in one direction.
#[derive(Debug)]
pub(super) struct Traffic {
    clock: Arc<dyn Clock>,
    streams: Mutex<rank::RepairProgress, Streams>,
}

/// Bytes, and when there were some last.
type Streams = BTreeMap<(IpAddr, FamilyId), (u64, Duration)>;

impl Traffic {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, streams: Mutex::default() })
    }

    /// So many bytes more.
    pub(super) fn add(&self, peer: IpAddr, family: FamilyId, bytes: usize) {
        let now = self.clock.monotonic();
        let mut streams = self.current(now);
        let (sum, last) = streams.entry((peer, family)).or_insert((0, now));
        *sum += bytes as u64;
        *last = now;
    }

    /// What moves at the moment.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    #[test]
    fn what_moves_is_told_until_it_is_over() {
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
}
