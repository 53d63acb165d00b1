//! Refusals: their texts, and which of several reasons comes first.

use super::fixture::*;
use crate::config::settings::Release;
use crate::service::ServiceError;
use crate::thrift::calls::{Calls, reads, writes};
use crate::thrift::idl::{
    BatchInsertArgs, GetArgs, GetCountArgs, GetRangeSlicesArgs, InsertArgs, MultigetArgs,
    MultigetSliceArgs, RemoveArgs,
};
use crate::thrift::idl::{
    ColumnOrSuperColumn, ColumnParent, ColumnPath, ConsistencyLevel, KeyRange, Mutation,
    SlicePredicate,
};

/// The text of the refusal; a success is shown as such.
fn why<T>(result: Result<T, ServiceError>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(ServiceError::Invalid(why)) => why.into_owned(),
        Err(other) => format!("{other:?}"),
    }
}

async fn get(api: &Calls, keyspace: &str, key: &str, column_path: ColumnPath<'_>) -> String {
    let (keyspace, key) = (keyspace.into(), key.into());
    why(reads::get(
        api,
        &GetArgs { keyspace, key, column_path, consistency_level: ONE },
        &mut api.service.request(),
    )
    .await)
}

async fn insert(api: &Calls, keyspace: &str, key: &str, column_path: ColumnPath<'_>) -> String {
    let (keyspace, key, value) = (keyspace.into(), key.into(), b"v".as_slice());
    let consistency_level = ONE;
    let args = InsertArgs { keyspace, key, column_path, value, timestamp: 1, consistency_level };
    why(writes::insert(api, &args).await)
}

async fn remove(api: &Calls, keyspace: &str, column_path: ColumnPath<'_>) -> String {
    let (keyspace, key) = (keyspace.into(), "k".into());
    let consistency_level = ONE;
    let args = RemoveArgs { keyspace, key, column_path, timestamp: 1, consistency_level };
    why(writes::remove(api, &args).await)
}

#[tokio::test]
async fn paths() {
    let api = Node::default().api();
    let long = "n".repeat(65536);
    let cases = [
        (path("", None, None), "non-empty columnfamily is required"),
        (path("Nope", None, None), "unconfigured columnfamily Nope"),
        (
            path("Bytes", Some("s"), Some("c")),
            "supercolumn parameter is invalid for standard CF Bytes",
        ),
        (path("Bytes", None, None), "column parameter is not optional for standard CF Bytes"),
        (
            path("Super", None, Some("c")),
            "supercolumn parameter is not optional for super CF Super",
        ),
        (path("Bytes", None, Some("")), "column name must not be empty"),
        (path("Bytes", None, Some(&long)), "column name length must not be greater than 65535"),
        (path("Long", None, Some("seven b")), "A long is exactly 8 bytes"),
        (path("Super", Some(""), Some("c")), "supercolumn name must not be empty"),
        (
            path("Super", Some(&long), Some("c")),
            "supercolumn name length must not be greater than 65535",
        ),
        (path("SuperLong", Some("7 bytes"), Some("")), "column name must not be empty"),
        (path("SuperLong", Some("7 bytes"), Some("c")), "A long is exactly 8 bytes"),
    ];
    for (path, text) in cases {
        assert_eq!(get(&api, "Blog", "k", path.clone()).await, text);
        assert_eq!(insert(&api, "Blog", "k", path).await, text);
    }
    assert_eq!(get(&api, "Blog", "k", path("Super", Some("s"), None)).await, "NotFound");
    let no_column = "column parameter is not optional for super CF Super";
    assert_eq!(insert(&api, "Blog", "k", path("Super", Some("s"), None)).await, no_column);
    let empty_super = path("Super", Some(""), None);
    assert_eq!(get(&api, "Blog", "k", empty_super).await, "column name must not be empty");
}

