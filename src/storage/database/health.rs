//! Reasons why a node does not serve as it should, as far as its storage knows them.

use super::Core;
use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use crate::storage::commitlog::LogError;
use crate::storage::family::ColumnFamily;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;

/// A reason why a node does not serve as it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{text}")]
pub struct Trouble {
    /// Its kind, for programs.
    pub kind: TroubleKind,
    /// Its details, for operators.
    pub text: String,
}

/// The kinds of troubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TroubleKind {
    /// An operator has drained the node, or it is about to end.
    Drained,
    /// The other nodes have removed it from the ring: it serves no clients.
    Removed,
    /// It is no member of the ring: it is starting, joins or has left.
    Outside,
    /// Other nodes ignore it for its generation, and take it for dead.
    Refused,
    /// The commit log has stopped: no write is taken until the next start.
    LogStopped,
    /// The commit log has no room: no write is taken until there is some.
    NoRoom,
    /// A memtable cannot be written for lack of room or of file handles. Writes go on until the
    /// memory for memtables is used up.
    FlushWaits,
    /// The memory for memtables is used up, and none of them can be written: writes wait, and fail
    /// after their timeout.
    MemoryFull,
    /// A column family takes no writes until the next start.
    FamilyFailed,
    /// An SSTable has a damaged block. Reads of the rows in it fail.
    Damaged,
}

impl TroubleKind {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Drained,
        Self::Removed,
        Self::Outside,
        Self::Refused,
        Self::LogStopped,
        Self::NoRoom,
        Self::FlushWaits,
        Self::MemoryFull,
        Self::FamilyFailed,
        Self::Damaged,
    ];

    /// Whether writes are refused, all or those to a column family.
    pub fn refuses_writes(self) -> bool {
        !matches!(self, Self::Refused | Self::FlushWaits | Self::Damaged)
    }
}

/// Shortages that are not over: of the commit log, which has no column family, or of a flush.
#[derive(Debug, Default)]
pub(super) struct Shortages {
    reasons: Mutex<rank::State, BTreeMap<Option<FamilyId>, String>>,
}

impl Shortages {
    /// Notes a shortage of the commit log, and logs it if it is new.
    pub(super) fn log_is_full(&self, reason: &dyn fmt::Display) {
        self.begin(None, "writes are refused until there is room", reason);
    }

    /// Notes that a memtable waits to be written, and logs it if that is new.
    pub(super) fn flush_waits(&self, family: &ColumnFamily, reason: &dyn fmt::Display) {
        let what = format!("{}: its memtable waits to be written", family.schema());
        self.begin(Some(family.id()), &what, reason);
    }

    fn begin(&self, family: Option<FamilyId>, what: &str, reason: &dyn fmt::Display) {
        self.reasons.lock().entry(family).or_insert_with(|| {
            log::error!("{what}: {reason}");
            reason.to_string()
        });
    }

    /// Ends a shortage, and logs that.
    pub(super) fn end(&self, family: Option<FamilyId>) {
        if let Some(reason) = self.reasons.lock().remove(&family) {
            log::info!("this is over: {reason}");
        }
    }
}

impl Core {
    /// Ends the shortage of a commit log for which a segment can be made again. Free space does
    /// not tell, as there are quotas and limits, nor does a write that fits into the last segment.
    pub(super) fn look_for_room(&self) {
        let is_log_full = self.shortages.reasons.lock().contains_key(&None);
        if is_log_full && self.log.prepare_segment().is_ok() {
            self.shortages.end(None);
        }
    }

    /// Whether writes wait for memory that no flush can free.
    fn waits_for_memory(&self) -> bool {
        let used = self.environment.memtable_memory.load(Ordering::Relaxed);
        let waits = self.shortages.reasons.lock().keys().any(Option::is_some);
        waits && used > self.options.memtable_budget_bytes
    }
}

impl Core {
    /// The reasons why the node does not serve as it should.
    pub fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = Vec::new();
        let mut add = |kind, text: String| troubles.push(Trouble { kind, text });
        if self.stopping.load(Ordering::Relaxed) {
            let text = "drained: it takes no writes until it is started anew";
            add(TroubleKind::Drained, text.to_owned());
        }
        // A log that was closed in order is part of the drain.
        if let Some(failure) = self.log_failure().filter(|it| !matches!(it, LogError::Closed)) {
            add(TroubleKind::LogStopped, format!("takes no writes: {failure}"));
        }
        if self.waits_for_memory() {
            let text = "takes no writes: the memory for memtables is used up";
            add(TroubleKind::MemoryFull, text.to_owned());
        }
        for (family, reason) in &*self.shortages.reasons.lock() {
            match family {
                None => add(TroubleKind::NoRoom, format!("takes no writes: {reason}")),
                Some(family) => {
                    let family = self.family(*family).schema();
                    let text = format!("the memtable of {family} waits to be written: {reason}");
                    add(TroubleKind::FlushWaits, text);
                }
            }
        }
        for family in self.families() {
            if let Some(failure) = family.failure() {
                let text = format!("{} takes no writes: {failure}", family.schema());
                add(TroubleKind::FamilyFailed, text);
            }
            for table in family.view().tables.iter().filter(|table| table.is_damaged()) {
                let text = format!("{} is damaged", table.path().display());
                add(TroubleKind::Damaged, text);
            }
        }
        troubles
    }
}
