//! Directories of Apache Cassandra 0.6.13, which a storage core takes over.

use crate::kit::clock::ManualClock;
use crate::kit::disk::{SimFileSystem, Survival};
use alexandra::base::clock::Clock;
use alexandra::base::context::RequestContext;
use alexandra::base::fs::FileSystem;
use alexandra::base::worker::Spawner;
use alexandra::config::settings::Release;
use alexandra::model::cell::Cell;
use alexandra::model::comparator::Comparator;
use alexandra::model::deletion::Deletion;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use alexandra::model::slice::Slice;
use alexandra::replica::{
    HINT_SEGMENT_BYTES, HintOptions, HintStore, convert_original_hints, has_original_hints,
};
use alexandra::ring::{Partitioner, RowRange};
use alexandra::storage::database::{Components, StorageError};
use alexandra::storage::legacy::WriteError;
use alexandra::storage::legacy::export::ExportFolder;
use alexandra::storage::sstable::Access;
use alexandra::storage::system::{establish_identity, identity_for_original};
use alexandra::storage::{Database, FamilyOptions, Options};
use fastrand::Rng;
use flate2::read::GzDecoder;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const SEGMENT: &str = "/log/CommitLog-1795146483633.log";

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut content).unwrap();
    content
}

/// The SSTables of a recorded cluster, and their JSON exports, by keyspace and name.
pub(crate) fn recorded(cluster: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let text = unpacked(include_bytes!("../data/sstables-0.6.13.txt.gz"));
    let text = String::from_utf8(text).unwrap();
    let of_cluster = text.lines().filter_map(|line| line.strip_prefix(cluster)?.strip_prefix('/'));
    let files = of_cluster.filter_map(|line| {
        let (name, hex) = line.split_once(' ')?;
        let (pairs, _) = hex.as_bytes().as_chunks::<2>();
        let byte = |pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes = pairs.iter().map(|pair| byte(&pair[..])).collect();
        Some((PathBuf::from(name), bytes))
    });
    files.collect()
}

fn tables(cluster: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = recorded(cluster);
    files.retain(|name, _| name.extension().is_some_and(|it| it == "db"));
    files
}

/// The commit log of the cluster `rp`.
pub(crate) fn recorded_segment() -> Vec<u8> {
    unpacked(include_bytes!("../fixtures/legacy/commitlog-0.6.13-rp.log.gz"))
}

fn put(fs: &SimFileSystem, path: &Path, content: &[u8]) {
    fs.create_dir_all(path.parent().unwrap()).unwrap();
    fs.create(path).unwrap().write_all_at(content, 0).unwrap();
}

fn data_directory(cluster: &str) -> SimFileSystem {
    let fs = SimFileSystem::new(1);
    for (name, content) in tables(cluster) {
        put(&fs, &Path::new("/data").join(name), &content);
    }
    fs
}

/// The directories as the original has left them when it was killed.
fn directories() -> SimFileSystem {
    let fs = data_directory("rp");
    put(&fs, Path::new(SEGMENT), &recorded_segment());
    fs.sync_everything();
    fs
}

fn schema() -> Arc<Schema> {
    let (bytes, text) = (Comparator::Bytes, Comparator::Utf8);
    let standard = |columns: &Comparator| ColumnFamilyKind::Standard { columns: columns.clone() };
    let nested = |names: &Comparator, columns: &Comparator| {
        let (super_columns, columns) = (names.clone(), columns.clone());
        ColumnFamilyKind::Super { super_columns, columns }
    };
    let families = [
        ("Keyspace1", "Standard1", standard(&bytes)),
        ("Keyspace1", "Standard2", standard(&text)),
        ("Keyspace1", "Super1", nested(&bytes, &bytes)),
        ("system", "HintsColumnFamily", nested(&text, &bytes)),
        ("system", "LocationInfo", standard(&text)),
    ];
    let family = |(keyspace, name, kind): (&str, &str, _)| {
        Arc::new(ColumnFamilySchema::new(keyspace.into(), name.into(), kind))
    };
    Arc::new(Schema::new(families.map(family)))
}

