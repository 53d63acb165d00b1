//! Key and row caches being saved, and filled after a start.

use std::fmt;
use std::time::Duration;

use log::Level;

use super::flush::Family;

/// Which of the caches of a column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CacheKind {
    /// The key cache: where rows are.
    Keys,
    /// The row cache.
    Rows,
}

impl fmt::Display for CacheKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys => "key",
            Self::Rows => "row",
        })
    }
}

/// Key and row caches and their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent {
    /// A cache was filled with what was saved before the start.
    Loaded {
        /// Whose cache it is.
        family: Family,
        /// Which of its caches.
        cache: CacheKind,
        /// How many keys were looked up.
        keys: u64,
        /// How long that took.
        took: Duration,
    },
    /// The file of a cache cannot be read to its end. What stands before is used.
    Unreadable {
        /// Whose cache it is.
        family: Family,
        /// Which of its caches.
        cache: CacheKind,
        /// What is wrong.
        reason: String,
    },
    /// The keys of a cache were saved.
    Saved {
        /// Whose cache it is.
        family: Family,
        /// Which of its caches.
        cache: CacheKind,
        /// How many keys there were.
        keys: u64,
        /// How long that took.
        took: Duration,
    },
    /// The keys of a cache could not be saved. What was saved before is still there.
    NotSaved {
        /// Whose cache it is.
        family: Family,
        /// Which of its caches.
        cache: CacheKind,
        /// What went wrong.
        reason: String,
    },
}

impl CacheEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Loaded { .. } => Level::Info,
            Self::Saved { .. } => Level::Debug,
            Self::Unreadable { .. } | Self::NotSaved { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for CacheEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loaded { family: Family { keyspace, name }, cache, keys, took } => write!(
                f,
                "completed loading ({} ms; {keys} keys) {cache} cache for {name} of {keyspace}",
                took.as_millis()
            ),
            Self::Unreadable { family, cache, reason } => {
                write!(f, "error reading saved {cache} cache of {family}: {reason}")
            }
            Self::Saved { family, cache, keys, took } => write!(
                f,
                "saved {keys} keys of the {cache} cache of {family} in {} ms",
                took.as_millis()
            ),
            Self::NotSaved { family, cache, reason } => {
                write!(f, "the {cache} cache of {family} is not saved: {reason}")
            }
        }
    }
}
