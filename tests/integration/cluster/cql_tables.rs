//! Tables made over CQL in a ring that grows: their schema, and their rows of any keys.

use crate::cluster::nodes::{Cluster, replicated, wait_until};
use crate::cql::{ALL, CqlClient, ERROR, ONE, QUORUM, SERIAL};
use crate::server::Options;
use std::net::SocketAddr;
use std::thread;

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

#[test]
fn tables_that_nodes_make_at_the_same_moment_are_all_made() {
    const ROUNDS: usize = 4;
    // On a busy machine each has to try for long against the others.
    let options = replicated(1).with("RpcTimeoutInMillis", "30000");
    let cluster = Cluster::start(3, options.with("CqlPort", &CQL_PORT.to_string()));
    connect(&cluster, 0).query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    thread::scope(|scope| {
        for number in 0..3 {
            let mut client = connect(&cluster, number);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    client.query(&format!("CREATE TABLE k.t{number}_{round} (n int PRIMARY KEY)"));
                }
            });
        }
    });
    let listed = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'k'";
    for number in 0..3 {
        wait_until("it knows all of them", || {
            let text = connect(&cluster, number).query(listed).text();
            (0..3).all(|of| (0..ROUNDS).all(|round| text.contains(&format!("t{of}_{round}"))))
        });
    }
}

/// A batch of this many rows, the first of which is this one.
fn batch(first: i64, rows: i64) -> String {
    let insert = |n: i64| format!("INSERT INTO k.t (n, v) VALUES ({n}, 'batch');");
    let inserts: String = (first..first + rows).map(insert).collect();
    format!("BEGIN BATCH {inserts} APPLY BATCH")
}

#[test]
fn a_batch_that_a_node_of_the_ring_misses_is_written_in_the_end() {
    let options = replicated(1).with("CqlPort", &CQL_PORT.to_string());
    let cluster = Cluster::start(3, options);
    let mut client = connect(&cluster, 0);
    client.query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
    );
    client.query("CREATE TABLE k.t (n int PRIMARY KEY, v text)");
    for number in 0..3 {
        // The node may hear of the table a moment later.
        wait_until("it writes a batch", || {
            let mut client = connect(&cluster, number);
            client.try_query(&batch(number as i64 * 100, 20)).opcode != ERROR
        });
    }
    assert_eq!(count(&cluster, 0), 60);
    // One of the replicas stands still.
    cluster.server(1).pause();
    let late = connect(&cluster, 0).try_query(&batch(1000, 20));
    assert_eq!(late.opcode, ERROR, "{}", late.text());
    cluster.server(1).resume();
    wait_until("the batch is replayed", || {
        let mut client = connect(&cluster, 2);
        let answer = client.try_query("SELECT count(*) FROM k.t");
        let is_whole = answer.body.last_chunk().is_some_and(|it| i64::from_be_bytes(*it) == 80);
        answer.opcode != ERROR && is_whole
    });
}

#[test]
fn errors_tell_how_many_replicas_are_needed_and_alive() {
    let options = replicated(1).with("CqlPort", &CQL_PORT.to_string());
    let mut cluster = Cluster::start(3, options);
    let mut client = connect(&cluster, 0);
    client.query(
        "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}",
    );
    client.query("CREATE TABLE k.t (n int PRIMARY KEY, v text)");
    let (select, insert) =
        ("SELECT v FROM k.t WHERE n = 1", "INSERT INTO k.t (n, v) VALUES (1, 'a')");
    let (scan, batch) = ("SELECT n FROM k.t", &batch(1, 2));
    let once = &format!("{insert} IF NOT EXISTS");
    let mut refuses = |statement: &str, level: u16, told: u16, required: i32, alive: i32| {
        let answer = client.query_at(level, statement);
        let counts = [required.to_be_bytes(), alive.to_be_bytes()].concat();
        let expected = [&told.to_be_bytes()[..], &counts].concat();
        let is_unavailable = answer.opcode == ERROR && answer.body.starts_with(&[0, 0, 0x10, 0]);
        assert!(is_unavailable, "{statement}: {}", answer.text());
        assert!(answer.body.ends_with(&expected), "{statement}: {:?}", answer.body);
    };
    cluster.kill(2);
    cluster.wait_until_seen(0, 2, false);
    for statement in [select, insert, scan, batch] {
        refuses(statement, ALL, ALL, 3, 2);
    }
    cluster.kill(1);
    cluster.wait_until_seen(0, 1, false);
    for statement in [select, insert, scan, batch] {
        refuses(statement, ALL, ALL, 3, 1);
        refuses(statement, QUORUM, QUORUM, 2, 1);
    }
    refuses(once, ONE, SERIAL, 2, 1);
    refuses(select, SERIAL, SERIAL, 2, 1);
    assert_ne!(client.query_at(ONE, select).opcode, ERROR);
}
