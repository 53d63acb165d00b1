//! Rows that are taken in.

use super::pieces::{KEYS, Steps, any_steps, read_all, take};
use super::*;
use crate::kit::disk::Survival;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::storage::sstable::filter;
use fastrand::Rng;
use proptest::prelude::*;

fn cells(names: &[&str], timestamp: i64) -> RowVersion {
    let cells = names.iter().map(|name| Cell::live(b"", name.as_bytes(), b"new", timestamp));
    RowVersion { deletion: Deletion::NONE, cells: cells.collect() }
}

/// Names and values of what can be seen of a row.
pub(super) fn seen(storage: &Storage, key: &str) -> Vec<(String, String)> {
    let (key, all) = (RowKey::from(key), Slice::all(None));
    let found = storage.read(FAMILY, &key, &all, Access::Cached).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    found.cells.iter().map(|cell| (text(cell.name()), text(cell.value()))).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

pub(super) fn files(fs: &SimFileSystem) -> Vec<String> {
    let names = fs.list(Path::new("/data/Blog")).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("Authors-")).collect()
}

#[test]
fn what_was_taken_in_is_merged_with_what_is_there() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    insert(&storage, "ada", "a", 1);
    insert(&storage, "ada", "b", 9);
    let before = storage.store(FAMILY).view();
    let mut ingest = storage.ingest(FAMILY).unwrap();
    ingest.push(&RowKey::from("ada"), &cells(&["a", "b", "c"], 5)).unwrap();
    ingest.push(&RowKey::from("bob"), &cells(&["a"], 5)).unwrap();
    assert_eq!(seen(&storage, "ada"), pairs(&[("a", "value"), ("b", "value")]));
    let bytes = ingest.finish().unwrap();
    let view = storage.store(FAMILY).view();
    assert_eq!(view.tables.iter().map(|table| table.size()).sum::<u64>(), bytes);
    let bob = storage.partitioner().decorate(RowKey::from("bob"));
    assert!(view.tables[0].may_contain(&bob, filter::hash(b"bob")));
    assert!(before.tables.is_empty(), "who reads already is not disturbed");
    let merged = pairs(&[("a", "new"), ("b", "value"), ("c", "new")]);
    assert_eq!(seen(&storage, "ada"), merged);
    insert(&storage, "bob", "a", 6);
    drop((view, before, storage));
    let storage = Setup::default().open(&fs).unwrap();
    assert_eq!(seen(&storage, "ada"), merged);
    assert_eq!(seen(&storage, "bob"), pairs(&[("a", "value")]));
}

#[test]
fn cached_rows_know_of_it() {
    let setup = Setup { rows_cached: CacheSize::Entries(10), ..Setup::default() };
    let storage = setup.open(&SimFileSystem::new(1)).unwrap();
    insert(&storage, "ada", "a", 1);
    storage.flush(FAMILY).unwrap();
    assert_eq!(seen(&storage, "ada").len(), 1);
    assert_eq!(storage.cache_stats(FAMILY).rows.unwrap().size, 1);
    let mut ingest = storage.ingest(FAMILY).unwrap();
    ingest.push(&RowKey::from("ada"), &cells(&["b"], 1)).unwrap();
    ingest.finish().unwrap();
    assert_eq!(seen(&storage, "ada").len(), 2);
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    let mut ingest = storage.ingest(FAMILY).unwrap();
    ingest.push(&RowKey::from("ada"), &cells(&["a"], 5)).unwrap();
    assert_eq!(files(&fs).len(), 1);
    assert!(ingest.bytes() > 0);
    drop(ingest);
    assert!(files(&fs).is_empty());
    assert_eq!(storage.ingest(FAMILY).unwrap().finish().unwrap(), 0);
    assert!(storage.store(FAMILY).view().tables.is_empty());
}

