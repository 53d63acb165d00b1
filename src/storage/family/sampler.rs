//! Counts which rows are read and written most, while somebody asks.

use super::Operation;
use crate::base::frequent::Frequent;
use crate::base::lock::{Mutex, rank};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows by the number of their operations.
pub type BusyRows = Frequent<(FamilyId, RowKey)>;

/// Counts operations by row during a [`Sampling`].
#[derive(Debug, Default)]
pub struct Sampler {
    /// All that an operation looks at otherwise.
    is_on: AtomicBool,
    sample: Mutex<rank::Last, Option<Sample>>,
}

/// Operations to count.
#[derive(Debug)]
pub struct Sample {
    /// The column families.
    pub families: BTreeSet<FamilyId>,
    /// Slices of one row; `None` if they do not count.
    pub reads: Option<BusyRows>,
    /// Mutations; `None` if they do not count.
    pub writes: Option<BusyRows>,
}

impl Sampler {
    /// Counts operations from now on, until the sampling is dropped; `None` during another one.
    pub fn begin(self: &Arc<Self>, sample: Sample) -> Option<Sampling> {
        let mut slot = self.sample.lock();
        if self.is_on.swap(true, Ordering::Relaxed) {
            return None;
        }
        *slot = Some(sample);
        Some(Sampling(Arc::clone(self)))
    }

    /// Counts an operation on a row, if somebody asks.
    #[inline]
    pub(super) fn note(&self, operation: Operation, family: FamilyId, key: &RowKey) {
        if self.is_on.load(Ordering::Relaxed) {
            self.count(operation, family, key);
        }
    }

    #[cold]
    fn count(&self, operation: Operation, family: FamilyId, key: &RowKey) {
        let mut slot = self.sample.lock();
        let Some(sample) = slot.as_mut().filter(|it| it.families.contains(&family)) else { return };
        let rows = match operation {
            Operation::Read => &mut sample.reads,
            Operation::Write => &mut sample.writes,
            Operation::RangeRead => return,
        };
        if let Some(rows) = rows {
            rows.add((family, key.clone()));
        }
    }
}

/// A sample that is being taken.
#[derive(Debug)]
#[must_use = "nothing is counted after it was dropped"]
pub struct Sampling(Arc<Sampler>);

impl Sampling {
    /// Ends it, and returns the sample.
    pub fn end(self) -> Option<Sample> {
        self.0.sample.lock().take()
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        let mut slot = self.0.sample.lock();
        *slot = None;
        self.0.is_on.store(false, Ordering::Relaxed);
    }
}
