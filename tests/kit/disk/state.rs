//! The simulated disk: what is visible, what is durable, and what happens in between.

use alexandra::base::fs::DirEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem;
use std::path::{Component, Path};

use fastrand::Rng;
use rustix::io::Errno;

use super::faults::{Gate, Operation, Refusal};
use super::{SimFileSystem, Survival};

/// Files and directories go by number, so that a rename does not touch what is renamed.
pub(super) type NodeId = u64;

const ROOT: NodeId = 0;

/// A torn write may keep any of its sectors.
const SECTOR_BYTES: u64 = 512;

/// Remains of a disk that has no limit.
const UNLIMITED_ROOM: u64 = 1 << 50;

/// The state of a disk, and of the process that uses it.
#[derive(Debug, Clone)]
pub(super) struct Disk {
    pub(super) gate: Gate,
    /// Most bytes that all files together may have.
    pub(super) capacity: Option<u64>,
    /// This operation, or all, are not done on paths that contain this text.
    pub(super) stalled: Option<(Option<Operation>, String)>,
    /// Whether reads of content need not wait for a device.
    pub(super) is_in_page_cache: bool,
    pub(super) stalled_threads: usize,
    /// The process that may use handles. Each crash starts another.
    pub(super) process: u64,
    /// Files that the process has locked.
    pub(super) locked: BTreeSet<NodeId>,
    files: BTreeMap<NodeId, FileNode>,
    dirs: BTreeMap<NodeId, Directory>,
    /// Changes of entries that no directory sync has saved, in the order in which they happened.
    pending: Vec<EntryChange>,
    next_node: NodeId,
    /// Decides what failing operations leave behind.
    rng: Rng,
}

#[derive(Debug, Clone, Default)]
struct FileNode {
    /// Content for readers.
    visible: Vec<u8>,
    /// Content after every crash.
    durable: Vec<u8>,
    /// Changes that no sync has saved, in the order in which they happened.
    pending: Vec<Change>,
    handles: usize,
}

#[derive(Debug, Clone)]
enum Change {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    SetSize(u64),
    /// At least this size.
    Grow(u64),
}

#[derive(Debug, Clone, Default)]
struct Directory {
    visible: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
}

#[derive(Debug, Clone)]
enum EntryChange {
    Add { to: Entry, node: NodeId },
    Remove { from: Entry },
    Rename { from: Entry, to: Entry, node: NodeId },
}

/// A place in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    dir: NodeId,
    name: String,
}

