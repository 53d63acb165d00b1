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

fn said(node: u8, generation: i32, version: i32, value: &str) -> GossipEvent {
    GossipEvent::StateChanged {
        endpoint: ip(node),
        generation,
        name: MOVE_STATE.to_owned(),
        state: VersionedValue { value: value.to_owned(), version },
    }
}

/// An announcement of a node at one of its generations.
#[derive(Debug, Clone)]
struct Word {
    node: u8,
    generation: i32,
    version: i32,
    place: Move,
}

/// Announcements of nodes 1 to 5, in order.
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

/// Applies changes to the saved ring.
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
                let raised = GossipEvent::OwnGenerationRaised(generation);
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
