//! Results of reads, written as the structs of the wire straight from the cells.

use crate::base::context::RequestContext;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::slice::RowSlice;
use crate::service::{SMALL_ANSWER_BYTES, Service, ServiceError};
use crate::thrift::codec::WireType;
use crate::thrift::encode::{encode_counted, encode_field, put_head};
use crate::thrift::idl::{Column, ColumnOrSuperColumn, SuperColumn};
use crate::thrift::schema::wire_type;
use crate::thrift::{Binary, Encode, List, Text};
use smallvec::SmallVec;
use std::cmp::Ordering;

/// Writes a `ColumnOrSuperColumn`: a column, a super column with these columns, or nothing if there
/// are no cells.
fn put_element(cells: &[Cell], is_super_column: bool, out: &mut Vec<u8>) {
    fn column(cell: &Cell) -> Column<'_> {
        Column { name: cell.name(), value: cell.value(), timestamp: cell.timestamp() }
    }
    match cells {
        [] => {}
        [first, ..] if is_super_column => {
            put_head(SuperColumn::TYPE, 2, out);
            encode_field::<Binary<'_>>(1, first.super_name(), out);
            put_head(List::<Column<'_>>::TYPE, 2, out);
            encode_counted(&[Column::TYPE], cells, out, |cell, out| column(cell).encode(out));
            out.push(wire_type::STOP);
        }
        [cell, ..] => encode_field::<Column<'_>>(1, column(cell), out),
    }
    out.push(wire_type::STOP);
}

/// The answer to a path: a column, a whole super column, or nothing.
#[derive(Debug)]
pub(super) struct Found {
    /// The cells of the super column if one was asked for, else at most one cell.
    pub(super) row: RowSlice,
    /// Whether a super column was asked for.
    pub(super) is_super_column: bool,
}

impl Encode<ColumnOrSuperColumn<'_>> for Found {
    fn encode(self, out: &mut Vec<u8>) {
        put_element(&self.row.cells, self.is_super_column, out);
    }
}

/// The answer to a slice: columns, or super columns with all that is visible of them.
#[derive(Debug)]
pub(super) struct Columns {
    /// The order of the super columns by which the cells are grouped, if they are.
    pub(super) grouped_by: Option<Comparator>,
    pub(super) row: RowSlice,
}

/// Each cell is dropped when it is written: with a large answer the data of its cells and what is
/// written of them are not both in memory as a whole.
impl Encode<List<ColumnOrSuperColumn<'_>>> for Columns {
    fn encode(self, out: &mut Vec<u8>) {
        let Self { grouped_by, row } = self;
        let mut cells = row.cells.into_iter().peekable();
        let groups = std::iter::from_fn(|| {
            let mut group: SmallVec<[Cell; 1]> = SmallVec::from_buf([cells.next()?]);
            if let Some(comparator) = &grouped_by {
                let name = group[0].clone();
                let is_same = |cell: &Cell| {
                    comparator.compare(name.super_name(), cell.super_name()) == Ordering::Equal
                };
                while let Some(cell) = cells.next_if(is_same) {
                    group.push(cell);
                }
            }
            Some(group)
        });
        encode_counted(&[ColumnOrSuperColumn::TYPE], groups, out, |group, out| {
            put_element(&group, grouped_by.is_some(), out);
        });
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
        // Seldom, and large.
        Ok(Self::Written(Box::pin(service.offload(context, write)).await?))
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

/// Appends written bytes to the head of a reply. Many bytes are not copied again.
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
