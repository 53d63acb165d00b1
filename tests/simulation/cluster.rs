//! A whole cluster: its nodes, the network between them, and the time.

use crate::defects::Defect;
use crate::history::{Family, ROWS};
use crate::network::Network;
use crate::node::{Behind, Life, Node, Running, address};
use crate::tampering;
use alexandra::config::settings::CacheSize;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::Slice;
use alexandra::ring::{Partitioner, Token, TokenMetadata};
use alexandra::storage::sstable::Access;
use alexandra::storage::system;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const KEYSPACE: &str = "Simulated";

/// Longest time that nodes run without a look at the network, in milliseconds.
const LONGEST_STEP: u64 = 20;

/// Faults that may come in a run, and what is promised then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Processes are killed, and the commit log is periodic.
    Kills,
    /// Machines lose power, and the commit log is in batch mode.
    PowerLosses,
    /// Rows are only read as a whole, so that nothing may show a mutation by half.
    WholeRows,
    /// Nothing is killed, and at the end hints alone have made all replicas equal.
    HintsAlone,
    /// One node is killed again and again, and messages take long detours.
    Restarts,
}

impl Profile {
    pub(crate) const ALL: [Self; 5] =
        [Self::Kills, Self::PowerLosses, Self::WholeRows, Self::HintsAlone, Self::Restarts];

    pub(crate) fn loses_power(self) -> bool {
        self == Self::PowerLosses
    }

    pub(crate) fn keeps_rows_whole(self) -> bool {
        self == Self::WholeRows
    }
}

/// How a cluster is set up; all of it follows from the seed.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) profile: Profile,
    pub(crate) nodes: usize,
    pub(crate) replication_factor: usize,
    pub(crate) partitioner: Partitioner,
    /// By the numbers of the nodes.
    pub(crate) tokens: Vec<Token>,
    /// The column families as clients and the network know them.
    pub(crate) schema: Arc<Schema>,
    pub(crate) repair_chance: f64,
    pub(crate) speculative_percentile: Option<f64>,
    pub(crate) has_dynamic_snitch: bool,
    pub(crate) rows_cached: CacheSize,
    /// For how long at most who waits for the disk waits, in milliseconds.
    pub(crate) longest_sync_ms: u64,
    pub(crate) defect: Option<Defect>,
    /// Whether the operator loses nodes early, all of them by cutting them off.
    pub(crate) cuts_off: bool,
    /// How many nodes there are besides that have no place at first. An operator changes the ring
    /// if there are any.
    pub(crate) spares: usize,
}

impl Setup {
    /// The column families of one node.
    pub(crate) fn schema_of_node(&self) -> Arc<Schema> {
        let grace = if self.defect == Some(Defect::GraceOfNothing) { 0 } else { 240 };
        schema_with(self.repair_chance, Duration::from_hours(grace))
    }

    pub(crate) fn new(seed: u64, profile: Profile, defect: Option<Defect>) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let changes_ring = changes_ring(seed, profile, defect);
        let nodes = rng.usize(3..6).max(if changes_ring { 4 } else { 3 });
        let replication_factor = if rng.u32(..10) < 8 { 3 } else { rng.usize(1..3) };
        let replication_factor = if changes_ring { 3 } else { replication_factor };
        let partitioner =
            if rng.bool() { Partitioner::Random } else { Partitioner::OrderPreserving };
        let token = |node: usize| match partitioner {
            Partitioner::OrderPreserving => {
                let text = key((node * usize::from(ROWS) / nodes) as u8);
                partitioner.token(text.as_bytes())
            }
            _ => partitioner.token(format!("node {node} of {seed}").as_bytes()),
        };
        Self {
            seed,
            profile,
            nodes,
            replication_factor,
            partitioner,
            tokens: (0..nodes).map(token).collect(),
            schema: schema(),
            repair_chance: [0.0, 0.1, 1.0][rng.usize(..3)],
            speculative_percentile: [None, Some(50.0), Some(99.0)][rng.usize(..3)],
            has_dynamic_snitch: rng.bool(),
            rows_cached: if rng.bool() { CacheSize::Entries(4) } else { CacheSize::Off },
            longest_sync_ms: [60, 900][rng.usize(..2)],
            cuts_off: changes_ring
                && (defect == Some(Defect::RemovalsForgotten) || rng.u32(..3) == 0),
            defect,
            spares: if changes_ring { 2 } else { 0 },
        }
    }

    pub(crate) fn changes_ring(&self) -> bool {
        self.spares > 0
    }

    pub(crate) fn is_batch(&self) -> bool {
        self.profile.loses_power()
    }

    pub(crate) fn row_token(&self, row: u8) -> Token {
        self.partitioner.token(key(row).as_bytes())
    }

    /// The nodes that hold a row, as long as nobody changes the ring: the first at its token or
    /// behind it on the ring, and those that follow.
    pub(crate) fn replicas(&self, row: u8) -> Vec<usize> {
        let mut ring: Vec<usize> = (0..self.nodes).collect();
        ring.sort_by_key(|node| &self.tokens[*node]);
        let token = self.row_token(row);
        let first = ring.iter().position(|node| self.tokens[*node] >= token).unwrap_or(0);
        ring.rotate_left(first);
        ring.truncate(self.replication_factor);
        ring
    }
}

