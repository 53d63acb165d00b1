use super::*;
use crate::gossip::VersionedValue;
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

fn ip(last: u8) -> IpAddr {
    [10, 0, 0, last].into()
}

fn token(number: u128) -> Token {
    Token::Random(number)
}

/// The membership of node 1, which owns token 1 and started at 1000.
fn membership() -> Membership {
    let mut membership = Membership::new(Partitioner::Random, ip(1), 1000, []);
    membership.announce(&Move::Normal { token: token(1), removed: None });
    membership
}

fn said(node: u8, generation: i32, version: i32, value: &str) -> GossipEvent {
    GossipEvent::StateChanged {
        endpoint: ip(node),
        generation,
        name: MOVE_STATE.to_owned(),
        state: VersionedValue { value: value.to_owned(), version },
    }
}

/// Node `node` of generation 100 says this.
fn says(membership: &mut Membership, node: u8, value: &str) -> Vec<MembershipChange> {
    membership.follow(&said(node, 100, 1, value))
}

/// Who owns which token, without this node.
fn ring(membership: &Membership) -> Vec<(u128, u8)> {
    let members = membership.members().ring.members();
    let plain = members.map(|(token, endpoint)| match (token, endpoint) {
        (Token::Random(token), IpAddr::V4(address)) => (*token, address.octets()[3]),
        other => panic!("{other:?}"),
    });
    plain.filter(|&(_, node)| node != 1).collect()
}

fn notices(changes: &[MembershipChange]) -> Vec<String> {
    let texts = changes.iter().filter_map(|change| match change {
        MembershipChange::Notice(notice) => Some(notice.to_string()),
        _ => None,
    });
    texts.collect()
}

fn save(node: u8, number: u128) -> MembershipChange {
    MembershipChange::SaveToken { endpoint: ip(node), token: token(number) }
}

fn forget(node: u8) -> MembershipChange {
    MembershipChange::ForgetToken { endpoint: ip(node) }
}

#[test]
fn a_node_joins_and_leaves_in_four_steps() {
    let mut m = membership();
    assert_eq!(says(&mut m, 2, "BOOT,20"), [MembershipChange::Ring]);
    assert_eq!(m.members().bootstrapping, BTreeMap::from([(ip(2), token(20))]));
    assert_eq!(ring(&m), []);
    assert_eq!(says(&mut m, 2, "NORMAL,20"), [save(2, 20), MembershipChange::Ring]);
    assert_eq!((ring(&m), m.members().bootstrapping.len()), (vec![(20, 2)], 0));
    assert_eq!(says(&mut m, 2, "NORMAL,20"), []);
    assert_eq!(says(&mut m, 2, "LEAVING,20"), [MembershipChange::Ring]);
    assert!(m.members().is_member(ip(2)) && m.members().leaving.contains(&ip(2)));
    assert_eq!(says(&mut m, 2, "LEFT,20"), [forget(2), MembershipChange::Ring]);
    assert_eq!(*m.members(), *membership().members());
}

#[test]
fn steps_that_were_missed_are_told() {
    let mut m = membership();
    assert_eq!(notices(&says(&mut m, 2, "LEAVING,20")), ["Node /10.0.0.2 state jump to leaving"]);
    assert_eq!(notices(&says(&mut m, 2, "NORMAL,20")), ["Node /10.0.0.2 state jump to normal"]);
    let mismatch = "Node /10.0.0.2 'leaving' token mismatch. Long network partition?";
    assert_eq!(notices(&says(&mut m, 2, "LEAVING,30")), [mismatch]);
    assert_eq!(ring(&m), [(30, 2)]);
    assert_eq!(notices(&says(&mut m, 2, "BOOT,40")), Vec::<String>::new());
    assert_eq!((ring(&m), m.members().leaving.len()), (vec![], 0));
    says(&mut m, 2, "NORMAL,40");
    assert_eq!(notices(&says(&mut m, 2, "BOOT,50")), ["Node /10.0.0.2 state jump to bootstrap"]);
    says(&mut m, 2, "NORMAL,50");
    let mismatch = "Node /10.0.0.2 'left' token mismatch. Long network partition?";
    assert_eq!(notices(&says(&mut m, 2, "LEFT,40")), [mismatch]);
    assert_eq!(ring(&m), []);
}

