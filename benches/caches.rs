//! Costs of a read by the cache that answers it: nanoseconds of one processor for each call,
//! which other processes on the machine do not add to.
//! `cargo bench --bench caches`
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::OsFileSystem;
use alexandra::config::settings::CacheSize;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::Slice;
use alexandra::ring::Partitioner;
use alexandra::storage::caches::CacheStats;
use alexandra::storage::database::Components;
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions, Options};
use std::path::Path;
use std::sync::Arc;

/// As in the server.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FAMILY: FamilyId = FamilyId(0);

const ROWS: u64 = 200_000;

/// Rows that are read, spread over all: each stands in an index block of its own.
const READ_ROWS: u64 = 1000;

const CALLS: u64 = 200_000;

const VALUE: [u8; 34] = *b"a value of thirty-four bytes, yes.";

fn open(directory: &Path, clock: &Arc<dyn Clock>, block_cache_bytes: u64) -> Database {
    let components = Components::new(Arc::new(OsFileSystem), clock.clone());
    let options = Options {
        block_cache_bytes,
        ..Options::new(directory.join("data"), directory.join("log"))
    };
    let family = ColumnFamilySchema::new(
        "Keyspace1".into(),
        "Rows".into(),
        ColumnFamilyKind::Standard { columns: Comparator::Bytes },
    );
    let schema = Arc::new(Schema::new([Arc::new(family)]));
    let family_options = |_| FamilyOptions {
        min_compaction_threshold: 0,
        keys_cached: CacheSize::Off,
        ..FamilyOptions::default()
    };
    Database::open(components, options, Partitioner::Random, schema, family_options)
        .expect("the directory can be opened")
}

fn write(storage: &Database) {
    for number in 0..ROWS {
        let key = format!("key{number:010}");
        let mut row = MutationBuilder::new(storage.schema(), "Keyspace1", key.as_bytes());
        row.family(FAMILY);
        for column in 0..5 {
            row.insert((b"", format!("C{column}").as_bytes()), &VALUE, 1);
        }
        storage.apply(&row.finish(), true).expect("writes work");
    }
    storage.flush(FAMILY).expect("flushing works");
    storage.compact(FAMILY).expect("compacting works");
}

/// How long this thread has been on a processor, in nanoseconds.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.expect("the first number is the time on a processor")
}

fn measure(storage: &Database, name: &str) {
    let slice = Slice::range(None, b"", b"", false, 5);
    let mut rng = fastrand::Rng::with_seed(1);
    let mut read = || {
        let number = rng.u64(..READ_ROWS) * (ROWS / READ_ROWS);
        let key = RowKey::from(format!("key{number:010}").as_str());
        let found = storage
            .family(FAMILY)
            .read(&key, &slice, &RequestContext::default(), Access::Cached)
            .expect("reads work");
        assert_eq!(found.count, 5);
    };
    (0..10 * READ_ROWS).for_each(|_| read());
    let before = storage.family(FAMILY).cache_stats();
    let begun = processor_nanos();
    (0..CALLS).for_each(|_| read());
    let nanos = (processor_nanos() - begun) / CALLS;
    let now = storage.family(FAMILY).cache_stats();
    let rate = |earlier: Option<CacheStats>, now: Option<CacheStats>| {
        now.map_or(f64::NAN, |now| now.hit_rate_since(&earlier.unwrap_or_default()))
    };
    let (keys, rows) = (rate(before.keys, now.keys), rate(before.rows, now.rows));
    println!("{name:<52} {nanos:>6} ns   hit rates: keys {keys:.2}, rows {rows:.2}");
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    write(&open(directory.path(), &clock, 1 << 30));
    let blocks = [
        ("all blocks cached, index pinned", 1 << 30),
        // A thousand blocks of data and some of the index, of which a quarter may be pinned.
        ("blocks of data cached, index partly", 20 << 20),
        ("next to no block cached", 1 << 16),
    ];
    for (state, bytes) in blocks {
        let storage = open(directory.path(), &clock, bytes);
        let caches = [("no cache", 0, 0), ("key cache", 200_000, 0), ("row cache", 0, 200_000)];
        for (cache, keys, rows) in caches {
            storage.family(FAMILY).set_cache_capacity(keys, rows);
            measure(&storage, &format!("{state}; {cache}"));
        }
    }
}
