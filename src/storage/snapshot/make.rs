//! Making a snapshot.

use super::SnapshotName;
use super::folders::remove;
use crate::base::fs::FileSystem;
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::family::Environment;
use crate::storage::files;
use crate::storage::manifest::Manifest;
use crate::storage::sstable::SsTable;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A column family as it was at one moment. Its SSTables stay on the disk as long as this lives.
#[derive(Debug)]
pub struct Captured {
    /// Name of the column family.
    pub family: String,
    /// Folder of its manifest: that of the keyspace in one data directory.
    pub manifest_folder: PathBuf,
    /// Its manifest at that moment.
    pub manifest: Manifest,
    /// The SSTables that it names.
    pub tables: Vec<Arc<SsTable>>,
}

/// Makes a snapshot of column families of one keyspace, durable when this returns. After an error
/// nothing of it is left, unless the disk refuses that too; then the next start removes it.
pub fn make(
    environment: &Environment,
    name: &SnapshotName,
    captured: &[Captured],
) -> Result<(), FileError> {
    let tables = captured.iter().flat_map(|family| &family.tables);
    let of_tables = tables.filter_map(|table| table.path().parent().map(Path::to_owned));
    let of_manifests = captured.iter().map(|family| family.manifest_folder.clone());
    let folders: BTreeSet<PathBuf> = of_tables.chain(of_manifests).collect();
    let folders: Vec<PathBuf> = folders.into_iter().collect();
    let name = name.to_string();
    for folder in &folders {
        for path in [files::snapshot(folder, &name), files::unfinished_snapshot(folder, &name)] {
            if environment.fs.try_exists(&path).context("look for", &path)? {
                let exists = io::ErrorKind::AlreadyExists.into();
                return Err(FileError::new("create", &path, exists));
            }
        }
    }
    let made = fill(environment, &folders, &name, captured)
        .and_then(|()| publish(environment, &folders, &name));
    if made.is_err()
        && let Err(error) = remove(&*environment.fs, &folders, &name)
    {
        log::warn!("{error}: what is left of the snapshot goes with the next start");
    }
    made
}

/// Links everything under the temporary names of the folders.
fn fill(
    environment: &Environment,
    folders: &[PathBuf],
    name: &str,
    captured: &[Captured],
) -> Result<(), FileError> {
    let fs = &*environment.fs;
    for folder in folders {
        let unfinished = files::unfinished_snapshot(folder, name);
        directory::create(fs, &unfinished).context("create", &unfinished)?;
    }
    for Captured { family, manifest_folder, manifest, tables } in captured {
        for table in tables {
            let folder = table.path().parent().unwrap_or(manifest_folder);
            let unfinished = files::unfinished_snapshot(folder, name);
            // Its last step, the name, may have failed; the snapshot has it whole.
            let own = files::sstable(&unfinished, family, table.generation());
            for path in table.files() {
                let name = path.file_name().unwrap_or_default();
                let link = if table.is_legacy() { unfinished.join(name) } else { own.clone() };
                fs.hard_link(&path, &link).context("link", &link)?;
            }
        }
        let unfinished = files::unfinished_snapshot(manifest_folder, name);
        manifest.of_snapshot().store(fs, &files::manifest(&unfinished, family))?;
        link_schema(fs, manifest_folder, &unfinished)?;
    }
    for folder in folders {
        environment.directory_sync.sync(fs, &files::unfinished_snapshot(folder, name))?;
    }
    Ok(())
}

/// Links the definitions of tables made over CQL, which a restore needs. The file is replaced as a
/// whole when they change.
fn link_schema(fs: &dyn FileSystem, keyspace: &Path, unfinished: &Path) -> Result<(), FileError> {
    let link = unfinished.join(files::SCHEMA_FILE);
    let Some(schema) = keyspace.parent().map(|it| it.join(files::SCHEMA_FILE)) else {
        return Ok(());
    };
    let exists = |path: &Path| fs.try_exists(path).context("look for", path);
    // Several column families share the folder.
    if exists(&schema)? && !exists(&link)? {
        fs.hard_link(&schema, &link).context("link", &link)?;
    }
    Ok(())
}

/// Gives the folders their final names.
fn publish(environment: &Environment, folders: &[PathBuf], name: &str) -> Result<(), FileError> {
    let fs = &*environment.fs;
    for folder in folders {
        let unfinished = files::unfinished_snapshot(folder, name);
        fs.rename(&unfinished, &files::snapshot(folder, name)).context("rename", &unfinished)?;
    }
    for folder in folders {
        environment.directory_sync.sync(fs, &files::snapshots_folder(folder))?;
    }
    Ok(())
}
