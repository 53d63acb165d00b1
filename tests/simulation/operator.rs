//! An operator who changes the ring while things go wrong: nodes join, leave, move, and are removed
//! or replaced when their disks are broken.

use crate::cluster::{Cluster, key};
use crate::faults::FaultCounts;
use crate::history::ROWS;
use crate::node::{Config, Life};
use alexandra::repair::{Operation, OperationKind};
use alexandra::ring::{Partitioner, Token};
use std::collections::BTreeMap;

/// Order to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// Its process has ended by itself.
    Restart,
    /// It has left the ring.
    Reuse,
}

/// A node whose disk is broken, or that is cut off, until no other one counts on it.
#[derive(Debug)]
struct Loss {
    node: usize,
    /// Until when it goes on where it was cut off, after the others have removed it.
    ends_ms: Option<u64>,
    token: Token,
    /// The machine that is to take its place; without one its ranges go to the others.
    heir: Option<usize>,
}

/// Changes the ring by chance.
#[derive(Debug)]
pub(crate) struct Operator {
    rng: fastrand::Rng,
    next_ms: u64,
    tasks: BTreeMap<usize, (u64, Task)>,
    /// One at a time: so what is on two replicas is never lost.
    loss: Option<Loss>,
    /// Which operations were told of, by node and the start that began them.
    told: BTreeMap<usize, (u64, std::time::Duration)>,
    /// How often each node could not join in a row.
    failures: BTreeMap<usize, u32>,
    /// Begins nothing new.
    is_done: bool,
    log: Vec<String>,
    pub(crate) counts: FaultCounts,
}

