//! Reads after writes.

use super::fixture::*;
use crate::config::settings::Release;
use crate::service::ServiceError;
use crate::thrift::calls::{Calls, reads};
use crate::thrift::idl::{ColumnOrSuperColumn, ColumnPath, KeyRange, KeySlice, SlicePredicate};
use crate::thrift::idl::{
    GetArgs, GetCountArgs, GetKeyRangeArgs, GetRangeSlicesArgs, MultigetArgs, MultigetSliceArgs,
};
use crate::thrift::{List, Map, Text};
use alexandra::ring::Partitioner;
use std::time::Duration;

/// A node with two rows of super columns, one of them deleted in part.
async fn with_super_columns() -> Calls {
    let api = Node::default().api();
    let first = vec![
        set_super("s1", &[("b", 5), ("a", 5)]),
        set_super("s2", &[("a", 5)]),
        set_super("s3", &[("a", 5), ("b", 7)]),
        delete(6, Some("s3"), None),
        delete(5, None, Some(names(&["s2"]))),
        delete(5, Some("s1"), Some(names(&["a"]))),
    ];
    mutate(&api, &[("k1", "Super", first)]).await.unwrap();
    mutate(&api, &[("k2", "Super", vec![set_super("s", &[("a", 1)])])]).await.unwrap();
    api
}

async fn get(api: &Calls, key: &str, column_path: ColumnPath<'_>) -> Result<String, ServiceError> {
    let (keyspace, key) = ("Blog".into(), key.into());
    let args = GetArgs { keyspace, key, column_path, consistency_level: ONE };
    Ok(show_one(&transfer::<ColumnOrSuperColumn<'static>>(
        reads::get(api, &args, &mut api.service.request()).await?,
    )))
}

#[tokio::test]
async fn super_columns_show_what_is_visible_in_them() {
    let api = with_super_columns().await;
    let slice = async |parent, predicate| slice(&api, "k1", parent, predicate).await.unwrap();
    assert_eq!(slice(parent("Super", None), all()).await, "s1{b@5} s3{b@7}");
    let reversed = range("", "", true, 1);
    assert_eq!(slice(parent("Super", None), reversed).await, "s3{b@7}");
    assert_eq!(slice(parent("Super", None), names(&["s3", "s2", "s1"])).await, "s1{b@5} s3{b@7}");
    assert_eq!(slice(parent("Super", Some("s3")), all()).await, "b@7");
    assert_eq!(slice(parent("Super", Some("s2")), all()).await, "");
    assert_eq!(get(&api, "k1", path("Super", Some("s1"), None)).await.unwrap(), "s1{b@5}");
    assert_eq!(get(&api, "k1", path("Super", Some("s1"), Some("b"))).await.unwrap(), "b@5");
    for gone in [
        path("Super", Some("s2"), None),
        path("Super", Some("s1"), Some("a")),
        path("Super", Some("s9"), None),
    ] {
        assert_eq!(get(&api, "k1", gone).await, Err(ServiceError::NotFound));
    }
}

#[tokio::test]
async fn counts_are_of_what_a_slice_would_return() {
    let api = with_super_columns().await;
    let count = async |key: &str, super_column| {
        let (keyspace, key) = ("Blog".into(), key.to_owned().into());
        let column_parent = parent("Super", super_column);
        let args = GetCountArgs { keyspace, key, column_parent, consistency_level: ONE };
        reads::get_count(&api, &args, &mut api.service.request()).await.unwrap()
    };
    assert_eq!(count("k1", None).await, 2);
    assert_eq!(count("k1", Some("s3")).await, 1);
    assert_eq!(count("k1", Some("s2")).await, 0);
    assert_eq!(count("none", None).await, 0);
}

#[tokio::test]
async fn several_keys_answer_in_their_order_and_once() {
    let api = with_super_columns().await;
    let keys = || ["k2", "none", "k1", "k2"].map(Into::into).to_vec();
    let column_path = path("Super", Some("s"), None);
    let keyspace = "Blog".into();
    let args = MultigetArgs { keyspace, keys: keys(), column_path, consistency_level: ONE };
    let found: Map<Text<'static>, ColumnOrSuperColumn<'static>> =
        transfer(reads::multiget(&api, &args, &mut api.service.request()).await.unwrap());
    let found: Vec<_> = found.iter().map(|(key, c)| format!("{key} {}", show_one(c))).collect();
    assert_eq!(found, ["k2 s{a@1}", "none nothing", "k1 nothing"]);
    let args = MultigetSliceArgs {
        keyspace: "Blog".into(),
        keys: keys(),
        column_parent: parent("Super", None),
        predicate: names(&["s", "s1"]),
        consistency_level: ONE,
    };
    let found: Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> =
        transfer(reads::multiget_slice(&api, &args, &mut api.service.request()).await.unwrap());
    let found: Vec<_> = found.iter().map(|(key, list)| format!("{key} {}", show(list))).collect();
    assert_eq!(found, ["k2 s{a@1}", "none ", "k1 s1{b@5}"]);
}

