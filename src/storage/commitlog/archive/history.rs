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
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use crate::base::fs::FileSystem;
use crate::storage::checked_file::{self, CheckedState, field};
use crate::storage::directory;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::ARCHIVE_FILE;
use std::path::{Path, PathBuf};

/// A history of a node: what the commit log has held since a first start or a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Number of its folder: when it began, in milliseconds since the Unix epoch.
    number: u64,
    /// Whether the snapshot was taken with which it begins.
    pub has_snapshot: bool,
}

impl CheckedState for History {
    const KIND: &'static str = "archive";
    const VERSION: u32 = 2;

    fn encode(&self) -> String {
        let snapshot = if self.has_snapshot { "taken" } else { "due" };
        format!("folder {}\nsnapshot {snapshot}\n", self.number)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let number = parse_number(field(lines, "folder")?)?;
        let has_snapshot = match field(lines, "snapshot")? {
            "taken" => true,
            "due" => false,
            _ => return None,
        };
        Some(Self { number, has_snapshot })
    }
}

impl History {
    /// Finds the present history, if its folder is in this archive.
    pub fn present(
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
        archive: &Path,
    ) -> Result<Option<Self>, FileError> {
        let found = checked_file::load_first::<Self>(fs, data_directories, ARCHIVE_FILE)?;
        let Some(history) = found else { return Ok(None) };
        let folder = history.folder(archive);
        Ok(fs.try_exists(&folder).context("look for", &folder)?.then_some(history))
    }

    /// Makes the folder of a new history, durably. It is the newest one of the archive, whatever
    /// the clock says, and that of no other server.
    pub fn begin(fs: &dyn FileSystem, archive: &Path, millis: u64) -> Result<Self, FileError> {
        directory::create(fs, archive).context("create", archive)?;
        let newest = newest_number(fs, archive)?;
        let history =
            Self { number: millis.max(newest.map_or(0, |it| it + 1)), has_snapshot: false };
        let folder = history.folder(archive);
        directory::create(fs, &folder).context("create", &folder)?;
        Ok(history)
    }

    /// Notes durably that this is the present history.
    pub fn store(
        &self,
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
    ) -> Result<(), FileError> {
        checked_file::store_first(fs, data_directories, ARCHIVE_FILE, self)
    }

    /// Ends the present history: the next start begins another.
    pub fn end(fs: &dyn FileSystem, data_directories: &[PathBuf]) -> Result<(), FileError> {
        checked_file::remove(fs, data_directories, ARCHIVE_FILE)
    }

    /// Returns the same history, whose snapshot was taken.
    #[must_use]
    pub fn with_snapshot(self) -> Self {
        Self { has_snapshot: true, ..self }
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

/// Finds the folder with segments that a path stands for: the newest history of an archive, or the
/// folder itself.
pub fn find_folder(fs: &dyn FileSystem, path: &Path) -> Result<PathBuf, FileError> {
    let newest = newest_number(fs, path)?;
    Ok(newest.map_or_else(|| path.to_owned(), |number| path.join(number.to_string())))
}

fn newest_number(fs: &dyn FileSystem, archive: &Path) -> Result<Option<u64>, FileError> {
    let entries = fs.list(archive).context("list", archive)?;
    let folders = entries.into_iter().filter(|entry| entry.is_dir);
    Ok(folders.filter_map(|folder| parse_number(&folder.name)).max())
}

fn parse_number(digits: &str) -> Option<u64> {
    let number: u64 = digits.parse().ok()?;
    (number < u64::MAX && number.to_string() == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::storage::checked_file::tests::check_codec;

    #[test]
    fn no_two_histories_share_a_folder_and_the_newest_is_found() {
        let fs = SimFileSystem::new(1);
        let archive = Path::new("/archive");
        let servers: [Vec<PathBuf>; 2] = [vec!["/one".into()], vec!["/two".into()]];
        for directory in servers.iter().flatten() {
            fs.create_dir_all(directory).unwrap();
        }
        let present = |server: &[PathBuf]| History::present(&fs, server, archive).unwrap();
        // The clock stands still, and goes back.
        for (server, millis) in servers.iter().zip([1000, 900]) {
            assert_eq!(present(server), None);
            let history = History::begin(&fs, archive, millis).unwrap();
            history.store(&fs, server).unwrap();
            assert_eq!(present(server), Some(history));
        }
        let folders = servers.each_ref().map(|server| present(server).unwrap().folder(archive));
        assert_eq!(folders, [archive.join("1000"), archive.join("1001")]);
        assert_eq!(find_folder(&fs, archive).unwrap(), folders[1]);
        assert_eq!(find_folder(&fs, &folders[0]).unwrap(), folders[0]);
        // In another archive it is not continued.
        fs.create_dir_all(Path::new("/other")).unwrap();
        let elsewhere = History::present(&fs, &servers[0], Path::new("/other"));
        assert_eq!(elsewhere.unwrap(), None);
        History::end(&fs, &servers[0]).unwrap();
        assert_eq!(present(&servers[0]), None);
    }

    #[test]
    fn a_history_is_read_back_and_every_changed_bit_is_noticed() {
        for has_snapshot in [false, true] {
            check_codec(&History { number: 1_290_000_000_123, has_snapshot });
        }
    }
}
