//! Links or copies of segments in the archive.

use super::super::files;
use crate::base::fs::{File, FileSystem};
use crate::storage::error::{FileContext, FileError};
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
    #[error(transparent)]
    File(#[from] FileError),
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

    /// Its directory.
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
        let synced = self.fs.sync_dir(&self.dir).context("sync", &self.dir);
        if synced.is_err() && is_new {
            // What a failed sync has dropped, the next one does not save: the name must be new.
            self.discard(&target);
        }
        Ok(synced?)
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
                    self.fs.rename(&temporary, target).context("rename", &temporary)
                });
                if copied.is_err() && self.fs.exists(&temporary) {
                    self.discard(&temporary);
                }
                Ok(copied?)
            }
            Err(error) => Err(FileError::new("link", target, error).into()),
        }
    }

    fn copy(
        &self,
        segment: &Path,
        target: &Path,
        pace: &mut dyn FnMut(usize),
    ) -> Result<(), FileError> {
        let source = self.fs.open(segment).context("open", segment)?;
        let size = source.size().context("read", segment)?;
        let copy = self.fs.create(target).context("create", target)?;
        let mut buffer = Vec::new();
        let mut offset = 0;
        while offset < size {
            read_chunk(&*source, &mut buffer, offset, size).context("read", segment)?;
            // The end of a segment that a crash has cut off is zeroes, and takes no space here.
            if buffer.iter().any(|byte| *byte != 0) {
                copy.write_all_at(&buffer, offset).context("write", target)?;
                pace(buffer.len());
            }
            offset += buffer.len() as u64;
        }
        copy.set_size(size).context("write", target)?;
        copy.sync().context("sync", target)
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
            let file = self.fs.open(path).context("open", path)?;
            let size = file.size().context("read", path)?;
            Ok::<_, FileError>((file, size))
        });
        let [first, second] = files;
        let ((first, size), (second, other_size)) = (first?, second?);
        let mut is_same = size == other_size;
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let mut offset = 0;
        while is_same && offset < size {
            read_chunk(&*first, &mut left, offset, size).context("read", one)?;
            read_chunk(&*second, &mut right, offset, size).context("read", other)?;
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
