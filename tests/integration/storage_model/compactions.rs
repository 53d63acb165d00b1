//! Compactions: several at once, behind the writers, in levels. What they purge, and what they do
//! without room, stands in the scripts of `compaction`.

use crate::storage_model::rig::{PATIENCE, PERIODIC, Rig, Setup, schema, wait_until};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::events::Events;
use alexandra::base::fs::OsFileSystem;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::ring::Partitioner;
use alexandra::storage::compaction::{CompactionError, CompactionKind};
use alexandra::storage::database::{Components, WriteError};
use alexandra::storage::sstable::SsTable;
use alexandra::storage::{CompactionOptions, CompactionStrategy, Database, FamilyOptions, Options};
use fastrand::Rng;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const NAME: &str = "12345678";
const AUTHORS: FamilyId = FamilyId(0);
const ENTRIES: FamilyId = FamilyId(2);

/// Stops compactions of Authors where they begin, until it is released.
#[derive(Debug, Default)]
struct Hold {
    /// Only the first of them.
    once: bool,
    /// Whether one has come, and whether it is released.
    state: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Hold {
    fn release(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    fn wait_until_met(&self) {
        let state = self.state.lock().unwrap();
        let (state, _) = self.changed.wait_timeout_while(state, PATIENCE, |s| !s.0).unwrap();
        assert!(state.0, "no compaction begins");
    }
}

impl Hold {
    fn hear(&self, line: &str) {
        let mut state = self.state.lock().unwrap();
        let begins = line.starts_with("Compacting [") && line.ends_with(".Authors)");
        if begins && !(self.once && state.0) {
            state.0 = true;
            self.changed.notify_all();
            drop(self.changed.wait_timeout_while(state, PATIENCE, |s| !s.1).unwrap());
        }
    }
}

/// Flushes on request only.
fn rig(min_compaction_threshold: usize) -> Rig {
    Rig::new(setup(min_compaction_threshold), 1)
}

fn setup(min_compaction_threshold: usize) -> Setup {
    let memtable_operations = 1_000_000;
    Setup { memtable_operations, min_compaction_threshold, sync: PERIODIC, ..Setup::default() }
}

fn held_rig(min_compaction_threshold: usize) -> (Rig, Arc<Hold>) {
    let hold = Arc::new(Hold { once: true, ..Hold::default() });
    let mut rig = Rig::unopened(setup(min_compaction_threshold), 1);
    let hears = Arc::clone(&hold);
    rig.heard.call(Arc::new(move |line| hears.hear(line)));
    rig.open().unwrap();
    (rig, hold)
}

/// Writes SSTables with a row each of about so many bytes that cannot be compressed.
fn tables(rig: &Rig, family: FamilyId, sizes: &[usize]) {
    for size in sizes {
        let mut rng = Rng::with_seed(*size as u64);
        let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(*size).collect();
        rig.insert(family.0, &format!("row of {size}"), (NAME, 1), &value);
        rig.storage().flush(family).unwrap();
    }
}

fn table_count(rig: &Rig, family: FamilyId) -> usize {
    rig.storage().family(family).view().tables.len()
}

#[test]
fn a_compaction_that_takes_long_keeps_no_other_from_its_turn() {
    let (rig, hold) = held_rig(3);
    tables(&rig, AUTHORS, &[100, 101, 102]);
    hold.wait_until_met();
    let [running] = &rig.storage().compactions()[..] else { panic!("one is running") };
    assert_eq!((&*running.family.name, running.kind), ("Authors", CompactionKind::Minor));
    assert_eq!((running.inputs.len(), running.bytes_read), (3, 0));
    assert!(running.bytes_total > 300);
    // Of another family, and then more of the same.
    tables(&rig, ENTRIES, &[100, 101, 102]);
    rig.heard.wait_for(PATIENCE, &["Compacted to", "Entries-"]);
    tables(&rig, AUTHORS, &[103, 104, 105]);
    // None of the files that are being compacted.
    rig.heard.wait_for(PATIENCE, &["Compacted to", "Authors-", "for 3 keys"]);
    assert_eq!(table_count(&rig, AUTHORS), 4);
    hold.release();
    wait_until("the first ends as well", || rig.storage().compaction_totals().completed >= 3);
    for size in 100..106 {
        assert!(rig.get(AUTHORS.0, &format!("row of {size}"), NAME).is_some());
    }
    let totals = rig.storage().compaction_totals();
    assert!(totals.bytes_in > totals.bytes_out && totals.bytes_out > 600, "{totals:?}");
}

#[test]
fn a_major_compaction_waits_for_those_that_run() {
    let (rig, hold) = held_rig(3);
    tables(&rig, AUTHORS, &[100, 101, 102]);
    hold.wait_until_met();
    tables(&rig, AUTHORS, &[103]);
    thread::scope(|scope| {
        let major = scope.spawn(|| rig.storage().compact(AUTHORS));
        // From now on no more of them begin.
        wait_until("it waits", || rig.storage().family(AUTHORS).choosable().free.is_empty());
        hold.release();
        major.join().unwrap().unwrap();
    });
    let told = ["(minor", "(major", "Compacted to"];
    let lines = rig.heard.lines();
    let steps = lines.iter().filter_map(|line| told.iter().find(|told| line.contains(**told)));
    let expected = ["(minor", "Compacted to", "(major", "Compacted to"];
    assert_eq!(steps.copied().collect::<Vec<_>>(), expected);
    assert_eq!(table_count(&rig, AUTHORS), 1);
}

#[test]
fn a_waiting_major_compaction_ends_with_the_node() {
    let (mut rig, hold) = held_rig(3);
    tables(&rig, AUTHORS, &[100, 101, 102]);
    hold.wait_until_met();
    thread::scope(|scope| {
        let major = scope.spawn(|| rig.storage().compact(AUTHORS));
        wait_until("it waits", || rig.storage().family(AUTHORS).choosable().free.is_empty());
        rig.storage().stop_writes();
        let stopped = major.join().unwrap();
        assert!(matches!(stopped, Err(CompactionError::Stopped)), "{stopped:?}");
        hold.release();
    });
    rig.close();
    rig.open().unwrap();
    assert_eq!(rig.get(AUTHORS.0, "row of 100", NAME).map(|value| value.len()), Some(100));
}

#[test]
fn a_file_that_was_replaced_goes_soon_after_its_last_reader() {
    let rig = rig(0);
    tables(&rig, AUTHORS, &[100, 101]);
    let reader = rig.storage().family(AUTHORS).view();
    rig.storage().compact(AUTHORS).unwrap();
    let files = || rig.files().into_iter().filter(|name| name.contains("Authors-")).count();
    assert_eq!(files(), 3);
    drop(reader);
    wait_until("the files are removed", || files() == 1);
}

/// Levels of ever more files that do not overlap, each of which a read of a row leaves out but one.
#[test]
fn levels_hold_files_that_do_not_overlap() {
    let rig = Rig::new(Setup { strategy: CompactionStrategy::Leveled, ..setup(4) }, 1);
    let mut rng = Rng::with_seed(1);
    let is_merged =
        || rig.storage().pending_compactions().is_empty() && rig.storage().compactions().is_empty();
    for round in 0..60 {
        for _ in 0..10 {
            let value = rng.u64(..).to_be_bytes();
            rig.insert(0, &format!("row {}", rng.u32(..400)), (NAME, round), &value);
        }
        rig.storage().flush(AUTHORS).unwrap();
        // Many flushed files would be merged at once, into few.
        wait_until("all is merged", is_merged);
    }
    let store = rig.storage().family(AUTHORS);
    let view = store.view();
    let of = |level: u32| view.tables.iter().filter(move |table| table.level() == level);
    assert!(of(0).count() < 4 && of(1).count() > 3 && of(2).count() > 3, "{:?}", rig.files());
    for level in 1..4 {
        let mut tables: Vec<_> = of(level).collect();
        tables.sort_by_key(|table| table.first_key().cloned());
        let ordered = |pair: &[&Arc<SsTable>]| pair[0].last_key() < pair[1].first_key();
        assert!(tables.windows(2).all(ordered), "level {level}");
        let bytes: u64 = tables.iter().map(|table| table.size()).sum();
        assert!(bytes <= 1000 * 10_u64.pow(level), "level {level} holds {bytes}");
    }
    rig.storage().compact(AUTHORS).unwrap();
    let view = store.view();
    let levels: Vec<_> = view.tables.iter().map(|table| table.level()).collect();
    assert!(levels.len() > 3 && levels.iter().all(|level| *level == levels[0]), "{levels:?}");
}

/// A storage on the real disk whose compactions may read one KB per second.
fn throttled(directory: &std::path::Path, hold: &Arc<Hold>) -> Database {
    let hold = Arc::clone(hold);
    let options = Options {
        segment_bytes: 1 << 22,
        memtable_budget_bytes: 1 << 26,
        block_cache_bytes: 1 << 16,
        compaction: CompactionOptions { bytes_per_second: Some(1024), ..Default::default() },
        ..Options::new(directory.join("data"), directory.join("commitlog"))
    };
    let components = Components {
        events: Events::received_by(move |_, _, line| hold.hear(line)),
        ..Components::new(Arc::new(OsFileSystem), Arc::new(SystemClock::new()))
    };
    let family_options = |_| FamilyOptions {
        memtable_operations: 200,
        min_compaction_threshold: 2,
        max_compaction_threshold: 4,
        ..FamilyOptions::default()
    };
    Database::open(components, options, Partitioner::Random, schema(864_000), family_options)
        .unwrap()
}

fn write(storage: &Database, row: usize, may_block: bool) -> Result<(), WriteError> {
    let key = format!("row {}", row % 1000);
    let mut builder =
        MutationBuilder::new(storage.schema(), crate::storage_model::rig::KEYSPACE, key.as_bytes());
    builder.family(AUTHORS).insert((b"", NAME.as_bytes()), &[b'v'; 100], row as i64);
    storage.apply(&builder.finish(), may_block).map(|_| ())
}

/// A throttle that no compaction could keep up with under this load.
#[test]
fn under_sustained_load_the_number_of_files_stays_bounded_whatever_the_throttle() {
    let directory = tempfile::tempdir().unwrap();
    let hold = Arc::new(Hold::default());
    hold.release();
    let storage = throttled(directory.path(), &hold);
    let mut most = 0;
    // For some hundred flushes.
    for written in 0..80_000 {
        write(&storage, written, true).unwrap();
        most = most.max(storage.family(AUTHORS).view().tables.len());
    }
    // 16 is where writes begin to be delayed.
    assert!(most <= 40, "{most} files");
}

#[test]
fn writers_are_slowed_when_nothing_is_compacted_and_never_stalled() {
    let directory = tempfile::tempdir().unwrap();
    let hold = Arc::new(Hold::default());
    let storage = throttled(directory.path(), &hold);
    storage.set_compaction_thresholds(AUTHORS, 0, 0).unwrap();
    let files = || storage.family(AUTHORS).view().tables.len();
    for row in 0..64 {
        write(&storage, row, true).unwrap();
        storage.flush(AUTHORS).unwrap();
    }
    assert_eq!(files(), 64);
    let delay = || storage.family(AUTHORS).pressure().write_delay();
    assert_eq!(delay(), Duration::ZERO, "who switches compaction off wants no delay");
    storage.set_compaction_thresholds(AUTHORS, 2, 4).unwrap();
    hold.wait_until_met();
    let slowed = delay();
    assert!(slowed > Duration::from_millis(1) && slowed < Duration::from_millis(50), "{slowed:?}");
    let refused = write(&storage, 0, false);
    assert!(matches!(refused, Err(WriteError::WouldBlock)), "{refused:?}");
    let clock = SystemClock::new();
    write(&storage, 0, true).unwrap();
    assert!(clock.monotonic() >= slowed);
    hold.release();
    wait_until("the files are merged", || files() < 4 && delay().is_zero());
    write(&storage, 0, true).unwrap();
}
