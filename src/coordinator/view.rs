//! The ring at one moment: a value that is replaced as a whole when nodes come, go, or change.

use super::CoordinatorError;
use super::consistency::{ConsistencyLevel, Requirement};
use crate::ring::{
    DynamicSnitch, KeyspacePlacements, ReplicaPlacement, ReplicaSets, ReplicationStrategy, Snitch,
    Token, TokenMetadata,
};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// Endpoints of one row: mostly three, or a few more.
pub(super) type Endpoints = SmallVec<[IpAddr; 4]>;

/// State of the other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peers {
    /// Nodes that seem alive. The node itself always does, even if it is not listed.
    pub live: BTreeSet<IpAddr>,
    /// Nodes that understand digests which cover deletions of rows.
    pub full_digests: BTreeSet<IpAddr>,
    /// Nodes that say why they refuse a read.
    pub refusals: BTreeSet<IpAddr>,
    /// Nodes that take part in decisions on registers.
    pub registers: BTreeSet<IpAddr>,
    /// Nodes that keep logged batches.
    pub batches: BTreeSet<IpAddr>,
    /// Nodes that still collect their data, and are not read from.
    pub incomplete: BTreeSet<IpAddr>,
    /// Nodes whose place others may not know. They acknowledge no writes.
    pub unsure: BTreeSet<IpAddr>,
    /// Nodes that were removed from the ring. Their requests are refused.
    pub removed: BTreeSet<IpAddr>,
    /// Whether others have removed this node from the ring. It serves no requests then.
    pub is_self_removed: bool,
}

/// The ring with everything that was derived from it.
#[derive(Debug)]
pub(super) struct View {
    pub(super) ring: Arc<TokenMetadata>,
    /// By the number of the keyspace.
    keyspaces: Vec<KeyspaceView>,
    pub(super) peers: Peers,
    /// Whose answers to reads count.
    readable: BTreeSet<IpAddr>,
    /// Whose acknowledgements of writes count.
    writable: BTreeSet<IpAddr>,
    local: IpAddr,
    /// Whether every row has this node as its only replica, whatever its token, and no level asks
    /// for others that could be replicas.
    pub(super) is_alone: bool,
    dynamic_snitch: Option<Arc<DynamicSnitch>>,
    /// Held by each write that goes by this view, as long as it is under way.
    pub(super) writes: Arc<()>,
}

/// Replication of a keyspace.
#[derive(Debug)]
pub(super) struct KeyspaceView {
    placement: ReplicaPlacement,
    sets: ReplicaSets,
}

/// The replicas of a row that is to be written.
#[derive(Debug, Clone)]
pub(super) struct WriteReplicas {
    /// Replicas that seem alive, without this node.
    pub(super) live: Endpoints,
    /// Replicas that seem dead, are overloaded, or must not be counted on. They get hints.
    pub(super) dead: Endpoints,
    /// Whether this node is one.
    pub(super) is_local: bool,
    /// Endpoints among them that are only about to become replicas, or were some.
    pub(super) pending: usize,
    /// The acknowledgements that are needed.
    pub(super) requirement: Requirement,
}

/// The replicas that a row, or a stretch of the ring, can be read from.
#[derive(Debug, Clone)]
pub(super) struct ReadReplicas {
    /// Replicas that seem alive, the closest first.
    pub(super) live: Endpoints,
    /// The answers that are needed.
    pub(super) requirement: Requirement,
}

impl WriteReplicas {
    /// Fails unless enough replicas seem alive.
    pub(super) fn check(&self, local: IpAddr) -> Result<(), CoordinatorError> {
        let live = self.live.iter().copied().chain(self.is_local.then_some(local));
        self.requirement.check(live).map_err(CoordinatorError::Unavailable)
    }
}

impl ReadReplicas {
    /// Fails unless enough replicas seem alive.
    pub(super) fn check(&self) -> Result<(), CoordinatorError> {
        self.requirement.check(self.live.iter().copied()).map_err(CoordinatorError::Unavailable)
    }

