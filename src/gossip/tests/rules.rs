//! The rules of gossip one by one, with gossipers in hand.

use crate::gossip::admission::{MAX_ENDPOINTS, MAX_STRANGERS, MAX_VALUE_LENGTH};
use crate::gossip::message::tests::arb_message;
use crate::gossip::{
    Digest, EXTENSIONS_STATE, Effects, EndpointState, GenerationConflict, GossipEvent,
    GossipMessage, Gossiper, GossiperOptions, LOAD_STATE, MOVE_STATE, Refusal,
};
use crate::ring::{Partitioner, Token};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

/// The time of day at which the tests' clocks start, in seconds since 1970.
const NOW_SECS: i64 = 1_000_000;

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node_of(cluster_name: &str, last: u8, seeds: &[u8], generation: i32) -> Gossiper {
    let options = GossiperOptions {
        local: ip(last),
        cluster_name: cluster_name.to_owned(),
        partitioner: Partitioner::Random,
        seeds: seeds.iter().map(|&seed| ip(seed)).collect(),
        generation,
        phi_convict_threshold: 8.0,
        now_secs: NOW_SECS,
    };
    let rng = fastrand::Rng::with_seed(u64::from(last));
    let mut node = Gossiper::new(options, rng, Duration::ZERO);
    node.set_state(MOVE_STATE, &format!("NORMAL,{last}")).unwrap();
    node
}

fn node(last: u8, seeds: &[u8]) -> Gossiper {
    node_of("Test Cluster", last, seeds, 100)
}

/// Delivers messages between these nodes until there are none. Returns who found out what.
fn deliver(
    nodes: &mut [&mut Gossiper],
    from: IpAddr,
    effects: Effects,
    now: Duration,
) -> Vec<(IpAddr, GossipEvent)> {
    let mut events: Vec<_> = effects.events.into_iter().map(|event| (from, event)).collect();
    let mut queue: Vec<_> = effects.messages.into_iter().map(|it| (from, it)).collect();
    while !queue.is_empty() {
        let (from, (to, message)) = queue.remove(0);
        let Some(node) = nodes.iter_mut().find(|node| local(node) == to) else { continue };
        let effects = node.receive(from, message, now);
        events.extend(effects.events.into_iter().map(|event| (to, event)));
        queue.extend(effects.messages.into_iter().map(|it| (to, it)));
    }
    events
}

fn local(node: &Gossiper) -> IpAddr {
    node.endpoints().next().unwrap().0
}

/// A round of the first node, and what comes of it.
fn round(nodes: &mut [&mut Gossiper], now: Duration) -> Vec<(IpAddr, GossipEvent)> {
    let effects = nodes[0].tick(now);
    let from = local(nodes[0]);
    deliver(nodes, from, effects, now)
}

/// What a node found out, without the states.
fn lines(events: &[(IpAddr, GossipEvent)], who: IpAddr) -> Vec<String> {
    let events = events
        .iter()
        .filter(|(node, event)| *node == who && !matches!(event, GossipEvent::StateChanged { .. }));
    events.map(|(_, event)| event.to_string()).collect()
}

fn state(generation: i32, heartbeat: i32, states: &[(&str, &str)]) -> EndpointState {
    let mut state = EndpointState::new(generation);
    for (name, value) in states {
        state.set(name, value);
    }
    EndpointState { heartbeat, ..state }
}

fn tell(node: &mut Gossiper, about: u8, state: EndpointState, now: Duration) -> Vec<GossipEvent> {
    tell_all(node, 9, vec![(ip(about), state)], now)
}

/// Sends states in an ACK2, after a SYN that lists those of unknown endpoints, so that they are
/// asked for. Returns the events of the ACK2.
fn tell_all(
    node: &mut Gossiper,
    from: u8,
    states: Vec<(IpAddr, EndpointState)>,
    now: Duration,
) -> Vec<GossipEvent> {
    let unknown = states.iter().filter(|(endpoint, _)| node.state(*endpoint).is_none());
    let digests: Vec<Digest> = unknown.map(|(endpoint, state)| digest(*endpoint, state)).collect();
    if !digests.is_empty() {
        let cluster_name = "Test Cluster".to_owned();
        node.receive(ip(from), GossipMessage::Syn { cluster_name, digests }, now);
    }
    node.receive(ip(from), GossipMessage::Ack2 { states }, now).events
}

fn digest(endpoint: IpAddr, state: &EndpointState) -> Digest {
    Digest { endpoint, generation: state.generation, max_version: state.max_version() }
}

fn is_refused(event: &GossipEvent) -> bool {
    matches!(event, GossipEvent::Refused { .. })
}

fn members(nodes: &[u8]) -> BTreeSet<IpAddr> {
    nodes.iter().map(|&node| ip(node)).collect()
}

