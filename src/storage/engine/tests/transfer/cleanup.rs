//! Rows that other nodes own are dropped, or all of a column family.

use super::ingest::{files, seen};
use super::pieces::KEYS;
use super::*;
use crate::kit::disk::Survival;
use crate::model::deletion::Deletion;
use crate::ring::TokenRange;
use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

/// The rows behind one key up to another; it may wrap.
fn between(storage: &Storage, start: &str, end: &str) -> Vec<RowRange> {
    let [start, end] = [start, end].map(|key| storage.partitioner().token(key.as_bytes()));
    TokenRange { start, end }.row_ranges()
}

fn write_file(storage: &Storage, keys: &[&str]) {
    for key in keys {
        insert(storage, key, "name", 1);
    }
    storage.flush(FAMILY).unwrap();
}

fn present<'a>(storage: &Storage, keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().copied().filter(|key| !seen(storage, key).is_empty()).collect()
}

const ALL: [&str; 6] = ["b", "d", "f", "n", "p", "x"];

/// One file with all, one with the first half, one with the rest.
fn three_files(fs: &SimFileSystem, setup: &Setup) -> Storage {
    let storage = setup.open(fs).unwrap();
    for keys in [&ALL[..], &ALL[..3], &ALL[3..]] {
        write_file(&storage, keys);
    }
    storage
}

#[test]
fn only_files_with_rows_of_others_are_written_anew() {
    let fs = SimFileSystem::new(1);
    let storage = three_files(&fs, &Setup::default());
    let before = storage.store(FAMILY).view();
    let sizes: Vec<u64> = before.tables.iter().map(|table| table.size()).collect();
    let keep = between(&storage, "a", "f");
    let report = storage.cleanup(FAMILY, &keep).unwrap();
    let (rewritten, bytes_before) = (1, sizes.iter().sum());
    let tables = storage.store(FAMILY).view().tables.clone();
    let bytes_after = tables.iter().map(|table| table.size()).sum();
    let (dropped, left_alone, is_cut_short) = (1, 1, false);
    let expected =
        CleanupReport { rewritten, dropped, left_alone, bytes_before, bytes_after, is_cut_short };
    assert_eq!(report, expected);
    assert_eq!(tables[0].generation(), 2, "it is left alone");
    assert_eq!(present(&storage, &ALL), ["b", "d", "f"]);
    assert_eq!(files(&fs).len(), 4, "two are read still");
    assert_eq!(before.tables[2].rows(), 3);
    drop(before);
    storage.store(FAMILY).remove_replaced();
    assert_eq!(files(&fs).len(), 2);
    let again = storage.cleanup(FAMILY, &keep).unwrap();
    assert_eq!((again.left_alone, again.rewritten, again.dropped), (2, 0, 0));
    drop((tables, storage));
    assert_eq!(present(&Setup::default().open(&fs).unwrap(), &ALL), ["b", "d", "f"]);
}

#[test]
fn ranges_may_wrap_and_there_may_be_none_or_all() {
    let fs = SimFileSystem::new(1);
    let storage = three_files(&fs, &Setup::default());
    insert(&storage, "c", "name", 1);
    let report = storage.cleanup(FAMILY, &[RowRange::all()]).unwrap();
    assert_eq!((report.left_alone, report.bytes_after), (4, report.bytes_before));
    let keep = between(&storage, "n", "b");
    assert_eq!(keep.len(), 2);
    storage.cleanup(FAMILY, &keep).unwrap();
    assert_eq!(present(&storage, &ALL), ["b", "p", "x"]);
    assert!(present(&storage, &["c"]).is_empty(), "what was in memory as well");
    let report = storage.cleanup(FAMILY, &[]).unwrap();
    assert_eq!((report.left_alone, report.rewritten, report.bytes_after), (0, 0, 0));
    assert!(files(&fs).is_empty() && storage.store(FAMILY).view().tables.is_empty());
}