    /// Whether this node alone can answer.
    pub(super) fn is_answered_by(&self, local: IpAddr) -> bool {
        self.live.first() == Some(&local) && self.requirement.is_met_by(std::iter::once(local))
    }
}

impl KeyspaceView {
    /// Whether any node is a replica if it is the only one. With replicas by data centre it depends
    /// on the data centre of the node.
    fn is_held_by_any(&self) -> bool {
        let placement = &self.placement;
        !matches!(placement.strategy, ReplicationStrategy::PerDataCenter(_))
            && placement.replication_factor > 0
    }
}

/// The placement of a keyspace that was dropped, which requests under way may still name. Their
/// families take no writes and have no rows.
fn of_dropped() -> ReplicaPlacement {
    let (strategy, snitch) = (ReplicationStrategy::RackUnaware, Snitch::EndPoint);
    ReplicaPlacement { strategy, replication_factor: 1, snitch }
}

impl View {
    pub(super) fn new(
        ring: Arc<TokenMetadata>,
        placements: &KeyspacePlacements,
        peers: Peers,
        local: IpAddr,
        dynamic_snitch: Option<Arc<DynamicSnitch>>,
    ) -> Self {
        let keyspace = |placement: Option<&ReplicaPlacement>| {
            let placement = placement.map_or_else(of_dropped, Clone::clone);
            KeyspaceView { sets: ReplicaSets::new(&placement, &ring), placement }
        };
        let keyspaces = placements.by_number().map(|(_, placement)| keyspace(placement));
        let keyspaces: Vec<KeyspaceView> = keyspaces.collect();
        let is_alone = ring.len() == 1
            && ring.token(local).is_some()
            && ring.is_settled()
            && !peers.is_self_removed
            && keyspaces.iter().all(|keyspace| keyspace.is_held_by_any());
        let mut live: BTreeSet<IpAddr> = peers.live.iter().copied().chain([local]).collect();
        if peers.is_self_removed {
            live.clear();
        }
        let (readable, writable) = (&live - &peers.incomplete, &live - &peers.unsure);
        let writes = Arc::new(());
        Self { ring, keyspaces, peers, readable, writable, local, is_alone, dynamic_snitch, writes }
    }

    /// Whether the node understands digests that cover deletions of rows.
    pub(super) fn takes_full_digests(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local || self.peers.full_digests.contains(&endpoint)
    }

    /// Whether the node says why it refuses a read.
    pub(super) fn gives_refusals(&self, endpoint: IpAddr) -> bool {
        self.peers.refusals.contains(&endpoint)
    }

    /// Whether the node is alive and sure of its place.
    pub(super) fn takes_part(&self, endpoint: IpAddr) -> bool {
        self.writable.contains(&endpoint)
    }

    /// Whether the replicas of a keyspace are placed by data centre.
    pub(super) fn knows_data_centers(&self, keyspace: usize) -> bool {
        let strategy = &self.keyspaces[keyspace].placement.strategy;
        matches!(strategy, ReplicationStrategy::PerDataCenter(_))
    }

    /// Other nodes that can keep logged batches, in the data centre of this one as the keyspace
    /// knows it.
    pub(super) fn keepers_of_batches(&self, keyspace: Option<usize>) -> Endpoints {
        let placement = keyspace.map(|keyspace| &self.keyspaces[keyspace].placement);
        let topology = placement.map(|placement| placement.snitch.topology());
        let is_near = |it: &IpAddr| {
            let data_center = |it| topology.as_ref().map(|topology| topology.data_center(it));
            data_center(*it) == data_center(self.local)
        };
        let others = self.peers.batches.iter().copied().filter(|it| *it != self.local);
        others.filter(|it| self.takes_part(*it)).filter(is_near).collect()
    }