/// Content.
impl Disk {
    pub(super) fn read_at(&self, node: NodeId, buf: &mut [u8], offset: u64) -> usize {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| self.file(node).visible.get(offset..))
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        n
    }

    pub(super) fn size(&self, node: NodeId) -> u64 {
        self.file(node).visible.len() as u64
    }

    pub(super) fn write_at(
        &mut self,
        node: NodeId,
        buf: &[u8],
        offset: u64,
        passed: Result<(), Refusal>,
    ) -> io::Result<()> {
        let (done, result) = match passed {
            Err(refusal @ Refusal::Unchanged(_)) => (0, Err(refusal.into())),
            Err(refusal @ Refusal::Fault(_)) => (self.rng.usize(..=buf.len()), Err(refusal.into())),
            Ok(()) => self.fitting(node, buf, offset)?,
        };
        if done > 0 {
            self.change(node, Change::Write { offset, bytes: buf[..done].to_vec() });
        }
        result
    }

    /// How many of the bytes there is space for, and what the writer is told.
    fn fitting(
        &self,
        node: NodeId,
        buf: &[u8],
        offset: u64,
    ) -> io::Result<(usize, io::Result<()>)> {
        let end = offset.checked_add(buf.len() as u64).ok_or(Errno::FBIG)?;
        if end > SimFileSystem::MAX_FILE_SIZE {
            return Err(Errno::FBIG.into());
        }
        let reachable = self.size(node) + self.room();
        if end <= reachable {
            return Ok((buf.len(), Ok(())));
        }
        Ok((reachable.saturating_sub(offset) as usize, Err(Errno::NOSPC.into())))
    }

    pub(super) fn allocate(&mut self, node: NodeId, size: u64) -> io::Result<()> {
        if size == 0 {
            return Err(Errno::INVAL.into());
        }
        self.resize(node, Change::Grow(size), size)
    }

    pub(super) fn set_size(&mut self, node: NodeId, size: u64) -> io::Result<()> {
        self.resize(node, Change::SetSize(size), size)
    }

    fn resize(&mut self, node: NodeId, change: Change, size: u64) -> io::Result<()> {
        if size > SimFileSystem::MAX_FILE_SIZE {
            return Err(Errno::FBIG.into());
        }
        if size > self.size(node) + self.room() {
            return Err(Errno::NOSPC.into());
        }
        self.change(node, change);
        Ok(())
    }

    pub(super) fn sync(&mut self, node: NodeId, passed: Result<(), Refusal>) -> io::Result<()> {
        let survival = match passed {
            Ok(()) => Survival::Everything,
            Err(Refusal::Fault(_)) => Survival::Partly,
            Err(refusal @ Refusal::Unchanged(_)) => return Err(refusal.into()),
        };
        let file = self.files.get_mut(&node).expect("an open file is kept");
        survive(&mut file.durable, mem::take(&mut file.pending), survival, &mut self.rng);
        Ok(passed?)
    }

    pub(super) fn corrupt(&mut self, path: &Path, offset: u64, xor: u8) -> io::Result<()> {
        let node = self.find_file(path)?;
        let file = self.files.get_mut(&node).expect("an entry has its file");
        let at = offset as usize;
        *file.visible.get_mut(at).ok_or(io::ErrorKind::UnexpectedEof)? ^= xor;
        if let Some(byte) = file.durable.get_mut(at) {
            *byte ^= xor;
        }
        for change in &mut file.pending {
            if let Change::Write { offset: start, bytes } = change
                && let Some(within) = offset.checked_sub(*start)
                && let Some(byte) = bytes.get_mut(within as usize)
            {
                *byte ^= xor;
            }
        }
        Ok(())
    }

    fn file(&self, node: NodeId) -> &FileNode {
        self.files.get(&node).expect("an open file is kept")
    }

    fn change(&mut self, node: NodeId, change: Change) {
        let file = self.files.get_mut(&node).expect("an open file is kept");
        change.apply(&mut file.visible);
        file.pending.push(change);
    }

    /// Bytes by which files can still grow.
    pub(super) fn room(&self) -> u64 {
        let Some(capacity) = self.capacity else { return UNLIMITED_ROOM };
        let named: BTreeSet<_> = self.dirs.values().flat_map(|dir| dir.visible.values()).collect();
        let used = self
            .files
            .iter()
            .filter(|(node, file)| file.handles > 0 || named.contains(node))
            .map(|(_, file)| file.visible.len() as u64)
            .sum();
        capacity.saturating_sub(used)
    }
}

