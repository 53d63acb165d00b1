//! A cluster of processes.

use crate::server::calls::plain_families;
use crate::server::client::{CallError, Client};
use crate::server::{Options, Server, configure, is_free, program, reconfigure, serve};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::ring::{Partitioner, TokenMetadata};
use serde_json::Value;
use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How long a test waits for what nodes do in the background.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// `RpcTimeoutInMillis` of all nodes.
pub(crate) const RPC_TIMEOUT: Duration = Duration::from_secs(5);

/// The ports of all nodes: their addresses differ.
const THRIFT_PORT: u16 = 9160;
const STORAGE_PORT: u16 = 7000;
const ADMIN_PORT: u16 = 8080;

/// One node: its place, and its process while it runs.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) address: Ipv4Addr,
    pub(crate) directory: PathBuf,
    server: Option<Server>,
}

/// Nodes whose tokens divide the ring evenly. They are killed when this is dropped, and their data
/// are removed.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    /// The first three octets of all addresses.
    network: [u8; 3],
    options: Options,
    directory: TempDir,
}

/// Settings of all nodes of a cluster: so many replicas, and these elements.
pub(crate) fn replicated(factor: usize) -> Options {
    replicated_in(plain_families(), factor)
}

/// The same of another configuration.
pub(crate) fn replicated_in(options: Options, factor: usize) -> Options {
    options
        .with("ReplicationFactor", &factor.to_string())
        .with("RpcTimeoutInMillis", &RPC_TIMEOUT.as_millis().to_string())
        // The least that is taken: nodes that are killed are noticed the sooner.
        .with("PhiConvictThreshold", "5")
}

/// The same without hints, so that what a node misses stays missing until a read repairs it.
pub(crate) fn without_hints(factor: usize) -> Options {
    replicated(factor).with("HintedHandoffEnabled", "false")
}

impl Cluster {
    /// Starts so many nodes and waits until each of them sees all others.
    pub(crate) fn start(count: usize, options: Options) -> Self {
        let network = free_network(count);
        let directory = tempfile::tempdir().unwrap();
        let mut cluster = Self { nodes: Vec::new(), network, options, directory };
        let tokens: Vec<String> = tokens(count).iter().map(u128::to_string).collect();
        for token in tokens {
            cluster.add(&Options::default().with("InitialToken", &token));
        }
        let all: Vec<usize> = (0..count).collect();
        cluster.launch(&all);
        for (observer, target) in pairs(count) {
            cluster.wait_until_seen(observer, target, true);
        }
        cluster
    }

    /// Configures one more node, which is not started, and tells its number.
    pub(crate) fn add(&mut self, own: &Options) -> usize {
        let number = self.nodes.len();
        let [a, b, c] = self.network;
        let at = |number: usize| Ipv4Addr::new(a, b, c, number as u8 + 1);
        let address = at(number);
        let directory = self.directory.path().join(format!("node{}", number + 1));
        std::fs::create_dir(&directory).unwrap();
        let text = address.to_string();
        let seeds = format!("<Seed>{}</Seed><Seed>{}</Seed>", at(0), at(1));
        let options = self
            .options
            .clone()
            .with("Seeds", &seeds)
            .with("ListenAddress", &text)
            .with("ThriftAddress", &text)
            .with("AdminAddress", &text)
            .with("StoragePort", &STORAGE_PORT.to_string())
            .with("ThriftPort", &THRIFT_PORT.to_string())
            .with("AdminPort", &ADMIN_PORT.to_string());
        configure(&directory, &options);
        reconfigure(&directory, own);
        self.nodes.push(Node { address, directory, server: None });
        number
    }

