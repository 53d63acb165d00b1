//! Progress of what takes long.

use crate::base::lock::{Mutex, rank};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the progress of a job while it runs.
#[derive(Debug, Default)]
pub(super) struct ProgressCounters {
    ranges: AtomicU64,
    ranges_done: AtomicU64,
    rows: AtomicU64,
    expected_rows: AtomicU64,
    bytes: AtomicU64,
}

/// Progress of a job at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Ranges of column families that are to be fetched, each from one node.
    pub ranges: u64,
    /// Those that are done.
    pub ranges_done: u64,
    /// Rows that have come or were hashed; one that came from several nodes counts as often.
    pub rows: u64,
    /// About how many rows are to be hashed.
    pub expected_rows: u64,
    /// Bytes of messages that have come.
    pub bytes: u64,
}

impl ProgressCounters {
    /// More ranges are to be fetched.
    pub(super) fn expect_ranges(&self, ranges: usize) {
        self.ranges.fetch_add(ranges as u64, Ordering::Relaxed);
    }

    /// About as many rows are to be hashed.
    pub(super) fn expect_rows(&self, rows: u64) {
        self.expected_rows.store(rows, Ordering::Relaxed);
    }

    /// Something has come.
    pub(super) fn add(&self, bytes: usize, rows: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// A range is done.
    pub(super) fn finish_range(&self) {
        self.ranges_done.fetch_add(1, Ordering::Relaxed);
    }

    /// Progress until now.
    pub(super) fn now(&self) -> Progress {
        let rows = self.rows.load(Ordering::Relaxed);
        let expected = self.expected_rows.load(Ordering::Relaxed);
        Progress {
            ranges: self.ranges.load(Ordering::Relaxed),
            ranges_done: self.ranges_done.load(Ordering::Relaxed),
            rows,
            expected_rows: if expected == 0 { 0 } else { expected.max(rows) },
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// Progress of the nodes that work for an operation.
#[derive(Debug, Default)]
pub(super) struct ProgressByNode(Mutex<rank::RepairProgress, BTreeMap<IpAddr, Progress>>);

impl ProgressByNode {
    pub(super) fn note(&self, node: IpAddr, progress: Progress) {
        let mut noted = self.0.lock();
        noted.insert(node, progress);
    }

    pub(super) fn now(&self) -> BTreeMap<IpAddr, Progress> {
        self.0.lock().clone()
    }

    /// Rows that all together have hashed, and about how many they are to hash.
    pub(super) fn rows(&self) -> (u64, u64) {
        let noted = self.0.lock();
        let add = |sum: (u64, u64), it: &Progress| {
            (sum.0.saturating_add(it.rows), sum.1.saturating_add(it.expected_rows))
        };
        noted.values().filter(|it| it.expected_rows > 0).fold((0, 0), add)
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }
}
