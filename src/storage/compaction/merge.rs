//! Merges SSTables, row by row and cell by cell, in memory that does not grow with them.

use super::lines::{self, Ended, Paths};
use super::progress::{Board, CompactionKind, CompactionProgress, CompactionTotals, Running, Task};
use super::strategy::Plan;
use super::throttle::Throttle;
use crate::base::clock::Clock;
use crate::base::lock::{Mutex, rank};
use crate::model::slice::CellRange;
use crate::model::visibility::Purge;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::error::{FileError, ReadError};
use crate::storage::family::{
    Claim, ColumnFamily, MergeNotes, NewTable, OutputShape, Outputs, View,
};
use crate::storage::files;
use crate::storage::row::{RowReader, RowSources};
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Access, Blocks, SsTable, SsTableWriter, filter};
use log::Level;
use std::ops::{Bound, RangeBounds};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes after which a compaction looks at its pace: small enough not to be felt as a burst.
const STRIDE: u64 = 64 << 10;

/// A long compaction tells of itself whenever it has come so much further, in percent,
const TELL_EVERY_PERCENT: u64 = 10;

/// but not more often than this.
const TELL_EVERY: Duration = Duration::from_secs(30);

/// Why a compaction did not come to its end. Its inputs still count.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
    /// No data directory has room for the result. Nothing was written.
    #[error("no data directory has room for the {needed} bytes that the result may take")]
    NoRoom {
        /// Bytes that have to be free.
        needed: u64,
    },
    /// The column family has failed. Nothing was written.
    #[error("{family} takes no more writes: {reason}")]
    Refused {
        /// The column family.
        family: String,
        /// What went wrong.
        reason: String,
    },
    /// An input is damaged, or the disk refused.
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl From<FileError> for CompactionError {
    fn from(error: FileError) -> Self {
        Self::Failed(error.into())
    }
}

/// Compacts. There is one for a node: all its compactions share the throttle, and are listed.
#[derive(Debug)]
pub struct Compactor {
    throttle: Throttle,
    pub(super) board: Board,
    /// Held from the look at the room on the disk until the compaction stands on the board: two
    /// that begin at once must not both count on the same room.
    admission: Mutex<rank::Job, ()>,
}

impl Compactor {
    /// One whose compactions together read so many bytes per second; `None` for no limit.
    pub fn new(clock: Arc<dyn Clock>, bytes_per_second: Option<u64>) -> Self {
        let throttle = Throttle::new(clock, bytes_per_second);
        Self { throttle, board: Board::default(), admission: Mutex::default() }
    }

    /// Allows so many times the throttle's limit from now on; infinity lifts it.
    pub fn set_haste(&self, haste: f64) {
        self.throttle.set_haste(haste);
    }

    /// The compactions that are running, the oldest first.
    pub fn running(&self) -> Vec<CompactionProgress> {
        self.board.running()
    }

    /// What all compactions did since the start.
    pub fn totals(&self) -> CompactionTotals {
        self.board.totals()
    }

    /// Merges the claimed SSTables into one, or several, that take their place. If there is no room
    /// for all of them, the largest are given up as long as two are left.
    pub fn compact(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
        stop: &AtomicBool,
    ) -> Result<(), CompactionError> {
        self.compact_some(claim, plan, None, stop).map(drop)
    }

    /// Writes the claimed SSTable anew without the rows outside of these ranges. Returns what takes
    /// its place, which is nothing if nothing of it is left.
    pub fn clean(
        &self,
        claim: &mut Claim<'_>,
        keep: &[RowRange],
        stop: &AtomicBool,
    ) -> Result<Vec<NewTable>, CompactionError> {
        let level = claim.tables().iter().map(|table| table.level()).max();
        let plan = Plan::cleanup(level.unwrap_or(0));
        self.compact_some(claim, plan, Some(keep), stop)
    }

    fn compact_some(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
        keep: Option<&[RowRange]>,
        stop: &AtomicBool,
    ) -> Result<Vec<NewTable>, CompactionError> {
        let result = self.try_compact(claim, plan, keep, stop);
        if let Err(error @ (CompactionError::NoRoom { .. } | CompactionError::Failed(_))) = &result
        {
            self.board.failed();
            if let CompactionError::Failed(error) = error {
                mark_damaged(claim.tables(), error);
            }
        }
        result
    }

