//! The system tables that drivers and `cqlsh` read. They are stored nowhere: their rows are made of
//! the ring and the schema when they are read.

use super::ast::{SchemaStatement, Statement};
use super::definition;
use super::functions::Moment;
use super::parse::parse;
use super::rows::{Row, Slot};
use super::schema;
use super::types::NoTypes;
use crate::config::classes::SnitchName;
use crate::config::settings::{KeyspaceSettings, SYSTEM_KEYSPACE};
use crate::model::schema::ColumnFamilySchema;
use crate::model::table::{Column, ColumnKind, Form, Table, unused_name};
use crate::model::types::{Native, UserType, collection};
use crate::schema::{Definitions, DroppedColumn, TableDefinition};
use crate::service::{NodeView, Service};
use md5::{Digest, Md5};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use uuid::Uuid;

/// Release that drivers see, which decides about the tables that they read.
pub(super) const RELEASE: &str = "3.11.10";

/// Version of the language.
pub(super) const CQL_VERSION: &str = "3.4.4";

/// Keyspace of the schema.
const SYSTEM_SCHEMA: &str = "system_schema";

/// Form of a table WITH COMPACT STORAGE that has a row for each partition.
const STATIC_COMPACT: Form = Form::Sparse { has_markers: false, has_rest: false };

/// The tables as CREATE TABLE would make them.
const DEFINITIONS: &[&str] = &[
    "CREATE TABLE system.local (key text PRIMARY KEY, bootstrapped text, broadcast_address inet, \
     cluster_name text, cql_version text, data_center text, gossip_generation int, host_id uuid, \
     listen_address inet, native_protocol_version text, partitioner text, rack text, \
     release_version text, rpc_address inet, schema_version uuid, thrift_version text, \
     tokens frozen<set<text>>, truncated_at frozen<map<uuid, blob>>)",
    "CREATE TABLE system.peers (peer inet PRIMARY KEY, data_center text, host_id uuid, \
     preferred_ip inet, rack text, release_version text, rpc_address inet, schema_version uuid, \
     tokens frozen<set<text>>)",
    "CREATE TABLE system.size_estimates (keyspace_name text, table_name text, range_start text, \
     range_end text, mean_partition_size bigint, partitions_count bigint, \
     PRIMARY KEY (keyspace_name, table_name, range_start, range_end))",
    "CREATE TABLE system_schema.keyspaces (keyspace_name text PRIMARY KEY, durable_writes boolean, \
     replication frozen<map<text, text>>)",
    "CREATE TABLE system_schema.tables (keyspace_name text, table_name text, \
     bloom_filter_fp_chance double, caching frozen<map<text, text>>, cdc boolean, comment text, \
     compaction frozen<map<text, text>>, compression frozen<map<text, text>>, \
     crc_check_chance double, dclocal_read_repair_chance double, default_time_to_live int, \
     extensions frozen<map<text, blob>>, flags frozen<set<text>>, gc_grace_seconds int, id uuid, \
     max_index_interval int, memtable_flush_period_in_ms int, min_index_interval int, \
     read_repair_chance double, speculative_retry text, PRIMARY KEY (keyspace_name, table_name))",
    "CREATE TABLE system_schema.columns (keyspace_name text, table_name text, column_name text, \
     clustering_order text, column_name_bytes blob, kind text, position int, type text, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE system_schema.dropped_columns (keyspace_name text, table_name text, \
     column_name text, dropped_time timestamp, kind text, type text, \
     PRIMARY KEY (keyspace_name, table_name, column_name))",
    "CREATE TABLE system_schema.types (keyspace_name text, type_name text, \
     field_names frozen<list<text>>, field_types frozen<list<text>>, \
     PRIMARY KEY (keyspace_name, type_name))",
    "CREATE TABLE system_schema.functions (keyspace_name text, function_name text, \
     argument_types frozen<list<text>>, argument_names frozen<list<text>>, body text, \
     called_on_null_input boolean, language text, return_type text, \
     PRIMARY KEY (keyspace_name, function_name, argument_types))",
    "CREATE TABLE system_schema.aggregates (keyspace_name text, aggregate_name text, \
     argument_types frozen<list<text>>, final_func text, initcond text, return_type text, \
     state_func text, state_type text, \
     PRIMARY KEY (keyspace_name, aggregate_name, argument_types))",
    "CREATE TABLE system_schema.indexes (keyspace_name text, table_name text, index_name text, \
     kind text, options frozen<map<text, text>>, \
     PRIMARY KEY (keyspace_name, table_name, index_name))",
    "CREATE TABLE system_schema.triggers (keyspace_name text, table_name text, trigger_name text, \
     options frozen<map<text, text>>, PRIMARY KEY (keyspace_name, table_name, trigger_name))",
    "CREATE TABLE system_schema.views (keyspace_name text, view_name text, base_table_id uuid, \
     base_table_name text, id uuid, include_all_columns boolean, where_clause text, \
     PRIMARY KEY (keyspace_name, view_name))",
];

