//! How a segment gets into the archive.

use super::super::files;
use crate::base::fs::{File, FileSystem};
use crate::storage::files::temporary;
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read and written at a time.
const COPY_BYTES: usize = 1 << 20;

/// Why a segment is not in the archive. It stays in the log.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive has another file of that name, which is never overwritten.
    #[error(
        "{} is in the archive already, with other content: two servers may use one archive. Move \
         it away",
        .0.display()
    )]
    Collision(PathBuf),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        action: &'static str,
        /// The file or directory concerned.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// An archive that one log writes to.
#[derive(Debug)]
pub(in super::super) struct Archive {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
}

impl Archive {
    /// The archive in an existing directory.
    pub(in super::super) fn new(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        Self { fs, dir }
    }

    /// Where it is.
    pub(in super::super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Brings a segment into the archive that is durable and complete; it is there for good when
    /// this returns. A repeated call does no harm. `pace` is told how many bytes were copied, and
    /// may hold up the copy.
    pub(in super::super) fn put(
        &self,
        id: u64,
        segment: &Path,
        pace: &mut dyn FnMut(usize),
    ) -> Result<(), ArchiveError> {
        let target = files::segment_path(&self.dir, id);
        let is_new = if self.fs.exists(&target) {
            self.compare(segment, &target, pace)?;
            false
        } else {
            self.link_or_copy(segment, &target, pace)?;
            true
        };
        self.fs.sync_dir(&self.dir).map_err(|source| {
            if is_new {
                // What a failed sync has dropped, the next one does not save: the name must be new.
                self.discard(&target);
            }
            ArchiveError::Io { action: "sync", path: self.dir.clone(), source }
        })
    }

    fn link_or_copy(
        &self,
        segment: &Path,
        target: &Path,
        pace: &mut dyn FnMut(usize),
    ) -> Result<(), ArchiveError> {
        match self.fs.hard_link(segment, target) {
            Ok(()) => Ok(()),
            Err(error) if asks_for_a_copy(&error) => {
                let temporary = temporary(target);
                if self.fs.exists(&temporary) {
                    // What a crash has left of an earlier attempt.
                    self.discard(&temporary);
                }
                let copied = self.copy(segment, &temporary, pace).and_then(|()| {
                    let renamed = self.fs.rename(&temporary, target);
                    renamed.map_err(failed_to("rename", &temporary))
                });
                if copied.is_err() && self.fs.exists(&temporary) {
                    self.discard(&temporary);
                }
                copied
            }
            Err(error) => Err(failed_to("link", target)(error)),
        }
    }

    fn copy(
        &self,
        segment: &Path,
        target: &Path,
        pace: &mut dyn FnMut(usize),
    ) -> Result<(), ArchiveError> {
        let source = self.fs.open(segment).map_err(failed_to("open", segment))?;
        let size = source.size().map_err(failed_to("read", segment))?;
        let copy = self.fs.create(target).map_err(failed_to("create", target))?;
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < size {
            read_chunk(&*source, &mut buffer, offset, size).map_err(failed_to("read", segment))?;
            // The end of a segment that a crash has cut off is zeroes, and takes no space here.
            if buffer.iter().any(|byte| *byte != 0) {
                copy.write_all_at(&buffer, offset).map_err(failed_to("write", target))?;
                pace(buffer.len());
            }
            offset += buffer.len() as u64;
        }
        copy.set_size(size).map_err(failed_to("write", target))?;
        copy.sync().map_err(failed_to("sync", target))
    }

    /// Whether the archive has this very segment.
    fn compare(
        &self,
        segment: &Path,
        target: &Path,
        pace: &mut dyn FnMut(usize),
    ) -> Result<(), ArchiveError> {
        let [one, other] = [segment, target];
        let files = [one, other].map(|path| {
            let file = self.fs.open(path).map_err(failed_to("open", path))?;
            let size = file.size().map_err(failed_to("read", path))?;
            Ok((file, size))
        });
        let [first, second] = files;
        let ((first, size), (second, other_size)) = (first?, second?);
        let mut is_same = size == other_size;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut offset = 0;
        while is_same && offset < size {
            read_chunk(&*first, &mut left, offset, size).map_err(failed_to("read", one))?;
            read_chunk(&*second, &mut right, offset, size).map_err(failed_to("read", other))?;
            is_same = left == right;
            offset += left.len() as u64;
            pace(left.len());
        }
        if is_same { Ok(()) } else { Err(ArchiveError::Collision(target.to_owned())) }
    }

    fn discard(&self, path: &Path) {
        if let Err(error) = self.fs.remove_file(path) {
            log::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

fn read_chunk(file: &dyn File, into: &mut Vec<u8>, offset: u64, size: u64) -> io::Result<()> {
    into.resize((size - offset).min(COPY_BYTES as u64) as usize, 0);
    file.read_exact_at(into, offset)
}

/// Whether the file system cannot give the file a second name there, and a copy may work.
fn asks_for_a_copy(error: &io::Error) -> bool {
    const REASONS: [Errno; 5] =
        [Errno::XDEV, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK];
    Errno::from_io_error(error).is_some_and(|errno| REASONS.contains(&errno))
}

fn failed_to(action: &'static str, path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::Io { action, path: path.clone(), source }
}
