//! Writes rows to as many new SSTables as it takes, under temporary names.

use super::properties::Properties;
use super::writer::{SsTableWriter, WriterOptions};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::DecoratedKey;
use crate::storage::error::FileError;
use crate::storage::files::FileName;
use crate::storage::manifest::TableIdentity;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows that one SSTable gets at most if their number is not known beforehand: each takes eight
/// bytes of memory until the file is complete.
const MOST_ROWS: u64 = 1 << 21;

/// An SSTable that is complete and durable but for its name.
#[derive(Debug, Clone)]
pub struct WrittenFile {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its properties.
    pub properties: Properties,
}

impl WrittenFile {
    /// Tells it from other files of its name.
    pub fn identity(&self) -> TableIdentity {
        let (bytes, properties_crc) = (self.bytes, self.properties.crc());
        TableIdentity { bytes, properties_crc, is_legacy: false }
    }

    /// The number of the SSTable, which its temporary name must have.
    pub fn generation(&self) -> u64 {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match FileName::parse(name) {
            FileName::UnfinishedSsTable(_, generation) => generation,
            _ => unreachable!("an SSTable of a column family is written under its temporary name"),
        }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }
}

/// Layout of new SSTables.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// Layout of each.
    pub writer: WriterOptions,
    /// Their level; 0 for none.
    pub level: u32,
    /// Bytes after which another SSTable is begun.
    pub split_bytes: u64,
    /// About how many rows each will have at most, if that is known.
    pub expected_rows: Option<u64>,
    /// Time of their creation.
    pub created_at_micros: i64,
}

impl OutputOptions {
    /// Options for one SSTable, unless rows come out of order.
    pub fn unsplit(writer: WriterOptions, expected_rows: u64, created_at_micros: i64) -> Self {
        let expected_rows = Some(expected_rows);
        Self { writer, level: 0, split_bytes: u64::MAX, expected_rows, created_at_micros }
    }
}

/// Gives the path of the next file, which does not exist.
type NextPath<'a> = dyn FnMut() -> Result<PathBuf, FileError> + Send + 'a;

/// SSTables that are being written. Those that are not [finished](Outputs::finish) are removed.
#[derive(derive_more::Debug)]
#[debug("Outputs {{ done: {done:?}, .. }}")]
pub struct Outputs<'a> {
    fs: Arc<dyn FileSystem>,
    family: Arc<ColumnFamilySchema>,
    options: OutputOptions,
    next_path: Box<NextPath<'a>>,
    open: Option<SsTableWriter>,
    done: Vec<WrittenFile>,
    bytes_done: u64,
}

impl<'a> Outputs<'a> {
    /// Outputs without a file yet.
    pub fn new(
        fs: &Arc<dyn FileSystem>,
        family: &Arc<ColumnFamilySchema>,
        options: OutputOptions,
        next_path: impl FnMut() -> Result<PathBuf, FileError> + Send + 'a,
    ) -> Self {
        Self {
            fs: Arc::clone(fs),
            family: Arc::clone(family),
            options,
            next_path: Box::new(next_path),
            open: None,
            done: Vec::new(),
            bytes_done: 0,
        }
    }

    /// The file that takes the next row. To be called once for each row.
    pub fn begin_row(&mut self) -> Result<&mut SsTableWriter, FileError> {
        let OutputOptions { split_bytes, expected_rows, .. } = self.options;
        let is_full = |file: &SsTableWriter| {
            expected_rows.is_none() && file.rows() >= MOST_ROWS || file.size() >= split_bytes
        };
        if self.open.as_ref().is_some_and(is_full) {
            self.end()?;
        }
        self.open_file()
    }