/// Columns of a row by name.
type Values = Vec<(&'static str, Vec<u8>)>;

/// The system tables of a node.
#[derive(Debug)]
pub(super) struct System {
    /// By keyspace and name.
    tables: BTreeMap<(String, String), Arc<Table>>,
    /// Address where the node accepts CQL.
    address: IpAddr,
}

impl System {
    /// The tables of a node that serves at this address.
    pub(super) fn new(address: IpAddr) -> Self {
        let define = |text: &&str| {
            let parsed = parse(text).expect("the definitions are statements");
            let Statement::Schema(SchemaStatement::CreateTable(create)) = parsed.statement else {
                unreachable!("the definitions create tables");
            };
            let keyspace = create.table.keyspace.clone().unwrap_or_default();
            let table = definition::table(&create, &keyspace, &NoTypes);
            let table = table.expect("the definitions are sound");
            ((keyspace, create.table.name), Arc::new(table))
        };
        Self { tables: DEFINITIONS.iter().map(define).collect(), address }
    }

    /// The table of this name.
    pub(super) fn table(&self, keyspace: &str, name: &str) -> Option<&Arc<Table>> {
        self.tables.get(&(keyspace.to_owned(), name.to_owned()))
    }

    /// Whether a keyspace has system tables.
    pub(super) fn has_keyspace(&self, keyspace: &str) -> bool {
        self.tables.keys().any(|(own, _)| own == keyspace)
    }

    /// All rows of a table, in the order of their keys.
    pub(super) fn rows(
        &self,
        (keyspace, name): (&str, &str),
        service: &Service,
        moment: &Moment,
    ) -> Vec<Row<'static>> {
        let Some(table) = self.table(keyspace, name) else { return Vec::new() };
        let mut rows = match (keyspace, name) {
            (SYSTEM_KEYSPACE, "local") => vec![self.local(service)],
            (SYSTEM_KEYSPACE, "peers") => peers(service),
            (SYSTEM_SCHEMA, "keyspaces") => keyspaces(service),
            (SYSTEM_SCHEMA, "tables") => {
                self.all_tables(service).iter().map(|it| it.row(service)).collect()
            }
            (SYSTEM_SCHEMA, "columns") => {
                self.all_tables(service).iter().flat_map(Listed::columns).collect()
            }
            (SYSTEM_SCHEMA, "dropped_columns") => {
                self.all_tables(service).iter().flat_map(Listed::dropped_columns).collect()
            }
            (SYSTEM_SCHEMA, "types") => types(&service.register().definitions()),
            _ => Vec::new(),
        };
        let row = |values: Values| {
            let slot = |name: &str| {
                let found = values.iter().find(|(own, _)| *own == name);
                found.map_or(Slot::Null, |(_, value)| Slot::Bytes(Cow::Owned(value.clone())))
            };
            Row { slots: table.columns.iter().map(|column| slot(&column.name)).collect() }
        };
        let mut rows: Vec<Row<'static>> = rows.drain(..).map(row).collect();
        let key = table.key_length();
        let token = |row: &Row<'_>| {
            let value = row.value(table, 0).unwrap_or_default();
            moment.partitioner.token(&value)
        };
        rows.sort_by(|a, b| {
            let clustering = || {
                let mut columns = table.clustering();
                let order = columns.find_map(|column| {
                    let of_type = &table.columns[column].of_type;
                    let [a, b] = [a, b].map(|row| row.value(table, column).unwrap_or_default());
                    let order = of_type.compare(&a, &b);
                    order.is_ne().then_some(order)
                });
                order.unwrap_or(std::cmp::Ordering::Equal)
            };
            debug_assert_eq!(key, 1, "system tables have one key column");
            token(a).cmp(&token(b)).then_with(clustering)
        });
        rows
    }

    fn local(&self, service: &Service) -> Values {
        let node = service.local_node();
        let listen = address(node.address);
        let own = if self.address.is_unspecified() { node.address } else { self.address };
        let mut values = vec![
            ("key", text("local")),
            ("bootstrapped", text("COMPLETED")),
            ("broadcast_address", listen.clone()),
            ("listen_address", listen),
            ("cluster_name", text(service.cluster_name())),
            ("cql_version", text(CQL_VERSION)),
            ("native_protocol_version", text("4")),
            ("partitioner", text(service.partitioner())),
            ("thrift_version", text("19.4.0")),
            ("rpc_address", address(own)),
        ];
        values.extend(of_node(&node, service));
        values
    }

    fn all_tables<'s>(&'s self, service: &'s Service) -> Vec<Listed<'s>> {
        let definitions = service.register().definitions();
        let own = self.tables.iter().map(|((keyspace, name), table)| Listed {
            keyspace,
            name,
            table,
            family: None,
            definition: None,
        });
        let stored =
            service.schema().families().filter(|(_, family)| family.keyspace != SYSTEM_KEYSPACE);
        let stored = stored.map(|(_, family)| Listed {
            keyspace: &family.keyspace,
            name: family.table_name(),
            table: &family.table,
            family: Some(family),
            definition: definitions.table(&family.keyspace, family.table_name()).cloned(),
        });
        own.chain(stored).collect()
    }
}

