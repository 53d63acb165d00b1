//! Nodes in one process: storages on disks in memory, a network, a ring that all know.

use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Network, RuntimeClock};
use crate::scripts::repair::host::{Board, Seat};
use crate::scripts::repair::original::Original;
use alexandra::base::clock::Clock;
use alexandra::base::worker::Spawner;
use alexandra::model::comparator::Comparator;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::net::Verb;
use alexandra::net::message::Message;
use alexandra::net::messenger::Messenger;
use alexandra::repair::{
    Host, OperationError, OperationReport, Operations, OperationsOptions, RingSnapshot, StartMode,
};
use alexandra::ring::{
    KeyspacePlacements, Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token,
    TokenMetadata,
};
use alexandra::storage::Database;
use alexandra::storage::database::Components;
use alexandra::storage::options::{FamilyOptions, Options};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Families of the keyspaces that are replicated.
const BLOG: &str = "Blog";
const SHOP: &str = "Shop";

/// How long deletions stay.
const GRACE: Duration = Duration::from_hours(1);

/// How long a script waits for the end of an operation.
const PATIENCE: Duration = Duration::from_hours(12);

/// Events since they were told last.
#[derive(Debug, Clone, Default)]
pub(super) struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    pub(super) fn tell(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Address of a node, which scripts know by its number.
pub(super) fn address(node: u8) -> IpAddr {
    [10, 0, 0, node].into()
}

pub(super) fn number(address: IpAddr) -> u8 {
    let IpAddr::V4(address) = address else { panic!("{address} is of no node") };
    address.octets()[3]
}

/// A token as scripts write it: a key, or a part of the ring.
pub(super) fn spell_token(partitioner: Partitioner, token: &Token) -> String {
    match token {
        Token::Random(at) if *at > 0 && at.is_multiple_of(1 << 120) => {
            let shift = at.trailing_zeros();
            format!("{}/{}", *at >> shift, 1_u128 << (127 - shift))
        }
        token => partitioner.display_token(token),
    }
}

/// The part of a node that a restart makes anew.
pub(super) struct Process {
    pub(super) storage: Arc<Database>,
    pub(super) operations: Arc<Operations>,
}

pub(super) struct Node {
    pub(super) fs: SimFileSystem,
    messenger: Arc<Messenger>,
    pub(super) host: Arc<dyn Host>,
    /// None while it is started anew.
    process: Arc<Mutex<Option<Arc<Process>>>>,
    start: Option<JoinHandle<Result<(), OperationError>>>,
}

/// How a world begins.
pub(super) struct Plan {
    pub(super) partitioner: Partitioner,
    pub(super) replicas: usize,
    /// Tokens of the nodes, none for those that have no place yet.
    pub(super) places: BTreeMap<u8, Option<Token>>,
    /// Which of the nodes are of 0.6.
    pub(super) originals: Vec<u8>,
}

pub(super) struct World {
    clock: Arc<dyn Clock>,
    replicas: usize,
    pub(super) network: Arc<Network>,
    pub(super) board: Arc<Board>,
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) originals: BTreeMap<u8, Arc<Original>>,
}

impl World {
    /// Starts nodes. Must be called within a runtime.
    pub(super) fn start(plan: &Plan, story: &Story) -> Self {
        let (network, clock) = (Arc::<Network>::default(), RuntimeClock::start());
        let mut ring = TokenMetadata::default();
        for (node, token) in &plan.places {
            if let Some(token) = token {
                ring.insert(token.clone(), address(*node));
            }
        }
        let all = || plan.places.keys().copied();
        let look = RingSnapshot {
            members: alexandra::gossip::Members { ring, ..Default::default() },
            live: all().map(address).collect(),
            callable: all().filter(|it| !plan.originals.contains(it)).map(address).collect(),
            generations: all().map(|it| (address(it), 1)).collect(),
            ..RingSnapshot::default()
        };
        let board = Board::new(plan.partitioner, story, look);
        let mut world = Self {
            clock,
            replicas: plan.replicas,
            network,
            board,
            nodes: BTreeMap::new(),
            originals: BTreeMap::new(),
        };
        for node in all() {
            if plan.originals.contains(&node) {
                let original = Original::start(&world, node);
                world.originals.insert(node, original);
            } else {
                let started = world.start_node(node);
                world.nodes.insert(node, started);
            }
        }
        Original::take_files(&world);
        world
    }

