//! A commit log that is not where it should be, and the power failing at each step of what says so.

use super::*;
use crate::kit::disk::Survival;
use crate::storage::commitlog::segment_files;
use fastrand::Rng;
use std::path::PathBuf;

fn segments(fs: &SimFileSystem) -> Vec<PathBuf> {
    segment_files(fs, Path::new("/log")).unwrap()
}

fn without_segments(fs: &SimFileSystem) -> SimFileSystem {
    let emptied = fs.fork();
    for path in segments(fs) {
        emptied.remove_file(&path).unwrap();
    }
    emptied
}

fn has(storage: &Database, key: &str) -> bool {
    let (key, all) = (RowKey::from(key), Slice::all(None));
    !storage
        .family(FAMILIES[0])
        .read(&key, &all, &RequestContext::default(), Access::Cached)
        .unwrap()
        .cells
        .is_empty()
}

/// Opens, writes and closes until the power fails. Returns what was acknowledged and synced.
fn run(fs: &SimFileSystem) -> Vec<&'static str> {
    let mut durable = Vec::new();
    for keys in [["ada", "bob"], ["cyd", "dan"]] {
        let Ok(storage) = open(fs) else { return durable };
        for key in keys {
            if write(&storage, FAMILIES[0], key).is_ok() && storage.sync().is_ok() {
                durable.push(key);
            }
            if key == keys[0] {
                let _ = storage.flush(FAMILIES[0]);
            }
        }
    }
    durable
}

#[test]
fn whenever_the_power_fails_a_log_that_is_lost_is_missed_and_one_that_is_not_is_not() {
    let mut refusals = 0;
    for survival in [Survival::Nothing, Survival::Everything] {
        for changes in 0.. {
            let fs = SimFileSystem::new(1);
            fs.power_off_after(changes);
            let durable = run(&fs);
            let is_over = fs.changes() < changes;
            fs.crash_keeping(survival, &mut Rng::with_seed(1));
            let emptied = without_segments(&fs);
            let storage = open(&fs).unwrap();
            for key in &durable {
                assert!(has(&storage, key), "{key} after {changes} changes");
            }
            match open(&emptied) {
                Ok(storage) => {
                    for key in &durable {
                        assert!(has(&storage, key), "{key} vanished after {changes} changes");
                    }
                }
                Err(error) => {
                    assert!(matches!(error, StorageError::NoLog(_)), "{changes}: {error}");
                    refusals += 1;
                }
            }
            if is_over {
                break;
            }
        }
    }
    assert!(refusals > 10, "{refusals}");
}
