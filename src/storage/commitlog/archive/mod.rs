//! Archive of the commit log: segments that the log has no use for any more, kept for a restore to
//! a point in time.
//!
//! An archive has a folder for each history of the node ([`History`]), with the segments of all of
//! its runs under their names. A segment comes there when it is complete, and the log removes it
//! only when it is there for good: as a hard link, or as a copy where the archive is on another
//! file system.

mod archiver;
mod copy;
mod history;
mod replay;

pub(super) use archiver::Archiver;
pub(super) use copy::Archive;
pub use copy::ArchiveError;
pub use history::{History, find_folder};
pub use replay::ArchiveReplay;

use super::files;
use crate::base::fs::FileSystem;
use crate::storage::error::FileContext;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ids of the segments in a directory, ascending; none if it does not exist.
pub fn segment_ids(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<u64>> {
    if !fs.exists(dir) {
        return Ok(Vec::new());
    }
    let entries = fs.list(dir)?.into_iter().filter(|entry| !entry.is_dir);
    let mut ids: Vec<u64> = entries.filter_map(|entry| files::segment_id(&entry.name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Segments of a log that nobody writes to, and files of segments that were never finished.
pub fn segment_files(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs.exists(dir) {
        return Ok(Vec::new());
    }
    let entries = fs.list(dir)?.into_iter().filter(|entry| !entry.is_dir);
    let ours = entries
        .filter(|it| files::segment_id(&it.name).is_some() || files::is_unfinished(&it.name));
    Ok(ours.map(|entry| dir.join(entry.name)).collect())
}

/// Brings the segments of a log that nobody writes to into an archive, durably. Returns how many
/// there are.
pub fn archive_all(
    fs: &Arc<dyn FileSystem>,
    log_dir: &Path,
    archive_dir: &Path,
) -> Result<usize, ArchiveError> {
    let ids = segment_ids(&**fs, log_dir).context("read", log_dir)?;
    let archive = Archive::new(Arc::clone(fs), archive_dir.to_owned());
    for id in &ids {
        let path = files::segment_path(log_dir, *id);
        // A process that was killed has left it to the system to write it to the disk.
        fs.open(&path).and_then(|file| file.sync()).context("sync", &path)?;
        archive.put(*id, &path, &mut |_| {})?;
    }
    Ok(ids.len())
}
