//! Reads the data file of an SSTable of 0.6 from its beginning to its end.
//!
//! ```text
//! for each row:
//!     UTF  disk key
//!     i32  bytes of the body, more than 0
//!     the body: see `row`
//! ```
//!
//! Nothing else is in the file: neither a head nor checksums. Filters and indexes are passed over,
//! since they follow from the rows.

use super::disk_key::parse_disk_key;
use super::row::LastPlace;
use crate::base::bytes::ByteReader;
use crate::base::fs::{File, FileSystem};
use crate::base::java::JavaReader;
use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;
use crate::model::original::{ColumnError, ColumnReader, ColumnStep, DELETION_BYTES, cells_of};
use crate::model::schema::ColumnFamilySchema;
use crate::model::version::RowVersion;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{Corrupt, FileContext, ReadError};
use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of the cells of a part, but for its last cell, however many are asked for. The name
/// of a super column stands in each of its cells, so that these may be many more than the file has.
const MOST_PART_BYTES: usize = 64 << 20;

/// Reads rows in the order of the file, in parts of any size. Memory depends on the size of a part
/// and on that of a single column, not on that of a row.
#[derive(Debug)]
pub struct TableReader {
    window: Window,
    family: Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
    row: Option<OpenRow>,
}

#[derive(Debug)]
struct OpenRow {
    head: RowHead,
    columns: ColumnReader,
    /// The deletion of the super column that was read last.
    marker: Option<Cell>,
    place: LastPlace,
}

/// A row, with the places of its parts in the file.
#[derive(Debug, Clone)]
pub(in crate::storage) struct RowHead {
    pub(in crate::storage) key: DecoratedKey,
    /// The key as the file has it.
    pub(in crate::storage) disk_key: String,
    pub(in crate::storage) deletion: Deletion,
    /// Number of columns or super columns.
    pub(in crate::storage) count: u32,
    /// Bloom filter of the names of columns.
    pub(in crate::storage) filter: Range<u64>,
    /// Column index.
    pub(in crate::storage) index: Range<u64>,
    pub(in crate::storage) columns: Range<u64>,
}

/// Smallest part of a file.
#[derive(Debug)]
pub(in crate::storage) enum Step {
    Row(RowHead),
    Cell(Cell),
    /// The name of a super column that was never deleted.
    SuperColumn,
    RowEnd,
}

/// A row, or a part of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPart {
    /// The row.
    pub key: DecoratedKey,
    /// Deletion of the whole row. It stands in each part.
    pub deletion: Deletion,
    /// All columns and tombstones in order, also those that a deletion covers. Where a super column
    /// was cut its deletion stands in both parts.
    pub cells: Vec<Cell>,
    /// Whether the row ends here.
    pub is_last: bool,
}

impl RowPart {
    /// Returns the content of the part, without what it deletes itself.
    pub fn into_version(self, family: &ColumnFamilySchema) -> RowVersion {
        let mut version = RowVersion { deletion: self.deletion, cells: self.cells };
        version.drop_hidden(family);
        version
    }
}

impl TableReader {
    /// Opens a data file that was written for this column family under this partitioner. The file
    /// itself knows neither.
    pub fn open(
        fs: &dyn FileSystem,
        path: &Path,
        family: Arc<ColumnFamilySchema>,
        partitioner: Partitioner,
    ) -> Result<Self, ReadError> {
        Ok(Self { window: Window::open(fs, path)?, family, partitioner, row: None })
    }

    /// Returns the numbers of bytes that were read and that there are.
    pub fn progress(&self) -> (u64, u64) {
        (self.window.position(), self.window.size())
    }

