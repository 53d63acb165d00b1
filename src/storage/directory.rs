//! Directories that survive a power loss.

use super::error::{FileContext, FileError, is_out_of_handles};
use super::files::LOCK_FILE;
use crate::base::fs::{FileSystem, Lock};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Creates a directory with its parents, durably: each new level is synced in the level above it.
/// Files in a directory are lost with its name.
pub fn create(fs: &dyn FileSystem, directory: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for level in directory.ancestors().take_while(|level| !level.as_os_str().is_empty()) {
        if fs.try_exists(level)? {
            break;
        }
        missing.push(level);
    }
    fs.create_dir_all(directory)?;
    for level in missing {
        let parent = level.parent().filter(|parent| !parent.as_os_str().is_empty());
        fs.sync_dir(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// Makes names in directories durable, until that fails once.
///
/// After a failed sync the system may have dropped the names that waited for it, those of other
/// column families too, and a later sync reports a success that is none. A manifest that was
/// stored then could name an SSTable that the next power loss takes away. So nothing counts as
/// durable any more until the next start.
#[derive(Debug, Default)]
pub struct DirectorySync(OnceLock<FileError>);

impl DirectorySync {
    /// Makes the names in a directory durable; after the first failure always that failure. A
    /// directory that could not be opened was not synced at all, which may be tried again.
    pub fn sync(&self, fs: &dyn FileSystem, directory: &Path) -> Result<(), FileError> {
        if let Some(failure) = self.0.get() {
            return Err(failure.clone());
        }
        let Err(error) = fs.sync_dir(directory) else { return Ok(()) };
        if is_out_of_handles(&error) {
            return Err(FileError::new("open", directory, error));
        }
        // Even a full disk is no passing state here: dropped names stay lost.
        let failure = FileError::new("sync", directory, io::Error::other(error));
        Err(self.0.get_or_init(|| failure).clone())
    }
}

/// Keeps other servers out of a directory; `None` if one is there.
pub fn lock(fs: &dyn FileSystem, directory: &Path) -> Result<Option<Box<dyn Lock>>, FileError> {
    let path = directory.join(LOCK_FILE);
    match fs.lock(&path) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        lock => lock.map(Some).context("lock", &path),
    }
}

/// Whether a server has run in a directory.
pub fn has_served(fs: &dyn FileSystem, directory: &Path) -> Result<bool, FileError> {
    let path = directory.join(LOCK_FILE);
    fs.try_exists(&path).context("look for", &path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::{Fault, Operation, SimFileSystem};
    use rustix::io::Errno;

    #[test]
    fn nothing_is_durable_after_a_failed_sync() {
        let fs = SimFileSystem::new(1);
        for name in ["/a", "/b"] {
            create(&fs, Path::new(name)).unwrap();
        }
        let sync = DirectorySync::default();
        sync.sync(&fs, Path::new("/a")).unwrap();
        fs.inject(Fault::next(Operation::SyncDir, Errno::NOSPC));
        for name in ["/a", "/b", "/a"] {
            let failure = sync.sync(&fs, Path::new(name)).unwrap_err();
            assert_eq!(failure.path, Path::new("/a"));
            assert_ne!(failure.source.kind(), io::ErrorKind::StorageFull);
        }
    }
    #[test]
    fn a_directory_that_could_not_be_opened_is_tried_again() {
        let fs = SimFileSystem::new(1);
        let (path, sync) = (Path::new("/a"), DirectorySync::default());
        create(&fs, path).unwrap();
        fs.inject(Fault::next(Operation::SyncDir, Errno::MFILE));
        assert!(is_out_of_handles(&sync.sync(&fs, path).unwrap_err().source));
        sync.sync(&fs, path).unwrap();
    }
}
