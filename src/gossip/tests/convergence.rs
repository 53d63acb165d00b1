//! Many gossipers at once: they all come to the same view, and to the right one.

use super::cluster::{BAD, Cluster, Faults, SOUND, ip, node_of, token};
use crate::gossip::{EndpointState, GenerationConflict, GossipEvent, MOVE_STATE, Move};
use crate::ring::Partitioner;
use proptest::prelude::*;
use std::time::Duration;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn clusters_of_all_sizes_know_each_other_soon() {
    for count in [2, 3, 5, 10, 50] {
        let mut cluster = Cluster::new(8.0, SOUND, u64::from(count));
        (1..=count).for_each(|node| cluster.start(node, &Move::normal(node)));
        cluster.until(secs(15), Cluster::is_converged);
        assert_eq!(cluster.view(count).0.ring.len(), usize::from(count));
    }
}

#[test]
fn nobody_alive_is_convicted_on_a_sound_network() {
    for (count, phi) in [(2, 5.0), (3, 5.0), (3, 8.0), (12, 5.0), (50, 5.0)] {
        for seed in 0..3 {
            let mut cluster = Cluster::of(count, phi, SOUND, seed);
            cluster.run(secs(if count > 12 { 60 } else { 1200 }));
            assert_eq!(cluster.convictions(), [], "{count} nodes, phi {phi}, seed {seed}");
        }
    }
}

/// A job of clients that take part in gossip begins and ends beside the ring.
#[test]
fn nodes_without_a_place_make_no_member_convict_another() {
    for (clients, phi, seed) in [(60, 8.0, 1), (60, 5.0, 2)] {
        let mut cluster = Cluster::of(3, phi, SOUND, seed);
        cluster.run(secs(60));
        (10..10 + clients).for_each(|client| cluster.start_fat_client(client));
        cluster.run(secs(10));
        assert!(cluster.sees_alive(1, 10), "they are known");
        (10..10 + clients).for_each(|client| cluster.kill(client));
        cluster.run(secs(120));
        let of_members = cluster.convictions().into_iter().filter(|(_, whom)| *whom <= 3);
        assert_eq!(of_members.collect::<Vec<_>>(), [], "{clients} clients, phi {phi}, seed {seed}");
        assert!(cluster.gossiper(1).state(ip(10)).is_none(), "they are forgotten");
    }
}

#[test]
fn a_dead_node_is_convicted_by_all_and_stays_a_member() {
    let mut cluster = Cluster::of(10, 8.0, SOUND, 7);
    cluster.run(secs(60));
    cluster.kill(4);
    let took = cluster.until(secs(60), Cluster::is_converged);
    assert!(took > secs(3), "{took:?}");
    cluster.run(secs(3600));
    assert!(cluster.is_converged());
    assert!(cluster.view(1).0.is_member(ip(4)));
    // A joining node learns of the dead one, and does not take it for alive.
    cluster.start(11, &Move::Boot(token(11)));
    cluster.until(secs(20), Cluster::is_converged);
    assert_eq!(cluster.view(11).0, cluster.view(1).0);
    assert_eq!(cluster.view(2).0.bootstrapping.len(), 1);
    cluster.kill(11);
    cluster.run(secs(120));
    assert!(cluster.is_converged());
    assert_eq!(cluster.view(2).0.bootstrapping.len(), 0, "without a place it is forgotten");
    assert!(cluster.gossiper(2).state(ip(11)).is_none());
}

#[test]
fn a_restart_is_seen_before_a_conviction() {
    let mut cluster = Cluster::of(5, 8.0, SOUND, 8);
    cluster.run(secs(60));
    cluster.kill(2);
    cluster.run(secs(2));
    cluster.start(2, &Move::normal(2));
    cluster.until(secs(10), Cluster::is_converged);
    assert_eq!(cluster.convictions(), []);
    let restarts = cluster.events.iter().filter(|(_, _, event)| {
        matches!(event, GossipEvent::Restarted { endpoint, .. } if *endpoint == ip(2))
    });
    assert_eq!(restarts.count(), 4);
}

#[test]
fn a_node_that_stood_still_convicts_nobody() {
    for seed in 0..20 {
        let mut cluster = Cluster::of(4, 5.0, SOUND, seed);
        cluster.run(secs(60));
        cluster.stop(2, secs(100));
        cluster.run(secs(99));
        let mut convictions = cluster.convictions();
        convictions.sort_unstable();
        assert_eq!(convictions, [(1, 2), (3, 2), (4, 2)]);
        cluster.run(secs(60));
        assert_eq!(cluster.convictions().len(), 3);
        assert!(cluster.is_converged());
    }
}