    /// Reads the next part of the file: cells of one row of about `max_bytes`, at least one cell if
    /// the row goes on. `None` at the end of the file.
    ///
    /// An error names the place and, if it is known, the row. After one in the body of a row the
    /// next call goes on with the next row. After one before the body it is not known where a row
    /// begins, and the next call finds the end of the file.
    pub fn next_part(&mut self, max_bytes: usize) -> Result<Option<RowPart>, ReadError> {
        let mut row = match self.row.take() {
            Some(row) => row,
            None if self.window.left() == 0 => return Ok(None),
            None => self.begin_row()?,
        };
        match self.read_cells(&mut row, max_bytes) {
            Ok(cells) => {
                let (key, deletion) = (row.head.key.clone(), row.head.deletion);
                let is_last = row.columns.is_done();
                if !is_last {
                    self.row = Some(row);
                }
                Ok(Some(RowPart { key, deletion, cells, is_last }))
            }
            Err(error) => {
                self.window.seek(row.head.columns.end);
                Err(error.in_row(row.head.key.key()))
            }
        }
    }

    /// Place in the file.
    pub(in crate::storage) fn position(&self) -> u64 {
        self.window.position()
    }

    /// Another window on a part of the file.
    pub(in crate::storage) fn window(&self, range: Range<u64>) -> Window {
        let mut window = Window { size: range.end, ..self.window.again(range.start) };
        // The row was mostly read at once.
        let from = range.start.saturating_sub(self.window.start) as usize;
        let here = from..from + (range.end - range.start) as usize;
        let bytes = self.window.bytes.get(here).filter(|_| range.start >= self.window.start);
        window.bytes.extend_from_slice(bytes.unwrap_or_default());
        window
    }

    /// Goes on with the row that begins here.
    pub(in crate::storage) fn resume(&mut self, position: u64) {
        self.window = self.window.again(position);
        self.row = None;
    }

    /// Reads the next step of the file; `None` at its end. Errors are those of
    /// [`TableReader::next_part`], but all that comes before damage was returned before.
    pub(in crate::storage) fn step(&mut self) -> Result<Option<Step>, ReadError> {
        let Some(mut row) = self.row.take() else {
            if self.window.left() == 0 {
                return Ok(None);
            }
            let row = self.begin_row()?;
            let head = row.head.clone();
            self.row = Some(row);
            return Ok(Some(Step::Row(head)));
        };
        let mut record = Vec::new();
        let is_done = row.columns.is_done();
        let read =
            if is_done { self.check_end(&row) } else { self.read_cell(&mut row, &mut record) };
        if let Err(error) = read {
            self.window.seek(row.head.columns.end);
            return Err(error.in_row(row.head.key.key()));
        }
        if is_done {
            return Ok(Some(Step::RowEnd));
        }
        self.row = Some(row);
        Ok(Some(cells_of(record).pop().map_or(Step::SuperColumn, Step::Cell)))
    }

    fn begin_row(&mut self) -> Result<OpenRow, ReadError> {
        match self.read_key() {
            Ok((key, disk_key, end)) => {
                let begun = self.begin_body((key.clone(), disk_key), end);
                begun.map_err(|error| {
                    self.window.seek(end);
                    error.in_row(key.key())
                })
            }
            Err(error) => {
                self.window.seek(self.window.size());
                Err(error)
            }
        }
    }

    /// The key of the next row, and where the row ends.
    fn read_key(&mut self) -> Result<(DecoratedKey, String, u64), ReadError> {
        let (disk_key, length) = self.window.utf(0)?;
        let disk_key = disk_key.unwrap_or_default().into_owned();
        let Some(key) = parse_disk_key(&disk_key, self.partitioner) else {
            return Err(self.window.corrupt("a row key of this partitioner should stand here"));
        };
        self.window.skip(length)?;
        let size = i32::from_be_bytes(self.window.array()?);
        match u64::try_from(size) {
            Ok(size) if size > 0 && size <= self.window.left() => {
                Ok((key, disk_key, self.window.position() + size))
            }
            _ => Err(self.window.corrupt("a row is longer than the rest of the file")),
        }
    }