    /// Starts nodes at a time, since they wait for each other, until all accept Thrift calls.
    pub(crate) fn launch(&mut self, numbers: &[usize]) {
        thread::scope(|scope| {
            let chosen = self.nodes.iter_mut().enumerate();
            for (_, node) in chosen.filter(|(number, _)| numbers.contains(number)) {
                scope.spawn(move || node.launch());
            }
        });
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].server = None;
    }

    /// Ends a node in order.
    pub(crate) fn stop(&mut self, number: usize) {
        let mut server = self.nodes[number].server.take().unwrap();
        assert!(server.stop().success(), "{}", server.log_end());
    }

    /// The process of a node that runs.
    pub(crate) fn server(&self, number: usize) -> &Server {
        self.nodes[number].server.as_ref().expect("the node runs")
    }

    /// A client of this node, at ONE.
    pub(crate) fn client(&self, number: usize) -> Client {
        Client::connect(self.nodes[number].thrift())
    }

    /// Output of `nodetool` about a node.
    pub(crate) fn nodetool(&self, number: usize, arguments: &[&str]) -> String {
        let output = self.try_nodetool(number, arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Outcome of a command of `nodetool` that may be refused.
    pub(crate) fn try_nodetool(&self, number: usize, arguments: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(["nodetool", "-h", &self.nodes[number].address.to_string()]);
        command.args(arguments).output().unwrap()
    }

    /// Waits until a node takes another one for alive, or for dead.
    #[track_caller]
    pub(crate) fn wait_until_seen(&self, observer: usize, target: usize, is_up: bool) {
        let address = self.nodes[target].address.to_string();
        let what = format!("node {target} seen by node {observer}, alive: {is_up}");
        wait_until(&what, || {
            let ring = self.nodes[observer].ask("ring");
            let endpoints = ring["endpoints"].as_array().unwrap().clone();
            let seen = endpoints.into_iter().find(|endpoint| endpoint["address"] == *address);
            seen.is_some_and(|it| it["state"] == "Normal" && (it["status"] == "Up") == is_up)
        });
    }

    /// Waits until nobody among these nodes waits for an answer or has anything left to tell.
    #[track_caller]
    pub(crate) fn wait_for_hints(&self, holders: &[usize]) {
        for &holder in holders {
            wait_until(&format!("the hints of node {holder} are delivered"), || {
                let node = &self.nodes[holder];
                // A request that is given up leaves a hint: so in this order.
                node.ask("messages")["pending_requests"] == 0
                    && node.ask("hints")["targets"].as_array().unwrap().is_empty()
            });
        }
    }

    /// The token of a node, as the first node knows it.
    pub(crate) fn token_of(&self, number: usize) -> String {
        let ring = self.nodes[0].ask("ring");
        let address = self.nodes[number].address.to_string();
        let endpoints = ring["endpoints"].as_array().unwrap();
        let found = endpoints.iter().find(|it| it["address"] == *address).unwrap();
        found["token"].as_str().unwrap().to_owned()
    }

    /// The number of the node whose primary range holds a key.
    pub(crate) fn owner(&self, key: &str) -> usize {
        let mut ring = TokenMetadata::default();
        for (node, token) in self.nodes.iter().zip(tokens(self.nodes.len())) {
            let token = Partitioner::Random.parse_token(&token.to_string()).unwrap();
            ring.insert(token, IpAddr::V4(node.address));
        }
        let token = Partitioner::Random.token(key.as_bytes());
        let owner = ring.endpoints_from(&token).next().unwrap();
        self.nodes.iter().position(|node| IpAddr::V4(node.address) == owner).unwrap()
    }
}

impl Node {
    /// Where it serves clients.
    pub(crate) fn thrift(&self) -> SocketAddr {
        SocketAddr::from((self.address, THRIFT_PORT))
    }

    /// Where it listens for other nodes.
    pub(crate) fn storage(&self) -> SocketAddr {
        SocketAddr::from((self.address, STORAGE_PORT))
    }

    /// Starts it and waits until it accepts Thrift calls.
    pub(crate) fn launch(&mut self) {
        self.launch_with(&[]);
    }

    /// The same with more on its command line.
    pub(crate) fn launch_with(&mut self, arguments: &[&str]) {
        let mut command = serve(&self.directory);
        command.args(arguments);
        self.server = Some(Server::launch(&self.directory, self.thrift(), command));
    }

    /// Starts it and does not wait for anything.
    pub(crate) fn begin(&mut self) {
        self.begin_with(&[]);
    }

    /// The same with more on its command line.
    pub(crate) fn begin_with(&mut self, arguments: &[&str]) {
        let mut command = serve(&self.directory);
        command.args(arguments);
        self.server = Some(Server::begin(&self.directory, self.thrift(), command));
    }

    /// Whether its admin side is there.
    pub(crate) fn is_asked(&self) -> bool {
        TcpStream::connect((self.address, ADMIN_PORT)).is_ok()
    }

    /// Answer of its admin side.
    #[track_caller]
    pub(crate) fn ask(&self, resource: &str) -> Value {
        let answer = self.try_ask(resource).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    /// The same of a node that may have ended: head and body.
    pub(crate) fn try_ask(&self, resource: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((self.address, ADMIN_PORT))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = self.address;
        let head = format!("GET /api/v1/{resource} HTTP/1.1\r\nHost: {host}\r\n");
        stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

/// Asks until the answer is the wanted one.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// `UnavailableException`, which is the second of all data calls.
#[track_caller]
pub(crate) fn assert_unavailable<T: Debug>(result: &Result<T, CallError>) {
    let is_unavailable = matches!(result, Err(CallError::Declared { field: 2, .. }));
    assert!(is_unavailable, "{result:?}");
}

/// Tokens that divide the ring evenly.
fn tokens(count: usize) -> Vec<u128> {
    let step = (1 << 127) / count as u128;
    (0..count as u128).map(|place| place * step).collect()
}

fn pairs(count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..count).flat_map(move |a| (0..count).map(move |b| (a, b))).filter(|(a, b)| a != b)
}

/// Three octets below 127, at random, with nobody at the ports that a cluster takes.
pub(crate) fn free_network(count: usize) -> [u8; 3] {
    let is_free = |[a, b, c]: &[u8; 3]| {
        (1..=count as u8 + 1).all(|d| {
            let address = Ipv4Addr::new(*a, *b, *c, d);
            let ports = [THRIFT_PORT, STORAGE_PORT, ADMIN_PORT];
            ports.iter().all(|port| is_free(SocketAddr::from((address, *port))))
        })
    };
    let network = || [127, fastrand::u8(1..255), fastrand::u8(..)];
    (0..100).map(|_| network()).find(is_free).expect("all of 127.0.0.0/8 leads to this machine")
}
