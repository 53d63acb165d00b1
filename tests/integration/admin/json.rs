//! `nodetool --json`: what programs read.

use super::{Node, texts};
use crate::server::calls::{KEYSPACE, STANDARD, plain_families};
use crate::server::program;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// All commands in an order in which a lone node does them.
const DONE: &[&[&str]] = &[
    &["info"],
    &["health"],
    &["ring"],
    &["status"],
    &["describecluster"],
    &["streams"],
    &["gossipinfo"],
    &["hints"],
    &["version"],
    &["cfstats"],
    &["cfhistograms", KEYSPACE, STANDARD],
    &["tpstats"],
    &["compactionstats"],
    &["getcompactionthreshold"],
    &["slow"],
    &["toppartitions", "1"],
    &["getlogginglevels"],
    &["getcompactionthroughput"],
    &["getstreamthroughput"],
    &["setcompactionthreshold", "2", "8"],
    &["setcachecapacity", KEYSPACE, STANDARD, "10", "10"],
    &["setlogginglevel", "info"],
    &["setslowthreshold", "100"],
    &["setcompactionthroughput", "16"],
    &["setstreamthroughput", "16"],
    &["flush"],
    &["widestrows"],
    &["compact"],
    &["compact", "--no-wait"],
    &["stop"],
    &["snapshot", "tag"],
    &["listsnapshots"],
    &["clearsnapshot"],
    &["cleanup"],
    &["repair", KEYSPACE],
    &["cleanup", "--no-wait"],
    &["reload"],
    &["drain"],
];

/// Those that a lone node refuses.
const REFUSED: &[&[&str]] = &[
    &["allowreturn", "127.0.0.9"],
    &["removetoken", "7"],
    &["decommission"],
    &["move", "5"],
    &["loadbalance"],
    &["clearsnapshot", "--name", "nothing"],
    &["stop", "77"],
    &["stop", "--repair"],
    &["cfstats", "Nowhere"],
    &["setlogginglevel", "info\nERROR forged"],
];

/// The names in the list that `--help` prints.
fn all_commands() -> BTreeSet<String> {
    let output = Command::new(program()).args(["nodetool", "--help"]).output().unwrap();
    let (help, _) = texts(&output);
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let lines = commands.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

#[test]
fn every_command_prints_json_or_says_why_it_is_refused() {
    let node = Node::start(&plain_families());
    node.insert(STANDARD, 0..10);
    let mut left = all_commands();
    left.remove("help");
    for command in REFUSED {
        let output = node.nodetool(&[command, &["--json"][..]].concat());
        let (told, error) = texts(&output);
        assert_eq!((output.status.code(), &*told), (Some(1), ""), "{command:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{command:?}: {error}");
        left.remove(command[0]);
    }
    for command in DONE {
        let output = node.nodetool(&[command, &["--json"][..]].concat());
        let (told, error) = texts(&output);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "{command:?}: {told}");
        let json: Value = serde_json::from_str(&told).unwrap();
        assert!(json.is_object() || json.is_array(), "{command:?}: {told}");
        left.remove(command[0]);
    }
    assert_eq!(left, BTreeSet::new(), "commands without a check");
    let output = node.nodetool(&["health", "--json"]);
    let health: Value = serde_json::from_str(&texts(&output).0).unwrap();
    assert_eq!((output.status.code(), &health["healthy"]), (Some(1), &false.into()));
    assert_eq!(health["troubles"][0]["kind"], "Drained");
}
