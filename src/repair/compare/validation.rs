//! Validation: the hashes of this node's rows, for a repairing node.

use super::hashing::{COLUMN_INDEX_BYTES, HashSink, HashedRow, RowList, add_to};
use super::leaves::{Leaves, Shape, row_ranges};
use super::remembered::{Division, Known, MAX_BYTES, Remembered, Tables};
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::base::worker::Spawner;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::visibility::COMPARED;
use crate::net::bodies::BodyContext;
use crate::repair::error::{OperationError, Result};
use crate::repair::job::{JobControl, Output, Scope};
use crate::replica::Abandoned;
use crate::ring::{DecoratedKey, RowRange, TokenRange};
use crate::storage::Database;
use crate::storage::database::ValidationSet;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// Hashes rows, and remembers the hashes.
#[derive(Debug, Clone)]
pub(crate) struct Validator {
    storage: Arc<Database>,
    spawner: Spawner,
    remembered: Arc<Mutex<rank::Files, Remembered>>,
    /// One column family is read at a time, as on the one compaction thread of 0.6. Lists of rows
    /// are short and do not wait for that.
    scan: Arc<Semaphore>,
    tasks: TaskTracker,
}

impl Validator {
    pub(crate) fn new(storage: Arc<Database>, spawner: Spawner) -> Self {
        let (remembered, tasks) = Default::default();
        Self { storage, spawner, remembered, scan: Arc::new(Semaphore::new(1)), tasks }
    }

    /// Hashes of leaves.
    pub(crate) async fn leaves(
        &self,
        scope: Scope,
        shape: Shape,
        control: JobControl,
    ) -> Result<Output> {
        let turn = control.stop.run_until_cancelled(Arc::clone(&self.scan).acquire_owned()).await;
        let Some(Ok(_turn)) = turn else { return Err(OperationError::GivenUp) };
        let this = self.clone();
        self.spawner.run(move || this.hash_leaves(&scope, shape, &control)).await?
    }

    /// Hashes of single rows.
    pub(crate) async fn list(
        &self,
        scope: Scope,
        after: Option<RowKey>,
        control: JobControl,
    ) -> Result<Output> {
        let this = self.clone();
        self.spawner.run(move || this.hash_rows(&scope, after.as_ref(), &control)).await?
    }

    fn hash_leaves(
        &self,
        Scope { family, gc_before, ranges }: &Scope,
        shape: Shape,
        control: &JobControl,
    ) -> Result<Output> {
        let (family, gc_before) = (*family, *gc_before);
        let leaves = Leaves::new(self.storage.partitioner(), ranges, &shape)
            .map_err(|why| OperationError::Failed(format!("the ranges make no sense: {why}")))?;
        let set = self.storage.validation_set(family)?;
        let division = Division { ranges: ranges.clone(), shape };
        let mut leaves = self.known(family, &set, &division, leaves)?;
        let unknown = leaves.empty_unknown(gc_before);
        if !unknown.is_empty() {
            let builder = self.storage.row_builder(family, COLUMN_INDEX_BYTES)?;
            control.progress.expect_rows(rows_within(&set, &leaves, unknown.len()));
            let mut sink = HashSink::new(builder, control, add_to(&mut leaves));
            self.storage.validate(&set, &row_ranges(&unknown), gc_before, COMPARED, &mut sink)?;
        }
        let hashes = leaves.hashes();
        self.remembered().keep(family, set.now.identities(), division, leaves);
        self.save(family);
        Ok(Output::Leaves(hashes))
    }

