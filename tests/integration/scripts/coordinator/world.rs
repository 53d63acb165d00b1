//! Several nodes in one process, on a network and disks that do what a script wants.

use crate::kit::disk::{Operation, SimFileSystem};
use crate::kit::network::{Arrivals, Delivery, Network, RuntimeClock, Sent};
use alexandra::base::budget::Budget;
use alexandra::base::clock::Clock;
use alexandra::base::worker::Spawner;
use alexandra::coordinator::{Coordinator, CoordinatorOptions, Hinting, Peers, ReadOptions};
use alexandra::model::comparator::Comparator;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::net::message::Message;
use alexandra::net::messenger::Messenger;
use alexandra::net::{Drops, Verb};
use alexandra::replica::{
    HINT_SEGMENT_BYTES, HintOptions, HintStore, OwnReadiness, Readiness, Replica, ReplicaOptions,
    Responder, ResponderOptions,
};
use alexandra::ring::{
    DynamicSnitch, Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch, Token, TokenMetadata,
};
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::database::Components;
use alexandra::storage::{Database, FamilyOptions, Options};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// `RpcTimeoutInMillis` of all nodes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// For what shall not happen by itself.
const NEVER: Duration = Duration::from_hours(10_000);

/// Memory for memtables of a node whose disk may stand still.
pub(super) const SMALL_MEMORY: usize = 1 << 20;

/// The arguments of a cluster.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(super) struct Setup {
    /// The data centre of each node.
    pub(super) data_centers: Vec<u8>,
    /// How many of them have a token.
    pub(super) members: usize,
    pub(super) replication_factor: usize,
    /// How many replicas each data centre has, where that is its own matter.
    pub(super) by_data_center: BTreeMap<String, usize>,
    /// Whether the first node has threads for what may have to wait for its disk.
    pub(super) has_threads: bool,
    pub(super) is_batch: bool,
    pub(super) is_ready: bool,
    pub(super) request_bytes: usize,
    pub(super) message_bytes: usize,
    pub(super) hint_bytes: u64,
    pub(super) speculative_percentile: Option<f64>,
    /// Share of the reads that compare all replicas.
    pub(super) repair_chance: f64,
    pub(super) has_dynamic_snitch: bool,
}

/// One node.
pub(super) struct Node {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) replica: Arc<Replica>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) hints: Arc<HintStore>,
    pub(super) storage: Arc<Database>,
    pub(super) disk: SimFileSystem,
    pub(super) snitch: Arc<DynamicSnitch>,
    pub(super) drops: Arc<Drops>,
    pub(super) readiness: Arc<OwnReadiness>,
    pub(super) responder: Arc<Responder>,
    pub(super) is_stalled: bool,
}

/// Treatment of messages of a kind by the network.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub(super) from: Option<IpAddr>,
    pub(super) to: Option<IpAddr>,
    pub(super) verb: Option<Verb>,
    pub(super) delivery: Delivery,
}

impl Rule {
    fn matches(&self, sent: Sent) -> bool {
        self.from.is_none_or(|from| from == sent.from)
            && self.to.is_none_or(|to| to == sent.to)
            && self.verb.is_none_or(|verb| verb == sent.verb)
    }
}

/// Some nodes. Their tokens are "b", "c" and so on: the replicas of "a" are the first, the second,
/// and so on. Time moves when all wait, except while threads are at work.
pub(super) struct World {
    pub(super) nodes: Vec<Node>,
    pub(super) schema: Arc<Schema>,
    pub(super) network: Arc<Network>,
    pub(super) rules: Arc<Mutex<Vec<Rule>>>,
    pub(super) ring: TokenMetadata,
    pub(super) peers: Peers,
    pub(super) outsider: Arrivals<Arc<[u8]>>,
    setup: Setup,
    runtime: Runtime,
}

