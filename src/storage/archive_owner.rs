//! Whose an archive of the commit log is: a number in the archive and in a data directory of the
//! one server that writes to it. Segments of two servers in one archive would be replayed as one
//! log.
//!
//! ```text
//! alexandra archive owner 1
//! id <16 hexadecimal digits>
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use super::checked_file::{self, CheckedState, field};
use super::commitlog::archive::segment_ids;
use super::error::{FileContext, FileError, ReadError};
use super::files::ARCHIVE_OWNER_FILE;
use crate::base::fs::FileSystem;
use std::path::{Path, PathBuf};

/// Why an archive is not used.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// It is that of another server.
    #[error(
        "{} says that the archive of the commit log belongs to another server: name another \
         directory. If it is this server's own, and its data directories were made anew, remove \
         that file",
        .0.display()
    )]
    Foreign(PathBuf),
    /// It is not known whose it is.
    #[error(
        "{} cannot be read, which says whose the archive of the commit log is. If it is this \
         server's own, remove that file",
        .0.display()
    )]
    Unreadable(PathBuf),
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Refuses the archive of another server. Changes nothing. A server that has none yet may restore
/// from any.
pub fn check(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    archive: &Path,
) -> Result<(), OwnerError> {
    match (own(fs, data_directories)?, load(fs, archive)?) {
        (Some(own), Some(id)) if own != id => Err(foreign(archive)),
        _ => Ok(()),
    }
}

/// Makes the archive that of this server, durably, if it is not that of another; `chance` is the
/// number of a server that has none yet.
pub fn claim(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    archive: &Path,
    chance: u64,
) -> Result<(), OwnerError> {
    let (own, id) = (own(fs, data_directories)?, load(fs, archive)?);
    let path = archive.join(ARCHIVE_OWNER_FILE);
    let is_named = id.is_some() || fs.try_exists(&path).context("look for", &path)?;
    if is_named && (own.is_none() || id.is_none()) {
        let segments = segment_ids(fs, archive).context("list", archive)?;
        if !segments.is_empty() {
            let is_known = id.is_some();
            return Err(if is_known { foreign(archive) } else { OwnerError::Unreadable(path) });
        }
    }
    let claimed = own.or(id).unwrap_or(chance);
    if id.is_some_and(|id| id != claimed) {
        return Err(foreign(archive));
    }
    // First here: whoever has the number is the owner.
    if own.is_none() {
        store(fs, &data_directories[0], claimed)?;
    }
    if id.is_none() {
        store(fs, archive, claimed)?;
    }
    Ok(())
}

/// Makes this server the owner of the archive that it was restored from, if it has none yet.
pub fn adopt(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    archive: &Path,
) -> Result<(), FileError> {
    match (own(fs, data_directories)?, load(fs, archive)?) {
        (None, Some(id)) => store(fs, &data_directories[0], id),
        _ => Ok(()),
    }
}

fn foreign(archive: &Path) -> OwnerError {
    OwnerError::Foreign(archive.join(ARCHIVE_OWNER_FILE))
}

fn own(fs: &dyn FileSystem, data_directories: &[PathBuf]) -> Result<Option<u64>, FileError> {
    for directory in data_directories {
        if let Some(id) = load(fs, directory)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The number in a directory; none if it cannot be read.
fn load(fs: &dyn FileSystem, directory: &Path) -> Result<Option<u64>, FileError> {
    match checked_file::load(fs, &directory.join(ARCHIVE_OWNER_FILE)) {
        Ok(owner) => Ok(owner.map(|Owner(id)| id)),
        Err(ReadError::Io(error)) => Err(error),
        Err(error) => {
            log::warn!("{error}: it names the owner of an archive");
            Ok(None)
        }
    }
}

fn store(fs: &dyn FileSystem, directory: &Path, id: u64) -> Result<(), FileError> {
    checked_file::store_first(fs, &[directory.to_owned()], ARCHIVE_OWNER_FILE, &Owner(id))
}

#[derive(Debug, PartialEq, Eq)]
struct Owner(u64);

impl CheckedState for Owner {
    const KIND: &'static str = "archive owner";
    const VERSION: u32 = 1;

    fn encode(&self) -> String {
        format!("id {:016x}\n", self.0)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        u64::from_str_radix(field(lines, "id")?, 16).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    #[test]
    fn an_archive_has_one_owner() {
        let fs = SimFileSystem::new(1);
        let [one, other, archive, second] = ["/one", "/other", "/archive", "/second"];
        for directory in [one, other, archive, second] {
            fs.create_dir_all(Path::new(directory)).unwrap();
        }
        let [one, other] = [one, other].map(|directory| vec![PathBuf::from(directory)]);
        let [archive, second] = [archive, second].map(Path::new);
        claim(&fs, &one, archive, 1).unwrap();
        claim(&fs, &one, archive, 2).unwrap();
        claim(&fs, &one, second, 3).unwrap();
        fs.create(&archive.join("CommitLog-1.alog")).unwrap();
        // A new server must not write there, and may be restored from there.
        assert!(claim(&fs, &other, archive, 4).is_err());
        check(&fs, &other, archive).unwrap();
        adopt(&fs, &other, archive).unwrap();
        claim(&fs, &other, archive, 5).unwrap();
        let third = vec![PathBuf::from("/third")];
        fs.create_dir_all(&third[0]).unwrap();
        fs.create_dir_all(Path::new("/own")).unwrap();
        claim(&fs, &third, Path::new("/own"), 6).unwrap();
        assert!(claim(&fs, &third, archive, 7).is_err() && check(&fs, &third, archive).is_err());
        fs.remove_file(&archive.join(ARCHIVE_OWNER_FILE)).unwrap();
        claim(&fs, &third, archive, 8).unwrap();
        assert!(check(&fs, &one, archive).is_err());
        // Nobody knows whose it is, be it this server's own.
        fs.create(&archive.join("damaged")).unwrap();
        fs.rename(&archive.join("damaged"), &archive.join(ARCHIVE_OWNER_FILE)).unwrap();
        for server in [&one, &third] {
            let refused = claim(&fs, server, archive, 9);
            assert!(matches!(refused, Err(OwnerError::Unreadable(_))), "{refused:?}");
        }
        fs.remove_file(&archive.join(ARCHIVE_OWNER_FILE)).unwrap();
        claim(&fs, &third, archive, 9).unwrap();
    }
}
