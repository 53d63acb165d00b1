//! Reads of one column family.

use super::{ColumnFamily, Operation, View};
use crate::base::clock::Now;
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, RowRange};
use crate::storage::error::ReadError;
use crate::storage::row::{Budget, FoundRow, RowReader, RowSource, RowSources};
use crate::storage::rows::{RangeRows, RowStream, begins_past, first_key};
use crate::storage::sstable::{Access, Blocks, filter};
use smallvec::SmallVec;
use std::ops::Bound;

/// Most rows of an answer for which room is allocated beforehand.
const MAX_EXPECTED_ROWS: usize = 128;

impl ColumnFamily {
    /// Reads the visible part of a slice of one row.
    pub fn read(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        let budget = Budget::collecting(access, context);
        self.read_row(key, budget, |row, budget| row.slice((slice, self.now()), false, budget))
    }

    /// The present second, if it is needed.
    fn now(&self) -> Now<'_> {
        Now::Of(&*self.environment.clock)
    }

    /// Counts the columns or super columns that [`ColumnFamily::read`] would find.
    pub fn count(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        let budget = Budget::counting(access, context);
        self.read_row(key, budget, |row, budget| {
            Ok(row.slice((slice, self.now()), true, budget)?.count)
        })
    }

    /// Reads a slice of one row for other replicas, deletions included. Tombstones that are older
    /// than `GCGraceSeconds` are left out.
    pub fn read_version(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        let budget = Budget::collecting(access, context);
        self.read_row(key, budget, |row, budget| {
            self.version(row, slice, budget, RowVersion::drop_expired)
        })
    }

    /// [`ColumnFamily::read_version`] for a coordinator of 0.6, which compares it with those of
    /// 0.6.
    pub fn read_legacy_version(
        &self,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        // Of a part of a super column the newest live column is not known.
        let drop_expired = match slice.super_name() {
            Some(_) => RowVersion::drop_expired_within_super_as_0_6,
            None => RowVersion::drop_expired_as_0_6,
        };
        let budget = Budget::collecting(access, context);
        self.read_row(key, budget, |row, budget| self.version(row, slice, budget, drop_expired))
    }

    fn version(
        &self,
        row: &RowReader<'_, '_>,
        slice: &Slice,
        budget: &mut Budget<'_>,
        drop_expired: impl FnOnce(&mut RowVersion, &ColumnFamilySchema, i32),
    ) -> Result<RowVersion, ReadError> {
        let mut version = row.version((slice, self.now()), budget)?;
        drop_expired(&mut version, &self.schema, self.gc_before());
        Ok(version)
    }

    fn read_row<T: Default>(
        &self,
        key: &RowKey,
        budget: Budget<'_>,
        collect: impl FnOnce(&RowReader<'_, '_>, &mut Budget<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let key = self.environment.partitioner.decorate(key.clone());
        let read = || self.read_with(&self.view(), &key, budget, collect);
        let found = self.counted(Operation::Read, read)?;
        self.environment.sampler.note(Operation::Read, self.id, key.key());
        Ok(found)
    }

    /// Counts a read if it succeeds, and notes a damaged block that it has met. A read that must
    /// not block and would is not counted: its caller repeats it.
    fn counted<T>(
        &self,
        operation: Operation,
        read: impl FnOnce() -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let clock = &*self.environment.clock;
        let operations = self.operations(operation);
        let begun = operations.begin(clock);
        let result = read().inspect_err(|error| self.note_damage(error))?;
        operations.end(1, begun, clock);
        Ok(result)
    }

    /// Notes a damaged block that a read has met.
    pub(super) fn note_damage(&self, error: &ReadError) {
        let ReadError::Corrupt(damage) = error else { return };
        let view = self.view();
        let concerned = view.tables.iter().filter(|table| table.path() == damage.file);
        for table in concerned.filter(|table| !table.is_damaged()) {
            table.mark_damaged();
            log::error!("{}: {error}", self.schema());
        }
    }

    /// Finds a row in a view, and collects a part of it.
    pub(super) fn read_with<T: Default>(
        &self,
        view: &View,
        key: &DecoratedKey,
        mut budget: Budget<'_>,
        collect: impl FnOnce(&RowReader<'_, '_>, &mut Budget<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        budget.spend_on_row(key.key())?;
        let cached = match &view.row_cache {
            Some(rows) => {
                let row = self.cached_row(rows, view, key, &mut budget);
                row.map_err(|error| error.in_row(key.key()))?
            }
            None => None,
        };
        let hash = filter::hash(key.key().as_bytes());
        let holders = view.tables.iter().filter(|table| table.may_contain(key, hash));
        let blocks: SmallVec<[_; 2]> = match cached {
            Some(_) => SmallVec::new(),
            None => holders.map(|table| view.blocks(table, budget.access)).collect(),
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

    /// Reads the slice of each row of a range, in token order, of at most `max_rows` rows. Rows
    /// without a visible cell are among them, as long as anything of them is stored.
    pub fn scan(
        &self,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        self.scan_with(range, max_rows, context, access, |row, budget| {
            row.slice((slice, self.now()), false, budget)
        })
    }

    /// [`ColumnFamily::scan`] for other replicas, deletions included.
    pub fn scan_versions(
        &self,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError> {
        self.scan_with(range, max_rows, context, access, |row, budget| {
            self.version(row, slice, budget, RowVersion::drop_expired)
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
        self.counted(Operation::RangeRead, || {
            let mut budget = Budget::collecting(access, context);
            let view = self.view();
            let mut rows = view.rows_in(range, &first_key(range), access)?;
            let mut found = Vec::with_capacity(max_rows.min(MAX_EXPECTED_ROWS));
            while found.len() < max_rows
                && let Some((key, sources)) = rows.advance()?
            {
                budget.spend_on_row(key.key())?;
                let columns = collect(&RowReader::new(&self.schema, sources), &mut budget);
                let columns = columns.map_err(|error| error.in_row(key.key()))?;
                found.push((key.key().clone(), columns));
            }
            budget.answered();
            Ok(found)
        })
    }
}

impl View {
    /// The rows of a range from a place on.
    pub(in crate::storage) fn rows_in<'a>(
        &'a self,
        range: &'a RowRange,
        from: &Bound<DecoratedKey>,
        access: Access,
    ) -> Result<RangeRows<'a>, ReadError> {
        let memtables = self.memtables().map(|m| RowStream::memtable(m, from.as_ref()));
        let mut streams: Vec<_> = memtables.collect();
        let tables = self.tables.iter().map(|table| &**table);
        let tables = tables.filter(|table| !begins_past(table, range));
        let blocks = |table| {
            let mut blocks = Blocks::new(table, access);
            blocks.keeps_last = true;
            blocks
        };
        streams.extend(RowStream::sstables(tables, from, blocks)?);
        Ok(RangeRows::new(streams, range))
    }
}
