//! Merges of files.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use log::Level;

use super::event::Paths;
use super::flush::Family;

/// What a compaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompactionKind {
    /// Some `SSTable` files of similar size.
    Minor,
    /// All `SSTable` files of the column family.
    Major,
    /// Drops rows that this node no longer owns.
    Cleanup,
    /// `SSTable` files whose deletions have outlived their grace period.
    Tombstones,
    /// Merges all `SSTable` files without writing anything, to compare them with other replicas.
    Validation,
}

impl fmt::Display for CompactionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Minor => "minor",
            Self::Major => "major",
            Self::Cleanup => "cleanup",
            Self::Tombstones => "tombstone",
            Self::Validation => "validation",
        })
    }
}

/// A merge of `SSTable` files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionEvent {
    /// The inputs are chosen and will be read.
    Begin {
        /// The column family.
        family: Family,
        /// What for.
        kind: CompactionKind,
        /// The data files that are merged.
        inputs: Vec<PathBuf>,
    },
    /// One that takes long has come so far.
    Progress {
        /// The column family.
        family: Family,
        /// What for.
        kind: CompactionKind,
        /// Bytes of the inputs that were read.
        bytes_read: u64,
        /// Bytes of the inputs.
        bytes_total: u64,
    },
    /// The disk has no room for the result of all inputs, but for that of the others.
    LeftOut {
        /// The column family.
        family: Family,
        /// The data files that are not merged.
        left_out: Vec<PathBuf>,
    },
    /// The disk has no room for the result of any two inputs. It is tried again later.
    NoRoom {
        /// The column family.
        family: Family,
        /// Bytes that have to be free.
        needed: u64,
    },
    /// The output has taken the place of the inputs.
    End {
        /// The column family.
        family: Family,
        /// What for.
        kind: CompactionKind,
        /// The data files written; none when nothing was left to keep.
        outputs: Vec<PathBuf>,
        /// Bytes of the inputs.
        bytes_in: u64,
        /// Bytes of the outputs.
        bytes_out: u64,
        /// Rows written.
        keys: u64,
        /// Time since the beginning.
        took: Duration,
    },
    /// It was given up; the inputs stay in place.
    Failed {
        /// The column family.
        family: Family,
        /// The error.
        reason: String,
    },
    /// A row above `RowWarningThresholdInMB` was written.
    LargeRow {
        /// The column family.
        family: Family,
        /// The row key, as text as far as it is text.
        key: String,
        /// Size of the row in bytes.
        bytes: u64,
    },
}

impl CompactionEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Begin { .. } | Self::Progress { .. } | Self::End { .. } => Level::Info,
            Self::LargeRow { .. } | Self::LeftOut { .. } | Self::NoRoom { .. } => Level::Warn,
            Self::Failed { .. } => Level::Error,
        }
    }
}

impl fmt::Display for CompactionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { family, kind, inputs } => {
                write!(f, "Compacting [{}] ({kind} compaction of {family})", Paths(inputs))
            }
            Self::End { outputs, bytes_in, bytes_out, keys, took, .. } => write!(
                f,
                "Compacted to {}.  {bytes_in}/{bytes_out} bytes for {keys} keys.  Time: {}ms",
                Paths(outputs),
                took.as_millis(),
            ),
            Self::Progress { family, kind, bytes_read, bytes_total } => write!(
                f,
                "Compacting {family} ({kind}): {bytes_read}/{bytes_total} bytes, {}%",
                u128::from(*bytes_read) * 100 / u128::from((*bytes_total).max(1)),
            ),
            Self::LeftOut { family, left_out } => write!(
                f,
                "insufficient space to compact all requested files of {family}: left out are {}",
                Paths(left_out),
            ),
            Self::NoRoom { family, needed } => write!(
                f,
                "insufficient space to compact {family}: {needed} bytes have to be free in a data \
                 directory. It is tried again by itself",
            ),
            Self::Failed { family, reason } => {
                write!(f, "Compaction of {family} failed, its SSTables stay as they are: {reason}")
            }
            Self::LargeRow { family, key, bytes } => {
                write!(f, "Large row {key} in {} {bytes} bytes", family.name)
            }
        }
    }
}
