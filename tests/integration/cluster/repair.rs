//! Replicas that disagree agree after a read that sees it. There are no hints here, which would do
//! the same in their way.

use crate::cluster::nodes::{Cluster, without_hints};
use crate::server::calls::{Entry, Path, STANDARD, SUPER, first};
use crate::server::client::Level;

/// Kills a node, and waits until the other of two does not send it anything any more.
fn kill(cluster: &mut Cluster, number: usize) {
    cluster.kill(number);
    cluster.wait_until_seen(1 - number, number, false);
}

fn start(cluster: &mut Cluster, number: usize, sees: bool) {
    cluster.launch(&[number]);
    cluster.wait_until_seen(number, 1 - number, sees);
    if sees {
        cluster.wait_until_seen(1 - number, number, true);
    }
}

fn row(cluster: &Cluster, number: usize, level: Level, key: &str, family: &str) -> Vec<Entry> {
    cluster.client(number).at(level).get_slice(key, family, first(100, false)).unwrap()
}

fn value(entries: &[Entry]) -> &[u8] {
    let mut columns = Entry::columns(entries);
    let column = columns.next().expect("there is a column");
    assert!(columns.next().is_none());
    &column.value
}

#[test]
fn values_of_one_timestamp_become_one() {
    let mut cluster = Cluster::start(2, without_hints(2));
    let path = Path::column(STANDARD, b"name");
    kill(&mut cluster, 1);
    cluster.client(0).insert("key", path, b"a", 7).unwrap();
    cluster.kill(0);
    start(&mut cluster, 1, false);
    cluster.client(1).insert("key", path, b"b", 7).unwrap();
    start(&mut cluster, 0, true);
    assert_eq!(value(&row(&cluster, 0, Level::Quorum, "key", STANDARD)), b"b");
    for number in 0..2 {
        let found = row(&cluster, number, Level::One, "key", STANDARD);
        assert_eq!(value(&found), b"b", "node {number}");
    }
}

#[test]
fn a_read_brings_deletions_to_who_has_missed_them() {
    let mut cluster = Cluster::start(2, without_hints(2));
    let column = |super_column, column| Path { family: SUPER, super_column, column: Some(column) };
    let mut client = cluster.client(0).at(Level::All);
    for key in ["column", "row"] {
        client.insert(key, Path::column(STANDARD, b"name"), b"value", 1).unwrap();
    }
    for key in ["super column", "super row"] {
        client.insert(key, column(Some(b"super"), b"name"), b"value", 1).unwrap();
    }
    kill(&mut cluster, 1);
    let mut client = cluster.client(0);
    let whole = |family| Path { family, super_column: None, column: None };
    let super_column = Path { super_column: Some(b"super"), ..whole(SUPER) };
    client.remove("column", Path::column(STANDARD, b"name"), 2).unwrap();
    client.remove("row", whole(STANDARD), 2).unwrap();
    client.remove("super column", super_column, 2).unwrap();
    client.remove("super row", whole(SUPER), 2).unwrap();
    start(&mut cluster, 1, true);
    let rows =
        [("column", STANDARD), ("row", STANDARD), ("super column", SUPER), ("super row", SUPER)];
    for (key, family) in rows {
        let known = row(&cluster, 1, Level::One, key, family);
        assert_eq!(known.len(), 1, "{key}: node 1 was to miss it");
        assert_eq!(row(&cluster, 1, Level::Quorum, key, family), [], "{key}");
    }
    // What it knows now it knows by itself.
    kill(&mut cluster, 0);
    for (key, family) in rows {
        assert_eq!(row(&cluster, 1, Level::One, key, family), [], "{key}");
    }
}
