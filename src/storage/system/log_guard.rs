//! Guard of the commit log: tells a log that is empty, since all of it was flushed, from one that
//! is lost. The directory may not be mounted, or the configuration name another one.
//!
//! A small file in a data directory says that there is a commit log, and from which segment on. It
//! is there before the first write is taken, and asks for no segment any more when everything is
//! flushed, before the last segment goes, so that at no moment it promises one that is not durable.
//! The identity of the log stays, and the next segments carry it: those of another server are
//! refused. Without the file any log will do.
//!
//! ```text
//! alexandra commit log 2
//! log <identity>             which all of its segments carry, in hexadecimal; not in version 1
//! segment <id>               the first one of the run: at least one that is not older is there;
//!                            "none" after an orderly stop: the log may be empty
//! directory <path>           where it was, for people to read
//! crc <CRC32 of all lines before, in hexadecimal>
//! ```

use crate::base::fs::FileSystem;
use crate::storage::checked_file::{self, CheckedState, field, on_one_line};
use crate::storage::commitlog::{KnownLog, Position, segment_ids};
use crate::storage::error::{FileContext, FileError, ReadError};
use crate::storage::files::LOG_GUARD_FILE;
use std::fmt;
use std::path::{Path, PathBuf};

/// Note that a commit log exists which may hold what no SSTable does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogGuard {
    /// Identity of the log, unless an older version has written the guard or it is damaged.
    pub log: Option<u64>,
    /// At least one segment is there that is not older. 0 if the file is damaged: then it is not
    /// known which. `None` if everything is flushed.
    pub segment: Option<u64>,
    /// Its path; empty if that is not known.
    pub directory: String,
}

/// A part of the commit log that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLog {
    /// The directory that lacks it.
    pub directory: PathBuf,
    /// Guard that says that it should be there.
    pub guard: LogGuard,
}

impl CheckedState for LogGuard {
    const KIND: &'static str = "commit log";
    const VERSION: u32 = 2;

    fn encode(&self) -> String {
        let log = self.log.map_or_else(String::new, |log| format!("log {log:016x}\n"));
        let segment = self.segment.map_or_else(|| "none".to_owned(), |it| it.to_string());
        format!("{log}segment {segment}\ndirectory {}\n", self.directory)
    }

    fn decode(_version: u32, lines: &str) -> Option<Self> {
        let log = field(lines, "log").map(|log| u64::from_str_radix(log, 16)).transpose().ok()?;
        let segment = match field(lines, "segment")? {
            "none" => None,
            number => Some(number.parse().ok()?),
        };
        Some(Self { log, segment, directory: field(lines, "directory")?.to_owned() })
    }
}

impl fmt::Display for LostLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, guard } = self;
        let directory = directory.display();
        write!(f, "the commit log is missing: {directory} holds no segment ")?;
        match guard.segment {
            None | Some(0) => f.write_str("at all")?,
            Some(segment) => write!(f, "from {segment} on")?,
        }
        f.write_str(
            ", but the server was not stopped in order, and what it acknowledged since its last \
             flushes is there alone",
        )?;
        if !guard.directory.is_empty() && guard.directory != on_one_line(&directory.to_string()) {
            write!(f, ". It was in {}", guard.directory)?;
        }
        Ok(())
    }
}

impl LogGuard {
    /// Returns a guard of a log of this identity, whose present run begins with this segment.
    pub fn new(log: u64, segment: u64, log_directory: &Path) -> Self {
        let directory = on_one_line(&log_directory.display().to_string());
        Self { log: Some(log), segment: Some(segment), directory }
    }

    /// Finds the guard in these data directories. One that is damaged still is one.
    pub fn find(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<Option<Self>, FileError> {
        let mut found: Option<Self> = None;
        for path in dirs.iter().map(|directory| directory.join(LOG_GUARD_FILE)) {
            let guard = match checked_file::load(fs, &path) {
                Ok(None) => continue,
                Ok(Some(guard)) => guard,
                Err(ReadError::Io(error)) => return Err(error),
                Err(error) => {
                    log::warn!("{error}. It is replaced");
                    Self { segment: Some(0), ..Self::default() }
                }
            };
            if found.as_ref().is_none_or(|found| found.segment < guard.segment) {
                found = Some(guard);
            }
        }
        Ok(found)
    }

    /// Returns which part of the commit log in this directory is missing, if any is.
    pub fn find_loss(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        log_directory: &Path,
    ) -> Result<Option<LostLog>, FileError> {
        let Some(guard) = Self::find(fs, dirs)? else { return Ok(None) };
        let newest = segment_ids(fs, log_directory).context("list", log_directory)?.pop();
        let is_lost = guard.segment.is_some_and(|first| newest.is_none_or(|it| it < first));
        Ok(is_lost.then(|| LostLog { directory: log_directory.to_owned(), guard }))
    }

    /// Returns what these data directories know of the log, by how far each column family is
    /// flushed.
    pub fn known_log(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        flushed: impl Iterator<Item = Position> + Clone,
    ) -> Result<KnownLog, FileError> {
        // An offset that no file has stands for a whole segment, however long it is.
        let is_place = |position: &Position| position.offset < u64::MAX;
        Ok(KnownLog {
            flushed: flushed.clone().min().unwrap_or_default(),
            synced: flushed.filter(is_place).max().unwrap_or_default(),
            identity: Self::find(fs, dirs)?.and_then(|guard| guard.log),
        })
    }

    /// Stores the guard durably.
    pub fn store(&self, fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<(), FileError> {
        checked_file::store_first(fs, dirs, LOG_GUARD_FILE, self)
    }

    /// Notes durably that no segment is needed any more. The log stays the one that it is.
    pub fn release(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<(), FileError> {
        let known = Self::find(fs, dirs)?.filter(|guard| guard.log.is_some());
        let released = known.map(|guard| Self { segment: None, ..guard });
        let is_noted = released.is_some_and(|guard| guard.store(fs, dirs).is_ok());
        // On a full disk a log that may be any is better than one that cannot be removed.
        if is_noted { Ok(()) } else { Self::remove(fs, dirs) }
    }

    /// Removes the guard durably: any log will do from now on.
    pub fn remove(fs: &dyn FileSystem, dirs: &[PathBuf]) -> Result<(), FileError> {
        checked_file::remove(fs, dirs, LOG_GUARD_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use crate::storage::checked_file::tests::{check_codec, read_lines};

    #[test]
    fn every_changed_bit_is_noticed_and_leaves_a_guard() {
        let guard = LogGuard::new(u64::MAX / 3, 17, Path::new("/log\nwith a break"));
        assert_eq!(guard.directory, "/log\u{fffd}with a break");
        check_codec(&guard);
        check_codec(&LogGuard { segment: None, ..guard });
        let nameless = "alexandra commit log 1\nsegment 17\ndirectory /log\n";
        let nameless = read_lines::<LogGuard>(nameless).unwrap();
        assert_eq!((nameless.log, nameless.segment), (None, Some(17)));

        let fs = SimFileSystem::new(1);
        let directories: Vec<PathBuf> = vec!["/a".into(), "/b".into()];
        for directory in &directories {
            fs.create_dir_all(directory).unwrap();
        }
        fs.create(Path::new("/b/alexandra.commitlog")).unwrap();
        let lost = LogGuard::find_loss(&fs, &directories, Path::new("/log")).unwrap().unwrap();
        assert_eq!(lost.guard.segment, Some(0));
        assert!(lost.to_string().contains("/log holds no segment at all"), "{lost}");
    }
}
