//! A disk that refuses: each operation fails once, or it is full while many write.

use crate::kit::disk::{Fault, Operation, Survival};
use crate::storage_model::rig::{BATCH, Outcome, Rig, Setup, insertion, wait_until};
use crate::storage_model::scenario::{Ended, Scenario};
use alexandra::model::schema::FamilyId;
use alexandra::storage::database::WriteError;
use fastrand::Rng;
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Long enough for anything that the threads in the background do, short enough for a test.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every operation of this kind fails in its turn, and the scenario goes on as far as it can.
/// Acknowledged writes stay readable, are there after a restart, and after a power loss as well.
fn fail_each(operation: Operation, errno: Errno) {
    let setup = Setup { sync: BATCH, memtable_operations: 1000, ..Setup::default() };
    for skip in 0.. {
        for crashes in [false, true] {
            let mut scenario = Scenario::new(setup, skip);
            scenario.goes_on = true;
            let before = scenario.rig.disk.count(operation);
            scenario.rig.disk.inject(Fault::nth(operation, skip, errno));
            let ended = scenario.run();
            assert_eq!(ended, Ended::Complete, "{operation:?} {skip}");
            let happened = scenario.rig.disk.count(operation) - before > skip;
            if !happened {
                assert!(skip > 0, "the scenario has no {operation:?}");
                return;
            }
            if crashes {
                scenario.rig.crash(Survival::Nothing, &mut Rng::with_seed(skip));
            } else {
                scenario.rig.close();
            }
            // A removal that a failed sync has lost brings back a file after the next power loss.
            // The start is refused until it is moved away.
            scenario.may_leave_files = operation == Operation::SyncDir;
            scenario.check_recovered(skip);
        }
    }
}

#[test]
fn each_write_fails_once() {
    fail_each(Operation::Write, Errno::IO);
    fail_each(Operation::Write, Errno::NOSPC);
}

#[test]
fn each_sync_fails_once() {
    fail_each(Operation::Sync, Errno::IO);
}

#[test]
fn each_rename_fails_once() {
    fail_each(Operation::Rename, Errno::IO);
}

#[test]
fn each_sync_of_a_directory_fails_once() {
    fail_each(Operation::SyncDir, Errno::IO);
}

#[test]
fn each_creation_fails_once() {
    fail_each(Operation::Create, Errno::IO);
    fail_each(Operation::Allocate, Errno::NOSPC);
}

#[test]
fn each_removal_fails_once() {
    fail_each(Operation::Remove, Errno::IO);
}

#[test]
fn each_opening_fails_once() {
    fail_each(Operation::Open, Errno::MFILE);
}

/// A rig that flushes and compacts on request only.
fn quiet(setup: Setup) -> Rig {
    Rig::new(Setup { memtable_operations: 1000, min_compaction_threshold: 0, ..setup }, 1)
}

const NAME: &str = "12345678";

/// Its memtables stay in memory. Writers that wait for room there would wait forever.
#[test]
fn a_failed_family_that_uses_up_the_memory_refuses_all_writers() {
    let setup = Setup { memtable_operations: 1_000_000, ..Setup::default() };
    let rig = Arc::new(Rig::new(Setup { memtable_budget_bytes: 40_000, ..setup }, 1));
    rig.disk
        .inject(Fault { times: 1000, ..Fault::next(Operation::Sync, Errno::IO) }.on("Authors-"));
    // While the flush stands still, writers use up the memory.
    rig.disk.stall(Some(Operation::Create), "Authors-");
    let (tell, told) = mpsc::channel();
    let writer = Arc::clone(&rig);
    thread::spawn(move || {
        for family in [0, 2] {
            let refused = (0..1000).find_map(|i| {
                let parts = [(family, vec![insertion(NAME, 1, &[b'v'; 500])])];
                match writer.write(format!("row {i}").as_bytes(), &parts) {
                    Outcome::Refused(error) => Some(error.to_string()),
                    _ => None,
                }
            });
            tell.send(refused).unwrap();
        }
    });
    let memory = || rig.storage().family(FamilyId(0)).view().memory();
    wait_until("all memory is used", || memory() > 40_000 && rig.disk.stalled_threads() == 1);
    rig.disk.go_on();
    for _ in 0..2 {
        let refused = told.recv_timeout(PATIENCE).expect("the writer does not wait for ever");
        let reason = refused.expect("the writer is refused");
        assert!(reason.contains("Blog.Authors takes no more writes"), "{reason}");
    }
}

/// The content of that family stays in memory. The others must not have to flush with every write
/// for that.
#[test]
fn a_failed_family_that_holds_half_of_the_memory_leaves_the_rest_to_others() {
    let setup = Setup { memtable_operations: 1_000_000, ..Setup::default() };
    let rig = Rig::new(Setup { memtable_budget_bytes: 80_000, ..setup }, 1);
    rig.disk.inject(
        Fault { times: u64::MAX, ..Fault::next(Operation::Sync, Errno::IO) }.on("Authors-"),
    );
    let write = |family, i: usize| {
        let parts = [(family, vec![insertion(NAME, 1, b"v")])];
        rig.write(format!("row {i}").as_bytes(), &parts)
    };
    let authors = || rig.storage().family(FamilyId(0)).clone();
    let over_half = (0..10_000).find(|i| {
        assert!(matches!(write(0, *i), Outcome::Done));
        authors().view().memory() > 40_000
    });
    // The next write asks for the flush. No more are made until that has failed: how many would
    // fit into that time depends on the machine.
    write(0, over_half.expect("memory is used up in the end"));
    let failed = (0..10_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        authors().failure().is_some()
    });
    assert!(failed && matches!(write(0, 0), Outcome::Refused(_)), "it fails");
    let held = authors().view().memory();
    assert!(held > 40_000 && held < 60_000, "more than half, and not nearly all: {held}");
    let switched = |line: &String| {
        let memtable = line.strip_prefix("Entries is flushed to free memory")?;
        let operations = memtable.strip_suffix(" operations)")?.rsplit(' ').next()?;
        operations.parse().ok()
    };
    let rows: Option<u64> = (0..10_000).find_map(|i| {
        assert!(matches!(write(2, i), Outcome::Done));
        rig.heard.take().iter().find_map(switched)
    });
    let rows = rows.expect("it is flushed in the end");
    assert!(rows > 20, "a flush of {rows} rows");
}

