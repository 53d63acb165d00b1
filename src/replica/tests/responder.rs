//! What a replica does for other nodes, message by message.

use super::MemoryStore;
use crate::base::budget::Budget;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::net::bodies::{self, RangeCommand, RangeReply, ReadCommand, ReadReply};
use crate::net::extensions::{FULL_DIGEST, REFUSED, TAKES_REFUSAL};
use crate::net::message::{HINT, Header, Message};
use crate::net::messenger::Messenger;
use crate::net::{Channel, Drops, Transport, Verb};
use crate::replica::{
    HINT_SEGMENT_BYTES, HintOptions, HintStore, LocalStore, OwnReadiness, Readiness, Replica,
    ReplicaOptions, Responder, ResponderOptions,
};
use crate::ring::{Partitioner, RowRange};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FAMILY: FamilyId = FamilyId(0);

const TIMEOUT: Duration = Duration::from_secs(10);

fn local() -> IpAddr {
    [127, 0, 0, 1].into()
}

fn peer() -> IpAddr {
    [127, 0, 0, 2].into()
}

/// Keeps what is sent.
#[derive(Debug, Default)]
struct Sent(Mutex<Vec<(IpAddr, Arc<[u8]>)>>);

impl Transport for Sent {
    fn send(&self, to: IpAddr, channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        assert_eq!(channel, Verb::ReadResponse.channel());
        self.0.lock().unwrap().push((to, message));
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}
}

struct Rig {
    schema: Arc<Schema>,
    store: Arc<MemoryStore>,
    hints: Arc<HintStore>,
    sent: Arc<Sent>,
    drops: Arc<Drops>,
    responder: Arc<Responder>,
}

impl Rig {
    fn new() -> Self {
        Self::with_max_body(usize::MAX)
    }

    fn with_max_body(max_body: usize) -> Self {
        Self::with(max_body, Readiness::Complete)
    }

    fn with(max_body: usize, readiness: Readiness) -> Self {
        let schema = Arc::new(Schema::new([Arc::new(ColumnFamilySchema {
            keyspace: "Blog".to_owned(),
            name: "Authors".to_owned(),
            kind: ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            comment: None,
        })]));
        let partitioner = Partitioner::OrderPreserving;
        let store = Arc::new(MemoryStore::new(schema.clone(), partitioner));
        let options = ReplicaOptions {
            concurrent_reads: 1,
            concurrent_writes: 1,
            memory: Budget::new(4 << 20),
            runs_inline: false,
        };
        let clock = Arc::new(ManualClock::default());
        let hint_options = HintOptions {
            directory: "/hints".into(),
            max_age: Duration::from_secs(3600),
            max_bytes_per_target: 1 << 20,
            segment_bytes: HINT_SEGMENT_BYTES,
            schema: schema.clone(),
            gc_grace: BTreeMap::from([(FAMILY, Duration::from_secs(3600))]),
        };
        let (fs, rng) = (Arc::new(SimFileSystem::new(1)), fastrand::Rng::with_seed(1));
        let hints = HintStore::open(fs, Arc::<ManualClock>::clone(&clock), rng, hint_options);
        let (hints, sent) = (Arc::new(hints.unwrap()), Arc::new(Sent::default()));
        let transport = Arc::<Sent>::clone(&sent);
        let messenger = Messenger::new(local(), TIMEOUT, clock, transport);
        let drops = Arc::new(Drops::default());
        let responder = Responder::new(ResponderOptions {
            replica: Arc::new(Replica::start(store.clone(), options).unwrap()),
            schema: schema.clone(),
            partitioner,
            messenger: Arc::new(messenger.with_max_body(max_body)),
            hints: Some(hints.clone()),
            local: local(),
            drops: drops.clone(),
            readiness: Arc::new(OwnReadiness::new(readiness)),
        });
        Self { schema, store, hints, sent, drops, responder }
    }

    fn mutation(&self, column: &str) -> RowMutation {
        let mut builder = MutationBuilder::new(&self.schema, "Blog", b"ada");
        let row = builder.family(FAMILY);
        row.insert((b"", column.as_bytes()), b"value", 5);
        row.delete_row(Deletion::at(1, 1));
        builder.finish()
    }

