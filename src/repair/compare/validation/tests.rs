//! Hashes that a replica remembers.

use super::*;
use crate::base::clock::Clock;
use crate::base::worker::Spawner;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::kit::storage::Blog;
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::repair::compare::TreeHash;
use crate::ring::{Partitioner, Token};
use crate::storage::options::FamilyOptions;
use std::time::Duration;

const FAMILY: FamilyId = FamilyId(0);

/// Seconds that deletions stay.
const GRACE_SECONDS: i32 = 100;
const GRACE: Duration = Duration::from_secs(GRACE_SECONDS as u64);

/// A replica on a disk on which there may be something.
fn open(fs: &SimFileSystem, clock: &Arc<ManualClock>) -> Validator {
    let blog = Blog {
        gc_grace: GRACE,
        partitioner: Partitioner::Random,
        family: FamilyOptions { max_compaction_threshold: 0, ..FamilyOptions::default() },
        clock: Arc::clone(clock),
        spawner: Spawner::Threads,
        ..Blog::default()
    };
    let storage = blog.open(fs).unwrap();
    Validator::new(Arc::new(storage), Spawner::Inline)
}

fn scope() -> Scope {
    let range = TokenRange { start: Token::Minimum, end: Token::Minimum };
    Scope { family: FAMILY, gc_before: 0, ranges: vec![range] }
}

/// Hashes of leaves, and how many rows were read for them.
async fn leaves(validator: &Validator, scope: Scope, shape: Shape) -> (u64, Vec<TreeHash>) {
    let control = JobControl::default();
    let found = validator.leaves(scope, shape, control.clone()).await;
    let Ok(Output::Leaves(hashes)) = found else { panic!("{found:?}") };
    (control.progress.now().rows, hashes)
}

#[tokio::test]
async fn leaves_that_make_no_sense_are_refused() {
    let validator = open(&SimFileSystem::new(1), &Arc::default());
    let found = validator.leaves(scope(), Shape::Even(200), JobControl::default()).await;
    let why = found.unwrap_err().to_string();
    assert_eq!(why, "the ranges make no sense: more than 32768 leaves are asked for");
}

/// Whatever happens to the rows, what follows from what is known is what would be read.
#[tokio::test]
async fn known_hashes_equal_those_that_would_be_read() {
    let mut saved = 0;
    for seed in 0..24 {
        let (mut rng, merges_by_itself) = (fastrand::Rng::with_seed(seed), seed % 2 == 0);
        let (fs, clock) = (SimFileSystem::new(seed), Arc::new(ManualClock::default()));
        clock.advance(Duration::from_secs(1000));
        let mut validator = open(&fs, &clock);
        for step in 1..60 {
            for _ in 0..rng.u32(..6) {
                change(&validator, &mut rng, clock.now_secs());
            }
            match rng.u8(..10) {
                0 | 1 => validator.storage.compact(FAMILY).unwrap(),
                2 => {
                    validator.stop().await;
                    drop(validator);
                    validator = open(&fs, &clock);
                }
                3 => {
                    drop(validator);
                    validator = open(&fs, &clock);
                }
                4 => clock.advance(Duration::from_secs(rng.u64(..40))),
                5 | 6 => drop(validator.storage.flush(FAMILY)),
                _ => {}
            }
            let mut scope = scope();
            scope.gc_before = validator.storage.family(FAMILY).gc_before();
            if merges_by_itself {
                validator.storage.set_compaction_thresholds(FAMILY, 2, 4).unwrap();
            } else {
                // As another node may say whose clock is late. What was dropped is gone for both.
                scope.gc_before -= rng.i32(..30);
            }
            let shape = Shape::Even(if rng.u8(..8) == 0 { rng.u8(2..6) } else { 5 });
            let expected = read_all(&validator, &scope, &shape);
            let (read, found) = leaves(&validator, scope, shape).await;
            assert_eq!(found, expected.1, "seed {seed}, step {step}");
            saved += expected.0 - read;
        }
    }
    assert!(saved > 0);
}

/// Writes or deletes a column, or deletes a row.
fn change(validator: &Validator, rng: &mut fastrand::Rng, now: i32) {
    let storage = &validator.storage;
    let key = format!("row {}", rng.u8(..60));
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    let timestamp = rng.i64(..50);
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
fn read_all(validator: &Validator, scope: &Scope, shape: &Shape) -> (u64, Vec<TreeHash>) {
    let storage = &validator.storage;
    let mut leaves = Leaves::new(storage.partitioner(), &scope.ranges, shape).unwrap();
    let set = storage.validation_set(FAMILY).unwrap();
    let builder = storage.row_builder(FAMILY, COLUMN_INDEX_BYTES).unwrap();
    let control = JobControl::default();
    let mut sink = HashSink::new(builder, &control, add_to(&mut leaves));
    storage
        .validate(&set, &row_ranges(&scope.ranges), scope.gc_before, COMPARED, &mut sink)
        .unwrap();
    drop(sink);
    (control.progress.now().rows, leaves.hashes())
}