#[test]
fn a_cleanup_ends_when_the_ranges_are_others() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    write_file(&storage, &["n", "p", "x"]);
    let mut looks = 0;
    let looks = std::cell::Cell::from_mut(&mut looks);
    // What comes after the first look is of the ranges of then.
    let are_current = || {
        looks.set(looks.get() + 1);
        if looks.get() == 1 {
            write_file(&storage, &["q", "y"]);
        }
        looks.get() == 1
    };
    let keep = between(&storage, "a", "f");
    let report = storage.cleanup_while(FAMILY, &keep, &are_current).unwrap();
    assert!(report.is_cut_short && report.dropped == 1, "{report:?}");
    assert_eq!(present(&storage, &["n", "p", "q", "x", "y"]), ["q", "y"]);
}

#[test]
fn what_is_dropped_whole_is_not_read() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    write_file(&storage, &["n", "p", "x"]);
    let reads = fs.count(FileOperation::Read);
    let report = storage.cleanup(FAMILY, &between(&storage, "a", "f")).unwrap();
    assert_eq!((report.dropped, fs.count(FileOperation::Read)), (1, reads));
}

#[test]
fn a_deletion_stays_as_long_as_another_file_may_have_what_it_deletes() {
    let storage = Setup::default().open(&SimFileSystem::new(1)).unwrap();
    write_file(&storage, &["b"]);
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", b"b");
    mutation.family(FAMILY).delete_row(Deletion::at(5, GC_BEFORE));
    storage.apply(&mutation.finish(), true).unwrap();
    write_file(&storage, &["x"]);
    let report = storage.cleanup(FAMILY, &between(&storage, "a", "f")).unwrap();
    assert_eq!((report.left_alone, report.rewritten), (1, 1));
    assert!(present(&storage, &["b", "x"]).is_empty());
}

#[test]
fn dropped_rows_leave_the_row_cache() {
    let setup = Setup { rows_cached: CacheSize::Entries(10), ..Setup::default() };
    for (start, end) in [("a", "f"), ("y", "z")] {
        let storage = three_files(&SimFileSystem::new(1), &setup);
        assert_eq!(present(&storage, &ALL), ALL);
        assert_eq!(storage.cache_stats(FAMILY).rows.unwrap().size, 6);
        storage.cleanup(FAMILY, &between(&storage, start, end)).unwrap();
        assert!(present(&storage, &["n", "p", "x"]).is_empty());
    }
}

#[test]
fn a_file_stays_in_its_level_and_a_snapshot_is_taken_once() {
    let mut setup = Setup { strategy: CompactionStrategy::Leveled, ..Setup::default() };
    setup.options.snapshot_before_compaction = true;
    let storage = three_files(&SimFileSystem::new(1), &setup);
    storage.compact(FAMILY).unwrap();
    let taken = storage.snapshots().unwrap().len();
    let level = storage.store(FAMILY).view().tables[0].level();
    assert!(level > 0);
    write_file(&storage, &["b", "x"]);
    storage.cleanup(FAMILY, &between(&storage, "a", "f")).unwrap();
    let tables = storage.store(FAMILY).view().tables.clone();
    let mut levels: Vec<u32> = tables.iter().map(|table| table.level()).collect();
    levels.sort_unstable();
    assert_eq!(levels, [0, level]);
    assert_eq!(storage.snapshots().unwrap().len(), taken + 1);
    storage.cleanup(FAMILY, &between(&storage, "a", "f")).unwrap();
    assert_eq!(storage.snapshots().unwrap().len(), taken + 1, "there was nothing to do");
}

#[test]
fn a_stopping_node_and_a_failed_store_are_told() {
    let storage = three_files(&SimFileSystem::new(1), &Setup::default());
    storage.store(FAMILY).fail("on purpose".into());
    for refused in [storage.cleanup(FAMILY, &[]).map(drop), storage.discard_all(FAMILY)] {
        assert!(matches!(refused, Err(CompactionError::Refused { .. })));
    }
    let storage = three_files(&SimFileSystem::new(1), &Setup::default());
    storage.stop_writes();
    for refused in [storage.cleanup(FAMILY, &[]).map(drop), storage.discard_all(FAMILY)] {
        assert!(matches!(refused, Err(CompactionError::Stopped)));
    }
    assert_eq!(present(&storage, &ALL), ALL);
}