/// A table in the tables of the schema.
struct Listed<'s> {
    keyspace: &'s str,
    name: &'s str,
    table: &'s Table,
    /// `None` for a system table.
    family: Option<&'s ColumnFamilySchema>,
    /// `None` unless it was made over CQL.
    definition: Option<Arc<TableDefinition>>,
}

impl Listed<'_> {
    fn row(&self, service: &Service) -> Values {
        let Self { keyspace, name, table, family, definition } = self;
        if let Some(definition) = definition {
            return made_row((self.keyspace, self.name), definition);
        }
        let settings = family.and_then(|family| service.settings(family));
        let comment = family.and_then(|family| family.comment.as_deref()).unwrap_or_default();
        let gc_grace = family.map_or(0, |family| family.gc_grace.as_secs() as i32);
        let chance = family.map_or(0.0, |family| family.read_repair_chance);
        let strategy =
            settings.map_or("SizeTiered".to_owned(), |it| it.compaction_strategy.to_string());
        let strategy = format!("org.apache.cassandra.db.compaction.{strategy}CompactionStrategy");
        let no_map = || collection::pack_map::<&[u8], &[u8]>(&[]);
        vec![
            ("keyspace_name", text(keyspace)),
            ("table_name", text(name)),
            ("bloom_filter_fp_chance", double(0.01)),
            (
                "caching",
                text_map(vec![
                    ("keys".to_owned(), "ALL".to_owned()),
                    ("rows_per_partition".to_owned(), "NONE".to_owned()),
                ]),
            ),
            ("comment", text(comment)),
            ("compaction", text_map(vec![("class".to_owned(), strategy)])),
            (
                "compression",
                text_map(vec![(
                    "class".to_owned(),
                    "org.apache.cassandra.io.compress.LZ4Compressor".to_owned(),
                )]),
            ),
            ("crc_check_chance", double(1.0)),
            ("dclocal_read_repair_chance", double(0.0)),
            ("default_time_to_live", int(table.default_ttl)),
            ("extensions", no_map()),
            ("flags", flags(table)),
            ("gc_grace_seconds", int(gc_grace)),
            ("id", table_id(keyspace, name).as_bytes().to_vec()),
            ("max_index_interval", int(2048)),
            ("memtable_flush_period_in_ms", int(0)),
            ("min_index_interval", int(128)),
            ("read_repair_chance", double(chance)),
            ("speculative_retry", text("99PERCENTILE")),
        ]
    }

    fn dropped_columns(&self) -> Vec<Values> {
        let dropped = self.definition.iter().flat_map(|definition| &definition.dropped);
        let row = |(name, column): (&String, &DroppedColumn)| {
            vec![
                ("keyspace_name", text(self.keyspace)),
                ("table_name", text(self.name)),
                ("column_name", text(name)),
                ("dropped_time", (column.micros / 1000).to_be_bytes().to_vec()),
                ("kind", text(if column.is_static { "static" } else { "regular" })),
                ("type", text(&column.of_type.to_string())),
            ]
        };
        dropped.map(row).collect()
    }

    fn columns(&self) -> Vec<Values> {
        let Self { keyspace, name, .. } = self;
        let table = as_listed(self.table);
        let clustering = table.clustering().start;
        let row = |(at, column): (usize, &Column)| {
            let (kind, position, order) = match column.kind {
                ColumnKind::PartitionKey => ("partition_key", at as i32, "none"),
                ColumnKind::Clustering { is_descending } => {
                    let order = if is_descending { "desc" } else { "asc" };
                    ("clustering", (at - clustering) as i32, order)
                }
                ColumnKind::Static => ("static", -1, "none"),
                ColumnKind::Regular => ("regular", -1, "none"),
            };
            vec![
                ("keyspace_name", text(keyspace)),
                ("table_name", text(name)),
                ("column_name", text(&column.name)),
                ("clustering_order", text(order)),
                ("column_name_bytes", text(&column.name)),
                ("kind", text(kind)),
                ("position", int(position)),
                ("type", text(&column.of_type.to_string())),
            ]
        };
        table.columns.iter().enumerate().map(row).collect()
    }
}

