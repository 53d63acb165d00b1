//! Writes a full memtable to disk.

use super::{ColumnFamily, NewTable};
use crate::base::fs::FileSystem;
use crate::model::slice::CellRange;
use crate::storage::error::{FileError, ReadError};
use crate::storage::files;
use crate::storage::memtable::Memtable;
use crate::storage::sstable::SsTableWriter;
use log::Level;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Log target of flushes.
pub const FLUSH_TARGET: &str = "alexandra::flush";

impl ColumnFamily {
    /// Writes a memtable that [`ColumnFamily::switch_memtable`] returned, and makes the new SSTable
    /// take its place. After an error the memtable is still there and the same call may be
    /// repeated.
    pub fn flush(&self, memtable: &Arc<Memtable>) -> Result<(), ReadError> {
        let environment = &self.environment;
        let begun = environment.clock.monotonic();
        let generation = self.next_generation();
        let begins = memtable.described(&self.schema.name, generation);
        environment.events.tell(Level::Info, FLUSH_TARGET, format_args!("Writing {begins}"));
        let folder = self.roomiest_folder(generation)?;
        let path = files::sstable(folder, &self.schema.name, generation);
        let temporary = files::temporary(&path);
        let written = self.write_memtable(memtable, &temporary);
        if written.is_err() {
            discard(&*environment.fs, &temporary);
        }
        let (bytes, rows) = written?;
        let new = NewTable { generation, bytes, folder: folder.to_owned() };
        self.replace(&[], &[new], Some(memtable))?;
        environment.memtable_memory.fetch_sub(memtable.memory(), Ordering::Relaxed);
        let took = environment.clock.monotonic().saturating_sub(begun).as_millis();
        let path = path.display();
        let line =
            format_args!("Completed flushing {path} ({bytes} bytes)  {rows} rows.  Time: {took}ms");
        environment.events.tell(Level::Info, FLUSH_TARGET, line);
        Ok(())
    }

    fn write_memtable(&self, memtable: &Memtable, path: &Path) -> Result<(u64, u64), FileError> {
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
        let (properties, bytes) = writer.finish()?;
        Ok((bytes, properties.rows))
    }
}

/// Removes what is left of a file that was not finished. If that fails too, the next start does it.
pub fn discard(fs: &dyn FileSystem, path: &Path) {
    if fs.exists(path)
        && let Err(error) = fs.remove_file(path)
    {
        log::warn!("cannot remove the unfinished file {}: {error}", path.display());
    }
}
