//! Merges SSTables into one, row by row and cell by cell, in memory that does not grow with them.

use super::purge::Purge;
use super::throttle::Throttle;
use crate::base::events::{CompactionEvent, CompactionKind};
use crate::model::slice::CellRange;
use crate::ring::DecoratedKey;
use crate::storage::error::{FileError, ReadError};
use crate::storage::files;
use crate::storage::row::RowReader;
use crate::storage::rows::{MergedRows, RowStream};
use crate::storage::sstable::{Access, Blocks, SsTable, SsTableWriter, filter};
use crate::storage::store::{NewTable, Store, View, discard};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why a compaction did not come to its end. Its inputs still count.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The node is stopping.
    #[error("the node is stopping")]
    Stopped,
    /// An input is damaged, or the disk refused.
    #[error(transparent)]
    Failed(#[from] ReadError),
}

impl From<FileError> for CompactionError {
    fn from(error: FileError) -> Self {
        Self::Failed(error.into())
    }
}

/// Merges these SSTables of the store into one that takes their place.
pub fn compact(
    store: &Store,
    inputs: &[Arc<SsTable>],
    kind: CompactionKind,
    stop: &AtomicBool,
) -> Result<(), CompactionError> {
    let environment = store.environment();
    let begun = environment.clock.monotonic();
    let family = store.event_family();
    let paths: Vec<PathBuf> = inputs.iter().map(|table| table.path().to_owned()).collect();
    environment.events.emit(CompactionEvent::Begin { family, kind, inputs: paths });
    let generation = store.next_generation();
    let folder = store.roomiest_folder(generation)?.to_owned();
    let path = files::sstable(&folder, &store.schema().name, generation);
    let temporary = files::temporary(&path);
    let written = write(store, inputs, &temporary, stop);
    if written.is_err() || matches!(written, Ok((_, 0))) {
        discard(&*environment.fs, &temporary);
    }
    if let Err(CompactionError::Failed(error)) = &written {
        mark_damaged(inputs, error);
    }
    let (bytes, rows) = written?;
    let mut new = Vec::new();
    if rows > 0 {
        new.push(NewTable { generation, bytes, folder });
    }
    store.replace(inputs, &new, None)?;
    environment.events.emit(CompactionEvent::End {
        family: store.event_family(),
        kind,
        outputs: if rows > 0 { vec![path] } else { Vec::new() },
        bytes_in: inputs.iter().map(|table| table.size()).sum(),
        bytes_out: if rows > 0 { bytes } else { 0 },
        keys: rows,
        took: environment.clock.monotonic().saturating_sub(begun),
    });
    Ok(())
}

/// Marks the input that could not be read, if that was the reason.
fn mark_damaged(inputs: &[Arc<SsTable>], error: &ReadError) {
    let path = match error {
        ReadError::Corrupt(corrupt) => &corrupt.file,
        ReadError::Io(file) => &file.path,
        ReadError::WouldBlock | ReadError::TooLarge { .. } | ReadError::OtherPartitioner { .. } => {
            return;
        }
    };
    for input in inputs.iter().filter(|input| input.path() == path) {
        input.mark_damaged();
    }
}

/// Writes the merged rows; returns the size of the file and the number of its rows.
fn write(
    store: &Store,
    inputs: &[Arc<SsTable>],
    path: &Path,
    stop: &AtomicBool,
) -> Result<(u64, u64), CompactionError> {
    let environment = store.environment();
    let partitioner = environment.partitioner;
    let gc_before = environment.clock.now_secs().saturating_sub(store.options().gc_grace_seconds);
    let expected_rows = inputs.iter().map(|table| table.rows()).sum();
    let (options, created_at) = (store.writer_options(), environment.clock.now_micros());
    let (fs, schema) = (&*environment.fs, store.schema());
    let mut writer = SsTableWriter::create(fs, path, schema, options, expected_rows, created_at)?;
    let streams = inputs.iter().map(|table| {
        RowStream::sstable(Blocks::new(table, Access::Bypass), Bound::Unbounded, partitioner)
    });
    let mut rows = MergedRows::new(partitioner, streams.collect::<Result<_, _>>()?);
    let rate = store.options().compaction_bytes_per_second;
    let mut throttle = Throttle::new(&*environment.clock, rate);
    while let Some(key) = rows.key() {
        let reader = RowReader::new(schema, rows.sources(&key));
        // A view of the moment: one that was kept would keep memtables that are long on disk.
        let elsewhere = is_elsewhere(&store.view(), inputs, &key);
        let mut purge = Purge::new(schema, reader.deletion(), (!elsewhere).then_some(gc_before));
        writer.begin_row(&key, purge.row_deletion());
        let mut cells = reader.cells(CellRange::ALL, false)?;
        let mut row_bytes = 0;
        while let Some(cell) = cells.advance()? {
            if purge.keeps(&cell) {
                row_bytes += cell.encoded_length() as u64;
                writer.push(&cell)?;
                throttle.pace(writer.size(), stop);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(CompactionError::Stopped);
            }
        }
        writer.end_row()?;
        if row_bytes > store.options().row_warning_bytes {
            let (family, key) = (store.event_family(), key.key().to_string());
            environment.events.emit(CompactionEvent::LargeRow { family, key, bytes: row_bytes });
        }
        drop(cells);
        drop(reader);
        rows.advance(&key)?;
        if stop.load(Ordering::Relaxed) {
            return Err(CompactionError::Stopped);
        }
    }
    let (properties, bytes) = writer.finish()?;
    Ok((bytes, properties.rows))
}

/// Whether anything outside of the compaction may hold something of the row.
fn is_elsewhere(view: &View, inputs: &[Arc<SsTable>], key: &DecoratedKey) -> bool {
    let is_input =
        |table: &SsTable| inputs.iter().any(|input| input.generation() == table.generation());
    let hash = filter::hash(key.key().as_bytes());
    view.memtables().any(|memtable| memtable.contains(key))
        || view.tables.iter().any(|table| !is_input(table) && table.may_contain(key, hash))
}
