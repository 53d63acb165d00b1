//! Disks with the directory of a log.

use std::path::{Path, PathBuf};

use super::dir;
use crate::base::fs::FileSystem;
use crate::kit::disk::SimFileSystem;

/// A disk with the directory of the log.
pub(super) fn disk() -> SimFileSystem {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all(dir()).unwrap();
    fs.sync_everything();
    fs
}

impl SimFileSystem {
    /// The disk as another process finds it after this one was killed: nothing is lost.
    pub(super) fn after_kill(&self) -> Self {
        let fs = self.fork();
        fs.set_capacity(None);
        fs
    }

    /// The disk after a power loss: what was synced is there, and any part of the rest.
    pub(super) fn after_power_loss(&self, rng: &mut fastrand::Rng) -> Self {
        let copy = self.after_kill();
        copy.crash(rng);
        copy
    }

    pub(super) fn content(&self, path: &Path) -> Vec<u8> {
        self.read(path).unwrap()
    }

    /// Replaces the content of a file, creating it.
    pub(super) fn put(&self, path: &Path, content: &[u8]) {
        let file = self.open(path).or_else(|_| self.create(path)).unwrap();
        file.set_size(0).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.sync().unwrap();
        self.sync_dir(path.parent().unwrap()).unwrap();
    }

    /// The files in the directory of the log, sorted.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let entries = self.list(dir()).unwrap();
        entries.into_iter().map(|entry| dir().join(entry.name)).collect()
    }
}
