//! Names of snapshots.

use crate::storage::files::TEMPORARY_SUFFIX;
use std::fmt;

/// Longest tag in bytes; together with the time it fits the name of a folder.
const MAX_TAG_BYTES: usize = 200;

/// Why a text is no tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a snapshot's name must have 1 to {MAX_TAG_BYTES} bytes, without separators of paths or \
     control characters, and must not end in {TEMPORARY_SUFFIX}"
)]
pub struct BadTag;

/// What an operator calls a snapshot; a part of the name of its folder.
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
    /// When it was taken, in milliseconds since the Unix epoch.
    pub millis: u64,
    /// What the operator called it.
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

    /// Whether an operator who says this means the snapshot: its whole name, or its tag.
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
