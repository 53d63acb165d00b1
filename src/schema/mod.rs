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
}

/// Reads what was made over CQL, and adds it to the settings: their keyspaces are then all that the
/// node has. To be called before the database is opened, by servers and tools alike.
pub fn read(settings: &mut Settings, fs: &dyn FileSystem) -> Result<SavedSchema, SchemaError> {
    let saved = file::load(fs, &settings.directories.data)?;
    families::complete(settings, &saved.definitions)?;
    Ok(saved)
}

/// The same for a restore, with the tables of these snapshots. Returns what is to be
/// [stored](store) after it, if that has changed.
pub fn read_for_restore(
    settings: &mut Settings,
    fs: &dyn FileSystem,
    snapshots: &[Snapshot],
) -> Result<Option<SavedSchema>, SchemaError> {
    let mut saved = file::load(fs, &settings.directories.data)?;
    let mut is_changed = false;
    for snapshot in snapshots {
        is_changed |= recall::recall(&mut saved, snapshot, fs)?;
    }
    families::complete(settings, &saved.definitions)?;
    Ok(is_changed.then_some(saved))
}

/// Writes the definitions of a stopped node.
pub fn store(
    settings: &Settings,
    fs: &dyn FileSystem,
    saved: &SavedSchema,
) -> Result<(), FileError> {
    file::store(fs, &settings.directories.data, saved)
}
