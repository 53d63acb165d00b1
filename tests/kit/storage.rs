//! Storage on a simulated disk.

use super::clock::ManualClock;
use super::disk::SimFileSystem;
use alexandra::base::clock::Clock;
use alexandra::base::worker::Spawner;
use alexandra::model::comparator::Comparator;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use alexandra::ring::Partitioner;
use alexandra::storage::database::{Components, StorageError};
use alexandra::storage::options::{FamilyOptions, Options};
use alexandra::storage::{Database, system};
use std::sync::Arc;
use std::time::Duration;

/// A database of keyspace `Blog` in which nothing happens by itself, as a test varies it.
#[derive(Debug, Clone)]
pub(crate) struct Blog {
    pub(crate) families: &'static [&'static str],
    pub(crate) is_super: bool,
    pub(crate) gc_grace: Duration,
    pub(crate) partitioner: Partitioner,
    pub(crate) options: Options,
    pub(crate) family: FamilyOptions,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) spawner: Spawner,
}

impl Default for Blog {
    fn default() -> Self {
        Self {
            families: &["Authors"],
            is_super: false,
            gc_grace: Duration::from_hours(24 * 10),
            partitioner: Partitioner::OrderPreserving,
            options: Options {
                memtable_budget_bytes: 1 << 20,
                block_cache_bytes: 1 << 20,
                ..options()
            },
            family: FamilyOptions::default(),
            clock: Arc::default(),
            spawner: Spawner::Inline,
        }
    }
}

impl Blog {
    pub(crate) fn schema(&self, name: &str) -> ColumnFamilySchema {
        let columns = Comparator::Bytes;
        let kind = if self.is_super {
            ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns }
        } else {
            ColumnFamilyKind::Standard { columns }
        };
        let schema = ColumnFamilySchema::new("Blog".into(), name.into(), kind);
        ColumnFamilySchema { gc_grace: self.gc_grace, ..schema }
    }

    pub(crate) fn open(&self, fs: &SimFileSystem) -> Result<Database, StorageError> {
        let components = Components::new(Arc::new(fs.clone()), self.clock.clone());
        let components = Components { spawner: self.spawner, ..components };
        let families = self.families.iter().map(|name| Arc::new(self.schema(name)));
        let (schema, options) = (Arc::new(Schema::new(families)), self.options.clone());
        Database::open(components, options, self.partitioner, schema, |_| self.family.clone())
    }
}

/// Options for the directories of a simulated disk. What was flushed is read from the disk.
pub(crate) fn options() -> Options {
    Options { segment_bytes: 1 << 16, block_cache_bytes: 0, ..Options::new("/data", "/log") }
}

/// Opens a storage of these column families, with the options of the original for each of them.
pub(crate) fn open(
    fs: &SimFileSystem,
    clock: Arc<dyn Clock>,
    options: Options,
    partitioner: Partitioner,
    schema: &Arc<Schema>,
) -> Arc<Database> {
    let components = Components::new(Arc::new(fs.clone()), clock);
    let family = |_| FamilyOptions::default();
    let storage = Database::open(components, options, partitioner, Arc::clone(schema), family);
    Arc::new(storage.unwrap())
}

/// The column families of the keyspace `system`, in which a node notes what it has to remember.
pub(crate) fn system_families() -> [Arc<ColumnFamilySchema>; 3] {
    [system::LOCATION_INFO, system::registers::PAXOS, system::batches::BATCHES].map(|name| {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        let schema = ColumnFamilySchema::new(system::KEYSPACE.into(), name.into(), kind);
        Arc::new(ColumnFamilySchema { gc_grace: Duration::from_hours(24), ..schema })
    })
}

/// Opens a storage of these alone.
pub(crate) fn open_system(fs: &SimFileSystem, clock: Arc<dyn Clock>) -> Arc<Database> {
    let schema = Arc::new(Schema::new(system_families()));
    open(fs, clock, Options::new("/data", "/log"), Partitioner::Random, &schema)
}