/// Whether an operator changes the ring. Not where much is promised that only holds in a ring that
/// stays as it is: that hints alone make replicas equal, for one.
fn changes_ring(seed: u64, profile: Profile, defect: Option<Defect>) -> bool {
    if let Some(defect) = defect {
        return defect.needs_another_ring();
    }
    let fits = !matches!(profile, Profile::HintsAlone | Profile::Restarts);
    fits && seed / Profile::ALL.len() as u64 % 2 == 1
}

pub(crate) fn schema() -> Arc<Schema> {
    schema_with(0.0, Duration::ZERO)
}

fn schema_with(read_repair_chance: f64, gc_grace: Duration) -> Arc<Schema> {
    let (columns, super_columns) = (Comparator::Bytes, Comparator::Utf8);
    let family = |keyspace: &str, name: &str, kind| {
        let (keyspace, name) = (keyspace.to_owned(), name.to_owned());
        let family = ColumnFamilySchema::new(keyspace, name, kind);
        Arc::new(ColumnFamilySchema { read_repair_chance, gc_grace, ..family })
    };
    let standard = ColumnFamilyKind::Standard { columns: columns.clone() };
    Arc::new(Schema::new([
        family(KEYSPACE, "Rows", standard.clone()),
        family(KEYSPACE, "Groups", ColumnFamilyKind::Super { super_columns, columns }),
        family("system", "LocationInfo", standard.clone()),
        family(KEYSPACE, crate::registers::FAMILY_NAME, standard.clone()),
        family(system::KEYSPACE, system::registers::PAXOS, standard.clone()),
        family(system::KEYSPACE, system::batches::BATCHES, standard),
    ]))
}

pub(crate) fn family_id(family: Family) -> FamilyId {
    FamilyId(u32::from(family == Family::Super))
}

/// The key of a row: some of them lie between the tokens of nodes, and some on them.
pub(crate) fn key(row: u8) -> String {
    format!("row {row}")
}

pub(crate) fn row_of_key(key: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(key).ok()?;
    text.strip_prefix("row ")?.parse().ok()
}

/// Nodes, network and time.
pub(crate) struct Cluster {
    pub(crate) setup: Arc<Setup>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) network: Arc<Network>,
    /// Milliseconds since the start of the simulation.
    pub(crate) now_ms: u64,
}

impl Cluster {
    /// A cluster of which no node runs.
    pub(crate) fn new(setup: Arc<Setup>, rng: &mut fastrand::Rng) -> Self {
        let all = setup.nodes + setup.spares;
        let nodes = (0..all).map(|number| Node::new(&setup, number, rng)).collect();
        let network = Arc::new(Network::new(rng.u64(..), setup.defect));
        Self { setup, nodes, network, now_ms: 0 }
    }

    pub(crate) fn start(&mut self, node: usize) {
        let seeds = self.seeds(node);
        self.nodes[node].start(&self.setup, &self.network, self.now_ms, seeds);
    }

    /// Whom a node asks for the ring when it starts: an operator names nodes that are in use.
    fn seeds(&self, node: usize) -> Vec<IpAddr> {
        if !self.setup.changes_ring() {
            return vec![address(0), address(1)];
        }
        let others = self.nodes.iter().filter(|it| it.number != node && it.serves());
        let seeds: Vec<IpAddr> = others.map(|it| it.address).take(2).collect();
        if seeds.is_empty() { vec![address(0), address(1)] } else { seeds }
    }

    pub(crate) fn resume(&mut self, node: usize) {
        self.nodes[node].resume(self.now_ms);
    }

    /// Lets time pass, not beyond this moment: up to the next message that arrives.
    pub(crate) fn step(&mut self, until_ms: u64) {
        let paused: BTreeSet<_> =
            self.nodes.iter().filter(|it| it.is_paused).map(|it| it.address).collect();
        let next = self.network.next_arrival(&paused).unwrap_or(u64::MAX);
        let longest = self.now_ms + LONGEST_STEP;
        let now_ms = next.min(until_ms).min(longest).max(self.now_ms + 1);
        for node in &mut self.nodes {
            node.run_until(now_ms);
        }
        self.now_ms = now_ms;
        for packet in self.network.arrived(now_ms, &paused) {
            let node = self.nodes.iter().find(|node| node.address == packet.to);
            let running = node.and_then(|node| node.running.as_ref());
            if let (Some(running), Some(message)) = (running, packet.message()) {
                running.receive(&message);
            }
        }
    }

