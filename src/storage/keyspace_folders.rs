//! The folders of keyspaces in a data directory, configured or not.

use super::files;
use crate::base::fs::{DirEntry, FileSystem};
use std::io;
use std::path::{Path, PathBuf};

/// A folder in a data directory.
#[derive(Debug)]
pub struct KeyspaceFolder {
    /// Name of the keyspace.
    pub keyspace: String,
    /// The folder.
    pub path: PathBuf,
    /// Its entries, in no order.
    pub entries: Vec<DirEntry>,
}

/// The folders in a data directory, in no order. Those that cannot be listed are left out.
pub fn list(fs: &dyn FileSystem, directory: &Path) -> io::Result<Vec<KeyspaceFolder>> {
    let mut found = Vec::new();
    for keyspace in fs.list(directory)?.into_iter().map(|entry| entry.name) {
        let path = files::keyspace_folder(directory, &keyspace);
        match fs.list(&path) {
            Ok(entries) => found.push(KeyspaceFolder { keyspace, path, entries }),
            // A folder may be a link, so that only this tells it from a file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {}
            // It may be one of the system's, such as `lost+found`.
            Err(error) => log::info!("cannot look into {}: {error}", path.display()),
        }
    }
    Ok(found)
}
