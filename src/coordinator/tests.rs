//! The coordinator, over a replica whose store is in memory.

mod cluster;
mod distributed;
mod too_large;

pub(crate) use crate::replica::tests::MemoryStore;

use super::*;
use crate::base::budget::Budget;
use crate::kit::clock::ManualClock;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::net::messenger::Messenger;
use crate::net::{Channel, Transport};
use crate::replica::{Replica, ReplicaOptions};
use crate::ring::{
    Partitioner, ReplicaPlacement, ReplicationStrategy, RowRange, Snitch, Token, TokenMetadata,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The ring that a coordinator sees. It is at the loopback address.
pub(crate) struct Ring {
    pub(crate) partitioner: Partitioner,
    pub(crate) members: TokenMetadata,
    pub(crate) replication_factor: usize,
    pub(crate) rpc_timeout: Duration,
}

/// A network that loses everything.
#[derive(Debug)]
struct Silence;

impl Transport for Silence {
    fn send(&self, _to: IpAddr, _channel: Channel, _message: Arc<[u8]>, _deadline: Duration) {}

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}
}

/// A coordinator, with the store of its local replica. All keyspaces but `system` are replicated,
/// and none of the other nodes seems alive.
pub(crate) fn start(schema: &Arc<Schema>, ring: Ring) -> (Arc<Coordinator>, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new(schema.clone(), ring.partitioner));
    let options = ReplicaOptions {
        concurrent_reads: 1,
        concurrent_writes: 1,
        memory: Budget::new(1 << 20),
        runs_inline: false,
    };
    let replica = Arc::new(Replica::start(store.clone(), options).unwrap());
    let placement = ReplicaPlacement {
        strategy: ReplicationStrategy::RackUnaware,
        replication_factor: ring.replication_factor,
        snitch: Snitch::EndPoint,
    };
    let keyspaces = schema.keyspaces().filter(|&keyspace| keyspace != "system");
    let local = Ipv4Addr::LOCALHOST.into();
    let clock = Arc::new(ManualClock::default());
    let messenger = Messenger::new(local, ring.rpc_timeout, clock, Arc::new(Silence));
    let coordinator = Coordinator::new(CoordinatorOptions {
        schema: schema.clone(),
        partitioner: ring.partitioner,
        placements: keyspaces.map(|keyspace| (keyspace.to_owned(), placement.clone())).collect(),
        ring: ring.members,
        peers: Peers::default(),
        local,
        replica,
        messenger: Arc::new(messenger),
        hinting: None,
        reads: ReadOptions {
            speculative_percentile: None,
            repairs: true,
            repair_chances: Vec::new(),
            dynamic_snitch: None,
        },
    });
    (coordinator, store)
}

const FAMILY: FamilyId = FamilyId(0);
const SYSTEM: FamilyId = FamilyId(1);

struct Fixture {
    schema: Arc<Schema>,
    store: Arc<MemoryStore>,
    coordinator: Arc<Coordinator>,
}

impl Fixture {
    /// A ring with a node at each of these tokens; the first node is the local one.
    fn new(tokens: &[&str], replication_factor: usize) -> Self {
        Self::with_timeout(tokens, replication_factor, Duration::from_secs(30))
    }

    fn with_timeout(tokens: &[&str], replication_factor: usize, rpc_timeout: Duration) -> Self {
        let family = |keyspace: &str| {
            Arc::new(ColumnFamilySchema {
                keyspace: keyspace.to_owned(),
                name: "Rows".to_owned(),
                kind: ColumnFamilyKind::Standard { columns: Comparator::Bytes },
                comment: None,
            })
        };
        let schema = Arc::new(Schema::new([family("Blog"), family("system")]));
        let mut members = TokenMetadata::default();
        for (number, token) in (1..).zip(tokens) {
            let token = Token::ordered(token.as_bytes().into());
            members.insert(token, IpAddr::from([127, 0, 0, number]));
        }
        let partitioner = Partitioner::OrderPreserving;
        let ring = Ring { partitioner, members, replication_factor, rpc_timeout };
        let (coordinator, store) = start(&schema, ring);
        Self { schema, store, coordinator }
    }

    fn mutation(&self, family: FamilyId, key: &str) -> RowMutation {
        let keyspace = &self.schema.family(family).keyspace;
        let mut builder = MutationBuilder::new(&self.schema, keyspace, key.as_bytes());
        builder.family(family).insert((b"", b"name"), b"value", 1);
        builder.finish()
    }

    async fn write(&self, keys: &[&str], level: ConsistencyLevel) -> Result<(), CoordinatorError> {
        let mutations: Vec<_> = keys.iter().map(|key| self.mutation(FAMILY, key)).collect();
        self.coordinator.write(&mutations, level).await
    }

    async fn read(&self, key: &str, level: ConsistencyLevel) -> Result<usize, CoordinatorError> {
        let (key, slice) = (RowKey::from(key), Slice::all(None));
        let row = self
            .coordinator
            .read(FAMILY, &key, &slice, level, &mut self.coordinator.ticket())
            .await?;
        assert_eq!(row.count, self.coordinator.count(FAMILY, &key, None, level).await?);
        let rows = self
            .coordinator
            .read_many(FAMILY, &[key], &slice, level, &mut self.coordinator.ticket())
            .await?;
        assert_eq!(rows, std::slice::from_ref(&row));
        Ok(row.count)
    }

    async fn scan(&self, max: usize) -> Result<Vec<String>, CoordinatorError> {
        let (all, slice) = ([RowRange::all()], Slice::all(None));
        let level = ConsistencyLevel::One;
        let rows = self
            .coordinator
            .scan(FAMILY, &all, &slice, max, level, &mut self.coordinator.ticket())
            .await?;
        Ok(rows.into_iter().map(|(key, _)| key.to_string()).collect())
    }
}