#[test]
fn the_oldest_free_file_is_claimed_and_others_are_waited_for() {
    let storage = three_files(&SimFileSystem::new(1), &Setup::default());
    let (store, stop) = (storage.store(FAMILY), AtomicBool::new(false));
    let generation = |claim: &crate::storage::store::Claim<'_>| claim.tables()[0].generation();
    let first = store.claim_one(|_| true, &stop).unwrap().unwrap();
    let second = store.claim_one(|_| true, &stop).unwrap().unwrap();
    assert_eq!((generation(&first), generation(&second)), (1, 2));
    assert!(store.claim_one(|table| table.generation() > 3, &stop).unwrap().is_none());
    stop.store(true, Ordering::Relaxed);
    let waited = store.claim_one(|table| table.generation() == 1, &stop);
    assert!(matches!(waited, Err(CompactionError::Stopped)));
    stop.store(false, Ordering::Relaxed);
    drop(first);
    let again = store.claim_one(|table| table.generation() == 1, &stop).unwrap();
    assert_eq!(again.as_ref().map(generation), Some(1));
}

#[test]
fn a_disk_without_room_for_one_file_is_told_and_costs_nothing() {
    let fs = SimFileSystem::new(1);
    let storage = three_files(&fs, &Setup::default());
    let used: u64 = fs.read(Path::new("/data/Blog/Authors-1.sst")).unwrap().len() as u64;
    fs.set_capacity(Some(used));
    let refused = storage.cleanup(FAMILY, &between(&storage, "a", "f"));
    assert!(matches!(refused, Err(CompactionError::NoRoom { .. })), "{refused:?}");
    assert_eq!(present(&storage, &ALL), ALL);
    fs.set_capacity(None);
    assert!(storage.cleanup(FAMILY, &between(&storage, "a", "f")).is_ok());
    assert_eq!(present(&storage, &ALL), ALL[..3]);
}

/// Runs it on copies of a disk whose power fails after each single change.
fn fail_everywhere(
    disk: &SimFileSystem,
    run: impl Fn(&Storage) -> bool,
    check: impl Fn(&Storage, bool),
) {
    for survival in [Survival::Nothing, Survival::Partly, Survival::Everything] {
        for changes in 0.. {
            assert!(changes < 300, "it does not end");
            let fs = disk.fork();
            let storage = Setup::default().open(&fs).unwrap();
            fs.power_off_after(changes);
            let is_done = run(&storage);
            fs.power_off();
            drop(storage);
            fs.crash_keeping(survival, &mut Rng::with_seed(changes));
            let storage = Setup::default().open(&fs).unwrap();
            check(&storage, is_done);
            assert_eq!(files(&fs).len(), storage.store(FAMILY).view().tables.len());
            if is_done {
                assert!(changes > 4, "only {changes} changes were visited");
                break;
            }
        }
    }
}

#[test]
fn power_loss_during_a_cleanup_costs_nothing_that_is_kept() {
    let fs = SimFileSystem::new(1);
    drop(three_files(&fs, &Setup::default()));
    fs.sync_everything();
    let clean = |storage: &Storage| storage.cleanup(FAMILY, &between(storage, "a", "f")).is_ok();
    fail_everywhere(&fs, clean, |storage, is_done| {
        assert_eq!(present(storage, &ALL[..3]), ALL[..3]);
        assert!(!is_done || present(storage, &ALL[3..]).is_empty());
        assert!(clean(storage));
        assert_eq!(present(storage, &ALL), ALL[..3]);
    });
}

#[test]
fn what_was_discarded_does_not_come_back() {
    let fs = SimFileSystem::new(1);
    let setup = Setup { rows_cached: CacheSize::Entries(10), ..Setup::default() };
    let storage = three_files(&fs, &setup);
    insert(&storage, "c", "name", 1);
    assert_eq!(present(&storage, &ALL), ALL);
    assert!(storage.memory_use().memtables > 0);
    storage.discard_all(FAMILY).unwrap();
    assert!(present(&storage, &["b", "c", "x"]).is_empty());
    assert_eq!(storage.memory_use().memtables, 0);
    assert!(files(&fs).is_empty());
    insert(&storage, "d", "name", 0);
    storage.sync().unwrap();
    let killed = fs.fork();
    killed.kill();
    drop(storage);
    for fs in [fs, killed] {
        let storage = setup.open(&fs).unwrap();
        assert_eq!(present(&storage, &["b", "c", "d", "x"]), ["d"]);
    }
}

