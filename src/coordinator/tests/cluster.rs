//! Several nodes in one process: each has a coordinator, answers the others, and keeps its rows in
//! memory.

use super::MemoryStore;
use crate::base::budget::Budget;
use crate::base::clock::Clock;
use crate::coordinator::{
    ConsistencyLevel, Coordinator, CoordinatorError, CoordinatorOptions, Hinting, Peers,
    ReadOptions,
};
use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Arrivals, Network, RuntimeClock};
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::{RowSlice, Slice};
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::net::{Drops, Verb};
use crate::replica::{
    HINT_SEGMENT_BYTES, HintOptions, HintStore, LocalStore, OwnReadiness, Readiness, Replica,
    ReplicaOptions, Responder, ResponderOptions,
};
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, RowRange, Snitch, Token, TokenMetadata,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The standard column family.
pub(super) const ROWS: FamilyId = FamilyId(0);

/// The super column family.
pub(super) const SUPERS: FamilyId = FamilyId(1);

/// `RpcTimeoutInMillis` of all nodes.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// One node.
pub(super) struct ClusterNode {
    pub(super) coordinator: Arc<Coordinator>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) messenger: Arc<Messenger>,
    pub(super) hints: Arc<HintStore>,
}

/// How a cluster is made.
#[derive(Debug, Clone)]
pub(super) struct ClusterOptions {
    pub(super) replication_factor: usize,
    /// Of the store of each replica: whether nothing is left to threads.
    pub(super) runs_inline: bool,
    pub(super) hints_wait_for_sync: bool,
    pub(super) max_answer_bytes: usize,
    /// Longest body of a message.
    pub(super) max_body_bytes: usize,
    pub(super) speculative_percentile: Option<f64>,
    /// Share of the reads that compare all replicas.
    pub(super) repair_chance: f64,
    pub(super) has_dynamic_snitch: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            replication_factor: 3,
            runs_inline: true,
            hints_wait_for_sync: false,
            max_answer_bytes: 1 << 28,
            max_body_bytes: usize::MAX,
            speculative_percentile: None,
            repair_chance: 0.0,
            has_dynamic_snitch: false,
        }
    }
}

/// Some nodes. Their tokens are "b", "c" and so on, and their order is that of the ring: the
/// replicas of "a" are the first, the second, and so on.
pub(super) struct Cluster {
    pub(super) schema: Arc<Schema>,
    pub(super) network: Arc<Network>,
    pub(super) ring: TokenMetadata,
    pub(super) nodes: Vec<ClusterNode>,
    /// Whether nodes announce that they say why they refuse a read.
    pub(super) refuses: bool,
}

/// The address of a node, by its place.
pub(super) fn address(place: usize) -> IpAddr {
    [127, 0, 0, place as u8 + 1].into()
}

impl Cluster {
    /// So many nodes, all of them alive.
    pub(super) fn start(count: usize, options: &ClusterOptions) -> Self {
        let schema = Arc::new(schema());
        let mut ring = TokenMetadata::default();
        for place in 0..count {
            ring.insert(Token::ordered([b'b' + place as u8].as_slice().into()), address(place));
        }
        let network = Arc::new(Network::with_max_body(options.max_body_bytes));
        let clock = RuntimeClock::start();
        let node = |place| start_node(place, &schema, &ring, &network, &clock, options);
        let nodes = (0..count).map(node).collect();
        let cluster = Self { schema, network, ring, nodes, refuses: true };
        cluster.set_live(&(0..count).collect::<Vec<_>>());
        cluster
    }

    /// From now on only these seem alive.
    pub(super) fn set_live(&self, places: &[usize]) {
        let live: BTreeSet<IpAddr> = places.iter().map(|place| address(*place)).collect();
        for node in &self.nodes {
            let refusals = if self.refuses { live.clone() } else { BTreeSet::new() };
            let peers = Peers {
                full_digests: live.clone(),
                live: live.clone(),
                refusals,
                ..Peers::default()
            };
            node.coordinator.set_ring(self.ring.clone(), peers);
        }
    }

    /// Writes a column of the row "a" by a node.
    pub(super) async fn write(
        &self,
        place: usize,
        column: &str,
        at: i64,
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        let mutation = self.insert("a", column, at);
        self.nodes[place].coordinator.write(&[mutation], level).await
    }

    /// Writes rows by a node.
    pub(super) async fn write_all(
        &self,
        place: usize,
        rows: &[RowMutation],
        level: ConsistencyLevel,
    ) -> Result<(), CoordinatorError> {
        self.nodes[place].coordinator.write(rows, level).await
    }

    /// A write of one column, with a value that tells its timestamp.
    pub(super) fn insert(&self, key: &str, column: &str, at: i64) -> RowMutation {
        let mut builder = MutationBuilder::new(&self.schema, "Blog", key.as_bytes());
        let value = at.to_string();
        builder.family(ROWS).insert((b"", column.as_bytes()), value.as_bytes(), at);
        builder.finish()
    }

    /// Writes to the store of one node, behind the backs of the others.
    pub(super) fn put(&self, place: usize, mutation: &RowMutation) {
        self.nodes[place].store.apply(std::slice::from_ref(mutation), true).unwrap();
    }

    /// Reads a row by a node: the names of the columns, and their values.
    pub(super) async fn read(
        &self,
        place: usize,
        key: &str,
        slice: &Slice,
        level: ConsistencyLevel,
    ) -> Result<String, CoordinatorError> {
        let coordinator = &self.nodes[place].coordinator;
        let (key, mut ticket) = (RowKey::from(key), coordinator.ticket());
        let row = coordinator.read(ROWS, &key, slice, level, &mut ticket).await?;
        Ok(text(&row))
    }

