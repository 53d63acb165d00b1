//! Writes rows that may not come in order: where the order breaks a new SSTable begins. Rows and
//! cells in order, which is the rule, make one file.

use super::properties::Properties;
use super::writer::{SsTableWriter, WriterOptions};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::DecoratedKey;
use crate::storage::error::FileError;
use crate::storage::family::discard;
use crate::storage::manifest::TableIdentity;
use std::cmp::Ordering;
use std::path::PathBuf;

/// An SSTable that is complete and durable but for its name.
#[derive(Debug, Clone)]
pub struct WrittenFile {
    /// The file.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// What is in it.
    pub properties: Properties,
}

impl WrittenFile {
    /// What tells it from other files of its name.
    pub fn identity(&self) -> TableIdentity {
        TableIdentity { bytes: self.bytes, properties_crc: self.properties.crc() }
    }
}

/// What all files that are written together share.
#[derive(Debug)]
pub struct SplitWriter<'a> {
    fs: &'a dyn FileSystem,
    family: &'a ColumnFamilySchema,
    options: WriterOptions,
    expected_rows: u64,
    created_at_micros: i64,
    /// Names for the files.
    paths: Paths<'a>,
    open: Option<(PathBuf, SsTableWriter)>,
    last_key: Option<DecoratedKey>,
    row: Option<(DecoratedKey, Deletion)>,
    last_cell: Option<Cell>,
    written: Vec<WrittenFile>,
}

/// Gives a name to each file.
pub struct Paths<'a>(Box<dyn FnMut() -> Result<PathBuf, FileError> + 'a>);

impl<'a> Paths<'a> {
    /// Names from this source, each of a file that does not exist.
    pub fn new(next: impl FnMut() -> Result<PathBuf, FileError> + 'a) -> Self {
        Self(Box::new(next))
    }
}

impl std::fmt::Debug for Paths<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Paths")
    }
}

impl<'a> SplitWriter<'a> {
    /// A writer that has not begun a file yet. The filters are sized for so many rows.
    pub fn new(
        fs: &'a dyn FileSystem,
        family: &'a ColumnFamilySchema,
        options: WriterOptions,
        expected_rows: u64,
        created_at_micros: i64,
        paths: Paths<'a>,
    ) -> Self {
        Self {
            fs,
            family,
            options,
            expected_rows,
            created_at_micros,
            paths,
            open: None,
            last_key: None,
            row: None,
            last_cell: None,
            written: Vec::new(),
        }
    }

    /// Begins a row. One that was there before goes on; its parts are in different files then.
    pub fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        if self.last_key.as_ref().is_some_and(|last| last >= key) {
            self.close()?;
        }
        self.writer()?.begin_row(key, deletion);
        self.last_key = Some(key.clone());
        self.row = Some((key.clone(), deletion));
        self.last_cell = None;
        Ok(())
    }

    /// Adds a cell to the row.
    pub fn push(&mut self, cell: &Cell) -> Result<(), FileError> {
        let last = self.last_cell.as_ref();
        let order = last.map(|last| self.family.compare(last.place(), cell.place()));
        if order.is_some_and(|order| order != Ordering::Less)
            && let Some((key, deletion)) = self.row.clone()
        {
            self.end_row()?;
            self.begin_row(&key, deletion)?;
        }
        self.writer()?.push(cell)?;
        self.last_cell = Some(cell.clone());
        Ok(())
    }

    /// Ends the row.
    pub fn end_row(&mut self) -> Result<(), FileError> {
        self.row = None;
        self.writer()?.end_row()
    }

    /// Bytes of all files so far.
    pub fn size(&self) -> u64 {
        let open = self.open.as_ref().map_or(0, |(_, writer)| writer.size());
        self.written.iter().map(|file| file.bytes).sum::<u64>() + open
    }

    /// Completes the last file. The files are durable, their names are not.
    pub fn finish(mut self) -> Result<Vec<WrittenFile>, FileError> {
        self.close()?;
        Ok(std::mem::take(&mut self.written))
    }

    fn close(&mut self) -> Result<(), FileError> {
        self.last_key = None;
        if let Some((path, writer)) = self.open.take() {
            match writer.finish() {
                Ok((properties, bytes)) => {
                    self.written.push(WrittenFile { path, bytes, properties });
                }
                Err(error) => {
                    self.open = None;
                    discard(self.fs, &path);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn writer(&mut self) -> Result<&mut SsTableWriter, FileError> {
        if self.open.is_none() {
            let path = (self.paths.0)()?;
            let (options, rows) = (self.options.clone(), self.expected_rows);
            let created_at = self.created_at_micros;
            let writer =
                SsTableWriter::create(self.fs, &path, self.family, options, rows, created_at)?;
            self.open = Some((path, writer));
        }
        let (_, writer) = self.open.as_mut().expect("a file was begun just now");
        Ok(writer)
    }
}

impl Drop for SplitWriter<'_> {
    /// What was not finished is of no use to anybody.
    fn drop(&mut self) {
        let open = self.open.take().map(|(path, _)| path);
        for path in self.written.drain(..).map(|file| file.path).chain(open) {
            discard(self.fs, &path);
        }
    }
}
