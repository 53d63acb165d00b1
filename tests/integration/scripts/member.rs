//! A node among others: everything that gossip means for its ring, its disk and the requests of
//! others. Each node is a whole member with storage of its own on a simulated disk.
//!
//! Node 7 has the address 10.0.0.7 and token 700; node 1 is the seed of all. Nodes that a script
//! does not start speak through `hear`, as nodes of 0.6 do. Time moves only by `run`.

use super::gossip::arguments::{Nodes, Span};
use super::gossip::said::{Said, state_name};
use super::gossip::world::{ip, node_of, token};
use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Arrivals, Delivery, Network, RuntimeClock};
use crate::kit::storage::open_system;
use alexandra::base::budget::Budget;
use alexandra::base::context::RequestContext;
use alexandra::base::worker::Spawner;
use alexandra::coordinator::{ConsistencyLevel, ReadOptions};
use alexandra::gossip::{Digest, EndpointState, GossipMessage, MessageKind, NodePlace};
use alexandra::model::mutation::MutationBuilder;
use alexandra::net::message::{Header, Message};
use alexandra::net::{Inbound, Verb, extensions};
use alexandra::node::{Member, MemberOptions};
use alexandra::repair::{Host, Lifecycle};
use alexandra::replica::{Replica, ReplicaOptions};
use alexandra::ring::Partitioner;
use alexandra::storage::Database;
use alexandra::storage::system;
use alexandra::storage::system::saved_ring::SavedRing;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The cluster of all nodes.
const CLUSTER: &str = "Test";

#[test]
fn scripts_of_members() {
    super::run_all("member", |path| {
        goldenscript::run(&mut Script::new(), path).unwrap_or_else(|error| panic!("{error}"));
    });
}

#[derive(Debug, goldenscript::Command)]
enum Command {
    /// Starts a node, at its token unless it is to be `without` one. `clock` sets its clock ahead.
    Start {
        node: u8,
        #[arg(key = "without-token", optional)]
        without_token: bool,
        #[arg(key)]
        clock: Option<Span>,
    },
    Stop(u8),
    /// A node stands still, as after SIGSTOP, or goes on. What is sent to it waits.
    Freeze(u8),
    #[command(name = "go-on")]
    GoOn(u8),
    /// Answer of a node to a read of a client.
    Serves(u8),
    /// A client writes a row whose key is not text.
    #[command(name = "write-later")]
    WriteLater(u8),
    Run(Span),
    #[command(name = "cut-off")]
    CutOff(Nodes),
    Heal,
    /// Waits, beside what follows, until a node knows its ring.
    Settle(u8),
    Settled(u8),

    /// Node 1, or `by`, hears states of a node from that node, or `from` another one.
    Hear {
        about: u8,
        #[arg(key)]
        by: Option<u8>,
        #[arg(key)]
        from: Option<u8>,
        #[arg(key)]
        generation: Option<i32>,
        #[arg(key, many, optional)]
        states: Vec<(String, String)>,
    },
    /// Begins gossip with node 1 as another node, and shows the clusters of the SYNs that come
    /// back.
    Knock(u8),
    /// Each second nodes answer SYNs of node 1 as if they knew this generation of it.
    Refuse {
        nodes: Nodes,
        #[arg(key)]
        known: i32,
        #[arg(key)]
        times: u32,
    },
    /// Calls node 1 as another node.
    Call(u8, Vec<String>),

    #[command(name = "allow-return")]
    AllowReturn(u8, u8),
    /// A node learns of a member that others know.
    Learn(u8, u8),
    /// A node removes a dead one, as it has data of it by now.
    Remove(u8, u8),
    /// A node takes its token, as nobody was there to ask.
    #[command(name = "take-first-place")]
    TakeFirstPlace(u8),
    #[command(name = "serve-reads")]
    ServeReads(u8),

    Ring(u8),
    /// The ring in the system keyspace.
    Saved(u8),
    /// Nodes that requests treat in another way than others.
    Peers(u8),
    /// A state that a node announces of itself, and its version.
    Announces(u8, String),
}

