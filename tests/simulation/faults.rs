//! Faults by chance, put right again after a while.

use crate::cluster::{Cluster, Profile, addresses};
use crate::kit::disk::Survival;
use crate::network::Weather;
use crate::node::Life;
use alexandra::model::schema::FamilyId;
use std::collections::BTreeMap;

/// Fault of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Weather(u32),
    /// Nothing gets through between these nodes and the others.
    Partition(Vec<usize>),
    /// Nothing gets through from the one to the other.
    OneWay(usize, usize),
    Mend,
    Pause(usize),
    Resume(usize),
    Kill(usize),
    PowerLoss(usize),
    Start(usize),
    Slow(usize, u64),
    /// Somebody sets a wall clock, by so many milliseconds.
    SetClock(usize, i64),
    Flush(usize),
    Compact(usize),
    /// The operator adds a column family, writes to it, or (if told) drops it.
    ChangeFamily(usize, bool),
}

/// Nodes are taken for dead after some twenty seconds.
const LONGEST_SLEEP_MS: u64 = 38_000;

/// All column families but the one that comes and goes.
const FAMILIES: u32 = 5;

/// How often there was what.
pub(crate) type FaultCounts = BTreeMap<&'static str, u64>;

impl Fault {
    fn kind(&self) -> &'static str {
        match self {
            Self::Weather(_) => "weathers",
            Self::Partition(_) => "partitions",
            Self::OneWay(..) => "one-way cuts",
            Self::Mend => "mendings",
            Self::Pause(_) => "pauses",
            Self::Resume(_) => "resumptions",
            Self::Kill(_) => "kills",
            Self::PowerLoss(_) => "power losses",
            Self::Start(_) => "restarts",
            Self::Slow(..) => "changes of speed",
            Self::SetClock(..) => "set clocks",
            Self::Flush(_) => "flushes",
            Self::Compact(_) => "compactions",
            Self::ChangeFamily(..) => "family changes",
        }
    }
}

/// Plans faults and does them.
pub(crate) struct Saboteur {
    rng: fastrand::Rng,
    /// A fault that was begun has its end here.
    planned: BTreeMap<u64, Vec<Fault>>,
    next_ms: u64,
    pub(crate) counts: FaultCounts,
}

impl Saboteur {
    pub(crate) fn new(seed: u64, cluster: &Cluster) -> Self {
        let (rng, planned) = (fastrand::Rng::with_seed(seed), BTreeMap::new());
        let mut saboteur = Self { rng, planned, next_ms: 0, counts: FaultCounts::new() };
        let sleepy = [Profile::HintsAlone, Profile::PowerLosses];
        let may_sleep = !cluster.setup.changes_ring();
        if may_sleep && sleepy.contains(&cluster.setup.profile) && saboteur.rng.bool() {
            saboteur.put_to_sleep(cluster.now_ms);
        }
        saboteur
    }

    /// The first node stands still for so long that all others take it for dead.
    fn put_to_sleep(&mut self, now: u64) {
        self.planned.entry(now + 1000).or_default().push(Fault::Pause(0));
        self.planned.entry(now + LONGEST_SLEEP_MS).or_default().push(Fault::Resume(0));
    }

    /// When it does something next.
    pub(crate) fn next_ms(&self) -> u64 {
        let planned = self.planned.first_key_value().map_or(u64::MAX, |(at, _)| *at);
        planned.min(self.next_ms)
    }

    /// Does what is due. Returns what that was.
    pub(crate) fn act(&mut self, cluster: &mut Cluster) -> Vec<Fault> {
        let mut done = Vec::new();
        while let Some(entry) = self.planned.first_entry()
            && *entry.key() <= cluster.now_ms
        {
            done.extend(entry.remove());
        }
        if self.next_ms <= cluster.now_ms {
            // Where a ring is to change something has to come to its end now and then.
            let longest = if cluster.setup.changes_ring() { 2000 } else { 900 };
            self.next_ms = cluster.now_ms + self.rng.u64(50..longest);
            let fault = self.invent(cluster);
            done.extend(fault);
        }
        done.retain(|fault| self.apply(cluster, fault));
        for fault in &done {
            *self.counts.entry(fault.kind()).or_default() += 1;
        }
        done
    }

    fn invent(&mut self, cluster: &Cluster) -> Option<Fault> {
        let now = cluster.now_ms;
        let nodes = cluster.nodes.len();
        let node = self.rng.usize(..nodes);
        if cluster.setup.profile == Profile::Restarts && self.rng.u32(..100) < 70 {
            cluster.network.set_weather(DETOURS);
            self.plan(now, 200, Fault::Start(0));
            return Some(Fault::Kill(0));
        }
        let kills = cluster.setup.profile != Profile::HintsAlone;
        // Long enough to be taken for dead.
        let longest_cut = if kills { 8000 } else { 40_000 };
        let fault = match self.rng.u32(..100) {
            0..25 => Fault::Flush(node),
            25..33 => Fault::Compact(node),
            33..35 => Fault::ChangeFamily(node, self.rng.u8(..3) == 0),
            35..45 => Fault::Weather(self.rng.u32(..4)),
            45..55 => {
                self.plan(now, longest_cut, Fault::Mend);
                let mut all: Vec<usize> = (0..nodes).collect();
                self.rng.shuffle(&mut all);
                all.truncate(self.rng.usize(1..=nodes / 2));
                Fault::Partition(all)
            }
            55..62 => {
                self.plan(now, longest_cut, Fault::Mend);
                Fault::OneWay(node, (node + self.rng.usize(1..nodes)) % nodes)
            }
            62..72 => {
                // The first node may be in a sleep that is to be long.
                let node = if kills { node } else { node.max(1) };
                self.plan(now, longest_cut / 2, Fault::Resume(node));
                Fault::Pause(node)
            }
            72..74 => Fault::SetClock(node, self.rng.i64(-5000..5000)),
            74..78 => {
                self.plan(now, 4000, Fault::Slow(node, 0));
                Fault::Slow(node, self.rng.u64(10..600))
            }
            78..85 if cluster.setup.profile.loses_power() => {
                self.black_out(now, nodes);
                return None;
            }
            78.. if kills => {
                self.plan(now, 15_000, Fault::Start(node));
                let loses_power = cluster.setup.profile.loses_power() && self.rng.bool();
                if loses_power { Fault::PowerLoss(node) } else { Fault::Kill(node) }
            }
            _ => return None,
        };
        Some(fault)
    }

