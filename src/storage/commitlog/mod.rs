//! The commit log: what has been written and is not yet flushed.
//!
//! One log serves all column families. [`replay()`] reads what earlier runs of the program have
//! left, [`CommitLog::open`] starts a new run after it, [`CommitLog::append_all`] takes records
//! and returns when the operating system has them, so that the end of the process loses nothing.
//! One thread makes records durable, by period or in batches ([`SyncPolicy`]).
//!
//! # Segments
//!
//! The log is a sequence of files of a fixed, preallocated size, which are segments of a
//! [record log](crate::storage::log); `format.rs` draws what is in them.
//! A *run* is what one start of the program writes. Ids grow, within a run by one. The next
//! segment is made by the sync thread when the active one is half full: file, header and
//! directory entry are durable before a record is written into it, and a full disk is noticed
//! there, where no record is at risk: the append fails and the log stays usable. Until its header
//! is durable the file has a temporary name. A failed write
//! or sync stops the log for good.
//!
//! For each segment the log knows which families have unflushed data in it. A segment
//! without any is removed ([`CommitLog::discard_completed`]), be there older ones or not.
//!
//! # Full disks
//!
//! A removal has to be noted first, so each segment keeps room for one list of the segments that
//! are needed. What does not fit there goes to a new segment, a small one if the disk has no room
//! for another. When there is none for a record the log removes what it can, and even leaves an
//! active segment in which all is flushed. A start needs no more than a small segment; for one
//! without even that, the caller passes to [`replay()`] up to where everything is flushed, and the
//! segments before are not missed: they can be removed without a list.
//!
//! # What replay can know
//!
//! A crash may leave the tail of the log in any state: of what was never synced, any part may be
//! on disk, in any order. That is normal. The same sight further up would be damage, and starting
//! over it would lose acknowledged writes in silence. So the log writes down what it knows:
//!
//! * After each sync a *synced* record says how far this run is durable. It becomes durable
//!   itself with the next sync, or when the operating system writes it back (after a mere end of
//!   the process it is there at once). An unreadable part that begins before the greatest such
//!   position of its run is damage; after it, it is torn. The last sync before a power loss may
//!   thus be unknown: damage to exactly those records would look torn. That is the price of not
//!   syncing twice.
//! * A record of moderate length that one flipped bit would make valid is damaged wherever it
//!   stands: no crash does that (`flipped.rs`).
//! * The last record of a segment is its *seal*, which names the next segment; a segment that
//!   must be durable and has no seal was cut.
//! * The header of a segment says how large the file was made. Only after a durable seal is it
//!   ever cut, so that one that is shorter and has no seal was truncated by somebody else, as was
//!   one that is too short for its header; what it held cannot be known, and that is damage.
//! * The first record of a segment, and one before each removal, lists the segments that are
//!   *needed*. Only when the list is durable are the others removed. So the newest list tells a
//!   lost segment from a discarded one, and a discarded one that came back after a power loss
//!   from one to be replayed.
//!
//! Synced records speak of their own run only. The tail that a crash has torn therefore stays
//! torn, and is not taken for damage, when the runs after it crash in their turn before it was
//! flushed; new runs never write to old segments, but replay syncs them once before it delivers
//! anything, because what has been replayed from the page cache must not get lost with the power
//! later.
//!
//! After an unreadable part replay looks for the next valid record and goes on there: a record
//! that survived in a torn tail was acknowledged like the others. Records cannot be mistaken,
//! because each is tied to its place by a number drawn for its segment.
//!
//! After a clean [`CommitLog::close`] everything is known to be durable, the seal included.
//!
//! # Archive
//!
//! With an archive ([`super::archive`]) a segment is removed only when the archive has it for good.
//! Two things in the log are there for those who read it over many runs. *Time* records, ten in a
//! second if anything is written, tell when what follows was written. The header of a segment says
//! which segment was the last one of the runs before, so that a run that is missing as a whole is
//! noticed.

mod appender;
mod error;
mod files;
mod flipped;
mod format;
mod live;
mod log;
mod replay;
mod segment;
mod signal;
mod survey;
mod syncer;

#[cfg(test)]
mod tests;

pub(super) use self::appender::Appender;
pub use self::error::{Damage, LogError, ReplayError};
pub use self::files::{
    holds_records, holds_segments, segment_files, segment_ids, segment_of_another_log,
    segment_of_the_original, segment_path, segments_of_the_original,
};
pub(super) use self::format::TIME_BYTES;
pub use self::live::OldestDirty;
pub use self::log::{CommitLog, LogOptions, SyncPolicy};
pub(super) use self::replay::deliver;
pub use self::replay::{Apply, KnownLog, Replayed, ReplayedSegment, replay};
pub use self::signal::SyncCallback;
pub(super) use self::survey::{Survey, Surveyed, durable_positions};

/// A place in the log. That of a record is where it ends, so that `position <= synced` says that
/// the record is durable, and what is appended after [`CommitLog::position`] was asked is greater
/// than the answer. Positions grow over all runs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display,
)]
#[display("{segment}:{offset}")]
pub struct Position {
    /// Id of the segment.
    pub segment: u64,
    /// Offset in the segment, in bytes.
    pub offset: u64,
}
