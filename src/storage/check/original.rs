//! SSTables of 0.4 to 0.6 as a source of rows and faults.
//!
//! The files have no checksums: only their structure shows damage. [`OriginalRows`] reads the data
//! once and compares what tells of the same thing: lengths with each other, rows and columns with
//! their order, the filter and the column index of a row with its columns, `Index.db` and
//! `Filter.db` with the rows. After damage it continues where `Index.db` says that a row begins.
//! Memory depends on the size of a column, of `Filter.db` and of the filter of a row.

use super::{Damage, Item, Loss, MOST_LISTED, NamedRows, Report};
use crate::base::bytes::ByteReader;
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{FileContext, ReadError};
use crate::storage::files::{self, OriginalPart};
use crate::storage::legacy::bloom::{BloomFilter, ElementHash};
use crate::storage::legacy::{RowHead, Step, TableReader, Window, parse_disk_key};
use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const INDEX: &str = "Index.db";
const FILTER: &str = "Filter.db";

/// Verifies an SSTable of the original, of which this is the data file. `progress` gets the number
/// of bytes that are done.
pub fn verify_original(
    fs: &dyn FileSystem,
    path: &Path,
    family: &Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, ReadError> {
    let mut rows = OriginalRows::open(fs, path, family, partitioner)?;
    let (mut found, mut tombstones) = ((0, 0), 0);
    let (mut damages, mut more_damages) = (Vec::new(), 0);
    while let Some(item) = rows.advance() {
        progress(rows.position());
        match item {
            Item::Row { .. } => found.0 += 1,
            Item::Cell(cell) => {
                found.1 += 1;
                tombstones += u64::from(!cell.is_live());
            }
            Item::Damage(damage) if damages.len() < MOST_LISTED => damages.push(damage),
            Item::Damage(_) => more_damages += 1,
        }
    }
    Ok(Report {
        file: path.to_owned(),
        size: rows.size,
        stated: None,
        found: Some(found),
        tombstones,
        blocks: None,
        is_foreign: false,
        damages,
        more_damages,
        gaps: rows.gaps,
        more_gaps: rows.more_gaps,
    })
}

/// The rows of an SSTable of the original, and the damage in between.
#[derive(Debug)]
pub struct OriginalRows {
    reader: TableReader,
    size: u64,
    family: Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
    index: IndexFile,
    filter: Option<BloomFilter>,
    /// Rows that the filter denies.
    denied: NamedRows,
    row: Option<RowCheck>,
    /// Start of the row in the file.
    start: u64,
    /// The last row that was passed on.
    last: Option<DecoratedKey>,
    items: VecDeque<Item>,
    /// Places where something is lost.
    gaps: Vec<Loss>,
    more_gaps: u64,
    is_done: bool,
}

impl OriginalRows {
    /// The rows of the data file of this column family. It fails only if that cannot be opened.
    pub fn open(
        fs: &dyn FileSystem,
        path: &Path,
        family: &Arc<ColumnFamilySchema>,
        partitioner: Partitioner,
    ) -> Result<Self, ReadError> {
        let reader = TableReader::open(fs, path, Arc::clone(family), partitioner)?;
        let (_, size) = reader.progress();
        let mut rows = Self {
            reader,
            size,
            family: Arc::clone(family),
            partitioner,
            index: IndexFile::default(),
            filter: None,
            denied: NamedRows::default(),
            row: None,
            start: 0,
            last: None,
            items: VecDeque::new(),
            gaps: Vec::new(),
            more_gaps: 0,
            is_done: false,
        };
        if size == 0 {
            rows.lose(0..0, "the file is empty", NamedRows::default());
        }
        match Window::open(fs, &files::sibling(path, OriginalPart::Index)) {
            Ok(window) => rows.index = IndexFile { window: Some(window), ..IndexFile::default() },
            Err(error) => rows.tell(Damage::new(0..0, Some(INDEX), error.to_string())),
        }
        rows.next_entry();
        let path = files::sibling(path, OriginalPart::Filter);
        match fs.read(&path).context("read", &path) {
            Err(error) => rows.tell(Damage::new(0..0, Some(FILTER), error.to_string())),
            Ok(bytes) => {
                rows.filter = BloomFilter::decode(&bytes).ok();
                if rows.filter.is_none() {
                    let range = 0..bytes.len() as u64;
                    rows.tell(Damage::new(range, Some(FILTER), "the filter cannot be read"));
                }
            }
        }
        Ok(rows)
    }

    /// Number of bytes that are read.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    /// The next item; `None` at the end. Rows come in token order.
    pub fn advance(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Some(item);
            }
            if self.is_done {
                return None;
            }
            let at = self.reader.position();
            if self.row.is_none() {
                self.start = at;
            }
            match self.reader.step() {
                Ok(Some(Step::Row(head))) => self.begin_row(head),
                Ok(Some(Step::Cell(cell))) => self.cell(at, Some(cell)),
                Ok(Some(Step::SuperColumn)) => self.cell(at, None),
                Ok(Some(Step::RowEnd)) => {
                    let row = self.row.take();
                    if let Some(damage) = row.and_then(|row| row.finish(at)) {
                        self.tell(damage);
                    }
                }
                Ok(None) => self.finish(),
                Err(error) => self.skip_damage(error),
            }
        }
    }

    fn begin_row(&mut self, head: RowHead) {
        let is_other = self.compare_index(&head);
        let hash = ElementHash::of_row(&head.disk_key);
        let is_denied = self.filter.as_ref().is_some_and(|filter| !filter.may_contain(hash));
        let is_after = self.last.as_ref().is_none_or(|last| *last < head.key);
        let is_told = is_after && !(is_other && is_denied);
        if is_other && is_denied {
            let reason = "the row key is neither that of Index.db nor one of Filter.db";
            self.lose(self.start..head.columns.end, reason, named(&head.key));
        } else if is_denied {
            self.denied.add(head.key.key());
        }
        if is_told {
            self.last = Some(head.key.clone());
            // Of super columns it is not known how many cells they have.
            let stated = (!self.family.is_super()).then_some((u64::from(head.count), None));
            let (key, deletion) = (head.key.clone(), head.deletion);
            self.items.push_back(Item::Row { key, deletion, stated });
        } else if !is_after {
            let reason = "a row is not in the order of tokens: did you change the partitioner?";
            self.lose(self.start..head.columns.end, reason, named(&head.key));
        }
        let (row, damage) = RowCheck::new(head, &self.reader, self.family.is_super(), is_told);
        self.items.extend(damage.map(Item::Damage));
        self.row = Some(row);
    }

    fn cell(&mut self, at: u64, cell: Option<Cell>) {
        let Some(row) = &mut self.row else { return };
        let damage = row.cell(at, cell.as_ref());
        if row.is_told {
            self.items.extend(cell.map(Item::Cell));
        }
        self.items.extend(damage.map(Item::Damage));
    }

    /// Tells of damage in the data, and goes on with the next row.
    fn skip_damage(&mut self, error: ReadError) {
        let (offset, reason, key) = match error {
            ReadError::Corrupt(damage) => (damage.offset, damage.reason, damage.row),
            _ => (self.start, "the disk refuses to read it", None),
        };
        let row = self.row.take();
        let head = row.as_ref().map(|row| &row.head);
        let mut named = NamedRows::default();
        if let Some(key) = &key {
            named.add(key);
        }
        while let Some(entry) = self.index.next.take_if(|entry| entry.offset <= self.start) {
            let is_here = entry.offset == self.start && named.keys.is_empty();
            if let Some(key) = parse_disk_key(&entry.disk_key, self.partitioner)
                && is_here
            {
                named.add(key.key());
            }
            self.next_entry();
        }
        let after = if self.index.is_whole() { self.size } else { self.reader.position() };
        let next = self.index.next.as_ref().map_or(after, |entry| entry.offset.min(self.size));
        let range = offset.min(next)..next;
        // The number of columns tells what such a row has lost.
        if head.is_some() && !self.family.is_super() {
            self.tell(Damage { named, ..Damage::new(range, None, reason) });
        } else {
            self.lose(range, reason, named);
        }
        self.reader.resume(next);
    }

    /// Compares a row with its entry in `Index.db`. Whether that has another key.
    fn compare_index(&mut self, head: &RowHead) -> bool {
        while let Some(entry) = self.index.next.take_if(|entry| entry.offset < self.start) {
            self.tell(entry.damage("no row begins where it says", self.partitioner));
            self.next_entry();
        }
        match self.index.next.take_if(|entry| entry.offset == self.start) {
            Some(entry) => {
                let is_other = entry.disk_key != head.disk_key;
                if is_other {
                    let reason = "another row begins where it says";
                    self.tell(entry.damage(reason, self.partitioner));
                }
                self.next_entry();
                return is_other;
            }
            None if self.index.is_whole() => self.index.missing.add(head.key.key()),
            None => {}
        }
        false
    }

    fn next_entry(&mut self) {
        if let Some(damage) = self.index.advance() {
            self.tell(damage);
        }
    }

    fn finish(&mut self) {
        self.is_done = true;
        let mut lost = NamedRows::default();
        while let Some(entry) = self.index.next.take() {
            if entry.offset < self.size {
                self.tell(entry.damage("no row begins where it says", self.partitioner));
            } else if let Some(key) = parse_disk_key(&entry.disk_key, self.partitioner) {
                lost.add(key.key());
            }
            self.next_entry();
        }
        if !lost.keys.is_empty() {
            let reason = "the file is truncated: its index names rows that would come here";
            self.lose(self.size..self.size, reason, lost);
        }
        let faults = [
            (INDEX, "it lacks rows", std::mem::take(&mut self.index.missing)),
            (FILTER, "it denies rows that are there", std::mem::take(&mut self.denied)),
        ];
        for (part, reason, named) in faults {
            if !named.keys.is_empty() {
                self.tell(Damage { named, ..Damage::new(0..0, Some(part), reason) });
            }
        }
    }

    fn tell(&mut self, damage: Damage) {
        self.items.push_back(Item::Damage(damage));
    }

    /// Tells of damage by which something is lost.
    fn lose(&mut self, range: Range<u64>, reason: &'static str, named: NamedRows) {
        let after = self.last.as_ref().map(|last| last.key().clone());
        let before = self.index.next.as_ref();
        let before = before.and_then(|entry| parse_disk_key(&entry.disk_key, self.partitioner));
        let before = before.map(DecoratedKey::into_key);
        let gap = match named.keys.first() {
            Some(key) => (Some(key.clone()), named.keys.last().cloned()),
            None => (after.clone(), before.clone()),
        };
        if self.gaps.len() < MOST_LISTED {
            let (range, (after, before)) = (range.clone(), gap);
            self.gaps.push(Loss::Unknown { range, reason, after, before });
        } else {
            self.more_gaps += 1;
        }
        let between = named.keys.is_empty().then_some((after, before));
        self.tell(Damage { named, between, ..Damage::new(range, None, reason) });
    }
}

