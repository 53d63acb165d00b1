//! Files of a server that is stopped, as tools see and change them.
//!
//! [`OfflineServer`] holds the directories locked, so that no server starts meanwhile. A snapshot
//! is read like them, and by any number of tools, whether a server runs or not.
//! [`OfflineFamily`] is one column family in them. A change takes effect when its manifest is
//! replaced, in one step: a tool that is killed before leaves everything as it was.

use super::directory;
use super::error::{FileContext, FileError, ReadError};
use super::family::{Found, OpenError, check_node, find};
use super::files::{self, OriginalPart};
use super::legacy::takeover::{self, TakeoverError};
use super::manifest::{Manifest, TableIdentity};
use super::snapshot::SnapshotName;
use super::sstable::WrittenFile;
use super::sstable::scan::Frame;
use super::system::node_id::NodeId;
use crate::base::fs::{FileSystem, Lock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Folder, beside the files of a keyspace, of files that were damaged and are replaced.
pub const DAMAGED_FOLDER: &str = "damaged";

/// Reason why tools cannot work on the files of a server.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// A server runs on them.
    #[error(
        "{path} is in use by a running server: stop it first, or take a snapshot and name the \
         files in its folder",
        path = .0.display()
    )]
    Running(PathBuf),
    /// A restore was begun and is not complete.
    #[error(
        "{path} says that a restore was not finished: repeat the command that is written there \
         first",
        path = .0.display()
    )]
    Restoring(PathBuf),
    /// A directory of the configuration does not exist.
    #[error(
        "there is no directory {path}: no server has run on this configuration",
        path = .0.display()
    )]
    NoDirectory(PathBuf),
    /// A directory holds data of the original.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    /// A directory or file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The files of a column family are not as they should be.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl OfflineError {
    /// Whether the manifest is of no use, so that nothing tells the live SSTables.
    pub fn is_of_manifest(&self) -> bool {
        matches!(
            self,
            Self::Open(
                OpenError::NoManifest { .. }
                    | OpenError::DamagedManifest { .. }
                    | OpenError::OtherManifest { .. }
                    | OpenError::OtherNode { .. }
                    | OpenError::OldManifest { .. }
            )
        )
    }
}

impl From<ReadError> for OfflineError {
    fn from(error: ReadError) -> Self {
        Self::Open(error.into())
    }
}

/// The directories of a server that is stopped, locked for as long as this lives; or a snapshot in
/// them.
#[derive(Debug)]
pub struct OfflineServer {
    fs: Arc<dyn FileSystem>,
    data_directories: Vec<PathBuf>,
    snapshot: Option<SnapshotName>,
    _locks: Vec<Box<dyn Lock>>,
}

impl OfflineServer {
    /// Locks the directories as a server does. They must exist.
    pub fn lock(
        fs: &Arc<dyn FileSystem>,
        data_directories: &[PathBuf],
        commit_log_directory: &Path,
    ) -> Result<Self, OfflineError> {
        takeover::check_taken_over(&**fs, data_directories, commit_log_directory)?;
        for directory in data_directories {
            if !fs.try_exists(directory).context("look for", directory)? {
                return Err(OfflineError::NoDirectory(directory.clone()));
            }
        }
        let log = Some(commit_log_directory).filter(|directory| fs.exists(directory));
        let mut directories: Vec<&Path> =
            data_directories.iter().map(PathBuf::as_path).chain(log).collect();
        // The commit log may share a directory with data.
        directories.sort_unstable();
        directories.dedup();
        let locks = directories.into_iter().map(|directory| lock(&**fs, directory));
        let locks = locks.collect::<Result<_, _>>()?;
        // What a restore has left half done does not belong together, and is moved aside with all
        // that was added when the restore is repeated.
        for mark in data_directories.iter().map(|it| it.join(files::RESTORING_FILE)) {
            if fs.exists(&mark) {
                return Err(OfflineError::Restoring(mark));
            }
        }
        let (fs, data_directories) = (Arc::clone(fs), data_directories.to_vec());
        Ok(Self { fs, data_directories, snapshot: None, _locks: locks })
    }

    /// A snapshot in these directories, to be read only. It may be cleared meanwhile.
    pub fn of_snapshot(
        fs: &Arc<dyn FileSystem>,
        data_directories: &[PathBuf],
        snapshot: SnapshotName,
    ) -> Self {
        let (fs, data_directories) = (Arc::clone(fs), data_directories.to_vec());
        Self { fs, data_directories, snapshot: Some(snapshot), _locks: Vec::new() }
    }

