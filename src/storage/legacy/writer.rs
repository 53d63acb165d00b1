//! Writes an SSTable in the form of 0.6, for nodes of 0.6 and for the way back to them.
//!
//! ```text
//! Data.db     the rows: see `reader`
//! Index.db    for each row: UTF disk key, i64 where it begins in Data.db
//! Filter.db   a Bloom filter of the disk keys: see `bloom`
//! ```

use super::bloom::{BloomFilter, ElementHash};
use super::disk_key::{disk_key, put_disk_key};
use super::reader::Window;
use super::row::RowBuilder;
use super::spool::Spool;
use super::{WriteError, remove};
use crate::base::fs::{File, FileSystem};
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{FileContext, FileError};
use crate::storage::files::{OriginalPart, create_anew, original, unfinished_original};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are gathered before they are written to a file.
const WRITE_BUFFER: usize = 256 << 10;

/// Layout and place of a table.
#[derive(Debug, Clone)]
pub struct TableOptions {
    /// The folder, which exists.
    pub folder: PathBuf,
    /// The number of the table. No other of the column family in the folder has it.
    pub generation: u64,
    /// Decides on the order of rows, and on their keys.
    pub partitioner: Partitioner,
    /// Bytes of a row for each index entry (`ColumnIndexSizeInKB`).
    pub column_index_bytes: u64,
}

/// Writes one table. Nothing of it counts before [`TableWriter::finish`] has returned; its files
/// have other names until then, and go if that never happens.
#[derive(Debug)]
pub struct TableWriter {
    fs: Arc<dyn FileSystem>,
    family: Arc<ColumnFamilySchema>,
    options: TableOptions,
    data: Appender,
    index: Appender,
    row: RowBuilder,
    /// The row that is open.
    key: Option<DecoratedKey>,
    rows: u64,
    /// Whether a row could not be added.
    has_failed: bool,
    /// Files that go when the table is not finished.
    unfinished: Vec<PathBuf>,
}

/// A table that was written and synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenTable {
    /// Number of rows.
    pub rows: u64,
    /// Its files with their sizes in bytes, in the order in which nodes of 0.6 want them: index,
    /// filter, data.
    pub files: [(PathBuf, u64); 3],
}

impl TableWriter {
    /// Begins a table.
    pub fn create(
        fs: Arc<dyn FileSystem>,
        family: Arc<ColumnFamilySchema>,
        options: TableOptions,
    ) -> Result<Self, WriteError> {
        let name =
            |part| unfinished_original(&options.folder, &family.name, options.generation, part);
        let spool = |part| Spool::in_file(Arc::clone(&fs), name(part));
        let spools = [spool(OriginalPart::Columns), spool(OriginalPart::Hashes)];
        let row = RowBuilder::new(Arc::clone(&family), options.column_index_bytes, spools);
        let data = Appender::create(&*fs, &name(OriginalPart::Data))?;
        let index = Appender::create(&*fs, &name(OriginalPart::Index)).inspect_err(|_| {
            remove(&*fs, &data.path);
        })?;
        let unfinished = vec![data.path.clone(), index.path.clone()];
        Ok(Self {
            fs,
            family,
            options,
            data,
            index,
            row,
            key: None,
            rows: 0,
            has_failed: false,
            unfinished,
        })
    }

    /// Adds a row, or a part of the row that was added last. Rows come in the order of their keys,
    /// the cells of the parts of a row in theirs. What is deleted may be told again in each part.
    /// After an error the table cannot be finished, unless the row is abandoned.
    pub fn push(&mut self, key: &DecoratedKey, version: &RowVersion) -> Result<(), WriteError> {
        let pushed = if version.is_original() {
            self.begin(key).and_then(|()| self.row.push_version(version))
        } else {
            Err(WriteError::LaterCells(key.key().clone()))
        };
        self.has_failed |= pushed.is_err();
        pushed
    }

    /// Makes a row the open one.
    fn begin(&mut self, key: &DecoratedKey) -> Result<(), WriteError> {
        if self.key.as_ref() == Some(key) {
            return Ok(());
        }
        if self.key.as_ref().is_some_and(|open| open > key) {
            return Err(WriteError::OutOfOrder);
        }
        self.end_row()?;
        self.key = Some(key.clone());
        Ok(())
    }

