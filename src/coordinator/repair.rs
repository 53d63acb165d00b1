//! Read repair: replicas that were found to lack something get it.

use super::CoordinatorError;
use super::coordinator::Coordinator;
use super::requirement::Requirement;
use super::row_read::Resolved;
use super::view::{Endpoints, ReadReplicas, View};
use super::write_request::Acknowledgements;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::version::RowVersion;
use crate::net::messenger::{Replies, Request};
use crate::net::{Verb, bodies};
use crate::replica::{ReplicaError, RowQuery};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// What does not fit into one message is sent in parts that would fit so many times.
const PARTS_IN_A_MESSAGE: usize = 8;

/// Repairs that a read waits for: those who get one count together with those who need none.
#[derive(Debug)]
struct RepairRequest {
    requirement: Requirement,
    /// All who may come to count.
    endpoints: Endpoints,
    state: Mutex<rank::Request, RepairState>,
}

#[derive(Debug)]
struct RepairState {
    acknowledgements: Acknowledgements,
    /// How many further messages those have to acknowledge whose repair does not fit into one.
    further: BTreeMap<IpAddr, usize>,
    done: Option<oneshot::Sender<Result<(), ReplicaError>>>,
}

impl RepairRequest {
    fn new(
        replicas: &ReadReplicas,
        consistent: &[IpAddr],
    ) -> (Arc<Self>, oneshot::Receiver<Result<(), ReplicaError>>) {
        let (done, is_done) = oneshot::channel();
        let ReadReplicas { live: endpoints, requirement } = replicas.clone();
        let acknowledgements = Acknowledgements::new(requirement.clone());
        let state = RepairState { acknowledgements, further: BTreeMap::new(), done: Some(done) };
        let state = Mutex::new(state);
        let request = Self { requirement, endpoints, state };
        for endpoint in consistent {
            request.acknowledge(*endpoint);
        }
        (Arc::new(request), is_done)
    }

    fn acknowledge(&self, from: IpAddr) {
        let mut state = self.lock();
        if let Some(further @ 1..) = state.further.get_mut(&from) {
            *further -= 1;
        } else if state.acknowledgements.add(from) {
            state.finish(Ok(()));
        }
    }

    /// A replica has to acknowledge so many messages.
    fn expect(&self, from: IpAddr, messages: usize) {
        self.lock().further.insert(from, messages.saturating_sub(1));
    }

    /// A replica will not get its repair. That is no harm if the others are enough.
    fn fail(&self, endpoint: IpAddr, error: ReplicaError) {
        let others = self.endpoints.iter().copied().filter(|other| *other != endpoint);
        if self.requirement.is_met_by(others) {
            log::warn!("this node could not repair what it is a replica of: {error}");
        } else {
            self.lock().finish(Err(error));
        }
    }

    fn lock(&self) -> MutexGuard<'_, RepairState> {
        self.state.lock()
    }
}

impl RepairState {
    fn finish(&mut self, result: Result<(), ReplicaError>) {
        if let Some(done) = self.done.take() {
            // The read may have been given up.
            let _ = done.send(result);
        }
    }
}

impl Replies for RepairRequest {
    fn on_reply(&self, _tag: u32, from: IpAddr, _body: &[u8], _took: Duration) {
        self.acknowledge(from);
    }

    /// The read has failed, and the next one finds what is missing.
    fn on_timeout(&self, _tag: u32, _missing: &[IpAddr]) {}
}

/// What is lacking in parts that fit into messages of so many bytes, as far as its cells do. Any of
/// them may be applied without the others.
fn parts(lacking: &RowVersion, max_body: usize) -> Vec<RowVersion> {
    // A cell takes less than twice as much in a message, and what stands around them takes little.
    let length = |cell: &Cell| 2 * cell.encoded_length();
    if lacking.cells.iter().map(length).sum::<usize>() <= max_body / 2 {
        return vec![lacking.clone()];
    }
    let (mut parts, mut bytes) = (Vec::new(), 0);
    let mut part = RowVersion { deletion: lacking.deletion, cells: Vec::new() };
    for cell in &lacking.cells {
        if bytes + length(cell) > max_body / PARTS_IN_A_MESSAGE && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += length(cell);
        part.cells.push(cell.clone());
    }
    parts.push(part);
    parts
}

impl Coordinator {
    /// Sends replicas what they lack. Waits until so many replicas have what was read as the read
    /// needed, so that no later read at this level finds less. If those that lack something do not
    /// take it, as with a full disk, others that were not asked get all that was read.
    pub(super) async fn repair(
        self: &Arc<Self>,
        wanted: RowQuery<'_>,
        resolved: Resolved,
        replicas: &ReadReplicas,
        deadline: Instant,
    ) -> Result<(), CoordinatorError> {
        let Resolved { version, consistent, repairs } = resolved;
        if repairs.is_empty() || !self.repairs_reads {
            return Ok(());
        }
        self.counters.repairs.fetch_add(repairs.len() as u64, Ordering::Relaxed);
        if replicas.requirement.is_met_by(consistent.iter().copied()) {
            for (endpoint, lacking) in repairs {
                self.repair_unwaited(wanted, endpoint, &lacking)?;
            }
            return Ok(());
        }
        let (request, mut done) = RepairRequest::new(replicas, &consistent);
        for (endpoint, lacking) in &repairs {
            self.repair_waited(wanted, *endpoint, lacking, &request)?;
        }
        let is_unasked = |it: &&IpAddr| {
            !consistent.contains(it) && !repairs.iter().any(|(repaired, _)| repaired == *it)
        };
        let unasked: Endpoints = replicas.live.iter().filter(is_unasked).copied().collect();
        let patience = self.latencies.patience().unwrap_or(self.rpc_timeout / 2);
        let until = deadline.min(Instant::now() + patience);
        let done = if let Ok(done) = timeout_at(until, &mut done).await {
            done
        } else {
            for endpoint in unasked {
                self.repair_waited(wanted, endpoint, &version, &request)?;
            }
            timeout_at(deadline, done).await.map_err(|_| CoordinatorError::TimedOut)?
        };
        Ok(done.map_err(|_| CoordinatorError::TimedOut)??)
    }

