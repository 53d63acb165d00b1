//! What becomes of the storage when the machine refuses something, or a bug panics.

mod lost_family;
mod lost_log;
mod transfer;

use super::compactions::Takes;
use super::open::keep_going;
use super::*;
use crate::base::context::RequestContext;
use crate::kit::clock::ManualClock;
use crate::kit::disk::{Fault, Operation as FileOperation, SimFileSystem};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::storage::{FamilyOptions, Options};
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

const FAMILIES: [FamilyId; 2] = [FamilyId(0), FamilyId(1)];

/// Two column families, in which nothing happens by itself.
fn open(fs: &SimFileSystem) -> Result<Storage, StorageError> {
    open_in(fs, &["/data"])
}

fn open_in(fs: &SimFileSystem, directories: &[&str]) -> Result<Storage, StorageError> {
    open_with(fs, options(directories))
}

fn options(directories: &[&str]) -> Options {
    Options {
        segment_bytes: 1 << 16,
        memtable_budget_bytes: 1 << 20,
        block_cache_bytes: 1 << 20,
        data_directories: directories.iter().map(PathBuf::from).collect(),
        ..Options::new("/data", "/log")
    }
}

fn open_with(fs: &SimFileSystem, options: Options) -> Result<Storage, StorageError> {
    open_at(fs, options, Arc::new(ManualClock::default()))
}

fn open_at(
    fs: &SimFileSystem,
    options: Options,
    clock: Arc<ManualClock>,
) -> Result<Storage, StorageError> {
    let components = Components { fs: Arc::new(fs.clone()), clock, events: Events::ignored() };
    let families = ["Authors", "Editors"].map(|name| {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let (keyspace, name) = ("Blog".into(), name.into());
        Arc::new(ColumnFamilySchema { keyspace, name, kind, comment: None })
    });
    let (schema, partitioner) = (Arc::new(Schema::new(families)), Partitioner::OrderPreserving);
    let options_of = |_| FamilyOptions::default();
    Storage::open_without_threads(components, options, partitioner, schema, options_of)
}

fn write(storage: &Storage, family: FamilyId, key: &str) -> Result<Applied, WriteError> {
    write_at(storage, family, key, 1)
}

fn write_at(
    storage: &Storage,
    family: FamilyId,
    key: &str,
    timestamp: i64,
) -> Result<Applied, WriteError> {
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    mutation.family(family).insert((b"", b"name"), b"value", timestamp);
    storage.apply(&mutation.finish(), true)
}

fn is_written(storage: &Storage, family: FamilyId) -> bool {
    let view = storage.store(family).view();
    view.flushing.is_empty() && view.active.is_empty()
}

/// What an operator may ask for that flushes.
type Flush = fn(&Storage) -> bool;

const FLUSHES: [Flush; 2] =
    [|storage| storage.flush(FAMILIES[0]).is_ok(), |storage| storage.snapshot(None, None).is_ok()];

#[test]
fn a_flush_on_request_that_fails_stops_writing_to_its_family_alone() {
    for flush in FLUSHES {
        for operation in [FileOperation::Write, FileOperation::Sync] {
            let fs = SimFileSystem::new(1);
            let storage = open(&fs).unwrap();
            for family in FAMILIES {
                write(&storage, family, "ada").unwrap();
            }
            fs.inject(Fault::next(operation, Errno::IO).on("Authors-"));
            assert!(!flush(&storage), "the caller hears of it");
            assert_eq!(kinds(&storage), [TroubleKind::FamilyFailed]);
            let refused = write(&storage, FAMILIES[0], "bob").unwrap_err();
            assert!(refused.to_string().contains("takes no more writes"), "{refused}");
            write(&storage, FAMILIES[1], "bob").unwrap();
            // What was switched for the snapshot is on disk, or still in the active memtable.
            assert!(storage.store(FAMILIES[1]).view().flushing.is_empty());
        }
    }
}

#[test]
fn a_flush_on_request_for_which_there_is_no_room_is_done_later() {
    for flush in FLUSHES {
        let fs = SimFileSystem::new(1);
        let storage = open(&fs).unwrap();
        for family in FAMILIES {
            write(&storage, family, "ada").unwrap();
        }
        fs.inject(Fault { times: 2, ..Fault::next(FileOperation::Create, Errno::NOSPC) }.on("-"));
        assert!(!flush(&storage), "the caller hears of it");
        write(&storage, FAMILIES[0], "bob").unwrap();
        let spawn = |_: &str, body| Ok(std::thread::spawn(body));
        storage.start_threads(1, 1, &spawn).unwrap();
        let is_written = || {
            std::thread::sleep(Duration::from_millis(10));
            is_written(&storage, FAMILIES[0])
        };
        assert!((0..6000).any(|_| is_written()), "nobody has tried again");
        assert_eq!(kinds(&storage), []);
    }
}