#[test]
fn three_messages_make_two_nodes_known_to_each_other() {
    let (mut a, mut b) = (node(1, &[1]), node(2, &[1]));
    assert_eq!(a.tick(secs(1)).messages, [], "a lone seed has nobody to talk to");
    let events = round(&mut [&mut b, &mut a], secs(1));
    let known = |last| {
        let node = format!("Node /10.0.0.{last} is now part of the cluster");
        vec![node, format!("InetAddress /10.0.0.{last} is now UP")]
    };
    assert_eq!(lines(&events, ip(1)), known(2));
    assert_eq!(lines(&events, ip(2)), known(1));
    assert!(a.is_alive(ip(2)) && b.is_alive(ip(1)));
    assert_eq!(a.state(ip(2)), b.state(ip(2)));
    assert_eq!(a.state(ip(2)).unwrap().value(MOVE_STATE), Some("NORMAL,2"));
}

#[test]
fn a_newcomer_learns_all_in_the_round_trip_with_a_seed() {
    let (mut a, mut b, mut c) = (node(1, &[1]), node(2, &[1]), node(3, &[1]));
    round(&mut [&mut b, &mut a], secs(1));
    let effects = c.start(secs(2));
    deliver(&mut [&mut a, &mut c], ip(3), effects, secs(2));
    assert_eq!(c.endpoints().count(), 3);
    assert!(c.is_alive(ip(1)) && !c.is_alive(ip(2)), "who is only heard of counts as dead");
    // Its next heartbeat makes it alive.
    round(&mut [&mut b, &mut a], secs(3));
    let events = round(&mut [&mut a, &mut c], secs(3));
    let events = [events, round(&mut [&mut c, &mut a], secs(3))].concat();
    assert_eq!(lines(&events, ip(3)), ["InetAddress /10.0.0.2 is now UP"]);
}

/// A node that has lost its disk, and begins without a place.
fn wiped(last: u8, seeds: &[u8]) -> Gossiper {
    let mut node = node_of("Test Cluster", last, seeds, 200);
    node.set_state(MOVE_STATE, "").unwrap();
    node.set_state(EXTENSIONS_STATE, "calls").unwrap();
    node.ask_first();
    node
}

fn remembered(by: u8, token: u8) -> (IpAddr, Token) {
    (ip(by), Partitioner::Random.parse_token(&token.to_string()).unwrap())
}

#[test]
fn a_wiped_node_hears_of_its_token_before_others_hear_of_its_new_start() {
    let (mut a, mut b) = (node(1, &[1]), node(2, &[1]));
    round(&mut [&mut b, &mut a], secs(1));
    let mut b = wiped(2, &[1]);
    for time in 2..5 {
        round(&mut [&mut b, &mut a], secs(time));
        round(&mut [&mut a, &mut b], secs(time));
    }
    assert_eq!(b.remembered(), Some(&remembered(1, 2)));
    assert!(b.is_alive(ip(1)), "it knows the others");
    assert_eq!(a.state(ip(2)).unwrap().generation, 100);
    // The node has decided how it goes on.
    b.show();
    round(&mut [&mut b, &mut a], secs(5));
    assert_eq!((b.remembered(), a.state(ip(2)).unwrap().generation), (None, 200));
}

#[test]
fn a_wiped_node_without_seeds_hears_of_its_token_from_the_first_peer() {
    let (mut a, mut b) = (node(1, &[1]), node(2, &[1]));
    round(&mut [&mut b, &mut a], secs(1));
    let mut b = wiped(2, &[2]);
    assert_eq!(b.start(secs(2)).messages, [], "it has nobody to ask");
    for time in 2..20 {
        round(&mut [&mut a, &mut b], secs(time));
    }
    assert_eq!(b.remembered(), Some(&remembered(1, 2)));
    assert_eq!(a.state(ip(2)).unwrap().generation, 100);
}

#[test]
fn a_node_of_which_nobody_remembers_a_token_is_known_after_one_round_trip() {
    let (mut a, mut b) = (node(1, &[1]), wiped(2, &[1]));
    round(&mut [&mut b, &mut a], secs(1));
    assert_eq!((b.remembered(), a.state(ip(2)).unwrap().generation), (None, 200));
    // One that has left, and begins again.
    b.set_state(MOVE_STATE, "LEFT,2").unwrap();
    round(&mut [&mut b, &mut a], secs(2));
    let mut b = node_of("Test Cluster", 2, &[1], 300);
    b.ask_first();
    round(&mut [&mut b, &mut a], secs(3));
    round(&mut [&mut b, &mut a], secs(4));
    assert_eq!((b.remembered(), a.state(ip(2)).unwrap().generation), (None, 300));
    // One that was removed.
    a.forget(ip(2), secs(4));
    let mut b = node_of("Test Cluster", 2, &[1], 400);
    b.ask_first();
    round(&mut [&mut b, &mut a], secs(40));
    round(&mut [&mut b, &mut a], secs(41));
    assert_eq!((b.remembered(), a.state(ip(2)).unwrap().generation), (None, 400));
}

