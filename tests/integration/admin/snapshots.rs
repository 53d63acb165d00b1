//! Snapshots.

use super::{Node, assert_refused, texts};
use crate::server::calls::{KEYSPACE, STANDARD, plain_families};
use crate::server::client::Client;
use crate::server::program;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

/// The column of a list of snapshots.
fn column<'a>(snapshots: &'a Value, name: &str) -> Vec<&'a str> {
    let snapshots = snapshots.as_array().unwrap().iter();
    snapshots.map(|snapshot| snapshot[name].as_str().unwrap()).collect()
}

#[test]
fn snapshots_are_taken_listed_and_cleared_as_they_are_named() {
    let node = Node::start(&plain_families());
    assert_eq!(node.told(&["listsnapshots"]), "no snapshot found\n");
    node.insert(STANDARD, 0..100);
    assert_eq!(node.told(&["snapshot", "nightly"]), "");
    assert_eq!(node.family(STANDARD)["sstables"], 1, "what was in memory belongs to it");
    let listed = node.json(&["listsnapshots"]);
    assert_eq!(column(&listed, "keyspace"), [KEYSPACE, "system"]);
    let nightly = column(&listed, "name")[0];
    assert_eq!(nightly, format!("{}-nightly", listed[0]["taken_millis"]));
    assert_eq!(column(&listed, "name"), [nightly, nightly]);
    let folder = node.directory.path().join("data/Keyspace1/snapshots").join(nightly);
    assert_eq!(listed[0]["folders"], json!([folder]));
    let files = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let bytes: u64 = files().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(listed[0]["total_bytes"], bytes);
    assert!(listed[0]["exclusive_bytes"].as_u64().unwrap() < bytes, "the SSTable is shared");
    assert!(files().any(|file| file.file_name().to_str().unwrap().starts_with(STANDARD)));

    let taken = node.json(&["snapshot", "--keyspace", "system"]);
    assert_eq!(column(&taken, "keyspace"), ["system"]);
    let plain = column(&taken, "name")[0];
    assert!(plain.parse::<u64>().is_ok(), "{plain}");
    let text = node.told(&["listsnapshots", "--keyspace", "system"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[0].ends_with("      Own KB           KB"), "{text}");
    assert!(lines[1].starts_with(&format!("{:<20} {nightly} ", "system")), "{text}");
    assert!(lines[2].starts_with(&format!("{:<20} {plain} ", "system")), "{text}");

    let cleared = node.json(&["clearsnapshot", "--name", "nightly", "--keyspace", "system"]);
    assert_eq!(
        (column(&cleared, "name"), column(&cleared, "keyspace")),
        (vec![nightly], vec!["system"])
    );
    assert!(folder.exists());
    assert_eq!(node.told(&["clearsnapshot", "--name", nightly]), "");
    assert!(!folder.exists());
    assert_eq!(column(&node.json(&["listsnapshots"]), "name"), [plain]);
    assert_eq!(node.told(&["clearsnapshot"]), "");
    assert_eq!(node.json(&["listsnapshots"]), json!([]));
    assert_eq!(node.told(&["clearsnapshot"]), "", "as of old, without any as well");
}

#[test]
fn snapshots_that_cannot_be_are_refused_and_others_stay() {
    let node = Node::start(&plain_families());
    node.told(&["snapshot", "--keyspace", KEYSPACE, "kept"]);
    let before = node.json(&["listsnapshots"]);
    for (arguments, why) in [
        (&["snapshot", ""][..], "a snapshot's name must have 1 to 200 bytes"),
        (&["snapshot", "../nightly"], "a snapshot's name must have"),
        (&["snapshot", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["listsnapshots", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["clearsnapshot", "--keyspace", "Nowhere"], "keyspace Nowhere does not exist"),
        (&["clearsnapshot", "--name", "nightly"], "no snapshot nightly was found"),
        (
            &["clearsnapshot", "--name", "kept", "--keyspace", "system"],
            "no snapshot kept was found",
        ),
        (&["clearsnapshot", "--name", ""], "no snapshot  was found"),
        (&["clearsnapshot", "kept"], "Usage"),
        (&["snapshot", "one", "two"], "Usage"),
    ] {
        assert_refused(&node.nodetool(arguments), 1, why);
    }
    let (delete, host) = ("DELETE /api/v1/snapshots", "Host: localhost");
    let json = "Content-Type: application/json";
    for (status, query, header, body) in [
        (400, "", json, r#"{"name": "nightly"}"#),
        (400, "?tag=nightly", "Accept: */*", ""),
        (403, "", "Origin: http://evil.example", ""),
        (403, "", "X-Forwarded-For: 10.9.9.9", ""),
        (404, "?name=nightly", "Accept: */*", ""),
    ] {
        let line = format!("{delete}{query} HTTP/1.1");
        let (answered, told) = node.request(&[&line, host, header], body);
        assert_eq!(answered, status, "{line} {header}: {told}");
    }
    let post = ["POST /api/v1/snapshots HTTP/1.1", host, json];
    for (status, body) in [
        (400, r#"{"name": "nightly"}"#),
        (400, r#"{"tag": "a/b"}"#),
        (404, r#"{"keyspace": "Nowhere"}"#),
    ] {
        let (answered, told) = node.request(&post, body);
        assert_eq!(answered, status, "{body}: {told}");
    }
    assert_eq!(node.json(&["listsnapshots"]), before);

    // Where the folders should go there is something else.
    node.told(&["clearsnapshot"]);
    let snapshots = node.directory.path().join("data/Keyspace1/snapshots");
    fs::remove_dir(&snapshots).unwrap();
    fs::write(&snapshots, "").unwrap();
    let failed = node.nodetool(&["snapshot", "nightly"]);
    assert_refused(&failed, 1, "cannot make the snapshot: ");
    assert_refused(&failed, 1, snapshots.to_str().unwrap());
    fs::remove_file(&snapshots).unwrap();
    assert_eq!(node.json(&["listsnapshots"]), json!([]), "nothing of it is left");
    assert_eq!(node.told(&["snapshot", "nightly"]), "");
}

#[test]
fn a_snapshot_of_a_running_server_can_be_restored() {
    let command = "alexandra nodetool snapshot nightly";
    let document = include_str!("../../../docs/backup.md");
    assert!(document.lines().any(|line| line == command));
    let mut node = Node::start(&plain_families());
    node.insert(STANDARD, 0..10);
    node.told(&command.split(' ').skip(2).collect::<Vec<_>>());
    node.insert(STANDARD, 10..20);
    assert!(node.server.stop().success());
    let mut restore = Command::new(program());
    restore.args(["restore", "--snapshot", "nightly", "--config"]).arg(node.directory.path());
    let restored = restore.output().unwrap();
    assert!(restored.status.success(), "{:?}", texts(&restored));
    node.server.restart();
    let mut client = Client::connect(node.server.thrift_address());
    assert_eq!(client.scan(STANDARD).unwrap().len(), 10);
}