    /// The first rows of all by a node: the key and the columns of each.
    pub(super) async fn scan(
        &self,
        place: usize,
        max_rows: usize,
        level: ConsistencyLevel,
    ) -> Result<Vec<String>, CoordinatorError> {
        let coordinator = &self.nodes[place].coordinator;
        let (ranges, all, mut ticket) = ([RowRange::all()], Slice::all(None), coordinator.ticket());
        let rows = coordinator.scan(ROWS, &ranges, &all, max_rows, level, &mut ticket).await?;
        Ok(rows.iter().map(|(key, row)| format!("{key}: {}", text(row))).collect())
    }

    /// The columns that one node has of the row "a".
    pub(super) fn columns(&self, place: usize) -> String {
        let all = Slice::all(None);
        text(&self.nodes[place].store.stored(ROWS, "a").resolve(self.schema.family(ROWS), &all))
    }

    /// How many hints a node has for another.
    pub(super) fn hints(&self, place: usize, target: usize) -> u64 {
        let targets = self.nodes[place].hints.targets();
        targets.iter().find(|it| it.target == address(target)).map_or(0, |it| it.hints)
    }
}

/// `name=value` of each column.
pub(super) fn text(row: &RowSlice) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let column = |cell: &Cell| format!("{}={}", text(cell.name()), text(cell.value()));
    row.cells.iter().map(column).collect::<Vec<_>>().join(" ")
}

fn schema() -> Schema {
    let columns = Comparator::Bytes;
    let standard = ColumnFamilyKind::Standard { columns: columns.clone() };
    let supers = ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns };
    let family = |keyspace: &str, name: &str, kind: &ColumnFamilyKind| {
        Arc::new(ColumnFamilySchema {
            keyspace: keyspace.to_owned(),
            name: name.to_owned(),
            kind: kind.clone(),
            comment: None,
        })
    };
    Schema::new([
        family("Blog", "Rows", &standard),
        family("Blog", "Supers", &supers),
        family("system", "Rows", &standard),
    ])
}

fn start_node(
    place: usize,
    schema: &Arc<Schema>,
    ring: &TokenMetadata,
    network: &Arc<Network>,
    clock: &Arc<dyn Clock>,
    options: &ClusterOptions,
) -> ClusterNode {
    let (partitioner, local) = (Partitioner::OrderPreserving, address(place));
    let store = Arc::new(MemoryStore::new(Arc::clone(schema), partitioner));
    let replica_options = ReplicaOptions {
        concurrent_reads: 1,
        concurrent_writes: 1,
        memory: Budget::new(options.max_answer_bytes),
        runs_inline: options.runs_inline,
    };
    let replica = Arc::new(Replica::start(Arc::clone(&store) as _, replica_options).unwrap());
    let messenger = Messenger::new(local, TIMEOUT, Arc::clone(clock), Arc::clone(network) as _);
    let messenger = messenger.starting_at(place as i32 + 1).with_max_body(options.max_body_bytes);
    let messenger = Arc::new(messenger);
    let hints = open_hints(schema, clock);
    let placement = ReplicaPlacement {
        strategy: ReplicationStrategy::RackUnaware,
        replication_factor: options.replication_factor,
        snitch: Snitch::EndPoint,
    };
    let coordinator = Coordinator::new(CoordinatorOptions {
        schema: Arc::clone(schema),
        partitioner,
        placements: BTreeMap::from([("Blog".to_owned(), placement)]),
        ring: ring.clone(),
        peers: Peers::default(),
        local,
        replica: Arc::clone(&replica),
        messenger: Arc::clone(&messenger),
        hinting: Some(Arc::new(Hinting::new(Arc::clone(&hints), options.hints_wait_for_sync))),
        reads: ReadOptions {
            speculative_percentile: options.speculative_percentile,
            repairs: true,
            repair_chances: vec![options.repair_chance; 3],
            dynamic_snitch: options.has_dynamic_snitch.then(Arc::default),
        },
    });
    let responder = Responder::new(ResponderOptions {
        replica: Arc::clone(&replica),
        schema: Arc::clone(schema),
        partitioner,
        messenger: Arc::clone(&messenger),
        hints: Some(Arc::clone(&hints)),
        local,
        drops: Arc::new(Drops::default()),
        readiness: Arc::new(OwnReadiness::new(Readiness::Complete)),
    });
    let arrivals = network.messages_to(&[local]);
    tokio::spawn(receive(arrivals, Arc::clone(&messenger), responder));
    tokio::spawn(keep_up(Arc::clone(&coordinator), Arc::clone(clock)));
    ClusterNode { coordinator, store, messenger, hints }
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

fn open_hints(schema: &Arc<Schema>, clock: &Arc<dyn Clock>) -> Arc<HintStore> {
    let day = Duration::from_secs(86400);
    let options = HintOptions {
        directory: "/hints".into(),
        max_age: day,
        max_bytes_per_target: 1 << 30,
        segment_bytes: HINT_SEGMENT_BYTES,
        schema: Arc::clone(schema),
        gc_grace: [ROWS, SUPERS].into_iter().map(|family| (family, day)).collect(),
    };
    let fs = Arc::new(SimFileSystem::new(1));
    let rng = fastrand::Rng::with_seed(1);
    Arc::new(HintStore::open(fs, Arc::clone(clock), rng, options).unwrap())
}
