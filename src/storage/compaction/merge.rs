//! Merges SSTables, row by row and cell by cell, in memory that does not grow with them.

use super::job::{CompactionError, Compactor, Job, TARGET, listed};
use super::strategy::Plan;
use crate::model::slice::CellRange;
use crate::model::visibility::Purge;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::error::ReadError;
use crate::storage::family::{Cause, Claim, ColumnFamily, MergeNotes, View, rows_after_merge};
use crate::storage::row::{RowReader, RowSources};
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Outputs, SsTable, SsTableWriter, WrittenFile, filter};
use log::Level;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Compactor {
    /// Merges the claimed SSTables into new ones, which are returned; without the rows outside of
    /// the ranges of `keep`, if there are any. If there is no room for all, the largest inputs are
    /// left out as long as there are two others.
    pub fn compact(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
        keep: Option<&[RowRange]>,
    ) -> Result<Vec<WrittenFile>, CompactionError> {
        let result = self.try_compact(claim, plan, keep);
        match &result {
            Ok(new) => {
                let mut totals = self.totals.lock();
                totals.completed += 1;
                totals.bytes_in += claim.bytes();
                totals.bytes_out += new.iter().map(|file| file.bytes).sum::<u64>();
            }
            Err(CompactionError::Stopped | CompactionError::Cancelled) => {}
            Err(error) => {
                self.totals.lock().failed += 1;
                if let CompactionError::Failed(error) = error {
                    mark_damaged(claim.tables(), error);
                }
            }
        }
        result
    }

    fn try_compact(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
        keep: Option<&[RowRange]>,
    ) -> Result<Vec<WrittenFile>, CompactionError> {
        let family = claim.family();
        let admission = self.admission.lock();
        self.fit(claim)?;
        let mut job = self.begin(family, plan.kind, claim.tables());
        drop(admission);
        job.tell_begin();
        let inputs = claim.tables();
        let rows = rows_after_merge(inputs, plan.split_bytes);
        let outputs = ColumnFamily::outputs(family, plan.level, plan.split_bytes, Some(rows));
        let (new, notes) = Merge { family, inputs, keep }.write(outputs, &mut job)?;
        let cause = if keep.is_some() { Cause::RowsDropped } else { Cause::Merged(&notes) };
        family.exchange(inputs, &new, cause)?;
        job.tell_end(&new, claim.bytes(), new.iter().map(|file| file.properties.rows).sum());
        Ok(new)
    }

    /// Leaves out the largest inputs until the disk has room for the outputs of the others and of
    /// the running compactions. At most as much is written as is read.
    fn fit(&self, claim: &mut Claim<'_>) -> Result<(), CompactionError> {
        let family = claim.family();
        let mut left_out = Vec::new();
        loop {
            let needed = claim.bytes().saturating_add(self.outstanding_bytes());
            if family.has_room_for(needed) {
                break;
            }
            if claim.tables().len() <= 2 {
                return Err(CompactionError::NoRoom { needed });
            }
            left_out.extend(claim.release_largest().map(|table| table.path().to_owned()));
        }
        if !left_out.is_empty() {
            let (name, left_out) = (family.schema(), listed(&left_out));
            let line = format_args!(
                "insufficient space to compact all requested files of {name}: left out are \
                 {left_out}"
            );
            family.environment().events.tell(Level::Warn, TARGET, line);
        }
        Ok(())
    }
}

/// Marks the input that could not be read.
pub(super) fn mark_damaged(inputs: &[Arc<SsTable>], error: &ReadError) {
    let path = match error {
        ReadError::Corrupt(corrupt) => &corrupt.file,
        ReadError::Io(file) => &file.path,
        _ => return,
    };
    inputs.iter().filter(|input| input.path() == path).for_each(|input| input.mark_damaged());
}

struct Merge<'a> {
    family: &'a ColumnFamily,
    inputs: &'a [Arc<SsTable>],
    /// Ranges of the rows that stay; `None` for all.
    keep: Option<&'a [RowRange]>,
}

impl Merge<'_> {
    fn write(
        &self,
        mut outputs: Outputs<'_>,
        job: &mut Job<'_>,
    ) -> Result<(Vec<WrittenFile>, MergeNotes), CompactionError> {
        let task = Arc::clone(&job.task);
        let tables = self.inputs.iter().map(|table| &**table);
        let streams = RowStream::sstables(tables, &Bound::Unbounded, |it| task.blocks(it))?;
        let mut rows = MergedRows::new(streams);
        let gc_before = self.family.gc_before();
        let mut notes = MergeNotes::new(self.family, self.inputs);
        while let Some((key, sources)) = rows.advance()? {
            let is_within = |range: &RowRange| range.contains(key.token());
            if self.keep.is_none_or(|keep| keep.iter().any(is_within)) {
                notes.add_row(key, &sources);
                let dropped = self.write_row(key, sources, gc_before, outputs.begin_row()?, job)?;
                notes.latest_dropped = notes.latest_dropped.max(dropped);
                task.rows.fetch_add(1, Ordering::Relaxed);
                task.written.store(outputs.bytes(), Ordering::Relaxed);
            }
            job.keep_pace()?;
        }
        job.settle();
        Ok((outputs.finish()?, notes))
    }

    /// Returns the latest local deletion time of the deletions of the row that were dropped.
    fn write_row(
        &self,
        key: &DecoratedKey,
        sources: RowSources<'_>,
        gc_before: i32,
        writer: &mut SsTableWriter,
        job: &mut Job<'_>,
    ) -> Result<Option<i32>, CompactionError> {
        let schema = self.family.schema();
        let reader = RowReader::new(schema, sources);
        // A fresh view: one that was kept would keep memtables that were flushed long ago.
        let find = || self.oldest_elsewhere(&self.family.view(), key);
        let mut purge = Purge::new(schema, reader.deletion(), gc_before, &find);
        writer.begin_row(key, purge.row_deletion());
        // A small row that is in one file only is mostly copied as it is.
        if reader.stored_cells().is_some_and(|cells| writer.push_stored(cells)) {
            writer.end_row()?;
            return Ok(purge.latest_dropped());
        }
        let in_row = |error: ReadError| error.in_row(key.key());
        let mut cells = reader.cells(CellRange::ALL, false).map_err(in_row)?;
        let mut row_bytes = 0;
        while let Some(cell) = cells.advance().map_err(in_row)? {
            if purge.keeps_in_file(&cell) {
                row_bytes += cell.encoded_length() as u64;
                writer.push(&cell)?;
            }
            job.keep_pace()?;
        }
        writer.end_row()?;
        if row_bytes > self.family.options().row_warning_bytes {
            let (name, key) = (&schema.name, key.key());
            let line = format_args!("Large row {key} in {name} {row_bytes} bytes");
            self.family.environment().events.tell(Level::Warn, TARGET, line);
        }
        Ok(purge.latest_dropped())
    }

    /// The least timestamp of memtables and SSTables outside of the compaction that may hold
    /// something of the row.
    fn oldest_elsewhere(&self, view: &View, key: &DecoratedKey) -> Option<i64> {
        let is_input =
            |table: &SsTable| self.inputs.iter().any(|i| i.generation() == table.generation());
        let hash = filter::hash(key.key().as_bytes());
        let others = view.tables.iter().filter(|table| !is_input(table));
        let tables = others.filter(|table| table.may_contain(key, hash));
        let memtables = view.memtables().filter(|memtable| memtable.contains(key));
        let oldest = tables.map(|table| table.properties().min_timestamp);
        oldest.chain(memtables.map(|memtable| memtable.min_timestamp())).min()
    }
}
