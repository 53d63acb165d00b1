//! Nodes find each other, and know each other after a restart.

use crate::cluster::nodes::{Cluster, assert_unavailable, replicated, wait_until};
use crate::server::Options;
use crate::server::calls::{Path, STANDARD, first};
use crate::server::client::Level;

#[test]
fn three_nodes_are_one_store() {
    let cluster = Cluster::start(3, replicated(3));
    let path = Path::column(STANDARD, b"name");
    let levels =
        [(Level::All, Level::One), (Level::Quorum, Level::Quorum), (Level::One, Level::All)];
    for writer in 0..3 {
        for (write, read) in levels {
            let key = format!("of node {writer} at {write:?}");
            cluster.client(writer).at(write).insert(&key, path, key.as_bytes(), 1).unwrap();
            for reader in 0..3 {
                let mut client = cluster.client(reader).at(read);
                let row = client.get_slice(&key, STANDARD, first(10, false)).unwrap();
                assert_eq!(row.len(), 1, "{key}, read from node {reader} at {read:?}");
            }
        }
    }
    for number in 0..3 {
        let ranges = cluster.client(number).describe_ring().unwrap();
        assert_eq!(ranges.len(), 3);
        for mut endpoints in ranges {
            endpoints.sort();
            let all = cluster.nodes.iter().map(|node| node.address.to_string());
            assert!(endpoints.into_iter().eq(all), "all are replicas of all");
        }
        let ring = cluster.nodetool(number, &["ring"]);
        assert_eq!(ring.lines().filter(|line| line[14..].starts_with("Up  ")).count(), 3, "{ring}");
        assert_eq!(ring.lines().filter(|line| line.contains(" 33.33% ")).count(), 3, "{ring}");
    }
}

#[test]
fn a_node_that_is_started_alone_knows_the_ring() {
    let mut cluster = Cluster::start(3, replicated(3));
    let path = Path::column(STANDARD, b"name");
    cluster.client(0).at(Level::All).insert("key", path, b"value", 1).unwrap();
    for number in 0..3 {
        cluster.stop(number);
    }
    // No seed, so that it has to be asked what it remembers.
    cluster.launch(&[2]);
    let mut client = cluster.client(2);
    let ranges = client.describe_ring().unwrap();
    assert!(ranges.len() == 3 && ranges.iter().all(|range| range.len() == 3), "{ranges:?}");
    let row = client.get_slice("key", STANDARD, first(10, false)).unwrap();
    assert_eq!(row.len(), 1, "at ONE its own copy is enough");
    let mut client = client.at(Level::Quorum);
    let read = client.get_slice("key", STANDARD, first(10, false));
    let written = client.insert("key", path, b"other", 2);
    assert_unavailable(&read);
    assert_unavailable(&written);
    // The others find it where it was.
    cluster.launch(&[0, 1]);
    for other in [0, 1] {
        cluster.wait_until_seen(2, other, true);
        cluster.wait_until_seen(other, 2, true);
    }
    let row = client.get_slice("key", STANDARD, first(10, false)).unwrap();
    assert_eq!(row.len(), 1);
}

#[test]
fn a_node_of_another_cluster_stays_out() {
    let mut cluster = Cluster::start(3, replicated(3));
    let outsider = cluster.add(&Options::default().with("ClusterName", "Others"));
    cluster.launch(&[outsider]);
    // It has gone on without them, and they without it.
    let log = || cluster.server(0).log() + &cluster.server(1).log();
    wait_until("a seed tells of the mismatch", || log().contains("ClusterName mismatch"));
    assert_eq!(cluster.client(outsider).describe_ring().unwrap().len(), 1);
    for number in 0..3 {
        assert_eq!(cluster.client(number).describe_ring().unwrap().len(), 3);
        let ring = cluster.nodes[number].ask("ring").to_string();
        let address = format!("\"{}\"", cluster.nodes[outsider].address);
        assert!(!ring.contains(&address), "{ring}");
    }
    let mut client = cluster.client(1).at(Level::All);
    client.insert("key", Path::column(STANDARD, b"name"), b"value", 1).unwrap();
}
