//! A replica over a storage core whose disk stands still, fails and goes on as a test wants.

use super::*;
use crate::base::budget::Budget;
use crate::base::context::RequestContext;
use crate::base::worker::Spawner;
use crate::kit::clock::ManualClock;
use crate::kit::disk::{Fault, Operation, SimFileSystem};
use crate::kit::storage;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::ring::{Partitioner, RowRange};
use crate::storage::answer;
use crate::storage::commitlog::SyncPolicy;
use crate::storage::{Database, Options};
use rustix::io::Errno;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

const AUTHORS: FamilyId = FamilyId(0);
const BOOKS: FamilyId = FamilyId(1);

/// More columns than a read may look at that is not long.
const MANY: usize = 201_000;

struct Fixture {
    schema: Arc<Schema>,
    disk: SimFileSystem,
    storage: Arc<Database>,
    replica: Arc<Replica>,
}

impl Fixture {
    fn new() -> Self {
        Self::with(storage::options(), 1 << 30)
    }

    /// A replica whose requests may hold so much memory.
    fn with(options: Options, request_bytes: usize) -> Self {
        let family = |name: &str| {
            let (keyspace, name) = ("Blog".to_owned(), name.to_owned());
            let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
            Arc::new(ColumnFamilySchema::new(keyspace, name, kind))
        };
        let schema = Arc::new(Schema::new(["Authors", "Books"].map(family)));
        let (disk, clock) = (SimFileSystem::new(1), Arc::new(ManualClock::default()));
        let ordered = Partitioner::OrderPreserving;
        let storage = storage::open(&disk, clock, options, ordered, &schema);
        let options = ReplicaOptions {
            concurrent_reads: 2,
            concurrent_writes: 2,
            memory: Budget::new(request_bytes),
            spawner: Spawner::Threads,
        };
        let replica = Arc::new(Replica::start(Arc::clone(&storage), options).unwrap());
        Self { schema, disk, storage, replica }
    }

    fn mutation(&self, key: &str) -> RowMutation {
        self.row(AUTHORS, key, 1)
    }

    fn row(&self, family: FamilyId, key: &str, columns: usize) -> RowMutation {
        let mut builder = MutationBuilder::new(&self.schema, "Blog", key.as_bytes());
        builder.family(family);
        for column in 0..columns {
            builder.insert((b"", format!("{column:06}").as_bytes()), b"Ada", 1);
        }
        builder.finish()
    }

    fn request(&self) -> RequestContext {
        self.replica.request(usize::MAX, Duration::from_secs(10))
    }

    async fn apply(&self, key: &str) {
        self.replica.apply(&[self.mutation(key)]).await.wait().await.unwrap();
    }

    /// Reads wait for the disk from now on.
    fn flush(&self, family: FamilyId) {
        self.storage.flush(family).unwrap();
    }

    /// How many columns the row has.
    fn read(
        &self,
        family: FamilyId,
        key: &str,
    ) -> impl Future<Output = Result<usize, ReplicaError>> + use<> {
        self.read_by(self.request(), family, key)
    }

    fn read_by(
        &self,
        mut context: RequestContext,
        family: FamilyId,
        key: &str,
    ) -> impl Future<Output = Result<usize, ReplicaError>> + use<> {
        let (replica, key) = (Arc::clone(&self.replica), RowKey::from(key));
        async move {
            let row = RowQuery { family, key: &key, slice: &Slice::all(None) };
            let reading = replica.read(row, &mut context).await;
            reading.wait(&mut context).await.map(|row| row.cells.len())
        }
    }

