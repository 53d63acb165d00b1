//! Draining a node.

use super::Node;
use crate::server::calls::{KEYSPACE, Path, STANDARD, first, plain_families};
use crate::server::client::{CallError, Client};
use serde_json::json;

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
