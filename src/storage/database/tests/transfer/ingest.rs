//! Rows that are taken in.

use super::pieces::{KEYS, Steps, any_steps, read_all, take};
use super::*;
use crate::kit::disk::Survival;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use fastrand::Rng;
use proptest::prelude::*;

fn cells(names: &[&str], timestamp: i64) -> RowVersion {
    let cells = names.iter().map(|name| Cell::live(b"", name.as_bytes(), b"new", timestamp));
    RowVersion { deletion: Deletion::NONE, cells: cells.collect() }
}

/// Names and values of what can be seen of a row.
pub(super) fn seen(storage: &Database, key: &str) -> Vec<(String, String)> {
    let (key, all) = (RowKey::from(key), Slice::all(None));
    let found = storage
        .family(FAMILY)
        .read(&key, &all, &RequestContext::default(), Access::Cached)
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    found.cells.iter().map(|cell| (text(cell.name()), text(cell.value()))).collect()
}

pub(super) fn files(fs: &SimFileSystem) -> Vec<String> {
    let names = fs.list(Path::new("/data/Blog")).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| name.starts_with("Authors-")).collect()
}

/// Power fails after each single change to the disk.
#[test]
fn power_loss_leaves_all_of_it_or_nothing() {
    let setup = leveled(1);
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
            assert_eq!(files(&fs).len(), storage.family(FAMILY).view().tables.len());
            if done.is_ok() {
                assert!(changes > 10);
                break;
            }
        }
    }
}

fn copied(from: &Database, setup: &Blog, max_bytes: usize) -> Database {
    let storage = setup.open(&SimFileSystem::new(2)).unwrap();
    let mut ingest = storage.ingest(FAMILY).unwrap();
    let pieces = read_all(from, &RowRange::all(), max_bytes);
    for (key, version) in pieces.iter().flat_map(|piece| &piece.rows) {
        ingest.push(key, version).unwrap();
    }
    ingest.finish().unwrap();
    storage
}

fn check_copy(steps: &Steps, setup: &Blog) {
    let source = setup.open(&SimFileSystem::new(1)).unwrap();
    take(&source, setup.is_super, steps);
    for max_bytes in [0, 300, 1 << 20] {
        let copy = copied(&source, setup, max_bytes);
        assert!(copy.family(FAMILY).view().tables.len() <= 1);
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
        check_copy(&steps, &Blog { is_super, partitioner, ..setup() });
    }
}