#[test]
fn both_sides_of_a_partition_find_each_other_again() {
    let mut cluster = Cluster::of(6, 8.0, SOUND, 9);
    cluster.cut_off(&[4, 5, 6]);
    cluster.run(secs(300));
    for (node, others) in [(2, [4, 5, 6]), (5, [1, 2, 3])] {
        assert!(others.iter().all(|&other| !cluster.sees_alive(node, other)), "{node}");
    }
    // On the side without a seed somebody leaves meanwhile.
    cluster.leave(6);
    cluster.run(secs(120));
    cluster.heal();
    cluster.until(secs(60), Cluster::is_converged);
    assert!(!cluster.view(1).0.is_member(ip(6)));
}

#[test]
fn a_node_that_was_down_learns_who_left_though_all_who_saw_it_were_restarted() {
    let mut cluster = Cluster::of(4, 8.0, SOUND, 12);
    cluster.kill(3);
    cluster.until(secs(60), Cluster::is_converged);
    cluster.leave(2);
    cluster.run(secs(60));
    for node in [1, 4] {
        cluster.kill(node);
        cluster.run(secs(2));
        cluster.start(node, &Move::normal(node));
    }
    cluster.until(secs(30), Cluster::is_converged);
    cluster.start(3, &Move::normal(3));
    cluster.run(secs(20));
    assert!(cluster.view(3).0.is_member(ip(2)), "for a while it may just be dead");
    cluster.until(secs(40), Cluster::is_converged);
    assert_eq!(cluster.view(3).0.ring.len(), 3);
    // After an outage of all the first to come back keeps the others as members.
    for node in [1, 3, 4] {
        cluster.kill(node);
    }
    cluster.start(4, &Move::normal(4));
    cluster.run(secs(600));
    assert_eq!(cluster.view(4).0.ring.len(), 3);
}

#[test]
fn a_removed_node_is_gone_everywhere_and_is_not_taken_back() {
    let mut cluster = Cluster::of(6, 8.0, SOUND, 10);
    cluster.kill(3);
    cluster.until(secs(60), Cluster::is_converged);
    cluster.announce(5, &Move::Normal { token: token(5), removed: Some(token(3)) });
    let is_gone = |cluster: &Cluster| {
        let mut nodes = cluster.views().into_keys();
        nodes.all(|node| {
            node == 3
                || !cluster.view(node).0.is_member(ip(3))
                    && cluster.gossiper(node).state(ip(3)).is_none()
        })
    };
    cluster.until(secs(20), is_gone);
    cluster.run(secs(600));
    assert!(is_gone(&cluster) && cluster.is_converged());
    cluster.start(3, &Move::normal(3));
    cluster.run(secs(60));
    let is_out = |node| !cluster.view(node).0.is_member(ip(3));
    assert!([1, 2, 4, 5, 6].into_iter().all(is_out));
    assert!(cluster.sees_alive(1, 3), "gossip knows it, the ring does not");
}

#[test]
fn of_two_nodes_with_one_token_all_choose_the_later() {
    let mut cluster = Cluster::of(5, 8.0, SOUND, 11);
    cluster.run(secs(30));
    cluster.start(6, &Move::normal(2));
    cluster.until(secs(20), Cluster::is_converged);
    assert_eq!(cluster.view(4).0.ring.owner(&token(2)), Some(ip(6)));
}

#[test]
fn a_conflict_that_an_operator_has_mended_leaves_no_trace() {
    for seed in 0..20 {
        let mut cluster = Cluster::of(3, 8.0, SOUND, seed);
        cluster.run(secs(30));
        cluster.start(4, &Move::normal(2));
        cluster.until(secs(20), Cluster::is_converged);
        assert!(!cluster.view(2).0.is_member(ip(2)), "on that node as well");
        cluster.run(secs(60));
        cluster.kill(4);
        cluster.wipe(4);
        cluster.run(secs(3));
        cluster.start(4, &Move::normal(4));
        let is_whole =
            |cluster: &Cluster| cluster.is_converged() && cluster.view(4).0.ring.len() == 4;
        cluster.until(secs(20), is_whole);
        assert_eq!(cluster.view(1).0.ring.owner(&token(2)), Some(ip(2)));
        // Nor in what is saved.
        cluster.kill(2);
        cluster.until(secs(60), Cluster::is_converged);
        for node in [1, 3, 4] {
            cluster.kill(node);
            cluster.start(node, &Move::normal(node));
        }
        cluster.run(secs(60));
        assert!(is_whole(&cluster));
    }
}

/// The furthest that nodes accept a generation ahead of their clocks.
const YEAR_SECS: i32 = 365 * 24 * 3600;