fn named(key: &DecoratedKey) -> NamedRows {
    let mut named = NamedRows::default();
    named.add(key.key());
    named
}

/// `Index.db`, entry by entry.
#[derive(Debug, Default)]
struct IndexFile {
    /// `None` if it is missing, or damaged from here on.
    window: Option<Window>,
    next: Option<IndexEntry>,
    /// Offset of the last entry.
    last: Option<u64>,
    /// Rows that have no entry.
    missing: NamedRows,
}

#[derive(Debug)]
struct IndexEntry {
    range: Range<u64>,
    disk_key: String,
    /// Place of the row.
    offset: u64,
}

impl IndexEntry {
    fn damage(&self, reason: &'static str, partitioner: Partitioner) -> Damage {
        let key = parse_disk_key(&self.disk_key, partitioner);
        let named = key.as_ref().map(named).unwrap_or_default();
        Damage { named, ..Damage::new(self.range.clone(), Some(INDEX), reason) }
    }
}

impl IndexFile {
    /// Whether all entries could be read so far.
    fn is_whole(&self) -> bool {
        self.window.is_some()
    }

    /// Reads the next entry. After damage it is not known where one begins.
    fn advance(&mut self) -> Option<Damage> {
        let window = self.window.as_mut()?;
        if window.left() == 0 {
            return None;
        }
        let start = window.position();
        let read = window.utf(8).map(|(key, length)| (key.map(|it| it.into_owned()), length));
        let reason = match read {
            Ok((Some(disk_key), length)) => {
                let offset = ByteReader::at(window.bytes(), length as usize).u64();
                let offset = offset.unwrap_or(u64::MAX);
                let is_after = self.last.is_none_or(|last| last < offset);
                if is_after && window.skip(length + 8).is_ok() {
                    self.last = Some(offset);
                    let range = start..start + length + 8;
                    self.next = Some(IndexEntry { range, disk_key, offset });
                    return None;
                }
                "an offset is not after the one before".to_owned()
            }
            Ok((None, _)) => "a row key should stand here".to_owned(),
            Err(ReadError::Corrupt(damage)) => damage.reason.to_owned(),
            Err(error) => error.to_string(),
        };
        let end = window.size();
        self.window = None;
        Some(Damage::new(start..end, Some(INDEX), reason))
    }
}

