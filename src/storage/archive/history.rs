//! Histories of a node: the folders of an archive.
//!
//! Positions of the commit log only grow, while a restore leads back to the data of an earlier one.
//! So a restore ends a history, and the next start begins another in a folder of its own. A file in
//! a data directory names the folder of the present history:
//!
//! ```text
//! alexandra archive 2
//! folder <name>          the time of its beginning, in milliseconds since the Unix epoch
//! snapshot taken|due     whether there is the snapshot with which the history begins
//! directory <path>       the archive; earlier builds did not note it
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use super::copy::ArchiveError;
use crate::base::fs::FileSystem;
use crate::storage::checked_file::{self, CheckedState, field, on_one_line};
use crate::storage::commitlog::{holds_records, segment_ids};
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::ARCHIVE_FILE;
use std::path::{Path, PathBuf};

/// The commit log of a node since a first start or a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Number of its folder: when it began, in milliseconds since the Unix epoch.
    number: u64,
    /// Whether the snapshot was taken with which it begins.
    pub has_snapshot: bool,
    /// Path of the archive; empty if it is not known.
    directory: String,
}

impl CheckedState for History {
    const KIND: &'static str = "archive";
    const VERSION: u32 = 2;

    fn encode(&self) -> String {
        let Self { number, has_snapshot, directory } = self;
        let snapshot = if *has_snapshot { "taken" } else { "due" };
        format!("folder {number}\nsnapshot {snapshot}\ndirectory {directory}\n")
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let has_snapshot = match field(lines, "snapshot")? {
            "taken" => true,
            "due" => false,
            _ => return None,
        };
        let number = parse_number(field(lines, "folder")?)?;
        let directory = field(lines, "directory").unwrap_or_default().to_owned();
        Some(Self { number, has_snapshot, directory })
    }
}