    fn try_compact(
        &self,
        claim: &mut Claim<'_>,
        plan: Plan,
        keep: Option<&[RowRange]>,
        stop: &AtomicBool,
    ) -> Result<Vec<NewTable>, CompactionError> {
        let kind = plan.kind;
        let store = claim.store();
        let environment = store.environment();
        let begun = environment.clock.monotonic();
        let running = self.admit(claim, kind, begun)?;
        let bytes_in = claim.bytes();
        lines::begins(store, kind, claim.tables());
        // What SnapshotBeforeCompaction asks for is to be done here: nothing is merged yet.
        let merge = Merge { store, inputs: claim.tables(), keep };
        let shape = OutputShape::of_merged(plan.level, plan.split_bytes, claim.tables());
        let outputs = Outputs::new(store, shape);
        let mut pace = Pace::new(self, &running, claim.tables(), (store, kind), stop);
        let (new, rows, notes) = merge.write(outputs, &mut pace)?;
        match keep {
            Some(_) => store.replace_dropping(claim.tables(), &new)?,
            None => store.replace_merged(claim.tables(), &new, &notes)?,
        }
        let bytes_out = new.iter().map(|table| table.bytes).sum();
        let path =
            |new: &NewTable| files::sstable(&new.folder, &store.schema().name, new.generation);
        self.board.completed(bytes_in, bytes_out);
        let outputs = new.iter().map(path).collect();
        lines::ended(store, &Ended { outputs, bytes_in, bytes_out, rows, began_at: begun });
        Ok(new)
    }

    /// Puts the compaction on the board, without the inputs for which there is no room.
    fn admit(
        &self,
        claim: &mut Claim<'_>,
        kind: CompactionKind,
        started: Duration,
    ) -> Result<Running<'_>, CompactionError> {
        let _one_at_a_time = self.admission.lock();
        self.fit(claim)?;
        Ok(self.board.begin(CompactionProgress {
            id: 0,
            family: Arc::clone(claim.store().schema()),
            kind,
            inputs: claim.tables().iter().map(|table| table.path().to_owned()).collect(),
            bytes_total: claim.bytes(),
            bytes_read: 0,
            bytes_written: 0,
            rows: 0,
            started,
        }))
    }

    /// Gives up the largest inputs until the disk has room for what becomes of the others, and of
    /// the compactions that are running. At most as much is written as is read.
    fn fit(&self, claim: &mut Claim<'_>) -> Result<(), CompactionError> {
        let store = claim.store();
        let mut left_out = Vec::new();
        loop {
            let needed = claim.bytes().saturating_add(self.board.outstanding_bytes());
            if store.has_room_for(needed) {
                break;
            }
            if claim.tables().len() <= 2 {
                return Err(CompactionError::NoRoom { needed });
            }
            left_out.extend(claim.release_largest().map(|table| table.path().to_owned()));
        }
        if !left_out.is_empty() {
            let (family, left_out) = (store.schema(), Paths(left_out.iter().map(PathBuf::as_path)));
            let line = format_args!(
                "insufficient space to compact all requested files of {family}: left out are \
                 {left_out}"
            );
            store.environment().events.tell(Level::Warn, lines::TARGET, line);
        }
        Ok(())
    }
}

/// Marks the input that could not be read, if that was the reason.
pub(super) fn mark_damaged(inputs: &[Arc<SsTable>], error: &ReadError) {
    let path = match error {
        ReadError::Corrupt(corrupt) => &corrupt.file,
        ReadError::Io(file) => &file.path,
        ReadError::WouldBlock
        | ReadError::TooLarge(_)
        | ReadError::Cancelled
        | ReadError::OtherPartitioner { .. } => {
            return;
        }
    };
    for input in inputs.iter().filter(|input| input.path() == path) {
        input.mark_damaged();
    }
}

/// What is merged.
struct Merge<'a> {
    store: &'a ColumnFamily,
    inputs: &'a [Arc<SsTable>],
    /// The rows that stay; `None` for all.
    keep: Option<&'a [RowRange]>,
}

