//! Snapshots, the archive of the commit log, and restores.

use crate::kit::disk::{Fault, Operation, Survival};
use crate::storage_model::rig::{
    ARCHIVE, BATCH, KEYSPACE, LOG, Outcome, PERIODIC, Rig, Setup, insertion,
};
use alexandra::base::fs::FileSystem;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use alexandra::storage::database::StorageError;
use alexandra::storage::restore::{Request, RestoreError};
use alexandra::storage::snapshot::SnapshotError;
use fastrand::Rng;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Every column has this name, which suits all comparators.
const NAME: &str = "12345678";

fn setup() -> Setup {
    Setup { data_directories: 2, min_compaction_threshold: 0, ..Setup::default() }
}

fn with_archive() -> Setup {
    Setup { archives: true, ..setup() }
}

/// A restore of a snapshot as it is.
fn plain(snapshot: &str) -> Request {
    Request { snapshot: snapshot.into(), command: "repeat".into(), ..Request::default() }
}

/// A restore of a snapshot and of what the newest folder of the archive has.
fn replaying(snapshot: &str, until_millis: Option<u64>) -> Request {
    replaying_folder(ARCHIVE, snapshot, until_millis)
}

fn replaying_folder(
    folder: impl Into<PathBuf>,
    snapshot: &str,
    until_millis: Option<u64>,
) -> Request {
    Request { archive: Some(folder.into()), until_millis, ..plain(snapshot) }
}

/// The snapshot with which the newest folder of the archive begins.
fn first_snapshot(rig: &Rig) -> String {
    format!("archive-{}", rig.archive_folder().file_name().unwrap().to_str().unwrap())
}

fn millis(rig: &Rig) -> u64 {
    alexandra::base::clock::Clock::coarse_millis(&*rig.clock)
}

fn restore(rig: &Rig, request: &Request) {
    if let Err(error) = rig.restore(request, false) {
        panic!("{request:?}: {error}");
    }
}

fn value(rig: &Rig, key: &str) -> Option<String> {
    rig.get(0, key, NAME).map(|value| String::from_utf8(value).unwrap())
}

fn put(rig: &Rig, key: &str, timestamp: i64, value: &str) {
    rig.insert(0, key, (NAME, timestamp), value.as_bytes());
}

