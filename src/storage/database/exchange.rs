//! Rows that come from nodes of 0.6, and that go to them: as SSTables of 0.6, which wait in the
//! data directories meanwhile.

use super::super::error::{FileContext, FileError, ReadError};
use super::super::legacy::{
    TableOptions, TableReader, TableWriter, WriteError, WrittenTable, can_have_key, remove,
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

/// Reason why rows cannot be taken from a node of 0.6 or given to it. Nothing is left of them.
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
    /// The job was cancelled.
    #[error("nobody waits for it any more")]
    GivenUp,
}

impl From<FileError> for ExchangeError {
    fn from(error: FileError) -> Self {
        Self::Read(error.into())
    }
}

/// Amount that was taken in.
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
        id: FamilyId,
        spooled: &SpooledFile,
        stop: &AtomicBool,
    ) -> Result<TakenIn, ExchangeError> {
        let schema = Arc::clone(self.schema().family(id));
        let fs = &*spooled.fs;
        let mut reader =
            TableReader::open(fs, &spooled.path, Arc::clone(&schema), self.partitioner())?;
        let mut ingest = self.ingest(id)?;
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
    /// Creates a file for this many bytes from a node of 0.6. An error if there is less room.
    pub fn spool(&self, id: FamilyId, bytes: u64) -> Result<SpooledFile, FileError> {
        let family = self.family(id);
        let fs = Arc::clone(&family.environment().fs);
        // Under this name it is removed at the next start.
        let (_, path) = family.new_path()?;
        let folder = path.parent().unwrap_or(Path::new("."));
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
        id: FamilyId,
        ranges: &[RowRange],
        stop: &AtomicBool,
    ) -> Result<Option<OutgoingTable>, ExchangeError> {
        let family = self.family(id);
        let fs = Arc::clone(&family.environment().fs);
        let (generation, folder) = family.new_place()?;
        let folder = files::stream_folder(folder);
        fs.create_dir_all(&folder).context("create", &folder)?;
        let options = TableOptions {
            folder,
            generation,
            partitioner: self.partitioner(),
            column_index_bytes: family.options().column_index_bytes,
        };
        let schema = Arc::clone(self.schema().family(id));
        let mut writer = TableWriter::create(Arc::clone(&fs), schema, options)?;
        let mut left_out = 0_u64;
        for range in ranges {
            let mut after = None;
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Err(ExchangeError::GivenUp);
                }
                let piece = family.read_piece(range, after.as_ref(), STEP_BYTES)?;
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
                family.schema()
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
