//! The fault-injecting twin of the operating system's files: a disk in memory that knows what was
//! synced, and that fails, fills up, loses power and crashes when a test tells it to.
//!
//! What the model promises, and what it takes away:
//!
//! - **Content.** A write, a change of size and an allocation are visible at once, and durable
//!   after a successful `sync` of that file. A crash keeps any subset of the changes that were not
//!   synced, and of one of them only a part: the first bytes, or some of its sectors. A write that
//!   is lost may still have made the file longer; the gap reads as zeroes. What survives is applied
//!   in the order in which it was written, because an older page never replaces a newer one.
//! - **Entries.** Creating, linking, renaming and removing an entry is visible at once, and durable
//!   after a successful `sync_dir` of the directory that holds it. Syncing a file does not save its
//!   name, nor does saving one of its names save the others. A
//!   crash keeps, for each directory on its own, the first few of the changes that were not synced
//!   and loses the rest. A rename is atomic also between two directories: a sync of either of them
//!   makes it durable, together with everything that came before it there. What lies below a
//!   directory whose own entry is lost is lost as well.
//! - **A failed sync** decides at once what reaches the disk and what never will: the rest stays
//!   visible until the crash, and a second sync succeeds without saving it. That is what Linux
//!   does, and why nobody may retry. A failed write leaves some first part of its bytes; every
//!   other failed operation changes nothing.
//! - **Space** is counted by the sizes of files, also of removed ones as long as they are open. A
//!   write that does not fit leaves the part that does.
//! - **A crash, and the kill of a process,** ends all open handles (they answer `ESTALE`) and
//!   releases all locks. A killed process loses nothing that it handed over.
//!
//! Everything is decided by seeds: the same calls with the same seeds give the same disk. Threads
//! may share it; each operation is atomic.

mod faults;
mod state;

use alexandra::base::fs::{DirEntry, File, FileSystem, Lock};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;

pub(crate) use faults::{Fault, Operation};
use state::{Disk, NodeId};

/// Remains of the changes that were not synced, after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Survival {
    /// None of them.
    Nothing,
    /// All of them: the system had written everything back in time.
    Everything,
    /// Some of them, some in part; see the module for which mixtures there are.
    Partly,
}

/// A file system in memory. A clone is the same disk.
#[derive(Clone)]
pub(crate) struct SimFileSystem {
    disk: Arc<Mutex<Disk>>,
    /// Told when a part of the disk stands still no more.
    goes_on: Arc<Condvar>,
}

impl SimFileSystem {
    /// Files cannot be larger than this many bytes (`EFBIG`), so that a wild offset does not eat
    /// the machine's memory.
    pub(crate) const MAX_FILE_SIZE: u64 = 1 << 30;

    /// An empty disk without limit of space. The seed decides what failing writes and syncs leave.
    pub(crate) fn new(seed: u64) -> Self {
        Self::of(Disk::new(seed))
    }

