//! Statements one after the other, as a client sends them.

use super::super::ast::Statement;
use super::super::error::{CqlError, ErrorKind};
use super::super::parse::parse;
use super::{Ground, apply, told, truncate};
use crate::cql::{Change, SchemaTarget};
use crate::model::table::{Column, ColumnKind, Form};
use crate::schema::{Definitions, Replication, TableDefinition};
use crate::service::Partitioner;
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const KEYSPACE: &str = "CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', \
                        'replication_factor': 1}";

/// A schema that statements change.
struct World {
    definitions: Definitions,
    ground: Ground,
}

impl World {
    /// With keyspace `k`, which is in use, beside one of a configuration.
    fn new() -> Self {
        let mut world = Self {
            definitions: Definitions::default(),
            ground: Ground {
                configured: [("Blog".to_owned(), ["Authors".to_owned()].into())].into(),
                in_use: Some("k".to_owned()),
                data_centers: ["0".to_owned()].into(),
                partitioner: Partitioner::Random,
                micros: 1_000_000,
                ids: [1, 2].map(Uuid::from_u128),
            },
        };
        world.run(KEYSPACE).unwrap();
        world
    }

    /// Runs a statement. Returns whether it has changed anything.
    fn run(&mut self, text: &str) -> Result<bool, CqlError> {
        let changed = match parse(text).unwrap().statement {
            Statement::Schema(statement) => apply(&statement, &self.ground, &self.definitions)?,
            Statement::Truncate(table) => truncate(&table, &self.ground, &self.definitions)?,
            other => panic!("{other:?}"),
        };
        let is_changed = changed.is_some();
        self.definitions = changed.unwrap_or_else(|| self.definitions.clone());
        Ok(is_changed)
    }

    #[track_caller]
    fn runs(&mut self, texts: &[&str]) {
        for text in texts {
            assert_eq!(self.run(text), Ok(true), "{text}");
        }
    }

    #[track_caller]
    fn refuses(&mut self, text: &str, message: &str) -> ErrorKind {
        let before = self.definitions.clone();
        let error = self.run(text).expect_err(text);
        assert_eq!(error.message, message, "{text}");
        assert_eq!(self.definitions, before);
        error.kind
    }

    fn table(&self, name: &str) -> &Arc<TableDefinition> {
        self.definitions.table("k", name).unwrap()
    }

    fn columns(&self, table: &str) -> Vec<(String, String)> {
        let shown = |column: &Column| (column.name.clone(), column.of_type.to_string());
        self.table(table).table.columns.iter().map(shown).collect()
    }
}

#[test]
fn keyspaces_are_made_altered_and_dropped() {
    let mut world = World::new();
    let replication = |world: &World| world.definitions.keyspaces["k"].replication.clone();
    assert_eq!(replication(&world).map(|it: Replication| it.factor), Some(1));
    world.runs(&[
        "ALTER KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy', '0': 3} \
         AND durable_writes = false",
    ]);
    assert!(!world.definitions.keyspaces["k"].durable_writes);
    let centers = replication(&world).map(|it| it.data_centers);
    assert_eq!(centers, Some(BTreeMap::from([("0".to_owned(), 3)])));
    world.runs(&["ALTER KEYSPACE k WITH replication = \
         {'class': 'NetworkTopologyStrategy', 'replication_factor': 2}"]);
    let centers = replication(&world).map(|it| it.data_centers);
    assert_eq!(centers, Some(BTreeMap::from([("0".to_owned(), 2)])), "all known data centres");
    world.runs(&["CREATE KEYSPACE a WITH replication = {'class': 'NetworkTopologyStrategy'}"]);
    let made = world.definitions.keyspaces["a"].replication.as_ref();
    assert_eq!(made.map(|it| it.data_centers["0"]), Some(1));
    world.runs(&["DROP KEYSPACE a"]);
    let if_not = KEYSPACE.replace("KEYSPACE k", "KEYSPACE IF NOT EXISTS k");
    assert_eq!(world.run(&if_not), Ok(false));
    world.runs(&["DROP KEYSPACE k"]);
    assert_eq!(world.run("DROP KEYSPACE IF EXISTS k"), Ok(false));
    assert!(world.definitions.keyspaces.is_empty());
}

