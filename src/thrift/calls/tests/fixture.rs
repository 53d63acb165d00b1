//! A node with its API; requests in few words, and answers as text.

use crate::base::latest::Latest;
use crate::config::settings::Release;
use crate::config::{Loader, Settings};
use crate::kit::clock::ManualClock;
use crate::kit::lone_node::LoneNode;
use crate::model::comparator::{Comparator, ComparatorRegistry};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::service::{Authenticator, Requests, Service, ServiceError, ServiceOptions};
use crate::thrift::calls::{Calls, reads, writes};
use crate::thrift::codec::{Decode, Reader};
use crate::thrift::idl::{BatchMutateArgs, GetSliceArgs};
use crate::thrift::idl::{
    Column, ColumnOrSuperColumn, ColumnParent, ColumnPath, ConsistencyLevel, Deletion, Mutation,
    SlicePredicate, SliceRange, SuperColumn,
};
use crate::thrift::{Each, Encode, List, Map, Text};
use alexandra::ring::{Partitioner, Token};
use std::sync::Arc;
use std::time::Duration;

pub(super) const ONE: ConsistencyLevel = ConsistencyLevel::One;

/// Properties of a test node.
pub(super) struct Node {
    pub(super) version: Release,
    pub(super) partitioner: Partitioner,
    pub(super) token: Token,
    pub(super) authenticator: Authenticator,
    pub(super) rpc_timeout: Duration,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            version: Release::V06,
            partitioner: Partitioner::OrderPreserving,
            token: Token::ordered(b"m".as_slice().into()),
            authenticator: Authenticator::AllowAll,
            rpc_timeout: Duration::from_secs(30),
        }
    }
}

impl Node {
    /// The API of the node, which holds no data yet.
    pub(super) fn api(self) -> Calls {
        self.api_and_node().0
    }

    /// The same, with the node itself.
    pub(super) fn api_and_node(self) -> (Calls, LoneNode) {
        let schema = Arc::new(schema());
        let clock = Arc::new(ManualClock::at_micros(1_300_000_000_000_000));
        let place = (self.partitioner, self.token);
        let node = LoneNode::start(&schema, "Blog", place, self.rpc_timeout, &clock);
        let comparators = ComparatorRegistry::default();
        let loaded = Loader::for_tools(&comparators).load(None).unwrap();
        let settings =
            Settings { text: "<Storage/>".to_owned(), keyspaces: Vec::new(), ..loaded.settings };
        let service = Service::new(ServiceOptions {
            settings: Arc::new(Latest::new(settings)),
            schema,
            register: Arc::clone(&node.register),
            authenticator: Latest::new(self.authenticator),
            requests: Arc::new(Requests::new(Arc::clone(&clock) as _)),
            clock,
            coordinator: Arc::clone(&node.coordinator),
        });
        (Calls::new(Arc::new(service), self.version), node)
    }
}

fn schema() -> Schema {
    let family = |keyspace: &str, name: &str, kind, comment: Option<&str>| {
        let (keyspace, name) = (keyspace.to_owned(), name.to_owned());
        let family = ColumnFamilySchema::new(keyspace, name, kind);
        Arc::new(ColumnFamilySchema { comment: comment.map(str::to_owned), ..family })
    };
    let standard = |columns| ColumnFamilyKind::Standard { columns };
    let of_super = |super_columns, columns| ColumnFamilyKind::Super { super_columns, columns };
    Schema::new([
        family("Blog", "Bytes", standard(Comparator::Bytes), None),
        family("Blog", "Long", standard(Comparator::Long), None),
        family("Blog", "Super", of_super(Comparator::Utf8, Comparator::Bytes), Some("said")),
        family("Blog", "SuperLong", of_super(Comparator::Long, Comparator::Bytes), None),
        family("system", "LocationInfo", standard(Comparator::Bytes), None),
    ])
}

pub(super) fn path<'a>(
    family: &'a str,
    super_column: Option<&'a str>,
    column: Option<&'a str>,
) -> ColumnPath<'a> {
    let [super_column, column] = [super_column, column].map(|name| name.map(str::as_bytes));
    ColumnPath { column_family: family.into(), super_column, column }
}

pub(super) fn parent<'a>(family: &'a str, super_column: Option<&'a str>) -> ColumnParent<'a> {
    let super_column = super_column.map(str::as_bytes);
    ColumnParent { column_family: family.into(), super_column }
}

pub(super) fn names<'a>(names: &[&'a str]) -> SlicePredicate<'a> {
    let names = names.iter().map(|name| name.as_bytes()).collect();
    SlicePredicate { column_names: Some(names), slice_range: None }
}

