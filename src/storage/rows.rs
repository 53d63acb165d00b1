//! Many rows in token order, merged from memtables and SSTables.

use super::error::{Corrupt, ReadError};
use super::memtable::{Memtable, MemtableWalk};
use super::row::{RowSource, RowSources};
use super::sstable::reader::RowWalk;
use super::sstable::{Access, Blocks, SsTable};
use crate::ring::{DecoratedKey, RowRange, Token};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};

/// The rows of one memtable or SSTable, from a place on.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are only as many as files")]
pub enum RowStream<'a> {
    /// A memtable, which may be written to meanwhile.
    Memtable(Box<MemtableWalk<'a>>),
    /// An SSTable.
    SsTable {
        /// The source of its blocks.
        blocks: Blocks<'a>,
        /// Stands at the head.
        walk: RowWalk,
        /// The key of the row at which the stream stands.
        head: Option<DecoratedKey>,
        /// Further SSTables, each with rows after those of the one before.
        rest: VecDeque<&'a SsTable>,
    },
}

impl<'a> RowStream<'a> {
    /// The rows of a memtable.
    pub fn memtable(memtable: &'a Memtable, from: Bound<&DecoratedKey>) -> Self {
        Self::Memtable(Box::new(memtable.walk(from)))
    }

    /// The rows of an SSTable.
    pub fn sstable(blocks: Blocks<'a>, from: Bound<DecoratedKey>) -> Result<Self, ReadError> {
        let mut walk = blocks.table().rows_from(from);
        let mut head = None;
        next_key(&mut walk, &blocks, &mut head)?;
        Ok(Self::SsTable { blocks, walk, head, rest: VecDeque::new() })
    }

    /// The rows of several SSTables, by as few streams as possible: those of one level mostly
    /// follow each other. `blocks` gives the source of the blocks of an SSTable.
    pub fn sstables(
        tables: impl Iterator<Item = &'a SsTable>,
        from: &Bound<DecoratedKey>,
        blocks: impl Fn(&'a SsTable) -> Blocks<'a>,
    ) -> Result<Vec<Self>, ReadError> {
        let (mut levels, mut chains) = (Vec::new(), Vec::new());
        for table in tables.filter(|table| !ends_before(table, from.as_ref())) {
            if table.level() == 0 {
                chains.push(VecDeque::from([table]));
            } else {
                levels.push(table);
            }
        }
        levels.sort_by(|a, b| (a.level(), a.first_key()).cmp(&(b.level(), b.first_key())));
        let mut last: Option<&SsTable> = None;
        for table in levels {
            match (last, chains.last_mut()) {
                (Some(last), Some(chain)) if is_behind(table, last) => chain.push_back(table),
                _ => chains.push(VecDeque::from([table])),
            }
            last = Some(table);
        }
        let open = |mut rest: VecDeque<&'a SsTable>| {
            let first = rest.pop_front()?;
            let stream = Self::sstable(blocks(first), from.clone());
            Some(stream.and_then(|mut stream| {
                if let Self::SsTable { rest: slot, .. } = &mut stream {
                    *slot = rest;
                }
                if stream.key().is_none() {
                    stream.advance(None)?;
                }
                Ok(stream)
            }))
        };
        chains.into_iter().filter_map(open).collect()
    }

    fn key(&self) -> Option<&DecoratedKey> {
        match self {
            Self::Memtable(walk) => walk.row().map(|(key, _)| key),
            Self::SsTable { head, .. } => head.as_ref(),
        }
    }

    fn source(&self) -> Option<RowSource<'_>> {
        match self {
            Self::Memtable(walk) => walk.row().map(|(_, row)| RowSource::Memtable(row)),
            Self::SsTable { walk, blocks, .. } => {
                walk.entry().map(|entry| RowSource::SsTable { entry, blocks })
            }
        }
    }

    /// Moves on to the next row, or to the first one after it that is not before a key.
    fn advance(&mut self, to: Option<&DecoratedKey>) -> Result<(), ReadError> {
        match (self, to) {
            (Self::Memtable(walk), None) => walk.advance(),
            (Self::Memtable(walk), Some(key)) => walk.skip_to(key),
            (Self::SsTable { blocks, walk, head, rest }, to) => {
                let from = to.map_or(Bound::Unbounded, Bound::Included);
                let mut has_moved = false;
                if !ends_before(blocks.table(), from) {
                    if let Some(key) = to {
                        walk.skip_to(key, blocks)?;
                    }
                    has_moved = next_key(walk, blocks, head)?;
                }
                while !has_moved && let Some(next) = rest.pop_front() {
                    if ends_before(next, from) {
                        continue;
                    }
                    *blocks = blocks.of(next);
                    *walk = next.rows_from(from.cloned());
                    has_moved = next_key(walk, blocks, head)?;
                }
                if !has_moved {
                    *head = None;
                }
            }
        }
        Ok(())
    }
}

/// Whether all rows of an SSTable are surely before the place.
fn ends_before(table: &SsTable, from: Bound<&DecoratedKey>) -> bool {
    match (table.last_key(), from) {
        (Some(last), Bound::Included(from)) => last < from,
        (Some(last), Bound::Excluded(from)) => last <= from,
        _ => false,
    }
}

/// Whether all rows of an SSTable are surely after those of another of the same level.
fn is_behind(table: &SsTable, other: &SsTable) -> bool {
    let keys = (other.last_key(), table.first_key());
    table.level() == other.level() && matches!(keys, (Some(last), Some(first)) if last < first)
}

