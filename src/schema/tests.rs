//! Changes of the schema of a node, and crashes in between.

use super::definitions::{Definitions, KeyspaceDefinition, Replication, TableDefinition};
use super::register::{ChangeError, RegisterOptions, SchemaHost, SchemaRegister, families};
use super::{encoding, file, kind};
use crate::base::context::RequestContext;
use crate::config::classes::StrategyName;
use crate::config::settings::ColumnFamilySettings;
use crate::kit::clock::ManualClock;
use crate::kit::disk::{Fault, Operation, SimFileSystem, Survival};
use crate::kit::storage::{Blog, options};
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::model::slice::Slice;
use crate::model::table::{Column, ColumnKind, Table};
use crate::model::types::{CqlType, MAX_TYPE_DEPTH, Native};
use crate::ring::{KeyspacePlacements, Partitioner, ReplicaPlacement, ReplicationStrategy, Snitch};
use crate::storage::database::Components;
use crate::storage::sstable::Access;
use crate::storage::{Database, FamilyOptions};
use fastrand::Rng;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

#[derive(Debug, Default, Clone)]
struct Host(Arc<AtomicBool>);

impl SchemaHost for Host {
    fn refusal(&self) -> Option<String> {
        self.0.load(Ordering::Relaxed).then(|| "not now".to_owned())
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn family_options(&self, _: &ColumnFamilySettings) -> FamilyOptions {
        FamilyOptions::default()
    }

    fn placement(&self, replication: &Replication) -> ReplicaPlacement {
        ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: replication.factor as usize,
            snitch: Snitch::EndPoint,
        }
    }

    fn refresh(&self) {}
}

/// The part of a node that changes with its schema.
struct Node {
    storage: Arc<Database>,
    register: SchemaRegister,
    host: Host,
}

impl Node {
    /// Starts with what the disk has.
    fn start(fs: &SimFileSystem) -> Self {
        let directories: Vec<PathBuf> = vec!["/data".into()];
        let saved = file::load(fs, &directories).unwrap();
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let own = ColumnFamilySchema::new("system".into(), "LocationInfo".into(), kind);
        let made = families(&saved.definitions).unwrap();
        let made = made.values().map(|family| Arc::clone(&family.schema));
        let schema = Schema::new([Arc::new(own)].into_iter().chain(made));
        saved.definitions.keyspaces.keys().for_each(|name| schema.add_keyspace(name));
        let components = Components {
            spawner: Blog::default().spawner,
            ..Components::new(Arc::new(fs.clone()), Arc::new(ManualClock::default()))
        };
        let storage =
            Database::open(components, options(), Partitioner::Random, Arc::new(schema), |_| {
                FamilyOptions::default()
            });
        let (storage, host) = (Arc::new(storage.unwrap()), Host::default());
        let options = RegisterOptions {
            fs: Arc::new(fs.clone()),
            data_directories: directories,
            storage: Arc::clone(&storage),
            placements: Arc::new(KeyspacePlacements::from(BTreeMap::new())),
            host: Box::new(host.clone()),
        };
        let register = SchemaRegister::new(options, saved).unwrap();
        Self { storage, register, host }
    }

    fn change(&self, change: impl Fn(&mut Definitions)) -> Result<(), ChangeError<Infallible>> {
        let next = self.propose(|now| {
            let mut next = now.clone();
            change(&mut next);
            Ok(Some(next))
        })?;
        self.register.follow(&next.unwrap())
    }

    fn propose<E>(
        &self,
        change: impl Fn(&Definitions) -> Result<Option<Definitions>, E>,
    ) -> Result<Option<Vec<u8>>, ChangeError<E>> {
        let now = encoding::encode(&self.register.definitions());
        self.register.propose(now.as_bytes(), change)
    }

    /// Writes a row to table `t`.
    fn write(&self, key: &str) {
        let schema = self.storage.schema();
        let id = schema.find("k", "t").unwrap();
        let mut mutation = MutationBuilder::new(schema, "k", key.as_bytes());
        mutation.family(id).insert((b"", b"v"), b"value", 1);
        self.storage.apply(&mutation.finish(), true).unwrap();
    }

    /// Whether table `t` has a row; `None` if there is no such table.
    fn reads(&self, key: &str) -> Option<bool> {
        let id = self.storage.schema().find("k", "t")?;
        let (key, all, context) = (RowKey::from(key), Slice::all(None), RequestContext::default());
        let row = self.storage.family(id).read(&key, &all, &context, Access::Cached).unwrap();
        Some(!row.cells.is_empty())
    }
}

fn table(rows: u128) -> Arc<TableDefinition> {
    let columns = vec![
        Column::new("k", Native::Text.into(), ColumnKind::PartitionKey),
        Column::new("v", Native::Blob.into(), ColumnKind::Regular),
    ];
    Arc::new(TableDefinition {
        id: Uuid::from_u128(1),
        rows: Uuid::from_u128(rows),
        table: Arc::new(Table::of_columns(columns, false)),
        properties: BTreeMap::new(),
        dropped: BTreeMap::new(),
    })
}