/// A table as 3.11 lists it. One WITH COMPACT STORAGE that has a row for each partition has its
/// columns as static ones there, beside a name and a value for each cell: drivers leave those two
/// out, and take the static columns for regular ones.
fn as_listed(table: &Table) -> Cow<'_, Table> {
    if table.form != STATIC_COMPACT {
        return Cow::Borrowed(table);
    }
    let mut listed = table.clone();
    for column in &mut listed.columns[table.regular()] {
        column.kind = ColumnKind::Static;
    }
    let name = unused_name(&listed.columns, "column1");
    let order = ColumnKind::Clustering { is_descending: false };
    listed.columns.insert(table.key_length(), Column::new(name, Native::Text.into(), order));
    let value = unused_name(&listed.columns, "value");
    listed.columns.push(Column::new(value, Native::Blob.into(), ColumnKind::Regular));
    Cow::Owned(listed)
}

/// The flags of a table, by which drivers know its form.
fn flags(table: &Table) -> Vec<u8> {
    let is_composite = table.is_composite.0 || table.is_composite.1;
    let flags: &[&str] = match table.form {
        STATIC_COMPACT => &[],
        Form::Sparse { .. } => &["compound"],
        Form::Dense if is_composite || table.in_super_name > 0 => &["compound", "dense"],
        Form::Dense => &["dense"],
    };
    collection::pack(flags)
}

/// The row of a table that was made over CQL, in `system_schema.tables`.
fn made_row((keyspace, name): (&str, &str), definition: &TableDefinition) -> Values {
    let mut values = vec![
        ("keyspace_name", text(keyspace)),
        ("table_name", text(name)),
        ("id", definition.id.as_bytes().to_vec()),
        ("flags", flags(&definition.table)),
        ("extensions", collection::pack_map::<&[u8], &[u8]>(&[])),
    ];
    for &(property, kind, default) in schema::DEFAULTS {
        let value = definition.text(property).unwrap_or(default);
        values.push((property, kind.encode(value)));
    }
    for (property, default) in schema::MAPS {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut map: BTreeMap<String, String> = default.iter().map(owned).collect();
        if let Some(set) = definition.map(property) {
            if property != "compaction" {
                map.clear();
            }
            map.extend(set.clone());
        }
        values.push((property, text_map(map.into_iter().collect())));
    }
    values
}

fn types(definitions: &Definitions) -> Vec<Values> {
    let all = definitions.keyspaces.values().flat_map(|keyspace| keyspace.types.values());
    let row = |user: &Arc<UserType>| {
        let names: Vec<&str> = user.fields.iter().map(|(name, _)| name.as_str()).collect();
        let types: Vec<String> = user.fields.iter().map(|(_, it)| it.to_string()).collect();
        vec![
            ("keyspace_name", text(&user.keyspace)),
            ("type_name", text(&user.name)),
            ("field_names", collection::pack(&names)),
            ("field_types", collection::pack(&types)),
        ]
    };
    all.map(row).collect()
}

