//! A cluster of gossipers in one process, on a network that delays, loses, repeats and reorders
//! messages by a seed.

use crate::gossip::message::Digest;
use crate::gossip::{
    Effects, EndpointState, GOSSIP_INTERVAL, GossipEvent, GossipMessage, Gossiper, GossiperOptions,
    MOVE_STATE, Members, Membership, MembershipChange, MessageKind, Move, RemovedNode,
};
use crate::ring::{Partitioner, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// What the network does to messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Faults {
    /// Share of messages that are lost.
    pub(super) loss: f64,
    /// Share of messages that arrive twice.
    pub(super) duplicates: f64,
    /// Longest delay; messages overtake each other within it.
    pub(super) delay: Duration,
}

/// A local network without faults.
pub(super) const SOUND: Faults =
    Faults { loss: 0.0, duplicates: 0.0, delay: Duration::from_millis(5) };

/// A bad one.
pub(super) const BAD: Faults =
    Faults { loss: 0.2, duplicates: 0.2, delay: Duration::from_millis(700) };

#[derive(Debug)]
enum Input {
    /// A round of this node, if this start of it still runs.
    Tick(u8, u64),
    /// A message in its bytes.
    Message { from: u8, to: u8, kind: MessageKind, body: Vec<u8> },
}

/// What a node has saved.
#[derive(Default)]
struct Disk {
    ring: BTreeMap<IpAddr, Token>,
    removed: Vec<RemovedNode>,
    returned: BTreeMap<IpAddr, i32>,
    generation: i32,
}

struct Node {
    start: u64,
    gossiper: Gossiper,
    membership: Membership,
}

/// Nodes 1 to `n`; node 1 is the seed of all, node `i` owns token `100 * i`.
pub(super) struct Cluster {
    pub(super) now: Duration,
    pub(super) faults: Faults,
    nodes: BTreeMap<u8, Node>,
    disks: BTreeMap<u8, Disk>,
    /// The side of each node that is cut off from those of other sides.
    sides: BTreeMap<u8, u8>,
    /// How far ahead the clock of a node is, in seconds.
    pub(super) clocks_ahead: BTreeMap<u8, i32>,
    /// Until when a node stands still. What it should do or hear meanwhile it does after that.
    stopped: BTreeMap<u8, Duration>,
    queue: BTreeMap<(Duration, u64), Input>,
    sequence: u64,
    rng: fastrand::Rng,
    phi: f64,
    /// What each node found out about which, and when; without states.
    pub(super) events: Vec<(Duration, u8, GossipEvent)>,
}

pub(super) fn ip(node: u8) -> IpAddr {
    [10, 0, 0, node].into()
}

pub(super) fn node_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => panic!("{address}"),
    }
}

pub(super) fn token(node: u8) -> Token {
    Token::Random(u128::from(node) * 100)
}