/// A node that has refuted a generation ahead of the time can be removed all the same.
#[test]
fn a_dead_node_whose_generation_is_ahead_is_removed_where_its_start_is_named() {
    for names_first in [false, true] {
        let mut m = membership();
        m.follow(&said(2, 1_000_000, 1, "NORMAL,20"));
        says(&mut m, 3, "NORMAL,30");
        let named = |value: &str| GossipEvent::StateChanged {
            endpoint: ip(3),
            generation: 100,
            name: REMOVED_STATE.to_owned(),
            state: VersionedValue { value: value.to_owned(), version: 3 },
        };
        let removal = said(3, 100, 2, "NORMAL,30,remove,20");
        m.follow(&named("10.0.0.2,999999"));
        if names_first {
            m.follow(&named("10.0.0.2,1000000"));
            m.follow(&removal);
        } else {
            m.follow(&removal);
            assert_eq!(ring(&m), [(20, 2), (30, 3)], "an earlier start was removed");
            m.follow(&named("10.0.0.2,1000000"));
        }
        assert_eq!(ring(&m), [(30, 3)]);
    }
}

#[test]
fn a_node_may_change_its_token() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    let changes = says(&mut m, 2, "NORMAL,30");
    assert_eq!(changes[1..], [save(2, 30), MembershipChange::Ring]);
    assert_eq!(ring(&m), [(30, 2)]);
}

#[test]
fn of_two_with_one_token_the_later_start_wins() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    let changes = m.follow(&said(3, 101, 1, "NORMAL,20"));
    let line = "Nodes /10.0.0.3 and /10.0.0.2 have the same token 20.  /10.0.0.3 is the new owner";
    assert_eq!(notices(&changes), [line]);
    assert_eq!(changes[1..], [forget(2), save(3, 20), MembershipChange::Ring]);
    let changes = m.follow(&said(2, 100, 2, "NORMAL,20"));
    let line = "Nodes /10.0.0.2 and /10.0.0.3 have the same token 20.  Ignoring /10.0.0.2";
    assert_eq!(notices(&changes), [line]);
    assert_eq!((changes.len(), ring(&m)), (1, vec![(20, 3)]));
}

#[test]
fn a_token_that_is_free_again_goes_back_to_who_still_claims_it() {
    type Freed = fn(&mut Membership) -> Vec<MembershipChange>;
    let ways: [Freed; 5] = [
        |m| m.follow(&said(3, 300, 1, "NORMAL,30")),
        |m| m.follow(&said(3, 300, 1, "BOOT,30")),
        |m| m.follow(&said(3, 200, 9, "LEFT,20")),
        |m| m.follow(&said(4, 200, 9, "NORMAL,40,remove,20")),
        |m| m.follow(&GossipEvent::Disowned { endpoint: ip(3) }),
    ];
    for free in ways {
        let mut m = membership();
        says(&mut m, 2, "NORMAL,20");
        m.follow(&GossipEvent::Up { endpoint: ip(2) });
        m.follow(&said(3, 200, 1, "NORMAL,20"));
        assert!(!m.members().is_member(ip(2)));
        let changes = free(&mut m);
        assert_eq!(m.members().ring.owner(&token(20)), Some(ip(2)));
        assert!(changes.contains(&save(2, 20)) && !changes.contains(&forget(2)), "{changes:?}");
        let line = "Node /10.0.0.2 owns token 20 again, which it still claims and whose owner went \
                    elsewhere";
        assert!(notices(&changes).iter().any(|notice| notice == line), "{changes:?}");
    }
}

