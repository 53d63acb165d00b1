//! A write that is under way: who has acknowledged which row, and who gets a hint at the end.

use super::hinting::Hinting;
use super::requirement::Requirement;
use super::unacknowledged::Unacknowledged;
use super::view::Endpoints;
use crate::base::lock::{Mutex, rank};
use crate::model::mutation::RowMutation;
use crate::net::messenger::Replies;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Who has answered of those whose answers are needed.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    requirement: Requirement,
    from: Endpoints,
    is_met: bool,
}

impl Acknowledgements {
    /// None so far.
    pub(super) fn new(requirement: Requirement) -> Self {
        let is_met = requirement.is_met_by(std::iter::empty());
        Self { requirement, from: Endpoints::new(), is_met }
    }

    /// Counts one. Whether the requirement is met by it that was not before.
    pub(super) fn add(&mut self, from: IpAddr) -> bool {
        if !self.from.contains(&from) {
            self.from.push(from);
        }
        self.requirement.is_met_by(self.from.iter().copied()) && self.meet()
    }

    /// Makes do with what there is.
    fn meet(&mut self) -> bool {
        !std::mem::replace(&mut self.is_met, true)
    }

    /// Whether there are enough.
    pub(super) fn are_enough(&self) -> bool {
        self.is_met
    }
}

/// Rows that replicas are to apply. Acknowledgements are counted until all replicas have answered
/// or the time is over, also when the client has its answer long since: whoever is missing then
/// gets a hint.
pub(super) struct WriteRequest {
    rows: Arc<[RowMutation]>,
    hints: Option<Arc<Hinting>>,
    /// Has counted each row for each of those it was sent to.
    unacknowledged: Arc<Unacknowledged>,
    /// Shows that it is under way, to who waits for the writes of a ring that was.
    #[expect(dead_code, reason = "that it lives is what it is for")]
    under_way: Arc<()>,
    state: Mutex<rank::State, State>,
}

struct State {
    rows: Vec<Acknowledgements>,
    /// How many rows have too few acknowledgements.
    unmet: usize,
    done: Option<oneshot::Sender<()>>,
}

impl WriteRequest {
    /// A write of these rows, with who has to acknowledge each. The receiver hears when all have
    /// enough acknowledgements.
    pub(super) fn new(
        rows: Arc<[RowMutation]>,
        requirements: impl Iterator<Item = Requirement>,
        hints: Option<Arc<Hinting>>,
        unacknowledged: Arc<Unacknowledged>,
        under_way: Arc<()>,
    ) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (done, is_done) = oneshot::channel();
        let states: Vec<Acknowledgements> = requirements.map(Acknowledgements::new).collect();
        let unmet = states.iter().filter(|row| !row.are_enough()).count();
        let state = State { rows: states, unmet, done: Some(done) };
        let state = Mutex::new(state);
        let request = Self { rows, hints, unacknowledged, under_way, state };
        request.update(|_| {});
        (Arc::new(request), is_done)
    }

    /// The rows.
    pub(super) fn rows(&self) -> &Arc<[RowMutation]> {
        &self.rows
    }

    /// Counts an acknowledgement of one row.
    pub(super) fn acknowledge(&self, row: usize, from: IpAddr) {
        self.update(|state| state.count(row, |row| row.add(from)));
    }

    /// Counts the acknowledgements of a node that has applied these rows.
    pub(super) fn acknowledge_all(&self, rows: impl Iterator<Item = usize>, from: IpAddr) {
        self.update(|state| {
            for row in rows {
                state.count(row, |row| row.add(from));
            }
        });
    }

    /// Counts a hint as all that the row needs, for who is content with that.
    pub(super) fn accept_hint(&self, row: usize) {
        self.update(|state| state.count(row, Acknowledgements::meet));
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        change(&mut state);
        if state.unmet == 0
            && let Some(done) = state.done.take()
        {
            // Nobody may wait any more.
            let _ = done.send(());
        }
    }

    /// These need not acknowledge a row any more that was counted for them.
    pub(super) fn settle(&self, row: usize, nodes: &[IpAddr]) {
        if let Some(mutation) = self.rows.get(row) {
            for node in nodes {
                self.unacknowledged.settle(*node, mutation);
            }
        }
    }

    fn hint(&self, row: usize, targets: &[IpAddr]) {
        if let (Some(hints), Some(mutation)) = (&self.hints, self.rows.get(row)) {
            for target in targets {
                hints.keep(*target, mutation);
            }
        }
    }
}

impl State {
    /// `change` says whether the row has enough by it and had not before.
    fn count(&mut self, row: usize, change: impl FnOnce(&mut Acknowledgements) -> bool) {
        let is_newly_met = self.rows.get_mut(row).is_some_and(change);
        self.unmet -= usize::from(is_newly_met);
    }
}

impl Replies for WriteRequest {
    /// Whatever the body says: a replica that did not write does not answer.
    fn on_reply(&self, row: u32, from: IpAddr, _body: &[u8], _took: Duration) {
        self.settle(row as usize, &[from]);
        self.acknowledge(row as usize, from);
    }

    fn on_timeout(&self, row: u32, missing: &[IpAddr]) {
        self.hint(row as usize, missing);
        self.settle(row as usize, missing);
    }
}

impl fmt::Debug for WriteRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteRequest").field("rows", &self.rows.len()).finish_non_exhaustive()
    }
}
