//! Two nodes that tell each other where they are.

use super::*;
use crate::base::budget::Budget;
use crate::base::events::Events;
use crate::gossip::{Digest, EndpointState, MOVE_STATE, PLAN_STATE};
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::net::Channel;
use crate::net::Inbound;
use crate::net::message::Header;
use crate::net::messenger::{Replies, Request};
use crate::repair::{Host, Place};
use crate::replica::{HINT_SEGMENT_BYTES, HintOptions, ReplicaOptions};
use crate::ring::Partitioner;
use crate::storage::engine::Components;
use crate::storage::options::{FamilyOptions, Options};
use crate::storage::saved_ring::SavedRing;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Weak, mpsc};
use std::thread::ThreadId;

/// Keeps what is sent until the test delivers it.
#[derive(Debug, Default)]
struct Wire(Mutex<Vec<(IpAddr, Arc<[u8]>)>>);

impl Transport for Wire {
    fn send(&self, to: IpAddr, _channel: Channel, message: Arc<[u8]>, _deadline: Duration) {
        self.0.lock().unwrap().push((to, message));
    }

    fn disconnect(&self, _peer: IpAddr) {}

    fn set_checksums(&self, _peer: IpAddr, _checksums: bool) {}
}

/// Looks whether the lock of gossip is free whenever a note is written, which asks for this time.
#[derive(Debug, Default)]
struct Watch {
    clock: ManualClock,
    member: Mutex<Weak<Member>>,
    /// For each note whether it was free.
    notes: Mutex<Vec<bool>>,
    millis: AtomicU64,
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
        self.millis.load(Ordering::Relaxed)
    }
}

