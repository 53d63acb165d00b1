//! What tells a commit log that is empty, since all of it was flushed, from one that is lost: the
//! directory may not be mounted, or the configuration name another one.
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

use super::commitlog::archive::segment_ids;
use super::commitlog::{KnownLog, Position};
use super::error::{FileContext, FileError};
use super::files::LOG_MARK_FILE;
use super::small_file;
use crate::base::fs::FileSystem;
use std::fmt;
use std::path::{Path, PathBuf};

const HEAD: &str = "alexandra commit log 2";
const NAMELESS_HEAD: &str = "alexandra commit log 1";

/// That a commit log exists which may hold what no SSTable does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogMark {
    /// Identity of the log, unless an older version has written the mark or it is damaged.
    pub log: Option<u64>,
    /// At least one segment is there that is not older. 0 if the file is damaged: then it is not
    /// known which. `None` if everything is flushed.
    pub segment: Option<u64>,
    /// Where it was; empty if that is not known.
    pub directory: String,
}

/// Which part of the commit log is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostLog {
    /// Where it was looked for.
    pub directory: PathBuf,
    /// What says that it should be there.
    pub mark: LogMark,
}

impl fmt::Display for LostLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, mark } = self;
        let directory = directory.display();
        write!(f, "the commit log is missing: {directory} holds no segment ")?;
        match mark.segment {
            None | Some(0) => f.write_str("at all")?,
            Some(segment) => write!(f, "from {segment} on")?,
        }
        f.write_str(
            ", but the server was not stopped in order, and what it acknowledged since its last \
             flushes is there alone",
        )?;
        if !mark.directory.is_empty()
            && *mark.directory != *small_file::on_one_line(&directory.to_string())
        {
            write!(f, ". It was in {}", mark.directory)?;
        }
        Ok(())
    }
}

impl LogMark {
    /// The mark in these data directories. One that is damaged still is one.
    pub fn find(
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
    ) -> Result<Option<Self>, FileError> {
        let mut found: Option<Self> = None;
        for path in data_directories.iter().map(|directory| directory.join(LOG_MARK_FILE)) {
            if !fs.try_exists(&path).context("look for", &path)? {
                continue;
            }
            let mark = Self::parse(&fs.read(&path).context("read", &path)?);
            if mark.is_none() {
                log::warn!("{} cannot be read, and is written anew", path.display());
            }
            let mark = mark.unwrap_or(Self { segment: Some(0), ..Self::default() });
            if found.as_ref().is_none_or(|found| found.segment < mark.segment) {
                found = Some(mark);
            }
        }
        Ok(found)
    }

    /// What is not there of the commit log in this directory, if something should be.
    pub fn find_loss(
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
        log_directory: &Path,
    ) -> Result<Option<LostLog>, FileError> {
        let Some(mark) = Self::find(fs, data_directories)? else { return Ok(None) };
        let newest = segment_ids(fs, log_directory).context("list", log_directory)?.pop();
        let is_lost = mark.segment.is_some_and(|first| newest.is_none_or(|it| it < first));
        Ok(is_lost.then(|| LostLog { directory: log_directory.to_owned(), mark }))
    }

    /// A mark of a log of this identity, whose present run begins with this segment.
    pub fn new(log: u64, segment: u64, log_directory: &Path) -> Self {
        let directory = small_file::on_one_line(&log_directory.display().to_string());
        Self { log: Some(log), segment: Some(segment), directory }
    }

    /// What these data directories know of the log, by how far each column family is flushed.
    pub fn known_log(
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
        flushed: impl Iterator<Item = Position> + Clone,
    ) -> Result<KnownLog, FileError> {
        // An offset that no file has stands for a whole segment, however long it is.
        let is_place = |position: &Position| position.offset < u64::MAX;
        Ok(KnownLog {
            flushed: flushed.clone().min().unwrap_or_default(),
            synced: flushed.filter(is_place).max().unwrap_or_default(),
            identity: Self::find(fs, data_directories)?.and_then(|mark| mark.log),
        })
    }

    /// Says durably that there is this log.
    pub fn store(
        &self,
        fs: &dyn FileSystem,
        data_directories: &[PathBuf],
    ) -> Result<(), FileError> {
        let (first, others) =
            data_directories.split_first().expect("a server has a data directory");
        let text = self.render();
        small_file::replace(fs, &first.join(LOG_MARK_FILE), text.as_bytes())?;
        // The directories may have changed places.
        Self::remove(fs, others)
    }

