//! Definitions that a snapshot holds, and those that the log notes after it, for a restore.

use super::definitions::{Definitions, KeyspaceDefinition, TableDefinition};
use super::file::{SavedSchema, SchemaFileError};
use crate::base::fs::FileSystem;
use crate::storage::checked_file;
use crate::storage::error::FileContext;
use crate::storage::files::{FileName, SCHEMA_FILE};
use crate::storage::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Takes a keyspace back to the time of a snapshot, and on to the last of the `later` definitions
/// that the log notes after it. Tables of the snapshot that were dropped since are there again;
/// those that are in neither stay.
pub(super) fn recall(
    saved: &mut SavedSchema,
    snapshot: &Snapshot,
    later: &[Definitions],
    fs: &dyn FileSystem,
) -> Result<(), SchemaFileError> {
    let (mut then, mut kept) = (Definitions::default(), BTreeSet::new());
    for folder in &snapshot.folders {
        let Some(found) = checked_file::load::<SavedSchema>(fs, &folder.join(SCHEMA_FILE))? else {
            continue;
        };
        then = found.definitions;
        let entries = fs.list(folder).context("list", folder)?;
        kept.extend(entries.iter().filter_map(|entry| match FileName::parse(&entry.name) {
            FileName::Manifest(name) => Some(name),
            _ => None,
        }));
    }
    let keyspace = &snapshot.keyspace;
    let later = later.iter().filter(|it| it.version > then.version);
    let later: Vec<_> = later.map(|it| it.keyspaces.get(keyspace)).collect();
    let past = then.keyspaces.remove(keyspace);
    let last = later.last().copied().flatten();
    let Some(template) = last.or(past.as_ref()) else { return Ok(()) };
    let present = saved.definitions.keyspaces.entry(keyspace.clone());
    let present = present.or_insert_with(|| KeyspaceDefinition {
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
        ..template.clone()
    });
    if let Some(mut past) = past {
        past.tables.retain(|name, table| kept.contains(&table.stored_name(name)));
        // As they were when they were dropped.
        for definition in later.into_iter().flatten() {
            past.tables.iter_mut().for_each(|(name, table)| renew(name, table, definition));
        }
        present.take(&past);
    }
    if let Some(last) = last {
        present.take(last);
    }
    // The next start would remove their files.
    saved.leftovers.retain(|(of, stored)| {
        let mut tables = present.tables.iter();
        of != keyspace || tables.all(|(name, table)| table.stored_name(name) != *stored)
    });
    Ok(())
}

/// Gives a table the definition that it has there, if it is the same table with the same rows.
fn renew(name: &str, table: &mut Arc<TableDefinition>, there: &KeyspaceDefinition) {
    if let Some(found) = there.tables.get(name).filter(|it| it.rows == table.rows) {
        *table = Arc::clone(found);
    }
}

impl KeyspaceDefinition {
    /// Takes over tables and types.
    fn take(&mut self, other: &Self) {
        self.tables.extend(other.tables.clone());
        self.types.extend(other.types.clone());
    }
}
