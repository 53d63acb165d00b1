//! Bounded connections of a listener, where a new one may take the place of an idle one.

use super::clock::Clock;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Most connections that are ending at a time. No further one is ended until one of them is gone.
const MAX_ENDING: usize = 64;

/// Most waits for room for further ones, and the length of each.
const SETTLE_ROUNDS: usize = 100;
const SETTLE_PAUSE: Duration = Duration::from_millis(1);

/// State of a seat whose connection has work to do.
const BUSY: u64 = u64::MAX;

/// State of a seat whose connection has to end.
const ENDING: u64 = u64::MAX - 1;

/// Place of one connection. It is free again when the connection drops it.
#[derive(Debug)]
pub struct Seat {
    peer: SocketAddr,
    /// `BUSY`, `ENDING`, or the time in microseconds since which the connection is idle.
    state: AtomicU64,
    end: CancellationToken,
}

impl Seat {
    /// Other side of the connection.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Notes that the connection waits for its peer since `now`, unless it did before.
    pub fn rest(&self, now: Duration) {
        let now = micros(now);
        // Fails if the connection is idle already, or has to end.
        let _ = self.state.compare_exchange(BUSY, now, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Notes that the connection has work to do. False if it has to end instead: nothing that the
    /// peer sent may be read any more.
    #[must_use = "a connection that has to end may begin nothing"]
    pub fn resume(&self) -> bool {
        let begun = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (state != ENDING).then_some(BUSY)
        });
        begun.is_ok()
    }

    /// Whether the connection has to end.
    pub fn is_ending(&self) -> bool {
        self.state.load(Ordering::Acquire) == ENDING
    }

    /// Cancelled when the connection has to end, also because its server stops.
    pub fn end(&self) -> &CancellationToken {
        &self.end
    }

    fn idle_since(&self) -> Option<u64> {
        let state = self.state.load(Ordering::Acquire);
        (state < ENDING).then_some(state)
    }

    /// Ends the connection if it has been idle since `since` all the time.
    fn end_idle(&self, since: u64) -> bool {
        let ended = self.state.compare_exchange(since, ENDING, Ordering::AcqRel, Ordering::Relaxed);
        if ended.is_ok() {
            self.end.cancel();
        }
        ended.is_ok()
    }
}

/// A connection that is ending because it was idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The other side of the connection.
    pub peer: SocketAddr,
    /// Time for which it was idle.
    pub idle: Duration,
}

/// All seats of a listener.
#[derive(Debug)]
pub struct Seats {
    /// Those of connections that have ended are removed only when the others fill the rest.
    taken: Vec<Arc<Seat>>,
    limit: usize,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
}

impl Seats {
    /// Seats for at most `limit` connections, all of which end when `stop` is cancelled.
    pub fn new(limit: usize, clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        Self { taken: Vec::new(), limit, clock, stop }
    }

    /// Whether as many connections are open as there may be.
    pub fn are_taken(&mut self) -> bool {
        if self.taken.len() < self.limit {
            return false;
        }
        self.taken.retain(|seat| Arc::strong_count(seat) > 1);
        self.taken.iter().filter(|seat| !seat.is_ending()).count() >= self.limit
    }

    /// Seats a connection, whether or not there is room for it. It counts as idle until its peer
    /// sends something.
    pub fn seat(&mut self, peer: SocketAddr) -> Arc<Seat> {
        let state = AtomicU64::new(micros(self.clock.monotonic()));
        let seat = Arc::new(Seat { peer, state, end: self.stop.child_token() });
        self.taken.push(Arc::clone(&seat));
        seat
    }

    /// Lets connections of the same thread read arrived data. Waits for a moment if many are
    /// ending, so that new ones come no faster than old ones go. To be called before
    /// [`Seats::end_longest_idle`].
    pub async fn settle(&mut self) {
        tokio::task::yield_now().await;
        for _ in 0..SETTLE_ROUNDS {
            if self.ending() < MAX_ENDING {
                return;
            }
            tokio::time::sleep(SETTLE_PAUSE).await;
        }
    }

    /// Ends the connection that has been idle the longest. `None` if none is idle, or if too many
    /// are ending.
    pub fn end_longest_idle(&mut self) -> Option<Ended> {
        self.end_longest_idle_of(|_| true)
    }

    /// Ends the longest idle connection of the address with the most connections, if these are more
    /// than `share`.
    pub fn end_idle_of_largest(&mut self, share: usize) -> Option<Ended> {
        let mut counts = BTreeMap::new();
        for seat in self.taken.iter().filter(|seat| Arc::strong_count(seat) > 1) {
            *counts.entry(seat.peer.ip()).or_insert(0) += 1;
        }
        let (address, _) = counts
            .into_iter()
            .filter(|(_, count)| *count > share)
            .max_by_key(|(_, count)| *count)?;
        self.end_longest_idle_of(|seat| seat.peer.ip() == address)
    }

