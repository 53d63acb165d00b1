//! Column families that are added and dropped while the server runs.
//!
//! A definition is not kept here: the caller does that, and opens the storage with it at the next
//! start. It notes a new family before its first write, and forgets one after it is dropped.
//!
//! A dropped family leaves a manifest without SSTables, which says up to where the commit log holds
//! nothing of it. So a replay passes its old records over, whether the family is configured again
//! or not. Its number stays taken by an empty family that refuses writes: requests under way that
//! name it find no rows.

use super::super::compaction::CompactionError;
use super::super::family::{ColumnFamily, OpenError};
use super::super::options::FamilyOptions;
use super::super::system;
use super::Core;
use super::open::create_folders;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::error::FileError;
use std::sync::Arc;

/// Why a column family is not added or dropped. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaChangeError {
    /// There is one of this name.
    #[error("column family {0} exists already")]
    Exists(String),
    /// Families are added to keyspaces that exist.
    #[error("keyspace {0} does not exist")]
    UnknownKeyspace(String),
    /// The node keeps its own state there.
    #[error("the column families of keyspace {0} cannot be changed")]
    System(&'static str),
    /// A folder cannot be created.
    #[error(transparent)]
    File(#[from] FileError),
    /// The files that are there under its name are of no use.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its data cannot be removed.
    #[error("the data of the column family cannot be dropped: {0}")]
    Drop(#[from] CompactionError),
}

impl Core {
    /// Adds a column family, which can be read and written when this returns. Data that the
    /// directories hold of it are served, as after a start.
    pub fn add_family(
        &self,
        family: ColumnFamilySchema,
        options: FamilyOptions,
    ) -> Result<FamilyId, SchemaChangeError> {
        let _one_at_a_time = self.snapshots.lock();
        check_keyspace(&family)?;
        if !self.schema.has_keyspace(&family.keyspace) {
            return Err(SchemaChangeError::UnknownKeyspace(family.keyspace));
        }
        if self.schema.family_id(&family.keyspace, &family.name).is_some() {
            return Err(SchemaChangeError::Exists(family.to_string()));
        }
        let (fs, directories) = (&*self.environment.fs, &self.data_directories);
        let folders = create_folders(fs, directories, &family.keyspace)?;
        let (id, family) = (FamilyId(self.stores.count() as u32), Arc::new(family));
        let store = ColumnFamily::open(&self.environment, id, &family, options, folders)?;
        self.stores.push(Arc::new(store));
        let known_as = self.schema.insert(Arc::clone(&family));
        assert_eq!(known_as, id, "the schema and the storage number families alike");
        self.note_families();
        self.request_compaction(self.family(id));
        log::info!("column family {family} was added");
        Ok(id)
    }

    /// Drops a column family with all its data, durably; snapshots stay. Writes to it are refused
    /// from now on, and reads find nothing. Waits for its compactions.
    pub fn drop_family(&self, id: FamilyId) -> Result<(), SchemaChangeError> {
        let _one_at_a_time = self.snapshots.lock();
        let store = self.family(id);
        check_keyspace(store.schema())?;
        if store.is_dropped() {
            return Ok(());
        }
        store.refuse_writes(true);
        if let Err(error) = self.discard(store) {
            store.refuse_writes(false);
            return Err(error.into());
        }
        store.mark_dropped();
        self.schema.remove(id);
        self.forget_families(&[id]);
        store.set_cache_capacity(0, 0);
        store.remove_replaced();
        log::info!("column family {} was dropped", store.schema());
        Ok(())
    }
}

fn check_keyspace(family: &ColumnFamilySchema) -> Result<(), SchemaChangeError> {
    if family.keyspace == system::KEYSPACE {
        return Err(SchemaChangeError::System(system::KEYSPACE));
    }
    Ok(())
}
