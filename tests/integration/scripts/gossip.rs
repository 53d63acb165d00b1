//! Gossip: the state machine of each node, its failure detector and its view of the ring.
//!
//! Node 7 has the address 10.0.0.7 and, unless a script says otherwise, token 700; node 1 is the
//! seed of all. A word such as `2@100/7` is a digest: node, generation, version. Lines of output
//! begin with the node that logs them.
//!
//! After `by-hand` rounds happen only when a script says so and messages arrive at once. Otherwise
//! nodes gossip by themselves on a network with delays, and `seeds 20` repeats the script with
//! twenty seeds of chance, all of which must give the same output.

pub(super) mod arguments;
pub(super) mod said;
mod show;
pub(super) mod world;

use alexandra::gossip::{
    Digest, EndpointState, GenerationConflict, GossipMessage, Move, RemovedNode,
};
use alexandra::ring::Partitioner;
use arguments::{DigestOf, Generation, Nodes, Shift, Span};
use said::{Said, expand, state_name};
use show::{or_nobody, places, ring, show_message, show_state};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use world::{BAD, CLUSTER, Faults, Node, SOUND, Start, World, ip, node_of, token};

#[test]
fn scripts_of_gossip() {
    super::run_all("gossip", |path: &Path| {
        let mut first = Script::new(0);
        goldenscript::run(&mut first, path).unwrap_or_else(|error| panic!("{error}"));
        let text = std::fs::read_to_string(path).unwrap();
        for seed in 1..first.seeds {
            let output = goldenscript::generate(&mut Script::new(seed), &text);
            let output = output.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(output == text, "with seed {seed} the output is\n{output}");
        }
    });
}

/// How long it takes all of three nodes to convict one that died, over many seeds. Figures for
/// people: run it with `--ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn detection_times() {
    let lossy = |loss| Faults { loss, ..SOUND };
    let networks = [("sound", SOUND), ("10 % lost", lossy(0.1)), ("30 % lost", lossy(0.3))];
    for (network, faults) in networks {
        for (phi, age) in [(5.0, 10), (5.0, 600), (8.0, 10), (8.0, 600)] {
            let (mut times, mut wrong) = (Vec::new(), 0);
            for seed in 0..200 {
                let mut script = Script::new(seed);
                (script.world.phi, script.world.faults) = (phi, faults);
                (1..=3).for_each(|node| script.world.start(node, &Start::normal(node)));
                script.until("converged", None, Duration::from_secs(120)).unwrap();
                script.world.run(Duration::from_secs(age));
                wrong += script.world.convictions.len();
                script.world.nodes.remove(&3);
                let died = script.world.now;
                script.until("", Some(&Nodes(vec![3])), Duration::from_secs(120)).unwrap();
                times.push(script.world.now.saturating_sub(died));
            }
            times.sort_unstable();
            let (best, median, worst) = (times[0], times[times.len() / 2], times[times.len() - 1]);
            println!(
                "{network}, phi {phi}, after {age} s: best {best:?}, median {median:?}, \
                 worst {worst:?}, wrong {wrong}"
            );
        }
    }
}

#[derive(Debug, goldenscript::Command)]
enum Command {
    /// Repeats the script with other seeds.
    Seeds(u64),
    #[command(name = "by-hand")]
    ByHand,
    /// Makes the network `sound` or `bad`.
    Network(String),
    /// Convicts above this phi, from the next start of a node on.
    Threshold(f64),
    /// Sets clocks ahead, or back.
    Clock(Nodes, Shift),

    Start {
        nodes: Nodes,
        #[arg(key)]
        place: Option<String>,
        #[arg(key)]
        generation: Option<Generation>,
        #[arg(key)]
        cluster: Option<String>,
        #[arg(key)]
        seeds: Option<Nodes>,
        #[arg(key = "asks-first", optional)]
        asks_first: bool,
    },
    Kill(Nodes),
    /// Empties the disks of nodes.
    Wipe(Nodes),
    /// Makes a node stand still.
    Stop(u8, Span),
    #[command(name = "cut-off")]
    CutOff(Nodes),
    Heal,
    /// Holds messages from one node to another back.
    Hold(u8, u8),
    Release {
        from: Option<u8>,
        to: Option<u8>,
    },
    /// Loses what is held back.
    Lose,
    /// Writes nodes into the saved ring of a node, at their tokens.
    Save(u8, Nodes),

