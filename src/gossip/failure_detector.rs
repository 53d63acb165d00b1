//! Who seems dead: phi accrual.
//!
//! The intervals between news of an endpoint are taken for exponentially distributed. Phi is then
//! the negative decimal logarithm of the probability that silence as long as the present one comes
//! by chance: `phi(t) = t / mean / ln 10`. With a threshold of 8 and a mean of one second an
//! endpoint is convicted after 18.4 seconds, with 5 after 11.5 seconds. In small clusters news
//! come on several paths, the mean is shorter, and so is the wait.

use super::GOSSIP_INTERVAL;
use std::collections::{BTreeMap, VecDeque};
use std::f64::consts::LN_10;
use std::net::IpAddr;
use std::time::Duration;

/// How many intervals are remembered of an endpoint.
const WINDOW: usize = 1000;

/// Taken for the interval before the first news.
const FIRST_INTERVAL: Duration = Duration::from_millis(500);

/// A mean is taken for at least this. Heartbeats grow once a second, and most are heard of twice;
/// only a peer gone mad makes them look more frequent, and must not get others convicted by it.
const LEAST_MEAN: Duration = Duration::from_millis(250);

/// A longer interval counts as this. A peer that was cut off for a while, not long enough to be
/// convicted, would have a mean afterwards with which it could be dead for many minutes unnoticed;
/// so it takes at most `threshold * 2 s * ln 10`, which is 37 seconds for 8. The original has no
/// such bound.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// As long as fewer intervals than this are known the mean is taken for at least
/// [`GOSSIP_INTERVAL`]: by chance the first ones are short. The original has no such thing, and in
/// a cluster of 50 that starts at once its nodes convict each other in the first seconds.
const YOUNG: usize = 20;

/// When nothing was observed for longer than this, the observer itself had stopped.
const PAUSE: Duration = Duration::from_secs(2);

/// Collects when there were news of endpoints, and tells how suspicious their silence is.
///
/// Time during which the observer did not run (stopped, or the machine overloaded) is nobody's
/// silence: when it runs again it may look at the others before it reads what they have sent
/// meanwhile.
#[derive(Debug)]
pub struct FailureDetector {
    threshold: f64,
    windows: BTreeMap<IpAddr, ArrivalWindow>,
    /// When something was observed last.
    observed: Duration,
    /// How long the observer has stood still so far.
    paused: Duration,
}

/// The last intervals between news of one endpoint.
#[derive(Debug)]
struct ArrivalWindow {
    /// When the last news came, in time that the observer ran.
    last: Duration,
    intervals: VecDeque<Duration>,
    sum: Duration,
}

impl FailureDetector {
    /// A detector that convicts above this phi, and runs from now on.
    pub fn new(threshold: f64, now: Duration) -> Self {
        Self { threshold, windows: BTreeMap::new(), observed: now, paused: Duration::ZERO }
    }

    /// Convicts above this phi from now on.
    pub fn set_threshold(&mut self, threshold: f64) {
        self.threshold = threshold;
    }

    /// Convicts above this phi.
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// A pause of this node in which no other one convicts it, if they have the same threshold:
    /// they hear of a heartbeat twice at most, so the mean is at least half of
    /// [`GOSSIP_INTERVAL`], and `threshold * mean * ln 10` is longer than this.
    pub fn harmless_pause(&self) -> Duration {
        GOSSIP_INTERVAL.mul_f64(self.threshold)
    }

    /// The observer runs. It has to say so every second, and before it asks.
    pub fn observe(&mut self, now: Duration) {
        self.paused += self.unobserved(now);
        self.observed = self.observed.max(now);
    }

    /// When the observer ran last.
    pub fn observed(&self) -> Duration {
        self.observed
    }

    /// There are news of an endpoint.
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

    /// Nothing is remembered of this endpoint any more.
    pub fn forget(&mut self, endpoint: IpAddr) {
        self.windows.remove(&endpoint);
    }

    /// How suspicious the silence of an endpoint is; none as long as there were no news of it.
    pub fn phi(&self, endpoint: IpAddr, now: Duration) -> Option<f64> {
        let window = self.windows.get(&endpoint)?;
        let silence = self.running(now).saturating_sub(window.last);
        Some(silence.as_secs_f64() / window.mean().as_secs_f64() / LN_10)
    }

    /// Whether an endpoint is to be taken for dead.
    pub fn convicts(&self, endpoint: IpAddr, now: Duration) -> bool {
        self.phi(endpoint, now).is_some_and(|phi| phi > self.threshold)
    }

    /// The part of the time since the last observation in which the observer stood still.
    fn unobserved(&self, now: Duration) -> Duration {
        let gap = now.saturating_sub(self.observed);
        if gap > PAUSE { gap.saturating_sub(GOSSIP_INTERVAL) } else { Duration::ZERO }
    }

    /// The time that the observer ran, on a scale of its own.
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
    fn phi_is_what_the_original_computes() {
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