fn list(rig: &Rig, directory: impl AsRef<Path>) -> Vec<String> {
    let Ok(entries) = rig.disk.list(directory.as_ref()) else { return Vec::new() };
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// Folders of snapshots in all data directories, finished or not.
fn snapshot_folders(rig: &Rig) -> Vec<String> {
    let directories = 0..rig.setup.data_directories;
    directories.flat_map(|i| list(rig, format!("/var/data{i}/{KEYSPACE}/snapshots"))).collect()
}

fn segments(rig: &Rig, directory: impl AsRef<Path>) -> Vec<String> {
    let mut names = list(rig, directory);
    names.retain(|name| name.starts_with("CommitLog-"));
    names
}

#[test]
fn a_snapshot_is_what_was_there_whatever_happens_later() {
    let mut rig = Rig::new(setup(), 1);
    put(&rig, "kept", 1, "first");
    put(&rig, "deleted later", 1, "first");
    put(&rig, "deleted before", 1, "first");
    rig.storage().flush(FamilyId(0)).unwrap();
    rig.delete(0, "deleted before", NAME, 2);
    let mut below = insertion("a", 1, b"below");
    below.target = crate::storage_model::model::Target::Column(NAME.into(), b"a".to_vec());
    let outcome = rig.write(b"super", &[(1, vec![below])]);
    assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    let name = rig.snapshot("before");
    assert_eq!(name, format!("{}-before", millis(&rig)));

    put(&rig, "kept", 2, "second");
    put(&rig, "later", 1, "x");
    rig.delete(0, "deleted later", NAME, 2);
    rig.clock.advance(Duration::from_secs(100));
    rig.storage().flush(FamilyId(0)).unwrap();
    rig.storage().compact(FamilyId(0)).unwrap();
    let mut listed = rig.storage().snapshots().unwrap();
    for _ in 0..1000 {
        if listed[0].exclusive_bytes > 1000 {
            break;
        }
        // Another thread may hold the replaced files for a moment.
        std::thread::sleep(Duration::from_millis(5));
        listed = rig.storage().snapshots().unwrap();
    }
    assert_eq!(listed.len(), 1);
    assert!(listed[0].exclusive_bytes > 1000, "compaction has replaced its files: {listed:?}");
    assert!(listed[0].total_bytes > listed[0].exclusive_bytes, "but not those of others");
    let before = rig.storage().family(FamilyId(0)).new_path().unwrap().0;
    put(&rig, "later still", 1, "x");
    rig.kill();

    let dry = Request { dry_run: true, ..plain("before") };
    let planned = rig.restore(&dry, false).unwrap();
    let mut after_dry = rig.fork();
    after_dry.open().unwrap();
    assert_eq!(value(&after_dry, "later still").as_deref(), Some("x"), "nothing has changed");

    let done = rig.restore(&plain("before"), false).unwrap();
    assert_eq!((planned.keyspaces, planned.moved_to), (done.keyspaces, done.moved_to.clone()));
    assert!(done.moved_to.iter().all(|folder| !list(&rig, folder).is_empty()));
    assert!(done.moved_to.iter().any(|folder| folder.starts_with(LOG)));
    assert_eq!((planned.archived_segments, done.archived_segments), (0, 0), "no archive");
    rig.open().unwrap();
    assert_eq!(value(&rig, "kept").as_deref(), Some("first"));
    assert_eq!(value(&rig, "deleted later").as_deref(), Some("first"));
    for key in ["deleted before", "later", "later still"] {
        assert_eq!(value(&rig, key), None, "{key}");
    }
    let all = crate::storage_model::model::Filter::Range {
        start: Vec::new(),
        finish: Vec::new(),
        reversed: false,
        limit: 10,
    };
    let slice = rig.slice(1, &crate::storage_model::model::Query { super_name: None, filter: all });
    assert_eq!(rig.read(1, b"super", &slice).unwrap().count, 1);
    let after = rig.storage().family(FamilyId(0)).new_path().unwrap().0;
    assert!(after >= before, "{after} names another file than before the restore");
    // The snapshot is there still, and can be restored again.
    put(&rig, "kept", 9, "new");
    rig.close();
    restore(&rig, &plain(&name));
    rig.open().unwrap();
    assert_eq!(value(&rig, "kept").as_deref(), Some("first"));
}

#[test]
fn a_compaction_is_preceded_by_a_snapshot_if_that_is_wanted() {
    let mut rig = Rig::new(Setup { snapshot_before_compaction: true, ..setup() }, 1);
    rig.storage().compact(FamilyId(0)).unwrap();
    assert!(rig.storage().snapshots().unwrap().is_empty(), "there was nothing to compact");
    for n in 0..3 {
        put(&rig, "a", n, &n.to_string());
        rig.storage().flush(FamilyId(0)).unwrap();
    }
    rig.storage().compact(FamilyId(0)).unwrap();
    let taken = rig.storage().snapshots().unwrap();
    assert_eq!(taken.len(), 1);
    assert!(taken[0].name.is_meant_by("compact-Authors"), "{taken:?}");
    put(&rig, "a", 9, "later");
    rig.close();
    restore(&rig, &plain("compact-Authors"));
    rig.open().unwrap();
    assert_eq!(value(&rig, "a").as_deref(), Some("2"));
    assert_eq!(rig.storage().family(FamilyId(0)).view().tables.len(), 3, "as before");

    // Without it the compaction does not happen.
    rig.disk.inject(Fault::next(Operation::HardLink, Errno::NOSPC));
    let refused = rig.storage().compact(FamilyId(0)).unwrap_err().to_string();
    assert!(refused.contains("cannot link"), "{refused}");
    assert_eq!(rig.storage().family(FamilyId(0)).view().tables.len(), 3);
    rig.storage().compact(FamilyId(0)).unwrap();
}

/// Every operation of a snapshot fails once: nothing is left of it, and the next one succeeds.
#[test]
fn a_snapshot_that_fails_leaves_nothing() {
    let operations = [
        Operation::CreateDir,
        Operation::HardLink,
        Operation::Create,
        Operation::Write,
        Operation::Sync,
        Operation::Rename,
    ];
    for operation in operations {
        for skip in 0.. {
            let mut rig = Rig::new(setup(), skip);
            for family in [0, 2] {
                rig.insert(family, "a", (NAME, 1), b"x");
                rig.storage().flush(FamilyId(family)).unwrap();
            }
            let fault = Fault::nth(operation, skip, Errno::NOSPC).on("snapshots");
            rig.disk.inject(fault);
            let taken = rig.storage().snapshot(None, Some("t"));
            let Err(error) = taken else {
                assert!(skip > 0, "{operation:?} is never asked for");
                break;
            };
            assert!(matches!(error, SnapshotError::File(_)), "{operation:?} {skip}: {error}");
            assert!(snapshot_folders(&rig).is_empty(), "{operation:?} {skip}");
            rig.snapshot("t");
            rig.insert(0, "a", (NAME, 2), b"y");
            rig.close();
            rig.open().unwrap();
            assert_eq!(rig.storage().snapshots().unwrap().len(), 1);
            assert_eq!(value(&rig, "a").as_deref(), Some("y"));
        }
    }
}

/// Power fails after each change of a snapshot, and of its removal.
#[test]
fn a_snapshot_that_a_crash_cuts_off_is_whole_or_gone() {
    for survival in [Survival::Nothing, Survival::Partly, Survival::Everything] {
        let mut whole = 0;
        for changes in 0.. {
            let mut rng = Rng::with_seed(changes);
            let mut rig = Rig::new(Setup { sync: BATCH, ..setup() }, changes);
            for n in 0..4 {
                put(&rig, &n.to_string(), 1, "x");
                rig.storage().flush(FamilyId(0)).unwrap();
            }
            put(&rig, "unflushed", 1, "x");
            rig.disk.power_off_after(changes);
            let taken = rig.storage().snapshot(None, Some("t"));
            let cleared = taken.is_ok() && rig.storage().clear_snapshots(None, None).is_ok();
            rig.crash(survival, &mut rng);
            rig.open().unwrap();
            assert_eq!(value(&rig, "unflushed").as_deref(), Some("x"));
            let found = rig.storage().snapshots().unwrap();
            rig.close();
            if found.is_empty() {
                assert!(snapshot_folders(&rig).is_empty(), "{changes}");
            } else {
                whole += 1;
                assert!(!cleared, "{changes}");
                restore(&rig, &plain("t"));
                rig.open().unwrap();
                for key in ["0", "1", "2", "3", "unflushed"] {
                    assert_eq!(value(&rig, key).as_deref(), Some("x"), "{changes} {key}");
                }
            }
            if cleared {
                assert!(whole > 0 && changes > 15, "{whole} of {changes}");
                break;
            }
        }
        assert!(whole > 0);
    }
    let mut rig = Rig::new(setup(), 1);
    rig.snapshot("t");
    rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert_eq!(rig.storage().snapshots().unwrap().len(), 1, "it was durable");
}

/// Snapshots during writes, flushes and compactions: each is of one moment.
#[test]
fn snapshots_of_a_busy_store_are_of_one_moment_each() {
    let setup = Setup { sync: PERIODIC, min_compaction_threshold: 2, ..setup() };
    let rig = Rig::new(setup, 1);
    let (is_over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // In both families, or in none.
                let write = || vec![insertion(NAME, 1, b"x")];
                let key = format!("{n:06}");
                let outcome = rig.write(key.as_bytes(), &[(0, write()), (2, write())]);
                assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        for n in 0..8 {
            let before = written.load(Ordering::Relaxed);
            while written.load(Ordering::Relaxed) < before + 20 && !writer.is_finished() {
                std::thread::yield_now();
            }
            rig.snapshot(&n.to_string());
            rig.storage().compact(FamilyId(2 * (n % 2))).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let mut last = 0;
    for n in 0..8 {
        let mut copy = rig.fork();
        restore(&copy, &plain(&n.to_string()));
        copy.open().unwrap();
        let is_there =
            |family: u32, row: usize| copy.get(family, &format!("{row:06}"), NAME).is_some();
        let count = (0..1_000_000).take_while(|row| is_there(0, *row)).count();
        assert!(count >= last + 20, "{count} rows after {last}");
        last = count;
        assert!((0..count).all(|row| is_there(2, row)), "snapshot {n}: a half of a mutation");
        assert!(!is_there(2, count) && !is_there(0, count + 1), "snapshot {n}: {count}");
    }
}

/// A restore that was cut off somewhere is refused until it is complete.
#[test]
fn a_restore_that_is_cut_off_is_repeated() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    put(&rig, "a", 1, "snapshot");
    rig.storage().flush(FamilyId(0)).unwrap();
    put(&rig, "b", 1, "snapshot");
    rig.snapshot("t");
    put(&rig, "a", 2, "log");
    rig.clock.advance(Duration::from_secs(10));
    let until = millis(&rig) - 1;
    put(&rig, "a", 3, "too late");
    rig.storage().flush(FamilyId(0)).unwrap();
    put(&rig, "b", 3, "too late");
    rig.kill();
    let request = replaying_folder(rig.archive_folder(), "t", Some(until));
    let (mut refused, mut complete) = (0, false);
    for changes in 0.. {
        let mut rng = Rng::with_seed(changes);
        let mut case = rig.fork();
        case.disk.power_off_after(changes);
        let restored = case.restore(&request, false);
        complete = restored.is_ok();
        let survival =
            [Survival::Nothing, Survival::Partly, Survival::Everything][changes as usize % 3];
        case.disk.power_off();
        case.disk.crash_keeping(survival, &mut rng);
        match case.open() {
            Ok(()) => {
                let found = (value(&case, "a"), value(&case, "b"));
                let before = (Some("too late".to_owned()), Some("too late".to_owned()));
                let after = (Some("log".to_owned()), Some("snapshot".to_owned()));
                let expected = if complete { [&after, &after] } else { [&before, &after] };
                assert!(expected.contains(&&found), "{changes}: {found:?}");
                case.close();
            }
            Err(StorageError::Restoring(mark)) => {
                refused += 1;
                assert!(!complete, "{changes}");
                let text = String::from_utf8(case.disk.read(&mark).unwrap()).unwrap();
                assert!(text.contains("repeat"), "{text}");
            }
            Err(other) => panic!("{changes}: {other}"),
        }
        if let Err(error) = case.restore(&request, false) {
            panic!("{changes}: {error}");
        }
        case.open().unwrap();
        assert_eq!(value(&case, "a").as_deref(), Some("log"), "{changes}");
        assert_eq!(value(&case, "b").as_deref(), Some("snapshot"), "{changes}");
        put(&case, "new", 1, "new line");
        case.close();
        // What was undone stays so, however often the restore was repeated.
        restore(&case, &replaying(&first_snapshot(&case), None));
        case.open().unwrap();
        assert_eq!(value(&case, "a").as_deref(), Some("log"), "{changes}");
        assert_eq!(value(&case, "b").as_deref(), Some("snapshot"), "{changes}");
        assert_eq!(value(&case, "new").as_deref(), Some("new line"), "{changes}");
        case.close();
        if complete {
            break;
        }
    }
    assert!(complete && refused > 20, "{refused}");
}

#[test]
fn a_restore_goes_to_a_point_in_time_and_begins_a_history_of_its_own() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    put(&rig, "old", 1, "1");
    rig.snapshot("t");
    put(&rig, "a", 1, "A");
    rig.clock.advance(Duration::from_secs(5));
    let until = millis(&rig);
    rig.clock.advance(Duration::from_secs(5));
    put(&rig, "b", 1, "B");
    rig.delete(0, "a", NAME, 2);
    let mistake = rig.snapshot("mistake");
    // Some clean restarts and a kill in between.
    rig.close();
    rig.open().unwrap();
    put(&rig, "c", 1, "C");
    rig.kill();
    rig.open().unwrap();
    put(&rig, "d", 1, "D");
    rig.kill();

    let first = rig.archive_folder();
    let report = rig.restore(&replaying("t", Some(until)), false).unwrap();
    let replay = report.replay.unwrap();
    assert!(replay.reaches_time && replay.mutations == 1, "{replay:?}");
    assert!(replay.last_millis.is_some_and(|last| last <= until), "{replay:?}");
    assert_eq!(replay.folder, first);
    rig.open().unwrap();
    let is = |rig: &Rig, expected: &[(&str, Option<&str>)]| {
        for (key, expected) in expected {
            assert_eq!(value(rig, key).as_deref(), *expected, "{key}");
        }
    };
    is(&rig, &[("old", Some("1")), ("a", Some("A")), ("b", None), ("c", None), ("d", None)]);
    rig.clock.advance(Duration::from_secs(5));
    put(&rig, "e", 1, "E");
    rig.storage().flush(FamilyId(0)).unwrap();
    rig.clock.advance(Duration::from_secs(5));
    let second = millis(&rig);
    rig.clock.advance(Duration::from_secs(5));
    put(&rig, "f", 1, "F");
    rig.kill();

    // From the beginning of the new history to its end, again and again.
    assert_ne!(rig.archive_folder(), first);
    let mut again = rig.fork();
    restore(&again, &replaying(&first_snapshot(&again), None));
    again.open().unwrap();
    is(&again, &[("a", Some("A")), ("b", None), ("c", None), ("d", None)]);
    is(&again, &[("old", Some("1")), ("e", Some("E")), ("f", Some("F"))]);
    put(&again, "g", 1, "G");
    again.close();
    restore(&again, &replaying(&first_snapshot(&again), None));
    again.open().unwrap();
    is(&again, &[("a", Some("A")), ("b", None), ("f", Some("F")), ("g", Some("G"))]);
    again.close();

    let mut to_second = rig.fork();
    restore(&to_second, &replaying(&first_snapshot(&rig), Some(second)));
    to_second.open().unwrap();
    is(&to_second, &[("a", Some("A")), ("b", None), ("e", Some("E")), ("f", None)]);

    // A snapshot of the first history is followed by nothing of the second.
    for snapshot in ["t", &mistake] {
        let refused = rig.restore(&replaying(snapshot, None), false).unwrap_err();
        assert!(matches!(refused, RestoreError::Missing(_)), "{refused}");
        let mut undone = rig.fork();
        restore(&undone, &replaying_folder(&first, snapshot, None));
        undone.open().unwrap();
        is(&undone, &[("old", Some("1")), ("a", None), ("b", Some("B")), ("e", None)]);
        is(&undone, &[("c", Some("C")), ("d", Some("D")), ("f", None)]);
    }
    let mut left = rig.fork();
    restore(&left, &plain(&mistake));
    left.open().unwrap();
    is(&left, &[("a", None), ("b", Some("B")), ("c", None), ("e", None)]);

    let early = rig.restore(&replaying("mistake", Some(until)), false).unwrap_err();
    assert!(matches!(early, RestoreError::TooYoung(_)), "{early}");
}

/// Too early a time, or no archive, and then what was wanted in the first place.
#[test]
fn what_a_restore_has_undone_can_be_had_after_all() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    let later = |rig: &Rig| {
        rig.clock.advance(Duration::from_secs(5));
        millis(rig)
    };
    put(&rig, "old", 1, "1");
    rig.snapshot("t");
    put(&rig, "a", 1, "A");
    let early = later(&rig);
    later(&rig);
    put(&rig, "b", 1, "B");
    let late = later(&rig);
    later(&rig);
    put(&rig, "c", 1, "C");
    rig.kill();
    let folder = rig.archive_folder();
    for first in [replaying("t", Some(early)), plain("t")] {
        for is_used in [false, true] {
            let mut case = rig.fork();
            restore(&case, &first);
            if is_used {
                case.open().unwrap();
                put(&case, "d", 1, "D");
                case.close();
            }
            // Until the next start the folder is the newest one.
            let again = if is_used { folder.clone() } else { ARCHIVE.into() };
            let again = replaying_folder(again, "t", Some(late));
            for dry_run in [true, false] {
                let request = Request { dry_run, ..again.clone() };
                let report = case.restore(&request, false).unwrap().replay.unwrap();
                assert_eq!(report.mutations, if dry_run { 0 } else { 2 });
            }
            case.open().unwrap();
            let found = ["a", "b", "c", "d"].map(|key| value(&case, key).is_some());
            assert_eq!(found, [true, true, false, false]);
        }
    }
}