impl Operator {
    pub(crate) fn new(seed: u64, cluster: &Cluster) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let next_ms = cluster.now_ms + rng.u64(200..4000);
        let next_ms = if cluster.setup.changes_ring() { next_ms } else { u64::MAX };
        Self {
            rng,
            next_ms,
            tasks: BTreeMap::new(),
            loss: None,
            told: BTreeMap::new(),
            failures: BTreeMap::new(),
            is_done: false,
            log: Vec::new(),
            counts: FaultCounts::new(),
        }
    }

    pub(crate) fn next_ms(&self) -> u64 {
        self.next_ms
    }

    /// Does what is due. Returns what that was, and what came of earlier things.
    pub(crate) fn act(&mut self, cluster: &mut Cluster) -> Vec<String> {
        if self.next_ms > cluster.now_ms {
            return Vec::new();
        }
        self.next_ms = cluster.now_ms + self.rng.u64(200..2500);
        self.hear_of_operations(cluster);
        self.look_after_processes(cluster);
        self.do_tasks(cluster);
        self.look_after_loss(cluster);
        if !self.is_done && self.rng.u32(..100) < 40 {
            self.begin_something(cluster);
        }
        std::mem::take(&mut self.log)
    }

    /// Begins nothing new from now on.
    pub(crate) fn finish(&mut self) {
        self.is_done = true;
    }

    /// Whether all that was begun has come to its end.
    pub(crate) fn is_finished(&self, cluster: &Cluster) -> bool {
        let is_busy = |number: &usize| is_busy(cluster, *number);
        self.tasks.is_empty()
            && self.loss.is_none()
            && !(0..cluster.nodes.len()).any(|number| is_busy(&number))
            && in_use(cluster).all(|number| cluster.nodes[number].serves())
            && members(cluster).len() == in_use(cluster).count()
            && cluster.settled_ring().is_some()
    }

    fn tell(&mut self, kind: &'static str, text: String) {
        *self.counts.entry(kind).or_default() += 1;
        self.log.push(text);
    }

    /// Notes how operations have ended.
    fn hear_of_operations(&mut self, cluster: &Cluster) {
        for (number, node) in cluster.nodes.iter().enumerate() {
            if node.is_paused {
                continue;
            }
            let Some(running) = &node.running else { continue };
            let Some(report) = running.report() else { continue };
            let Some(outcome) = report.outcome else { continue };
            let which = (node.starts(), report.took);
            if self.told.insert(number, which) == Some(which) {
                continue;
            }
            let kind = report.kind;
            let text = format!("node {number}: {} in {:?}: {outcome:?}", kind.name(), report.took);
            let is_ok = outcome.is_ok();
            self.tell(if is_ok { kind.name() } else { "failed operations" }, text);
            let is_lost = !is_ok && running.token().is_none() && running.unjoined().is_none();
            if is_ok && kind == OperationKind::Decommission {
                let at = cluster.now_ms + self.rng.u64(0..4000);
                self.tasks.insert(number, (at, Task::Reuse));
            } else if is_lost {
                // It has left its place and could not join at another one.
                self.tasks.insert(number, (cluster.now_ms, Task::Restart));
            }
        }
    }

    /// Ends processes that could not join, and starts them again.
    fn look_after_processes(&mut self, cluster: &mut Cluster) {
        for number in 0..cluster.nodes.len() {
            let running = cluster.nodes[number].running.as_ref();
            if running.is_some_and(|it| it.token().is_some()) {
                self.failures.remove(&number);
            }
            let Some(why) = running.and_then(|it| it.unjoined()) else { continue };
            let failures = self.failures.entry(number).or_default();
            *failures += 1;
            let gives_up = *failures > 4 || self.rng.u32(..6) == 0;
            let address = cluster.nodes[number].address;
            let is_unknown = cluster.rings().all(|ring| ring.token(address).is_none());
            cluster.nodes[number].kill();
            self.log.push(format!("node {number} cannot join: {why}"));
            if gives_up && is_unknown && !cluster.nodes[number].may_have_place(&cluster.setup) {
                cluster.nodes[number].become_spare();
                self.failures.remove(&number);
                self.tell("emptied disks", format!("the disk of node {number} is emptied"));
            } else {
                let at = cluster.now_ms + self.rng.u64(200..6000);
                self.tasks.insert(number, (at, Task::Restart));
            }
        }
    }

    fn do_tasks(&mut self, cluster: &mut Cluster) {
        let now = cluster.now_ms;
        let due: Vec<_> = self.tasks.extract_if(.., |_, (at, _)| *at <= now).collect();
        for (number, (_, task)) in due {
            let node = &mut cluster.nodes[number];
            if node.life != Life::InUse {
                continue;
            }
            if node.is_up() {
                node.kill();
            }
            match task {
                Task::Restart => cluster.start(number),
                Task::Reuse => node.become_spare(),
            }
        }
    }

    /// Has a node removed or replaced whose disk is broken.
    fn look_after_loss(&mut self, cluster: &mut Cluster) {
        let Some(Loss { node, token, heir, ends_ms }) = &self.loss else { return };
        let (node, token, heir, ends_ms) = (*node, token.clone(), *heir, *ends_ms);
        let address = cluster.nodes[node].address;
        // Who does not run may still have it in its saved ring.
        let all_run = in_use(cluster).all(|number| cluster.nodes[number].is_up());
        let is_unknown = cluster.rings().all(|ring| ring.token(address).is_none());
        let members_left = members(cluster).len();
        if all_run && is_unknown && members_left >= cluster.setup.replication_factor {
            if cluster.nodes[node].life == Life::CutOff && self.lets_go_on(cluster, node, ends_ms) {
                return;
            }
            if cluster.nodes[node].is_up() {
                cluster.nodes[node].kill();
            }
            cluster.network.connect(address);
            cluster.nodes[node].become_spare();
            self.loss = None;
            self.tell("losses that were made good", format!("nobody counts on node {node} now"));
            return;
        }
        match heir {
            Some(heir) if cluster.nodes[heir].life == Life::Spare => {
                self.log.push(format!("node {heir} is to replace node {node}"));
                self.employ(cluster, heir, Config { replaces: Some(token), ..Config::default() });
            }
            Some(_) => {}
            None => {
                let Some(by) = self.rng.choice(members(cluster)) else { return };
                self.ask(cluster, by, Operation::Remove { token, accepts_loss: false });
            }
        }
    }

    fn begin_something(&mut self, cluster: &mut Cluster) {
        let is_busy = (0..cluster.nodes.len()).any(|number| is_busy(cluster, number));
        if is_busy && self.rng.u32(..100) < 85 {
            return;
        }
        let members = members(cluster);
        let Some(member) = self.rng.choice(&members).copied() else { return };
        let spares = (0..cluster.nodes.len())
            .filter(|number| cluster.nodes[*number].life == Life::Spare)
            .filter(|number| self.loss.as_ref().is_none_or(|loss| loss.heir != Some(*number)));
        let spare = self.rng.choice(spares.collect::<Vec<_>>());
        let all_are_members = in_use(cluster).count() == members.len();
        let is_early = self.told.is_empty() && self.loss.is_none();
        if cluster.setup.cuts_off && is_early && !is_busy && all_are_members {
            return self.lose_member(cluster, &members, spare);
        }
        let can_lose = !is_busy
            && self.loss.is_none()
            && members.len() > cluster.setup.replication_factor
            && all_are_members;
        match self.rng.u32(..100) {
            0..25 => {
                let Some(spare) = spare else { return };
                let token = self.rng.bool().then(|| self.token(cluster));
                self.log.push(format!("node {spare} is to join at {token:?}"));
                self.employ(cluster, spare, Config { token, bootstraps: true, replaces: None });
            }
            25..45 if can_lose => self.ask(cluster, member, Operation::Decommission),
            45..70 if can_lose => {
                let token = self.token(cluster);
                self.ask(cluster, member, Operation::Move(token));
            }
            70..85 if can_lose => self.ask(cluster, member, Operation::Loadbalance),
            85..90 => self.ask(cluster, member, Operation::Cleanup(None)),
            90..100 if self.loss.is_none() && all_are_members => {
                self.lose_member(cluster, &members, spare);
            }
            _ => {}
        }
    }

    /// Loses one of these members, if another node can take its place or enough are left.
    fn lose_member(&mut self, cluster: &mut Cluster, members: &[usize], spare: Option<usize>) {
        let Some(member) = self.rng.choice(members).copied() else { return };
        let may_remove = members.len() > cluster.setup.replication_factor;
        let heir = spare.filter(|_| !may_remove || self.rng.bool());
        if may_remove || heir.is_some() {
            self.lose(cluster, member, heir);
        }
    }

    fn lose(&mut self, cluster: &mut Cluster, node: usize, heir: Option<usize>) {
        let token = cluster.nodes[node].running.as_ref().and_then(|it| it.token());
        let Some(token) = token else { return };
        self.tasks.remove(&node);
        if !cluster.setup.cuts_off && self.rng.bool() {
            cluster.nodes[node].break_disk();
            self.tell("broken disks", format!("the disk of node {node} breaks"));
        } else {
            cluster.nodes[node].life = Life::CutOff;
            cluster.network.isolate(cluster.nodes[node].address);
            self.tell("nodes cut off", format!("node {node} is cut off"));
        }
        self.loss = Some(Loss { node, token, heir, ends_ms: None });
    }

    /// A node that was removed while it was cut off reaches one or two of the others again, which
    /// know better, and clients go on asking it. Returns whether it is to go on.
    fn lets_go_on(&mut self, cluster: &Cluster, node: usize, ends_ms: Option<u64>) -> bool {
        let Some(ends_ms) = ends_ms else {
            let ends_ms = cluster.now_ms + self.rng.u64(2000..25_000);
            if let Some(loss) = &mut self.loss {
                loss.ends_ms = Some(ends_ms);
            }
            let reached: Vec<usize> = in_use(cluster).collect();
            for _ in 0..self.rng.usize(1..3) {
                let Some(other) = self.rng.choice(&reached).copied() else { break };
                cluster.network.link(cluster.nodes[node].address, cluster.nodes[other].address);
                self.log.push(format!("node {node} reaches node {other} again"));
            }
            return true;
        };
        cluster.now_ms < ends_ms
    }

    /// A machine gets something to do.
    fn employ(&mut self, cluster: &mut Cluster, number: usize, config: Config) {
        let node = &mut cluster.nodes[number];
        (node.life, node.config) = (Life::InUse, config);
        self.failures.remove(&number);
        cluster.start(number);
    }

    fn ask(&mut self, cluster: &Cluster, number: usize, wish: Operation) {
        let Some(running) = &cluster.nodes[number].running else { return };
        let text = format!("node {number} is asked for {wish:?}");
        let asked = running.ask(wish);
        self.log.push(match asked {
            Ok(()) => text,
            Err(why) => format!("{text}: {why}"),
        });
    }

    /// A token between rows or at one, and seldom one that is taken.
    fn token(&mut self, cluster: &Cluster) -> Token {
        let partitioner = cluster.setup.partitioner;
        let is_taken = |token: &Token| cluster.rings().any(|ring| ring.owner(token).is_some());
        loop {
            let mut text = key(self.rng.u8(..ROWS));
            if partitioner == Partitioner::Random || self.rng.bool() {
                text.push(char::from(b'a' + self.rng.u8(..26)));
            }
            let token = partitioner.token(text.as_bytes());
            if !is_taken(&token) || self.rng.u32(..20) == 0 {
                return token;
            }
        }
    }
}

fn in_use(cluster: &Cluster) -> impl Iterator<Item = usize> {
    let is_in_use = |number: &usize| cluster.nodes[*number].life == Life::InUse;
    (0..cluster.nodes.len()).filter(is_in_use)
}

/// Those that serve and have a place.
fn members(cluster: &Cluster) -> Vec<usize> {
    let is_member = |number: &usize| {
        let node = &cluster.nodes[*number];
        let token = node.running.as_ref().and_then(|running| running.token());
        node.serves() && !node.is_paused && token.is_some()
    };
    in_use(cluster).filter(is_member).collect()
}

/// Whether a node has an operation under way.
fn is_busy(cluster: &Cluster, number: usize) -> bool {
    let report = cluster.nodes[number].running.as_ref().and_then(|running| running.report());
    report.is_some_and(|report| report.outcome.is_none())
}
