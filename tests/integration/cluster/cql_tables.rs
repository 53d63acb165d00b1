//! Tables made over CQL in a ring that grows: their schema, and their rows of any keys.

use crate::cluster::nodes::{Cluster, replicated};
use crate::cql::CqlClient;
use crate::server::Options;
use std::net::SocketAddr;

const CQL_PORT: u16 = 9042;

/// Rows of the table. Most of their keys are not text.
const ROWS: i64 = 300;

fn connect(cluster: &Cluster, number: usize) -> CqlClient {
    CqlClient::begin(SocketAddr::from((cluster.nodes[number].address, CQL_PORT))).0
}

/// The rows of the table that a node shows at ALL.
fn count(cluster: &Cluster, number: usize) -> i64 {
    let answer = connect(cluster, number).query("SELECT count(*) FROM k.t");
    let last = answer.body.last_chunk().unwrap_or_else(|| panic!("{}", answer.text()));
    i64::from_be_bytes(*last)
}

#[test]
fn nodes_that_join_have_the_tables_of_the_ring_and_their_rows() {
    let options = replicated(1).with("CqlPort", &CQL_PORT.to_string());
    let mut cluster = Cluster::start(1, options);
    let mut client = connect(&cluster, 0);
    client.query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    client.query("CREATE TABLE k.t (n int PRIMARY KEY, v text)");
    for n in 0..ROWS / 2 {
        // In the log of batches, since the rows are two.
        client.query(&format!(
            "BEGIN BATCH INSERT INTO k.t (n, v) VALUES ({n}, 'a'); \
             INSERT INTO k.t (n, v) VALUES ({}, 'b') APPLY BATCH",
            -n - 1
        ));
    }
    assert_eq!(count(&cluster, 0), ROWS);

    let seed = format!("<Seed>{}</Seed>", cluster.nodes[0].address);
    let joining = Options::default().with("AutoBootstrap", "true").with("Seeds", &seed);
    for joined in [1, 2] {
        assert_eq!(cluster.add(&joining), joined);
        cluster.launch(&[joined]);
        for (observer, target) in (0..joined).flat_map(|it| [(it, joined), (joined, it)]) {
            cluster.wait_until_seen(observer, target, true);
        }
        for number in 0..=joined {
            assert_eq!(count(&cluster, number), ROWS, "at node {number} of {}", joined + 1);
        }
    }
    for number in 0..3 {
        cluster.nodetool(number, &["cleanup"]);
    }
    let client = &mut connect(&cluster, 2);
    client.query("INSERT INTO k.t (n, v) VALUES (1000, 'c') IF NOT EXISTS");
    client.query("ALTER TABLE k.t ADD w int");
    assert_eq!(count(&cluster, 0), ROWS + 1);
}