    /// All machines lose power at once.
    fn black_out(&mut self, now: u64, nodes: usize) {
        for node in 0..nodes {
            self.planned.entry(now).or_default().push(Fault::PowerLoss(node));
            self.plan(now, 3000, Fault::Start(node));
        }
    }

    /// Mostly short.
    fn rng_span(&mut self, longest: u64) -> u64 {
        let short = self.rng.u64(1..longest);
        if self.rng.bool() { short / 10 + 1 } else { short }
    }

    fn plan(&mut self, now: u64, longest: u64, fault: Fault) {
        let at = now + self.rng_span(longest);
        self.planned.entry(at).or_default().push(fault);
    }

    /// False if there is nothing to do.
    fn apply(&mut self, cluster: &mut Cluster, fault: &Fault) -> bool {
        match fault {
            Fault::Weather(kind) => cluster.network.set_weather(weather(*kind)),
            Fault::Partition(some) => {
                let others: Vec<usize> =
                    (0..cluster.nodes.len()).filter(|node| !some.contains(node)).collect();
                for a in addresses(some) {
                    for b in addresses(&others) {
                        cluster.network.cut(a, b);
                        cluster.network.cut(b, a);
                    }
                }
            }
            Fault::OneWay(from, to) => {
                let [from, to] = [*from, *to].map(crate::node::address);
                cluster.network.cut(from, to);
            }
            Fault::Mend => cluster.network.mend(),
            Fault::Slow(node, by) => cluster.network.set_slow(crate::node::address(*node), *by),
            Fault::SetClock(node, by) => cluster.nodes[*node].set_clock(by * 1000),
            Fault::Pause(node) => {
                let node = &mut cluster.nodes[*node];
                let can = node.is_up() && !node.is_paused;
                node.is_paused |= can;
                return can;
            }
            Fault::Resume(node) => {
                let can = cluster.nodes[*node].is_paused;
                if can {
                    cluster.resume(*node);
                }
                return can;
            }
            Fault::Kill(_) | Fault::PowerLoss(_) | Fault::Start(_) => {
                return self.change_power(cluster, fault);
            }
            Fault::ChangeFamily(node, drops) => {
                return cluster.nodes[*node].change_local_family(&cluster.setup, *drops);
            }
            Fault::Flush(node) | Fault::Compact(node) => {
                let node = &cluster.nodes[*node];
                let Some(running) = node.running.as_ref().filter(|_| !node.is_paused) else {
                    return false;
                };
                for family in (0..FAMILIES).map(FamilyId) {
                    if matches!(fault, Fault::Flush(_)) {
                        running.storage.flush(family).expect("the disk is sound");
                    } else {
                        running.storage.compact(family).expect("the disk is sound");
                    }
                }
            }
        }
        true
    }

    fn change_power(&mut self, cluster: &mut Cluster, fault: &Fault) -> bool {
        match fault {
            Fault::Kill(node) if cluster.nodes[*node].is_up() => cluster.nodes[*node].kill(),
            Fault::PowerLoss(node) if cluster.nodes[*node].is_up() => {
                let survival = match self.rng.u8(..3) {
                    0 => Survival::Nothing,
                    1 => Survival::Everything,
                    _ => Survival::Partly,
                };
                let mut rng = self.rng.fork();
                cluster.nodes[*node].lose_power(survival, &mut rng);
            }
            Fault::Start(node) => return start(cluster, *node),
            _ => return false,
        }
        true
    }

    /// Puts everything right.
    pub(crate) fn heal(&mut self, cluster: &mut Cluster) {
        self.planned.clear();
        self.next_ms = u64::MAX;
        cluster.network.mend();
        cluster.network.set_weather(Weather::default());
        for node in 0..cluster.nodes.len() {
            cluster.network.set_slow(crate::node::address(node), 0);
            if cluster.nodes[node].is_paused {
                cluster.resume(node);
            }
            start(cluster, node);
        }
    }
}

/// Starts a node that is in use and does not run.
fn start(cluster: &mut Cluster, node: usize) -> bool {
    let can = !cluster.nodes[node].is_up() && cluster.nodes[node].life == Life::InUse;
    if can {
        cluster.start(node);
    }
    can
}

/// Nothing is lost, and much comes when nobody waits for it any more.
const DETOURS: Weather = Weather { lost: 0, doubled: 600, strayed: 100, damaged: 0 };

fn weather(kind: u32) -> Weather {
    match kind {
        0 => Weather::default(),
        1 => Weather { lost: 50, ..Weather::default() },
        2 => Weather { lost: 5, doubled: 50, strayed: 100, damaged: 5 },
        _ => Weather { lost: 200, doubled: 10, strayed: 10, damaged: 20 },
    }
}