#[test]
fn a_node_refutes_that_it_has_left_whatever_generation_was_forged() {
    for (seed, ahead) in [0, 61, YEAR_SECS / 2, YEAR_SECS - 1, YEAR_SECS].into_iter().enumerate() {
        let mut cluster = Cluster::of(4, 8.0, SOUND, seed as u64);
        // No two clocks are the same.
        cluster.kill(3);
        cluster.clocks_ahead.insert(3, -3600);
        cluster.start(3, &Move::normal(3));
        cluster.until(secs(20), Cluster::is_converged);
        // Not even in the end does anybody accept a generation without bound.
        for _ in 0..3 {
            let mut forged = EndpointState::new(cluster.now_secs() + ahead);
            forged.set(MOVE_STATE, &Move::Left(token(3)).format(Partitioner::Random));
            for deceived in [1, 2] {
                cluster.forge(deceived, 3, forged.clone());
            }
            cluster.run(secs(1));
            cluster.until(secs(20), Cluster::is_converged);
            assert!(cluster.view(4).0.is_member(ip(3)), "{ahead} s ahead");
        }
        let generation = cluster.gossiper(3).generation();
        assert!(generation <= cluster.now_secs() + YEAR_SECS, "{generation}");
    }
}

#[test]
fn a_node_that_was_started_once_with_its_clock_ahead_comes_back() {
    let mut cluster = Cluster::of(3, 8.0, SOUND, 13);
    cluster.kill(3);
    cluster.clocks_ahead.insert(3, 3 * YEAR_SECS);
    cluster.start(3, &Move::normal(3));
    cluster.run(secs(60));
    assert!(!cluster.sees_alive(1, 3) && !cluster.sees_alive(2, 3));
    // As long as its clock is wrong it says so, and does not hide that.
    let conflict = cluster.gossiper(3).generation_conflict();
    let Some(GenerationConflict::Refused { is_clock_right: false, .. }) = conflict else {
        panic!("{conflict:?}")
    };
    cluster.kill(3);
    cluster.clocks_ahead.clear();
    cluster.start(3, &Move::normal(3));
    cluster.until(secs(5), |cluster| cluster.gossiper(3).generation_conflict().is_some());
    cluster.until(secs(40), Cluster::is_converged);
    assert_eq!(cluster.gossiper(3).generation_conflict(), None);
    // Also after the next start.
    cluster.kill(3);
    cluster.run(secs(2));
    cluster.start(3, &Move::normal(3));
    cluster.until(secs(20), Cluster::is_converged);
    assert!(cluster.gossiper(3).generation() < cluster.now_secs() + 60);
}

#[test]
fn a_node_whose_first_start_was_with_its_clock_ahead_comes_in() {
    let mut cluster = Cluster::of(2, 8.0, SOUND, 14);
    cluster.clocks_ahead.insert(3, 3 * YEAR_SECS);
    cluster.start(3, &Move::normal(3));
    cluster.run(secs(20));
    cluster.kill(3);
    cluster.clocks_ahead.clear();
    cluster.start(3, &Move::normal(3));
    cluster.until(secs(40), Cluster::is_converged);
    assert_eq!(cluster.view(1).0.ring.len(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Whatever the network did and whoever crashed: once it is quiet all see the same.
    #[test]
    fn all_come_to_one_view_after_any_trouble(
        seed: u64,
        count in 3..8u8,
        trouble in prop::collection::vec((0..5u8, 2..8u8, 1..60u64), 0..12),
    ) {
        let mut cluster = Cluster::of(count, 8.0, SOUND, seed);
        cluster.faults = BAD;
        for (what, node, seconds) in trouble {
            let node = 1 + node % count;
            match what {
                0 => cluster.kill(node),
                1 | 2 => {
                    cluster.kill(node);
                    cluster.run(secs(2));
                    cluster.start(node, &Move::normal(node));
                }
                3 => cluster.cut_off(&[node, 1 + (node + 1) % count]),
                _ => cluster.heal(),
            }
            cluster.run(secs(seconds));
        }
        cluster.heal();
        cluster.faults = SOUND;
        cluster.until(secs(300), Cluster::is_converged);
    }
}

/// How long it takes all of three nodes to convict one that died, over many seeds. Figures for
/// people: run it with `--ignored --nocapture`.
#[test]
#[ignore = "prints figures"]
fn detection_times() {
    let lossy = |loss| Faults { loss, ..SOUND };
    let networks = [("sound", SOUND), ("10 % lost", lossy(0.1)), ("30 % lost", lossy(0.3))];
    for (network, faults) in networks {
        for phi in [5.0, 8.0] {
            for age in [10, 600] {
                let (mut times, mut wrong) = (Vec::new(), 0);
                for seed in 0..200 {
                    let mut cluster = Cluster::of(3, phi, faults, seed);
                    cluster.run(secs(age));
                    wrong += cluster.convictions().len();
                    let start = cluster.now;
                    cluster.kill(3);
                    cluster.run(secs(120));
                    let downs = cluster.events.iter().filter(|(at, _, event)| {
                        *at >= start
                            && matches!(event, GossipEvent::Down { endpoint }
                                if node_of(*endpoint) == 3)
                    });
                    times.push(downs.map(|(at, ..)| at.saturating_sub(start)).max().unwrap());
                }
                times.sort_unstable();
                let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
                println!(
                    "{network}, phi {phi}, after {age} s: best {:?}, median {median:?}, \
                     worst {worst:?}, wrong {wrong}",
                    times[0]
                );
            }
        }
    }
}