/// A family without room waits for it alone.
#[test]
fn a_family_whose_disk_is_full_does_not_hold_up_the_flushes_of_others() {
    let rig = Rig::new(Setup { memtable_operations: 3, ..Setup::default() }, 1);
    rig.disk
        .inject(Fault { times: 3, ..Fault::next(Operation::Create, Errno::NOSPC) }.on("Authors-"));
    for family in [0, 2] {
        for row in 0..4 {
            rig.insert(family, &format!("row {row}"), (NAME, 1), b"v");
        }
    }
    rig.heard.wait_for(PATIENCE, &["Completed flushing", "Entries-"]);
    assert!(!rig.storage().family(FamilyId(0)).view().flushing.is_empty(), "there was no room");
    rig.heard.wait_for(PATIENCE, &["Completed flushing", "Authors-"]);
}

/// One broken disk of several must not stop the writes to all.
#[test]
fn a_directory_that_does_not_tell_its_room_gets_no_files() {
    let several = Setup { data_directories: 3, ..Setup::default() };
    let rig = quiet(Setup { unmeasured_directories: 1, ..several });
    for row in 0..6 {
        rig.insert(0, &format!("row {row}"), (NAME, 1), b"v");
        rig.storage().flush(FamilyId(0)).unwrap();
    }
    rig.storage().compact(FamilyId(0)).unwrap();
    assert_eq!(rig.files(), ["Authors.manifest"]);

    let rig = quiet(Setup { unmeasured_directories: 3, ..several });
    rig.insert(0, "ada", (NAME, 1), b"v");
    let refused = rig.storage().flush(FamilyId(0)).unwrap_err().to_string();
    assert!(refused.contains("cannot look at the space of /var/data"), "{refused}");
    assert!(rig.get(0, "ada", NAME).is_some());
}

/// A flush that fails for good is not tried again and again, before all others.
#[test]
fn a_failed_family_does_not_keep_others_from_being_flushed_by_age() {
    let rig = quiet(Setup::default());
    rig.disk.inject(Fault::next(Operation::Create, Errno::NOSPC).on("Authors-"));
    rig.insert(0, "ada", (NAME, 1), b"v");
    rig.storage().flush(FamilyId(0)).unwrap_err();
    rig.insert(0, "bob", (NAME, 1), b"v");
    rig.clock.advance(Duration::from_mins(1));
    rig.insert(2, "flushed", (NAME, 1), b"v");
    rig.storage().flush(FamilyId(2)).unwrap();
    rig.insert(2, "younger", (NAME, 1), b"v");
    rig.disk.inject(
        Fault { times: u64::MAX, ..Fault::next(Operation::Sync, Errno::IO) }.on("Authors-"),
    );
    rig.heard.take();
    rig.clock.advance(Duration::from_hours(2));
    rig.heard.wait_for(PATIENCE, &["Completed flushing", "Entries-"]);
    assert!(rig.storage().family(FamilyId(0)).failure().is_some());
}

/// Clients may hold all file handles for a while.
#[test]
fn a_flush_without_file_handles_is_tried_again() {
    for operation in [Operation::Create, Operation::Open, Operation::SyncDir] {
        let rig = Rig::new(Setup { memtable_operations: 10, ..Setup::default() }, 1);
        let folder = "/data0/Blog";
        rig.disk.inject(Fault::next(operation, Errno::MFILE).on(folder));
        for i in 0..10 {
            rig.insert(0, &format!("row {i}"), (NAME, 1), b"v");
        }
        rig.heard.wait_for(PATIENCE, &["Completed flushing"]);
        assert_eq!(rig.storage().family(FamilyId(0)).failure(), None, "{operation:?}");
        let left: Vec<_> = rig.files().into_iter().filter(|name| name.contains(".tmp")).collect();
        assert!(left.is_empty(), "{operation:?}: {left:?}");
    }
}

/// The node waits for its writers before it closes the storage.
#[test]
fn writers_that_wait_for_memory_on_a_full_disk_end_with_the_node() {
    let setup = Setup { memtable_operations: 1_000_000, ..Setup::default() };
    let rig = Rig::new(Setup { memtable_budget_bytes: 40_000, ..setup }, 1);
    rig.disk.inject(
        Fault { times: u64::MAX, ..Fault::next(Operation::Create, Errno::NOSPC) }.on(".sst"),
    );
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (0..1000).find_map(|i| {
                let parts = [(0, vec![insertion(NAME, 1, &[b'v'; 500])])];
                match rig.write(format!("row {i}").as_bytes(), &parts) {
                    Outcome::Refused(error) => Some(error),
                    _ => None,
                }
            })
        });
        let used = &rig.storage().family(FamilyId(0)).environment().memtable_memory;
        while used.load(Ordering::Relaxed) <= 40_000 {
            thread::yield_now();
        }
        rig.storage().stop_writes();
        let refused = writer.join().unwrap();
        assert!(matches!(refused, Some(WriteError::Closed)), "{refused:?}");
    });
    assert!(rig.get(0, "row 0", NAME).is_some());
}
