//! What this node has of some ranges, for comparing it with what other replicas have.

use super::super::background::FlushCause;
use super::super::compaction::{CompactionError, Reading, RowSink, Validated, give_row};
use super::super::family::{ColumnFamily, Merge, TablesNow};
use super::super::manifest::TableIdentity;
use super::super::sstable::Access;
use super::Core;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::ring::{DecoratedKey, RowRange, Token};
use crate::storage::error::{FileError, ReadError};
use crate::storage::files;
use crate::storage::original::{RowBuilder, Spool};
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The SSTables of a column family at one moment, which have all that was written before. Their
/// files stay as long as this lives.
#[derive(Debug)]
pub struct ValidationSet {
    store: Arc<ColumnFamily>,
    now: TablesNow,
}

impl ValidationSet {
    /// What tells these SSTables from all others, by generation: as long as they are the same,
    /// their rows are.
    pub fn identities(&self) -> BTreeMap<u64, TableIdentity> {
        self.now.identities()
    }

    /// How the last of them came to be, the oldest first.
    pub fn merges(&self) -> &[Arc<Merge>] {
        &self.now.merges
    }

    /// Tokens of every so many-th row, in no order.
    pub fn sampled_tokens(&self) -> Vec<Token> {
        self.now.tables.iter().flat_map(|table| table.sampled_tokens().cloned()).collect()
    }

    /// Rows in all SSTables together: one that is in several counts as often.
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
        self.store.remove_replaced();
    }
}

impl Core {
    /// Flushes a column family, and takes hold of its SSTables.
    pub fn validation_set(&self, family: FamilyId) -> Result<ValidationSet, ReadError> {
        let store = Arc::clone(self.family(family));
        self.flush_for(&store, FlushCause::Request)?;
        let now = store.tables_now();
        Ok(ValidationSet { store, now })
    }

    /// Gives all rows of some ranges to a sink, in the order of the ranges and of their tokens:
    /// what a major compaction of these SSTables would leave if deletions made at or before the
    /// second `gc_before` were dropped. Reads as fast as a compaction may, and is listed among
    /// these. Ends when the node stops.
    pub fn validate<S: RowSink>(
        &self,
        set: &ValidationSet,
        ranges: &[RowRange],
        gc_before: i32,
        sink: &mut S,
    ) -> Result<Validated, S::Error> {
        let (store, tables, stop) = (&*set.store, &*set.now.tables, &self.stopping);
        let reading = Reading { store, tables, ranges, stop };
        self.compactor.validate(&reading, gc_before, sink)
    }

    /// Tells which rows of some ranges are in the SSTables of these generations, in the same way.
    pub fn visit_keys(
        &self,
        set: &ValidationSet,
        is_meant: impl Fn(u64) -> bool,
        ranges: &[RowRange],
        visit: impl FnMut(&DecoratedKey),
    ) -> Result<Validated, CompactionError> {
        let meant = set.now.tables.iter().filter(|table| is_meant(table.generation()));
        let tables: Vec<_> = meant.cloned().collect();
        let (store, tables, stop) = (&*set.store, &*tables, &self.stopping);
        let reading = Reading { store, tables, ranges, stop };
        self.compactor.visit_keys(&reading, visit)
    }

    /// Puts rows of a column family together as they stand in a file of 0.6, in blocks of so many
    /// bytes. Wide ones wait in files, which are removed with it, or at the next start.
    pub fn row_builder(
        &self,
        family: FamilyId,
        column_index_bytes: u64,
    ) -> Result<RowBuilder, FileError> {
        let store = self.family(family);
        let spool = || {
            let generation = store.next_generation();
            let folder = store.roomiest_folder(generation)?;
            let table = files::sstable(folder, &store.schema().name, generation);
            let fs = Arc::clone(&store.environment().fs);
            Ok::<_, FileError>(Spool::in_file(fs, files::temporary(&table)))
        };
        let schema = Arc::clone(self.schema().family(family));
        Ok(RowBuilder::new(schema, column_index_bytes, [spool()?, spool()?]))
    }

    /// Gives the rows of a range behind a key to a sink until it wants no more: as
    /// [`Core::validate`], but as they are now, in memory and on disk, and at once. Returns
    /// whether the range has come to its end.
    pub fn visit_rows<S: RowSink>(
        &self,
        family: FamilyId,
        range: &RowRange,
        after: Option<&RowKey>,
        gc_before: i32,
        sink: &mut S,
    ) -> Result<bool, S::Error> {
        let store = self.family(family);
        let after = after.map(|key| self.partitioner().decorate(key.clone()));
        let from = match (&range.start, after) {
            (_, Some(after)) => Bound::Excluded(after),
            (Bound::Unbounded, None) => Bound::Unbounded,
            (Bound::Included(token) | Bound::Excluded(token), None) => {
                Bound::Included(DecoratedKey::least_of(token.clone()))
            }
        };
        let stopping = &self.stopping;
        let keep_on = || {
            if stopping.load(Ordering::Relaxed) { Err(CompactionError::Stopped) } else { Ok(()) }
        };
        let view = store.view();
        let rows = store.rows_from(&view, &from, &range.end, Access::Bypass);
        let mut rows = rows.map_err(CompactionError::from)?;
        while let Some((key, sources)) = rows.advance().map_err(CompactionError::from)? {
            if is_behind(&range.end, key) {
                break;
            }
            // The first key of an excluded token may have neighbours of the same token.
            if !range.contains(key.token()) {
                continue;
            }
            if !give_row(store, (key, sources), gc_before, sink, keep_on)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_behind(end: &Bound<Token>, key: &DecoratedKey) -> bool {
    match end {
        Bound::Unbounded => false,
        Bound::Included(end) => key.token() > end,
        Bound::Excluded(end) => key.token() >= end,
    }
}
