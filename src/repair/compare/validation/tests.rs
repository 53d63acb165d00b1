//! What a replica answers, and what it remembers.

use super::super::calls::text_ranges;
use super::*;
use crate::base::events::Events;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use crate::ring::{Partitioner, Token};
use crate::storage::engine::Components;
use crate::storage::options::{FamilyOptions, Options};

const FAMILY: FamilyId = FamilyId(0);

fn node() -> IpAddr {
    [10, 0, 0, 1].into()
}

/// Deletions stay for so long.
const GRACE_SECONDS: i32 = 100;

fn open() -> (Arc<ManualClock>, Arc<Validations>) {
    let clock = Arc::new(ManualClock::default());
    (Arc::clone(&clock), reopen(&SimFileSystem::new(1), &clock))
}

/// The same on a disk on which there may be something.
fn reopen(fs: &SimFileSystem, clock: &Arc<ManualClock>) -> Arc<Validations> {
    let components = Components {
        fs: Arc::new(fs.clone()),
        clock: Arc::clone(clock) as _,
        events: Events::ignored(),
    };
    let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
    let (keyspace, name) = ("Blog".into(), "Authors".into());
    let family = ColumnFamilySchema { keyspace, name, kind, comment: None };
    let options = Options { segment_bytes: 1 << 20, ..Options::new("/data", "/log") };
    let schema = Schema::new([family.into()]);
    let family = |_| FamilyOptions {
        max_compaction_threshold: 0,
        gc_grace_seconds: GRACE_SECONDS,
        ..FamilyOptions::default()
    };
    let (partitioner, schema) = (Partitioner::Random, Arc::new(schema));
    let storage = Storage::open(components, options, partitioner, schema, family).unwrap();
    let blocking = Blocking::Inline;
    Validations::new(Arc::new(storage), blocking, Arc::clone(clock) as _)
}

fn scope(family: &str) -> Scope {
    let range = TokenRange { start: Token::Minimum, end: Token::Minimum };
    let ranges = text_ranges(Partitioner::Random, &[range]);
    Scope { keyspace: "Blog".into(), family: family.into(), gc_before: 0, ranges }
}

/// What comes of a request for leaves, after all that a task can do.
async fn validate(validations: &Arc<Validations>, session: u64, depth: u8) -> Findings {
    let (scope, shape) = (scope("Authors"), Shape::Even(depth));
    validations.validate(node(), Validate { session, scope, shape });
    settled(validations, session).await
}

async fn settled(validations: &Validations, session: u64) -> Findings {
    loop {
        match validations.findings(session, 0) {
            Findings::Running { .. } => tokio::task::yield_now().await,
            findings => return findings,
        }
    }
}

fn leaves(findings: Findings) -> (u64, Vec<String>) {
    let Findings::Leaves { rows, count, hashes } = findings else { panic!("{findings:?}") };
    assert_eq!(hashes.len(), count.min(LEAVES_PER_ANSWER));
    (rows, hashes)
}

#[tokio::test]
async fn what_nobody_asks_after_is_forgotten() {
    let (clock, validations) = open();
    leaves(validate(&validations, 1, 0).await);
    leaves(validate(&validations, 2, 0).await);
    clock.advance(FORGOTTEN_AFTER / 2);
    validations.findings(1, 0);
    clock.advance(FORGOTTEN_AFTER / 2);
    validations.tidy();
    leaves(validations.findings(1, 0));
    assert_eq!(validations.findings(2, 0), Findings::Unknown);
    validations.forget(1);
    assert_eq!(validations.findings(1, 0), Findings::Unknown);
}

#[tokio::test]
async fn requests_that_make_no_sense_fail_and_there_is_a_bound() {
    let (_, validations) = open();
    let failed = |findings| {
        let Findings::Failed { why } = findings else { panic!("{findings:?}") };
        why
    };
    validations.hash_rows(node(), HashRows { session: 1, scope: scope("Nobody"), after: None });
    let why = failed(settled(&validations, 1).await);
    assert!(why.contains("no column family Blog.Nobody"), "{why}");
    let why = failed(validate(&validations, 2, 200).await);
    assert!(why.contains("leaves"), "{why}");
    for session in 3..=MOST_SESSIONS as u64 {
        leaves(validate(&validations, session, 0).await);
    }
    let why = failed(validate(&validations, 1000, 0).await);
    assert!(why.contains("too many"), "{why}");
}

