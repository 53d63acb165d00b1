//! Three nodes with storages of their own repair each other over a network that loses messages.

use super::{FamilyRepair, RepairScope};
use crate::base::clock::Clock;
use crate::kit::disk::SimFileSystem;
use crate::kit::network::{Arrivals, Network, RuntimeClock};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, FamilyId};
use crate::model::version::RowVersion;
use crate::net::Verb;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::repair::tests::network::{self, Known, standard};
use crate::repair::{Host, OperationError, Operations, Wish};
use crate::ring::{Partitioner, RowRange, Token};
use crate::storage::Storage;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROWS: FamilyId = FamilyId(0);
const SUPERS: FamilyId = FamilyId(1);

struct Node {
    storage: Arc<Storage>,
    messenger: Arc<Messenger>,
    host: Arc<Known>,
    operations: Arc<Mutex<Arc<Operations>>>,
}

struct Cluster {
    network: Arc<Network>,
    clock: Arc<dyn Clock>,
    nodes: Vec<Node>,
}

fn address(place: usize) -> IpAddr {
    [10, 0, 0, place as u8 + 1].into()
}

fn open(place: usize, partitioner: Partitioner) -> Arc<Storage> {
    let columns = Comparator::Bytes;
    let supers = ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns };
    let families = [("Blog", "Rows", standard()), ("Blog", "Supers", supers)];
    network::open(&SimFileSystem::new(place as u64), partitioner, families)
}

impl Cluster {
    fn start(partitioner: Partitioner) -> Self {
        let (network, clock) = (Arc::<Network>::default(), RuntimeClock::start());
        let member = |place: usize| {
            let token = match partitioner {
                Partitioner::Random => Token::Random((1 << 125) * (place as u128 + 1)),
                _ => partitioner.token(&[b'g' + 5 * place as u8]),
            };
            (token, address(place))
        };
        let members = [0, 1, 2].map(member);
        let nodes = (0..3).map(|place| {
            let messenger = network::messenger(address(place), &network, &clock);
            let storage = open(place, partitioner);
            let host = Known::of(address(place), &members, (0..3).map(address).collect());
            let operations = operations(place, &storage, &messenger, &clock);
            let operations = Arc::new(Mutex::new(operations));
            let node = Node { storage, messenger, host, operations };
            tokio::spawn(node.receive(network.messages_to(&[address(place)])));
            node
        });
        let nodes = nodes.collect();
        Self { network, clock, nodes }
    }

    fn write(
        &self,
        place: usize,
        family: FamilyId,
        key: impl AsRef<[u8]>,
        change: impl Fn(&mut MutationBuilder<'_>),
    ) {
        let storage = &self.nodes[place].storage;
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_ref());
        change(mutation.family(family));
        storage.apply(&mutation.finish(), true).unwrap();
    }

    fn insert(&self, places: &[usize], key: impl AsRef<[u8]>, name: &str, value: &[u8], at: i64) {
        for place in places {
            self.write(*place, ROWS, &key, |row| {
                row.insert((b"", name.as_bytes()), value, at);
            });
        }
    }

    /// All that a node has, deletions included.
    fn stored(&self, place: usize, family: FamilyId) -> BTreeMap<Vec<u8>, RowVersion> {
        let storage = &self.nodes[place].storage;
        let (all, most) = (RowRange::all(), usize::MAX);
        let piece = storage.read_piece(family, &all, None, most).unwrap();
        assert_eq!(piece.next, None);
        piece.rows.into_iter().map(|(key, version)| (key.as_bytes().to_vec(), version)).collect()
    }

    #[track_caller]
    fn assert_alike(&self, family: FamilyId) {
        for place in [1, 2] {
            assert_eq!(self.stored(place, family), self.stored(0, family), "node {place}");
        }
    }

