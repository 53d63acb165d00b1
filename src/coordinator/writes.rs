//! The write path: replicas, hints, acknowledgements, and the rows that this node writes itself.

use super::consistency::Requirement;
use super::coordinator::Coordinator;
use super::view::{Endpoints, View, WriteReplicas};
use super::write_request::{Hinting, WriteRequest};
use super::{ConsistencyLevel, CoordinatorError, ReplicaCounts};
use crate::model::key::RowKey;
use crate::model::mutation::RowMutation;
use crate::model::schema::FamilyId;
use crate::net::messenger::{Replies, Request};
use crate::net::{Verb, bodies};
use crate::replica::{Answer, HintPosition, ReplicaError};
use futures_util::FutureExt;
use std::fmt::Display;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

type Applying = Pin<Box<dyn Future<Output = Answer<()>> + Send>>;

impl Coordinator {
    /// Writes to rows. Nothing is sent unless enough replicas of all rows are alive. At
    /// [`ConsistencyLevel::Zero`] it only waits until the work is queued, and failures go to the
    /// log.
    pub async fn write(
        self: &Arc<Self>,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        if self.refuses_writes.load(Ordering::Relaxed) {
            return Err(CoordinatorError::Unavailable(ReplicaCounts::NONE));
        }
        let view = self.trusted_view()?;
        // Some levels want replicas that a node alone has not.
        let is_alone = view.is_alone && level.block_for_write(1, 0) < 2;
        if is_alone || mutations.iter().all(|mutation| self.is_unreplicated(mutation)) {
            return self.write_here(mutations, level).await;
        }
        // Large beside a write to this node alone.
        Box::pin(self.write_to_replicas(&view, mutations, level)).await
    }

    async fn write_to_replicas(
        self: &Arc<Self>,
        view: &View,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        // Not even a hint may stand for an acknowledgement.
        if view.peers.is_self_removed {
            return Err(CoordinatorError::Unavailable(ReplicaCounts::NONE));
        }
        let replicas = mutations.iter().map(|it| self.write_replicas(view, it, level));
        self.write_to(view, mutations, replicas.collect(), level).await
    }

    /// Writes rows to these replicas, of which at least those must acknowledge that each row
    /// requires.
    pub(super) async fn write_to(
        self: &Arc<Self>,
        view: &View,
        mutations: &[RowMutation],
        mut replicas: Vec<WriteReplicas>,
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        replicas.iter().try_for_each(|replicas| self.check_write(replicas, level))?;
        let deadline = Instant::now() + self.rpc_timeout();
        let rows = mutations.to_vec().into();
        let requirements = replicas.iter().map(|replicas| replicas.requirement.clone());
        // Rows that each node keeps for itself need none.
        let is_hinted = !mutations.iter().all(|mutation| self.is_unreplicated(mutation));
        let hinting = self.hinting.clone().filter(|_| is_hinted);
        let waiting = Arc::clone(&self.unacknowledged);
        let under_way = Arc::clone(&view.writes);
        let (request, done) =
            WriteRequest::new(rows, requirements, hinting.clone(), waiting, under_way);
        self.send_mutations(&request, &mut replicas)?;
        let hints = hinting.map(|hinting| hint_the_dead(&hinting, &request, &replicas, level));
        let hints = hints.unwrap_or_default();
        let own = own_rows(&request, &replicas);
        if level == ConsistencyLevel::Zero {
            // Bounded wait for queue space, even for level ZERO.
            self.queue_own(&own, deadline).await;
            return Ok(());
        }
        let own = self.begin_own(&own);
        let acknowledged = async {
            let accepted = async {
                self.accept_hints(&request, hints).await;
                std::future::pending::<()>().await;
            };
            // A replica that has acknowledged is worth more than a hint on its way to the disk.
            tokio::select! {
                biased;
                written = self.acknowledged(&request, &replicas, level, own, done) => written,
                () = accepted => Ok(()),
            }
        };
        let done = timeout_at(deadline, acknowledged).await;
        done.map_err(|_| CoordinatorError::TimedOut(request.counts()))?
    }

    /// Writes rows that only this node keeps.
    async fn write_here(
        &self,
        mutations: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        if level == ConsistencyLevel::Zero {
            if let Answer::Ready(Err(error)) = self.replica.apply(mutations).await {
                let rows = mutations.len();
                log::warn!("a write at ZERO to {rows} rows failed: {error}");
            }
            return Ok(());
        }
        let work = pin!(async { Ok(self.replica.apply(mutations).await.wait().await?) });
        self.in_time(work).await
    }