    fn of(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), goes_on: Arc::default() }
    }

    /// The machine loses power and comes back. The chance passed in decides how much survives, from
    /// nothing to everything. Planned faults are forgotten, the capacity stays.
    pub(crate) fn crash(&self, rng: &mut Rng) {
        let survival = match rng.u8(..4) {
            0 => Survival::Nothing,
            1 => Survival::Everything,
            _ => Survival::Partly,
        };
        self.crash_keeping(survival, rng);
    }

    /// As [`Self::crash`], with a say in how much survives.
    pub(crate) fn crash_keeping(&self, survival: Survival, rng: &mut Rng) {
        self.lock_disk().crash(survival, rng);
    }

    /// The process is killed and the machine runs on: nothing written is lost, handles and locks
    /// are gone.
    pub(crate) fn kill(&self) {
        self.lock_disk().end_process();
    }

    /// From now on every operation fails with `EIO`, until the crash. A test that crashes a
    /// component with threads of its own stops it in between.
    pub(crate) fn power_off(&self) {
        self.lock_disk().gate.power_off();
    }

    /// Power fails when this many further changes have happened (see [`Operation::is_change`]).
    pub(crate) fn power_off_after(&self, changes: u64) {
        self.lock_disk().gate.power_off_after(changes);
    }

    /// How many changes have happened so far: the crash points between them can all be visited.
    pub(crate) fn changes(&self) -> u64 {
        self.lock_disk().gate.changes()
    }

    /// How many operations of a kind were asked for so far, failed ones included.
    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.lock_disk().gate.count(operation)
    }

    /// Plans a failure.
    pub(crate) fn inject(&self, fault: Fault) {
        self.lock_disk().gate.inject(fault);
    }

    /// Forgets the planned failures.
    pub(crate) fn forget_faults(&self) {
        self.lock_disk().gate.forget_faults();
    }

    /// From now on whoever works on a path that contains this text waits, with all that it holds,
    /// until [`Self::go_on`]; with an operation only for that one.
    pub(crate) fn stall(&self, operation: Option<Operation>, path_contains: &str) {
        self.lock_disk().stalled = Some((operation, path_contains.to_owned()));
    }

    /// From now on the page cache holds all content, or none of it.
    pub(crate) fn keep_in_page_cache(&self, is_kept: bool) {
        self.lock_disk().is_in_page_cache = is_kept;
    }

    /// How many threads wait until it goes on.
    pub(crate) fn stalled_threads(&self) -> usize {
        self.lock_disk().stalled_threads
    }

    /// Nothing stands still any more.
    pub(crate) fn go_on(&self) {
        self.lock_disk().stalled = None;
        self.goes_on.notify_all();
    }

    /// Limits the sum of the sizes of all files to so many bytes; `None` lifts the limit.
    pub(crate) fn set_capacity(&self, bytes: Option<u64>) {
        self.lock_disk().capacity = bytes;
    }

    /// Makes everything durable, as a clean unmount does. Cannot fail, and counts as no operation.
    pub(crate) fn sync_everything(&self) {
        self.lock_disk().sync_everything();
    }

    /// Silently changes one byte of a file on the disk, as failing hardware does.
    pub(crate) fn corrupt(&self, path: &Path, offset: u64, xor: u8) -> io::Result<()> {
        self.lock_disk().corrupt(path, offset, xor)
    }

    /// A second disk with the same content, synced or not, without handles and locks: one moment
    /// can be crashed in many ways.
    #[must_use]
    pub(crate) fn fork(&self) -> Self {
        let mut disk = self.lock_disk().clone();
        disk.end_process();
        Self::of(disk)
    }

    /// A test thread that panicked while it held the lock is a test that has failed already.
    fn lock_disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock()
    }

    /// The disk, for work on a path; waits while that stands still.
    fn lock_for(&self, operation: Operation, path: &Path) -> MutexGuard<'_, Disk> {
        let mut disk = self.lock_disk();
        while disk.stands_still(operation, path) {
            disk.stalled_threads += 1;
            self.goes_on.wait(&mut disk);
            disk.stalled_threads -= 1;
        }
        disk
    }

    fn handle(&self, disk: &mut Disk, node: NodeId, path: &Path) -> Arc<dyn File> {
        disk.opened(node);
        let process = disk.process;
        Arc::new(SimFile { fs: self.clone(), node, process, path: path.into() })
    }
}

impl fmt::Debug for SimFileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFileSystem").finish_non_exhaustive()
    }
}