type Outcome = Result<String, Box<dyn Error>>;

struct Running {
    member: Arc<Member>,
    storage: Arc<Database>,
    stop: CancellationToken,
    tasks: [JoinHandle<()>; 2],
    is_frozen: watch::Sender<bool>,
    /// Ends with the seconds after which the node knew its ring.
    settling: Option<JoinHandle<u64>>,
}

struct Script {
    nodes: BTreeMap<u8, Running>,
    disks: BTreeMap<u8, SimFileSystem>,
    network: Arc<Network>,
    said: Said,
    /// The start of the script, from which all clocks count.
    started: Instant,
    runtime: Runtime,
}

impl goldenscript::Runner for Script {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &goldenscript::Context) -> Outcome {
        match command {
            Command::Start { node, without_token, clock } => {
                let ahead = clock.map_or(Duration::ZERO, |clock| clock.0);
                return self.start(*node, *without_token, ahead);
            }
            Command::Stop(node) => self.stop(*node)?,
            Command::Freeze(node) => _ = self.node(*node)?.is_frozen.send_replace(true),
            Command::GoOn(node) => _ = self.node(*node)?.is_frozen.send_replace(false),
            Command::Serves(node) => return self.serves(*node),
            Command::Run(time) => self.pass(time.0),
            Command::CutOff(nodes) => {
                let cut_off: Vec<IpAddr> = nodes.0.iter().copied().map(ip).collect();
                self.network.rule(move |sent| {
                    let is_cut = cut_off.contains(&sent.from) != cut_off.contains(&sent.to);
                    if is_cut { Delivery::Never } else { Delivery::Once }
                });
            }
            Command::Heal => self.network.rule(|_| Delivery::Once),
            Command::Settle(node) => {
                let member = Arc::clone(&self.node(*node)?.member);
                let _guard = self.runtime.enter();
                let settling = tokio::spawn(async move {
                    let started = Instant::now();
                    member.settle().await;
                    started.elapsed().as_secs()
                });
                self.nodes.get_mut(node).ok_or("it runs")?.settling = Some(settling);
            }
            Command::Settled(node) => return self.settled(*node),
            Command::Hear { about, by, from, generation, states } => {
                let state = self.said.say(*about, *generation, None, states);
                let from = from.unwrap_or(*about);
                self.tell(by.unwrap_or(1), from, vec![(ip(*about), state)])?;
            }
            Command::Refuse { nodes, known, times } => self.refuse(&nodes.0, *known, *times)?,
            Command::Knock(from) => return self.knock(*from),
            Command::Call(from, names) => return self.call(*from, names),
            Command::AllowReturn(node, returning) => {
                let is_back = self.node(*node)?.member.allow_return(ip(*returning));
                let is_back = is_back.ok_or("no such node was removed")?;
                let text = if is_back { "is back in the ring" } else { "may come back" };
                return Ok(format!("{returning} {text}"));
            }
            Command::Learn(..)
            | Command::Remove(..)
            | Command::TakeFirstPlace(_)
            | Command::ServeReads(_) => self.operate(command)?,
            Command::WriteLater(node) => self.write_later(*node)?,
            Command::Ring(node) => return self.ring(*node),
            Command::Saved(node) => return self.saved(*node),
            Command::Peers(node) => return self.peers(*node),
            Command::Announces(node, name) => {
                let text = self.node(*node)?.member.with_gossip(|gossiper, _| {
                    let state = gossiper.state(ip(*node))?.states.get(state_name(name))?.clone();
                    Some(format!("{name}={} at {}", state.value, state.version))
                });
                return Ok(text.unwrap_or_else(|| format!("{name} is not announced")));
            }
        }
        Ok(String::new())
    }

    /// Stops all nodes, so that no thread of storage outlives the script.
    fn end_script(&mut self) -> Result<(), Box<dyn Error>> {
        let running: Vec<u8> = self.nodes.keys().copied().collect();
        running.into_iter().try_for_each(|node| self.stop(node))
    }
}

