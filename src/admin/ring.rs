//! Reports on the other nodes.

use super::context::AdminContext;
use super::ring_report::{
    GossipEndpoint, HintState, HintTarget, Hints, Messages, PeerMessages, RemovedEndpoint, Ring,
    RingEndpoint, RingState, Status,
};
use crate::gossip::{EndpointState, Gossiper, Members, Membership, RemovedNode};
use crate::model::key::RowKey;
use crate::net::Verb;
use crate::node::HandoffState;
use crate::replica::TargetStats;
use crate::ring::{Partitioner, Token, Topology};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

impl AdminContext {
    /// All nodes that are members of the ring, are on their way there, or were heard of.
    pub(super) fn ring(&self) -> Ring {
        let partitioner = self.storage.partitioner();
        let local = self.member.local();
        let hints = self.hint_targets();
        let topology = self.topology();
        let own_load = self.load_bytes();
        let now = self.clock.monotonic();
        let (endpoints, removed) = self.member.with_gossip(|gossiper, membership| {
            let members = membership.members();
            let shares = shares(partitioner, members);
            let describe = |(address, place): (IpAddr, Place)| {
                let hints = hints.get(&address);
                let said = || gossiper.load(address).map(|bytes| bytes as u64);
                RingEndpoint {
                    address,
                    status: Status::of(gossiper.is_alive(address)),
                    state: place.state,
                    load_bytes: if address == local { Some(own_load) } else { said() },
                    token: place.token.map(|token| partitioner.display_token(&token)),
                    owns: shares.get(&address).copied(),
                    generation: gossiper.state(address).map(|state| state.generation),
                    phi: gossiper.detector.phi(address, now),
                    data_center: topology.as_ref().map(|it| it.data_center(address).into_owned()),
                    rack: topology.as_ref().map(|it| it.rack(address).into_owned()),
                    hints: hints.map_or(0, |target| target.hints),
                    hint_bytes: hints.map_or(0, |target| target.bytes),
                }
            };
            let endpoints = places(gossiper, membership).into_iter().map(describe).collect();
            (endpoints, membership.removed().map(|node| removed(partitioner, &node)).collect())
        });
        Ring { local, partitioner: partitioner.class_name().to_owned(), endpoints, removed }
    }

    /// The replicas of a row, the owner first: this node alone where each keeps its own.
    pub(super) fn endpoints(&self, keyspace: &str, key: &RowKey) -> Vec<IpAddr> {
        let coordinator = self.member.coordinator();
        let token = coordinator.partitioner().token(key.as_bytes());
        match self.member.placements().get(keyspace) {
            Some(placement) => placement.natural_endpoints(&coordinator.ring(), &token),
            None => vec![self.member.local()],
        }
    }

    /// Threshold above which a silent node counts as dead.
    pub(super) fn failure_detection(&self) -> Value {
        let threshold = |gossiper: &Gossiper, _: &Membership| gossiper.detector.threshold;
        json!({ "phi_convict_threshold": self.member.with_gossip(threshold) })
    }

    /// Reports of nodes on themselves: this one first, the others by address.
    pub(super) fn gossip(&self) -> Vec<GossipEndpoint> {
        let now = self.clock.monotonic();
        self.member.with_gossip(|gossiper, _| {
            let describe = |(address, state): (IpAddr, &EndpointState)| GossipEndpoint {
                address,
                status: Status::of(gossiper.is_alive(address)),
                phi: gossiper.detector.phi(address, now),
                generation: state.generation,
                heartbeat: state.heartbeat,
                states: state.states.clone(),
            };
            gossiper.endpoints().map(describe).collect()
        })
    }

    /// Hints for others.
    pub(super) fn hints(&self) -> Hints {
        let Some(store) = self.member.hints() else { return Hints::default() };
        let recipients: BTreeMap<IpAddr, IpAddr> = store.waiting().into_iter().collect();
        let target = |target: TargetStats| {
            let recipient = recipients.get(&target.target).copied().unwrap_or(target.target);
            let (state, put_off_seconds) = self.hint_state(target.target, recipient);
            HintTarget {
                address: target.target,
                hints: target.hints,
                bytes: target.bytes,
                oldest_millis: target.oldest_ms,
                recipient,
                state,
                put_off_seconds,
            }
        };
        Hints {
            enabled: true,
            targets: self.hint_targets().into_values().map(target).collect(),
            stats: store.stats(),
        }
    }

