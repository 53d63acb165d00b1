//! Writes an SSTable: rows in order, the cells of each row in order, in one pass and in memory
//! that depends neither on the number of rows nor on the size of a row.

use super::block::{BlockBuilder, BlockHandle, BlockKind, Compression, Sealer};
use super::entry::{
    ExtentDraft, IndexRoot, MAX_INLINE_EXTENTS, PlaceDraft, RowEntryDraft, SummaryHead,
};
use super::filter::{self, Filter};
use super::outputs::WrittenFile;
use super::properties::Properties;
use super::row_part::RowPart;
use super::{HEADER_LENGTH, MAGIC, VERSION};
use crate::base::bytes::ByteWriter;
use crate::base::fs::{File, FileSystem};
use crate::model::cell::{Cell, CellState};
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{FileContext, FileError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are gathered before they are written to the file.
const WRITE_BUFFER: usize = 1 << 20;

/// Bytes of the part of a row in a data block besides its key, about.
const PART_OVERHEAD: usize = 4;

/// Most bytes of cells of a row in the row index; fewer for small blocks. A read of such a row
/// needs one block only, and the row has one place.
const MAX_INLINE_BYTES: usize = 1 << 10;

/// The part of a block that such a row may be, as a divisor.
const INLINE_TO_BLOCK: usize = 4;

/// Row keys that are added to the filter at a time.
const FILTER_BATCH: usize = 64;

/// Blocks of small rows that may wait for the open data block.
const MAX_PENDING_BLOCKS: usize = 4;

/// Layout of an SSTable.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Raw bytes after which a data block is closed.
    pub block_bytes: usize,
    /// Rows for each block of the row index. The first key of each stays in memory.
    pub index_interval: usize,
    /// Compression of blocks.
    pub compression: Compression,
    /// Decides on the order of rows.
    pub partitioner: Partitioner,
}

/// Writes one file. Nothing of it counts before [`SsTableWriter::finish`] has returned.
#[derive(Debug)]
pub struct SsTableWriter {
    file: Arc<dyn File>,
    path: PathBuf,
    options: WriterOptions,
    properties: Properties,
    /// `None` until the end, if the number of rows is not known before.
    filter: Option<Filter>,
    /// Hashes of row keys that are not in the filter yet.
    hashes: Vec<u64>,
    /// Sealed blocks that are not written yet; `written` is where they go.
    buffer: Vec<u8>,
    sealer: Sealer,
    written: u64,
    data: BlockBuilder,
    row_index: BlockBuilder,
    summary: Vec<u8>,
    /// Key of the first entry of the open row index block, in the stored form.
    index_first_key: Vec<u8>,
    /// Whether that block has rows whose cells stand elsewhere.
    index_points_elsewhere: bool,
    row: Option<OpenRow>,
    /// The cells of the open row in their stored form, as long as it is small.
    small: Vec<u8>,
    /// Rows that end in the open data block: their entries wait for its address. Then the entries
    /// of all rows after them wait.
    pending: Vec<PendingRow>,
    /// Bytes of the small rows among them.
    pending_bytes: usize,
    /// Approximate bytes that the parts of rows add to the size of the open data block.
    parts_bytes: usize,
    last_key: Option<DecoratedKey>,
}

/// Bytes of extents after which a block of the column index is closed.
const COLUMN_INDEX_BLOCK: usize = 8 << 10;

/// Extents that a block of the column index has at least, however long their names are: each level
/// must be much smaller than the one below it.
const LEAST_EXTENTS: usize = 4;

/// Bytes of an extent besides its names, about.
const MAX_HANDLE: usize = 8;

/// A row that waits for the open data block.
#[derive(Debug)]
enum PendingRow {
    /// A small one after rows with cells in data blocks, with its own cells.
    Small(OpenRow, Vec<u8>),
    /// One that has cells in data blocks.
    Large(OpenRow),
}

/// The row that is being written.
#[derive(Debug)]
struct OpenRow {
    key: DecoratedKey,
    /// Of the key, for filter and tag.
    hash: u64,
    deletion: Deletion,
    cells: u64,
    raw_bytes: u64,
    /// Whether its cells will stand in the row index, as far as it is known.
    is_small: bool,
    max_timestamp: i64,
    last: Option<Cell>,
    /// Extents that are not in a column index block yet: first those of data blocks, then those of
    /// the blocks of each level of the column index.
    levels: Vec<IndexLevel>,
    /// Cells in data blocks that are closed.
    settled_cells: u64,
    /// The part of the row that is in the open data block.
    current: Option<ExtentDraft>,
}

