//! State of an operation, for operators.

use super::compare::FamilyRepair;
use super::progress::{Progress, ProgressByNode};
use crate::base::lock::{Mutex, MutexGuard, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Kinds of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// To join the ring with the data of the new range.
    Bootstrap,
    /// To leave it.
    Decommission,
    /// To leave it and join at another token.
    Move,
    /// To move to where the most is to be done.
    Loadbalance,
    /// To take a dead node out.
    Removetoken,
    /// To take the place of a dead node.
    Replace,
    /// To drop what this node holds no more.
    Cleanup,
    /// To make replicas alike.
    Repair,
}

/// An operation as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationReport {
    /// Which.
    pub kind: OperationKind,
    /// Its present step, in words of 0.6 where it had any.
    pub mode: String,
    /// How far each node is that collects data.
    pub fetched: BTreeMap<IpAddr, Progress>,
    /// Results of a repair so far, by column family.
    pub repaired: Vec<FamilyRepair>,
    /// Rows that replicas have hashed of what it compares at the moment, and about how many they
    /// are to hash.
    pub hashed: (u64, u64),
    /// Time that it has taken.
    pub took: Duration,
    /// How it ended; none as long as it is under way. A text that tells what was done, or why not.
    pub outcome: Option<Result<String, String>>,
}

/// An operation that is under way, or was the last.
#[derive(Debug)]
pub(super) struct OperationRun {
    pub(super) kind: OperationKind,
    began: Duration,
    /// Progress of the nodes that collect data.
    pub(super) fetching: ProgressByNode,
    /// Progress of the replicas with what is compared at the moment.
    pub(super) hashing: ProgressByNode,
    /// Without this progress, and with the time of its end only.
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
        let (fetching, hashing) = Default::default();
        let state = Mutex::new(OperationReport {
            kind,
            mode: "beginning".to_owned(),
            fetched: BTreeMap::new(),
            repaired: Vec::new(),
            hashed: (0, 0),
            took: Duration::ZERO,
            outcome: None,
        });
        Arc::new(Self { kind, began, fetching, hashing, state })
    }

    /// It does this from now on.
    pub(super) fn enter(&self, mode: &str) {
        log::info!("{mode}");
        mode.clone_into(&mut self.lock().mode);
    }

    /// This was repaired until now.
    pub(super) fn note_repaired(&self, repaired: &[FamilyRepair]) {
        repaired.clone_into(&mut self.lock().repaired);
    }

    pub(super) fn end(&self, now: Duration, outcome: Result<String, String>) {
        match &outcome {
            Ok(done) => log::info!("{}: {done}", self.kind.name()),
            Err(why) => log::error!("{} did not succeed: {why}", self.kind.name()),
        }
        let mut state = self.lock();
        (state.took, state.outcome) = (now.saturating_sub(self.began), Some(outcome));
    }

    pub(super) fn is_running(&self) -> bool {
        self.lock().outcome.is_none()
    }

    pub(super) fn report(&self, now: Duration) -> OperationReport {
        let mut report = self.lock().clone();
        (report.fetched, report.hashed) = (self.fetching.now(), self.hashing.rows());
        if report.outcome.is_none() {
            report.took = now.saturating_sub(self.began);
        }
        report
    }

    fn lock(&self) -> MutexGuard<'_, OperationReport> {
        self.state.lock()
    }
}
