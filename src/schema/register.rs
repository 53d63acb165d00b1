//! The definitions of a node, and their changes. All nodes of the ring agree on the next ones, and
//! keep them in a register; each follows. Its file changes first, then the database. A crash or
//! failure in between is made good by the next start or change.

use super::definitions::{Definitions, KeyspaceDefinition, Replication};
use super::encoding;
use super::families::SchemaConflict;
use super::file::{self, SavedSchema};
use crate::base::fs::FileSystem;
use crate::base::lock::{Mutex, rank};
use crate::config::settings::{ColumnFamilySettings, SYSTEM_KEYSPACE};
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::model::types::MAX_TYPE_DEPTH;
use crate::ring::{KeyspacePlacements, ReplicaPlacement};
use crate::storage::database::{Database, SchemaChangeError};
use crate::storage::error::FileError;
use crate::storage::options::FamilyOptions;
use crate::storage::snapshot::SnapshotError;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// The rest of the node, for changes of the schema.
pub trait SchemaHost: Debug + Send + Sync {
    /// Reason why the schema cannot change now.
    fn refusal(&self) -> Option<String>;
    /// Whether it is the only node of its ring.
    fn is_alone(&self) -> bool;
    /// Settings of the storage of a column family.
    fn family_options(&self, family: &ColumnFamilySettings) -> FamilyOptions;
    /// Placement of the replicas of a keyspace.
    fn placement(&self, replication: &Replication) -> ReplicaPlacement;
    /// Serves by placements that have changed.
    fn refresh(&self);
}

/// Parts of a [`SchemaRegister`].
#[derive(Debug)]
pub struct RegisterOptions {
    /// The disk.
    pub fs: Arc<dyn FileSystem>,
    /// `DataFileDirectories`.
    pub data_directories: Vec<PathBuf>,
    /// The data of the node, opened with the definitions.
    pub storage: Arc<Database>,
    /// The placements that all parts of the node share.
    pub placements: Arc<KeyspacePlacements>,
    /// The rest of the node.
    pub host: Box<dyn SchemaHost>,
}

/// Keeps the definitions of a node, and changes them one after the other.
#[derive(Debug)]
pub struct SchemaRegister {
    options: RegisterOptions,
    current: watch::Sender<Arc<Definitions>>,
    /// Held during a change.
    state: Mutex<rank::Membership, State>,
}

#[derive(Debug)]
struct State {
    /// Tables that were dropped since the start.
    leftovers: Vec<(String, String)>,
    /// The definitions that the database has followed: earlier ones after a failure.
    followed: Arc<Definitions>,
}

/// Reason why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError<E> {
    /// The change makes no sense.
    #[error("{0}")]
    Change(E),
    /// The schema cannot be changed now.
    #[error("{0}")]
    Refused(String),
    /// A table cannot be dropped or emptied without a snapshot.
    #[error("the snapshot of the table cannot be taken: {0}")]
    Snapshot(SnapshotError),
    /// The file cannot be written. Nothing has changed.
    #[error(transparent)]
    File(FileError),
    /// The definitions have changed, and the database does not follow yet.
    #[error("the schema has changed, but the database cannot follow before the next change: {0}")]
    Database(SchemaChangeError),
    /// The definitions make no sense.
    #[error(transparent)]
    Conflict(SchemaConflict),
    /// User types within user types, each of which is stored with all that it holds.
    #[error(
        "types can be nested at most {MAX_TYPE_DEPTH} deep, user types with all that they hold"
    )]
    TooDeep,
    /// The nodes of the ring hold what this version cannot read.
    #[error("the schema of the ring was written by a later version of the server")]
    Unreadable,
    /// The nodes of the ring have not agreed.
    #[error("{0}")]
    Disagreement(String),
}

impl SchemaRegister {
    /// The register of a node whose database was opened with the saved definitions. Removes what a
    /// crash has left of tables that were dropped.
    pub fn new(options: RegisterOptions, saved: SavedSchema) -> Result<Self, FileError> {
        let SavedSchema { definitions, leftovers } = saved;
        if !leftovers.is_empty() {
            for (keyspace, name) in &leftovers {
                options.storage.remove_leftovers(keyspace, name)?;
            }
            let saved = SavedSchema { definitions: definitions.clone(), leftovers: Vec::new() };
            let RegisterOptions { fs, data_directories, .. } = &options;
            match file::store(&**fs, data_directories, &saved) {
                // Reads are served on a full disk. The next start removes them again.
                Err(error) if error.is_shortage() => log::warn!("{error}"),
                stored => stored?,
            }
        }
        let followed = Arc::new(definitions);
        let current = watch::Sender::new(Arc::clone(&followed));
        let state = Mutex::new(State { leftovers: Vec::new(), followed });
        Ok(Self { options, current, state })
    }