/// Extents that will make up the next block of one level of a column index.
#[derive(Debug, Default)]
struct IndexLevel {
    extents: Vec<ExtentDraft>,
    bytes: usize,
}

impl IndexLevel {
    fn push(&mut self, extent: ExtentDraft) {
        self.bytes += 2 * MAX_HANDLE + extent.super_name.len() + extent.name.len();
        self.extents.push(extent);
    }

    fn is_full(&self) -> bool {
        self.bytes >= COLUMN_INDEX_BLOCK && self.extents.len() >= LEAST_EXTENTS
    }
}

impl OpenRow {
    fn new(key: &DecoratedKey, deletion: Deletion) -> Self {
        Self {
            key: key.clone(),
            hash: filter::hash(key.key().as_bytes()),
            deletion,
            cells: 0,
            raw_bytes: 0,
            is_small: true,
            max_timestamp: deletion.marked_for_delete_at,
            last: None,
            levels: Vec::new(),
            settled_cells: 0,
            current: None,
        }
    }

    /// Counts a cell of this stored length, in the properties of the file as well.
    fn note_cell(&mut self, timestamp: i64, length: usize, file: &mut Properties) {
        self.cells += 1;
        self.raw_bytes += length as u64;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        file.note_timestamp(timestamp);
    }

    /// Returns the part of the row in the open data block; `None` if it has none.
    fn part(&self) -> Option<RowPart<'_>> {
        let cells = self.current.as_ref().map_or(0, |current| current.entries);
        (cells > 0).then(|| RowPart {
            key: self.key.key().as_bytes(),
            deletion: self.deletion,
            cells,
            is_continued: self.settled_cells > 0,
        })
    }

    /// The open data block is written: now its part of the row has an address.
    fn settle(&mut self, block: BlockHandle) {
        if let Some(current) = self.current.take() {
            self.settled_cells += u64::from(current.entries);
            if self.levels.is_empty() {
                self.levels.push(IndexLevel::default());
            }
            self.levels[0].push(ExtentDraft { block, ..current });
        }
    }
}

impl WriterOptions {
    /// Most bytes of cells of a row that stands in the row index.
    fn inline_bytes(&self) -> u64 {
        MAX_INLINE_BYTES.min(self.block_bytes / INLINE_TO_BLOCK) as u64
    }
}

impl SsTableWriter {
    /// Begins a new file for about `expected_rows` rows (the filter is sized for them), at this
    /// time in microseconds. Where that is not known the filter will be exact, and each row takes
    /// eight bytes of memory until then.
    pub fn create(
        fs: &dyn FileSystem,
        path: &Path,
        family: &ColumnFamilySchema,
        options: WriterOptions,
        expected_rows: impl Into<Option<u64>>,
        created_at_micros: i64,
    ) -> Result<Self, FileError> {
        let file = fs.create(path).context("create", path)?;
        let subcolumns = family.subcolumn_comparator();
        let properties = Properties {
            keyspace: family.keyspace.clone(),
            family: family.name.clone(),
            partitioner: options.partitioner.class_name().to_owned(),
            comparator: family.comparator().class_name(),
            subcolumn_comparator: subcolumns.map_or_else(String::new, |c| c.class_name()),
            index_interval: options.index_interval as u64,
            created_at_micros: created_at_micros.max(0) as u64,
            ..Properties::without_rows()
        };
        let mut buffer = Vec::with_capacity(WRITE_BUFFER + options.block_bytes);
        buffer.extend_from_slice(MAGIC);
        buffer.push(VERSION);
        debug_assert_eq!(buffer.len() as u64, HEADER_LENGTH);
        Ok(Self {
            file,
            path: path.to_owned(),
            options,
            properties,
            filter: expected_rows.into().map(Filter::for_keys),
            hashes: Vec::with_capacity(FILTER_BATCH),
            buffer,
            sealer: Sealer::default(),
            written: 0,
            data: BlockBuilder::default(),
            row_index: BlockBuilder::default(),
            summary: Vec::new(),
            index_first_key: Vec::new(),
            index_points_elsewhere: false,
            row: None,
            small: Vec::new(),
            pending: Vec::new(),
            pending_bytes: 0,
            parts_bytes: 0,
            last_key: None,
        })
    }

    /// Says for which level it is written, if for any.
    pub fn set_level(&mut self, level: u32) {
        self.properties.level = level.into();
    }