/// Several writers notice that a memtable is full, and one of them may ask when it is switched.
#[test]
fn who_asks_too_late_for_the_flush_of_a_full_memtable_gets_none() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    let family = FAMILIES[0];
    write(&storage, family, "few").unwrap();
    let store = storage.shared.store(family);
    for cause in [FlushCause::Operations, FlushCause::Throughput] {
        storage.shared.flush(store, cause).unwrap();
        assert!(!is_written(&storage, family), "{cause:?}");
    }
    storage.shared.flush(store, FlushCause::Memory).unwrap();
    assert!(is_written(&storage, family));
}

#[test]
fn a_start_that_gets_too_few_threads_leaves_nothing_behind() {
    let fs = SimFileSystem::new(1);
    for number in 0..4_u32 {
        let storage = open(&fs).expect("the locks are free");
        let (shared, left) = (Arc::downgrade(&storage.shared), Cell::new(number));
        let spawn = |_: &str, body| {
            let more = left.get().checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
            left.set(more);
            Ok(std::thread::spawn(body))
        };
        let refused = storage.start_threads(2, 2, &spawn).unwrap_err();
        assert!(matches!(refused, StorageError::Thread(_)), "{refused}");
        drop(storage);
        assert_eq!(shared.strong_count(), 0, "no thread of {number} runs");
    }
}

#[test]
fn a_thread_that_panics_begins_anew_until_the_storage_is_closed() {
    let (runs, rests) = (Cell::new(0), Cell::new(0));
    let run = || {
        runs.set(runs.get() + 1);
        assert!(runs.get() >= 3, "on purpose");
    };
    let rest = || {
        rests.set(rests.get() + 1);
        true
    };
    keep_going("flush", run, rest);
    assert_eq!((runs.get(), rests.get()), (3, 2));
    keep_going("flush", || panic!("on purpose"), || false);
}

/// On a busy machine a thread may get to run long after it was started.
#[test]
fn what_was_due_before_the_housekeeper_came_is_done() {
    let clock = Arc::new(ManualClock::default());
    let storage = open_at(&SimFileSystem::new(1), options(&["/data"]), clock.clone()).unwrap();
    write(&storage, FAMILIES[0], "ada").unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    let mut deletion = MutationBuilder::new(storage.schema(), "Blog", b"ada");
    deletion.family(FAMILIES[0]).delete_row(Deletion::at(2, 0));
    storage.apply(&deletion.finish(), true).unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    // Nobody is asked any more to look at the family.
    storage.shared.compactions.take_due(&mut 0, Duration::ZERO);
    clock.advance(Duration::from_hours(24 * 30));
    let spawn = |_: &str, body| Ok(std::thread::spawn(body));
    storage.start_threads(1, 1, &spawn).unwrap();
    let is_gone = || {
        std::thread::sleep(Duration::from_millis(10));
        storage.store(FAMILIES[0]).view().tables.is_empty()
    };
    assert!((0..6000).any(|_| is_gone()), "nobody has looked");
}

#[test]
fn a_family_that_is_being_compacted_is_not_forgiven_its_last_failure() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    let shared = &storage.shared;
    write(&storage, FAMILIES[0], "ada").unwrap();
    storage.flush(FAMILIES[0]).unwrap();
    assert!(shared.compactions.postpone(FAMILIES[0], Duration::ZERO));
    let claim = storage.store(FAMILIES[0]).claim(|tables| Some(tables.free.clone())).unwrap();
    let (waiting, best) = shared.choose(vec![FAMILIES[0]], Takes::All);
    assert!(waiting.is_empty() && best.is_none());
    assert!(shared.compactions.is_failing(FAMILIES[0]), "it may fail again");
    drop(claim);
    shared.choose(vec![FAMILIES[0]], Takes::All);
    assert!(!shared.compactions.is_failing(FAMILIES[0]), "there is nothing to merge");
}

