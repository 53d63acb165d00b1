//! Segment files, and the one that is made ahead of need.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use log::warn;

use crate::base::fs::{DirEntry, File, FileSystem, is_disk_full};
use crate::base::lock::{Mutex, rank};

use super::error::LogError;
use super::files;
use super::format::{HEADER_BYTES, Header};
use crate::storage::error::FileError;
use crate::storage::log::Salt;

/// Size of a segment where the disk has no room for an ordinary one. It takes the list without
/// which nothing can be removed. No file takes less of a disk.
pub(super) const SMALL_SEGMENT_BYTES: u64 = 4096;

/// A segment of this run of the program: an open file whose header is durable.
#[derive(Debug)]
pub(super) struct Segment {
    /// Segments are written in the order of their ids.
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn File>,
    /// Number that ties its records to it.
    pub(super) salt: Salt,
    /// Bytes that are preallocated.
    pub(super) capacity: u64,
}

/// Creates segments. Ids are given without a gap within a run, and a segment is written only
/// after its file, header and directory entry are durable, so that replay can tell a lost segment
/// from one that never was. Until its header is durable it has a temporary name: a file with the
/// name of a segment and no header was truncated or overwritten.
///
/// One segment is held ready, because creation can take long (a large allocation, two syncs), and
/// writers should not wait for it. The lock is held while one is created: a writer that needs it
/// waits for that one instead of making another.
#[derive(Debug)]
pub(super) struct SegmentMaker {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// Identity of the log, which all of its segments carry.
    pub(super) identity: u64,
    run: u64,
    previous: u64,
    /// Preallocated size of an ordinary segment.
    segment_bytes: u64,
    next: Mutex<rank::State, Next>,
}

#[derive(Debug)]
struct Next {
    id: u64,
    ready: Option<Segment>,
}

impl SegmentMaker {
    /// A maker whose first segment has the id `run`; `previous` is the last one of the runs before.
    pub(super) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        (previous, run): (u64, u64),
        segment_bytes: u64,
        identity: u64,
    ) -> Self {
        let next = Mutex::new(Next { id: run, ready: None });
        Self { fs, dir, identity, run, previous, segment_bytes, next }
    }

    /// Makes sure that a segment is ready.
    pub(super) fn prepare(&self) -> Result<(), LogError> {
        let mut next = self.next.lock();
        if next.ready.is_none() {
            let made = self.make(next.id, self.segment_bytes)?;
            next.ready = Some(self.publish(made)?);
        }
        Ok(())
    }

    /// Whether a segment is ready. False also while one is being made.
    pub(super) fn is_ready(&self) -> bool {
        self.next.try_lock().is_some_and(|next| next.ready.is_some())
    }

    /// Returns the next segment, with room for at least `capacity` bytes. Where the disk has no
    /// room for an ordinary segment, it may be one for `small` bytes. After an error the same id is
    /// tried again by the next call.
    pub(super) fn take(&self, capacity: u64, small: Option<u64>) -> Result<Segment, LogError> {
        match (self.take_of(capacity, self.segment_bytes), small) {
            (Err(LogError::NoSpace { .. }), Some(small)) => {
                self.take_of(small, self.segment_bytes.min(SMALL_SEGMENT_BYTES))
            }
            (taken, _) => taken,
        }
    }

    fn take_of(&self, capacity: u64, least_bytes: u64) -> Result<Segment, LogError> {
        let mut next = self.next.lock();
        let segment = match next.ready.take() {
            Some(ready) if ready.capacity >= capacity => ready,
            // The header says how large a segment is: a larger one takes the place and the name.
            too_small => match self.make(next.id, capacity.max(least_bytes)) {
                Ok(made) => self.publish(made)?,
                Err(error) => {
                    next.ready = too_small;
                    return Err(error);
                }
            },
        };
        next.id += 1;
        Ok(segment)
    }

    /// Removes the segment that is ready, if any: the log is being closed.
    pub(super) fn discard_ready(&self) {
        if let Some(ready) = self.next.lock().ready.take() {
            self.remove(&ready.path);
        }
    }

    /// Removes a segment file. A failure costs disk space and no data: replay knows which
    /// segments are needed.
    pub(super) fn remove(&self, path: &Path) {
        if let Err(error) = self.fs.remove_file(path) {
            warn!("cannot remove commit log segment {}: {error}", path.display());
        }
    }

    /// Removes the one segment file that is left. While there are others it stays, since only its
    /// list tells replay that they are not needed; and they have to be gone durably before it.
    pub(super) fn remove_last(&self, path: &Path) -> io::Result<()> {
        let is_other = |entry: &DirEntry| {
            files::segment_id(&entry.name).is_some() && self.dir.join(&entry.name) != path
        };
        if self.fs.list(&self.dir)?.iter().any(is_other) {
            return Ok(());
        }
        self.fs.sync_dir(&self.dir)?;
        self.fs.remove_file(path)
    }

    /// Makes a segment under its temporary name, with a durable header.
    fn make(&self, id: u64, capacity: u64) -> Result<Segment, LogError> {
        debug_assert!(capacity >= HEADER_BYTES);
        let path = files::unfinished_path(&self.dir, id);
        let failed = |action, source| self.creation_error(action, &path, capacity, source);
        // A file system that cannot allocate only pretends to.
        let available = self.fs.available_space(&self.dir);
        if available.map_err(|e| failed("measure the space of", e))? < capacity {
            return Err(failed("create", io::ErrorKind::StorageFull.into()));
        }
        if self.fs.exists(&path) {
            // An earlier failed creation could not remove it.
            self.fs.remove_file(&path).map_err(|e| failed("replace", e))?;
        }
        let file = self.fs.create(&path).map_err(|e| failed("create", e))?;
        let Self { run, previous, identity: random, .. } = *self;
        let header = Header { id, run, random, is_named: true, capacity, previous };
        let written = file
            .allocate(capacity)
            .and_then(|()| file.write_all_at(&header.encode(), 0))
            .and_then(|()| file.sync());
        if let Err(source) = written {
            self.remove(&path);
            return Err(failed("create", source));
        }
        let path = files::segment_path(&self.dir, id);
        Ok(Segment { id, path, file, salt: header.salt(), capacity })
    }

    /// Gives a segment its final name, durably. A file that has the name already is a segment
    /// without a record: a smaller one, or one that an earlier failure could not remove.
    fn publish(&self, made: Segment) -> Result<Segment, LogError> {
        let unfinished = files::unfinished_path(&self.dir, made.id);
        let renamed = self.fs.rename(&unfinished, &made.path);
        if let Err(source) = renamed.and_then(|()| self.fs.sync_dir(&self.dir)) {
            for path in [&unfinished, &made.path] {
                if self.fs.exists(path) {
                    self.remove(path);
                }
            }
            return Err(self.creation_error("create", &made.path, made.capacity, source));
        }
        Ok(made)
    }

    fn creation_error(
        &self,
        action: &'static str,
        path: &Path,
        bytes: u64,
        source: io::Error,
    ) -> LogError {
        if is_disk_full(&source) {
            LogError::NoSpace { dir: self.dir.clone(), bytes, source: Arc::new(source) }
        } else {
            FileError::new(action, path, source).into()
        }
    }
}
