//! The names of commit log files. Nothing else builds or reads one.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::fs::FileSystem;
use crate::storage::files::{TEMPORARY_SUFFIX, temporary};
use crate::storage::log::parse_number;

const PREFIX: &str = "CommitLog-";

/// Not the `.log` of 0.6, so that neither server takes the other's segments for its own.
const SUFFIX: &str = ".alog";

/// Suffix of segments of 0.6.
const ORIGINAL_SUFFIX: &str = ".log";

/// Path of the segment of this id.
pub(super) fn segment_path(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{PREFIX}{id}{SUFFIX}"))
}

/// Path of that segment while it is made.
pub(super) fn unfinished_path(dir: &Path, id: u64) -> PathBuf {
    temporary(&segment_path(dir, id))
}

/// Whether a file of this name is one that [`unfinished_path`] gives: it has never held a record.
pub(super) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(TEMPORARY_SUFFIX).and_then(segment_id).is_some()
}

/// The id that a file name stands for; none for every name that [`segment_path`] would not give.
pub(super) fn segment_id(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?)
}

/// Whether a commit log directory holds segments: writes that may be in no SSTable yet. There are
/// none after an orderly end.
pub fn holds_segments(fs: &dyn FileSystem, directory: &Path) -> bool {
    let entries = fs.list(directory).unwrap_or_default();
    entries.iter().any(|entry| segment_id(&entry.name).is_some())
}

/// The first segment of Apache Cassandra in a directory, which may not exist: writes that this log
/// does not know.
pub fn segment_of_the_original(
    fs: &dyn FileSystem,
    directory: &Path,
) -> io::Result<Option<PathBuf>> {
    if !fs.try_exists(directory)? {
        return Ok(None);
    }
    let names = fs.list(directory)?.into_iter().map(|entry| entry.name);
    let first = names.filter(|name| is_of_the_original(name)).min();
    Ok(first.map(|name| directory.join(name)))
}

fn is_of_the_original(name: &str) -> bool {
    let digits = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(ORIGINAL_SUFFIX));
    digits.is_some_and(|digits| digits.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(is_of_the_original("CommitLog-1290000000123.log"));
        assert!(!is_of_the_original(name) && !is_of_the_original("notes.log"));
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
