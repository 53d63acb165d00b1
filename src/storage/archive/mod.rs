//! Archive of the commit log: segments that the log has no use for any more, kept for a restore to
//! a point in time.
//!
//! An archive has a folder for each history of the node ([`History`]), with the segments of all of
//! its runs under their names. A segment comes there when it is complete, as a hard link, or as a
//! copy where the archive is on another file system. The log removes it only when it is durable
//! there.

mod archiver;
mod copy;
mod history;
mod replay;

pub(super) use archiver::Archiver;
pub use copy::{ArchiveError, archive_all};
pub use history::{History, find_folder};
pub use replay::ArchiveReplay;
