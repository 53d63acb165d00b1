//! Snapshots: folders of hard links to the SSTables that counted at one moment.
//!
//! ```text
//! <data directory>/<keyspace>/snapshots/<milliseconds since the Unix epoch>[-<tag>]/
//!     <family>-<generation>.sst    a hard link to an SSTable, in its own data directory
//!     <family>.manifest            which SSTables it has, and what of the commit log they hold
//! ```
//!
//! The manifest of a column family lies in the data directory in which its store keeps it. It names
//! exactly the files of the snapshot, so that copying the folder's files back is a restore.
//!
//! A snapshot is made in folders with a temporary name, which get their final name when everything
//! in them is durable. With several data directories that is one step for each; until the last one
//! is durable some folder still has its temporary name. So a snapshot counts if none of its folders
//! has, and the next start removes those of which one has. Removing one goes the same way back.

mod folders;
mod make;

pub use folders::{Snapshot, clear, find, keyspace_folder, list, tidy};
pub use make::{Captured, make};

use super::error::{FileError, ReadError};
use super::files::TEMPORARY_SUFFIX;
use std::fmt;

/// Why there is no snapshot. Nothing of it is left.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SnapshotError {
    /// The tag cannot be part of the name of a folder.
    #[error(transparent)]
    Tag(#[from] BadTag),
    /// There is no such keyspace.
    #[error("keyspace {0} does not exist")]
    UnknownKeyspace(String),
    /// A memtable could not be written to disk before.
    #[error("cannot flush before the snapshot: {0}")]
    Flush(#[from] ReadError),
    /// The disk refused.
    #[error("cannot make the snapshot: {0}")]
    File(#[from] FileError),
}

/// Longest tag in bytes; together with the time it fits the name of a folder.
const MAX_TAG_BYTES: usize = 200;

/// Why a text is no tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a snapshot's name must have 1 to {MAX_TAG_BYTES} bytes, without separators of paths or \
     control characters, and must not end in {TEMPORARY_SUFFIX}"
)]
pub struct BadTag;

/// Name that an operator gives to a snapshot; a part of the name of its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(String);

impl Tag {
    /// The tag of this text.
    pub fn new(text: &str) -> Result<Self, BadTag> {
        let is_usable = !text.is_empty()
            && text.len() <= MAX_TAG_BYTES
            && !text.contains(|c: char| matches!(c, '/' | '\\') || c.is_control())
            && !text.ends_with(TEMPORARY_SUFFIX);
        if is_usable { Ok(Self(text.to_owned())) } else { Err(BadTag) }
    }
}

/// The name of a snapshot, which is that of its folders: `<milliseconds>[-<tag>]`, as in 0.6. All
/// keyspaces of one call have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName {
    /// Time of the snapshot, in milliseconds since the Unix epoch.
    pub millis: u64,
    /// Name that the operator gave it.
    pub tag: Option<Tag>,
}

impl SnapshotName {
    /// The name that a folder has; `None` if it is not that of a finished snapshot.
    pub fn parse(folder: &str) -> Option<Self> {
        let (digits, tag) = match folder.split_once('-') {
            Some((digits, tag)) => (digits, Some(Tag::new(tag).ok()?)),
            None => (folder, None),
        };
        let millis: u64 = digits.parse().ok()?;
        (millis.to_string() == digits).then_some(Self { millis, tag })
    }

    /// Whether this text names the snapshot: by its whole name, or by its tag.
    pub fn is_meant_by(&self, text: &str) -> bool {
        self.tag.as_ref().is_some_and(|tag| tag.0 == text) || self.to_string() == text
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.millis)?;
        match &self.tag {
            Some(Tag(tag)) => write!(f, "-{tag}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> Tag {
        Tag::new(text).unwrap()
    }

    #[test]
    fn names_are_parsed_as_they_are_shown() {
        for (text, millis, tag) in [
            ("1290000000123", 1_290_000_000_123, None),
            ("1290000000123-a", 1_290_000_000_123, Some(tag("a"))),
            ("7-compact-Authors", 7, Some(tag("compact-Authors"))),
            ("0-größer.2", 0, Some(tag("größer.2"))),
        ] {
            let name = SnapshotName { millis, tag };
            assert_eq!(name.to_string(), text);
            assert_eq!(SnapshotName::parse(text), Some(name));
        }
        for foreign in ["", "a", "-a", "1-", "01", "+1", "1-a.tmp", "99999999999999999999", "old-1"]
        {
            assert_eq!(SnapshotName::parse(foreign), None, "{foreign}");
        }
        let name = SnapshotName::parse("7-a-b").unwrap();
        assert!(name.is_meant_by("7-a-b") && name.is_meant_by("a-b"));
        assert!(!name.is_meant_by("7") && !name.is_meant_by("a") && !name.is_meant_by(""));
        assert_eq!(Tag::new(&"x".repeat(201)), Err(BadTag));
    }
}
