//! Rows that come from other nodes in token order: they become SSTables that count all at once,
//! past the commit log and the memtables.

use super::super::error::{FileError, ReadError};
use super::super::family::{ColumnFamily, OutputShape, Outputs};
use super::super::options::CompactionStrategy;
use super::flushes::is_shortage;
use super::{Core, Database};
use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::version::RowVersion;
use crate::ring::DecoratedKey;
use crate::storage::files;
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering as AtomicOrdering;

/// After so many bytes another SSTable is begun, where there are no levels: what comes as one need
/// not stay one giant.
const TABLE_BYTES: u64 = 1 << 30;

/// Why rows were not taken. Nothing of the ingest counts then, and nothing of it is left.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IngestError {
    /// The store has failed and takes no more writes.
    #[error("{family} takes no more writes: {reason}")]
    Failed {
        /// The column family.
        family: String,
        /// What went wrong.
        reason: String,
    },
    /// A row, or a cell of it, stands where it should not.
    #[error("row {key} does not come in order, or its cells do not")]
    OutOfOrder {
        /// The row.
        key: RowKey,
    },
    /// The column family cannot hold this.
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
        if is_shortage(&error) { Self::Shortage(error) } else { Self::Disk(error) }
    }
}

impl From<FileError> for IngestError {
    fn from(error: FileError) -> Self {
        ReadError::from(error).into()
    }
}

/// Rows on their way into a column family. What was pushed counts when [`Ingest::finish`] has
/// returned; if that is never called, nothing is left of it. The storage stays locked, though
/// closed, as long as this lives.
#[derive(Debug)]
pub struct Ingest {
    core: Arc<Core>,
    store: Arc<ColumnFamily>,
    /// `None` after a failure.
    writing: Option<Writing>,
}

#[derive(Debug)]
struct Writing {
    outputs: Outputs<Arc<ColumnFamily>>,
    row: Option<OpenRow>,
}

/// The row that was pushed last, which may go on.
#[derive(Debug)]
struct OpenRow {
    key: DecoratedKey,
    deletion: Deletion,
    last: Option<Cell>,
    /// The last deletion of a super column.
    marker: Option<Cell>,
}

impl Database {
    /// Begins to take rows in.
    pub fn ingest(&self, family: FamilyId) -> Result<Ingest, IngestError> {
        let core = Arc::clone(&self.core);
        let store = Arc::clone(core.family(family));
        check(&core, &store)?;
        let split_bytes = match store.options().compaction_strategy {
            CompactionStrategy::SizeTiered => TABLE_BYTES,
            CompactionStrategy::Leveled => store.options().leveled_table_bytes,
        };
        // They overlap with all that there is, as those of a flush do.
        let shape = OutputShape { level: 0, split_bytes, expected_rows: None };
        let outputs = Outputs::new(Arc::clone(&store), shape);
        Ok(Ingest { core, store, writing: Some(Writing { outputs, row: None }) })
    }
}

impl Ingest {
    /// Adds a row, or more of the row before: its cells in order, all behind those that were there.
    /// Only the deletions of the row and of the super column in which the row was cut may be
    /// repeated. Rows come in token order.
    pub fn push(&mut self, key: &RowKey, version: &RowVersion) -> Result<(), IngestError> {
        let mut writing = self.writing.take().ok_or(IngestError::GivenUp)?;
        check(&self.core, &self.store)?;
        writing.push(&self.store, key, version)?;
        self.writing = Some(writing);
        Ok(())
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        self.writing.as_ref().map_or(0, |writing| writing.outputs.bytes())
    }