/// A node with rows `a` to `e`, of which `b` is deleted and `d` in another family.
async fn with_rows() -> Calls {
    let api = Node { version: Release::V05, ..Node::default() }.api();
    let batch = [
        ("a", "Bytes", vec![set("x", 1), set("y", 1)]),
        ("b", "Bytes", vec![delete(1, None, None)]),
        ("c", "Bytes", vec![set("y", 1)]),
        ("d", "Super", vec![set_super("s", &[("a", 1)])]),
        ("e", "Bytes", vec![set("x", 1)]),
    ];
    mutate(&api, &batch).await.unwrap();
    api
}

async fn rows(api: &Calls, range: KeyRange<'_>, predicate: SlicePredicate<'_>) -> Vec<String> {
    let args = GetRangeSlicesArgs {
        keyspace: "Blog".into(),
        column_parent: parent("Bytes", None),
        predicate,
        range,
        consistency_level: ONE,
    };
    let rows: List<KeySlice<'static>> =
        transfer(reads::get_range_slices(api, &args, &mut api.service.request()).await.unwrap());
    rows.iter().map(|row| format!("{} {}", row.key, show(&row.columns))).collect()
}

#[tokio::test]
async fn ranges_show_ghosts_and_count_them() {
    let api = with_rows().await;
    let keys = |start: &'static str, end: &'static str, count| KeyRange {
        start_key: Some(start.into()),
        end_key: Some(end.into()),
        start_token: None,
        end_token: None,
        count,
    };
    let tokens = |start: &'static str, end: &'static str| KeyRange {
        start_token: Some(start.into()),
        end_token: Some(end.into()),
        ..KeyRange { start_key: None, end_key: None, ..keys("", "", 9) }
    };
    assert_eq!(rows(&api, keys("", "", 9), names(&["x"])).await, ["a x@1", "b ", "c ", "e x@1"]);
    assert_eq!(rows(&api, keys("", "", 9), names(&[])).await, ["a ", "b ", "c ", "e "]);
    assert_eq!(rows(&api, keys("b", "", 2), all()).await, ["b ", "c y@1"]);
    assert_eq!(rows(&api, keys("c", "c", 9), all()).await, ["c y@1"]);
    assert_eq!(rows(&api, tokens("a", "c"), all()).await, ["b ", "c y@1"]);
    assert_eq!(rows(&api, tokens("c", "a"), all()).await, ["e x@1", "a x@1 y@1"]);
    assert_eq!(rows(&api, tokens("c", "c"), names(&[])).await, ["e ", "a ", "b ", "c "]);
}

#[tokio::test]
async fn key_ranges_leave_ghosts_out() {
    let api = with_rows().await;
    let keys = async |family: &'static str, [start, finish]: [&'static str; 2], count| {
        let args = GetKeyRangeArgs {
            keyspace: "Blog".into(),
            column_family: family.into(),
            start: start.into(),
            finish: finish.into(),
            count,
            consistency_level: ONE,
        };
        let keys = reads::get_key_range(&api, &args, &mut api.service.request())
            .await
            .map_err(|error| error.to_string())?;
        let keys: List<Text<'static>> = transfer(keys);
        Ok::<_, String>(keys.join(" "))
    };
    assert_eq!(keys("Bytes", ["", ""], 9).await.unwrap(), "a c e");
    assert_eq!(keys("Bytes", ["b", "c"], 9).await.unwrap(), "c");
    assert_eq!(keys("Bytes", ["", ""], 2).await.unwrap(), "a c");
    assert_eq!(keys("Bytes", ["c", "b"], 9).await.unwrap(), "");
    let refused = |text: &str| Err(format!("invalid request: {text}"));
    assert_eq!(keys("No", ["", ""], 0).await, refused("Column Family No is invalid."));
    assert_eq!(keys("Bytes", ["", ""], 0).await, refused("maxResults must be positive"));
}

#[tokio::test]
async fn key_ranges_go_on_behind_a_page_of_ghosts() {
    let api = Node { version: Release::V05, ..Node::default() }.api();
    for number in 0..600 {
        let key = format!("k{number:03}");
        let mutation = if number % 300 == 299 { set("x", 1) } else { delete(1, None, None) };
        mutate(&api, &[(&key, "Bytes", vec![mutation])]).await.unwrap();
    }
    let args = GetKeyRangeArgs {
        keyspace: "Blog".into(),
        column_family: "Bytes".into(),
        start: "".into(),
        finish: "".into(),
        count: 100,
        consistency_level: ONE,
    };
    let keys: List<Text<'static>> =
        transfer(reads::get_key_range(&api, &args, &mut api.service.request()).await.unwrap());
    assert_eq!(keys, ["k299", "k599"]);
}

