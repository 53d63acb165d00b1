//! Scans over the ranges of several nodes, page by page as clients make them.

use crate::cluster::nodes::{Cluster, replicated};
use crate::server::calls::{Path, STANDARD};
use crate::server::client::{Client, Level};
use alexandra::model::key::RowKey;
use alexandra::ring::Partitioner;

const ROWS: usize = 300;

/// All keys, in pages of which each begins with the last key of the one before.
fn keys(client: &mut Client, page: i32) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    loop {
        let start = keys.last().cloned().unwrap_or_default();
        let rows = client.page(STANDARD, &start, page).unwrap();
        let is_last = rows.len() < page as usize;
        let known = usize::from(!keys.is_empty());
        assert!(rows.iter().take(known).all(|(key, _)| *key == start), "{start} is not repeated");
        keys.extend(rows.into_iter().skip(known).map(|(key, columns)| {
            assert_eq!(columns.len(), 1, "{key}");
            key
        }));
        if is_last {
            return keys;
        }
    }
}

#[track_caller]
fn scans_find_all_rows_once(factor: usize, levels: &[Level]) {
    let cluster = Cluster::start(3, replicated(factor));
    let mut expected: Vec<String> = (0..ROWS).map(|row| format!("row {row}")).collect();
    let mut writer = cluster.client(0).at(Level::All);
    for key in &expected {
        writer.insert(key, Path::column(STANDARD, b"name"), b"value", 1).unwrap();
    }
    expected.sort_by_key(|key| Partitioner::Random.decorate(RowKey::from(key.as_str())));
    for number in 0..3 {
        for &level in levels {
            let mut client = cluster.client(number).at(level);
            for page in [7, 100, 1000] {
                assert_eq!(keys(&mut client, page), expected, "node {number}, {level:?}, {page}");
            }
        }
    }
}

#[test]
fn with_two_replicas_all_rows_are_found_once() {
    scans_find_all_rows_once(2, &[Level::One, Level::Quorum]);
}

#[test]
fn with_one_replica_all_rows_are_found_once() {
    scans_find_all_rows_once(1, &[Level::One, Level::All]);
}