/// Entries.
impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            gate: Gate::default(),
            capacity: None,
            stalled: None,
            is_in_page_cache: false,
            stalled_threads: 0,
            process: 0,
            locked: BTreeSet::new(),
            files: BTreeMap::new(),
            dirs: BTreeMap::from([(ROOT, Directory::default())]),
            pending: Vec::new(),
            next_node: ROOT + 1,
            rng: Rng::with_seed(seed),
        }
    }

    pub(super) fn stands_still(&self, operation: Operation, path: &Path) -> bool {
        self.stalled.as_ref().is_some_and(|(only, text)| {
            only.is_none_or(|only| only == operation) && path.to_string_lossy().contains(text)
        })
    }

    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut node = ROOT;
        for name in names(path)? {
            let dir = self.dirs.get(&node).ok_or(Errno::NOTDIR)?;
            node = *dir.visible.get(name).ok_or(Errno::NOENT)?;
        }
        Ok(node)
    }

    pub(super) fn find_file(&self, path: &Path) -> io::Result<NodeId> {
        let node = self.find(path)?;
        if self.dirs.contains_key(&node) { Err(Errno::ISDIR.into()) } else { Ok(node) }
    }

    pub(super) fn find_dir(&self, path: &Path) -> io::Result<NodeId> {
        let node = self.find(path)?;
        if self.dirs.contains_key(&node) { Ok(node) } else { Err(Errno::NOTDIR.into()) }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = &self.dirs[&self.find_dir(path)?].visible;
        let describe = |(name, node): (&String, &NodeId)| {
            let file = self.files.get(node);
            let size = file.map_or(0, |file| file.visible.len() as u64);
            DirEntry { name: name.clone(), size, is_dir: file.is_none() }
        };
        Ok(entries.iter().map(describe).collect())
    }

    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let to = self.entry(path)?;
        if self.look_up(&to).is_some() {
            return Err(Errno::EXIST.into());
        }
        let node = self.new_node();
        self.files.insert(node, FileNode::default());
        self.change_entry(EntryChange::Add { to, node });
        Ok(node)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut dir = ROOT;
        for name in names(path)? {
            let to = Entry { dir, name: name.into() };
            dir = match self.look_up(&to) {
                Some(node) if self.dirs.contains_key(&node) => node,
                Some(_) => return Err(Errno::NOTDIR.into()),
                None => {
                    let node = self.new_node();
                    self.dirs.insert(node, Directory::default());
                    self.change_entry(EntryChange::Add { to, node });
                    node
                }
            };
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let is_dir = self.dirs.contains_key(&node);
        if is_dir && to != from && to.starts_with(from) {
            return Err(Errno::INVAL.into());
        }
        let (from, to) = (self.entry(from)?, self.entry(to)?);
        match self.look_up(&to) {
            // Two names of one file both stay, as POSIX has it.
            Some(target) if target == node => return Ok(()),
            Some(target) => match (is_dir, self.dirs.get(&target)) {
                (true, None) => return Err(Errno::NOTDIR.into()),
                (true, Some(dir)) if !dir.visible.is_empty() => {
                    return Err(Errno::NOTEMPTY.into());
                }
                (false, Some(_)) => return Err(Errno::ISDIR.into()),
                _ => {}
            },
            None => {}
        }
        self.change_entry(EntryChange::Rename { from, to, node });
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        if self.dirs.contains_key(&node) {
            return Err(Errno::PERM.into());
        }
        let to = self.entry(to)?;
        if self.look_up(&to).is_some() {
            return Err(Errno::EXIST.into());
        }
        self.change_entry(EntryChange::Add { to, node });
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.find_file(path)?;
        let from = self.entry(path)?;
        self.change_entry(EntryChange::Remove { from });
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let node = self.find_dir(path)?;
        if self.dirs.get(&node).is_some_and(|dir| !dir.visible.is_empty()) {
            return Err(Errno::NOTEMPTY.into());
        }
        let from = self.entry(path)?;
        self.change_entry(EntryChange::Remove { from });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path, passed: Result<(), Refusal>) -> io::Result<()> {
        if let Err(refusal @ Refusal::Unchanged(_)) = passed {
            return Err(refusal.into());
        }
        let dir = self.find_dir(path)?;
        // A rename between directories brings along what came before it in the other one, so the
        // changes are gone through from the last to the first.
        let mut dirs = BTreeSet::from([dir]);
        let mut saved = Vec::new();
        for change in mem::take(&mut self.pending).into_iter().rev() {
            if change.dirs().any(|dir| dirs.contains(&dir)) {
                dirs.extend(change.dirs());
                saved.push(change);
            } else {
                self.pending.push(change);
            }
        }
        self.pending.reverse();
        saved.reverse();
        let survival = if passed.is_ok() { Survival::Everything } else { Survival::Partly };
        let mut rng = self.rng.fork();
        self.save_entries(saved, survival, &mut rng);
        self.forget_unreachable();
        Ok(passed?)
    }

    pub(super) fn opened(&mut self, node: NodeId) {
        self.files.get_mut(&node).expect("an entry has its file").handles += 1;
    }

    pub(super) fn closed(&mut self, node: NodeId) {
        self.files.get_mut(&node).expect("an open file is kept").handles -= 1;
    }

    fn new_node(&mut self) -> NodeId {
        let node = self.next_node;
        self.next_node += 1;
        node
    }

    /// The place of a path, whose directory must exist.
    fn entry(&self, path: &Path) -> io::Result<Entry> {
        let name = names(path)?.pop().ok_or(Errno::INVAL)?.to_owned();
        let dir = self.find_dir(path.parent().ok_or(Errno::INVAL)?)?;
        Ok(Entry { dir, name })
    }

    fn look_up(&self, entry: &Entry) -> Option<NodeId> {
        self.dirs.get(&entry.dir)?.visible.get(&entry.name).copied()
    }

    fn change_entry(&mut self, change: EntryChange) {
        change.apply(&mut self.dirs, |dir| &mut dir.visible);
        self.pending.push(change);
    }

    /// Makes changes durable: all, none, or for each directory the first few.
    fn save_entries(&mut self, changes: Vec<EntryChange>, survival: Survival, rng: &mut Rng) {
        let mut stopped = BTreeSet::new();
        for change in changes {
            let kept = match survival {
                Survival::Nothing => false,
                Survival::Everything => true,
                Survival::Partly => rng.u8(..4) > 0,
            };
            if kept && change.dirs().all(|dir| !stopped.contains(&dir)) {
                change.apply(&mut self.dirs, |dir| &mut dir.durable);
            } else {
                stopped.extend(change.dirs());
            }
        }
    }
}