impl Script {
    fn new() -> Self {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let network: Arc<Network> = Arc::default();
        // Messages to nodes that do not run are lost.
        drop(network.messages_to(&(1..=9).map(ip).collect::<Vec<IpAddr>>()));
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        Self {
            nodes: BTreeMap::new(),
            disks: BTreeMap::new(),
            network,
            said: Said::default(),
            started: runtime.block_on(async { Instant::now() }),
            runtime,
        }
    }

    fn node(&self, node: u8) -> Result<&Running, String> {
        self.nodes.get(&node).ok_or_else(|| format!("node {node} does not run"))
    }

    fn pass(&self, time: Duration) {
        self.runtime.block_on(async { sleep(time).await });
    }

    fn start(&mut self, node: u8, is_placeless: bool, ahead: Duration) -> Outcome {
        let context = self.runtime.enter();
        let clock = RuntimeClock::since(self.started, ahead);
        let fs = self.disks.entry(node).or_insert_with(|| SimFileSystem::new(u64::from(node)));
        let storage = open_system(fs, Arc::clone(&clock));
        let identity = system::establish_identity(&storage, CLUSTER, clock.now_secs(), false)?;
        let replica = ReplicaOptions {
            concurrent_reads: 1,
            concurrent_writes: 1,
            memory: Budget::new(1 << 20),
            spawner: Spawner::Inline,
        };
        let options = MemberOptions {
            local: ip(node),
            cluster_name: CLUSTER.to_owned(),
            seeds: vec![ip(1)],
            token: (!is_placeless).then(|| token(node)),
            asks_first: false,
            replaced: None,
            generation: identity.generation,
            phi_convict_threshold: 8.0,
            rpc_timeout: Duration::from_secs(10),
            placements: BTreeMap::new(),
            storage: Arc::clone(&storage),
            replica: Arc::new(Replica::start(Arc::clone(&storage), replica)?),
            stream_bytes_per_second: None,
            hints: None,
            hints_wait_for_sync: false,
            handoff_pause: Duration::ZERO,
            reads: ReadOptions {
                speculative_percentile: None,
                repairs: true,
                dynamic_snitch: None,
            },
            transport: Arc::clone(&self.network) as _,
            clock,
            seed: 1,
        };
        let member = Member::new(options)?;
        let stop = CancellationToken::new();
        let arrivals = self.network.messages_to(&[ip(node)]);
        let receiving = receive(Arc::clone(&member), arrivals);
        let (is_frozen, frozen) = watch::channel(false);
        let running = Arc::clone(&member).run(stop.clone());
        let tasks = [
            tokio::spawn(unless_frozen(frozen.clone(), running)),
            tokio::spawn(unless_frozen(frozen, receiving)),
        ];
        let running = Running { member, storage, stop, tasks, is_frozen, settling: None };
        self.nodes.insert(node, running);
        drop(context);
        self.pass(Duration::from_millis(1));
        Ok(format!("generation {}", identity.generation))
    }

    fn stop(&mut self, node: u8) -> Result<(), Box<dyn Error>> {
        let Running { member, storage, stop, tasks, is_frozen, .. } =
            self.nodes.remove(&node).ok_or("it does not run")?;
        is_frozen.send_replace(false);
        let [running, receiving] = tasks;
        stop.cancel();
        receiving.abort();
        drop(self.network.messages_to(&[ip(node)]));
        self.runtime.block_on(async {
            member.finish().await;
            running.await
        })?;
        storage.close();
        Ok(())
    }

    fn settled(&mut self, node: u8) -> Outcome {
        let settling = self.nodes.get_mut(&node).and_then(|node| node.settling.take());
        let settling = settling.ok_or("it does not settle")?;
        if settling.is_finished() {
            let seconds = self.runtime.block_on(settling)?;
            return Ok(format!("{node} knew its ring after {seconds} s"));
        }
        self.nodes.get_mut(&node).ok_or("it runs")?.settling = Some(settling);
        Ok(format!("{node} waits"))
    }