    /// Reads what stands before the columns.
    fn begin_body(
        &mut self,
        (key, disk_key): (DecoratedKey, String),
        end: u64,
    ) -> Result<OpenRow, ReadError> {
        let filter = self.skip_part(end)?;
        let index = self.skip_part(end)?;
        let length = DELETION_BYTES + 4;
        self.within(end, length as u64)?;
        self.window.fill(length as u64)?;
        let mut reader = ByteReader::new(self.window.bytes());
        let Ok((deletion, columns)) = ColumnReader::begin(&mut reader, &self.family) else {
            return Err(self.window.corrupt("a row has a negative number of columns"));
        };
        self.window.skip(length as u64)?;
        let (count, begin) = (columns.left(), self.window.position());
        let head = RowHead { key, disk_key, deletion, count, filter, index, columns: begin..end };
        let row = OpenRow { head, columns, marker: None, place: LastPlace::default() };
        self.check_end(&row)?;
        Ok(row)
    }

    /// Skips the filter or the column index of a row, and returns its place.
    fn skip_part(&mut self, end: u64) -> Result<Range<u64>, ReadError> {
        let length = self.within(end, 4).and_then(|()| self.window.array())?;
        let length = u64::from(u32::from_be_bytes(length));
        self.within(end, length)?;
        let begin = self.window.position();
        self.window.skip(length)?;
        Ok(begin..begin + length)
    }

    /// Makes sure that the next `length` bytes belong to the row.
    fn within(&self, end: u64, length: u64) -> Result<(), ReadError> {
        if length <= end - self.window.position() {
            return Ok(());
        }
        Err(self.window.corrupt("a part of a row is longer than the row"))
    }

    fn check_end(&self, row: &OpenRow) -> Result<(), ReadError> {
        if !row.columns.is_done() || self.window.position() == row.head.columns.end {
            return Ok(());
        }
        Err(self.window.corrupt("a row is longer than its columns"))
    }

    fn read_cells(&mut self, row: &mut OpenRow, max_bytes: usize) -> Result<Vec<Cell>, ReadError> {
        let mut record = Vec::new();
        if let (Some(name), Some(marker)) = (row.columns.open_super_column(), &row.marker)
            && name == marker.super_name()
        {
            marker.encode(&mut record);
        }
        let repeated = record.len();
        let most = max_bytes.clamp(1, MOST_PART_BYTES);
        while !row.columns.is_done() && record.len() - repeated < most {
            self.read_cell(row, &mut record)?;
        }
        self.check_end(row)?;
        Ok(cells_of(record))
    }

    /// Appends the next cell, if the next step is one.
    fn read_cell(&mut self, row: &mut OpenRow, record: &mut Vec<u8>) -> Result<(), ReadError> {
        loop {
            let left = row.head.columns.end - self.window.position();
            let here = self.window.bytes();
            let here = &here[..here.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            let mut reader = ByteReader::new(here);
            let reason = match row.columns.step(&mut reader, &self.family) {
                Ok(ColumnStep::Cell(parts)) => {
                    if !row.place.advance(&self.family, (parts.super_name, parts.name)) {
                        return Err(self.window.corrupt("columns are not in their order"));
                    }
                    if parts.state == CellState::SuperTombstone {
                        let time = parts.value.first_chunk().copied();
                        let time = time.map_or(i32::MIN, i32::from_be_bytes);
                        let deletion = Deletion::at(parts.timestamp, time);
                        row.marker = Some(Cell::super_tombstone(parts.super_name, deletion));
                    }
                    parts.encode(record);
                    let used = reader.position();
                    return self.window.skip(used as u64);
                }
                Ok(ColumnStep::Nothing | ColumnStep::Done) => {
                    let used = reader.position();
                    return self.window.skip(used as u64);
                }
                Err(ColumnError::Truncated { needs, .. }) if needs as u64 <= left => {
                    self.window.fill(needs as u64)?;
                    continue;
                }
                Err(ColumnError::Truncated { .. }) => "a column is longer than the row",
                Err(ColumnError::Malformed(_)) => "this is no column",
                Err(ColumnError::Name { .. }) => "the column family cannot hold a column so named",
            };
            return Err(self.window.corrupt(reason));
        }
    }
}

/// Bytes that are read from the file at a time.
const READ_BYTES: u64 = 256 << 10;

/// Bytes of a file from some place on: at least the requested ones.
#[derive(Debug)]
pub(in crate::storage) struct Window {
    file: Arc<dyn File>,
    path: PathBuf,
    size: u64,
    /// Offset of the bytes in the file.
    start: u64,
    bytes: Vec<u8>,
    /// Number of the bytes that were read.
    used: usize,
}

impl Window {
    /// A window at the beginning of a file.
    pub(in crate::storage) fn open(fs: &dyn FileSystem, path: &Path) -> Result<Self, ReadError> {
        let file = fs.open(path).context("open", path)?;
        let size = file.size().context("look at", path)?;
        Ok(Self::of(file, path, size))
    }

