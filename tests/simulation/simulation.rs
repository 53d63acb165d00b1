//! One run: a cluster comes up, clients work while things go wrong, all is put right, and the
//! replicas are compared.

use crate::checker::{Checked, Checker, Violation};
use crate::client::{self, Inventor};
use crate::cluster::{Cluster, Profile, Setup};
use crate::faults::{FaultCounts, Saboteur};
use crate::history::{Call, Event, Family, History, Operation, Outcome, ROWS, Selection};
use crate::network::NetworkStats;
use crate::node::{Behind, Life};
use crate::operator::Operator;
use crate::registers::RegisterClients;
use alexandra::coordinator::ConsistencyLevel;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, mpsc};

/// How long clients work, in milliseconds.
const WORK_MS: u64 = 40_000;

/// The same, if the ring changes meanwhile.
const LONG_WORK_MS: u64 = 70_000;

/// How long they work besides in a ring that changes while nothing goes wrong any more, so that
/// most of what is begun then comes to its end.
const CALM_WORK_MS: u64 = 50_000;

/// How long operations on the ring take at most when nothing goes wrong any more.
const OPERATIONS_MS: u64 = 600_000;

/// How long it takes at most until all nodes know each other.
const MEETING_MS: u64 = 120_000;

/// How long the delivery of all hints takes at most: it is tried again every half minute.
const HANDOFF_MS: u64 = 300_000;

/// After this a request is given up and hinted for.
const QUIET_MS: u64 = 8_000;

const CLIENTS: usize = 8;

/// Result of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    pub(crate) trace: u64,
    checked: Checked,
    register_changes: u64,
    register_calls: u64,
    network: NetworkStats,
    behind: Behind,
    faults: FaultCounts,
}

/// A run that went wrong, for people.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) what: String,
    /// Whether it shows in what clients were told.
    pub(crate) is_seen: bool,
    history: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}", self.what, self.history, self.what)
    }
}

/// A run that is under way.
pub(crate) struct Simulation {
    cluster: Cluster,
    setup: Arc<Setup>,
    rng: fastrand::Rng,
    history: History,
    /// Where the calls tell their outcomes, by their numbers.
    teller: mpsc::Sender<(usize, Outcome)>,
    told: mpsc::Receiver<(usize, Outcome)>,
    calls: usize,
    /// By the number of the call, at which node.
    open: BTreeMap<usize, (usize, usize)>,
    ring_is_settled: bool,
    registers: RegisterClients,
}

impl Simulation {
    /// Makes a run.
    pub(crate) fn run(setup: Setup) -> Result<Summary, Failure> {
        let setup = Arc::new(setup);
        let mut rng = fastrand::Rng::with_seed(setup.seed);
        let cluster = Cluster::new(Arc::clone(&setup), &mut rng);
        let (teller, told) = mpsc::channel();
        let registers = RegisterClients::new(&setup);
        let mut simulation = Self {
            cluster,
            setup,
            rng,
            history: History::default(),
            teller,
            told,
            calls: 0,
            open: BTreeMap::new(),
            ring_is_settled: true,
            registers,
        };
        let result = simulation.play();
        simulation.cluster.stop();
        result
    }

