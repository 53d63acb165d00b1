//! The verbs, on a store that blocks, panics and syncs when it is told to.

mod memory_store;

pub(crate) use memory_store::{ENDLESS, MemoryStore};

use super::*;
use crate::base::budget::Budget;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::ring::{Partitioner, RowRange};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const FAMILY: FamilyId = FamilyId(0);

const MAX_ANSWER: usize = 1000;

struct Fixture {
    schema: Arc<Schema>,
    store: Arc<MemoryStore>,
    replica: Arc<Replica>,
}

impl Fixture {
    fn new() -> Self {
        let schema = Arc::new(Schema::new([Arc::new(ColumnFamilySchema {
            keyspace: "Blog".to_owned(),
            name: "Authors".to_owned(),
            kind: ColumnFamilyKind::Standard { columns: Comparator::Bytes },
            comment: None,
        })]));
        let store = Arc::new(MemoryStore::new(schema.clone(), Partitioner::OrderPreserving));
        let options = ReplicaOptions {
            concurrent_reads: 2,
            concurrent_writes: 2,
            memory: Budget::new(MAX_ANSWER),
            runs_inline: false,
        };
        let replica = Arc::new(Replica::start(store.clone(), options).unwrap());
        Self { schema, store, replica }
    }

    fn mutation(&self, key: &str) -> RowMutation {
        let mut builder = MutationBuilder::new(&self.schema, "Blog", key.as_bytes());
        builder.family(FAMILY).insert((b"", b"name"), b"Ada", 1);
        builder.finish()
    }

    /// How many columns the row has.
    fn read(&self, key: &str) -> impl Future<Output = Result<usize, ReplicaError>> + use<> {
        let (replica, key) = (Arc::clone(&self.replica), RowKey::from(key));
        async move {
            let mut ticket = replica.ticket();
            let reading = replica.read(FAMILY, &key, &Slice::all(None), &mut ticket).await;
            reading.wait(&mut ticket).await.map(|row| row.cells.len())
        }
    }
}

