//! Gossipers in one process, with the memberships and the disks that go with them, on a network
//! that delays, loses, repeats and reorders messages by a seed.

use alexandra::gossip::{
    Digest, Effects, EndpointState, GOSSIP_INTERVAL, GossipEvent, GossipMessage, Gossiper,
    GossiperOptions, MOVE_STATE, Membership, MembershipChange, MessageKind, Move, RemovedNode,
};
use alexandra::ring::{Partitioner, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// The cluster that nodes belong to unless they are told otherwise.
pub(super) const CLUSTER: &str = "Test Cluster";

/// The time at which every script begins, in seconds since 1970: 2020-09-13T12:26:40Z.
const START_SECS: i64 = 1_600_000_000;

/// Faults of the network.
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

/// Everything that a node has saved.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) ring: BTreeMap<IpAddr, Token>,
    removed: Vec<RemovedNode>,
    returned: BTreeMap<IpAddr, i32>,
    pub(super) generation: i32,
}

/// A running node.
pub(super) struct Node {
    start: u64,
    pub(super) gossiper: Gossiper,
    pub(super) membership: Membership,
}

/// How a node starts.
pub(super) struct Start {
    /// Its place; none for a client that takes part in gossip.
    pub(super) place: Option<Move>,
    /// By default the time, or one more than the saved one.
    pub(super) generation: Option<i32>,
    pub(super) cluster: String,
    pub(super) seeds: Vec<u8>,
    /// Whether it asks what others remember of its address before they hear of this start.
    pub(super) asks_first: bool,
}

impl Start {
    /// The start of a node at its token.
    pub(super) fn normal(node: u8) -> Self {
        Self {
            place: Some(Move::Normal { token: token(node), removed: None }),
            generation: None,
            cluster: CLUSTER.to_owned(),
            seeds: vec![1],
            asks_first: false,
        }
    }
}

/// Nodes by the last number of their addresses.
pub(super) struct World {
    pub(super) now: Duration,
    pub(super) faults: Faults,
    pub(super) phi: f64,
    /// Whether rounds happen only when a script says so.
    pub(super) is_by_hand: bool,
    /// How far the clock of a node is ahead, in seconds.
    pub(super) clocks_ahead: BTreeMap<u8, i64>,
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) disks: BTreeMap<u8, Disk>,
    /// Nodes that are cut off from the others.
    pub(super) cut_off: BTreeSet<u8>,
    /// Sender and recipient of messages that are held back.
    pub(super) holding: BTreeSet<(u8, u8)>,
    held: Vec<Input>,
    /// Until when a node stands still. What it should do or hear meanwhile it does after that.
    stopped: BTreeMap<u8, Duration>,
    queue: BTreeMap<(Duration, u64), Input>,
    sequence: u64,
    pub(super) rng: fastrand::Rng,
    /// Lines of the log of every node.
    pub(super) log: Vec<(u8, String)>,
    /// Messages that were sent.
    pub(super) sent: Vec<(u8, u8, GossipMessage)>,
    /// Nodes that took another one for dead, and that one.
    pub(super) convictions: Vec<(u8, u8)>,
}

pub(in crate::scripts) fn ip(node: u8) -> IpAddr {
    [10, 0, 0, node].into()
}

/// The number of a node; zero for addresses that a script makes up.
pub(in crate::scripts) fn node_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) if address.octets()[..3] == [10, 0, 0] => address.octets()[3],
        _ => 0,
    }
}

