//! Costs of the storage core itself, without network and threads of clients: nanoseconds for each
//! call, one thread. `cargo bench --bench storage`
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use alexandra::base::clock::{Clock, SystemClock};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::OsFileSystem;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::Slice;
use alexandra::ring::{Partitioner, RowRange};
use alexandra::storage::database::Components;
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions, Options};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// As in the server.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: u64 = 200_000;
const WIDE_COLUMNS: u64 = 1_000_000;
const VALUE: [u8; 34] = *b"a value of thirty-four bytes, yes.";

fn open(directory: &Path, clock: &Arc<dyn Clock>) -> Database {
    let components = Components::new(Arc::new(OsFileSystem), clock.clone());
    let options = Options::new(directory.join("data"), directory.join("log"));
    let family = |name: &str| {
        ColumnFamilySchema::new(
            "Keyspace1".into(),
            name.into(),
            ColumnFamilyKind::Standard { columns: Comparator::Bytes },
        )
    };
    let schema = Arc::new(Schema::new([family("Rows"), family("Wide")].map(Arc::new)));
    let family_options = |_| FamilyOptions { min_compaction_threshold: 0, ..Default::default() };
    Database::open(components, options, Partitioner::Random, schema, family_options)
        .expect("a fresh directory can be opened")
}

fn measure(clock: &dyn Clock, name: &str, calls: u64, mut call: impl FnMut(u64)) {
    let begun = clock.monotonic();
    for i in 0..calls {
        call(i);
    }
    let nanos = clock.monotonic().saturating_sub(begun).as_nanos() / u128::from(calls);
    println!("{name:<40} {nanos:>8} ns");
}

fn measure_once(clock: &dyn Clock, name: &str, parts: u64, work: impl FnOnce()) {
    let begun = clock.monotonic();
    work();
    let nanos = clock.monotonic().saturating_sub(begun).as_nanos() / u128::from(parts.max(1));
    println!("{name:<40} {nanos:>8} ns");
}

fn row(storage: &Database, family: FamilyId, key: &str, columns: u64) -> RowMutation {
    let mut builder = MutationBuilder::new(storage.schema(), "Keyspace1", key.as_bytes());
    builder.family(family);
    for i in 0..columns {
        builder.insert((b"", format!("C{i}").as_bytes()), &VALUE, 1);
    }
    builder.finish()
}

fn reads(clock: &dyn Clock, storage: &Database, rows: FamilyId, state: &str) {
    let schema = storage.schema().family(rows).clone();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut key = move || RowKey::from(format!("key{:010}", rng.u64(..ROWS)).as_str());
    let one = Slice::names(&schema, None, [b"C3".as_slice()]);
    let five = Slice::range(None, b"", b"", false, 5);
    measure(clock, &format!("get, {state}"), 300_000, |_| {
        let found = storage
            .family(rows)
            .read(&key(), &one, &RequestContext::default(), Access::Cached)
            .expect("reads work");
        assert_eq!(found.count, 1);
    });
    measure(clock, &format!("get_slice of 5, {state}"), 300_000, |_| {
        let found = storage
            .family(rows)
            .read(&key(), &five, &RequestContext::default(), Access::Cached)
            .expect("reads work");
        assert_eq!(found.count, 5);
    });
    measure(clock, &format!("10 rows of 5 by range, {state}"), 30_000, |_| {
        let token = Partitioner::Random.token(key().as_bytes());
        let range = RowRange { start: Bound::Included(token), end: Bound::Unbounded };
        storage
            .family(rows)
            .scan(&range, &five, 10, &RequestContext::default(), Access::Cached)
            .expect("scans work");
    });
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let storage = open(directory.path(), &clock);
    let (rows, wide) = (FamilyId(0), FamilyId(1));
    let clock = &*clock;
    measure(clock, "write a row of 5", ROWS, |i| {
        let mutation = row(&storage, rows, &format!("key{i:010}"), 5);
        storage.apply(&mutation, true).expect("writes work");
    });
    let mut rng = fastrand::Rng::with_seed(2);
    measure(clock, "write 1 column of an existing row", 200_000, |_| {
        let mutation = row(&storage, rows, &format!("key{:010}", rng.u64(..1000)), 1);
        storage.apply(&mutation, true).expect("writes work");
    });
    reads(clock, &storage, rows, "several SSTables");
    storage.flush(rows).expect("flushing works");
    let cells: u64 =
        storage.family(rows).view().tables.iter().map(|table| table.properties().cells).sum();
    measure_once(clock, "compact a cell", cells, || {
        storage.compact(rows).expect("compacting works");
    });
    reads(clock, &storage, rows, "one SSTable");
    measure(clock, "append a column to a wide row", WIDE_COLUMNS, |i| {
        let mut builder = MutationBuilder::new(storage.schema(), "Keyspace1", b"wide");
        builder.family(wide).insert((b"", format!("{i:010}").as_bytes()), &VALUE, 1);
        storage.apply(&builder.finish(), true).expect("writes work");
    });
    for state in ["as written", "one SSTable"] {
        let mut rng = fastrand::Rng::with_seed(3);
        measure(clock, &format!("10 anywhere in a wide row, {state}"), 100_000, |_| {
            let start = format!("{:010}", rng.u64(..WIDE_COLUMNS - 10));
            let slice = Slice::range(None, start.as_bytes(), b"", false, 10);
            let key = RowKey::from("wide");
            let found = storage
                .family(wide)
                .read(&key, &slice, &RequestContext::default(), Access::Cached)
                .expect("reads work");
            assert_eq!(found.count, 10);
        });
        storage.flush(wide).expect("flushing works");
        storage.compact(wide).expect("compacting works");
    }
}