/// Of a node of two keyspaces one goes back. What the commit log holds for the other stays there.
/// What the log holds may continue the folder that is replayed, and would be left out in silence.
#[test]
fn a_log_whose_history_is_not_known_is_not_left_out_in_silence() {
    let mut rig = Rig::unopened(Setup { sync: BATCH, ..with_archive() }, 1);
    rig.open().unwrap();
    rig.storage().snapshot(Some(KEYSPACE), Some("t")).unwrap();
    put(&rig, "ada", 1, "kept");
    rig.kill();
    let file = Path::new("/var/data0/alexandra.archive");
    let content = rig.disk.read(file).unwrap();
    rig.disk.remove_file(file).unwrap();
    let refused = rig.restore(&replaying("t", None), false).unwrap_err();
    assert!(matches!(refused, RestoreError::UnknownHistory(_)), "{refused}");
    rig.disk.create(file).unwrap().write_all_at(&content, 0).unwrap();
    restore(&rig, &replaying("t", None));
    rig.open().unwrap();
    assert_eq!(value(&rig, "ada").as_deref(), Some("kept"));
}

#[test]
fn a_keyspace_that_is_not_restored_keeps_what_the_log_holds() {
    let mut rig = Rig::unopened(Setup { sync: BATCH, ..with_archive() }, 1);
    let own =
        ColumnFamilySchema { keyspace: "Own".into(), ..(**rig.schema.family(FamilyId(0))).clone() };
    let all = rig.schema.families().map(|(_, family)| Arc::clone(family));
    rig.schema = Arc::new(Schema::new(all.chain([Arc::new(own)]).collect::<Vec<_>>()));
    rig.open().unwrap();
    let write = |rig: &Rig, keyspace: &str, key: &str| {
        let mut row = MutationBuilder::new(&rig.schema, keyspace, key.as_bytes());
        row.family(rig.schema.family_id(keyspace, "Authors").unwrap());
        row.insert((b"", NAME.as_bytes()), b"x", 1);
        rig.storage().apply(&row.finish(), true).unwrap();
        rig.storage().sync().unwrap();
    };
    rig.storage().snapshot(Some(KEYSPACE), Some("t")).unwrap();
    write(&rig, KEYSPACE, "a");
    write(&rig, "Own", "a");
    rig.kill();
    let report = rig.restore(&plain("t"), false).unwrap();
    assert!(report.moved_to.iter().all(|folder| !folder.starts_with(LOG)), "{report:?}");
    rig.open().unwrap();
    assert!(rig.get(0, "a", NAME).is_none());
    assert!(rig.get(3, "a", NAME).is_some());
}