#[test]
fn a_node_that_loses_its_own_place_says_so_and_is_back_when_it_can() {
    let lost = |changes: &[MembershipChange]| {
        changes.iter().any(|change| {
            matches!(change, MembershipChange::Notice(notice @ MembershipNotice::PlaceLost { .. })
                if notice.level() == log::Level::Error
                    && notice.to_string().contains("/10.0.0.2 has its token 1,"))
        })
    };
    let mut m = membership();
    assert!(lost(&m.follow(&said(2, 2000, 1, "NORMAL,1"))));
    assert_eq!(ring(&m), [(1, 2)]);
    assert!(!m.members().is_member(ip(1)));
    assert!(!lost(&m.follow(&said(2, 2001, 1, "NORMAL,1"))), "told once");
    // The other one goes elsewhere.
    let changes = m.follow(&said(2, 3000, 1, "NORMAL,20"));
    assert!(changes.contains(&MembershipChange::Reannounce) && changes.contains(&save(1, 1)));
    assert!(m.members().is_member(ip(1)) && ring(&m) == [(20, 2)]);
    // Or this one is later, as others see it already.
    assert!(lost(&m.follow(&said(2, 4000, 1, "NORMAL,1"))));
    m.follow(&GossipEvent::OwnGenerationRaised { generation: 4001 });
    assert_eq!(m.members().ring.owner(&token(1)), Some(ip(1)));
    let removed = said(3, 100, 1, "NORMAL,30,remove,1");
    assert!(
        m.follow(&removed)
            .iter()
            .any(|change| { *change == MembershipChange::Notice(MembershipNotice::RemovalOfSelf) })
    );
}

#[test]
fn all_who_were_dead_at_a_token_are_removed_from_it() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    m.follow(&said(3, 101, 1, "NORMAL,20"));
    m.follow(&said(4, 200, 50, "NORMAL,40,remove,20"));
    assert_eq!((ring(&m), m.removed().count()), (vec![(40, 4)], 2));
}

#[test]
fn a_node_with_a_new_address_takes_its_token_along() {
    let saved = [(ip(1), token(9)), (ip(2), token(1)), (ip(3), token(30))];
    let mut m = Membership::new(Partitioner::Random, ip(1), 1000, []);
    m.preload(saved);
    assert_eq!(ring(&m), [(1, 2), (30, 3)]);
    m.announce(&Move::Normal { token: token(1), removed: None });
    assert_eq!(ring(&m), [(30, 3)]);
    // Another does the same, whose former address only the saved ring knows.
    let changes = says(&mut m, 4, "NORMAL,30");
    assert!(changes.contains(&forget(3)) && changes.contains(&save(4, 30)));
    assert_eq!(ring(&m), [(30, 4)]);
}

#[test]
fn bootstraps_that_collide_are_told_and_not_followed() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    says(&mut m, 3, "BOOT,30");
    for (taken, other) in [(20, 2), (30, 3), (1, 1)] {
        let line = format!(
            "Bootstrap Token collision between /10.0.0.{other} and /10.0.0.4 (token {taken}"
        );
        assert_eq!(notices(&says(&mut m, 4, &format!("BOOT,{taken}"))), [line]);
    }
    assert_eq!(m.members().bootstrapping.len(), 1);
    assert_eq!(says(&mut m, 3, "BOOT,30"), [], "a repetition is no collision");
}

#[test]
fn a_forgotten_node_bootstraps_no_more() {
    let mut m = membership();
    says(&mut m, 3, "BOOT,30");
    let silence = std::time::Duration::from_secs(15);
    let changes = m.follow(&GossipEvent::Forgotten { endpoint: ip(3), silence });
    assert_eq!(changes, [MembershipChange::Ring]);
    assert_eq!(*m.members(), *membership().members());
    // Writes may have passed it by since.
    assert_eq!(m.given_up(), 1);
    m.follow(&GossipEvent::Forgotten { endpoint: ip(3), silence });
    assert_eq!(m.given_up(), 1);
}

/// Node 2 is removed from token 20 by node 3.
fn after_removal() -> (Membership, Vec<MembershipChange>) {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    says(&mut m, 3, "NORMAL,30");
    let changes = m.follow(&said(3, 100, 50, "NORMAL,30,remove,20"));
    (m, changes)
}

