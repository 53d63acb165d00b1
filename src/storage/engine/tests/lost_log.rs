//! A commit log that is not where it should be, and the power failing at each step of what says so.

use super::*;
use crate::kit::disk::Survival;
use crate::storage::commitlog::archive::segment_files;
use crate::storage::files::LOG_MARK_FILE;
use fastrand::Rng;

const DATA: [&str; 1] = ["/data"];

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

fn has(storage: &Storage, key: &str) -> bool {
    let (key, all) = (RowKey::from(key), Slice::all(None));
    !storage.read(FAMILIES[0], &key, &all, Access::Cached).unwrap().cells.is_empty()
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

/// A disk on which one write was made before the server ended in order, and before it was killed.
fn ended_and_killed() -> (SimFileSystem, SimFileSystem) {
    let fs = SimFileSystem::new(1);
    let storage = open(&fs).unwrap();
    write(&storage, FAMILIES[0], "ada").unwrap();
    storage.sync().unwrap();
    let killed = fs.fork();
    killed.kill();
    drop(storage);
    (fs, killed)
}

#[test]
fn a_start_without_the_commit_log_of_the_last_run_is_refused() {
    let (fs, killed) = ended_and_killed();
    assert!(open(&fs).is_ok() && segments(&killed).len() == 1);

    let emptied = without_segments(&killed);
    let texts = ["/log holds no segment from ", "--accept-commitlog-loss", "CommitLogDirectory"];
    for _ in 0..2 {
        refused(open(&emptied), &texts);
    }
    let accepting = Options { accept_commitlog_loss: true, ..options(&DATA) };
    let storage = open_with(&emptied, accepting).unwrap();
    assert!(!has(&storage, "ada"));
    drop(storage);
    assert!(open(&emptied).is_ok(), "the next start has its own log");

    let elsewhere = Options { commit_log_directory: "/empty".into(), ..options(&DATA) };
    refused(open_with(&killed, elsewhere), &["/empty holds no segment", "It was in /log"]);
    assert!(has(&open(&killed).unwrap(), "ada"), "nothing was changed");
}

#[test]
fn a_start_without_the_data_of_the_last_run_is_refused() {
    let (_, killed) = ended_and_killed();
    let elsewhere = || Options { data_directories: vec!["/empty".into()], ..options(&DATA) };
    let texts =
        ["the data directories hold nothing", "in /log was", "-Dcassandra.accept_data_loss"];
    for _ in 0..2 {
        refused(open_with(&killed, elsewhere()), &texts);
    }
    assert!(has(&open(&killed.fork()).unwrap(), "ada"), "nothing was changed");
    let accepting = Options { accept_data_loss: true, ..elsewhere() };
    let storage = open_with(&killed, accepting).unwrap();
    assert!(has(&storage, "ada"), "what the log holds is there");
    drop(storage);
    assert!(open_with(&killed, elsewhere()).is_ok(), "the next start has its own data");
}

/// The segment of the first run tells of no later one, since nobody could seal it.
#[test]
fn a_start_without_the_newest_segment_alone_is_refused() {
    let mut fs = SimFileSystem::new(1);
    let mut older = Vec::new();
    for key in ["ada", "bob"] {
        let storage = open(&fs).unwrap();
        write(&storage, FAMILIES[0], key).unwrap();
        storage.sync().unwrap();
        let killed = fs.fork();
        killed.kill();
        drop(storage);
        fs = killed;
        if key == "ada" {
            older = segments(&fs);
        }
    }
    let newest = segments(&fs).into_iter().find(|path| !older.contains(path)).unwrap();
    fs.remove_file(&newest).unwrap();
    refused(open(&fs), &["/log holds no segment from "]);
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

#[test]
fn a_full_disk_is_no_reason_to_go_without_a_start_nor_a_mark_that_cannot_be_read() {
    let (_, killed) = ended_and_killed();

    let full = killed.fork();
    full.inject(Fault::next(FileOperation::Create, Errno::NOSPC).on(LOG_MARK_FILE));
    let storage = open(&full).unwrap();
    assert!(has(&storage, "ada"));
    let again = full.fork();
    again.kill();
    refused(open(&without_segments(&again)), &["/log holds no segment from "]);
    drop(storage);

    killed.corrupt(&Path::new("/data").join(LOG_MARK_FILE), 30, 1).unwrap();
    refused(open(&without_segments(&killed)), &["/log holds no segment at all"]);
    assert!(has(&open(&killed).unwrap(), "ada"));
}

#[test]
fn a_first_start_that_cannot_mark_its_log_fails_and_the_next_one_does_not() {
    let fs = SimFileSystem::new(1);
    fs.inject(Fault::next(FileOperation::Create, Errno::NOSPC).on(LOG_MARK_FILE));
    assert!(open(&fs).is_err());
    let storage = open(&fs).unwrap();
    drop(storage);
    fs.kill();
    open(&fs).unwrap();
}