/// Ends and beginnings.
impl Disk {
    /// Handles and locks are gone; what is visible stays so.
    pub(super) fn end_process(&mut self) {
        self.process += 1;
        self.locked.clear();
        for file in self.files.values_mut() {
            file.handles = 0;
        }
        self.forget_unreachable();
    }

    pub(super) fn crash(&mut self, survival: Survival, rng: &mut Rng) {
        let pending = mem::take(&mut self.pending);
        self.save_entries(pending, survival, rng);
        for dir in self.dirs.values_mut() {
            dir.visible.clone_from(&dir.durable);
        }
        for file in self.files.values_mut() {
            survive(&mut file.durable, mem::take(&mut file.pending), survival, rng);
            file.visible.clone_from(&file.durable);
        }
        self.end_process();
        self.gate.power_on();
    }

    /// What a failed sync has lost is visible still, so that not changes are applied but what is
    /// visible is taken as it is.
    pub(super) fn sync_everything(&mut self) {
        self.pending.clear();
        for dir in self.dirs.values_mut() {
            dir.durable.clone_from(&dir.visible);
        }
        for file in self.files.values_mut() {
            file.pending.clear();
            file.durable.clone_from(&file.visible);
        }
        self.forget_unreachable();
    }

    /// Drops files and directories that no entry, no open handle and no later crash can lead to.
    fn forget_unreachable(&mut self) {
        let mut reachable = BTreeSet::from([ROOT]);
        let mut to_visit = vec![ROOT];
        to_visit.extend(self.pending.iter().filter_map(EntryChange::node));
        while let Some(node) = to_visit.pop() {
            reachable.insert(node);
            if let Some(dir) = self.dirs.get(&node) {
                to_visit.extend(dir.visible.values().chain(dir.durable.values()));
            }
        }
        self.files.retain(|node, file| file.handles > 0 || reachable.contains(node));
        self.dirs.retain(|node, _| reachable.contains(node));
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => write(content, *offset, bytes),
            Self::SetSize(size) => content.resize(*size as usize, 0),
            Self::Grow(size) => grow(content, *size),
        }
    }

    /// Leaves a part of the change.
    fn tear(&self, content: &mut Vec<u8>, rng: &mut Rng) {
        match self {
            Self::Write { offset, bytes } if rng.bool() => {
                write(content, *offset, &bytes[..rng.usize(..=bytes.len())]);
            }
            Self::Write { offset, bytes } => {
                let mut rest = bytes.as_slice();
                let mut at = *offset;
                while !rest.is_empty() {
                    let in_sector = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
                    let (sector, behind) = rest.split_at(in_sector.min(rest.len()));
                    if rng.bool() {
                        write(content, at, sector);
                    }
                    at += sector.len() as u64;
                    rest = behind;
                }
            }
            Self::SetSize(_) | Self::Grow(_) if rng.bool() => self.apply(content),
            Self::SetSize(_) | Self::Grow(_) => {}
        }
    }

    /// Loses the change, except that the file may have become longer.
    fn lose(&self, content: &mut Vec<u8>, rng: &mut Rng) {
        if let Self::Write { offset, bytes } = self
            && rng.u8(..4) == 0
        {
            grow(content, offset + bytes.len() as u64);
        }
    }
}