impl World {
    pub(super) fn start(setup: Setup) -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap();
        let mut ring = TokenMetadata::default();
        for place in 0..setup.members {
            let token = Token::ordered([b'b' + place as u8].as_slice().into());
            ring.insert(token, setup.address(place));
        }
        let network = Arc::new(Network::with_max_body(setup.message_bytes));
        let mut world = Self {
            nodes: Vec::new(),
            schema: Arc::new(schema(setup.repair_chance)),
            network: Arc::clone(&network),
            rules: Arc::default(),
            ring,
            peers: Peers::default(),
            outsider: network.messages_to(&[super::outsider::OUTSIDER]),
            setup,
            runtime,
        };
        let rules = Arc::clone(&world.rules);
        network.rule(move |sent| {
            let rules = rules.lock().unwrap();
            let rule = rules.iter().rev().find(|rule| rule.matches(sent));
            rule.map_or(Delivery::Once, |rule| rule.delivery)
        });
        let entered = world.runtime.enter();
        let clock = RuntimeClock::start();
        let nodes =
            (0..world.setup.data_centers.len()).map(|place| world.start_node(place, &clock));
        let nodes = nodes.collect();
        drop(entered);
        world.nodes = nodes;
        let all: BTreeSet<IpAddr> =
            (0..world.nodes.len()).map(|place| world.setup.address(place)).collect();
        world.peers = Peers {
            live: all.clone(),
            full_digests: all.clone(),
            refusals: all,
            ..Peers::default()
        };
        world.tell_all();
        world
    }

    /// The address of a node, by its number.
    pub(super) fn address(&self, number: usize) -> IpAddr {
        self.setup.address(number - 1)
    }

    /// The number of a node, by its address; 9 is the outsider.
    pub(super) fn number(&self, address: IpAddr) -> usize {
        (1..=self.nodes.len()).find(|number| self.address(*number) == address).unwrap_or(9)
    }

    /// Tells all nodes how the ring is now.
    pub(super) fn tell_all(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            let mut peers = self.peers.clone();
            peers.is_self_removed = peers.removed.contains(&self.setup.address(place));
            node.coordinator.set_ring(self.ring.clone(), peers);
        }
    }

    /// Does work to its end, or, without any node that waits for its disk, holds the time for the
    /// threads that take part.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let has_threads = self.setup.has_threads || self.setup.is_batch;
        let holds_time = has_threads && self.nodes.iter().all(|node| !node.is_stalled);
        self.runtime.block_on(async {
            let (guard, waiter) = mpsc::channel::<()>();
            if holds_time {
                // Time does not move on its own while there is such a task.
                tokio::task::spawn_blocking(move || _ = waiter.recv());
            }
            let done = work.await;
            drop(guard);
            let waits = |node: &Node| {
                let load = node.replica.write_load();
                load.active == 0 && load.waiting > 0
            };
            // A thread has work or soon has: whether it has begun is not to depend on chance.
            while self.nodes.iter().any(waits) {
                std::thread::sleep(Duration::from_millis(1));
            }
            done
        })
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let task = self.runtime.spawn(work);
        // It begins at once.
        self.runtime.block_on(tokio::task::yield_now());
        task
    }

    pub(super) fn advance(&self, by: Duration) {
        self.runtime.block_on(async { tokio::time::sleep(by).await });
    }

    /// The disk of a node stands still, and there is no memory for further writes.
    pub(super) fn stall(&mut self, number: usize) {
        let node = &mut self.nodes[number - 1];
        node.is_stalled = true;
        node.disk.stall(None, "/data");
        let system = self.schema.family_id("system", "Rows").unwrap();
        let columns = [("c".to_owned(), format!("{}B", 2 * SMALL_MEMORY))];
        let filler = super::requests::insert(&self.schema, system, "filler", &columns).unwrap();
        node.storage.apply(&filler, true).unwrap();
    }

    /// Nothing that is written to the commit log of a node becomes durable.
    pub(super) fn stall_syncs(&mut self, number: usize) {
        let node = &mut self.nodes[number - 1];
        node.is_stalled = true;
        node.disk.stall(Some(Operation::Sync), "/log");
    }

    /// The disk of a node goes on; what waited for it is done when this returns.
    pub(super) fn go_on(&mut self, number: usize) {
        let node = &mut self.nodes[number - 1];
        node.is_stalled = false;
        node.disk.go_on();
        let node = &self.nodes[number - 1];
        let is_idle = || {
            let loads = [node.replica.read_load(), node.replica.write_load()];
            let is_busy = loads.iter().any(|load| load.active + load.waiting > 0);
            let is_written = node.storage.flushes_running() == 0;
            // What waits for a sync holds memory until then.
            !is_busy && is_written && node.replica.memory().used() == 0
        };
        self.run(async {
            for _ in 0..2 {
                while !is_idle() {
                    std::thread::sleep(Duration::from_millis(1));
                    tokio::task::yield_now().await;
                }
                tokio::task::yield_now().await;
            }
        });
    }

    /// The disk of a node is full, to the last write that would still find room.
    pub(super) fn fill(&self, number: usize) {
        let node = &self.nodes[number - 1];
        node.disk.set_capacity(Some(0));
        let system = self.schema.family_id("system", "Rows").unwrap();
        for bytes in [1 << 15, 1 << 10, 1] {
            let columns = [("c".to_owned(), format!("{bytes}B"))];
            let filler = super::requests::insert(&self.schema, system, "filler", &columns).unwrap();
            while node.storage.apply(&filler, true).is_ok() {}
        }
    }

    fn start_node(&self, place: usize, clock: &Arc<dyn Clock>) -> Node {
        let (setup, local) = (&self.setup, self.setup.address(place));
        let has_threads = setup.has_threads && place == 0;
        let disk = SimFileSystem::new(place as u64);
        let storage = Arc::new(self.open_storage(&disk, clock, has_threads));
        let replica_options = ReplicaOptions {
            concurrent_reads: 1,
            concurrent_writes: 1,
            memory: Budget::new(setup.request_bytes),
            spawner: if has_threads { Spawner::Threads } else { Spawner::Inline },
        };
        let replica = Replica::start(Arc::clone(&storage), replica_options);
        let replica = Arc::new(replica.unwrap());
        let transport = Arc::clone(&self.network) as _;
        let messenger = Messenger::new(local, TIMEOUT, Arc::clone(clock), transport);
        let messenger = messenger.starting_at(place as i32 + 1);
        let messenger = Arc::new(messenger.with_max_body(setup.message_bytes));
        let hints = Arc::new(self.open_hints(&disk, clock));
        let snitch = Arc::new(DynamicSnitch::default());
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(&self.schema),
            partitioner: Partitioner::OrderPreserving,
            placements: Arc::new(BTreeMap::from([("Blog".to_owned(), setup.placement())]).into()),
            ring: self.ring.clone(),
            peers: Peers::default(),
            local,
            replica: Arc::clone(&replica),
            messenger: Arc::clone(&messenger),
            hinting: Some(Arc::new(Hinting::new(Arc::clone(&hints), setup.is_batch))),
            reads: ReadOptions {
                speculative_percentile: setup.speculative_percentile,
                repairs: true,
                dynamic_snitch: setup.has_dynamic_snitch.then(|| Arc::clone(&snitch)),
            },
            seed: place as u64,
        });
        let drops = Arc::new(Drops::default());
        let readiness = if setup.is_ready { Readiness::Complete } else { Readiness::Unsure };
        let readiness = Arc::new(OwnReadiness::new(readiness));
        let responder = Responder::new(ResponderOptions {
            replica: Arc::clone(&replica),
            schema: Arc::clone(&self.schema),
            partitioner: Partitioner::OrderPreserving,
            messenger: Arc::clone(&messenger),
            hints: Some(Arc::clone(&hints)),
            local,
            drops: Arc::clone(&drops),
            readiness: Arc::clone(&readiness),
        });
        let arrivals = self.network.messages_to(&[local]);
        tokio::spawn(receive(arrivals, Arc::clone(&messenger), Arc::clone(&responder)));
        tokio::spawn(keep_up(Arc::clone(&coordinator), Arc::clone(clock)));
        Node {
            coordinator,
            replica,
            messenger,
            hints,
            storage,
            disk,
            snitch,
            drops,
            readiness,
            responder,
            is_stalled: false,
        }
    }

    fn open_storage(
        &self,
        disk: &SimFileSystem,
        clock: &Arc<dyn Clock>,
        is_small: bool,
    ) -> Database {
        let fs = Arc::new(disk.clone());
        let components = Components::new(fs, clock.clone());
        let options = Options {
            sync: if self.setup.is_batch {
                SyncPolicy::Batch { window: Duration::ZERO }
            } else {
                SyncPolicy::Periodic { every: NEVER }
            },
            // The next segment would have to be synced where syncs stand still.
            segment_bytes: if self.setup.is_batch { 8 << 20 } else { 1 << 16 },
            memtable_budget_bytes: if is_small { SMALL_MEMORY as u64 } else { 1 << 30 },
            // What was flushed is read from the disk.
            block_cache_bytes: 0,
            ..Options::new("/data", "/log")
        };
        let family = |_: FamilyId| FamilyOptions {
            memtable_age: NEVER,
            min_compaction_threshold: 0,
            max_compaction_threshold: 0,
            ..FamilyOptions::default()
        };
        let (partitioner, schema) = (Partitioner::OrderPreserving, Arc::clone(&self.schema));
        Database::open(components, options, partitioner, schema, family).unwrap()
    }

    fn open_hints(&self, disk: &SimFileSystem, clock: &Arc<dyn Clock>) -> HintStore {
        let day = Duration::from_hours(24);
        let options = HintOptions {
            directory: "/hints".into(),
            max_age: day,
            max_bytes_per_target: self.setup.hint_bytes,
            segment_bytes: HINT_SEGMENT_BYTES,
            schema: Arc::clone(&self.schema),
        };
        let rng = fastrand::Rng::with_seed(1);
        HintStore::open(Arc::new(disk.clone()), Arc::clone(clock), rng, options).unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for node in &self.nodes {
            // Threads that wait for it would never end.
            node.disk.go_on();
        }
    }
}