#[test]
fn rows_in_which_nothing_is_visible_take_room_in_the_answer() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    for number in 0..10 {
        write(&storage, FAMILIES[0], &format!("row {number}")).unwrap();
    }
    let (none, all) = (Slice::range(None, b"x", b"", false, 1), RowRange::all());
    let scan = |context: &RequestContext| {
        let found = storage.scan_within(FAMILIES[0], &all, &none, 100, context, Access::Cached);
        found.map(|rows| rows.len())
    };
    let context = RequestContext::new(2000);
    assert_eq!(scan(&context).unwrap(), 10);
    assert!(matches!(scan(&context), Err(ReadError::TooLarge(_))), "both are one answer");
    let read = |context: &RequestContext, key: &str| {
        let access = Access::CachedOnly;
        storage.read_within(FAMILIES[0], &RowKey::from(key), &none, context, access)
    };
    let context = RequestContext::new(300);
    assert_eq!(read(&context, "row 1").unwrap().count, 0);
    assert_eq!(read(&context, "no such row").unwrap().count, 0);
    assert!(matches!(read(&context, "row 2"), Err(ReadError::TooLarge(_))));
}

/// What a read may do on the thread of a connection is bounded, so a read that succeeds there has
/// looked at few of its names, or at few cells of the row.
#[test]
fn a_read_by_names_costs_no_more_than_the_names_or_the_cells_of_the_row() {
    let storage = open(&SimFileSystem::new(1)).unwrap();
    let name = |number: usize| format!("{number:06}");
    for (key, columns) in [("narrow", 3), ("wide", 5_000)] {
        let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
        let family = mutation.family(FAMILIES[0]);
        for number in 0..columns {
            family.insert((b"", name(number * 7).as_bytes()), b"value", 1);
        }
        storage.apply(&mutation.finish(), true).unwrap();
    }
    let found = |key: &str, names: &[String]| {
        let schema = storage.schema().family(FAMILIES[0]);
        let slice = Slice::names(schema, None, names.iter().map(String::as_bytes));
        let context = RequestContext::default();
        let key = RowKey::from(key);
        let (family, access) = (FAMILIES[0], Access::CachedOnly);
        // Brings blocks of files into the cache.
        storage.read(family, &key, &slice, Access::Cached).unwrap();
        let version = storage.read_version(family, &key, &slice, &context, access).unwrap();
        let row = storage.read(family, &key, &slice, access).unwrap();
        assert_eq!(version.cells.len(), row.count);
        row.count
    };
    let many: Vec<String> = (0..100_000).map(name).collect();
    let few = [name(7), name(8), name(7_000), name(34_993)];
    for _ in 0..2 {
        assert_eq!((found("narrow", &many), found("wide", &few)), (3, 3));
        storage.flush(FAMILIES[0]).unwrap();
    }
}

/// One row in each column family, each in its SSTable of number 1.
fn two_files(timestamp: i64) -> SimFileSystem {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    for family in FAMILIES {
        write_at(&storage, family, "ada", timestamp).unwrap();
        storage.flush(family).unwrap();
    }
    drop(storage);
    fs
}

fn copy((fs, from): (&SimFileSystem, &str), (to_fs, to): (&SimFileSystem, &str)) {
    let (content, to) = (fs.read(from.as_ref()).unwrap(), Path::new(to));
    if to_fs.exists(to) {
        to_fs.remove_file(to).unwrap();
    }
    to_fs.create(to).unwrap().write_all_at(&content, 0).unwrap();
}

#[track_caller]
fn refused(opened: Result<Storage, StorageError>, texts: &[&str]) {
    let error = opened.map(drop).unwrap_err().to_string();
    for text in texts {
        assert!(error.contains(text), "{text}: {error}");
    }
}

const AUTHORS: &str = "/data/Blog/Authors-1.sst";
const EDITORS: &str = "/data/Blog/Editors-1.sst";

