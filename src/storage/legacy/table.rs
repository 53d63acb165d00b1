//! Reads the rows of an SSTable of 0.4 to 0.6 where they lie, in the form of our blocks.
//!
//! Neighbouring rows of about 16 KB together, or one larger row, make up a *run*. A run stands for
//! a block of the row index, the blocks of a row's own column index stand for data blocks. When a
//! reader asks for one its bytes are read, checked, and translated into the block that a file of
//! ours would have. So all that reads blocks reads these files too, and the block cache keeps the
//! translations.
//!
//! The files have no checksums. When a run is translated its keys and offsets must be those of the
//! index, and in their order; rows, columns and blocks must be as long as they claim, columns in
//! the order of the comparator. The runs are cut when the file is opened, from `Index.db`, or from
//! the heads of all rows if that is missing or wrong. `Filter.db` is not needed: a filter of ours
//! is made from the same keys.

use super::disk_key::parse_disk_key;
use super::reader::Window;
use super::row::LastPlace;
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::JavaReader;
use crate::model::cell::CellParts;
use crate::model::deletion::Deletion;
use crate::model::original::{
    ColumnError, ColumnReader, ColumnStep, DELETION_BYTES, read_deletion,
};
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{Corrupt, ReadError};
use crate::storage::sstable::block::{Block, BlockBuilder, BlockHandle, BlockKind};
use crate::storage::sstable::entry::{
    ExtentDraft, IndexRoot, MAX_INLINE_EXTENTS, PlaceDraft, RowEntryDraft, SummaryHead, WHOLE_BLOCK,
};
use crate::storage::sstable::filter::{self, Filter};
use crate::storage::sstable::properties::Properties;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of rows after which a run ends, which is read at once. A larger row is a run of its own.
const RUN_BYTES: u64 = 16 << 10;

/// A larger run is one row that is not read as a whole.
const MOST_RUN_BYTES: u32 = 64 << 10;

/// Most bytes of the columns of a row that stand in its entry of the row index.
const MAX_INLINE_BYTES: usize = 4 << 10;

/// Bytes of a row before its columns, besides key, filter and column index.
const FIXED_BYTES: usize = DELETION_BYTES + 4;

/// An offset beyond this is none: no disk holds such a file.
const MOST_DATA_BYTES: u64 = 1 << 48;

/// Rows of no more bytes are not among the widest: where they were written by us they would stand
/// in the row index.
const LEAST_WIDE_BYTES: u64 = 1 << 10;

const OUT_OF_ORDER: &str =
    "the rows are not in the order of their tokens: did you change the partitioner?";
const NO_KEY: &str =
    "a row key of this partitioner should stand here: did you change the partitioner?";
const NO_COLUMN: &str = "this is no column";

/// An open SSTable of 0.4 to 0.6, without its file.
#[derive(Debug)]
pub(in crate::storage) struct LegacyTable {
    path: PathBuf,
    family: Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
    /// By offset.
    runs: Vec<Run>,
    has_index: bool,
}

/// Neighbouring rows.
#[derive(Debug)]
struct Run {
    /// Offset of the first row.
    start: u64,
    /// CRC32 of the entries that the rows have in `Index.db`.
    index_crc: u32,
}

/// A row, by places in the bytes that it was found in.
#[derive(Debug)]
struct Row {
    key: DecoratedKey,
    /// Bytes of the key as the file has it.
    field: usize,
    deletion: Deletion,
    /// Number of columns or super columns.
    count: u32,
    /// The column index.
    index: Range<usize>,
    columns: Range<usize>,
}

/// An entry of the column index of a row.
#[derive(Debug)]
struct ColumnBlock<'a> {
    first: &'a [u8],
    last: &'a [u8],
    /// Its place after the beginning of the columns.
    range: Range<u64>,
    is_super: bool,
}

impl ColumnBlock<'_> {
    /// The extent that it is in a row whose columns begin at this offset.
    fn at(&self, columns: u64) -> ExtentDraft {
        let length = (self.range.end - self.range.start) as u32;
        let block = BlockHandle { offset: columns + self.range.start, length };
        let name = self.first.to_vec();
        let (super_name, name) = if self.is_super { (name, vec![]) } else { (vec![], name) };
        ExtentDraft { block, first_entry: 0, entries: WHOLE_BLOCK, super_name, name }
    }
}

