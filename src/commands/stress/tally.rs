//! Counts and latencies of operations.

use super::trouble::{Trouble, TroubleKind};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Latencies in nanoseconds are told apart if they differ by this, or by a thousandth.
const RESOLUTION: u64 = 64;
const DIGITS: u8 = 3;

/// Operations of a run or of a part of it.
#[derive(Debug)]
pub(super) struct Tally {
    /// By the place of the kind in the mix.
    pub(super) kinds: Vec<Latencies>,
    pub(super) troubles: BTreeMap<TroubleKind, Failures>,
}

/// Latencies of operations that succeeded, and the number of those that did not.
#[derive(Debug)]
pub(super) struct Latencies {
    /// From the time at which a call was sent.
    pub(super) service: Histogram<u64>,
    /// From the time at which it was due; empty without a rate.
    pub(super) response: Histogram<u64>,
    pub(super) failed: u64,
}

/// Failures of a kind.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Failures {
    pub(super) count: u64,
    /// Text of the first one.
    pub(super) first: String,
}

/// The times of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    pub(super) due: Option<Duration>,
    pub(super) sent: Duration,
    pub(super) answered: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { service: histogram(), response: histogram(), failed: 0 }
    }
}

/// A histogram that grows with what it records.
fn histogram() -> Histogram<u64> {
    let histogram = Histogram::new_with_bounds(RESOLUTION, 2 * RESOLUTION, DIGITS);
    let mut histogram = histogram.expect("the bounds are valid");
    histogram.auto(true);
    histogram
}

impl Latencies {
    fn add(&mut self, other: &Self) {
        // Histograms that grow take each other's values.
        let _ = self.service.add(&other.service);
        let _ = self.response.add(&other.response);
        self.failed += other.failed;
    }

    /// Those that a report tells first: of responses, if operations had times.
    pub(super) fn main(&self) -> &Histogram<u64> {
        if self.response.is_empty() { &self.service } else { &self.response }
    }
}

impl Tally {
    pub(super) fn new(kinds: usize) -> Self {
        let kinds = std::iter::repeat_with(Latencies::default).take(kinds).collect();
        Self { kinds, troubles: BTreeMap::new() }
    }

    /// Records an operation.
    pub(super) fn record(&mut self, place: usize, times: Times, outcome: Result<(), Trouble>) {
        let Some(latencies) = self.kinds.get_mut(place) else { return };
        if let Err(trouble) = outcome {
            latencies.failed += 1;
            self.fail(trouble, 1);
            return;
        }
        let Times { due, sent, answered } = times;
        let nanos = |since: Duration| answered.saturating_sub(since).as_nanos() as u64;
        // A histogram that grows takes every value.
        let _ = latencies.service.record(nanos(sent));
        if let Some(due) = due {
            let _ = latencies.response.record(nanos(due));
        }
    }

    /// Counts failures of a kind.
    pub(super) fn fail(&mut self, trouble: Trouble, count: u64) {
        let new = || Failures { count: 0, first: trouble.text };
        self.troubles.entry(trouble.kind).or_insert_with(new).count += count;
    }

    /// Adds another tally of the same mix.
    pub(super) fn add(&mut self, other: &Self) {
        for (own, others) in self.kinds.iter_mut().zip(&other.kinds) {
            own.add(others);
        }
        for (kind, Failures { count, first }) in &other.troubles {
            self.fail(Trouble::new(*kind, first), *count);
        }
    }

    pub(super) fn clear(&mut self) {
        for Latencies { service, response, failed } in &mut self.kinds {
            service.reset();
            response.reset();
            *failed = 0;
        }
        self.troubles.clear();
    }

    /// Latencies of all kinds together.
    pub(super) fn all(&self) -> Latencies {
        let mut all = Latencies::default();
        for latencies in &self.kinds {
            all.add(latencies);
        }
        all
    }

    pub(super) fn succeeded(&self) -> u64 {
        self.kinds.iter().map(|latencies| latencies.service.len()).sum()
    }

    pub(super) fn failed(&self) -> u64 {
        self.troubles.values().map(|failures| failures.count).sum()
    }
}