#[test]
fn keyspaces_are_refused_as_the_original_does() {
    let mut world = World::new();
    let exists = world.refuses(KEYSPACE, "Cannot add existing keyspace \"k\"");
    assert!(matches!(exists, ErrorKind::AlreadyExists { .. }));
    let long = "k".repeat(49);
    for (text, message) in [
        (
            "CREATE KEYSPACE a WITH durable_writes = true",
            "Missing mandatory replication strategy class",
        ),
        ("CREATE KEYSPACE a WITH other = 1", "Unknown property 'other'"),
        (
            "CREATE KEYSPACE a WITH replication = {'class': 'SimpleStrategy'}",
            "SimpleStrategy requires a replication_factor strategy option.",
        ),
        (
            "CREATE KEYSPACE a WITH replication = \
             {'class': 'SimpleStrategy', 'replication_factor': 'x'}",
            "Replication factor must be numeric; found x",
        ),
        (
            "CREATE KEYSPACE a WITH replication = \
             {'class': 'SimpleStrategy', 'replication_factor': -1}",
            "Replication factor must be non-negative; found -1",
        ),
        (
            "CREATE KEYSPACE a WITH replication = {'class': 'None', 'replication_factor': 1}",
            "Unable to find replication strategy class 'org.apache.cassandra.locator.None'",
        ),
        (
            "CREATE KEYSPACE a WITH replication = {'class': 'NetworkTopologyStrategy', 'x': 1}",
            "Unrecognized strategy option {x} passed to NetworkTopologyStrategy for keyspace a. \
             The data centers are: 0",
        ),
        (
            "ALTER KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy'}",
            "Configuration for at least one datacenter must be present",
        ),
        (
            &format!("CREATE KEYSPACE {long} WITH replication = {{'class': 'SimpleStrategy'}}"),
            &format!("Keyspace names shouldn't be more than 48 characters long (got \"{long}\")"),
        ),
        ("DROP KEYSPACE a", "Cannot drop non existing keyspace 'a'."),
        ("ALTER KEYSPACE a WITH durable_writes = true", "Unknown keyspace a"),
        ("DROP KEYSPACE system", "system keyspace is not user-modifiable."),
        (
            "DROP KEYSPACE \"Blog\"",
            "The keyspace Blog is defined in storage-conf.xml: change it there",
        ),
        (
            "DROP TABLE \"Blog\".\"Authors\"",
            "The table Blog.Authors is defined in storage-conf.xml: change it there",
        ),
    ] {
        world.refuses(text, message);
    }
}

#[test]
fn tables_have_the_form_of_their_keys() {
    let mut world = World::new();
    world.runs(&[
        "CREATE TABLE t (k int, c int, d text, s int static, v int, PRIMARY KEY (k, c, d)) \
         WITH CLUSTERING ORDER BY (c DESC, d ASC) AND comment = 'x' AND default_time_to_live = 5",
        "CREATE TABLE plain (k int PRIMARY KEY, v int)",
        "CREATE TABLE dense (k int, c int, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
        "CREATE TABLE \"Blog\".t (k int PRIMARY KEY)",
    ]);
    let table = &world.table("t").table;
    assert_eq!((table.in_super_name, table.default_ttl), (2, 5));
    assert_eq!(table.columns[1].kind, ColumnKind::Clustering { is_descending: true });
    assert_eq!(world.table("t").stored_name("t"), format!("t-{}", Uuid::from_u128(2).simple()));
    assert_eq!(world.table("dense").table.form, Form::Dense);
    let exists = world.refuses(
        "CREATE TABLE t (k int PRIMARY KEY)",
        "Cannot add already existing table \"t\" to keyspace \"k\"",
    );
    assert!(matches!(exists, ErrorKind::AlreadyExists { .. }));
    assert_eq!(world.run("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)"), Ok(false));
    world.runs(&["DROP TABLE t", "DROP TABLE \"Blog\".t"]);
    assert!(!world.definitions.keyspaces.contains_key("Blog"), "it has nothing of CQL any more");
    world.refuses("DROP TABLE t", "unconfigured table t");
    world.refuses("DROP TABLE nowhere.t", "Keyspace nowhere does not exist");
    assert_eq!(world.run("DROP TABLE IF EXISTS nowhere.t"), Ok(false));
}