/// Why bytes were not translated.
#[derive(Debug)]
pub(in crate::storage) enum Untranslated {
    /// There must be at least as many.
    Needs(usize),
    /// They are damaged.
    Corrupt(Corrupt),
}

impl From<Corrupt> for Untranslated {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

/// Facts that an SSTable of ours has in its summary, filter and properties.
#[derive(Debug)]
pub(in crate::storage) struct Survey {
    pub(in crate::storage) table: LegacyTable,
    pub(in crate::storage) summary: Vec<(SummaryHead, DecoratedKey)>,
    pub(in crate::storage) filter: Filter,
    pub(in crate::storage) properties: Properties,
    pub(in crate::storage) last: Option<DecoratedKey>,
    /// CRC32 of `Index.db`, as it is or should be.
    pub(in crate::storage) index_crc: u32,
}

impl LegacyTable {
    /// Cuts a file into runs. Rows for each run are at most `index_interval`.
    pub(in crate::storage) fn survey(
        data: Window,
        index: Result<Window, ReadError>,
        family: &Arc<ColumnFamilySchema>,
        partitioner: Partitioner,
        index_interval: u64,
    ) -> Result<Survey, ReadError> {
        let (path, size) = (data.path().to_owned(), data.size());
        if size == 0 {
            return Err(data.corrupt("the file is empty"));
        }
        let begin = || Surveyor::new(&path, family, partitioner, index_interval);
        let by_index = index.and_then(|index| {
            let mut surveyor = begin();
            surveyor.walk_index(index, &data)?;
            surveyor.table.has_index = true;
            Ok(surveyor)
        });
        let surveyor = match by_index {
            Ok(surveyor) => surveyor,
            Err(ReadError::Corrupt(damage)) if damage.file == path => return Err(damage.into()),
            Err(fault) => {
                log::warn!("{fault}. The rows of {} are looked for one by one", path.display());
                let mut surveyor = begin();
                surveyor.walk_data(data)?;
                surveyor
            }
        };
        surveyor.finish(size)
    }

    /// Whether `Index.db` is there and has the places of all rows.
    pub(in crate::storage) fn has_index(&self) -> bool {
        self.has_index
    }

    /// Translates the bytes of a block. Of a row that is a large run only the front is needed: the
    /// error of too few tells how many there must be.
    pub(in crate::storage) fn block(
        &self,
        handle: BlockHandle,
        kind: BlockKind,
        bytes: &[u8],
    ) -> Result<Block, Untranslated> {
        let mut block = BlockBuilder::with_capacity(bytes.len());
        match kind {
            BlockKind::RowIndex => self.translate_run(handle, bytes, &mut block)?,
            BlockKind::ColumnIndex => {
                let columns = handle.range().end + FIXED_BYTES as u64;
                self.each_block(bytes, handle.offset, |extent| {
                    extent.at(columns).encode(block.entry());
                })?;
            }
            _ => {
                self.each_cell(bytes, handle.offset, None, |cell| cell.encode(block.entry()))?;
            }
        }
        block.build().ok_or_else(|| self.corrupt(handle.offset, "a block is too large").into())
    }

    fn translate_run(
        &self,
        handle: BlockHandle,
        bytes: &[u8],
        block: &mut BlockBuilder,
    ) -> Result<(), Untranslated> {
        let (mut at, end) = (0, handle.length as usize);
        let (mut crc, mut last) = (crc32fast::Hasher::new(), None);
        while at < end {
            let row = self.row(handle.offset, bytes, at..end)?;
            crc.update(&bytes[at..at + row.field]);
            crc.update(&(handle.offset + at as u64).to_be_bytes());
            if last.is_some_and(|last| last >= row.key) {
                return Err(self.corrupt(handle.offset + at as u64, OUT_OF_ORDER).into());
            }
            self.translate_row(handle.offset, bytes, &row, block)?;
            at = row.columns.end;
            last = Some(row.key);
        }
        let known = self.runs.binary_search_by_key(&handle.offset, |run| run.start);
        if known.map(|known| self.runs[known].index_crc) != Ok(crc.finalize()) {
            let reason = "the row keys here are others than those in the index";
            return Err(self.corrupt(handle.offset, reason).into());
        }
        Ok(())
    }

