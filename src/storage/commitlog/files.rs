//! Files of a commit log: their names, which nothing else builds or reads, and what is in a
//! directory.

use std::io;
use std::path::{Path, PathBuf};

use super::format::{HEADER_BYTES, HEADER_NUMBERS, Header};
use crate::base::fs::FileSystem;
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{TEMPORARY_SUFFIX, temporary};
use crate::storage::log::{Reason, SegmentReader, parse_number};

const PREFIX: &str = "CommitLog-";

/// Not the `.log` of 0.6, so that neither server takes the other's segments for its own.
const SUFFIX: &str = ".alog";

/// Suffix of segments of 0.6.
const ORIGINAL_SUFFIX: &str = ".log";

/// Returns the path of the segment of this id.
pub fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{id}{SUFFIX}"))
}

/// Returns the path of that segment while it is made.
pub(super) fn unfinished_path(dir: &Path, id: u64) -> PathBuf {
    temporary(&segment_path(dir, id))
}

/// Whether a file of this name is one that [`unfinished_path`] gives: it has never held a record.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).and_then(segment_id).is_some()
}

/// Returns the id in a file name; none for names that [`segment_path`] would not give.
pub(super) fn segment_id(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?)
}

/// Names of the files in a directory; none if it does not exist.
fn file_names(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<String>> {
    if !fs.try_exists(dir)? {
        return Ok(Vec::new());
    }
    let files = fs.list(dir)?.into_iter().filter(|entry| !entry.is_dir);
    Ok(files.map(|entry| entry.name).collect())
}

/// Ids of the segments in a directory, ascending; none if it does not exist.
pub fn segment_ids(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<u64>> {
    let names = file_names(fs, dir)?;
    let mut ids: Vec<u64> = names.iter().filter_map(|name| segment_id(name)).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Paths of the segments in a directory, and of those that were never finished.
pub fn segment_files(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = file_names(fs, dir)?.into_iter();
    let ours = names.filter(|name| segment_id(name).is_some() || is_unfinished(name));
    Ok(ours.map(|name| dir.join(name)).collect())
}

/// Whether a commit log directory holds segments: writes that may be in no SSTable yet. There are
/// none after an orderly stop.
pub fn holds_segments(fs: &dyn FileSystem, dir: &Path) -> bool {
    segment_ids(fs, dir).is_ok_and(|ids| !ids.is_empty())
}

/// Finds the first segment of Apache Cassandra in a directory, which may not exist: writes that
/// this log does not know.
pub fn segment_of_the_original(fs: &dyn FileSystem, dir: &Path) -> io::Result<Option<PathBuf>> {
    Ok(segments_of_the_original(fs, dir)?.into_iter().next())
}

/// Paths of the segments of Apache Cassandra in a directory, which may not exist, in the order in
/// which they were begun.
pub fn segments_of_the_original(fs: &dyn FileSystem, dir: &Path) -> io::Result<Vec<PathBuf>> {
    let names = file_names(fs, dir)?.into_iter();
    let mut found: Vec<_> = names.filter_map(|name| Some((time_in(&name)?, name))).collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, name)| dir.join(name)).collect())
}

/// Finds the first segment in a directory that says that it belongs to another log than this one.
pub fn segment_of_another_log(
    fs: &dyn FileSystem,
    dir: &Path,
    identity: u64,
) -> io::Result<Option<PathBuf>> {
    for id in segment_ids(fs, dir)? {
        let path = segment_path(dir, id);
        let mut reader = SegmentReader::new(fs.open(&path)?)?;
        let header = Header::decode(reader.header(HEADER_NUMBERS)?);
        if header.is_ok_and(|header| header.log().is_some_and(|log| log != identity)) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether a segment holds records besides those that the log writes about itself. A damaged one
/// counts as one that does.
pub fn holds_records(fs: &dyn FileSystem, dir: &Path, id: u64) -> Result<bool, FileError> {
    let path = segment_path(dir, id);
    let read = || {
        let mut reader = SegmentReader::new(fs.open(&path)?)?;
        let Ok(header) = Header::decode(reader.header(HEADER_NUMBERS)?) else { return Ok(true) };
        let mut at = HEADER_BYTES;
        loop {
            match reader.read(at, header.salt())? {
                Ok(record) if record.is_control => at = record.end,
                Ok(_) => return Ok(true),
                Err(reason) => return Ok(!matches!(reason, Reason::Zeroes | Reason::CutShort)),
            }
        }
    };
    read().context("read", &path)
}

/// Returns the time in the name of a segment of the original, in milliseconds.
fn time_in(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(ORIGINAL_SUFFIX)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;

    #[test]
    fn segments_of_the_original_are_in_the_order_of_their_times() {
        let (fs, dir) = (SimFileSystem::new(1), Path::new("log"));
        assert!(segments_of_the_original(&fs, dir).unwrap().is_empty());
        fs.create_dir_all(dir).unwrap();
        for name in ["CommitLog-10.log", "CommitLog-9.log", "CommitLog-8.alog", "notes.log"] {
            fs.create(&dir.join(name)).unwrap();
        }
        let paths = ["CommitLog-9.log", "CommitLog-10.log"].map(|name| dir.join(name));
        assert_eq!(segments_of_the_original(&fs, dir).unwrap(), paths);
        assert_eq!(segment_of_the_original(&fs, dir).unwrap().as_ref(), paths.first());
    }

    #[test]
    fn only_names_that_we_would_give_are_ours() {
        let path = segment_path(Path::new("/log"), 1_290_000_000_123);
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, "CommitLog-1290000000123.alog");
        assert_eq!(segment_id(name), Some(1_290_000_000_123));
        assert_eq!(segment_id("CommitLog-9223372036854775807.alog"), Some(i64::MAX as u64));
        assert_eq!(unfinished_path(Path::new("/log"), 7), Path::new("/log/CommitLog-7.alog.tmp"));
        assert!(is_unfinished("CommitLog-7.alog.tmp"));
        assert!(!is_unfinished(name) && !is_unfinished("notes.tmp"));
        assert_eq!(time_in("CommitLog-1290000000123.log"), Some(1_290_000_000_123));
        assert!(time_in(name).is_none() && time_in("notes.log").is_none());
        for foreign in [
            "CommitLog-1290000000123.log",
            "CommitLog-1290000000123.alog.bak",
            "CommitLog-1290000000123.alog.tmp",
            "CommitLog-01.alog",
            "CommitLog-+1.alog",
            "CommitLog-0.alog",
            "CommitLog-.alog",
            "CommitLog-9223372036854775808.alog",
            "commitlog-1.alog",
            "lost+found",
        ] {
            assert_eq!(segment_id(foreign), None, "{foreign}");
        }
    }
}
