//! Links or copies of segments in the archive.

use crate::base::fs::{File, FileSystem};
use crate::storage::commitlog::{segment_ids, segment_path};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{ARCHIVE_FILE, temporary};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read and written at a time.
const COPY_BYTES: usize = 1 << 20;

/// Errors of a hard link after which a copy may work: the file system cannot give the file a second
/// name there.
const NEEDS_COPY: [Errno; 5] =
    [Errno::XDEV, Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK];

/// Why the archive does not take a segment, which stays in the log, or cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The archive has another file of that name, which is never overwritten.
    #[error(
        "{} is in the archive already, with other content: two servers may use one archive. Move \
         it away",
        .0.display()
    )]
    Collision(PathBuf),
    /// The folder that the commit log continues does not exist.
    #[error(
        "the commit log continues {}, which is not there: mount the archive. If it is lost for \
         good, remove the file {ARCHIVE_FILE} in the first data directory, and the next start \
         begins a new folder",
        .0.display()
    )]
    Missing(PathBuf),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Gets the number of bytes after each part of a copy, and may delay it.
type Pace<'a> = &'a mut dyn FnMut(usize);

/// Brings a durable and complete segment into a folder of the archive. It is durable there when
/// this returns. A repeated call does no harm.
pub(in crate::storage) fn put(
    fs: &dyn FileSystem,
    folder: &Path,
    id: u64,
    segment: &Path,
    pace: Pace<'_>,
) -> Result<(), ArchiveError> {
    let target = segment_path(folder, id);
    let is_new = !fs.exists(&target);
    if is_new {
        link_or_copy(fs, segment, &target, pace)?;
    } else if !is_same(fs, segment, &target, pace)? {
        return Err(ArchiveError::Collision(target));
    }
    let synced = fs.sync_dir(folder).context("sync", folder);
    if synced.is_err() && is_new {
        // A second sync does not save bytes that a failed one has dropped: the name must be new.
        discard(fs, &target);
    }
    Ok(synced?)
}

/// Brings all segments of a log that is not open into a folder of the archive, durably. Returns how
/// many there are.
pub fn archive_all(
    fs: &dyn FileSystem,
    log_dir: &Path,
    folder: &Path,
) -> Result<usize, ArchiveError> {
    let ids = segment_ids(fs, log_dir).context("read", log_dir)?;
    for id in &ids {
        let path = segment_path(log_dir, *id);
        // After a kill of the process they may be in the page cache only.
        fs.open(&path).and_then(|file| file.sync()).context("sync", &path)?;
        put(fs, folder, *id, &path, &mut |_| {})?;
    }
    Ok(ids.len())
}

fn link_or_copy(
    fs: &dyn FileSystem,
    segment: &Path,
    target: &Path,
    pace: Pace<'_>,
) -> Result<(), FileError> {
    match fs.hard_link(segment, target) {
        Err(error) if Errno::from_io_error(&error).is_some_and(|it| NEEDS_COPY.contains(&it)) => {}
        linked => return linked.context("link", target),
    }
    let temporary = temporary(target);
    // A crash may have left a part of an earlier attempt.
    discard(fs, &temporary);
    let copied = copy(fs, segment, &temporary, pace)
        .and_then(|()| fs.rename(&temporary, target).context("rename", &temporary));
    if copied.is_err() {
        discard(fs, &temporary);
    }
    copied
}

fn copy(
    fs: &dyn FileSystem,
    segment: &Path,
    target: &Path,
    pace: Pace<'_>,
) -> Result<(), FileError> {
    let (source, size) = open(fs, segment)?;
    let copy = fs.create(target).context("create", target)?;
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

fn is_same(
    fs: &dyn FileSystem,
    one: &Path,
    other: &Path,
    pace: Pace<'_>,
) -> Result<bool, FileError> {
    let ((first, size), (second, other_size)) = (open(fs, one)?, open(fs, other)?);
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut offset = 0;
    while size == other_size && offset < size {
        read_chunk(&*first, &mut left, offset, size).context("read", one)?;
        read_chunk(&*second, &mut right, offset, size).context("read", other)?;
        if left != right {
            return Ok(false);
        }
        offset += left.len() as u64;
        pace(left.len());
    }
    Ok(size == other_size)
}

fn open(fs: &dyn FileSystem, path: &Path) -> Result<(Arc<dyn File>, u64), FileError> {
    let file = fs.open(path).context("open", path)?;
    let size = file.size().context("read", path)?;
    Ok((file, size))
}

fn read_chunk(file: &dyn File, into: &mut Vec<u8>, offset: u64, size: u64) -> io::Result<()> {
    into.resize((size - offset).min(COPY_BYTES as u64) as usize, 0);
    file.read_exact_at(into, offset)
}

fn discard(fs: &dyn FileSystem, path: &Path) {
    if fs.exists(path)
        && let Err(error) = fs.remove_file(path)
    {
        log::warn!("cannot remove {}: {error}", path.display());
    }
}
