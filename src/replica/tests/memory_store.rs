//! A store in memory for tests, which does each thing in the simplest way and blocks or fails when
//! it is told to.

use super::super::{Applied, LocalStore, LogPosition, WriteError};
use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::mutation::{FamilyMutation, RowMutation};
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::{CellRange, Flow, Resolver, RowSlice, Slice};
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner, RowRange, RowSamples, TokenRange};
use crate::storage::answer;
use crate::storage::error::ReadError;
use crate::storage::sstable::Access;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

type Callback = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// A row that takes long to read.
pub(crate) const ENDLESS: &str = "a row without an end";

/// The store.
pub(crate) struct MemoryStore {
    schema: Arc<Schema>,
    partitioner: Partitioner,
    rows: Mutex<BTreeMap<(FamilyId, DecoratedKey), StoredRow>>,
    /// Whether everything would block.
    pub(crate) blocks: AtomicBool,
    /// Whether whatever may block panics.
    pub(crate) panics: AtomicBool,
    /// Whether writes wait for [`MemoryStore::sync`].
    pub(crate) batches: AtomicBool,
    /// How often it was asked and allowed to block.
    pub(crate) blocked: AtomicUsize,
    /// Reads of the row [`ENDLESS`] that are under way.
    pub(crate) running: AtomicUsize,
    /// Whether these may end.
    pub(crate) ends: AtomicBool,
    /// Whether whatever may block does so until this is false again.
    is_stalled: (Mutex<bool>, Condvar),
    waiting: Mutex<Vec<Callback>>,
}

struct StoredRow {
    deletion: Deletion,
    cells: Vec<Cell>,
}

impl MemoryStore {
    pub(crate) fn new(schema: Arc<Schema>, partitioner: Partitioner) -> Self {
        Self {
            schema,
            partitioner,
            rows: Mutex::default(),
            blocks: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            batches: AtomicBool::new(false),
            blocked: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            is_stalled: (Mutex::new(false), Condvar::new()),
            waiting: Mutex::default(),
        }
    }

    /// Lets all writes that wait be durable, or fail. Returns how many there were.
    pub(crate) fn sync(&self, result: &Result<(), WriteError>) -> usize {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        let count = waiting.len();
        for callback in waiting {
            callback(result.clone());
        }
        count
    }

    /// All that is stored of a row, deletions included.
    pub(crate) fn stored(&self, family: FamilyId, key: &str) -> RowVersion {
        self.version(family, key, &Slice::all(None))
    }

    /// What a replica tells of a slice.
    pub(crate) fn version(&self, family: FamilyId, key: &str, slice: &Slice) -> RowVersion {
        let (key, context) = (RowKey::from(key), RequestContext::default());
        self.read_version(family, &key, slice, &context, Access::Cached).unwrap()
    }

    /// From now on everything blocks, and whoever may block waits for the end of this.
    pub(crate) fn stall(&self, stalls: bool) {
        self.blocks.store(stalls, Ordering::SeqCst);
        let (is_stalled, changed) = &self.is_stalled;
        *is_stalled.lock().unwrap() = stalls;
        changed.notify_all();
    }

    /// Works until all endless reads may end.
    fn read_on(&self, context: &RequestContext, access: Access) -> Result<(), ReadError> {
        if self.ends.load(Ordering::SeqCst) {
            return Ok(());
        }
        if access == Access::CachedOnly {
            return Err(ReadError::WouldBlock);
        }
        self.running.fetch_add(1, Ordering::SeqCst);
        let mut halted = Ok(());
        while halted.is_ok() && !self.ends.load(Ordering::SeqCst) {
            context.spend(1000);
            halted = context.check();
            std::thread::yield_now();
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(halted?)
    }

    /// Whether the caller has to come back on a thread that may block.
    fn would_block(&self, may_block: bool) -> bool {
        if !self.blocks.load(Ordering::SeqCst) {
            return false;
        }
        if may_block {
            self.blocked.fetch_add(1, Ordering::SeqCst);
            assert!(!self.panics.load(Ordering::SeqCst), "on purpose");
            let (is_stalled, changed) = &self.is_stalled;
            drop(changed.wait_while(is_stalled.lock().unwrap(), |stalled| *stalled).unwrap());
        }
        !may_block
    }

    fn apply_family(&self, key: &RowKey, mutation: &FamilyMutation) {
        let family = self.schema.family(mutation.family);
        let place = (mutation.family, self.partitioner.decorate(key.clone()));
        let mut rows = self.rows.lock().unwrap();
        let empty = || StoredRow { deletion: Deletion::NONE, cells: Vec::new() };
        let row = rows.entry(place).or_insert_with(empty);
        row.deletion = row.deletion.merge(mutation.deletion);
        for cell in &mutation.cells {
            match row.cells.binary_search_by(|c| family.compare(c.place(), cell.place())) {
                Ok(i) => row.cells[i] = row.cells[i].clone().reconcile(cell.clone()),
                Err(i) => row.cells.insert(i, cell.clone()),
            }
        }
    }
}

impl StoredRow {
    fn slice(&self, family: &ColumnFamilySchema, slice: &Slice) -> RowSlice {
        let marker = self.marker(family, slice).and_then(Cell::deletion);
        let super_deletion = marker.unwrap_or(Deletion::NONE);
        let mut resolver = Resolver::new(family, slice, self.deletion, super_deletion);
        if resolver.is_done() {
            return resolver.finish();
        }
        let mut cells = self.within(family, slice);
        if slice.is_reversed() {
            cells.reverse();
        }
        cells.into_iter().any(|cell| resolver.push(cell) == Flow::Done);
        resolver.finish()
    }

