//! Column families that are added and dropped while the server runs.
//!
//! Definitions are not kept here: the caller keeps them, and opens the storage with them at the
//! next start. It notes a new family before its first write, and forgets one after it is dropped.
//!
//! A dropped family leaves a manifest without SSTables, which says up to where the commit log holds
//! nothing of it. So a replay passes its old records over, whether the family is configured again
//! or not. Its number stays taken by an empty family that refuses writes: running requests that
//! name it find no rows. Of a table that was made over CQL nothing is left but its snapshots: no
//! family has its name again, and its records are passed over for that.

use super::super::compaction::CompactionError;
use super::super::family::{ColumnFamily, OpenError};
use super::super::files::{self, FileName};
use super::super::options::FamilyOptions;
use super::super::system;
use super::Core;
use super::open::create_folders;
use super::unconfigured::find_all;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::storage::error::{FileContext, FileError};
use std::path::PathBuf;
use std::sync::Arc;

/// Reason why a column family is not added or dropped. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaChangeError {
    /// The name is taken.
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
    /// The files under its name are of no use.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its data cannot be removed.
    #[error("the data of the column family cannot be dropped: {0}")]
    Drop(#[from] CompactionError),
}

impl Core {
    /// Adds a column family, which can be read and written when this returns. Data in the
    /// directories are served, as after a start.
    pub fn add_family(
        &self,
        schema: ColumnFamilySchema,
        options: FamilyOptions,
    ) -> Result<FamilyId, SchemaChangeError> {
        let _one_at_a_time = self.administration.lock();
        check_keyspace(&schema)?;
        if !self.schema.has_keyspace(&schema.keyspace) {
            return Err(SchemaChangeError::UnknownKeyspace(schema.keyspace));
        }
        if self.schema.family_id(&schema.keyspace, &schema.name).is_some() {
            return Err(SchemaChangeError::Exists(schema.to_string()));
        }
        let (fs, directories) = (&*self.environment.fs, &self.options.data_directories);
        let folders = create_folders(fs, directories, &schema.keyspace)?;
        let (id, schema) = (FamilyId(self.families.count() as u32), Arc::new(schema));
        let family = ColumnFamily::open(&self.environment, id, &schema, options, folders)?;
        // Files of the same name may still be read, and go when that ends.
        let earlier = self.families.iter().map(|(_, it)| it);
        for earlier in earlier.filter(|it| it.schema().to_string() == schema.to_string()) {
            family.number_after(earlier);
        }
        let position = self.log.position();
        if family.flushed_position() > position {
            // Another log wrote these files: a replay would pass over the writes that follow.
            family.set_flushed(position)?;
        }
        self.families.push(Arc::new(family));
        let known_as = self.schema.insert(Arc::clone(&schema));
        assert_eq!(known_as, id, "the schema and the storage number families alike");
        self.note_families();
        self.request_compaction(self.family(id));
        log::info!("column family {schema} was added");
        Ok(id)
    }

    /// Where there are data of a column family that is not configured; `None` if there are none.
    pub fn unserved_data(&self, keyspace: &str, name: &str) -> Option<PathBuf> {
        let fs = &*self.environment.fs;
        let unserved = find_all(fs, &self.options.data_directories, &self.schema);
        let mut named = unserved.iter().filter(|it| it.has_data() && it.is_of(keyspace, name));
        named.next().map(|it| it.path().to_owned())
    }

    /// Changes the definition of a column family in what does not concern its files, and its
    /// settings.
    pub fn alter_family(&self, id: FamilyId, schema: ColumnFamilySchema, options: FamilyOptions) {
        let _one_at_a_time = self.administration.lock();
        let schema = Arc::new(schema);
        self.family(id).alter(Arc::clone(&schema), options);
        self.schema.alter(id, schema);
        self.request_compaction(self.family(id));
    }

    /// Keeps writes out of column families that are about to be dropped or emptied, and ends their
    /// compactions, while this work is done. Those that are there afterwards go on.
    pub fn without_writes<T>(&self, ids: &[FamilyId], work: impl FnOnce() -> T) -> T {
        let families = || ids.iter().map(|id| self.family(*id));
        families().for_each(|family| family.refuse_writes(true));
        let done = work();
        for family in families().filter(|family| !family.is_dropped()) {
            family.refuse_writes(false);
            self.request_compaction(family);
        }
        done
    }

    /// Drops a column family with all its data, durably; snapshots stay. Writes to it are refused
    /// from now on, and reads find nothing. Ends its compactions.
    pub fn drop_family(&self, id: FamilyId) -> Result<(), SchemaChangeError> {
        let _one_at_a_time = self.administration.lock();
        let family = self.family(id);
        check_keyspace(family.schema())?;
        if family.is_dropped() {
            return Ok(());
        }
        family.refuse_writes(true);
        self.discard(family).inspect_err(|_| family.refuse_writes(false))?;
        family.mark_dropped();
        self.schema.remove(id);
        self.forget_families(&[id]);
        family.set_cache_capacity(0, 0);
        family.remove_replaced();
        let ColumnFamilySchema { keyspace, name, .. } = &**family.schema();
        if ColumnFamilySchema::is_of_cql(name) {
            self.remove_files(keyspace, name, |file| !matches!(file, FileName::SsTable(..)))?;
        }
        log::info!("column family {} was dropped", family.schema());
        Ok(())
    }

    /// Removes the files of a table that was made over CQL and dropped, but whose files a crash or
    /// a reader has kept. Snapshots stay.
    pub fn remove_leftovers(&self, keyspace: &str, name: &str) -> Result<(), FileError> {
        let _one_at_a_time = self.administration.lock();
        let is_known = self.schema.family_id(keyspace, name).is_some();
        if is_known || !ColumnFamilySchema::is_of_cql(name) {
            return Ok(());
        }
        self.remove_files(keyspace, name, |_| true)
    }

    fn remove_files(
        &self,
        keyspace: &str,
        name: &str,
        is_meant: impl Fn(&FileName) -> bool,
    ) -> Result<(), FileError> {
        let fs = &*self.environment.fs;
        for directory in &self.options.data_directories {
            let folder = files::keyspace_folder(directory, keyspace);
            let entries = fs.list(&folder).unwrap_or_default();
            for entry in entries {
                let file = FileName::parse(&entry.name);
                let is_hashes = folder.join(&entry.name) == files::hashes(&folder, name);
                if is_hashes || file.family() == Some(name) && is_meant(&file) {
                    let path = folder.join(&entry.name);
                    fs.remove_file(&path).context("remove", &path)?;
                }
            }
        }
        Ok(())
    }
}

fn check_keyspace(family: &ColumnFamilySchema) -> Result<(), SchemaChangeError> {
    if family.keyspace == system::KEYSPACE {
        return Err(SchemaChangeError::System(system::KEYSPACE));
    }
    Ok(())
}