    /// The replicas of a row to write. Pending ones count as well, unless the level is ZERO.
    pub(super) fn write_replicas(
        &self,
        keyspace: usize,
        token: &Token,
        level: ConsistencyLevel,
    ) -> WriteReplicas {
        let keyspace = &self.keyspaces[keyspace];
        let set = keyspace.sets.of(token);
        let pending: &[IpAddr] = if level == ConsistencyLevel::Zero { &[] } else { set.pending };
        let all = || set.natural.iter().chain(pending).copied();
        let others = || all().filter(|endpoint| *endpoint != self.local);
        let endpoints: Endpoints = all().collect();
        let requirement = self.by_data_center(&keyspace.placement, &endpoints, level);
        WriteReplicas {
            live: others().filter(|endpoint| self.writable.contains(endpoint)).collect(),
            dead: others().filter(|endpoint| !self.writable.contains(endpoint)).collect(),
            is_local: all().any(|endpoint| endpoint == self.local),
            pending: pending.len(),
            requirement: requirement.unwrap_or_else(|| {
                Requirement::any(level.block_for_write(set.natural.len(), pending.len()))
            }),
        }
    }

    /// The replicas that a row with this token can be read from.
    pub(super) fn read_replicas(
        &self,
        keyspace: usize,
        token: &Token,
        level: ConsistencyLevel,
    ) -> ReadReplicas {
        let keyspace = &self.keyspaces[keyspace];
        let natural = keyspace.sets.of(token).natural;
        let can_answer = |it: &IpAddr| self.readable.contains(it);
        let mut live: Endpoints = natural.iter().copied().filter(can_answer).collect();
        self.sort_by_proximity(&keyspace.placement, level, &mut live);
        let requirement = self.by_data_center(&keyspace.placement, natural, level);
        let needed = level.block_for_read(keyspace.placement.replication_factor);
        ReadReplicas { live, requirement: requirement.unwrap_or_else(|| Requirement::any(needed)) }
    }

    /// Closest first. At ONE that is this node itself if it is among them, even if others are
    /// faster, so that a client that writes and reads through one node reads what it wrote, unless
    /// its disk stands still.
    fn sort_by_proximity(
        &self,
        placement: &ReplicaPlacement,
        level: ConsistencyLevel,
        endpoints: &mut [IpAddr],
    ) {
        let topology = placement.snitch.topology();
        match &self.dynamic_snitch {
            Some(dynamic) => dynamic.sort_by_proximity(&topology, self.local, endpoints),
            None => topology.sort_by_proximity(self.local, endpoints),
        }
        if level == ConsistencyLevel::One {
            endpoints.sort_by_key(|endpoint| *endpoint != self.local);
        }
    }

    /// The levels that know of data centres: a quorum of the own one, or of each.
    fn by_data_center(
        &self,
        placement: &ReplicaPlacement,
        endpoints: &[IpAddr],
        level: ConsistencyLevel,
    ) -> Option<Requirement> {
        let quorums = match level {
            ConsistencyLevel::DcQuorum => placement.quorum_of_data_center(self.local, endpoints),
            ConsistencyLevel::DcQuorumSync => placement.quorum_of_each_data_center(endpoints),
            _ => None,
        };
        let topology = placement.snitch.topology();
        let quorums = quorums?;
        Some(Requirement::of_each(quorums.iter().map(|(name, needed)| {
            let members = endpoints.iter().copied();
            (members.filter(|it| topology.data_center(*it) == name.as_str()).collect(), *needed)
        })))
    }

    /// [`View::read_replicas`] of a node that is alone: they are the same for all tokens.
    pub(super) fn own_read_replicas(
        &self,
        keyspace: usize,
        level: ConsistencyLevel,
    ) -> ReadReplicas {
        let factor = self.keyspaces[keyspace].placement.replication_factor;
        let own = (factor > 0).then_some(self.local);
        let requirement = Requirement::any(level.block_for_read(factor));
        ReadReplicas { live: own.into_iter().collect(), requirement }
    }
}