#[tokio::test]
async fn key_ranges_go_on_inside_of_a_token() {
    let partitioner = Partitioner::CollatingOrderPreserving;
    let token = partitioner.token(b"k");
    let api = Node { partitioner, token, version: Release::V05, ..Node::default() }.api();
    let mut expected = Vec::new();
    for number in 0..600 {
        // Control characters count for nothing in the order.
        let digit = |place: u32| if number >> place & 1 == 0 { '\u{1}' } else { '\u{2}' };
        let key: String = std::iter::once('k').chain((0..10).rev().map(digit)).collect();
        let mutation = if number % 300 == 299 { set("x", 1) } else { delete(1, None, None) };
        mutate(&api, &[(&key, "Bytes", vec![mutation])]).await.unwrap();
        expected.extend((number % 300 == 299).then_some(key));
    }
    let args = GetKeyRangeArgs {
        keyspace: "Blog".into(),
        column_family: "Bytes".into(),
        start: "".into(),
        finish: "".into(),
        count: 100,
        consistency_level: ONE,
    };
    let keys: List<Text<'static>> =
        transfer(reads::get_key_range(&api, &args, &mut api.service.request()).await.unwrap());
    assert_eq!(keys, expected);
}

#[tokio::test]
async fn of_several_row_deletions_the_greatest_timestamp_counts() {
    let api = Node::default().api();
    let batch = vec![delete(10, None, None), delete(3, None, None), set("b", 6), set("c", 11)];
    mutate(&api, &[("k", "Bytes", batch)]).await.unwrap();
    assert_eq!(slice(&api, "k", parent("Bytes", None), all()).await.unwrap(), "c@11");
}

#[tokio::test]
async fn a_deletion_of_a_super_column_that_cannot_exist_deletes_nothing() {
    let api = Node::default().api();
    let possible = set_super("12345678", &[("c", 1)]);
    let batch = vec![delete(9, Some("no long"), None), possible, delete(9, Some(""), None)];
    mutate(&api, &[("k", "SuperLong", batch)]).await.unwrap();
    let written = slice(&api, "k", parent("SuperLong", None), all()).await.unwrap();
    assert_eq!(written, "12345678{c@1}");
}

#[tokio::test]
async fn of_many_keys_only_some_rows_are_in_memory_at_a_time() {
    // What their rows take together is more than the memory of the node.
    const KEYS: usize = 8000;
    let api = with_super_columns().await;
    let keys = (1..KEYS).map(|number| format!("none {number}").into());
    let args = MultigetSliceArgs {
        keyspace: "Blog".into(),
        keys: keys.chain(["k2".into()]).collect(),
        column_parent: parent("Super", None),
        predicate: all(),
        consistency_level: ONE,
    };
    let found: Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> =
        transfer(reads::multiget_slice(&api, &args, &mut api.service.request()).await.unwrap());
    let found: Vec<_> = found.iter().collect();
    assert_eq!(found.len(), KEYS);
    assert!(found[..KEYS - 1].iter().all(|(_, columns)| columns.is_empty()));
    let (key, columns) = found[KEYS - 1];
    assert_eq!(format!("{key} {}", show(columns)), "k2 s{a@1}");
}

#[tokio::test]
async fn a_long_range_has_each_row_once_and_in_order() {
    const ROWS: i32 = 1300;
    let api = Node::default().api();
    let key = |number: i32| format!("k{number:04}");
    for number in 0..ROWS {
        mutate(&api, &[(&key(number), "Bytes", vec![set("c", 1)])]).await.unwrap();
    }
    for count in [512, 513, 1024, 1025, ROWS - 1, ROWS, ROWS + 1] {
        let expected = (0..count.min(ROWS)).map(|number| format!("{} c@1", key(number)));
        assert!(rows(&api, first(count), all()).await.into_iter().eq(expected), "{count} rows");
    }
}

/// The first rows of a column family.
fn first(count: i32) -> KeyRange<'static> {
    let (start_key, end_key) = (Some("".into()), Some("".into()));
    KeyRange { start_key, end_key, start_token: None, end_token: None, count }
}

/// The test node has one thread that reads, and so one permit.
#[tokio::test]
async fn large_answers_need_no_second_permit_of_their_lane() {
    const ROWS: usize = 600;
    const NAMES: [&str; 7] = ["c0", "c1", "c2", "c3", "c4", "c5", "c6"];
    let node = Node { rpc_timeout: Duration::from_secs(5), ..Node::default() };
    let (api, node) = node.api_and_node();
    let key = |number: usize| format!("k{number:04}");
    for number in 0..ROWS {
        let mutations = NAMES.iter().map(|name| set(name, 1)).collect();
        mutate(&api, &[(&key(number), "Bytes", mutations)]).await.unwrap();
    }
    // From here on all of it is read by the thread.
    node.flush();
    let args = MultigetSliceArgs {
        keyspace: "Blog".into(),
        keys: (0..ROWS).map(|number| key(number).into()).collect(),
        column_parent: parent("Bytes", None),
        predicate: all(),
        consistency_level: ONE,
    };
    let found: Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> = transfer(
        api.service
            .in_time(reads::multiget_slice(&api, &args, &mut api.service.request()))
            .await
            .unwrap(),
    );
    assert_eq!(found.iter().map(|(_, columns)| columns.len()).sum::<usize>(), ROWS * NAMES.len());
    let found =
        api.service.in_time(async { Ok::<_, ServiceError>(rows(&api, first(1000), all()).await) });
    assert_eq!(found.await.unwrap().len(), ROWS);
}