pub(super) fn range<'a>(
    start: &'a str,
    finish: &'a str,
    reversed: bool,
    count: i32,
) -> SlicePredicate<'a> {
    let [start, finish] = [start, finish].map(str::as_bytes);
    let range = SliceRange { start, finish, reversed, count };
    SlicePredicate { column_names: None, slice_range: Some(range) }
}

pub(super) fn all() -> SlicePredicate<'static> {
    range("", "", false, 100)
}

pub(super) fn column(name: &str, timestamp: i64) -> Column<'_> {
    Column { name: name.as_bytes(), value: b"v", timestamp }
}

/// An insertion of a column.
pub(super) fn set(name: &str, timestamp: i64) -> Mutation<'_> {
    let column = Some(column(name, timestamp));
    let element = ColumnOrSuperColumn { column, super_column: None };
    Mutation { column_or_supercolumn: Some(element), deletion: None }
}

/// An insertion of a super column with these columns.
pub(super) fn set_super<'a>(name: &'a str, columns: &[(&'a str, i64)]) -> Mutation<'a> {
    let columns = columns.iter().map(|&(name, timestamp)| column(name, timestamp)).collect();
    let super_column = Some(SuperColumn { name: name.as_bytes(), columns });
    let element = ColumnOrSuperColumn { column: None, super_column };
    Mutation { column_or_supercolumn: Some(element), deletion: None }
}

pub(super) fn delete<'a>(
    timestamp: i64,
    super_column: Option<&'a str>,
    predicate: Option<SlicePredicate<'a>>,
) -> Mutation<'a> {
    let super_column = super_column.map(str::as_bytes);
    let deletion = Some(Box::new(Deletion { timestamp, super_column, predicate }));
    Mutation { column_or_supercolumn: None, deletion }
}

/// A value after its way over the wire. Its few bytes live as long as the test.
pub(super) fn transfer<T: Decode<'static>>(value: impl Encode<T>) -> T {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    T::decode(&mut Reader::new(bytes.leak())).unwrap()
}

/// A batch by row key and column family.
pub(super) type Batch<'a> = [(&'a str, &'a str, Vec<Mutation<'a>>)];

/// Runs `batch_mutate`; each row has one column family.
pub(super) async fn mutate(api: &Calls, batch: &Batch<'_>) -> Result<(), ServiceError> {
    mutate_in(api, "Blog", batch).await
}

pub(super) async fn mutate_in(
    api: &Calls,
    keyspace: &str,
    batch: &Batch<'_>,
) -> Result<(), ServiceError> {
    let rows = batch.iter().map(|(key, family, mutations)| (*key, Each([(*family, mutations)])));
    let mutation_map = transfer(Each(rows));
    let keyspace = keyspace.into();
    let args = BatchMutateArgs { keyspace, mutation_map, consistency_level: ONE };
    writes::batch_mutate(api, &args).await
}

/// The elements of `batch_insert` for one column family.
pub(super) fn cfmap(
    family: &str,
    elements: &[ColumnOrSuperColumn<'_>],
) -> Map<Text<'static>, List<ColumnOrSuperColumn<'static>>> {
    transfer(Each([(family, elements)]))
}

/// Runs `get_slice` and prints what it finds.
pub(super) async fn slice(
    api: &Calls,
    key: &str,
    parent: ColumnParent<'_>,
    predicate: SlicePredicate<'_>,
) -> Result<String, ServiceError> {
    let (keyspace, key) = ("Blog".into(), key.into());
    let column_parent = parent;
    let args = GetSliceArgs { keyspace, key, column_parent, predicate, consistency_level: ONE };
    let columns = reads::get_slice(api, &args, &mut api.service.request()).await?;
    Ok(show(&transfer::<List<ColumnOrSuperColumn<'static>>>(columns)))
}

/// Prints columns as `name@timestamp` and super columns as `name{columns}`.
pub(super) fn show(elements: &[ColumnOrSuperColumn<'_>]) -> String {
    let elements: Vec<_> = elements.iter().map(show_one).collect();
    elements.join(" ")
}

pub(super) fn show_one(element: &ColumnOrSuperColumn<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let column = |c: &Column<'_>| format!("{}@{}", text(c.name), c.timestamp);
    match element {
        ColumnOrSuperColumn { column: Some(c), super_column: None } => column(c),
        ColumnOrSuperColumn { column: None, super_column: Some(s) } => {
            let columns: Vec<_> = s.columns.iter().map(column).collect();
            format!("{}{{{}}}", text(s.name), columns.join(" "))
        }
        other => {
            assert_eq!(*other, ColumnOrSuperColumn { column: None, super_column: None });
            "nothing".to_owned()
        }
    }
}