    /// Notes durably that no segment is needed any more. The log stays the one that it is.
    pub fn release(fs: &dyn FileSystem, data_directories: &[PathBuf]) -> Result<(), FileError> {
        let known = Self::find(fs, data_directories)?.filter(|mark| mark.log.is_some());
        let released = known.map(|mark| Self { segment: None, ..mark });
        let is_noted = released.is_some_and(|mark| mark.store(fs, data_directories).is_ok());
        // On a full disk a log that may be any is better than one that cannot be removed.
        if is_noted { Ok(()) } else { Self::remove(fs, data_directories) }
    }

    /// Takes the mark away, durably: any log will do from now on.
    pub fn remove(fs: &dyn FileSystem, data_directories: &[PathBuf]) -> Result<(), FileError> {
        for directory in data_directories {
            let path = directory.join(LOG_MARK_FILE);
            if fs.try_exists(&path).context("look for", &path)? {
                fs.remove_file(&path).context("remove", &path)?;
                fs.sync_dir(directory).context("sync", directory)?;
            }
        }
        Ok(())
    }

    fn render(&self) -> String {
        let Self { log, segment, directory } = self;
        let head = match log {
            Some(log) => format!("{HEAD}\nlog {log:016x}"),
            None => NAMELESS_HEAD.to_owned(),
        };
        let segment = segment.map_or_else(|| "none".to_owned(), |segment| segment.to_string());
        small_file::seal(&format!("{head}\nsegment {segment}\ndirectory {directory}\n"))
    }

    fn parse(content: &[u8]) -> Option<Self> {
        let lines: Vec<_> = small_file::unseal(content).ok()?.lines().collect();
        let (log, segment, directory) = match lines[..] {
            [NAMELESS_HEAD, segment, directory] => (None, segment, directory),
            [HEAD, log, segment, directory] => {
                let log = u64::from_str_radix(log.strip_prefix("log ")?, 16).ok()?;
                (Some(log), segment, directory)
            }
            _ => return None,
        };
        let segment = match segment.strip_prefix("segment ")? {
            "none" => None,
            number => Some(number.parse().ok()?),
        };
        Some(Self { log, segment, directory: directory.strip_prefix("directory ")?.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    fn directories() -> Vec<PathBuf> {
        vec!["/a".into(), "/b".into()]
    }

    fn disk() -> SimFileSystem {
        let fs = SimFileSystem::new(1);
        for directory in directories() {
            fs.create_dir_all(&directory).unwrap();
        }
        fs
    }

    #[test]
    fn a_mark_is_found_wherever_it_is_until_it_is_removed() {
        let (fs, mut directories) = (disk(), directories());
        assert_eq!(LogMark::find(&fs, &directories).unwrap(), None);
        for segment in [5, 3] {
            let mark = LogMark::new(7, segment, Path::new("/log\nwith a break"));
            mark.store(&fs, &directories).unwrap();
            assert_eq!(mark.directory, "/log\u{fffd}with a break");
            directories.reverse();
            assert_eq!(LogMark::find(&fs, &directories).unwrap(), Some(mark));
        }
        LogMark::remove(&fs, &directories).unwrap();
        assert_eq!(LogMark::find(&fs, &directories).unwrap(), None);
    }

    #[test]
    fn every_changed_bit_is_noticed_and_leaves_a_mark() {
        let mark = LogMark::new(u64::MAX / 3, 17, Path::new("/log"));
        let nameless = LogMark { log: None, ..mark.clone() };
        assert_eq!(LogMark::parse(nameless.render().as_bytes()), Some(nameless));
        let whole = mark.render().into_bytes();
        assert_eq!(LogMark::parse(&whole), Some(mark));
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(LogMark::parse(&damaged), None, "bit {bit} of byte {at}");
            }
            assert_eq!(LogMark::parse(&whole[..at]), None, "cut at {at}");
        }
        let fs = disk();
        fs.create(Path::new("/a/alexandra.commitlog")).unwrap();
        let lost = LogMark::find_loss(&fs, &directories(), Path::new("/log")).unwrap().unwrap();
        assert_eq!(lost.mark.segment, Some(0));
        assert!(lost.to_string().contains("/log holds no segment at all"), "{lost}");
    }
}
