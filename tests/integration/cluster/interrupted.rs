//! Changes of the ring whose nodes are killed in the middle: they are taken up again or have not
//! happened, and nothing is lost.

use crate::cluster::nodes::{Cluster, replicated, wait_until, without_hints};
use crate::server::calls::{ALL, Entry, Path, STANDARD, first};
use crate::server::client::{CallError, Client, Level};
use crate::server::{Options, refused, serve};
use serde_json::Value;
use std::thread;
use std::time::Duration;

const NAME: Path<'static> =
    Path { family: STANDARD, super_column: None, column: Some(b"name".as_slice()) };

/// Rows that are there before, of about 4 KB each, so that collecting them takes some time with the
/// throttle that these clusters have.
const ROWS: usize = 1500;

/// Slow streams: the nodes can be killed in the middle of them.
fn slowly() -> Options {
    replicated(2).with("StreamThroughputInMBPerSecond", "1")
}

fn key(row: usize) -> String {
    format!("row {row}")
}

fn fill(client: &mut Client) {
    let value = vec![b'x'; 4 << 10];
    for row in 0..ROWS {
        client.insert(&key(row), NAME, &value, 1).unwrap();
    }
}

/// Every row is found at ALL through this node, as the version of this round.
#[track_caller]
fn check(cluster: &Cluster, number: usize, rounds: &[(usize, i64)]) {
    wait_until("all members are up for it", || {
        let ring = cluster.nodes[number].ask("ring");
        let mut endpoints = ring["endpoints"].as_array().unwrap().iter();
        endpoints.all(|it| it["state"] != "Normal" || it["status"] == "Up")
    });
    let mut client = cluster.client(number).at(Level::All);
    for row in 0..ROWS {
        let found = client.get_slice(&key(row), STANDARD, first(ALL, false)).unwrap();
        assert_eq!(Entry::columns(&found).count(), 1, "{}", key(row));
    }
    for (row, timestamp) in rounds {
        let found = client.get_slice(&key(*row), STANDARD, first(ALL, false)).unwrap();
        let timestamps: Vec<i64> = Entry::columns(&found).map(|it| it.timestamp).collect();
        assert_eq!(timestamps, [*timestamp], "{}", key(*row));
    }
}

fn ring_of(cluster: &Cluster, observer: usize) -> Vec<(String, String)> {
    let ring = cluster.nodes[observer].ask("ring");
    let endpoints = ring["endpoints"].as_array().unwrap();
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<_> =
        endpoints.iter().map(|it| (text(it, "address"), text(it, "state"))).collect();
    found.sort();
    found
}

#[track_caller]
fn wait_for_ring(cluster: &Cluster, observers: &[usize], normal: &[usize]) {
    for observer in observers {
        let mut expected: Vec<_> = normal
            .iter()
            .map(|it| (cluster.nodes[*it].address.to_string(), "Normal".to_owned()))
            .collect();
        expected.sort();
        wait_until(&format!("node {observer} sees {expected:?}"), || {
            ring_of(cluster, *observer)
                .into_iter()
                .filter(|(_, state)| state != "Outside" && state != "Removed")
                .eq(expected.clone())
        });
    }
}

/// Waits until the operation of a node is at one of these steps; false if it is over before.
fn reaches(cluster: &Cluster, number: usize, steps: &[&str]) -> bool {
    let mut is_over = false;
    wait_until(&format!("node {number} is at: {steps:?}"), || {
        let operation = cluster.nodes[number].ask("ring/operation");
        is_over = !operation["done"].is_null() || !operation["error"].is_null();
        let is_at = |mode: &str| steps.iter().any(|step| mode.contains(step));
        is_over || operation["mode"].as_str().is_some_and(is_at)
    });
    !is_over
}

/// `UnavailableException` or `TimedOutException`: the write may be repeated.
#[track_caller]
fn assert_not_done(written: &Result<(), CallError>) {
    let is_so = matches!(written, Err(CallError::Declared { field: 2 | 3, .. }));
    assert!(is_so, "{written:?}");
}

