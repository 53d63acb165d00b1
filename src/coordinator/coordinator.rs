//! The coordinator of requests.

use super::consistency::ReplicaCounts;
use super::latencies::Latencies;
use super::view::{Peers, View};
use super::write_request::{Hinting, MAX_UNACKNOWLEDGED, Unacknowledged};
use crate::base::context::{RequestContext, TooLarge};
use crate::base::java::TooLong;
use crate::base::lock::{Mutex, RwLock, rank};
use crate::model::mutation::RowMutation;
use crate::model::schema::{FamilyId, Schema};
use crate::net::bodies::EncodeError;
use crate::net::messenger::Messenger;
use crate::replica::{Replica, ReplicaError};
use crate::ring::{
    DynamicSnitch, KeyspacePlacements, Partitioner, ReplicaPlacement, Token, TokenMetadata,
    TokenRange,
};
use futures_util::{FutureExt, TryFutureExt};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Most rows whose replicas are compared at a time in the background.
const MAX_COMPARES: usize = 256;

/// Period of the check whether an abandoned read has become long.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Parts and settings of a coordinator.
#[derive(Debug)]
pub struct CoordinatorOptions {
    /// The column families that requests may name.
    pub schema: Arc<Schema>,
    /// From row keys to tokens.
    pub partitioner: Partitioner,
    /// Replica placement by keyspace. Each node keeps other keyspaces, such as `system`, for
    /// itself.
    pub placements: Arc<KeyspacePlacements>,
    /// Tokens and their owners.
    pub ring: TokenMetadata,
    /// State of the other nodes.
    pub peers: Peers,
    /// Address of this node.
    pub local: IpAddr,
    /// This node as a replica.
    pub replica: Arc<Replica>,
    /// The way to the others. Its timeout, `RpcTimeoutInMillis`, is how long replicas may take.
    pub messenger: Arc<Messenger>,
    /// Keeps hints for replicas; `None` with `HintedHandoffEnabled` off.
    pub hinting: Option<Arc<Hinting>>,
    /// Settings of reads.
    pub reads: ReadOptions,
    /// Seed of random choices, another one at each start.
    pub seed: u64,
}

/// Settings of reads.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// `SpeculativeRetry`: one more replica is asked after this percentile of recent answers, above
    /// 0 and below 100; `None`: never.
    pub speculative_percentile: Option<f64>,
    /// Whether replicas that lack something get it (`DoConsistencyChecksBoolean`).
    pub repairs: bool,
    /// Sorts replicas by latency, if configured.
    pub dynamic_snitch: Option<Arc<DynamicSnitch>>,
}

/// Serves requests by asking the replicas that hold the rows.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) schema: Arc<Schema>,
    pub(super) partitioner: Partitioner,
    placements: Arc<KeyspacePlacements>,
    /// By number of column family, so that the hot path looks no name up.
    families: boxcar::Vec<FamilyReads>,
    /// Held while a family is added to those.
    adding_family: Mutex<rank::Last, ()>,
    /// Replaced as a whole when the ring changes.
    view: RwLock<rank::State, Arc<View>>,
    /// Tells of each change of the view.
    view_changes: watch::Sender<()>,
    /// The writes of former views that may be under way.
    former_writes: Mutex<rank::State, Vec<Weak<()>>>,
    pub(super) local: IpAddr,
    pub(super) replica: Arc<Replica>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) hinting: Option<Arc<Hinting>>,
    pub(super) unacknowledged: Arc<Unacknowledged>,
    pub(super) latencies: Latencies,
    /// Numbers of ballots, and pauses.
    pub(super) chance: Mutex<rank::Last, fastrand::Rng>,
    repairs_reads: AtomicBool,
    /// Comparisons of replicas that go on at a time; more are left out, since each reads a row.
    pub(super) compares: Arc<Semaphore>,
    /// One value of a register is learned at a time.
    pub(super) learning: Arc<Semaphore>,
    /// The versions of registers that other nodes announce.
    pub(super) announced: RwLock<rank::Last, BTreeMap<IpAddr, String>>,
    pub(super) tasks: TaskTracker,
    /// Ends background comparisons.
    pub(super) stopping: CancellationToken,
    /// All but the comparisons under way and the answers.
    stats: Mutex<rank::Last, CoordinatorStats>,
    /// Whether the node is leaving its ring.
    pub(super) refuses_writes: AtomicBool,
    /// Monotonic milliseconds up to which the view counts as the present ring.
    trusted_until: AtomicU64,
}

