//! Rows that other nodes own are dropped, or all of a column family.

use super::ingest::{files, seen};
use super::pieces::KEYS;
use super::*;
use crate::kit::disk::Survival;
use crate::ring::TokenRange;
use fastrand::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use std::ops::{Bound, RangeBounds};

/// The rows behind one key up to another; it may wrap.
fn between(storage: &Database, start: &str, end: &str) -> Vec<RowRange> {
    let [start, end] = [start, end].map(|key| storage.partitioner().token(key.as_bytes()));
    TokenRange { start, end }.row_ranges()
}

fn write_file(storage: &Database, keys: &[&str]) {
    for key in keys {
        insert(storage, key, "name", 1);
    }
    storage.flush(FAMILY).unwrap();
}

fn present<'a>(storage: &Database, keys: &[&'a str]) -> Vec<&'a str> {
    keys.iter().copied().filter(|key| !seen(storage, key).is_empty()).collect()
}

const ALL: [&str; 6] = ["b", "d", "f", "n", "p", "x"];

/// One file with all, one with the first half, one with the rest.
fn three_files(fs: &SimFileSystem, setup: &Blog) -> Database {
    let storage = setup.open(fs).unwrap();
    for keys in [&ALL[..], &ALL[..3], &ALL[3..]] {
        write_file(&storage, keys);
    }
    storage
}

#[test]
fn the_oldest_free_file_is_claimed_and_others_are_waited_for() {
    let storage = three_files(&SimFileSystem::new(1), &setup());
    let (family, stop) = (storage.family(FAMILY), AtomicBool::new(false));
    let generation = |claim: &crate::storage::family::Claim<'_>| claim.tables()[0].generation();
    let first = family.claim_one(|_| true, &stop).unwrap().unwrap();
    let second = family.claim_one(|_| true, &stop).unwrap().unwrap();
    assert_eq!((generation(&first), generation(&second)), (1, 2));
    assert!(family.claim_one(|table| table.generation() > 3, &stop).unwrap().is_none());
    stop.store(true, Ordering::Relaxed);
    let waited = family.claim_one(|table| table.generation() == 1, &stop);
    assert!(matches!(waited, Err(CompactionError::Stopped)));
    stop.store(false, Ordering::Relaxed);
    drop(first);
    let again = family.claim_one(|table| table.generation() == 1, &stop).unwrap();
    assert_eq!(again.as_ref().map(generation), Some(1));
}

/// Runs it on copies of a disk whose power fails after each single change.
fn fail_everywhere(
    disk: &SimFileSystem,
    run: impl Fn(&Database) -> bool,
    check: impl Fn(&Database, bool),
) {
    for survival in [Survival::Nothing, Survival::Partly, Survival::Everything] {
        for changes in 0.. {
            assert!(changes < 300, "it does not end");
            let fs = disk.fork();
            let storage = setup().open(&fs).unwrap();
            fs.power_off_after(changes);
            let is_done = run(&storage);
            fs.power_off();
            drop(storage);
            fs.crash_keeping(survival, &mut Rng::with_seed(changes));
            let storage = setup().open(&fs).unwrap();
            check(&storage, is_done);
            assert_eq!(files(&fs).len(), storage.family(FAMILY).view().tables.len());
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
    drop(three_files(&fs, &setup()));
    fs.sync_everything();
    let clean =
        |storage: &Database| storage.cleanup(FAMILY, &between(storage, "a", "f"), &|| true).is_ok();
    fail_everywhere(&fs, clean, |storage, is_done| {
        assert_eq!(present(storage, &ALL[..3]), ALL[..3]);
        assert!(!is_done || present(storage, &ALL[3..]).is_empty());
        assert!(clean(storage));
        assert_eq!(present(storage, &ALL), ALL[..3]);
    });
}

#[test]
fn power_loss_while_all_is_discarded_leaves_all_or_nothing() {
    let fs = SimFileSystem::new(1);
    drop(three_files(&fs, &setup()));
    fs.sync_everything();
    let run = |storage: &Database| {
        let is_logged = write(storage, FAMILY, "c").is_ok() && storage.sync().is_ok();
        is_logged && storage.discard_all(FAMILY).is_ok()
    };
    fail_everywhere(&fs, run, |storage, is_done| {
        let (left, logged) = (present(storage, &ALL), present(storage, &["c"]));
        assert!(left.is_empty() && logged.is_empty() || left == ALL && !is_done, "{left:?}");
    });
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
        let storage = Blog { partitioner, ..setup() }.open(&fs).unwrap();
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
        let report = storage.cleanup(FAMILY, &keep, &|| true).unwrap();
        prop_assert_eq!((report.left_alone, report.dropped), (inside, outside));
        prop_assert_eq!(report.rewritten, tables.len() - inside - outside);
        for (row, key) in KEYS.into_iter().enumerate() {
            let is_there = !version(&storage, &RowKey::new(key)).is_empty();
            prop_assert_eq!(is_there, is_kept(row) && tables.iter().any(|t| t.contains(&row)));
        }
        prop_assert_eq!(files(&fs).len(), tables.len() - outside);
    }
}