    /// Takes the row apart that begins at the start of this range, and ends within it.
    fn row(&self, offset: u64, bytes: &[u8], range: Range<usize>) -> Result<Row, Untranslated> {
        let Range { start, end } = range;
        let is_whole = bytes.len() >= end;
        let mut reader = ByteReader::at(bytes, start);
        let fault =
            |at: usize, reason| Untranslated::from(self.corrupt(offset + at as u64, reason));
        // What is missing of a row of which only the front was read.
        let missing = |Malformed(at): Malformed, more: usize| match end.min(at.saturating_add(more))
        {
            needs if is_whole || needs <= bytes.len() => fault(at, "a row ends too early"),
            needs => Untranslated::Needs(needs),
        };
        let key = reader.utf().map_err(|_| missing(Malformed(start), 2 + usize::from(u16::MAX)))?;
        let key = parse_disk_key(&key, self.partitioner).ok_or_else(|| fault(start, NO_KEY))?;
        let field = reader.position() - start;
        let size = reader.i32().map_err(|at| missing(at, 4))?;
        let row_end = usize::try_from(size).ok().filter(|size| *size > 0);
        let row_end = row_end.map(|size| reader.position().saturating_add(size));
        let fits = |row_end: &usize| if is_whole { *row_end <= end } else { *row_end == end };
        let row_end = row_end.filter(fits).ok_or_else(|| {
            fault(start, "a row has another length than the index, or the end of the file, says")
        })?;
        let skip = |reader: &mut ByteReader<'_>| {
            let length = reader.u32().map_err(|at| missing(at, 4))? as usize;
            let from = reader.position();
            if length > row_end - from.min(row_end) {
                return Err(fault(from, "a part of a row is longer than the row"));
            }
            let _ = reader.take(length).map_err(|at| missing(at, length))?;
            Ok(from..from + length)
        };
        let _filter = skip(&mut reader)?;
        let index = skip(&mut reader)?;
        let fixed = reader.position();
        if row_end - fixed < FIXED_BYTES {
            return Err(fault(fixed, "a part of a row is longer than the row"));
        }
        if bytes.len() - fixed < FIXED_BYTES {
            return Err(missing(Malformed(fixed), FIXED_BYTES));
        }
        let deletion = read_deletion(&mut reader).map_err(|_| fault(fixed, NO_COLUMN))?;
        let count = reader.i32().ok().and_then(|count| u32::try_from(count).ok());
        let count = count.ok_or_else(|| fault(fixed, "a row has a negative number of columns"))?;
        Ok(Row { key, field, deletion, count, index, columns: reader.position()..row_end })
    }

    fn translate_row(
        &self,
        offset: u64,
        bytes: &[u8],
        row: &Row,
        block: &mut BlockBuilder,
    ) -> Result<(), Untranslated> {
        let Row { key, deletion, count, index, columns, .. } = row;
        let (key, deletion) = (key, *deletion);
        let tag = filter::tag(filter::hash(key.key().as_bytes()));
        let in_row = |error: Corrupt| Corrupt { row: Some(key.key().clone()), ..error };
        if columns.len() <= MAX_INLINE_BYTES {
            if bytes.len() < columns.end {
                return Err(Untranslated::Needs(columns.end));
            }
            let mut cells = Vec::new();
            let at = offset + columns.start as u64;
            let number = self
                .each_cell(&bytes[columns.clone()], at, Some(*count), |cell| {
                    cell.encode(&mut cells);
                })
                .map_err(in_row)?;
            let place = PlaceDraft::Inline(&cells);
            let draft = RowEntryDraft { key, deletion, cells: number, place };
            draft.encode(block.tagged_entry(tag));
            return Ok(());
        }
        let (mut extents, mut last, mut end, mut blocks) = (Vec::new(), Vec::new(), 0, 0);
        let columns_at = offset + columns.start as u64;
        let index_at = offset + index.start as u64;
        self.each_block(&bytes[index.clone()], index_at, |extent| {
            extent.last.clone_into(&mut last);
            end = extent.range.end;
            blocks += 1;
            if blocks <= MAX_INLINE_EXTENTS {
                extents.push(extent.at(columns_at));
            }
        })
        .map_err(in_row)?;
        if end != columns.len() as u64 {
            let reason = "the column index of a row is not that of its columns";
            return Err(in_row(self.corrupt(index_at, reason)).into());
        }
        let root = (blocks > MAX_INLINE_EXTENTS).then(|| {
            let block = BlockHandle { offset: index_at, length: index.len() as u32 };
            IndexRoot { block, levels: 1 }
        });
        let last: (&[u8], &[u8]) = if self.family.is_super() { (&last, b"") } else { (b"", &last) };
        let max_timestamp = i64::MAX;
        let place = PlaceDraft::Blocks { max_timestamp, last, extents: &extents, root };
        let draft = RowEntryDraft { key, deletion, cells: u64::from(*count), place };
        draft.encode(block.tagged_entry(tag));
        Ok(())
    }