    fn end_longest_idle_of(&mut self, is_eligible: impl Fn(&Seat) -> bool) -> Option<Ended> {
        if self.ending() >= MAX_ENDING {
            return None;
        }
        loop {
            let eligible = self.taken.iter().filter(|seat| is_eligible(seat));
            let idle = eligible.filter_map(|seat| Some((seat.idle_since()?, seat)));
            let (since, seat) = idle.min_by_key(|(since, _)| *since)?;
            // Else its peer has just sent something.
            if seat.end_idle(since) {
                return Some(self.ended(seat, since));
            }
        }
    }

    /// Ends all connections that have been idle for `limit`.
    pub fn end_idle_for(&self, limit: Duration) -> Vec<Ended> {
        let latest = self.clock.monotonic().checked_sub(limit).map(micros);
        let overdue = |seat: &Arc<Seat>| {
            let since = seat.idle_since().filter(|since| latest.is_some_and(|it| *since <= it))?;
            (Arc::strong_count(seat) > 1 && seat.end_idle(since)).then(|| self.ended(seat, since))
        };
        self.taken.iter().filter_map(overdue).collect()
    }

    /// Ends all connections of such peers, whatever they are doing.
    pub fn end_where(&self, is_meant: impl Fn(SocketAddr) -> bool) {
        for seat in self.taken.iter().filter(|seat| is_meant(seat.peer)) {
            seat.state.store(ENDING, Ordering::Release);
            seat.end.cancel();
        }
    }

    /// Allows another number of connections from now on. Those that are open stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Number of ending connections.
    fn ending(&mut self) -> usize {
        self.taken.retain(|seat| Arc::strong_count(seat) > 1);
        self.taken.iter().filter(|seat| seat.is_ending()).count()
    }

    fn ended(&self, seat: &Seat, since: u64) -> Ended {
        let idle = self.clock.monotonic().saturating_sub(Duration::from_micros(since));
        Ended { peer: seat.peer, idle }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(ENDING - 1).min(ENDING - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    const SECOND: Duration = Duration::from_secs(1);

    fn peer(host: u8, port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, host], port))
    }

    fn seats(limit: usize) -> (Seats, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::default());
        let seats = Seats::new(limit, Arc::<ManualClock>::clone(&clock), CancellationToken::new());
        (seats, clock)
    }

    #[test]
    fn the_longest_idle_connection_makes_room() {
        let (mut seats, clock) = seats(3);
        let [a, b, c] = [1, 2, 3].map(|port| seats.seat(peer(1, port)));
        assert!(seats.are_taken());
        assert!(a.resume() && b.resume());
        clock.advance(SECOND);
        b.rest(clock.monotonic());
        clock.advance(SECOND);
        assert_eq!(
            seats.end_longest_idle(),
            Some(Ended { peer: c.peer(), idle: 2 * SECOND }),
            "it never sent anything"
        );
        assert!(c.is_ending() && c.end().is_cancelled() && !c.resume());
        assert!(!seats.are_taken(), "its seat is as good as free");
        assert_eq!(seats.end_longest_idle().map(|it| it.peer), Some(b.peer()));
        assert_eq!(seats.end_longest_idle(), None, "the last one has work to do");
        drop((b, c));
        assert!(!seats.are_taken() && !a.is_ending());
    }

    #[test]
    fn a_connection_stays_idle_until_its_peer_sends_something() {
        let (mut seats, clock) = seats(1);
        let seat = seats.seat(peer(1, 1));
        clock.advance(SECOND);
        seat.rest(clock.monotonic());
        assert_eq!(seats.end_longest_idle().map(|it| it.idle), Some(SECOND));
    }

    #[test]
    fn few_connections_are_told_to_end_at_a_time() {
        let (mut seats, _) = seats(1000);
        let _open: Vec<_> = (1..=1000).map(|port| seats.seat(peer(1, port))).collect();
        let ended = std::iter::from_fn(|| seats.end_longest_idle()).count();
        assert_eq!(ended, MAX_ENDING);
    }

    #[test]
    fn idle_connections_end_after_the_limit() {
        let (mut seats, clock) = seats(3);
        let [idle, busy] = [1, 2].map(|port| seats.seat(peer(1, port)));
        assert!(busy.resume());
        clock.advance(SECOND);
        assert_eq!(seats.end_idle_for(2 * SECOND), []);
        clock.advance(SECOND);
        let later = seats.seat(peer(1, 3));
        let ended = Ended { peer: idle.peer(), idle: 2 * SECOND };
        assert_eq!(seats.end_idle_for(2 * SECOND), [ended]);
        assert!(!busy.is_ending() && !later.is_ending());
    }

    #[test]
    fn an_address_with_many_connections_makes_room_before_others() {
        let (mut seats, clock) = seats(6);
        let _first = seats.seat(peer(1, 1));
        clock.advance(SECOND);
        let crowd: Vec<_> = (1..=4).map(|port| seats.seat(peer(2, port))).collect();
        assert_eq!(seats.end_idle_of_largest(4), None, "so many are an address's share");
        assert_eq!(seats.end_idle_of_largest(3).map(|it| it.peer), Some(crowd[0].peer()));
    }

    #[test]
    fn all_connections_end_with_the_server() {
        let (mut seats, _) = seats(1);
        let seat = seats.seat(peer(1, 1));
        seats.stop.cancel();
        assert!(seat.end().is_cancelled() && !seat.is_ending());
    }
}
