//! The part of a write that outlives its answer: acknowledgements, and hints for replicas that have
//! not acknowledged at the end.

use super::consistency::{ReplicaCounts, Requirement};
use super::view::Endpoints;
use crate::base::lock::{Mutex, RwLock, rank};
use crate::model::mutation::RowMutation;
use crate::net::messenger::Replies;
use crate::replica::{HintError, HintPosition, HintStore};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;

/// Rows that replicas are to apply. Acknowledgements are counted until all replicas have answered
/// or the time is over, even if the client already has its answer: replicas that are missing then
/// get hints.
#[derive(derive_more::Debug)]
#[debug("WriteRequest {{ rows: {}, .. }}", rows.len())]
pub(super) struct WriteRequest {
    rows: Arc<[RowMutation]>,
    hints: Option<Arc<Hinting>>,
    /// Counts each row for each node to which it was sent.
    unacknowledged: Arc<Unacknowledged>,
    /// Keeps the writes of a former ring countable while this one is under way.
    #[expect(dead_code, reason = "its reference count is what it is for")]
    under_way: Arc<()>,
    state: Mutex<rank::State, State>,
}

struct State {
    rows: Vec<Acknowledgements>,
    /// Rows with too few acknowledgements.
    unmet: usize,
    done: Option<oneshot::Sender<()>>,
}

/// Acknowledgements of one row.
struct Acknowledgements {
    requirement: Requirement,
    from: Endpoints,
    is_met: bool,
}

impl WriteRequest {
    /// A write of these rows, each with the acknowledgements that it needs. The receiver resolves
    /// when all rows have enough.
    pub(super) fn new(
        rows: Arc<[RowMutation]>,
        requirements: impl Iterator<Item = Requirement>,
        hints: Option<Arc<Hinting>>,
        unacknowledged: Arc<Unacknowledged>,
        under_way: Arc<()>,
    ) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (done, is_done) = oneshot::channel();
        let states: Vec<Acknowledgements> = requirements
            .map(|requirement| Acknowledgements {
                is_met: requirement.is_met_by(std::iter::empty()),
                requirement,
                from: Endpoints::new(),
            })
            .collect();
        let unmet = states.iter().filter(|row| !row.is_met).count();
        let state = Mutex::new(State { rows: states, unmet, done: Some(done) });
        let request = Self { rows, hints, unacknowledged, under_way, state };
        request.acknowledge([], IpAddr::from([0; 4]));
        (Arc::new(request), is_done)
    }

    pub(super) fn rows(&self) -> &Arc<[RowMutation]> {
        &self.rows
    }

    /// Counts acknowledgements of rows by one node.
    pub(super) fn acknowledge(&self, rows: impl IntoIterator<Item = usize>, from: IpAddr) {
        self.update(rows, |row| {
            if !row.from.contains(&from) {
                row.from.push(from);
            }
            row.requirement.is_met_by(row.from.iter().copied())
        });
    }

    /// Counts a hint as all acknowledgements that the row needs.
    pub(super) fn accept_hint(&self, row: usize) {
        self.update([row], |_| true);
    }

    /// Acknowledgements of the first row that has too few.
    pub(super) fn counts(&self) -> ReplicaCounts {
        let state = self.state.lock();
        let mut unmet = state.rows.iter().filter(|row| !row.is_met);
        let counts = unmet.find_map(|it| it.requirement.check(it.from.iter().copied()).err());
        counts.unwrap_or(ReplicaCounts::NONE)
    }

    /// Updates rows by `meets`, which says whether a row has enough acknowledgements now.
    fn update(
        &self,
        rows: impl IntoIterator<Item = usize>,
        meets: impl Fn(&mut Acknowledgements) -> bool,
    ) {
        let State { rows: states, unmet, done } = &mut *self.state.lock();
        for row in rows {
            if let Some(row) = states.get_mut(row).filter(|row| !row.is_met) {
                row.is_met = meets(row);
                *unmet -= usize::from(row.is_met);
            }
        }
        if *unmet == 0
            && let Some(done) = done.take()
        {
            // The client may have left.
            let _ = done.send(());
        }
    }

    /// Stops waiting for acknowledgements of a row that was counted for these nodes.
    pub(super) fn settle(&self, row: usize, nodes: &[IpAddr]) {
        if let Some(mutation) = self.rows.get(row) {
            for node in nodes {
                self.unacknowledged.settle(*node, mutation);
            }
        }
    }
}