    fn repair_waited(
        &self,
        wanted: RowQuery<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
        request: &Arc<RepairRequest>,
    ) -> Result<(), CoordinatorError> {
        if endpoint == self.local {
            let mutation = self.repair_mutation(wanted, lacking);
            let (replica, request) = (Arc::clone(&self.replica), Arc::clone(request));
            self.begin(async move {
                match replica.apply(&[mutation]).await.wait().await {
                    Ok(()) => request.acknowledge(endpoint),
                    Err(error) => request.fail(endpoint, error),
                }
            });
            return Ok(());
        }
        let bodies = self.repair_bodies(wanted, endpoint, lacking)?;
        if bodies.is_empty() {
            request.acknowledge(endpoint);
        }
        request.expect(endpoint, bodies.len());
        for body in bodies {
            let replies: Arc<dyn Replies> = Arc::clone(request) as _;
            let (verb, headers) = (Verb::Mutation, Vec::new());
            let message = Request { verb, headers, body: &body, tag: 0 };
            self.messenger.request(message, &[endpoint], &replies)?;
        }
        Ok(())
    }

    /// The messages that give a replica what it lacks: one, unless that is more than a message can
    /// hold. A column that alone is too large is left out: no read shall fail for it each time.
    fn repair_bodies(
        &self,
        wanted: RowQuery<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
    ) -> Result<Vec<Vec<u8>>, CoordinatorError> {
        let mut bodies = Vec::new();
        for part in parts(lacking, self.messenger.max_body_bytes()) {
            let mutation = self.repair_mutation(wanted, &part);
            let body = bodies::encode_mutation(&mutation, &self.schema)?;
            match self.messenger.check_body(body.len()) {
                Ok(()) => bodies.push(body),
                Err(error) => {
                    let line =
                        format_args!("{endpoint} lacks a column that cannot be sent: {error}");
                    self.messenger.warn(endpoint, line);
                }
            }
        }
        Ok(bodies)
    }

    fn repair_unwaited(
        &self,
        wanted: RowQuery<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
    ) -> Result<(), CoordinatorError> {
        if endpoint == self.local {
            let mutation = self.repair_mutation(wanted, lacking);
            let replica = Arc::clone(&self.replica);
            self.begin(async move {
                if let Err(error) = replica.apply(&[mutation]).await.wait().await {
                    log::warn!("this node could not repair what it is a replica of: {error}");
                }
            });
            return Ok(());
        }
        for body in self.repair_bodies(wanted, endpoint, lacking)? {
            self.messenger.send(Verb::ReadRepair, &body, endpoint)?;
        }
        Ok(())
    }

    fn repair_mutation(&self, wanted: RowQuery<'_>, lacking: &RowVersion) -> RowMutation {
        lacking.to_mutation(&self.schema, wanted.family, wanted.key)
    }

    /// Compares all replicas of a row behind the back of the client, for a share of the reads
    /// (`ReadRepairChance`): those that the read did not need may differ.
    pub(super) fn check_in_background(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        replicas: &ReadReplicas,
    ) {
        if replicas.live.len() < 2 || !self.repairs_reads || !self.is_chosen(wanted.family) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.compares).try_acquire_owned() else { return };
        let (coordinator, view) = (Arc::clone(self), Arc::clone(view));
        let (key, slice): (RowKey, _) = (wanted.key.clone(), wanted.slice.clone());
        let (family, live) = (wanted.family, replicas.live.clone());
        self.tasks.spawn(async move {
            let wanted = RowQuery { family, key: &key, slice: &slice };
            let comparing = coordinator.compare(&view, wanted, live);
            if let Some(Err(error)) = coordinator.stopping.run_until_cancelled(comparing).await {
                log::debug!("the replicas of row {key} could not be compared: {error}");
            }
            coordinator.counters.comparisons.fetch_add(1, Ordering::Relaxed);
            drop(permit);
        });
    }

    async fn compare(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: RowQuery<'_>,
        live: Endpoints,
    ) -> Result<(), CoordinatorError> {
        let deadline = Instant::now() + self.rpc_timeout;
        let requirement = Requirement::any(live.len());
        let mut ticket = self.ticket().scratch();
        let all = ReadReplicas { live, requirement };
        let read = self.row_read(view, wanted, &all).making_do();
        let resolved = self.resolve(view, wanted, read, deadline, &mut ticket).await?;
        for (endpoint, lacking) in resolved.repairs {
            self.counters.repairs.fetch_add(1, Ordering::Relaxed);
            self.repair_unwaited(wanted, endpoint, &lacking)?;
        }
        Ok(())
    }
}