    async fn wait_for_reads(&self, active: usize, waiting: usize) {
        while self.replica.read_load() != (PoolLoad { active, waiting }) {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        // Or its threads never end.
        self.disk.go_on();
    }
}

#[tokio::test]
async fn memory_answers_on_the_spot_and_the_disk_on_a_thread() {
    let fixture = Fixture::new();
    let applied = fixture.replica.apply(&[fixture.mutation("ada")]).await;
    assert!(matches!(applied, Answer::Ready(Ok(()))));
    let (key, slice, range) = (RowKey::from("ada"), Slice::all(None), RowRange::all());
    let row = RowQuery { family: AUTHORS, key: &key, slice: &slice };
    let rows = RangeQuery { family: AUTHORS, range: &range, slice: &slice, max_rows: 10 };
    for is_on_disk in [false, true] {
        if is_on_disk {
            fixture.flush(AUTHORS);
        }
        let context = &mut fixture.request();
        let read = fixture.replica.read(row, context).await;
        assert_eq!(matches!(read, PendingRead::Begun(_)), is_on_disk);
        assert_eq!(read.wait(context).await.unwrap().count, 1);
        let count = fixture.replica.count(row, context).await;
        assert_eq!(matches!(count, PendingRead::Begun(_)), is_on_disk);
        assert_eq!(count.wait(context).await.unwrap(), 1);
        let scan = fixture.replica.scan(rows, context).await;
        assert_eq!(matches!(scan, PendingRead::Begun(_)), is_on_disk);
        assert_eq!(scan.wait(context).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_panic_fails_its_request_only() {
    let fixture = Fixture::new();
    fixture.apply("ada").await;
    fixture.flush(AUTHORS);
    for _ in 0..5 {
        let mut context = fixture.request();
        let done: Result<(), _> =
            fixture.replica.spawn_read(&mut context, || panic!("it fails")).await;
        assert!(matches!(done, Err(ReplicaError::Abandoned(_))));
    }
    assert_eq!(fixture.read(AUTHORS, "ada").await.unwrap(), 1);
}

#[tokio::test]
async fn answers_that_are_still_being_written_hold_up_further_ones() {
    let fixture = Fixture::new();
    fixture.apply("ada").await;
    fixture.flush(AUTHORS);
    let (key, slice) = (RowKey::from("ada"), Slice::all(None));
    let row = RowQuery { family: AUTHORS, key: &key, slice: &slice };
    let mut held = [fixture.request(), fixture.request()];
    for context in &mut held {
        // One request may read as many rows as it wants.
        for _ in 0..3 {
            let reading = fixture.replica.read(row, context).await;
            assert_eq!(reading.wait(context).await.unwrap().count, 1);
        }
    }
    let third = tokio::spawn(fixture.read(AUTHORS, "ada"));
    fixture.wait_for_reads(0, 1).await;
    drop(held);
    assert_eq!(third.await.unwrap().unwrap(), 1);
}

#[tokio::test]
async fn a_batched_write_is_acknowledged_when_it_is_on_disk() {
    let sync = SyncPolicy::Batch { window: Duration::ZERO };
    let fixture = Fixture::with(Options { sync, ..storage::options() }, 1 << 30);
    // Few rows are written on the spot, many on a thread.
    for (key, rows) in [("ada", 1), ("bob", 100)] {
        fixture.disk.stall(Some(Operation::Sync), "/log");
        let mutations = vec![fixture.mutation(key); rows];
        let mut done = std::pin::pin!(fixture.replica.apply(&mutations).await.wait());
        while fixture.read(AUTHORS, key).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        let early = tokio::time::timeout(Duration::ZERO, done.as_mut()).await;
        assert!(early.is_err(), "not on disk yet");
        fixture.disk.go_on();
        done.await.unwrap();
    }
}

#[tokio::test]
async fn a_write_whose_sync_fails_is_not_acknowledged() {
    let sync = SyncPolicy::Batch { window: Duration::ZERO };
    let fixture = Fixture::with(Options { sync, ..storage::options() }, 1 << 30);
    fixture.disk.inject(Fault::next(Operation::Sync, Errno::IO).on("/log"));
    let answer = fixture.replica.apply(&[fixture.mutation("ada")]).await;
    let error = answer.wait().await.unwrap_err().to_string();
    assert!(error.starts_with("the store refuses writes: "), "{error}");
}

#[tokio::test]
async fn a_write_that_is_given_up_holds_its_memory_until_the_store_has_taken_it() {
    let options = Options { memtable_budget_bytes: 1 << 16, ..storage::options() };
    let fixture = Fixture::with(options, 1 << 30);
    fixture.disk.stall(None, "/data");
    let filler = fixture.row(BOOKS, "filler", 2000);
    fixture.replica.apply(&[filler]).await.wait().await.unwrap();
    let write = tokio::spawn({
        let (replica, mutation) = (Arc::clone(&fixture.replica), fixture.mutation("ada"));
        async move { replica.apply(&[mutation]).await.wait().await }
    });
    while fixture.replica.write_load().active == 0 {
        tokio::task::yield_now().await;
    }
    write.abort();
    assert!(write.await.is_err());
    assert!(fixture.replica.memory().used() > 0);
    fixture.disk.go_on();
    while fixture.replica.memory().used() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.read(AUTHORS, "ada").await.unwrap(), 1);
}

#[tokio::test]
async fn after_shutdown_only_memory_answers() {
    let fixture = Fixture::new();
    fixture.apply("ada").await;
    fixture.flush(AUTHORS);
    fixture.replica.apply(&[fixture.row(BOOKS, "poems", 1)]).await.wait().await.unwrap();
    fixture.replica.shutdown();
    assert_eq!(fixture.read(BOOKS, "poems").await.unwrap(), 1);
    assert!(matches!(fixture.read(AUTHORS, "ada").await, Err(ReplicaError::Abandoned(_))));
}

#[tokio::test]
async fn what_one_request_reads_is_bounded_together() {
    let fixture = Fixture::with(storage::options(), 1000);
    let (slice, all) = (Slice::all(None), RowRange::all());
    let key = RowKey::from("a key that nobody has written");
    let row = RowQuery { family: AUTHORS, key: &key, slice: &slice };
    let rows = RangeQuery { family: AUTHORS, range: &all, slice: &slice, max_rows: 9 };
    for is_on_disk in [false, true] {
        fixture.apply("ada").await;
        if is_on_disk {
            fixture.flush(AUTHORS);
        }
        let mut context = fixture.request();
        let mut found = 0;
        let refused = loop {
            let reading = fixture.replica.read(row, &mut context).await;
            match reading.wait(&mut context).await {
                Ok(_) => found += 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_too_large() && (2..10).contains(&found), "{found}: {refused}");
        let scan = fixture.replica.scan(rows, &mut context).await;
        assert!(scan.wait(&mut context).await.unwrap_err().is_too_large());
        assert!(answer::take_key(&context, &key).is_err());
        let mut next = fixture.request();
        let scan = fixture.replica.scan(rows, &mut next).await;
        assert_eq!(scan.wait(&mut next).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn reads_that_take_long_leave_the_threads_to_others() {
    let fixture = Fixture::new();
    fixture.apply("ada").await;
    fixture.apply("slow").await;
    fixture.flush(AUTHORS);
    fixture.replica.apply(&[fixture.row(BOOKS, "long", MANY)]).await.wait().await.unwrap();
    // All threads for long reads wait for the disk.
    fixture.disk.stall(None, "/Authors");
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).div_ceil(2).max(1);
    let stuck: Vec<_> = (0..threads)
        .map(|_| {
            let context = fixture.request();
            context.spend(MANY);
            tokio::spawn(fixture.read_by(context, AUTHORS, "slow"))
        })
        .collect();
    fixture.wait_for_reads(threads, 0).await;
    let long: Vec<_> = (0..8).map(|_| tokio::spawn(fixture.read(BOOKS, "long"))).collect();
    fixture.wait_for_reads(threads, 8).await;
    let mut context = fixture.request();
    assert!(fixture.replica.spawn_read(&mut context, || true).await.unwrap(), "a thread is free");
    fixture.disk.go_on();
    for read in long {
        assert_eq!(read.await.unwrap().unwrap(), MANY);
    }
    for read in stuck {
        assert_eq!(read.await.unwrap().unwrap(), 1);
    }
}

#[tokio::test]
async fn a_read_ends_when_nobody_waits_for_it_any_more() {
    let fixture = Fixture::new();
    fixture.replica.apply(&[fixture.row(BOOKS, "long", MANY)]).await.wait().await.unwrap();
    fixture.flush(BOOKS);
    fixture.disk.stall(Some(Operation::Read), "/Books");
    let context = fixture.request();
    let request = context.child();
    let read = tokio::spawn(fixture.read_by(context, BOOKS, "long"));
    fixture.wait_for_reads(1, 0).await;
    read.abort();
    assert!(read.await.is_err());
    fixture.disk.go_on();
    fixture.wait_for_reads(0, 0).await;
    assert!(!request.is_long(), "it read on");
}
