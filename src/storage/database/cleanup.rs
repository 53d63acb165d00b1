//! What a node does not keep: rows that other nodes own now, or all of a column family.

use super::super::background::FlushCause;
use super::super::compaction::lines::{self, Ended};
use super::super::compaction::{CompactionError, CompactionKind, Fate};
use super::super::family::{Claim, ColumnFamily};
use super::Core;
use crate::model::schema::FamilyId;
use crate::ring::RowRange;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a cleanup has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanupReport {
    /// SSTables that were written anew without some of their rows.
    pub rewritten: usize,
    /// SSTables of which nothing was kept.
    pub dropped: usize,
    /// SSTables of which everything is kept.
    pub left_alone: usize,
    /// Bytes of all of these before.
    pub bytes_before: u64,
    /// Bytes of what is left of them.
    pub bytes_after: u64,
    /// Whether it was given up before all was done.
    pub is_cut_short: bool,
}

impl Core {
    /// Drops the rows outside of these ranges before it returns, as far as they were written before
    /// the call: flushes, then writes those SSTables anew that have such rows, one after the other,
    /// the oldest first. What was done stays done after an error.
    ///
    /// Deletions stay that may be needed for what is kept. They go with the rows that are not kept,
    /// be it before what they delete: after an error such rows may have old columns again.
    pub fn cleanup(
        &self,
        family: FamilyId,
        keep: &[RowRange],
    ) -> Result<CleanupReport, CompactionError> {
        self.cleanup_while(family, keep, &|| true)
    }

    /// [`Self::cleanup`], which ends early as soon as the ranges are not those any more: what has
    /// been written since is not looked at.
    pub fn cleanup_while(
        &self,
        family: FamilyId,
        keep: &[RowRange],
        are_current: &dyn Fn() -> bool,
    ) -> Result<CleanupReport, CompactionError> {
        let store = self.family(family);
        let report = self.clean_tables(store, keep, are_current);
        store.remove_replaced();
        // What was claimed was no candidate.
        self.request_compaction(store);
        report
    }

    /// Drops everything that was written to a column family before the call, durably: neither its
    /// memtables nor its SSTables nor the commit log bring anything of it back. Snapshots stay.
    /// What is written meanwhile may be dropped as well. Waits for compactions of the family.
    pub fn discard_all(&self, family: FamilyId) -> Result<(), CompactionError> {
        let store = self.family(family);
        self.discard(store)?;
        store.remove_replaced();
        Ok(())
    }
}

impl Core {
    fn clean_tables(
        &self,
        store: &Arc<ColumnFamily>,
        keep: &[RowRange],
        are_current: &dyn Fn() -> bool,
    ) -> Result<CleanupReport, CompactionError> {
        check(store)?;
        self.flush_for(store, FlushCause::Request)?;
        let mut report = CleanupReport::default();
        // Compactions go on, and what they make may be of SSTables that were not looked at.
        let mut seen = BTreeSet::new();
        loop {
            let is_new = |generation| !seen.contains(&generation);
            let claim = store.claim_one(|table| is_new(table.generation()), &self.stopping)?;
            let Some(mut claim) = claim else { return Ok(report) };
            // Behind the claim: what came before a change of the ranges is claimed by now.
            if !are_current() {
                return Ok(CleanupReport { is_cut_short: true, ..report });
            }
            seen.extend(claim.tables().iter().map(|table| table.generation()));
            let is_first = report.rewritten + report.dropped == 0;
            seen.extend(self.clean(&mut claim, keep, is_first, &mut report)?);
            drop(claim);
            store.remove_replaced();
        }
    }

    /// Sees to one SSTable; returns the generations of what takes its place.
    fn clean(
        &self,
        claim: &mut Claim<'_>,
        keep: &[RowRange],
        is_first: bool,
        report: &mut CleanupReport,
    ) -> Result<Vec<u64>, CompactionError> {
        let (store, bytes) = (claim.store(), claim.bytes());
        let Some(table) = claim.tables().first() else { return Ok(Vec::new()) };
        let fate = Fate::of(table, keep, self.environment.partitioner)?;
        if fate != Fate::Stays && is_first {
            self.snapshot_before_compaction(store)?;
        }
        let new = match fate {
            Fate::Stays => {
                report.left_alone += 1;
                report.bytes_after += bytes;
                Vec::new()
            }
            Fate::Goes => {
                self.drop_claimed(claim)?;
                report.dropped += 1;
                Vec::new()
            }
            Fate::Shrinks => {
                let new = self.compactor.clean(claim, keep, &self.stopping)?;
                report.rewritten += 1;
                report.bytes_after += new.iter().map(|table| table.bytes).sum::<u64>();
                new
            }
        };
        report.bytes_before += bytes;
        Ok(new.into_iter().map(|table| table.generation).collect())
    }

    fn drop_claimed(&self, claim: &Claim<'_>) -> Result<(), CompactionError> {
        let (store, kind) = (claim.store(), CompactionKind::Cleanup);
        let begun = self.environment.clock.monotonic();
        lines::begins(store, kind, claim.tables());
        store.replace_dropping(claim.tables(), &[])?;
        let (outputs, bytes_in) = (Vec::new(), claim.bytes());
        lines::ended(store, &Ended { outputs, bytes_in, bytes_out: 0, rows: 0, began_at: begun });
        Ok(())
    }

    pub(super) fn discard(&self, store: &Arc<ColumnFamily>) -> Result<(), CompactionError> {
        let claim_all = || store.claim_all(&self.stopping).ok_or(CompactionError::Stopped);
        check(store)?;
        // While it waits under the lock no memtable of the family can be flushed.
        drop(claim_all()?);
        let _one_at_a_time = store.flush_lock();
        let claim = claim_all()?;
        let gate = store.close_gate();
        let position = self.log.position();
        let switched = store.switch_memtable();
        drop(gate);
        let log_end = self.sync_log_for(store.schema(), position);
        if let Some(memtable) = switched {
            self.tell_switched(store, &memtable, position, FlushCause::Request);
            memtable.seal(log_end);
        }
        let dropped = store.drop_all(claim.tables(), log_end);
        if let Err(error) = &dropped {
            // The memtable is full and has to go to disk after all.
            self.note_failed_flush(store, FlushCause::Request, error);
        }
        dropped?;
        drop(claim);
        self.after_flush(store, position);
        Ok(())
    }
}

fn check(store: &ColumnFamily) -> Result<(), CompactionError> {
    let Some(reason) = store.failure() else { return Ok(()) };
    let family = store.schema().to_string();
    Err(CompactionError::Refused { family, reason: reason.to_owned() })
}
