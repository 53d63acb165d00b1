//! Answers of the admin side about the nodes of the ring, as JSON and for `nodetool`.

use crate::gossip::VersionedValue;
use crate::net::PeerStats;
use crate::replica::HintStats;
use crate::storage::database::Trouble;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Whether a node seems alive to the one that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// It does.
    Up,
    /// It does not, or was not heard of since the start.
    Down,
}

impl Status {
    pub(super) fn of(is_alive: bool) -> Self {
        if is_alive { Self::Up } else { Self::Down }
    }
}

/// State of a node's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RingState {
    /// It owns its token.
    Normal,
    /// It collects the data for its token.
    Joining,
    /// It owns its token and hands the data over.
    Leaving,
    /// It was heard of and has no place on the ring.
    Outside,
    /// It was removed from the ring, and is not taken back as it is; a node that says so of itself
    /// serves no client. Only in the status.
    Removed,
}

/// The ring as one node knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ring {
    /// The node that was asked.
    pub local: IpAddr,
    /// Class name of the partitioner.
    pub partitioner: String,
    /// Those with a token in the order of their tokens, then those without.
    pub endpoints: Vec<RingEndpoint>,
    /// Those that were removed from it, and are not taken back as they are.
    pub removed: Vec<RemovedEndpoint>,
}

/// All nodes at a glance, as one of them knows them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// `ClusterName`.
    pub cluster_name: String,
    /// The node that was asked.
    pub local: IpAddr,
    /// Whether there is nothing to look at: all nodes are healthy, and this one has no troubles.
    pub healthy: bool,
    /// Why the node that was asked does not serve as it should; empty if all is well.
    pub troubles: Vec<Trouble>,
    /// In the order of the ring, then those without a place, then those that were removed.
    pub nodes: Vec<NodeStatus>,
}

/// A node at a glance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Address for other nodes.
    pub address: IpAddr,
    /// Whether it seems alive.
    pub status: Status,
    /// State of its place.
    pub state: RingState,
    /// Whether there is nothing to look at: it is up and owns its token in peace, or it was removed
    /// from the ring, or it is another node that never had a place.
    pub healthy: bool,
    /// Since when it is up, by its own clock, or silent: milliseconds since the Unix epoch. `None`
    /// if it was not heard of since the start.
    pub since_millis: Option<u64>,
    /// Its SSTables, as it said last.
    pub load_bytes: Option<u64>,
    /// The share of the ring that is its primary range, 0 to 1, as in [`RingEndpoint::owns`].
    pub owns: Option<f64>,
    /// Its token, or the one that it is joining with.
    pub token: Option<String>,
    /// Its software; `None` if it was not heard of since the start.
    pub software: Option<Software>,
}

/// A cluster, and whether its nodes agree on what they have to agree on: partitioner, keyspaces
/// with their replication, column families with types, comparators and `GCGraceSeconds`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterDescription {
    /// `ClusterName`.
    pub cluster_name: String,
    /// Class name of the partitioner of the node that was asked.
    pub partitioner: String,
    /// Class names of its snitches.
    pub snitches: Vec<String>,
    /// Whether no two live nodes say that they are configured in different ways.
    pub agree: bool,
    /// The live nodes by what they announce: those that most announce first.
    pub schemas: Vec<SchemaGroup>,
    /// Live nodes that announce nothing, as originals do.
    pub unknown: Vec<IpAddr>,
    /// Nodes that seem dead.
    pub unreachable: Vec<IpAddr>,
    /// Live nodes that announce something else than most.
    pub look_at: Vec<IpAddr>,
    /// Members and live nodes that do not announce all extensions of the wire which the asked node
    /// understands: originals, and older versions of this program. What they lack is not used with
    /// them.
    #[serde(default)]
    pub held_back_by: Vec<IpAddr>,
}

/// Nodes that agree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaGroup {
    /// Their announcement: equal settings have equal fingerprints.
    pub fingerprint: String,
    /// Which they are.
    pub addresses: Vec<IpAddr>,
}

