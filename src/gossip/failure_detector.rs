//! Phi accrual failure detector.
//!
//! The intervals between news of an endpoint are assumed to be exponentially distributed. Phi is
//! the negative decimal logarithm of the probability of a silence as long as the present one:
//! `phi(t) = t / mean / ln 10`. With a threshold of 8 and a mean of one second an endpoint is
//! convicted after 18.4 seconds, with 5 after 11.5 seconds. In small clusters news come on several
//! paths, so the mean is shorter, and so is the wait.

use super::GOSSIP_INTERVAL;
use std::collections::{BTreeMap, VecDeque};
use std::f64::consts::LN_10;
use std::net::IpAddr;
use std::time::Duration;

/// Remembered intervals of an endpoint.
const WINDOW: usize = 1000;

/// Assumed interval before the first news.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// Least mean. Heartbeats grow once a second, and most arrive twice. More frequent ones come from
/// a faulty peer, which must not get others convicted.
const LEAST_MEAN: Duration = Duration::from_millis(250);

/// Longest interval that counts. The mean of a peer that was cut off for a while, not long enough
/// to be convicted, would otherwise hide its death for many minutes; with the bound it takes at
/// most `threshold * 2 s * ln 10`, 37 seconds for 8. The original has no such bound.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// Number of intervals below which the mean counts as at least [`GOSSIP_INTERVAL`], since the first
/// ones are short by chance. The original has no such rule, and in a cluster of 50 nodes that start
/// at once they convict each other in the first seconds.
const YOUNG: usize = 20;

/// Longest time between two observations unless the observer itself had stopped.
const PAUSE: Duration = Duration::from_secs(2);

/// Collects the times of news of endpoints, and rates their silence.
///
/// Time in which the observer did not run (it was stopped, or the machine overloaded) does not
/// count as silence: it may look at the others before it reads what they have sent meanwhile.
#[derive(Debug)]
pub struct FailureDetector {
    /// Endpoints are convicted above this phi.
    pub threshold: f64,
    windows: BTreeMap<IpAddr, ArrivalWindow>,
    /// Time of the last observation.
    observed: Duration,
    /// Time for which the observer has been stopped so far.
    paused: Duration,
}

/// The last intervals between news of one endpoint.
#[derive(Debug)]
struct ArrivalWindow {
    /// Time of the last news, on the scale of [`FailureDetector::running`].
    last: Duration,
    intervals: VecDeque<Duration>,
    sum: Duration,
}

impl FailureDetector {
    /// A detector with this threshold that runs from now on.
    pub fn new(threshold: f64, now: Duration) -> Self {
        Self { threshold, windows: BTreeMap::new(), observed: now, paused: Duration::ZERO }
    }

    /// Longest pause of this node in which no node with the same threshold convicts it: each hears
    /// of a heartbeat twice at most, so the mean is at least half of [`GOSSIP_INTERVAL`], and
    /// `threshold * mean * ln 10` is longer than this.
    pub fn harmless_pause(&self) -> Duration {
        GOSSIP_INTERVAL.mul_f64(self.threshold)
    }

    /// Notes that the observer runs: every second, and before any question.
    pub fn observe(&mut self, now: Duration) {
        self.paused += self.unobserved(now);
        self.observed = self.observed.max(now);
    }

    /// Notes news of an endpoint.
    pub fn report(&mut self, endpoint: IpAddr, now: Duration) {
        self.observe(now);
        let running = self.running(now);
        let window = self.windows.entry(endpoint).or_insert_with(|| ArrivalWindow {
            last: running,
            intervals: VecDeque::new(),
            sum: Duration::ZERO,
        });
        let is_first = window.intervals.is_empty();
        let interval = if is_first { FIRST_INTERVAL } else { running.saturating_sub(window.last) };
        window.add(interval.min(LONGEST_INTERVAL));
        window.last = running;
    }

    /// Drops the history of an endpoint.
    pub fn forget(&mut self, endpoint: IpAddr) {
        self.windows.remove(&endpoint);
    }

    /// The phi of an endpoint's silence; `None` without news of it.
    pub fn phi(&self, endpoint: IpAddr, now: Duration) -> Option<f64> {
        let window = self.windows.get(&endpoint)?;
        let silence = self.running(now).saturating_sub(window.last);
        Some(silence.as_secs_f64() / window.mean().as_secs_f64() / LN_10)
    }

    /// Whether an endpoint counts as dead.
    pub fn convicts(&self, endpoint: IpAddr, now: Duration) -> bool {
        self.phi(endpoint, now).is_some_and(|phi| phi > self.threshold)
    }

    /// The part of the time since the last observation in which the observer was stopped.
    fn unobserved(&self, now: Duration) -> Duration {
        let gap = now.saturating_sub(self.observed);
        if gap > PAUSE { gap.saturating_sub(GOSSIP_INTERVAL) } else { Duration::ZERO }
    }

    /// The time for which the observer ran.
    fn running(&self, now: Duration) -> Duration {
        now.max(self.observed).saturating_sub(self.paused + self.unobserved(now))
    }
}

impl ArrivalWindow {
    fn add(&mut self, interval: Duration) {
        if self.intervals.len() >= WINDOW
            && let Some(oldest) = self.intervals.pop_front()
        {
            self.sum -= oldest;
        }
        self.intervals.push_back(interval);
        self.sum += interval;
    }

    fn mean(&self) -> Duration {
        let count = u32::try_from(self.intervals.len()).unwrap_or(u32::MAX).max(1);
        let is_young = self.intervals.len() < YOUNG;
        (self.sum / count).max(if is_young { GOSSIP_INTERVAL } else { LEAST_MEAN })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::LOG10_E;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn phi_is_computed_as_in_0_6() {
        let mut detector = FailureDetector::new(8.0, ms(0));
        assert_eq!(detector.phi(PEER, ms(10)), None);
        detector.report(PEER, ms(10));
        // One interval of 500 ms is assumed, but not believed yet.
        let phi = detector.phi(PEER, ms(1010)).unwrap();
        assert!((phi - LOG10_E).abs() < 1e-3, "{phi}");
        for news in 1..20 {
            detector.report(PEER, ms(10 + news * 500));
        }
        let phi = detector.phi(PEER, ms(10 + 19 * 500 + 1000)).unwrap();
        assert!((phi - 2.0 * LOG10_E).abs() < 1e-3, "{phi}");
        detector.forget(PEER);
        assert_eq!(detector.phi(PEER, ms(20_000)), None);
    }

    #[test]
    fn a_clock_that_goes_back_does_no_harm() {
        let mut detector = FailureDetector::new(5.0, ms(0));
        detector.report(PEER, ms(2001));
        detector.report(PEER, ms(0));
        assert!(detector.phi(PEER, ms(0)).is_some_and(|phi| phi < 1.0));
    }
}
