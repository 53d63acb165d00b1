//! What reads found, written as the structs of the wire straight from the cells.

use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::slice::RowSlice;
use crate::service::{SMALL_ANSWER_BYTES, Service, ServiceError};
use crate::thrift::codec::WireType;
use crate::thrift::idl::{Column, ColumnOrSuperColumn, SuperColumn};
use crate::thrift::{Each, Encode, List, Text};
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

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) enum Answer<E> {
    /// Still to be written.
    Found(E),
    /// Written already, on another thread.
    Written(Vec<u8>),
}

impl<E> Answer<E> {
    /// Makes an answer of this cost ready. A large one is written on another thread, since other
    /// connections need this one. The memory of its cells is enough for what is written.
    pub(super) async fn new<R: WireType>(
        service: &Service,
        cost: usize,
        answer: E,
        context: &mut RequestContext,
    ) -> Result<Self, ServiceError>
    where
        E: Encode<R> + Send + 'static,
    {
        if cost <= SMALL_ANSWER_BYTES {
            return Ok(Self::Found(answer));
        }
        let write = move || {
            let mut written = Vec::with_capacity(cost);
            answer.encode(&mut written);
            written
        };
        Ok(Self::Written(service.offload(context, write).await?))
    }
}

impl<R: WireType, E: Encode<R>> Encode<R> for Answer<E> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Self::Found(answer) => answer.encode(out),
            Self::Written(written) => append(out, written),
        }
    }
}

/// Appends what is written to the head of a reply. Of many bytes there is no second copy.
fn append(head: &mut Vec<u8>, mut written: Vec<u8>) {
    if written.len() <= SMALL_ANSWER_BYTES {
        head.extend_from_slice(&written);
    } else {
        written.splice(0..0, head.drain(..));
        *head = written;
    }
}

/// A list or map whose elements were written as they were read, with their types and number.
#[derive(Debug)]
pub(super) struct Written(pub(super) Vec<u8>);

impl<R: WireType> Encode<R> for Written {
    fn encode(self, out: &mut Vec<u8>) {
        append(out, self.0);
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