#[test]
fn a_member_that_knows_the_address_from_its_saved_ring_has_not_answered() {
    let mut a = node(1, &[1]);
    a.preload([ip(1), ip(2)]);
    let mut b = wiped(2, &[2]);
    for time in 1..5 {
        round(&mut [&mut a, &mut b], secs(time));
        round(&mut [&mut b, &mut a], secs(time));
    }
    assert!(b.is_hidden() && b.is_alive(ip(1)), "the node asks by a call, and decides");
    b.show();
    round(&mut [&mut b, &mut a], secs(5));
    assert_eq!(a.state(ip(2)).unwrap().generation, 200);
}

#[test]
fn a_member_that_knows_the_address_from_its_saved_ring_says_so_in_its_first_answer() {
    for (saved, is_answer) in [(vec![ip(2)], false), (vec![], true)] {
        let mut a = node(1, &[1]);
        a.preload(saved);
        let mut b = wiped(2, &[1]);
        let (_, syn) = b.start(secs(1)).messages.remove(0);
        let (_, ack) = a.receive(ip(2), syn, secs(1)).messages.remove(0);
        b.receive(ip(1), ack, secs(1));
        assert_eq!(!b.is_hidden(), is_answer);
    }
}

#[test]
fn who_has_no_place_cannot_say_that_an_address_had_none() {
    let mut stranger = node(1, &[2]);
    stranger.set_state(MOVE_STATE, "").unwrap();
    let mut b = wiped(2, &[2]);
    for time in 1..5 {
        round(&mut [&mut stranger, &mut b], secs(time));
        round(&mut [&mut b, &mut stranger], secs(time));
    }
    assert!(b.is_hidden());
    let mut a = node(3, &[2]);
    round(&mut [&mut a, &mut b], secs(5));
    assert!(!b.is_hidden());
}

#[test]
fn new_nodes_show_themselves_to_each_other() {
    let (mut a, mut b) = (wiped(1, &[1]), wiped(2, &[1]));
    // The first has a place meanwhile, as nobody was there.
    a.keep_asking();
    round(&mut [&mut b, &mut a], secs(1));
    assert!(!a.is_hidden() && !b.is_hidden());
    round(&mut [&mut b, &mut a], secs(2));
    assert!(a.state(ip(2)).is_some() && b.state(ip(1)).is_some());
}

#[test]
fn a_saved_ring_is_known_after_one_round_trip_with_anybody_of_it() {
    let (mut a, mut b, mut c) = (node(1, &[9]), node(2, &[1]), node(3, &[9]));
    round(&mut [&mut b, &mut a], secs(1));
    c.preload([ip(1), ip(2), ip(3), ip(4)]);
    let effects = c.start(secs(2));
    let targets: Vec<IpAddr> = effects.messages.iter().map(|(to, _)| *to).collect();
    assert_eq!(targets, [ip(1), ip(2), ip(4), ip(9)]);
    // Only the SYN to one of them arrives.
    deliver(&mut [&mut a, &mut c], ip(3), effects, secs(2));
    assert_eq!(c.state(ip(2)), b.state(ip(2)));
    assert!(!c.is_alive(ip(4)));
    // Whom nobody knows is tried for some rounds, and stays a member that is dead.
    let to_silent = |effects: Effects| effects.messages.iter().any(|(to, _)| *to == ip(4));
    assert!((3..7).all(|second| to_silent(c.tick(secs(second)))));
    assert!((7..100).any(|second| !to_silent(c.tick(secs(second)))));
    assert!((100..200).any(|second| to_silent(c.tick(secs(second)))));
}

#[test]
fn a_saved_member_that_most_others_do_not_know_is_disowned() {
    let mut a = node(1, &[]);
    a.preload((2..=5).map(ip));
    let syn = |a: &mut Gossiper, from, listed: &[u8], now| {
        let digest = |last: &u8| Digest { endpoint: ip(*last), generation: 0, max_version: 0 };
        let digests = listed.iter().map(digest).collect();
        let syn = GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests };
        a.receive(ip(from), syn, secs(now));
    };
    tell(&mut a, 2, state(100, 1, &[]), secs(1));
    tell(&mut a, 3, state(100, 1, &[]), secs(1));
    syn(&mut a, 2, &[2], 2);
    syn(&mut a, 3, &[3, 4, 5], 2);
    syn(&mut a, 9, &[9], 2);
    let disowned = |a: &mut Gossiper, now| {
        let events = a.tick(secs(now)).events.into_iter();
        events.filter(|event| matches!(event, GossipEvent::Disowned { .. })).collect::<Vec<_>>()
    };
    assert_eq!(disowned(&mut a, 40), [], "one of three is no majority, a stranger has no say");
    syn(&mut a, 3, &[3, 4], 41);
    assert_eq!(disowned(&mut a, 42), [GossipEvent::Disowned { endpoint: ip(5) }]);
    assert_eq!(disowned(&mut a, 43), []);
}

#[test]
fn another_cluster_gets_no_answer() {
    let (mut a, mut b) = (node(1, &[]), node_of("Other", 2, &[1], 100));
    let events = round(&mut [&mut b, &mut a], secs(1));
    assert_eq!(lines(&events, ip(1)), ["ClusterName mismatch from /10.0.0.2 Other!=Test Cluster"]);
    assert_eq!((a.endpoints().count(), b.endpoints().count()), (1, 1));
}