    /// Lets time pass until this is so; false if it is not after so many milliseconds.
    pub(crate) fn wait(&mut self, ms: u64, mut is_so: impl FnMut(&Self) -> bool) -> bool {
        let until_ms = self.now_ms + ms;
        while !is_so(self) {
            if self.now_ms >= until_ms {
                return false;
            }
            self.step(until_ms);
            self.upkeep();
        }
        true
    }

    /// Work that nodes do by themselves soon: sync their logs, where writers wait for that.
    pub(crate) fn upkeep(&self) {
        for node in self.nodes.iter().filter(|node| !node.is_paused) {
            if let Some(running) = &node.running {
                running.sync();
                if self.setup.defect == Some(Defect::PromisesForgotten) {
                    tampering::forget_registers(&running.storage);
                }
            }
        }
    }

    /// Whether all nodes that are in use serve, and know all others.
    pub(crate) fn is_whole(&self) -> bool {
        let mut in_use = self.nodes.iter().filter(|node| node.life == Life::InUse);
        let addresses: BTreeSet<IpAddr> = in_use.clone().map(|node| node.address).collect();
        in_use.all(|node| {
            node.serves() && node.running.as_ref().is_some_and(|it| it.knows_all(&addresses))
        })
    }

    /// The rings as those who run know them, but for who is cut off to be removed.
    pub(crate) fn rings(&self) -> impl Iterator<Item = Arc<TokenMetadata>> {
        let connected = self.nodes.iter().filter(|node| node.life != Life::CutOff);
        let running = connected.filter_map(|node| node.running.as_ref());
        running.map(|running| running.member.coordinator().ring())
    }

    /// The ring, if all who run know the same, and nobody is on the way in or out.
    pub(crate) fn settled_ring(&self) -> Option<Arc<TokenMetadata>> {
        let mut rings = self.rings();
        let first = rings.next().filter(|ring| ring.is_settled())?;
        rings.all(|ring| *ring == *first).then_some(first)
    }

    /// The ring as those who run see it, for people.
    pub(crate) fn tell_rings(&self) -> String {
        let running = self.nodes.iter().filter_map(|it| Some((it.number, it.running.as_ref()?)));
        let tell = |(number, it): (usize, &Running)| {
            let members = it.member.with_gossip(|_, membership| membership.members().clone());
            let report = it.report().map(|report| (report.kind, report.mode, report.outcome));
            format!("\n node {number}: {members:?} {report:?} {:?}", it.unjoined())
        };
        running.map(tell).collect()
    }

    /// The nodes that hold a row by this ring, worked out once more.
    fn replicas(&self, ring: &TokenMetadata, row: u8) -> Vec<usize> {
        let token = self.setup.row_token(row);
        let mut members: Vec<(Token, IpAddr)> =
            ring.members().map(|(token, endpoint)| (token.clone(), endpoint)).collect();
        members.sort();
        let first = members.iter().position(|(at, _)| *at >= token).unwrap_or(0);
        members.rotate_left(first);
        members.truncate(self.setup.replication_factor);
        let number = |endpoint| self.nodes.iter().position(|node| node.address == endpoint);
        members.into_iter().filter_map(|(_, endpoint)| number(endpoint)).collect()
    }

    /// The rows on whose replicas something differs.
    pub(crate) fn differences(&self) -> Vec<(Family, u8, String)> {
        let mut found = Vec::new();
        let Some(ring) = self.rings().next() else { return found };
        for family in Family::ALL {
            for row in 0..ROWS {
                let mut versions = Vec::new();
                for node in self.replicas(&ring, row) {
                    let Some(running) = &self.nodes[node].running else { continue };
                    let storage = &running.storage;
                    let (id, key) = (family_id(family), RowKey::from(key(row).as_str()));
                    let context = alexandra::base::context::RequestContext::new(1 << 20);
                    let all = Slice::all(None);
                    let version =
                        storage.family(id).read_version(&key, &all, &context, Access::Cached);
                    let version = version.expect("the disk is sound");
                    versions.push((node, version));
                }
                // Not by their digests, which may be what is wrong.
                if versions.windows(2).any(|pair| pair[0].1 != pair[1].1) {
                    let texts = versions.iter().map(|(node, it)| format!("\n node {node}: {it:?}"));
                    found.push((family, row, texts.collect()));
                }
            }
        }
        found
    }

    /// Work of all nodes behind the backs of clients.
    pub(crate) fn behind_the_scenes(&self) -> Behind {
        let mut sum = Behind::default();
        for node in &self.nodes {
            sum.add(node.behind_the_scenes());
        }
        sum
    }

    /// Ends all nodes.
    pub(crate) fn stop(&mut self) {
        self.nodes.iter_mut().for_each(Node::kill);
    }
}

/// The addresses of these nodes.
pub(crate) fn addresses(nodes: &[usize]) -> Vec<std::net::IpAddr> {
    nodes.iter().map(|node| address(*node)).collect()
}
