//! The events themselves. `Display` is the operator's log line: where 0.6 logged the same thing
//! the line keeps its words, so that old searches and alerts go on finding it.

use std::fmt;
use std::path::PathBuf;

use log::Level;

use super::cache::CacheEvent;
use super::commitlog::CommitLogEvent;
use super::compaction::CompactionEvent;
use super::disk::DiskEvent;
use super::flush::FlushEvent;
use super::snapshot::SnapshotEvent;
use super::sstable::SSTableEvent;

/// Something that happened in a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A memtable on its way to disk.
    Flush(FlushEvent),
    /// A merge of `SSTable` files.
    Compaction(CompactionEvent),
    /// The set of files of a column family.
    SSTable(SSTableEvent),
    /// A snapshot.
    Snapshot(SnapshotEvent),
    /// The commit log and its replay.
    CommitLog(CommitLogEvent),
    /// The disk, whoever used it.
    Disk(DiskEvent),
    /// Key and row caches and their files.
    Cache(CacheEvent),
}

impl Event {
    /// How loudly the log says it: `info` for a change of state that an operator may want to see
    /// a week later, `warn` for what needs a look, `error` for what needs a hand.
    pub fn level(&self) -> Level {
        match self {
            Self::Flush(_) | Self::Snapshot(_) => Level::Info,
            Self::Compaction(event) => event.level(),
            Self::SSTable(event) => event.level(),
            Self::CommitLog(event) => event.level(),
            Self::Disk(event) => event.level(),
            Self::Cache(event) => event.level(),
        }
    }

    /// The log target, by which an operator filters.
    pub fn target(&self) -> &'static str {
        match self {
            Self::Flush(_) => "alexandra::flush",
            Self::Compaction(_) => "alexandra::compaction",
            Self::SSTable(_) => "alexandra::sstable",
            Self::Snapshot(_) => "alexandra::snapshot",
            Self::CommitLog(_) => "alexandra::commitlog",
            Self::Disk(_) => "alexandra::disk",
            Self::Cache(_) => "alexandra::cache",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flush(event) => event.fmt(f),
            Self::Compaction(event) => event.fmt(f),
            Self::SSTable(event) => event.fmt(f),
            Self::Snapshot(event) => event.fmt(f),
            Self::CommitLog(event) => event.fmt(f),
            Self::Disk(event) => event.fmt(f),
            Self::Cache(event) => event.fmt(f),
        }
    }
}

macro_rules! event_from {
    ($($kind:ident($event:ty)),* $(,)?) => {
        $(impl From<$event> for Event {
            fn from(event: $event) -> Self {
                Self::$kind(event)
            }
        })*
    };
}

event_from! {
    Flush(FlushEvent),
    Compaction(CompactionEvent),
    SSTable(SSTableEvent),
    Snapshot(SnapshotEvent),
    CommitLog(CommitLogEvent),
    Disk(DiskEvent),
    Cache(CacheEvent),
}

/// Paths as the original listed them, separated by a comma and a blank.
pub(super) struct Paths<'a>(pub(super) &'a [PathBuf]);

impl fmt::Display for Paths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (i, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}