/// Whether some bytes have been collected, and not all.
fn is_under_way(cluster: &Cluster, number: usize) -> bool {
    let operation = cluster.nodes[number].ask("ring/operation");
    let collected = operation["collected"].as_array().cloned().unwrap_or_default();
    collected.iter().any(|it| it["bytes"].as_u64().unwrap_or_default() > 0)
}

/// A node that joins when it is started.
fn add_joiner(cluster: &mut Cluster) -> usize {
    cluster.add(&Options::default().with("AutoBootstrap", "true"))
}

/// A node that is joining: some data have come.
fn begin_to_join(cluster: &mut Cluster) -> usize {
    let new = add_joiner(cluster);
    cluster.nodes[new].begin();
    wait_until("its operators are served", || cluster.nodes[new].is_asked());
    wait_until("data have come", || is_under_way(cluster, new));
    new
}

/// A node that joins is killed at each of its steps, and joins when it is started again.
#[test]
fn a_node_that_joins_is_killed_at_every_step() {
    let mut cluster = Cluster::start(2, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    let new = add_joiner(&mut cluster);
    let mut written = Vec::new();
    let telling = "Telling all nodes";
    // Whether somebody had heard that it is a member decides how it goes on after that.
    let again = [telling, "Rejoining at token"];
    let steps: [&[&str]; 6] = [
        &[],
        &["waiting until all nodes know"],
        &["Bootstrapping"],
        &["middle"],
        &[telling],
        &again,
    ];
    for (round, steps) in steps.into_iter().enumerate() {
        cluster.nodes[new].begin();
        wait_until("its operators are served", || cluster.nodes[new].is_asked());
        match steps {
            // Whatever it does first.
            [] => {}
            ["middle"] => wait_until("data have come", || is_under_way(&cluster, new)),
            steps => assert!(reaches(&cluster, new, steps), "{steps:?} was over before"),
        }
        // What is written while it joins, and while it is dead.
        let timestamp = 10 + round as i64;
        let mut client = cluster.client(0).at(Level::Quorum);
        for row in [round, 100 + round] {
            // While it finds out whether others know it as a member it is none to count on.
            let mut write = || client.insert(&key(row), NAME, b"new", timestamp);
            wait_until("a quorum has it", || match write() {
                Ok(()) => true,
                refused => {
                    assert_not_done(&refused);
                    false
                }
            });
            written.push((row, timestamp));
        }
        cluster.kill(new);
        for row in [200 + round, 300 + round] {
            let mut client = cluster.client(0);
            client.insert(&key(row), NAME, b"new", timestamp).unwrap();
            written.push((row, timestamp));
        }
    }
    cluster.launch(&[new]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, new, &written);
}

/// A node that takes the place of a dead one is killed when it collects, and when it tells that it
/// has the place.
#[test]
fn a_node_that_replaces_another_is_killed() {
    let mut cluster = Cluster::start(3, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    let property = format!("-Dcassandra.replace_token={}", cluster.token_of(2));
    cluster.kill(2);
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, false);
    }
    let new = cluster.add(&Options::default());
    for step in ["waiting until all nodes know", "Bootstrapping", "Telling all nodes"] {
        cluster.nodes[new].begin_with(&[&property]);
        wait_until("its operators are served", || cluster.nodes[new].is_asked());
        assert!(reaches(&cluster, new, &[step]), "{step} was over before");
        cluster.kill(new);
    }
    cluster.nodes[new].launch_with(&[&property]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    check(&cluster, new, &[]);
}

/// The source of a node that joins is killed in the middle; it goes on when the source is back, or
/// with another one.
#[test]
fn who_gives_the_data_is_killed() {
    let mut cluster = Cluster::start(2, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    let new = begin_to_join(&mut cluster);
    cluster.kill(1);
    thread::sleep(Duration::from_secs(1));
    cluster.launch(&[1]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, 0, &[]);
}

/// A node that leaves is killed: it is where it was when it is started again.
#[test]
fn a_node_that_leaves_is_killed() {
    let mut cluster = Cluster::start(3, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    for step in ["waiting until all nodes know", "streaming data"] {
        cluster.nodetool(2, &["decommission", "--no-wait"]);
        assert!(reaches(&cluster, 2, &[step]), "{step} was over before");
        cluster.kill(2);
        cluster.launch(&[2]);
        wait_for_ring(&cluster, &[0, 1, 2], &[0, 1, 2]);
    }
    // Who collects is killed and started again: it goes on.
    cluster.nodetool(2, &["decommission", "--no-wait"]);
    wait_until("data have come", || is_under_way(&cluster, 2));
    cluster.kill(1);
    cluster.launch(&[1]);
    wait_until("it has left", || {
        let operation = cluster.nodes[2].ask("ring/operation");
        assert!(operation["error"].is_null(), "{operation}");
        !operation["done"].is_null()
    });
    wait_for_ring(&cluster, &[0, 1], &[0, 1]);
    cluster.kill(2);
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, 0, &[]);
    check(&cluster, 1, &[]);
}

/// A node that is killed while it tells that it has left says so at the next start, which ends by
/// that: nobody waits for it.
#[test]
fn a_node_that_has_left_is_killed_before_all_know() {
    let mut cluster = Cluster::start(3, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    cluster.nodetool(2, &["decommission", "--no-wait"]);
    // Whoever is too slow to see it kills it right after.
    reaches(&cluster, 2, &["Telling all nodes"]);
    cluster.kill(2);
    let refusal = refused(&serve(&cluster.nodes[2].directory));
    assert_eq!(refusal.exit_code, Some(3), "{refusal:?}");
    assert!(refusal.text.contains("this node was decommissioned"), "{refusal:?}");
    wait_for_ring(&cluster, &[0, 1], &[0, 1]);
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, 0, &[]);
    check(&cluster, 1, &[]);
}

/// A node that moves is killed when it has left its old place: it goes on to the new one, be it
/// told or chosen.
#[test]
fn a_node_that_moves_is_killed() {
    let mut cluster = Cluster::start(3, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    for movement in [&["move", "--no-wait", "99"][..], &["loadbalance", "--no-wait"]] {
        let before = cluster.token_of(2);
        cluster.nodetool(2, movement);
        assert!(reaches(&cluster, 2, &["Bootstrapping"]));
        cluster.kill(2);
        cluster.launch(&[2]);
        wait_for_ring(&cluster, &[0, 1, 2], &[0, 1, 2]);
        let after = cluster.token_of(2);
        assert!(if movement.contains(&"99") { after == "99" } else { after != before }, "{after}");
        cluster.wait_for_hints(&[0, 1]);
        check(&cluster, 2, &[]);
    }
}

/// A node that joins stands still for so long that others forget it, and is no member by mistake:
/// it has all that was written meanwhile, when it is one.
#[test]
fn a_node_that_joins_stands_still() {
    let mut cluster = Cluster::start(2, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    let new = begin_to_join(&mut cluster);
    // It goes on collecting while the others stand still.
    for member in [0, 1] {
        cluster.server(member).pause();
    }
    let health = cluster.nodes[new].try_ask("health").unwrap();
    for member in [0, 1] {
        cluster.server(member).resume();
    }
    assert!(health.starts_with("HTTP/1.1 503 ") && health.contains("Outside"), "{health}");
    assert!(health.contains("is no member of the ring: Bootstrapping"), "{health}");
    cluster.server(new).pause();
    let joining = |observer: usize| {
        let ring = cluster.nodes[observer].ask("ring");
        let endpoints = ring["endpoints"].as_array().unwrap().clone();
        endpoints.iter().any(|it| it["state"] == "Joining")
    };
    wait_until("others forget it", || !joining(0) && !joining(1));
    let mut client = cluster.client(0).at(Level::All);
    let written: Vec<(usize, i64)> = (0..ROWS).step_by(10).map(|row| (row, 7)).collect();
    for (row, timestamp) in &written {
        client.insert(&key(*row), NAME, b"new", *timestamp).unwrap();
    }
    cluster.server(new).resume();
    // It goes on, or gives up because nobody knew of it: then its process ends.
    wait_until("it is a member or has given up", || {
        match cluster.nodes[new].try_ask("ring/operation") {
            Ok(answer) => !answer.contains("\"done\":null") || !answer.contains("\"error\":null"),
            Err(_) => true,
        }
    });
    cluster.kill(new);
    cluster.launch(&[new]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    cluster.wait_for_hints(&[0, 1]);
    check(&cluster, new, &written);
}

/// A cleanup is killed in the middle: nothing is lost that the node still has to have, and the next
/// one frees the rest.
#[test]
fn a_node_that_cleans_up_is_killed() {
    let slow = slowly().with("CompactionThroughputInMBPerSecond", "1");
    let mut cluster = Cluster::start(2, slow);
    fill(&mut cluster.client(0).at(Level::All));
    let new = add_joiner(&mut cluster);
    cluster.launch(&[new]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    cluster.nodetool(0, &["flush", "Keyspace1"]);
    cluster.nodetool(0, &["cleanup", "--no-wait"]);
    assert!(reaches(&cluster, 0, &["Cleaning up Keyspace1"]));
    cluster.kill(0);
    cluster.launch(&[0]);
    wait_for_ring(&cluster, &[0, 1, new], &[0, 1, new]);
    check(&cluster, 0, &[]);
    cluster.nodetool(0, &["cleanup"]);
    check(&cluster, 0, &[]);
}

/// A node that has a dead one removed is killed in the middle: that one is there, and is removed by
/// another one.
#[test]
fn who_removes_a_node_is_killed() {
    let mut cluster = Cluster::start(3, slowly());
    fill(&mut cluster.client(0).at(Level::All));
    let token = cluster.token_of(2);
    cluster.kill(2);
    for observer in [0, 1] {
        cluster.wait_until_seen(observer, 2, false);
    }
    cluster.nodetool(0, &["removetoken", "--no-wait", &token]);
    assert!(reaches(&cluster, 0, &["streaming data"]));
    cluster.kill(0);
    cluster.launch(&[0]);
    cluster.wait_until_seen(1, 0, true);
    cluster.wait_until_seen(0, 1, true);
    wait_for_ring(&cluster, &[0, 1], &[0, 1, 2]);
    let report = cluster.nodetool(1, &["removetoken", &token]);
    assert!(report.contains("is removed from the ring"), "{report}");
    wait_for_ring(&cluster, &[0, 1], &[0, 1]);
    check(&cluster, 0, &[]);
    check(&cluster, 1, &[]);
}

#[test]
fn a_repair_that_an_operator_stops_does_no_more_and_can_be_done_again() {
    let slow = without_hints(2).with("StreamThroughputInMBPerSecond", "1");
    let mut cluster = Cluster::start(2, slow.with("DoConsistencyChecksBoolean", "false"));
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    fill(&mut cluster.client(0));
    cluster.launch(&[1]);
    for (observer, target) in [(0, 1), (1, 0)] {
        cluster.wait_until_seen(observer, target, true);
    }
    let missing = |cluster: &Cluster| {
        let mut client = cluster.client(1);
        let mut found = |row| client.get_slice(&key(row), STANDARD, first(ALL, false)).unwrap();
        (0..ROWS).filter(|row| found(*row).is_empty()).count()
    };
    cluster.nodetool(1, &["repair", "--no-wait", "Keyspace1"]);
    assert!(reaches(&cluster, 1, &["Repairing Keyspace1.Standard1 "]));
    cluster.nodetool(1, &["stop", "--repair"]);
    wait_until("it has ended", || {
        let operation = cluster.nodes[1].ask("ring/operation");
        operation["error"].as_str().is_some_and(|why| why.contains("an operator has stopped it"))
    });
    assert!(missing(&cluster) > 0);
    // It is over on the other node, too: a further one begins at once.
    cluster.nodetool(1, &["setstreamthroughput", "0"]);
    cluster.nodetool(1, &["repair", "Keyspace1"]);
    assert_eq!(missing(&cluster), 0);
}