    /// Counts of messages.
    pub(super) fn messages(&self) -> Messages {
        let coordinator = self.member.coordinator().stats();
        let drops = self.member.drops();
        let dropped = Verb::all().map(|verb| (verb.to_string(), drops.total(verb)));
        let peers = self.transport.stats().into_iter();
        Messages {
            pending_requests: self.member.pending_requests() as u64,
            speculations: coordinator.speculations,
            read_repairs: coordinator.repairs,
            dropped: dropped.filter(|(_, count)| *count > 0).collect(),
            peers: peers.map(|(address, stats)| PeerMessages { address, stats }).collect(),
        }
    }

    fn hint_state(&self, target: IpAddr, recipient: IpAddr) -> (HintState, Option<u64>) {
        let is_alive = self.member.with_gossip(|gossiper, _| gossiper.is_alive(recipient));
        let now = self.clock.monotonic();
        match self.member.handoff().map(|handoff| handoff.state_of(target, now)) {
            Some(HandoffState::Delivering) => (HintState::Delivering, None),
            _ if !is_alive => (HintState::Down, None),
            Some(HandoffState::PutOff(pause)) => (HintState::PutOff, Some(pause.as_secs())),
            Some(HandoffState::Waiting) | None => (HintState::Due, None),
        }
    }

    fn hint_targets(&self) -> BTreeMap<IpAddr, TargetStats> {
        let targets = self.member.hints().map(|store| store.targets()).unwrap_or_default();
        targets.into_iter().map(|target| (target.target, target)).collect()
    }

    /// Topology by the snitch of the first keyspace that has one; most clusters have one for all.
    fn topology(&self) -> Option<Topology> {
        let coordinator = self.member.coordinator();
        let schema = self.storage.schema();
        let keyspaces = schema.keyspaces();
        let placement = keyspaces.iter().find_map(|keyspace| coordinator.placement(keyspace));
        placement.map(|placement| placement.snitch.topology())
    }
}

/// Place of a node on the ring.
struct Place {
    state: RingState,
    token: Option<Token>,
}

/// All nodes, in the order of the answer. A node that joins comes after the members, whatever
/// its token.
fn places(gossiper: &Gossiper, membership: &Membership) -> Vec<(IpAddr, Place)> {
    let Members { ring, bootstrapping, leaving, .. } = membership.members();
    let member = |(token, address): (&Token, IpAddr)| {
        let is_leaving = leaving.contains(&address);
        let state = if is_leaving { RingState::Leaving } else { RingState::Normal };
        (address, Place { state, token: Some(token.clone()) })
    };
    let mut places: Vec<(IpAddr, Place)> = ring.members().map(member).collect();
    let mut told: BTreeSet<IpAddr> = places.iter().map(|(address, _)| *address).collect();
    for (&address, token) in bootstrapping {
        if told.insert(address) {
            let (state, token) = (RingState::Joining, Some(token.clone()));
            places.push((address, Place { state, token }));
        }
    }
    for (address, _) in gossiper.endpoints() {
        if told.insert(address) {
            places.push((address, Place { state: RingState::Outside, token: None }));
        }
    }
    places
}

/// Share of the ring of each member, as far as tokens tell.
fn shares(partitioner: Partitioner, members: &Members) -> BTreeMap<IpAddr, f64> {
    let tokens: Vec<Token> = members.ring.tokens().cloned().collect();
    let shares = partitioner.ownership(&tokens).unwrap_or_default();
    members.ring.members().map(|(_, address)| address).zip(shares).collect()
}

fn removed(partitioner: Partitioner, node: &RemovedNode) -> RemovedEndpoint {
    RemovedEndpoint {
        address: node.endpoint,
        token: partitioner.display_token(&node.token),
        // The least stands for one that is not known.
        generation: Some(node.generation).filter(|it| *it != i32::MIN),
        may_return: node.may_return,
    }
}