/// The newest file is in the snapshot: it must not be named as one that was replaced as well.
#[test]
fn a_restored_manifest_names_each_file_once() {
    let mut rig = Rig::new(setup(), 1);
    put(&rig, "a", 1, "A");
    rig.snapshot("t");
    rig.kill();
    restore(&rig, &plain("t"));
    let manifest = rig.disk.read(Path::new("/var/data0/Blog/Authors.manifest")).unwrap();
    let manifest = String::from_utf8(manifest).unwrap();
    assert!(manifest.contains("\nsstable 1 ") && !manifest.contains("obsolete"), "{manifest}");
}

#[test]
fn a_missing_or_damaged_segment_is_named_and_its_loss_can_be_accepted() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    rig.snapshot("t");
    for n in 0..60 {
        put(&rig, &format!("{n:02}"), 1, &"x".repeat(700));
        if n % 20 == 19 {
            rig.close();
            rig.open().unwrap();
        }
    }
    rig.close();
    let folder = rig.archive_folder();
    let archived = segments(&rig, &folder);
    assert!(archived.len() > 10, "{archived:?}");
    assert_eq!(segments(&rig, LOG).len(), 0, "a clean end leaves nothing behind");
    let count = |rig: &Rig| (0..60).filter(|n| value(rig, &format!("{n:02}")).is_some()).count();
    // All are there: the whole log can be replayed.
    let mut whole = rig.fork();
    restore(&whole, &replaying("t", None));
    whole.open().unwrap();
    assert_eq!(count(&whole), 60);

    for name in &archived {
        let case = rig.fork();
        let path = folder.join(name);
        case.disk.remove_file(&path).unwrap();
        match case.restore(&replaying("t", None), false) {
            Err(RestoreError::Missing(missing)) => assert_eq!(missing, [path], "{name}"),
            // The last one was closed in order, and nothing says that it ever was.
            other => assert!(other.is_ok() && Some(name) == archived.last(), "{other:?}"),
        }
        let mut accepted = rig.fork();
        accepted.disk.remove_file(&folder.join(name)).unwrap();
        accepted.restore(&replaying("t", None), true).unwrap();
        accepted.open().unwrap();
        let left = count(&accepted);
        assert!((50..=60).contains(&left), "{left}");
    }
    // A whole run.
    let case = rig.fork();
    let middle = &archived[archived.len() / 3..archived.len() * 2 / 3];
    for name in middle {
        case.disk.remove_file(&folder.join(name)).unwrap();
    }
    let refused = case.restore(&replaying("t", None), false).unwrap_err();
    assert!(matches!(refused, RestoreError::Missing(_)), "{refused}");

    let case = rig.fork();
    let path = folder.join(&archived[archived.len() / 2]);
    case.disk.corrupt(&path, 1500, 0x10).unwrap();
    match case.restore(&replaying("t", None), false) {
        Err(RestoreError::Damaged(damage)) => assert_eq!(damage.file, path),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_archive_does_not_take_stays_in_the_log() {
    let rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    let links = Fault { times: u64::MAX, ..Fault::next(Operation::HardLink, Errno::NOSPC) };
    rig.disk.inject(links.on("archive"));
    for n in 0..30 {
        put(&rig, &format!("{n:02}"), 1, &"x".repeat(700));
    }
    rig.storage().flush(FamilyId(0)).unwrap();
    assert_eq!(segments(&rig, rig.archive_folder()).len(), 0);
    assert!(segments(&rig, LOG).len() >= 6, "writes go on, nothing is discarded");
    let mut rig = rig;
    rig.close();
    let kept = segments(&rig, LOG);
    assert!(kept.len() >= 6, "{kept:?}");
    // The archive works again.
    rig.disk.crash_keeping(Survival::Everything, &mut Rng::with_seed(1));
    rig.open().unwrap();
    rig.close();
    let archived = segments(&rig, rig.archive_folder());
    assert!(kept.iter().all(|name| archived.contains(name)), "{kept:?} {archived:?}");
    assert_eq!(segments(&rig, LOG).len(), 0);
}

#[test]
fn an_archive_on_another_file_system_gets_copies() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    let links = Fault { times: u64::MAX, ..Fault::next(Operation::HardLink, Errno::XDEV) };
    rig.disk.inject(links.on("archive"));
    rig.snapshot("t");
    for n in 0..30 {
        put(&rig, &format!("{n:02}"), 1, &"x".repeat(700));
    }
    rig.kill();
    let links = Fault { times: u64::MAX, ..Fault::next(Operation::HardLink, Errno::XDEV) };
    rig.disk.inject(links.on("archive"));
    rig.open().unwrap();
    put(&rig, "last", 1, "x");
    rig.close();
    assert!(segments(&rig, rig.archive_folder()).len() > 6);
    assert_eq!(segments(&rig, LOG).len(), 0);
    rig.disk.crash_keeping(Survival::Nothing, &mut Rng::with_seed(1));
    restore(&rig, &replaying("t", None));
    rig.open().unwrap();
    assert!((0..30).all(|n| value(&rig, &format!("{n:02}")).is_some()));
    assert_eq!(value(&rig, "last").as_deref(), Some("x"));
}