#[test]
fn rows_and_cells_out_of_order_are_refused() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    let marker = Cell::super_tombstone(b"s", Deletion::at(1, 1));
    let marker = RowVersion { deletion: Deletion::NONE, cells: vec![marker] };
    let bad = [
        ("ada", cells(&["z"], 1)),
        ("bob", cells(&["a"], 1)),
        ("cyd", cells(&["b", "a"], 1)),
        ("cyd", cells(&["b", "b"], 1)),
        ("cyd", marker),
        ("", cells(&["a"], 1)),
    ];
    for (key, version) in bad {
        let mut ingest = storage.ingest(FAMILY).unwrap();
        ingest.push(&RowKey::from("bob"), &cells(&["a"], 1)).unwrap();
        ingest.push(&RowKey::from("bob"), &cells(&["b"], 1)).unwrap();
        let refused = ingest.push(&RowKey::from(key), &version).unwrap_err();
        let is_told =
            matches!(refused, IngestError::OutOfOrder { .. } | IngestError::Unsuitable { .. });
        assert!(is_told, "{key}: {refused}");
        assert!(files(&fs).is_empty(), "{key}");
        let next = ingest.push(&RowKey::from("zoe"), &cells(&["a"], 1));
        assert!(matches!(next, Err(IngestError::GivenUp)));
        assert!(matches!(ingest.finish(), Err(IngestError::GivenUp)));
    }
}

#[test]
fn a_full_disk_and_a_failed_store_are_told() {
    let fs = SimFileSystem::new(1);
    let storage = Setup::default().open(&fs).unwrap();
    let begin = || {
        let mut ingest = storage.ingest(FAMILY).unwrap();
        ingest.push(&RowKey::from("ada"), &cells(&["a"], 5)).unwrap();
        ingest
    };
    let ingest = begin();
    fs.set_capacity(Some(0));
    let refused = ingest.finish().unwrap_err();
    assert!(matches!(refused, IngestError::Shortage(_)), "{refused}");
    assert!(refused.to_string().contains("there is no room"), "{refused}");
    fs.set_capacity(None);
    assert!(files(&fs).is_empty() && storage.store(FAMILY).view().tables.is_empty());
    fs.inject(Fault::next(FileOperation::Sync, Errno::IO).on("Authors.manifest"));
    assert!(matches!(begin().finish(), Err(IngestError::Disk(_))));
    assert!(files(&fs).is_empty() && storage.store(FAMILY).view().tables.is_empty());
    let (late, mut later) = (begin(), begin());
    storage.store(FAMILY).fail("on purpose".into());
    assert!(matches!(late.finish(), Err(IngestError::Failed { .. })));
    let refused = later.push(&RowKey::from("bob"), &cells(&["a"], 5));
    assert!(matches!(refused, Err(IngestError::Failed { .. })));
    assert!(matches!(storage.ingest(FAMILY), Err(IngestError::Failed { .. })));
    assert!(files(&fs).is_empty());
}

#[test]
fn much_becomes_several_files_of_level_zero() {
    let strategy = CompactionStrategy::Leveled;
    let setup = Setup { strategy, table_bytes: 1 << 20, ..Setup::default() };
    let fs = SimFileSystem::new(1);
    let storage = setup.open(&fs).unwrap();
    let mut ingest = storage.ingest(FAMILY).unwrap();
    let mut rng = Rng::with_seed(1);
    for number in 0..40 {
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(100_000).collect();
        let cells = vec![Cell::live(b"", b"a", &value, 1)];
        let version = RowVersion { deletion: Deletion::NONE, cells };
        ingest.push(&RowKey::from(&*format!("{number:02}")), &version).unwrap();
    }
    ingest.finish().unwrap();
    let tables = storage.store(FAMILY).view().tables.clone();
    assert!(tables.len() >= 3, "{} files", tables.len());
    assert!(tables.iter().all(|table| table.level() == 0));
    assert_eq!(tables.iter().map(|table| table.rows()).sum::<u64>(), 40);
    assert!(!seen(&storage, "00").is_empty() && !seen(&storage, "39").is_empty());
}

