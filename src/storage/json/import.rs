//! From JSON to an SSTable.
//!
//! The text is read twice: first to see whether all of it can be imported, how many rows there are
//! and whether they come in order, then to write them. So nothing is written of a text with a
//! mistake at its end.

use super::parse::{Context, ParseError, RowSink, Survey, parse};
use super::runs::{RUN_BYTES, Runs};
use super::text::Escaping;
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::CellRange;
use crate::ring::DecoratedKey;
use crate::storage::error::{FileError, ReadError};
use crate::storage::row::RowReader;
use crate::storage::rows::MergedRows;
use crate::storage::sstable::{
    OutputOptions, Outputs, SplitWriter, SsTable, WriterOptions, WrittenFile,
};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read of the text at a time.
const READ_BUFFER: usize = 1 << 20;

/// Reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The text is no JSON, or not of this column family. The first words are those of the
    /// original.
    #[error(
        "Invalid JSON input, or incorrect column family. Line {line}, column {column}: {reason}"
    )]
    Shape {
        /// Line of the mistake, from 1.
        line: usize,
        /// Its column.
        column: usize,
        /// The mistake.
        reason: String,
    },
    /// The text cannot be read.
    #[error("cannot read the JSON: {0}")]
    Input(io::Error),
    /// The SSTable cannot be written.
    #[error(transparent)]
    Output(#[from] ReadError),
}

impl From<FileError> for ImportError {
    fn from(error: FileError) -> Self {
        Self::Output(error.into())
    }
}

/// Imported rows.
#[derive(Debug)]
pub struct Imported {
    /// Rows of the text.
    pub rows: u64,
    /// Cells of the text.
    pub cells: u64,
    /// The SSTable, complete under the name it was given; `None` if there was nothing to import.
    pub file: Option<WrittenFile>,
}

/// Settings of an import.
#[derive(Debug, Clone)]
pub struct Importer<'a> {
    /// The disk of the SSTables.
    pub fs: &'a Arc<dyn FileSystem>,
    /// The column family.
    pub family: &'a Arc<ColumnFamilySchema>,
    /// Layout of the SSTables.
    pub options: WriterOptions,
    /// Now, in microseconds since the Unix epoch.
    pub now_micros: i64,
}

impl Importer<'_> {
    /// Imports a text that `open` opens twice. `next_path` names files that are not there
    /// yet. `progress` hears how many bytes are read, of twice the text.
    pub fn import(
        &self,
        open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
        next_path: &mut (dyn FnMut() -> Result<PathBuf, FileError> + Send),
        progress: &mut dyn FnMut(u64),
    ) -> Result<Imported, ImportError> {
        self.import_in_runs_of(RUN_BYTES, open, next_path, progress)
    }

    pub(super) fn import_in_runs_of(
        &self,
        run_bytes: usize,
        open: &mut dyn FnMut() -> io::Result<Box<dyn Read>>,
        next_path: &mut (dyn FnMut() -> Result<PathBuf, FileError> + Send),
        progress: &mut dyn FnMut(u64),
    ) -> Result<Imported, ImportError> {
        let context = Context {
            family: self.family,
            partitioner: self.options.partitioner,
            now_secs: i32::try_from(self.now_micros / 1_000_000).unwrap_or(i32::MAX),
        };
        let mut read = 0;
        let mut pass = |sink: &mut dyn RowSink| {
            let text = open().map_err(ImportError::Input)?;
            let counted = Counted { text, read: &mut read, progress };
            let text = BufReader::with_capacity(READ_BUFFER, Escaping::new(counted));
            parse(text, context, sink).map_err(ImportError::from)
        };
        let mut survey = Survey::new(self.family);
        pass(&mut survey)?;
        let Survey { rows, cells, is_in_order, .. } = survey;
        let file = if is_in_order {
            let options = OutputOptions::unsplit(self.options.clone(), rows, self.now_micros);
            let outputs = Outputs::new(self.fs, self.family, options, next_path);
            let mut writer = SplitWriter::new(outputs);
            pass(&mut writer)?;
            writer.finish()?.pop()
        } else {
            let mut runs = Runs::new(self, next_path, run_bytes);
            pass(&mut runs)?;
            runs.finish()?
        };
        Ok(Imported { rows, cells, file })
    }
}

impl Importer<'_> {
    /// Copies the rows of SSTables as they are to a new one. `progress` hears how many are copied.
    pub fn copy(
        &self,
        tables: &[SsTable],
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Imported, ReadError> {
        let expected = tables.iter().map(SsTable::rows).sum();
        let options = OutputOptions::unsplit(self.options.clone(), expected, self.now_micros);
        let mut outputs = Outputs::new(self.fs, self.family, options, || Ok(path.to_owned()));
        let writer = outputs.open_file()?;
        let (mut rows, mut cells) = (0, 0);
        let mut merged = MergedRows::of_whole(tables)?;
        while let Some((key, sources)) = merged.advance()? {
            let in_row = |error: ReadError| error.in_row(key.key());
            let reader = RowReader::of_everything(self.family, sources);
            writer.begin_row(key, reader.deletion());
            let mut row = reader.cells(CellRange::ALL, false).map_err(in_row)?;
            while let Some(cell) = row.advance().map_err(in_row)? {
                writer.push(&cell)?;
                cells += 1;
            }
            writer.end_row()?;
            rows += 1;
            progress(rows);
        }
        Ok(Imported { rows, cells, file: outputs.finish()?.pop() })
    }
}

impl From<ParseError> for ImportError {
    fn from(error: ParseError) -> Self {
        match error {
            ParseError::Sink(error) => error.into(),
            ParseError::Text(error) if error.is_io() => Self::Input(error.into()),
            ParseError::Text(error) => {
                let (line, column) = (error.line(), error.column());
                let text = error.to_string();
                // The parser ends its text with the place, which stands in front here.
                let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
                Self::Shape { line, column, reason: reason.to_owned() }
            }
        }
    }
}

impl RowSink for SplitWriter<'_> {
    fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) -> Result<(), FileError> {
        Self::begin_row(self, key, deletion)
    }

    fn cell(&mut self, cell: Cell) -> Result<(), FileError> {
        self.push(&cell)
    }

    fn end_row(&mut self) -> Result<(), FileError> {
        Self::end_row(self)
    }
}

/// Tells how much was read.
struct Counted<'a> {
    text: Box<dyn Read>,
    read: &'a mut u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.text.read(buffer)?;
        *self.read += length as u64;
        (self.progress)(*self.read);
        Ok(length)
    }
}
