//! An open SSTable: finds rows, reads blocks, checks everything that it reads.

use super::block::{self, Block, BlockHandle, BlockKind};
use super::blocks::{Access, Blocks};
use super::entry::{self, RowEntry, SummaryHead};
use super::filter::{self, Filter};
use super::properties::Properties;
use super::scan::{decode_footer, header_fault};
use super::{FOOTER_LENGTH, HEADER_LENGTH};
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::fs::{File, FileSystem};
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner, Token};
use crate::storage::caches::BlockCache;
use crate::storage::error::{Corrupt, FileContext, FileError, ReadError};
use crate::storage::files::{self, OriginalPart};
use crate::storage::legacy::{LegacyTable, Window};
use crate::storage::manifest::TableIdentity;
use std::cmp::Ordering;
use std::ops::{Bound, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering as AtomicOrdering};
use std::sync::{Arc, OnceLock};

/// An open SSTable. Immutable and shared; when it is obsolete, its file goes with the last user.
#[derive(Debug)]
pub struct SsTable {
    pub(super) file: Arc<dyn File>,
    fs: Arc<dyn FileSystem>,
    pub(super) path: PathBuf,
    generation: u64,
    pub(super) size: u64,
    pub(in crate::storage) partitioner: Partitioner,
    properties: Properties,
    properties_crc: u32,
    filter: Filter,
    summary: Vec<SummaryEntry>,
    /// The beginning of the token of each entry of the summary, under a partitioner whose tokens
    /// have one.
    prefixes: Vec<u64>,
    /// The same of the first and the last row; everything if they have none.
    prefix_range: RangeInclusive<u64>,
    last: Option<DecoratedKey>,
    pinned_bytes: AtomicU64,
    pub(super) cache: Arc<BlockCache>,
    pub(super) cache_id: u64,
    /// Reads the blocks of a file of the original; `None` for one of ours.
    pub(super) legacy: Option<LegacyTable>,
    obsolete: AtomicBool,
    /// A compaction could not read it.
    damaged: AtomicBool,
}

/// Parts of a file that stay in memory.
struct Parts {
    summary: Vec<(SummaryHead, DecoratedKey)>,
    filter: Filter,
    properties: Properties,
    properties_crc: u32,
    last: Option<DecoratedKey>,
    legacy: Option<LegacyTable>,
}

/// The first row of a row index block.
#[derive(Debug)]
struct SummaryEntry {
    head: SummaryHead,
    first: DecoratedKey,
    /// The block itself, if there is room for it: every read of a row goes through one. One that
    /// only holds cells is not pinned, nor does the key cache know its rows: it is cached like any
    /// data block.
    pinned: OnceLock<Block>,
}

impl SsTable {
    /// Opens a file and reads what stays in memory of it.
    pub fn open(
        fs: &Arc<dyn FileSystem>,
        path: &Path,
        generation: u64,
        partitioner: Partitioner,
        cache: &Arc<BlockCache>,
    ) -> Result<Self, ReadError> {
        let file = fs.open(path).context("open", path)?;
        let size = file.size().context("open", path)?;
        let [summary, filter, properties] = read_footer(&*file, path, size)?;
        let corrupt = |handle: BlockHandle, reason| {
            ReadError::Corrupt(Corrupt::new(path, handle.offset, reason))
        };
        let raw = |handle, kind| block::read(&*file, path, handle, kind);
        let stored = raw(properties, BlockKind::Properties)?;
        let properties_crc = crc32fast::hash(stored.bytes());
        let stored = Properties::decode(stored.bytes())
            .map_err(|_| corrupt(properties, "the properties cannot be read"))?;
        if stored.partitioner != partitioner.class_name() {
            let (file, saved) = (path.to_owned(), stored.partitioner);
            return Err(ReadError::OtherPartitioner { file, saved });
        }
        let bits = raw(filter, BlockKind::Filter)?;
        let bits = Filter::decode(bits.bytes())
            .map_err(|_| corrupt(filter, "the filter cannot be read"))?;
        let entries = raw(summary, BlockKind::Summary)?;
        let entries = entry::decode_summary(partitioner, entries.bytes())
            .map_err(|_| corrupt(summary, "the summary cannot be read"))?;
        let last = decode_last(partitioner, &stored)
            .map_err(|_| corrupt(properties, "the last row key cannot be read"))?;
        let parts = Parts {
            summary: entries,
            filter: bits,
            properties: stored,
            properties_crc,
            last,
            legacy: None,
        };
        Ok(Self::of_parts(fs, (path, generation), (file, size), partitioner, cache, parts))
    }