/// Software of a node, as far as it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Software {
    /// This program, in this version; an empty one if it does not tell.
    Alexandra(String),
    /// Something that announces nothing of this program: an original.
    Original,
}

/// A node that was removed from the ring because it was dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedEndpoint {
    /// Address for other nodes.
    pub address: IpAddr,
    /// The token that it owned.
    pub token: String,
    /// Number of its last start at that time; `None` if that was not known.
    pub generation: Option<i32>,
    /// Whether it is taken back after a restart.
    pub may_return: bool,
}

/// A removed node that may come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowedReturn {
    /// Which one.
    pub address: IpAddr,
    /// Whether it is in the ring of the node that was asked; else it will be when it has started
    /// anew.
    pub returned: bool,
}

/// A node that another one knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingEndpoint {
    /// Address for other nodes.
    pub address: IpAddr,
    /// Whether it seems alive.
    pub status: Status,
    /// State of its place.
    pub state: RingState,
    /// Its SSTables, as it said last; `None` if it was not heard of since the start.
    pub load_bytes: Option<u64>,
    /// Its token, or the one that it is joining with.
    pub token: Option<String>,
    /// The share of the ring that is its primary range, 0 to 1. `None` with partitioners that
    /// preserve order, where shares depend on the data, and for who owns no token.
    pub owns: Option<f64>,
    /// Number of its last start; `None` if it was not heard of.
    pub generation: Option<i32>,
    /// Suspicion by its silence: it counts as dead above `PhiConvictThreshold`.
    pub phi: Option<f64>,
    /// Its data centre, by the snitch of the first keyspace.
    pub data_center: Option<String>,
    /// Its rack there.
    pub rack: Option<String>,
    /// About how many hints the node that was asked keeps for it.
    pub hints: u64,
    /// Bytes of these.
    pub hint_bytes: u64,
}

/// Gossip about a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GossipEndpoint {
    /// Address of the node.
    pub address: IpAddr,
    /// Whether it seems alive.
    pub status: Status,
    /// Suspicion by its silence.
    pub phi: Option<f64>,
    /// Number of its last start.
    pub generation: i32,
    /// The version of its latest heartbeat.
    pub heartbeat: i32,
    /// Its application states by their names.
    pub states: BTreeMap<String, VersionedValue>,
}

/// Hints for nodes that were down or too slow, and counts since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hints {
    /// `HintedHandoffEnabled`.
    pub enabled: bool,
    /// By address.
    pub targets: Vec<HintTarget>,
    /// Counts of hints by outcome.
    #[serde(flatten)]
    pub stats: HintStats,
}

/// Hints for one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintTarget {
    /// For whom.
    pub address: IpAddr,
    /// About how many hints.
    pub hints: u64,
    /// Their bytes.
    pub bytes: u64,
    /// About when the oldest was stored, in milliseconds since the Unix epoch.
    pub oldest_millis: Option<u64>,
    /// Their recipient: the node itself, or the one that has taken its place.
    pub recipient: IpAddr,
    /// State of their delivery.
    pub state: HintState,
    /// With [`HintState::PutOff`], after how many seconds the next delivery may begin.
    pub put_off_seconds: Option<u64>,
}

/// State of the delivery of hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum HintState {
    /// They are being delivered.
    Delivering,
    /// The recipient seems alive, and a delivery is about to begin.
    Due,
    /// The recipient seems alive, but the last delivery failed.
    PutOff,
    /// The recipient seems dead.
    Down,
}

/// Requests and messages of a node since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Requests to other nodes that wait for answers now.
    pub pending_requests: u64,
    /// Further replicas that were asked because others were slow.
    pub speculations: u64,
    /// Replicas that got what a read found them to lack.
    pub read_repairs: u64,
    /// Messages of others that were not acted on, because their time was over or too many waited:
    /// by verb.
    pub dropped: BTreeMap<String, u64>,
    /// By address.
    pub peers: Vec<PeerMessages>,
}

/// Messages between a node and another one since the start. Bytes are those of whole frames.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMessages {
    /// The other one.
    pub address: IpAddr,
    /// Description for the operator.
    #[serde(flatten)]
    pub stats: PeerStats,
}