#[test]
fn a_removed_node_returns_only_if_it_may_and_starts_anew() {
    let (mut m, changes) = after_removal();
    let removed =
        RemovedNode { endpoint: ip(2), token: token(20), generation: 100, may_return: false };
    assert_eq!(
        changes,
        [forget(2), MembershipChange::Ring, MembershipChange::Removed(removed.clone())]
    );
    assert!(m.removed().eq([removed.clone()]));
    assert_eq!(ring(&m), [(30, 3)]);
    let refused = |changes: &[MembershipChange]| {
        let is_told = notices(changes)[0].contains("it is not taken into the ring");
        changes[0] == MembershipChange::Ring && changes.len() == 2 && is_told
    };
    assert_eq!(m.removed_state(), format!("{},100", ip(2)));
    assert!(refused(&m.follow(&said(2, 200, 1, "NORMAL,20"))));
    assert!(refused(&m.follow(&said(2, 200, 1, "LEAVING,20"))));
    // It is told by its present start, or it would take the removal for that of an earlier life.
    assert_eq!(m.removed_state(), format!("{},200", ip(2)));
    assert!(m.turned_away().eq([ip(2)]));
    assert_eq!(m.allow_return(ip(3), None), None, "that one was not removed");
    let allowed = RemovedNode { may_return: true, ..removed.clone() };
    let may_return = MembershipChange::MayReturn(allowed.clone());
    assert_eq!(m.allow_return(ip(2), None), Some(vec![may_return]));
    assert_eq!((m.removed_state(), m.turned_away().count()), (String::new(), 0));
    let changes = m.follow(&said(2, 100, 9, "NORMAL,20"));
    assert!(notices(&changes)[0].ends_with("before it has been started anew"), "{changes:?}");
    assert!(m.removed().eq([allowed.clone()]));
    let changes = m.follow(&said(2, 300, 1, "NORMAL,20"));
    let readmitted =
        MembershipChange::Readmitted { endpoint: ip(2), token: token(20), generation: 300 };
    assert_eq!(changes, [readmitted.clone(), save(2, 20), MembershipChange::Ring]);
    assert_eq!(m.removed().count(), 0);
    assert_eq!(m.allow_return(ip(2), None), None);

    // The permission counts after a restart of this node, too.
    let mut m = Membership::new(Partitioner::Random, ip(1), 1000, [allowed]);
    assert_eq!(m.follow(&said(2, 300, 1, "NORMAL,20"))[0], readmitted);

    // One that has started already is back at once.
    let (mut m, _) = after_removal();
    let mut back = EndpointState::new(200);
    back.set(MOVE_STATE, "NORMAL,20");
    assert_eq!(m.allow_return(ip(2), Some(&back)).unwrap().len(), 4);
    assert_eq!(ring(&m), [(20, 2), (30, 3)]);

    // A saved removal counts for the saved ring and for what is heard.
    let mut m = Membership::new(Partitioner::Random, ip(1), 1000, [removed]);
    m.preload([(ip(2), token(20)), (ip(3), token(30))]);
    assert_eq!(ring(&m), [(30, 3)]);
    assert!(refused(&m.follow(&said(2, 200, 1, "NORMAL,20"))));
    assert_eq!(says(&mut m, 2, "NORMAL,21").len(), 2, "another place is no return");
}

#[test]
fn a_removed_node_may_replace_another_at_the_same_token() {
    let (mut m, _) = after_removal();
    says(&mut m, 4, "NORMAL,20");
    let plan = |generation| GossipEvent::StateChanged {
        endpoint: ip(2),
        generation,
        name: PLAN_STATE.to_owned(),
        state: VersionedValue { value: format!("replace,{},20", ip(4)), version: 1 },
    };
    m.follow(&plan(100));
    assert_eq!(m.removed().count(), 1, "that was before it was removed");
    m.follow(&plan(200));
    assert_eq!(m.removed().count(), 0);
}

#[test]
fn a_removed_node_that_has_had_another_place_since_is_not_turned_away_when_it_leaves() {
    let leaves = |generation| {
        let (mut m, _) = after_removal();
        m.follow(&said(2, generation, 1, "NORMAL,21"));
        m.follow(&said(2, generation, 2, "LEAVING,21"));
        m.follow(&said(2, generation, 3, "LEFT,21"));
        m
    };
    let m = leaves(200);
    assert_eq!((m.turned_away().count(), m.removed_state()), (0, String::new()));
    assert_eq!(m.removed().count(), 1, "its old data stay away from the former place");
    let m = leaves(100);
    assert!(m.turned_away().eq([ip(2)]), "that was before it was removed");

    // It claims its former place, and does not get it.
    let (mut m, _) = after_removal();
    m.follow(&said(2, 200, 1, "NORMAL,20"));
    m.follow(&said(2, 200, 2, "LEFT,20"));
    assert!(m.turned_away().eq([ip(2)]));
    // A node that was started since knows it as one that has left.
    let (mut m, _) = after_removal();
    m.follow(&said(2, 200, 3, "LEFT,21"));
    assert_eq!(m.turned_away().count(), 0);
    // Its next start may have the old data again.
    m.follow(&said(2, 300, 1, "NORMAL,20"));
    assert!(m.turned_away().eq([ip(2)]));
}

