//! The data calls that the tests make, on one keyspace with a few plain column families.

use super::Options;
use super::client::{CallError, Client, Level, Value};

/// The keyspace of [`plain_families`].
pub(crate) const KEYSPACE: &str = "Keyspace1";

/// Its column families: names are bytes, super columns' as well.
pub(crate) const STANDARD: &str = "Standard1";
pub(crate) const OTHER_STANDARD: &str = "Standard2";
pub(crate) const SUPER: &str = "Super1";

/// More columns than any row of a test has.
pub(crate) const ALL: i32 = 1_000_000;

/// A configuration with the keyspace in place of the usual ones.
pub(crate) fn plain_families() -> Options {
    families_with("")
}

/// [`plain_families`], all of which have these attributes.
pub(crate) fn families_with(attributes: &str) -> Options {
    let locator = "org.apache.cassandra.locator";
    let keyspace = format!(
        r#"<Keyspace Name="{KEYSPACE}">
      <ColumnFamily Name="{STANDARD}" {attributes}/>
      <ColumnFamily Name="{OTHER_STANDARD}" {attributes}/>
      <ColumnFamily Name="{SUPER}" ColumnType="Super" {attributes}/>
      <ReplicaPlacementStrategy>{locator}.RackUnawareStrategy</ReplicaPlacementStrategy>
      <ReplicationFactor>1</ReplicationFactor>
      <EndPointSnitch>{locator}.EndPointSnitch</EndPointSnitch>
    </Keyspace>"#
    );
    Options::default().with("Keyspaces", &keyspace)
}

/// A column as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
    pub(crate) timestamp: i64,
}

/// A column or a super column as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Column(Column),
    Super(Vec<u8>, Vec<Column>),
}

impl Entry {
    /// All columns of some entries, below super columns or not.
    pub(crate) fn columns(entries: &[Self]) -> impl Iterator<Item = &Column> {
        entries.iter().flat_map(|entry| match entry {
            Self::Column(column) => std::slice::from_ref(column),
            Self::Super(_, columns) => columns.as_slice(),
        })
    }
}

/// Where a column stands in a row, or the part of the row that a removal takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path<'a> {
    pub(crate) family: &'a str,
    pub(crate) super_column: Option<&'a [u8]>,
    pub(crate) column: Option<&'a [u8]>,
}

impl<'a> Path<'a> {
    /// A column of a standard column family.
    pub(crate) fn column(family: &'a str, column: &'a [u8]) -> Self {
        Self { family, super_column: None, column: Some(column) }
    }

    pub(crate) fn to_value(self) -> Value {
        let mut fields = vec![(3, Value::bytes(self.family))];
        fields.extend(self.super_column.map(|name| (4, Value::bytes(name))));
        fields.extend(self.column.map(|name| (5, Value::bytes(name))));
        Value::Struct(fields)
    }
}

/// Changes of one row in one `batch_mutate`: mutations for each column family.
pub(crate) type RowMutations = Vec<(String, Vec<Value>)>;

/// A `Column`.
pub(crate) fn column(name: &[u8], value: &[u8], timestamp: i64) -> Value {
    let fields = [Value::bytes(name), Value::bytes(value), Value::I64(timestamp)];
    Value::Struct((1..).zip(fields).collect())
}

/// A `ColumnOrSuperColumn`: the columns stand below the super column if there is one.
pub(crate) fn entry(super_column: Option<&[u8]>, mut columns: Vec<Value>) -> Value {
    match super_column {
        Some(name) => {
            let fields = vec![(1, Value::bytes(name)), (2, Value::List(columns))];
            Value::Struct(vec![(2, Value::Struct(fields))])
        }
        None => Value::Struct(vec![(1, columns.remove(0))]),
    }
}

/// A `Mutation` that inserts such an entry.
pub(crate) fn insertion(entry: Value) -> Value {
    Value::Struct(vec![(1, entry)])
}

/// A `Mutation` that deletes a column, a super column, or without both the row.
pub(crate) fn deletion(
    super_column: Option<&[u8]>,
    column: Option<&[u8]>,
    timestamp: i64,
) -> Value {
    let mut fields = vec![(1, Value::I64(timestamp))];
    fields.extend(super_column.map(|name| (2, Value::bytes(name))));
    fields.extend(column.map(|name| (3, by_names([name]))));
    Value::Struct(vec![(2, Value::Struct(fields))])
}