const WRITE_LEVELS: [ConsistencyLevel; 6] = [
    ConsistencyLevel::Any,
    ConsistencyLevel::One,
    ConsistencyLevel::Quorum,
    ConsistencyLevel::DcQuorum,
    ConsistencyLevel::DcQuorumSync,
    ConsistencyLevel::All,
];

#[tokio::test]
async fn one_node_takes_writes_that_it_cannot_read_at_quorum() {
    let fixture = Fixture::new(&["m"], 3);
    for level in WRITE_LEVELS {
        fixture.write(&["k"], level).await.unwrap();
    }
    assert_eq!(fixture.read("k", ConsistencyLevel::One).await.unwrap(), 1);
    for level in [ConsistencyLevel::Quorum, ConsistencyLevel::All, ConsistencyLevel::DcQuorum] {
        let read = fixture.read("k", level).await;
        assert!(matches!(read, Err(CoordinatorError::Unavailable)), "{level:?}");
    }
}

#[tokio::test]
async fn nothing_of_a_batch_is_written_if_one_row_is_unavailable() {
    let fixture = Fixture::new(&["m", "t"], 1);
    let written = fixture.write(&["a", "p"], ConsistencyLevel::One).await;
    assert!(matches!(written, Err(CoordinatorError::Unavailable)));
    assert_eq!(fixture.read("a", ConsistencyLevel::One).await.unwrap(), 0);
    fixture.write(&["a"], ConsistencyLevel::All).await.unwrap();
    assert_eq!(fixture.read("a", ConsistencyLevel::All).await.unwrap(), 1);
    let read = fixture.read("p", ConsistencyLevel::One).await;
    assert!(matches!(read, Err(CoordinatorError::Unavailable)));
}

#[tokio::test]
async fn a_scan_needs_the_replicas_of_each_stretch_it_gets_to() {
    let fixture = Fixture::new(&["m", "t"], 1);
    fixture.write(&["a", "b", "c"], ConsistencyLevel::One).await.unwrap();
    assert_eq!(fixture.scan(3).await.unwrap(), ["a", "b", "c"]);
    assert!(matches!(fixture.scan(4).await, Err(CoordinatorError::Unavailable)));
    let alone =
        TokenMetadata::single(Token::ordered(b"m".as_slice().into()), Ipv4Addr::LOCALHOST.into());
    fixture.coordinator.set_ring(alone, Peers::default());
    assert_eq!(fixture.scan(4).await.unwrap(), ["a", "b", "c"]);
}

#[tokio::test]
async fn the_system_keyspace_is_always_at_hand() {
    let fixture = Fixture::new(&[], 3);
    let mutation = fixture.mutation(SYSTEM, "k");
    fixture.coordinator.write(&[mutation], ConsistencyLevel::All).await.unwrap();
    let (key, slice) = (RowKey::from("k"), Slice::all(None));
    let (level, mut ticket) = (ConsistencyLevel::All, fixture.coordinator.ticket());
    let row = fixture.coordinator.read(SYSTEM, &key, &slice, level, &mut ticket).await;
    assert_eq!(row.unwrap().count, 1);
    let written = fixture.write(&["k"], ConsistencyLevel::One).await;
    assert!(matches!(written, Err(CoordinatorError::Unavailable)), "no node has a token");
}

#[tokio::test]
async fn who_leaves_the_ring_reads_what_is_here_and_writes_nothing() {
    let fixture = Fixture::new(&["m"], 1);
    fixture.write(&["k"], ConsistencyLevel::One).await.unwrap();
    fixture.coordinator.refuse_writes();
    for level in [ConsistencyLevel::Zero, ConsistencyLevel::Any, ConsistencyLevel::One] {
        let written = fixture.write(&["l"], level).await;
        assert!(matches!(written, Err(CoordinatorError::Unavailable)), "{written:?}");
    }
    assert_eq!(fixture.read("k", ConsistencyLevel::One).await.unwrap(), 1);
    assert_eq!(fixture.read("l", ConsistencyLevel::One).await.unwrap(), 0);
    let other = std::net::IpAddr::from([10, 9, 9, 9]);
    let peers = Peers { live: [other].into(), ..Peers::default() };
    let ring = fixture.coordinator.ring().as_ref().clone();
    fixture.coordinator.set_ring(ring, peers);
    assert!(fixture.coordinator.peers().live.is_empty(), "nobody is asked in vain");
}

#[tokio::test]
async fn a_write_that_is_not_on_disk_in_time_has_timed_out() {
    let fixture = Fixture::with_timeout(&["m"], 1, Duration::from_millis(20));
    fixture.store.batches.store(true, Ordering::SeqCst);
    let written = fixture.write(&["a", "b"], ConsistencyLevel::One).await;
    assert!(matches!(written, Err(CoordinatorError::TimedOut)));
    assert_eq!(fixture.store.sync(&Ok(())), 1, "both rows wait for one sync");
}

#[tokio::test]
async fn zero_waits_for_nothing_and_hides_failures() {
    let fixture = Fixture::new(&["m"], 1);
    fixture.store.batches.store(true, Ordering::SeqCst);
    fixture.write(&["a"], ConsistencyLevel::Zero).await.unwrap();
    assert_eq!(fixture.read("a", ConsistencyLevel::One).await.unwrap(), 1);
    fixture.store.blocks.store(true, Ordering::SeqCst);
    fixture.store.panics.store(true, Ordering::SeqCst);
    fixture.write(&["a"], ConsistencyLevel::Zero).await.unwrap();
    let written = fixture.write(&["a"], ConsistencyLevel::One).await;
    assert!(matches!(written, Err(CoordinatorError::Failed(_))));
}
