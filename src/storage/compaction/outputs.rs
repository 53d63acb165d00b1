//! The SSTables that a compaction writes: one, or several that each end where a row does.

use super::strategy::Plan;
use crate::storage::error::FileError;
use crate::storage::files;
use crate::storage::sstable::{SsTable, SsTableWriter};
use crate::storage::store::{NewTable, Store, discard};
use std::path::PathBuf;
use std::sync::Arc;

/// Rows that the filter of a file has room for at least.
const LEAST_ROWS: u64 = 128;

/// What was written so far, under temporary names. What is not [finished](Outputs::finish) is
/// removed.
#[derive(Debug)]
pub(super) struct Outputs<'a> {
    store: &'a Store,
    plan: Plan,
    /// Rows that one of them will have at most, about.
    expected_rows: u64,
    open: Option<(SsTableWriter, NewTable)>,
    done: Vec<NewTable>,
    rows: u64,
    bytes: u64,
}

impl<'a> Outputs<'a> {
    /// Nothing yet, for a compaction of these inputs.
    pub(super) fn new(store: &'a Store, plan: Plan, inputs: &[Arc<SsTable>]) -> Self {
        let rows: u64 = inputs.iter().map(|table| table.rows()).sum();
        let bytes: u64 = inputs.iter().map(|table| table.size()).sum();
        // Rows may be smaller where the file is, hence the double.
        let share = 2.0 * plan.split_bytes as f64 / bytes.max(1) as f64;
        let expected_rows = ((rows as f64 * share) as u64).clamp(rows.min(LEAST_ROWS), rows);
        Self { store, plan, expected_rows, open: None, done: Vec::new(), rows: 0, bytes: 0 }
    }

    /// The file that takes the next row.
    pub(super) fn writer(&mut self) -> Result<&mut SsTableWriter, FileError> {
        if self.open.as_ref().is_some_and(|(file, _)| file.size() >= self.plan.split_bytes) {
            self.end()?;
        }
        if self.open.is_none() {
            self.open = Some(self.create()?);
        }
        Ok(&mut self.open.as_mut().expect("it was created").0)
    }

    /// Bytes so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes + self.open.as_ref().map_or(0, |(writer, _)| writer.size())
    }

    /// Makes everything durable; returns the files and the number of their rows.
    pub(super) fn finish(mut self) -> Result<(Vec<NewTable>, u64), FileError> {
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
        let writer = SsTableWriter::create(fs, &path, schema, options, self.expected_rows, now);
        let mut writer = writer.inspect_err(|_| discard(fs, &path))?;
        writer.set_level(self.plan.level);
        Ok((writer, new))
    }

    fn end(&mut self) -> Result<(), FileError> {
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

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        if let Some((_, new)) = self.open.take() {
            self.done.push(new);
        }
        for new in &self.done {
            self.discard(new);
        }
    }
}