    /// Keeps all others from a change.
    pub(super) fn lock(&self) -> impl Sized {
        self.state.lock()
    }

    /// The data of the node, its placements and its settings.
    pub(super) fn parts(&self) -> (&Database, &KeyspacePlacements, &dyn SchemaHost) {
        let RegisterOptions { storage, placements, host, .. } = &self.options;
        (storage, placements, &**host)
    }

    /// The definitions now.
    pub fn definitions(&self) -> Arc<Definitions> {
        Arc::clone(&self.current.borrow())
    }

    /// Tells when the definitions have changed and the database has followed.
    pub fn changes(&self) -> watch::Receiver<Arc<Definitions>> {
        self.current.subscribe()
    }

    /// The next value of the register that all nodes of the ring keep, after this one. The change
    /// sees the definitions of all changes before, and returns `None` if it has nothing to do. It
    /// may be called again with later ones.
    pub fn propose<E>(
        &self,
        value: &[u8],
        change: impl Fn(&Definitions) -> Result<Option<Definitions>, E>,
    ) -> Result<Option<Vec<u8>>, ChangeError<E>> {
        let kept = decode(value).ok_or(ChangeError::Unreadable)?;
        // A crash of all nodes may have taken a change from the register that a file still has.
        let own = self.definitions();
        let now = if own.version > kept.version { &*own } else { &kept };
        let Some(changed) = change(now).map_err(ChangeError::Change)? else { return Ok(None) };
        if let Some(why) = self.options.host.refusal() {
            return Err(ChangeError::Refused(why));
        }
        let next = Definitions { version: now.version + 1, ..changed };
        families(&next).map_err(ChangeError::Conflict)?;
        let text = encoding::encode(&next);
        // A schema that nodes cannot read would block all later changes.
        if encoding::decode(&text).as_ref() != Some(&next) {
            return Err(ChangeError::TooDeep);
        }
        Ok(Some(text.into_bytes()))
    }

    /// Makes this node follow a value of the register. Waits for the disk.
    pub fn follow(&self, value: &[u8]) -> Result<(), ChangeError<Infallible>> {
        let mut state = self.state.lock();
        let next = decode(value).ok_or(ChangeError::Unreadable)?;
        // Each start begins with the value that it ended with.
        if next.version < self.definitions().version || next == *state.followed {
            return Ok(());
        }
        let families = families(&next).map_err(ChangeError::Conflict)?;
        let schema = self.options.storage.schema();
        let dropped = dropped(schema, &families);
        self.options.storage.without_writes(&dropped, || {
            let is_dropped =
                |it: &ColumnFamilySchema| next.table(&it.keyspace, it.table_name()).is_none();
            let is_gone = |keyspace: &str| {
                let kept = next.keyspaces.get(keyspace);
                let before = state.followed.keyspaces.get(keyspace);
                kept.is_none() && before.is_some_and(|it| it.replication.is_some())
            };
            self.save(&dropped, is_dropped, is_gone)?;
            state.leftovers.extend(dropped.iter().map(|id| names(schema, *id)));
            let saved = SavedSchema { definitions: next, leftovers: state.leftovers.clone() };
            let RegisterOptions { fs, data_directories, .. } = &self.options;
            file::store(&**fs, data_directories, &saved).map_err(ChangeError::File)?;
            let next = Arc::new(saved.definitions);
            let followed = self.change_database(&state.followed, &next, &families);
            self.current.send_replace(Arc::clone(&next));
            followed.map_err(ChangeError::Database)?;
            state.followed = next;
            Ok(())
        })
    }

    /// Whether the database has followed all changes that this node knows.
    pub fn is_followed(&self, value: &[u8]) -> bool {
        let followed = Arc::clone(&self.state.lock().followed);
        decode(value).is_some_and(|kept| followed.version >= kept.version)
    }

    /// Drops all rows of a column family of the configuration, after a snapshot. Waits for the
    /// disk.
    ///
    /// This is for a ring of one node: hints and replicas elsewhere would bring rows back.
    pub fn empty<E>(&self, id: FamilyId) -> Result<(), ChangeError<E>> {
        let _one_at_a_time = self.state.lock();
        if !self.options.host.is_alone() {
            return Err(ChangeError::Refused(
                "A column family of storage-conf.xml can be truncated only where the node is the \
                 only one of its ring: replicas and hints elsewhere would bring its rows back"
                    .to_owned(),
            ));
        }
        let storage = &self.options.storage;
        storage.without_writes(&[id], || {
            self.save(&[id], |_| false, |_| false)?;
            storage.discard_all(id).map_err(|error| ChangeError::Database(error.into()))
        })
    }