    /// Begins to apply this node's own rows; what needs no waiting is done when this returns. The
    /// rest goes on even if the request ends long before, because no node keeps hints for this one.
    fn begin_own(self: &Arc<Self>, rows: &Arc<[RowMutation]>) -> Answer<()> {
        if rows.is_empty() {
            return Answer::Ready(Ok(()));
        }
        let mut applying = self.applying(rows);
        let begun = match applying.as_mut().now_or_never() {
            Some(Answer::Ready(applied)) => {
                return Answer::Ready(applied.inspect_err(|error| self.miss(error)));
            }
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => applying,
        };
        let (sender, receiver) = oneshot::channel();
        self.keep(rows, begun, Some(sender));
        Answer::Working(receiver)
    }

    /// Waits until rows are applied or have their turn, at most until the deadline.
    async fn queue_own(self: &Arc<Self>, rows: &Arc<[RowMutation]>, deadline: Instant) {
        if rows.is_empty() {
            return;
        }
        let mut applying = self.applying(rows);
        match timeout_at(deadline, applying.as_mut()).await {
            Ok(Answer::Ready(Err(error))) => self.miss(&error),
            Ok(_) => {}
            Err(_) => self.keep(rows, applying, None),
        }
    }

    fn applying(&self, rows: &Arc<[RowMutation]>) -> Applying {
        let (replica, rows) = (Arc::clone(&self.replica), Arc::clone(rows));
        Box::pin(async move { replica.apply(&rows).await })
    }

    /// Lets a write wait as long as it takes, or only as long as a request if too much waits
    /// already.
    fn keep(
        self: &Arc<Self>,
        rows: &Arc<[RowMutation]>,
        applying: Applying,
        sender: Option<oneshot::Sender<Result<(), ReplicaError>>>,
    ) {
        let (coordinator, rows) = (Arc::clone(self), Arc::clone(rows));
        let admits = |row: &&RowMutation| self.unacknowledged.admit(self.local, row);
        let admitted = rows.iter().take_while(admits).count();
        self.tasks.spawn(async move {
            let answer = if admitted == rows.len() {
                Some(applying.await)
            } else {
                timeout(coordinator.rpc_timeout(), applying).await.ok()
            };
            match answer {
                Some(answer) => {
                    let applied = answer.wait().await.inspect_err(|error| coordinator.miss(error));
                    // The request may be over.
                    sender.map(|sender| sender.send(applied));
                }
                None => coordinator.miss(&"too much waits for its disk already"),
            }
            let Self { unacknowledged, local, .. } = &*coordinator;
            rows[..admitted].iter().for_each(|row| unacknowledged.settle(*local, row));
        });
    }

    fn miss(&self, error: &dyn Display) {
        self.update_stats(|stats| stats.missed_writes += 1);
        let line = format_args!("this node could not write its own part: {error}");
        self.messenger.warn(self.local, line);
    }

    pub(super) fn write_replicas(
        &self,
        view: &View,
        mutation: &RowMutation,
        level: ConsistencyLevel,
    ) -> WriteReplicas {
        let family = mutation.families.first().map(|first| first.family);
        self.replicas_to_write(view, family, &mutation.key, level)
    }

    /// The replicas of a row that may be written.
    pub(super) fn replicas_to_write(
        &self,
        view: &View,
        family: Option<FamilyId>,
        key: &RowKey,
        level: ConsistencyLevel,
    ) -> WriteReplicas {
        match family.and_then(|family| self.keyspace_of(family)) {
            Some(keyspace) => {
                let token = self.partitioner.token(key.as_bytes());
                view.write_replicas(keyspace, &token, level)
            }
            // An empty mutation, or rows that each node keeps for itself.
            None => WriteReplicas::local(level),
        }
    }

    /// Fails unless enough replicas seem alive for a write.
    pub(super) fn check_write(
        &self,
        replicas: &WriteReplicas,
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        match level {
            ConsistencyLevel::Zero => Ok(()),
            // A hint is enough if there is a dead replica to keep it for.
            ConsistencyLevel::Any if self.hinting.is_some() && !replicas.dead.is_empty() => Ok(()),
            _ => replicas.check(self.local),
        }
    }

    /// Sends the rows to replicas that seem alive. Replicas with too much to acknowledge count as
    /// dead.
    fn send_mutations(
        &self,
        request: &Arc<WriteRequest>,
        replicas: &mut [WriteReplicas],
    ) -> Result<(), CoordinatorError> {
        let replies: Arc<dyn Replies> = Arc::clone(request) as _;
        // Encode all rows first, so that none is sent if one cannot be.
        let rows = request.rows().iter().zip(&*replicas);
        let encode = |(mutation, replicas): (_, &WriteReplicas)| {
            // Dead replicas get the row later, so it must be sendable too.
            let is_own = replicas.live.is_empty() && replicas.dead.is_empty();
            let targets = replicas.live.iter().chain(&replicas.dead);
            (!is_own).then(|| self.encode_write(mutation, targets)).transpose()
        };
        let bodies = rows.map(encode).collect::<Result<Vec<_>, _>>()?;
        let rows = request.rows().iter().zip(replicas).zip(bodies);
        for (row, ((mutation, replicas), body)) in rows.enumerate() {
            let Some(body) = body else { continue };
            replicas.mark_overloaded(|endpoint| self.unacknowledged.admit(endpoint, mutation));
            let (verb, tag) = (Verb::Mutation, row as u32);
            let message = Request { verb, headers: Vec::new(), body: &body, tag };
            if !replicas.live.is_empty() {
                let sent = self.messenger.request(message, &replicas.live, &replies);
                sent.inspect_err(|_| request.settle(row, &replicas.live))?;
            }
        }
        Ok(())
    }