#[test]
fn files_of_another_family_or_time_are_refused_however_alike_they_are() {
    let (fs, later) = (two_files(1), two_files(2));
    let sizes = [(&fs, AUTHORS), (&fs, EDITORS), (&later, AUTHORS)]
        .map(|(fs, path)| fs.open(path.as_ref()).unwrap().size().unwrap());
    assert!(sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
    let other = fs.fork();
    copy((&fs, EDITORS), (&other, AUTHORS));
    let texts = [AUTHORS, "was written for Blog.Editors", "the files of Blog.Authors", "export"];
    refused(open(&other), &texts);
    let stale = fs.fork();
    copy((&later, AUTHORS), (&stale, AUTHORS));
    refused(open(&stale), &[AUTHORS, "/data/Blog/Authors.manifest", "Put the right one back"]);
    copy((&fs, AUTHORS), (&stale, AUTHORS));
    assert!(open(&stale).is_ok());
}

#[test]
fn two_manifests_of_a_family_are_refused() {
    let fs = two_files(1);
    drop(open_in(&fs, &["/data", "/more"]).unwrap());
    let manifests = ["/data/Blog/Authors.manifest", "/more/Blog/Authors.manifest"];
    copy((&fs, manifests[0]), (&fs, manifests[1]));
    refused(open_in(&fs, &["/data", "/more"]), &manifests);
    fs.remove_file(manifests[0].as_ref()).unwrap();
    assert!(open_in(&fs, &["/data", "/more"]).is_ok(), "it may be in any directory");
}

#[test]
fn of_two_files_of_a_number_the_one_that_is_meant_counts() {
    let (fs, later) = (two_files(1), two_files(2));
    let elsewhere = "/more/Blog/Authors-1.sst";
    drop(open_in(&fs, &["/data", "/more"]).unwrap());
    for (first, second) in [(&later, &fs), (&fs, &later)] {
        let both = fs.fork();
        copy((first, AUTHORS), (&both, AUTHORS));
        copy((second, AUTHORS), (&both, elsewhere));
        let storage = open_in(&both, &["/data", "/more"]).unwrap();
        let (key, all) = (RowKey::from("ada"), Slice::all(None));
        let row = storage.read(FAMILIES[0], &key, &all, Access::Cached);
        assert_eq!(row.unwrap().cells[0].timestamp(), 1);
    }
    copy((&fs, AUTHORS), (&fs, elsewhere));
    refused(open_in(&fs, &["/data", "/more"]), &[AUTHORS, elsewhere, "out of the way"]);
}

#[test]
fn what_cannot_be_looked_for_does_not_pass_for_absent() {
    let fs = two_files(1);
    for name in ["alexandra.restoring", "Authors.manifest"] {
        let broken = fs.fork();
        broken.inject(Fault::next(FileOperation::Exists, Errno::IO).on(name));
        refused(open(&broken), &["cannot look for /data", name]);
        assert!(open(&broken).is_ok());
    }
}

#[test]
fn a_commit_log_that_has_stopped_is_told_without_a_further_write() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    write(&storage, FAMILIES[0], "ada").unwrap();
    assert!(storage.log_failure().is_none());
    fs.inject(Fault::next(FileOperation::Sync, Errno::IO).on("CommitLog-"));
    storage.sync().unwrap_err();
    let failure = storage.log_failure().unwrap().to_string();
    assert!(failure.contains("the commit log has stopped, it could not sync /log"), "{failure}");
    assert_eq!(kinds(&storage), [TroubleKind::LogStopped]);
}

fn kinds(storage: &Storage) -> Vec<TroubleKind> {
    storage.troubles().iter().map(|trouble| trouble.kind).collect()
}

#[test]
fn a_memtable_that_waits_for_room_is_a_trouble_until_it_is_written() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    write(&storage, FAMILIES[0], "ada").unwrap();
    fs.inject(Fault::next(FileOperation::Write, Errno::NOSPC).on("Authors-"));
    storage.flush(FAMILIES[0]).unwrap_err();
    assert_eq!(kinds(&storage), [TroubleKind::FlushWaits]);
    storage.flush(FAMILIES[0]).unwrap();
    assert_eq!(kinds(&storage), []);
}

#[test]
fn a_full_disk_is_a_trouble_until_there_is_room_even_if_nobody_writes() {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    assert_eq!(kinds(&storage), []);
    fs.set_capacity(Some(0));
    let refused = (0..10_000).find_map(|_| write(&storage, FAMILIES[0], "ada").err());
    assert!(matches!(refused, Some(WriteError::Log(LogError::NoSpace { .. }))), "{refused:?}");
    assert_eq!(kinds(&storage), [TroubleKind::NoRoom]);
    // There is room, but not for this: a quota, or a limit on the size of files.
    fs.set_capacity(None);
    fs.inject(Fault::next(FileOperation::Allocate, Errno::DQUOT).on("CommitLog-"));
    storage.shared.look_for_room();
    assert_eq!(kinds(&storage), [TroubleKind::NoRoom]);
    assert_eq!(kinds(&storage), [TroubleKind::NoRoom], "to ask changes nothing");
    storage.shared.look_for_room();
    assert_eq!(kinds(&storage), []);
    storage.stop_writes();
    assert_eq!(kinds(&storage), [TroubleKind::Drained]);
}