/// Moves the walk to its next row and the head to the key of that, which must be greater; false if
/// there is none.
fn next_key(
    walk: &mut RowWalk,
    blocks: &Blocks<'_>,
    head: &mut Option<DecoratedKey>,
) -> Result<bool, ReadError> {
    let Some(entry) = walk.advance(blocks)? else { return Ok(false) };
    let key = entry.decorated_key(blocks.table().partitioner);
    let reason = match (key, &mut *head) {
        (Err(_), _) => "a row key cannot be read",
        // Merged, the rows after it would be out of order as well.
        (Ok(key), Some(before)) if key <= *before => {
            "the rows are not in the order of their tokens"
        }
        (Ok(key), Some(slot)) => {
            *slot = key;
            return Ok(true);
        }
        (Ok(key), slot @ None) => {
            *slot = Some(key);
            return Ok(true);
        }
    };
    Err(Corrupt::new(blocks.table().path(), walk.offset(), reason).into())
}

/// Rows from several streams, each row once.
#[derive(Debug)]
pub struct MergedRows<'a> {
    streams: Vec<RowStream<'a>>,
    /// The streams at the row that was returned last.
    current: Vec<usize>,
}

impl<'a> MergedRows<'a> {
    /// Merges these streams.
    pub fn new(streams: Vec<RowStream<'a>>) -> Self {
        let current = Vec::with_capacity(streams.len());
        Self { streams, current }
    }

    /// Merges whole SSTables, past the caches.
    pub fn of_whole(tables: impl IntoIterator<Item = &'a SsTable>) -> Result<Self, ReadError> {
        let whole =
            |table| RowStream::sstable(Blocks::new(table, Access::Bypass), Bound::Unbounded);
        Ok(Self::new(tables.into_iter().map(whole).collect::<Result<_, _>>()?))
    }

    /// The next row, with all its sources; `None` at the end. After an error the merge cannot be
    /// used any more.
    pub fn advance(&mut self) -> Result<Option<(&DecoratedKey, RowSources<'_>)>, ReadError> {
        self.step()?;
        Ok(self.row())
    }

    /// Moves on to the next row.
    fn step(&mut self) -> Result<(), ReadError> {
        for at in self.current.drain(..) {
            self.streams[at].advance(None)?;
        }
        let mut least: Option<&DecoratedKey> = None;
        for (at, stream) in self.streams.iter().enumerate() {
            let Some(key) = stream.key() else { continue };
            match least.map_or(Ordering::Less, |least| key.cmp(least)) {
                Ordering::Less => {
                    least = Some(key);
                    self.current.clear();
                    self.current.push(at);
                }
                Ordering::Equal => self.current.push(at),
                Ordering::Greater => {}
            }
        }
        Ok(())
    }

    fn key(&self) -> Option<&DecoratedKey> {
        self.streams[*self.current.first()?].key()
    }

    fn row(&self) -> Option<(&DecoratedKey, RowSources<'_>)> {
        Some((self.key()?, self.sources()))
    }

    fn sources(&self) -> RowSources<'_> {
        self.current.iter().filter_map(|at| self.streams[*at].source()).collect()
    }

    /// All sources of a row, which comes after the earlier ones: none if there is no such row. Rows
    /// in between are passed over, and blocks that hold only these are not read. After an error the
    /// merge cannot be used any more.
    pub fn find(&mut self, key: &DecoratedKey) -> Result<RowSources<'_>, ReadError> {
        self.current.clear();
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if stream.key().is_some_and(|head| head < key) {
                stream.advance(Some(key))?;
            }
            if stream.key() == Some(key) {
                self.current.push(at);
            }
        }
        Ok(self.sources())
    }
}

/// The rows of a range.
#[derive(Debug)]
pub struct RangeRows<'a> {
    rows: MergedRows<'a>,
    range: &'a RowRange,
    /// Whether the start was passed.
    has_begun: bool,
}

impl<'a> RangeRows<'a> {
    /// Merges streams that begin at or after [`first_key`] of the range.
    pub fn new(streams: Vec<RowStream<'a>>, range: &'a RowRange) -> Self {
        Self { rows: MergedRows::new(streams), range, has_begun: false }
    }

    /// The next row of the range, as [`MergedRows::advance`].
    pub fn advance(&mut self) -> Result<Option<(&DecoratedKey, RowSources<'_>)>, ReadError> {
        loop {
            self.rows.step()?;
            let Some(key) = self.rows.key() else { return Ok(None) };
            if is_past(self.range, key.token()) {
                return Ok(None);
            }
            // The first key of an excluded token may have neighbours of the same token.
            self.has_begun = self.has_begun || self.range.contains(key.token());
            if self.has_begun {
                return Ok(self.rows.row());
            }
        }
    }

    /// A row as [`MergedRows::find`] finds it.
    pub fn find(&mut self, key: &DecoratedKey) -> Result<RowSources<'_>, ReadError> {
        self.rows.find(key)
    }
}

/// The place of the first row that a range may have.
pub fn first_key(range: &RowRange) -> Bound<DecoratedKey> {
    match &range.start {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(token) | Bound::Excluded(token) => {
            Bound::Included(DecoratedKey::least_of(token.clone()))
        }
    }
}

/// Whether a token comes after the end of a range.
pub fn is_past(range: &RowRange, token: &Token) -> bool {
    !(Bound::Unbounded, range.end.as_ref()).contains(token)
}

/// Whether all rows of an SSTable come after the end of a range.
pub fn begins_past(table: &SsTable, range: &RowRange) -> bool {
    table.first_key().is_none_or(|first| is_past(range, first.token()))
}