    Announce(u8, String),
    Set {
        nodes: Nodes,
        #[arg(key, many)]
        states: Vec<(String, String)>,
    },
    /// Lets others hear of a start that asks first.
    Show(u8),
    #[command(name = "keep-asking")]
    KeepAsking(u8),
    Forget(u8, u8),
    /// A node leaves the ring, and ends.
    Leave(u8),
    /// A node learns by a call where another one is.
    Learn {
        node: u8,
        place: String,
        #[arg(key)]
        of: u8,
    },
    #[command(name = "allow-return")]
    AllowReturn(u8, u8),

    Run(Span),
    /// Lets time pass until `converged`, or until all agree that nodes are dead.
    Until {
        #[arg(optional)]
        goal: String,
        #[arg(key)]
        dead: Option<Nodes>,
        #[arg(key)]
        within: Span,
    },
    /// Kills, restarts, cuts and heals at random.
    Trouble {
        nodes: Nodes,
        #[arg(key)]
        times: u32,
    },
    /// A second passes, then each of the nodes has a round; that many times.
    Round {
        nodes: Nodes,
        #[arg(key)]
        times: Option<u32>,
    },
    /// Rounds of a node until it takes another for dead.
    #[command(name = "wait-for-dead")]
    WaitForDead(u8, u8),
    /// Prints messages as well, from now on.
    #[command(name = "show-messages")]
    ShowMessages(String),

    /// Node 1, or `by`, hears states of a node from node 9, or `from`. `at` is their version.
    Hear {
        about: u8,
        #[arg(key)]
        by: Option<Nodes>,
        #[arg(key)]
        from: Option<u8>,
        #[arg(key)]
        generation: Option<Generation>,
        #[arg(key)]
        at: Option<i32>,
        /// With this many more states.
        #[arg(key, optional)]
        many: u32,
        #[arg(key, many, optional)]
        states: Vec<(String, String)>,
    },
    /// Node 1 has its rounds, and hears a heartbeat of the node now and then, which others list
    /// before.
    Beat {
        about: u8,
        #[arg(key)]
        times: u32,
        /// By default a second.
        #[arg(key)]
        every: Option<Span>,
        #[arg(key = "listed-by", optional)]
        listed_by: u8,
    },
    /// Node 1 hears of a node at this address.
    #[command(name = "hear-address")]
    HearAddress(IpAddr),
    /// Node 1 hears of this many endpoints in one message. Only warnings are printed.
    Crowd {
        count: u16,
        #[arg(key)]
        net: u8,
        #[arg(key, many, optional)]
        states: Vec<(String, String)>,
    },
    Syn(u8, Vec<DigestOf>),
    Ack(u8, Vec<DigestOf>),
    /// Each second nodes answer SYNs of node 1 as if they knew this generation of it; others
    /// accept it.
    Refuse {
        nodes: Nodes,
        #[arg(key)]
        known: i32,
        #[arg(key, optional)]
        accepted: Nodes,
        #[arg(key)]
        times: u32,
    },

    /// The ring as these nodes see it, by default all that run.
    Ring {
        #[arg(optional)]
        nodes: Nodes,
        /// The endpoints to show.
        #[arg(key)]
        only: Option<Nodes>,
    },
    State(u8, u8),
    /// Whatever a node knows of itself.
    Node(u8),
    /// The number of endpoints that a node knows, or of states of one of them.
    Count {
        node: u8,
        #[arg(key)]
        of: Option<u8>,
    },
    Extension(u8, u8, String),
    Load(u8, u8),
    #[command(name = "given-up")]
    GivenUp(u8),
    Conflict(u8),
    #[command(name = "generation-at-most")]
    GenerationAtMost(u8, Generation),
    Saved(u8),
    Removed(u8),
    Pending(u8),
    Phi(u8, u8),
    /// Whether a node takes its ring for the present one.
    Trusts(u8),
    /// Nodes that took another one for dead, and that one.
    Convictions {
        #[arg(key)]
        of: Option<Nodes>,
    },
}

