//! The files of a server that does not run, as tools see and change them.
//!
//! [`StoppedServer`] holds the directories locked, so that no server starts meanwhile.
//! [`StoppedFamily`] is one column family in them. What it changes counts when its manifest is
//! replaced, in one step: whoever is killed before leaves everything as it was.

use super::directory;
use super::error::{FileContext, FileError, ReadError};
use super::files;
use super::foreign::{self, ForeignError};
use super::manifest::{Manifest, TableIdentity};
use super::node_id::NodeId;
use super::sstable::WrittenFile;
use super::sstable::scan::Frame;
use super::sstable::verify::read_properties_crc;
use super::store::{OpenError, check_node, find};
use crate::base::fs::{FileSystem, Lock};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod unnamed;

#[cfg(test)]
mod tests;

pub use unnamed::{Unnamed, UnnamedFile};

/// Where damaged files are kept that were replaced, in the folder of the keyspace.
pub const DAMAGED_FOLDER: &str = "damaged";

/// Why the files of a server cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum StoppedError {
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
    /// A directory of the configuration is not there.
    #[error(
        "there is no directory {path}: no server has run on this configuration",
        path = .0.display()
    )]
    NoDirectory(PathBuf),
    /// A directory holds data of the original.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// A directory or file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The files of a column family are not as they should be.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl StoppedError {
    /// Whether nobody can tell which SSTables count.
    pub fn is_of_manifest(&self) -> bool {
        let Self::Open(error) = self else { return false };
        matches!(
            error,
            OpenError::NoManifest { .. }
                | OpenError::DamagedManifest { .. }
                | OpenError::OtherManifest { .. }
                | OpenError::OtherNode { .. }
                | OpenError::OldManifest { .. }
        )
    }
}

impl From<ReadError> for StoppedError {
    fn from(error: ReadError) -> Self {
        Self::Open(error.into())
    }
}

/// The directories of a server that does not run, locked for as long as this lives.
#[derive(Debug)]
pub struct StoppedServer {
    fs: Arc<dyn FileSystem>,
    data_directories: Vec<PathBuf>,
    _locks: Vec<Box<dyn Lock>>,
}

impl StoppedServer {
    /// Locks the directories as a server does, which must be there.
    pub fn lock(
        fs: &Arc<dyn FileSystem>,
        data_directories: &[PathBuf],
        commit_log_directory: &Path,
    ) -> Result<Self, StoppedError> {
        foreign::check(&**fs, data_directories, commit_log_directory)?;
        for directory in data_directories {
            if !fs.try_exists(directory).context("look for", directory)? {
                return Err(StoppedError::NoDirectory(directory.clone()));
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
        data_directories.iter().try_for_each(|directory| check_no_restore(&**fs, directory))?;
        Ok(Self { fs: Arc::clone(fs), data_directories: data_directories.to_vec(), _locks: locks })
    }

    /// A column family, which may have no files yet.
    pub fn family(&self, keyspace: &str, family: &str) -> Result<StoppedFamily, StoppedError> {
        let directories = self.data_directories.iter();
        let folders = directories.map(|d| files::keyspace_folder(d, keyspace)).collect();
        let stopped = StoppedFamily::open(&self.fs, folders, (keyspace, family))?;
        let node = NodeId::find(&*self.fs, &self.data_directories, 0)?;
        let path = files::manifest(&stopped.folders[0], family);
        check_node(&node, &stopped.manifest, &path)?;
        Ok(stopped)
    }
}

/// Locks the data directory in which this folder, given by its absolute path, is that of a
/// keyspace, if a server has ever run there: what is in a snapshot or anywhere else never changes.
pub fn lock_around(
    fs: &dyn FileSystem,
    folder: &Path,
) -> Result<Option<Box<dyn Lock>>, StoppedError> {
    let Some(directory) = folder.parent() else { return Ok(None) };
    let path = directory.join(files::LOCK_FILE);
    let has_run = fs.try_exists(&path).context("look for", &path)?;
    has_run.then(|| lock(fs, directory)).transpose()
}

/// What a restore has left half done does not belong together, and is moved aside when the restore
/// is repeated, with what was added.
fn check_no_restore(fs: &dyn FileSystem, directory: &Path) -> Result<(), StoppedError> {
    let mark = directory.join(files::RESTORING_FILE);
    if fs.exists(&mark) { Err(StoppedError::Restoring(mark)) } else { Ok(()) }
}

fn lock(fs: &dyn FileSystem, directory: &Path) -> Result<Box<dyn Lock>, StoppedError> {
    let path = directory.join(files::LOCK_FILE);
    fs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoppedError::Running(directory.to_owned()),
        _ => FileError::new("lock", &path, error).into(),
    })
}

/// One column family of a server that does not run.
#[derive(Debug)]
pub struct StoppedFamily {
    fs: Arc<dyn FileSystem>,
    name: String,
    /// The folders of its keyspace, that of the manifest first.
    folders: Vec<PathBuf>,
    manifest: Manifest,
    /// The files that are there, by generation, with their sizes.
    files: BTreeMap<u64, (PathBuf, u64)>,
    next_generation: u64,
}

/// An SSTable that the manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// It is there.
    Present {
        /// Its number.
        generation: u64,
        /// The file.
        file: PathBuf,
    },
    /// It is there with another size.
    WrongSize {
        /// Its number.
        generation: u64,
        /// The file.
        file: PathBuf,
        /// Its size.
        found: u64,
        /// What the manifest says.
        expected: u64,
    },
    /// It is another file: an older one, or one of another column family.
    Other {
        /// Its number.
        generation: u64,
        /// The file.
        file: PathBuf,
    },
    /// It is not there.
    Missing {
        /// Its number.
        generation: u64,
        /// The file, where it may have been.
        file: PathBuf,
    },
}