    /// Calls for each entry of the column index of a row. They follow each other without a gap.
    fn each_block(
        &self,
        bytes: &[u8],
        offset: u64,
        mut visit: impl FnMut(ColumnBlock<'_>),
    ) -> Result<(), Corrupt> {
        let is_super = self.family.is_super();
        let place = |name| if is_super { (name, &b""[..]) } else { (&b""[..], name) };
        let mut reader = ByteReader::new(bytes);
        let (mut end, mut before): (u64, Option<&[u8]>) = (0, None);
        while !reader.is_empty() {
            let at = offset + reader.position() as u64;
            let mut read = || {
                let (first, last) = (reader.prefixed()?, reader.prefixed()?);
                let (start, width) = (reader.u64()?, reader.u64()?);
                let stop = start.checked_add(width).ok_or(Malformed(0))?;
                Ok::<_, Malformed>(ColumnBlock { first, last, range: start..stop, is_super })
            };
            let block = read().map_err(|_| self.corrupt(at, "a column index cannot be read"))?;
            let order = |a, b| self.family.compare(place(a), place(b));
            let is_sound = block.range.start == end
                && !block.range.is_empty()
                && u32::try_from(block.range.end - end).is_ok()
                && order(block.first, block.last).is_le()
                && before.is_none_or(|before| order(before, block.first).is_lt());
            if !is_sound {
                return Err(self.corrupt(at, "a column index is not in its order"));
            }
            (end, before) = (block.range.end, Some(block.last));
            visit(block);
        }
        Ok(())
    }

    /// Calls for each column and deletion in these bytes, which are that many top-level columns, or
    /// as many as there are. Returns the number of calls.
    fn each_cell(
        &self,
        bytes: &[u8],
        offset: u64,
        count: Option<u32>,
        mut visit: impl FnMut(&CellParts<'_>),
    ) -> Result<u64, Corrupt> {
        let mut reader = ByteReader::new(bytes);
        let mut columns = ColumnReader::new(count.unwrap_or(u32::MAX), &self.family);
        let (mut place, mut cells) = (LastPlace::default(), 0);
        loop {
            let at = offset + reader.position() as u64;
            if reader.is_empty() && count.is_none() && columns.open_super_column().is_none() {
                return Ok(cells);
            }
            match columns.step(&mut reader, &self.family) {
                Ok(ColumnStep::Cell(parts)) => {
                    if !place.advance(&self.family, (parts.super_name, parts.name)) {
                        return Err(self.corrupt(at, "columns are not in their order"));
                    }
                    visit(&parts);
                    cells += 1;
                }
                Ok(ColumnStep::Nothing) => {}
                Ok(ColumnStep::Done) if reader.is_empty() => return Ok(cells),
                Ok(ColumnStep::Done) => {
                    return Err(self.corrupt(at, "a row is longer than its columns"));
                }
                Err(ColumnError::Truncated { .. }) => {
                    return Err(self.corrupt(at, "a column is longer than the row"));
                }
                Err(ColumnError::Malformed(_)) => return Err(self.corrupt(at, NO_COLUMN)),
                Err(ColumnError::Name { .. }) => {
                    let reason = "the column family cannot hold a column so named";
                    return Err(self.corrupt(at, reason));
                }
            }
        }
    }

    fn corrupt(&self, offset: u64, reason: &'static str) -> Corrupt {
        Corrupt::new(&self.path, offset, reason)
    }
}

/// Cuts a file into runs, row by row.
struct Surveyor {
    table: LegacyTable,
    interval: u64,
    summary: Vec<(SummaryHead, DecoratedKey)>,
    run: Option<OpenRun>,
    /// The key of the last row, as the file has it.
    last: Vec<u8>,
    properties: Properties,
    index_crc: crc32fast::Hasher,
    filter: Option<Filter>,
    /// Hashes of keys that are not in the filter yet.
    hashes: Vec<u64>,
}

/// A run that may go on.
struct OpenRun {
    start: u64,
    first: DecoratedKey,
    rows: u64,
    index_crc: crc32fast::Hasher,
}

/// Rows after which the filter is sized, by the part of the file that they take up.
const SAMPLED_ROWS: usize = 1 << 20;

impl Surveyor {
    fn new(
        path: &Path,
        family: &Arc<ColumnFamilySchema>,
        partitioner: Partitioner,
        interval: u64,
    ) -> Self {
        let (path, family) = (path.to_owned(), Arc::clone(family));
        let subcolumns = family.subcolumn_comparator();
        // What the file does not tell counts as the worst case.
        let properties = Properties {
            keyspace: family.keyspace.clone(),
            family: family.name.clone(),
            partitioner: partitioner.class_name().to_owned(),
            comparator: family.comparator().class_name(),
            subcolumn_comparator: subcolumns.map_or_else(String::new, |c| c.class_name()),
            index_interval: interval,
            min_timestamp: i64::MIN,
            max_timestamp: i64::MAX,
            smallest_row_bytes: u64::MAX,
            ..Properties::without_rows()
        };
        Self {
            table: LegacyTable { path, family, partitioner, runs: Vec::new(), has_index: false },
            interval,
            summary: Vec::new(),
            run: None,
            last: Vec::new(),
            properties,
            index_crc: crc32fast::Hasher::new(),
            filter: None,
            hashes: Vec::new(),
        }
    }

    /// Goes through `Index.db`, whose last row ends with the data. An index that names rows beyond
    /// them says that the data are truncated.
    fn walk_index(&mut self, mut index: Window, data: &Window) -> Result<(), ReadError> {
        let (data_size, mut field, mut start) = (data.size(), Vec::new(), None);
        while index.left() > 0 {
            let length = index.utf_length(8)?;
            let (entry, key) = (index.bytes(), length as usize);
            let offset = ByteReader::at(entry, key).u64().unwrap_or(u64::MAX);
            if !start.map_or(offset == 0, |start| start < offset) {
                return Err(index.corrupt("an offset is not after the one before"));
            }
            if offset >= data_size && offset < MOST_DATA_BYTES {
                let reason = "the file is truncated: its index names rows that would come here";
                return Err(data.again(data_size).corrupt(reason));
            }
            if let Some(start) = start.replace(offset) {
                self.add(&field, start..offset, data_size)
                    .map_err(|reason| index.corrupt(reason))?;
            }
            field.clear();
            field.extend_from_slice(&index.bytes()[..key]);
            index.skip(length + 8)?;
        }
        let Some(start) = start else { return Err(index.corrupt("the file is empty")) };
        let mut last = data.again(start);
        if row_end(&mut last).ok().flatten() != Some(data_size) {
            return Err(index.corrupt("there are rows that it does not name"));
        }
        self.add(&field, start..data_size, data_size).map_err(|why| index.corrupt(why))
    }

    /// Goes through the heads of all rows.
    fn walk_data(&mut self, mut data: Window) -> Result<(), ReadError> {
        while data.left() > 0 {
            let start = data.position();
            let Some(end) = row_end(&mut data)? else {
                return Err(data.corrupt("a row is longer than the rest of the file"));
            };
            let length = data.utf_length(4)?;
            let added = self.add(&data.bytes()[..length as usize], start..end, data.size());
            added.map_err(|reason| data.corrupt(reason))?;
            data.seek(end);
        }
        Ok(())
    }

    /// Adds the next row: its key as the file has it, and its place.
    fn add(&mut self, field: &[u8], row: Range<u64>, size: u64) -> Result<(), &'static str> {
        let length = row.end - row.start;
        let properties = &mut self.properties;
        properties.rows += 1;
        properties.smallest_row_bytes = properties.smallest_row_bytes.min(length);
        properties.largest_row_bytes = properties.largest_row_bytes.max(length);
        self.note_key(field, &row, size)?;
        self.index_crc.update(field);
        self.index_crc.update(&row.start.to_be_bytes());
        if length > RUN_BYTES {
            self.end_run(row.start);
        }
        if self.run.is_none() {
            let first = self.key(field)?;
            if self.summary.last().is_some_and(|(_, last)| *last >= first) {
                return Err(OUT_OF_ORDER);
            }
            let index_crc = crc32fast::Hasher::new();
            self.run = Some(OpenRun { start: row.start, first, rows: 0, index_crc });
        }
        if let Some(run) = &mut self.run {
            run.rows += 1;
            run.index_crc.update(field);
            run.index_crc.update(&row.start.to_be_bytes());
            if row.end - run.start >= RUN_BYTES || run.rows >= self.interval {
                self.end_run(row.end);
            }
        }
        field.clone_into(&mut self.last);
        Ok(())
    }

    fn note_key(&mut self, field: &[u8], row: &Range<u64>, size: u64) -> Result<(), &'static str> {
        let text = ByteReader::new(field).utf().map_err(|_| NO_KEY)?;
        let key = match self.table.partitioner {
            Partitioner::Random => text.split_once(':').ok_or(NO_KEY)?.1,
            Partitioner::OrderPreserving | Partitioner::CollatingOrderPreserving => &*text,
        };
        let length = row.end - row.start;
        if length > LEAST_WIDE_BYTES {
            self.properties.note_wide_row(&key.into(), length, 0);
        }
        self.hashes.push(filter::hash(key.as_bytes()));
        if self.hashes.len() == SAMPLED_ROWS {
            let rows = self.properties.rows as f64 * (size as f64 / row.end.max(1) as f64);
            let filter = self.filter.get_or_insert_with(|| Filter::for_keys(rows as u64));
            filter.insert_all(&self.hashes);
            self.hashes.clear();
        }
        Ok(())
    }

