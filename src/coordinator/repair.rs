//! Read repair: replicas that were found to lack something get it.

use super::CoordinatorError;
use super::consistency::{ReplicaCounts, Requirement};
use super::coordinator::Coordinator;
use super::latencies::Latencies;
use super::quorum::{Exchange, Outgoing, Question, Request};
use super::row_read::Resolved;
use super::view::{Endpoints, ReadReplicas, View};
use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::Schema;
use crate::model::version::RowVersion;
use crate::net::{Verb, bodies};
use crate::replica::{Replica, ReplicaError, RowQuery};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A repair that does not fit into one message is sent in parts, each of about this fraction of
/// one.
const PARTS_IN_A_MESSAGE: usize = 8;

/// Repairs that a read waits for: repaired replicas count together with those that need no repair.
struct RepairWrite<'a> {
    coordinator: &'a Coordinator,
    row: RowQuery<'a>,
    /// All that was read.
    version: RowVersion,
    replicas: &'a ReadReplicas,
    /// Replicas that have all of it.
    consistent: Endpoints,
    /// Data that replicas lack, until they get them.
    repairs: Vec<(IpAddr, RowVersion)>,
    /// Replicas that were not asked for the row. They get all of it when others do not take their
    /// repairs, as with a full disk.
    unasked: Endpoints,
    /// Messages that replicas have to acknowledge.
    waiting: BTreeMap<IpAddr, usize>,
}

/// One message of a repair, or all of it for this node.
enum RepairPart {
    Here(RowMutation),
    Message(Vec<u8>),
}

impl RepairWrite<'_> {
    fn requests(&mut self, to: IpAddr, lacking: &RowVersion) -> Vec<Request<RepairPart>> {
        let Self { coordinator, row, .. } = *self;
        let parts = if to == coordinator.local {
            vec![RepairPart::Here(coordinator.repair_mutation(row, lacking))]
        } else {
            let bodies = coordinator.repair_bodies(row, to, lacking);
            bodies.into_iter().map(RepairPart::Message).collect()
        };
        if parts.is_empty() {
            self.consistent.push(to);
        }
        self.waiting.insert(to, parts.len());
        parts.into_iter().map(|what| Request { to, round: 0, what }).collect()
    }
}

impl Question for RepairWrite<'_> {
    type What = RepairPart;
    type Reply = ();
    type Answer = ();

    fn begin(&mut self) -> Vec<Request<RepairPart>> {
        let repairs = std::mem::take(&mut self.repairs);
        repairs.iter().flat_map(|(to, lacking)| self.requests(*to, lacking)).collect()
    }

    fn on_reply(&mut self, from: IpAddr, (): ()) -> Vec<Request<RepairPart>> {
        if let Some(left @ 1..) = self.waiting.get_mut(&from) {
            *left -= 1;
            if *left == 0 {
                self.consistent.push(from);
            }
        }
        Vec::new()
    }

    fn on_slow(&mut self) -> Vec<Request<RepairPart>> {
        let (unasked, version) = (std::mem::take(&mut self.unasked), self.version.clone());
        unasked.into_iter().flat_map(|to| self.requests(to, &version)).collect()
    }

    fn on_failure(&mut self, from: IpAddr) -> Option<Vec<Request<RepairPart>>> {
        let others = self.replicas.live.iter().copied().filter(|other| *other != from);
        self.replicas.requirement.is_met_by(others).then(|| self.on_slow())
    }

    fn counts(&self) -> ReplicaCounts {
        let counts = self.replicas.requirement.check(self.consistent.iter().copied());
        // All that the read needed have answered it.
        ReplicaCounts { has_data: true, ..counts.err().unwrap_or(ReplicaCounts::NONE) }
    }

    fn take_answer(&mut self) -> Option<()> {
        self.replicas.requirement.is_met_by(self.consistent.iter().copied()).then_some(())
    }
}

/// Gives replicas their repairs.
struct RepairExchange(Arc<Schema>);

impl Exchange for RepairExchange {
    type What = RepairPart;
    type Reply = ();

    const ACTION: &'static str = "repair";
    const IS_READ: bool = false;

    fn encode<'a>(
        &'a self,
        _view: &View,
        request: &'a Request<RepairPart>,
    ) -> Result<Outgoing<'a>, CoordinatorError> {
        let body = match &request.what {
            RepairPart::Here(mutation) => bodies::encode_mutation(mutation, &self.0)?.into(),
            RepairPart::Message(body) => body.into(),
        };
        Ok(Outgoing { verb: Verb::Mutation, headers: Vec::new(), body })
    }

    fn decode(&self, _from: IpAddr, _body: &[u8]) -> Result<(), String> {
        Ok(())
    }

    async fn do_here(
        self: Arc<Self>,
        replica: Arc<Replica>,
        what: RepairPart,
        _context: RequestContext,
    ) -> Result<(), ReplicaError> {
        match what {
            RepairPart::Here(mutation) => replica.apply(&[mutation]).await.wait().await,
            RepairPart::Message(_) => Ok(()),
        }
    }

    /// A write says nothing of how long a read takes.
    fn record(&self, _latencies: &Latencies, _from: IpAddr, _took: Duration) {}
}

