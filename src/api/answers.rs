//! What reads found, written as the structs of the wire straight from the cells.

use super::Api;
use crate::base::context::RequestContext;
use crate::coordinator::{CoordinatorError, Row};
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::slice::RowSlice;
use crate::thrift::codec::WireType;
use crate::thrift::idl::{Column, ColumnOrSuperColumn, SuperColumn};
use crate::thrift::{Each, Encode, Failure, List, Text};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// One element of an answer.
#[derive(Debug, Clone, Copy)]
enum Element<'a> {
    /// A column.
    Column(&'a Cell),
    /// A super column, given by its columns, at least one.
    SuperColumn(&'a [Cell]),
    /// The place of something that is not there.
    Nothing,
}

impl<'t> Encode<ColumnOrSuperColumn<'t>> for Element<'_> {
    fn encode(self, out: &mut Vec<u8>) {
        const NO_COLUMN: Option<Column<'_>> = None;
        const NO_SUPER_COLUMN: Option<SuperColumn<'_>> = None;
        match self {
            Self::Column(cell) => {
                let column = Column::fields(cell.name(), cell.value(), cell.timestamp());
                let element = ColumnOrSuperColumn::fields(Some(column), NO_SUPER_COLUMN);
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
            Self::SuperColumn(cells) => {
                let name = cells.first().map_or(b"".as_slice(), Cell::super_name);
                let columns = cells
                    .iter()
                    .map(|cell| Column::fields(cell.name(), cell.value(), cell.timestamp()));
                let super_column = SuperColumn::fields(name, Each(columns));
                let element = ColumnOrSuperColumn::fields(NO_COLUMN, Some(super_column));
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
            Self::Nothing => {
                let element = ColumnOrSuperColumn::fields(NO_COLUMN, NO_SUPER_COLUMN);
                Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
            }
        }
    }
}

/// The answer to a path: a column, a whole super column, or nothing.
#[derive(Debug)]
pub(super) struct Found {
    /// What was found; the cells of the super column if one was asked for, else at most one.
    pub(super) row: RowSlice,
    /// Whether a super column was asked for.
    pub(super) is_super_column: bool,
}

impl<'t> Encode<ColumnOrSuperColumn<'t>> for Found {
    fn encode(self, out: &mut Vec<u8>) {
        let element = match self.row.cells.first() {
            None => Element::Nothing,
            Some(_) if self.is_super_column => Element::SuperColumn(&self.row.cells),
            Some(cell) => Element::Column(cell),
        };
        Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
    }
}

/// The answer to a slice: columns, or super columns with all that is visible of them.
#[derive(Debug)]
pub(super) struct Columns {
    /// The order of the super columns by which the cells are grouped, if they are.
    pub(super) grouped_by: Option<Comparator>,
    /// The cells.
    pub(super) row: RowSlice,
}

/// Cells that make one element of an answer, and go when it is written.
struct Owned {
    cells: SmallVec<[Cell; 1]>,
    is_super_column: bool,
}

impl<'t> Encode<ColumnOrSuperColumn<'t>> for Owned {
    fn encode(self, out: &mut Vec<u8>) {
        let element = match self.cells.first() {
            Some(cell) if !self.is_super_column => Element::Column(cell),
            _ => Element::SuperColumn(&self.cells),
        };
        Encode::<ColumnOrSuperColumn<'t>>::encode(element, out);
    }
}

/// Each cell is dropped when it is written: with a large answer the data of its cells and what is
/// written of them are not both in memory as a whole.
impl<'t> Encode<List<ColumnOrSuperColumn<'t>>> for Columns {
    fn encode(self, out: &mut Vec<u8>) {
        let Self { grouped_by, row } = self;
        let mut cells = row.cells.into_iter().peekable();
        let elements = std::iter::from_fn(|| {
            let mut group = SmallVec::from_buf([cells.next()?]);
            if let Some(comparator) = &grouped_by {
                let name = group[0].clone();
                let is_same = |cell: &Cell| {
                    comparator.compare(name.super_name(), cell.super_name()) == Ordering::Equal
                };
                while let Some(cell) = cells.next_if(is_same) {
                    group.push(cell);
                }
            }
            Some(Owned { cells: group, is_super_column: grouped_by.is_some() })
        });
        Encode::<List<ColumnOrSuperColumn<'t>>>::encode(Each(elements), out);
    }
}

/// Bytes of names and values that are written as a reply without leaving the connection's thread.
const WRITTEN_INLINE: usize = 256 << 10;

/// What a cell costs to be written besides its bytes, in bytes.
const CELL_COST: usize = 64;

/// Rows that are read before they are written. Few enough that the blocks of data files that they
/// are in take little memory.
pub(super) const ROWS_AT_A_TIME: usize = 512;

/// What a row costs to be written besides its key and cells, in bytes.
const ROW_COST: usize = 32;

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) enum Answer<E> {
    /// Still to be written.
    Found(E),
    /// Written already, on another thread.
    Written(Vec<u8>),
}

/// What it costs to write these rows, in bytes.
pub(super) fn cost<'r>(rows: impl IntoIterator<Item = &'r RowSlice>) -> usize {
    let cells = rows.into_iter().flat_map(|row| &row.cells);
    cells.map(|cell| cell.encoded_length() + CELL_COST).sum()
}

