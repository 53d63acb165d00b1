//! The rows that are read and written most, and the widest ones, as operators see them.

use super::{Node, assert_refused, texts, wait_until};
use crate::server::calls::{Path, STANDARD, plain_families};
use crate::server::client::Client;
use crate::server::program;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs a command while clients write: nine times of ten to the row `hot`.
fn told_during_writes(node: &Node, arguments: &[&str]) -> String {
    let (is_over, address) = (AtomicBool::new(false), node.server.thrift_address());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(address);
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let key = if number % 10 > 0 { "hot".to_owned() } else { format!("row {number}") };
                client.insert(&key, Path::column(STANDARD, b"column"), b"value", number).unwrap();
            }
        });
        let told = node.nodetool(arguments);
        is_over.store(true, Ordering::Relaxed);
        let (told, error) = texts(&told);
        assert_eq!(error, "");
        told
    })
}

#[test]
fn the_busiest_rows_are_told() {
    let node = Node::start(&plain_families());
    let command = ["toppartitions", "Keyspace1", STANDARD, "1000", "-s", "20", "-k", "3"];
    // A machine that stands still may let through too few writes.
    let told = loop {
        let told = told_during_writes(&node, &command);
        if told.lines().count() == 6 {
            break told;
        }
    };
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "Reads in 1000 ms: 0");
    assert!(lines[1].starts_with("Writes in 1000 ms: "), "{told}");
    assert!(lines[3].contains("Keyspace1.Standard1") && lines[3].ends_with(" hot"), "{told}");

    let refused = |arguments: &[&str], why| assert_refused(&node.nodetool(arguments), 1, why);
    refused(&["toppartitions", "Nowhere"], "keyspace Nowhere does not exist");
    refused(&["toppartitions", "0"], "duration_millis must be between 1 and 600000, and not 0");
    refused(&["toppartitions", "5", "-s", "5"], "count must be between 1 and 5, and not 10");
    refused(&["toppartitions", "5", "-a", "CAS"], "READS");
    let reads = node.json(&["toppartitions", "1", "-a", "reads"]);
    assert_eq!((&reads["reads"]["operations"], reads["writes"].is_null()), (&0.into(), true));
}

#[test]
fn one_sample_is_taken_at_a_time_and_ends_with_its_client() {
    let node = Node::start(&plain_families());
    let busy = "POST /api/v1/busy-rows";
    let port = node.admin().port().to_string();
    let mut sample_long = Command::new(program());
    sample_long.args(["nodetool", "-p", &port, "toppartitions", "600000"]).stderr(Stdio::null());
    let mut long = sample_long.spawn().unwrap();
    wait_until("a sample is taken", || {
        // It may be refused itself, for a short sample.
        if long.try_wait().unwrap().is_some() {
            long = sample_long.spawn().unwrap();
        }
        node.change(busy, r#"{"duration_millis": 1}"#).0 == 409
    });
    assert_refused(&node.nodetool(&["toppartitions", "1"]), 1, "try again when it has ended");
    long.kill().unwrap();
    long.wait().unwrap();
    wait_until("it has ended", || node.change(busy, r#"{"duration_millis": 1}"#).0 == 200);
    let line = "POST /api/v1/busy-rows of 127.0.0.1: ended without an answer";
    wait_until("the log tells of it", || node.server.log().contains(line));
}

#[test]
fn the_widest_rows_are_told_and_their_keys_to_those_who_may_see_rows() {
    let node = Node::start(&plain_families().with("AdminToken", "open sesame"));
    let file = node.directory.path().join("token");
    fs::write(&file, "open sesame").unwrap();
    let token = ["--token-file", file.to_str().unwrap()];
    let mut client = Client::connect(node.server.thrift_address());
    for (key, bytes) in [("small", 10), ("wide", 5000), ("wider", 7000)] {
        let path = Path::column(STANDARD, b"column");
        client.insert(key, path, &vec![b'v'; bytes], 1).unwrap();
    }
    let nothing = "no row takes more than a kilobyte in SSTables\n";
    assert_eq!(node.told(&["widestrows", "Keyspace1"]), nothing);
    node.told(&[&["flush", "Keyspace1"][..], &token].concat());
    let keys = |arguments: &[&str]| {
        let told = node.json(&[&["widestrows", "Keyspace1", STANDARD], arguments].concat());
        let keys = told.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap());
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&token), ["wider", "wide"]);
    assert_eq!(keys(&[&["-k", "1"], &token[..]].concat()), ["wider"]);
    let hidden = "(shown with the token of AdminToken)";
    assert_eq!(keys(&[]), [hidden, hidden]);
}