/// A script that runs in a world of its own.
struct Script {
    world: World,
    seeds: u64,
    shows_messages: bool,
    /// States that nodes were said to have, by node.
    said: Said,
}

type Outcome = Result<String, Box<dyn Error>>;

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _context: &goldenscript::Context) -> Outcome {
        match command {
            Command::Ring { nodes, only } => {
                return Ok(self.rings(&nodes.0, only.as_ref().map(|it| &it.0[..])));
            }
            Command::State(node, _)
            | Command::Count { node, .. }
            | Command::Extension(node, _, _)
            | Command::Load(node, _)
            | Command::GivenUp(node)
            | Command::Conflict(node)
            | Command::GenerationAtMost(node, _)
            | Command::Phi(node, _)
            | Command::Trusts(node) => return self.ask(*node, command),
            Command::Node(node) => return self.own(*node),
            Command::Saved(node) => {
                let ring = self.world.disks.get(node).map(|disk| &disk.ring);
                return Ok(places(ring.into_iter().flatten().map(|(at, token)| (token, *at))));
            }
            Command::Removed(node) => return self.removed(*node),
            Command::Pending(node) => return self.pending(*node),
            Command::Convictions { of } => {
                let all = self.world.convictions.iter().copied();
                let is_meant = |it: &(u8, u8)| of.as_ref().is_none_or(|of| of.0.contains(&it.1));
                let all: BTreeSet<(u8, u8)> = all.filter(is_meant).collect();
                let lines = all.iter().map(|(by, dead)| format!("{by} took {dead} for dead\n"));
                return Ok(or_nobody(lines.collect::<Vec<String>>().concat()));
            }
            Command::Seeds(_)
            | Command::ByHand
            | Command::Network(_)
            | Command::Threshold(_)
            | Command::Clock(..)
            | Command::ShowMessages(_) => {
                self.set_up(command)?;
            }
            Command::Run(_)
            | Command::Until { .. }
            | Command::Trouble { .. }
            | Command::Round { .. }
            | Command::WaitForDead(..) => {
                return self.pass_time(command);
            }
            Command::Hear { .. }
            | Command::HearAddress(_)
            | Command::Beat { .. }
            | Command::Crowd { .. }
            | Command::Syn(..)
            | Command::Ack(..)
            | Command::Refuse { .. } => {
                self.hear(command)?;
            }
            _ => self.operate(command)?,
        }
        Ok(String::new())
    }

    /// Prints messages and log lines of a command in a world by hand.
    fn end_command(&mut self, _: &Command, _: &goldenscript::Context) -> Outcome {
        let mut text = String::new();
        if self.world.is_by_hand {
            for (from, to, message) in self.world.sent.drain(..).filter(|_| self.shows_messages) {
                writeln!(text, "{from} -> {to} {}", show_message(&message))?;
            }
            for (node, line) in self.world.log.drain(..) {
                writeln!(text, "{node} {line}")?;
            }
        }
        Ok(text)
    }
}

impl Script {
    fn new(seed: u64) -> Self {
        let (world, said) = (World::new(seed), Said::default());
        Self { world, seeds: 1, shows_messages: false, said }
    }

