//! What operators are told of hints.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What is kept for one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetStats {
    /// Whom it is kept for.
    pub target: IpAddr,
    /// Bytes that are not delivered.
    pub bytes: u64,
    /// About how many hints these are.
    pub hints: u64,
    /// When the oldest of them was stored, or one that was delivered shortly before: in
    /// milliseconds since the Unix epoch.
    pub oldest_ms: Option<u64>,
}

/// What became of hints since the start of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintStats {
    /// Hints that were stored.
    pub stored: u64,
    /// Bytes of these hints.
    pub stored_bytes: u64,
    /// Hints that were not stored because the log of the target had reached its limit.
    pub refused_full: u64,
    /// Hints that were not stored because the disk had no room.
    pub refused_no_space: u64,
    /// Hints that were not stored for another reason.
    pub failed: u64,
    /// Hints that were handed out for delivery, each counted once, and again when it was put aside.
    pub read: u64,
    /// Hints that were too old to be delivered. Where whole segments expire, about so many.
    pub expired: u64,
    /// Hints of column families that are not configured any more. One that concerns several is
    /// not delivered if it concerns such a one.
    pub unconfigured: u64,
    /// Bytes that were damaged and passed over, and those of whole files that cannot be read.
    pub damaged_bytes: u64,
    /// Bytes at the ends of logs that a crash had cut.
    pub torn_bytes: u64,
    /// Bytes of hints that were thrown away on request.
    pub discarded_bytes: u64,
}

/// The counters behind [`HintStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) stored: AtomicU64,
    pub(super) stored_bytes: AtomicU64,
    pub(super) refused_full: AtomicU64,
    pub(super) refused_no_space: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) unconfigured: AtomicU64,
    pub(super) damaged_bytes: AtomicU64,
    pub(super) torn_bytes: AtomicU64,
    pub(super) discarded_bytes: AtomicU64,
}

/// Counts so many more.
pub(super) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

impl Counters {
    /// The present values.
    pub(super) fn read_all(&self) -> HintStats {
        HintStats {
            stored: self.stored.load(Relaxed),
            stored_bytes: self.stored_bytes.load(Relaxed),
            refused_full: self.refused_full.load(Relaxed),
            refused_no_space: self.refused_no_space.load(Relaxed),
            failed: self.failed.load(Relaxed),
            read: self.read.load(Relaxed),
            expired: self.expired.load(Relaxed),
            unconfigured: self.unconfigured.load(Relaxed),
            damaged_bytes: self.damaged_bytes.load(Relaxed),
            torn_bytes: self.torn_bytes.load(Relaxed),
            discarded_bytes: self.discarded_bytes.load(Relaxed),
        }
    }
}
