//! Reports of the server on itself.

use super::fixture::*;
use crate::config::settings::Release;
use crate::service::ServiceError;
use crate::thrift::calls::{Calls, describe};
use crate::thrift::idl::TokenRange;
use crate::thrift::idl::{
    DescribeKeyspaceArgs, DescribeRingArgs, DescribeSplitsArgs, GetStringListPropertyArgs,
    GetStringPropertyArgs,
};
use crate::thrift::{List, Map, Text};
use alexandra::ring::{Partitioner, Token};

fn property(api: &Calls, name: &'static str) -> String {
    describe::get_string_property(api, &GetStringPropertyArgs { property: name.into() })
}

#[test]
fn properties() {
    let api = Node::default().api();
    assert_eq!(property(&api, "cluster name"), "Test Cluster");
    assert_eq!(property(&api, "version"), "2.2.0");
    assert_eq!(property(&api, "token map"), r#"{"m":"127.0.0.1"}"#);
    assert_eq!(property(&api, "config file"), "<Storage/>");
    assert_eq!(property(&api, "keyspaces"), "?");
    let list = |property: &'static str| -> List<Text<'static>> {
        let property = property.into();
        let args = GetStringListPropertyArgs { property };
        transfer(describe::get_string_list_property(&api, &args))
    };
    assert_eq!(list("keyspaces"), ["Blog", "system"]);
    assert_eq!(list("version"), [] as [&str; 0]);
    for (version, text) in [(Release::V04, "0.4.2"), (Release::V05, "0.5.1")] {
        assert_eq!(property(&Node { version, ..Node::default() }.api(), "version"), text);
    }
    let token = Token::collated([1, 255].as_slice().into());
    let partitioner = Partitioner::CollatingOrderPreserving;
    let collating = Node { partitioner, token, ..Node::default() }.api();
    assert_eq!(property(&collating, "token map"), r#"{"Token(bytes[01ff])":"127.0.0.1"}"#);
}

#[test]
fn keyspaces_are_described_by_their_families() {
    let api = Node::default().api();
    let describe = |keyspace: &'static str| {
        let args = DescribeKeyspaceArgs { keyspace: keyspace.into() };
        let families = describe::describe_keyspace(&api, &args);
        families.map(transfer::<Map<Text<'static>, Map<Text<'static>, Text<'static>>>>)
    };
    let blog = describe("Blog").unwrap();
    let class = |name: &str| format!("org.apache.cassandra.db.marshal.{name}");
    let of = |family: &str, property: &str| {
        blog.get(family).unwrap().get(property).map(|text| text.clone().into_owned())
    };
    assert_eq!(blog.len(), 4);
    assert_eq!(of("Super", "Type"), Some("Super".to_owned()));
    assert_eq!(of("Super", "CompareWith"), Some(class("UTF8Type")));
    assert_eq!(of("Super", "CompareSubcolumnsWith"), Some(class("BytesType")));
    assert_eq!(of("Super", "Desc"), Some("said".to_owned()));
    assert_eq!(of("Bytes", "Type"), Some("Standard".to_owned()));
    assert_eq!(of("Bytes", "CompareSubcolumnsWith"), None);
    let text = of("Bytes", "Desc").unwrap();
    let (text, hash) = text.split_once('@').unwrap();
    let class = class("BytesType");
    let expected = format!("Blog.Bytes\nColumn Family Type: Standard\nColumns Sorted By: {class}");
    assert_eq!(text, expected);
    let digits = hash.strip_suffix('\n').unwrap();
    assert!(u32::from_str_radix(digits, 16).is_ok(), "{digits:?}");
    assert!(describe("system").is_ok());
    assert_eq!(describe("Nope").unwrap_err(), ServiceError::NotFound);
}

#[test]
fn families_are_described_in_the_words_of_0_4() {
    let api = Node { version: Release::V04, ..Node::default() }.api();
    let described = |family: &str| {
        describe::properties(&api, api.service.family("Blog", family).unwrap().schema)
    };
    let bytes = described("Bytes");
    assert!(bytes.contains(&("FlushPeriodInMinutes", "0".to_owned())));
    let columns = "COLUMN_MAP(COLUMN_KEY, COLUMN_VALUE, COLUMN_TIMESTAMP)";
    assert!(bytes.contains(&("Desc", format!("Blog.Bytes(ROW_KEY, {columns})"))));
    let text = format!("Blog.Super(ROW_KEY, SUPER_COLUMN_MAP(SUPER_COLUMN_KEY, {columns}))");
    assert!(described("Super").contains(&("Desc", text)));
}

#[test]
fn only_replicated_keyspaces_have_a_ring() {
    let api = Node::default().api();
    let ring = |keyspace: &'static str| {
        let args = DescribeRingArgs { keyspace: keyspace.into() };
        describe::describe_ring(&api, &args).map(transfer::<List<TokenRange<'static>>>)
    };
    let endpoints = vec!["127.0.0.1".into()];
    let whole = TokenRange { start_token: "m".into(), end_token: "m".into(), endpoints };
    assert_eq!(ring("Blog").unwrap(), [whole]);
    for keyspace in ["Nope", "system"] {
        let why = format!("There is no ring for the keyspace: {keyspace}");
        assert_eq!(ring(keyspace).unwrap_err(), ServiceError::Invalid(why.into()));
    }
}

#[tokio::test]
async fn splits_divide_the_stored_keys() {
    let api = Node::default().api();
    for key in ["a", "b", "c", "d"] {
        mutate(&api, &[(key, "Bytes", vec![set("x", 1)])]).await.unwrap();
    }
    let splits = async |start: &'static str, end: &'static str, keys_per_split| {
        let (start_token, end_token) = (start.into(), end.into());
        let args = DescribeSplitsArgs { start_token, end_token, keys_per_split };
        let found = describe::describe_splits(&api, &args).await;
        found.map(transfer::<List<Text<'static>>>)
    };
    assert_eq!(splits("", "z", 2).await.unwrap(), ["", "c", "z"]);
    assert_eq!(splits("", "z", 100).await.unwrap(), ["", "z"]);
    assert!(matches!(splits("", "z", 0).await, Err(ServiceError::Invalid(_))));
}