fn address(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn open_storage(fs: &SimFileSystem) -> Arc<Storage> {
    let components = Components {
        fs: Arc::new(fs.clone()),
        clock: Arc::new(ManualClock::default()),
        events: Events::ignored(),
    };
    let family = ColumnFamilySchema {
        keyspace: system::KEYSPACE.into(),
        name: system::LOCATION_INFO.into(),
        kind: ColumnFamilyKind::Standard { columns: Comparator::Bytes },
        comment: None,
    };
    let (options, schema) = (Options::new("/data", "/log"), Arc::new(Schema::new([family.into()])));
    let family = |_| FamilyOptions::default();
    let storage = Storage::open(components, options, Partitioner::Random, schema, family);
    Arc::new(storage.unwrap())
}

fn open_hints(schema: Arc<Schema>) -> Arc<HintStore> {
    let options = HintOptions {
        directory: "/hints".into(),
        max_age: Duration::from_hours(1),
        max_bytes_per_target: 1 << 20,
        segment_bytes: HINT_SEGMENT_BYTES,
        schema,
        gc_grace: BTreeMap::new(),
    };
    let (fs, clock) = (Arc::new(SimFileSystem::new(1)), Arc::new(ManualClock::default()));
    Arc::new(HintStore::open(fs, clock, fastrand::Rng::with_seed(1), options).unwrap())
}

fn member(last: u8, wire: &Arc<Wire>) -> (Arc<Member>, Arc<Watch>) {
    member_on(&SimFileSystem::new(u64::from(last)), last, wire)
}

fn member_on(fs: &SimFileSystem, last: u8, wire: &Arc<Wire>) -> (Arc<Member>, Arc<Watch>) {
    start(setup(fs, last, wire, true))
}

/// Options of a node at this address, at its first start and with a token of its own.
fn setup(
    fs: &SimFileSystem,
    last: u8,
    wire: &Arc<Wire>,
    runs_inline: bool,
) -> (MemberOptions, Arc<Watch>) {
    let (storage, clock) = (open_storage(fs), Arc::new(Watch::default()));
    let hints = open_hints(Arc::clone(storage.schema()));
    let replica = ReplicaOptions {
        concurrent_reads: 1,
        concurrent_writes: 1,
        memory: Budget::new(1 << 20),
        runs_inline,
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
        reads: ReadOptions {
            speculative_percentile: None,
            repairs: true,
            repair_chances: Vec::new(),
            dynamic_snitch: None,
        },
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

/// Takes all messages where they are to go, and those that come of it.
fn deliver(wire: &Wire, members: &[Watched]) {
    loop {
        let sent = std::mem::take(&mut *wire.0.lock().unwrap());
        if sent.is_empty() {
            break;
        }
        for (to, message) in sent {
            let receivers = members.iter().filter(|(it, _)| it.local == to);
            receivers.for_each(|(it, _)| Receiver::new(Arc::clone(it)).receive(&message));
        }
    }
}

fn round((member, watch): &Watched) {
    watch.clock.advance(GOSSIP_INTERVAL);
    member.gossip_round();
}

/// Whom writes are on their way to, after all that a task can do now.
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
    member.hints.as_ref().unwrap().store(target, &hint).unwrap();
}

#[tokio::test]
async fn hints_follow_a_node_to_its_new_address() {
    let wire = Arc::new(Wire::default());
    let one = member(1, &wire);
    one.0.begin();
    let hints = one.0.hints.as_ref().unwrap();
    let token = Partitioner::Random.token(&[2]);
    for (generation, at) in [(1, 2), (2, 3), (3, 4), (4, 2)] {
        let (mut options, watch) = setup(&SimFileSystem::new(u64::from(at)), at, &wire, true);
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

#[tokio::test(start_paused = true)]
async fn a_starting_node_waits_for_members_that_it_can_ask() {
    starts_among_members_after(Duration::ZERO).await;
}

/// Others do not answer a node at once whose address they have just removed.
#[tokio::test(start_paused = true)]
async fn a_starting_node_that_is_answered_late_waits_for_members_all_the_same() {
    starts_among_members_after(Duration::from_secs(8)).await;
}

/// After a silence, a node of 0.6 tells a starting node of a member that then speaks for itself, in
/// the same second.
async fn starts_among_members_after(silence: Duration) {
    let wire = Arc::new(Wire::default());
    let fs = SimFileSystem::new(3);
    let (options, watch) = setup(&fs, 3, &wire, true);
    let new = start((MemberOptions { token: None, ..options }, watch));
    let one = member(1, &wire);
    let members = [one.clone(), new.clone()];
    one.0.begin();
    wire.0.lock().unwrap().clear();
    let known = one.0.with_gossip(|gossiper, _| gossiper.state(address(1)).cloned().unwrap());
    new.0.begin();
    let settled = {
        let new = Arc::clone(&new.0);
        tokio::spawn(async move { new.settle().await })
    };
    tokio::time::sleep(silence).await;
    wire.0.lock().unwrap().clear();
    let token = Partitioner::Random.token(&[2]);
    let place = Move::Normal { token, removed: None }.format(Partitioner::Random);
    hear(&new.0, 2, vec![(1, known), (2, said(1, &place))]);
    deliver(&wire, &members);
    let is_alive = || new.0.with_gossip(|gossiper, _| gossiper.is_alive(address(1)));
    tokio::time::sleep(GOSSIP_INTERVAL).await;
    assert!(is_alive() || !settled.is_finished(), "it would ask nobody");
    round(&one);
    round(&new);
    deliver(&wire, &members);
    settled.await.unwrap();
    assert!(is_alive());
}

/// As when a node was decommissioned, and a new one is started at its address.
#[tokio::test(start_paused = true)]
async fn who_was_just_forgotten_waits_until_it_is_heard() {
    let wire = Arc::new(Wire::default());
    let members = [member(1, &wire), member(2, &wire)];
    let [one, two] = &members;
    for (member, _) in &members {
        member.begin();
    }
    one.0.lock().gossiper.forget(address(2), one.1.monotonic());
    let settled = {
        let two = Arc::clone(&two.0);
        tokio::spawn(async move { two.settle().await })
    };
    let mut rounds = 0;
    while !settled.is_finished() {
        members.iter().for_each(round);
        deliver(&wire, &members);
        tokio::time::sleep(GOSSIP_INTERVAL).await;
        rounds += 1;
    }
    let is_known = two.0.with_gossip(|gossiper, _| gossiper.is_alive(address(1)));
    assert!(is_known && rounds > RING_DELAY.as_secs(), "{rounds}");
    // If nobody says anything it serves on by itself, before long.
    let lonely = member(3, &wire);
    lonely.0.begin();
    let began = tokio::time::Instant::now();
    lonely.0.settle().await;
    assert!(began.elapsed() < RING_DELAY);
}

#[tokio::test]
async fn hints_go_to_who_was_heard_of_just_now() {
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

/// What another node says of itself.
fn said(generation: i32, place: &str) -> EndpointState {
    let mut state = EndpointState::new(generation);
    state.set(MOVE_STATE, place);
    state
}

/// A node hears this from another one.
fn hear(member: &Member, from: u8, states: Vec<(u8, EndpointState)>) {
    let states = states.into_iter().map(|(last, state)| (address(last), state)).collect();
    let mut gossip = member.lock();
    let now = member.clock.monotonic();
    for message in asked_for(states) {
        let effects = gossip.gossiper.receive(address(from), message, now);
        member.act(&mut gossip, effects);
    }
    member.write_notes(gossip);
}

/// An ACK2 with states, after a SYN that lists them.
fn asked_for(states: Vec<(IpAddr, EndpointState)>) -> [GossipMessage; 2] {
    let digest = |(endpoint, state): &(IpAddr, EndpointState)| {
        let (generation, max_version) = state.age();
        Digest { endpoint: *endpoint, generation, max_version }
    };
    let (cluster_name, digests) = ("Test".to_owned(), states.iter().map(digest).collect());
    [GossipMessage::Syn { cluster_name, digests }, GossipMessage::Ack2 { states }]
}

fn is_member(member: &Member, last: u8) -> bool {
    member.with_gossip(|_, membership| membership.members().is_member(address(last)))
}

/// Starts node 1, with the clock at so many milliseconds, and ends it in order.
fn during_a_start(fs: &SimFileSystem, millis: u64, act: impl FnOnce(&Member)) {
    let (member, clock) = member_on(fs, 1, &Arc::new(Wire::default()));
    clock.millis.store(millis, Ordering::Relaxed);
    member.begin();
    act(&member);
    member.storage.close();
}

fn token(last: u8) -> String {
    Partitioner::Random.format_token(&Partitioner::Random.token(&[last]))
}

#[test]
fn notes_count_although_the_clock_was_set_back() {
    let fs = SimFileSystem::new(1);
    let normal = |number: u8| format!("NORMAL,{}", token(number));
    during_a_start(&fs, 9_000, |member| {
        hear(member, 2, vec![(2, said(100, &normal(20)))]);
        hear(member, 3, vec![(3, said(100, &normal(30)))]);
        hear(member, 3, vec![(3, said(101, &format!("LEFT,{}", token(30))))]);
    });
    during_a_start(&fs, 5_000, |member| {
        assert!(is_member(member, 2) && !is_member(member, 3));
        hear(member, 2, vec![(2, said(200, &normal(21)))]);
        hear(member, 3, vec![(3, said(200, &normal(31)))]);
    });
    let storage = open_storage(&fs);
    let token = |number: u8| Partitioner::Random.token(&[number]);
    let expected = [(address(2), token(21)), (address(3), token(31))];
    assert_eq!(SavedRing::read(&storage).unwrap().members, expected);
}

#[test]
fn who_acknowledges_nothing_yet_is_not_waited_for() {
    let (member, _) = member(1, &Arc::new(Wire::default()));
    member.begin();
    let gone = |last: u8, reads: &str| {
        hear(&member, last, vec![(last, said(100, &format!("NORMAL,{}", token(last))))]);
        let mut state = said(200, &format!("LEFT,{}", token(last)));
        state.set(PLAN_STATE, &format!("gone,{},{}", address(last), token(last)));
        state.set(READS_STATE, reads);
        hear(&member, last, vec![(last, state)]);
        member.coordinator().ring().former().is_some()
    };
    // It says that it has left after it was killed, and acknowledges nothing.
    assert!(!gone(20, "unsure"));
    assert_eq!(member.coordinator().peers().unsure, [address(20)].into());
    assert!(gone(30, ""));
}

#[test]
fn a_removal_is_told_until_another_node_has_the_token() {
    let (member, _) = member(1, &Arc::new(Wire::default()));
    member.begin();
    let [own, removed] = [1, 20].map(|it| Partitioner::Random.token(&[it]));
    Host::learn(&*member, &[NodePlace { endpoint: address(2), token: removed.clone() }]);
    hear(&member, 3, vec![(3, said(100, &format!("NORMAL,{}", token(30))))]);
    Host::announce(&*member, &Place::Removed(own, removed));
    let tells = || {
        let place = member.lock().place.clone();
        matches!(place, Some(Move::Normal { removed: Some(_), .. }))
    };
    assert!(!is_member(&member, 2) && tells());
    hear(&member, 3, vec![(3, said(200, &format!("NORMAL,{}", token(31))))]);
    assert!(tells());
    hear(&member, 4, vec![(4, said(100, &format!("BOOT,{}", token(20))))]);
    assert!(!tells());
    let said = member.with_gossip(|gossiper, _| {
        gossiper.state(address(1)).and_then(|it| it.value(MOVE_STATE)).map(str::to_owned)
    });
    assert_eq!(said, Some(format!("NORMAL,{}", token(1))));
}

#[test]
fn a_node_is_removed_by_the_word_of_members_alone() {
    let (member, _) = member(1, &Arc::new(Wire::default()));
    member.begin();
    let says = |place: &str| {
        let mut state = said(100, place);
        state.set(REMOVED_STATE, &format!("{},{}", address(1), i32::MAX));
        hear(&member, 3, vec![(3, state)]);
        member.coordinator().peers().is_self_removed
    };
    assert!(!says(&format!("BOOT,{}", token(30))));
    hear(&member, 3, vec![(3, said(200, &format!("NORMAL,{}", token(30))))]);
    assert!(!member.coordinator().peers().is_self_removed);
}

#[test]
fn a_removed_node_that_may_return_does_so_and_stays_over_restarts() {
    for is_early in [true, false] {
        removed_and_taken_back(is_early);
    }
}

/// Node 2 is back before it may be, or after that.
fn removed_and_taken_back(is_early: bool) {
    let fs = SimFileSystem::new(1);
    let normal = |number: u8| format!("NORMAL,{}", token(number));
    let removal = || said(100, &format!("{},remove,{}", normal(3), token(2)));
    during_a_start(&fs, 1_000, |member| {
        hear(member, 3, vec![(2, said(100, &normal(2)))]);
        assert_eq!(member.allow_return(address(2)), None, "it was not removed");
        hear(member, 3, vec![(3, removal())]);
        assert!(!is_member(member, 2));
        assert_eq!(member.allow_return(address(3)), None);
    });
    during_a_start(&fs, 2_000, |member| {
        if is_early {
            hear(member, 2, vec![(2, said(200, &normal(2)))]);
            assert!(!is_member(member, 2));
        }
        assert_eq!(member.allow_return(address(2)), Some(is_early));
        assert_eq!(is_member(member, 2), is_early);
    });
    during_a_start(&fs, 3_000, |member| {
        assert_eq!(is_member(member, 2), is_early);
        hear(member, 2, vec![(2, said(200, &normal(2)))]);
        assert!(is_member(member, 2));
    });
    during_a_start(&fs, 4_000, |member| {
        // The one that has removed it still says so.
        hear(member, 3, vec![(3, removal())]);
        assert!(is_member(member, 2));
        hear(member, 2, vec![(2, said(300, &normal(2)))]);
        assert!(is_member(member, 2));
        assert_eq!(member.allow_return(address(2)), None, "it is back");
    });
}

/// Tells on which thread a request is given up.
#[derive(Debug)]
struct GivenUp(mpsc::Sender<ThreadId>);

impl Replies for GivenUp {
    fn on_reply(&self, _tag: u32, _from: IpAddr, _body: &[u8], _took: Duration) {}

    fn on_timeout(&self, _tag: u32, _missing: &[IpAddr]) {
        self.0.send(std::thread::current().id()).unwrap();
    }
}

#[tokio::test]
async fn who_waits_for_gossip_does_not_wait_for_the_hints_of_others() {
    for runs_inline in [false, true] {
        let fs = SimFileSystem::new(1);
        let (member, watch) = start(setup(&fs, 1, &Arc::default(), runs_inline));
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
        assert_eq!(thread == std::thread::current().id(), runs_inline);
        stop.cancel();
        running.await.unwrap();
    }
}

#[test]
fn a_place_that_was_lost_for_a_while_is_announced_anew() {
    let (member, clock) = member(1, &Arc::new(Wire::default()));
    member.begin();
    let hear = |generation, token: &[u8]| {
        let token = Partitioner::Random.token(token);
        let place = Move::Normal { token, removed: None }.format(Partitioner::Random);
        let mut state = EndpointState::new(generation);
        state.set(MOVE_STATE, &place);
        hear(&member, 2, vec![(2, state)]);
    };
    let announced = || {
        member.with_gossip(|gossiper, membership| {
            let place = gossiper.state(address(1)).unwrap().states[MOVE_STATE].clone();
            (membership.members().is_member(address(1)), place.version, place.value)
        })
    };
    let (_, first, value) = announced();
    hear(2, &[1]);
    assert_eq!(announced(), (false, first, value.clone()));
    hear(3, &[2]);
    let (is_member, second, _) = announced();
    assert!(is_member && second > first);
    // Once more, for who heard that before it heard that the token is free.
    for _ in 0..=RING_DELAY.as_secs() {
        clock.clock.advance(GOSSIP_INTERVAL);
        member.gossip_round();
    }
    let (_, third, again) = announced();
    assert!(third > second + 20 && again == value);
    clock.clock.advance(RING_DELAY * 2);
    member.gossip_round();
    assert_eq!(announced().1, third);
    let other = (address(2), Partitioner::Random.token(&[2]));
    let saved = SavedRing::read(&member.storage).unwrap().members;
    assert!(saved.contains(&other), "{saved:?}");
}

/// What this node answers to a call of another one.
async fn call(member: &Arc<Member>, wire: &Wire, from: u8, name: &str) -> String {
    wire.0.lock().unwrap().clear();
    let mut message = Message::new(7.into(), address(from), Verb::StreamRequest, b"{}");
    message.headers.push(Header { name: extensions::CALL.into(), value: name.as_bytes() });
    Receiver::new(Arc::clone(member)).receive(&message.encode().unwrap());
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let sent = wire.0.lock().unwrap();
    let (_, answer) = sent.last().expect("it answers");
    String::from_utf8_lossy(answer).into_owned()
}

#[tokio::test]
async fn calls_of_a_removed_node_are_refused_but_for_questions_about_the_ring() {
    let wire = Arc::new(Wire::default());
    let (member, _) = member(1, &wire);
    member.begin();
    let normal = |number: u8| format!("NORMAL,{}", token(number));
    hear(&member, 3, vec![(2, said(100, &normal(2))), (3, said(100, &normal(3)))]);
    let refusal = "not done for 10.0.0.2: it was removed from the ring or replaced";
    assert!(!call(&member, &wire, 2, "collect").await.contains(refusal));
    let removal = format!("{},remove,{}", normal(3), token(2));
    hear(&member, 3, vec![(3, said(101, &removal))]);
    for name in ["collect", "collect-rows", "how-far", "piece", "rows", "validate"] {
        let answer = call(&member, &wire, 2, name).await;
        assert!(answer.contains(refusal), "{name}: {answer}");
    }
    for name in ["which-ring", "which-token", "where-is", "has-heard"] {
        let answer = call(&member, &wire, 2, name).await;
        assert!(!answer.contains(refusal), "{name}: {answer}");
    }
}

#[test]
fn a_node_that_others_take_for_dead_for_its_generation_does_not_read_from_itself() {
    let fs = SimFileSystem::new(1);
    let far = 2_000_000_000;
    let establish = |now_secs| {
        let storage = open_storage(&fs);
        let identity = system::establish_identity(&storage, "Test", now_secs, false).unwrap();
        storage.close();
        identity.generation
    };
    assert_eq!(establish(far), far);
    let (options, clock) = setup(&fs, 1, &Arc::new(Wire::default()), true);
    let (member, clock) = start((MemberOptions { generation: far, ..options }, clock));
    member.begin();
    let normal = format!("NORMAL,{}", token(2));
    let is_read_from = || !member.coordinator().peers().incomplete.contains(&address(1));
    for heartbeat in 1..20 {
        clock.clock.advance(GOSSIP_INTERVAL);
        let mut of_other = said(100, &normal);
        of_other.heartbeat = heartbeat;
        let known = EndpointState::new(90);
        hear(&member, 2, vec![(1, known.clone()), (2, of_other), (1, known)]);
        member.gossip_round();
        let is_refused = member.with_gossip(|gossiper, _| gossiper.is_refused());
        assert_eq!(is_read_from(), !is_refused, "after {heartbeat} s");
        assert_eq!(is_refused, heartbeat <= 10, "after {heartbeat} s");
    }
    let saved = member.with_gossip(|gossiper, _| gossiper.generation());
    assert!(saved < 200, "{saved}");
    member.storage.close();
    drop(member);
    assert_eq!(establish(0), saved + 1, "it is saved");
}

#[test]
fn a_node_that_took_its_place_alone_is_not_read_from_when_others_are_there() {
    let (fs, wire) = (SimFileSystem::new(1), Arc::new(Wire::default()));
    let (options, clock) = setup(&fs, 1, &wire, true);
    let (member, clock) = start((MemberOptions { token: None, ..options }, clock));
    member.begin();
    let is_read_from = || !member.coordinator().peers().incomplete.contains(&address(1));
    member.announce(&Place::First(Partitioner::Random.token(&[1])));
    assert!(is_read_from(), "its own clients are served");
    let place = format!("NORMAL,{}", token(2));
    hear(&member, 2, vec![(2, said(100, &place))]);
    clock.clock.advance(GOSSIP_INTERVAL);
    assert!(!is_read_from(), "the other may know data of it");
    member.serve_reads();
    assert!(is_read_from());
    member.storage.close();
}
