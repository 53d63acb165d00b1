//! Rows that are copied to other nodes, that come from other nodes, and that are not kept.

mod cleanup;
mod exchange;
mod ingest;
mod pieces;
mod rows;
mod validation;

use super::*;
use crate::storage::CompactionStrategy;

const FAMILY: FamilyId = FamilyId(0);

/// Deletions made up to this second are older than `GCGraceSeconds`.
const GC_BEFORE: i32 = 100;

/// A database at the second at which deletions made up to `GC_BEFORE` are too old.
fn setup() -> Blog {
    let clock = Arc::new(ManualClock::at_micros(i64::from(GC_BEFORE) * 1_000_000));
    let family = FamilyOptions {
        block_bytes: 1 << 10,
        leveled_table_bytes: 1 << 20,
        ..FamilyOptions::default()
    };
    Blog { gc_grace: Duration::ZERO, clock, family, ..Blog::default() }
}

fn leveled(leveled_table_bytes: u64) -> Blog {
    let Blog { family, .. } = setup();
    let compaction_strategy = CompactionStrategy::Leveled;
    let family = FamilyOptions { compaction_strategy, leveled_table_bytes, ..family };
    Blog { family, ..setup() }
}

/// A row as a replica knows it.
fn version(storage: &Database, key: &RowKey) -> RowVersion {
    let (all, context) = (Slice::all(None), RequestContext::default());
    storage.family(FAMILY).read_version(key, &all, &context, Access::Cached).unwrap()
}

fn insert(storage: &Database, key: &str, name: &str, timestamp: i64) {
    let mut mutation = MutationBuilder::new(storage.schema(), "Blog", key.as_bytes());
    mutation.family(FAMILY).insert((b"", name.as_bytes()), b"value", timestamp);
    storage.apply(&mutation.finish(), true).unwrap();
}