fn options() -> Options {
    Options { segment_bytes: 1 << 16, ..Options::new("/data", "/log") }
}

fn open(fs: &SimFileSystem, options: Options) -> Result<Database, StorageError> {
    open_under(Partitioner::Random, fs, options)
}

fn open_under(
    partitioner: Partitioner,
    fs: &SimFileSystem,
    options: Options,
) -> Result<Database, StorageError> {
    let clock = Arc::new(ManualClock::at_micros(1_800_000_000_000_000));
    let components = Components::new(Arc::new(fs.clone()), clock);
    let components = Components { spawner: Spawner::Inline, ..components };
    let family = |_| FamilyOptions::default();
    Database::open(components, options, partitioner, schema(), family)
}

/// Opens it as a node does.
fn take_over(fs: &SimFileSystem) -> Result<Database, StorageError> {
    let database = open(fs, options())?;
    database.finish_takeover()?;
    Ok(database)
}

/// Rows with a column, in the order of their keys: all that clients can see.
fn content(database: &Database) -> String {
    let range = RowRange { start: Bound::Unbounded, end: Bound::Unbounded };
    let (all, context) = (Slice::all(None), RequestContext::default());
    let mut lines = BTreeSet::new();
    for family in database.families() {
        let rows = family.scan(&range, &all, usize::MAX, &context, Access::Cached).unwrap();
        for (key, row) in rows {
            let mut line = format!("{} {key}:", family.schema());
            for cell in &row.cells {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                let value = text(&cell.value()[..cell.value().len().min(16)]);
                let (outer, name) = (text(cell.super_name()), text(cell.name()));
                write!(line, " {outer}/{name}={value}@{}", cell.timestamp()).unwrap();
            }
            lines.insert(line);
        }
    }
    lines.into_iter().filter(|line| !line.ends_with(':')).collect::<Vec<_>>().join("\n")
}

fn convert(database: &Database) {
    let ids: Vec<_> = database.families().map(|family| family.id()).collect();
    for id in ids {
        database.compact(id).unwrap();
    }
}

fn names(fs: &SimFileSystem, folder: &str) -> Vec<String> {
    let entries = fs.list(Path::new(folder)).unwrap();
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names
}

fn is_of_the_original(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|ending| ending == "db")
}

#[test]
fn rows_of_files_and_commit_log_are_there_before_and_after_the_conversion() {
    let fs = directories();
    let database = take_over(&fs).unwrap();
    let before = content(&database);
    let line = |start: &str| before.lines().find(|line| line.starts_with(start)).unwrap_or("none");
    for (row, expected) in [
        ("Keyspace1.Standard1 user1:", "Keyspace1.Standard1 user1: /empty=@1001"),
        ("Keyspace1.Standard1 user2:", "Keyspace1.Standard1 user2: /empty=@1001 /name=newer@9000"),
        ("Keyspace1.Standard1 delrow:", "Keyspace1.Standard1 delrow: /y=2@4000"),
        ("Keyspace1.Standard1 onlytomb:", "none"),
        ("Keyspace1.Standard2 log0009:", "Keyspace1.Standard2 log0009: /col=unflushed9@1000"),
        ("Keyspace1.Super1 logsuper:", "Keyspace1.Super1 logsuper: s/c=v@1000"),
        (
            "Keyspace1.Super1 super1:",
            "Keyspace1.Super1 super1: sc0/col0=v00@1000 sc0/col1=v01@1000 sc0/col2=v02@1000 \
             sc1/new=alive@3000 sc2/col1=v21@1000 sc2/col2=v22@1000",
        ),
    ] {
        assert_eq!(line(row), expected);
    }
    let rows = |family: &str| before.lines().filter(|line| line.starts_with(family)).count();
    assert_eq!([rows("Keyspace1.Standard1 "), rows("Keyspace1.Standard2 ")], [10, 210]);
    assert!(line("system.LocationInfo L:").contains("/ClusterName=Test Cluster@"));
    let is_old = |name: &String| is_of_the_original(name);
    assert_eq!(names(&fs, "/data/Keyspace1").iter().filter(|name| is_old(name)).count(), 9);
    assert!(!fs.exists(Path::new(SEGMENT)), "what it holds is in SSTables");
    convert(&database);
    assert_eq!(content(&database), before);
    assert_eq!(names(&fs, "/data/Keyspace1").iter().filter(|name| is_old(name)).count(), 0);
    drop(database);
    let again = take_over(&fs).unwrap();
    assert_eq!(content(&again), before);
}

