//! `nodetool repair`: replicas that have missed writes get them, and nothing else moves. There are
//! no hints here and no read repairs, which would do the same in their way.

use crate::cluster::nodes::{Cluster, wait_until, without_hints};
use crate::server::Options;
use crate::server::calls::{ALL, Entry, OTHER_STANDARD, Path, STANDARD, SUPER, first};
use crate::server::client::{Client, Level};
use serde_json::Value;

/// Rows that all nodes have in the beginning.
const ROWS: u32 = 2000;

/// Rows of which nodes miss something.
const CHANGED: u32 = 60;

/// More bytes than one message has.
const WIDE_CELLS: u32 = 40;
const WIDE_BYTES: usize = 64 << 10;

fn options() -> Options {
    without_hints(3).with("DoConsistencyChecksBoolean", "false")
}

fn key(row: u32) -> String {
    format!("row {row}")
}

fn column(family: &'static str) -> Path<'static> {
    Path { family, super_column: (family == SUPER).then_some(b"super"), column: Some(b"name") }
}

fn whole(family: &'static str) -> Path<'static> {
    Path { family, super_column: None, column: None }
}

fn restart(cluster: &mut Cluster, number: usize) {
    cluster.launch(&[number]);
    for other in (0..3).filter(|other| *other != number) {
        cluster.wait_until_seen(other, number, true);
        cluster.wait_until_seen(number, other, true);
    }
}

fn kill(cluster: &mut Cluster, number: usize) {
    cluster.kill(number);
    for other in (0..3).filter(|other| *other != number) {
        cluster.wait_until_seen(other, number, false);
    }
}

/// Result of a repair of the keyspace by this node, by column family.
fn repair(cluster: &Cluster, number: usize, options: &[&str]) -> Vec<Value> {
    let arguments: Vec<&str> =
        ["--json", "repair", "Keyspace1"].iter().chain(options).copied().collect();
    let report: Value = serde_json::from_str(&cluster.nodetool(number, &arguments)).unwrap();
    report["repaired"].as_array().unwrap().clone()
}

fn of<'a>(repaired: &'a [Value], family: &str) -> &'a Value {
    let name = format!("Keyspace1.{family}");
    repaired.iter().find(|it| it["column_family"] == name.as_str()).unwrap()
}

fn sum(repaired: &[Value], what: &str) -> u64 {
    repaired.iter().map(|it| it[what].as_u64().unwrap()).sum()
}

fn received(repaired: &[Value]) -> usize {
    repaired.iter().map(|it| it["received"].as_array().unwrap().len()).sum()
}

/// Overwrites, deletes and adds rows.
fn change(client: &mut Client, from: u32) {
    for row in from..from + CHANGED {
        let key = key(row);
        match row % 4 {
            0 => client.insert(&key, column(STANDARD), b"changed", 2).unwrap(),
            1 => client.remove(&key, column(STANDARD), 2).unwrap(),
            2 => client.remove(&key, whole(STANDARD), 2).unwrap(),
            _ => client.insert(&format!("new {row}"), column(STANDARD), b"new", 2).unwrap(),
        }
    }
}

fn check_changes(client: &mut Client, from: u32) {
    for row in from..from + CHANGED {
        let mut read = |key: &str| {
            let entries = client.get_slice(key, STANDARD, first(ALL, false)).unwrap();
            Entry::columns(&entries).map(|it| it.value.clone()).collect::<Vec<_>>()
        };
        let key = key(row);
        match row % 4 {
            0 => assert_eq!(read(&key), [b"changed".to_vec()], "{key}"),
            1 | 2 => assert_eq!(read(&key), [] as [Vec<u8>; 0], "{key}"),
            _ => assert_eq!(read(&format!("new {row}")), [b"new".to_vec()], "{key}"),
        }
    }
}

