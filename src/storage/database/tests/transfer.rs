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

/// What the tests choose of a storage with one column family.
#[derive(Debug, Clone)]
struct Setup {
    is_super: bool,
    partitioner: Partitioner,
    strategy: CompactionStrategy,
    table_bytes: u64,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            is_super: false,
            partitioner: Partitioner::OrderPreserving,
            strategy: CompactionStrategy::SizeTiered,
            table_bytes: 1 << 20,
        }
    }
}

impl Setup {
    /// A storage in which nothing happens by itself.
    fn open(&self, fs: &SimFileSystem) -> Result<Database, StorageError> {
        let columns = Comparator::Bytes;
        let kind = if self.is_super {
            ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns }
        } else {
            ColumnFamilyKind::Standard { columns }
        };
        let (keyspace, name) = ("Blog".into(), "Authors".into());
        let gc_grace = Duration::ZERO;
        let family =
            ColumnFamilySchema { gc_grace, ..ColumnFamilySchema::new(keyspace, name, kind) };
        let components = Components {
            fs: Arc::new(fs.clone()),
            clock: Arc::new(ManualClock::at_micros(i64::from(GC_BEFORE) * 1_000_000)),
            events: Events::ignored(),
        };
        let options_of = |_| FamilyOptions {
            block_bytes: 1 << 10,
            compaction_strategy: self.strategy,
            leveled_table_bytes: self.table_bytes,
            ..FamilyOptions::default()
        };
        let schema = Arc::new(Schema::new([Arc::new(family)]));
        Database::open_without_threads(components, options(), self.partitioner, schema, options_of)
    }
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
