//! Defects that the other tests have found, each in the fewest steps that show it.

use crate::kit::disk::{Fault, Operation, Survival};
use crate::storage_model::rig::{BATCH, LOG, PERIODIC, Rig, Setup, insertion, wait_until};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::FileSystem;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::Slice;
use alexandra::ring::RowRange;
use alexandra::storage::sstable::Access;
use fastrand::Rng;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Two families that are flushed only on request.
const FLUSHED: u32 = 0;
const PINNING: u32 = 2;

/// Name of a column of the second: eight bytes.
const NUMBER: &str = "12345678";

fn rig(setup: Setup) -> Rig {
    Rig::new(Setup { memtable_operations: 1_000_000, min_compaction_threshold: 0, ..setup }, 1)
}

/// Writes more than a segment of the commit log takes.
fn fill_segment(rig: &Rig, family: u32) {
    for i in 0..5 {
        rig.insert(family, "filler", (NUMBER, i), &[b'x'; 1000]);
    }
}

/// A segment is replayed whole as long as one family needs it. The deletion of what another family
/// had in it may stand in a later segment that is gone, and may have been purged.
#[test]
fn replay_does_not_bring_back_what_was_flushed_deleted_and_purged() {
    let mut rig = rig(Setup { sync: PERIODIC, ..Setup::default() });
    let flushed = FamilyId(FLUSHED);
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    rig.storage().flush(flushed).unwrap();
    fill_segment(&rig, PINNING);
    fill_segment(&rig, FLUSHED);
    rig.delete(FLUSHED, "ada", "email", 6);
    fill_segment(&rig, FLUSHED);
    rig.storage().flush(flushed).unwrap();
    rig.clock.advance(Duration::from_secs(100));
    rig.storage().compact(flushed).unwrap();
    assert_eq!(rig.get(FLUSHED, "ada", "email"), None);
    rig.crash(Survival::Everything, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert_eq!(rig.get(FLUSHED, "ada", "email"), None);
    assert!(rig.get(PINNING, "filler", NUMBER).is_some());
}

/// The directories themselves are new, and their names have to be durable as well.
#[test]
fn the_first_start_makes_its_directories_durable() {
    let mut rig = rig(Setup { sync: BATCH, ..Setup::default() });
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert!(rig.get(FLUSHED, "ada", "email").is_some());
}

/// One family's part of a mutation gets durable by a flush, the other's only by the log.
#[test]
fn a_flush_does_not_save_half_of_a_mutation() {
    let mut rig = rig(Setup { sync: PERIODIC, ..Setup::default() });
    let parts = [FLUSHED, PINNING].map(|family| (family, vec![insertion(NUMBER, 1, b"whole")]));
    rig.write(b"ada", &parts);
    rig.storage().flush(FamilyId(FLUSHED)).unwrap();
    rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert_eq!(rig.get(FLUSHED, "ada", NUMBER), rig.get(PINNING, "ada", NUMBER));
}

/// After a kill the log may be in the page cache only, and replay flushes when memory is short. The
/// power fails after each change that the start makes.
#[test]
fn a_flush_during_replay_does_not_save_half_of_a_mutation() {
    const ROWS: usize = 30;
    let mut rig = rig(Setup { sync: PERIODIC, ..Setup::default() });
    for row in 0..ROWS {
        let parts = [FLUSHED, PINNING].map(|family| (family, vec![insertion(NUMBER, 1, b"whole")]));
        rig.write(format!("row {row}").as_bytes(), &parts);
    }
    rig.kill();
    rig.setup.memtable_budget_bytes = 4096;
    let killed = rig.disk.clone();
    let mut kept = 0;
    for changes in 0.. {
        rig.disk = killed.fork();
        rig.disk.power_off_after(changes);
        let is_open = rig.open().is_ok();
        rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
        rig.open().unwrap();
        for row in 0..ROWS {
            let key = format!("row {row}");
            let found = rig.get(FLUSHED, &key, NUMBER);
            assert_eq!(found, rig.get(PINNING, &key, NUMBER), "{key} after {changes} changes");
            kept += usize::from(found.is_some());
        }
        rig.close();
        if is_open {
            break;
        }
    }
    assert!(kept > 0, "what was replayed is durable before the start is complete");
}

/// A log that cannot be made durable is not replayed: a flush could save half of a mutation.
#[test]
fn a_start_that_cannot_sync_the_log_says_so() {
    let mut rig = rig(Setup { sync: PERIODIC, ..Setup::default() });
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    rig.kill();
    rig.disk.inject(Fault::next(Operation::Sync, Errno::IO).on(".alog"));
    let refused = rig.open().unwrap_err().to_string();
    assert!(refused.contains("cannot sync") && refused.contains(".alog"), "{refused}");
}

/// The manifest names the new SSTable, so that it must not fall back to the old ones in memory:
/// they would be merged again and the leftover, with what was purged since, count at the start.
#[test]
fn a_compaction_counts_once_its_manifest_does() {
    let mut rig = rig(Setup::default());
    let family = FamilyId(FLUSHED);
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    rig.storage().flush(family).unwrap();
    let final_name = Fault::nth(Operation::Rename, 0, Errno::IO).on(".sst");
    rig.disk.inject(final_name);
    let _ = rig.storage().compact(family);
    assert_eq!(rig.get(FLUSHED, "ada", "email").as_deref(), Some(&b"ada@example.com"[..]));
    rig.delete(FLUSHED, "ada", "email", 6);
    rig.storage().flush(family).unwrap();
    rig.clock.advance(Duration::from_secs(100));
    rig.storage().compact(family).unwrap();
    for _ in 0..2 {
        assert_eq!(rig.get(FLUSHED, "ada", "email"), None);
        rig.close();
        rig.open().unwrap();
    }
    assert_eq!(rig.files(), ["Authors.manifest"]);
}

/// Each attempt writes a file as large as the memtable, on a disk that is nearly full.
#[test]
fn attempts_to_flush_do_not_pile_up() {
    let rig = rig(Setup::default());
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    let full = Fault::next(Operation::Write, Errno::NOSPC).on(".manifest");
    rig.disk.inject(Fault { times: 5, ..full });
    for _ in 0..5 {
        rig.storage().flush(FamilyId(FLUSHED)).unwrap_err();
    }
    let left = rig.files().into_iter().filter(|name| name.contains(".sst")).count();
    assert_eq!(left, 0, "{:?}", rig.files());
    rig.storage().flush(FamilyId(FLUSHED)).unwrap();
    assert!(rig.get(FLUSHED, "ada", "email").is_some());
}

/// A mutation may name a family and change nothing there.
#[test]
fn an_empty_mutation_makes_no_row() {
    let rig = rig(Setup::default());
    rig.write(b"ada", &[(FLUSHED, Vec::new())]);
    let (family, all) = (FamilyId(FLUSHED), Slice::all(None));
    let rows = rig
        .storage()
        .family(family)
        .scan(&RowRange::all(), &all, 9, &RequestContext::default(), Access::Cached)
        .unwrap();
    assert_eq!(rows, []);
}

/// Removing a large file takes long, and readers are threads that serve connections.
#[test]
fn a_reader_is_never_the_one_who_removes_a_file() {
    let rig = rig(Setup::default());
    for key in ["ada", "bob"] {
        rig.insert(FLUSHED, key, ("email", 5), b"ada@example.com");
        rig.storage().flush(FamilyId(FLUSHED)).unwrap();
    }
    let store = rig.storage().family(FamilyId(FLUSHED));
    let reader = store.view();
    rig.storage().compact(FamilyId(FLUSHED)).unwrap();
    let paths: Vec<_> = reader.tables.iter().map(|table| table.path().to_owned()).collect();
    assert!(paths.len() == 2 && paths.iter().all(|path| rig.disk.exists(path)), "still read");
    assert!(reader.tables.iter().all(|table| Arc::strong_count(table) > 1), "kept for another");
    drop(reader);
    // The housekeeper looks as well, and may be the one that removes them, a moment later.
    wait_until("the files are removed", || {
        store.remove_replaced();
        !paths.iter().any(|path| rig.disk.exists(path))
    });
}

#[test]
fn a_family_that_was_empty_at_the_start_keeps_no_segment_of_earlier_runs() {
    let mut rig = rig(Setup::default());
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    let entries = rig.disk.list(LOG.as_ref()).unwrap().into_iter();
    let earlier: Vec<_> =
        entries.map(|entry| entry.name).filter(|name| name.contains(".alog")).collect();
    rig.kill();
    // What was replayed is flushed only after the next insertion.
    rig.disk.stall(Some(Operation::Create), ".sst");
    rig.open().unwrap();
    rig.insert(PINNING, "ada", (NUMBER, 5), b"1");
    rig.disk.go_on();
    wait_until("the segments of the first run are gone", || {
        let entries = rig.disk.list(LOG.as_ref()).unwrap();
        !entries.iter().any(|entry| earlier.contains(&entry.name))
    });
}