#[test]
fn a_greater_generation_replaces_all_and_a_smaller_one_counts_for_nothing() {
    let mut a = node(1, &[]);
    tell(&mut a, 2, state(100, 50, &[(MOVE_STATE, "NORMAL,2"), ("X", "x")]), secs(1));
    let events = tell(&mut a, 2, state(101, 1, &[(MOVE_STATE, "NORMAL,7")]), secs(2));
    assert_eq!(events[0].to_string(), "Node /10.0.0.2 has restarted, now UP again");
    assert!(matches!(&events[1..], [GossipEvent::StateChanged { generation: 101, .. }]));
    assert_eq!(a.state(ip(2)).unwrap().value("X"), None);
    assert!(a.is_alive(ip(2)));
    assert_eq!(tell(&mut a, 2, state(100, 99, &[(MOVE_STATE, "LEFT,2")]), secs(3)), []);
    assert_eq!(a.state(ip(2)).unwrap().age(), (101, 1));
}

#[test]
fn duplicates_in_digests_and_requests_are_answered_once() {
    let mut a = node(1, &[]);
    let known = state(100, 5, &[(EXTENSIONS_STATE, "calls")]);
    tell(&mut a, 2, known.clone(), secs(1));
    let digest = |last, max_version| Digest { endpoint: ip(last), generation: 100, max_version };
    let digests = vec![digest(3, 7), digest(2, 4), digest(2, 9), digest(3, 7), digest(1, 0)];
    let syn = GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests };
    let effects = a.receive(ip(3), syn.clone(), secs(2));
    let [(to, GossipMessage::Ack { wanted, states }), (_, GossipMessage::Syn { .. })] =
        &effects.messages[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!((*to, &wanted[..]), (ip(3), &[digest(2, 5), digest(3, 0)][..]));
    assert_eq!(states, &[(ip(1), a.state(ip(1)).unwrap().clone())]);
    assert_eq!(a.receive(ip(3), syn, secs(2)).messages.len(), 1, "greeted once in a round");

    let wanted = vec![digest(2, 3), digest(2, 3), digest(4, 0)];
    let effects = a.receive(ip(3), GossipMessage::Ack { wanted, states: Vec::new() }, secs(2));
    let states = vec![(ip(2), known.newer_than(3).unwrap())];
    assert_eq!(effects.messages, [(ip(3), GossipMessage::Ack2 { states })]);
}

#[test]
fn silence_convicts_and_a_heartbeat_revives() {
    let mut a = node(1, &[]);
    a.set_members(members(&[1, 2]));
    for second in 1..=30 {
        tell(&mut a, 2, state(100, second, &[(MOVE_STATE, "NORMAL,2")]), secs(second as u64));
        a.tick(secs(second as u64));
    }
    let mut down = Vec::new();
    for second in 31..100_000 {
        let events = a.tick(secs(second)).events;
        down.extend(events.into_iter().map(|event| (second, event)));
    }
    assert_eq!(down, [(49, GossipEvent::Down { endpoint: ip(2) })], "a member is never forgotten");
    let events = tell(&mut a, 2, state(100, 30, &[]), secs(100_000));
    assert_eq!((events, a.is_alive(ip(2))), (Vec::new(), false));
    let events = tell(&mut a, 2, state(100, 31, &[]), secs(100_000));
    assert_eq!(events, [GossipEvent::Up { endpoint: ip(2) }]);
    // Its long silence does not make the next one look harmless.
    let down = (100_001..200_000).find(|&second| !a.tick(secs(second)).events.is_empty());
    assert_eq!(down, Some(100_019));
}

#[test]
fn many_digests_of_one_heartbeat_count_once() {
    let mut a = node(1, &[]);
    for second in 1..=60 {
        let digests = vec![Digest { endpoint: ip(2), generation: 100, max_version: second }];
        for from in 10..40 {
            let cluster_name = "Test Cluster".to_owned();
            let syn = GossipMessage::Syn { cluster_name, digests: digests.clone() };
            a.receive(ip(from), syn, secs(second as u64));
        }
        tell(&mut a, 2, state(100, second, &[]), secs(second as u64));
    }
    (61..68).for_each(|second| drop(a.tick(secs(second))));
    assert!(a.is_alive(ip(2)), "phi {:?}", a.phi(ip(2), secs(67)));
}

#[test]
fn nobody_is_convicted_for_a_pause_of_the_observer() {
    let mut a = node(1, &[]);
    for second in 1..=30 {
        tell(&mut a, 2, state(100, second, &[]), secs(second as u64));
    }
    assert_eq!(a.tick(secs(500)).events, []);
    assert_eq!(a.tick(secs(501)).events, []);
    assert!(a.phi(ip(2), secs(501)).unwrap() < 1.0);
}