#[test]
fn properties_are_checked_and_kept() {
    let mut world = World::new();
    world.runs(&[
        "CREATE TABLE t (k int PRIMARY KEY) WITH gc_grace_seconds = 7 AND \
         compaction = {'class': 'LeveledCompactionStrategy', 'sstable_size_in_mb': 5}",
        "ALTER TABLE t WITH compression = {'sstable_compression': ''} AND \
         caching = {'keys': 'none'}",
    ]);
    let table = world.table("t");
    assert_eq!(table.number("gc_grace_seconds", 0), 7);
    assert_eq!(table.option("compression", "enabled"), Some("false"));
    assert_eq!(table.option("caching", "keys"), Some("NONE"));
    let class = "org.apache.cassandra.db.compaction.LeveledCompactionStrategy";
    assert_eq!(table.option("compaction", "class"), Some(class));
    let before = Arc::clone(&world.table("t").table);
    world.runs(&["ALTER TABLE t WITH comment = 'another'"]);
    assert!(!Arc::ptr_eq(&before, &world.table("t").table), "those who use it are to notice");
    for (properties, message) in [
        ("default_validation = text", "Unknown property 'default_validation'"),
        ("gc_grace_seconds = -1", "gc_grace_seconds must be greater than or equal to 0 (got -1)"),
        ("gc_grace_seconds = x", "Invalid integer value x for 'gc_grace_seconds'"),
        (
            "default_time_to_live = 630720001",
            "default_time_to_live must be less than or equal to 630720000 (got 630720001)",
        ),
        (
            "compaction = {'min_threshold': 4}",
            "Missing sub-option 'class' for the 'compaction' option.",
        ),
        (
            "compaction = {'class': 'SizeTieredCompactionStrategy', 'x': 1}",
            "Properties specified [x] are not understood by SizeTieredCompactionStrategy",
        ),
        (
            "compression = {'class': 'LZ4Compressor', 'chunk_length_in_kb': 31}",
            "chunk_length_in_kb must be a power of 2",
        ),
        ("compression = 'LZ4'", "Invalid value for property 'compression'. It should be a map."),
        (
            "min_index_interval = 10 AND max_index_interval = 5",
            "max_index_interval must be greater than or equal to min_index_interval (10) (got 5).",
        ),
        ("speculative_retry = 'often'", "Invalid value often for option 'speculative_retry'"),
    ] {
        world.refuses(&format!("ALTER TABLE t WITH {properties}"), message);
        world.refuses(&format!("CREATE TABLE u (k int PRIMARY KEY) WITH {properties}"), message);
    }
}

#[test]
fn columns_come_and_go() {
    let mut world = World::new();
    world.runs(&[
        "CREATE TABLE t (k int, c int, v int, PRIMARY KEY (k, c))",
        "ALTER TABLE t ADD (s text static, w text)",
        "ALTER TABLE t DROP v",
        "ALTER TABLE t RENAME k TO key AND c TO d",
    ]);
    let names: Vec<String> = world.columns("t").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["key", "d", "s", "w"]);
    assert!(world.table("t").table.has_dropped);
    world.runs(&["ALTER TABLE t ADD v int"]);
    let table = &world.table("t").table;
    assert_eq!(table.columns[table.column("v").unwrap()].hidden_up_to, 1_000_000);
    world.runs(&["ALTER TABLE t DROP v USING TIMESTAMP 7", "ALTER TABLE t ADD v varint"]);
    let table = &world.table("t").table;
    assert_eq!(table.columns[table.column("v").unwrap()].hidden_up_to, 7);
    world.runs(&[
        "CREATE TABLE dense (k int, c int, v int, PRIMARY KEY (k, c)) WITH COMPACT STORAGE",
    ]);
    for (text, message) in [
        ("ALTER TABLE t ADD k2 nothing", "Unknown type k.nothing"),
        (
            "ALTER TABLE t ADD x list<counter>",
            "Counters are not allowed inside collections: list<counter>",
        ),
        (
            "ALTER TABLE t ADD x set<duration>",
            "Durations are not allowed inside sets: set<duration>",
        ),
        (
            "ALTER TABLE t ADD d int",
            "Invalid column name d because it conflicts with a PRIMARY KEY part",
        ),
        (
            "ALTER TABLE t ADD w int",
            "Invalid column name w because it conflicts with an existing column",
        ),
        ("ALTER TABLE t DROP d", "Cannot drop PRIMARY KEY part d"),
        ("ALTER TABLE t DROP x", "Column x was not found in table t"),
        ("ALTER TABLE t RENAME x TO y", "Cannot rename unknown column x in table t"),
        ("ALTER TABLE t RENAME w TO y", "Cannot rename non PRIMARY KEY part w"),
        ("ALTER TABLE t ALTER w TYPE blob", "Altering of types is not allowed"),
        ("ALTER TABLE dense ADD w int", "Cannot add new column to a COMPACT STORAGE table"),
        ("ALTER TABLE dense DROP v", "Cannot drop columns from a non-CQL3 table"),
    ] {
        world.refuses(text, message);
    }
    world.runs(&["ALTER TABLE t DROP w"]);
    world.refuses(
        "ALTER TABLE t ADD w int",
        "Cannot re-add previously dropped column 'w' of type int, incompatible with previous type \
         text",
    );
    world.refuses(
        "ALTER TABLE t ADD w list<text>",
        "Cannot add a collection with the name w because a collection with the same name and a \
         different type (text) has already been used in the past",
    );
}