impl Setup {
    fn address(&self, place: usize) -> IpAddr {
        [127, self.data_centers[place], 0, place as u8 + 1].into()
    }

    fn placement(&self) -> ReplicaPlacement {
        let snitch = Snitch::EndPoint;
        if self.by_data_center.is_empty() {
            let strategy = ReplicationStrategy::RackUnaware;
            let replication_factor = self.replication_factor;
            return ReplicaPlacement { strategy, replication_factor, snitch };
        }
        ReplicaPlacement::per_data_center(self.by_data_center.clone(), snitch)
    }
}

fn schema(read_repair_chance: f64) -> Schema {
    let columns = Comparator::Bytes;
    let standard = ColumnFamilyKind::Standard { columns: columns.clone() };
    let supers = ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns };
    let families = [("Blog", "Rows", &standard), ("Blog", "Supers", &supers)];
    Schema::new(families.into_iter().chain([("system", "Rows", &standard)]).map(
        |(keyspace, name, kind)| {
            let (keyspace, name) = (keyspace.to_owned(), name.to_owned());
            let family = ColumnFamilySchema::new(keyspace, name, kind.clone());
            Arc::new(ColumnFamilySchema { read_repair_chance, ..family })
        },
    ))
}

async fn receive(
    mut arrivals: Arrivals<Arc<[u8]>>,
    messenger: Arc<Messenger>,
    responder: Arc<Responder>,
) {
    while let Some(payload) = arrivals.recv().await {
        let message = Message::decode(&payload).unwrap();
        match message.verb {
            Verb::ReadResponse => messenger.on_response(&message),
            _ => assert!(responder.receive(&message)),
        }
    }
}

async fn keep_up(coordinator: Arc<Coordinator>, clock: Arc<dyn Clock>) {
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        coordinator.upkeep(clock.monotonic());
    }
}
