//! Rows of some ranges, for a comparison with other replicas.

use super::super::compaction::{CompactionError, RowSink, Validated, give_row};
use super::super::family::{ColumnFamily, TablesNow};
use super::super::flush_queue::FlushCause;
use super::super::sstable::Access;
use super::Core;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::visibility::{COMPARED, Keeps};
use crate::ring::{DecoratedKey, RowRange, Token};
use crate::storage::error::{FileError, ReadError};
use crate::storage::legacy::{RowBuilder, Spool};
use crate::storage::rows::first_key;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The SSTables of a column family at one moment, with everything that was written before. Their
/// files stay as long as this lives.
#[derive(Debug)]
pub struct ValidationSet {
    family: Arc<ColumnFamily>,
    /// The SSTables, and the last merges.
    pub now: TablesNow,
}

impl ValidationSet {
    /// Tokens of samples of the rows, in no order.
    pub fn sampled_tokens(&self) -> Vec<Token> {
        self.now.tables.iter().flat_map(|table| table.sampled_tokens().cloned()).collect()
    }

    /// Rows in all SSTables together: a row in several counts as often.
    pub fn rows(&self) -> u64 {
        self.rows_of(|_| true)
    }

    /// Rows in the SSTables of these generations together.
    pub fn rows_of(&self, is_meant: impl Fn(u64) -> bool) -> u64 {
        let meant = self.now.tables.iter().filter(|table| is_meant(table.generation()));
        meant.map(|table| table.properties().rows).sum()
    }
}

impl Drop for ValidationSet {
    fn drop(&mut self) {
        self.now.tables.clear();
        self.family.remove_replaced();
    }
}

impl Core {
    /// Flushes a column family, and holds its SSTables.
    pub fn validation_set(&self, id: FamilyId) -> Result<ValidationSet, ReadError> {
        let family = Arc::clone(self.family(id));
        self.flush_for(&family, FlushCause::Request)?;
        let now = family.tables_now();
        Ok(ValidationSet { family, now })
    }

    /// Gives all rows of some ranges to a sink, in the order of the ranges and of their tokens, as
    /// a major compaction of these SSTables would leave them if deletions made at or before the
    /// second `gc_before` were dropped. Reads at the pace of a compaction, and is listed as one.
    /// Ends when the node stops.
    pub fn validate<S: RowSink>(
        &self,
        set: &ValidationSet,
        ranges: &[RowRange],
        gc_before: i32,
        keeps: Keeps,
        sink: &mut S,
    ) -> Result<Validated, S::Error> {
        let (family, tables) = (&*set.family, &*set.now.tables);
        self.compactor.walk(family, tables, ranges, |row, job| {
            give_row(family, row, gc_before, keeps, sink, || job.keep_pace()).map(drop)
        })
    }

    /// Visits the keys of some ranges in the SSTables of these generations, in the same way.
    pub fn visit_keys(
        &self,
        set: &ValidationSet,
        is_meant: impl Fn(u64) -> bool,
        ranges: &[RowRange],
        mut visit: impl FnMut(&DecoratedKey),
    ) -> Result<Validated, CompactionError> {
        let meant = set.now.tables.iter().filter(|table| is_meant(table.generation()));
        let (family, tables) = (&*set.family, &*meant.cloned().collect::<Vec<_>>());
        self.compactor.walk(family, tables, ranges, |(key, _), _| {
            visit(key);
            Ok(())
        })
    }

    /// A builder of rows in the form of 0.6, with column indexes of this granularity. Wide rows
    /// wait in files, which are removed with it, or at the next start.
    pub fn row_builder(
        &self,
        id: FamilyId,
        column_index_bytes: u64,
    ) -> Result<RowBuilder, FileError> {
        let family = self.family(id);
        let spool = || {
            let fs = Arc::clone(&family.environment().fs);
            Ok::<_, FileError>(Spool::in_file(fs, family.new_path()?.1))
        };
        let schema = Arc::clone(self.schema().family(id));
        Ok(RowBuilder::new(schema, column_index_bytes, [spool()?, spool()?]))
    }

    /// Gives the rows of a range after a key to a sink until it wants no more: as
    /// [`Core::validate`], but the present rows, in memory and on disk, and without a pace. Returns
    /// whether the range has ended.
    pub fn visit_rows<S: RowSink>(
        &self,
        id: FamilyId,
        range: &RowRange,
        after: Option<&RowKey>,
        gc_before: i32,
        sink: &mut S,
    ) -> Result<bool, S::Error> {
        let family = self.family(id);
        let after = after.map(|key| self.partitioner().decorate(key.clone()));
        let from = after.map_or_else(|| first_key(range), Bound::Excluded);
        let stopping = &self.stopping;
        let keep_on = || {
            if stopping.load(Ordering::Relaxed) { Err(CompactionError::Stopped) } else { Ok(()) }
        };
        let view = family.view();
        let rows = view.rows_in(range, &from, Access::Bypass);
        let mut rows = rows.map_err(CompactionError::from)?;
        while let Some(row) = rows.advance().map_err(CompactionError::from)? {
            if !give_row(family, row, gc_before, COMPARED, sink, keep_on)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
