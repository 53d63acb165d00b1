//! Progress of long work.

use crate::base::lock::{Mutex, rank};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Progress of a job at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Ranges of column families to fetch, each from one node.
    pub ranges: u64,
    /// Fetched ranges.
    pub ranges_done: u64,
    /// Fetched or hashed rows. A row that came from several nodes counts as often.
    pub rows: u64,
    /// Estimated number of rows to hash.
    #[serde(skip)]
    pub expected_rows: u64,
    /// Bytes of received messages.
    pub bytes: u64,
}

/// Counts the progress of a job while it runs.
#[derive(Debug, Default)]
pub(super) struct ProgressCounters(Mutex<rank::State, Progress>);

impl ProgressCounters {
    /// Adds ranges to fetch.
    pub(super) fn expect_ranges(&self, ranges: usize) {
        self.0.lock().ranges += ranges as u64;
    }

    /// Sets the estimated number of rows to hash.
    pub(super) fn expect_rows(&self, rows: u64) {
        self.0.lock().expected_rows = rows;
    }

    /// Adds received bytes and rows.
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

    pub(super) fn now(&self) -> Progress {
        *self.0.lock()
    }
}

/// Progress of the nodes that work for an operation.
#[derive(Debug, Default)]
pub(super) struct ProgressByNode(Mutex<rank::State, BTreeMap<IpAddr, Progress>>);

impl ProgressByNode {
    pub(super) fn note(&self, node: IpAddr, progress: Progress) {
        self.0.lock().insert(node, progress);
    }

    pub(super) fn now(&self) -> BTreeMap<IpAddr, Progress> {
        self.0.lock().clone()
    }

    /// Hashed rows of all nodes together, and their estimated number.
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
