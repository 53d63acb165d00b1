//! Rows of a partition as slices of its column family.
//!
//! The clustering columns of a row are the name of a super column, the name of a column, or both.
//! A set of rows becomes windows, each a list of names or a range of them on one level.

use super::error::CqlError;
use super::paging::Place;
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::comparator::composite::{self, STATIC};
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::range_deletion::MAX_BOUND_LENGTH;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::Slice;
use crate::model::table::{ColumnKind, Form, Table};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::Bound;

/// One end of a range of rows: values of the first clustering columns after the prefix.
#[derive(Debug, Clone)]
pub(super) struct Edge<'v> {
    /// None for an open end.
    pub(super) values: Vec<Cow<'v, [u8]>>,
    pub(super) is_inclusive: bool,
}

impl Edge<'_> {
    pub(super) const OPEN: Self = Self { values: Vec::new(), is_inclusive: true };

    fn is_open(&self) -> bool {
        self.values.is_empty()
    }
}

/// Rows between two ends, in the order of the types.
#[derive(Debug, Clone)]
pub(super) struct Span<'v> {
    pub(super) start: Edge<'v>,
    pub(super) end: Edge<'v>,
}

/// A set of rows of a partition: those that begin with one of the prefixes and lie in the span
/// after it.
#[derive(Debug)]
pub(super) struct RowSet<'v> {
    prefixes: Vec<Vec<Cow<'v, [u8]>>>,
    span: Span<'v>,
    /// Whether windows hold these rows and no others.
    pub(super) is_exact: bool,
    /// Whether the rows lie side by side: the columns of the span all ascend, or all descend.
    is_one_range: bool,
}

/// End of a name of a composite as a bound.
#[derive(Debug, Clone, Copy)]
enum End {
    Before = 0xff,
    After = 1,
}

impl<'v> RowSet<'v> {
    /// The rows of these prefixes within a span.
    pub(super) fn new(table: &Table, prefixes: Vec<Vec<Cow<'v, [u8]>>>, span: Span<'v>) -> Self {
        let mut set = Self { prefixes, span, is_exact: true, is_one_range: true };
        let reached = set.prefixes.first().map_or(0, Vec::len);
        let edges = [&set.span.start, &set.span.end];
        let longest = edges.map(|edge| edge.values.len()).into_iter().max().unwrap_or(0);
        if longest == 0 {
            // A prefix that ends within a level of two names leaves the inner one open.
            return set;
        }
        let columns = &table.columns[table.clustering()];
        let directions = columns[reached..reached + longest].iter().map(|it| it.kind);
        let is_uniform = directions.clone().all(|kind| Some(kind) == directions.clone().next());
        // A level that holds the whole edge, and has a place before and after each value.
        let (outer, inner) = table.is_composite;
        let is_inner = reached >= table.in_super_name;
        let fits = is_inner || reached + longest <= table.in_super_name;
        let is_composite = if is_inner { inner } else { outer };
        let is_closed = edges.into_iter().all(|edge| edge.is_inclusive);
        set.is_one_range = is_uniform && fits;
        set.is_exact = set.is_one_range && (is_composite || is_closed);
        if !set.is_one_range {
            for edge in [&mut set.span.start, &mut set.span.end] {
                edge.values.truncate(1);
                edge.is_inclusive = true;
            }
        }
        set
    }

    /// The whole partition.
    pub(super) fn all(table: &Table) -> Self {
        Self::new(table, vec![Vec::new()], Span { start: Edge::OPEN, end: Edge::OPEN })
    }