    /// Opens an SSTable of 0.4 to 0.6 by its data file, which was written for this column family.
    /// The file itself does not tell.
    pub fn open_legacy(
        fs: &Arc<dyn FileSystem>,
        path: &Path,
        generation: u64,
        partitioner: Partitioner,
        cache: &Arc<BlockCache>,
        (family, index_interval): (&Arc<ColumnFamilySchema>, usize),
    ) -> Result<Self, ReadError> {
        let file = fs.open(path).context("open", path)?;
        let size = file.size().context("open", path)?;
        let data = Window::of(Arc::clone(&file), path, size);
        let index = Window::open(&**fs, &files::sibling(path, OriginalPart::Index));
        let survey = LegacyTable::survey(data, index, family, partitioner, index_interval as u64)?;
        let parts = Parts {
            summary: survey.summary,
            filter: survey.filter,
            properties: survey.properties,
            properties_crc: survey.index_crc,
            last: survey.last,
            legacy: Some(survey.table),
        };
        Ok(Self::of_parts(fs, (path, generation), (file, size), partitioner, cache, parts))
    }

    fn of_parts(
        fs: &Arc<dyn FileSystem>,
        (path, generation): (&Path, u64),
        (file, size): (Arc<dyn File>, u64),
        partitioner: Partitioner,
        cache: &Arc<BlockCache>,
        parts: Parts,
    ) -> Self {
        let Parts { summary, filter, properties, properties_crc, last, legacy } = parts;
        let unpinned = |(head, first)| SummaryEntry { head, first, pinned: OnceLock::new() };
        let summary: Vec<_> = summary.into_iter().map(unpinned).collect();
        Self {
            file,
            fs: Arc::clone(fs),
            path: path.to_owned(),
            generation,
            size,
            partitioner,
            properties,
            properties_crc,
            filter,
            prefixes: prefixes(&summary),
            prefix_range: prefix_range(&summary, last.as_ref()),
            last,
            pinned_bytes: AtomicU64::new(0),
            summary,
            cache: Arc::clone(cache),
            cache_id: cache.register_file(),
            legacy,
            obsolete: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its files: that of the rows first, and for one of the original those of index and filter, as
    /// far as they are there.
    pub fn files(&self) -> Vec<PathBuf> {
        let is_there = |path: &PathBuf| *path == self.path || self.fs.exists(path);
        files::parts(&self.path).into_iter().filter(is_there).collect()
    }

    /// Whether it is one of the original with all its files, and its index is sound.
    pub fn is_whole_original(&self) -> bool {
        let has_index = self.legacy.as_ref().is_some_and(LegacyTable::has_index);
        has_index && self.files().len() == OriginalPart::STORED.len()
    }

    /// Whether it is a file of the original.
    pub fn is_legacy(&self) -> bool {
        self.legacy.is_some()
    }

    /// Whether it may hold deletions. A file of the original does not tell.
    pub fn may_have_deletions(&self) -> bool {
        self.is_legacy() || self.properties.tombstones > 0
    }

    /// Its number; a greater one was created later.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes on disk.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Facts about the whole file.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns what distinguishes it from other files of its name.
    pub fn identity(&self) -> TableIdentity {
        let (bytes, properties_crc) = (self.size, self.properties_crc);
        TableIdentity { bytes, properties_crc, is_legacy: self.is_legacy() }
    }

    /// Number of its rows, for sizing what is made from it. Each takes more than a byte, whatever
    /// the properties claim.
    pub fn rows(&self) -> u64 {
        self.properties.rows.min(self.size)
    }

    /// Whether the file may hold something of the row. Never no wrongly. `hash` is that of the
    /// row key by [`super::filter::hash`], which is computed once for many files.
    pub fn may_contain(&self, key: &DecoratedKey, hash: u64) -> bool {
        match token_prefix(key) {
            Some(prefix) => self.prefix_range.contains(&prefix) && self.filter.may_contain(hash),
            // The filter costs less than comparing keys.
            None => {
                self.filter.may_contain(hash)
                    && self.first_key().is_some_and(|first| first <= key)
                    && self.last_key().is_none_or(|last| key <= last)
            }
        }
    }

    /// The key of the first row; `None` if there is no row.
    pub fn first_key(&self) -> Option<&DecoratedKey> {
        self.summary.first().map(|entry| &entry.first)
    }

    /// The key of the last row, if it is known.
    pub fn last_key(&self) -> Option<&DecoratedKey> {
        self.last.as_ref()
    }

    /// The level that it was written for; 0 for none.
    pub fn level(&self) -> u32 {
        u32::try_from(self.properties.level).unwrap_or(0)
    }

    /// Tokens of about every row in `IndexInterval`, the first included.
    pub fn sampled_tokens(&self) -> impl Iterator<Item = &Token> {
        let interval = self.properties.index_interval.max(1);
        // Blocks of small rows hold fewer than that.
        let (mut rows, mut wanted) = (0, 0);
        self.summary.iter().filter_map(move |entry| {
            let is_sample = rows >= wanted;
            if is_sample {
                wanted = rows + interval;
            }
            rows = rows.saturating_add(entry.head.rows);
            is_sample.then_some(entry.first.token())
        })
    }

    /// Calls for each sample of about `IndexInterval` rows, in order, with the token of its first
    /// one and how many they are. Together they are all rows.
    pub fn for_each_sample(&self, mut visit: impl FnMut(&Token, u64)) {
        let interval = self.properties.index_interval;
        let mut sample: Option<(&Token, u64)> = None;
        for entry in &self.summary {
            match &mut sample {
                // Blocks of small rows hold fewer than that.
                Some((_, rows)) if rows.saturating_add(entry.head.rows) <= interval => {
                    *rows += entry.head.rows;
                }
                _ => {
                    let begun = sample.replace((entry.first.token(), entry.head.rows));
                    if let Some((first, rows)) = begun {
                        visit(first, rows);
                    }
                }
            }
        }
        if let Some((first, rows)) = sample {
            visit(first, rows);
        }
    }

    /// Renames a file that was opened under its temporary name to the name without the suffix.
    pub fn take_final_name(&mut self) -> Result<(), FileError> {
        let path = self.path.with_extension("");
        self.fs.rename(&self.path, &path).context("rename", &self.path)?;
        self.path = path;
        Ok(())
    }

    /// Has the file removed after its last reader: it is not needed any more.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, AtomicOrdering::Release);
    }

    /// A read or a compaction could not read all of it: minor compactions leave it out until the
    /// next start, so that it does not keep the others from being merged. Reads go on.
    pub fn mark_damaged(&self) {
        self.damaged.store(true, AtomicOrdering::Release);
    }

    /// Whether minor compactions leave it out.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(AtomicOrdering::Acquire)
    }

