//! This node, for the parts of repair: its data, its peers, and the ring.

use super::error::{OperationError, Result};
use super::operations::OperationsOptions;
use super::topology::Lifecycle;
use super::traffic::{Throttle, Traffic};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::base::worker::Spawner;
use crate::gossip::{Members, NodePlace};
use crate::net::bodies::BodyContext;
use crate::net::messenger::Messenger;
use crate::ring::{KeyspacePlacements, Partitioner, Token};
use crate::storage::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The ring at one moment, as this node knows it.
#[derive(Debug, Clone, Default)]
pub struct RingSnapshot {
    /// Members with their tokens, and changes under way.
    pub members: Members,
    /// Live nodes, members and others. This node itself is among them.
    pub live: BTreeSet<IpAddr>,
    /// Those that take calls. This node itself is among them.
    pub callable: BTreeSet<IpAddr>,
    /// Announced bytes on the disks of nodes.
    pub loads: BTreeMap<IpAddr, f64>,
    /// Nodes that still collect the data of their places, and are not read from.
    pub incomplete: BTreeSet<IpAddr>,
    /// The last start of each known node.
    pub generations: BTreeMap<IpAddr, i32>,
    /// Number of joining nodes that this node has forgotten.
    pub given_up: u64,
    /// The token that this address owned before this start, and a node that remembers it; `None` if
    /// others may have heard of this start.
    pub remembered: Option<(IpAddr, Token)>,
    /// Whether others have not heard of this start yet.
    pub is_hidden: bool,
    /// This node; `None` in an empty snapshot.
    pub local: Option<IpAddr>,
}

impl RingSnapshot {
    /// Whether a node is of 0.6: it announces no calls.
    pub fn is_legacy(&self, endpoint: IpAddr) -> bool {
        Some(endpoint) != self.local && !self.callable.contains(&endpoint)
    }
}

/// Mark of an announcement, by which other nodes know whether they have heard it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// The generation of the node.
    pub generation: i32,
    /// The version of the announcement.
    pub version: i32,
}

/// The node whose place operations change. All methods may be called from any thread, and do not
/// wait for other nodes.
pub trait Host: Send + Sync + Debug {
    /// The ring now.
    fn look(&self) -> RingSnapshot;

    /// Takes a place, and announces it from the next round of gossip on.
    fn announce(&self, place: &Lifecycle);

    /// Adds members that others know and this node does not, since they were dead when it started.
    fn learn(&self, members: &[NodePlace]);

    /// Notes that all nodes agree on the place of this node: its acknowledgements count, and other
    /// nodes' memory of its address does not.
    fn be_placed(&self);

    /// Notes that this node has all data of its place, and may be read from once it has one.
    fn serve_reads(&self);

    /// Notes that all nodes know the place of this node: writes to former replicas end.
    fn settle(&self);

    /// The mark of all announcements of this node until now.
    fn said(&self) -> Announced;

    /// Whether this node has heard an announcement of a node, and follows it.
    fn has_heard(&self, of: IpAddr, announced: Announced) -> bool;

    /// The reason to refuse requests of a removed node, or all requests if this node was removed.
    fn turns_away(&self, from: IpAddr) -> Option<&'static str>;

    /// Version of the schema that this node has followed; 0 for none.
    fn schema(&self) -> u64;

    /// Whether all writes by a former ring have ended: they are acknowledged by all, or have become
    /// hints.
    fn is_quiet(&self) -> bool;
}

/// This node, for all parts of the layer.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) storage: Arc<Database>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) placements: Arc<KeyspacePlacements>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) spawner: Spawner,
    /// Limits the data from all other nodes together.
    pub(super) throttle: Throttle,
    pub(super) sending: Traffic,
    pub(super) receiving: Traffic,
    /// Tasks of all parts, which end when `stop` is cancelled.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    /// The same, for work on other threads.
    pub(super) stopping: Arc<AtomicBool>,
    host: Weak<dyn Host>,
    rng: Mutex<rank::Last, fastrand::Rng>,
}

impl Node {
    pub(super) fn new(options: OperationsOptions) -> Arc<Self> {
        let OperationsOptions { storage, messenger, placements, clock, spawner, host, .. } =
            options;
        let throttle = Throttle::new(Arc::clone(&clock), options.bytes_per_second);
        let [sending, receiving] = [(); 2].map(|()| Traffic::new(Arc::clone(&clock)));
        let rng = Mutex::new(fastrand::Rng::with_seed(options.seed));
        let (tasks, stop, stopping) = Default::default();
        Arc::new(Self {
            storage,
            messenger,
            placements,
            clock,
            spawner,
            throttle,
            sending,
            receiving,
            tasks,
            stop,
            stopping,
            host,
            rng,
        })
    }

    /// Cancels all tasks, and waits for their end.
    pub(super) async fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(super) fn local(&self) -> IpAddr {
        self.messenger.local()
    }

    pub(super) fn partitioner(&self) -> Partitioner {
        self.storage.partitioner()
    }

    pub(super) fn display(&self, token: &Token) -> String {
        self.partitioner().display_token(token)
    }

    /// The member of the ring that this node is. Fails when the node has stopped.
    pub(super) fn host(&self) -> Result<Arc<dyn Host>> {
        self.host.upgrade().ok_or(OperationError::Stopping)
    }

    pub(super) fn look(&self) -> Result<RingSnapshot> {
        Ok(self.host()?.look())
    }

    /// Schema and partitioner of bodies.
    pub(super) fn context(&self) -> BodyContext<'_> {
        BodyContext { schema: self.storage.schema(), partitioner: self.partitioner() }
    }

    /// Runs work that is long or may wait for a disk.
    pub(super) async fn run<T, E>(
        &self,
        job: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        E: Into<OperationError> + Send + 'static,
    {
        self.spawner.run(job).await?.map_err(Into::into)
    }

    /// A number that no other job has.
    pub(super) fn job_number(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    pub(super) fn random_token(&self) -> Token {
        self.partitioner().random_token(&mut self.rng.lock())
    }
}