    /// Begins the next row.
    ///
    /// # Panics
    /// If the key is not greater than that of the row before: the file would be unreadable.
    pub fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) {
        assert!(self.row.is_none(), "a row is begun after the one before has ended");
        assert!(self.last_key.as_ref().is_none_or(|last| last < key), "rows come in order");
        self.row = Some(OpenRow::new(key, deletion));
    }

    /// Adds the next cell of the row. Cells come in order, at most one for each place.
    pub fn push(&mut self, cell: &Cell) -> Result<(), FileError> {
        let row = self.row.as_mut().expect("cells belong to a row that was begun");
        row.note_cell(cell.timestamp(), cell.encoded_length(), &mut self.properties);
        self.properties.note_deletion(cell);
        if row.is_small {
            if row.raw_bytes <= self.options.inline_bytes() {
                cell.encode(&mut self.small);
                return Ok(());
            }
            row.is_small = false;
            self.place_small()?;
        }
        self.place(cell)
    }

    /// Adds all cells of the row that was just begun, in their stored form and in order. False,
    /// with nothing added, if they are not all live, or if it will not be a small row: then they
    /// have to be added one by one.
    pub fn push_stored(&mut self, cells: &[u8]) -> bool {
        let row = self.row.as_mut().expect("cells belong to a row that was begun");
        let is_live = |head| matches!(head, Some((CellState::Live, _, _)));
        if cells.len() as u64 > self.options.inline_bytes() || !Cell::heads(cells).all(is_live) {
            return false;
        }
        debug_assert_eq!(row.cells, 0, "it was just begun");
        for (_, timestamp, length) in Cell::heads(cells).flatten() {
            row.note_cell(timestamp, length, &mut self.properties);
        }
        self.small.extend_from_slice(cells);
        true
    }

    /// The row turns out not to be small: adds to the data what there is of it.
    fn place_small(&mut self) -> Result<(), FileError> {
        let bytes: Arc<[u8]> = self.small.as_slice().into();
        self.small.clear();
        let mut at = 0;
        while let Some(cell) = Cell::decode(&bytes, at) {
            at += cell.encoded_length();
            self.place(&cell)?;
        }
        debug_assert_eq!(at, bytes.len(), "all of it are cells");
        Ok(())
    }

    /// Adds the next cell of a row that is not small to the data.
    fn place(&mut self, cell: &Cell) -> Result<(), FileError> {
        let row = self.row.as_mut().expect("cells belong to a row that was begun");
        let current = row.current.get_or_insert_with(|| {
            self.parts_bytes += row.key.key().as_bytes().len() + PART_OVERHEAD;
            ExtentDraft {
                block: BlockHandle::default(),
                first_entry: self.data.len() as u32,
                entries: 0,
                super_name: cell.super_name().to_vec(),
                name: cell.name().to_vec(),
            }
        });
        current.entries += 1;
        cell.encode(self.data.entry());
        row.last = Some(cell.clone());
        if self.data_size() >= self.options.block_bytes {
            self.close_data_block()?;
        }
        Ok(())
    }

    fn data_size(&self) -> usize {
        self.data.size() + self.parts_bytes
    }

    /// Ends the row. A row with neither cells nor a deletion leaves no trace.
    pub fn end_row(&mut self) -> Result<(), FileError> {
        let row = self.row.take().expect("a row was begun");
        if row.cells == 0 && row.deletion.is_none() {
            return Ok(());
        }
        self.note_row(&row);
        if !row.is_small {
            self.last_key = Some(row.key.clone());
            let has_ended = row.current.is_none();
            // Its entry says where the open data block is, which is known when that is written.
            self.pending.push(PendingRow::Large(row));
            return if has_ended { self.close_data_block() } else { Ok(()) };
        }
        if self.pending.is_empty() {
            let mut cells = std::mem::take(&mut self.small);
            self.write_small_row(&row, &cells)?;
            cells.clear();
            self.small = cells;
            self.last_key = Some(row.key);
            return Ok(());
        }
        self.last_key = Some(row.key.clone());
        self.pending_bytes += row.raw_bytes as usize + row.key.key().as_bytes().len();
        self.pending.push(PendingRow::Small(row, self.small.clone()));
        self.small.clear();
        if self.pending_bytes >= MAX_PENDING_BLOCKS * self.options.block_bytes {
            self.close_data_block()?;
        }
        Ok(())
    }

    fn note_row(&mut self, row: &OpenRow) {
        let properties = &mut self.properties;
        properties.rows += 1;
        properties.cells += row.cells;
        properties.raw_bytes += row.raw_bytes;
        properties.largest_row_bytes = properties.largest_row_bytes.max(row.raw_bytes);
        properties.smallest_row_bytes = match properties.rows {
            1 => row.raw_bytes,
            _ => properties.smallest_row_bytes.min(row.raw_bytes),
        };
        properties.note_row_deletion(row.deletion);
        if !row.is_small {
            properties.note_wide_row(row.key.key(), row.raw_bytes, row.cells);
        }
        self.hashes.push(row.hash);
        if self.hashes.len() == FILTER_BATCH && self.filter.is_some() {
            self.fill_filter();
        }
    }

    fn fill_filter(&mut self) -> &Filter {
        let keys = self.hashes.len() as u64;
        let filter = self.filter.get_or_insert_with(|| Filter::for_keys(keys));
        filter.insert_all(&self.hashes);
        self.hashes.clear();
        filter
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Rows that have ended.
    pub fn rows(&self) -> u64 {
        self.properties.rows
    }

    /// Bytes of the file so far, those included that are still in memory.
    pub fn size(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Writes what is left, and makes the file durable.
    pub fn finish(mut self) -> Result<WrittenFile, FileError> {
        assert!(self.row.is_none(), "the last row was ended");
        self.close_data_block()?;
        self.close_row_index_block()?;
        let summary = std::mem::take(&mut self.summary);
        let keys = self.fill_filter();
        let mut filter = Vec::with_capacity(keys.size_bytes() + 4);
        keys.encode(&mut filter);
        if let Some(last) = &self.last_key {
            self.properties.set_last_key(last);
        }
        let properties = self.properties.encode();
        let handles = [
            self.write_block(BlockKind::Summary, &summary)?,
            self.write_block(BlockKind::Filter, &filter)?,
            self.write_block(BlockKind::Properties, &properties)?,
        ];
        let mut footer = Vec::with_capacity(super::FOOTER_LENGTH);
        for handle in handles {
            footer.extend_from_slice(&handle.offset.to_be_bytes());
            footer.extend_from_slice(&handle.length.to_be_bytes());
        }
        footer.extend_from_slice(&crc32fast::hash(&footer).to_be_bytes());
        footer.extend_from_slice(MAGIC);
        footer.push(VERSION);
        self.buffer.extend_from_slice(&footer);
        self.flush_buffer()?;
        self.file.sync().context("sync", &self.path)?;
        Ok(WrittenFile { path: self.path, bytes: self.written, properties: self.properties })
    }

    fn close_data_block(&mut self) -> Result<(), FileError> {
        let block = if self.parts_bytes == 0 {
            BlockHandle::default()
        } else {
            self.note_parts();
            let mut data = std::mem::take(&mut self.data);
            let block = self.write_block(BlockKind::Data, data.finish())?;
            data.clear();
            self.data = data;
            block
        };
        self.pending_bytes = 0;
        for row in std::mem::take(&mut self.pending) {
            match row {
                PendingRow::Small(row, cells) => self.write_small_row(&row, &cells)?,
                PendingRow::Large(mut row) => {
                    row.settle(block);
                    self.write_large_row(row)?;
                }
            }
        }
        if let Some(mut row) = self.row.take() {
            row.settle(block);
            self.write_full_levels(&mut row)?;
            self.row = Some(row);
        }
        Ok(())
    }

    /// Writes the parts of rows into the open data block.
    fn note_parts(&mut self) {
        self.parts_bytes = 0;
        let ended = self.pending.iter().filter_map(|row| match row {
            PendingRow::Small(..) => None,
            PendingRow::Large(row) => Some(row),
        });
        for row in ended.chain(&self.row) {
            row.part().inspect(|part| part.encode(self.data.tail()));
        }
    }

    /// Writes those levels of the column index that have enough for a block.
    fn write_full_levels(&mut self, row: &mut OpenRow) -> Result<(), FileError> {
        let mut level = 0;
        while row.levels.get(level).is_some_and(IndexLevel::is_full) {
            self.write_level(row, level)?;
            level += 1;
        }
        Ok(())
    }

    /// Writes the extents of a level as one block, which is an extent of the level above.
    fn write_level(&mut self, row: &mut OpenRow, level: usize) -> Result<(), FileError> {
        let extents = std::mem::take(&mut row.levels[level]).extents;
        let block = self.write_extents(&extents)?;
        let entries = extents.len() as u32;
        if let Some(ExtentDraft { super_name, name, .. }) = extents.into_iter().next() {
            if row.levels.len() == level + 1 {
                row.levels.push(IndexLevel::default());
            }
            let draft = ExtentDraft { block, first_entry: 0, entries, super_name, name };
            row.levels[level + 1].push(draft);
        }
        Ok(())
    }

    fn write_extents(&mut self, extents: &[ExtentDraft]) -> Result<BlockHandle, FileError> {
        let mut builder = BlockBuilder::default();
        for extent in extents {
            extent.encode(builder.entry());
        }
        self.write_block(BlockKind::ColumnIndex, builder.finish())
    }

    /// Writes what is left of the column index from the bottom up; `None` if the row needs none.
    fn finish_column_index(&mut self, row: &mut OpenRow) -> Result<Option<IndexRoot>, FileError> {
        let is_small = match &row.levels[..] {
            [] => true,
            [only] => only.extents.len() <= MAX_INLINE_EXTENTS,
            _ => false,
        };
        if is_small {
            return Ok(None);
        }
        let mut level = 0;
        loop {
            let is_top = row.levels.len() == level + 1;
            if is_top && level > 0 && row.levels[level].extents.len() == 1 {
                let block = row.levels[level].extents[0].block;
                return Ok(Some(IndexRoot { block, levels: level as u8 }));
            }
            if !row.levels[level].extents.is_empty() {
                self.write_level(row, level)?;
            }
            level += 1;
        }
    }

    fn write_small_row(&mut self, row: &OpenRow, cells: &[u8]) -> Result<(), FileError> {
        let (key, deletion) = (&row.key, row.deletion);
        let place = PlaceDraft::Inline(cells);
        self.write_entry(row.hash, &RowEntryDraft { key, deletion, cells: row.cells, place })
    }

    fn write_large_row(&mut self, mut row: OpenRow) -> Result<(), FileError> {
        let column_index = self.finish_column_index(&mut row)?;
        let max_timestamp = row.max_timestamp;
        let last = row.last.as_ref().map_or((&b""[..], &b""[..]), Cell::place);
        let extents = row.levels.first().map_or(&[][..], |level| &level.extents);
        let place = PlaceDraft::Blocks { max_timestamp, last, extents, root: column_index };
        let (key, deletion, cells) = (&row.key, row.deletion, row.cells);
        self.index_points_elsewhere = true;
        self.write_entry(row.hash, &RowEntryDraft { key, deletion, cells, place })
    }

    fn write_entry(&mut self, hash: u64, draft: &RowEntryDraft<'_>) -> Result<(), FileError> {
        if self.row_index.is_empty() {
            self.index_first_key.clear();
            self.index_first_key.put_prefixed(draft.key.key().as_bytes());
            draft.key.encode_token(&mut self.index_first_key);
        }
        draft.encode(self.row_index.tagged_entry(filter::tag(hash)));
        let is_full = self.row_index.len() >= self.options.index_interval
            || self.row_index.size() >= self.options.block_bytes;
        if is_full {
            self.close_row_index_block()?;
        }
        Ok(())
    }

    /// [`super::entry`] has the form of the summary.
    fn close_row_index_block(&mut self) -> Result<(), FileError> {
        let rows = self.row_index.len() as u64;
        if rows == 0 {
            return Ok(());
        }
        let points_elsewhere = std::mem::take(&mut self.index_points_elsewhere);
        let mut row_index = std::mem::take(&mut self.row_index);
        let block = self.write_block(BlockKind::RowIndex, row_index.finish())?;
        row_index.clear();
        self.row_index = row_index;
        let head = SummaryHead { block, rows, points_elsewhere };
        head.encode(&self.index_first_key, &mut self.summary);
        Ok(())
    }

    fn write_block(&mut self, kind: BlockKind, raw: &[u8]) -> Result<BlockHandle, FileError> {
        let offset = self.size();
        self.sealer.seal(kind, self.options.compression, raw, offset, &mut self.buffer);
        let length = (self.size() - offset) as u32;
        if self.buffer.len() >= WRITE_BUFFER {
            self.flush_buffer()?;
        }
        Ok(BlockHandle { offset, length })
    }

    fn flush_buffer(&mut self) -> Result<(), FileError> {
        self.file.write_all_at(&self.buffer, self.written).context("write", &self.path)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