/// Why a request was not served. Clients retry `Unavailable` and `TimedOut`, on another node or
/// later.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CoordinatorError {
    /// Too few replicas are alive, and nothing has been sent to any of them; or the column family
    /// is just being dropped or emptied here.
    #[error("too few replicas are alive")]
    Unavailable(ReplicaCounts),
    /// Enough replicas seemed alive, but too few answered in time. A write may have happened.
    #[error("too few replicas answered in time")]
    TimedOut(ReplicaCounts),
    /// The answer would be larger than any may be. The same request will not do better.
    #[error("{0}")]
    TooLarge(String),
    /// No message between nodes can hold it, or its key is not text. A retry fails as well.
    #[error("{0}")]
    Unsendable(String),
    /// This node failed to do its part.
    #[error(transparent)]
    Failed(ReplicaError),
}

impl From<ReplicaError> for CoordinatorError {
    fn from(error: ReplicaError) -> Self {
        match error {
            error if error.is_too_large() => Self::TooLarge(error.to_string()),
            // The next attempt finds no column family, or an empty one.
            error if error.is_of_dropped_family() => Self::Unavailable(ReplicaCounts::NONE),
            error => Self::Failed(error),
        }
    }
}

impl From<TooLarge> for CoordinatorError {
    fn from(error: TooLarge) -> Self {
        Self::TooLarge(error.to_string())
    }
}

impl From<EncodeError> for CoordinatorError {
    fn from(error: EncodeError) -> Self {
        Self::Unsendable(error.to_string())
    }
}

impl From<TooLong> for CoordinatorError {
    fn from(error: TooLong) -> Self {
        Self::Unsendable(error.to_string())
    }
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoordinatorStats {
    /// Further replicas that were asked because others were slow.
    pub speculations: u64,
    /// Replicas that were repaired by reads.
    pub repairs: u64,
    /// Rows whose replicas were compared in the background.
    pub comparisons: u64,
    /// Such comparisons under way.
    pub comparing: usize,
    /// Replies of other nodes that came in time.
    pub answers: u64,
    /// Writes that this node did not apply although it is a replica, as with a full disk.
    pub missed_writes: u64,
}

#[derive(Debug)]
struct FamilyReads {
    /// The place of its keyspace among the placements; `None` if each node keeps it for itself.
    keyspace: Option<usize>,
    /// Grows by its `ReadRepairChance`, in 2^32 parts, with each read: with each carry all replicas
    /// are compared.
    due: AtomicU32,
}

impl Coordinator {
    /// A coordinator.
    pub fn new(options: CoordinatorOptions) -> Arc<Self> {
        let CoordinatorOptions { schema, placements, reads, messenger, local, .. } = options;
        let rpc_timeout = messenger.timeout();
        let view = View::new(
            Arc::new(options.ring),
            &placements,
            options.peers,
            local,
            reads.dynamic_snitch.clone(),
        );
        let unacknowledged = Arc::new(Unacknowledged::new(MAX_UNACKNOWLEDGED));
        let coordinator = Self {
            schema,
            partitioner: options.partitioner,
            families: boxcar::Vec::new(),
            adding_family: Mutex::default(),
            view: RwLock::new(Arc::new(view)),
            view_changes: watch::Sender::new(()),
            former_writes: Mutex::default(),
            placements,
            local,
            replica: options.replica,
            messenger,
            hinting: options.hinting,
            unacknowledged,
            latencies: Latencies::new(
                reads.speculative_percentile,
                rpc_timeout,
                reads.dynamic_snitch,
            ),
            chance: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            repairs_reads: AtomicBool::new(reads.repairs),
            compares: Arc::new(Semaphore::new(MAX_COMPARES)),
            learning: Arc::new(Semaphore::new(1)),
            announced: RwLock::default(),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            stats: Mutex::default(),
            refuses_writes: AtomicBool::new(false),
            trusted_until: AtomicU64::new(u64::MAX),
        };
        Arc::new(coordinator)
    }

    /// From row keys to tokens.
    pub fn partitioner(&self) -> Partitioner {
        self.partitioner
    }

    /// Address of this node.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Whether this node has what no node of 0.6 can have.
    pub fn has_later_data(&self) -> bool {
        self.replica.has_later_data()
    }

    /// The ring as it is now.
    pub fn ring(&self) -> Arc<TokenMetadata> {
        Arc::clone(&self.view().ring)
    }

    /// State of the other nodes.
    pub fn peers(&self) -> Peers {
        self.view().peers.clone()
    }