    /// A node hears states, after digests that list them.
    fn tell(
        &self,
        to: u8,
        from: u8,
        states: Vec<(IpAddr, EndpointState)>,
    ) -> Result<(), Box<dyn Error>> {
        let digest = |(endpoint, state): &(IpAddr, EndpointState)| {
            let (generation, max_version) = state.age();
            Digest { endpoint: *endpoint, generation, max_version }
        };
        let (cluster_name, digests) = (CLUSTER.to_owned(), states.iter().map(digest).collect());
        self.deliver(to, from, &GossipMessage::Syn { cluster_name, digests })?;
        self.deliver(to, from, &GossipMessage::Ack2 { states })
    }

    fn deliver(&self, to: u8, from: u8, message: &GossipMessage) -> Result<(), Box<dyn Error>> {
        let verb = match message.kind() {
            MessageKind::Syn => Verb::GossipDigestSyn,
            MessageKind::Ack => Verb::GossipDigestAck,
            MessageKind::Ack2 => Verb::GossipDigestAck2,
        };
        let body = message.encode()?;
        self.deliver_message(to, &Message::new(7.into(), ip(from), verb, &body))
    }

    fn deliver_message(&self, to: u8, message: &Message<'_>) -> Result<(), Box<dyn Error>> {
        let _guard = self.runtime.enter();
        Ok(self.node(to)?.member.receive(&message.encode()?)?)
    }

    fn refuse(&mut self, nodes: &[u8], known: i32, times: u32) -> Result<(), Box<dyn Error>> {
        for _ in 0..times {
            for &node in nodes {
                let states = vec![
                    (ip(node), self.said.say(node, None, None, &[])),
                    (ip(1), EndpointState::new(known)),
                ];
                self.deliver(1, node, &GossipMessage::Ack { wanted: Vec::new(), states })?;
            }
            self.pass(Duration::from_secs(1));
        }
        Ok(())
    }

    fn knock(&mut self, from: u8) -> Outcome {
        let mut arrivals = self.network.messages_to(&[ip(from)]);
        let (cluster_name, digests) = (CLUSTER.to_owned(), Vec::new());
        self.deliver(1, from, &GossipMessage::Syn { cluster_name, digests })?;
        self.pass(Duration::from_millis(1));
        let mut text = String::new();
        while let Ok(arrived) = arrivals.try_recv() {
            let answer = Message::decode(&arrived)?;
            if answer.verb == Verb::GossipDigestSyn
                && let GossipMessage::Syn { cluster_name, digests } =
                    GossipMessage::decode(MessageKind::Syn, answer.body)?
            {
                writeln!(text, "{cluster_name}, {} digests", digests.len())?;
            }
        }
        Ok(text)
    }

    /// The answers to calls.
    fn call(&mut self, from: u8, names: &[String]) -> Outcome {
        let mut text = String::new();
        for name in names {
            let mut arrivals = self.network.messages_to(&[ip(from)]);
            let mut message = Message::new(7.into(), ip(from), Verb::StreamRequest, b"{}");
            message.headers.push(Header { name: extensions::CALL.into(), value: name.as_bytes() });
            self.deliver_message(1, &message)?;
            self.pass(Duration::from_millis(1));
            while let Ok(arrived) = arrivals.try_recv() {
                let answer = Message::decode(&arrived)?;
                if answer.verb == Verb::ReadResponse {
                    let values = answer.headers.iter().map(|header| header.value);
                    let texts: Vec<_> = values.map(String::from_utf8_lossy).collect();
                    let refusal = texts.iter().find(|text| text.contains("not done for"));
                    match refusal {
                        Some(refusal) => writeln!(text, "{refusal}")?,
                        None => writeln!(text, "{name}: answered")?,
                    }
                }
            }
        }
        Ok(text)
    }