#[test]
fn power_loss_while_all_is_discarded_leaves_all_or_nothing() {
    let fs = SimFileSystem::new(1);
    drop(three_files(&fs, &Setup::default()));
    fs.sync_everything();
    let run = |storage: &Storage| {
        let is_logged = write(storage, FAMILY, "c").is_ok() && storage.sync().is_ok();
        is_logged && storage.discard_all(FAMILY).is_ok()
    };
    fail_everywhere(&fs, run, |storage, is_done| {
        let (left, logged) = (present(storage, &ALL), present(storage, &["c"]));
        assert!(left.is_empty() && logged.is_empty() || left == ALL && !is_done, "{left:?}");
    });
}

#[test]
fn a_discard_that_fails_leaves_everything() {
    let fs = SimFileSystem::new(1);
    let storage = three_files(&fs, &Setup::default());
    insert(&storage, "c", "name", 1);
    fs.inject(Fault::next(FileOperation::Write, Errno::NOSPC).on("Authors.manifest"));
    assert!(storage.discard_all(FAMILY).is_err());
    assert_eq!(present(&storage, &["b", "c", "x"]), ["b", "c", "x"]);
    assert!(storage.store(FAMILY).failure().is_none(), "there may be room later");
    storage.discard_all(FAMILY).unwrap();
    assert!(present(&storage, &["b", "c", "x"]).is_empty());
    assert_eq!(storage.memory_use().memtables, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn exactly_the_rows_of_the_ranges_are_kept(
        tables in vec(vec(0..KEYS.len(), 1..5), 1..5),
        ranges in vec((0..KEYS.len(), 0..KEYS.len(), 0..4u8), 0..4),
        collates: bool,
    ) {
        let partitioner =
            if collates { Partitioner::CollatingOrderPreserving } else { Partitioner::Random };
        let fs = SimFileSystem::new(1);
        let storage = Setup { partitioner, ..Setup::default() }.open(&fs).unwrap();
        for table in &tables {
            for row in table {
                let mut mutation = MutationBuilder::new(storage.schema(), "Blog", KEYS[*row]);
                mutation.family(FAMILY).insert((b"", b"name"), b"value", 1);
                storage.apply(&mutation.finish(), true).unwrap();
            }
            storage.flush(FAMILY).unwrap();
        }
        let token = |at: usize| partitioner.token(KEYS[at]);
        let keep: Vec<RowRange> = ranges.into_iter().map(|(start, end, form)| {
            let (start, end) = (token(start), token(end));
            match form {
                0 => RowRange { start: Bound::Excluded(start), end: Bound::Unbounded },
                1 => RowRange { start: Bound::Unbounded, end: Bound::Excluded(end) },
                2 => RowRange { start: Bound::Included(start), end: Bound::Included(end) },
                _ => RowRange { start: Bound::Excluded(start), end: Bound::Included(end) },
            }
        }).collect();
        let is_kept = |row: usize| keep.iter().any(|range| range.contains(&token(row)));
        let inside = tables.iter().filter(|rows| rows.iter().all(|row| is_kept(*row))).count();
        let outside = tables.iter().filter(|rows| !rows.iter().any(|row| is_kept(*row))).count();
        let report = storage.cleanup(FAMILY, &keep).unwrap();
        prop_assert_eq!((report.left_alone, report.dropped), (inside, outside));
        prop_assert_eq!(report.rewritten, tables.len() - inside - outside);
        for (row, key) in KEYS.into_iter().enumerate() {
            let is_there = !version(&storage, &RowKey::new(key)).is_empty();
            prop_assert_eq!(is_there, is_kept(row) && tables.iter().any(|t| t.contains(&row)));
        }
        prop_assert_eq!(files(&fs).len(), tables.len() - outside);
    }
}
