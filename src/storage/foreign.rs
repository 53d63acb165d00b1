//! Directories of Apache Cassandra, which this program leaves exactly as they are.
//!
//! They are looked at before anything is locked or created: 0.4 and 0.5 read every file of their
//! commit log directory as a segment, a lock file as well, and do not start with it.

use super::commitlog;
use super::error::{FileContext, FileError};
use super::files::{OriginalPart, keyspace_folders};
use crate::base::fs::FileSystem;
use std::path::{Path, PathBuf};

/// Why directories are refused. Nothing has changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ForeignError {
    /// A data directory holds an SSTable of the original, of a configured column family or not.
    #[error(
        "{path} is an SSTable of Apache Cassandra, which this version cannot read: name empty \
         directories in DataFileDirectories",
        path = .0.display()
    )]
    Data(PathBuf),
    /// A commit log directory holds a segment of the original.
    #[error(
        "{path} is a commit log of Apache Cassandra, which this version cannot read: name an empty \
         directory in CommitLogDirectory",
        path = .0.display()
    )]
    Log(PathBuf),
    /// The directory of the archive holds a segment of the original.
    #[error(
        "{path} is a commit log of Apache Cassandra, which this version cannot read: name an empty \
         directory in CommitLogArchiveDirectory, or the archive of a server of this program",
        path = .0.display()
    )]
    Archive(PathBuf),
    /// A directory cannot be listed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Refuses directories of which one holds data of the original. Those that do not exist are empty.
pub fn check(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    log_directory: &Path,
) -> Result<(), ForeignError> {
    find_segment(fs, log_directory)?.map_or(Ok(()), |it| Err(ForeignError::Log(it)))?;
    dirs.iter().try_for_each(|directory| check_data(fs, directory))
}

/// Refuses an archive of the commit log that holds segments of the original.
pub fn check_archive(fs: &dyn FileSystem, archive: &Path) -> Result<(), ForeignError> {
    find_segment(fs, archive)?.map_or(Ok(()), |it| Err(ForeignError::Archive(it)))
}

fn find_segment(fs: &dyn FileSystem, directory: &Path) -> Result<Option<PathBuf>, FileError> {
    commitlog::segment_of_the_original(fs, directory).context("list", directory)
}

fn check_data(fs: &dyn FileSystem, directory: &Path) -> Result<(), ForeignError> {
    if !fs.try_exists(directory).context("look for", directory)? {
        return Ok(());
    }
    for folder in keyspace_folders(fs, directory).context("list", directory)? {
        let names = folder.entries.iter().map(|entry| &entry.name);
        if let Some(first) = names.filter(|name| OriginalPart::parse(name).is_some()).min() {
            return Err(ForeignError::Data(folder.path.join(first)));
        }
    }
    Ok(())
}
