//! Requests that took long.

use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, rank};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests that are kept. The oldest goes for a further one.
const MOST_KEPT: usize = 200;

/// The most characters that are kept of what a request is about.
const LONGEST_SUBJECT: usize = 300;

/// Shortest time between two lines of the log.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A request that took long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRequest {
    /// When it ended, in milliseconds since the Unix epoch.
    pub ended_millis: u64,
    /// How long it took, to a few milliseconds.
    pub took_millis: u64,
    /// The client.
    pub client: IpAddr,
    /// The protocol.
    pub protocol: String,
    /// The call.
    pub call: String,
    /// The consistency level; empty without one.
    pub level: String,
    /// The statement, or the place of the data. No values.
    pub subject: String,
    /// Why it failed, in the word of the metrics; `None` if it did not.
    pub failure: Option<String>,
}

/// Keeps the last requests that took long, and logs them.
#[derive(Debug)]
pub struct SlowRequests {
    /// Requests that took as long are kept, in milliseconds; `u64::MAX` for none.
    threshold: AtomicU64,
    recent: Mutex<rank::Last, VecDeque<SlowRequest>>,
    log: LimitedLog<()>,
}

impl SlowRequests {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let log = LimitedLog::new("alexandra::slow", clock, LOG_INTERVAL);
        Self { threshold: AtomicU64::new(u64::MAX), recent: Mutex::default(), log }
    }

    /// Keeps requests that take as long from now on; `None` for none.
    pub fn set_threshold(&self, threshold: Option<Duration>) {
        let millis = threshold.map_or(u64::MAX, |it| it.as_millis() as u64);
        self.threshold.store(millis, Ordering::Relaxed);
    }

    /// How long a request takes that is kept; `None` if none is.
    pub fn threshold(&self) -> Option<Duration> {
        let millis = self.threshold.load(Ordering::Relaxed);
        (millis != u64::MAX).then(|| Duration::from_millis(millis))
    }

    /// The requests that are kept, the last one first.
    pub fn recent(&self) -> Vec<SlowRequest> {
        self.recent.lock().iter().rev().cloned().collect()
    }

    pub(super) fn is_slow(&self, millis: u64) -> bool {
        millis >= self.threshold.load(Ordering::Relaxed)
    }

    pub(super) fn keep(&self, mut request: SlowRequest) {
        // A line each, whatever a client has sent.
        let shown = request.subject.chars().map(|it| if it.is_control() { ' ' } else { it });
        request.subject = shown.take(LONGEST_SUBJECT).collect();
        let SlowRequest { took_millis, client, protocol, call, level, subject, failure, .. } =
            &request;
        let at = if level.is_empty() { String::new() } else { format!(" at {level}") };
        let outcome = failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        self.log.warn(
            (),
            format_args!(
                "slow: {protocol} {call}{at} of {client} took {took_millis} ms{outcome}: {subject}"
            ),
        );
        let mut recent = self.recent.lock();
        if recent.len() == MOST_KEPT {
            recent.pop_front();
        }
        recent.push_back(request);
    }
}
