//! A thousand column families share one budget of memory.

use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::events::Heard;
use alexandra::base::context::RequestContext;
use alexandra::base::events::Events;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::Slice;
use alexandra::ring::Partitioner;
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::database::Components;
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions, Options};
use fastrand::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const FAMILIES: u32 = 1000;
const BUDGET: u64 = 4 << 20;
const WRITERS: u64 = 4;
const WRITES: u64 = 4000;
const VALUE_BYTES: usize = 1000;

/// More than one write adds to the memory of memtables.
const WRITE_BYTES: u64 = 2000;

#[test]
fn a_thousand_families_stay_within_one_budget() {
    let (events, heard) = Heard::events();
    let storage = open(events);
    let most = AtomicU64::new(0);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (storage, most) = (&storage, &most);
            scope.spawn(move || write_all(storage, writer, most));
        }
    });
    let most = most.into_inner();
    assert!(most > BUDGET / 2, "the writers come near the bound: {most}");
    assert!(most <= BUDGET + WRITERS * WRITE_BYTES, "they stay within it: {most}");
    let flushes = heard.take();
    let flushes = flushes.iter().filter(|line| line.starts_with("Completed flushing"));
    // Each frees memory for more than one write, or it would not have been worth it.
    assert!(flushes.count() < (WRITERS * WRITES / 2) as usize);
    for writer in 0..WRITERS {
        check_all(&storage, writer);
    }
}

fn open(events: Events) -> Database {
    let families = (0..FAMILIES).map(|number| {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let name = format!("Family{number}");
        Arc::new(ColumnFamilySchema::new("Keyspace1".into(), name, kind))
    });
    let options = Options {
        sync: SyncPolicy::Periodic { every: Duration::from_hours(1) },
        segment_bytes: 4 << 20,
        memtable_budget_bytes: BUDGET,
        block_cache_bytes: 1 << 20,
        ..Options::new("/data", "/commitlog")
    };
    let components = Components {
        events,
        ..Components::new(
            Arc::new(SimFileSystem::new(1)),
            Arc::new(ManualClock::at_micros(1_000_000_000)),
        )
    };
    let schema = Arc::new(Schema::new(families));
    let family_options = |_| FamilyOptions::default();
    Database::open(components, options, Partitioner::Random, schema, family_options).unwrap()
}

/// The family and the row of each write of a writer.
fn places(writer: u64) -> impl Iterator<Item = (FamilyId, String)> {
    let mut rng = Rng::with_seed(writer);
    (0..WRITES).map(move |i| (FamilyId(rng.u32(..FAMILIES)), format!("row {writer} {i}")))
}

/// After each write the memory is at its most: nobody else has to look at it all the time.
fn write_all(storage: &Database, writer: u64, most: &AtomicU64) {
    let used = &storage.family(FamilyId(0)).environment().memtable_memory;
    for (family, key) in places(writer) {
        let mut builder = MutationBuilder::new(storage.schema(), "Keyspace1", key.as_bytes());
        builder.family(family).insert((b"", b"name"), &[b'v'; VALUE_BYTES], 1);
        storage.apply(&builder.finish(), true).expect("writers wait instead of failing");
        most.fetch_max(used.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn check_all(storage: &Database, writer: u64) {
    let all = Slice::range(None, b"", b"", false, 10);
    for (family, key) in places(writer) {
        let key = RowKey::from(key.as_str());
        let found = storage
            .family(family)
            .read(&key, &all, &RequestContext::default(), Access::Cached)
            .unwrap();
        assert_eq!(found.count, 1, "{family:?} {key}");
    }
}
