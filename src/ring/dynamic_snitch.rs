//! Order of endpoints by their recent latencies.
//!
//! This wraps a snitch: endpoints that answer faster come first, and the snitch decides about
//! unknown ones. 0.6 has one of these for each keyspace, and each gets all latencies; so one for
//! all keyspaces is the same.

use super::snitch::Topology;
use crate::base::lock::{Mutex, RwLock, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// Answers of one endpoint that count: the last ones.
const WINDOW: usize = 100;

/// Answers that count between two updates. More would not change what is known.
const MOST_PER_INTERVAL: usize = 10_000;

/// Time after which everything is forgotten. A slow endpoint gets no requests any more, so nothing
/// else would show that it has recovered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Latency to compare with, in milliseconds: any value that is the same for all.
const SENTINEL_MILLIS: f64 = 0.0001;

/// The latencies of endpoints, and the order that follows.
///
/// Threads record without waiting for each other. What they record counts from the next
/// [`update`](DynamicSnitch::update) on. Locks: the map of windows, held for copying or replacing
/// a pointer; the scores, likewise; the time of the last forgetting, held during an update.
#[derive(Debug, Default)]
pub struct DynamicSnitch {
    windows: RwLock<rank::State, Arc<BTreeMap<IpAddr, Arc<Window>>>>,
    scores: RwLock<rank::State, Arc<BTreeMap<IpAddr, f64>>>,
    /// Number of answers since the last update.
    recorded: AtomicUsize,
    /// Time at which everything was forgotten last; `None` before the first update.
    forgotten: Mutex<rank::Job, Option<Duration>>,
}

/// The last answers of an endpoint.
#[derive(Debug)]
struct Window {
    /// Number of answers.
    count: AtomicUsize,
    /// The latest in microseconds, in a circle. One that is being written may be seen as the one
    /// that it replaces.
    micros: [AtomicU32; WINDOW],
}

impl DynamicSnitch {
    /// Time between two calls of [`update`](DynamicSnitch::update).
    pub const UPDATE_INTERVAL: Duration = Duration::from_millis(100);

    /// Takes the latency of an answer; the timeout if none came.
    pub fn record(&self, endpoint: IpAddr, latency: Duration) {
        if self.recorded.load(Ordering::Relaxed) >= MOST_PER_INTERVAL {
            return;
        }
        self.recorded.fetch_add(1, Ordering::Relaxed);
        let windows = Arc::clone(&self.windows.read());
        match windows.get(&endpoint) {
            Some(window) => window.push(latency),
            None => self.new_window(endpoint).push(latency),
        }
    }

    /// Computes the scores from what has been recorded, and forgets everything when it is time.
    /// `now` is a monotonic time.
    pub fn update(&self, now: Duration) {
        let mut forgotten = self.forgotten.lock();
        let since = now.saturating_sub(*forgotten.get_or_insert(now));
        let mut windows = self.windows.write();
        if since >= FORGOTTEN_AFTER {
            *forgotten = Some(now);
            *windows = Arc::default();
        }
        let known = Arc::clone(&windows);
        drop(windows);
        let score =
            |(&endpoint, window): (&IpAddr, &Arc<Window>)| Some((endpoint, window.score()?));
        let scores: BTreeMap<IpAddr, f64> = known.iter().filter_map(score).collect();
        *self.scores.write() = Arc::new(scores);
        self.recorded.store(0, Ordering::Relaxed);
    }

    /// The scores of the last update; the least is the best.
    pub fn scores(&self) -> Arc<BTreeMap<IpAddr, f64>> {
        Arc::clone(&self.scores.read())
    }

    /// Sorts endpoints as the wrapped snitch does, then those that have a score by it. The others
    /// keep their places: one that nothing is known of and that is near is asked, one that is far
    /// is not.
    pub fn sort_by_proximity(&self, wrapped: &Topology, local: IpAddr, endpoints: &mut [IpAddr]) {
        wrapped.sort_by_proximity(local, endpoints);
        let scores = self.scores();
        let score = |endpoint: &IpAddr| Some((*scores.get(endpoint)?, *endpoint));
        let mut known: Vec<(f64, IpAddr)> = endpoints.iter().filter_map(score).collect();
        known.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let places = endpoints.iter_mut().filter(|endpoint| scores.contains_key(endpoint));
        for (place, (_, endpoint)) in places.zip(known) {
            *place = endpoint;
        }
    }

    /// The latencies of an endpoint, in no particular order: the operation `dumpTimings` of 0.6.
    pub fn latencies(&self, endpoint: IpAddr) -> Vec<Duration> {
        let windows = Arc::clone(&self.windows.read());
        let micros = windows.get(&endpoint).into_iter().flat_map(|window| window.micros());
        micros.map(|micros| Duration::from_micros(micros.into())).collect()
    }

    fn new_window(&self, endpoint: IpAddr) -> Arc<Window> {
        let mut windows = self.windows.write();
        let window = Arc::make_mut(&mut windows).entry(endpoint).or_default();
        Arc::clone(window)
    }
}

impl Default for Window {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), micros: [const { AtomicU32::new(0) }; WINDOW] }
    }
}

impl Window {
    fn push(&self, latency: Duration) {
        let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
        let place = self.count.fetch_add(1, Ordering::Relaxed) % WINDOW;
        self.micros[place].store(micros, Ordering::Relaxed);
    }