/// A `SlicePredicate` of names.
pub(crate) fn by_names<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Value {
    Value::Struct(vec![(1, Value::list(names.into_iter().map(Value::bytes)))])
}

/// A `SlicePredicate` of the first columns, or in reverse of the last.
pub(crate) fn first(count: i32, reversed: bool) -> Value {
    let range = [Value::bytes(""), Value::bytes(""), Value::Bool(reversed), Value::I32(count)];
    Value::Struct(vec![(2, Value::Struct((1..).zip(range).collect()))])
}

fn arguments(values: impl IntoIterator<Item = Value>) -> Vec<(i16, Value)> {
    (1..).zip(values).collect()
}

/// The arguments of a `get_slice`.
pub(crate) fn get_slice_arguments(key: &str, family: &str, predicate: Value) -> Vec<(i16, Value)> {
    slice_arguments(key, family, predicate, Level::One)
}

fn slice_arguments(key: &str, family: &str, predicate: Value, level: Level) -> Vec<(i16, Value)> {
    let parent = Path { family, super_column: None, column: None }.to_value();
    arguments([Value::bytes(KEYSPACE), Value::bytes(key), parent, predicate, level.to_value()])
}

impl Level {
    fn to_value(self) -> Value {
        Value::I32(self as i32)
    }
}

impl Client {
    pub(crate) fn describe_version(&mut self) -> Result<String, CallError> {
        let version = self.call("describe_version", vec![])?;
        let Some(Value::Bytes(version)) = version else { panic!("no version: {version:?}") };
        Ok(String::from_utf8(version).unwrap())
    }

    pub(crate) fn insert(
        &mut self,
        key: &str,
        path: Path<'_>,
        value: &[u8],
        timestamp: i64,
    ) -> Result<(), CallError> {
        let place = [Value::bytes(KEYSPACE), Value::bytes(key), path.to_value()];
        let content = [Value::bytes(value), Value::I64(timestamp), self.level.to_value()];
        self.call_void("insert", arguments(place.into_iter().chain(content)))
    }

    pub(crate) fn remove(
        &mut self,
        key: &str,
        path: Path<'_>,
        timestamp: i64,
    ) -> Result<(), CallError> {
        let place = [Value::bytes(KEYSPACE), Value::bytes(key), path.to_value()];
        let rest = [Value::I64(timestamp), self.level.to_value()];
        self.call_void("remove", arguments(place.into_iter().chain(rest)))
    }

    /// Each column family with its entries.
    pub(crate) fn batch_insert(
        &mut self,
        key: &str,
        families: RowMutations,
    ) -> Result<(), CallError> {
        let [keyspace, key] = [Value::bytes(KEYSPACE), Value::bytes(key)];
        self.call_void(
            "batch_insert",
            arguments([keyspace, key, by_family(families), self.level.to_value()]),
        )
    }

    pub(crate) fn batch_mutate(
        &mut self,
        rows: Vec<(String, RowMutations)>,
    ) -> Result<(), CallError> {
        let row = |(key, families): (String, _)| (Value::bytes(key), by_family(families));
        let rows = Value::Map(rows.into_iter().map(row).collect());
        let arguments = arguments([Value::bytes(KEYSPACE), rows, self.level.to_value()]);
        self.call_void("batch_mutate", arguments)
    }

    pub(crate) fn get_slice(
        &mut self,
        key: &str,
        family: &str,
        predicate: Value,
    ) -> Result<Vec<Entry>, CallError> {
        let slice = self.call("get_slice", slice_arguments(key, family, predicate, self.level))?;
        Ok(entries(slice.unwrap()))
    }

    /// Whole rows, in no order.
    pub(crate) fn multiget(
        &mut self,
        keys: &[String],
        family: &str,
    ) -> Result<Vec<(String, Vec<Entry>)>, CallError> {
        let parent = Path { family, super_column: None, column: None }.to_value();
        let keys = Value::list(keys.iter().map(Value::bytes));
        let arguments = arguments([
            Value::bytes(KEYSPACE),
            keys,
            parent,
            first(ALL, false),
            self.level.to_value(),
        ]);
        let rows = self.call("multiget_slice", arguments)?;
        let Some(Value::Map(rows)) = rows else { panic!("no rows: {rows:?}") };
        Ok(rows.into_iter().map(|(key, slice)| (text(key), entries(slice))).collect())
    }

