//! SSTables of a column family whose manifest is damaged or lost.

use super::{OfflineError, OfflineServer, link_aside, properties_crc};
use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files;
use crate::storage::manifest::{Manifest, TableIdentity};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The SSTables of a column family without a manifest that tells which of them are live.
#[derive(Debug)]
pub struct Orphans {
    fs: Arc<dyn FileSystem>,
    /// Keyspace and column family, as messages name them.
    family: String,
    /// The place of the manifest.
    manifest: PathBuf,
    files: Vec<Orphan>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// Its number.
    pub generation: u64,
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether it has its final name. One that has not may be unfinished.
    pub is_finished: bool,
}

impl OfflineServer {
    /// The SSTables of a column family whose manifest is of no use.
    pub fn orphans(&self, keyspace: &str, family: &str) -> Result<Orphans, OfflineError> {
        let (folders, found) = self.find(keyspace, family)?;
        let file = |is_finished: bool| {
            move |(generation, (path, bytes))| Orphan { generation, path, bytes, is_finished }
        };
        let is_new = |(generation, _): &(u64, _)| !found.tables.contains_key(generation);
        let unfinished: Vec<_> = found.unfinished.into_iter().filter(is_new).collect();
        let mut files: Vec<_> = found.tables.into_iter().map(file(true)).collect();
        files.extend(unfinished.into_iter().map(file(false)));
        let manifest = found.manifest.unwrap_or_else(|| {
            let folder = folders.iter().find(|folder| self.fs.exists(folder));
            files::manifest(folder.unwrap_or(&folders[0]), family)
        });
        let family = format!("{keyspace}.{family}");
        Ok(Orphans { fs: Arc::clone(&self.fs), family, manifest, files })
    }
}

impl Orphans {
    /// All of them, those without their final name last.
    pub fn files(&self) -> &[Orphan] {
        &self.files
    }

    /// Makes these SSTables and no others live, by a new manifest. The present one and the other
    /// complete files are kept in the folder `damaged`; returns their places. The new manifest does
    /// not know what the commit log need not replay.
    pub fn adopt(self, live: &[Orphan]) -> Result<Vec<PathBuf>, FileError> {
        let fs = &*self.fs;
        let present = Manifest::load(fs, &self.manifest).ok().flatten().unwrap_or_default();
        let mut manifest = Manifest::new(&self.family);
        manifest.sequence = present.sequence + 1;
        for file in live {
            // One whose properties cannot be read is replaced before a server reads it.
            let properties_crc = properties_crc(fs, &file.path).unwrap_or(0);
            let identity = TableIdentity { bytes: file.bytes, properties_crc };
            manifest.sstables.insert(file.generation, identity);
        }
        let mut kept = Vec::new();
        if fs.try_exists(&self.manifest).context("look for", &self.manifest)? {
            kept.push(link_aside(fs, &self.manifest)?);
        }
        for file in self.files.iter().filter(|file| file.is_finished && !live.contains(file)) {
            kept.push(link_aside(fs, &file.path)?);
            fs.remove_file(&file.path).context("remove", &file.path)?;
        }
        manifest.store(fs, &self.manifest)?;
        let folder = self.manifest.parent().unwrap_or(Path::new("."));
        fs.sync_dir(folder).context("sync", folder)?;
        Ok(kept)
    }
}