/// The token that a node has unless it is told otherwise.
pub(in crate::scripts) fn token(node: u8) -> Token {
    Token::Random(u128::from(node) * 100)
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            faults: SOUND,
            phi: 8.0,
            is_by_hand: false,
            clocks_ahead: BTreeMap::new(),
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            holding: BTreeSet::new(),
            held: Vec::new(),
            stopped: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            rng: fastrand::Rng::with_seed(seed),
            log: Vec::new(),
            sent: Vec::new(),
            convictions: Vec::new(),
        }
    }

    /// Seconds since 1970 by a correct clock.
    pub(super) fn now_secs(&self) -> i64 {
        START_SECS + self.now.as_secs() as i64
    }

    pub(super) fn node(&mut self, node: u8) -> Result<&mut Node, String> {
        self.nodes.get_mut(&node).ok_or_else(|| format!("node {node} does not run"))
    }

    pub(super) fn start(&mut self, node: u8, how: &Start) {
        let now_secs = self.now_secs() + self.clocks_ahead.get(&node).copied().unwrap_or(0);
        let disk = self.disks.entry(node).or_default();
        disk.generation =
            how.generation.unwrap_or_else(|| (now_secs as i32).max(disk.generation + 1));
        let generation = disk.generation;
        let options = GossiperOptions {
            local: ip(node),
            cluster_name: how.cluster.clone(),
            partitioner: Partitioner::Random,
            seeds: how.seeds.iter().copied().map(ip).collect(),
            generation,
            phi_convict_threshold: self.phi,
            now_secs,
        };
        let rng = fastrand::Rng::with_seed(self.rng.u64(..));
        let mut gossiper = Gossiper::new(options, rng, self.now);
        let removed = disk.removed.iter().cloned();
        let mut membership = Membership::new(Partitioner::Random, ip(node), generation, removed);
        membership.remember_returned(disk.returned.clone());
        membership.preload(disk.ring.clone());
        gossiper.preload(membership.members().endpoints());
        if how.asks_first {
            gossiper.question.ask();
        }
        self.sequence += 1;
        let start = self.sequence;
        self.nodes.insert(node, Node { start, gossiper, membership });
        if let Some(place) = &how.place {
            self.announce(node, place).unwrap();
        }
        let effects = self.nodes.get_mut(&node).unwrap().gossiper.start(self.now);
        self.act(node, effects);
        if !self.is_by_hand {
            let phase = self.millis(GOSSIP_INTERVAL);
            self.push(phase, Input::Tick(node, start));
        }
    }

    /// A running node says where it is.
    pub(super) fn announce(&mut self, node: u8, place: &Move) -> Result<(), String> {
        let Node { gossiper, membership, .. } = self.node(node)?;
        gossiper.set_state(MOVE_STATE, &place.format(Partitioner::Random)).unwrap();
        let changes = membership.announce(place);
        self.follow(node, &changes);
        Ok(())
    }

    /// A node hears a message from an address, whether that runs or not.
    pub(super) fn receive(&mut self, from: u8, to: u8, message: GossipMessage) {
        let now = self.now;
        if let Some(Node { gossiper, .. }) = self.nodes.get_mut(&to) {
            let effects = gossiper.receive(ip(from), message, now);
            self.act(to, effects);
        }
    }

    /// A node hears states from an address. That lists those of unknown endpoints first, so that
    /// it is asked for them.
    pub(super) fn tell(&mut self, from: u8, to: u8, states: Vec<(IpAddr, EndpointState)>) {
        let digest = |(endpoint, state): &(IpAddr, EndpointState)| {
            let (generation, max_version) = state.age();
            Digest { endpoint: *endpoint, generation, max_version }
        };
        let is_unknown = |it: &&(IpAddr, EndpointState)| {
            self.nodes.get(&to).is_some_and(|node| node.gossiper.state(it.0).is_none())
        };
        let digests: Vec<Digest> = states.iter().filter(is_unknown).map(digest).collect();
        if !digests.is_empty() {
            self.receive(from, to, GossipMessage::Syn { cluster_name: CLUSTER.into(), digests });
        }
        self.receive(from, to, GossipMessage::Ack2 { states });
    }

    /// A round of a node.
    pub(super) fn tick(&mut self, node: u8) -> Result<(), String> {
        let now = self.now;
        let effects = self.node(node)?.gossiper.tick(now);
        self.act(node, effects);
        Ok(())
    }

    /// A node stands still for some time, as after SIGSTOP.
    pub(super) fn stop(&mut self, node: u8, time: Duration) {
        self.stopped.insert(node, self.now + time);
    }

    /// Delivers messages that were held back on one way, or on all.
    pub(super) fn release(&mut self, way: Option<(u8, u8)>) {
        self.holding.retain(|held| way.is_some_and(|way| *held != way));
        for message in std::mem::take(&mut self.held) {
            self.push(Duration::ZERO, message);
        }
        self.run(Duration::ZERO);
    }

    /// Loses messages that were held back, and holds none any more.
    pub(super) fn lose(&mut self) {
        self.holding.clear();
        self.held.clear();
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

    fn step(&mut self, input: Input) {
        let (Input::Tick(node, _) | Input::Message { to: node, .. }) = input;
        if let Some(&until) = self.stopped.get(&node)
            && self.now < until
        {
            return self.push(until.saturating_sub(self.now), input);
        }
        match input {
            Input::Tick(node, start) => {
                if self.nodes.get(&node).is_some_and(|it| it.start == start) {
                    self.tick(node).unwrap();
                    self.push(GOSSIP_INTERVAL, Input::Tick(node, start));
                }
            }
            Input::Message { from, to, .. } if self.holding.contains(&(from, to)) => {
                self.held.push(input);
            }
            Input::Message { from, to, kind, body } => {
                if self.cut_off.contains(&from) == self.cut_off.contains(&to) {
                    self.receive(from, to, GossipMessage::decode(kind, &body).unwrap());
                }
            }
        }
    }

    /// Does what a gossiper leaves to its caller.
    fn act(&mut self, node: u8, effects: Effects) {
        for event in effects.events {
            if let GossipEvent::OwnGenerationRaised(generation)
            | GossipEvent::OwnGenerationLowered(generation) = &event
            {
                self.disks.entry(node).or_default().generation = *generation;
            }
            if let GossipEvent::Down(endpoint) = &event {
                self.convictions.push((node, node_of(*endpoint)));
            }
            if !matches!(event, GossipEvent::StateChanged { .. }) {
                self.log.push((node, format!("{} {event}", event.level())));
            }
            let changes = self.nodes.get_mut(&node).unwrap().membership.follow(&event);
            self.follow(node, &changes);
        }
        for (to, message) in effects.messages {
            let to = node_of(to);
            let copies = 1 + u8::from(self.rng.f64() < self.faults.duplicates);
            for _ in 0..copies {
                if self.rng.f64() >= self.faults.loss {
                    let (kind, body) = (message.kind(), message.encode().unwrap());
                    let delay = self.millis(self.faults.delay);
                    self.push(delay, Input::Message { from: node, to, kind, body });
                }
            }
            if self.is_by_hand {
                self.sent.push((node, to, message));
            }
        }
    }

    /// Does what a membership leaves to its caller.
    pub(super) fn follow(&mut self, node: u8, changes: &[MembershipChange]) {
        let Node { gossiper, membership, .. } = self.nodes.get_mut(&node).unwrap();
        let disk = self.disks.entry(node).or_default();
        for change in changes.iter().cloned() {
            self.log.push((node, line(&change)));
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
        gossiper.set_members(membership.members().endpoints());
    }

    fn push(&mut self, delay: Duration, input: Input) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), input);
    }

    fn millis(&mut self, below: Duration) -> Duration {
        Duration::from_millis(self.rng.u64(0..=below.as_millis() as u64))
    }
}

/// A change of the ring as a script shows it.
fn line(change: &MembershipChange) -> String {
    let show = |token: &Token| Partitioner::Random.display_token(token);
    match change {
        MembershipChange::Ring => "publishes the ring".to_owned(),
        MembershipChange::SaveToken { endpoint, token } => {
            format!("saves {} at {}", node_of(*endpoint), show(token))
        }
        MembershipChange::ForgetToken { endpoint } => {
            format!("deletes the saved place of {}", node_of(*endpoint))
        }
        MembershipChange::Removed(node) => {
            let (endpoint, token) = (node_of(node.endpoint), show(&node.token));
            format!("removes {endpoint} from {token}, start {}", node.generation)
        }
        MembershipChange::MayReturn(node) => {
            format!("lets {} return to {}", node_of(node.endpoint), show(&node.token))
        }
        MembershipChange::Readmitted { endpoint, token, generation } => {
            let endpoint = node_of(*endpoint);
            format!("takes {endpoint} back at {}, start {generation}", show(token))
        }
        MembershipChange::Reannounce => "announces its place again".to_owned(),
        MembershipChange::Notice(notice) => format!("{} {notice}", notice.level()),
    }
}