#[test]
fn who_has_no_place_is_forgotten_and_needs_news_to_return() {
    let mut a = node(1, &[]);
    let old = state(100, 1, &[(MOVE_STATE, "BOOT,2")]);
    tell(&mut a, 2, old.clone(), secs(1));
    assert_eq!(a.tick(secs(16)).events, []);
    let events = a.tick(secs(17)).events;
    let line = "FatClient /10.0.0.2 has been silent for 15000ms, removing from gossip";
    assert_eq!(events.iter().map(ToString::to_string).collect::<Vec<_>>(), [line]);
    assert_eq!(tell(&mut a, 2, old, secs(18)), [], "old news");
    // By whomever: it was perhaps this node that was cut off.
    assert_eq!(tell(&mut a, 2, state(100, 2, &[]), secs(18)).len(), 1);
}

#[test]
fn a_removed_endpoint_is_not_asked_for() {
    let mut a = node(1, &[]);
    tell(&mut a, 2, state(100, 1, &[]), secs(1));
    a.forget(ip(2), secs(2));
    let ask = |a: &mut Gossiper, max_version, now| {
        let digests = vec![Digest { endpoint: ip(2), generation: 100, max_version }];
        let syn = GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests };
        match &a.receive(ip(3), syn, now).messages[0].1 {
            GossipMessage::Ack { wanted, .. } => wanted.len(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut a, 9, secs(31)), 0);
    assert_eq!(ask(&mut a, 1, secs(40)), 0);
    assert_eq!(ask(&mut a, 9, secs(40)), 1);
}

#[test]
fn a_generation_that_others_remember_is_exceeded_unless_nobody_can_have_accepted_it() {
    let mut a = node(1, &[]);
    let remembered = NOW_SECS as i32;
    let events = tell(&mut a, 1, state(remembered, 1, &[]), secs(1));
    assert_eq!(events, [GossipEvent::OwnGenerationRaised { generation: remembered + 1 }]);
    assert_eq!(a.generation(), remembered + 1);
    assert_eq!(tell(&mut a, 1, state(remembered, 999, &[]), secs(1)), []);

    // As far as others accept, and by the difference of clocks beyond that.
    let (year, day) = (365 * 24 * 3600, 24 * 3600);
    let greatest = remembered + year + day;
    let events = tell(&mut a, 1, state(greatest, 1, &[]), secs(1));
    assert_eq!(events, [GossipEvent::OwnGenerationRaised { generation: greatest + 1 }]);

    let ahead = greatest + 3600;
    let until_secs = NOW_SECS + 3600 + 1;
    let conflict = GenerationConflict::Ahead { remembered: ahead, until_secs };
    let told = GossipEvent::GenerationConflict(conflict.clone());
    assert_eq!(tell(&mut a, 1, state(ahead, 1, &[]), secs(2)), [told]);
    assert_eq!(tell(&mut a, 1, state(ahead, 2, &[]), secs(3)), [], "told once");
    assert_eq!(a.generation_conflict(), Some(conflict));
    for second in 3..3601 {
        a.tick(secs(second));
    }
    assert_eq!(a.generation_conflict(), None, "nobody has said so for long");
    let events = tell(&mut a, 1, state(ahead, 3, &[]), secs(3601));
    assert_eq!(events, [GossipEvent::OwnGenerationRaised { generation: ahead + 1 }]);
    let events = tell(&mut a, 1, state(i32::MAX, 3, &[]), secs(3601));
    assert!(matches!(events[..], [GossipEvent::GenerationConflict(_)]));
}

/// Lets seconds pass in which a node refuses the generation of another, and a third one does so as
/// well or has accepted it.
fn refused(accepted: bool) -> (Gossiper, Vec<GossipEvent>) {
    let mut a = node_of("Test Cluster", 1, &[], 2_000_000_000);
    let mut events = Vec::new();
    for other in [2, 3] {
        events.extend(tell(&mut a, other, state(100, 0, &[("X", "")]), secs(1)));
    }
    for second in 1..15 {
        let now = secs(second);
        for other in [2, 3] {
            let heartbeat = (ip(other), state(100, second as i32, &[]));
            let refuses = !(accepted && other == 3);
            let known = if refuses { 90 } else { a.generation() };
            let wanted =
                (!refuses).then(|| Digest { endpoint: ip(1), generation: known, max_version: 0 });
            let states = vec![heartbeat, (ip(1), EndpointState::new(known))];
            let ack = GossipMessage::Ack { wanted: wanted.into_iter().collect(), states };
            events.extend(a.receive(ip(other), ack, now).events);
        }
        events.extend(a.tick(now).events);
    }
    (a, events)
}

#[test]
fn a_generation_that_all_refuse_is_lowered_to_the_time() {
    let (a, events) = refused(false);
    let lowered = events.iter().find_map(|event| match event {
        GossipEvent::OwnGenerationLowered { generation } => Some(*generation),
        _ => None,
    });
    assert_eq!(lowered, Some(a.generation()));
    assert!((NOW_SECS as i32..NOW_SECS as i32 + 20).contains(&a.generation()));
    let told = events.iter().filter(|it| matches!(it, GossipEvent::GenerationConflict(_)));
    assert_eq!(told.count(), 1);
}