    fn play(&mut self) -> Result<Summary, Failure> {
        for node in 0..self.setup.nodes {
            self.cluster.start(node);
        }
        self.meet()?;
        let mut saboteur = Saboteur::new(self.rng.u64(..), &self.cluster);
        let mut operator = Operator::new(self.rng.u64(..), &self.cluster);
        let changes_ring = self.setup.changes_ring();
        let work_ms = if changes_ring { LONG_WORK_MS } else { WORK_MS };
        self.work(work_ms, &mut saboteur, &mut operator);
        saboteur.heal(&mut self.cluster);
        self.fault("all is put right");
        if changes_ring {
            self.work(CALM_WORK_MS, &mut saboteur, &mut operator);
        }
        self.conclude(&mut operator)?;
        self.meet()?;
        self.settle()?;
        if self.setup.profile == Profile::HintsAlone {
            self.compare()?;
        }
        self.history.push(self.cluster.now_ms, Event::Settled);
        self.read_everything()?;
        let read = self.registers.read_everything(&mut self.cluster);
        read.map_err(|what| self.failure(&what, None))?;
        self.compare()?;
        let checked = self.judge()?;
        let judged = self.registers.judge(&self.cluster);
        judged.map_err(|what| Failure { is_seen: true, ..self.failure(&what, None) })?;
        let mut trace = DefaultHasher::new();
        self.cluster.network.trace().hash(&mut trace);
        for (at, event) in &self.history.events {
            if let Event::End(number, outcome) = event {
                (at, number, outcome).hash(&mut trace);
            }
        }
        self.registers.trace(&mut trace);
        let (register_changes, register_calls) = self.registers.counts();
        Ok(Summary {
            trace: trace.finish(),
            checked,
            register_changes,
            register_calls,
            network: self.cluster.network.stats(),
            behind: self.cluster.behind_the_scenes(),
            faults: saboteur.counts.into_iter().chain(operator.counts).collect(),
        })
    }

    fn judge(&self) -> Result<Checked, Failure> {
        let checked = Checker::check(&self.setup, &self.history);
        checked.map_err(|violation| self.violated(&violation))
    }

    /// Waits until all nodes know each other, which they then have on disk.
    fn meet(&mut self) -> Result<(), Failure> {
        if self.cluster.wait(MEETING_MS, Cluster::is_whole) {
            self.cluster.upkeep();
            return Ok(());
        }
        Err(self.failure("the nodes do not find each other", None))
    }

    /// Clients work while things go wrong.
    fn work(&mut self, work_ms: u64, saboteur: &mut Saboteur, operator: &mut Operator) {
        let whole_rows = self.setup.profile.keeps_rows_whole();
        let mut inventor = Inventor::new(self.rng.u64(..), whole_rows);
        let longest_rest = if self.setup.changes_ring() { 300 } else { 120 };
        let end_ms = self.cluster.now_ms + work_ms;
        let mut next_call = [self.cluster.now_ms; CLIENTS];
        let mut next_upkeep = 0;
        while self.cluster.now_ms < end_ms {
            for fault in saboteur.act(&mut self.cluster) {
                self.fault(&format!("{fault:?}"));
            }
            self.operate(operator);
            self.lose();
            let now = self.cluster.now_ms;
            for (client, next) in next_call.iter_mut().enumerate() {
                if now >= *next && !self.open.values().any(|it| it.0 == client) {
                    *next = now + self.rng.u64(1..longest_rest);
                    if let Some(node) = self.choose_node() {
                        let call = inventor.invent(client, node);
                        if !self.may_be_stale(&call) {
                            self.begin(call);
                        }
                    }
                }
            }
            self.registers.act(&self.cluster);
            if now >= next_upkeep {
                next_upkeep = now + self.rng.u64(5..self.setup.longest_sync_ms);
                self.cluster.upkeep();
            }
            let soonest = next_call.iter().filter(|at| **at > now).min().copied();
            let soonest = soonest.unwrap_or(u64::MAX).min(self.registers.next_ms());
            let until = soonest.min(saboteur.next_ms()).min(next_upkeep);
            self.cluster.step(until.min(operator.next_ms()).max(now + 1));
            self.collect();
            self.look_at_ring();
        }
    }

    fn operate(&mut self, operator: &mut Operator) {
        for line in operator.act(&mut self.cluster) {
            self.fault(&line);
        }
    }

    /// Notes whether all nodes know the same ring.
    fn look_at_ring(&mut self) {
        if !self.setup.changes_ring() {
            return;
        }
        let is_settled = self.cluster.settled_ring().is_some();
        if is_settled != self.ring_is_settled {
            self.ring_is_settled = is_settled;
            self.history.push(self.cluster.now_ms, Event::Ring { is_settled });
        }
    }