    /// One row.
    pub(super) fn one(table: &Table, values: Vec<Cow<'v, [u8]>>) -> Self {
        Self::new(table, vec![values], Span { start: Edge::OPEN, end: Edge::OPEN })
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// The names of the super column and the column of each row, where all rows are named.
    pub(super) fn places(&self, table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.prefixes.iter().map(|values| place(table, values)).collect()
    }

    /// The names of the super column and the column of the only row; `None` for a set of any
    /// number of rows. The name of a cell may have only the first of several components.
    pub(super) fn row(&self, table: &Table) -> Option<(Vec<u8>, Vec<u8>)> {
        match &self.prefixes[..] {
            [values]
                if values.len() == table.clustering().len()
                    || table.is_composite.1 && values.len() > table.in_super_name =>
            {
                Some(place(table, values))
            }
            _ => None,
        }
    }

    /// Adds the deletion of these rows to a mutation.
    pub(super) fn delete(
        &self,
        table: &Table,
        deletion: Deletion,
        builder: &mut MutationBuilder<'_>,
    ) -> Result<(), CqlError> {
        let count = table.clustering().len();
        let is_sliced = !self.span.start.is_open() || !self.span.end.is_open();
        for prefix in &self.prefixes {
            if prefix.is_empty() && !is_sliced {
                builder.delete_row(deletion);
                continue;
            }
            let (super_name, name) = place(table, prefix);
            let is_row = prefix.len() == count;
            match table.form {
                Form::Dense if is_row => {
                    builder.delete_column((&super_name, &name), deletion);
                }
                _ if prefix.len() == table.in_super_name && !is_sliced => {
                    builder.delete_super_column(&super_name, deletion);
                }
                _ if table.in_super_name > 0 && prefix.len() >= table.in_super_name => {
                    return Err(CqlError::invalid(
                        "Ranges within a super column cannot be deleted: delete single rows, or \
                         the super column as a whole",
                    ));
                }
                _ => self.delete_range(table, prefix, deletion, builder)?,
            }
        }
        Ok(())
    }

    /// Deletes the rows of a prefix that are no whole super column and no whole partition.
    fn delete_range(
        &self,
        table: &Table,
        prefix: &[Cow<'v, [u8]>],
        deletion: Deletion,
        builder: &mut MutationBuilder<'_>,
    ) -> Result<(), CqlError> {
        if !self.is_one_range {
            return Err(CqlError::unsupported(
                "deletions of ranges of several columns that are not all in one order",
            ));
        }
        let (outer, inner) = table.is_composite;
        let is_composite = if table.in_super_name > 0 { outer } else { inner };
        let (low, high) = self.range(table, prefix, is_composite);
        if low.len().max(high.len()) > MAX_BOUND_LENGTH {
            return Err(CqlError::invalid(format!(
                "The values of one end of a range to delete have more than {MAX_BOUND_LENGTH} bytes"
            )));
        }
        let (low_edge, high_edge) = self.ordered_edges(table);
        let start = match bound(&low, low_edge, is_composite) {
            // The static columns of the partition stay.
            Bound::Unbounded if table.in_super_name > 0 && outer => Bound::Excluded(STATIC),
            start => start,
        };
        builder.delete_range((start, bound(&high, high_edge, is_composite)), deletion);
        Ok(())
    }

    /// The ends of the span in the order of the family.
    fn ordered_edges(&self, table: &Table) -> (&Edge<'v>, &Edge<'v>) {
        let reached = self.prefixes.first().map_or(0, Vec::len);
        let sliced = table.columns.get(table.clustering().start + reached);
        let is_descending =
            sliced.is_some_and(|it| it.kind == ColumnKind::Clustering { is_descending: true });
        let (start, end) = (&self.span.start, &self.span.end);
        if is_descending { (end, start) } else { (start, end) }
    }

    /// The rows as windows in the order of the family.
    pub(super) fn windows(&self, table: &Table, family: &ColumnFamilySchema) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        for prefix in &self.prefixes {
            let window = self.window(table, prefix);
            match windows.iter_mut().find(|it| it.joins(&window)) {
                Some(Window { part: Part::Names(names), .. }) => {
                    if let Part::Names(more) = window.part {
                        names.extend(more);
                    }
                }
                _ => windows.push(window),
            }
        }
        for window in &mut windows {
            if let Part::Names(names) = &mut window.part {
                let order = family.comparator_below(window.super_name.as_deref());
                names.sort_by(|a, b| order.compare(a, b));
                names.dedup_by(|a, b| order.compare(a, b).is_eq());
            }
        }
        windows.sort_by(|a, b| a.compare(b, family));
        windows.dedup();
        windows
    }

    fn window(&self, table: &Table, prefix: &[Cow<'v, [u8]>]) -> Window {
        let count = table.clustering().len();
        let (outer, inner) = table.is_composite;
        let level = |values: &[Cow<'v, [u8]>], wanted, is_composite| {
            self.part(table, values, wanted, is_composite)
        };
        if count == 0 {
            return Window { super_name: None, part: Part::Row };
        }
        if table.in_super_name == 0 {
            return Window { super_name: None, part: level(prefix, count, inner) };
        }
        if prefix.len() < table.in_super_name || count == table.in_super_name {
            return Window { super_name: None, part: level(prefix, table.in_super_name, outer) };
        }
        let (first, rest) = prefix.split_at(table.in_super_name);
        let super_name = name(first, outer);
        if rest.is_empty() && self.span.start.is_open() && self.span.end.is_open() {
            let part = Part::Range(Vec::new(), Vec::new());
            return Window { super_name: Some(super_name), part };
        }
        let part = level(rest, count - table.in_super_name, inner);
        Window { super_name: Some(super_name), part }
    }

    /// Names of one level that begin with these values.
    fn part(
        &self,
        table: &Table,
        values: &[Cow<'v, [u8]>],
        wanted: usize,
        is_composite: bool,
    ) -> Part {
        if values.len() == wanted {
            return Part::Names(vec![name(values, is_composite)]);
        }
        let (low, high) = self.range(table, values, is_composite);
        Part::Range(low, high)
    }

    /// The first and the last name of one level that begin with these values and lie in the span;
    /// empty for an open end. Of composites both are bounds, that no column has.
    fn range(
        &self,
        table: &Table,
        values: &[Cow<'v, [u8]>],
        is_composite: bool,
    ) -> (Vec<u8>, Vec<u8>) {
        let (low, high) = self.ordered_edges(table);
        let bound = |edge: &Edge<'v>, inclusive: End, exclusive: End| {
            if values.is_empty() && edge.is_open() {
                return Vec::new();
            }
            let all: Vec<Cow<'v, [u8]>> = values.iter().chain(&edge.values).cloned().collect();
            if !is_composite {
                return name(&all, false);
            }
            let end = if edge.is_inclusive { inclusive } else { exclusive };
            composite::encode(all.iter().map(|it| &**it), end as u8)
        };
        (bound(low, End::Before, End::After), bound(high, End::After, End::Before))
    }
}

/// One end of a range to delete. The name of a composite says by itself on which side it lies.
fn bound<'n>(name: &'n [u8], edge: &Edge<'_>, is_composite: bool) -> Bound<&'n [u8]> {
    match name {
        [] => Bound::Unbounded,
        _ if is_composite || edge.is_inclusive => Bound::Included(name),
        _ => Bound::Excluded(name),
    }
}

/// The name of these values.
pub(super) fn name(values: &[Cow<'_, [u8]>], is_composite: bool) -> Vec<u8> {
    match values {
        [only] if !is_composite => only.to_vec(),
        _ => composite::encode(values.iter().map(|it| &**it), 0),
    }
}

/// The names of a super column and a column for the values of all clustering columns.
pub(super) fn place(table: &Table, values: &[Cow<'_, [u8]>]) -> (Vec<u8>, Vec<u8>) {
    let (outer, inner) = values.split_at(table.in_super_name.min(values.len()));
    let level = |values: &[Cow<'_, [u8]>], is_composite| match values {
        [] => Vec::new(),
        _ => name(values, is_composite),
    };
    (level(outer, table.is_composite.0), level(inner, table.is_composite.1))
}

/// The slice that has these rows, and the static columns if they are wanted.
pub(super) fn slice_of_rows(
    (table, family): (&Table, &ColumnFamilySchema),
    places: &[(Vec<u8>, Vec<u8>)],
    with_statics: bool,
) -> Slice {
    let mut outer: Vec<&[u8]> = places.iter().map(|(outer, _)| outer.as_slice()).collect();
    outer.dedup();
    let inner = || places.iter().map(|(_, inner)| inner.as_slice());
    match (table.form, &outer[..]) {
        (Form::Sparse { .. }, _) if table.in_super_name == 0 => Slice::all(None),
        (Form::Dense, _) if table.in_super_name == 0 => Slice::names(family, None, inner()),
        (Form::Dense, [only]) => Slice::names(family, Some(only), inner()),
        _ => {
            outer.extend(with_statics.then_some(STATIC));
            Slice::names(family, None, outer)
        }
    }
}

/// Where a reader goes on in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Resumed {
    /// The window is passed.
    Never,
    /// After this name, or at the beginning.
    After(Option<Vec<u8>>),
}

/// Some names of one level of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Window {
    /// The super column of the names; `None` for names of the first level.
    pub(super) super_name: Option<Vec<u8>>,
    pub(super) part: Part,
}

/// Names of one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// All of them, as the one row of a partition without clustering columns.
    Row,
    /// Sorted.
    Names(Vec<Vec<u8>>),
    /// From one name to another, both included; empty for an open end.
    Range(Vec<u8>, Vec<u8>),
}

impl Window {
    fn joins(&self, other: &Self) -> bool {
        let are_names = |it: &Self| matches!(it.part, Part::Names(_));
        are_names(self) && are_names(other) && self.super_name == other.super_name
    }

    fn compare(&self, other: &Self, family: &ColumnFamilySchema) -> Ordering {
        let first = |it: &Self| match &it.part {
            Part::Names(names) => names.first().cloned().unwrap_or_default(),
            Part::Range(start, _) => start.clone(),
            Part::Row => Vec::new(),
        };
        let outer = |it: &Self| it.super_name.clone().unwrap_or_default();
        let by_super = family.comparator().compare(&outer(self), &outer(other));
        let below: &Comparator = family.comparator_below(self.super_name.as_deref());
        by_super.then_with(|| below.compare(&first(self), &first(other)))
    }

    /// The slice of at most this many names after the last one that was read.
    pub(super) fn slice(
        &self,
        family: &ColumnFamilySchema,
        after: Option<&[u8]>,
        is_reversed: bool,
        limit: usize,
    ) -> Slice {
        let super_name = self.super_name.as_deref();
        let order = family.comparator_below(super_name);
        match &self.part {
            Part::Row => Slice::all(None),
            Part::Names(names) => {
                let is_left = |name: &&Vec<u8>| {
                    after.is_none_or(|after| {
                        let passed = if is_reversed { Ordering::Less } else { Ordering::Greater };
                        order.compare(name, after) == passed
                    })
                };
                let left = names.iter().filter(is_left);
                let count = left.clone().count();
                let skipped = if is_reversed { count.saturating_sub(limit) } else { 0 };
                let names = left.skip(skipped).take(limit).map(Vec::as_slice);
                Slice::names(family, super_name, names)
            }
            Part::Range(low, high) => {
                let (first, last) = if is_reversed { (high, low) } else { (low, high) };
                let first = after.unwrap_or(first);
                // The name that was read last comes again.
                let limit = limit.saturating_add(usize::from(after.is_some()));
                Slice::range(super_name, first, last, is_reversed, limit)
            }
        }
    }

    /// Whether one read finds all of it.
    pub(super) fn is_bounded(&self) -> bool {
        matches!(self.part, Part::Names(_) | Part::Row)
    }

    /// Whether it begins at the beginning of a partition.
    pub(super) fn is_open(&self) -> bool {
        self.super_name.is_none() && matches!(&self.part, Part::Range(start, _) if start.is_empty())
    }

    /// The name of a cell on the level of the window.
    pub(super) fn name_of<'c>(&self, table: &Table, cell: &'c Cell) -> &'c [u8] {
        if self.super_name.is_none() && table.in_super_name > 0 {
            cell.super_name()
        } else {
            cell.name()
        }
    }

    /// Whether two names of the level are one.
    pub(super) fn is_same(&self, family: &ColumnFamilySchema, one: &[u8], other: &[u8]) -> bool {
        family.comparator_below(self.super_name.as_deref()).compare(one, other).is_eq()
    }

    /// Where a reader goes on in the window that has passed a place.
    pub(super) fn passed(
        &self,
        family: &ColumnFamilySchema,
        table: &Table,
        after: Option<&Place>,
        is_reversed: bool,
    ) -> Resumed {
        let Some(Place { super_name, name }) = after else { return Resumed::After(None) };
        if self.part == Part::Row {
            return Resumed::Never;
        }
        let Some(own) = &self.super_name else {
            let passed = if table.in_super_name > 0 { super_name } else { name };
            return Resumed::After(Some(passed.clone()));
        };
        let order = family.comparator().compare(own, super_name);
        let order = if is_reversed { order.reverse() } else { order };
        match order {
            Ordering::Less => Resumed::Never,
            Ordering::Equal => Resumed::After(Some(name.clone())),
            Ordering::Greater => Resumed::After(None),
        }
    }
}
