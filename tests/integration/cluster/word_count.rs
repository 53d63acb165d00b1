//! The word count of `clients/wordcount` over several nodes, which are its splits' replicas.

use crate::cluster::nodes::{Cluster, replicated_in, wait_until};
use crate::server::Options;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const PYTHON: &str = "/usr/bin/python3";

/// After this many seconds a program hangs. It gives up a single call much sooner.
const LIMIT_S: &str = "240";

/// Enough for a count to be under way when a node is killed.
const ROWS: &str = "20000";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/wordcount")
}

fn options(factor: usize) -> Options {
    let file = Options::of_file(&folder().join("storage-conf.xml"));
    replicated_in(file, factor)
}

/// Runs a program of the folder against a node.
fn command(cluster: &Cluster, node: usize, program: &str, arguments: &[&str]) -> Command {
    let host = cluster.nodes[node].address.to_string();
    let mut command = Command::new("timeout");
    command.args([LIMIT_S, PYTHON]).arg(folder().join(program)).args(["--host", &host]);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn printed(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn run(cluster: &Cluster, node: usize, program: &str, arguments: &[&str]) -> String {
    printed(command(cluster, node, program, arguments).output().unwrap())
}

/// The check, on data in memory and then in files.
#[track_caller]
fn is_exact(options: Options) {
    let cluster = Cluster::start(3, options);
    let check = |node| run(&cluster, node, "check.py", &["--transport", "framed"]);
    assert!(check(0).contains("answers as they are due"));
    for node in 0..3 {
        cluster.nodetool(node, &["flush", "WordCount"]);
    }
    assert!(check(1).contains("answers as they are due"));
}

#[test]
fn every_replica_counts_alike() {
    for factor in [1, 2, 3] {
        is_exact(options(factor));
    }
}

#[test]
fn where_the_order_of_keys_is_preserved_as_well() {
    let partitioner = "org.apache.cassandra.dht.OrderPreservingPartitioner";
    is_exact(options(2).with("Partitioner", partitioner));
}

#[test]
fn a_node_that_dies_in_the_middle_of_a_count_changes_nothing() {
    let mut cluster = Cluster::start(3, options(3));
    run(&cluster, 0, "wordcount.py", &["--consistency", "ALL", "seed", "--rows", ROWS]);
    let due = run(&cluster, 0, "wordcount.py", &["model", "--rows", ROWS]);
    let arguments = ["count", "--keys-per-split", "2000", "--page", "20", "--workers", "2"];
    let before = range_reads(&cluster, 2);
    let count = command(&cluster, 0, "wordcount.py", &arguments).spawn().unwrap();
    // Each node is the first to be asked for a third of the splits.
    wait_until("the count has begun", || range_reads(&cluster, 2) > before + 20);
    cluster.kill(2);
    let output = count.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("times another replica was asked"), "{told}");
    assert_eq!(printed(output), due);
}

/// Ranges of texts that a node has read.
fn range_reads(cluster: &Cluster, node: usize) -> u64 {
    let keyspaces = cluster.nodes[node].ask("cfstats");
    let mut keyspaces = keyspaces.as_array().unwrap().iter();
    let texts = keyspaces.find(|it| it["keyspace"] == "WordCount").unwrap();
    texts["column_families"][0]["range_reads"]["count"].as_u64().unwrap()
}