impl Cluster {
    pub(super) fn new(phi: f64, faults: Faults, seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            faults,
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            sides: BTreeMap::new(),
            clocks_ahead: BTreeMap::new(),
            stopped: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            rng: fastrand::Rng::with_seed(seed),
            phi,
            events: Vec::new(),
        }
    }

    /// A running cluster of `count` nodes that all know each other as alive.
    pub(super) fn of(count: u8, phi: f64, faults: Faults, seed: u64) -> Self {
        let mut cluster = Self::new(phi, faults, seed);
        (1..=count).for_each(|node| cluster.start(node, &Move::normal(node)));
        cluster.until(Duration::from_secs(120), |cluster| cluster.is_converged());
        cluster
    }

    /// Starts a node with this place.
    pub(super) fn start(&mut self, node: u8, place: &Move) {
        self.boot(node, Some(place));
    }

    /// Starts a node without a place, as clients of 0.6 that take part in gossip are.
    pub(super) fn start_fat_client(&mut self, node: u8) {
        self.boot(node, None);
    }

    fn boot(&mut self, node: u8, place: Option<&Move>) {
        let now_secs = self.now_secs() + self.clocks_ahead.get(&node).copied().unwrap_or(0);
        let disk = self.disks.entry(node).or_default();
        disk.generation = now_secs.max(disk.generation + 1);
        let generation = disk.generation;
        let options = GossiperOptions {
            local: ip(node),
            cluster_name: "Test Cluster".to_owned(),
            partitioner: Partitioner::Random,
            seeds: vec![ip(1)],
            generation,
            phi_convict_threshold: self.phi,
            now_secs: i64::from(now_secs),
        };
        let rng = fastrand::Rng::with_seed(self.rng.u64(..));
        let Disk { ring, removed, returned, .. } = self.disks.entry(node).or_default();
        let mut gossiper = Gossiper::new(options, rng, self.now);
        let removed = removed.iter().cloned();
        let mut membership = Membership::new(Partitioner::Random, ip(node), generation, removed);
        membership.remember_returned(returned.clone());
        membership.preload(ring.clone());
        gossiper.preload(membership.members().endpoints());
        self.sequence += 1;
        let start = self.sequence;
        self.nodes.insert(node, Node { start, gossiper, membership });
        if let Some(place) = place {
            self.announce(node, place);
        }
        let effects = self.nodes.get_mut(&node).unwrap().gossiper.start(self.now);
        self.act(node, effects);
        let phase = self.millis(GOSSIP_INTERVAL);
        self.push(phase, Input::Tick(node, start));
    }

    /// The time in seconds since 1970.
    pub(super) fn now_secs(&self) -> i32 {
        1000 + i32::try_from(self.now.as_secs()).unwrap()
    }

    /// A node hears from an address beyond the ring that another node says this.
    pub(super) fn forge(&mut self, to: u8, about: u8, state: EndpointState) {
        let (generation, max_version) = state.age();
        let digests = vec![Digest { endpoint: ip(about), generation, max_version }];
        let cluster_name = "Test Cluster".to_owned();
        let syn = GossipMessage::Syn { cluster_name, digests };
        for message in [syn, GossipMessage::Ack2 { states: vec![(ip(about), state)] }] {
            let (from, kind, body) = (99, message.kind(), message.encode().unwrap());
            self.push(Duration::ZERO, Input::Message { from, to, kind, body });
        }
    }

    /// A running node says where it is.
    pub(super) fn announce(&mut self, node: u8, place: &Move) {
        let Node { gossiper, membership, .. } = self.nodes.get_mut(&node).unwrap();
        gossiper.set_state(MOVE_STATE, &place.format(Partitioner::Random)).unwrap();
        let changes = membership.announce(place);
        self.follow(node, &changes);
    }

    /// A running node leaves the ring, and stops.
    pub(super) fn leave(&mut self, node: u8) {
        self.announce(node, &Move::Leaving(token(node)));
        self.run(Duration::from_secs(30));
        self.announce(node, &Move::Left(token(node)));
        self.run(Duration::from_secs(5));
        self.kill(node);
    }

    pub(super) fn kill(&mut self, node: u8) {
        self.nodes.remove(&node);
    }

    /// A node loses what it has saved.
    pub(super) fn wipe(&mut self, node: u8) {
        self.disks.remove(&node);
    }

    /// A node stands still for some time, as after SIGSTOP.
    pub(super) fn stop(&mut self, node: u8, time: Duration) {
        self.stopped.insert(node, self.now + time);
    }

    /// Cuts these nodes off from the others.
    pub(super) fn cut_off(&mut self, nodes: &[u8]) {
        self.sides = nodes.iter().map(|&node| (node, 1)).collect();
    }

    pub(super) fn heal(&mut self) {
        self.sides.clear();
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(entry) = self.queue.first_entry()
            && entry.key().0 <= end
        {
            let ((now, _), input) = entry.remove_entry();
            self.now = now;
            self.step(input);
        }
        self.now = end;
    }

    /// Lets time pass until something is so. Returns how long that took.
    #[track_caller]
    pub(super) fn until(&mut self, at_most: Duration, is_so: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !is_so(self) {
            assert!(self.now < start + at_most, "{:#?}", self.views());
            self.run(Duration::from_millis(100));
        }
        self.now.saturating_sub(start)
    }

    /// What a node takes for the ring, and whom for alive.
    pub(super) fn view(&self, node: u8) -> (Members, Vec<u8>) {
        let Node { gossiper, membership, .. } = &self.nodes[&node];
        let alive = gossiper.endpoints().map(|(endpoint, _)| endpoint);
        let mut alive: Vec<u8> =
            alive.filter(|&endpoint| gossiper.is_alive(endpoint)).map(node_of).collect();
        alive.sort_unstable();
        (membership.members().clone(), alive)
    }

    pub(super) fn views(&self) -> BTreeMap<u8, (Members, Vec<u8>)> {
        self.nodes.keys().map(|&node| (node, self.view(node))).collect()
    }

    /// Whether all take just those for alive who are, and see the same ring.
    pub(super) fn is_converged(&self) -> bool {
        let alive: Vec<u8> = self.nodes.keys().copied().collect();
        let mut views = alive.iter().map(|&node| self.view(node));
        let Some(first) = views.next() else { return true };
        first.1 == alive && views.all(|view| view == first)
    }

    /// Whether a node takes another for alive.
    pub(super) fn sees_alive(&self, node: u8, other: u8) -> bool {
        self.nodes[&node].gossiper.is_alive(ip(other))
    }

    pub(super) fn gossiper(&self, node: u8) -> &Gossiper {
        &self.nodes[&node].gossiper
    }

    /// Who convicted whom.
    pub(super) fn convictions(&self) -> Vec<(u8, u8)> {
        let downs = self.events.iter().filter_map(|(_, node, event)| match event {
            GossipEvent::Down { endpoint } => Some((*node, node_of(*endpoint))),
            _ => None,
        });
        downs.collect()
    }

    fn step(&mut self, input: Input) {
        let now = self.now;
        let (Input::Tick(node, _) | Input::Message { to: node, .. }) = input;
        if let Some(&until) = self.stopped.get(&node)
            && now < until
        {
            return self.push(until.saturating_sub(now), input);
        }
        match input {
            Input::Tick(node, start) => {
                let running = self.nodes.get_mut(&node).filter(|it| it.start == start);
                if let Some(Node { gossiper, .. }) = running {
                    let effects = gossiper.tick(now);
                    self.act(node, effects);
                    self.push(GOSSIP_INTERVAL, Input::Tick(node, start));
                }
            }
            Input::Message { from, to, kind, body } => {
                if self.sides.get(&from) != self.sides.get(&to) {
                    return;
                }
                if let Some(Node { gossiper, .. }) = self.nodes.get_mut(&to) {
                    let message = GossipMessage::decode(kind, &body).unwrap();
                    let effects = gossiper.receive(ip(from), message, now);
                    self.act(to, effects);
                }
            }
        }
    }

    /// Does what a node's caller has to do.
    fn act(&mut self, node: u8, effects: Effects) {
        for event in effects.events {
            if let GossipEvent::OwnGenerationRaised { generation }
            | GossipEvent::OwnGenerationLowered { generation } = &event
            {
                self.disks.entry(node).or_default().generation = *generation;
            }
            let changes = self.nodes.get_mut(&node).unwrap().membership.follow(&event);
            self.follow(node, &changes);
            if !matches!(event, GossipEvent::StateChanged { .. }) {
                self.events.push((self.now, node, event));
            }
        }
        for (to, message) in effects.messages {
            let copies = 1 + u8::from(self.rng.f64() < self.faults.duplicates);
            for _ in 0..copies {
                if self.rng.f64() >= self.faults.loss {
                    let (kind, body) = (message.kind(), message.encode().unwrap());
                    let delay = self.millis(self.faults.delay);
                    self.push(delay, Input::Message { from: node, to: node_of(to), kind, body });
                }
            }
        }
    }

    fn follow(&mut self, node: u8, changes: &[MembershipChange]) {
        let Node { gossiper, membership, .. } = self.nodes.get_mut(&node).unwrap();
        let disk = self.disks.entry(node).or_default();
        for change in changes.iter().cloned() {
            match change {
                MembershipChange::Ring | MembershipChange::Notice(_) => {}
                MembershipChange::Reannounce => {
                    let state = gossiper.state(ip(node)).unwrap();
                    let place = state.value(MOVE_STATE).unwrap().to_owned();
                    gossiper.set_state(MOVE_STATE, &place).unwrap();
                }
                MembershipChange::SaveToken { endpoint, token } => {
                    disk.ring.insert(endpoint, token);
                }
                MembershipChange::ForgetToken { endpoint } => drop(disk.ring.remove(&endpoint)),
                MembershipChange::Removed(removed) => {
                    gossiper.forget(removed.endpoint, self.now);
                    disk.removed.push(removed);
                }
                MembershipChange::MayReturn(allowed) => {
                    disk.removed.retain(|removed| removed.endpoint != allowed.endpoint);
                    disk.removed.push(allowed);
                }
                MembershipChange::Readmitted { endpoint, generation, .. } => {
                    disk.removed.retain(|removed| removed.endpoint != endpoint);
                    disk.returned.insert(endpoint, generation);
                }
            }
        }
        let members: BTreeSet<IpAddr> = membership.members().endpoints();
        gossiper.set_members(members);
    }

    fn push(&mut self, delay: Duration, input: Input) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), input);
    }

    fn millis(&mut self, below: Duration) -> Duration {
        let millis = u64::try_from(below.as_millis()).unwrap();
        Duration::from_millis(self.rng.u64(0..=millis))
    }
}

impl Move {
    /// The place of a node of the tests.
    pub(super) fn normal(node: u8) -> Self {
        Self::Normal { token: token(node), removed: None }
    }
}