impl Merge<'_> {
    /// Writes the merged rows; returns the files, the number of their rows, and what was noted of
    /// them.
    fn write(
        &self,
        mut outputs: Outputs<&ColumnFamily>,
        pace: &mut Pace<'_>,
    ) -> Result<(Vec<NewTable>, u64, MergeNotes), CompactionError> {
        let partitioner = self.store.environment().partitioner;
        let task = pace.task;
        let tables = self.inputs.iter().map(|table| &**table);
        let blocks = |table| Blocks::new(table, Access::Bypass).counting(&task.read);
        let streams = RowStream::sstables(tables, &Bound::Unbounded, partitioner, blocks)?;
        let mut rows = MergedRows::new(partitioner, streams);
        let (gc_before, mut rows_written) = (self.store.gc_before(), 0);
        let mut notes = MergeNotes::new(self.store, self.inputs);
        while let Some((key, sources)) = rows.advance()? {
            let is_within = |range: &RowRange| range.contains(key.token());
            if !self.keep.is_none_or(|keep| keep.iter().any(is_within)) {
                pace.keep()?;
                continue;
            }
            notes.add_row(key, &sources);
            let dropped = self.write_row(key, sources, gc_before, outputs.begin_row()?, pace)?;
            notes.add_dropped(dropped);
            rows_written += 1;
            task.rows.store(rows_written, Ordering::Relaxed);
            task.written.store(outputs.bytes(), Ordering::Relaxed);
            pace.keep()?;
        }
        pace.settle();
        let (new, rows) = outputs.finish()?;
        Ok((new, rows, notes))
    }

    /// Returns the latest local deletion time of the deletions of the row that were dropped.
    fn write_row(
        &self,
        key: &DecoratedKey,
        sources: RowSources<'_>,
        gc_before: i32,
        writer: &mut SsTableWriter,
        pace: &mut Pace<'_>,
    ) -> Result<Option<i32>, CompactionError> {
        let schema = self.store.schema();
        let reader = RowReader::new(schema, sources);
        // A view of the moment: one that was kept would keep memtables that are long on disk.
        let find = || self.oldest_elsewhere(&self.store.view(), key);
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
            if purge.keeps(&cell) {
                row_bytes += cell.encoded_length() as u64;
                writer.push(&cell)?;
            }
            pace.keep()?;
        }
        writer.end_row()?;
        if row_bytes > self.store.options().row_warning_bytes {
            let (name, key) = (&self.store.schema().name, key.key());
            let line = format_args!("Large row {key} in {name} {row_bytes} bytes");
            self.store.environment().events.tell(Level::Warn, lines::TARGET, line);
        }
        Ok(purge.latest_dropped())
    }

    /// The least timestamp of what may hold something of the row outside of the compaction.
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

/// Looks every so many bytes whether the node is stopping, whether the compaction is too fast, and
/// whether it should tell of itself.
pub(super) struct Pace<'a> {
    compactor: &'a Compactor,
    task: &'a Task,
    store: &'a ColumnFamily,
    stop: &'a AtomicBool,
    kind: CompactionKind,
    bytes_total: u64,
    /// Bytes read when it was last looked at.
    seen: u64,
    told_at: Duration,
    told_percent: u64,
}

impl<'a> Pace<'a> {
    pub(super) fn new(
        compactor: &'a Compactor,
        running: &'a Running<'_>,
        inputs: &[Arc<SsTable>],
        (store, kind): (&'a ColumnFamily, CompactionKind),
        stop: &'a AtomicBool,
    ) -> Self {
        Self {
            compactor,
            task: running,
            store,
            stop,
            kind,
            bytes_total: inputs.iter().map(|table| table.size()).sum(),
            seen: 0,
            told_at: store.environment().clock.monotonic(),
            told_percent: 0,
        }
    }

    /// To be called for each cell and row.
    pub(super) fn keep(&mut self) -> Result<(), CompactionError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(CompactionError::Stopped);
        }
        if self.task.read.load(Ordering::Relaxed) >= self.seen + STRIDE {
            self.settle();
            self.tell();
        }
        Ok(())
    }

    /// Waits for what was read since the last time.
    pub(super) fn settle(&mut self) {
        let read = self.task.read.load(Ordering::Relaxed);
        self.compactor.throttle.take(read - self.seen, self.stop);
        self.seen = read;
    }

    fn tell(&mut self) {
        let environment = self.store.environment();
        let now = environment.clock.monotonic();
        let percent = self.seen * 100 / self.bytes_total.max(1);
        if now.saturating_sub(self.told_at) < TELL_EVERY
            || percent < self.told_percent + TELL_EVERY_PERCENT
        {
            return;
        }
        (self.told_at, self.told_percent) = (now, percent);
        let (family, kind) = (self.store.schema(), self.kind);
        let (read, total) = (self.seen, self.bytes_total);
        let line = format_args!("Compacting {family} ({kind}): {read}/{total} bytes, {percent}%");
        environment.events.tell(Level::Info, lines::TARGET, line);
    }
}