#[tokio::test]
async fn reads_look_at_the_path_first_and_writes_at_the_key() {
    let api = Node::default().api();
    let unknown = "Keyspace Nope does not exist in this schema.";
    let column = path("Bytes", None, Some("c"));
    assert_eq!(get(&api, "Nope", "", column.clone()).await, unknown);
    assert_eq!(insert(&api, "Nope", "", column.clone()).await, "Key may not be empty");
    assert_eq!(get(&api, "Blog", "", column.clone()).await, "Key may not be empty");
    let long = "k".repeat(65536);
    let too_long = "Encoded key length of 65536 is longer than maximum of 65535";
    assert_eq!(get(&api, "Blog", &long, column.clone()).await, too_long);
    assert_eq!(insert(&api, "Blog", &long, column).await, too_long);
}

#[tokio::test]
async fn removals() {
    let api = Node::default().api();
    let cases = [
        (path("Bytes", None, None), "ok"),
        (path("Super", None, None), "ok"),
        (path("Super", Some("s"), None), "ok"),
        (
            path("Bytes", Some("s"), Some("c")),
            "supercolumn may not be specified for standard CF Bytes",
        ),
        (
            path("Super", None, Some("c")),
            "A column cannot be specified without specifying a super column for removal on super \
             CF Super",
        ),
        (path("Super", Some(""), Some("c")), "supercolumn name must not be empty"),
        (path("Super", Some(""), None), "column name must not be empty"),
        (path("SuperLong", Some("1"), None), "A long is exactly 8 bytes"),
    ];
    for (path, text) in cases {
        assert_eq!(remove(&api, "Blog", path).await, text);
    }
}

#[tokio::test]
async fn the_system_keyspace_is_read_only() {
    let api = Node::default().api();
    let read_only = "system keyspace is not user-modifiable";
    let column = path("LocationInfo", None, Some("c"));
    assert_eq!(get(&api, "system", "k", column.clone()).await, "NotFound");
    assert_eq!(insert(&api, "system", "k", column.clone()).await, read_only);
    assert_eq!(remove(&api, "system", column).await, read_only);
    let batch = [("k", "LocationInfo", vec![set("c", 1)])];
    assert_eq!(why(mutate_in(&api, "system", &batch).await), read_only);
    let empty = path("LocationInfo", None, Some(""));
    assert_eq!(insert(&api, "system", "k", empty).await, "column name must not be empty");
}

#[tokio::test]
async fn slices() {
    let api = Node::default().api();
    let nothing = SlicePredicate { column_names: None, slice_range: None };
    let both = SlicePredicate { slice_range: all().slice_range, ..names(&["a"]) };
    let backwards = "range finish must come after start in the order of traversal";
    let cases: [(ColumnParent<'_>, SlicePredicate<'_>, &str); 16] = [
        (
            parent("Bytes", Some("s")),
            nothing.clone(),
            "columnfamily alone is required for standard CF Bytes",
        ),
        (parent("Super", Some("")), nothing.clone(), "column name must not be empty"),
        (parent("SuperLong", Some("1")), nothing.clone(), "A long is exactly 8 bytes"),
        (
            parent("Bytes", None),
            nothing,
            "predicate column_names and slice_range may not both be null",
        ),
        (
            parent("Bytes", None),
            both,
            "predicate column_names and slice_range may not both be present",
        ),
        (parent("Bytes", None), range("", "", false, -1), "get_slice requires non-negative count"),
        (parent("Bytes", None), range("", "", false, 0), "Key may not be empty"),
        (parent("Bytes", None), range("b", "a", false, 1), backwards),
        (parent("Bytes", None), range("a", "b", true, 1), backwards),
        (parent("Bytes", None), range("b", "b", false, 1), "Key may not be empty"),
        (parent("Bytes", None), range("b", "", false, 1), "Key may not be empty"),
        (parent("Long", None), range("1", "", false, -1), "A long is exactly 8 bytes"),
        (parent("SuperLong", Some("12345678")), range("1", "", false, 1), "Key may not be empty"),
        (parent("Bytes", None), names(&["a", ""]), "column name must not be empty"),
        (parent("Bytes", None), names(&[]), "Key may not be empty"),
        (parent("Long", None), names(&["1"]), "A long is exactly 8 bytes"),
    ];
    for (parent, predicate, text) in cases {
        assert_eq!(why(slice(&api, "", parent.clone(), predicate.clone()).await), text);
        let (keyspace, keys) = ("Blog".into(), vec!["k".into(), "".into()]);
        let column_parent = parent;
        let consistency_level = ONE;
        let args =
            MultigetSliceArgs { keyspace, keys, column_parent, predicate, consistency_level };
        assert_eq!(why(reads::multiget_slice(&api, &args, &mut api.service.request()).await), text);
    }
}