    /// A column family, which may have no files yet.
    pub fn family(&self, keyspace: &str, name: &str) -> Result<OfflineFamily, OfflineError> {
        let (mut folders, found) = self.find(keyspace, name)?;
        let full_name = format!("{keyspace}.{name}");
        let manifest = found.manifest(&*self.fs, &mut folders, name, &full_name)?;
        let path = files::manifest(&folders[0], name);
        check_node(&NodeId::find(&*self.fs, &self.data_directories, 0)?, &manifest, &path)?;
        let next_generation = found.newest(&manifest) + 1;
        let mut files = found.tables;
        for (generation, paths) in found.originals {
            let [path] = &paths[..] else {
                return Err(OpenError::TwoFiles { files: paths }.into());
            };
            let file = self.fs.open(path).context("open", path)?;
            files.insert(generation, (path.clone(), file.size().context("open", path)?));
        }
        for (generation, unfinished) in found.unfinished {
            // It is live; only its last step was cut off.
            if manifest.sstables.contains_key(&generation) {
                files.entry(generation).or_insert(unfinished);
            }
        }
        let (fs, name) = (Arc::clone(&self.fs), name.to_owned());
        Ok(OfflineFamily { fs, name, folders, manifest, files, next_generation })
    }

    /// The folders of a keyspace, and the files of a column family in them.
    fn find(&self, keyspace: &str, family: &str) -> Result<(Vec<PathBuf>, Found), OfflineError> {
        let folders = self.data_directories.iter().map(|directory| {
            let folder = files::keyspace_folder(directory, keyspace);
            let snapshot = self.snapshot.as_ref();
            snapshot.map_or(folder.clone(), |name| files::snapshot(&folder, &name.to_string()))
        });
        let folders: Vec<_> = folders.collect();
        let mut present = Vec::new();
        for folder in &folders {
            if self.fs.try_exists(folder).context("look for", folder)? {
                present.push(folder.clone());
            }
        }
        let found = find(&*self.fs, &present, family)?;
        match found.copies.first_key_value() {
            None => Ok((folders, found)),
            Some((_, copies)) => {
                let files = copies.iter().map(|(path, _)| path.clone()).collect();
                Err(OpenError::TwoFiles { files }.into())
            }
        }
    }
}

/// Locks the data directory of which this folder, given by its absolute path, is a keyspace, if a
/// server has ever run there. Files in a snapshot or anywhere else never change.
pub fn lock_around(
    fs: &dyn FileSystem,
    folder: &Path,
) -> Result<Option<Box<dyn Lock>>, OfflineError> {
    let Some(directory) = folder.parent() else { return Ok(None) };
    directory::has_served(fs, directory)?.then(|| lock(fs, directory)).transpose()
}

fn lock(fs: &dyn FileSystem, directory: &Path) -> Result<Box<dyn Lock>, OfflineError> {
    let lock = directory::lock(fs, directory)?;
    lock.ok_or_else(|| OfflineError::Running(directory.to_owned()))
}

/// One column family of a server that is stopped.
#[derive(Debug)]
pub struct OfflineFamily {
    fs: Arc<dyn FileSystem>,
    name: String,
    /// The folders of its keyspace, that of the manifest first.
    folders: Vec<PathBuf>,
    manifest: Manifest,
    /// The files that exist, by generation, with their sizes.
    files: BTreeMap<u64, (PathBuf, u64)>,
    next_generation: u64,
}

/// An SSTable that the manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflineTable {
    /// Its number.
    pub generation: u64,
    /// The file. A missing one may have been elsewhere.
    pub path: PathBuf,
    /// Whether it is the file that the manifest means.
    pub state: TableState,
    /// Identity in the manifest.
    pub identity: TableIdentity,
}

/// Whether a file is the one that the manifest means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableState {
    /// It exists.
    Present,
    /// It exists with another size.
    WrongSize {
        /// Its size.
        found: u64,
        /// The size in the manifest.
        expected: u64,
    },
    /// It is another file: an older one, or one of another column family. Of SSTables of the
    /// original only opening shows that.
    Other,
    /// It does not exist.
    Missing,
}

impl OfflineFamily {
    /// The live SSTables, by generation.
    pub fn tables(&self) -> Vec<OfflineTable> {
        let tables = self.manifest.sstables.iter().map(|(&generation, expected)| {
            let Some((path, found)) = self.files.get(&generation) else {
                let folder = &self.folders[0];
                let path = if expected.is_legacy {
                    files::original(folder, &self.name, generation, OriginalPart::Data)
                } else {
                    files::sstable(folder, &self.name, generation)
                };
                let (state, identity) = (TableState::Missing, *expected);
                return OfflineTable { generation, path, state, identity };
            };
            let state = if *found != expected.bytes {
                TableState::WrongSize { found: *found, expected: expected.bytes }
            } else if !expected.is_legacy
                && properties_crc(&*self.fs, path).is_some_and(|it| it != expected.properties_crc)
            {
                TableState::Other
            } else {
                // A file that cannot be read may be the one that is meant.
                TableState::Present
            };
            OfflineTable { generation, path: path.clone(), state, identity: *expected }
        });
        tables.collect()
    }

