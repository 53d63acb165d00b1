//! This node as repair works with it: its data, its peers, and the ring as it knows it.

use super::error::{OperationError, Result};
use super::operations::OperationsOptions;
use super::topology::Lifecycle;
use super::traffic::{Throttle, Traffic};
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::gossip::{Members, NodePlace};
use crate::net::bodies::BodyContext;
use crate::net::messenger::Messenger;
use crate::replica::Blocking;
use crate::ring::{Partitioner, ReplicaPlacement, Token};
use crate::storage::Database;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

/// The ring at one moment, as this node knows it.
#[derive(Debug, Clone, Default)]
pub struct RingSnapshot {
    /// Members with their tokens, and changes under way.
    pub members: Members,
    /// Live nodes, members and others. This node itself is among them.
    pub live: BTreeSet<IpAddr>,
    /// Those that take calls. This node itself is among them.
    pub callable: BTreeSet<IpAddr>,
    /// Bytes that each says to have on its disks, as far as it has said so.
    pub loads: BTreeMap<IpAddr, f64>,
    /// Members that collect the data of their places, and are not read from meanwhile.
    pub incomplete: BTreeSet<IpAddr>,
    /// The last start of each node that was heard of.
    pub generations: BTreeMap<IpAddr, i32>,
    /// How often this node has given up on others that joined.
    pub given_up: u64,
    /// The token that the address of this node owned before this start, and the node that
    /// remembers it; none if others may have heard of this start.
    pub remembered: Option<(IpAddr, Token)>,
    /// Whether others have not heard of this start yet.
    pub is_hidden: bool,
    /// This node; none in a look at nothing.
    pub local: Option<IpAddr>,
}

impl RingSnapshot {
    /// Whether a node is one of 0.6, as far as is known: it takes no calls.
    pub fn is_legacy(&self, endpoint: IpAddr) -> bool {
        Some(endpoint) != self.local && !self.callable.contains(&endpoint)
    }
}

/// Marks an announcement of a node: others can tell by it whether they have heard it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announced {
    /// Its generation.
    pub generation: i32,
    /// The count at which it said so.
    pub version: i32,
}

/// The node whose place operations change. All methods may be called from any thread, and none
/// waits for other nodes.
pub trait Host: Send + Sync + Debug {
    /// The ring now.
    fn look(&self) -> RingSnapshot;

    /// Takes a place: says so to itself, and to the others from the next round of gossip on.
    fn announce(&self, place: &Lifecycle);

    /// Others know these as members. Takes them for that, as far as it has never heard of them:
    /// they were dead before anybody could tell it.
    fn learn(&self, members: &[NodePlace]);

    /// All agree that this node has the place that it has announced or is about to announce: what
    /// it acknowledges counts, and nothing that others remember of its address does.
    fn be_placed(&self);

    /// This node has all data of its place: it may be read from, as soon as it has one.
    fn serve_reads(&self);

    /// All know the place that this node has taken: nobody has to act any more as some might not.
    fn settle(&self);

    /// All that this node has said of itself until now, and by what others can tell whether they
    /// have heard it.
    fn said(&self) -> Announced;

    /// Whether it has heard what another node announced, or this one, and acts by it.
    fn has_heard(&self, of: IpAddr, announced: Announced) -> bool;

    /// The reason why nothing is done for a node that was removed, or by this node if it was.
    fn turns_away(&self, from: IpAddr) -> Option<&'static str>;

    /// Whether all writes have come to their end that it began before it knew the ring that it
    /// knows now: they have been acknowledged by all, or given up and become hints.
    fn is_quiet(&self) -> bool;
}

/// This node, for all parts of the layer.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) storage: Arc<Database>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) placements: BTreeMap<String, ReplicaPlacement>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) blocking: Blocking,
    /// Limits what comes from all other nodes together.
    pub(super) throttle: Throttle,
    pub(super) sending: Traffic,
    pub(super) receiving: Traffic,
    host: Weak<dyn Host>,
    rng: Mutex<rank::Last, fastrand::Rng>,
}

impl Node {
    pub(super) fn new(options: OperationsOptions) -> Arc<Self> {
        let OperationsOptions { storage, messenger, placements, clock, blocking, host, .. } =
            options;
        let throttle = Throttle::new(Arc::clone(&clock), options.bytes_per_second);
        let [sending, receiving] = [(); 2].map(|()| Traffic::new(Arc::clone(&clock)));
        let rng = Mutex::new(fastrand::Rng::with_seed(options.seed));
        Arc::new(Self {
            storage,
            messenger,
            placements,
            clock,
            blocking,
            throttle,
            sending,
            receiving,
            host,
            rng,
        })
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

    /// The member of the ring that this node is, unless it has ended.
    pub(super) fn host(&self) -> Result<Arc<dyn Host>> {
        self.host.upgrade().ok_or(OperationError::Stopping)
    }

    /// The ring now.
    pub(super) fn look(&self) -> Result<RingSnapshot> {
        Ok(self.host()?.look())
    }

    /// Schema and partitioner by which bodies are read and written.
    pub(super) fn context(&self) -> BodyContext<'_> {
        BodyContext { schema: self.storage.schema(), partitioner: self.partitioner() }
    }

    /// Does work that may wait for a disk, or is long.
    pub(super) async fn run<T, E>(
        &self,
        job: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        E: Into<OperationError> + Send + 'static,
    {
        self.blocking.run(job).await?.map_err(Into::into)
    }

    /// A number that no job of any node has.
    pub(super) fn job_number(&self) -> u64 {
        self.rng.lock().u64(..)
    }

    pub(super) fn random_token(&self) -> Token {
        self.partitioner().random_token(&mut self.rng.lock())
    }
}
