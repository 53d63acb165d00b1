//! Many threads on the same rows, on the real file system.

use crate::storage_model::rig::{KEYSPACE, schema};
use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::OsFileSystem;
use alexandra::config::settings::CacheSize;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::ring::{Partitioner, RowRange};
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::database::Components;
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions, Options};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// How long the threads run.
const RUN_TIME: Duration = Duration::from_millis(2500);

/// Between two major compactions.
const MAJOR_PAUSE: Duration = Duration::from_millis(30);

const FAMILY: FamilyId = FamilyId(0);
const ROWS: i64 = 4;
const COLUMNS: usize = 100;

fn open(directory: &std::path::Path, clock: &Arc<SystemClock>, caches: Caches) -> Database {
    let options = Options {
        sync: SyncPolicy::Periodic { every: Duration::from_millis(50) },
        segment_bytes: 1 << 18,
        memtable_budget_bytes: 1 << 22,
        block_cache_bytes: if caches == Caches::Tiny { 1 << 12 } else { 1 << 16 },
        ..Options::new(directory.join("data"), directory.join("commitlog"))
    };
    let components = Components::new(Arc::new(OsFileSystem), clock.clone());
    let family_options = move |_| FamilyOptions {
        memtable_operations: 5000,
        block_bytes: 512,
        index_interval: 2,
        min_compaction_threshold: 2,
        keys_cached: CacheSize::Entries(3),
        rows_cached: if caches == Caches::Tiny { CacheSize::Entries(2) } else { CacheSize::Off },
        ..FamilyOptions::default()
    };
    Database::open(components, options, Partitioner::Random, schema(0), family_options).unwrap()
}

/// How much is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// Blocks.
    Usual,
    /// Of rows, of their places and of blocks less than there are.
    Tiny,
}

fn key(row: i64) -> RowKey {
    RowKey::from(format!("row {row}").as_str())
}

/// Sets all columns of a row to the timestamp, or deletes the row just before.
fn write(storage: &Database, row: i64, timestamp: i64, now: i32) {
    let key = key(row);
    let mut builder = MutationBuilder::new(storage.schema(), KEYSPACE, key.as_bytes());
    builder.family(FAMILY);
    if timestamp % 5 == 0 {
        builder.delete_row(Deletion::at(timestamp - 1, now));
    }
    for column in 0..COLUMNS {
        let name = format!("column {column:03}");
        builder.insert((b"", name.as_bytes()), &timestamp.to_be_bytes(), timestamp);
    }
    storage.apply(&builder.finish(), true).unwrap();
}

/// The value that all columns have; 0 for a row that was never written.
fn the_value(row: &RowSlice) -> i64 {
    let Some(first) = row.cells.first() else { return 0 };
    assert_eq!(row.cells.len(), COLUMNS, "half of a row");
    assert!(row.cells.iter().all(|cell| cell.value() == first.value()), "half of a mutation");
    first.timestamp()
}

/// State that the threads share.
struct Run {
    storage: Database,
    clock: Arc<SystemClock>,
    stop: AtomicBool,
    timestamps: AtomicI64,
    /// The newest acknowledged timestamp of each row.
    newest: [AtomicI64; ROWS as usize],
    reads: AtomicU64,
    row_cache_hits: AtomicU64,
}

impl Run {
    fn repeat(&self, mut act: impl FnMut(i64)) {
        let mut round = 0;
        while !self.stop.load(Ordering::Relaxed) {
            act(round);
            round += 1;
        }
    }

    fn write(&self, round: i64) {
        let timestamp = self.timestamps.fetch_add(1, Ordering::Relaxed);
        let row = (timestamp + round) % ROWS;
        write(&self.storage, row, timestamp, self.clock.now_secs());
        self.newest[row as usize].fetch_max(timestamp, Ordering::SeqCst);
    }