    fn hash_rows(
        &self,
        Scope { family, gc_before, ranges }: &Scope,
        after: Option<&RowKey>,
        control: &JobControl,
    ) -> Result<Output> {
        let token = after.map(|key| self.storage.partitioner().token(key.as_bytes()));
        let is_open = |range: &RowRange| match (&range.end, &token) {
            (Bound::Included(end) | Bound::Excluded(end), Some(token)) => end >= token,
            _ => true,
        };
        let builder = self.storage.row_builder(*family, COLUMN_INDEX_BYTES)?;
        let (mut list, mut is_complete) = (RowList::default(), true);
        let mut sink = HashSink::new(builder, control, |row: HashedRow<'_>| list.add(&row));
        for range in row_ranges(ranges).into_iter().filter(is_open) {
            let is_within = token.as_ref().is_some_and(|token| range.contains(token));
            let after = after.filter(|_| is_within);
            if !self.storage.visit_rows(*family, &range, after, *gc_before, &mut sink)? {
                is_complete = false;
                break;
            }
        }
        let RowList { rows, last, .. } = list;
        Ok(Output::Rows { rows, next: last.filter(|_| !is_complete) })
    }

    /// These leaves with the hashes that are known from earlier.
    fn known(
        &self,
        family: FamilyId,
        set: &ValidationSet,
        division: &Division,
        mut empty: Leaves,
    ) -> Result<Leaves> {
        self.load(family);
        self.storage.family(family).want_merged_keys();
        let (now, merges) = (&set.now.identities(), &set.now.merges);
        let known = self.remembered().find(family, Tables { now, merges }, division, &empty);
        let Some(Known { mut leaves, added }) = known else {
            empty.lose_if(|_| true);
            return Ok(empty);
        };
        let is_added = |generation| added.contains(&generation);
        if set.rows_of(is_added) > set.rows() / 2 {
            leaves.lose_if(|_| true);
        } else if !added.is_empty() {
            let scanned: Vec<TokenRange> = leaves.0.iter().map(|leaf| leaf.range.clone()).collect();
            let scanned = row_ranges(&scanned);
            let lose = |key: &DecoratedKey| leaves.lose(key.token());
            self.storage.visit_keys(set, is_added, &scanned, lose)?;
        }
        Ok(leaves)
    }

    /// The last division of these ranges, if it is known.
    pub(super) fn shape(&self, family: FamilyId, ranges: &[TokenRange]) -> Option<Shape> {
        self.load(family);
        self.remembered().shape(family, ranges).cloned()
    }

    /// Loads the saved hashes of a family once. Without them all rows are read again.
    fn load(&self, family: FamilyId) {
        if self.remembered().is_loaded(family) {
            return;
        }
        let file = self.storage.family(family).kept_hashes(MAX_BYTES);
        let file = file.unwrap_or_else(|error| {
            log::warn!("what is known of hashes cannot be read: {error}");
            None
        });
        self.remembered().load(family, &file.unwrap_or_default(), self.context());
    }

    /// Saves the hashes of a family for the next start. Without them all rows are read again.
    fn save(&self, family: FamilyId) {
        let content = self.remembered().save(family, self.context());
        if let Err(error) = self.storage.family(family).keep_hashes(&content) {
            log::warn!("what is known of hashes cannot be kept: {error}");
        }
    }

    /// Follows merges of SSTables. To be called about once a second, within a tokio runtime.
    pub(crate) fn tidy(&self) {
        if let Ok(turn) = Arc::clone(&self.scan).try_acquire_owned() {
            let changed = self.catch_up();
            if !changed.is_empty() {
                let (this, spawner) = (self.clone(), self.spawner);
                self.tasks.spawn(async move {
                    let save = move || changed.into_iter().for_each(|family| this.save(family));
                    // A node that stops saves them itself.
                    let _: Result<(), Abandoned> = spawner.run(save).await;
                    drop(turn);
                });
            }
        }
    }

    /// Follows merges of SSTables. Returns the families whose hashes changed. No validation must
    /// run meanwhile.
    fn catch_up(&self) -> Vec<FamilyId> {
        let families = self.remembered().families();
        let has_changed = |family: &FamilyId| {
            let now = self.storage.family(*family).tables_now();
            let tables = Tables { now: &now.identities(), merges: &now.merges };
            self.remembered().catch_up(*family, tables)
        };
        families.into_iter().filter(has_changed).collect()
    }

    /// Saves all hashes for the next start. No job must run any more.
    pub(crate) async fn stop(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.catch_up().into_iter().for_each(|family| self.save(family));
    }

    fn context(&self) -> BodyContext<'_> {
        BodyContext { schema: self.storage.schema(), partitioner: self.storage.partitioner() }
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock()
    }
}

/// Estimates the rows in this number of the leaves.
fn rows_within(set: &ValidationSet, leaves: &Leaves, count: usize) -> u64 {
    let samples = set.sampled_tokens();
    let inside = samples.iter().filter(|token| leaves.leaf_of(token).is_some()).count() as u64;
    let rows = match samples.len() as u64 {
        0 => set.rows(),
        all => set.rows().saturating_mul(inside) / all,
    };
    rows.saturating_mul(count as u64) / (leaves.0.len() as u64).max(1)
}

#[cfg(test)]
mod tests;