/// A file that is in the way is neither overwritten nor taken for the segment.
#[test]
fn a_foreign_file_in_the_archive_keeps_the_segment_in_the_log() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    let first = segments(&rig, LOG).remove(0);
    let path = rig.archive_folder().join(&first);
    rig.disk.create(&path).unwrap().write_all_at(b"foreign", 0).unwrap();
    for n in 0..30 {
        put(&rig, &format!("{n:02}"), 1, &"x".repeat(700));
    }
    rig.close();
    assert_eq!(rig.disk.read(&path).unwrap(), b"foreign");
    assert!(segments(&rig, LOG).contains(&first));
    assert!(segments(&rig, rig.archive_folder()).len() > 4, "the others are there");
}

/// Data directories and log are put back from an older backup. What they go on to write must not
/// be mixed with what the archive has of later times.
#[test]
fn an_archive_that_is_ahead_of_the_data_is_not_continued() {
    let mut rig = Rig::new(Setup { sync: BATCH, ..with_archive() }, 1);
    put(&rig, "a", 1, "A");
    rig.close();
    let folder = rig.archive_folder();
    let mut old = rig.fork();
    rig.open().unwrap();
    assert_eq!(rig.archive_folder(), folder, "a restart goes on in the same folder");
    for n in 0..20 {
        put(&rig, &format!("{n:02}"), 1, &"x".repeat(700));
    }
    rig.close();
    let there = segments(&old, &folder);
    for name in segments(&rig, &folder).into_iter().filter(|name| !there.contains(name)) {
        let content = rig.disk.read(&folder.join(&name)).unwrap();
        old.disk.create(&folder.join(&name)).unwrap().write_all_at(&content, 0).unwrap();
    }
    old.open().unwrap();
    assert_ne!(old.archive_folder(), folder);
    put(&old, "b", 1, "B");
    old.close();
    restore(&old, &replaying(&first_snapshot(&old), None));
    old.open().unwrap();
    let found = ["a", "b", "00", "19"].map(|key| value(&old, key).is_some());
    assert_eq!(found, [true, true, false, false]);
}