#[test]
fn the_end_of_a_refusal_is_told_and_late_news_of_an_earlier_start_are_none() {
    let mut a = node_of("Test Cluster", 1, &[], 2_000_000_000);
    tell(&mut a, 9, state(100, 1, &[]), secs(1));
    assert_eq!(tell(&mut a, 1, state(1_900_000_000, 7, &[]), secs(1)), []);
    let refusal = tell(&mut a, 1, EndpointState::new(90), secs(1));
    assert!(matches!(refusal[..], [GossipEvent::GenerationConflict(_)]) && a.is_refused());
    let digest = Digest { endpoint: ip(1), generation: a.generation(), max_version: 0 };
    let ack = GossipMessage::Ack { wanted: vec![digest], states: Vec::new() };
    a.receive(ip(9), ack, secs(1));
    assert!(!a.is_refused());
    assert_eq!(a.tick(secs(2)).events, [GossipEvent::OwnGenerationAccepted]);
    assert_eq!(a.tick(secs(3)).events, []);
}

#[test]
fn a_generation_that_some_have_accepted_stays() {
    let (a, _) = refused(true);
    assert_eq!(a.generation(), 2_000_000_000);
    let line = a.generation_conflict().unwrap().to_string();
    assert!(line.starts_with("/10.0.0.2 takes this node for dead"), "{line}");
}

#[test]
fn a_generation_that_cannot_be_makes_nobody_deaf() {
    let year = 365 * 24 * 3600;
    let mut a = node(1, &[]);
    tell(&mut a, 2, state(100, 5, &[(MOVE_STATE, "NORMAL,2")]), secs(1));
    let forged = || state(i32::MAX, 9, &[(MOVE_STATE, "LEFT,2")]);
    let refused = |about| GossipEvent::Refused {
        endpoint: ip(about),
        from: ip(9),
        refusal: Refusal::Generation(i32::MAX),
    };
    let events = tell(&mut a, 2, forged(), secs(2));
    assert_eq!(events, [refused(2)]);
    let line = "Ignoring gossip about /10.0.0.2 from /10.0.0.9: its generation 2147483647 is that \
                of a start on 2038-01-19T03:14:07.000Z. Somebody has made that up, or the clock \
                there or here is wrong";
    assert_eq!(events[0].to_string(), line);
    assert_eq!(tell(&mut a, 2, forged(), secs(3)), [], "told once");
    assert_eq!(tell(&mut a, 3, forged(), secs(3)), [refused(3)], "whoever is not known yet");
    let digest = Digest { endpoint: ip(2), generation: i32::MAX, max_version: 9 };
    let digests = vec![digest];
    let syn = GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests };
    let answer = a.receive(ip(9), syn.clone(), secs(4)).messages;
    let nothing = GossipMessage::Ack { wanted: Vec::new(), states: Vec::new() };
    assert_eq!(answer[0], (ip(9), nothing), "it is not asked for");
    let answer = a.receive(ip(2), syn, secs(4)).messages;
    let refusal = vec![(ip(2), EndpointState::new(100))];
    let refusal = GossipMessage::Ack { wanted: Vec::new(), states: refusal };
    assert_eq!(answer[0], (ip(2), refusal), "it hears which generation of it is known");
    assert_eq!(a.endpoints().count(), 2);
    assert_eq!(tell(&mut a, 2, state(101, 1, &[]), secs(5)).len(), 1, "heard as ever");

    let latest = NOW_SECS as i32 + 6 + year;
    assert_eq!(tell(&mut a, 4, state(latest + 1, 1, &[]), secs(6)).len(), 1);
    assert!(a.state(ip(4)).is_none());
    tell(&mut a, 4, state(latest, 1, &[]), secs(6));
    assert!(a.state(ip(4)).is_some());
    // The clock of this node is far behind.
    let mut a = node_of("Test Cluster", 1, &[], 1_790_000_000);
    tell(&mut a, 2, state(1_800_000_000, 1, &[]), secs(1));
    assert!(a.state(ip(2)).is_some());
}

#[test]
fn a_digest_tells_of_a_remembered_generation_as_well() {
    let (mut a, mut b) = (node(1, &[]), node(2, &[1]));
    let earlier = node_of("Test Cluster", 1, &[], 200).state(ip(1)).unwrap().clone();
    tell(&mut b, 1, earlier, secs(1));
    let events = round(&mut [&mut b, &mut a], secs(1));
    assert!(events.contains(&(ip(1), GossipEvent::OwnGenerationRaised { generation: 201 })));
    assert_eq!(b.state(ip(1)), a.state(ip(1)));
}