#[test]
fn replicas_that_have_missed_writes_get_them_and_nothing_else_moves() {
    let mut cluster = Cluster::start(3, options());
    let mut client = cluster.client(0).at(Level::All);
    for row in 0..ROWS {
        client.insert(&key(row), column(STANDARD), b"value", 1).unwrap();
    }
    for row in 0..20 {
        client.insert(&key(row), column(SUPER), b"value", 1).unwrap();
    }
    // The third misses something.
    kill(&mut cluster, 2);
    let mut client = cluster.client(0).at(Level::Quorum);
    change(&mut client, 100);
    let super_column = Path { super_column: Some(b"super"), ..whole(SUPER) };
    client.remove(&key(3), super_column, 2).unwrap();
    client.remove(&key(4), whole(SUPER), 2).unwrap();
    for cell in 0..WIDE_CELLS {
        let name = format!("{cell:04}");
        let path = Path::column(OTHER_STANDARD, name.as_bytes());
        client.insert("wide", path, &vec![cell as u8; WIDE_BYTES], 1).unwrap();
    }
    // It can be repaired only when all are there.
    let refused = cluster.try_nodetool(0, &["repair", "Keyspace1"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8(refused.stderr).unwrap();
    let third = cluster.nodes[2].address.to_string();
    assert!(text.contains(&third) && text.contains("down"), "{text}");
    restart(&mut cluster, 2);
    // The first misses something else.
    kill(&mut cluster, 0);
    change(&mut cluster.client(1).at(Level::Quorum), 1000);
    restart(&mut cluster, 0);

    let repaired = repair(&cluster, 0, &[]);
    assert_eq!(of(&repaired, STANDARD)["rows_differed"], u64::from(2 * CHANGED), "{repaired:?}");
    assert_eq!(of(&repaired, SUPER)["rows_differed"], 2, "{repaired:?}");
    assert_eq!(of(&repaired, OTHER_STANDARD)["rows_differed"], 1, "{repaired:?}");
    let wide = &of(&repaired, OTHER_STANDARD)["received"][0];
    assert_eq!((&wide["address"], &wide["rows"]), (&third.clone().into(), &1.into()));
    assert!(wide["bytes"].as_u64().unwrap() > u64::from(WIDE_CELLS) * WIDE_BYTES as u64);
    let bytes = of(&repaired, OTHER_STANDARD)["bytes_differed"].as_u64().unwrap();
    assert!(bytes > u64::from(WIDE_CELLS) * WIDE_BYTES as u64);
    // Two ways: each lacks what the other has, and the second lacks nothing but old versions.
    let by_node = |number: usize| {
        let received = of(&repaired, STANDARD)["received"].as_array().unwrap().clone();
        let address = cluster.nodes[number].address.to_string();
        let found = received.iter().find(|it| it["address"] == address.as_str());
        found.map_or(0, |it| it["rows"].as_u64().unwrap())
    };
    assert!(by_node(0) >= u64::from(CHANGED) && by_node(2) >= u64::from(CHANGED), "{repaired:?}");

    let again = repair(&cluster, 1, &[]);
    assert_eq!((sum(&again, "rows_differed"), received(&again)), (0, 0), "{again:?}");
    // What has not changed is not read again, be it that another node asks.
    wait_until("nothing is read again", || sum(&repair(&cluster, 1, &[]), "rows_read") == 0);
    let again = repair(&cluster, 2, &["--primary-range"]);
    assert_eq!(sum(&again, "rows_differed"), 0, "{again:?}");
    let begun = cluster.nodetool(2, &["--json", "repair", "Keyspace1", "--no-wait"]);
    let begun: Value = serde_json::from_str(&begun).unwrap();
    assert_eq!(begun["operation"], "repair");
    let told = || cluster.nodes[2].ask("ring/operation");
    wait_until("a repair that nobody waits for is done", || told()["done"].is_string());
    assert!(told()["repaired"].as_array().is_some_and(|it| it.len() > 1), "{:?}", told());

    for number in [2, 0] {
        let others: Vec<usize> = (0..3).filter(|other| *other != number).collect();
        // What it has now it has by itself.
        for other in &others {
            cluster.kill(*other);
        }
        for other in &others {
            cluster.wait_until_seen(number, *other, false);
        }
        let mut client = cluster.client(number);
        check_changes(&mut client, 100);
        check_changes(&mut client, 1000);
        for (row, count) in [(2, 1), (3, 0), (4, 0)] {
            let entries = client.get_slice(&key(row), SUPER, first(ALL, false)).unwrap();
            assert_eq!(entries.len(), count, "super columns of row {row}");
        }
        let wide = client.get_slice("wide", OTHER_STANDARD, first(ALL, false)).unwrap();
        assert_eq!(Entry::columns(&wide).count(), WIDE_CELLS as usize);
        cluster.launch(&others);
        for other in &others {
            cluster.wait_until_seen(number, *other, true);
        }
    }
}

#[test]
fn a_repair_needs_a_keyspace_that_is_there() {
    let cluster = Cluster::start(2, without_hints(1));
    let refused = |arguments: &[&str]| {
        let output = cluster.try_nodetool(0, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused(&["repair"]);
    assert!(text.contains("nodetool repair <KEYSPACE>"), "{text}");
    let text = refused(&["repair", "Nowhere"]);
    assert!(text.contains("Nowhere"), "{text}");
    let text = refused(&["repair", "system"]);
    assert!(text.contains("is not replicated"), "{text}");
    // There is one replica of everything.
    let text = cluster.nodetool(0, &["repair", "Keyspace1", STANDARD]);
    assert!(text.contains("nothing to compare"), "{text}");
}