impl History {
    fn load(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<Option<Self>, FileError> {
        checked_file::load_first(fs, dirs, ARCHIVE_FILE)
    }

    /// Finds the present history, if its folder is in this archive.
    pub fn present(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        archive: &Path,
    ) -> Result<Option<Self>, FileError> {
        let Some(history) = Self::load(fs, dirs)? else { return Ok(None) };
        let folder = history.folder(archive);
        Ok(fs.try_exists(&folder).context("look for", &folder)?.then_some(history))
    }

    /// Returns a new history. Its folder, which is not made yet, is the newest one of the archive,
    /// whatever the clock says, and that of no other server.
    pub fn new(fs: &dyn FileSystem, archive: &Path, millis: u64) -> Result<Self, FileError> {
        let newest = newest_number(fs, archive)?;
        let number = millis.max(newest.map_or(0, |it| it + 1));
        Ok(Self { number, has_snapshot: false, directory: text_of(archive) })
    }

    /// Finds the history that the commit log continues in this archive: none if its folder belongs
    /// to another archive, or holds records of later segments than this one. Then the data
    /// directories were put back from an older backup.
    pub fn to_continue(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        archive: &Path,
        newest_segment: u64,
    ) -> Result<Option<Self>, ArchiveError> {
        let Some(history) = Self::load(fs, dirs)? else { return Ok(None) };
        let folder = history.folder(archive);
        if !fs.try_exists(&folder).context("look for", &folder)? {
            if history.directory == text_of(archive) {
                return Err(ArchiveError::Missing(folder));
            }
            log::warn!("{} is not there: a new folder of the archive begins", folder.display());
            return Ok(None);
        }
        let ids = segment_ids(fs, &folder).context("list", &folder)?;
        for id in ids.into_iter().filter(|id| *id > newest_segment) {
            if holds_records(fs, &folder, id)? {
                log::warn!(
                    "{} holds segment {id}, which is later than all that the data directories \
                     know: a new folder of the archive begins",
                    folder.display()
                );
                return Ok(None);
            }
        }
        let known = Self { directory: text_of(archive), ..history.clone() };
        if known != history
            && let Err(error) = known.store(fs, dirs)
        {
            log::warn!("should {} not be mounted, nothing will notice: {error}", archive.display());
        }
        Ok(Some(known))
    }

    /// Makes its folder, durably, and notes durably that it is the present history.
    pub fn begin(
        &self,
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        archive: &Path,
    ) -> Result<(), FileError> {
        let folder = self.folder(archive);
        directory::create(fs, &folder).context("create", &folder)?;
        self.store(fs, dirs)
    }

    /// Notes durably that this is the present history.
    pub fn store(&self, fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<(), FileError> {
        checked_file::store_first(fs, dirs, ARCHIVE_FILE, self)
    }

    /// Ends the present history: the next start begins another.
    pub fn end(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<(), FileError> {
        checked_file::remove(fs, dirs, ARCHIVE_FILE)
    }

    /// Returns its folder in the archive.
    pub fn folder(&self, archive: &Path) -> PathBuf {
        archive.join(self.number.to_string())
    }

    /// Returns the tag of the snapshot with which it begins.
    pub fn tag(&self) -> String {
        format!("archive-{}", self.number)
    }
}

/// Finds the folder with segments that a path stands for: the present history or else the newest
/// one of an archive, or the folder itself.
pub fn find_folder(
    fs: &dyn FileSystem,
    dirs: &[PathBuf],
    path: &Path,
) -> Result<PathBuf, FileError> {
    if let Some(history) = History::present(fs, dirs, path)? {
        return Ok(history.folder(path));
    }
    let newest = newest_number(fs, path)?;
    Ok(newest.map_or_else(|| path.to_owned(), |number| path.join(number.to_string())))
}

fn newest_number(fs: &dyn FileSystem, archive: &Path) -> Result<Option<u64>, FileError> {
    let entries = fs.list(archive).context("list", archive)?;
    let folders = entries.into_iter().filter(|entry| entry.is_dir);
    Ok(folders.filter_map(|folder| parse_number(&folder.name)).max())
}

fn text_of(archive: &Path) -> String {
    on_one_line(&archive.display().to_string())
}

fn parse_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number < u64::MAX && number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::storage::checked_file::tests::{check_codec, read_lines};

    #[test]
    fn no_two_histories_share_a_folder_and_the_own_one_is_found() {
        let fs = SimFileSystem::new(1);
        let archive = Path::new("/archive");
        let servers: [Vec<PathBuf>; 3] =
            [vec!["/one".into()], vec!["/two".into()], vec!["/three".into()]];
        for directory in servers.iter().flatten().map(PathBuf::as_path).chain([archive]) {
            fs.create_dir_all(directory).unwrap();
        }
        let present = |server: &[PathBuf]| History::present(&fs, server, archive).unwrap();
        // The clock stands still, and goes back.
        for (server, millis) in servers.iter().zip([1000, 900]) {
            assert_eq!(present(server), None);
            let history = History::new(&fs, archive, millis).unwrap();
            history.begin(&fs, server, archive).unwrap();
            assert_eq!(present(server), Some(history));
        }
        let find = |server: usize, path: &Path| find_folder(&fs, &servers[server], path).unwrap();
        let folders = [archive.join("1000"), archive.join("1001")];
        assert_eq!([find(0, archive), find(1, archive)], folders, "its own, not the newest");
        assert_eq!(find(2, archive), folders[1]);
        assert_eq!(find(1, &folders[0]), folders[0]);
        // In another archive it is not continued.
        fs.create_dir_all(Path::new("/other")).unwrap();
        let elsewhere = History::present(&fs, &servers[0], Path::new("/other"));
        assert_eq!(elsewhere.unwrap(), None);
        let to_continue = |path| History::to_continue(&fs, &servers[0], Path::new(path), 0);
        assert_eq!(to_continue("/archive").unwrap(), present(&servers[0]));
        assert_eq!(to_continue("/other").unwrap(), None);
        // Not mounted.
        fs.remove_dir(&folders[0]).unwrap();
        assert!(matches!(to_continue("/archive"), Err(ArchiveError::Missing(_))));
        History::end(&fs, &servers[0]).unwrap();
        assert_eq!(present(&servers[0]), None);
    }

    #[test]
    fn a_history_is_read_back_and_every_changed_bit_is_noticed() {
        for has_snapshot in [false, true] {
            let directory = "/archive".to_owned();
            check_codec(&History { number: 1_290_000_000_123, has_snapshot, directory });
        }
        let old = read_lines::<History>("alexandra archive 2\nfolder 7\nsnapshot due\n").unwrap();
        assert_eq!((old.number, &*old.directory), (7, ""));
    }
}