/// Makes keyspace `k` with table `t`, whose rows have this id.
fn create(rows: u128) -> impl Fn(&mut Definitions) {
    move |definitions| {
        let replication = Replication {
            strategy: StrategyName::RackUnaware,
            factor: 1,
            data_centers: BTreeMap::new(),
        };
        let keyspace = KeyspaceDefinition {
            replication: Some(replication),
            durable_writes: true,
            tables: [("t".to_owned(), table(rows))].into(),
            types: BTreeMap::new(),
        };
        definitions.keyspaces.insert("k".to_owned(), keyspace);
    }
}

fn drop_table(definitions: &mut Definitions) {
    definitions.keyspace_mut("k").tables.clear();
}

/// Files of tables that were made over CQL.
fn files_of_tables(fs: &SimFileSystem) -> Vec<String> {
    let files = files_in(fs, Path::new("/data/k")).into_iter();
    files.filter(|name| name.starts_with("t-")).collect()
}

fn files_in(fs: &SimFileSystem, folder: &Path) -> Vec<String> {
    use crate::base::fs::FileSystem;
    let entries = fs.list(folder).unwrap_or_default();
    entries.into_iter().map(|entry| entry.name).collect()
}

#[test]
fn the_database_follows_at_once_and_after_a_start() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    node.write("ada");
    assert_eq!(node.reads("ada"), Some(true));
    assert_eq!(node.register.definitions().version, 1);
    node.storage.close();
    fs.kill();
    let node = Node::start(&fs);
    assert_eq!(node.reads("ada"), Some(true));
    node.change(|it| it.keyspaces.clear()).unwrap();
    assert!(node.reads("ada").is_none() && !node.storage.schema().has_keyspace("k"));
    assert_eq!(files_of_tables(&fs), [""; 0]);
}

#[test]
fn nothing_old_reaches_a_table_that_is_made_again() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    let old = node.storage.schema().find("k", "t").unwrap();
    node.write("ada");
    node.change(drop_table).unwrap();
    node.change(create(8)).unwrap();
    assert_eq!(node.reads("ada"), Some(false));
    let mut late = MutationBuilder::new(node.storage.schema(), "k", b"ada");
    late.family(old).insert((b"", b"v"), b"value", 1);
    node.storage.apply(&late.finish(), true).unwrap_err();
    node.write("bob");
    // The log still has what was written to the first table.
    let fs = fs.fork();
    let node = Node::start(&fs);
    assert_eq!((node.reads("ada"), node.reads("bob")), (Some(false), Some(true)));
}

#[test]
fn a_drop_that_a_crash_has_cut_off_is_done_or_not_at_the_next_start() {
    let (mut was_done, mut was_not) = (0, 0);
    for cut in 0.. {
        let fs = SimFileSystem::new(cut);
        let node = Node::start(&fs);
        node.change(create(7)).unwrap();
        node.write("ada");
        node.storage.flush(node.storage.schema().find("k", "t").unwrap()).unwrap();
        node.write("bob");
        node.storage.sync().unwrap();
        let before = fs.changes();
        fs.power_off_after(cut);
        let dropped = node.change(drop_table);
        let is_complete = dropped.is_ok() && fs.changes() - before < cut;
        fs.power_off();
        drop(node);
        fs.crash_keeping(Survival::Everything, &mut Rng::with_seed(cut));
        let node = Node::start(&fs);
        if let Some(is_there) = node.reads("ada") {
            was_not += 1;
            assert!(is_there && node.reads("bob") == Some(true), "cut {cut}");
            assert!(dropped.is_err());
        } else {
            was_done += 1;
            assert_eq!(files_of_tables(&fs), [""; 0], "cut {cut}");
            node.change(create(8)).unwrap();
            assert_eq!(node.reads("ada"), Some(false), "cut {cut}");
        }
        if is_complete {
            break;
        }
    }
    assert!(was_done > 1 && was_not > 1, "{was_done} and {was_not}");
}

#[test]
fn a_database_that_could_not_follow_catches_up() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    fs.inject(Fault::next(Operation::CreateDir, Errno::NOSPC).on("/data/k"));
    let failed = node.change(create(7)).unwrap_err();
    assert!(matches!(failed, ChangeError::Database(_)), "{failed}");
    assert_eq!(node.reads("ada"), None);
    node.change(|_| {}).unwrap();
    assert_eq!(node.reads("ada"), Some(false));
}

#[test]
fn a_refused_change_changes_nothing() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    let refused = node.propose(|_| Err("no".to_owned())).unwrap_err();
    assert!(matches!(refused, ChangeError::Change(why) if why == "no"));
    assert_eq!(node.propose(|_| Ok::<_, String>(None)).unwrap(), None);
    node.host.0.store(true, Ordering::Relaxed);
    let refused = node.change(create(7)).unwrap_err();
    assert!(matches!(&refused, ChangeError::Refused(why) if why == "not now"), "{refused}");
    assert_eq!(*node.register.definitions(), Definitions::default());
    assert_eq!(file::load(&fs, &["/data".into()]).unwrap(), file::SavedSchema::default());
}