    /// Why nothing is done that a node asks this one for as a replica; `None` if it is.
    pub fn turns_away(&self, from: IpAddr) -> Option<&'static str> {
        let view = self.view();
        let peers = &view.peers;
        if peers.is_self_removed {
            return Some("this node was removed from the ring or replaced");
        }
        peers.removed.contains(&from).then_some("it was removed from the ring or replaced")
    }

    /// Whether a node seems alive now.
    pub fn seems_alive(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local || self.view().peers.live.contains(&endpoint)
    }

    /// Replaces what is known of the ring, for requests that begin from now on. Also to be called
    /// when a snitch says something new, and when placements have changed.
    pub fn set_ring(&self, ring: TokenMetadata, peers: Peers) {
        // A node that has left the ring reaches no other node.
        let has_left = self.refuses_writes.load(Ordering::Relaxed);
        let peers = if has_left { Peers::default() } else { peers };
        let dynamic_snitch = self.latencies.dynamic_snitch().cloned();
        let view = View::new(Arc::new(ring), &self.placements, peers, self.local, dynamic_snitch);
        let mut current = self.view.write();
        let former = std::mem::replace(&mut *current, Arc::new(view));
        drop(current);
        let mut writes = self.former_writes.lock();
        writes.retain(|writes| writes.strong_count() > 0);
        writes.push(Arc::downgrade(&former.writes));
        drop(writes);
        if !has_left {
            self.view_changes.send_replace(());
        }
    }

    /// Tells when the ring or the state of a node has changed, until this node leaves the ring.
    pub fn ring_changes(&self) -> watch::Receiver<()> {
        self.view_changes.subscribe()
    }

    /// Whether no write is under way any more that began before the ring was set last: all were
    /// acknowledged by all their replicas, or have been given up and have become hints.
    pub fn is_quiet(&self) -> bool {
        let mut writes = self.former_writes.lock();
        writes.retain(|writes| writes.strong_count() > 0);
        writes.is_empty()
    }

    /// Replica placement of a keyspace; `None` if every node keeps it for itself.
    pub fn placement(&self, keyspace: &str) -> Option<&ReplicaPlacement> {
        self.placements.get(keyspace)
    }

    /// Tokens that divide a range into parts of about this many rows, judged by the rows of this
    /// node.
    pub async fn splits(
        &self,
        range: TokenRange,
        keys_per_split: NonZero<i32>,
    ) -> Result<Vec<Token>, CoordinatorError> {
        let mut context = self.request();
        let splits = self.replica.splits(range, keys_per_split, &mut context);
        self.in_time(pin!(splits.err_into())).await
    }

    /// The context of a request.
    pub fn request(&self) -> RequestContext {
        self.replica.request(usize::MAX, self.rpc_timeout())
    }

    /// Does work that would keep the thread of a connection for long on another one.
    pub async fn spawn_read<T: Send + 'static>(
        &self,
        context: &mut RequestContext,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CoordinatorError> {
        Ok(self.replica.spawn_read(context, job).await?)
    }

    /// Gives up requests whose time is over, and draws conclusions from how long others took. To
    /// be called about ten times in a second, with a monotonic time.
    pub fn upkeep(&self, now: Duration) {
        self.messenger.expire();
        self.latencies.update(now, self.rpc_timeout());
    }

    /// `RpcTimeoutInMillis`: how long replicas are waited for.
    pub(super) fn rpc_timeout(&self) -> Duration {
        self.messenger.timeout()
    }

    /// Whether replicas that lack something get it.
    pub(super) fn repairs_reads(&self) -> bool {
        self.repairs_reads.load(Ordering::Relaxed)
    }

    /// Reads by these settings from now on, except for the snitch.
    pub fn set_reads(&self, options: &ReadOptions) {
        self.latencies.set_percentile(options.speculative_percentile);
        self.repairs_reads.store(options.repairs, Ordering::Relaxed);
    }

    /// Counters since the start.
    pub fn stats(&self) -> CoordinatorStats {
        let comparing = MAX_COMPARES.saturating_sub(self.compares.available_permits());
        CoordinatorStats { comparing, answers: self.messenger.answers(), ..*self.stats.lock() }
    }

    /// Updates the counters.
    pub(super) fn update_stats(&self, update: impl FnOnce(&mut CoordinatorStats)) {
        update(&mut self.stats.lock());
    }

    /// For a node that leaves its ring: refuses writes of clients from now on as unavailable, so
    /// that they turn to another node. When the ring is set next, no other node is alive for it.
    pub fn refuse_writes(&self) {
        self.refuses_writes.store(true, Ordering::Relaxed);
    }

