//! Draining a node.

use super::{Node, texts};
use crate::server::calls::{KEYSPACE, Path, STANDARD, first, plain_families};
use crate::server::client::{CallError, Client};
use serde_json::json;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

#[test]
fn a_drained_node_has_everything_on_disk_and_takes_no_writes() {
    let mut node = Node::start(&plain_families());
    node.insert(STANDARD, 0..100);
    let report = node.json(&["drain"]);
    assert!(report["memtables_flushed"].as_u64() >= Some(1), "{report}");
    assert_eq!(report["memtables_left"], 0);
    let family = node.family(STANDARD);
    assert_eq!((&family["memtable_columns"], &family["sstables"]), (&json!(0), &json!(1)));

    let mut client = Client::connect(node.server.thrift_address());
    let refused = client.insert("row 7", Path::column(STANDARD, b"column"), b"new", 2);
    // `UnavailableException`, upon which clients turn to another node.
    assert!(matches!(refused, Err(CallError::Declared { field: 2, .. })), "{refused:?}");
    assert_eq!(client.get_slice("row 7", STANDARD, first(10, false)).unwrap().len(), 1);
    // Operators go on: it is what an upgrade begins with.
    assert_eq!(node.told(&["snapshot", "before-upgrade"]), "");
    assert_eq!(node.told(&["flush", KEYSPACE]), "");
    assert_eq!(node.json(&["drain"]), report, "the second one does nothing");
    assert!(node.server.log().contains("Cannot drain node (did it already happen?)"));

    node.restart_with(&[]);
    let mut client = Client::connect(node.server.thrift_address());
    assert_eq!(client.scan(STANDARD).unwrap().len(), 100);
    client.insert("row 7", Path::column(STANDARD, b"column"), b"new", 2).unwrap();
}

#[test]
fn after_a_drain_there_is_nothing_to_replay() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..100);
    let log = node.directory.path().join("commitlog");
    let segments = || {
        let entries = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().file_name());
        entries.filter(|name| name.to_string_lossy().starts_with("CommitLog-")).count()
    };
    assert!(segments() > 0);
    assert_eq!(node.told(&["drain"]), "");
    assert_eq!(segments(), 0);
}

#[test]
fn a_drained_node_says_so_and_not_that_all_is_well() {
    let node = Node::start(&plain_families());
    assert_eq!(node.change("GET /api/v1/health", "").0, 200);
    assert!(node.told(&["status"]).ends_with(": all is well\n"));
    node.told(&["drain"]);
    let (code, health) = node.change("GET /api/v1/health", "");
    assert_eq!((code, &health["takes_writes"]), (503, &json!(false)));
    assert_eq!(health["troubles"][0]["kind"], "Drained");
    let output = node.nodetool(&["status"]);
    let (text, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("\n127.0.0.1: drained: it takes no writes "), "{text}");
    assert!(!text.contains("all is well"), "{text}");
    assert!(node.told(&["info"]).contains("drained"));
    let request = ["GET /metrics HTTP/1.1", "Host: localhost"];
    let (_, metrics) = node.request(&request, "");
    assert!(metrics.contains("\nalexandra_drained 1\n"), "{metrics}");
    assert!(metrics.contains("\nalexandra_failed 0\n"), "a drain is no failure: {metrics}");
}

#[test]
fn a_damaged_block_that_a_read_has_met_is_told_until_the_next_start() {
    let mut node = Node::start(&plain_families());
    node.insert(STANDARD, 0..100);
    node.told(&["flush", KEYSPACE]);
    node.restart_with(&[]);
    let folder = node.directory.path().join("data").join(KEYSPACE);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| path.extension().is_some_and(|end| end == "sst");
    let file = files.filter(is_it).find(|path| path.to_string_lossy().contains(STANDARD)).unwrap();
    let block = [0xa5; 64];
    File::options().write(true).open(&file).unwrap().write_all_at(&block, 16).unwrap();
    let mut client = Client::connect(node.server.thrift_address());
    assert!(client.scan(STANDARD).is_err());
    let output = node.nodetool(&["status"]);
    let (text, _) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains(&format!("{} is damaged", file.display())), "{text}");
    let (code, health) = node.change("GET /api/v1/health", "");
    assert_eq!((code, &health["takes_writes"]), (200, &json!(true)), "it takes writes");
    assert_eq!(health["troubles"][0]["kind"], "Damaged");
}