/// The files of the original, as they were, are in the snapshot: the way back.
#[test]
fn every_file_of_the_original_is_kept() {
    let fs = directories();
    drop(take_over(&fs).unwrap());
    for (name, content) in tables("rp") {
        let folder = Path::new("/data").join(name.parent().unwrap()).join("snapshots");
        let snapshot = names(&fs, folder.to_str().unwrap());
        assert_eq!(snapshot, ["1800000000000-before-alexandra"]);
        let kept = folder.join(&snapshot[0]).join(name.file_name().unwrap());
        assert!(fs.read(&kept).unwrap() == content, "{}", kept.display());
    }
    let log = "/data/system/snapshots/1800000000000-before-alexandra/CommitLog-1795146483633.log";
    assert!(fs.exists(Path::new(log)));
}

/// Power fails after each change to the disk, from the first start to the end of the conversion.
#[test]
fn a_crash_at_any_moment_loses_nothing() {
    let expected = content(&take_over(&directories()).unwrap());
    for changes in 0.. {
        let fs = directories();
        let mut rng = Rng::with_seed(changes);
        fs.power_off_after(changes);
        let is_complete = take_over(&fs).is_ok_and(|database| {
            let ids: Vec<_> = database.families().map(|family| family.id()).collect();
            ids.into_iter().all(|id| database.compact(id).is_ok())
        });
        let survivals = [Survival::Nothing, Survival::Partly, Survival::Everything];
        fs.crash_keeping(survivals[changes as usize % 3], &mut rng);
        let database = take_over(&fs).unwrap_or_else(|error| panic!("{changes}: {error}"));
        assert_eq!(content(&database), expected, "{changes}");
        convert(&database);
        assert_eq!(content(&database), expected, "{changes}");
        if is_complete {
            assert!(changes > 60, "only {changes} changes were visited");
            return;
        }
    }
}

fn check_left_to_the_original(fs: &SimFileSystem) {
    for folder in ["Keyspace1", "system"] {
        let files = names(fs, &format!("/data/{folder}"));
        let others = files.iter().filter(|name| !is_of_the_original(name)).collect::<Vec<_>>();
        assert_eq!(others, ["snapshots"]);
    }
    assert!(fs.exists(Path::new(SEGMENT)));
}

/// Until the takeover is finished the original finds everything as it has left it.
#[test]
fn a_start_that_is_refused_leaves_the_directories_to_the_original() {
    let fs = directories();
    let data = Path::new("/data/Keyspace1/Super1-1-Data.db");
    let size = fs.read(data).unwrap().len() as u64;
    fs.open(data).unwrap().set_size(size - 5).unwrap();
    let error = open(&fs, options()).unwrap_err().to_string();
    assert!(error.contains("Super1-1-Data.db is damaged at byte"), "{error}");
    assert!(error.contains("accept_data_loss=true goes on without it"), "{error}");
    check_left_to_the_original(&fs);
    // The operator goes on without the file, which is kept.
    let database = open(&fs, Options { accept_data_loss: true, ..options() }).unwrap();
    database.finish_takeover().unwrap();
    assert!(content(&database).contains("Keyspace1.Super1 logsuper"));
    let kept = ["Super1-1-Data.db", "Super1-1-Filter.db", "Super1-1-Index.db"];
    assert_eq!(names(&fs, "/data/Keyspace1/damaged"), kept);
}

