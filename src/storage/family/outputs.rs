//! The SSTables that a compaction or an ingest writes: one, or several that each end where a row
//! does.

use super::{ColumnFamily, NewTable, discard};
use crate::storage::error::FileError;
use crate::storage::files;
use crate::storage::sstable::{SsTable, SsTableWriter};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

/// Rows that the filter of a file has room for at least.
const LEAST_ROWS: u64 = 128;

/// Most rows of a file when nobody knows beforehand how many there will be: each takes eight bytes
/// of memory until the file is complete.
const MOST_ROWS: u64 = 1 << 21;

/// How new SSTables are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputShape {
    /// The level that they are for; 0 for none.
    pub level: u32,
    /// After so many bytes another SSTable is begun.
    pub split_bytes: u64,
    /// Rows that one of them will have at most, about, if that is known.
    pub expected_rows: Option<u64>,
}

impl OutputShape {
    /// For SSTables that take the place of these.
    pub fn of_merged(level: u32, split_bytes: u64, inputs: &[Arc<SsTable>]) -> Self {
        let rows: u64 = inputs.iter().map(|table| table.rows()).sum();
        let bytes: u64 = inputs.iter().map(|table| table.size()).sum();
        // Rows may be smaller where the file is, hence the double.
        let share = 2.0 * split_bytes as f64 / bytes.max(1) as f64;
        let expected_rows = ((rows as f64 * share) as u64).clamp(rows.min(LEAST_ROWS), rows);
        Self { level, split_bytes, expected_rows: Some(expected_rows) }
    }
}

/// What was written so far, under temporary names. What is not [finished](Outputs::finish) is
/// removed.
#[derive(Debug)]
pub struct Outputs<S: Deref<Target = ColumnFamily>> {
    store: S,
    shape: OutputShape,
    open: Option<(SsTableWriter, NewTable)>,
    /// Rows that were begun in the open file.
    rows_in_open: u64,
    done: Vec<NewTable>,
    rows: u64,
    bytes: u64,
}

impl<S: Deref<Target = ColumnFamily>> Outputs<S> {
    /// Nothing yet.
    pub fn new(store: S, shape: OutputShape) -> Self {
        let (open, done) = (None, Vec::new());
        Self { store, shape, open, rows_in_open: 0, done, rows: 0, bytes: 0 }
    }

    /// The file that takes the next row. To be called once for each.
    pub fn begin_row(&mut self) -> Result<&mut SsTableWriter, FileError> {
        let has_all_rows = self.shape.expected_rows.is_none() && self.rows_in_open >= MOST_ROWS;
        let split_bytes = self.shape.split_bytes;
        if has_all_rows || self.open.as_ref().is_some_and(|(file, _)| file.size() >= split_bytes) {
            self.end()?;
        }
        self.rows_in_open += 1;
        self.open_file()
    }

    /// The file that has the row that was begun last.
    pub fn open_file(&mut self) -> Result<&mut SsTableWriter, FileError> {
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        Ok(&mut self.open.as_mut().expect("it was created").0)
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.open.as_ref().map_or(0, |(writer, _)| writer.size())
    }

    /// Makes everything durable; returns the files and the number of their rows.
    pub fn finish(mut self) -> Result<(Vec<NewTable>, u64), FileError> {
        self.end()?;
        Ok((std::mem::take(&mut self.done), self.rows))
    }

    fn create(&self) -> Result<(SsTableWriter, NewTable), FileError> {
        let environment = self.store.environment();
        let generation = self.store.next_generation();
        let folder = self.store.roomiest_folder(generation)?.to_owned();
        let new = NewTable { generation, bytes: 0, folder };
        let (options, now) = (self.store.writer_options(), environment.clock.now_micros());
        let (schema, path) = (self.store.schema(), self.path(&new));
        let fs = &*environment.fs;
        let rows = self.shape.expected_rows;
        let writer = SsTableWriter::create(fs, &path, schema, options, rows, now);
        let mut writer = writer.inspect_err(|_| discard(fs, &path))?;
        writer.set_level(self.shape.level);
        Ok((writer, new))
    }

    /// Completes the open file, if there is one. The row that was begun last has ended.
    pub fn end(&mut self) -> Result<(), FileError> {
        self.rows_in_open = 0;
        let Some((writer, new)) = self.open.take() else { return Ok(()) };
        // From here on it is removed with the others.
        self.done.push(new);
        let (properties, bytes) = writer.finish()?;
        if properties.rows == 0 {
            if let Some(empty) = self.done.pop() {
                self.discard(&empty);
            }
            return Ok(());
        }
        if let Some(new) = self.done.last_mut() {
            new.bytes = bytes;
        }
        self.rows += properties.rows;
        self.bytes += bytes;
        Ok(())
    }

    fn path(&self, new: &NewTable) -> PathBuf {
        let path = files::sstable(&new.folder, &self.store.schema().name, new.generation);
        files::temporary(&path)
    }

    fn discard(&self, new: &NewTable) {
        discard(&*self.store.environment().fs, &self.path(new));
    }
}

impl<S: Deref<Target = ColumnFamily>> Drop for Outputs<S> {
    fn drop(&mut self) {
        if let Some((_, new)) = self.open.take() {
            self.done.push(new);
        }
        for new in &self.done {
            self.discard(new);
        }
    }
}