impl<E> Answer<E> {
    /// Makes an answer of this cost ready. A large one is written on another thread, since other
    /// connections need this one. The memory of its cells is enough for what is written.
    pub(super) async fn new<R: WireType>(
        api: &Api,
        cost: usize,
        answer: E,
        context: &mut RequestContext,
    ) -> Result<Self, Failure>
    where
        E: Encode<R> + Send + 'static,
    {
        if cost <= WRITTEN_INLINE {
            return Ok(Self::Found(answer));
        }
        let write = move || {
            let mut written = Vec::with_capacity(cost);
            answer.encode(&mut written);
            written
        };
        Ok(Self::Written(api.coordinator.spawn_read(context, write).await?))
    }
}

impl<R: WireType, E: Encode<R>> Encode<R> for Answer<E> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Found(answer) => answer.encode(out),
            Self::Written(written) => put_behind(out, written),
        }
    }
}

/// Appends what is written to the head of a reply. Of many bytes there is no second copy.
fn put_behind(head: &mut Vec<u8>, mut written: Vec<u8>) {
    if written.len() <= WRITTEN_INLINE {
        head.extend_from_slice(&written);
    } else {
        written.splice(0..0, head.drain(..));
        *head = written;
    }
}

/// A list or map of rows that are written as they are read: of all that was read, only some rows
/// are in memory at a time.
#[derive(Debug)]
pub(super) struct Written {
    bytes: Vec<u8>,
    /// Where the number of rows stands.
    count_at: usize,
    count: usize,
}

impl Written {
    /// A list or map without elements, of these wire types.
    pub(super) fn new(types: &[u8]) -> Self {
        let bytes = [types, &[0; 4]].concat();
        Self { bytes, count_at: types.len(), count: 0 }
    }

    /// Appends what `element` makes of each row. Many bytes are written on another thread, since
    /// other connections need this one. `scratch` is the context by which the rows were read: its
    /// permit serves for writing as well, since a request that asked for a second one might wait
    /// for itself.
    pub(super) async fn append(
        &mut self,
        api: &Api,
        context: &RequestContext,
        rows: Vec<Row>,
        mut scratch: RequestContext,
        element: impl Fn(RowKey, RowSlice, &mut Vec<u8>) + Send + 'static,
    ) -> Result<(), Failure> {
        let keys: usize = rows.iter().map(|(key, _)| key.as_bytes().len() + ROW_COST).sum();
        let cost = keys + cost(rows.iter().map(|(_, row)| row));
        self.reserve(cost, context)?;
        self.count += rows.len();
        let mut bytes = std::mem::take(&mut self.bytes);
        let write = move || {
            for (key, row) in rows {
                element(key, row, &mut bytes);
            }
            bytes
        };
        self.bytes = if cost <= WRITTEN_INLINE {
            write()
        } else {
            api.coordinator.spawn_read(&mut scratch, write).await?
        };
        Ok(())
    }

    /// Makes room for more bytes, and takes memory for them. While they are moved to larger room
    /// both are in memory.
    fn reserve(&mut self, more: usize, context: &RequestContext) -> Result<(), CoordinatorError> {
        let (length, capacity) = (self.bytes.len(), self.bytes.capacity());
        if length + more > capacity {
            let grown = (length + more).max(capacity + capacity / 2);
            context.take(grown)?;
            self.bytes.reserve_exact(grown - length);
            context.give_back(capacity);
        }
        Ok(())
    }
}

impl<R: WireType> Encode<R> for Written {
    fn encode(self, out: &mut Vec<u8>) {
        let Self { mut bytes, count_at, count, .. } = self;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        bytes[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
        put_behind(out, bytes);
    }
}

/// A row key, which came as text or from a node that took it as text.
#[derive(Debug)]
pub(super) struct KeyText(pub(super) RowKey);

impl<'t> Encode<Text<'t>> for KeyText {
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<Text<'t>>::encode(self.0.as_bytes(), out);
    }
}