#[test]
fn a_type_is_the_same_wherever_it_is_used() {
    let mut world = World::new();
    world.runs(&[
        "CREATE TYPE u (a int)",
        "CREATE TYPE outer_type (u frozen<u>)",
        "CREATE TABLE t (k int PRIMARY KEY, v frozen<outer_type>, w u)",
        "ALTER TYPE u ADD b text",
        "ALTER TYPE u RENAME a TO first",
    ]);
    let shown = |world: &World, column: &str| {
        let table = &world.table("t").table;
        table.columns[table.column(column).unwrap()].of_type.class_name()
    };
    let first = "6669727374";
    assert!(shown(&world, "v").contains(first) && shown(&world, "w").contains(first));
    assert_eq!(world.run("CREATE TYPE IF NOT EXISTS u (x int)"), Ok(false));
    for (text, message) in [
        ("CREATE TYPE u (x int)", "A user type of name k.u already exists"),
        ("CREATE TYPE w (x int, x int)", "Duplicate field name x in type w"),
        ("CREATE TYPE w (x counter)", "A user type cannot contain counters"),
        ("CREATE TYPE w (x u)", "A user type cannot contain non-frozen UDTs"),
        ("CREATE TYPE nowhere.w (x int)", "Cannot add type in unknown keyspace nowhere"),
        (
            "ALTER TYPE u ADD b int",
            "Cannot add new field b to type k.u: a field of the same name already exists",
        ),
        (
            "ALTER TYPE u ADD c frozen<outer_type>",
            "Cannot add new field c of type frozen<outer_type> to type k.u as this would create a \
             circular reference",
        ),
        ("ALTER TYPE u RENAME x TO y", "Unknown field x in type k.u"),
        ("ALTER TYPE x ADD y int", "No user type named k.x exists."),
        ("DROP TYPE u", "Cannot drop user type k.u as it is still used by user type outer_type"),
        (
            "DROP TYPE outer_type",
            "Cannot drop user type k.outer_type as it is still used by table k.t",
        ),
        ("DROP TYPE x", "No user type named k.x exists."),
    ] {
        world.refuses(text, message);
    }
    world.runs(&["DROP TABLE t", "DROP TYPE outer_type", "DROP TYPE u"]);
    assert_eq!(world.run("DROP TYPE IF EXISTS u"), Ok(false));
}

#[test]
fn truncate_takes_new_files() {
    let mut world = World::new();
    world.runs(&["CREATE TABLE t (k int PRIMARY KEY)"]);
    let before = TableDefinition::clone(world.table("t"));
    world.ground.ids = [3, 4].map(Uuid::from_u128);
    world.runs(&["TRUNCATE t"]);
    let after = world.table("t");
    assert_eq!((after.id, after.rows), (before.id, Uuid::from_u128(4)));
    world.refuses("TRUNCATE x", "unconfigured table x");
}

#[test]
fn keys_that_are_no_text_need_the_random_partitioner() {
    let mut world = World::new();
    world.ground.partitioner = Partitioner::OrderPreserving;
    let refused = world.run("CREATE TABLE t (k int PRIMARY KEY)").unwrap_err().message;
    assert!(refused.ends_with("must be one column of type text or ascii"), "{refused}");
    world.runs(&["CREATE TABLE t (k text PRIMARY KEY)"]);
}

#[test]
fn clients_hear_what_became_of_what() {
    let told = |text: &str| {
        let Statement::Schema(statement) = parse(text).unwrap().statement else { panic!("{text}") };
        told(&statement, Some("k"))
    };
    let change = told("ALTER TABLE t ADD x int");
    assert_eq!((change.change, change.keyspace.as_str()), (Change::Updated, "k"));
    assert_eq!(change.target, Some(SchemaTarget::Table("t".into())));
    assert_eq!(told("DROP TYPE other.t").target, Some(SchemaTarget::Type("t".into())));
    assert_eq!(told("DROP KEYSPACE other").target, None);
}