#[tokio::test]
async fn what_is_in_memory_is_answered_on_the_spot() {
    let fixture = Fixture::new();
    let applied = fixture.replica.apply(&[fixture.mutation("ada")]).await;
    assert!(matches!(applied, Answer::Ready(Ok(()))));
    let slice = Slice::all(None);
    let read = fixture
        .replica
        .read(FAMILY, &RowKey::from("ada"), &slice, &mut fixture.replica.ticket())
        .await;
    assert!(matches!(read, PendingRead::Ready(Ok(row)) if row.count == 1));
    assert_eq!(fixture.store.blocked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn what_would_block_is_answered_by_a_worker() {
    let fixture = Fixture::new();
    fixture.store.blocks.store(true, Ordering::SeqCst);
    fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
    assert_eq!(fixture.read("ada").await.unwrap(), 1);
    let (key, slice) = (RowKey::from("ada"), Slice::all(None));
    let (all, mut ticket) = (RowRange::all(), fixture.replica.ticket());
    let count = fixture.replica.count(FAMILY, &key, &slice, &mut ticket).await;
    assert_eq!(count.wait(&mut ticket).await.unwrap(), 1);
    let rows = fixture.replica.scan(FAMILY, &all, &slice, 10, &mut ticket).await;
    assert_eq!(rows.wait(&mut ticket).await.unwrap().len(), 1);
    assert_eq!(fixture.store.blocked.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_panic_fails_its_request_only() {
    let fixture = Fixture::new();
    fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
    fixture.store.blocks.store(true, Ordering::SeqCst);
    fixture.store.panics.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        assert!(matches!(fixture.read("ada").await, Err(ReplicaError::Abandoned(_))));
        let applied = fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await;
        assert!(matches!(applied, Err(ReplicaError::Abandoned(_))));
    }
    fixture.store.panics.store(false, Ordering::SeqCst);
    assert_eq!(fixture.read("ada").await.unwrap(), 1);
}

#[tokio::test]
async fn answers_that_are_still_being_written_hold_up_further_ones() {
    let fixture = Fixture::new();
    fixture.store.blocks.store(true, Ordering::SeqCst);
    fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
    let (key, slice) = (RowKey::from("ada"), Slice::all(None));
    let mut held = [fixture.replica.ticket(), fixture.replica.ticket()];
    for ticket in &mut held {
        // One request may read as many rows as it wants.
        for _ in 0..3 {
            let reading = fixture.replica.read(FAMILY, &key, &slice, ticket).await;
            assert_eq!(reading.wait(ticket).await.unwrap().count, 1);
        }
    }
    let mut third = Box::pin(fixture.read("ada"));
    let early = tokio::time::timeout(Duration::from_millis(20), &mut third).await;
    assert!(early.is_err(), "there are two threads, and two answers in memory");
    drop(held);
    assert_eq!(third.await.unwrap(), 1);
}

#[tokio::test]
async fn a_batched_write_is_acknowledged_when_it_is_on_disk() {
    let fixture = Fixture::new();
    fixture.store.batches.store(true, Ordering::SeqCst);
    for blocks in [false, true] {
        fixture.store.blocks.store(blocks, Ordering::SeqCst);
        let mut done = Box::pin(fixture.replica.apply(&[fixture.mutation("ada")]).await.wait());
        let early = tokio::time::timeout(Duration::from_millis(20), &mut done).await;
        assert!(early.is_err(), "not on disk yet");
        assert_eq!(fixture.store.sync(&Ok(())), 1);
        done.await.unwrap();
    }
}

#[tokio::test]
async fn a_write_whose_sync_fails_is_not_acknowledged() {
    let fixture = Fixture::new();
    fixture.store.batches.store(true, Ordering::SeqCst);
    let answer = fixture.replica.apply(&[fixture.mutation("ada")]).await;
    let refused = WriteError::Refused(Arc::new(io::Error::other("disk on fire")));
    fixture.store.sync(&Err(refused));
    let error = answer.wait().await.unwrap_err();
    assert_eq!(error.to_string(), "the store refuses writes: disk on fire");
}

#[tokio::test]
async fn a_write_that_is_given_up_holds_its_memory_until_the_store_has_taken_it() {
    let fixture = Fixture::new();
    fixture.store.stall(true);
    let write = tokio::spawn({
        let (replica, mutation) = (Arc::clone(&fixture.replica), fixture.mutation("ada"));
        async move { replica.apply(&[mutation]).await.wait().await }
    });
    while fixture.store.blocked.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    write.abort();
    assert!(write.await.is_err());
    assert!(fixture.replica.memory().used() > 0);
    fixture.store.stall(false);
    while fixture.replica.memory().used() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.read("ada").await.unwrap(), 1);
}

#[tokio::test]
async fn after_shutdown_only_memory_answers() {
    let fixture = Fixture::new();
    fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
    fixture.replica.shutdown();
    assert_eq!(fixture.read("ada").await.unwrap(), 1);
    fixture.store.blocks.store(true, Ordering::SeqCst);
    assert!(matches!(fixture.read("ada").await, Err(ReplicaError::Abandoned(_))));
}

#[tokio::test]
async fn what_one_request_reads_is_bounded_together() {
    let fixture = Fixture::new();
    let (slice, all) = (Slice::all(None), RowRange::all());
    for blocks in [false, true] {
        fixture.store.blocks.store(blocks, Ordering::SeqCst);
        let mut ticket = fixture.replica.ticket();
        let mut rows = 0;
        let refused = loop {
            let key = RowKey::from("a key that nobody has written");
            let reading = fixture.replica.read(FAMILY, &key, &slice, &mut ticket).await;
            match reading.wait(&mut ticket).await {
                Ok(_) => rows += 1,
                Err(error) => break error,
            }
        };
        assert!(refused.is_too_large() && (2..10).contains(&rows), "{rows}: {refused}");
        fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
        let scan = fixture.replica.scan(FAMILY, &all, &slice, 9, &mut ticket).await;
        assert!(scan.wait(&mut ticket).await.unwrap_err().is_too_large());
        assert!(ticket.charge_key(&RowKey::from("ada")).is_err());
        let mut next = fixture.replica.ticket();
        let scan = fixture.replica.scan(FAMILY, &all, &slice, 9, &mut next).await;
        assert_eq!(scan.wait(&mut next).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn reads_that_take_long_leave_the_threads_to_others() {
    let fixture = Fixture::new();
    fixture.replica.apply(&[fixture.mutation("ada")]).await.wait().await.unwrap();
    fixture.store.blocks.store(true, Ordering::SeqCst);
    let long: Vec<_> = (0..8).map(|_| tokio::spawn(fixture.read(ENDLESS))).collect();
    while fixture.store.running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.read("ada").await.unwrap(), 1);
    fixture.store.ends.store(true, Ordering::SeqCst);
    for read in long {
        assert_eq!(read.await.unwrap().unwrap(), 0);
    }
}

#[tokio::test]
async fn a_read_ends_when_nobody_waits_for_it_any_more() {
    let fixture = Fixture::new();
    let read = tokio::spawn(fixture.read(ENDLESS));
    while fixture.store.running.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    read.abort();
    while fixture.replica.read_load() != PoolLoad::default() {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.store.running.load(Ordering::SeqCst), 0);
}
