//! What all SSTables of a column family say together, row by row, without writing anything: what
//! replicas compare.

use super::lines::{self, Ended};
use super::merge::{CompactionError, Compactor, Pace, mark_damaged};
use super::progress::{CompactionKind, CompactionProgress};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::slice::CellRange;
use crate::model::visibility::Purge;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::error::ReadError;
use crate::storage::family::ColumnFamily;
use crate::storage::row::{RowReader, RowSources};
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Access, Blocks, SsTable};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Takes rows one after the other, each cell by cell: a row may be wider than the memory.
pub trait RowSink {
    /// Why it takes no more.
    type Error: From<CompactionError>;

    /// Begins a row with what is left of its deletion, if anything.
    fn begin(&mut self, deletion: Deletion) -> Result<(), Self::Error>;

    /// The next cell of the row, in order.
    fn push(&mut self, cell: &Cell) -> Result<(), Self::Error>;

    /// The row is complete; there may be nothing left of it. For other times than the given one the
    /// same would have come out, if they are within the span. False if no more rows are wanted.
    fn end(&mut self, key: &DecoratedKey, span: GcSpan) -> Result<bool, Self::Error>;
}

/// Which other times than the one that was given as `gc_before` would have made no difference to
/// what was told of a row, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GcSpan {
    /// The latest local deletion time of all that was dropped.
    pub latest_dropped: i32,
    /// The earliest local deletion time of all that was kept.
    pub earliest_kept: i32,
}

/// What a validation has read.
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
    /// That of what is not known, or not any more: no time is within it.
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

/// Gives a row to a sink: what a major compaction would leave of it if deletions made at or before
/// `gc_before` were dropped. What the row is made of decides, and nothing else that there is, so
/// that replicas agree. `keep_pace` is called for each cell.
pub(in crate::storage) fn give_row<S: RowSink>(
    store: &ColumnFamily,
    (key, sources): (&DecoratedKey, RowSources<'_>),
    gc_before: i32,
    sink: &mut S,
    mut keep_pace: impl FnMut() -> Result<(), CompactionError>,
) -> Result<bool, S::Error> {
    let reader = RowReader::new(store.schema(), sources);
    let failed = |error: ReadError| CompactionError::from(error.in_row(key.key()));
    let nothing_elsewhere = || None;
    let mut purge = Purge::new(store.schema(), reader.deletion(), gc_before, &nothing_elsewhere);
    let mut span = GcSpan::default();
    span.note(reader.deletion(), gc_before);
    sink.begin(purge.row_deletion())?;
    let mut cells = reader.cells(CellRange::ALL, false).map_err(failed)?;
    while let Some(cell) = cells.advance().map_err(failed)? {
        if let Some(deletion) = cell.deletion() {
            span.note(deletion, gc_before);
        }
        if purge.keeps(&cell) {
            sink.push(&cell)?;
        }
        keep_pace()?;
    }
    sink.end(key, span)
}

/// What is read of some SSTables.
pub(in crate::storage) struct Reading<'a> {
    pub(in crate::storage) store: &'a ColumnFamily,
    pub(in crate::storage) tables: &'a [Arc<SsTable>],
    /// Their rows in these ranges.
    pub(in crate::storage) ranges: &'a [RowRange],
    /// Set when the node stops.
    pub(in crate::storage) stop: &'a AtomicBool,
}

impl Compactor {
    /// Gives rows to a sink, merged as by a major compaction that drops deletions made at or before
    /// `gc_before`, and at the pace of one.
    pub(in crate::storage) fn validate<S: RowSink>(
        &self,
        reading: &Reading<'_>,
        gc_before: i32,
        sink: &mut S,
    ) -> Result<Validated, S::Error> {
        self.walk(reading, |row, pace| {
            give_row(reading.store, row, gc_before, sink, || pace.keep()).map(drop)
        })
    }

    /// Tells which rows there are, at the pace of a compaction.
    pub(in crate::storage) fn visit_keys(
        &self,
        reading: &Reading<'_>,
        mut visit: impl FnMut(&DecoratedKey),
    ) -> Result<Validated, CompactionError> {
        self.walk(reading, |(key, _), _| {
            visit(key);
            Ok(())
        })
    }

    fn walk<E: From<CompactionError>>(
        &self,
        reading: &Reading<'_>,
        mut take: impl FnMut((&DecoratedKey, RowSources<'_>), &mut Pace<'_>) -> Result<(), E>,
    ) -> Result<Validated, E> {
        let Reading { store, tables, ranges, stop } = *reading;
        let (environment, kind) = (store.environment(), CompactionKind::Validation);
        let started = environment.clock.monotonic();
        let running = self.board.begin(CompactionProgress {
            id: 0,
            family: Arc::clone(store.schema()),
            kind,
            inputs: tables.iter().map(|table| table.path().to_owned()).collect(),
            bytes_total: tables.iter().map(|table| table.size()).sum(),
            bytes_read: 0,
            bytes_written: 0,
            rows: 0,
            started,
        });
        lines::begins(store, kind, tables);
        let mut pace = Pace::new(self, &running, tables, (store, kind), stop);
        let mut done = Validated::default();
        for range in ranges {
            let blocks = |table| Blocks::new(table, Access::Bypass).counting(&running.read);
            let opened = open(store, tables, range, blocks);
            let mut rows = opened.map_err(|error| failed(tables, error))?;
            while let Some((key, sources)) = rows.advance().map_err(|e| failed(tables, e))? {
                if range.end.as_ref() != Bound::Unbounded && is_behind(range, key) {
                    break;
                }
                pace.keep()?;
                if range.contains(key.token()) {
                    take((key, sources), &mut pace)?;
                    done.rows += 1;
                    running.rows.store(done.rows, Ordering::Relaxed);
                }
            }
        }
        pace.settle();
        done.bytes = running.read.load(Ordering::Relaxed);
        let Validated { bytes: bytes_in, rows, .. } = done;
        let ended = Ended { outputs: Vec::new(), bytes_in, bytes_out: 0, rows, began_at: started };
        lines::ended(store, &ended);
        Ok(done)
    }
}

fn open<'a>(
    store: &ColumnFamily,
    tables: &'a [Arc<SsTable>],
    range: &RowRange,
    blocks: impl Fn(&'a SsTable) -> Blocks<'a>,
) -> Result<MergedRows<'a>, ReadError> {
    let partitioner = store.environment().partitioner;
    let from = match &range.start {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(token) | Bound::Excluded(token) => {
            Bound::Included(DecoratedKey::least_of(token.clone()))
        }
    };
    let within = tables
        .iter()
        .map(|table| &**table)
        .filter(|table| table.first_key().is_some_and(|first| !is_behind(range, first)));
    let streams = RowStream::sstables(within, &from, partitioner, blocks)?;
    Ok(MergedRows::new(partitioner, streams))
}

fn is_behind(range: &RowRange, key: &DecoratedKey) -> bool {
    match &range.end {
        Bound::Unbounded => false,
        Bound::Included(end) => key.token() > end,
        Bound::Excluded(end) => key.token() >= end,
    }
}

fn failed(tables: &[Arc<SsTable>], error: ReadError) -> CompactionError {
    mark_damaged(tables, &error);
    error.into()
}
