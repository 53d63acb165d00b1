//! The coordinator of requests.

use super::error::CoordinatorError;
use super::hinting::Hinting;
use super::latencies::Latencies;
use super::own_writes::OwnWrites;
use super::unacknowledged::{MAX_UNACKNOWLEDGED, Unacknowledged};
use super::view::{Peers, View};
use crate::base::context::RequestContext;
use crate::base::lock::{Mutex, RwLock, rank};
use crate::model::mutation::RowMutation;
use crate::model::schema::{FamilyId, Schema};
use crate::net::messenger::Messenger;
use crate::replica::Replica;
use crate::ring::{DynamicSnitch, Partitioner, ReplicaPlacement, Token, TokenMetadata, TokenRange};
use futures_util::FutureExt;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Rows whose replicas are compared at a time, behind the backs of clients.
const MAX_COMPARES: usize = 256;

/// How often it is looked whether a read that nobody waits for has become long.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What a coordinator needs to know.
#[derive(Debug)]
pub struct CoordinatorOptions {
    /// The column families that requests may name.
    pub schema: Arc<Schema>,
    /// From row keys to tokens.
    pub partitioner: Partitioner,
    /// Where the replicas of each keyspace live. Keyspaces that are not here, such as `system`,
    /// are kept by each node for itself.
    pub placements: BTreeMap<String, ReplicaPlacement>,
    /// Who is where on the ring.
    pub ring: TokenMetadata,
    /// What is known of the others.
    pub peers: Peers,
    /// Address of this node.
    pub local: IpAddr,
    /// This node as a replica.
    pub replica: Arc<Replica>,
    /// The way to the others. Its timeout, `RpcTimeoutInMillis`, is how long replicas may take.
    pub messenger: Arc<Messenger>,
    /// Keeps what replicas missed; `None` with `HintedHandoffEnabled` off.
    pub hinting: Option<Arc<Hinting>>,
    /// How reads are made.
    pub reads: ReadOptions,
}

/// How reads are made.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// `SpeculativeRetry`: one more replica is asked after this percentile of recent answers, above
    /// 0 and below 100; `None`: never.
    pub speculative_percentile: Option<f64>,
    /// Whether replicas that lack something get it (`DoConsistencyChecksBoolean`).
    pub repairs: bool,
    /// What sorts replicas by how fast they have answered, if that is wanted.
    pub dynamic_snitch: Option<Arc<DynamicSnitch>>,
}

/// Serves requests by asking the replicas that hold the rows.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) schema: Arc<Schema>,
    pub(super) partitioner: Partitioner,
    placements: Vec<(String, ReplicaPlacement)>,
    /// By number of column family, so that the hot path looks no name up.
    families: boxcar::Vec<FamilyReads>,
    /// Held while a family is added to those.
    adding_family: Mutex<rank::Last, ()>,
    /// Replaced as a whole when the ring changes.
    view: RwLock<rank::State, Arc<View>>,
    /// The writes of former views that may be under way.
    former_writes: Mutex<rank::State, Vec<Weak<()>>>,
    pub(super) local: IpAddr,
    pub(super) rpc_timeout: Duration,
    pub(super) replica: Arc<Replica>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) hinting: Option<Arc<Hinting>>,
    pub(super) unacknowledged: Arc<Unacknowledged>,
    pub(super) own_writes: Arc<OwnWrites>,
    pub(super) latencies: Latencies,
    pub(super) repairs_reads: bool,
    /// Comparisons of replicas that go on at a time; more are left out, since each reads a row.
    pub(super) compares: Arc<Semaphore>,
    pub(super) tasks: TaskTracker,
    /// Ends what no client waits for.
    pub(super) stopping: CancellationToken,
    pub(super) counters: Counters,
    /// Whether the node is leaving its ring.
    pub(super) refuses_writes: AtomicBool,
    /// Monotonic milliseconds up to which the view counts as the present ring.
    trusted_until: AtomicU64,
}

/// What a coordinator has done since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) speculations: AtomicU64,
    pub(super) repairs: AtomicU64,
    pub(super) comparisons: AtomicU64,
}

/// What a coordinator has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoordinatorStats {
    /// Further replicas that were asked because others were slow.
    pub speculations: u64,
    /// Replicas that got what a read found them to lack.
    pub repairs: u64,
    /// Rows whose replicas were compared behind the backs of clients.
    pub comparisons: u64,
    /// Such comparisons that are under way now.
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
    /// Its `ReadRepairChance` in 2^32 parts.
    chance: u64,
    /// Grows by that with each read: with each carry all replicas are compared.
    due: AtomicU32,
}

impl Coordinator {
    /// A coordinator.
    pub fn new(options: CoordinatorOptions) -> Arc<Self> {
        let CoordinatorOptions { schema, placements, reads, messenger, local, .. } = options;
        let placements: Vec<(String, ReplicaPlacement)> = placements.into_iter().collect();
        let rpc_timeout = messenger.timeout();
        let view = View::new(
            Arc::new(options.ring),
            placements.iter().map(|(_, placement)| placement),
            options.peers,
            local,
            reads.dynamic_snitch.clone(),
        );
        let unacknowledged = Arc::new(Unacknowledged::new(MAX_UNACKNOWLEDGED));
        let tasks = TaskTracker::new();
        let own_writes = OwnWrites {
            replica: Arc::clone(&options.replica),
            messenger: Arc::clone(&messenger),
            local,
            unacknowledged: Arc::clone(&unacknowledged),
            tasks: tasks.clone(),
            missed: AtomicU64::new(0),
        };
        let coordinator = Self {
            schema,
            partitioner: options.partitioner,
            families: boxcar::Vec::new(),
            adding_family: Mutex::default(),
            view: RwLock::new(Arc::new(view)),
            former_writes: Mutex::default(),
            placements,
            local,
            rpc_timeout,
            replica: options.replica,
            messenger,
            hinting: options.hinting,
            unacknowledged,
            own_writes: Arc::new(own_writes),
            latencies: Latencies::new(
                reads.speculative_percentile,
                rpc_timeout,
                reads.dynamic_snitch,
            ),
            repairs_reads: reads.repairs,
            compares: Arc::new(Semaphore::new(MAX_COMPARES)),
            tasks,
            stopping: CancellationToken::new(),
            counters: Counters::default(),
            refuses_writes: AtomicBool::new(false),
            trusted_until: AtomicU64::new(u64::MAX),
        };
        Arc::new(coordinator)
    }