#[test]
fn bad_states_are_left_out_and_the_rest_is_processed() {
    let mut a = node(1, &[]);
    let bad = [(MOVE_STATE, "NORMAL"), (LOAD_STATE, "much"), ("X-NEW", "a,b"), ("Y", "")];
    let states = vec![(ip(2), state(100, 9, &bad)), (ip(3), state(100, 9, &[("Z", "z")]))];
    let events = tell_all(&mut a, 9, states.clone(), secs(1));
    assert_eq!(events.iter().filter(|event| is_refused(event)).count(), 2);
    assert_eq!(events.len(), 2 + 2 + 3);
    let kept: Vec<&String> = a.state(ip(2)).unwrap().states.keys().collect();
    assert_eq!(kept, ["X-NEW", "Y"], "unknown states are passed on");
    assert!(a.state(ip(3)).is_some());
    assert_eq!(tell_all(&mut a, 8, states, secs(1)), []);

    let long = "x".repeat(MAX_VALUE_LENGTH + 1);
    assert!(a.set_state("X", &long).is_err() && a.set_state(&long, "x").is_err());
}

#[test]
fn a_message_causes_few_lines_however_many_states_it_has() {
    let mut node = node(1, &[]);
    let names: Vec<String> = (0..1000).map(|number| format!("STATE-{number}")).collect();
    let states: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let events = tell(&mut node, 2, state(1000, 1, &states), secs(1));
    assert_eq!(events.iter().filter(|event| is_refused(event)).count(), 16);
    assert_eq!(node.state(ip(2)).unwrap().states.len(), 16);
}

/// Tells a node of 5000 endpoints with these states. Returns what it refuses.
fn crowd(node: &mut Gossiper, net: u8, states: &[(&str, &str)]) -> Vec<Refusal> {
    let addresses = (0..5000u16).map(|n| IpAddr::from([10, net, (n >> 8) as u8, n as u8]));
    let states = addresses.map(|address| (address, state(1, 1, states))).collect();
    let events = tell_all(node, 9, states, secs(1));
    let refusals = events.into_iter().filter_map(|event| match event {
        GossipEvent::Refused { refusal, .. } => Some(refusal),
        _ => None,
    });
    refusals.collect()
}

#[test]
fn news_of_a_node_that_was_forgotten_meanwhile_do_not_make_it_known_without_its_place() {
    let (mut a, mut b, mut c) = (node(1, &[1]), node(2, &[1]), node(3, &[1]));
    round(&mut [&mut b, &mut a], secs(1));
    round(&mut [&mut c, &mut a, &mut b], secs(1));
    let mut asks = (2..10).flat_map(|time| a.tick(secs(time)).messages);
    let (_, syn) = asks.find(|(to, _)| *to == ip(2)).unwrap();
    drop(asks);
    for time in 2..10 {
        round(&mut [&mut c, &mut b], secs(time));
    }
    let (_, late) = b.receive(ip(1), syn, secs(10)).messages.remove(0);
    assert!(matches!(&late, GossipMessage::Ack { states, .. } if !states.is_empty()));
    a.forget(ip(3), secs(10));
    a.receive(ip(2), late, secs(50));
    assert!(a.state(ip(3)).is_none());
    for time in 51..70 {
        round(&mut [&mut b, &mut a], secs(time));
    }
    assert_eq!(a.state(ip(3)).unwrap().value(MOVE_STATE), Some("NORMAL,3"));
}

/// A node of which nodes 2 and 3 know only what an answer to an earlier start of it left over: node
/// 2, what it had sent last, and what it asks for at its new start.
fn misled() -> (Gossiper, Gossiper, GossipMessage) {
    let (mut a, mut b, mut c) = (node(1, &[2]), node(2, &[2]), node(3, &[2]));
    c.set_state(EXTENSIONS_STATE, "calls").unwrap();
    b.set_state(EXTENSIONS_STATE, "calls").unwrap();
    for time in 1..4 {
        round(&mut [&mut c, &mut b], secs(time));
    }
    let syn = GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests: b_knows(&b) };
    let (_, asks) = a.receive(ip(2), syn, secs(4)).messages.remove(0);
    let last = |node: &Gossiper, last: u8| {
        let state = node.state(ip(last)).unwrap();
        (ip(last), EndpointState { states: [].into(), ..state.clone() })
    };
    let late = GossipMessage::Ack2 { states: vec![last(&b, 2), last(&b, 3)] };
    a.receive(ip(2), late, secs(4));
    assert!(a.state(ip(3)).is_none_or(|state| state.states.is_empty()));
    (a, b, asks)
}

fn b_knows(b: &Gossiper) -> Vec<Digest> {
    b.endpoints().map(|(endpoint, state)| digest(endpoint, state)).collect()
}

#[test]
fn a_late_answer_to_an_earlier_start_leaves_no_gap() {
    let is_whole = |node: &Gossiper, last: u8| {
        let place = format!("NORMAL,{last}");
        node.state(ip(last)).is_some_and(|it| it.value(MOVE_STATE) == Some(&place))
    };
    let (mut a, mut b, asks) = misled();
    for (to, message) in b.receive(ip(1), asks, secs(4)).messages {
        assert_eq!(to, ip(1));
        a.receive(ip(2), message, secs(4));
    }
    assert!(is_whole(&a, 2) && is_whole(&a, 3), "the answer to this start fills it");

    let (mut a, mut b, _) = misled();
    round(&mut [&mut a, &mut b], secs(5));
    assert!(is_whole(&a, 2) && is_whole(&a, 3), "it is asked for again if that is lost");
}