/// Power fails after each single change to the disk.
#[test]
fn power_loss_leaves_all_of_it_or_nothing() {
    let setup = Setup { table_bytes: 1, strategy: CompactionStrategy::Leveled, ..Setup::default() };
    for survival in [Survival::Nothing, Survival::Partly, Survival::Everything] {
        for changes in 0.. {
            assert!(changes < 200, "it does not end");
            let fs = SimFileSystem::new(changes);
            let storage = setup.open(&fs).unwrap();
            fs.power_off_after(changes);
            let run = || {
                let mut ingest = storage.ingest(FAMILY)?;
                for key in ["ada", "bob", "cyd"] {
                    ingest.push(&RowKey::from(key), &cells(&["a"], 5))?;
                }
                ingest.finish()
            };
            let done = run();
            fs.power_off();
            drop(storage);
            fs.crash_keeping(survival, &mut Rng::with_seed(changes));
            let storage = setup.open(&fs).unwrap();
            let found = ["ada", "bob", "cyd"].map(|key| seen(&storage, key).len());
            assert!(found == [0; 3] || found == [1; 3], "{found:?} after {changes} changes");
            assert!(done.is_err() || found == [1; 3], "after {changes} changes");
            assert_eq!(files(&fs).len(), storage.store(FAMILY).view().tables.len());
            if done.is_ok() {
                assert!(changes > 10);
                break;
            }
        }
    }
}

/// A super column that was cut, whose deletion comes with each part of it.
#[test]
fn repeated_deletions_make_no_further_file_but_newer_ones_do() {
    let setup = Setup { is_super: true, ..Setup::default() };
    let parts = |second: Deletion| {
        [("a", Deletion::at(3, 200)), ("b", second), ("c", second)].map(|(name, deletion)| {
            let marker = Cell::super_tombstone(b"s", deletion);
            let cells = vec![marker, Cell::live(b"s", name.as_bytes(), b"", 5)];
            RowVersion { deletion: Deletion::at(1, 200), cells }
        })
    };
    for (second, files) in [(Deletion::at(3, 200), 1), (Deletion::at(4, 200), 2)] {
        let storage = setup.open(&SimFileSystem::new(1)).unwrap();
        let mut ingest = storage.ingest(FAMILY).unwrap();
        let (key, parts) = (RowKey::from("ada"), parts(second));
        for part in &parts {
            ingest.push(&key, part).unwrap();
        }
        ingest.finish().unwrap();
        assert_eq!(storage.store(FAMILY).view().tables.len(), files);
        let family = storage.schema().family(FAMILY);
        assert_eq!(version(&storage, &key), RowVersion::merge(family, &parts));
    }
}

fn copied(from: &Storage, setup: &Setup, max_bytes: usize) -> Storage {
    let storage = setup.open(&SimFileSystem::new(2)).unwrap();
    let mut ingest = storage.ingest(FAMILY).unwrap();
    let pieces = read_all(from, &RowRange::all(), max_bytes);
    for (key, version) in pieces.iter().flat_map(|piece| &piece.rows) {
        ingest.push(key, version).unwrap();
    }
    ingest.finish().unwrap();
    storage
}

fn check_copy(steps: &Steps, setup: &Setup) {
    let source = setup.open(&SimFileSystem::new(1)).unwrap();
    take(&source, setup.is_super, steps);
    for max_bytes in [0, 300, 1 << 20] {
        let copy = copied(&source, setup, max_bytes);
        assert!(copy.store(FAMILY).view().tables.len() <= 1);
        for key in KEYS.map(RowKey::new) {
            assert_eq!(version(&copy, &key), version(&source, &key), "{key}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn a_copy_in_pieces_is_what_the_source_has(steps in any_steps(), is_super: bool) {
        let partitioner = Partitioner::CollatingOrderPreserving;
        check_copy(&steps, &Setup { is_super, partitioner, ..Setup::default() });
    }
}