/// Nothing in a file says which partitioner it was written with.
#[test]
fn another_partitioner_or_cluster_is_noticed_before_anything_changes() {
    let fs = directories();
    let ordered = open_under(Partitioner::OrderPreserving, &fs, options());
    let error = match ordered {
        Ok(database) => {
            establish_identity(&database, "Test Cluster", 1, false).unwrap_err().to_string()
        }
        Err(error) => error.to_string(),
    };
    assert!(error.contains("id you change the partitioner?"), "{error}");
    let database = open(&fs, options()).unwrap();
    let error = establish_identity(&database, "Other", 1, false).unwrap_err();
    assert_eq!(error.to_string(), "ClusterName mismatch: Test Cluster != Other");
    drop(database);
    check_left_to_the_original(&fs);
    let database = open(&fs, options()).unwrap();
    let identity = establish_identity(&database, "Test Cluster", 1, false).unwrap();
    let token = Partitioner::Random.parse_token("0").unwrap();
    assert_eq!((identity.token, identity.is_new), (Some(token), false));
}

/// The way back is to the files of the start that went through.
#[test]
fn a_start_after_a_refused_one_keeps_what_is_there_then() {
    let fs = directories();
    let open_at = |seconds: i64| {
        let clock = Arc::new(ManualClock::at_micros(seconds * 1_000_000));
        let components = Components::new(Arc::new(fs.clone()), clock);
        let components = Components { spawner: Spawner::Inline, ..components };
        let family = |_| FamilyOptions::default();
        Database::open(components, options(), Partitioner::Random, schema(), family).unwrap()
    };
    let refused = establish_identity(&open_at(1_800_000_000), "Other", 1, false);
    assert!(refused.is_err());
    let standard = Path::new("/data/Keyspace1");
    for part in ["Data", "Index", "Filter"] {
        let file = |number: u64| standard.join(format!("Standard1-{number}-{part}.db"));
        fs.rename(&file(1), &file(7)).unwrap();
    }
    open_at(1_800_000_009).finish_takeover().unwrap();
    let kept = names(&fs, "/data/Keyspace1/snapshots/1800000009000-before-alexandra");
    assert!(!kept.contains(&"Standard1-1-Data.db".to_owned()), "{kept:?}");
    assert!(kept.contains(&"Standard1-7-Data.db".to_owned()), "{kept:?}");
}

#[test]
fn leftovers_of_the_original_do_not_count() {
    let fs = directories();
    let expected = content(&take_over(&fs.fork()).unwrap());
    let folder = Path::new("/data/Keyspace1");
    let copy =
        |from: &str, to: &str| put(&fs, &folder.join(to), &fs.read(&folder.join(from)).unwrap());
    // A compaction that was cut off, one that was complete, and an index without data.
    copy("Standard1-1-Data.db", "Standard1-tmp-2-Data.db");
    for part in ["Data", "Index", "Filter"] {
        copy(&format!("Standard1-1-{part}.db"), &format!("Standard1-3-{part}.db"));
    }
    put(&fs, &folder.join("Standard1-3-Compacted"), b"");
    copy("Standard1-1-Index.db", "Standard1-4-Index.db");
    put(&fs, &folder.join("snapshots/1290000000000/Standard1-9-Data.db"), b"of the original");
    put(&fs, &folder.join("stream/Standard1-8-Data.db"), b"half a file");
    let database = take_over(&fs).unwrap();
    assert_eq!(content(&database), expected);
    let own = names(&fs, "/data/Keyspace1");
    let of_standard: Vec<_> = own.iter().filter(|name| name.starts_with("Standard1-")).collect();
    assert_eq!(
        of_standard[..3],
        ["Standard1-1-Data.db", "Standard1-1-Filter.db", "Standard1-1-Index.db"]
    );
    assert!(fs.exists(&folder.join("snapshots/1290000000000/Standard1-9-Data.db")));
    assert!(!own.iter().any(|name| name.contains("tmp") || name.contains("Compacted")));
}