    /// The temporary name of a new SSTable, in the roomiest folder. The folder is created.
    pub fn new_path(&mut self) -> Result<PathBuf, FileError> {
        let space = |folder: &PathBuf| {
            let existing = folder.ancestors().find(|level| self.fs.exists(level));
            existing.and_then(|level| self.fs.available_space(level).ok()).unwrap_or(0)
        };
        // Of equal ones the first.
        let folder = self.folders.iter().rev().max_by_key(|folder| space(folder));
        let folder = folder.expect("a server has a data directory");
        directory::create(&*self.fs, folder).context("create", folder)?;
        let path = files::sstable(folder, &self.name, self.next_generation);
        self.next_generation += 1;
        Ok(files::temporary(&path))
    }

    /// Puts new SSTables, written at paths of [`OfflineFamily::new_path`], in place of these
    /// generations, in one step. The replaced files are kept in the folder `damaged`. Returns the
    /// names of the new files and the present places of the replaced ones.
    pub fn replace(
        &mut self,
        new: &[WrittenFile],
        replaced: &[u64],
    ) -> Result<(Vec<PathBuf>, Vec<PathBuf>), FileError> {
        let fs = Arc::clone(&self.fs);
        let mut next = self.manifest.successor();
        let mut kept = Vec::new();
        for generation in replaced {
            next.sstables.remove(generation);
            if let Some((path, _)) = self.files.get(generation) {
                for part in files::parts(path).iter().filter(|part| fs.exists(part)) {
                    kept.push(link_aside(&*fs, part)?);
                }
                next.obsolete.insert(*generation);
            }
        }
        for file in new {
            next.sstables.insert(file.generation(), file.identity());
        }
        let folder = &self.folders[0];
        directory::create(&*fs, folder).context("create", folder)?;
        let folders = new.iter().filter_map(|file| file.path.parent());
        folders.into_iter().try_for_each(|folder| fs.sync_dir(folder).context("sync", folder))?;
        next.store(&*fs, &files::manifest(folder, &self.name))?;
        fs.sync_dir(folder).context("sync", folder)?;
        self.manifest = next;
        // From here on the new files are live. A start of the server completes what fails below.
        let mut names = Vec::new();
        for file in new {
            let name = file.path.with_extension("");
            fs.rename(&file.path, &name).context("rename", &file.path)?;
            self.files.insert(file.generation(), (name.clone(), file.bytes));
            names.push(name);
        }
        for generation in replaced {
            if let Some((path, _)) = self.files.remove(generation) {
                for part in files::parts(&path).iter().filter(|part| fs.exists(part)) {
                    fs.remove_file(part).context("remove", part)?;
                }
            }
        }
        Ok((names, kept))
    }
}

/// Moves a file to a free name in the folder `damaged` beside it.
pub(super) fn move_aside(fs: &dyn FileSystem, path: &Path) -> Result<(), FileError> {
    link_aside(fs, path)?;
    fs.remove_file(path).context("remove", path)
}

/// Links a file, durably, to a free name in the folder `damaged` beside it. Returns that name.
fn link_aside(fs: &dyn FileSystem, path: &Path) -> Result<PathBuf, FileError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let aside = folder.join(DAMAGED_FOLDER);
    directory::create(fs, &aside).context("create", &aside)?;
    let mut target = aside.join(name);
    // An older file of the same name is worth as much.
    let mut copies = 0;
    while fs.try_exists(&target).context("look for", &target)? {
        copies += 1;
        let mut name = name.to_owned();
        name.push(format!(".{copies}"));
        target = aside.join(name);
    }
    fs.hard_link(path, &target).context("link", &target)?;
    fs.sync_dir(&aside).context("sync", &aside)?;
    Ok(target)
}

/// The checksum by which a manifest knows a file, if it can be read.
fn properties_crc(fs: &dyn FileSystem, path: &Path) -> Option<u32> {
    let file = fs.open(path).ok()?;
    Frame::read(&*file).ok()?.properties_crc(&*file)
}

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
            let identity = TableIdentity { bytes: file.bytes, properties_crc, is_legacy: false };
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
