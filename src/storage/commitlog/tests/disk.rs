//! The simulated disk with a hand on it, which counts, holds and refuses writes and syncs while it
//! is told to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::io::Errno;

use super::dir;
use crate::base::fs::{DirEntry, File, FileSystem, Lock};
use crate::kit::disk::{Fault, Operation, SimFileSystem};

/// The disk, with the directory of the log. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    fs: SimFileSystem,
    hand: Arc<Hand>,
}

#[derive(Debug, Default)]
struct Hand {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    counts: Counts,
}

/// What goes wrong from now on.
#[derive(Debug, Default, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "faults are independent of each other")]
pub(super) struct Faults {
    /// No space for anything new.
    pub(super) full: bool,
    /// Writes fail.
    pub(super) write: bool,
    /// Syncs fail.
    pub(super) sync: bool,
    /// Writes and syncs wait while this is set.
    pub(super) hold: bool,
}

/// What has been done so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Writes, finished or held.
    pub(super) writes: usize,
    /// Syncs of files, finished or held.
    pub(super) syncs: usize,
}

impl Default for Disk {
    fn default() -> Self {
        let fs = SimFileSystem::new(1);
        fs.create_dir_all(dir()).unwrap();
        fs.sync_everything();
        Self::of(fs)
    }
}

impl Disk {
    fn of(fs: SimFileSystem) -> Self {
        Self { fs, hand: Arc::default() }
    }

    /// Changes the faults.
    pub(super) fn set(&self, change: impl FnOnce(&mut Faults)) {
        let mut state = self.state();
        change(&mut state.faults);
        self.fs.set_capacity(state.faults.full.then_some(0));
        drop(state);
        self.hand.moved.notify_all();
    }

    /// What has been done so far.
    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// The disk as another process finds it after this one was killed: nothing is lost.
    pub(super) fn after_kill(&self) -> Self {
        let fs = self.fs.fork();
        fs.set_capacity(None);
        Self::of(fs)
    }

    /// The disk after a power loss: what was synced is there, and any part of the rest.
    pub(super) fn after_power_loss(&self, rng: &mut fastrand::Rng) -> Self {
        let copy = self.after_kill();
        copy.fs.crash(rng);
        copy
    }

    /// Content of a file.
    pub(super) fn content(&self, path: &Path) -> Vec<u8> {
        self.read(path).unwrap()
    }

    /// Replaces the content of a file, creating it.
    pub(super) fn put(&self, path: &Path, content: &[u8]) {
        let file = self.fs.open(path).or_else(|_| self.fs.create(path)).unwrap();
        file.set_size(0).unwrap();
        file.write_all_at(content, 0).unwrap();
        file.sync().unwrap();
        self.fs.sync_dir(path.parent().unwrap()).unwrap();
    }

    /// The files in the directory of the log, sorted.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let entries = self.fs.list(dir()).unwrap();
        entries.into_iter().map(|entry| dir().join(entry.name)).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.hand.state.lock().unwrap()
    }

    /// Counts, waits while the hand holds, and lets the operation fail if it is to.
    fn pass(
        &self,
        operation: Operation,
        count: impl FnOnce(&mut Counts),
        is_refused: impl FnOnce(&Faults) -> bool,
    ) {
        let mut state = self.state();
        count(&mut state.counts);
        let state = self.hand.moved.wait_while(state, |state| state.faults.hold).unwrap();
        if is_refused(&state.faults) {
            self.fs.inject(Fault::next(operation, Errno::IO));
        }
    }
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    file: Arc<dyn File>,
}

impl File for DiskFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.disk.pass(Operation::Write, |counts| counts.writes += 1, |faults| faults.write);
        self.file.write_all_at(buf, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.pass(Operation::Sync, |counts| counts.syncs += 1, |faults| faults.sync);
        self.file.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        self.file.allocate(size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.file.set_size(size)
    }
}

impl FileSystem for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.fs.create(path)?;
        Ok(Arc::new(DiskFile { disk: self.clone(), file }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.fs.open(path)?;
        Ok(Arc::new(DiskFile { disk: self.clone(), file }))
    }

    fn try_exists(&self, path: &Path) -> io::Result<bool> {
        self.fs.try_exists(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.fs.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.fs.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_file(path)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.fs.hard_link(from, to)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.fs.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.fs.sync_dir(path)
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        self.fs.available_space(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.fs.lock(path)
    }
}