    /// Forgets the row that is open, since a file of 0.6 cannot have it.
    pub fn abandon_row(&mut self) {
        self.row.clear();
        self.key = None;
        self.has_failed = false;
    }

    /// Ends the row that is open, which shows whether a file of 0.6 can have it.
    pub fn end_row(&mut self) -> Result<(), WriteError> {
        let Some(key) = self.key.take() else { return Ok(()) };
        if self.row.is_empty() {
            self.key = Some(key);
            return Ok(());
        }
        let disk_key = disk_key(&key, self.options.partitioner)?;
        let mut head = Vec::with_capacity(disk_key.len() + 10);
        put_disk_key(&mut head, &disk_key, &key)?;
        let start = self.data.length();
        let body = self.row.finish()?;
        self.index.push(&head)?;
        self.index.push(&start.to_be_bytes())?;
        head.extend_from_slice(&(body.length() as u32).to_be_bytes());
        self.data.push(&head)?;
        body.read(&mut |bytes| self.data.push(bytes))?;
        self.row.clear();
        self.rows += 1;
        self.key = Some(key);
        Ok(())
    }

    /// Syncs the table and gives its files their names, that of the data last. A table without rows
    /// leaves no files: nodes of 0.6 have none.
    pub fn finish(mut self) -> Result<Option<WrittenTable>, WriteError> {
        if self.has_failed {
            return Err(WriteError::Incomplete);
        }
        self.end_row()?;
        if self.rows == 0 {
            return Ok(None);
        }
        self.data.flush()?;
        self.index.flush()?;
        let (folder, generation) = (self.options.folder.clone(), self.options.generation);
        let name = |part| original(&folder, &self.family.name, generation, part);
        let mut filter = Appender::create(&*self.fs, &self.filter_path())?;
        self.unfinished.push(self.filter_path());
        self.write_filter(&mut filter)?;
        let mut files = Vec::new();
        let parts = [
            (OriginalPart::Index, &self.index),
            (OriginalPart::Filter, &filter),
            (OriginalPart::Data, &self.data),
        ];
        for (_, appender) in &parts {
            appender.file.sync().context("sync", &appender.path)?;
        }
        for (part, appender) in parts {
            let path = name(part);
            self.fs.rename(&appender.path, &path).context("rename", &appender.path)?;
            self.unfinished.retain(|unfinished| *unfinished != appender.path);
            self.unfinished.push(path.clone());
            files.push((path, appender.length()));
        }
        self.fs.sync_dir(&folder).context("sync", &folder)?;
        self.unfinished.clear();
        let files = files.try_into().expect("there are three parts");
        Ok(Some(WrittenTable { rows: self.rows, files }))
    }

    fn filter_path(&self) -> PathBuf {
        let TableOptions { folder, generation, .. } = &self.options;
        unfinished_original(folder, &self.family.name, *generation, OriginalPart::Filter)
    }

    /// Makes the filter from the index, since its size depends on the number of rows.
    fn write_filter(&self, out: &mut Appender) -> Result<(), WriteError> {
        let mut filter = BloomFilter::for_rows(self.rows);
        let mut index = Window::open(&*self.fs, &self.index.path)?;
        for _ in 0..self.rows {
            let (Some(key), length) = index.utf(8)? else {
                return Err(index.corrupt("a row key was written here").into());
            };
            filter.add(ElementHash::of_row(&key));
            index.skip(length + 8)?;
        }
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        out.push(&bytes)?;
        Ok(out.flush()?)
    }
}

impl Drop for TableWriter {
    fn drop(&mut self) {
        for path in self.unfinished.drain(..) {
            remove(&*self.fs, &path);
        }
    }
}

/// A file that grows at its end.
#[derive(Debug)]
struct Appender {
    file: Arc<dyn File>,
    path: PathBuf,
    written: u64,
    buffer: Vec<u8>,
}

impl Appender {
    /// A new file. What is there of that name was not finished.
    fn create(fs: &dyn FileSystem, path: &Path) -> Result<Self, FileError> {
        let file = create_anew(fs, path)?;
        Ok(Self { file, path: path.to_owned(), written: 0, buffer: Vec::new() })
    }

    fn length(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), FileError> {
        self.file.write_all_at(&self.buffer, self.written).context("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