    /// Ends comparisons of replicas, and waits for writes that go on although no client waits for
    /// them, as long as a request may take: a disk may stand still.
    pub async fn drain(&self) {
        self.stopping.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.rpc_timeout(), self.tasks.wait()).await.is_err() {
            let left = self.tasks.len();
            log::warn!("{left} tasks of the coordinator still wait for the disk of this node");
        }
    }

    /// Serves by the ring that was set last until this monotonic time, unless it is called again.
    /// After that the node may have stood still while the ring changed, and refuses requests.
    pub fn trust_until(&self, until: Duration) {
        let millis = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        self.trusted_until.store(millis, Ordering::Relaxed);
    }

    /// The view to serve a request by.
    pub(super) fn trusted_view(&self) -> Result<Arc<View>, CoordinatorError> {
        let until = self.trusted_until.load(Ordering::Relaxed);
        if self.messenger.now() >= Duration::from_millis(until) {
            return Err(CoordinatorError::Unavailable(ReplicaCounts::NONE));
        }
        Ok(self.view())
    }

    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// The number of the keyspace of a column family; `None` if each node keeps it for itself.
    pub(super) fn keyspace_of(&self, family: FamilyId) -> Option<usize> {
        self.family(family).keyspace
    }

    fn family(&self, id: FamilyId) -> &FamilyReads {
        let index = id.0 as usize;
        loop {
            if let Some(reads) = self.families.get(index) {
                return reads;
            }
            let _one_at_a_time = self.adding_family.lock();
            while self.families.count() <= index {
                let next = self.schema.family(FamilyId(self.families.count() as u32));
                self.families.push(FamilyReads {
                    keyspace: self.placements.number(&next.keyspace),
                    due: AtomicU32::new(0),
                });
            }
        }
    }

    /// Whether the rows of a mutation are kept by each node for itself.
    pub(super) fn is_unreplicated(&self, mutation: &RowMutation) -> bool {
        mutation.families.iter().all(|family| self.keyspace_of(family.family).is_none())
    }

    /// Whether all replicas are to be compared after this read.
    pub(super) fn is_chosen(&self, family: FamilyId) -> bool {
        let chance = parts(self.schema.family(family).read_repair_chance);
        if chance == 0 {
            return false;
        }
        let Ok(chance) = u32::try_from(chance) else { return true };
        let before = self.family(family).due.fetch_add(chance, Ordering::Relaxed);
        before.checked_add(chance).is_none()
    }

    /// Begins this node's own part of a request. Work in memory is done when this returns; the rest
    /// goes on in the background until the time of the request is over.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(work);
        if work.as_mut().now_or_never().is_none() {
            let (local, rpc_timeout) = (self.local, self.rpc_timeout());
            let dynamic_snitch = self.latencies.dynamic_snitch().cloned();
            self.tasks.spawn(async move {
                let done = tokio::time::timeout(rpc_timeout, work).await;
                if let (Err(_), Some(dynamic)) = (done, dynamic_snitch) {
                    dynamic.record(local, rpc_timeout);
                }
            });
        }
    }

    /// Begins this node's own read for a request that asks several replicas. When the request is
    /// done without it, a short read goes on, so that its time is known, and a long one is given
    /// up.
    pub(super) fn begin_read(
        self: &Arc<Self>,
        context: RequestContext,
        is_done: impl Future<Output = ()> + Send + 'static,
        read: impl Future<Output = ()> + Send + 'static,
    ) {
        let (coordinator, began) = (Arc::clone(self), Instant::now());
        self.begin(async move {
            let is_unwanted = async {
                is_done.await;
                while !context.is_long() {
                    sleep(LOOK_EVERY).await;
                }
            };
            tokio::select! {
                biased;
                () = read => {}
                () = is_unwanted => {
                    coordinator.latencies.record_answer(coordinator.local, began.elapsed());
                }
            }
        });
    }

    /// Gives work the time that a request may take (`RpcTimeoutInMillis`), and drops it then. Work
    /// that is done without waiting costs no look at a clock.
    pub async fn in_time<T, E: From<CoordinatorError>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut work = pin!(work);
        match work.as_mut().now_or_never() {
            Some(done) => done,
            // Seldom, and large.
            None => Box::pin(tokio::time::timeout(self.rpc_timeout(), work))
                .await
                .map_err(|_| CoordinatorError::TimedOut(ReplicaCounts::NONE))?,
        }
    }
}

/// A chance in 2^32 parts.
fn parts(chance: f64) -> u64 {
    (chance.clamp(0.0, 1.0) * 4_294_967_296.0) as u64
}