/// Compares the filter and the column index of a row with its columns.
#[derive(Debug)]
struct RowCheck {
    head: RowHead,
    is_super: bool,
    is_told: bool,
    /// `None` if it cannot be read, or after its first fault.
    filter: Option<BloomFilter>,
    /// At the next entry of the column index; `None` after its first fault.
    index: Option<Window>,
    /// The last entry: its last name and its place after the beginning of the columns.
    block: (Vec<u8>, Range<u64>),
    /// Name of the column, or super column, that was read last, if that is known.
    last: Option<Vec<u8>>,
}

const BAD_INDEX: &str = "the column index of a row is not that of its columns";

impl RowCheck {
    fn new(
        head: RowHead,
        reader: &TableReader,
        is_super: bool,
        is_told: bool,
    ) -> (Self, Option<Damage>) {
        let mut window = reader.window(head.filter.clone());
        let read = window.fill(window.left());
        let filter = read.ok().and_then(|()| BloomFilter::decode(window.bytes()).ok());
        let index = Some(reader.window(head.index.clone()));
        let (block, last) = ((Vec::new(), 0..0), None);
        let check = Self { head, is_super, is_told, filter, index, block, last };
        let reason = "the filter of the columns of a row cannot be read";
        let damage = check.filter.is_none().then(|| check.damage(&check.head.filter, reason));
        (check, damage)
    }