impl EntryChange {
    /// The directories that it touches.
    fn dirs(&self) -> impl Iterator<Item = NodeId> {
        let (one, other) = match self {
            Self::Add { to: place, .. } | Self::Remove { from: place } => (place.dir, None),
            Self::Rename { from, to, .. } => (from.dir, Some(to.dir)),
        };
        [one].into_iter().chain(other)
    }

    /// The file or directory that it gives a name to.
    fn node(&self) -> Option<NodeId> {
        match self {
            Self::Add { node, .. } | Self::Rename { node, .. } => Some(*node),
            Self::Remove { .. } => None,
        }
    }

    /// Applies the change to one side of the directories. A directory that is gone from there
    /// takes its entries along.
    fn apply(
        &self,
        dirs: &mut BTreeMap<NodeId, Directory>,
        side: impl Fn(&mut Directory) -> &mut BTreeMap<String, NodeId>,
    ) {
        let (from, to) = match self {
            Self::Add { to, node } => (None, Some((to, *node))),
            Self::Remove { from } => (Some(from), None),
            Self::Rename { from, to, node } => (Some(from), Some((to, *node))),
        };
        if let Some(from) = from
            && let Some(dir) = dirs.get_mut(&from.dir)
        {
            side(dir).remove(&from.name);
        }
        if let Some((to, node)) = to
            && let Some(dir) = dirs.get_mut(&to.dir)
        {
            side(dir).insert(to.name.clone(), node);
        }
    }
}

/// Brings pending changes to the durable content: all, none, or any of them and one in part.
fn survive(durable: &mut Vec<u8>, pending: Vec<Change>, survival: Survival, rng: &mut Rng) {
    if pending.is_empty() {
        return;
    }
    let torn = rng.usize(..pending.len());
    for (i, change) in pending.into_iter().enumerate() {
        match survival {
            Survival::Nothing => {}
            Survival::Everything => change.apply(durable),
            Survival::Partly if i == torn => change.tear(durable, rng),
            Survival::Partly if rng.bool() => change.apply(durable),
            Survival::Partly => change.lose(durable, rng),
        }
    }
}

fn write(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    grow(content, offset + bytes.len() as u64);
    content[offset as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn grow(content: &mut Vec<u8>, size: u64) {
    if content.len() < size as usize {
        content.resize(size as usize, 0);
    }
}

/// The names on the way to a path. The disk has no working directory: a relative path starts at
/// the root as well.
fn names(path: &Path) -> io::Result<Vec<&str>> {
    path.components()
        .filter(|component| !matches!(component, Component::RootDir | Component::CurDir))
        .map(|component| match component {
            Component::Normal(name) => name.to_str().ok_or_else(|| Errno::INVAL.into()),
            _ => Err(Errno::INVAL.into()),
        })
        .collect()
}