    /// From row keys to tokens.
    pub fn partitioner(&self) -> Partitioner {
        self.partitioner
    }

    /// The ring as it is now.
    pub fn ring(&self) -> Arc<TokenMetadata> {
        Arc::clone(&self.view().ring)
    }

    /// What is known of the other nodes now.
    pub fn peers(&self) -> Peers {
        self.view().peers().clone()
    }

    /// Why nothing is done that a node asks this one for as a replica; `None` if it is.
    pub fn turns_away(&self, from: IpAddr) -> Option<&'static str> {
        let view = self.view();
        let peers = view.peers();
        if peers.is_self_removed {
            return Some("this node was removed from the ring or replaced");
        }
        peers.removed.contains(&from).then_some("it was removed from the ring or replaced")
    }

    /// Whether a node seems alive now.
    pub fn seems_alive(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local || self.view().peers().live.contains(&endpoint)
    }

    /// Replaces what is known of the ring, for requests that begin from now on. Also to be called
    /// when a snitch says something new.
    pub fn set_ring(&self, ring: TokenMetadata, peers: Peers) {
        // Who has left the ring reaches nobody.
        let has_left = self.refuses_writes.load(Ordering::Relaxed);
        let peers = if has_left { Peers::default() } else { peers };
        let placements = self.placements.iter().map(|(_, placement)| placement);
        let dynamic_snitch = self.latencies.dynamic_snitch().cloned();
        let view = View::new(Arc::new(ring), placements, peers, self.local, dynamic_snitch);
        let mut current = self.view.write();
        let former = std::mem::replace(&mut *current, Arc::new(view));
        drop(current);
        let mut writes = self.former_writes.lock();
        writes.retain(|writes| writes.strong_count() > 0);
        writes.push(Arc::downgrade(&former.writes));
    }

    /// Whether no write is under way any more that began before the ring was set last: all were
    /// acknowledged by all their replicas, or have been given up and have become hints.
    pub fn is_quiet(&self) -> bool {
        let mut writes = self.former_writes.lock();
        writes.retain(|writes| writes.strong_count() > 0);
        writes.is_empty()
    }

    /// Where the replicas of a keyspace live; `None` if every node keeps it for itself.
    pub fn placement(&self, keyspace: &str) -> Option<&ReplicaPlacement> {
        let found = self.placements.iter().find(|(name, _)| name == keyspace);
        found.map(|(_, placement)| placement)
    }

    /// Tokens that divide a range into parts of about so many rows, as far as this node has them.
    pub async fn splits(
        &self,
        range: TokenRange,
        keys_per_split: NonZero<i32>,
    ) -> Result<Vec<Token>, CoordinatorError> {
        let mut context = self.request();
        self.in_time(async { Ok(self.replica.splits(range, keys_per_split, &mut context).await?) })
            .await
    }

    /// The context of a request.
    pub fn request(&self) -> RequestContext {
        self.replica.request(usize::MAX, self.rpc_timeout)
    }

    /// Does what would keep the thread of a connection for long on another one.
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
        self.latencies.update(now);
    }

    /// What it has done since the start.
    pub fn stats(&self) -> CoordinatorStats {
        let Counters { speculations, repairs, comparisons } = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CoordinatorStats {
            speculations: get(speculations),
            repairs: get(repairs),
            comparisons: get(comparisons),
            comparing: MAX_COMPARES.saturating_sub(self.compares.available_permits()),
            answers: self.messenger.answers(),
            missed_writes: get(&self.own_writes.missed),
        }
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
        if tokio::time::timeout(self.rpc_timeout, self.tasks.wait()).await.is_err() {
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
            return Err(CoordinatorError::Unavailable);
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
                let mut placements = self.placements.iter();
                self.families.push(FamilyReads {
                    keyspace: placements.position(|(name, _)| *name == next.keyspace),
                    chance: parts(next.read_repair_chance),
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
        let reads = self.family(family);
        if reads.chance == 0 {
            return false;
        }
        let Ok(chance) = u32::try_from(reads.chance) else { return true };
        let before = reads.due.fetch_add(chance, Ordering::Relaxed);
        before.checked_add(chance).is_none()
    }

    /// Begins this node's own part of a request. What memory does is done when this returns; the
    /// rest goes on behind the caller, who waits for it no longer than for other replicas, and is
    /// given up when the time of the request is over.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(work);
        if work.as_mut().now_or_never().is_none() {
            let (local, rpc_timeout) = (self.local, self.rpc_timeout);
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
                    coordinator.latencies.record_silence(coordinator.local, began.elapsed());
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
            None => tokio::time::timeout(self.rpc_timeout, work)
                .await
                .map_err(|_| CoordinatorError::TimedOut)?,
        }
    }
}

/// A chance in 2^32 parts.
fn parts(chance: f64) -> u64 {
    (chance.clamp(0.0, 1.0) * 4_294_967_296.0) as u64
}
