//! Work by kind, as `tpstats` tells of it.

use super::Node;
use crate::server::calls::{KEYSPACE, STANDARD, plain_families};
use serde_json::{Value, json};
use std::fs;

/// The figures of a pool of 0.6.
fn pool(node: &Node, name: &str) -> Value {
    let pools = node.json(&["tpstats"]);
    let found = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == name);
    found.unwrap_or_else(|| panic!("{name} is not in {pools}")).clone()
}

#[test]
fn what_was_done_is_counted_under_the_names_of_0_6() {
    let node = Node::start(&plain_families());
    let completed = |name: &str| pool(&node, name)["completed"].as_u64().unwrap();
    let written = completed("ROW-MUTATION-STAGE");
    node.insert(STANDARD, 0..100);
    assert_eq!(completed("ROW-MUTATION-STAGE"), written + 100);
    let mut client = crate::server::client::Client::connect(node.server.thrift_address());
    let read = completed("ROW-READ-STAGE");
    client.scan(STANDARD).unwrap();
    assert!(completed("ROW-READ-STAGE") > read);
    let flushed = completed("FLUSH-WRITER-POOL");
    node.told(&["flush", KEYSPACE, STANDARD]);
    assert_eq!(completed("FLUSH-WRITER-POOL"), flushed + 1);
    let after = json!({
        "pool": "MEMTABLE-POST-FLUSHER", "active": 0, "pending": 0, "completed": flushed + 1
    });
    assert_eq!(pool(&node, "MEMTABLE-POST-FLUSHER"), after);

    // What was done for a column family stays so when that is dropped.
    let file = node.directory.path().join("storage-conf.xml");
    let configured = fs::read_to_string(&file).unwrap();
    fs::write(&file, configured.replace("<ColumnFamily Name=\"Standard1\" />", "")).unwrap();
    assert!(node.told(&["reload"]).contains("with a snapshot"));
    assert!(completed("ROW-MUTATION-STAGE") >= written + 100);

    let text = node.told(&["tpstats"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "Pool Name                    Active   Pending      Completed");
    for name in ["GMFD", "RESPONSE-STAGE", "CONSISTENCY-MANAGER", "HINTED-HANDOFF-POOL"] {
        let line = format!("{name:<25}{0:>10}{0:>10}{0:>15}", 0);
        assert!(lines.contains(&&*line), "{name} has done nothing on a node on its own:\n{text}");
    }
}