/// Others give it the data of the place, for it says nothing of its former one.
#[test]
fn a_removed_node_that_replaces_another_at_another_token_is_not_turned_away() {
    let (mut m, _) = after_removal();
    says(&mut m, 4, "NORMAL,40");
    let plan = |generation, value: String| GossipEvent::StateChanged {
        endpoint: ip(2),
        generation,
        name: PLAN_STATE.to_owned(),
        state: VersionedValue { value, version: 1 },
    };
    let replaces = || format!("replace,{},40", ip(4));
    m.follow(&plan(100, replaces()));
    assert_eq!(m.turned_away().collect::<Vec<_>>(), [ip(2)], "that was before it was removed");
    m.follow(&plan(200, replaces()));
    assert_eq!(m.turned_away().count(), 0);
    assert_eq!(m.removed().count(), 1, "its old data stay away from the former place");
    m.follow(&plan(200, String::new()));
    assert_eq!(m.turned_away().collect::<Vec<_>>(), [ip(2)], "it has given up");
}

#[test]
fn who_has_returned_is_not_removed_anew_by_old_news_after_a_restart() {
    let removal = said(3, 100, 50, "NORMAL,30,remove,20");
    let saved = [(ip(2), token(20)), (ip(3), token(30))];
    for (returned, expected) in
        [(vec![(ip(2), 300)], vec![(20, 2), (30, 3)]), (vec![], vec![(30, 3)])]
    {
        let mut m = Membership::new(Partitioner::Random, ip(1), 1000, []);
        m.remember_returned(returned);
        m.preload(saved.clone());
        m.follow(&removal);
        assert_eq!(ring(&m), expected);
    }
}

#[test]
fn a_removed_node_returns_by_bootstrapping() {
    let (mut m, _) = after_removal();
    let changes = m.follow(&said(2, 200, 1, "BOOT,20"));
    let readmitted =
        MembershipChange::Readmitted { endpoint: ip(2), token: token(20), generation: 200 };
    assert_eq!(changes, [readmitted, MembershipChange::Ring]);
    m.follow(&said(2, 200, 9, "NORMAL,20"));
    assert_eq!(ring(&m), [(20, 2), (30, 3)]);
}

#[test]
fn an_old_removal_does_not_hit_who_took_the_place() {
    let removal = said(3, 100, 50, "NORMAL,30,remove,20");
    let ignored = |changes: &[MembershipChange]| {
        notices(changes).last().is_some_and(|text| text.contains("That is not done"))
    };
    // Started after the removal.
    let mut m = membership();
    m.follow(&said(2, 151, 1, "NORMAL,20"));
    assert!(ignored(&m.follow(&removal)));
    // Alive.
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    m.follow(&GossipEvent::Up { endpoint: ip(2) });
    assert!(ignored(&m.follow(&removal)));
    m.follow(&GossipEvent::Down { endpoint: ip(2) });
    assert!(!ignored(&m.follow(&removal)));
    assert_eq!(ring(&m), [(30, 3)]);
    // About to take it.
    let mut m = membership();
    m.follow(&said(2, 151, 1, "BOOT,20"));
    m.follow(&removal);
    assert_eq!(m.members().bootstrapping.len(), 1);
    // This node itself.
    let changes = says(&mut m, 4, "NORMAL,40,remove,1");
    assert_eq!(notices(&changes).len(), 1);
    assert!(notices(&changes)[0].starts_with("Received removeToken gossip about myself."));
    // What this node removes itself it removes whenever the dead node started.
    m.follow(&said(5, 5000, 1, "NORMAL,50"));
    let own = Move::Normal { token: token(1), removed: Some(token(50)) };
    let changes = m.announce(&own);
    assert!(matches!(changes[..], [_, _, MembershipChange::Removed(_)]), "{changes:?}");
}

