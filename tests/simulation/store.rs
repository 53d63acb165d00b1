//! The storage core as the store of a simulated replica: it does all that it does in a server, but
//! when the commit log is synced the simulator decides.

use crate::defects::Defect;
use alexandra::base::context::RequestContext;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::{MutationBuilder, RowMutation};
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::model::version::RowVersion;
use alexandra::replica::{Applied, LocalStore, LogPosition, WriteError};
use alexandra::ring::{RowRange, RowSamples, TokenRange};
use alexandra::storage::Storage;
use alexandra::storage::error::ReadError;
use alexandra::storage::sstable::Access;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

type Callback = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// A storage core whose log is synced when the simulator says so.
pub(crate) struct SimStore {
    storage: Arc<Storage>,
    /// Whether writes wait for a sync.
    is_batch: bool,
    defect: Option<Defect>,
    calls: AtomicU64,
    /// Whether the node has no place yet.
    is_joining: AtomicBool,
    waiting: Mutex<Vec<Callback>>,
    /// What a defect has put off.
    late: Mutex<Vec<RowMutation>>,
}

impl SimStore {
    pub(crate) fn new(storage: Arc<Storage>, is_batch: bool, defect: Option<Defect>) -> Self {
        let (waiting, late) = (Mutex::default(), Mutex::default());
        let (calls, is_joining) = Default::default();
        Self { storage, is_batch, defect, calls, is_joining, waiting, late }
    }

    pub(crate) fn set_joining(&self, is_joining: bool) {
        self.is_joining.store(is_joining, Ordering::SeqCst);
    }

    /// Makes the commit log durable and tells who waits.
    pub(crate) fn sync(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        self.storage.sync().expect("the disk is sound");
        for callback in waiting {
            callback(Ok(()));
        }
    }

    /// Does what a defect has put off.
    pub(crate) fn catch_up(&self) {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        if !late.is_empty() {
            LocalStore::apply(&*self.storage, &late, true).expect("the disk is sound");
        }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// True for one call of so many.
    fn one_in(&self, many: u64) -> bool {
        self.calls.fetch_add(1, Ordering::SeqCst) % many == many - 1
    }

    /// Of these mutations, what is applied now.
    fn due(&self, mutations: &[RowMutation]) -> Vec<RowMutation> {
        let is_own = |mutation: &&RowMutation| self.keyspace(mutation) == "system";
        if self.has(Defect::AcknowledgedBeforeWritten) {
            let others = mutations.iter().filter(|it| !is_own(it)).cloned();
            self.late.lock().unwrap().extend(others);
            return mutations.iter().filter(is_own).cloned().collect();
        }
        let forgets = self.has(Defect::WritesForgotten) && self.one_in(20)
            || self.has(Defect::PendingForgotten) && self.is_joining.load(Ordering::SeqCst);
        if forgets {
            return mutations.iter().filter(is_own).cloned().collect();
        }
        if self.has(Defect::RowsTorn) {
            return mutations.iter().map(|mutation| self.first_cell(mutation)).collect();
        }
        mutations.to_vec()
    }

    /// The mutation, or the first cell of it, and the others are put off.
    fn first_cell(&self, mutation: &RowMutation) -> RowMutation {
        let family = &mutation.families[0];
        if family.cells.len() < 2 {
            return mutation.clone();
        }
        let build = |cells: &[_]| {
            let schema = self.storage.schema();
            let keyspace = self.keyspace(mutation);
            let mut builder = MutationBuilder::new(schema, &keyspace, mutation.key.as_bytes());
            builder.family(family.family).delete_row(family.deletion);
            for cell in cells {
                builder.cell(cell);
            }
            builder.finish()
        };
        self.late.lock().unwrap().push(build(&family.cells[1..]));
        build(&family.cells[..1])
    }

    fn keyspace(&self, mutation: &RowMutation) -> String {
        self.storage.schema().family(mutation.families[0].family).keyspace.clone()
    }
}

impl LocalStore for SimStore {
    fn apply(&self, mutations: &[RowMutation], may_block: bool) -> Result<Applied, WriteError> {
        let due = self.due(mutations);
        let applied = LocalStore::apply(&*self.storage, &due, may_block)?;
        assert_eq!(applied, Applied::Durable, "the log of the simulation is periodic");
        if self.is_batch && !self.has(Defect::SyncSkipped) {
            return Ok(Applied::Pending(LogPosition { segment: 0, offset: 0 }));
        }
        Ok(applied)
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
        LocalStore::read(&*self.storage, family, key, slice, context, access)
    }

    fn count(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<usize, ReadError> {
        LocalStore::count(&*self.storage, family, key, slice, context, access)
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
        LocalStore::scan(&*self.storage, family, range, slice, max_rows, context, access)
    }

    fn read_version(
        &self,
        family: FamilyId,
        key: &RowKey,
        slice: &Slice,
        context: &RequestContext,
        access: Access,
    ) -> Result<RowVersion, ReadError> {
        let mut version =
            LocalStore::read_version(&*self.storage, family, key, slice, context, access)?;
        if self.has(Defect::DeletionsUntold) {
            version.cells.retain(|cell| cell.is_live());
            version.deletion = alexandra::model::deletion::Deletion::NONE;
        }
        if self.has(Defect::ReadsOfNothing) && self.one_in(10) {
            return Ok(RowVersion::default());
        }
        Ok(version)
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
        let mut rows = LocalStore::scan_versions(
            &*self.storage,
            family,
            range,
            slice,
            max_rows,
            context,
            access,
        )?;
        if self.has(Defect::PagesCutShort) {
            rows.truncate((max_rows / 2).max(1));
        }
        Ok(rows)
    }

    fn row_samples(
        &self,
        range: TokenRange,
        context: &RequestContext,
    ) -> Result<RowSamples, ReadError> {
        LocalStore::row_samples(&*self.storage, range, context)
    }
}
