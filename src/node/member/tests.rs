//! Two nodes that gossip.

use super::*;
use crate::base::budget::Budget;
use crate::base::worker::Spawner;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::storage::open_system;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::Schema;
use crate::net::Channel;
use crate::net::Inbound;
use crate::net::messenger::{Replies, Request};
use crate::replica::{HINT_SEGMENT_BYTES, HintOptions, ReplicaOptions};
use crate::ring::Partitioner;
use crate::storage::system::saved_ring::SavedRing;
use std::sync::{Mutex, Weak, mpsc};
use std::thread::ThreadId;

/// Keeps sent messages until the test delivers them.
#[derive(Debug, Default)]
struct Wire(Mutex<Vec<(IpAddr, Arc<[u8]>)>>);

impl Transport for Wire {
    fn send(&self, to: IpAddr, _channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        self.0.lock().unwrap().push((to, message));
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}
}

/// Checks that the lock of gossip is free whenever a note is written, which reads this time.
#[derive(Debug, Default)]
struct Watch {
    clock: ManualClock,
    member: Mutex<Weak<Member>>,
    /// For each note, whether the lock was free.
    notes: Mutex<Vec<bool>>,
}

impl Clock for Watch {
    fn now_micros(&self) -> i64 {
        self.clock.now_micros()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn coarse_millis(&self) -> u64 {
        if let Some(member) = self.member.lock().unwrap().upgrade() {
            self.notes.lock().unwrap().push(member.gossip.try_lock().is_some());
        }
        0
    }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn open_hints(schema: Arc<Schema>) -> Arc<HintStore> {
    let options = HintOptions {
        directory: "/hints".into(),
        max_age: Duration::from_hours(1),
        max_bytes_per_target: 1 << 20,
        segment_bytes: HINT_SEGMENT_BYTES,
        schema,
    };
    let (fs, clock) = (Arc::new(SimFileSystem::new(1)), Arc::new(ManualClock::default()));
    Arc::new(HintStore::open(fs, clock, fastrand::Rng::with_seed(1), options).unwrap())
}

fn member(last: u8, wire: &Arc<Wire>) -> (Arc<Member>, Arc<Watch>) {
    start(setup(&SimFileSystem::new(u64::from(last)), last, wire, Spawner::Inline))
}

/// Options of a node at this address, at its first start and with a token of its own.
fn setup(
    fs: &SimFileSystem,
    last: u8,
    wire: &Arc<Wire>,
    spawner: Spawner,
) -> (MemberOptions, Arc<Watch>) {
    let (storage, clock) =
        (open_system(fs, Arc::new(ManualClock::default())), Arc::new(Watch::default()));
    let hints = open_hints(Arc::clone(storage.schema()));
    let replica = ReplicaOptions {
        concurrent_reads: 1,
        concurrent_writes: 1,
        memory: Budget::new(1 << 20),
        spawner,
    };
    let options = MemberOptions {
        local: address(last),
        cluster_name: "Test".to_owned(),
        seeds: vec![address(1)],
        token: Some(Partitioner::Random.token(&[last])),
        asks_first: false,
        replaced: None,
        generation: 1,
        phi_convict_threshold: 8.0,
        rpc_timeout: Duration::from_secs(10),
        placements: BTreeMap::new(),
        storage: Arc::clone(&storage),
        replica: Arc::new(Replica::start(storage, replica).unwrap()),
        stream_bytes_per_second: None,
        hints: Some(hints),
        hints_wait_for_sync: false,
        handoff_pause: Duration::ZERO,
        reads: ReadOptions { speculative_percentile: None, repairs: true, dynamic_snitch: None },
        transport: Arc::clone(wire) as _,
        clock: Arc::clone(&clock) as _,
        seed: 1,
    };
    (options, clock)
}

fn start((options, clock): (MemberOptions, Arc<Watch>)) -> Watched {
    let member = Member::new(options).unwrap();
    *clock.member.lock().unwrap() = Arc::downgrade(&member);
    (member, clock)
}

type Watched = (Arc<Member>, Arc<Watch>);

/// Delivers all messages, and those that follow from them.
fn deliver(wire: &Wire, members: &[Watched]) {
    loop {
        let sent = std::mem::take(&mut *wire.0.lock().unwrap());
        if sent.is_empty() {
            break;
        }
        for (to, message) in sent {
            let receivers = members.iter().filter(|(it, _)| it.local == to);
            receivers.for_each(|(it, _)| it.receive(&message).unwrap());
        }
    }
}

fn round((member, watch): &Watched) {
    watch.clock.advance(GOSSIP_INTERVAL);
    member.gossip_round();
}

/// Receivers of sent writes, after all ready tasks have run.
async fn writes(wire: &Wire) -> Vec<IpAddr> {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let sent = wire.0.lock().unwrap();
    let is_write = |message| Message::decode(message).unwrap().verb == Verb::Mutation;
    sent.iter().filter(|(_, message)| is_write(message)).map(|(to, _)| *to).collect()
}

fn keep_hint(member: &Member, target: IpAddr) {
    let hint = MutationBuilder::new(member.storage.schema(), system::KEYSPACE, b"key").finish();
    member.hints().unwrap().store(target, &hint).unwrap();
}

#[tokio::test]
async fn hints_follow_a_node_to_its_new_address() {
    let wire = Arc::new(Wire::default());
    let one = member(1, &wire);
    one.0.begin();
    let hints = one.0.hints().unwrap();
    let token = Partitioner::Random.token(&[2]);
    for (generation, at) in [(1, 2), (2, 3), (3, 4), (4, 2)] {
        let (mut options, watch) =
            setup(&SimFileSystem::new(u64::from(at)), at, &wire, Spawner::Inline);
        (options.token, options.generation) = (Some(token.clone()), generation);
        let other = start((options, watch));
        other.0.begin();
        let members = [one.clone(), other];
        for _ in 0..3 {
            members.iter().for_each(round);
            deliver(&wire, &members);
        }
        assert_eq!(
            SavedRing::read(&one.0.storage).unwrap().members,
            [(address(at), token.clone())]
        );
        if generation == 1 {
            keep_hint(&one.0, address(2));
        }
        assert_eq!(hints.waiting(), [(address(2), address(at))]);
        wire.0.lock().unwrap().clear();
        one.0.handoff.as_ref().unwrap().interrupt(address(at));
        assert_eq!(writes(&wire).await, [] as [IpAddr; 0]);
        round(&one);
        assert_eq!(writes(&wire).await, [address(at)], "it gets them");
    }
}

#[tokio::test]
async fn hints_go_to_nodes_with_recent_news() {
    let wire = Arc::new(Wire::default());
    let members = [member(1, &wire), member(2, &wire)];
    for (member, _) in &members {
        member.begin();
    }
    let [one, two] = &members;
    for _ in 0..3 {
        members.iter().for_each(round);
        deliver(&wire, &members);
    }
    let is_alive = || one.0.with_gossip(|gossiper, _| gossiper.is_alive(address(2)));
    // Nothing is heard of it for a while, and it is not convicted yet.
    for _ in 0..4 {
        round(one);
        wire.0.lock().unwrap().clear();
    }
    keep_hint(&one.0, address(2));
    round(one);
    assert!(is_alive());
    assert_eq!(writes(&wire).await, [] as [IpAddr; 0]);
    // There are news.
    wire.0.lock().unwrap().clear();
    round(two);
    deliver(&wire, &members);
    assert_eq!(writes(&wire).await, [] as [IpAddr; 0]);
    round(one);
    assert_eq!(writes(&wire).await, [address(2)]);
    // They were its last.
    let handoff = one.0.handoff.as_ref().unwrap();
    let is_due = || handoff.is_due(address(2), one.1.monotonic());
    while is_alive() {
        assert!(!is_due(), "it is under way");
        round(one);
    }
    wire.0.lock().unwrap().clear();
    assert_eq!(writes(&wire).await, [] as [IpAddr; 0]);
    assert!(is_due(), "it was interrupted");
}

#[test]
fn notes_of_the_ring_are_written_when_gossip_may_go_on() {
    let wire = Arc::new(Wire::default());
    let members = [member(1, &wire), member(2, &wire)];
    for (member, _) in &members {
        member.begin();
    }
    for _ in 0..4 {
        members.iter().for_each(round);
        deliver(&wire, &members);
    }
    for (place, (member, clock)) in members.iter().enumerate() {
        assert_eq!(*clock.notes.lock().unwrap(), [true]);
        let last = 2 - place as u8;
        let other = (address(last), Partitioner::Random.token(&[last]));
        assert_eq!(SavedRing::read(&member.storage).unwrap().members, [other]);
    }
}

/// Reports the thread on which a request is given up.
#[derive(Debug)]
struct GivenUp(mpsc::Sender<ThreadId>);

impl Replies for GivenUp {
    fn on_reply(&self, _tag: u32, _from: IpAddr, _body: &[u8], _took: Duration) {}

    fn on_timeout(&self, _tag: u32, _missing: &[IpAddr]) {
        self.0.send(std::thread::current().id()).unwrap();
    }
}

#[tokio::test]
async fn gossip_does_not_wait_for_hints_of_given_up_requests() {
    for spawner in [Spawner::Threads, Spawner::Inline] {
        let fs = SimFileSystem::new(1);
        let (member, watch) = start(setup(&fs, 1, &Arc::default(), spawner));
        let stop = CancellationToken::new();
        let running = tokio::spawn(Arc::clone(&member).run(stop.clone()));
        let (sender, given_up) = mpsc::channel();
        let replies: Arc<dyn Replies> = Arc::new(GivenUp(sender));
        let request = Request { verb: Verb::Mutation, headers: Vec::new(), body: b"", tag: 0 };
        member.messenger.request(request, &[address(2)], &replies).unwrap();
        watch.clock.advance(Duration::from_secs(11));
        let thread = loop {
            tokio::task::yield_now().await;
            if let Ok(thread) = given_up.try_recv() {
                break thread;
            }
        };
        assert_eq!(thread == std::thread::current().id(), spawner.is_inline());
        stop.cancel();
        running.await.unwrap();
    }
}