#[test]
fn a_removal_that_is_taken_back_is_not_done_later() {
    for (taken_back, left) in [(true, vec![(20, 2), (30, 3)]), (false, vec![(30, 3)])] {
        let mut m = membership();
        says(&mut m, 2, "NORMAL,20");
        m.follow(&GossipEvent::Up { endpoint: ip(2) });
        m.follow(&said(3, 100, 50, "NORMAL,30,remove,20"));
        if taken_back {
            m.follow(&said(3, 100, 52, "NORMAL,30"));
        }
        m.follow(&GossipEvent::Down { endpoint: ip(2) });
        assert_eq!(ring(&m), left);
    }
    // Who still names the node means it.
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    m.follow(&GossipEvent::Up { endpoint: ip(2) });
    m.follow(&said(3, 100, 50, "NORMAL,30,remove,20"));
    let state = VersionedValue { value: format!("{},100", ip(2)), version: 51 };
    let (endpoint, name) = (ip(3), REMOVED_STATE.to_owned());
    m.follow(&GossipEvent::StateChanged { endpoint, generation: 100, name, state });
    m.follow(&said(3, 200, 1, "NORMAL,30"));
    m.follow(&GossipEvent::Down { endpoint: ip(2) });
    assert_eq!(ring(&m), [(30, 3)]);
}

#[test]
fn a_member_that_others_know_counts_as_long_as_it_says_nothing_itself() {
    let mut membership = membership();
    let changes = membership.learn(ip(2), &token(20));
    assert_eq!(changes, [save(2, 20), MembershipChange::Ring]);
    assert_eq!(membership.learn(ip(2), &token(21)), []);
    says(&mut membership, 2, "NORMAL,22");
    assert_eq!(membership.learn(ip(2), &token(20)), []);
    assert_eq!(ring(&membership), [(22, 2)]);
}

#[test]
fn what_is_no_place_changes_nothing() {
    let mut m = membership();
    for value in ["", "NORMAL", "NORMAL,x", "BOOT,1,2", "PAUSED,1"] {
        assert_eq!(says(&mut m, 2, value), []);
    }
    assert_eq!(m.follow(&said(1, 1000, 1, "LEFT,1")), [], "only this node says where it is");
}

/// What node `node` says at its `generation`: `kind` tells what of the token.
#[derive(Debug, Clone)]
struct Word {
    node: u8,
    generation: i32,
    version: i32,
    place: Move,
}

/// For each of the nodes 1 to 5 some words, in the order in which it says them.
fn arb_words() -> impl Strategy<Value = Vec<Vec<Word>>> {
    let word = (0..2i32, 0..8u8, 0..4u128);
    vec((0..3i32, vec(word, 1..4)), 5).prop_map(|nodes| {
        let nodes = (1..).zip(nodes).map(|(node, (mut generation, words))| {
            let words = (1..).zip(words).map(|(version, (later, kind, at))| {
                generation += later;
                let token = token(at);
                let place = match kind {
                    0 => Move::Boot(token),
                    1 => Move::Leaving(token),
                    2 => Move::Left(token),
                    _ => Move::Normal { token, removed: None },
                };
                Word { node, generation, version, place }
            });
            words.collect()
        });
        nodes.collect()
    })
}

/// What a node keeps of its changes.
fn keep(saved: &mut BTreeMap<IpAddr, Token>, changes: Vec<MembershipChange>) {
    for change in changes {
        match change {
            MembershipChange::SaveToken { endpoint, token } => {
                saved.insert(endpoint, token);
            }
            MembershipChange::ForgetToken { endpoint } => {
                saved.remove(&endpoint);
            }
            _ => {}
        }
    }
}