    pub(super) fn messenger(&self, node: u8, network: &Arc<Network>) -> Arc<Messenger> {
        let (timeout, transport) = (Duration::from_secs(10), Arc::clone(network) as _);
        Arc::new(Messenger::new(address(node), timeout, Arc::clone(&self.clock), transport))
    }

    fn start_node(&self, node: u8) -> Node {
        let fs = SimFileSystem::new(node.into());
        let messenger = self.messenger(node, &self.network);
        let seat = Seat { local: address(node), board: Arc::clone(&self.board) };
        let host: Arc<dyn Host> = Arc::new(seat);
        let process = self.process(&fs, &messenger, &host);
        let process = Arc::new(Mutex::new(Some(Arc::new(process))));
        let node = Node { fs, messenger, host, process, start: None };
        tokio::spawn(node.receive(&self.network));
        node
    }

    /// A node as it is started.
    pub(super) fn process(
        &self,
        fs: &SimFileSystem,
        messenger: &Arc<Messenger>,
        host: &Arc<dyn Host>,
    ) -> Process {
        let storage = self.open(fs);
        let placement = || ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: self.replicas,
            snitch: Snitch::EndPoint,
        };
        let placements = BTreeMap::from([BLOG, SHOP].map(|it| (it.to_owned(), placement())));
        let operations = Operations::new(OperationsOptions {
            storage: Arc::clone(&storage),
            messenger: Arc::clone(messenger),
            placements: Arc::new(KeyspacePlacements::from(placements)),
            clock: Arc::clone(&self.clock),
            host: Arc::downgrade(host),
            spawner: Spawner::Inline,
            bytes_per_second: None,
            seed: number(messenger.local()).into(),
        });
        Process { storage, operations }
    }

    /// A storage in which nothing is compacted by itself.
    pub(super) fn open(&self, fs: &SimFileSystem) -> Arc<Database> {
        let components = Components::new(Arc::new(fs.clone()), self.clock.clone());
        let standard = || ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let bytes = Comparator::Bytes;
        let supers = ColumnFamilyKind::Super { super_columns: bytes.clone(), columns: bytes };
        let families = [
            (BLOG, "Authors", standard()),
            (BLOG, "Comments", supers),
            (SHOP, "Orders", standard()),
            ("system", "LocationInfo", standard()),
        ];
        let families = families.map(|(keyspace, name, kind)| {
            let (keyspace, name) = (keyspace.into(), name.into());
            let family = ColumnFamilySchema::new(keyspace, name, kind);
            Arc::new(ColumnFamilySchema { gc_grace: GRACE, ..family })
        });
        let options = Options {
            segment_bytes: 1 << 20,
            block_cache_bytes: 1 << 20,
            ..Options::new("/data", "/log")
        };
        let family = |_| FamilyOptions { max_compaction_threshold: 0, ..FamilyOptions::default() };
        let (partitioner, schema) = (self.board.partitioner, Arc::new(Schema::new(families)));
        Arc::new(Database::open(components, options, partitioner, schema, family).unwrap())
    }

    pub(super) fn now_secs(&self) -> i32 {
        self.clock.now_secs()
    }

    pub(super) fn node(&mut self, node: u8) -> Result<&mut Node, String> {
        self.nodes.get_mut(&node).ok_or(format!("{node} is no node of ours"))
    }

    pub(super) fn original(&self, node: u8) -> Result<&Arc<Original>, String> {
        self.originals.get(&node).ok_or(format!("{node} is no node of 0.6"))
    }

    /// Ends the process of a node and starts it anew, on the same disk.
    pub(super) async fn restart(&mut self, node: u8) -> Result<(), String> {
        if self.originals.contains_key(&node) {
            *self.board.look.lock().unwrap().generations.entry(address(node)).or_default() += 1;
            return Ok(());
        }
        let before = self.node(node)?.process();
        before.operations.stop().await;
        before.storage.close();
        drop(before);
        let Node { fs, messenger, host, process, .. } = &self.nodes[&node];
        // Its disk is locked as long as it runs.
        *process.lock().unwrap() = None;
        *process.lock().unwrap() = Some(Arc::new(self.process(fs, messenger, host)));
        Ok(())
    }

    /// The token that a script means by a key, or by a part of the ring like `3/8`.
    pub(super) fn token(partitioner: Partitioner, text: &str) -> Token {
        let part = text.split_once('/').filter(|_| partitioner == Partitioner::Random);
        let part = part.and_then(|(n, of)| {
            let of = of.parse::<u128>().ok()?;
            Some(Token::Random((1 << 127) / of * n.parse::<u128>().ok()?))
        });
        part.unwrap_or_else(|| partitioner.token(text.as_bytes()))
    }
}