    fn operate(&mut self, command: &Command) -> Result<(), Box<dyn Error>> {
        let _guard = self.runtime.enter();
        match command {
            Command::Learn(node, about) => {
                let place = NodePlace { endpoint: ip(*about), token: token(*about) };
                Host::learn(&*self.node(*node)?.member, &[place]);
            }
            Command::Remove(node, removed) => {
                let place = Lifecycle::Removed(token(*node), token(*removed));
                Host::announce(&*self.node(*node)?.member, &place);
            }
            Command::TakeFirstPlace(node) => {
                Host::announce(&*self.node(*node)?.member, &Lifecycle::First(token(*node)));
            }
            Command::ServeReads(node) => Host::serve_reads(&*self.node(*node)?.member),
            _ => unreachable!("{command:?}"),
        }
        Ok(())
    }

    fn write_later(&self, node: u8) -> Result<(), Box<dyn Error>> {
        let Running { member, storage, .. } = self.node(node)?;
        let (family, _) = storage.schema().families().next().ok_or("no column family")?;
        let mut row = MutationBuilder::new(storage.schema(), system::KEYSPACE, b"\xff");
        row.family(family).insert((b"", b"name"), b"value", 1);
        let rows = [row.finish()];
        Ok(self.runtime.block_on(member.coordinator().write(&rows, ConsistencyLevel::One))?)
    }

    fn serves(&self, node: u8) -> Outcome {
        let Running { member, storage, .. } = self.node(node)?;
        let family = storage.schema().families().next().ok_or("no column family")?.0;
        let key = "a".into();
        let (level, context) = (ConsistencyLevel::One, RequestContext::default());
        let read = member.coordinator().count(family, &key, None, level, &context);
        Ok(match self.runtime.block_on(read) {
            Ok(_) => "served".to_owned(),
            Err(error) => format!("refused: {error}"),
        })
    }

    fn ring(&self, node: u8) -> Outcome {
        let ring = self.node(node)?.member.coordinator().ring();
        let show = |token| Partitioner::Random.display_token(token);
        let mut text: Vec<String> = ring
            .members()
            .map(|(token, endpoint)| format!("{} at {}", node_of(endpoint), show(token)))
            .collect();
        text.extend(ring.former().map(|former| {
            let nodes = former.members().map(|(_, endpoint)| node_of(endpoint).to_string());
            format!("the former ring of {} counts", nodes.collect::<Vec<_>>().join(" "))
        }));
        Ok(text.join(", "))
    }

    fn saved(&self, node: u8) -> Outcome {
        let saved = SavedRing::read(&self.node(node)?.storage)?;
        let show = |(endpoint, token): &(IpAddr, _)| {
            format!("{} at {}", node_of(*endpoint), Partitioner::Random.display_token(token))
        };
        let mut members: Vec<String> = saved.members.iter().map(show).collect();
        members.sort();
        Ok(members.join(", "))
    }

    fn peers(&self, node: u8) -> Outcome {
        let peers = self.node(node)?.member.coordinator().peers();
        let mut text = String::new();
        for (what, nodes) in [
            ("alive", &peers.live),
            ("not read from", &peers.incomplete),
            ("acknowledge nothing", &peers.unsure),
            ("turned away", &peers.removed),
        ] {
            if !nodes.is_empty() {
                let nodes: Vec<String> = nodes.iter().map(|it| node_of(*it).to_string()).collect();
                writeln!(text, "{what}: {}", nodes.join(" "))?;
            }
        }
        if peers.is_self_removed {
            text += "removed itself";
        }
        Ok(text)
    }
}

/// Does work, but not while the node is frozen.
async fn unless_frozen(mut frozen: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    loop {
        // An error means that the node has been stopped.
        let _ = frozen.wait_for(|is_frozen| !is_frozen).await;
        tokio::select! {
            biased;
            Ok(_) = frozen.wait_for(|is_frozen| *is_frozen) => {}
            () = &mut work => return,
        }
    }
}

/// Gives a node the messages that arrive for it.
async fn receive(member: Arc<Member>, mut arrivals: Arrivals<Arc<[u8]>>) {
    while let Some(message) = arrivals.recv().await {
        let _ = member.receive(&message);
    }
}