#[test]
fn files_that_cannot_be_told_apart_or_came_later_are_refused() {
    let fs = directories();
    let (first, second) = ("/data/Keyspace1", "/more/Keyspace1");
    for part in ["Data", "Index", "Filter"] {
        let name = format!("Standard1-1-{part}.db");
        put(&fs, &Path::new(second).join(&name), &fs.read(&Path::new(first).join(&name)).unwrap());
    }
    let two = Options { data_directories: vec!["/data".into(), "/more".into()], ..options() };
    let error = open(&fs, two.clone()).unwrap_err().to_string();
    assert!(error.contains("rename the three files of one to the number 2"), "{error}");
    for part in ["Data", "Index", "Filter"] {
        let name = |number| Path::new(second).join(format!("Standard1-{number}-{part}.db"));
        fs.rename(&name(1), &name(2)).unwrap();
    }
    let database = open(&fs, two.clone()).unwrap();
    database.finish_takeover().unwrap();
    drop(database);
    put(&fs, &Path::new(first).join("Standard1-7-Data.db"), b"?");
    let error = open(&fs, two.clone()).unwrap_err().to_string();
    assert!(
        error.contains("Standard1-7-Data.db is not in /data/Keyspace1/Standard1.manifest"),
        "{error}"
    );
    fs.remove_file(&Path::new(first).join("Standard1-7-Data.db")).unwrap();
    put(&fs, Path::new(SEGMENT), b"?");
    let error = open(&fs, two).unwrap_err().to_string();
    assert!(error.contains("that this program has taken over before"), "{error}");
}

/// A hint of the original names a row that the node has. It becomes a hint with the row.
#[test]
fn hints_of_the_original_are_hints_with_their_rows() {
    let fs = data_directory("hints_c1");
    let database = take_over(&fs).unwrap();
    let schema = Arc::clone(database.schema());
    let family = schema.family_id("Keyspace1", "Standard1").unwrap();
    let mut row = MutationBuilder::new(&schema, "Keyspace1", b"key0201");
    row.family(family).insert((b"", b"a"), b"value", 7);
    row.delete_column((b"", b"b"), Deletion::at(8, 1_799_999_999));
    database.apply(&row.finish(), true).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at_micros(1_800_000_000_000_000));
    let hint_options = HintOptions {
        directory: "/hints".into(),
        max_age: Duration::from_hours(72),
        max_bytes_per_target: 1 << 20,
        segment_bytes: HINT_SEGMENT_BYTES,
        schema: Arc::clone(&schema),
    };
    let rng = Rng::with_seed(1);
    let hints = HintStore::open(Arc::new(fs), clock, rng, hint_options).unwrap();
    let local = IpAddr::from(Ipv4Addr::new(127, 0, 0, 11));
    assert!(has_original_hints(&database));
    let converted = convert_original_hints(&database, &hints, local).unwrap();
    assert_eq!(converted, 23);
    assert_eq!(convert_original_hints(&database, &hints, local).unwrap(), 0, "they are deleted");
    let target = IpAddr::from(Ipv4Addr::new(127, 0, 0, 13));
    let kept: Vec<_> = hints.targets().iter().map(|it| (it.target, it.hints)).collect();
    assert_eq!(kept, [(target, 1)], "of the other rows the node has nothing");
    let batch = hints.read_batch(target, 1 << 20).unwrap().unwrap();
    let mutation = &batch.hints[0].mutation;
    assert_eq!(mutation.key.as_bytes(), b"key0201");
    let cells: Vec<_> = mutation.families.iter().flat_map(|family| &family.cells).collect();
    let told: Vec<_> = cells.iter().map(|cell| (cell.name(), cell.timestamp())).collect();
    assert_eq!(told, [(&b"a"[..], 7), (b"b", 8)]);
}