    /// The file with the row that was begun last.
    pub fn open_file(&mut self) -> Result<&mut SsTableWriter, FileError> {
        if self.open.is_none() {
            let (path, options) = ((self.next_path)()?, &self.options);
            let (writer, created_at) = (options.writer.clone(), options.created_at_micros);
            let (fs, rows) = (&*self.fs, options.expected_rows);
            let file = SsTableWriter::create(fs, &path, &self.family, writer, rows, created_at);
            let mut file = file.inspect_err(|_| discard(fs, &path))?;
            file.set_level(options.level);
            self.open = Some(file);
        }
        Ok(self.open.as_mut().expect("it was created"))
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes_done + self.open.as_ref().map_or(0, SsTableWriter::size)
    }

    /// Completes the open file, if there is one. Its last row has ended. A file without rows is
    /// removed.
    pub fn end(&mut self) -> Result<(), FileError> {
        let Some(file) = self.open.take() else { return Ok(()) };
        let path = file.path().to_owned();
        let finished = file.finish().inspect_err(|_| discard(&*self.fs, &path))?;
        if finished.properties.rows > 0 {
            self.bytes_done += finished.bytes;
            self.done.push(finished);
        } else {
            discard(&*self.fs, &path);
        }
        Ok(())
    }

    /// Completes the last file. The files are durable, their names are not.
    pub fn finish(mut self) -> Result<Vec<WrittenFile>, FileError> {
        self.end()?;
        Ok(std::mem::take(&mut self.done))
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        let open = self.open.take().map(|file| file.path().to_owned());
        for path in self.done.drain(..).map(|file| file.path).chain(open) {
            discard(&*self.fs, &path);
        }
    }
}

/// Writes rows that may come out of order: where the order breaks a new SSTable begins.
#[derive(Debug)]
pub struct SplitWriter<'a> {
    outputs: Outputs<'a>,
    row: Option<BegunRow>,
}

/// A row, as far as it was written.
#[derive(Debug)]
pub struct BegunRow {
    /// The key.
    pub key: DecoratedKey,
    /// The deletion of the row.
    pub deletion: Deletion,
    /// The cell that was written last.
    pub last: Option<Cell>,
}

impl<'a> SplitWriter<'a> {
    /// A writer to these outputs.
    pub fn new(outputs: Outputs<'a>) -> Self {
        Self { outputs, row: None }
    }

    /// The row that was begun last.
    pub fn row(&self) -> Option<&BegunRow> {
        self.row.as_ref()
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.outputs.bytes()
    }

    /// Begins a row. Parts of one row that come apart are in different files.
    pub fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        if self.row.as_ref().is_some_and(|last| last.key >= *key) {
            self.outputs.end()?;
        }
        self.outputs.begin_row()?.begin_row(key, deletion);
        self.row = Some(BegunRow { key: key.clone(), deletion, last: None });
        Ok(())
    }

    /// Adds a cell to the row.
    pub fn push(&mut self, cell: &Cell) -> Result<(), FileError> {
        let family = &self.outputs.family;
        if let Some(BegunRow { key, deletion, last: Some(last) }) = &self.row
            && family.compare(last.place(), cell.place()).is_ge()
        {
            let (key, deletion) = (key.clone(), *deletion);
            self.end_row()?;
            self.begin_row(&key, deletion)?;
        }
        self.outputs.open_file()?.push(cell)?;
        if let Some(row) = &mut self.row {
            row.last = Some(cell.clone());
        }
        Ok(())
    }

    /// Ends the row.
    pub fn end_row(&mut self) -> Result<(), FileError> {
        self.outputs.open_file()?.end_row()
    }

    /// Completes the last file. The files are durable, their names are not.
    pub fn finish(self) -> Result<Vec<WrittenFile>, FileError> {
        self.outputs.finish()
    }
}

/// Removes an unfinished file. If that fails the next start does it.
pub fn discard(fs: &dyn FileSystem, path: &Path) {
    if fs.exists(path)
        && let Err(error) = fs.remove_file(path)
    {
        log::warn!("cannot remove the unfinished file {}: {error}", path.display());
    }
}