impl StoppedFamily {
    fn open(
        fs: &Arc<dyn FileSystem>,
        mut folders: Vec<PathBuf>,
        (keyspace, name): (&str, &str),
    ) -> Result<Self, StoppedError> {
        let present: Vec<PathBuf> = folders.iter().filter(|f| fs.exists(f)).cloned().collect();
        let found = find(&**fs, &present, name)?;
        if let Some((_, copies)) = found.copies.first_key_value() {
            let files = copies.iter().map(|(path, _)| path.clone()).collect();
            return Err(OpenError::TwoFiles { files }.into());
        }
        if let Some(folder) = found.manifest.as_deref().and_then(Path::parent) {
            let at = folders.iter().position(|f| f == folder).unwrap_or(0);
            folders.swap(0, at);
        }
        let path = files::manifest(&folders[0], name);
        let manifest = found.load_manifest(&**fs, &path, &format!("{keyspace}.{name}"))?;
        let seen = found.tables.keys().chain(found.unfinished.keys()).chain(&manifest.obsolete);
        let newest = seen.chain(manifest.sstables.keys()).max().copied().unwrap_or(0);
        let mut files = found.tables;
        for (generation, unfinished) in found.unfinished {
            // It counts, only its last step was cut off.
            if manifest.sstables.contains_key(&generation) {
                files.entry(generation).or_insert(unfinished);
            }
        }
        let next_generation = newest + 1;
        Ok(Self {
            fs: Arc::clone(fs),
            name: name.to_owned(),
            folders,
            manifest,
            files,
            next_generation,
        })
    }

    /// The SSTables that count, by generation.
    pub fn named(&self) -> Vec<Named> {
        let named = self.manifest.sstables.iter().map(|(&generation, &expected)| {
            match self.files.get(&generation) {
                None => {
                    let file = files::sstable(&self.folders[0], &self.name, generation);
                    Named::Missing { generation, file }
                }
                Some((file, found)) if *found != expected.bytes => {
                    let (file, found, expected) = (file.clone(), *found, expected.bytes);
                    Named::WrongSize { generation, file, found, expected }
                }
                Some((file, _)) if self.is_other(file, expected) => {
                    Named::Other { generation, file: file.clone() }
                }
                Some((file, _)) => Named::Present { generation, file: file.clone() },
            }
        });
        named.collect()
    }

    /// Whether a file is another one than the manifest means. What cannot be read may be it.
    fn is_other(&self, path: &Path, expected: TableIdentity) -> bool {
        let crc = properties_crc(&*self.fs, path);
        crc.is_some_and(|crc| crc != expected.properties_crc)
    }

    /// The folders of its keyspace in all data directories; files may be written to any.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// A name for a new SSTable until it counts, in the roomiest folder. The folder is created.
    pub fn new_path(&mut self) -> Result<PathBuf, FileError> {
        let space = |folder: &PathBuf| {
            let existing = folder.ancestors().find(|level| self.fs.exists(level));
            existing.and_then(|level| self.fs.available_space(level).ok()).unwrap_or(0)
        };
        // Of equal ones the first.
        let folder = self.folders.iter().rev().max_by_key(|folder| space(folder));
        let folder = folder.expect("a server has a data directory").clone();
        directory::create(&*self.fs, &folder).context("create", &folder)?;
        let path = files::sstable(&folder, &self.name, self.next_generation);
        self.next_generation += 1;
        Ok(files::temporary(&path))
    }

    /// Makes new SSTables, written at paths of [`StoppedFamily::new_path`], count in place of these
    /// generations, in one step. The replaced files are kept in the folder `damaged`. Returns the
    /// names of the new files and where the replaced ones are now.
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
                kept.push(link_aside(&*fs, path)?);
                next.obsolete.insert(*generation);
            }
        }
        for file in new {
            next.sstables.insert(generation_of(&file.path), file.identity());
        }
        let folder = &self.folders[0];
        directory::create(&*fs, folder).context("create", folder)?;
        let folders = new.iter().filter_map(|file| file.path.parent());
        folders.into_iter().try_for_each(|folder| fs.sync_dir(folder).context("sync", folder))?;
        next.store(&*fs, &files::manifest(folder, &self.name))?;
        fs.sync_dir(folder).context("sync", folder)?;
        self.manifest = next;
        // From here on the new files count. What fails below, a start of the server makes up for.
        let mut names = Vec::new();
        for file in new {
            let name = file.path.with_extension("");
            fs.rename(&file.path, &name).context("rename", &file.path)?;
            self.files.insert(generation_of(&file.path), (name.clone(), file.bytes));
            names.push(name);
        }
        for generation in replaced {
            if let Some((path, _)) = self.files.remove(generation) {
                fs.remove_file(&path).context("remove", &path)?;
            }
        }
        Ok((names, kept))
    }
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

/// By which a manifest knows a file, if that can be read.
fn properties_crc(fs: &dyn FileSystem, path: &Path) -> Option<u32> {
    let file = fs.open(path).ok()?;
    let frame = Frame::read(&*file).ok()?;
    read_properties_crc(&*file, &frame)
}

/// The number in the name of a file that [`StoppedFamily::new_path`] named.
fn generation_of(temporary: &Path) -> u64 {
    let name = temporary.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match files::FileName::parse(name) {
        files::FileName::UnfinishedSsTable(_, generation) => generation,
        _ => unreachable!("the path was given by new_path"),
    }
}
