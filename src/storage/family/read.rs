//! Reads of one column family.

use super::{ColumnFamily, Operation, View};
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, RowRange, Token};
use crate::storage::error::ReadError;
use crate::storage::row::{Budget, FoundRow, RowReader, RowSource, RowSources};
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Access, Blocks, SsTable, filter};
use smallvec::SmallVec;
use std::ops::{Bound, RangeBounds};

/// Most rows of an answer for which room is made before they are there.
const MAX_EXPECTED_ROWS: usize = 128;

impl ColumnFamily {
    /// The visible part of a slice of one row.
    pub fn read(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        let key = self.environment.partitioner.decorate(key.clone());
        self.counted(Operation::Read, || self.read_from(&self.view(), &key, slice, context, access))
    }

    /// How many columns or super columns [`ColumnFamily::read`] would find.
    pub fn count(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        let key = self.environment.partitioner.decorate(key.clone());
        self.counted(Operation::Read, || {
            let budget = Budget::counting(access, context);
            let counted = self.read_with(&self.view(), &key, budget, access, |row, budget| {
                row.slice(slice, true, budget)
            });
            Ok(counted?.count)
        })
    }

    /// Counts a read if it succeeds, and notes a damaged block that it has met. A read that must
    /// not block and would is none: its caller asks again.
    fn counted<T>(
        &self,
        operation: Operation,
        read: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let clock = &*self.environment.clock;
        let begun = self.operations.begin(operation, clock);
        let result = read().inspect_err(|error| self.note_damage(error))?;
        self.operations.end(operation, 1, begun, clock);
        Ok(result)
    }

    /// Notes a damaged block that a read has met.
    pub(super) fn note_damage(&self, error: &ReadError) {
        let ReadError::Corrupt(damage) = error else { return };
        let view = self.view();
        let concerned = view.tables.iter().filter(|table| table.path() == damage.file);
        for table in concerned.filter(|table| !table.is_damaged()) {
            table.mark_damaged();
            log::error!("{}: {error}", self.schema);
        }
    }

    /// [`ColumnFamily::read`] from a view that was taken before.
    pub(super) fn read_from(
        &self,
        view: &View,
        key: &DecoratedKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        let budget = Budget::collecting(access, context);
        self.read_with(view, key, budget, access, |row, budget| row.slice(slice, false, budget))
    }

    /// What is known here of a slice of one row, deletions included: what other replicas have to
    /// hear. Tombstones that are older than `GCGraceSeconds` are left out.
    pub fn read_version(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        let key = self.environment.partitioner.decorate(key.clone());
        let gc_before = self.gc_before();
        self.counted(Operation::Read, || {
            let budget = Budget::collecting(access, context);
            self.read_with(&self.view(), &key, budget, access, |row, budget| {
                row.version(slice, gc_before, budget)
            })
        })
    }

    /// Finds a row, and collects what is wanted of it.
    fn read_with<T: Default>(
        &self,
        view: &View,
        key: &DecoratedKey,
        mut budget: Budget<'_>,
        access: Access,
        collect: impl FnOnce(&RowReader<'_, '_>, &mut Budget<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        budget.spend_on_row(key.key())?;
        let cached = match &view.caches.rows {
            Some(rows) => {
                let row = self.cached_row(rows, view, key, &mut budget, access);
                row.map_err(|error| error.in_row(key.key()))?
            }
            None => None,
        };
        let hash = filter::hash(key.key().as_bytes());
        let holders = view.tables.iter().filter(|table| table.may_contain(key, hash));
        let blocks: SmallVec<[_; 2]> = match cached {
            Some(_) => SmallVec::new(),
            None => holders.map(|table| view.blocks(table, access)).collect(),
        };
        let found = FoundRow::find_all(&blocks, key, hash);
        let found = found.map_err(|error| error.in_row(key.key()))?;
        let mut in_memory: SmallVec<[_; 2]> = cached.into_iter().collect();
        in_memory.extend(view.memtables().filter_map(|memtable| memtable.row(key)));
        let sources = in_memory.iter().map(RowSource::Memtable);
        let sources: RowSources<'_> = sources.chain(found.iter().map(FoundRow::source)).collect();
        let answer = if sources.is_empty() {
            T::default()
        } else {
            let answer = collect(&RowReader::new(&self.schema, sources), &mut budget);
            answer.map_err(|error| error.in_row(key.key()))?
        };
        budget.answered();
        Ok(answer)
    }

    /// The slice of each row of a range, in token order, of at most `max_rows` rows. Rows of which
    /// nothing is visible are among them, as long as anything of them is stored.
    pub fn scan(
        &self,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.counted(Operation::RangeRead, || {
            self.scan_with(range, max_rows, context, access, |row, budget| {
                row.slice(slice, false, budget)
            })
        })
    }

    /// [`ColumnFamily::scan`] for other replicas: what is known of each slice, deletions included.
    pub fn scan_versions(
        &self,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError> {
        let gc_before = self.gc_before();
        self.counted(Operation::RangeRead, || {
            self.scan_with(range, max_rows, context, access, |row, budget| {
                row.version(slice, gc_before, budget)
            })
        })
    }

    fn scan_with<T>(
        &self,
        range: &RowRange,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
        collect: impl Fn(&RowReader<'_, '_>, &mut Budget<'_>) -> Result<T, ReadError>,
    ) -> Result<Vec<(RowKey, T)>, ReadError> {
        let mut budget = Budget::collecting(access, context);
        let view = self.view();
        let from = match &range.start {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(token) | Bound::Excluded(token) => {
                Bound::Included(DecoratedKey::least_of(token.clone()))
            }
        };
        let mut rows = self.rows_from(&view, &from, &range.end, access)?;
        let mut found = Vec::with_capacity(max_rows.min(MAX_EXPECTED_ROWS));
        let mut has_begun = false;
        while found.len() < max_rows {
            let Some((key, sources)) = rows.advance()? else { break };
            if is_behind(&range.end, key.token()) {
                break;
            }
            // The first key of an excluded token may have neighbours of the same token.
            has_begun = has_begun || range.contains(key.token());
            if has_begun {
                budget.spend_on_row(key.key())?;
                let reader = RowReader::new(&self.schema, sources);
                let columns = collect(&reader, &mut budget);
                let columns = columns.map_err(|error| error.in_row(key.key()))?;
                found.push((key.key().clone(), columns));
            }
        }
        budget.answered();
        Ok(found)
    }

    /// The rows from a place on; those behind the end may be missing.
    pub(in crate::storage) fn rows_from<'a>(
        &self,
        view: &'a View,
        from: &Bound<DecoratedKey>,
        end: &Bound<Token>,
        access: Access,
    ) -> Result<MergedRows<'a>, ReadError> {
        let partitioner = self.environment.partitioner;
        let memtables = view.memtables().map(|m| RowStream::memtable(m, from.as_ref()));
        let mut streams: Vec<_> = memtables.collect();
        let tables = view.tables.iter().map(|table| &**table);
        let tables = tables.filter(|table| !begins_behind(table, end));
        let blocks = |table| Blocks::new(table, access).keeping_last();
        streams.extend(RowStream::sstables(tables, from, partitioner, blocks)?);
        Ok(MergedRows::new(partitioner, streams))
    }
}

fn begins_behind(table: &SsTable, end: &Bound<Token>) -> bool {
    table.first_key().is_none_or(|first| is_behind(end, first.token()))
}

pub(super) fn is_behind(end: &Bound<Token>, token: &Token) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(end) => token > end,
        Bound::Excluded(end) => token >= end,
    }
}