    /// All rows of a column family, in the order of their tokens.
    pub(crate) fn scan(&mut self, family: &str) -> Result<Vec<(String, Vec<Entry>)>, CallError> {
        self.page(family, "", ALL)
    }

    /// So many rows of it, from a key on.
    pub(crate) fn page(
        &mut self,
        family: &str,
        start: &str,
        count: i32,
    ) -> Result<Vec<(String, Vec<Entry>)>, CallError> {
        let parent = Path { family, super_column: None, column: None }.to_value();
        let bounds = [(1, Value::bytes(start)), (2, Value::bytes("")), (5, Value::I32(count))];
        let range = Value::Struct(bounds.into());
        let arguments = arguments([
            Value::bytes(KEYSPACE),
            parent,
            first(ALL, false),
            range,
            self.level.to_value(),
        ]);
        let rows = self.call("get_range_slices", arguments)?;
        let Some(Value::List(rows)) = rows else { panic!("no rows: {rows:?}") };
        let row = |row| {
            let [key, slice] = fields(row);
            (text(key), entries(slice))
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// The ranges of the ring, each with the addresses of its replicas.
    pub(crate) fn describe_ring(&mut self) -> Result<Vec<Vec<String>>, CallError> {
        let ranges = self.call("describe_ring", arguments([Value::bytes(KEYSPACE)]))?;
        let Some(Value::List(ranges)) = ranges else { panic!("no ranges: {ranges:?}") };
        let endpoints = |range| {
            let [_start, _end, endpoints] = fields(range);
            let Value::List(endpoints) = endpoints else { panic!("no list: {endpoints:?}") };
            endpoints.into_iter().map(text).collect()
        };
        Ok(ranges.into_iter().map(endpoints).collect())
    }

    pub(crate) fn login(
        &mut self,
        keyspace: &str,
        credentials: &[(&str, &str)],
    ) -> Result<(), CallError> {
        let pair = |(key, value): &(&str, &str)| (Value::bytes(key), Value::bytes(value));
        let request = Value::Struct(vec![(1, Value::Map(credentials.iter().map(pair).collect()))]);
        self.call_void("login", arguments([Value::bytes(keyspace), request]))
    }

    fn call_void(&mut self, method: &str, arguments: Vec<(i16, Value)>) -> Result<(), CallError> {
        assert_eq!(self.call(method, arguments)?, None, "{method} returns nothing");
        Ok(())
    }
}

fn by_family(families: RowMutations) -> Value {
    let family = |(family, list): (String, _)| (Value::bytes(family), Value::List(list));
    Value::Map(families.into_iter().map(family).collect())
}

fn entries(slice: Value) -> Vec<Entry> {
    let Value::List(entries) = slice else { panic!("no slice: {slice:?}") };
    entries.into_iter().map(read_entry).collect()
}

fn read_entry(entry: Value) -> Entry {
    match entry {
        Value::Struct(mut union) if union.len() == 1 => match union.remove(0) {
            (1, column) => Entry::Column(read_column(column)),
            (2, super_column) => {
                let [name, columns] = fields(super_column);
                let Value::List(columns) = columns else { panic!("no columns: {columns:?}") };
                Entry::Super(bytes(name), columns.into_iter().map(read_column).collect())
            }
            other => panic!("no entry: {other:?}"),
        },
        other => panic!("no entry: {other:?}"),
    }
}

fn read_column(column: Value) -> Column {
    let [name, value, timestamp] = fields(column);
    let Value::I64(timestamp) = timestamp else { panic!("no timestamp: {timestamp:?}") };
    Column { name: bytes(name), value: bytes(value), timestamp }
}

/// The fields of a struct that has exactly these, numbered from 1.
fn fields<const COUNT: usize>(value: Value) -> [Value; COUNT] {
    let Value::Struct(fields) = value else { panic!("no struct: {value:?}") };
    assert!(fields.iter().map(|(id, _)| *id).eq(1..=COUNT as i16), "{fields:?}");
    let values: Vec<Value> = fields.into_iter().map(|(_, value)| value).collect();
    values.try_into().expect("there are as many fields as numbers")
}

fn bytes(value: Value) -> Vec<u8> {
    match value {
        Value::Bytes(bytes) => bytes,
        other => panic!("no bytes: {other:?}"),
    }
}

fn text(value: Value) -> String {
    String::from_utf8(bytes(value)).unwrap()
}
