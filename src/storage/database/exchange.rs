//! Rows that come from nodes of 0.6, and that go to them: as SSTables of 0.6, which wait in the
//! data directories meanwhile.

use super::super::error::{FileContext, FileError, ReadError};
use super::super::original::{
    TableOptions, TableReader, TableWriter, WriteError, WrittenTable, can_have_key,
};
use super::{Core, Database, IngestError};
use crate::base::fs::{File, FileSystem};
use crate::model::key::RowKey;
use crate::model::schema::FamilyId;
use crate::model::version::RowVersion;
use crate::ring::RowRange;
use crate::storage::files;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of rows that are read or copied at a time.
const STEP_BYTES: usize = 1 << 20;

/// Why rows cannot be taken from a node of 0.6 or given to it. Nothing is left of them.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The file that came is damaged, or cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The rows in it cannot be kept.
    #[error(transparent)]
    Ingest(#[from] IngestError),
    /// A row cannot be written in the form of 0.6, or the file cannot.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Nobody waits for it any more.
    #[error("nobody waits for it any more")]
    GivenUp,
}

impl From<FileError> for ExchangeError {
    fn from(error: FileError) -> Self {
        Self::Read(error.into())
    }
}

/// What was taken in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenIn {
    /// Rows of the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A file that is on its way here. It goes when this is dropped, and at the next start.
#[derive(Debug)]
pub struct SpooledFile {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
    file: Arc<dyn File>,
    length: u64,
}

/// An SSTable of 0.6 on its way to a node of 0.6. Its files go when this is dropped, and at the
/// next start.
#[derive(Debug)]
pub struct OutgoingTable {
    fs: Arc<dyn FileSystem>,
    table: WrittenTable,
}

impl SpooledFile {
    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all_at(bytes, self.length).context("write", &self.path)?;
        self.length += bytes.len() as u64;
        Ok(())
    }
}

impl Drop for SpooledFile {
    fn drop(&mut self) {
        remove(&*self.fs, &self.path);
    }
}

impl OutgoingTable {
    /// The table, with its files in the order in which they are sent.
    pub fn table(&self) -> &WrittenTable {
        &self.table
    }

    /// Opens one of its files.
    pub fn open(&self, path: &Path) -> Result<Arc<dyn File>, FileError> {
        self.fs.open(path).context("open", path)
    }
}

impl Drop for OutgoingTable {
    fn drop(&mut self) {
        for (path, _) in &self.table.files {
            remove(&*self.fs, path);
        }
    }
}

fn remove(fs: &dyn FileSystem, path: &Path) {
    if let Err(error) = fs.remove_file(path) {
        log::warn!("Cannot remove {}: {error}", path.display());
    }
}

/// Removes what an earlier process has left in the folder of a keyspace.
pub(super) fn clear(fs: &dyn FileSystem, keyspace_folder: &Path) {
    let folder = files::stream_folder(keyspace_folder);
    if !fs.exists(&folder) {
        return;
    }
    match fs.list(&folder) {
        Ok(entries) => {
            let left = entries.into_iter().filter(|entry| !entry.is_dir);
            left.for_each(|entry| remove(fs, &folder.join(entry.name)));
        }
        Err(error) => log::warn!("Cannot list {}: {error}", folder.display()),
    }
}

impl Database {
    /// Takes all rows of the data file of an SSTable of 0.6 in, durably and in one step. Gives up
    /// when `stop` is set.
    pub fn take_in(
        &self,
        family: FamilyId,
        spooled: &SpooledFile,
        stop: &AtomicBool,
    ) -> Result<TakenIn, ExchangeError> {
        let schema = Arc::clone(self.schema().family(family));
        let fs = &*spooled.fs;
        let mut reader =
            TableReader::open(fs, &spooled.path, Arc::clone(&schema), self.partitioner())?;
        let mut ingest = self.ingest(family)?;
        let mut taken = TakenIn { rows: 0, bytes: spooled.length };
        while let Some(part) = reader.next_part(STEP_BYTES)? {
            if stop.load(Ordering::Relaxed) {
                return Err(ExchangeError::GivenUp);
            }
            taken.rows += u64::from(part.is_last);
            let key = part.key.key().clone();
            ingest.push(&key, &part.into_version(&schema))?;
        }
        ingest.finish()?;
        Ok(taken)
    }
}

impl Core {
    /// Makes room for a file of so many bytes that comes from a node of 0.6. An error if there is
    /// not so much.
    pub fn spool(&self, family: FamilyId, bytes: u64) -> Result<SpooledFile, FileError> {
        let store = self.family(family);
        let fs = Arc::clone(&store.environment().fs);
        let generation = store.next_generation();
        let folder = store.roomiest_folder(generation)?;
        // Under this name it is removed at the next start.
        let path = files::temporary(&files::sstable(folder, &store.schema().name, generation));
        let room = fs.available_space(folder).context("look at the room of", folder)?;
        if bytes > room {
            return Err(io::ErrorKind::StorageFull.into()).context("make room for", &path);
        }
        let file = fs.create(&path).context("create", &path)?;
        Ok(SpooledFile { fs, path, file, length: 0 })
    }

    /// Writes all that is stored of some ranges, which do not overlap and are in the order of their
    /// tokens, to an SSTable of 0.6. None if there is nothing. Gives up when `stop` is set. Rows
    /// whose keys no node of 0.6 can have are left out, with a line in the log.
    pub fn write_out(
        &self,
        family: FamilyId,
        ranges: &[RowRange],
        stop: &AtomicBool,
    ) -> Result<Option<OutgoingTable>, ExchangeError> {
        let store = self.family(family);
        let fs = Arc::clone(&store.environment().fs);
        let generation = store.next_generation();
        let folder = files::stream_folder(store.roomiest_folder(generation)?);
        fs.create_dir_all(&folder).context("create", &folder)?;
        let options = TableOptions {
            folder,
            generation,
            partitioner: self.partitioner(),
            column_index_bytes: store.options().column_index_bytes,
        };
        let schema = Arc::clone(self.schema().family(family));
        let mut writer = TableWriter::create(Arc::clone(&fs), schema, options)?;
        let mut left_out = 0_u64;
        for range in ranges {
            let mut after = None;
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(ExchangeError::GivenUp);
                }
                let piece = store.read_piece(range, after.as_ref(), STEP_BYTES)?;
                left_out += self.write_rows(&mut writer, &piece.rows)?;
                after = piece.next;
                if after.is_none() {
                    break;
                }
            }
        }
        if left_out > 0 {
            log::warn!(
                "{left_out} rows of {} have keys that no node of 0.6 can have: they stay here",
                store.schema()
            );
        }
        Ok(writer.finish()?.map(|table| OutgoingTable { fs, table }))
    }

    /// Adds rows to a table. Returns how many it cannot have.
    fn write_rows(
        &self,
        writer: &mut TableWriter,
        rows: &[(RowKey, RowVersion)],
    ) -> Result<u64, WriteError> {
        let mut left_out = 0;
        for (key, version) in rows {
            if !can_have_key(key) {
                left_out += 1;
                continue;
            }
            writer.push(&self.partitioner().decorate(key.clone()), version)?;
        }
        Ok(left_out)
    }
}