    fn set_up(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        match command {
            Command::Seeds(count) => self.seeds = *count,
            Command::ByHand => {
                self.world.is_by_hand = true;
                self.world.faults = Faults { delay: Duration::ZERO, ..SOUND };
            }
            Command::Network(kind) => {
                self.world.faults = match kind.as_str() {
                    "sound" => SOUND,
                    "bad" => BAD,
                    _ => return Err(format!("`{kind}` is no network").into()),
                };
            }
            Command::Threshold(phi) => self.world.phi = *phi,
            Command::Clock(nodes, ahead) => {
                let clocks = nodes.0.iter().map(|&node| (node, ahead.0));
                self.world.clocks_ahead.extend(clocks);
            }
            Command::ShowMessages(how) => {
                self.shows_messages = match how.as_str() {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("`{how}` is neither on nor off").into()),
                };
            }
            _ => unreachable!("{command:?}"),
        }
        Ok(())
    }

    fn operate(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let world = &mut self.world;
        match command {
            Command::Start { .. } => self.start(command)?,
            Command::Kill(nodes) => world.nodes.retain(|node, _| !nodes.0.contains(node)),
            Command::Wipe(nodes) => world.disks.retain(|node, _| !nodes.0.contains(node)),
            Command::Stop(node, time) => world.stop(*node, time.0),
            Command::CutOff(nodes) => world.cut_off = nodes.0.iter().copied().collect(),
            Command::Heal => world.cut_off.clear(),
            Command::Hold(from, to) => drop(world.holding.insert((*from, *to))),
            Command::Release { from, to } => world.release(from.zip(*to)),
            Command::Lose => world.lose(),
            Command::Save(node, saved) => {
                let places = saved.0.iter().map(|&saved| (ip(saved), token(saved)));
                world.disks.entry(*node).or_default().ring.extend(places);
            }
            Command::Announce(node, place) => world.announce(*node, &parse_place(place)?)?,
            Command::Set { nodes, states } => {
                for node in &nodes.0 {
                    let gossiper = &mut world.node(*node)?.gossiper;
                    for (name, value) in states {
                        gossiper.set_state(&expand(state_name(name)), &expand(value))?;
                    }
                }
            }
            Command::Show(node) => world.node(*node)?.gossiper.question.close(),
            Command::KeepAsking(node) => world.node(*node)?.gossiper.question.keep_asking(),
            Command::Forget(node, forgotten) => {
                let now = world.now;
                world.node(*node)?.gossiper.forget(ip(*forgotten), now);
            }
            Command::Leave(node) => {
                world.announce(*node, &Move::Leaving(token(*node)))?;
                world.run(Duration::from_secs(30));
                world.announce(*node, &Move::Left(token(*node)))?;
                world.run(Duration::from_secs(5));
                world.nodes.remove(node);
            }
            Command::Learn { node, place, of } => {
                let Move::Normal { token, .. } = parse_place(place)? else {
                    return Err("only places on the ring are learnt".into());
                };
                let changes = world.node(*node)?.membership.learn(ip(*of), &token);
                world.follow(*node, &changes);
            }
            Command::AllowReturn(node, returning) => {
                let Node { gossiper, membership, .. } = world.node(*node)?;
                let known = gossiper.state(ip(*returning));
                let changes = membership.allow_return(ip(*returning), known);
                world.follow(*node, &changes.ok_or("no such node was removed")?);
            }
            _ => unreachable!("{command:?}"),
        }
        Ok(())
    }

    fn start(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let Command::Start { nodes, place, generation, cluster, seeds, asks_first } = command
        else {
            unreachable!("{command:?}")
        };
        for &node in &nodes.0 {
            let mut how = Start::normal(node);
            match place.as_deref() {
                Some("") => how.place = None,
                Some(place) => how.place = Some(parse_place(place)?),
                None => {}
            }
            if let Some(cluster) = cluster {
                how.cluster.clone_from(cluster);
            }
            if let Some(seeds) = seeds {
                how.seeds.clone_from(&seeds.0);
            }
            how.generation = generation.map(|it| self.generation(it));
            how.asks_first = *asks_first;
            self.world.start(node, &how);
            self.world.run(Duration::ZERO);
        }
        Ok(())
    }

    fn pass_time(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Run(time) => self.world.run(time.0),
            Command::Until { goal, dead, within } => {
                return self.until(goal, dead.as_ref(), within.0);
            }
            Command::Trouble { nodes, times } => {
                for _ in 0..*times {
                    self.trouble(&nodes.0);
                }
            }
            Command::Round { nodes, times } => {
                for _ in 0..times.unwrap_or(1) {
                    self.world.run(Duration::from_secs(1));
                    for &node in &nodes.0 {
                        self.world.tick(node)?;
                        self.world.run(Duration::ZERO);
                    }
                }
            }
            Command::WaitForDead(node, dead) => {
                for second in 1..100 {
                    self.world.run(Duration::from_secs(1));
                    self.world.tick(*node)?;
                    if !self.world.node(*node)?.gossiper.is_alive(ip(*dead)) {
                        return Ok(format!("after {second} s:\n"));
                    }
                }
                return Err(format!("{dead} is alive").into());
            }
            _ => unreachable!("{command:?}"),
        }
        Ok(String::new())
    }

    fn until(&mut self, goal: &str, dead: Option<&Nodes>, within: Duration) -> Outcome {
        let end = self.world.now + within;
        loop {
            let is_so = match dead {
                Some(dead) => {
                    let agrees =
                        |node: &Node| dead.0.iter().all(|it| !node.gossiper.is_alive(ip(*it)));
                    self.world.nodes.values().all(agrees)
                }
                None if goal == "converged" => self.is_converged(),
                None => return Err(format!("`{goal}` is no goal").into()),
            };
            if is_so {
                return Ok(String::new());
            }
            if self.world.now >= end {
                return Err(format!("not within {within:?}:\n{}", self.rings(&[], None)).into());
            }
            self.world.run(Duration::from_millis(100));
        }
    }

    /// Whether all take just those for alive that run, and see the same ring.
    fn is_converged(&self) -> bool {
        let nodes = &self.world.nodes;
        let running: BTreeSet<IpAddr> = nodes.keys().copied().map(ip).collect();
        let is_right = |node: &Node| {
            let known = node.gossiper.endpoints().map(|(endpoint, _)| endpoint);
            known.filter(|it| node.gossiper.is_alive(*it)).collect::<BTreeSet<IpAddr>>() == running
        };
        let mut rings = nodes.values().map(|node| node.membership.members());
        let first = rings.next();
        nodes.values().all(is_right) && rings.all(|ring| Some(ring) == first)
    }

    /// Something happens to one of the nodes, then up to a minute passes.
    fn trouble(&mut self, nodes: &[u8]) {
        let world = &mut self.world;
        let (kind, at) = (world.rng.u8(0..5), world.rng.usize(0..nodes.len()));
        let (node, next) = (nodes[at], nodes[(at + 1) % nodes.len()]);
        match kind {
            0 => drop(world.nodes.remove(&node)),
            1 | 2 => {
                world.nodes.remove(&node);
                world.run(Duration::from_secs(2));
                world.start(node, &Start::normal(node));
            }
            3 => world.cut_off = BTreeSet::from([node, next]),
            _ => world.cut_off.clear(),
        }
        let seconds = world.rng.u64(1..60);
        world.run(Duration::from_secs(seconds));
    }

    fn hear(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        match command {
            Command::Hear { about, by, from, generation, at, many, states } => {
                let generation = generation.map(|it| self.generation(it));
                let more = (0..*many).map(|number| (format!("X-{number}"), String::new()));
                let states: Vec<_> = states.iter().cloned().chain(more).collect();
                let state = self.said.say(*about, generation, *at, &states);
                for &by in by.as_ref().map_or(&[1][..], |by| &by.0) {
                    self.world.tell(from.unwrap_or(9), by, vec![(ip(*about), state.clone())]);
                }
            }
            Command::Beat { about, times, every, listed_by } => {
                for _ in 0..*times {
                    self.tick_for(every.map_or(Duration::from_secs(1), |every| every.0))?;
                    let state = self.said.say(*about, None, None, &[]);
                    let (generation, max_version) = state.age();
                    let digest = Digest { endpoint: ip(*about), generation, max_version };
                    for from in (10..).take(usize::from(*listed_by)) {
                        let (cluster_name, digests) = (CLUSTER.to_owned(), vec![digest]);
                        let syn = GossipMessage::Syn { cluster_name, digests };
                        self.world.receive(from, 1, syn);
                    }
                    self.world.tell(*about, 1, vec![(ip(*about), state)]);
                }
            }
            Command::HearAddress(address) => {
                let mut state = EndpointState::new(100);
                state.beat();
                self.world.tell(9, 1, vec![(*address, state)]);
            }
            Command::Crowd { count, net, states } => {
                let mut state = EndpointState::new(1);
                state.beat();
                for (name, value) in states {
                    state.set(state_name(name), value);
                }
                let address = |n: u16| IpAddr::from([10, *net, (n >> 8) as u8, n as u8]);
                let states = (0..*count).map(|n| (address(n), state.clone())).collect();
                self.world.tell(9, 1, states);
                self.world.log.retain(|(_, line)| line.starts_with("WARN"));
            }
            Command::Syn(from, digests) => {
                let digests = digests.iter().map(|digest| digest.0).collect();
                let cluster_name = CLUSTER.to_owned();
                self.world.receive(*from, 1, GossipMessage::Syn { cluster_name, digests });
            }
            Command::Ack(from, digests) => {
                let wanted = digests.iter().map(|digest| digest.0).collect();
                self.world.receive(*from, 1, GossipMessage::Ack { wanted, states: Vec::new() });
            }
            Command::Refuse { nodes, known, accepted, times } => {
                for _ in 0..*times {
                    self.world.run(Duration::from_secs(1));
                    nodes.0.iter().try_for_each(|&node| self.answer(node, Some(*known)))?;
                    accepted.0.iter().try_for_each(|&node| self.answer(node, None))?;
                    self.world.tick(1)?;
                }
            }
            _ => unreachable!("{command:?}"),
        }
        Ok(())
    }

    /// Time passes in which node 1 has its rounds.
    fn tick_for(&mut self, time: Duration) -> Result<(), String> {
        for _ in 0..time.as_secs() {
            self.world.run(Duration::from_secs(1));
            self.world.tick(1)?;
        }
        Ok(())
    }

    /// A node answers a SYN of node 1. It knows this generation of that, or the present one.
    fn answer(&mut self, from: u8, known: Option<i32>) -> Result<(), Box<dyn Error>> {
        let (endpoint, own) = (ip(1), self.world.node(1)?.gossiper.generation());
        let wanted = match known {
            Some(_) => Vec::new(),
            None => vec![Digest { endpoint, generation: own, max_version: 0 }],
        };
        let heartbeat = self.said.say(from, None, None, &[]);
        let of_own = EndpointState::new(known.unwrap_or(own));
        let states = vec![(ip(from), heartbeat), (endpoint, of_own)];
        self.world.receive(from, 1, GossipMessage::Ack { wanted, states });
        Ok(())
    }

    fn generation(&self, generation: Generation) -> i32 {
        match generation {
            Generation::Number(number) => number,
            Generation::Now(shift) => (self.world.now_secs() + shift) as i32,
        }
    }

    /// The ring as nodes see it. Nodes that see the same share a line.
    fn rings(&self, nodes: &[u8], only: Option<&[u8]>) -> String {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (number, node) in &self.world.nodes {
            if nodes.is_empty() || nodes.contains(number) {
                groups.entry(ring(node, only)).or_default().push(number.to_string());
            }
        }
        let mut lines: Vec<(Vec<String>, String)> =
            groups.into_iter().map(|(ring, nodes)| (nodes, ring)).collect();
        lines.sort();
        let lines = lines.iter().map(|(nodes, ring)| format!("{}: {ring}\n", nodes.join(" ")));
        lines.collect::<Vec<String>>().concat()
    }

    /// The answer of a running node to a question.
    fn ask(&mut self, node: u8, question: &Command) -> Outcome {
        let now = self.world.now;
        let most = match question {
            Command::GenerationAtMost(_, most) => self.generation(*most),
            _ => 0,
        };
        let world::Node { gossiper, membership, .. } = self.world.node(node)?;
        let yes_or_no = |is_so| if is_so { "yes" } else { "no" }.to_owned();
        Ok(match question {
            Command::State(_, about) => match gossiper.state(ip(*about)) {
                Some(state) => show_state(*about, state),
                None => format!("{node} does not know {about}"),
            },
            Command::Count { of: Some(of), .. } => {
                let count = gossiper.state(ip(*of)).map_or(0, |state| state.states.len());
                format!("{node} knows {count} states of {of}")
            }
            Command::Count { of: None, .. } => {
                format!("{node} knows {} endpoints", gossiper.endpoints().count())
            }
            Command::Extension(_, about, name) => yes_or_no(gossiper.announces(ip(*about), name)),
            Command::Load(_, about) => match gossiper.load(ip(*about)) {
                Some(load) => load.to_string(),
                None => "unknown".to_owned(),
            },
            Command::GivenUp(_) => format!("{node} gave {} up", membership.given_up()),
            Command::Conflict(_) => match gossiper.generation_conflict() {
                None => "none".to_owned(),
                Some(GenerationConflict::Ahead { .. }) => "others remember more".to_owned(),
                Some(GenerationConflict::Refused { is_clock_right: true, .. }) => {
                    "refused, and the clock agrees with the others".to_owned()
                }
                Some(GenerationConflict::Refused { .. }) => {
                    "refused, for the clock is wrong".to_owned()
                }
            },
            Command::GenerationAtMost(..) => yes_or_no(gossiper.generation() <= most),
            Command::Trusts(_) => yes_or_no(gossiper.trusted_until() >= now),
            Command::Phi(_, about) => match gossiper.detector.phi(ip(*about), now) {
                Some(phi) => format!("phi {phi:.1}"),
                None => "nothing was heard".to_owned(),
            },
            _ => unreachable!("{question:?}"),
        })
    }

    fn own(&mut self, node: u8) -> Outcome {
        let gossiper = &self.world.node(node)?.gossiper;
        let mut text = format!("generation {}", gossiper.generation());
        if gossiper.question.is_open() {
            text += ", hidden";
        }
        if let Some((by, token)) = gossiper.question.remembered() {
            let token = Partitioner::Random.display_token(token);
            write!(text, ", {} remembers its token {token}", node_of(*by))?;
        }
        if gossiper.is_refused() {
            text += ", refused";
        }
        if let Some(conflict) = gossiper.generation_conflict() {
            write!(text, "\n{conflict}")?;
        }
        Ok(text)
    }

    fn removed(&mut self, node: u8) -> Outcome {
        let membership = &self.world.node(node)?.membership;
        let mut text = String::new();
        for node in membership.removed() {
            let token = Partitioner::Random.display_token(&node.token);
            let may = if node.may_return { ", may return" } else { "" };
            let RemovedNode { endpoint, generation, .. } = node;
            writeln!(text, "{} from {token}, start {generation}{may}", node_of(endpoint))?;
        }
        for endpoint in membership.turned_away() {
            writeln!(text, "turned away: {}", node_of(endpoint))?;
        }
        let told = membership.removed_state();
        if !told.is_empty() {
            writeln!(text, "told: {told}")?;
        }
        Ok(or_nobody(text))
    }

    /// Changes of the ring that are under way, with all nodes alive but those that are known dead.
    fn pending(&mut self, node: u8) -> Outcome {
        let Node { gossiper, membership, .. } = self.world.node(node)?;
        let ring = membership.members().with_pending(|it| gossiper.is_alive(it));
        let mut text = String::new();
        for endpoint in ring.leaving() {
            writeln!(text, "{} leaves", node_of(endpoint))?;
        }
        for (token, endpoint) in ring.bootstrapping() {
            let token = Partitioner::Random.display_token(token);
            writeln!(text, "{} joins at {token}", node_of(endpoint))?;
        }
        for (token, endpoint) in ring.replacing() {
            let token = Partitioner::Random.display_token(token);
            writeln!(text, "{} replaces the node at {token}", node_of(endpoint))?;
        }
        if let Some(former) = ring.former() {
            writeln!(text, "the former ring counts: {}", places(former.members()))?;
        }
        if ring.is_settled() {
            text += "nothing";
        }
        Ok(text)
    }
}

fn parse_place(text: &str) -> Result<Move, Box<dyn Error>> {
    let place = Move::parse(Partitioner::Random, text)?;
    place.ok_or_else(|| format!("`{text}` is no place").into())
}