    fn body(&self, column: &str) -> Vec<u8> {
        bodies::encode_mutation(&self.mutation(column), &self.schema).unwrap()
    }

    /// Sends a message of a peer. False if the verb is none that a replica answers.
    fn send(&self, id: u64, verb: Verb, headers: Vec<Header<'_>>, body: &[u8]) -> bool {
        let message = Message { headers, ..Message::new(id.into(), peer(), verb, body) };
        self.responder.receive(&message)
    }

    /// The bodies of the replies since the last call, by the number of the request.
    fn replies(&self) -> Vec<(u64, Vec<u8>)> {
        let sent = std::mem::take(&mut *self.sent.0.lock().unwrap());
        let reply = |(to, bytes): (IpAddr, Arc<[u8]>)| {
            let message = Message::decode(&bytes).unwrap();
            assert_eq!((to, message.from), (peer(), local()));
            assert_eq!(message.verb, Verb::ReadResponse);
            (message.id.as_u64().unwrap(), message.body.to_vec())
        };
        sent.into_iter().map(reply).collect()
    }

    fn names(&self) -> String {
        let cells = self.store.stored(FAMILY, "ada").cells;
        cells.iter().map(|cell| String::from_utf8_lossy(cell.name()).into_owned()).collect()
    }
}

#[tokio::test]
async fn writes_are_acknowledged_and_repairs_are_not() {
    let rig = Rig::new();
    assert!(rig.send(7, Verb::Mutation, Vec::new(), &rig.body("a")));
    assert!(rig.send(8, Verb::ReadRepair, Vec::new(), &rig.body("b")));
    assert_eq!(rig.names(), "ab");
    let acknowledgement = [&[0, 4][..], b"Blog", &[0, 3], b"ada", &[1]].concat();
    assert_eq!(rig.replies(), [(7, acknowledgement)]);
    rig.store.refuses.store(true, Ordering::SeqCst);
    assert!(rig.send(9, Verb::Mutation, Vec::new(), &rig.body("c")));
    assert_eq!(rig.replies(), [], "what was not written is not acknowledged");
}

#[tokio::test]
async fn a_write_is_acknowledged_when_it_is_on_disk() {
    let rig = Rig::new();
    rig.store.batches.store(true, Ordering::SeqCst);
    rig.send(1, Verb::Mutation, Vec::new(), &rig.body("a"));
    rig.responder.receive(&Message::new(2.into(), peer(), Verb::Read, b""));
    assert_eq!(rig.replies(), []);
    assert_eq!(rig.store.sync(&Ok(())), 1);
    rig.responder.drain().await;
    assert_eq!(rig.replies().len(), 1);
}

#[tokio::test]
async fn writes_under_way_share_the_memory_of_requests() {
    let rig = Rig::new();
    rig.store.batches.store(true, Ordering::SeqCst);
    let write = |id: u64, column: &str| {
        let mut builder = MutationBuilder::new(&rig.schema, "Blog", b"ada");
        builder.family(FAMILY).insert((b"", column.as_bytes()), &vec![b'v'; 800 << 10], 5);
        let body = bodies::encode_mutation(&builder.finish(), &rig.schema).unwrap();
        rig.send(id, Verb::Mutation, Vec::new(), &body);
    };
    write(1, "a");
    write(2, "b");
    write(3, "c");
    assert_eq!(
        (rig.names().as_str(), rig.drops.total(Verb::Mutation)),
        ("ab", 1),
        "two copies of a value each"
    );
    assert_eq!(rig.store.sync(&Ok(())), 2);
    rig.responder.drain().await;
    assert_eq!(rig.replies().len(), 2);
    write(4, "d");
    assert_eq!(
        (rig.names().as_str(), rig.drops.total(Verb::Mutation)),
        ("abd", 1),
        "the memory is free again"
    );
}

