//! Read repair: replicas that were found to lack something get it.

use super::CoordinatorError;
use super::coordinator::Coordinator;
use super::reads::Wanted;
use super::requirement::Requirement;
use super::row_read::Resolved;
use super::view::{Endpoints, ReadReplicas, View};
use super::write_request::Acknowledgements;
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::version::RowVersion;
use crate::net::messenger::{Replies, Request};
use crate::net::{Verb, bodies};
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Repairs that a read waits for: those who get one count together with those who need none.
#[derive(Debug)]
struct RepairRequest {
    state: Mutex<(Acknowledgements, Option<oneshot::Sender<()>>)>,
}

impl RepairRequest {
    fn new(requirement: Requirement, consistent: &[IpAddr]) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (done, is_done) = oneshot::channel();
        let state = Mutex::new((Acknowledgements::new(requirement), Some(done)));
        let request = Self { state };
        for endpoint in consistent {
            request.acknowledge(*endpoint);
        }
        (Arc::new(request), is_done)
    }

    fn acknowledge(&self, from: IpAddr) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0.add(from)
            && let Some(done) = state.1.take()
        {
            // The read may have been given up.
            let _ = done.send(());
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

impl Coordinator {
    /// Sends replicas what they lack. Waits until so many replicas have what was read as the read
    /// needed, so that no later read at this level finds less.
    pub(super) async fn repair(
        self: &Arc<Self>,
        wanted: Wanted<'_>,
        resolved: Resolved,
        requirement: &Requirement,
        deadline: Instant,
    ) -> Result<(), CoordinatorError> {
        let Resolved { consistent, repairs, .. } = resolved;
        if repairs.is_empty() || !self.repairs_reads {
            return Ok(());
        }
        self.counters.repairs.fetch_add(repairs.len() as u64, Ordering::Relaxed);
        if requirement.is_met_by(consistent.iter().copied()) {
            for (endpoint, lacking) in repairs {
                self.repair_unwaited(wanted, endpoint, &lacking).await?;
            }
            return Ok(());
        }
        let (request, done) = RepairRequest::new(requirement.clone(), &consistent);
        let replies: Arc<dyn Replies> = Arc::clone(&request) as _;
        for (endpoint, lacking) in repairs {
            let mutation = self.repair_mutation(wanted, &lacking);
            if endpoint == self.local {
                self.replica.apply(&[mutation]).await.wait().await?;
                request.acknowledge(self.local);
            } else {
                let body = bodies::encode_mutation(&mutation, &self.schema)?;
                let (verb, headers) = (Verb::Mutation, Vec::new());
                let message = Request { verb, headers, body: &body, tag: 0 };
                self.messenger.request(message, &[endpoint], &replies)?;
            }
        }
        let done = timeout_at(deadline, done).await.map_err(|_| CoordinatorError::TimedOut)?;
        done.map_err(|_| CoordinatorError::TimedOut)
    }

    async fn repair_unwaited(
        &self,
        wanted: Wanted<'_>,
        endpoint: IpAddr,
        lacking: &RowVersion,
    ) -> Result<(), CoordinatorError> {
        let mutation = self.repair_mutation(wanted, lacking);
        if endpoint == self.local {
            if let Err(error) = self.replica.apply(&[mutation]).await.wait().await {
                log::warn!("this node could not repair what it is a replica of: {error}");
            }
            return Ok(());
        }
        let body = bodies::encode_mutation(&mutation, &self.schema)?;
        Ok(self.messenger.send(Verb::ReadRepair, &body, endpoint)?)
    }

    fn repair_mutation(&self, wanted: Wanted<'_>, lacking: &RowVersion) -> RowMutation {
        lacking.to_mutation(&self.schema, wanted.family, wanted.key)
    }

    /// Compares all replicas of a row behind the back of the client, for a share of the reads
    /// (`ReadRepairChance`): those that the read did not need may differ.
    pub(super) fn check_in_background(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: Wanted<'_>,
        replicas: &ReadReplicas,
    ) {
        if replicas.live.len() < 2 || !self.repairs_reads || !self.is_chosen(wanted.family) {
            return;
        }
        let (coordinator, view) = (Arc::clone(self), Arc::clone(view));
        let (key, slice): (RowKey, _) = (wanted.key.clone(), wanted.slice.clone());
        let (family, live) = (wanted.family, replicas.live.clone());
        self.tasks.spawn(async move {
            let wanted = Wanted { family, key: &key, slice: &slice };
            if let Err(error) = coordinator.compare(&view, wanted, live).await {
                log::debug!("the replicas of row {key} could not be compared: {error}");
            }
        });
    }

    async fn compare(
        self: &Arc<Self>,
        view: &Arc<View>,
        wanted: Wanted<'_>,
        live: Endpoints,
    ) -> Result<(), CoordinatorError> {
        let deadline = Instant::now() + self.rpc_timeout;
        let all = Requirement::any(live.len());
        let mut ticket = self.ticket();
        let resolved = self.resolve(view, wanted, live, all, deadline, &mut ticket).await?;
        for (endpoint, lacking) in resolved.repairs {
            self.counters.repairs.fetch_add(1, Ordering::Relaxed);
            self.repair_unwaited(wanted, endpoint, &lacking).await?;
        }
        Ok(())
    }
}
