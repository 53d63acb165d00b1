//! Segments of the commit log, and their replay.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use log::Level;

use super::event::Paths;

/// The commit log and its replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitLogEvent {
    /// A new segment takes the writes.
    SegmentCreated {
        /// The segment.
        file: PathBuf,
    },
    /// All data of a segment are in `SSTable` files; it is gone from the disk.
    SegmentDiscarded {
        /// The segment.
        file: PathBuf,
    },
    /// A file in the log's folder is none of ours and is left alone.
    StrayFile {
        /// The file.
        file: PathBuf,
    },
    /// The start of the node found segments to replay.
    ReplayBegin {
        /// The segments, in the order in which they will be read.
        files: Vec<PathBuf>,
    },
    /// One segment was read to its end.
    FileReplayed {
        /// The segment.
        file: PathBuf,
        /// Records applied.
        records: u64,
        /// Bytes of these records.
        bytes: u64,
    },
    /// A segment ends in a record that a crash cut short, which is normal: nobody was told that
    /// it had been written.
    TornTail {
        /// The segment.
        file: PathBuf,
        /// Where the cut record starts.
        offset: u64,
    },
    /// Damage was passed over, because the operator said so.
    LossAccepted {
        /// The segment.
        file: PathBuf,
        /// Where the damage starts.
        offset: u64,
        /// Bytes that are lost.
        bytes: u64,
        /// What is wrong.
        reason: String,
    },
    /// All segments were read.
    ReplayEnd {
        /// Records applied.
        records: u64,
        /// Bytes of these records.
        bytes: u64,
        /// Time since the beginning.
        took: Duration,
    },
}

impl CommitLogEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::StrayFile { .. } => Level::Warn,
            Self::LossAccepted { .. } => Level::Error,
            _ => Level::Info,
        }
    }
}

impl fmt::Display for CommitLogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SegmentCreated { file } => {
                write!(f, "Creating new commitlog segment {}", file.display())
            }
            Self::SegmentDiscarded { file } => {
                write!(f, "Discarding obsolete commit log:CommitLogSegment({})", file.display())
            }
            Self::StrayFile { file } => {
                write!(f, "{} is not a commit log segment and is left alone", file.display())
            }
            Self::ReplayBegin { files } => write!(f, "Replaying {}", Paths(files)),
            Self::FileReplayed { file, records, bytes } => {
                write!(f, "Finished reading {} ({records} records, {bytes} bytes)", file.display())
            }
            Self::TornTail { file, offset } => write!(
                f,
                "{} ends at byte {offset} in a record that was never acknowledged; it is dropped",
                file.display(),
            ),
            Self::LossAccepted { file, offset, bytes, reason } => write!(
                f,
                "Lost {bytes} bytes of {} from byte {offset} on, as accepted: {reason}",
                file.display(),
            ),
            Self::ReplayEnd { records, bytes, took } => write!(
                f,
                "Log replay complete, {records} records, {bytes} bytes.  Time: {}ms",
                took.as_millis(),
            ),
        }
    }
}