    /// Has a node repair what it has, and waits for the end.
    async fn repair(&self, place: usize, scope: RepairScope) -> Result<Vec<FamilyRepair>, String> {
        let node = &self.nodes[place];
        let operations = Arc::clone(&node.operations.lock().unwrap());
        let host = Arc::clone(&node.host) as _;
        let wish = Wish::Repair(vec![ROWS, SUPERS], scope);
        operations.begin(wish, &host).map_err(|error| error.to_string())?;
        loop {
            let report = operations.report().unwrap();
            match report.outcome {
                Some(outcome) => return outcome.map(|_| report.repaired),
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// A node is started anew: of what others have asked it nothing is left.
    fn restart(&self, place: usize) {
        let node = &self.nodes[place];
        let new = operations(place, &node.storage, &node.messenger, &self.clock);
        *node.operations.lock().unwrap() = new;
    }

    fn set_dead(&self, place: usize) {
        for node in &self.nodes {
            node.host.0.lock().unwrap().live.remove(&address(place));
        }
        self.network.cut_off(address(place));
    }
}

fn operations(
    place: usize,
    storage: &Arc<Storage>,
    messenger: &Arc<Messenger>,
    clock: &Arc<dyn Clock>,
) -> Arc<Operations> {
    network::operations(storage, messenger, 3, clock, place as u64)
}

impl Node {
    /// Takes messages, and gives up waiting for those that do not come.
    fn receive(
        &self,
        mut arrivals: Arrivals<Arc<[u8]>>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let (messenger, operations) = (Arc::clone(&self.messenger), Arc::clone(&self.operations));
        let host: Arc<dyn Host> = Arc::clone(&self.host) as _;
        async move {
            loop {
                let arrived = tokio::time::timeout(Duration::from_secs(1), arrivals.recv()).await;
                messenger.expire();
                match arrived {
                    Err(_) => {}
                    Ok(None) => return,
                    Ok(Some(payload)) => {
                        let message = Message::decode(&payload).unwrap();
                        if message.verb == Verb::ReadResponse {
                            messenger.on_response(&message);
                        } else {
                            let operations = Arc::clone(&operations.lock().unwrap());
                            assert!(operations.receive(&message, &host));
                        }
                    }
                }
            }
        }
    }
}

/// Rows that all have, and some of which one or another lacks something.
fn fill(cluster: &Cluster) {
    for row in 0..300 {
        cluster.insert(&[0, 1, 2], format!("{}{row}", row % 10), "name", b"value", 1);
    }
    // Each knows another version.
    for place in 0..3 {
        cluster.insert(&[place], "three", &format!("of {place}"), b"value", 5);
    }
    cluster.insert(&[1], "new", "name", b"value", 1);
    cluster.insert(&[0, 2], "11", "name", b"changed", 2);
    for place in [0, 1] {
        cluster.write(place, ROWS, "22", |row| {
            row.delete_column((b"", b"name"), Deletion::at(2, 1));
        });
    }
    cluster.write(2, ROWS, "33", |row| {
        row.delete_row(Deletion::at(2, 1));
    });
    for place in 0..3 {
        cluster.write(place, SUPERS, "key", |row| {
            row.insert((b"super", b"name"), b"value", 1).insert((b"other", b"name"), b"value", 1);
        });
    }
    cluster.write(1, SUPERS, "key", |row| {
        row.delete_super_column(b"super", Deletion::at(2, 1));
    });
}

fn differed(repaired: &[FamilyRepair]) -> u64 {
    repaired.iter().map(|it| it.rows_differed).sum()
}

fn read(repaired: &[FamilyRepair]) -> u64 {
    repaired.iter().map(|it| it.rows_read).sum()
}

#[tokio::test(start_paused = true)]
async fn all_get_what_any_of_them_has() {
    for partitioner in [Partitioner::Random, Partitioner::OrderPreserving] {
        let cluster = Cluster::start(partitioner);
        fill(&cluster);
        let repaired = cluster.repair(0, RepairScope::All).await.unwrap();
        assert_eq!((repaired[0].rows_differed, repaired[1].rows_differed), (5, 1), "{repaired:?}");
        assert_eq!(repaired[0].ranges, 3);
        cluster.assert_alike(ROWS);
        cluster.assert_alike(SUPERS);
        let three = &cluster.stored(2, ROWS)[&b"three"[..]];
        assert_eq!(three.cells.len(), 3);
        assert!(cluster.stored(0, ROWS)[&b"33"[..]].cells.is_empty());
        // The second time nothing moves, the third time nothing is read.
        let again = cluster.repair(1, RepairScope::All).await.unwrap();
        assert_eq!(differed(&again), 0);
        assert!(again.iter().all(|it| it.collected.is_empty()));
        assert!(read(&again) > 0);
        let again = cluster.repair(1, RepairScope::All).await.unwrap();
        assert_eq!((differed(&again), read(&again)), (0, 0));
    }
}

/// Keys that are no texts, and texts that look like what stands for such a key.
fn odd_keys() -> Vec<Vec<u8>> {
    let mut keys = vec![b"\0hex:".to_vec(), b"\0hex:ff".to_vec(), b"\0hex:no digits".to_vec()];
    keys.extend([b"\xff".to_vec(), b"\xfe".to_vec(), b"caf\xe9".to_vec(), vec![0xc0; 70]]);
    keys.extend([vec![0xff; 65535], "\u{1f600}".repeat(16_000).into_bytes()]);
    // With the long ones, more than one list holds.
    keys.extend((0..200_u16).map(|n| [b"\xf5".as_slice(), &n.to_be_bytes()].concat()));
    keys
}

#[tokio::test(start_paused = true)]
async fn rows_whose_keys_are_no_texts_are_repaired() {
    for partitioner in Partitioner::ALL {
        let cluster = Cluster::start(partitioner);
        fill(&cluster);
        let keys = odd_keys();
        for (number, key) in keys.iter().enumerate() {
            // Each lacks some, and some differ.
            let lacks = number % 3;
            cluster.insert(&[(lacks + 1) % 3, (lacks + 2) % 3], key, "name", b"value", 1);
            cluster.insert(&[number % 2], key, "other", b"value", number as i64 % 7);
        }
        let repaired = cluster.repair(0, RepairScope::All).await.unwrap();
        assert_eq!(differed(&repaired), 6 + keys.len() as u64);
        for place in 0..3 {
            let stored = cluster.stored(place, ROWS);
            assert!(keys.iter().all(|key| stored[key].cells.len() == 2), "node {place}");
        }
        cluster.assert_alike(ROWS);
        assert_eq!(differed(&cluster.repair(1, RepairScope::All).await.unwrap()), 0);
        // Where keys are tokens, leaves end at these.
        let again = cluster.repair(1, RepairScope::All).await.unwrap();
        assert_eq!((differed(&again), read(&again)), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn primary_ranges_of_all_nodes_are_everything() {
    let cluster = Cluster::start(Partitioner::Random);
    fill(&cluster);
    let mut found = 0;
    for place in 0..3 {
        let repaired = cluster.repair(place, RepairScope::Primary).await.unwrap();
        assert_eq!(repaired[0].ranges, 1);
        found += differed(&repaired);
    }
    assert_eq!(found, 6);
    cluster.assert_alike(ROWS);
    cluster.assert_alike(SUPERS);
}

/// Repairs what [`fill`] has written, while these nodes are started anew so many times.
async fn repair_through_restarts(cluster: &Cluster, times: u32, pause: Duration, places: &[usize]) {
    let restarts = async {
        for _ in 0..times {
            tokio::time::sleep(pause).await;
            for place in places {
                cluster.restart(*place);
            }
        }
    };
    let (repaired, ()) = tokio::join!(cluster.repair(0, RepairScope::All), restarts);
    assert_eq!(differed(&repaired.unwrap()), 6);
    cluster.assert_alike(ROWS);
    cluster.assert_alike(SUPERS);
}

#[tokio::test(start_paused = true)]
async fn lost_messages_and_restarts_delay_it() {
    for one_of in [3, 5] {
        let cluster = Cluster::start(Partitioner::Random);
        fill(&cluster);
        cluster.network.lose_one_of(one_of);
        repair_through_restarts(&cluster, 5, Duration::from_secs(3), &[2]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_replica_is_named() {
    let cluster = Cluster::start(Partitioner::Random);
    fill(&cluster);
    // In the middle: it has not answered yet.
    let dies = async {
        cluster.network.cut_off(address(2));
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.set_dead(2);
    };
    let (repaired, ()) = tokio::join!(cluster.repair(0, RepairScope::All), dies);
    let why = repaired.unwrap_err();
    assert!(why.contains("10.0.0.3 could not do its part"), "{why}");
    assert!(why.contains("it is down"), "{why}");
    // Before anything begins.
    let why = cluster.repair(0, RepairScope::All).await.unwrap_err();
    assert_eq!(why, OperationError::ReplicasDown(vec![address(2)]).to_string());
}

#[tokio::test(start_paused = true)]
async fn rows_wider_than_a_message_travel_in_parts() {
    let cluster = Cluster::start(Partitioner::Random);
    for cell in 0..20 {
        cluster.insert(&[1], "wide", &format!("{cell:03}"), &vec![cell; 60 << 10], 1);
    }
    cluster.insert(&[1], "small", "name", b"value", 1);
    let repaired = cluster.repair(2, RepairScope::All).await.unwrap();
    let (rows, bytes) = repaired[0].collected[&address(0)];
    assert_eq!(rows, 2);
    assert!(bytes > 20 * (60 << 10), "{bytes}");
    cluster.assert_alike(ROWS);
    assert_eq!(cluster.stored(0, ROWS)[&b"wide"[..]].cells.len(), 20);
}

/// Rows that all have, so many that there are some leaves.
fn fill_leaves(cluster: &Cluster) {
    for row in 0..2500 {
        cluster.insert(&[0, 1, 2], format!("common {row}"), "name", b"value", 1);
    }
}

#[tokio::test(start_paused = true)]
async fn hashes_that_a_restart_has_lost_are_worked_out_again() {
    let cluster = Cluster::start(Partitioner::Random);
    fill(&cluster);
    fill_leaves(&cluster);
    // Leaves come in several answers, and some have come when the others are lost.
    cluster.network.lose_one_of(7);
    repair_through_restarts(&cluster, 12, Duration::from_millis(7100), &[1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_may_repair_the_same_at_the_same_time() {
    let cluster = Cluster::start(Partitioner::Random);
    fill(&cluster);
    fill_leaves(&cluster);
    let all = |place| cluster.repair(place, RepairScope::All);
    let (first, second, third) = tokio::join!(all(0), all(1), all(2));
    for repaired in [first, second, third] {
        // What another one has mended before does not differ any more.
        assert!(differed(&repaired.unwrap()) <= 6);
    }
    cluster.assert_alike(ROWS);
    cluster.assert_alike(SUPERS);
    assert_eq!(differed(&cluster.repair(0, RepairScope::All).await.unwrap()), 0);
    // One node does one thing after the other.
    let (done, refused) = tokio::join!(all(0), all(0));
    done.unwrap();
    assert!(refused.unwrap_err().contains("repair"));
}

#[tokio::test(start_paused = true)]
async fn a_ring_that_changes_meanwhile_ends_it() {
    let cluster = Cluster::start(Partitioner::Random);
    fill(&cluster);
    let joins = async {
        tokio::time::sleep(Duration::from_millis(15)).await;
        let mut look = cluster.nodes[0].host.0.lock().unwrap();
        look.members.ring.insert(Token::Random(1), address(3));
    };
    let (repaired, ()) = tokio::join!(cluster.repair(0, RepairScope::All), joins);
    assert_eq!(repaired.unwrap_err(), OperationError::RingChanged.to_string());
}

#[tokio::test(start_paused = true)]
async fn an_empty_replica_gets_few_sstables() {
    let cluster = Cluster::start(Partitioner::Random);
    for row in 0..3000 {
        let key = format!("{row:0200}");
        cluster.insert(&[0, 1], &key, "name", b"value", 1);
    }
    let repaired = cluster.repair(1, RepairScope::All).await.unwrap();
    assert_eq!(repaired[0].rows_differed, 3000);
    assert_eq!(repaired[0].collected[&address(2)].0, 3000);
    let bytes = repaired[0].bytes_differed;
    assert!((3000 * 200..3000 * 300).contains(&bytes), "{bytes}");
    cluster.assert_alike(ROWS);
    assert_eq!(cluster.nodes[2].storage.store(ROWS).view().tables.len(), 1);
}