impl FileSystem for SimFileSystem {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.lock_for(Operation::Create, path);
        disk.gate.pass(Operation::Create, path)?;
        let node = disk.create(path)?;
        Ok(self.handle(&mut disk, node, path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut disk = self.lock_for(Operation::Open, path);
        disk.gate.pass(Operation::Open, path)?;
        let node = disk.find_file(path)?;
        Ok(self.handle(&mut disk, node, path))
    }

    fn try_exists(&self, path: &Path) -> io::Result<bool> {
        let mut disk = self.lock_for(Operation::Exists, path);
        disk.gate.pass(Operation::Exists, path)?;
        match disk.find(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut disk = self.lock_for(Operation::List, path);
        disk.gate.pass(Operation::List, path)?;
        disk.list(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::CreateDir, path);
        disk.gate.pass(Operation::CreateDir, path)?;
        disk.create_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::Rename, to);
        disk.gate.pass(Operation::Rename, to)?;
        disk.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::HardLink, to);
        disk.gate.pass(Operation::HardLink, to)?;
        disk.hard_link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::Remove, path);
        disk.gate.pass(Operation::Remove, path)?;
        disk.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::RemoveDir, path);
        disk.gate.pass(Operation::RemoveDir, path)?;
        disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock_for(Operation::SyncDir, path);
        let passed = disk.gate.pass(Operation::SyncDir, path);
        disk.sync_dir(path, passed)
    }

    fn available_space(&self, path: &Path) -> io::Result<u64> {
        let disk = self.lock_disk();
        if !disk.gate.is_powered() {
            return Err(Errno::IO.into());
        }
        disk.find(path)?;
        Ok(disk.room())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut disk = self.lock_for(Operation::Lock, path);
        disk.gate.pass(Operation::Lock, path)?;
        let node = match disk.find_file(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => disk.create(path)?,
            found => found?,
        };
        if !disk.locked.insert(node) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let process = disk.process;
        Ok(Box::new(SimLock { fs: self.clone(), node, process }))
    }
}

/// A handle of one process of the simulated machine.
struct SimFile {
    fs: SimFileSystem,
    node: NodeId,
    /// Handles of earlier processes are stale.
    process: u64,
    /// The name it was opened by, which faults look at.
    path: PathBuf,
}

impl SimFile {
    /// The disk, and whether the operation may be done.
    fn begin(&self, operation: Operation) -> (MutexGuard<'_, Disk>, Result<(), faults::Refusal>) {
        let mut disk = self.fs.lock_for(operation, &self.path);
        let passed = if disk.process == self.process {
            disk.gate.pass(operation, &self.path)
        } else {
            Err(faults::Refusal::Unchanged(Errno::STALE))
        };
        (disk, passed)
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut disk = self.fs.lock_disk();
        if disk.process == self.process {
            disk.closed(self.node);
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let (disk, passed) = self.begin(Operation::Read);
        passed?;
        Ok(disk.read_at(self.node, buf, offset))
    }

    fn read_if_ready(&self, buf: &mut [u8], offset: u64) -> bool {
        // Without a page cache there is no read that could wait for a stalled disk.
        if !self.fs.lock_disk().is_in_page_cache {
            return false;
        }
        let (disk, passed) = self.begin(Operation::Read);
        passed.is_ok() && disk.read_at(self.node, buf, offset) == buf.len()
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let (mut disk, passed) = self.begin(Operation::Write);
        disk.write_at(self.node, buf, offset, passed)
    }

    fn sync(&self) -> io::Result<()> {
        let (mut disk, passed) = self.begin(Operation::Sync);
        disk.sync(self.node, passed)
    }

    fn size(&self) -> io::Result<u64> {
        let (disk, passed) = self.begin(Operation::Size);
        passed?;
        Ok(disk.size(self.node))
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let (mut disk, passed) = self.begin(Operation::Allocate);
        passed?;
        disk.allocate(self.node, size)
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        let (mut disk, passed) = self.begin(Operation::SetSize);
        passed?;
        disk.set_size(self.node, size)
    }
}

/// The lock on one file, held by one process.
#[derive(Debug)]
struct SimLock {
    fs: SimFileSystem,
    node: NodeId,
    process: u64,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        let mut disk = self.fs.lock_disk();
        // The lock of a dead process is gone already, and another process may hold it by now.
        if disk.process == self.process {
            disk.locked.remove(&self.node);
        }
    }
}
