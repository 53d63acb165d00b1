//! A disk in memory that knows what was synced, counts, fails on demand, and can lose its power.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::base::fs::{DirEntry, File, FileSystem, Lock};

/// A write may survive a power loss in units of this many bytes.
const SECTOR: u64 = 512;

/// The disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    gate: Condvar,
}

#[derive(Debug, Default)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    faults: Faults,
    counts: Counts,
}

#[derive(Debug, Default, Clone)]
struct Inode {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, by sector.
    unsynced: Vec<(u64, Vec<u8>)>,
}

/// What goes wrong from now on.
#[derive(Debug, Default, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "faults are independent of each other")]
pub(super) struct Faults {
    /// No space for allocation.
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

impl Disk {
    /// Changes the faults.
    pub(super) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
        self.shared.gate.notify_all();
    }

    /// What has been done so far.
    pub(super) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// The disk as another process finds it after this one was killed: nothing is lost.
    pub(super) fn after_kill(&self) -> Self {
        let state = self.state();
        let copy = Self::default();
        {
            let mut new = copy.state();
            new.inodes.clone_from(&state.inodes);
            new.names.clone_from(&state.names);
            new.durable_names.clone_from(&state.durable_names);
            new.dirs.clone_from(&state.dirs);
        }
        copy
    }

    /// The disk after a power loss: what was synced is there, and any part of the rest.
    pub(super) fn after_power_loss(&self, rng: &mut fastrand::Rng) -> Self {
        let copy = self.after_kill();
        {
            let mut new = copy.state();
            let State { inodes, names, durable_names, .. } = &mut *new;
            for inode in inodes {
                let unsynced = std::mem::take(&mut inode.unsynced);
                inode.now.clone_from(&inode.durable);
                let survives = rng.f64();
                for (offset, bytes) in unsynced {
                    if rng.f64() < survives {
                        put(&mut inode.now, &bytes, offset);
                    }
                }
                inode.durable.clone_from(&inode.now);
            }
            let either: BTreeSet<PathBuf> =
                names.keys().chain(durable_names.keys()).cloned().collect();
            for name in either {
                let inode = match (names.get(&name), durable_names.get(&name)) {
                    (Some(inode), Some(_)) => Some(*inode),
                    (Some(inode), None) | (None, Some(inode)) if rng.bool() => Some(*inode),
                    _ => None,
                };
                match inode {
                    Some(inode) => names.insert(name, inode),
                    None => names.remove(&name),
                };
            }
            durable_names.clone_from(names);
        }
        copy
    }

    /// Content of a file.
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

    /// Names of the files, sorted.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    fn passed_gate(&self, count: impl FnOnce(&mut Counts)) -> MutexGuard<'_, State> {
        let mut state = self.state();
        count(&mut state.counts);
        self.shared.gate.wait_while(state, |state| state.faults.hold).unwrap()
    }
}

fn put(content: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let end = offset as usize + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset as usize..end].copy_from_slice(bytes);
}

fn failure(what: &str) -> io::Error {
    io::Error::other(format!("injected {what} failure"))
}

#[derive(Debug)]
struct DiskFile {
    disk: Disk,
    inode: usize,
}

impl File for DiskFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let content = &state.inodes[self.inode].now;
        let from = content.get(offset as usize..).unwrap_or_default();
        let length = from.len().min(buf.len());
        buf[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.passed_gate(|counts| counts.writes += 1);
        if state.faults.write {
            return Err(failure("write"));
        }
        let inode = &mut state.inodes[self.inode];
        put(&mut inode.now, buf, offset);
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let length = (SECTOR - at % SECTOR).min(rest.len() as u64) as usize;
            let (sector, behind) = rest.split_at(length);
            inode.unsynced.push((at, sector.to_vec()));
            at += length as u64;
            rest = behind;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.passed_gate(|counts| counts.syncs += 1);
        if state.faults.sync {
            return Err(failure("sync"));
        }
        let inode = &mut state.inodes[self.inode];
        inode.durable.clone_from(&inode.now);
        inode.unsynced.clear();
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state().inodes[self.inode].now.len() as u64)
    }

    fn allocate(&self, size: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.faults.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let now = &mut state.inodes[self.inode].now;
        let size = now.len().max(size as usize);
        now.resize(size, 0);
        Ok(())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.disk.state().inodes[self.inode].now.resize(size as usize, 0);
        Ok(())
    }
}

#[derive(Debug)]
struct NoLock;

impl Lock for NoLock {}

impl FileSystem for Disk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(path.to_path_buf(), inode);
        Ok(Arc::new(DiskFile { disk: self.clone(), inode }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let inode = self.state().names.get(path).copied();
        let inode = inode.ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(DiskFile { disk: self.clone(), inode }))
    }

    fn try_exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        Ok(state.names.contains_key(path) || state.dirs.contains(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state();
        let in_dir = state.names.iter().filter(|(name, _)| name.parent() == Some(path));
        let entry = |(name, inode): (&PathBuf, &usize)| DirEntry {
            name: name.file_name().unwrap().to_str().unwrap().to_owned(),
            size: state.inodes[*inode].now.len() as u64,
            is_dir: false,
        };
        Ok(in_dir.map(entry).collect())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.state().dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_path_buf(), inode);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.state().names.remove(path).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let inode = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.names.insert(to.to_path_buf(), inode);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.state().dirs.remove(path).then_some(()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let State { names, durable_names, .. } = &mut *state;
        durable_names.retain(|name, _| name.parent() != Some(path));
        let in_dir = names.iter().filter(|(name, _)| name.parent() == Some(path));
        durable_names.extend(in_dir.map(|(name, inode)| (name.clone(), *inode)));
        Ok(())
    }

    fn available_space(&self, _: &Path) -> io::Result<u64> {
        Ok(if self.state().faults.full { 0 } else { 1 << 40 })
    }

    fn lock(&self, _: &Path) -> io::Result<Box<dyn Lock>> {
        Ok(Box::new(NoLock))
    }
}
