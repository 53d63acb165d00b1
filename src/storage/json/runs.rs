//! Sorts rows that come in any order, in bounded memory: as much as fits is sorted and written as
//! an SSTable, a *run*; the runs are merged to one in the end.

use super::Importer;
use super::parse::RowSink;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::DecoratedKey;
use crate::storage::caches::BlockCache;
use crate::storage::error::{FileError, ReadError};
use crate::storage::sstable::{
    OutputOptions, Outputs, SsTable, SsTableWriter, WrittenFile, discard,
};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of cells that are sorted in memory.
pub(super) const RUN_BYTES: usize = 64 << 20;

/// Memory of a cell or a row besides its bytes, about.
const OVERHEAD: usize = 64;

/// Most runs: all are open at a time when they are merged.
const MAX_RUNS: usize = 512;

/// Gives a name to each file.
type NextPath<'a> = &'a mut (dyn FnMut() -> Result<PathBuf, FileError> + Send);

/// Sorts rows.
pub(super) struct Runs<'a> {
    importer: &'a Importer<'a>,
    next_path: NextPath<'a>,
    run_bytes: usize,
    rows: BTreeMap<DecoratedKey, (Deletion, Vec<Cell>)>,
    bytes: usize,
    row: Option<(DecoratedKey, Deletion)>,
    written: Vec<WrittenFile>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(
        importer: &'a Importer<'a>,
        next_path: NextPath<'a>,
        run_bytes: usize,
    ) -> Self {
        let (rows, written) = (BTreeMap::new(), Vec::new());
        Self { importer, next_path, run_bytes, rows, bytes: 0, row: None, written }
    }

    /// The rows in one file; `None` if there are none.
    pub(super) fn finish(mut self) -> Result<Option<WrittenFile>, ReadError> {
        self.write_run()?;
        if self.written.len() < 2 {
            return Ok(self.written.pop());
        }
        self.merge()
    }

    fn write_run(&mut self) -> Result<(), FileError> {
        self.bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let path = (self.next_path)()?;
        if self.written.len() >= MAX_RUNS {
            let reason = "the rows are too many to be sorted: import them in several parts";
            return Err(FileError::new("write", &path, io::Error::other(reason)));
        }
        let count = rows.len() as u64;
        self.write(&path, count, |writer, family| {
            for (key, (deletion, mut cells)) in rows {
                cells.sort_by(|a, b| family.compare(a.place(), b.place()));
                writer.begin_row(&key, deletion);
                let mut cells = cells.into_iter();
                let mut open = cells.next();
                while let Some(cell) = open {
                    match cells.next() {
                        Some(next) if family.compare(cell.place(), next.place()).is_eq() => {
                            open = Some(cell.reconcile(next));
                        }
                        next => {
                            writer.push(&cell)?;
                            open = next;
                        }
                    }
                }
                writer.end_row()?;
            }
            Ok::<(), FileError>(())
        })
        .map(|run| self.written.extend(run))
    }

    /// Writes a file, and removes it if that fails or it has no rows.
    fn write<E: From<FileError>>(
        &self,
        path: &Path,
        expected_rows: u64,
        fill: impl FnOnce(&mut SsTableWriter, &ColumnFamilySchema) -> Result<(), E>,
    ) -> Result<Option<WrittenFile>, E> {
        let Importer { fs, family, options, now_micros } = self.importer;
        let options = OutputOptions::unsplit(options.clone(), expected_rows, *now_micros);
        let mut outputs = Outputs::new(fs, family, options, || Ok(path.to_owned()));
        fill(outputs.open_file()?, family)?;
        Ok(outputs.finish()?.pop())
    }

    fn merge(&mut self) -> Result<Option<WrittenFile>, ReadError> {
        let partitioner = self.importer.options.partitioner;
        let cache = Arc::new(BlockCache::new(0));
        let open =
            |run: &WrittenFile| SsTable::open(self.importer.fs, &run.path, 0, partitioner, &cache);
        let tables = self.written.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let path = (self.next_path)()?;
        Ok(self.importer.copy(&tables, &path, &mut |_| ())?.file)
    }

    fn make_room(&mut self) -> Result<(), FileError> {
        if self.bytes < self.run_bytes {
            return Ok(());
        }
        self.write_run()?;
        // What comes of the row that was begun goes to the next run.
        if let Some((key, deletion)) = self.row.clone() {
            self.rows.insert(key, (deletion, Vec::new()));
        }
        Ok(())
    }
}

impl Drop for Runs<'_> {
    /// Runs that were merged, or are of no use.
    fn drop(&mut self) {
        for run in self.written.drain(..) {
            discard(&**self.importer.fs, &run.path);
        }
    }
}

impl RowSink for Runs<'_> {
    fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        self.make_room()?;
        let row = self.rows.entry(key.clone()).or_insert((Deletion::NONE, Vec::new()));
        row.0 = row.0.merge(deletion);
        self.bytes += key.key().as_bytes().len() + 2 * OVERHEAD;
        self.row = Some((key.clone(), deletion));
        Ok(())
    }

    fn cell(&mut self, cell: Cell) -> Result<(), FileError> {
        self.bytes += cell.encoded_length() + OVERHEAD;
        if let Some((key, _)) = &self.row
            && let Some((_, cells)) = self.rows.get_mut(key)
        {
            cells.push(cell);
        }
        self.make_room()
    }

    fn end_row(&mut self) -> Result<(), FileError> {
        self.row = None;
        Ok(())
    }
}