impl Replies for WriteRequest {
    /// A replica that did not write does not answer, so the body does not matter.
    fn on_reply(&self, row: u32, from: IpAddr, _body: &[u8], _took: Duration) {
        self.settle(row as usize, &[from]);
        self.acknowledge([row as usize], from);
    }

    fn on_timeout(&self, row: u32, missing: &[IpAddr]) {
        if let (Some(hints), Some(mutation)) = (&self.hints, self.rows.get(row as usize)) {
            for target in missing {
                hints.keep(*target, mutation);
            }
        }
        self.settle(row as usize, missing);
    }
}

/// Keeps hints for others.
#[derive(Debug)]
pub struct Hinting {
    store: Arc<HintStore>,
    waits_for_sync: bool,
}

impl Hinting {
    /// Keeps them in this store. With `waits_for_sync` a hint that stands for an acknowledgement
    /// has to be on disk first, as with a commit log in batch mode.
    pub fn new(store: Arc<HintStore>, waits_for_sync: bool) -> Self {
        Self { store, waits_for_sync }
    }

    /// The store.
    pub fn store(&self) -> &Arc<HintStore> {
        &self.store
    }

    /// Keeps a mutation for a node. Failures go to the log: the write itself does not depend on it.
    pub(super) fn keep(&self, target: IpAddr, mutation: &RowMutation) -> Option<HintPosition> {
        let stored = self.store.store(target, mutation);
        stored.inspect_err(|error| log::debug!("no hint for {target}: {error}")).ok()
    }

    /// Waits until a hint may stand for an acknowledgement.
    pub(super) async fn when_safe(&self, position: HintPosition) -> Result<(), HintError> {
        if !self.waits_for_sync {
            return Ok(());
        }
        let (sender, receiver) = oneshot::channel();
        // The write may have been given up.
        self.store.on_durable(position, Box::new(move |result| drop(sender.send(result))));
        receiver.await.unwrap_or(Ok(()))
    }
}

/// Bytes of mutations for one node that may wait for its acknowledgement. They stay in memory,
/// since they become hints when the time is over: without a bound a silent node would cost as much
/// as is written in `RpcTimeoutInMillis`. A node that answers is far below it.
pub(super) const MAX_UNACKNOWLEDGED: usize = 64 << 20;

/// Approximate memory of a waiting mutation besides its bytes.
const MUTATION_OVERHEAD: usize = 512;

/// Approximate memory of one of its cells besides its bytes.
const CELL_OVERHEAD: usize = 48;

/// Bytes that wait for the acknowledgements of each node.
#[derive(Debug)]
pub(super) struct Unacknowledged {
    limit: usize,
    /// Nodes to which anything was sent: at most those of the ring.
    nodes: RwLock<rank::State, BTreeMap<IpAddr, AtomicUsize>>,
}

impl Unacknowledged {
    /// A node that has `limit` bytes to acknowledge gets no more.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, nodes: RwLock::default() }
    }

    /// Counts a mutation that is to be sent to a node. False, and not counted, if the node has too
    /// much to acknowledge already.
    pub(super) fn admit(&self, node: IpAddr, mutation: &RowMutation) -> bool {
        let cost = cost(mutation);
        let more = |bytes: usize| (bytes < self.limit).then_some(bytes + cost);
        let add = |count: &AtomicUsize| {
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
        };
        let known = self.nodes.read().get(&node).map(add);
        known.unwrap_or_else(|| {
            let mut nodes = self.nodes.write();
            add(nodes.entry(node).or_default())
        })
    }

    /// Stops counting a mutation.
    pub(super) fn settle(&self, node: IpAddr, mutation: &RowMutation) {
        let nodes = self.nodes.read();
        if let Some(count) = nodes.get(&node) {
            count.fetch_sub(cost(mutation), Ordering::Relaxed);
        }
    }
}

fn cost(mutation: &RowMutation) -> usize {
    let cells: usize = mutation.families.iter().map(|family| family.cells.len()).sum();
    mutation.record().len() + cells * CELL_OVERHEAD + MUTATION_OVERHEAD
}
