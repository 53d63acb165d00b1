//! The simulated disk as several data directories see it that fill up in turns.

use crate::kit::disk::SimFileSystem;
use crate::storage_model::rig::LOG;
use alexandra::base::fs::{DirEntry, File, FileSystem, Lock};
use rustix::io::Errno;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says each time that another directory has most room, so that all of them get files. The order
/// is always the same.
#[derive(Debug)]
pub(crate) struct Uneven {
    disk: SimFileSystem,
    asked: AtomicU64,
    /// So many of the first data directories do not tell how much room they have.
    unmeasured: usize,
    /// How large the partition of the commit log is, in bytes, if it has one.
    log_bytes: Option<u64>,
}

impl Uneven {
    pub(crate) fn new(disk: SimFileSystem, unmeasured: usize, log_bytes: Option<u64>) -> Self {
        Self { disk, asked: AtomicU64::new(0), unmeasured, log_bytes }
    }
}

impl FileSystem for Uneven {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.create(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.open(path)
    }

    fn try_exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.try_exists(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        if (0..self.unmeasured).any(|i| path.starts_with(format!("/var/data{i}"))) {
            return Err(Errno::IO.into());
        }
        if let Some(bytes) = self.log_bytes.filter(|_| path == Path::new(LOG)) {
            let used: u64 = self.disk.list(path)?.iter().map(|entry| entry.size).sum();
            return Ok(bytes.saturating_sub(used));
        }
        // Out of three answers in a row no two are the same, and the greatest moves on.
        let less = self.asked.fetch_add(1, Ordering::Relaxed) % 3;
        Ok(self.disk.available_space(path)?.saturating_sub(less))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock(path)
    }
}