#[tokio::test]
async fn reads_have_levels_that_promise_an_answer() {
    let api = Node::default().api();
    for (consistency_level, name) in
        [(ConsistencyLevel::Zero, "zero"), (ConsistencyLevel::Any, "any")]
    {
        let text = format!("Consistency level {name} may not be applied to read operations");
        let (keyspace, key) = (|| "Blog".into(), || "k".into());
        let column_path = path("Bytes", None, Some("c"));
        let keys = vec!["k".into()];
        let args = MultigetArgs { keyspace: keyspace(), keys, column_path, consistency_level };
        assert_eq!(why(reads::multiget(&api, &args, &mut api.service.request()).await), text);
        let column_parent = parent("Bytes", None);
        let args =
            GetCountArgs { keyspace: keyspace(), key: key(), column_parent, consistency_level };
        assert_eq!(why(reads::get_count(&api, &args, &mut api.service.request()).await), text);
        let refused = consistency_level == ConsistencyLevel::Zero;
        let expected = if refused { text } else { "ok".to_owned() };
        let range = keys_between(Some(""), Some(""), 1);
        assert_eq!(rows(&api, range, consistency_level).await, expected);
    }
}

#[tokio::test]
async fn every_generation_may_read_at_all() {
    for version in [Release::V04, Release::V05, Release::V06] {
        let api = Node { version, ..Node::default() }.api();
        let (keyspace, key) = ("Blog".into(), "k".into());
        let column_parent = parent("Bytes", None);
        let consistency_level = ConsistencyLevel::All;
        let args = GetCountArgs { keyspace, key, column_parent, consistency_level };
        assert_eq!(
            why(reads::get_count(&api, &args, &mut api.service.request()).await),
            "ok",
            "{version:?}"
        );
    }
}

fn keys_between<'a>(start: Option<&'a str>, end: Option<&'a str>, count: i32) -> KeyRange<'a> {
    let [start_key, end_key] = [start, end].map(|key| key.map(Into::into));
    KeyRange { start_key, end_key, start_token: None, end_token: None, count }
}

async fn rows(api: &Calls, range: KeyRange<'_>, consistency_level: ConsistencyLevel) -> String {
    let (keyspace, column_parent) = ("Blog".into(), parent("Bytes", None));
    let predicate = all();
    let args = GetRangeSlicesArgs { keyspace, column_parent, predicate, range, consistency_level };
    why(reads::get_range_slices(api, &args, &mut api.service.request()).await)
}

