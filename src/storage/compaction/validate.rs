//! Merges SSTables row by row without writing anything: replicas compare the rows.

use super::job::{CompactionError, CompactionKind, Compactor, Job};
use super::merge::mark_damaged;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::slice::CellRange;
use crate::model::visibility::{Keeps, Purge};
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::error::ReadError;
use crate::storage::family::ColumnFamily;
use crate::storage::row::{RowReader, RowSources};
use crate::storage::rows::{RangeRows, RowStream, begins_past, first_key};
use crate::storage::sstable::SsTable;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Takes rows one after the other, each cell by cell: a row may be wider than the memory.
pub trait RowSink {
    /// Reason why it takes no more rows.
    type Error: From<CompactionError>;

    /// Begins a row, with its deletion if that is kept.
    fn begin(&mut self, deletion: Deletion) -> Result<(), Self::Error>;

    /// The next cell of the row, in order.
    fn push(&mut self, cell: &Cell) -> Result<(), Self::Error>;

    /// Ends a row, which may be empty. Any time within the span would have given the same. False if
    /// no more rows are wanted.
    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, Self::Error>;
}

/// The times that would give the same rows as the present `gc_before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcSpan {
    /// The latest local deletion time of all that was dropped.
    pub latest_dropped: i32,
    /// The earliest local deletion time of all that was kept.
    pub earliest_kept: i32,
}

/// Amount that a validation has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Validated {
    /// Rows.
    pub rows: u64,
    /// Bytes of SSTables.
    pub bytes: u64,
}

impl Default for GcSpan {
    fn default() -> Self {
        Self { latest_dropped: i32::MIN, earliest_kept: i32::MAX }
    }
}

impl GcSpan {
    /// The span of unknown rows, which contains no time.
    pub const NONE: Self = Self { latest_dropped: i32::MAX, earliest_kept: i32::MIN };

    /// Whether dropping deletions made at or before this second leaves the same.
    pub fn contains(&self, gc_before: i32) -> bool {
        self.latest_dropped <= gc_before && gc_before < self.earliest_kept
    }

    /// The span of these rows and others together.
    pub fn join(&mut self, other: Self) {
        self.latest_dropped = self.latest_dropped.max(other.latest_dropped);
        self.earliest_kept = self.earliest_kept.min(other.earliest_kept);
    }

    fn note(&mut self, deletion: Deletion, gc_before: i32) {
        if deletion.is_none() {
            return;
        }
        let at = deletion.local_deletion_time;
        if deletion.is_expired(gc_before) {
            self.latest_dropped = self.latest_dropped.max(at);
        } else {
            self.earliest_kept = self.earliest_kept.min(at);
        }
    }
}

/// Gives a row to a sink as a major compaction would leave it if deletions made at or before
/// `gc_before` were dropped. Only the sources of the row decide, so that replicas agree.
/// `keep_pace` is called for each cell.
pub(in crate::storage) fn give_row<S: RowSink>(
    family: &ColumnFamily,
    (key, sources): (&DecoratedKey, RowSources<'_>),
    gc_before: i32,
    keeps: Keeps,
    sink: &mut S,
    mut keep_pace: impl FnMut() -> Result<(), CompactionError>,
) -> Result<bool, S::Error> {
    let reader = RowReader::new(family.schema(), sources);
    let failed = |error: ReadError| CompactionError::from(error.in_row(key.key()));
    let nothing_elsewhere = || None;
    let mut purge = Purge::new(family.schema(), reader.deletion(), gc_before, &nothing_elsewhere);
    let mut span = GcSpan::default();
    span.note(reader.deletion(), gc_before);
    sink.begin(purge.row_deletion())?;
    let mut cells = reader.cells(CellRange::ALL, false).map_err(failed)?;
    while let Some(cell) = cells.advance().map_err(failed)? {
        if let Some(deletion) = cell.deletion() {
            span.note(deletion, gc_before);
        }
        if keeps(&mut purge, &cell) {
            sink.push(&cell)?;
        }
        keep_pace()?;
    }
    sink.end(key, span)
}

impl Compactor {
    /// Gives the rows of some SSTables to `take`, in the order of the ranges, at the pace of a
    /// compaction.
    pub(in crate::storage) fn walk<E: From<CompactionError>>(
        &self,
        family: &ColumnFamily,
        tables: &[Arc<SsTable>],
        ranges: &[RowRange],
        mut take: impl FnMut((&DecoratedKey, RowSources<'_>), &mut Job<'_>) -> Result<(), E>,
    ) -> Result<Validated, E> {
        let mut job = self.begin(family, CompactionKind::Validation, tables);
        job.tell_begin();
        let task = Arc::clone(&job.task);
        for range in ranges {
            let within =
                tables.iter().map(|table| &**table).filter(|table| !begins_past(table, range));
            let streams = RowStream::sstables(within, &first_key(range), |it| task.blocks(it));
            let streams = streams.map_err(|error| failed(tables, error))?;
            let mut rows = RangeRows::new(streams, range);
            while let Some(row) = rows.advance().map_err(|error| failed(tables, error))? {
                job.keep_pace()?;
                take(row, &mut job)?;
                task.rows.fetch_add(1, Ordering::Relaxed);
            }
        }
        job.settle();
        let (rows, bytes) = (&task.rows, &task.read);
        let done =
            Validated { rows: rows.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) };
        job.tell_end(&[], done.bytes, done.rows);
        Ok(done)
    }
}

fn failed(tables: &[Arc<SsTable>], error: ReadError) -> CompactionError {
    mark_damaged(tables, &error);
    error.into()
}