fn keyspaces(service: &Service) -> Vec<Values> {
    let row = |name: &str, is_durable: bool, replication: Vec<(String, String)>| {
        vec![
            ("keyspace_name", text(name)),
            ("durable_writes", vec![is_durable.into()]),
            ("replication", text_map(replication)),
        ]
    };
    let local = || vec![class("LocalStrategy")];
    let own = [SYSTEM_KEYSPACE, SYSTEM_SCHEMA].map(|name| row(name, true, local()));
    let configured = service.keyspaces().iter().map(|it| row(&it.name, true, replication(it)));
    let definitions = service.register().definitions();
    let made = definitions.keyspaces.iter().filter_map(|(name, definition)| {
        let keyspace = definition.replication.as_ref()?.keyspace(name, SnitchName::EndPoint);
        Some(row(name, definition.durable_writes, replication(&keyspace)))
    });
    own.into_iter().chain(configured).chain(made).collect()
}

fn peers(service: &Service) -> Vec<Values> {
    let local = service.local_node().address;
    let others = service.ring_nodes().into_iter().filter(|node| node.address != local);
    let row = |node: NodeView| {
        let mut values =
            vec![("peer", address(node.address)), ("rpc_address", address(node.address))];
        values.extend(of_node(&node, service));
        values
    };
    others.map(row).collect()
}

/// Columns that `local` and `peers` have in common.
fn of_node(node: &NodeView, service: &Service) -> Values {
    // Drivers only ask whether all are the same.
    let version = if node.agrees { schema_version(service) } else { Uuid::nil() };
    vec![
        ("data_center", text(&node.data_center)),
        ("rack", text(&node.rack)),
        ("host_id", name_id(&node.address.to_string()).as_bytes().to_vec()),
        ("release_version", text(RELEASE)),
        ("schema_version", version.as_bytes().to_vec()),
        ("tokens", collection::pack(&node.tokens)),
    ]
}

/// Replication as CREATE KEYSPACE would say it.
fn replication(keyspace: &KeyspaceSettings) -> Vec<(String, String)> {
    use crate::config::classes::StrategyName;
    let factor = ("replication_factor".to_owned(), keyspace.replication_factor.to_string());
    match keyspace.strategy {
        StrategyName::RackUnaware => vec![class("SimpleStrategy"), factor],
        StrategyName::RackAware => vec![class("OldNetworkTopologyStrategy"), factor],
        StrategyName::DatacenterShard => {
            let centers = keyspace.datacenter_replication_factors.iter();
            let centers = centers.map(|(center, factor)| (center.clone(), factor.to_string()));
            std::iter::once(class("NetworkTopologyStrategy")).chain(centers).collect()
        }
    }
}

fn class(name: &str) -> (String, String) {
    ("class".to_owned(), format!("org.apache.cassandra.locator.{name}"))
}

/// The version of the schema: the same on all nodes whose schemas are the same.
fn schema_version(service: &Service) -> Uuid {
    let mut text = String::new();
    let configured = service.schema().families().map(|(_, family)| family);
    for family in configured.filter(|family| !ColumnFamilySchema::is_of_cql(&family.name)) {
        let _ = writeln!(text, "{family} {:?}", family.table);
    }
    let _ = writeln!(text, "{}", service.register().definitions().digest());
    name_id(&text)
}

/// The id of a table of the configuration.
fn table_id(keyspace: &str, name: &str) -> Uuid {
    name_id(&format!("{keyspace}{name}"))
}

/// The id that a name always has.
pub(super) fn name_id(name: &str) -> Uuid {
    uuid::Builder::from_md5_bytes(Md5::digest(name).into()).into_uuid()
}

fn text(value: &str) -> Vec<u8> {
    value.as_bytes().to_vec()
}

fn int(value: i32) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn double(value: f64) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

fn address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn text_map(mut entries: Vec<(String, String)>) -> Vec<u8> {
    entries.sort();
    collection::pack_map(&entries)
}
