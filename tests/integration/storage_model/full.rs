//! Partitions that are full: that of the commit log, that of the data, while the node runs and when
//! it starts.

use crate::kit::disk::{Fault, Operation, Survival};
use crate::storage_model::rig::{LOG, Outcome, Rig, Setup, insertion, wait_until};
use alexandra::base::fs::FileSystem;
use alexandra::model::schema::FamilyId;
use fastrand::Rng;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::time::Duration;

const NAME: &str = "12345678";

const SEGMENT_BYTES: u64 = 4096;

/// Nothing is flushed or compacted that nobody has asked for.
fn quiet() -> Setup {
    let memtable_operations = 1_000_000;
    Setup { memtable_operations, min_compaction_threshold: 0, ..Setup::default() }
}

fn key(row: usize) -> String {
    format!("row {row}")
}

/// Writes a row of half a kilobyte, if the log has room for it.
fn is_taken(rig: &Rig, row: usize) -> bool {
    let parts = [(row as u32 % 2 * 2, vec![insertion(NAME, 1, &[b'v'; 500])])];
    match rig.write(key(row).as_bytes(), &parts) {
        Outcome::Done => true,
        Outcome::Refused(error) => {
            assert!(error.to_string().contains("no space"), "{error}");
            false
        }
        Outcome::Unknown(error) => panic!("{error}"),
    }
}

#[track_caller]
fn check(rig: &Rig, rows: usize) {
    for row in 0..rows {
        assert!(rig.get(row as u32 % 2 * 2, &key(row), NAME).is_some(), "row {row} of {rows}");
    }
}

fn used(rig: &Rig) -> u64 {
    rig.disk.list(LOG.as_ref()).unwrap().iter().map(|entry| entry.size).sum()
}

#[test]
fn a_log_whose_partition_is_small_is_flushed_when_that_is_full() {
    for segments in [2, 3, 6] {
        let log_bytes = Some(segments * SEGMENT_BYTES + 100);
        let rig = Rig::new(Setup { log_bytes, ..quiet() }, 1);
        for row in 0..100 {
            wait_until("a row is taken", || is_taken(&rig, row));
        }
        check(&rig, 100);
        rig.heard.wait_for(Duration::ZERO, &["is flushed to free commit log segments"]);
    }
}

/// A node that was killed, with unflushed rows in several segments and not a byte left for others.
fn full_log(archives: bool) -> (Rig, usize) {
    let mut rig = Rig::new(Setup { archives, ..quiet() }, 1);
    let rows = 30;
    assert!((0..rows).all(|row| is_taken(&rig, row)));
    rig.kill();
    rig.setup.log_bytes = Some(used(&rig));
    assert!(used(&rig) > 3 * SEGMENT_BYTES);
    (rig, rows)
}

#[test]
fn a_node_starts_though_there_is_no_room_for_its_log() {
    for (archives, left) in [(false, 0), (true, 0), (false, 100), (false, 4500), (true, 4500)] {
        let (mut rig, rows) = full_log(archives);
        rig.setup.log_bytes = rig.setup.log_bytes.map(|bytes| bytes + left);
        rig.open().unwrap();
        check(&rig, rows);
        for row in rows..rows + 20 {
            wait_until("writes go on", || is_taken(&rig, row));
        }
        rig.kill();
        rig.open().unwrap();
        check(&rig, rows + 20);
        rig.close();
        let is_segment = |name: &str| name.starts_with("CommitLog-");
        let names = rig.disk.list(LOG.as_ref()).unwrap().into_iter().map(|entry| entry.name);
        assert_eq!(names.filter(|name| is_segment(name)).count(), 0);
        if archives {
            let archived = rig.disk.list(&rig.archive_folder()).unwrap();
            assert!(archived.len() >= 6, "{archived:?}");
        }
    }
}

/// Segments are removed that no list in the log leaves out: only the manifests tell.
#[test]
fn a_start_without_room_for_the_log_loses_nothing_wherever_it_is_cut_off() {
    for archives in [false, true] {
        let (rig, rows) = full_log(archives);
        let mut steps = 0;
        for changes in 0.. {
            let mut case = rig.fork();
            case.disk.power_off_after(changes);
            let is_open = case.open().is_ok();
            case.disk.power_off();
            case.close();
            let survival =
                [Survival::Nothing, Survival::Partly, Survival::Everything][changes as usize % 3];
            case.disk.crash_keeping(survival, &mut Rng::with_seed(changes));
            if let Err(error) = case.open() {
                panic!("after {changes} changes: {error}");
            }
            check(&case, rows);
            case.close();
            steps = changes;
            if is_open {
                break;
            }
        }
        assert!(steps > 20, "{steps}");
    }
}

#[test]
fn a_node_starts_though_there_is_no_room_for_its_data() {
    let setup = Setup { memtable_budget_bytes: 40_000, ..quiet() };
    let mut rig = Rig::new(setup, 1);
    let no_room = |times| Fault { times, ..Fault::next(Operation::Create, Errno::NOSPC) };
    rig.disk.inject(no_room(u64::MAX).on(".sst"));
    let used = |rig: &Rig| {
        let memory = &rig.storage().family(FamilyId(0)).environment().memtable_memory;
        memory.load(Ordering::Relaxed)
    };
    let mut rows = 0;
    while used(&rig) <= 40_000 {
        assert!(is_taken(&rig, rows));
        rows += 1;
    }
    rig.kill();
    rig.open().unwrap();
    check(&rig, rows);
    assert!(used(&rig) > 40_000, "nothing could be flushed");
    let own = rig.mutation(key(rows).as_bytes(), &[(0, vec![insertion(NAME, 1, b"own")])]);
    rig.storage().apply_own(&own).unwrap();
    rig.kill();

    // It goes on by itself when there is room.
    rig.disk.crash_keeping(Survival::Everything, &mut Rng::with_seed(1));
    rig.disk.inject(no_room(3).on(".sst"));
    rig.open().unwrap();
    check(&rig, rows);
    wait_until("the log forgets what was replayed", || self::used(&rig) <= 2 * SEGMENT_BYTES);
    assert!(is_taken(&rig, rows + 2));
    check(&rig, rows);
    assert!(rig.get(0, &key(rows), NAME).is_some());
}
