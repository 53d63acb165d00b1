//! How far something is that takes long.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How far the fetching of some ranges is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    ranges: AtomicUsize,
    ranges_done: AtomicUsize,
    bytes: AtomicU64,
    rows: AtomicU64,
}

/// How far the fetching of some ranges is at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Ranges of column families that are to be fetched, each from one node.
    pub ranges: usize,
    /// Those that are done.
    pub ranges_done: usize,
    /// Bytes of messages that have come.
    pub bytes: u64,
    /// Rows that have come; one that came in parts or from several nodes counts as often.
    pub rows: u64,
}

impl Progress {
    /// So many ranges more.
    pub(super) fn expect(&self, ranges: usize) {
        self.ranges.fetch_add(ranges, Ordering::Relaxed);
    }

    /// So much more has come.
    pub(super) fn add(&self, bytes: usize, rows: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// A range is done.
    pub(super) fn finish_range(&self) {
        self.ranges_done.fetch_add(1, Ordering::Relaxed);
    }

    /// How far it is now.
    pub(super) fn now(&self) -> Fetched {
        Fetched {
            ranges: self.ranges.load(Ordering::Relaxed),
            ranges_done: self.ranges_done.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
        }
    }
}
