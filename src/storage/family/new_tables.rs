//! New SSTables of a column family: their folders and names, and the flush of a memtable.

use super::{Cause, ColumnFamily};
use crate::model::slice::CellRange;
use crate::storage::error::{FileContext, FileError, ReadError};
use crate::storage::files;
use crate::storage::memtable::Memtable;
use crate::storage::sstable::{
    OutputOptions, Outputs, SsTable, SsTableWriter, WriterOptions, WrittenFile, discard,
};
use log::Level;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Log target of flushes.
pub const FLUSH_TARGET: &str = "alexandra::flush";

/// Part of the most room that a folder may lack to count as equally roomy.
const ABOUT_AS_MUCH_ROOM: u64 = 16;

/// Part of the room that a compaction leaves free, as in 0.6: the commit log and flushes need some
/// as well, or writes would stop.
const LEFT_TO_OTHERS: u64 = 10;

/// Least rows that the filter of a merged file has room for.
const LEAST_ROWS: u64 = 128;

impl ColumnFamily {
    /// Writes a memtable that [`ColumnFamily::switch_memtable`] returned, and replaces it by the
    /// new SSTable. After an error the memtable still exists, and the call may be repeated.
    pub fn flush(&self, memtable: &Arc<Memtable>) -> Result<(), ReadError> {
        let environment = &self.environment;
        let begun = environment.clock.monotonic();
        let (generation, temporary) = self.new_path()?;
        let begins = memtable.described(&self.schema.name, generation);
        environment.events.tell(Level::Info, FLUSH_TARGET, format_args!("Writing {begins}"));
        let written = self.write_memtable(memtable, &temporary);
        let new = written.inspect_err(|_| discard(&*environment.fs, &temporary))?;
        self.exchange(&[], std::slice::from_ref(&new), Cause::Flushed(memtable))?;
        environment.memtable_memory.fetch_sub(memtable.memory(), Ordering::Relaxed);
        let took = environment.clock.monotonic().saturating_sub(begun);
        environment.flushes.operations.record(took);
        environment.flushes.bytes.fetch_add(new.bytes, Ordering::Relaxed);
        let took = took.as_millis();
        let (path, bytes, rows) = (temporary.with_extension(""), new.bytes, new.properties.rows);
        let path = path.display();
        let line =
            format_args!("Completed flushing {path} ({bytes} bytes)  {rows} rows.  Time: {took}ms");
        environment.events.tell(Level::Info, FLUSH_TARGET, line);
        Ok(())
    }

    fn write_memtable(&self, memtable: &Memtable, path: &Path) -> Result<WrittenFile, FileError> {
        let fs = &*self.environment.fs;
        let (options, rows) = (self.writer_options(), memtable.row_count() as u64);
        let created_at = self.environment.clock.now_micros();
        let mut writer = SsTableWriter::create(fs, path, &self.schema, options, rows, created_at)?;
        memtable.for_each_row(|key, row| {
            writer.begin_row(key, row.deletion);
            for cell in row.cells.range(&self.schema, CellRange::ALL, false) {
                writer.push(cell)?;
            }
            writer.end_row()
        })?;
        writer.finish()
    }

    /// Outputs for rows that are in no memtable.
    pub fn outputs<'a>(
        family: impl Deref<Target = Self> + Send + 'a,
        level: u32,
        split_bytes: u64,
        expected_rows: Option<u64>,
    ) -> Outputs<'a> {
        let environment = Arc::clone(&family.environment);
        let options = OutputOptions {
            writer: family.writer_options(),
            level,
            split_bytes,
            expected_rows,
            created_at_micros: environment.clock.now_micros(),
        };
        let schema = Arc::clone(&family.schema);
        let next_path = move || family.new_path().map(|(_, path)| path);
        Outputs::new(&environment.fs, &schema, options, next_path)
    }

    /// Layout of its SSTables.
    fn writer_options(&self) -> WriterOptions {
        WriterOptions {
            block_bytes: self.options.block_bytes,
            index_interval: self.options.index_interval,
            compression: self.options.compression,
            partitioner: self.environment.partitioner,
        }
    }

    /// A number for a new SSTable, and its temporary name. Another file of this name is removed at
    /// the next start.
    pub fn new_path(&self) -> Result<(u64, PathBuf), FileError> {
        let (generation, folder) = self.new_place()?;
        let path = files::sstable(folder, &self.schema.name, generation);
        Ok((generation, files::temporary(&path)))
    }

    /// A number for a new SSTable, and its folder.
    pub fn new_place(&self) -> Result<(u64, &Path), FileError> {
        let generation = self.next_generation.fetch_add(1, Ordering::Relaxed);
        Ok((generation, self.roomiest_folder(generation)?))
    }

    /// Gives its SSTables greater numbers than those of another family had.
    pub fn number_after(&self, other: &Self) {
        let least = other.next_generation.load(Ordering::Relaxed);
        self.next_generation.fetch_max(least, Ordering::Relaxed);
    }

    /// The folder for an SSTable of this number: one of those with most room. Folders with about
    /// as much room as that take turns, so that those of one disk or of equal disks all get some.
    /// A folder whose room is not known is left out; it is an error if there is no other.
    fn roomiest_folder(&self, generation: u64) -> Result<&Path, FileError> {
        if let [only] = &self.folders[..] {
            return Ok(only);
        }
        let spaces = self.spaces()?;
        let most = spaces.iter().map(|(_, space)| *space).max().unwrap_or(0);
        let enough = most - most / ABOUT_AS_MUCH_ROOM;
        let mut roomy: Vec<_> = spaces.into_iter().filter(|(_, space)| *space >= enough).collect();
        let turn = generation as usize % roomy.len();
        Ok(roomy.swap_remove(turn).0)
    }

    /// Whether some folder has room for this number of bytes of a compaction.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        // If the room is not known, the compaction finds out.
        let Ok(spaces) = self.spaces() else { return true };
        let most = spaces.iter().map(|(_, space)| *space).max().unwrap_or(0);
        bytes <= most - most / LEFT_TO_OTHERS
    }

    /// The folders whose room is known, at least one, with their room.
    fn spaces(&self) -> Result<Vec<(&Path, u64)>, FileError> {
        let mut spaces = Vec::with_capacity(self.folders.len());
        let mut failure = None;
        for folder in &self.folders {
            let space = self.environment.fs.available_space(folder);
            match space.context("look at the space of", folder) {
                Ok(space) => spaces.push((folder.as_path(), space)),
                Err(error) => {
                    log::warn!("{error}: it gets no new file");
                    failure = Some(error);
                }
            }
        }
        failure.filter(|_| spaces.is_empty()).map_or(Ok(spaces), Err)
    }
}

/// About how many rows each of the SSTables has at most that replace these.
pub fn rows_after_merge(inputs: &[Arc<SsTable>], split_bytes: u64) -> u64 {
    let rows: u64 = inputs.iter().map(|table| table.rows()).sum();
    let bytes: u64 = inputs.iter().map(|table| table.size()).sum();
    // Rows may be smaller where the file is, hence the double.
    let share = 2.0 * split_bytes as f64 / bytes.max(1) as f64;
    ((rows as f64 * share) as u64).clamp(rows.min(LEAST_ROWS), rows)
}