/// The ring of node `observer`, which misses some of what the others say, but never the last, and
/// which hears all in an order of its own. Checks what it has saved.
fn observe(observer: u8, words: &[Vec<Word>], saved: &[Option<u128>], order: u64) -> Members {
    let mut rng = fastrand::Rng::with_seed(order.wrapping_add(u64::from(observer)));
    let mut queues: Vec<Vec<Word>> = words.to_vec();
    for (queue, node) in queues.iter_mut().zip(1..) {
        let last = queue.pop().unwrap();
        queue.retain(|_| node == observer || rng.bool());
        queue.push(last);
    }
    let local = ip(observer);
    let first = queues[usize::from(observer) - 1].remove(0);
    let mut m = Membership::new(Partitioner::Random, local, first.generation, []);
    let places = saved.iter().zip(1..).filter_map(|(at, node)| Some((ip(node), token((*at)?))));
    let mut on_disk: BTreeMap<IpAddr, Token> = BTreeMap::new();
    for (endpoint, token) in places {
        if endpoint != local && !on_disk.values().any(|taken| *taken == token) {
            on_disk.insert(endpoint, token);
        }
    }
    m.preload(on_disk.clone());
    let mut generation = first.generation;
    keep(&mut on_disk, m.announce(&first.place));
    while queues.iter().any(|queue| !queue.is_empty()) {
        let at = rng.usize(..queues.len());
        if queues[at].is_empty() {
            continue;
        }
        let word = queues[at].remove(0);
        if word.node == observer {
            if word.generation > generation {
                generation = word.generation;
                let raised = GossipEvent::OwnGenerationRaised { generation };
                keep(&mut on_disk, m.follow(&raised));
            }
            keep(&mut on_disk, m.announce(&word.place));
        } else {
            let value = word.place.format(Partitioner::Random);
            let said = said(word.node, word.generation, word.version, &value);
            keep(&mut on_disk, m.follow(&said));
        }
    }
    let members = m.members().clone();
    let on_ring = members.ring.members().map(|(token, endpoint)| (endpoint, token.clone()));
    let others = |it: &(IpAddr, Token)| it.0 != local;
    let expected: BTreeMap<IpAddr, Token> = on_ring.filter(others).collect();
    on_disk.remove(&local);
    assert_eq!(on_disk, expected, "what is saved is the ring");
    members
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// The ring follows from what each node said last, on all nodes, those that it is about
    /// included: neither what they heard before counts, nor in which order, nor what they had
    /// saved.
    #[test]
    fn the_last_words_of_all_decide(
        words in arb_words(),
        saved in vec(vec(prop::option::of(0..4u128), 5), 5),
        order: u64,
    ) {
        let expected = observe(1, &words, &saved[0], order);
        for (observer, saved) in (2..).zip(&saved[1..]) {
            let seen = observe(observer, &words, saved, order);
            prop_assert_eq!(&seen, &expected, "node {}", observer);
        }
        for token in (0..4).map(token) {
            let last = words.iter().map(|words| words.last().unwrap());
            let claims = last.filter(|word| match &word.place {
                Move::Normal { token: at, .. } | Move::Leaving(at) => *at == token,
                _ => false,
            });
            let owner = claims.map(|word| (word.generation, ip(word.node))).max();
            prop_assert_eq!(expected.ring.owner(&token), owner.map(|(_, owner)| owner));
        }
    }
}

/// Node `node` of generation 100 says this of the place of a dead one.
fn plans(membership: &mut Membership, node: u8, value: &str) -> Vec<MembershipChange> {
    membership.follow(&GossipEvent::StateChanged {
        endpoint: ip(node),
        generation: 200,
        name: PLAN_STATE.to_owned(),
        state: VersionedValue { value: value.to_owned(), version: 5 },
    })
}

#[test]
fn what_is_planned_with_a_dead_node_is_pending_until_it_is_over() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    says(&mut m, 3, "NORMAL,30");
    assert_eq!(plans(&mut m, 3, "remove,10.0.0.2,20"), [MembershipChange::Ring]);
    assert!(m.members().with_pending(|_| true).is_leaving(ip(2)));
    assert_eq!(plans(&mut m, 3, ""), [MembershipChange::Ring]);
    assert!(m.members().with_pending(|_| true).is_settled());
    plans(&mut m, 4, "replace,10.0.0.2,20");
    let ring = m.members().with_pending(|_| true);
    assert!(ring.replacing().eq([(&token(20), ip(4))]));
    // A plan ends with the node that had it.
    let restarted = GossipEvent::Restarted { endpoint: ip(4), generation: 300 };
    assert_eq!(m.follow(&restarted), [MembershipChange::Ring]);
    plans(&mut m, 4, "replace,10.0.0.2,20");
    let forgotten = GossipEvent::Forgotten { endpoint: ip(4), silence: Duration::from_secs(15) };
    m.follow(&forgotten);
    assert!(m.members().with_pending(|_| true).is_settled());
    // About a place that is not so, nothing is pending.
    plans(&mut m, 4, "replace,10.0.0.2,21");
    plans(&mut m, 3, "remove,10.0.0.9,20");
    assert!(m.members().with_pending(|_| true).is_settled());
}

