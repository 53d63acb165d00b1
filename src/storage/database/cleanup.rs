//! Drops rows that other nodes own now, or all rows of a column family.

use super::super::compaction::{CompactionError, CompactionKind, Fate, Plan};
use super::super::family::{Cause, Claim, ColumnFamily};
use super::super::flush_queue::FlushCause;
use super::Core;
use crate::model::schema::FamilyId;
use crate::ring::RowRange;
use std::collections::BTreeSet;

/// Result of a cleanup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanupReport {
    /// SSTables that were rewritten without some of their rows.
    pub rewritten: usize,
    /// SSTables of which nothing was kept.
    pub dropped: usize,
    /// SSTables of which everything is kept.
    pub left_alone: usize,
    /// Bytes of all of these before.
    pub bytes_before: u64,
    /// Bytes of what is left of them.
    pub bytes_after: u64,
    /// Whether it ended before all was done.
    pub is_cut_short: bool,
}

impl Core {
    /// Drops the rows outside of these ranges that were written before the call: flushes, then
    /// rewrites the SSTables with such rows, one after the other, the oldest first. Ends early as
    /// soon as the ranges are not current any more. After an error the finished part stays done.
    ///
    /// Deletions stay that may be needed for the rows that are kept. They go with the rows that
    /// are not kept, perhaps before what they delete: after an error such rows may have old columns
    /// again.
    pub fn cleanup(
        &self,
        id: FamilyId,
        keep: &[RowRange],
        are_current: &dyn Fn() -> bool,
    ) -> Result<CleanupReport, CompactionError> {
        let family = self.family(id);
        let report = self.clean_tables(family, keep, are_current);
        family.remove_replaced();
        // Claimed SSTables were no candidates.
        self.request_compaction(family);
        report
    }

    /// Drops everything that was written to a column family before the call, durably: neither
    /// memtables nor SSTables nor the commit log bring anything of it back. Snapshots stay.
    /// Concurrent writes may be dropped as well. Waits for compactions of the family.
    pub fn discard_all(&self, id: FamilyId) -> Result<(), CompactionError> {
        let family = self.family(id);
        family.check_sound()?;
        self.discard(family)?;
        family.remove_replaced();
        Ok(())
    }

    fn clean_tables(
        &self,
        family: &ColumnFamily,
        keep: &[RowRange],
        are_current: &dyn Fn() -> bool,
    ) -> Result<CleanupReport, CompactionError> {
        family.check_sound()?;
        self.flush_for(family, FlushCause::Request)?;
        let mut report = CleanupReport::default();
        // Compactions go on, and may merge SSTables that were not looked at yet.
        let mut seen = BTreeSet::new();
        loop {
            let is_new = |generation| !seen.contains(&generation);
            let claim = family.claim_one(|table| is_new(table.generation()), &self.stopping)?;
            let Some(mut claim) = claim else { return Ok(report) };
            // After the claim: all older SSTables than a change of the ranges are claimed by now.
            if !are_current() {
                return Ok(CleanupReport { is_cut_short: true, ..report });
            }
            seen.extend(claim.tables().iter().map(|table| table.generation()));
            seen.extend(self.clean(&mut claim, keep, &mut report)?);
            drop(claim);
            family.remove_replaced();
        }
    }

    /// Cleans one SSTable; returns the generations of its replacements.
    fn clean(
        &self,
        claim: &mut Claim<'_>,
        keep: &[RowRange],
        report: &mut CleanupReport,
    ) -> Result<Vec<u64>, CompactionError> {
        let (family, bytes) = (claim.family(), claim.bytes());
        let Some(table) = claim.tables().first() else { return Ok(Vec::new()) };
        let fate = Fate::of(table, keep)?;
        let is_first = report.rewritten + report.dropped == 0;
        if fate != Fate::Stays && is_first {
            self.snapshot_before_compaction(family)?;
        }
        let mut new = Vec::new();
        match fate {
            Fate::Stays => {
                report.left_alone += 1;
                report.bytes_after += bytes;
            }
            Fate::Goes => {
                let (kind, tables) = (CompactionKind::Cleanup, claim.tables());
                let job = self.compactor.begin(family, kind, tables);
                job.writes_nothing();
                job.tell_begin();
                family.exchange(tables, &[], Cause::RowsDropped)?;
                job.tell_end(&[], bytes, 0);
                report.dropped += 1;
            }
            Fate::Shrinks => {
                let plan = Plan::cleanup(table.level());
                new = self.compactor.compact(claim, plan, Some(keep))?;
                report.rewritten += 1;
                report.bytes_after += new.iter().map(|file| file.bytes).sum::<u64>();
            }
        }
        report.bytes_before += bytes;
        Ok(new.iter().map(|file| file.generation()).collect())
    }

    /// Drops everything that was written to a family before the call, even if it has failed.
    pub(super) fn discard(&self, family: &ColumnFamily) -> Result<(), CompactionError> {
        let claim_all = || family.claim_all(&self.stopping).ok_or(CompactionError::Stopped);
        // No memtable of the family can be flushed while this waits under the flush lock.
        drop(claim_all()?);
        let _one_at_a_time = family.flush_lock();
        let claim = claim_all()?;
        let gate = family.close_gate();
        let position = self.log.position();
        let switched = family.switch_memtable();
        drop(gate);
        let log_end = self.sync_log_for(family.schema(), position);
        if let Some(memtable) = switched {
            self.tell_switched(family, &memtable, position, FlushCause::Request);
            memtable.seal(log_end);
        }
        let dropped = family.exchange(claim.tables(), &[], Cause::AllDropped(log_end));
        // After an error the memtable is full and has to go to disk after all.
        dropped.inspect_err(|error| self.note_failed_flush(family, FlushCause::Request, error))?;
        drop(claim);
        self.flushes.forget(family.id());
        self.shortages.end(Some(family.id()));
        self.after_flush(family, position);
        Ok(())
    }
}