    fn version(&self, family: &ColumnFamilySchema, slice: &Slice) -> RowVersion {
        let mut version = RowVersion { deletion: self.deletion, cells: Vec::new() };
        version.cells.extend(self.marker(family, slice).cloned());
        version.cells.extend(self.within(family, slice));
        let mut whole = version.clone();
        whole.drop_hidden(family);
        let seen = self.slice(family, slice);
        if version.is_cut(family, slice) {
            let mut cells = seen.cells.into_vec();
            cells.sort_by(|a, b| family.compare(a.place(), b.place()));
            whole.truncate_to(family, slice, &RowVersion { deletion: Deletion::NONE, cells });
        }
        whole
    }

    /// The cell that deletes the super column of the slice.
    fn marker(&self, family: &ColumnFamilySchema, slice: &Slice) -> Option<&Cell> {
        let range = CellRange::super_tombstone(slice.super_name()?);
        self.cells.iter().find(|cell| range.contains(family, cell.place()))
    }

    /// The cells of the slice, in ascending order.
    fn within(&self, family: &ColumnFamilySchema, slice: &Slice) -> Vec<Cell> {
        let mut walk = slice.walk(family);
        let Some(range) = walk.rest() else { return Vec::new() };
        let cells = self.cells.iter().filter(|cell| range.contains(family, cell.place()));
        cells.filter(|cell| walk.wants(cell.place())).cloned().collect()
    }
}

impl LocalStore for MemoryStore {
    fn apply(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError> {
        if self.would_block(may_block) {
            return Err(WriteError::WouldBlock);
        }
        for mutation in mutations {
            for family in &mutation.families {
                self.apply_family(&mutation.key, family);
            }
        }
        if self.batches.load(Ordering::SeqCst) {
            return Ok(Applied::Pending(LogPosition { segment: 1, offset: 0 }));
        }
        Ok(Applied::Durable)
    }

    fn on_durable(&self, _position: LogPosition, callback: Callback) {
        self.waiting.lock().unwrap().push(callback);
    }

    fn read(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowSlice, ReadError> {
        if self.would_block(access != Access::CachedOnly) {
            return Err(ReadError::WouldBlock);
        }
        if *key == RowKey::from(ENDLESS) {
            self.read_on(context, access)?;
        }
        let place = (family, self.partitioner.decorate(key.clone()));
        let rows = self.rows.lock().unwrap();
        let family = self.schema.family(family);
        context.take(answer::row_cost(key.as_bytes()))?;
        Ok(rows.get(&place).map(|row| row.slice(family, slice)).unwrap_or_default())
    }

    fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        self.read(family, key, slice, context, access).map(|row| row.count)
    }

    fn scan(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowSlice)>, ReadError> {
        if self.would_block(access != Access::CachedOnly) {
            return Err(ReadError::WouldBlock);
        }
        let rows = self.rows.lock().unwrap();
        let schema = self.schema.family(family);
        let within =
            rows.iter().filter(|((id, key), _)| *id == family && range.contains(key.token()));
        let row = |((_, key), row): (&(FamilyId, DecoratedKey), &StoredRow)| {
            context.take(answer::row_cost(key.key().as_bytes()))?;
            Ok((key.key().clone(), row.slice(schema, slice)))
        };
        within.take(max_rows).map(row).collect()
    }

    fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        self.read(family, key, slice, context, access)?;
        let place = (family, self.partitioner.decorate(key.clone()));
        let rows = self.rows.lock().unwrap();
        let family = self.schema.family(family);
        Ok(rows.get(&place).map(|row| row.version(family, slice)).unwrap_or_default())
    }

    fn scan_versions(
        &self,
        family: FamilyId,
        range: &RowRange,
        slice: &Slice,
        max_rows: usize,
        context: &RequestContext,
        access: Access,
    ) -> Result<Vec<(RowKey, RowVersion)>, ReadError> {
        let rows = self.scan(family, range, slice, max_rows, context, access)?;
        rows.into_iter()
            .map(|(key, _)| {
                let version = self.read_version(family, &key, slice, context, access)?;
                Ok((key, version))
            })
            .collect()
    }

    fn row_samples(
        &self,
        range: TokenRange,
        _context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        let mut samples = RowSamples::new(range);
        for (_, key) in self.rows.lock().unwrap().keys() {
            samples.add(key.token(), 1);
        }
        Ok(samples)
    }
}