#[test]
fn a_restore_refuses_the_log_of_another_server() {
    let mut rig = Rig::new(setup(), 1);
    put(&rig, "a", 1, "A");
    rig.snapshot("t");
    rig.kill();
    let mut other = Rig::new(setup(), 2);
    put(&other, "b", 1, "B");
    other.kill();
    let path = Path::new(LOG).join("CommitLog-99.alog");
    let content = other.disk.read(&Path::new(LOG).join(&segments(&other, LOG)[0])).unwrap();
    rig.disk.create(&path).unwrap().write_all_at(&content, 0).unwrap();
    for accepts_loss in [false, true] {
        let refused = rig.restore(&plain("t"), accepts_loss).unwrap_err();
        assert!(refused.to_string().contains("CommitLog-99.alog belongs to"), "{refused}");
    }
    rig.disk.remove_file(&path).unwrap();
    restore(&rig, &plain("t"));
}

#[test]
fn an_archive_without_room_does_not_refuse_a_first_start() {
    let mut rig = Rig::unopened(Setup { sync: BATCH, ..with_archive() }, 1);
    rig.disk.inject(Fault::next(Operation::CreateDir, Errno::NOSPC).on("archive/"));
    rig.open().unwrap();
    put(&rig, "a", 1, "A");
    rig.close();
    assert_eq!(segments(&rig, LOG), [""; 0], "the folder was made when there was room");
    assert_eq!(segments(&rig, rig.archive_folder()).len(), 1);
    let first = rig.archive_folder();
    rig.open().unwrap();
    assert_ne!(rig.archive_folder(), first, "it has no snapshot to begin with");
    assert_eq!(value(&rig, "a").as_deref(), Some("A"));
}

