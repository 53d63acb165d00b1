//! SSTables of a column family whose manifest is damaged or lost.

use super::{StoppedError, StoppedServer, link_aside, properties_crc};
use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files;
use crate::storage::manifest::{Manifest, TableIdentity};
use crate::storage::store::{OpenError, find};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The SSTables of a column family, of which nobody can tell which count.
#[derive(Debug)]
pub struct Unnamed {
    fs: Arc<dyn FileSystem>,
    /// Keyspace and column family, as messages name them.
    family: String,
    /// Where the manifest belongs.
    manifest: PathBuf,
    files: Vec<UnnamedFile>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnnamedFile {
    /// Its number.
    pub generation: u64,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether it has its final name. One that has not may be unfinished.
    pub is_finished: bool,
}

impl StoppedServer {
    /// The SSTables of a column family whose manifest is not to be used.
    pub fn unnamed(&self, keyspace: &str, family: &str) -> Result<Unnamed, StoppedError> {
        let mut folders = Vec::new();
        for directory in &self.data_directories {
            let folder = files::keyspace_folder(directory, keyspace);
            if self.fs.try_exists(&folder).context("look for", &folder)? {
                folders.push(folder);
            }
        }
        let found = find(&*self.fs, &folders, family)?;
        if let Some((_, copies)) = found.copies.into_iter().next() {
            let files = copies.into_iter().map(|(path, _)| path).collect();
            return Err(OpenError::TwoFiles { files }.into());
        }
        let of_first = || folders.first().map(|folder| files::manifest(folder, family));
        let manifest = found.manifest.or_else(of_first);
        let manifest = manifest.expect("without any folder there is no manifest to be missed");
        let file = |is_finished: bool| {
            move |(generation, (path, bytes))| UnnamedFile { generation, path, bytes, is_finished }
        };
        let unfinished = found.unfinished.into_iter().map(file(false));
        let mut files: Vec<_> = found.tables.into_iter().map(file(true)).collect();
        for unfinished in unfinished {
            if files.iter().all(|finished| finished.generation != unfinished.generation) {
                files.push(unfinished);
            }
        }
        let family = format!("{keyspace}.{family}");
        Ok(Unnamed { fs: Arc::clone(&self.fs), family, manifest, files })
    }
}

impl Unnamed {
    /// All of them, those without their final name last.
    pub fn files(&self) -> &[UnnamedFile] {
        &self.files
    }

    /// Lets these count and no others, by a new manifest. The present one and the other complete
    /// files are kept in the folder `damaged`; returns where. Nothing is known any more of what the
    /// commit log need not replay.
    pub fn name(self, counting: &[UnnamedFile]) -> Result<Vec<PathBuf>, FileError> {
        let fs = &*self.fs;
        let present = Manifest::load(fs, &self.manifest).ok().flatten().unwrap_or_default();
        let mut manifest = Manifest::new(&self.family);
        manifest.sequence = present.sequence + 1;
        for file in counting {
            // One whose properties cannot be read is made anew before a server reads it.
            let properties_crc = properties_crc(fs, &file.path).unwrap_or(0);
            let identity = TableIdentity { bytes: file.bytes, properties_crc };
            manifest.sstables.insert(file.generation, identity);
        }
        let mut kept = Vec::new();
        if fs.try_exists(&self.manifest).context("look for", &self.manifest)? {
            kept.push(link_aside(fs, &self.manifest)?);
        }
        let others = self.files.iter().filter(|file| file.is_finished && !counting.contains(file));
        for file in others {
            kept.push(link_aside(fs, &file.path)?);
            fs.remove_file(&file.path).context("remove", &file.path)?;
        }
        manifest.store(fs, &self.manifest)?;
        let folder = self.manifest.parent().unwrap_or(Path::new("."));
        fs.sync_dir(folder).context("sync", folder)?;
        Ok(kept)
    }
}
