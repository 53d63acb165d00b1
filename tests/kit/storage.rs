//! Storage of a node that keeps nothing but what it notes of itself.

use super::disk::SimFileSystem;
use alexandra::base::clock::Clock;
use alexandra::base::events::Events;
use alexandra::model::comparator::Comparator;
use alexandra::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};
use alexandra::ring::Partitioner;
use alexandra::storage::engine::Components;
use alexandra::storage::options::{FamilyOptions, Options};
use alexandra::storage::{Storage, system};
use std::sync::Arc;

/// Opens a storage with the column family `LocationInfo` of the keyspace `system`.
pub(crate) fn open_system(fs: &SimFileSystem, clock: Arc<dyn Clock>) -> Arc<Storage> {
    let components = Components { fs: Arc::new(fs.clone()), clock, events: Events::ignored() };
    let family = ColumnFamilySchema {
        keyspace: system::KEYSPACE.into(),
        name: system::LOCATION_INFO.into(),
        kind: ColumnFamilyKind::Standard { columns: Comparator::Bytes },
        comment: None,
    };
    let (options, schema) = (Options::new("/data", "/log"), Arc::new(Schema::new([family.into()])));
    let family = |_| FamilyOptions::default();
    let storage = Storage::open(components, options, Partitioner::Random, schema, family);
    Arc::new(storage.unwrap())
}