#[test]
fn an_archive_that_is_not_mounted_refuses_the_start() {
    let mut rig = Rig::new(with_archive(), 1);
    put(&rig, "a", 1, "A");
    rig.close();
    let folder = rig.archive_folder();
    for name in list(&rig, &folder) {
        rig.disk.remove_file(&folder.join(name)).unwrap();
    }
    rig.disk.remove_dir(&folder).unwrap();
    let refused = rig.open().unwrap_err();
    assert!(matches!(refused, StorageError::Archive(_)), "{refused}");
    assert!(refused.to_string().contains("mount the archive"), "{refused}");
    rig.disk.remove_file(Path::new("/var/data0/alexandra.archive")).unwrap();
    rig.open().unwrap();
    assert_eq!(value(&rig, "a").as_deref(), Some("A"));
}

/// A crash comes between the snapshot with which a history begins and its note.
#[test]
fn a_history_has_one_first_snapshot() {
    let mut rig = Rig::unopened(with_archive(), 1);
    rig.disk.inject(Fault::nth(Operation::Create, 1, Errno::NOSPC).on("alexandra.archive"));
    rig.open().unwrap();
    let first = rig.storage().snapshots().unwrap();
    rig.close();
    rig.clock.advance(Duration::from_secs(1));
    rig.open().unwrap();
    let second = rig.storage().snapshots().unwrap();
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].name, second[0].name);
    rig.close();
    rig.open().unwrap();
    assert_eq!(rig.storage().snapshots().unwrap(), second, "now it is noted");
}
