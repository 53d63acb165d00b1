//! Progress of what takes long.

use crate::base::lock::{Mutex, rank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Progress of a job at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Ranges of column families that are to be fetched, each from one node.
    pub ranges: u64,
    /// Those that are done.
    pub ranges_done: u64,
    /// Rows that have come or were hashed; one that came from several nodes counts as often.
    pub rows: u64,
    /// About how many rows are to be hashed.
    #[serde(skip)]
    pub expected_rows: u64,
    /// Bytes of messages that have come.
    pub bytes: u64,
}

/// Counts the progress of a job while it runs.
#[derive(Debug, Default)]
pub(super) struct ProgressCounters(Mutex<rank::State, Progress>);

impl ProgressCounters {
    /// More ranges are to be fetched.
    pub(super) fn expect_ranges(&self, ranges: usize) {
        self.0.lock().ranges += ranges as u64;
    }

    /// About as many rows are to be hashed.
    pub(super) fn expect_rows(&self, rows: u64) {
        self.0.lock().expected_rows = rows;
    }

    /// Something has come.
    pub(super) fn add(&self, bytes: usize, rows: usize) {
        let mut now = self.0.lock();
        now.bytes += bytes as u64;
        now.rows += rows as u64;
        if now.expected_rows > 0 {
            now.expected_rows = now.expected_rows.max(now.rows);
        }
    }

    pub(super) fn finish_range(&self) {
        self.0.lock().ranges_done += 1;
    }

    /// Progress until now.
    pub(super) fn now(&self) -> Progress {
        *self.0.lock()
    }
}

/// Progress of the nodes that work for an operation.
#[derive(Debug, Default)]
pub(super) struct ProgressByNode(Mutex<rank::State, BTreeMap<IpAddr, Progress>>);

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
