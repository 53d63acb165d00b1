//! Compactions: several at once, without room, behind the writers; what they purge and free.

use crate::kit::disk::{Fault, Operation};
use crate::storage_model::model::{Target, Write};
use crate::storage_model::rig::{PERIODIC, Rig, Setup, insertion, schema};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::events::{CompactionEvent, CompactionKind, Event, Events, Listener};
use alexandra::base::fs::{FileSystem, OsFileSystem};
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::ring::Partitioner;
use alexandra::storage::compaction::{CompactionError, ThresholdError};
use alexandra::storage::engine::{Components, WriteError};
use alexandra::storage::sstable::SsTable;
use alexandra::storage::{CompactionOptions, CompactionStrategy, FamilyOptions, Options, Storage};
use fastrand::Rng;
use rustix::io::Errno;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Long enough for anything that the threads in the background do, short enough for a test.
const PATIENCE: Duration = Duration::from_secs(20);

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

impl Listener for Hold {
    fn on_event(&self, event: &Event) {
        let Event::Compaction(CompactionEvent::Begin { family, .. }) = event else { return };
        let mut state = self.state.lock().unwrap();
        if &*family.name == "Authors" && !(self.once && state.0) {
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
    rig.listen(hold.clone());
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

/// From now on the disk has room for so many bytes more.
fn leave_room(rig: &Rig, bytes: u64) {
    const LARGE: u64 = 1 << 40;
    rig.disk.set_capacity(Some(LARGE));
    let used = LARGE - rig.disk.available_space("/".as_ref()).unwrap();
    rig.disk.set_capacity(Some(used + bytes));
}

fn table_count(rig: &Rig, family: FamilyId) -> usize {
    rig.storage().store(family).view().tables.len()
}

fn wait_for(rig: &Rig, what: &str, wanted: impl Fn(&CompactionEvent) -> bool) -> CompactionEvent {
    let heard = rig.heard.wait_for(PATIENCE, |event| match event {
        Event::Compaction(event) => wanted(event),
        _ => false,
    });
    match heard {
        Some(Event::Compaction(event)) => event,
        _ => panic!("{what} is not heard of: {:?}", rig.heard.events()),
    }
}

fn ended(name: &'static str) -> impl Fn(&CompactionEvent) -> bool {
    move |event| matches!(event, CompactionEvent::End { family, .. } if &*family.name == name)
}

/// Looks again and again, since what it waits for tells nobody.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    while !is_so() {
        assert!(clock.monotonic() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
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
    wait_for(&rig, "that of the other family", ended("Entries"));
    tables(&rig, AUTHORS, &[103, 104, 105]);
    let CompactionEvent::End { keys, .. } =
        wait_for(&rig, "that of the same family", ended("Authors"))
    else {
        unreachable!()
    };
    assert_eq!(keys, 3, "none of the files that are being compacted");
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
        wait_until("it waits", || rig.storage().store(AUTHORS).choosable().free.is_empty());
        hold.release();
        major.join().unwrap().unwrap();
    });
    let events = rig.heard.events();
    let kinds = events.iter().filter_map(|event| match event {
        Event::Compaction(CompactionEvent::Begin { kind, .. }) => Some(("begin", *kind)),
        Event::Compaction(CompactionEvent::End { kind, .. }) => Some(("end", *kind)),
        _ => None,
    });
    let (minor, major) = (CompactionKind::Minor, CompactionKind::Major);
    let expected = [("begin", minor), ("end", minor), ("begin", major), ("end", major)];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    assert_eq!(table_count(&rig, AUTHORS), 1);
}

#[test]
fn a_waiting_major_compaction_ends_with_the_node() {
    let (mut rig, hold) = held_rig(3);
    tables(&rig, AUTHORS, &[100, 101, 102]);
    hold.wait_until_met();
    thread::scope(|scope| {
        let major = scope.spawn(|| rig.storage().compact(AUTHORS));
        wait_until("it waits", || rig.storage().store(AUTHORS).choosable().free.is_empty());
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
fn without_room_nothing_is_written_and_it_goes_on_by_itself_when_there_is_some() {
    let rig = rig(0);
    tables(&rig, AUTHORS, &[3000, 3001, 3002]);
    leave_room(&rig, 6000);
    rig.storage().set_compaction_thresholds(AUTHORS, 3, 32).unwrap();
    let CompactionEvent::NoRoom { needed, .. } =
        wait_for(&rig, "the want of room", |event| matches!(event, CompactionEvent::NoRoom { .. }))
    else {
        unreachable!()
    };
    assert!(needed > 6000, "two of them: {needed}");
    assert_eq!((table_count(&rig, AUTHORS), rig.files().len()), (3, 4));
    // Tried again, and not told again.
    rig.clock.advance(Duration::from_secs(6));
    wait_until("it is tried again", || rig.storage().compaction_totals().failed >= 2);
    let told = |e: &&Event| matches!(e, Event::Compaction(CompactionEvent::NoRoom { .. }));
    assert_eq!(rig.heard.events().iter().filter(told).count(), 1);
    rig.disk.set_capacity(None);
    rig.clock.advance(Duration::from_secs(60));
    wait_for(&rig, "the compaction", ended("Authors"));
    assert_eq!(table_count(&rig, AUTHORS), 1);
}

#[test]
fn the_largest_is_left_out_if_there_is_room_for_the_others() {
    let rig = rig(0);
    tables(&rig, AUTHORS, &[1000, 9000, 1001]);
    leave_room(&rig, 8000);
    rig.storage().compact(AUTHORS).unwrap();
    let CompactionEvent::LeftOut { left_out, .. } =
        wait_for(&rig, "it", |event| matches!(event, CompactionEvent::LeftOut { .. }))
    else {
        unreachable!()
    };
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].ends_with("Authors-2.sst"), "{left_out:?}");
    assert_eq!(table_count(&rig, AUTHORS), 2);
    leave_room(&rig, 1000);
    let refused = rig.storage().compact(AUTHORS).unwrap_err();
    assert!(matches!(refused, CompactionError::NoRoom { .. }), "{refused}");
    for size in [1000, 9000, 1001] {
        assert!(rig.get(AUTHORS.0, &format!("row of {size}"), NAME).is_some());
    }
}

#[test]
fn a_disk_that_fills_up_meanwhile_leaves_nothing_behind() {
    for (operation, errno) in [
        (Operation::Create, Errno::NOSPC),
        (Operation::Write, Errno::NOSPC),
        (Operation::Sync, Errno::IO),
    ] {
        let rig = rig(3);
        tables(&rig, AUTHORS, &[100, 101]);
        rig.disk.inject(Fault::nth(operation, 1, errno).on("/Authors-"));
        tables(&rig, AUTHORS, &[102]);
        let failed = |event: &CompactionEvent| matches!(event, CompactionEvent::Failed { .. });
        wait_for(&rig, "the failure", failed);
        wait_until("the rest is removed", || rig.files().len() == 4);
        assert_eq!(table_count(&rig, AUTHORS), 3);
        rig.clock.advance(Duration::from_secs(6));
        wait_for(&rig, "the next attempt", ended("Authors"));
        assert_eq!(table_count(&rig, AUTHORS), 1, "{operation:?}");
    }
}

#[test]
fn thresholds_may_change_while_it_runs() {
    let rig = rig(0);
    tables(&rig, AUTHORS, &[100, 101, 102, 103]);
    let storage = rig.storage();
    let refused = storage.set_compaction_thresholds(AUTHORS, 1, 32);
    assert_eq!(refused, Err(ThresholdError::TooSmall));
    assert_eq!((table_count(&rig, AUTHORS), storage.pending_compactions()), (4, Vec::new()));
    storage.set_compaction_thresholds(AUTHORS, 2, 3).unwrap();
    wait_until("they are merged", || table_count(&rig, AUTHORS) < 2);
    storage.set_compaction_thresholds(AUTHORS, 0, 0).unwrap();
    tables(&rig, AUTHORS, &[104, 105, 106]);
    assert_eq!(table_count(&rig, AUTHORS), 4);
}

#[test]
fn a_file_that_was_replaced_goes_soon_after_its_last_reader() {
    let rig = rig(0);
    tables(&rig, AUTHORS, &[100, 101]);
    let reader = rig.storage().store(AUTHORS).view();
    rig.storage().compact(AUTHORS).unwrap();
    let files = || rig.files().into_iter().filter(|name| name.contains("Authors-")).count();
    assert_eq!(files(), 3);
    drop(reader);
    wait_until("the files are removed", || files() == 1);
}

/// Columns and tombstones in all SSTables of the family.
fn stored(rig: &Rig) -> (u64, u64) {
    let view = rig.storage().store(AUTHORS).view();
    let facts = view.tables.iter().map(|table| table.properties());
    facts.fold((0, 0), |sum, one| (sum.0 + one.cells, sum.1 + one.tombstones))
}

#[test]
fn a_tombstone_goes_although_newer_columns_of_the_row_are_elsewhere() {
    let rig = rig(0);
    rig.insert(0, "ada", ("a", 50), b"deleted");
    rig.delete(0, "ada", "a", 51);
    rig.storage().flush(AUTHORS).unwrap();
    rig.clock.advance(Duration::from_secs(100));
    // As old as the tombstone: it could be what it deletes.
    rig.insert(0, "ada", ("b", 51), b"in the memtable");
    rig.storage().compact(AUTHORS).unwrap();
    assert_eq!(stored(&rig), (1, 1));
    rig.storage().flush(AUTHORS).unwrap();
    rig.storage().compact(AUTHORS).unwrap();
    assert_eq!(stored(&rig), (1, 0));
    rig.delete(0, "ada", "c", 60);
    rig.storage().flush(AUTHORS).unwrap();
    rig.clock.advance(Duration::from_secs(100));
    rig.insert(0, "ada", ("d", 61), b"in the memtable");
    rig.storage().compact(AUTHORS).unwrap();
    assert_eq!(stored(&rig), (1, 0));
    assert!(rig.get(0, "ada", "b").is_some() && rig.get(0, "ada", "d").is_some());
}

/// It deletes nothing that could ever be seen, but replicas have to hear of it all the same.
#[test]
fn a_deletion_with_the_least_timestamp_there_is_stays_for_its_grace_period() {
    let rig = rig(0);
    let deletion = Write { value: None, deleted_at: rig.now(), ..insertion(NAME, i64::MIN, b"") };
    rig.write(b"ada", &[(AUTHORS.0, vec![deletion])]);
    rig.storage().flush(AUTHORS).unwrap();
    rig.storage().compact(AUTHORS).unwrap();
    assert_eq!(stored(&rig), (1, 1));
    rig.clock.advance(Duration::from_secs(100));
    rig.storage().compact(AUTHORS).unwrap();
    assert_eq!(stored(&rig), (0, 0));
}

/// What of a row is deleted, and a column that is older than that.
fn deletions() -> [(u32, Target, Write); 3] {
    let column = insertion(NAME, 49, b"older");
    let below = Target::Column(NAME.into(), b"a".to_vec());
    let in_super_column = Write { target: below, ..column.clone() };
    [
        (0, column.target.clone(), column.clone()),
        (0, Target::Row, column),
        (1, Target::SuperColumn(NAME.into()), in_super_column),
    ]
}

/// The older column arrives late, as from the repair of a replica that was down.
#[test]
fn no_tombstone_goes_while_what_it_deletes_is_elsewhere() {
    for (family, target, older) in deletions() {
        for is_flushed in [false, true] {
            let rig = rig(0);
            let (id, storage) = (FamilyId(family), rig.storage());
            let fill = |key: &[u8]| {
                let filler = Write { timestamp: 90, ..older.clone() };
                rig.write(key, &[(family, vec![filler])]);
            };
            let deletion = Write { target: target.clone(), timestamp: 50, ..older.clone() };
            let deletion = Write { value: None, deleted_at: rig.now(), ..deletion };
            rig.write(b"ada", &[(family, vec![deletion])]);
            storage.flush(id).unwrap();
            fill(b"bob");
            storage.flush(id).unwrap();
            rig.clock.advance(Duration::from_secs(100));
            rig.write(b"ada", &[(family, vec![older.clone()])]);
            if is_flushed {
                fill(b"cyd");
                storage.flush(id).unwrap();
            }
            let before = storage.compaction_totals().completed;
            // The two oldest are merged, which leaves the late column out; then that as well.
            storage.set_compaction_thresholds(id, 2, 2).unwrap();
            let count = 1 + u64::from(is_flushed);
            wait_until("all is merged", || storage.compaction_totals().completed == before + count);
            let all = alexandra::model::slice::Slice::all(None);
            let row = rig.read(family, b"ada", &all).unwrap();
            assert_eq!(row.count, 0, "{target:?} {is_flushed}: it came back");
        }
    }
}

/// The deletion of a row alone in its file, and what was written before and behind it in another:
/// all that is older stays deleted, whether the deletion goes or not.
#[test]
fn what_a_row_deletion_covers_goes_before_the_deletion_does() {
    for (passes, block_bytes) in [(0, 200), (0, 2000), (100, 200), (100, 2000)] {
        let rig = Rig::new(Setup { block_bytes, ..setup(0) }, 1);
        rig.insert(0, "ada", ("older", 49), b"deleted");
        rig.insert(0, "ada", ("newer", 51), b"stays");
        rig.storage().flush(AUTHORS).unwrap();
        let deletion = Write { target: Target::Row, ..insertion("", 50, b"") };
        let deletion = Write { value: None, deleted_at: rig.now(), ..deletion };
        rig.write(b"ada", &[(0, vec![deletion])]);
        rig.storage().flush(AUTHORS).unwrap();
        rig.clock.advance(Duration::from_secs(passes));
        rig.storage().compact(AUTHORS).unwrap();
        assert_eq!(table_count(&rig, AUTHORS), 1);
        assert_eq!(rig.get(0, "ada", "older"), None, "after {passes} s");
        assert!(rig.get(0, "ada", "newer").is_some());
        let (cells, tombstones) = stored(&rig);
        assert_eq!((cells, tombstones), (1, u64::from(passes == 0)), "after {passes} s");
    }
}

/// The files of a quiet family are never enough for a minor compaction.
#[test]
fn what_was_deleted_frees_the_disk_in_a_quiet_family_as_well() {
    let rig = rig(4);
    for i in 0..20 {
        rig.insert(0, &format!("row {i}"), ("a", 50), b"deleted");
    }
    rig.storage().flush(AUTHORS).unwrap();
    for i in 0..20 {
        rig.delete(0, &format!("row {i}"), "a", 51);
    }
    rig.insert(0, "ada", ("a", 60), b"stays");
    rig.storage().flush(AUTHORS).unwrap();
    rig.clock.advance(Duration::from_hours(23));
    rig.storage().set_compaction_thresholds(AUTHORS, 4, 32).unwrap();
    rig.clock.advance(Duration::from_hours(2));
    let done = wait_for(&rig, "it", ended("Authors"));
    assert!(
        matches!(done, CompactionEvent::End { kind: CompactionKind::Tombstones, keys: 1, .. }),
        "{done:?}"
    );
    assert_eq!(stored(&rig), (1, 0));
    assert!(rig.get(0, "ada", "a").is_some());
}

/// Levels of ever more files that do not overlap, each of which a read of a row leaves out but one.
#[test]
fn levels_hold_files_that_do_not_overlap() {
    let rig = Rig::new(Setup { strategy: CompactionStrategy::Leveled, ..setup(4) }, 1);
    let mut rng = Rng::with_seed(1);
    for round in 0..60 {
        for _ in 0..10 {
            let value = rng.u64(..).to_be_bytes();
            rig.insert(0, &format!("row {}", rng.u32(..400)), (NAME, round), &value);
        }
        rig.storage().flush(AUTHORS).unwrap();
    }
    let store = rig.storage().store(AUTHORS);
    wait_until("all is merged", || {
        rig.storage().pending_compactions().is_empty() && rig.storage().compactions().is_empty()
    });
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
fn throttled(directory: &std::path::Path, hold: &Arc<Hold>) -> Storage {
    let options = Options {
        segment_bytes: 1 << 22,
        memtable_budget_bytes: 1 << 26,
        block_cache_bytes: 1 << 16,
        compaction: CompactionOptions { bytes_per_second: Some(1024), ..Default::default() },
        ..Options::new(directory.join("data"), directory.join("commitlog"))
    };
    let components = Components {
        fs: Arc::new(OsFileSystem),
        clock: Arc::new(SystemClock::new()),
        events: Events::ignored().and(hold.clone()),
    };
    let family_options = |_| FamilyOptions {
        memtable_operations: 200,
        min_compaction_threshold: 2,
        max_compaction_threshold: 4,
        ..FamilyOptions::default()
    };
    Storage::open(components, options, Partitioner::Random, schema(), family_options).unwrap()
}

fn write(storage: &Storage, row: usize, may_block: bool) -> Result<(), WriteError> {
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
        most = most.max(storage.store(AUTHORS).view().tables.len());
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
    let files = || storage.store(AUTHORS).view().tables.len();
    for row in 0..64 {
        write(&storage, row, true).unwrap();
        storage.flush(AUTHORS).unwrap();
    }
    assert_eq!(files(), 64);
    let delay = || storage.store(AUTHORS).pressure().write_delay();
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