/// Splits a repair into parts whose cells fit into messages of this size. Each part may be applied
/// without the others.
fn parts(lacking: &RowVersion, max_body: usize) -> Vec<RowVersion> {
    // A cell takes less than twice as much in a message, and the bytes around the cells are few.
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
    /// Sends replicas the data that they lack. Waits until as many replicas have the result as the
    /// read needed, so that no later read at this level finds less. If those that lack something do
    /// not take it, for example with a full disk, other replicas get the whole result.
    pub(super) async fn repair(
        self: &Arc<Self>,
        view: &View,
        row: RowQuery<'_>,
        resolved: Resolved,
        replicas: &ReadReplicas,
        context: &RequestContext,
    ) -> Result<(), CoordinatorError> {
        let Resolved { version, consistent, repairs, .. } = resolved;
        if repairs.is_empty() || !self.repairs_reads() {
            return Ok(());
        }
        self.update_stats(|stats| stats.repairs += repairs.len() as u64);
        if replicas.requirement.is_met_by(consistent.iter().copied()) {
            for (endpoint, lacking) in repairs {
                self.repair_unwaited(row, endpoint, &lacking)?;
            }
            return Ok(());
        }
        let is_unasked = |it: &&IpAddr| {
            !consistent.contains(it) && !repairs.iter().any(|(repaired, _)| repaired == *it)
        };
        let write = RepairWrite {
            coordinator: self,
            row,
            version,
            replicas,
            unasked: replicas.live.iter().filter(is_unasked).copied().collect(),
            consistent: consistent.into_iter().collect(),
            repairs,
            waiting: BTreeMap::new(),
        };
        let delay = self.latencies.row_delay().unwrap_or(self.rpc_timeout() / 2);
        let exchange = RepairExchange(Arc::clone(&self.schema));
        self.drive(view, write, exchange, Some(delay), &mut context.child()).await
    }

    /// The messages that give a replica what it lacks: one, unless that is more than a message can
    /// hold. A column that cannot be sent is left out: no read shall fail for it each time.
    fn repair_bodies(
        &self,
        row: RowQuery<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
    ) -> Vec<Vec<u8>> {
        let body = |part: &RowVersion| {
            let mutation = self.repair_mutation(row, part);
            let checked = self.messenger.check_cells(&mutation, endpoint);
            let body = checked.and_then(|()| bodies::encode_mutation(&mutation, &self.schema));
            let body = body.map_err(|error| error.to_string())?;
            let checked = self.messenger.check_body(body.len());
            checked.map(|()| body).map_err(|error| error.to_string())
        };
        let parts = parts(lacking, self.messenger.max_body_bytes());
        let sendable = parts.iter().filter_map(|part| {
            let body = body(part).inspect_err(|error| {
                let line = format_args!("{endpoint} lacks a column that cannot be sent: {error}");
                self.messenger.warn(endpoint, line);
            });
            body.ok()
        });
        sendable.collect()
    }

    fn repair_unwaited(
        &self,
        row: RowQuery<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
    ) -> Result<(), CoordinatorError> {
        if endpoint == self.local {
            let mutation = self.repair_mutation(row, lacking);
            let replica = Arc::clone(&self.replica);
            self.begin(async move {
                if let Err(error) = replica.apply(&[mutation]).await.wait().await {
                    log::warn!("this node could not repair what it is a replica of: {error}");
                }
            });
            return Ok(());
        }
        for body in self.repair_bodies(row, endpoint, lacking) {
            self.messenger.send(Verb::ReadRepair, &body, endpoint)?;
        }
        Ok(())
    }

    fn repair_mutation(&self, row: RowQuery<'_>, lacking: &RowVersion) -> RowMutation {
        lacking.to_mutation(&self.schema, row.family, row.key)
    }

    /// Compares all replicas of a row in the background, for a share of the reads
    /// (`ReadRepairChance`): replicas that the read did not need may differ.
    pub(super) fn check_in_background(
        self: &Arc<Self>,
        view: &Arc<View>,
        row: RowQuery<'_>,
        replicas: &ReadReplicas,
    ) {
        if replicas.live.len() < 2 || !self.repairs_reads() || !self.is_chosen(row.family) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.compares).try_acquire_owned() else { return };
        let (coordinator, view) = (Arc::clone(self), Arc::clone(view));
        let (key, slice): (RowKey, _) = (row.key.clone(), row.slice.clone());
        let (family, live) = (row.family, replicas.live.clone());
        self.tasks.spawn(async move {
            let row = RowQuery { family, key: &key, slice: &slice };
            let comparing = coordinator.compare(&view, row, live);
            if let Some(Err(error)) = coordinator.stopping.run_until_cancelled(comparing).await {
                log::debug!("the replicas of row {key} could not be compared: {error}");
            }
            coordinator.update_stats(|stats| stats.comparisons += 1);
            drop(permit);
        });
    }

    async fn compare(
        self: &Arc<Self>,
        view: &Arc<View>,
        row: RowQuery<'_>,
        live: Endpoints,
    ) -> Result<(), CoordinatorError> {
        let requirement = Requirement::any(live.len());
        let mut context = self.request().scratch();
        let all = ReadReplicas { live, requirement };
        let read = self.row_read(view, row, &all).best_effort();
        let resolved = self.resolve(view, row, read, &mut context).await?;
        for (endpoint, lacking) in resolved.repairs {
            self.update_stats(|stats| stats.repairs += 1);
            self.repair_unwaited(row, endpoint, &lacking)?;
        }
        Ok(())
    }
}