#[test]
fn a_ring_has_bounds() {
    let mut a = node(1, &[]);
    assert_eq!(crowd(&mut a, 1, &[]), [Refusal::TooManyStrangers]);
    assert_eq!(a.endpoints().count(), MAX_STRANGERS + 1);
    assert_eq!(crowd(&mut a, 2, &[(MOVE_STATE, "BOOT,7")]), [Refusal::TooManyEndpoints]);
    assert_eq!(a.endpoints().count(), MAX_ENDPOINTS + MAX_STRANGERS + 1);
    // There is room again when they are forgotten.
    a.tick(secs(20));
    assert_eq!(tell(&mut a, 2, state(1, 1, &[]), secs(21)).len(), 1);
}

#[test]
fn endpoints_without_a_place_do_not_lock_members_out() {
    let mut a = node(1, &[]);
    a.preload([ip(2)]);
    crowd(&mut a, 1, &[]);
    let syn = |from: u8, listed: &[u8]| {
        let digest = |last: &u8| Digest { endpoint: ip(*last), generation: 1, max_version: 1 };
        let digests = listed.iter().map(digest).collect();
        (ip(from), GossipMessage::Syn { cluster_name: "Test Cluster".to_owned(), digests })
    };
    // Both who comes with a place and who had one are asked for, and taken.
    for (from, message) in [syn(2, &[2]), syn(3, &[3])] {
        let answers = a.receive(from, message, secs(1)).messages;
        let [(_, GossipMessage::Ack { wanted, .. }), (_, GossipMessage::Syn { .. })] = &answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!(wanted.len(), 1);
    }
    tell(&mut a, 2, state(1, 1, &[]), secs(1));
    tell(&mut a, 3, state(1, 1, &[(MOVE_STATE, "BOOT,3")]), secs(1));
    assert!(a.state(ip(2)).is_some() && a.state(ip(3)).is_some());
}

#[test]
fn a_node_that_had_a_place_is_remembered_before_others() {
    let mut a = node(1, &[]);
    let left = || state(100, 5, &[(MOVE_STATE, "LEFT,2")]);
    tell(&mut a, 2, left(), secs(1));
    for _ in 0..3 {
        crowd(&mut a, 1, &[]);
        a.tick(secs(20));
        crowd(&mut a, 2, &[]);
        a.tick(secs(40));
    }
    tell(&mut a, 2, left(), secs(100));
    assert!(a.state(ip(2)).is_none(), "old news");
}

#[test]
fn extensions_are_those_that_a_node_lists() {
    let mut a = node(1, &[]);
    tell(
        &mut a,
        2,
        state(1, 1, &[(EXTENSIONS_STATE, "batch, lz4"), (LOAD_STATE, "57310.0")]),
        secs(1),
    );
    a.set_state(EXTENSIONS_STATE, "batch").unwrap();
    assert!(a.announces(ip(2), "lz4") && a.announces(ip(2), "batch"));
    assert!(!a.announces(ip(2), "bat") && !a.announces(ip(3), "batch"));
    assert!(a.announces(ip(1), "batch"));
    assert_eq!((a.load(ip(2)), a.load(ip(1))), (Some(57310.0), None));
}

proptest! {
    #[test]
    fn whatever_peers_send_is_survived(
        messages in vec((1..5u8, arb_message(), 0..40u64), 0..30),
    ) {
        let mut a = node(1, &[2]);
        let mut now = Duration::ZERO;
        for (from, message, seconds) in messages {
            now += secs(seconds);
            a.tick(now);
            let answers = a.receive(ip(from), message, now);
            for (_, message) in answers.messages {
                prop_assert!(message.encode().is_ok());
            }
            prop_assert_eq!(a.endpoints().next().unwrap().0, ip(1));
        }
    }
}

/// Who is killed and started again within seconds is still alive to the others, and they do not
/// turn to it by themselves. It has to know at once who is joining, or its writes do not reach it.
#[test]
fn who_starts_again_at_once_is_told_everything() {
    let (mut a, mut b, mut joining) = (node(1, &[]), node(2, &[1]), node(3, &[1]));
    joining.set_state(MOVE_STATE, "BOOT,7").unwrap();
    for second in 1..8 {
        for turn in 0..3 {
            let mut nodes = [&mut a, &mut b, &mut joining];
            let (from, now) = (local(nodes[turn]), secs(second));
            let effects = nodes[turn].tick(now);
            deliver(&mut nodes, from, effects, now);
        }
    }
    assert!(a.is_alive(ip(2)) && a.state(ip(3)).is_some());
    let mut again = node_of("Test Cluster", 2, &[1], 101);
    again.preload([ip(1)]);
    let effects = again.start(secs(8));
    assert!(!again.is_briefed_by(ip(1)));
    deliver(&mut [&mut a, &mut again], ip(2), effects, secs(8));
    assert!(again.is_briefed_by(ip(1)));
    assert_eq!(again.state(ip(3)).and_then(|state| state.value(MOVE_STATE)), Some("BOOT,7"));
}