    fn read(&self, round: i64) {
        let row = round % ROWS;
        let (slice, newest) =
            (Slice::range(None, b"", b"", round % 2 == 0, 1000), &self.newest[row as usize]);
        let least = newest.load(Ordering::SeqCst);
        let found = self
            .storage
            .family(FAMILY)
            .read(&key(row), &slice, &RequestContext::default(), Access::Cached)
            .unwrap();
        assert!(the_value(&found) >= least, "an acknowledged write is not seen");
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Most of the time there is a row cache, of one row or two.
    fn change_caches(&self, round: i64) {
        thread::sleep(Duration::from_millis(5));
        if let Some(rows) = self.storage.family(FAMILY).cache_stats().rows {
            // With two rows after one the same cache goes on.
            let counted = if round % 4 == 0 { rows.hits } else { 0 };
            self.row_cache_hits.fetch_add(counted, Ordering::Relaxed);
        }
        let rows = [0, 1, 2, 2][usize::try_from(round % 4).unwrap()];
        self.storage.family(FAMILY).set_cache_capacity(1 + rows, rows);
    }

    fn scan(&self) {
        let all = Slice::all(None);
        let rows = self
            .storage
            .family(FAMILY)
            .scan(&RowRange::all(), &all, 100, &RequestContext::default(), Access::Cached)
            .unwrap();
        assert!(rows.len() <= ROWS as usize);
        assert!(rows.iter().all(|(_, row)| the_value(row) > 0));
    }
}

#[test]
fn nobody_sees_half_of_a_row_mutation() {
    write_and_read(Caches::Usual);
}

/// Rows enter and leave the row cache all the time, and it is switched off and on.
#[test]
fn nobody_is_shown_an_old_row_by_the_row_cache() {
    write_and_read(Caches::Tiny);
}

fn write_and_read(caches: Caches) {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::new(SystemClock::new());
    let run = Run {
        storage: open(directory.path(), &clock, caches),
        clock: Arc::clone(&clock),
        stop: AtomicBool::new(false),
        timestamps: AtomicI64::new(1),
        newest: Default::default(),
        reads: AtomicU64::new(0),
        row_cache_hits: AtomicU64::new(0),
    };
    // Between two flushes there is time to read what the first has driven out of a cache.
    let pause = Duration::from_millis(if caches == Caches::Tiny { 3 } else { 0 });
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| run.repeat(|round| run.write(round)));
            scope.spawn(|| run.repeat(|round| run.read(round)));
        }
        scope.spawn(|| run.repeat(|_| run.scan()));
        scope.spawn(|| run.repeat(|_| run.storage.flush(FAMILY).unwrap()));
        scope.spawn(|| {
            run.repeat(|_| {
                run.storage.compact(FAMILY).unwrap();
                // Else minor compactions would never get their turn.
                thread::sleep(MAJOR_PAUSE);
            });
        });
        scope.spawn(|| {
            run.repeat(|_| {
                run.storage.flush(FAMILY).unwrap();
                thread::sleep(pause);
            });
        });
        scope.spawn(|| run.repeat(|_| run.storage.compact(FAMILY).unwrap()));
        if caches == Caches::Tiny {
            scope.spawn(|| run.repeat(|round| run.change_caches(round)));
        }
        let began = clock.monotonic();
        while clock.monotonic().saturating_sub(began) < RUN_TIME {
            thread::sleep(Duration::from_millis(50));
        }
        run.stop.store(true, Ordering::Relaxed);
    });
    assert!(run.reads.load(Ordering::Relaxed) > 100, "the readers were starved");
    let hits = run.row_cache_hits.load(Ordering::Relaxed);
    assert_eq!(hits > 10, caches == Caches::Tiny, "{hits} hits");
    let newest = run.newest.map(AtomicI64::into_inner);
    drop(run.storage);
    let storage = open(directory.path(), &clock, caches);
    for (row, newest) in (0..).zip(newest) {
        let found = storage
            .family(FAMILY)
            .read(&key(row), &Slice::all(None), &RequestContext::default(), Access::Cached)
            .unwrap();
        assert!(the_value(&found) >= newest);
    }
}