#[tokio::test]
async fn key_ranges() {
    let ordered = Node::default().api();
    let token = alexandra::ring::Token::Random(7);
    let partitioner = alexandra::ring::Partitioner::Random;
    let random = Node { partitioner, token, ..Node::default() }.api();
    let one_key = "start key and end key must either both be non-null, or both be null";
    let one_token = "start token and end token must either both be non-null, or both be null";
    let either =
        "exactly one of {start key, end key} or {start token, end token} must be specified";
    let tokens = |start: Option<&'static str>, end: Option<&'static str>, count| KeyRange {
        start_token: start.map(Into::into),
        end_token: end.map(Into::into),
        ..keys_between(None, None, count)
    };
    let both = KeyRange {
        start_key: Some("a".into()),
        end_key: Some("b".into()),
        ..tokens(Some("1"), Some("2"), 0)
    };
    let cases = [
        (keys_between(Some("a"), None, 0), one_key, one_key),
        (tokens(None, Some("1"), 0), one_token, one_token),
        (both, either, either),
        (keys_between(None, None, 0), either, either),
        (
            keys_between(Some("c"), Some("b"), 0),
            "start key must sort before (or equal to) finish key in your partitioner!",
            "maxRows must be positive",
        ),
        (
            keys_between(Some("b"), Some("c"), 0),
            "maxRows must be positive",
            "start key's md5 sorts after end key's md5.  this is not allowed; you probably should \
             not specify end key at all, under RandomPartitioner",
        ),
        (keys_between(Some("b"), Some(""), 1), "ok", "ok"),
        (tokens(Some("x"), Some("y"), 0), "maxRows must be positive", "maxRows must be positive"),
        (tokens(Some("x"), Some("y"), 1), "ok", "token \"x\" is not a decimal integer"),
        (tokens(Some("2"), Some("1"), 1), "ok", "ok"),
        (tokens(Some("-1"), Some("-2"), 1), "ok", "token -2 is outside of the ring"),
        (tokens(Some("2"), Some("1"), i32::MAX), "ok", "ok"),
    ];
    for (range, by_order, by_hash) in cases {
        assert_eq!(rows(&ordered, range.clone(), ONE).await, by_order);
        assert_eq!(rows(&random, range, ONE).await, by_hash);
    }
}

#[tokio::test]
async fn the_count_of_rows_has_its_name_of_0_5() {
    let api = Node { version: Release::V05, ..Node::default() }.api();
    let args = crate::thrift::idl::GetRangeSliceArgs {
        keyspace: "Blog".into(),
        column_parent: parent("Bytes", None),
        predicate: all(),
        start_key: "".into(),
        finish_key: "".into(),
        row_count: 0,
        consistency_level: ONE,
    };
    let refused = reads::get_range_slice(&api, &args, &mut api.service.request()).await;
    assert_eq!(why(refused), "row_count must be positive");
}