impl Node {
    pub(super) fn process(&self) -> Arc<Process> {
        Arc::clone(self.process.lock().unwrap().as_ref().unwrap())
    }

    pub(super) fn storage(&self) -> Arc<Database> {
        Arc::clone(&self.process().storage)
    }

    /// Takes messages, and does what is to be done once in a second.
    fn receive(&self, network: &Network) -> impl Future<Output = ()> + Send + 'static {
        let mut arrivals = network.messages_to(&[self.messenger.local()]);
        let (messenger, process) = (Arc::clone(&self.messenger), Arc::clone(&self.process));
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        async move {
            loop {
                let arrived = tokio::select! {
                    biased;
                    arrived = arrivals.recv() => arrived,
                    _ = ticks.tick() => {
                        messenger.expire();
                        if let Some(now) = process.lock().unwrap().clone() {
                            now.operations.tidy();
                        }
                        continue;
                    }
                };
                let Some(payload) = arrived else { return };
                let message = Message::decode(&payload).unwrap();
                if message.verb == Verb::ReadResponse {
                    messenger.on_response(&message);
                } else {
                    let now = process.lock().unwrap().clone();
                    assert!(now.unwrap().operations.receive(&message), "{message:?}");
                }
            }
        }
    }

    /// Begins to become a member.
    pub(super) fn start(&mut self, beginning: StartMode) {
        let process = self.process();
        let start = async move { process.operations.become_member(&beginning).await };
        self.start = Some(tokio::spawn(start));
    }

    /// Waits for the end of what the node does.
    pub(super) async fn end(&mut self) -> Result<OperationReport, String> {
        let operations = Arc::clone(&self.process().operations);
        let start = self.start.take();
        let end = async {
            if let Some(start) = start {
                start.await.unwrap().map_err(|error| error.to_string())?;
            }
            loop {
                let report = operations.report().ok_or("this node has done nothing")?;
                match &report.outcome {
                    Some(Ok(_)) => return Ok(report),
                    Some(Err(why)) => return Err(why.clone()),
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let late = |_| format!("it has not ended after {} h", PATIENCE.as_secs() / 3600);
        tokio::time::timeout(PATIENCE, end).await.map_err(late)?
    }
}

/// The families of a name; all of keyspace Blog if there is none.
pub(super) fn families(storage: &Database, name: Option<&str>) -> Result<Vec<FamilyId>, String> {
    let schema = storage.schema();
    let is_meant = |it: &ColumnFamilySchema| match name {
        Some(name) => it.name == name,
        None => it.keyspace == BLOG,
    };
    let found: Vec<FamilyId> =
        schema.families().filter(|(_, it)| is_meant(it)).map(|(id, _)| id).collect();
    if found.is_empty() { Err(format!("there is no family {name:?}")) } else { Ok(found) }
}