#[tokio::test]
async fn hints_are_kept_for_whom_the_sender_names_besides() {
    let rig = Rig::new();
    let targets = [[10, 0, 0, 9].into(), local(), [10, 0, 0, 9].into()];
    let value = bodies::hint::encode(&targets);
    let header = || vec![Header { name: Cow::Borrowed(HINT), value: &value }];
    rig.send(1, Verb::Mutation, header(), &rig.body("a"));
    let kept = rig.hints.targets();
    assert_eq!(kept.iter().map(|it| (it.target, it.hints)).collect::<Vec<_>>(), [(targets[0], 1)]);
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("a", 1));
    let odd = vec![Header { name: Cow::Borrowed(HINT), value: &value[1..] }];
    rig.send(2, Verb::Mutation, odd, &rig.body("b"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("a", 0));
}

#[tokio::test]
async fn a_hint_that_is_not_kept_is_not_acknowledged() {
    let rig = Rig::new();
    let value = bodies::hint::encode(&[[10, 0, 0, 9].into()]);
    let header = || vec![Header { name: Cow::Borrowed(HINT), value: &value }];
    let large = |column: &str| {
        let mut builder = MutationBuilder::new(&rig.schema, "Blog", b"ada");
        builder.family(FAMILY).insert((b"", column.as_bytes()), &vec![b'v'; 600 << 10], 5);
        bodies::encode_mutation(&builder.finish(), &rig.schema).unwrap()
    };
    rig.send(1, Verb::Mutation, header(), &large("a"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("a", 1));
    // There is room for one of them.
    rig.send(2, Verb::Mutation, header(), &large("b"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("ab", 0));
    rig.send(3, Verb::Mutation, Vec::new(), &large("c"));
    assert_eq!(rig.replies().len(), 1, "nobody relies on a hint");
}

#[tokio::test]
async fn who_lacks_data_of_its_place_takes_writes_and_answers_no_reads() {
    let rig = Rig::with(usize::MAX, Readiness::Unsure);
    let write = |column: &str| {
        let mut builder = MutationBuilder::new(&rig.schema, "Blog", b"ada");
        builder.family(FAMILY).insert((b"", column.as_bytes()), b"v", 5);
        bodies::encode_mutation(&builder.finish(), &rig.schema).unwrap()
    };
    // Nobody may count it for a replica until all agree that it is one.
    rig.send(1, Verb::Mutation, Vec::new(), &write("a"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("a", 0));
    rig.responder.options.readiness.raise(Readiness::Alone);
    rig.send(1, Verb::Mutation, Vec::new(), &write("a"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("a", 0));
    rig.responder.options.readiness.raise(Readiness::Placed);
    rig.send(1, Verb::Mutation, Vec::new(), &write("b"));
    assert_eq!((rig.names().as_str(), rig.replies().len()), ("ab", 1));
    let (key, slice) = ("ada".into(), Slice::all(None));
    let read = ReadCommand { family: FAMILY, key, slice, digest_only: false };
    let read = read.encode(&rig.schema).unwrap();
    rig.send(2, Verb::Read, Vec::new(), &read);
    assert_eq!(rig.replies().len(), 0);
    rig.responder.options.readiness.raise(Readiness::Complete);
    rig.send(3, Verb::Read, Vec::new(), &read);
    assert_eq!(rig.replies().len(), 1);
}

#[tokio::test]
async fn what_no_message_holds_is_refused_to_who_understands_that() {
    let rig = Rig::with_max_body(1000);
    for column in ["a", "b"] {
        let mut builder = MutationBuilder::new(&rig.schema, "Blog", b"ada");
        builder.family(FAMILY).insert((b"", column.as_bytes()), &[b'v'; 600], 5);
        rig.store.apply(&[builder.finish()], true).unwrap();
    }
    let slice = Slice::all(None);
    let read = |digest_only| {
        let (key, slice) = ("ada".into(), slice.clone());
        ReadCommand { family: FAMILY, key, slice, digest_only }.encode(&rig.schema).unwrap()
    };
    let range = || RangeCommand {
        family: FAMILY,
        slice: slice.clone(),
        range: RowRange::all(),
        max_rows: 9,
    };
    let range = range().encode(&rig.schema, Partitioner::OrderPreserving).unwrap();
    for (verb, body) in [(Verb::Read, &read(false)), (Verb::RangeSlice, &range)] {
        rig.send(1, verb, vec![TAKES_REFUSAL], body);
        let sent = std::mem::take(&mut *rig.sent.0.lock().unwrap());
        let message = Message::decode(&sent[0].1).unwrap();
        let why = String::from_utf8_lossy(message.header(REFUSED).unwrap());
        assert!(why.contains("the 1000 that a message between nodes can hold"), "{why}");
        assert!(why.ends_with("ask for fewer columns or rows at a time"), "{why}");
        assert_eq!((message.id.as_u64(), message.body), (Some(1), &b""[..]));
        rig.send(2, verb, Vec::new(), body);
        assert_eq!(rig.replies(), [], "who does not understand that gets nothing");
    }
    rig.send(3, Verb::Read, vec![TAKES_REFUSAL], &read(true));
    assert_eq!(rig.replies().len(), 1, "a digest is short");
}

#[tokio::test]
async fn reads_are_answered_with_data_or_digests() {
    let rig = Rig::new();
    rig.send(1, Verb::Mutation, Vec::new(), &rig.body("a"));
    rig.replies();
    let (key, slice) = (RowKey::from("ada"), Slice::all(None));
    let stored = rig.store.stored(FAMILY, "ada");
    let family = rig.schema.family(FAMILY);
    for (digest_only, headers, expected) in [
        (false, vec![FULL_DIGEST], ReadReply::Data { key: key.clone(), version: stored.clone() }),
        (true, vec![], ReadReply::Digest(stored.digest(family))),
        (true, vec![FULL_DIGEST], ReadReply::Digest(stored.full_digest(family))),
    ] {
        let (key, slice) = (key.clone(), slice.clone());
        let command = ReadCommand { family: FAMILY, key, slice, digest_only };
        rig.send(2, Verb::Read, headers, &command.encode(&rig.schema).unwrap());
        let replies = rig.replies();
        assert_eq!(ReadReply::decode(&replies[0].1, family).unwrap(), expected);
    }
    let command = RangeCommand { family: FAMILY, slice, range: RowRange::all(), max_rows: 9 };
    let body = command.encode(&rig.schema, Partitioner::OrderPreserving).unwrap();
    rig.send(3, Verb::RangeSlice, Vec::new(), &body);
    let rows = RangeReply::decode(&rig.replies()[0].1, family).unwrap().rows;
    assert_eq!(rows, [(key, stored)]);
}

#[tokio::test]
async fn what_makes_no_sense_is_not_answered() {
    let rig = Rig::new();
    let good = rig.body("a");
    for verb in [Verb::Mutation, Verb::ReadRepair, Verb::Read, Verb::RangeSlice] {
        for length in 0..good.len() {
            assert!(rig.send(1, verb, Vec::new(), &good[..length]));
        }
    }
    assert_eq!((rig.replies(), rig.names().as_str()), (Vec::new(), ""));
    assert!(!rig.send(1, Verb::StreamRequest, Vec::new(), b""));
    assert!(!rig.send(1, Verb::ReadResponse, Vec::new(), b""));
}

#[tokio::test(start_paused = true)]
async fn what_waits_too_long_is_dropped_and_too_much_does_not_wait() {
    let rig = Rig::new();
    rig.store.stall(true);
    let command = ReadCommand {
        family: FAMILY,
        key: "ada".into(),
        slice: Slice::all(None),
        digest_only: true,
    };
    let body = command.encode(&rig.schema).unwrap();
    for id in 0..5000 {
        rig.send(id, Verb::Read, Vec::new(), &body);
    }
    assert_eq!(rig.drops.total(Verb::Read), 5000 - 4096);
    tokio::time::sleep(TIMEOUT + Duration::from_secs(1)).await;
    assert_eq!(rig.drops.total(Verb::Read), 5000);
    rig.store.stall(false);
    rig.responder.drain().await;
    assert_eq!(rig.replies(), []);
    rig.send(1, Verb::Read, Vec::new(), &body);
    assert_eq!(rig.replies().len(), 1, "there is room again");
}
