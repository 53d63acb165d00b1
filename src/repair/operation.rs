//! State of an operation, for operators.

use super::compare::FamilyRepair;
use super::progress::{Progress, ProgressByNode};
use crate::base::lock::{Mutex, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// Joins the ring with the data of a range.
    Bootstrap,
    /// Leaves the ring.
    Decommission,
    /// Leaves the ring and joins it at another token.
    Move,
    /// Moves to the busiest range.
    Loadbalance,
    /// Removes a dead node.
    Removetoken,
    /// Takes the place of a dead node.
    Replace,
    /// Drops data of which this node is no replica.
    Cleanup,
    /// Makes replicas equal.
    Repair,
}

/// State of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationReport {
    /// Its kind.
    pub kind: OperationKind,
    /// When it began, since the start of the server. No two begin at the same time.
    pub began: Duration,
    /// Its present step, in words of 0.6 where it had any.
    pub mode: String,
    /// Progress of the nodes that collect data.
    pub fetched: BTreeMap<IpAddr, Progress>,
    /// Results of a repair so far, by column family.
    pub repaired: Vec<FamilyRepair>,
    /// Hashed rows of the present comparison, and an estimate of their number.
    pub hashed: (u64, u64),
    /// Time that it has taken.
    pub took: Duration,
    /// The result as a text; `None` while it is under way.
    pub outcome: Option<Result<String, String>>,
}

/// An operation that is under way, or was the last.
#[derive(Debug)]
pub(super) struct OperationRun {
    pub(super) kind: OperationKind,
    began: Duration,
    /// Progress of the nodes that collect data.
    pub(super) fetching: ProgressByNode,
    /// Progress of the replicas with the present comparison.
    pub(super) hashing: ProgressByNode,
    /// Cancelled by an operator.
    pub(super) stop: CancellationToken,
    /// Without the progress, and with the time of the end only.
    state: Mutex<rank::Gossip, OperationReport>,
}

impl OperationKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Decommission => "decommission",
            Self::Move => "move",
            Self::Loadbalance => "loadbalance",
            Self::Removetoken => "removetoken",
            Self::Replace => "replace",
            Self::Cleanup => "cleanup",
            Self::Repair => "repair",
        }
    }
}

impl OperationRun {
    pub(super) fn new(kind: OperationKind, began: Duration) -> Arc<Self> {
        let (fetching, hashing, stop) = Default::default();
        let state = Mutex::new(OperationReport {
            kind,
            began,
            mode: "beginning".to_owned(),
            fetched: BTreeMap::new(),
            repaired: Vec::new(),
            hashed: (0, 0),
            took: Duration::ZERO,
            outcome: None,
        });
        Arc::new(Self { kind, began, fetching, hashing, stop, state })
    }

    /// Begins a step.
    pub(super) fn enter(&self, mode: &str) {
        log::info!("{mode}");
        mode.clone_into(&mut self.state.lock().mode);
    }

    /// Takes the results of a repair so far.
    pub(super) fn note_repaired(&self, repaired: &[FamilyRepair]) {
        repaired.clone_into(&mut self.state.lock().repaired);
    }

    pub(super) fn end(&self, now: Duration, outcome: Result<String, String>) {
        match &outcome {
            Ok(done) => log::info!("{}: {done}", self.kind.name()),
            Err(why) => log::error!("{} did not succeed: {why}", self.kind.name()),
        }
        let mut state = self.state.lock();
        (state.took, state.outcome) = (now.saturating_sub(self.began), Some(outcome));
    }

    pub(super) fn is_running(&self) -> bool {
        self.state.lock().outcome.is_none()
    }

    pub(super) fn report(&self, now: Duration) -> OperationReport {
        let mut report = self.state.lock().clone();
        (report.fetched, report.hashed) = (self.fetching.now(), self.hashing.rows());
        if report.outcome.is_none() {
            report.took = now.saturating_sub(self.began);
        }
        report
    }
}