    /// Makes all that was pushed count, durably and in one step. Returns the bytes of the SSTables.
    pub fn finish(mut self) -> Result<u64, IngestError> {
        let writing = self.writing.take().ok_or(IngestError::GivenUp)?;
        check(&self.core, &self.store)?;
        let Writing { mut outputs, row } = writing;
        if row.is_some() {
            outputs.open_file()?.end_row()?;
        }
        let (new, _) = outputs.finish()?;
        if new.is_empty() {
            return Ok(0);
        }
        self.store.replace(&[], &new, None)?;
        for table in &new {
            let name = &self.store.schema().name;
            let file = files::sstable(&table.folder, name, table.generation);
            log::debug!("Created {} ({} bytes)", file.display(), table.bytes);
        }
        self.core.note_families();
        self.core.request_compaction(&self.store);
        Ok(new.iter().map(|table| table.bytes).sum())
    }
}

fn check(core: &Core, store: &ColumnFamily) -> Result<(), IngestError> {
    if core.stopping.load(AtomicOrdering::Relaxed) {
        return Err(IngestError::Stopped);
    }
    let dropped = || store.refuses_writes().then_some("it was dropped");
    let Some(reason) = store.failure().or_else(dropped) else { return Ok(()) };
    Err(IngestError::Failed { family: store.schema().to_string(), reason: reason.to_owned() })
}

impl Writing {
    fn push(
        &mut self,
        store: &ColumnFamily,
        key: &RowKey,
        version: &RowVersion,
    ) -> Result<(), IngestError> {
        if key.as_bytes().is_empty() {
            return Err(IngestError::Unsuitable { key: key.clone() });
        }
        let deletion = version.deletion;
        let decorated = store.environment().partitioner.decorate(key.clone());
        match self.row.as_ref().map(|row| (row.key.cmp(&decorated), row.deletion)) {
            Some((Ordering::Greater, _)) => {
                return Err(IngestError::OutOfOrder { key: key.clone() });
            }
            Some((Ordering::Equal, before)) => {
                let merged = before.merge(deletion);
                if merged != before {
                    self.begin_elsewhere(decorated, merged)?;
                }
            }
            Some((Ordering::Less, _)) => {
                self.outputs.open_file()?.end_row()?;
                self.begin(decorated, deletion)?;
            }
            None => self.begin(decorated, deletion)?,
        }
        version.cells.iter().try_for_each(|cell| self.push_cell(store, key, cell))
    }

    fn begin(&mut self, key: DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        self.outputs.begin_row()?.begin_row(&key, deletion);
        self.row = Some(OpenRow { key, deletion, last: None, marker: None });
        Ok(())
    }

    /// Goes on with the row in another SSTable: it has changed while it was copied, and what is
    /// written of it cannot be changed any more.
    fn begin_elsewhere(&mut self, key: DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        self.outputs.open_file()?.end_row()?;
        self.outputs.end()?;
        self.begin(key, deletion)
    }

    fn push_cell(
        &mut self,
        store: &ColumnFamily,
        key: &RowKey,
        cell: &Cell,
    ) -> Result<(), IngestError> {
        let family = store.schema();
        let Some(row) = &self.row else { return Err(IngestError::GivenUp) };
        if !family.can_hold(cell.state(), cell.place()) {
            return Err(IngestError::Unsuitable { key: key.clone() });
        }
        let is_marker = cell.state() == CellState::SuperTombstone;
        let is_in_super = |other: &&Cell| {
            let order = family.comparator().compare(other.super_name(), cell.super_name());
            order == Ordering::Equal
        };
        if let Some(last) = &row.last
            && family.compare(last.place(), cell.place()) != Ordering::Less
        {
            if !is_marker || !is_in_super(&last) {
                return Err(IngestError::OutOfOrder { key: key.clone() });
            }
            let known = row.marker.as_ref().filter(is_in_super).and_then(Cell::deletion);
            let known = known.unwrap_or(Deletion::NONE);
            if known.merge(cell.deletion().unwrap_or(Deletion::NONE)) == known {
                return Ok(());
            }
            let (key, deletion) = (row.key.clone(), row.deletion);
            self.begin_elsewhere(key, deletion)?;
        }
        self.outputs.open_file()?.push(cell)?;
        if let Some(row) = &mut self.row {
            row.last = Some(cell.clone());
            if is_marker {
                row.marker = Some(cell.clone());
            }
        }
        Ok(())
    }
}