/// Exports everything, of which a part may have been exported before.
fn export(database: &Database, fs: &SimFileSystem) -> Result<ExportFolder, WriteError> {
    let disk = Arc::new(fs.clone()) as Arc<dyn FileSystem>;
    let to = Path::new("/back");
    let mut folder = ExportFolder::open(&disk, to, Release::V06, Partitioner::Random, 64 << 10)?;
    for family in database.families().filter(|it| it.schema().keyspace != "system") {
        let view = family.view();
        for table in &view.tables {
            if !folder.has(family.schema(), table.generation(), &table.identity()) {
                folder.add(family.schema(), table, &mut |_| {})?;
            }
        }
        let live = view.tables.iter().map(|table| (table.generation(), table.identity()));
        folder.retain(family.schema(), &live.collect::<Vec<_>>())?;
    }
    let own = database.families().find(|it| it.schema().name == "LocationInfo").unwrap();
    let view = own.view();
    let tables = view.tables.iter().map(|table| &**table);
    let notes = identity_for_original(own.schema(), tables, Release::V06).unwrap();
    folder.finish(own.schema(), &notes)?;
    Ok(folder)
}

fn keyspace_only(content: &str) -> Vec<&str> {
    content.lines().filter(|line| line.starts_with("Keyspace1")).collect()
}

/// Power fails after every third change to the disk during an export, which is repeated then, now
/// and then after a compaction. The directory is taken over with every row.
#[test]
fn an_export_that_was_cut_off_goes_on() {
    for (round, changes) in (0..).step_by(3).enumerate() {
        let fs = directories();
        let database = take_over(&fs).unwrap();
        let expected = content(&database);
        let mut rng = Rng::with_seed(changes);
        fs.power_off_after(changes);
        let is_complete = export(&database, &fs).is_ok();
        drop(database);
        let survivals = [Survival::Nothing, Survival::Partly, Survival::Everything];
        fs.crash_keeping(survivals[round % 3], &mut rng);
        let database = take_over(&fs).unwrap();
        if round % 2 == 0 {
            convert(&database);
        }
        let folder = export(&database, &fs).unwrap_or_else(|error| panic!("{changes}: {error}"));
        assert!(folder.tables().iter().all(|table| table.left_out.is_empty()));
        drop(database);
        fs.create_dir_all(Path::new("/back/log")).unwrap();
        let back = open(&fs, Options::new("/back", "/back/log")).unwrap();
        back.finish_takeover().unwrap();
        assert_eq!(keyspace_only(&content(&back)), keyspace_only(&expected), "{changes}");
        let identity = establish_identity(&back, "Test Cluster", 1, false).unwrap();
        assert!(!identity.is_new);
        if is_complete {
            assert!(changes > 60, "only {changes} changes were visited");
            return;
        }
    }
}

/// Rows that a file of the original cannot have are left out, and named.
#[test]
fn rows_that_the_original_cannot_have_are_listed() {
    let fs = directories();
    let database = take_over(&fs).unwrap();
    let mut row = MutationBuilder::new(database.schema(), "Keyspace1", b"\xff");
    let family = database.schema().family_id("Keyspace1", "Standard1").unwrap();
    row.family(family);
    row.cell(&Cell::live(b"", b"name", b"value", 1));
    database.apply(&row.finish(), false).unwrap();
    database.flush(family).unwrap();
    let folder = export(&database, &fs).unwrap();
    let left_out: Vec<_> = folder.tables().iter().flat_map(|table| &table.left_out).collect();
    let [left_out] = &left_out[..] else { panic!("{left_out:?}") };
    assert_eq!((left_out.rows, &*left_out.reason), (1, "keys that are empty or not UTF-8"));
    assert_eq!(left_out.keys, ["\\xff"]);
}
