//! Definitions that a snapshot holds, for a restore.

use super::definitions::{Definitions, KeyspaceDefinition};
use super::file::{SavedSchema, SchemaFileError};
use crate::base::fs::FileSystem;
use crate::storage::checked_file;
use crate::storage::error::FileContext;
use crate::storage::files::{FileName, SCHEMA_FILE};
use crate::storage::snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Adds the tables of a snapshot that are not defined as they were then: they were dropped or
/// emptied since, or are those of another node. Returns whether there are any.
pub(super) fn recall(
    saved: &mut SavedSchema,
    snapshot: &Snapshot,
    fs: &dyn FileSystem,
) -> Result<bool, SchemaFileError> {
    let mut is_changed = false;
    for folder in &snapshot.folders {
        let Some(then) = checked_file::load::<SavedSchema>(fs, &folder.join(SCHEMA_FILE))? else {
            continue;
        };
        let entries = fs.list(folder).context("list", folder)?;
        let kept = entries.iter().filter_map(|entry| match FileName::parse(&entry.name) {
            FileName::Manifest(name) => Some(name),
            _ => None,
        });
        let kept: BTreeSet<String> = kept.collect();
        is_changed |= add(&mut saved.definitions, &then.definitions, &snapshot.keyspace, &kept);
        // The next start would remove their files.
        saved
            .leftovers
            .retain(|(keyspace, name)| *keyspace != snapshot.keyspace || !kept.contains(name));
    }
    Ok(is_changed)
}

/// Adds the tables of a keyspace with these stored names.
fn add(now: &mut Definitions, then: &Definitions, keyspace: &str, kept: &BTreeSet<String>) -> bool {
    let Some(past) = then.keyspaces.get(keyspace) else { return false };
    let known: BTreeSet<(String, String)> = now.stored_names().collect();
    let lacks = |name: &String| {
        kept.contains(name) && !known.contains(&(keyspace.to_owned(), name.clone()))
    };
    let lost: Vec<_> =
        past.tables.iter().filter(|(name, it)| lacks(&it.stored_name(name))).collect();
    if lost.is_empty() {
        return false;
    }
    let present = now.keyspaces.entry(keyspace.to_owned()).or_insert_with(|| KeyspaceDefinition {
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
        ..past.clone()
    });
    for (name, of_type) in &past.types {
        present.types.entry(name.clone()).or_insert_with(|| Arc::clone(of_type));
    }
    for (name, table) in lost {
        present.tables.insert(name.clone(), Arc::clone(table));
    }
    now.version = now.version.max(then.version) + 1;
    true
}
