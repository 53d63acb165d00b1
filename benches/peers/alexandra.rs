//! Our own storage core, in two layouts: a row for each record, and a column for each record.

use super::engine::{Engine, Settings};
use super::machine::COMMIT_LOG;
use alexandra::base::clock::SystemClock;
use alexandra::base::context::RequestContext;
use alexandra::base::fs::OsFileSystem;
use alexandra::model::comparator::Comparator;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use alexandra::model::slice::Slice;
use alexandra::ring::{Partitioner, RowRange};
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::database::{Applied, Components};
use alexandra::storage::sstable::Access;
use alexandra::storage::{Database, FamilyOptions, Options};
use std::ops::Bound;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const KEYSPACE: &str = "Bench";
const FAMILY: FamilyId = FamilyId(0);

/// Rows or columns for each call of a full scan.
const PAGE: usize = 1000;

/// Key of the only row of the wide layout.
const WIDE: &[u8] = b"wide";

/// The storage core with one column family, and the timestamps that a client would give.
struct Core {
    storage: Database,
    timestamp: AtomicI64,
}

impl Core {
    fn open(settings: &Settings) -> Self {
        let clock = SystemClock::new();
        let components = Components::new(Arc::new(OsFileSystem), Arc::new(clock));
        let sync = if settings.syncs {
            SyncPolicy::Batch { window: Duration::ZERO }
        } else {
            SyncPolicy::Periodic { every: Duration::from_secs(10) }
        };
        let options = Options {
            sync,
            block_cache_bytes: settings.cache_bytes as u64,
            ..Options::new(settings.directory.join("data"), settings.directory.join(COMMIT_LOG))
        };
        let schema = Schema::new([Arc::new(ColumnFamilySchema::new(
            KEYSPACE.into(),
            "Records".into(),
            ColumnFamilyKind::Standard { columns: Comparator::Bytes },
        ))]);
        let family = |_| FamilyOptions {
            memtable_bytes: settings.memtable_bytes as u64,
            memtable_operations: u64::MAX,
            block_bytes: settings.block_bytes,
            ..Default::default()
        };
        let storage = Database::open(
            components,
            options,
            Partitioner::OrderPreserving,
            Arc::new(schema),
            family,
        )
        .expect("the store can be opened");
        Self { storage, timestamp: AtomicI64::new(1) }
    }

    fn mutation(&self, key: &[u8], columns: &[(&[u8], &[u8])]) -> RowMutation {
        let timestamp = self.timestamp.fetch_add(1, Ordering::Relaxed);
        let mut builder = MutationBuilder::new(self.storage.schema(), KEYSPACE, key);
        builder.family(FAMILY);
        for (name, value) in columns {
            builder.insert((b"", name), value, timestamp);
        }
        builder.finish()
    }

    fn write(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        self.storage.apply(&self.mutation(key, columns), true).expect("writes work");
    }

    fn write_durably(&self, mutations: &[RowMutation]) {
        let applied = self.storage.apply_all(mutations, true).expect("writes work");
        if let Applied::Pending(position) = applied {
            let (done, durable) = mpsc::sync_channel(1);
            let callback = move |result| done.send(result).expect("the writer waits for it");
            self.storage.on_durable(position, Box::new(callback));
            durable.recv().expect("the log calls back").expect("syncs work");
        }
    }

    fn read(&self, key: &[u8], slice: &Slice) -> alexandra::model::slice::RowSlice {
        self.storage
            .family(FAMILY)
            .read(&RowKey::new(key), slice, &RequestContext::default(), Access::Cached)
            .expect("reads work")
    }

    fn value_length(&self, key: &[u8], name: &[u8]) -> Option<usize> {
        let schema = self.storage.schema().family(FAMILY);
        let found = self.read(key, &Slice::names(schema, None, [name]));
        found.cells.first().map(|cell| cell.value().len())
    }

    fn flush(&self) {
        self.storage.flush(FAMILY).expect("flushing works");
    }

    fn compact(&self) {
        self.storage.compact(FAMILY).expect("compacting works");
    }
}

/// Every record is a row with the column `v`.
pub(crate) struct Rows(Core);

const COLUMN: &[u8] = b"v";

impl Rows {
    pub(crate) fn open(settings: &Settings) -> Self {
        Self(Core::open(settings))
    }

    fn page(&self, start: Bound<&[u8]>, limit: usize) -> (usize, Option<RowKey>) {
        let token = |key: &[u8]| Partitioner::OrderPreserving.token(key);
        let range = RowRange { start: start.map(token), end: Bound::Unbounded };
        let slice = Slice::range(None, b"", b"", false, usize::MAX);
        let rows = self.0.storage.family(FAMILY).scan(
            &range,
            &slice,
            limit,
            &RequestContext::default(),
            Access::Cached,
        );
        let rows = rows.expect("scans work");
        (rows.iter().map(|(_, row)| row.count).sum(), rows.into_iter().last().map(|(key, _)| key))
    }
}

impl Engine for Rows {
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.write(key, &[(COLUMN, value)]);
    }

    fn put_durably(&self, records: &[(&[u8], &[u8])]) {
        let mutation = |(key, value): &(&[u8], &[u8])| self.0.mutation(key, &[(COLUMN, value)]);
        self.0.write_durably(&records.iter().map(mutation).collect::<Vec<_>>());
    }

    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        self.0.write(key, columns);
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.0.value_length(key, COLUMN)
    }

    fn get_row(&self, key: &[u8]) -> usize {
        self.0.read(key, &Slice::range(None, b"", b"", false, 100)).count
    }

    fn scan(&self, from: &[u8], limit: usize) -> usize {
        self.page(Bound::Included(from), limit).0
    }

    fn scan_all(&self) -> usize {
        let (mut total, mut last) = self.page(Bound::Unbounded, PAGE);
        while let Some(key) = last {
            let (count, next) = self.page(Bound::Excluded(key.as_bytes()), PAGE);
            total += count;
            last = next;
        }
        total
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn compact(&mut self) {
        self.0.compact();
    }
}

/// Every record is a column of one row.
pub(crate) struct WideRow(Core);

impl WideRow {
    pub(crate) fn open(settings: &Settings) -> Self {
        Self(Core::open(settings))
    }

    fn slice(&self, from: &[u8], limit: usize) -> alexandra::model::slice::RowSlice {
        self.0.read(WIDE, &Slice::range(None, from, b"", false, limit))
    }
}

impl Engine for WideRow {
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.write(WIDE, &[(key, value)]);
    }

    fn put_durably(&self, records: &[(&[u8], &[u8])]) {
        self.0.write_durably(&[self.0.mutation(WIDE, records)]);
    }

    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        self.0.write(key, columns);
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.0.value_length(WIDE, key)
    }

    fn get_row(&self, key: &[u8]) -> usize {
        self.0.read(key, &Slice::range(None, b"", b"", false, 100)).count
    }

    fn scan(&self, from: &[u8], limit: usize) -> usize {
        self.slice(from, limit).count
    }

    fn scan_all(&self) -> usize {
        let mut page = self.slice(b"", PAGE);
        let mut total = page.count;
        while page.count == PAGE
            && let Some(last) = page.cells.last()
        {
            // The first column of the next page is the last one of this.
            page = self.slice(last.name(), PAGE);
            total += page.count - 1;
        }
        total
    }

    fn flush(&self) {
        self.0.flush();
    }

    fn compact(&mut self) {
        self.0.compact();
    }
}