#[test]
fn until_all_know_who_has_come_or_gone_the_former_ring_counts_as_well() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    let former = m.members().ring.clone();
    plans(&mut m, 3, "arrived,10.0.0.3,30");
    assert!(m.members().with_pending(|_| true).is_settled(), "not yet");
    says(&mut m, 3, "NORMAL,30");
    assert_eq!(m.members().with_pending(|_| true).former(), Some(&former));
    assert!(m.members().with_pending(|it| it != ip(3)).is_settled(), "it is dead");
    plans(&mut m, 3, "");
    assert!(m.members().with_pending(|_| true).is_settled());
    let former = m.members().ring.clone();
    plans(&mut m, 2, "gone,10.0.0.2,20");
    says(&mut m, 2, "LEFT,20");
    assert_eq!(m.members().with_pending(|_| true).former(), Some(&former));
    // Nobody speaks for another here.
    plans(&mut m, 2, "gone,10.0.0.9,90");
    assert!(m.members().with_pending(|_| true).is_settled());
}

#[test]
fn who_was_replaced_does_not_take_its_place_back() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    plans(&mut m, 4, "replace,10.0.0.2,20");
    m.follow(&said(4, 200, 6, "NORMAL,20"));
    assert_eq!(ring(&m), [(20, 4)]);
    let changes = plans(&mut m, 4, "replaced,10.0.0.2,20");
    let removed = |it: &MembershipChange| matches!(it, MembershipChange::Removed(_));
    assert!(changes.iter().any(removed), "{changes:?}");
    assert_eq!(plans(&mut m, 4, "replaced,10.0.0.2,20"), []);
    m.follow(&GossipEvent::Restarted { endpoint: ip(2), generation: 900 });
    let back = m.follow(&said(2, 900, 1, "NORMAL,20"));
    assert!(notices(&back)[0].contains("was removed from token 20"), "{back:?}");
    assert_eq!(ring(&m), [(20, 4)]);
}

#[test]
fn nobody_replaces_a_node_that_is_alive() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    m.follow(&GossipEvent::Up { endpoint: ip(2) });
    let changes = plans(&mut m, 4, "replaced,10.0.0.2,20");
    assert!(notices(&changes)[0].contains("is alive"), "{changes:?}");
    assert_eq!(ring(&m), [(20, 2)]);
    let changes = plans(&mut m, 4, "replaced,10.0.0.1,1");
    assert!(notices(&changes)[0].contains("about myself"), "{changes:?}");
}

#[test]
fn a_removal_is_done_when_the_node_seems_dead_here_as_well() {
    let mut m = membership();
    says(&mut m, 2, "NORMAL,20");
    m.follow(&GossipEvent::Up { endpoint: ip(2) });
    m.follow(&said(3, 900, 5, "NORMAL,30,remove,20"));
    assert_eq!(ring(&m), [(20, 2), (30, 3)]);
    let changes = m.follow(&GossipEvent::Down { endpoint: ip(2) });
    let is_removed = |it: &MembershipChange| matches!(it, MembershipChange::Removed(_));
    assert!(changes.iter().any(is_removed), "{changes:?}");
    assert_eq!(ring(&m), [(30, 3)]);
    // Unless it was started since.
    says(&mut m, 4, "NORMAL,40");
    m.follow(&GossipEvent::Up { endpoint: ip(4) });
    m.follow(&said(3, 900, 6, "NORMAL,30,remove,40"));
    m.follow(&GossipEvent::Restarted { endpoint: ip(4), generation: 2000 });
    m.follow(&said(4, 2000, 1, "NORMAL,40"));
    m.follow(&GossipEvent::Down { endpoint: ip(4) });
    assert_eq!(ring(&m), [(30, 3), (40, 4)]);
}