    fn damage(&self, range: &Range<u64>, reason: &'static str) -> Damage {
        Damage { named: named(&self.head.key), ..Damage::new(range.clone(), None, reason) }
    }

    /// Checks a column, or the beginning of a super column if there is no cell.
    fn cell(&mut self, at: u64, cell: Option<&Cell>) -> Option<Damage> {
        let top = cell.map(|cell| if self.is_super { cell.super_name() } else { cell.name() });
        let begins = !self.is_super || cell.is_none_or(|cell| cell.super_deletion().is_some());
        if begins && !self.begin_column(at - self.head.columns.start, top) {
            self.index = None;
            return Some(self.damage(&self.head.index.clone(), BAD_INDEX));
        }
        self.last = top.map(<[u8]>::to_vec);
        let within = cell.filter(|_| self.is_super).map(Cell::name);
        let has = |name: &[u8]| {
            let filter = self.filter.as_ref();
            filter.is_none_or(|it| it.may_contain(ElementHash::of_column(name)))
        };
        let is_denied = top.is_some_and(|name| !has(name))
            || within.is_some_and(|name| !name.is_empty() && !has(name));
        is_denied.then(|| {
            self.filter = None;
            let reason = "the filter of the columns of a row denies one that is there";
            self.damage(&self.head.filter, reason)
        })
    }

    /// Whether a column that begins at this place fits the column index.
    fn begin_column(&mut self, place: u64, name: Option<&[u8]>) -> bool {
        let (last, range) = &self.block;
        if self.index.is_none() || place < range.end {
            return true;
        }
        let ends = place == 0 || self.last.as_ref().is_none_or(|it| it == last);
        if place != range.end || !ends {
            return false;
        }
        let Some((first, last, range)) = self.next_block() else { return false };
        let begins = range.start == place && name.is_none_or(|name| name == first);
        self.block = (last, range);
        begins
    }

    /// The first and the last name of the next entry of the column index, and the place of its
    /// columns.
    fn next_block(&mut self) -> Option<(Vec<u8>, Vec<u8>, Range<u64>)> {
        let window = self.index.as_mut()?;
        // Two names and two numbers.
        window.fill(window.left().min(2 * (2 + u64::from(u16::MAX)) + 16)).ok()?;
        let mut reader = ByteReader::new(window.bytes());
        let (first, last) = (reader.prefixed().ok()?.to_vec(), reader.prefixed().ok()?.to_vec());
        let (start, width) = (reader.u64().ok()?, reader.u64().ok()?);
        let length = reader.position() as u64;
        window.skip(length).ok()?;
        Some((first, last, start..start.checked_add(width)?))
    }

    /// Checks the end of the row.
    fn finish(self, at: u64) -> Option<Damage> {
        let index = self.index.as_ref()?;
        let (last, range) = &self.block;
        let is_whole = index.left() == 0
            && range.end == at - self.head.columns.start
            && self.last.as_ref().is_none_or(|it| it == last);
        (!is_whole).then(|| self.damage(&self.head.index, BAD_INDEX))
    }
}