    /// The body of a write to these nodes. Fails if one of them cannot have its cells.
    pub(super) fn encode_write<'a>(
        &self,
        mutation: &RowMutation,
        mut targets: impl Iterator<Item = &'a IpAddr>,
    ) -> Result<Vec<u8>, CoordinatorError> {
        targets.try_for_each(|target| self.messenger.check_cells(mutation, *target))?;
        let body = bodies::encode_mutation(mutation, &self.schema)?;
        self.messenger.check_body(body.len()).map_err(|error| {
            CoordinatorError::Unsendable(format!(
                "the write to one row is too large: {error}. Write fewer columns at a time, or \
                 smaller values"
            ))
        })?;
        Ok(body)
    }

    /// Waits until each row has the acknowledgements that it needs.
    async fn acknowledged(
        &self,
        request: &WriteRequest,
        replicas: &[WriteReplicas],
        level: ConsistencyLevel,
        own: Answer<()>,
        done: oneshot::Receiver<()>,
    ) -> Result<(), CoordinatorError> {
        let own = async {
            let own_rows = || (0..replicas.len()).filter(|row| replicas[*row].is_local);
            match own.wait().await {
                Ok(()) => request.acknowledge(own_rows(), self.local),
                Err(error) => {
                    let needs_own = |it: &WriteReplicas| {
                        let has_hints = level == ConsistencyLevel::Any && !it.dead.is_empty();
                        !it.requirement.is_met_by(it.live.iter().copied()) && !has_hints
                    };
                    if own_rows().any(|row| needs_own(&replicas[row])) {
                        return Err(CoordinatorError::from(error));
                    }
                }
            }
            Ok(())
        };
        // A client that writes and reads at ONE through this node reads what it wrote.
        if matches!(level, ConsistencyLevel::One | ConsistencyLevel::Any) {
            own.await?;
            return done.await.map_err(|_| CoordinatorError::TimedOut(request.counts()));
        }
        let own = async {
            own.await?;
            std::future::pending().await
        };
        tokio::select! {
            biased;
            failed = own => failed,
            done = done => done.map_err(|_| CoordinatorError::TimedOut(request.counts())),
        }
    }

    /// Takes hints for acknowledgements as soon as they are safe.
    async fn accept_hints(&self, request: &WriteRequest, hints: Vec<(usize, HintPosition)>) {
        let Some(hinting) = &self.hinting else { return };
        for (row, position) in hints {
            match hinting.when_safe(position).await {
                Ok(()) => request.accept_hint(row),
                Err(error) => log::warn!("a hint is not on disk: {error}"),
            }
        }
    }
}

/// Keeps hints for dead replicas. Returns the rows for which a hint is enough, with its position.
fn hint_the_dead(
    hinting: &Hinting,
    request: &WriteRequest,
    replicas: &[WriteReplicas],
    level: ConsistencyLevel,
) -> Vec<(usize, HintPosition)> {
    let mut kept = Vec::new();
    for (row, (mutation, replicas)) in request.rows().iter().zip(replicas).enumerate() {
        for target in &replicas.dead {
            let position = hinting.keep(*target, mutation);
            if level == ConsistencyLevel::Any {
                kept.extend(position.map(|position| (row, position)));
            }
        }
    }
    kept
}

/// The rows of which this node is a replica.
fn own_rows(request: &WriteRequest, replicas: &[WriteReplicas]) -> Arc<[RowMutation]> {
    if replicas.iter().all(|replicas| replicas.is_local) {
        return Arc::clone(request.rows());
    }
    let own = request.rows().iter().zip(replicas).filter(|(_, replicas)| replicas.is_local);
    own.map(|(mutation, _)| mutation.clone()).collect()
}

impl WriteReplicas {
    /// Moves replicas that are not admitted to the dead ones.
    fn mark_overloaded(&mut self, admit: impl Fn(IpAddr) -> bool) {
        let Self { live, dead, .. } = self;
        live.retain(|endpoint| {
            let is_admitted = admit(*endpoint);
            if !is_admitted {
                dead.push(*endpoint);
            }
            is_admitted
        });
    }

    /// The replicas of rows that each node keeps for itself.
    fn local(level: ConsistencyLevel) -> Self {
        Self {
            live: Endpoints::new(),
            dead: Endpoints::new(),
            is_local: true,
            pending: 0,
            requirement: Requirement::any(level.block_for_write(1, 0)),
        }
    }
}
