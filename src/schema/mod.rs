//! The schema that was made over CQL: keyspaces, tables and types besides those of
//! `storage-conf.xml`, and their changes while the node runs.
//!
//! ```text
//!   definitions   keyspaces, tables and types: one value, replaced as a whole
//!   encoding      that value as text
//!   file          the file that holds it
//!   families      tables as column families, with their settings
//!   recall        definitions that a snapshot holds
//!   configured    changes of what `storage-conf.xml` defines
//!   register      changes the definitions of a node, and makes its database follow
//! ```
//!
//! A table has a name for people and a stored name, which ends in the id of its rows. Files,
//! records and messages have the stored name. DROP and TRUNCATE end its use forever, so that
//! nothing old reaches a later table.

mod configured;
mod definitions;
mod encoding;
mod families;
mod file;
mod recall;
mod register;
#[cfg(test)]
mod tests;

pub use configured::ConfiguredChange;
pub use definitions::{
    Definitions, DroppedColumn, KeyspaceDefinition, PropertyValue, Replication, TableDefinition,
};
pub use families::{SchemaConflict, kind};
pub use file::{SavedSchema, SchemaFileError};
pub use register::{ChangeError, RegisterOptions, SchemaHost, SchemaRegister};

/// Name of the register that holds the definitions on all nodes of a ring.
pub const REGISTER_NAME: &str = "schema";

use crate::base::fs::FileSystem;
use crate::config::Settings;
use crate::storage::error::FileError;
use crate::storage::snapshot::Snapshot;

/// Reason why a schema that was made over CQL cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// It cannot be read.
    #[error(transparent)]
    File(#[from] SchemaFileError),
    /// It does not go together with the configuration.
    #[error(transparent)]
    Conflict(#[from] SchemaConflict),
    /// Tables of it would be left out of a restore.
    #[error("the archive notes a schema that a later version of the server has written: use that")]
    Unreadable,
}

/// Reads what was made over CQL, and adds it to the settings: their keyspaces are then all that the
/// node has. To be called before the database is opened, by servers and tools alike.
pub fn read(settings: &mut Settings, fs: &dyn FileSystem) -> Result<SavedSchema, SchemaError> {
    let saved = file::load(fs, &settings.directories.data)?;
    families::complete(settings, &saved.definitions)?;
    Ok(saved)
}

/// Schema of a restore.
#[derive(Debug)]
pub struct Recalled {
    /// Definitions to [store] after it, if they have changed.
    pub saved: Option<SavedSchema>,
    /// Keyspaces that were made after the snapshots, and are not there now.
    pub made_since: Vec<String>,
}

/// The same as [`read`] for a restore, with the definitions of these snapshots, and with those that
/// are `noted` after them in the part of the log that is replayed: values of the register. The
/// restore is of all keyspaces if it `is_whole`.
pub fn read_for_restore(
    settings: &mut Settings,
    fs: &dyn FileSystem,
    snapshots: &[Snapshot],
    noted: &[Vec<u8>],
    is_whole: bool,
) -> Result<Recalled, SchemaError> {
    let present = file::load(fs, &settings.directories.data)?;
    let mut saved = present.clone();
    let later: Option<Vec<Definitions>> = noted.iter().map(|it| register::decode(it)).collect();
    let later = later.ok_or(SchemaError::Unreadable)?;
    for snapshot in snapshots {
        recall::recall(&mut saved, snapshot, &later, fs)?;
    }
    let keyspaces = &mut saved.definitions.keyspaces;
    let mut made_since = Vec::new();
    for (name, definition) in later.last().into_iter().flat_map(|it| &it.keyspaces) {
        if is_whole && definition.replication.is_some() && !keyspaces.contains_key(name) {
            keyspaces.insert(name.clone(), definition.clone());
            made_since.push(name.clone());
        }
    }
    families::complete(settings, &saved.definitions)?;
    let is_changed = saved != present;
    if is_changed {
        let newest = later.iter().map(|it| it.version).max().unwrap_or(0);
        saved.definitions.version = saved.definitions.version.max(newest) + 1;
    }
    Ok(Recalled { saved: is_changed.then_some(saved), made_since })
}

/// Writes the definitions of a stopped node.
pub fn store(
    settings: &Settings,
    fs: &dyn FileSystem,
    saved: &SavedSchema,
) -> Result<(), FileError> {
    file::store(fs, &settings.directories.data, saved)
}