    fn key(&self, field: &[u8]) -> Result<DecoratedKey, &'static str> {
        let text = ByteReader::new(field).utf().map_err(|_| NO_KEY)?;
        parse_disk_key(&text, self.table.partitioner).ok_or(NO_KEY)
    }

    fn end_run(&mut self, end: u64) {
        let Some(OpenRun { start, first, rows, index_crc }) = self.run.take() else { return };
        let block = BlockHandle { offset: start, length: (end - start) as u32 };
        // The entry of a large row is small.
        let points_elsewhere = is_large(block);
        self.summary.push((SummaryHead { block, rows, points_elsewhere }, first));
        self.table.runs.push(Run { start, index_crc: index_crc.finalize() });
    }

    fn finish(mut self, end: u64) -> Result<Survey, ReadError> {
        self.end_run(end);
        self.properties.raw_bytes = end;
        let last = match &self.last[..] {
            [] => None,
            last => Some(self.key(last).map_err(|reason| self.table.corrupt(end, reason))?),
        };
        if let Some(last) = &last {
            self.properties.set_last_key(last);
        }
        let rows = self.properties.rows;
        let mut filter = self.filter.unwrap_or_else(|| Filter::for_keys(rows));
        filter.insert_all(&self.hashes);
        Ok(Survey {
            table: self.table,
            summary: self.summary,
            filter,
            properties: self.properties,
            last,
            index_crc: self.index_crc.finalize(),
        })
    }
}

/// Where the row ends that begins here; `None` if it would be beyond the end of the file.
fn row_end(data: &mut Window) -> Result<Option<u64>, ReadError> {
    let length = data.utf_length(4)?;
    let size = ByteReader::at(data.bytes(), length as usize).i32().unwrap_or(-1);
    let size = u64::try_from(size).ok().filter(|size| *size > 0);
    let end = size.map(|size| data.position() + length + 4 + size);
    Ok(end.filter(|end| *end <= data.size()))
}

/// Whether a run is one row that is not read as a whole.
pub(in crate::storage) fn is_large(run: BlockHandle) -> bool {
    run.length > MOST_RUN_BYTES
}
