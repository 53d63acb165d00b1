//! Rows from other nodes, in token order: they become SSTables that are live all at once, past the
//! commit log and the memtables.

use super::super::error::{FileError, ReadError};
use super::super::family::{ColumnFamily, Refusal};
use super::super::options::CompactionStrategy;
use super::super::sstable::SplitWriter;
use super::{Core, Database};
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::version::RowVersion;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering as AtomicOrdering;

/// Bytes after which another SSTable is begun, where there are no levels: rows that come together
/// need not stay in one huge file.
const TABLE_BYTES: u64 = 1 << 30;

/// Reason why rows were not taken. Nothing of the ingest is live then, and nothing of it is left.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// The column family takes no writes.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A row or one of its cells is out of order.
    #[error("row {key} does not come in order, or its cells do not")]
    OutOfOrder {
        /// The row.
        key: RowKey,
    },
    /// The column family cannot hold the row.
    #[error("row {key} holds what its column family cannot")]
    Unsuitable {
        /// The row.
        key: RowKey,
    },
    /// The disk has no room, or the process no file handle. It may have again later.
    #[error("there is no room for what comes from other nodes: {0}")]
    Shortage(ReadError),
    /// The operating system refused.
    #[error(transparent)]
    Disk(ReadError),
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
    /// An earlier call has failed.
    #[error("an earlier row could not be taken")]
    GivenUp,
}

impl From<ReadError> for IngestError {
    fn from(error: ReadError) -> Self {
        if error.is_shortage() { Self::Shortage(error) } else { Self::Disk(error) }
    }
}

impl From<FileError> for IngestError {
    fn from(error: FileError) -> Self {
        ReadError::from(error).into()
    }
}

/// Rows on their way into a column family. They are live when [`Ingest::finish`] has returned; if
/// that is never called, nothing is left of them. The storage stays locked, though closed, as long
/// as this lives.
#[derive(Debug)]
pub struct Ingest {
    core: Arc<Core>,
    family: Arc<ColumnFamily>,
    /// `None` after a failure.
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    /// Goes on with a row in another SSTable where it has changed while it was copied: its written
    /// part cannot be changed any more.
    rows: SplitWriter<'static>,
    /// The last deletion of a super column in the row.
    marker: Option<Cell>,
}

impl Database {
    /// Begins to take rows in.
    pub fn ingest(&self, id: FamilyId) -> Result<Ingest, IngestError> {
        let core = Arc::clone(&self.core);
        let family = Arc::clone(core.family(id));
        check(&core, &family)?;
        let split_bytes = match family.options().compaction_strategy {
            CompactionStrategy::SizeTiered => TABLE_BYTES,
            CompactionStrategy::Leveled => family.options().leveled_table_bytes,
        };
        // Level 0, as they overlap with all others.
        let outputs = ColumnFamily::outputs(Arc::clone(&family), 0, split_bytes, None);
        let writing = Some(Writing { rows: SplitWriter::new(outputs), marker: None });
        Ok(Ingest { core, family, writing })
    }
}

impl Ingest {
    /// Adds a row, or more of the row before: its cells in order, after those that were pushed.
    /// Only the deletions of the row and of the super column in which the row was cut may be
    /// repeated. Rows come in token order.
    pub fn push(&mut self, key: &RowKey, version: &RowVersion) -> Result<(), IngestError> {
        let mut writing = self.writing.take().ok_or(IngestError::GivenUp)?;
        check(&self.core, &self.family)?;
        writing.push(&self.family, key, version)?;
        self.writing = Some(writing);
        Ok(())
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        self.writing.as_ref().map_or(0, |writing| writing.rows.bytes())
    }

    /// Makes all rows live, durably and in one step. Returns the bytes of the SSTables.
    pub fn finish(mut self) -> Result<u64, IngestError> {
        let Writing { mut rows, .. } = self.writing.take().ok_or(IngestError::GivenUp)?;
        check(&self.core, &self.family)?;
        if rows.row().is_some() {
            rows.end_row()?;
        }
        let new = rows.finish()?;
        if new.is_empty() {
            return Ok(0);
        }
        if !self.family.add(&new)? {
            self.family.check_writable()?;
            return Err(IngestError::GivenUp);
        }
        for file in &new {
            let path = file.path.with_extension("");
            log::debug!("Created {} ({} bytes)", path.display(), file.bytes);
        }
        self.core.note_families();
        self.core.request_compaction(&self.family);
        Ok(new.iter().map(|file| file.bytes).sum())
    }
}

fn check(core: &Core, family: &ColumnFamily) -> Result<(), IngestError> {
    if core.stopping.load(AtomicOrdering::Relaxed) {
        return Err(IngestError::Stopped);
    }
    Ok(family.check_writable()?)
}

impl Writing {
    fn push(
        &mut self,
        family: &ColumnFamily,
        key: &RowKey,
        version: &RowVersion,
    ) -> Result<(), IngestError> {
        if key.as_bytes().is_empty() {
            return Err(IngestError::Unsuitable { key: key.clone() });
        }
        let decorated = family.environment().partitioner.decorate(key.clone());
        let last = self.rows.row().map(|row| (row.key.cmp(&decorated), row.deletion));
        let deletion = match last {
            Some((Ordering::Greater, _)) => {
                return Err(IngestError::OutOfOrder { key: key.clone() });
            }
            Some((Ordering::Equal, before)) => before.merge(version.deletion),
            Some((Ordering::Less, _)) | None => version.deletion,
        };
        if last != Some((Ordering::Equal, deletion)) {
            if last.is_some() {
                self.rows.end_row()?;
            }
            self.rows.begin_row(&decorated, deletion)?;
            self.marker = None;
        }
        version.cells.iter().try_for_each(|cell| self.push_cell(family, key, cell))
    }

    fn push_cell(
        &mut self,
        family: &ColumnFamily,
        key: &RowKey,
        cell: &Cell,
    ) -> Result<(), IngestError> {
        let schema = family.schema();
        let Some(row) = self.rows.row() else { return Err(IngestError::GivenUp) };
        if !schema.can_hold(cell.state(), cell.place()) {
            return Err(IngestError::Unsuitable { key: key.clone() });
        }
        let is_marker = cell.super_deletion().is_some();
        let is_in_super = |other: &&Cell| {
            let order = schema.comparator().compare(other.super_name(), cell.super_name());
            order == Ordering::Equal
        };
        if let Some(last) = &row.last
            && schema.compare(last.place(), cell.place()) != Ordering::Less
        {
            if !is_marker || !is_in_super(&last) {
                return Err(IngestError::OutOfOrder { key: key.clone() });
            }
            let known = self.marker.as_ref().filter(is_in_super).and_then(Cell::deletion);
            let known = known.unwrap_or(Deletion::NONE);
            if known.merge(cell.deletion().unwrap_or(Deletion::NONE)) == known {
                return Ok(());
            }
        }
        self.rows.push(cell)?;
        if is_marker {
            self.marker = Some(cell.clone());
        }
        Ok(())
    }
}
