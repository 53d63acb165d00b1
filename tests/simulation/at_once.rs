//! Two changes of the ring that are begun at the same time: one of them is done, and the node of
//! the other is where it was.

use crate::cluster::{Cluster, Profile, Setup};
use crate::node::{Config, Life};
use alexandra::gossip::Members;
use alexandra::repair::Operation;
use alexandra::ring::Token;
use std::sync::Arc;

/// How long the nodes may take to meet, to notice a death, or to end what they have begun, in
/// milliseconds.
const PATIENCE_MS: u64 = 600_000;

/// The second change is begun up to this much later than the first, in milliseconds.
const MAX_DELAY_MS: u64 = 4000;

/// Runs of each pair.
const SEEDS: u64 = 8;

/// A change of the ring by a node that nothing else is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Join,
    Move,
    Leave,
    /// Of a dead node, by a new one.
    Replace,
    /// Of a dead node, by a member.
    Remove,
}

use Change::{Join, Leave, Move, Remove, Replace};

const PAIRS: [(Change, Change); 13] = [
    (Join, Join),
    (Join, Move),
    (Join, Leave),
    (Move, Move),
    (Move, Leave),
    (Leave, Leave),
    (Replace, Replace),
    (Replace, Join),
    (Replace, Move),
    (Replace, Remove),
    (Remove, Join),
    (Remove, Move),
    (Remove, Remove),
];

#[test]
fn of_two_changes_begun_at_once_one_is_done_and_the_other_has_not_happened() {
    for (first, second) in PAIRS {
        for seed in 0..SEEDS {
            // Which of the two addresses is the smaller one must make no difference.
            let pair = if seed % 2 == 0 { [first, second] } else { [second, first] };
            Trial::new(seed, pair).judge();
        }
    }
}

/// A cluster with two changes under way.
struct Trial {
    name: String,
    cluster: Cluster,
    changes: Vec<(usize, Change)>,
    /// The tokens of all nodes before.
    before: Vec<Option<Token>>,
}

impl Trial {
    fn new(seed: u64, pair: [Change; 2]) -> Self {
        let name = format!("{pair:?} of seed {seed}");
        let mut rng = fastrand::Rng::with_seed(seed);
        let setup = Setup { nodes: 6, spares: 2, replication_factor: 3, ..setup(seed) };
        let mut cluster = Cluster::new(Arc::new(setup), &mut rng);
        (0..cluster.setup.nodes).for_each(|number| cluster.start(number));
        assert!(cluster.wait(PATIENCE_MS, Cluster::is_whole), "{name}: {}", cluster.tell_rings());
        let dead = rng.usize(..cluster.setup.nodes);
        if pair.iter().any(|change| matches!(change, Replace | Remove)) {
            cluster.nodes[dead].break_disk();
            let address = cluster.nodes[dead].address;
            let is_noticed = cluster.wait(PATIENCE_MS, |cluster| {
                let mut running = cluster.nodes.iter().filter_map(|node| node.running.as_ref());
                !running.any(|it| it.member.with_gossip(|gossiper, _| gossiper.is_alive(address)))
            });
            assert!(is_noticed, "{name}: {}", cluster.tell_rings());
        }
        let dead_token = cluster.setup.tokens[dead].clone();
        let members = (0..cluster.setup.nodes).filter(|number| *number != dead);
        let mut members: Vec<usize> = members.collect();
        rng.shuffle(&mut members);
        let all = cluster.nodes.len();
        let mut spares = cluster.setup.nodes..all;
        let before = cluster.nodes.iter().map(|node| node.running.as_ref()?.token());
        let before = before.collect();
        let mut trial = Self { name, cluster, changes: Vec::new(), before };
        for (place, change) in pair.into_iter().enumerate() {
            let new = trial.cluster.setup.partitioner.token(format!("new {place}").as_bytes());
            let number = match change {
                Join | Replace => spares.next().unwrap(),
                Move | Leave | Remove => members.pop().unwrap(),
            };
            trial.begin(
                number,
                change,
                if matches!(change, Join | Move) { new } else { dead_token.clone() },
            );
            trial.changes.push((number, change));
            let delay = rng.u64(..MAX_DELAY_MS) * rng.u64(..2);
            trial.cluster.wait(delay, |_| false);
        }
        trial
    }

    fn begin(&mut self, number: usize, change: Change, token: Token) {
        let config = match change {
            Join => Config { token: Some(token), bootstraps: true, replaces: None },
            Replace => Config { replaces: Some(token), ..Config::default() },
            Move => return self.ask(number, Operation::Move(token)),
            Leave => return self.ask(number, Operation::Decommission),
            Remove => return self.ask(number, Operation::Remove { token, accepts_loss: false }),
        };
        let node = &mut self.cluster.nodes[number];
        (node.life, node.config) = (Life::InUse, config);
        self.cluster.start(number);
    }

    /// A call that is refused at once has not happened either.
    fn ask(&self, number: usize, wish: Operation) {
        let running = self.cluster.nodes[number].running.as_ref().unwrap();
        let _: Result<(), _> = running.ask(wish);
    }

    fn told(&self) -> String {
        format!("{}: {}", self.name, self.cluster.tell_rings())
    }

    fn judge(mut self) {
        let numbers: Vec<usize> = self.changes.iter().map(|(number, _)| *number).collect();
        let is_over =
            |cluster: &Cluster| numbers.iter().all(|number| outcome(cluster, *number).is_some());
        assert!(self.cluster.wait(PATIENCE_MS, is_over), "{}", self.told());
        let has_failed =
            |number: &usize| outcome(&self.cluster, *number).is_none_or(|outcome| outcome.is_err());
        let failed: Vec<usize> = numbers.iter().copied().filter(has_failed).collect();
        assert!(failed.len() < numbers.len(), "{}", self.told());
        // A process that could not join ends.
        for number in &failed {
            let node = &mut self.cluster.nodes[*number];
            if node.running.as_ref().is_some_and(|running| running.unjoined().is_some()) {
                node.kill();
            }
        }
        let is_settled = |cluster: &Cluster| cluster.settled_ring().is_some();
        assert!(self.cluster.wait(PATIENCE_MS, is_settled), "{}", self.told());
        let told = self.told();
        for number in failed {
            let node = &self.cluster.nodes[number];
            for other in self.cluster.nodes.iter().filter_map(|node| node.running.as_ref()) {
                let known = other.member.with_gossip(|_, membership| membership.members().clone());
                let Members { ring, bootstrapping, plans, .. } = known;
                assert_eq!(ring.token(node.address), self.before[number].as_ref(), "{told}");
                let is_about =
                    bootstrapping.contains_key(&node.address) || plans.contains_key(&node.address);
                assert!(!is_about, "{told}");
            }
        }
        self.cluster.stop();
    }
}

fn setup(seed: u64) -> Setup {
    // Of six nodes, as the tokens follow from their number.
    let mut setup = Setup::new(seed, Profile::Kills, None);
    let token = |node: usize| setup.partitioner.token(format!("node {node} of {seed}").as_bytes());
    setup.tokens = (0..6).map(token).collect();
    setup
}

/// How a change by this node has ended, if it has.
fn outcome(cluster: &Cluster, number: usize) -> Option<Result<String, String>> {
    let running = cluster.nodes[number].running.as_ref()?;
    if let Some(why) = running.unjoined() {
        return Some(Err(why));
    }
    match running.report() {
        // It was refused before it began.
        None => running.token().map(|_| Err("refused".to_owned())),
        Some(report) => report.outcome,
    }
}