    /// A window at the beginning of an open file.
    pub(in crate::storage) fn of(file: Arc<dyn File>, path: &Path, size: u64) -> Self {
        Self { file, path: path.to_owned(), size, start: 0, bytes: Vec::new(), used: 0 }
    }

    /// Another window on the same file, at this place.
    pub(in crate::storage) fn again(&self, position: u64) -> Self {
        let mut window = Self::of(Arc::clone(&self.file), &self.path, self.size);
        window.start = position;
        window
    }

    /// The file.
    pub(in crate::storage) fn path(&self) -> &Path {
        &self.path
    }

    /// The place in the file.
    pub(in crate::storage) fn position(&self) -> u64 {
        self.start + self.used as u64
    }

    /// Bytes of the file.
    pub(in crate::storage) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of the file that were not read yet.
    pub(in crate::storage) fn left(&self) -> u64 {
        self.size.saturating_sub(self.position())
    }

    /// All bytes that are here from the present place on.
    pub(in crate::storage) fn bytes(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Makes sure that `length` bytes are here. Nothing is allocated beyond the end of the file.
    pub(in crate::storage) fn fill(&mut self, length: u64) -> Result<(), ReadError> {
        let here = self.bytes().len() as u64;
        if here >= length {
            return Ok(());
        }
        let wanted = length.max(READ_BYTES).min(self.left());
        if wanted < length {
            return Err(self.corrupt("the file ends too early"));
        }
        self.start = self.position();
        self.bytes.drain(..self.used);
        self.used = 0;
        self.bytes.resize(wanted.max(here) as usize, 0);
        let missing = &mut self.bytes[here as usize..];
        let read = self.file.read_exact_at(missing, self.start + here);
        if read.is_err() {
            self.bytes.truncate(here as usize);
        }
        Ok(read.context("read", &self.path)?)
    }

    /// The text that stands here and its length, with as many bytes after it in memory.
    pub(in crate::storage) fn utf(
        &mut self,
        after: u64,
    ) -> Result<(Option<Cow<'_, str>>, u64), ReadError> {
        let length = self.utf_length(after)?;
        Ok((ByteReader::new(self.bytes()).utf().ok(), length))
    }

    /// The length of the text that stands here, with as many bytes after it in memory.
    pub(in crate::storage) fn utf_length(&mut self, after: u64) -> Result<u64, ReadError> {
        self.fill(2)?;
        let length = self.bytes().first_chunk().map_or(0, |it| u16::from_be_bytes(*it));
        let length = 2 + u64::from(length);
        self.fill(length + after)?;
        Ok(length)
    }

    /// The next `N` bytes.
    pub(in crate::storage) fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        self.fill(N as u64)?;
        let array = *self.bytes().first_chunk().expect("they were filled in");
        self.used += N;
        Ok(array)
    }

    /// Skips `length` bytes, which may be more than are here.
    pub(in crate::storage) fn skip(&mut self, length: u64) -> Result<(), ReadError> {
        if length > self.left() {
            return Err(self.corrupt("the file ends too early"));
        }
        self.seek(self.position() + length);
        Ok(())
    }

    /// Goes on to a later place.
    pub(in crate::storage) fn seek(&mut self, position: u64) {
        let place = position - self.start;
        if place <= self.bytes.len() as u64 {
            self.used = place as usize;
        } else {
            self.bytes.clear();
            (self.start, self.used) = (position, 0);
        }
    }

    /// Damage at the present place.
    pub(in crate::storage) fn corrupt(&self, reason: &'static str) -> ReadError {
        Corrupt::new(&self.path, self.position(), reason).into()
    }
}