/// Nobody could read the schema any more, and so nobody could change it.
#[test]
fn types_that_cannot_be_read_back_are_refused() {
    let node = Node::start(&SimFileSystem::new(1));
    let with_depth = |depth: usize| {
        move |_: &Definitions| {
            let list = |inner: CqlType, _| CqlType::List(Arc::new(inner));
            let deep = (1..depth).fold(Native::Int.into(), list);
            let mut next = Definitions::default();
            let column = Column::new("d", deep, ColumnKind::Regular);
            let mut columns = table(7).table.columns.clone();
            columns.push(column);
            let deep = TableDefinition {
                table: Arc::new(Table::of_columns(columns, false)),
                ..TableDefinition::clone(&table(7))
            };
            next.keyspace_mut("k").tables.insert("t".to_owned(), Arc::new(deep));
            Ok::<_, String>(Some(next))
        }
    };
    assert!(node.propose(with_depth(MAX_TYPE_DEPTH)).unwrap().is_some());
    let refused = node.propose(with_depth(MAX_TYPE_DEPTH + 1)).unwrap_err();
    assert!(matches!(refused, ChangeError::TooDeep), "{refused}");
}

#[test]
fn rows_that_go_are_in_a_snapshot() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    node.change(drop_table).unwrap();
    assert_eq!(node.storage.snapshots().unwrap(), [], "there was nothing to keep");
    node.change(create(8)).unwrap();
    node.write("ada");
    node.change(create(9)).unwrap();
    assert_eq!(node.reads("ada"), Some(false), "the rows of a table with another id");
    node.write("ada");
    node.change(drop_table).unwrap();
    let snapshots = node.storage.snapshots().unwrap();
    let names: Vec<_> = snapshots.iter().map(|it| it.name.to_string()).collect();
    let ends = ["-truncated-t", "-dropped-t"];
    assert!(names.iter().zip(ends).all(|(name, end)| name.ends_with(end)), "{names:?}");
    assert_eq!(names.len(), 2);
    node.change(create(10)).unwrap();
    node.write("ada");
    node.change(|it| it.keyspaces.clear()).unwrap();
    let last = node.storage.snapshots().unwrap().pop().unwrap().name;
    assert!(last.is_meant_by("dropped-k"), "{last}");
}

#[test]
fn rows_on_their_way_to_the_disk_are_in_the_snapshot() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    node.write("ada");
    let id = node.storage.schema().find("k", "t").unwrap();
    fs.inject(Fault::next(Operation::Create, Errno::NOSPC).on(".sst"));
    node.storage.flush(id).unwrap_err();
    assert!(node.storage.family(id).view().active.is_empty());
    node.change(drop_table).unwrap();
    let snapshots = node.storage.snapshots().unwrap();
    assert!(snapshots[0].folders.iter().any(|folder| {
        let mut files = files_in(&fs, folder).into_iter();
        files.any(|name| name.contains(".sst"))
    }));
}

#[test]
fn writes_go_on_after_a_drop_without_its_snapshot() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    node.write("ada");
    fs.inject(Fault::next(Operation::HardLink, Errno::IO));
    let failed = node.change(drop_table).unwrap_err();
    assert!(matches!(failed, ChangeError::Snapshot(_)), "{failed}");
    node.write("bob");
    assert_eq!((node.reads("ada"), node.reads("bob")), (Some(true), Some(true)));
}

#[test]
fn a_table_with_new_properties_is_another_definition_of_the_same_family() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    node.write("ada");
    let schema = node.storage.schema();
    let (id, before) = (schema.find("k", "t").unwrap(), schema.families_of("k")[0].clone());
    node.change(|it| {
        let tables = &mut it.keyspace_mut("k").tables;
        let old = tables.get_mut("t").unwrap();
        let table = Arc::new(Table::clone(&old.table));
        *old = Arc::new(TableDefinition { table, ..TableDefinition::clone(old) });
    })
    .unwrap();
    assert_eq!((schema.find("k", "t"), node.reads("ada")), (Some(id), Some(true)));
    assert!(!Arc::ptr_eq(&before, schema.family(id)));
    assert!(kind(&schema.family(id).table).is_some());
}

#[test]
fn an_older_value_of_the_register_is_not_followed() {
    let fs = SimFileSystem::new(1);
    let node = Node::start(&fs);
    node.change(create(7)).unwrap();
    let older = encoding::encode(&node.register.definitions());
    node.change(create(8)).unwrap();
    node.register.follow(older.as_bytes()).unwrap();
    node.register.follow(b"").unwrap();
    assert_eq!(node.register.definitions().version, 2);
    let next = node.register.propose(older.as_bytes(), |now| Ok::<_, String>(Some(now.clone())));
    node.register.follow(&next.unwrap().unwrap()).unwrap();
    assert_eq!(node.register.definitions().version, 3);
    assert!(matches!(node.register.follow(b"?"), Err(ChangeError::Unreadable)));
}
