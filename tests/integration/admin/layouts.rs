//! Output of commands that 0.6 had, line by line as it printed them. Digits are all the same here.

use super::Node;
use crate::server::calls::{KEYSPACE, STANDARD, plain_families};

/// The line with each run of digits as one `#`.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    for c in line.chars() {
        match c {
            '0'..='9' if shape.ends_with('#') => {}
            '0'..='9' => shape.push('#'),
            c => shape.push(c),
        }
    }
    shape
}

#[track_caller]
fn assert_layout(node: &Node, arguments: &[&str], expected: &[&str]) {
    let text = node.told(arguments);
    let found: Vec<String> = text.lines().take(expected.len()).map(shape).collect();
    assert_eq!(found, expected, "{arguments:?}");
}

#[test]
fn commands_of_0_6_print_what_they_printed() {
    let node = Node::start(&plain_families());
    assert_layout(
        &node,
        &["info"],
        &[
            "#",
            "Load             : # bytes",
            "Generation No    : #",
            "Uptime (seconds) : #",
            "Heap Memory (MB) : #.# / #.#",
        ],
    );
    let head = format!("Address       Status     Load          Owns    {:<43}Ring", "Range");
    assert_layout(&node, &["ring"], &[&head]);
    assert_layout(
        &node,
        &["getcompactionthreshold"],
        &["Current compaction threshold: Min=#, Max=#"],
    );
    assert_layout(
        &node,
        &["tpstats"],
        &["Pool Name                    Active   Pending      Completed"],
    );
    let pools = node.told(&["tpstats"]);
    for line in pools.lines() {
        assert_eq!(line.len(), 60, "%-25s%10d%10d%15d: {line}");
        assert!(line[25..].split_whitespace().count() == 3, "{line}");
    }
    assert_layout(
        &node,
        &["cfhistograms", KEYSPACE, STANDARD],
        &[
            "Keyspace#/Standard# read/write latency histogram:",
            "Bucket                  Read             Write",
            "#                          #                 #",
        ],
    );
    let histogram = node.told(&["cfhistograms", KEYSPACE, STANDARD]);
    for row in histogram.lines().skip(1) {
        assert_eq!(row.len(), 46, "%-10d%18d%18d: {row}");
    }
    assert_layout(
        &node,
        &["cfstats", KEYSPACE, STANDARD],
        &[
            "Keyspace: Keyspace#",
            "\tRead Count: #",
            "\tRead Latency: NaN ms.",
            "\tWrite Count: #",
            "\tWrite Latency: NaN ms.",
            "\tPending Tasks: #",
            "\t\tColumn Family: Standard#",
            "\t\tSSTable count: #",
            "\t\tSpace used (live): #",
            "\t\tSpace used (total): #",
            "\t\tMemtable Columns Count: #",
            "\t\tMemtable Data Size: #",
            "\t\tMemtable Switch Count: #",
            "\t\tRead Count: #",
            "\t\tRead Latency: NaN ms.",
            "\t\tWrite Count: #",
            "\t\tWrite Latency: NaN ms.",
            "\t\tPending Tasks: #",
            "\t\tKey cache capacity: #",
            "\t\tKey cache size: #",
            "\t\tKey cache hit rate: NaN",
            "\t\tRow cache: disabled",
            "\t\tCompacted row minimum size: #",
            "\t\tCompacted row maximum size: #",
            "\t\tCompacted row mean size: #",
            "",
            "----------------",
        ],
    );
    for command in ["flush", "compact", "snapshot", "clearsnapshot", "drain"] {
        assert_eq!(node.told(&[command]), "", "{command}");
    }
}