/// Whatever happens to the rows, what follows from what is known is what would be read.
#[tokio::test]
async fn what_is_known_is_what_would_be_read() {
    let mut saved = 0;
    for seed in 0..24 {
        let (mut rng, merges_by_itself) = (fastrand::Rng::with_seed(seed), seed % 2 == 0);
        let (fs, clock) = (SimFileSystem::new(seed), Arc::new(ManualClock::default()));
        clock.advance(Duration::from_secs(1000));
        let mut validations = reopen(&fs, &clock);
        for session in 1..60 {
            for _ in 0..rng.u32(..6) {
                change(&validations, &mut rng);
            }
            match rng.u8(..10) {
                0 | 1 => validations.storage.compact(FAMILY).unwrap(),
                2 => {
                    validations.stop().await;
                    drop(validations);
                    validations = reopen(&fs, &clock);
                }
                3 => {
                    drop(validations);
                    validations = reopen(&fs, &clock);
                }
                4 => clock.advance(Duration::from_secs(rng.u64(..40))),
                5 | 6 => drop(validations.storage.flush(FAMILY)),
                _ => {}
            }
            let mut scope = scope("Authors");
            scope.gc_before = validations.storage.store(FAMILY).gc_before();
            if merges_by_itself {
                validations.storage.set_compaction_thresholds(FAMILY, 2, 4).unwrap();
            } else {
                // As another node may say whose clock is late. What was dropped is gone for both.
                scope.gc_before -= rng.i32(..30);
            }
            let shape = Shape::Even(if rng.u8(..8) == 0 { rng.u8(2..6) } else { 5 });
            let expected = read_all(&validations, &scope, &shape);
            validations.validate(node(), Validate { session, scope, shape });
            let (read, found) = leaves(settled(&validations, session).await);
            assert_eq!(found, expected.1, "seed {seed}, step {session}");
            saved += expected.0 - read;
        }
    }
    assert!(saved > 0);
}

/// Writes or deletes a column, or deletes a row.
fn change(validations: &Validations, rng: &mut fastrand::Rng) {
    let storage = &validations.storage;
    let key = format!("row {}", rng.u8(..60));
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    let (timestamp, now) = (rng.i64(..50), validations.clock.now_secs());
    let name: &[u8] = if rng.bool() { b"a" } else { b"b" };
    let family = mutation.family(FAMILY);
    match rng.u8(..5) {
        0 => drop(family.delete_row(Deletion::at(timestamp, now))),
        1 => drop(family.delete_column((b"", name), Deletion::at(timestamp, now))),
        // One that is of age when it comes.
        2 if rng.bool() => drop(family.delete_row(Deletion::at(timestamp, now - GRACE_SECONDS))),
        _ => drop(family.insert((b"", name), &[rng.u8(..)], timestamp)),
    }
    storage.apply(&mutation.finish(), true).unwrap();
}

/// The leaves as they are read if nothing is known, and of how many rows.
fn read_all(validations: &Validations, scope: &Scope, shape: &Shape) -> (u64, Vec<String>) {
    let storage = &validations.storage;
    let (family, ranges) = validations.resolve(scope).unwrap();
    let empty = Leaves::new(storage.partitioner(), &ranges, shape).unwrap();
    let set = storage.validation_set(family).unwrap();
    let builder = storage.row_builder(family, COLUMN_INDEX_BYTES).unwrap();
    let read = Arc::<AtomicU64>::default();
    let mut sink = LeafSink::new(builder, empty, Arc::clone(&read), CancellationToken::new());
    storage.validate(&set, &row_ranges(&ranges), scope.gc_before, &mut sink).unwrap();
    let hashes = sink.finish().hashes().iter().map(hash_text).collect();
    (read.load(Ordering::Relaxed), hashes)
}