    /// Finds the entry of a row, after [`SsTable::may_contain`].
    pub fn find(
        &self,
        key: &DecoratedKey,
        hash: u64,
        blocks: &Blocks<'_>,
    ) -> Result<Option<RowEntry>, ReadError> {
        let Some(at) = self.blocks_before(key).checked_sub(1) else { return Ok(None) };
        let summary = &self.summary[at];
        let handle = summary.head.block;
        let is_cached_otherwise = !summary.head.points_elsewhere || summary.pinned.get().is_some();
        let keys = blocks.keys.filter(|_| !is_cached_otherwise);
        if let Some(known) = keys.and_then(|keys| keys.get(self.cache_id, key.key())) {
            let entry = RowEntry::decode(self.partitioner, &known, 0);
            return entry.map(Some).map_err(|_| self.malformed(handle));
        }
        let block = self.row_index_block(summary, blocks);
        if let (Some(keys), Err(ReadError::WouldBlock)) = (keys, &block) {
            keys.entries.note_repeated();
        }
        let block = block?;
        for index in block.tagged(filter::tag(hash)) {
            let at = block.entry(index).ok_or_else(|| self.malformed(handle))?;
            let order = entry::compare_key(key, self.partitioner, block.bytes(), at);
            if order.map_err(|_| self.malformed(handle))? == Ordering::Equal {
                let entry = RowEntry::decode(self.partitioner, &block, at);
                let entry = entry.map_err(|_| self.malformed(handle))?;
                if let Some(keys) = keys
                    && summary.pinned.get().is_none()
                    && entry.block_cells().is_some()
                    && let Some(only) = block.only(index)
                {
                    keys.insert(self.cache_id, key.key(), only);
                }
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The first row of each index block that is pinned: to look these up again pins the blocks.
    pub fn pinned_keys(&self) -> impl Iterator<Item = &DecoratedKey> {
        let pinned = self.summary.iter().filter(|entry| entry.pinned.get().is_some());
        pinned.map(|entry| &entry.first)
    }

    /// Its number in the caches, which no other file ever gets.
    pub fn cache_id(&self) -> u64 {
        self.cache_id
    }

    /// Returns the number of row index blocks that begin at or before the key.
    fn blocks_before(&self, key: &DecoratedKey) -> usize {
        let prefix = token_prefix(key).filter(|_| !self.prefixes.is_empty());
        let Some(prefix) = prefix else {
            return self.summary.partition_point(|entry| entry.first <= *key);
        };
        // Nearly always the beginning of the token decides, and all of these fit a near cache.
        let low = self.prefixes.partition_point(|other| *other < prefix);
        let alike = self.prefixes[low..].iter().take_while(|other| **other == prefix).count();
        let undecided = &self.summary[low..low + alike];
        low + undecided.partition_point(|entry| entry.first <= *key)
    }

    fn row_index_block(
        &self,
        entry: &SummaryEntry,
        blocks: &Blocks<'_>,
    ) -> Result<Block, ReadError> {
        if let Some(pinned) = entry.pinned.get() {
            return Ok(pinned.clone());
        }
        let block = blocks.block(entry.head.block, BlockKind::RowIndex)?;
        let bytes = block.bytes().len() as u64;
        let is_wanted = entry.head.points_elsewhere && blocks.access != Access::Bypass;
        if is_wanted && self.cache.pin(bytes) {
            // Of two readers that come at the same time one gives its share back.
            match entry.pinned.set(block.clone()) {
                Ok(()) => drop(self.pinned_bytes.fetch_add(bytes, AtomicOrdering::Relaxed)),
                Err(_) => self.cache.unpin(bytes),
            }
        }
        Ok(block)
    }

    /// Finds the first entry of a row index block that is not before the key, or not even the key.
    fn search(
        &self,
        (handle, block): (BlockHandle, &Block),
        key: &DecoratedKey,
        after: bool,
    ) -> Result<usize, ReadError> {
        let found = block.partition_point(0..block.len(), |at| {
            let order = entry::compare_key(key, self.partitioner, block.bytes(), at)?;
            Ok(order == Ordering::Greater || after && order == Ordering::Equal)
        });
        found.map_err(|_| self.malformed(handle))
    }

    /// The rows from a place on, in order.
    pub fn rows_from(&self, from: Bound<DecoratedKey>) -> RowWalk {
        let summary_index = match &from {
            Bound::Unbounded => 0,
            Bound::Included(key) | Bound::Excluded(key) => {
                self.blocks_before(key).saturating_sub(1)
            }
        };
        RowWalk { seek: Some(from), summary_index, block: None, next: 0, entry: None }
    }

    /// Returns the error of an entry that is malformed although the checksum of its block is right.
    pub(super) fn malformed_entry(&self, entry: &RowEntry) -> ReadError {
        let key = entry.decorated_key(self.partitioner).ok();
        let before = key.map_or(0, |key| self.blocks_before(&key));
        let summary = before.checked_sub(1).and_then(|at| self.summary.get(at));
        self.malformed(summary.map_or_else(BlockHandle::default, |s| s.head.block))
    }

    /// Returns the error of a block that is malformed although its checksum is right.
    pub(super) fn malformed(&self, handle: BlockHandle) -> ReadError {
        let reason = "a block does not have the form that it should";
        Corrupt::new(&self.path, handle.offset, reason).into()
    }
}

impl Drop for SsTable {
    fn drop(&mut self) {
        if !self.obsolete.load(AtomicOrdering::Acquire) {
            return;
        }
        self.cache.forget_file(self.cache_id);
        self.cache.unpin(self.pinned_bytes.load(AtomicOrdering::Relaxed));
        for path in self.files() {
            if let Err(error) = self.fs.remove_file(&path) {
                // The manifest still names it as obsolete; the next start tries again.
                log::warn!("cannot remove the obsolete SSTable {}: {error}", path.display());
            }
        }
    }
}

/// The beginnings of all tokens of the summary; none if one of them has none.
fn prefixes(summary: &[SummaryEntry]) -> Vec<u64> {
    let prefixes: Option<Vec<u64>> = summary.iter().map(|e| token_prefix(&e.first)).collect();
    prefixes.unwrap_or_default()
}

/// Between what the beginnings of all tokens are.
fn prefix_range(summary: &[SummaryEntry], last: Option<&DecoratedKey>) -> RangeInclusive<u64> {
    let Some(first) = summary.first() else { return RangeInclusive::new(1, 0) };
    let from = token_prefix(&first.first).unwrap_or(0);
    from..=last.and_then(token_prefix).unwrap_or(u64::MAX)
}

fn decode_last(
    partitioner: Partitioner,
    properties: &Properties,
) -> Result<Option<DecoratedKey>, Malformed> {
    if properties.last_key.is_empty() {
        return Ok(None);
    }
    entry::decode_key(partitioner, &mut ByteReader::new(&properties.last_key)).map(Some)
}

/// The upper half of a token that is a number.
fn token_prefix(key: &DecoratedKey) -> Option<u64> {
    match key.token() {
        Token::Random(number) => Some((number >> 64) as u64),
        Token::Minimum | Token::Ordered(_) | Token::Collated(_) => None,
    }
}

/// Reads the places of summary, filter and properties.
fn read_footer(file: &dyn File, path: &Path, size: u64) -> Result<[BlockHandle; 3], ReadError> {
    let corrupt = |offset, reason| ReadError::Corrupt(Corrupt::new(path, offset, reason));
    let start = size
        .checked_sub(FOOTER_LENGTH as u64)
        .filter(|start| *start >= HEADER_LENGTH)
        .ok_or_else(|| corrupt(0, "it is too short to be an SSTable"))?;
    let mut header = [0; HEADER_LENGTH as usize];
    file.read_exact_at(&mut header, 0).context("read", path)?;
    if let Some(fault) = header_fault(header) {
        return Err(corrupt(0, fault));
    }
    let mut footer = [0; FOOTER_LENGTH];
    file.read_exact_at(&mut footer, start).context("read", path)?;
    let handles = decode_footer(&footer, start);
    handles.ok_or_else(|| corrupt(start, "the end is missing or damaged: it may be truncated"))
}

/// A walk over the row index.
#[derive(Debug)]
pub struct RowWalk {
    seek: Option<Bound<DecoratedKey>>,
    summary_index: usize,
    block: Option<(BlockHandle, Block)>,
    next: usize,
    /// The present entry, which is reused within a block.
    entry: Option<RowEntry>,
}

impl RowWalk {
    /// Returns the offset of the row index block of the last row.
    pub fn offset(&self) -> u64 {
        self.block.as_ref().map_or(0, |(handle, _)| handle.offset)
    }

    /// The row at which it stands: the one that it went on to last.
    pub fn entry(&self) -> Option<&RowEntry> {
        self.entry.as_ref()
    }

    /// Goes on to the next row. After [`ReadError::WouldBlock`] the same call may be repeated.
    pub fn advance(&mut self, blocks: &Blocks<'_>) -> Result<Option<&RowEntry>, ReadError> {
        let table = blocks.table;
        loop {
            if self.block.is_none() {
                self.entry = None;
                let Some(entry) = table.summary.get(self.summary_index) else { return Ok(None) };
                let block = table.row_index_block(entry, blocks)?;
                self.next = match self.seek.take() {
                    None | Some(Bound::Unbounded) => 0,
                    Some(Bound::Included(key)) => {
                        table.search((entry.head.block, &block), &key, false)?
                    }
                    Some(Bound::Excluded(key)) => {
                        table.search((entry.head.block, &block), &key, true)?
                    }
                };
                self.block = Some((entry.head.block, block));
            }
            let Some((handle, block)) = &self.block else { return Ok(None) };
            if let Some(at) = block.entry(self.next) {
                self.next += 1;
                let moved = match &mut self.entry {
                    Some(entry) => entry.move_to(table.partitioner, at),
                    slot => {
                        let first = RowEntry::decode(table.partitioner, block, at);
                        first.map(|first| *slot = Some(first))
                    }
                };
                moved.map_err(|_| table.malformed(*handle))?;
                return Ok(self.entry.as_ref());
            }
            self.block = None;
            self.summary_index += 1;
        }
    }

    /// Has the next [`RowWalk::advance`] go on to the first row that is not before a key, which is
    /// not before the present one.
    pub fn skip_to(&mut self, key: &DecoratedKey, blocks: &Blocks<'_>) -> Result<(), ReadError> {
        let table = blocks.table;
        let summary_index = table.blocks_before(key).saturating_sub(1).max(self.summary_index);
        if let Some((handle, block)) = &self.block
            && summary_index == self.summary_index
        {
            self.next = self.next.max(table.search((*handle, block), key, false)?);
            return Ok(());
        }
        self.block = None;
        self.summary_index = summary_index;
        self.seek = Some(Bound::Included(key.clone()));
        Ok(())
    }
}
