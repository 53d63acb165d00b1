use super::*;
use crate::gossip::VersionedValue;
use proptest::collection::vec;
use proptest::prelude::*;

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
        changes.len() == 1 && notices(changes)[0].contains("it is not taken into the ring")
    };
    assert!(refused(&m.follow(&said(2, 200, 1, "NORMAL,20"))));
    assert!(refused(&m.follow(&said(2, 200, 1, "LEAVING,20"))));
    assert_eq!(m.allow_return(ip(3), None), None, "that one was not removed");
    let allowed = RemovedNode { may_return: true, ..removed.clone() };
    let may_return = MembershipChange::MayReturn(allowed.clone());
    assert_eq!(m.allow_return(ip(2), None), Some(vec![may_return]));
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
fn what_is_no_place_changes_nothing() {
    let mut m = membership();
    for value in ["", "NORMAL", "NORMAL,x", "BOOT,1,2", "PAUSED,1"] {
        assert_eq!(says(&mut m, 2, value), []);
    }
    assert_eq!(m.follow(&said(1, 1000, 1, "LEFT,1")), [], "only this node says where it is");
}

proptest! {
    /// Claims heard in any order lead to the same owners.
    #[test]
    fn the_order_of_claims_does_not_matter(
        claims in vec((2..9u8, 0..4i32, 0..3u128), 1..8),
        order: u64,
    ) {
        let claims: BTreeMap<u8, (i32, u128)> =
            claims.into_iter().map(|(node, at, token)| (node, (at, token))).collect();
        let mut shuffled: Vec<_> = claims.iter().collect();
        fastrand::Rng::with_seed(order).shuffle(&mut shuffled);
        let [mut a, mut b] = [membership(), membership()];
        for (m, claims) in [(&mut a, claims.iter().collect()), (&mut b, shuffled)] {
            for (&node, &(generation, token)) in claims {
                m.follow(&said(node, generation, 1, &format!("NORMAL,{}", token + 10)));
            }
        }
        prop_assert_eq!(a.members(), b.members());
    }
}