    fn micros(&self) -> impl Iterator<Item = u32> {
        let count = self.count.load(Ordering::Relaxed).min(WINDOW);
        self.micros[..count].iter().map(|micros| micros.load(Ordering::Relaxed))
    }

    /// Grows with the mean latency; `None` if there is none.
    fn score(&self) -> Option<f64> {
        let (count, sum) = self
            .micros()
            .fold((0u32, 0u64), |(count, sum), micros| (count + 1, sum + u64::from(micros)));
        let mean_millis = sum as f64 / 1000.0 / f64::from(count);
        // That an answer takes longer than the sentinel, if latencies decay exponentially. The
        // difference to one is computed as a whole: most of its digits would be lost otherwise.
        let probability = -(-SENTINEL_MILLIS / mean_millis).exp_m1();
        (count > 0).then(|| -probability.log10())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    fn node(rack: u8, host: u8) -> IpAddr {
        [10, 1, rack, host].into()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_last_answers_count_from_the_next_update_on() {
        let snitch = DynamicSnitch::default();
        let (near, far) = (node(1, 2), node(2, 3));
        let sorted = || {
            let mut endpoints = [far, near];
            snitch.sort_by_proximity(&Topology::Octets, node(1, 1), &mut endpoints);
            endpoints
        };
        snitch.record(near, millis(20));
        snitch.record(far, millis(10));
        assert_eq!(sorted(), [near, far]);
        snitch.update(at(0));
        assert_eq!(sorted(), [far, near]);
        (0..WINDOW).for_each(|_| snitch.record(near, millis(9)));
        snitch.update(at(1));
        assert_eq!(sorted(), [near, far]);
        assert_eq!(snitch.latencies(near), [millis(9); WINDOW]);
        snitch.record(near, at(100_000));
        snitch.update(at(2));
        assert_eq!(sorted(), [far, near]);
        snitch.update(at(600));
        assert_eq!(sorted(), [near, far], "all is forgotten");
        assert!(snitch.scores().is_empty() && snitch.latencies(near).is_empty());
    }

    #[test]
    fn scores_are_those_of_the_original() {
        let snitch = DynamicSnitch::default();
        let means = [0, 1, 10, 250, 2000];
        for (host, mean) in (0..).zip(means) {
            snitch.record(node(0, host), millis(mean));
        }
        snitch.update(at(0));
        let expected = [0.0, 4.000_022, 5.000_002, 6.397_940, 7.301_030];
        for (score, expected) in snitch.scores().values().zip(expected) {
            assert!((score - expected).abs() < 1e-6, "{score} {expected}");
        }
    }

    #[test]
    fn an_interval_has_so_many_answers_only() {
        let snitch = DynamicSnitch::default();
        (0..MOST_PER_INTERVAL).for_each(|_| snitch.record(node(0, 1), millis(1)));
        snitch.record(node(0, 2), millis(1));
        snitch.update(at(0));
        assert_eq!(snitch.scores().len(), 1);
        snitch.record(node(0, 2), millis(1));
        snitch.update(at(0));
        assert_eq!(snitch.scores().len(), 2);
    }

    #[test]
    fn threads_record_at_the_same_time() {
        let snitch = DynamicSnitch::default();
        std::thread::scope(|scope| {
            for host in 0..4 {
                let snitch = &snitch;
                scope.spawn(move || {
                    for n in 0..50 {
                        snitch.record(node(0, 9), millis(3));
                        snitch.record(node(0, host), millis(n));
                        snitch.update(at(n));
                    }
                });
            }
        });
        assert_eq!(snitch.latencies(node(0, 9)), [millis(3); WINDOW]);
        assert_eq!(snitch.latencies(node(0, 0)).len(), 50);
    }

    proptest! {
        #[test]
        fn known_endpoints_are_sorted_among_their_places(
            latencies in btree_map(0..8u8, 0..5u64, 0..8),
            hosts in vec((0..3u8, 0..8u8), 0..8),
        ) {
            let snitch = DynamicSnitch::default();
            for (&host, &latency) in &latencies {
                (0..3).for_each(|rack| snitch.record(node(rack, host), millis(latency)));
            }
            snitch.update(at(0));
            let local = node(1, 1);
            let mut plain: Vec<IpAddr> =
                hosts.iter().map(|&(rack, host)| node(rack, host)).collect();
            let mut sorted = plain.clone();
            Topology::Octets.sort_by_proximity(local, &mut plain);
            snitch.sort_by_proximity(&Topology::Octets, local, &mut sorted);
            let latency = |endpoint: &IpAddr| match endpoint {
                IpAddr::V4(address) => latencies.get(&address.octets()[3]),
                IpAddr::V6(_) => None,
            };
            for (plain, sorted) in plain.iter().zip(&sorted) {
                prop_assert_eq!(latency(plain).is_some(), latency(sorted).is_some());
                prop_assert!(latency(plain).is_some() || plain == sorted);
            }
            // A stable sort of what the wrapped snitch says.
            let known = |all: &[IpAddr]| {
                all.iter().copied().filter(|e| latency(e).is_some()).collect::<Vec<_>>()
            };
            let mut expected = known(&plain);
            expected.sort_by_key(|endpoint| latency(endpoint).copied());
            prop_assert_eq!(known(&sorted), expected);
        }
    }
}
