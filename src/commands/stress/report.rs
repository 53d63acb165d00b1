//! The report of a run: live lines, a table at the end, or JSON.

use super::calls::Calls;
use super::nodes::Nodes;
use super::pace::Pace;
use super::run::Outcome;
use super::tally::{Failures, Latencies};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Report of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    nodes: String,
    scenario: String,
    threads: u64,
    /// Operations due each second.
    rate: Option<f64>,
    seconds: f64,
    pub(super) operations_per_second: f64,
    /// Operations that were due and had no turn.
    left_out: u64,
    failures: BTreeMap<&'static str, Failures>,
    calls: Vec<CallReport>,
    all: CallReport,
}

/// Calls of a method.
#[derive(Debug, Serialize)]
struct CallReport {
    call: &'static str,
    operations: u64,
    failed: u64,
    /// From the time at which it was due, if it had one; else from the time at which it was sent.
    latency: Quantiles,
    /// From the time at which it was sent, if it had another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<Quantiles>,
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Quantiles {
    mean: f64,
    pub(super) p50: f64,
    p95: f64,
    pub(super) p99: f64,
    #[serde(rename = "p99.9")]
    p999: f64,
    max: f64,
}

impl Quantiles {
    fn of(latencies: &Histogram<u64>) -> Self {
        let at = |quantile| millis(latencies.value_at_quantile(quantile) as f64);
        let (mean, max) = (millis(latencies.mean()), millis(latencies.max() as f64));
        Self { mean, p50: at(0.5), p95: at(0.95), p99: at(0.99), p999: at(0.999), max }
    }

    fn cells(&self) -> String {
        let cells = [self.mean, self.p50, self.p95, self.p99, self.p999, self.max];
        cells.iter().fold(String::new(), |text, cell| format!("{text}{cell:>11.3}"))
    }
}

/// Milliseconds to a thousandth.
fn millis(nanos: f64) -> f64 {
    (nanos / 1000.0).round() / 1000.0
}

/// Operations for each second of a time.
pub(super) fn per_second(operations: u64, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        (operations as f64 / time.as_secs_f64() * 10.0).round() / 10.0
    }
}

impl CallReport {
    fn new(call: &'static str, latencies: &Latencies) -> Self {
        let Latencies { service, response, failed } = latencies;
        Self {
            call,
            operations: service.len(),
            failed: *failed,
            latency: Quantiles::of(latencies.main()),
            service: (!response.is_empty()).then(|| Quantiles::of(service)),
        }
    }

    fn lines(&self) -> String {
        let Self { call, operations, failed, latency, service } = self;
        let mut text = format!("{call:<18}{operations:>11}{failed:>9}{}\n", latency.cells());
        if let Some(service) = service {
            let _ = writeln!(text, "{:<38}{}", "  since it was sent", service.cells());
        }
        text
    }
}

impl Report {
    pub(super) fn new(calls: &Calls, nodes: &Nodes, pace: &Pace, outcome: &Outcome) -> Self {
        let Outcome { tally, time, left_out } = outcome;
        let names = calls.workload.mix.kinds().map(|kind| calls.name(kind));
        let failures = tally.troubles.iter().map(|(kind, it)| (kind.name(), it.clone()));
        Self {
            nodes: nodes.to_string(),
            scenario: calls.workload.mix.to_string(),
            threads: pace.threads,
            rate: pace.rate,
            seconds: time.as_secs_f64(),
            operations_per_second: per_second(tally.succeeded(), *time),
            left_out: *left_out,
            failures: failures.collect(),
            calls: names.zip(&tally.kinds).map(|(name, it)| CallReport::new(name, it)).collect(),
            all: CallReport::new("all", &tally.all()),
        }
    }

    /// Latencies of all calls.
    pub(super) fn latency(&self) -> Quantiles {
        self.all.latency
    }

    /// Whether everything succeeded.
    pub(super) fn is_well(&self) -> bool {
        self.failures.is_empty()
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let Self { nodes, scenario, threads, seconds, operations_per_second, .. } = self;
        let pace = self.rate.map_or_else(String::new, |rate| format!(", {rate} due each second"));
        let mut text = format!(
            "{scenario} on {nodes}: {threads} threads{pace}\n\
             {} operations in {seconds:.1} s, {operations_per_second:.1} each second\n\n\
             {:<18}{:>11}{:>9}{:>11}{:>11}{:>11}{:>11}{:>11}{:>11}\n",
            self.all.operations,
            "latency in ms",
            "operations",
            "failed",
            "mean",
            "p50",
            "p95",
            "p99",
            "p99.9",
            "max"
        );
        let all = (self.calls.len() > 1).then_some(&self.all);
        text.extend(self.calls.iter().chain(all).map(CallReport::lines));
        if self.left_out > 0 {
            let _ = writeln!(
                text,
                "\n{} operations were due and had no turn: there are too few threads for this \
                 rate, or the servers are too slow",
                self.left_out
            );
        }
        if !self.is_well() {
            text += "\n";
        }
        text + &self.failures()
    }

    /// Lines about failures, one for each kind.
    pub(super) fn failures(&self) -> String {
        let line = |(kind, it): (&&str, &Failures)| {
            let kind = kind.replace('_', " ");
            format!("{kind}: {} failures, the first one: {}\n", it.count, it.first)
        };
        self.failures.iter().map(line).collect()
    }
}

/// Head of the live lines.
pub(super) fn live_head() -> String {
    format!(
        "{:>8}{:>12}{:>12}{:>11}{:>11}{:>11}{:>9}",
        "seconds", "operations", "each second", "p50 ms", "p99 ms", "max ms", "failed"
    )
}

/// A live line: an interval, its end, and the operations up to there.
pub(super) fn live_line(interval: &Outcome, end: Duration, operations: u64) -> String {
    let Outcome { tally, time, .. } = interval;
    let Quantiles { p50, p99, max, .. } = Quantiles::of(tally.all().main());
    format!(
        "{:>8.1}{operations:>12}{:>12.1}{p50:>11.3}{p99:>11.3}{max:>11.3}{:>9}",
        end.as_secs_f64(),
        per_second(tally.succeeded(), *time),
        tally.failed()
    )
}