    /// Takes snapshots of the keyspaces of column families that are about to be dropped or emptied,
    /// if they have data. A restore takes a snapshot for all that its keyspace had. It is named
    /// after the family, or after the keyspace if that goes or there are several. Returns the
    /// families with data.
    ///
    /// The families take no writes any more: those after the snapshot would be lost.
    pub(super) fn save<E>(
        &self,
        families: &[FamilyId],
        is_dropped: impl Fn(&ColumnFamilySchema) -> bool,
        is_gone: impl Fn(&str) -> bool,
    ) -> Result<Vec<FamilyId>, ChangeError<E>> {
        let storage = &self.options.storage;
        let has_data = |id: &FamilyId| storage.family(*id).has_data();
        let saved: Vec<FamilyId> = families.iter().copied().filter(has_data).collect();
        let mut keyspaces: BTreeMap<&str, Vec<&ColumnFamilySchema>> = BTreeMap::new();
        for family in saved.iter().map(|id| storage.family(*id).schema()) {
            keyspaces.entry(&family.keyspace).or_default().push(family);
        }
        for (keyspace, families) in keyspaces {
            let is_dropped = families.iter().any(|family| is_dropped(family));
            let what = if is_dropped { "dropped" } else { "truncated" };
            let name = match families[..] {
                [only] if !is_gone(keyspace) => only.table_name(),
                _ => keyspace,
            };
            let tag = format!("{what}-{name}");
            storage.snapshot(Some(keyspace), Some(&tag)).map_err(ChangeError::Snapshot)?;
        }
        Ok(saved)
    }

    /// Makes the database and the placements follow the definitions.
    fn change_database(
        &self,
        before: &Definitions,
        definitions: &Definitions,
        families: &Families,
    ) -> Result<(), SchemaChangeError> {
        let RegisterOptions { storage, placements, host, .. } = &self.options;
        let schema = storage.schema();
        let is_made = |it: &KeyspaceDefinition| it.replication.is_some();
        for (name, keyspace) in &definitions.keyspaces {
            let is_new = |it: &KeyspaceDefinition| it.replication != keyspace.replication;
            if let Some(replication) = &keyspace.replication
                && before.keyspaces.get(name).is_none_or(is_new)
            {
                placements.set(name, Some(host.placement(replication)));
                host.refresh();
                schema.add_keyspace(name);
            }
        }
        for ((keyspace, name), family) in families {
            let options = host.family_options(family);
            let definition = ColumnFamilySchema::clone(&family.schema);
            match schema.family_id(keyspace, name) {
                None => storage.add_family(definition, options).map(drop)?,
                Some(id) if !is_same(schema.family(id), &definition) => {
                    storage.alter_family(id, definition, options);
                }
                Some(_) => {}
            }
        }
        for id in dropped(schema, families) {
            storage.drop_family(id)?;
        }
        for (name, _) in before.keyspaces.iter().filter(|(_, it)| is_made(it)) {
            if !definitions.keyspaces.get(name).is_some_and(is_made) {
                schema.remove_keyspace(name);
                placements.set(name, None);
                host.refresh();
            }
        }
        Ok(())
    }
}

/// The definitions of a value of the register, which is empty at first.
/// The definitions of a value of the register; `None` for one of a later version of the server.
pub(super) fn decode(value: &[u8]) -> Option<Definitions> {
    if value.is_empty() {
        return Some(Definitions::default());
    }
    encoding::decode(str::from_utf8(value).ok()?)
}

/// Tables as column families, by keyspace and stored name.
pub(super) type Families = BTreeMap<(String, String), ColumnFamilySettings>;

pub(super) fn families(definitions: &Definitions) -> Result<Families, SchemaConflict> {
    let mut all = Families::new();
    for (keyspace, definition) in &definitions.keyspaces {
        for family in definition.families(keyspace)? {
            all.insert((keyspace.clone(), family.schema.name.clone()), family);
        }
    }
    Ok(all)
}

/// The column families of tables that are not defined any more.
fn dropped(schema: &Schema, families: &Families) -> Vec<FamilyId> {
    let made = schema.families().filter(|(_, family)| {
        family.keyspace != SYSTEM_KEYSPACE && ColumnFamilySchema::is_of_cql(&family.name)
    });
    let gone = made.filter(|(id, _)| !families.contains_key(&names(schema, *id)));
    gone.map(|(id, _)| id).collect()
}

fn names(schema: &Schema, id: FamilyId) -> (String, String) {
    let family = schema.family(id);
    (family.keyspace.clone(), family.name.clone())
}

/// Whether nothing in a definition has changed. Properties that only the storage knows come with
/// another table.
fn is_same(now: &ColumnFamilySchema, then: &ColumnFamilySchema) -> bool {
    Arc::ptr_eq(&now.table, &then.table)
}
