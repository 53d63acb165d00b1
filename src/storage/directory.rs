//! Directories that survive a power loss.

use super::error::{FileError, is_out_of_handles};
use crate::base::fs::FileSystem;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

/// Creates a directory with its parents, durably: each level that was missing is synced in the
/// level above it. What is written into a directory whose own name is lost is lost with it.
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
        let failure = FileError::new("sync", directory, lasting(error));
        Err(self.0.get_or_init(|| failure).clone())
    }
}

/// Even a full disk is no passing state here: what was dropped stays so.
fn lasting(error: io::Error) -> io::Error {
    io::Error::other(error)
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