    /// Waits until all operations on the ring have come to their end.
    fn conclude(&mut self, operator: &mut Operator) -> Result<(), Failure> {
        operator.finish();
        let end_ms = self.cluster.now_ms + OPERATIONS_MS;
        while self.setup.changes_ring() && !operator.is_finished(&self.cluster) {
            if self.cluster.now_ms >= end_ms {
                let what = format!("the ring does not come to rest: {}", self.cluster.tell_rings());
                return Err(self.failure(&what, None));
            }
            self.operate(operator);
            self.lose();
            self.cluster.step(operator.next_ms());
            self.cluster.upkeep();
            self.collect();
            self.look_at_ring();
        }
        Ok(())
    }

    fn choose_node(&mut self) -> Option<usize> {
        let cut_off = self.cluster.nodes.iter().position(|node| node.life == Life::CutOff);
        if let Some(node) = cut_off.filter(|_| self.rng.u32(..3) == 0) {
            return self.cluster.nodes[node].serves().then_some(node);
        }
        let victim = self.setup.profile == Profile::Restarts && self.rng.bool();
        let node = if victim { 0 } else { self.rng.usize(..self.cluster.nodes.len()) };
        self.cluster.nodes[node].serves().then_some(node)
    }

    /// Whether a node that is cut off would answer by itself. Until it hears of its removal it
    /// cannot know of writes at ALL to its heirs.
    fn may_be_stale(&self, call: &Call) -> bool {
        self.cluster.nodes[call.node].life == Life::CutOff
            && call.level == ConsistencyLevel::One
            && !matches!(call.operation, Operation::Write(_))
    }

    fn begin(&mut self, call: Call) {
        let Some(running) = &self.cluster.nodes[call.node].running else { return };
        let number = self.calls;
        self.calls += 1;
        self.open.insert(number, (call.client, call.node));
        self.history.push(self.cluster.now_ms, Event::Begin(number, call.clone()));
        let (sender, setup) = (self.teller.clone(), Arc::clone(&self.setup));
        let (coordinator, now_secs) = (running.coordinator(), running.now_secs());
        running.spawn(async move {
            let outcome = client::call(coordinator, setup, call, now_secs).await;
            // The simulation may be over.
            let _ = sender.send((number, outcome));
        });
    }

    /// Takes what clients were told.
    fn collect(&mut self) {
        self.registers.collect(&self.cluster);
        while let Ok((number, outcome)) = self.told.try_recv() {
            if self.open.remove(&number).is_some() {
                self.history.push(self.cluster.now_ms, Event::End(number, outcome));
            }
        }
    }

    /// Waits for a node that went down never end.
    fn lose(&mut self) {
        self.collect();
        let nodes = &self.cluster.nodes;
        for (number, _) in self.open.extract_if(.., |_, (_, node)| !nodes[*node].is_up()) {
            self.history.push(self.cluster.now_ms, Event::End(number, Outcome::Lost));
        }
    }

    /// Waits for all that goes on behind the backs of clients.
    fn settle(&mut self) -> Result<(), Failure> {
        let quiet_ms = self.cluster.now_ms + QUIET_MS;
        self.cluster.wait(QUIET_MS, |cluster| cluster.now_ms >= quiet_ms);
        self.collect();
        let has_hints = |cluster: &Cluster| {
            cluster.nodes.iter().any(|node| node.running.as_ref().is_some_and(|it| it.has_hints()))
        };
        if self.cluster.wait(HANDOFF_MS, |cluster| !has_hints(cluster)) {
            return Ok(());
        }
        Err(self.failure("hints are not delivered", None))
    }

    /// Reads all rows: at QUORUM through each node, then at ALL, which makes their replicas equal.
    fn read_everything(&mut self) -> Result<(), Failure> {
        let rows: Vec<(Family, u8)> = Family::ALL
            .into_iter()
            .flat_map(|family| (0..ROWS).map(move |row| (family, row)))
            .collect();
        let serving = |node: &usize| self.cluster.nodes[*node].serves();
        let serving: Vec<usize> = (0..self.cluster.nodes.len()).filter(serving).collect();
        for (family, row) in &rows {
            for node in &serving {
                self.read(*node, ConsistencyLevel::Quorum, (*family, *row))?;
            }
        }
        // What a quorum has not told the others may: these come last, since they make all the same.
        for which in rows {
            let node = self.rng.choice(&serving).copied().unwrap_or(0);
            self.read(node, ConsistencyLevel::All, which)?;
        }
        Ok(())
    }