#[tokio::test]
async fn mutations() {
    let api = Node::default().api();
    let nothing = Mutation { column_or_supercolumn: None, deletion: None };
    let both = Mutation { deletion: delete(1, None, None).deletion, ..set("c", 1) };
    let empty = ColumnOrSuperColumn { column: None, super_column: None };
    let empty = Mutation { column_or_supercolumn: Some(empty), deletion: None };
    let empty_predicate = SlicePredicate { column_names: None, slice_range: None };
    let range_and_names = SlicePredicate { slice_range: all().slice_range, ..names(&[""]) };
    let cases: [(&str, Mutation<'_>, &str); 23] = [
        ("Bytes", nothing, "Mutation must have one ColumnOrSuperColumn or one Deletion"),
        (
            "Bytes",
            both,
            "Mutation may have either a ColumnOrSuperColumn or a Deletion, but not both",
        ),
        ("Bytes", empty, "ColumnOrSuperColumn must have one or both of Column or SuperColumn"),
        ("Nope", set("c", 1), "unconfigured columnfamily Nope"),
        ("Super", set("c", 1), "supercolumn parameter is not optional for super CF Super"),
        (
            "Bytes",
            set_super("s", &[("c", 1)]),
            "supercolumn parameter is invalid for standard CF Bytes",
        ),
        ("Super", set_super("", &[("c", 1)]), "supercolumn name must not be empty"),
        ("SuperLong", set_super("1", &[("", 1)]), "column name must not be empty"),
        ("SuperLong", set_super("1", &[("c", 1), ("", 1)]), "A long is exactly 8 bytes"),
        ("Super", set_super("s", &[("c", 1), ("", 1)]), "column name must not be empty"),
        ("Nope", set_super("", &[]), "ok"),
        (
            "Nope",
            delete(1, None, Some(empty_predicate)),
            "A SlicePredicate must be given a list of Columns, a SliceRange, or both",
        ),
        ("Bytes", delete(1, None, Some(range_and_names)), "column name must not be empty"),
        (
            "Bytes",
            delete(1, None, Some(range("", "", false, -1))),
            "get_slice requires non-negative count",
        ),
        (
            "Bytes",
            delete(1, None, Some(all())),
            "Deletion does not yet support SliceRange predicates.",
        ),
        ("Bytes", delete(1, None, Some(names(&[]))), "ok"),
        (
            "Bytes",
            delete(1, Some("sc"), None),
            "deletion of super_column is not possible on a standard ColumnFamily (KeySpace=Blog \
             ColumnFamily=Bytes Deletion=Deletion(timestamp:1, super_column:73 63))",
        ),
        (
            "Bytes",
            delete(1, Some("sc"), Some(names(&["c"]))),
            "supercolumn specified to ColumnFamily Bytes containing normal columns",
        ),
        (
            "Nope",
            delete(1, Some("sc"), Some(names(&["c"]))),
            "supercolumn specified to ColumnFamily Nope containing normal columns",
        ),
        ("Nope", delete(1, None, None), "unconfigured columnfamily Nope"),
        ("Super", delete(1, Some(""), None), "ok"),
        ("Super", delete(1, Some(""), Some(names(&["c"]))), "supercolumn name must not be empty"),
        ("SuperLong", delete(1, Some("sc"), None), "ok"),
    ];
    for (family, mutation, text) in cases {
        assert_eq!(why(mutate(&api, &[("k", family, vec![mutation])]).await), text);
    }
    let long = "s".repeat(65536);
    let too_long = "column name length must not be greater than 65535";
    let batch = [("k", "Super", vec![delete(1, Some(&long), None)])];
    assert_eq!(why(mutate(&api, &batch).await), too_long);
}

#[tokio::test]
async fn a_batch_with_something_invalid_writes_nothing() {
    let api = Node::default().api();
    let batch = [("a", "Bytes", vec![set("c", 1)]), ("b", "Bytes", vec![set("", 1)])];
    assert_eq!(why(mutate(&api, &batch).await), "column name must not be empty");
    assert_eq!(slice(&api, "a", parent("Bytes", None), all()).await.unwrap(), "");
}

#[tokio::test]
async fn a_batch_needs_its_keyspace_only_for_rows() {
    let api = Node::default().api();
    let unknown = "Keyspace Nope does not exist in this schema.";
    assert_eq!(why(mutate_in(&api, "Nope", &[]).await), "ok");
    assert_eq!(why(mutate_in(&api, "Nope", &[("k", "Bytes", vec![])]).await), unknown);
    assert_eq!(why(mutate_in(&api, "Blog", &[("k", "Nope", vec![])]).await), "ok");
    assert_eq!(
        why(mutate_in(&api, "Nope", &[("", "Bytes", vec![])]).await),
        "Key may not be empty"
    );
    let deletion = [("k", "Bytes", vec![delete(1, None, None)])];
    assert_eq!(why(mutate_in(&api, "Nope", &deletion).await), unknown);
}

#[tokio::test]
async fn a_column_beside_an_empty_super_column() {
    let api = Node::default().api();
    let column = set("c", 1).column_or_supercolumn.unwrap().column;
    let super_column = set_super("s", &[]).column_or_supercolumn.unwrap().super_column;
    let element = ColumnOrSuperColumn { column, super_column };
    let args = BatchInsertArgs {
        keyspace: "Blog".into(),
        key: "k".into(),
        cfmap: cfmap("Bytes", std::slice::from_ref(&element)),
        consistency_level: ONE,
    };
    let text = "ColumnOrSuperColumn may have either a Column or a SuperColumn, but not both";
    assert_eq!(why(writes::batch_insert(&api, &args).await), text);
    let mutation = Mutation { column_or_supercolumn: Some(element), deletion: None };
    assert_eq!(why(mutate(&api, &[("k", "Bytes", vec![mutation])]).await), "ok");
    assert_eq!(slice(&api, "k", parent("Bytes", None), all()).await.unwrap(), "c@1");
}
