//! Storage on a simulated disk.

use super::disk::SimFileSystem;
use alexandra::base::clock::Clock;
use alexandra::base::events::Events;
use alexandra::model::comparator::Comparator;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use alexandra::ring::Partitioner;
use alexandra::storage::database::Components;
use alexandra::storage::options::{FamilyOptions, Options};
use alexandra::storage::{Database, system};
use std::sync::Arc;

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
    let components = Components { fs: Arc::new(fs.clone()), clock, events: Events::ignored() };
    let family = |_| FamilyOptions::default();
    let storage = Database::open(components, options, partitioner, Arc::clone(schema), family);
    Arc::new(storage.unwrap())
}

/// Opens a storage with the column family `LocationInfo` of the keyspace `system`, which is all
/// that a node notes of itself.
pub(crate) fn open_system(fs: &SimFileSystem, clock: Arc<dyn Clock>) -> Arc<Database> {
    let family = ColumnFamilySchema::new(
        system::KEYSPACE.into(),
        system::LOCATION_INFO.into(),
        ColumnFamilyKind::Standard { columns: Comparator::Bytes },
    );
    let (options, schema) = (Options::new("/data", "/log"), Arc::new(Schema::new([family.into()])));
    open(fs, clock, options, Partitioner::Random, &schema)
}