    fn read(
        &mut self,
        node: usize,
        level: ConsistencyLevel,
        (family, row): (Family, u8),
    ) -> Result<(), Failure> {
        let operation = Operation::Read { family, rows: vec![row], selection: Selection::Whole };
        let number = self.calls;
        self.begin(Call { client: 0, node, level, operation });
        while self.open.contains_key(&number) {
            self.cluster.step(u64::MAX);
            self.cluster.upkeep();
            self.collect();
        }
        let last = self.history.events.last();
        if matches!(last, Some((_, Event::End(_, Outcome::Rows(_))))) {
            return Ok(());
        }
        let what = format!("a row cannot be read in the end: {last:?}");
        Err(self.failure(&what, Some((family, row))))
    }

    /// Replicas must be equal. If they are not, clients may have seen why.
    fn compare(&self) -> Result<(), Failure> {
        let differences = self.cluster.differences();
        let Some((family, row, versions)) = differences.into_iter().next() else { return Ok(()) };
        self.judge()?;
        let what = format!("the replicas of row {row} differ in the end:{versions}");
        Err(self.failure(&what, Some((family, row))))
    }

    fn fault(&mut self, what: &str) {
        self.history.push(self.cluster.now_ms, Event::Fault(what.to_owned()));
    }

    fn violated(&self, violation: &Violation) -> Failure {
        let Violation { call, row, what } = violation;
        let failure = self.failure(&format!("call #{call}: {what}"), *row);
        Failure { is_seen: true, ..failure }
    }

    fn failure(&self, what: &str, row: Option<(Family, u8)>) -> Failure {
        let setup = &self.setup;
        let replicas: Vec<_> = (0..ROWS).map(|row| setup.replicas(row)).collect();
        let what = format!(
            "{what}\nseed {}, {:?}, {} nodes, {} replicas {replicas:?}, {:?}, defect {:?}",
            setup.seed,
            setup.profile,
            setup.nodes,
            setup.replication_factor,
            setup.partitioner,
            setup.defect,
        );
        Failure { what, is_seen: false, history: self.history.tell(row) }
    }
}

impl Summary {
    /// Results of several runs together.
    pub(crate) fn sum(runs: &[Self]) -> Self {
        let mut sum = Self::default();
        for run in runs {
            let (to, from) = (&mut sum.checked, &run.checked);
            to.writes += from.writes;
            to.acknowledged += from.acknowledged;
            to.unavailable += from.unavailable;
            to.reads += from.reads;
            to.answered += from.answered;
            to.columns += from.columns;
            sum.register_changes += run.register_changes;
            sum.register_calls += run.register_calls;
            let (to, from) = (&mut sum.network, &run.network);
            to.delivered += from.delivered;
            to.lost += from.lost;
            to.doubled += from.doubled;
            to.strayed += from.strayed;
            to.damaged += from.damaged;
            to.cut_off += from.cut_off;
            sum.behind.add(run.behind);
            for (kind, count) in &run.faults {
                *sum.faults.entry(kind).or_default() += count;
            }
        }
        sum
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Checked { writes, acknowledged, unavailable, reads, answered, columns } = self.checked;
        write!(f, "{acknowledged} of {writes} writes acknowledged, {answered} of {reads} reads ")?;
        write!(f, "answered with {columns} columns, {unavailable} calls refused; ")?;
        let Self { register_changes, register_calls, .. } = self;
        write!(f, "{register_changes} conditional writes in {register_calls} calls; ")?;
        write!(f, "messages: {:?}; {:?}; faults:", self.network, self.behind)?;
        self.faults.iter().try_for_each(|(kind, count)| write!(f, " {count} {kind},"))
    }
}