#[test]
fn a_damaged_block_that_another_node_copies_is_a_trouble() {
    let by_range = |storage: &Storage| {
        storage.read_piece(FAMILIES[0], &RowRange::all(), None, 1 << 20).unwrap_err()
    };
    let by_rows = |storage: &Storage| {
        let keys = [Partitioner::OrderPreserving.decorate(RowKey::from("ada"))];
        storage.read_rows_piece(FAMILIES[0], &keys, None, 1 << 20).unwrap_err()
    };
    for copy in [&by_range as &dyn Fn(&Storage) -> ReadError, &by_rows] {
        let fs = two_files(1);
        fs.corrupt(AUTHORS.as_ref(), 16, 8).unwrap();
        let storage = open(&fs).unwrap();
        assert_eq!(kinds(&storage), []);
        copy(&storage);
        assert_eq!(kinds(&storage), [TroubleKind::Damaged]);
    }
}

#[test]
fn a_start_that_is_refused_tells_the_way_out() {
    let fs = two_files(1);
    let size = fs.open(AUTHORS.as_ref()).unwrap().size().unwrap();
    let scrub = "`alexandra sstable scrub --config CONF Blog Authors`";
    // The footer, and the properties before it.
    for offset in [size - 20, size - 60] {
        let damaged = fs.fork();
        damaged.corrupt(AUTHORS.as_ref(), offset, 1).unwrap();
        refused(open(&damaged), &["Authors-1.sst is damaged at byte ", scrub]);
    }
    let cut = fs.fork();
    cut.open(AUTHORS.as_ref()).unwrap().set_size(size - 1).unwrap();
    refused(open(&cut), &["Authors-1.sst has ", scrub]);
    let accept = "`alexandra sstable scrub --accept-loss --config CONF Blog Authors`";
    let lost = fs.fork();
    lost.remove_file(AUTHORS.as_ref()).unwrap();
    refused(open(&lost), &["Authors-1.sst of Blog.Authors is missing", accept]);
    let manifest = Path::new("/data/Blog/Authors.manifest");
    let unknown = fs.fork();
    unknown.corrupt(manifest, 5, 1).unwrap();
    refused(open(&unknown), &["Authors.manifest is damaged at byte ", accept]);
    unknown.remove_file(manifest).unwrap();
    refused(
        open_in(&unknown, &["/more", "/data"]),
        &["/data/Blog has SSTables of Blog.Authors", accept],
    );
}

#[test]
fn rows_are_sampled_in_memory_and_on_disk() {
    const ROWS: u64 = 1000;
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    let range = |from: &str, to: &str| {
        let [start, end] = [from, to].map(|key| Token::ordered(key.as_bytes().into()));
        TokenRange { start, end }
    };
    let context = RequestContext::default();
    let samples = |from: &str, to: &str| storage.row_samples(range(from, to), &context).unwrap();
    let rows = |from: &str, to: &str| samples(from, to).rows();
    assert_eq!(rows("", ""), 0);
    for number in 0..ROWS {
        write(&storage, FAMILIES[0], &format!("row {number:03}")).unwrap();
    }
    let interval = FamilyOptions::default().index_interval;
    let keys_per_part = NonZero::new(2 * interval as i32).unwrap();
    let parts = ROWS as usize / (2 * interval);
    let about_half = |found: u64| found.abs_diff(ROWS / 2) <= interval as u64;
    // The same estimate, wherever they are.
    for flushes in 0..2 {
        assert_eq!(rows("", ""), ROWS);
        // No sample is larger than it may be.
        assert_eq!(samples("", "").splits(keys_per_part).len(), parts + 1);
        assert!(about_half(rows("row 499", "row 999")), "after {flushes} flushes");
        let middle = samples("", "").middle().expect("there are enough samples");
        assert!(
            range("row 250", "row 750").contains(&middle),
            "after {flushes} flushes: {middle:?}"
        );
        assert_eq!(rows("s", "t"), 0);
        storage.flush(FAMILIES[0]).unwrap();
    }
    // Rows of all column families count.
    write(&storage, FAMILIES[1], "row 000").unwrap();
    assert_eq!(rows("", ""), ROWS + 1);
}
