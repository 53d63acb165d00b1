//! Rows of a partition as slices of its column family.
//!
//! The clustering columns of a row are the name of a super column, the name of a column, or both.
//! A set of rows becomes windows, each a list of names or a range of them on one level.

use super::error::CqlError;
use super::paging::Place;
use crate::model::comparator::Comparator;
use crate::model::comparator::composite::{self, STATIC};
use crate::model::deletion::Deletion;
use crate::model::mutation::MutationBuilder;
use crate::model::range_deletion::MAX_BOUND_LENGTH;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{RowSlice, Slice};
use crate::model::table::{ColumnKind, Form, Table};
use smallvec::{SmallVec, smallvec};
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

impl<'v> Span<'v> {
    fn is_open(&self) -> bool {
        self.start.is_open() && self.end.is_open()
    }

    /// Its ends in the order of the family, where this many clustering columns come before it.
    fn ordered(&self, table: &Table, reached: usize) -> (&Edge<'v>, &Edge<'v>) {
        let sliced = table.columns.get(table.clustering().start + reached);
        let is_descending =
            sliced.is_some_and(|it| it.kind == ColumnKind::Clustering { is_descending: true });
        let (start, end) = (&self.start, &self.end);
        if is_descending { (end, start) } else { (start, end) }
    }
}

/// Prefixes, values or names of which there is mostly one.
pub(super) type MostlyOne<T> = SmallVec<[T; 1]>;

/// Values of the first columns of a key, which seldom has more.
pub(super) type Prefix<'v> = SmallVec<[Cow<'v, [u8]>; 2]>;

/// Prefixes, each with the span after it.
type Parts<'v> = SmallVec<[(Prefix<'v>, Span<'v>); 1]>;

/// A set of rows of a partition: those that begin with a prefix and lie in the span after it. All
/// prefixes have one length, unless a span was [split](split).
#[derive(Debug)]
pub(super) struct RowSet<'v> {
    parts: Parts<'v>,
    /// Whether windows hold these rows and no others.
    pub(super) is_exact: bool,
    /// Whether the ends of a span are within one level.
    fits: bool,
}

/// End of a name of a composite as a bound.
#[derive(Debug, Clone, Copy)]
enum End {
    Before = 0xff,
    After = 1,
}

impl<'v> RowSet<'v> {
    /// The rows of these prefixes within a span.
    pub(super) fn new(table: &Table, prefixes: MostlyOne<Prefix<'v>>, mut span: Span<'v>) -> Self {
        let reached = prefixes.first().map_or(0, |prefix| prefix.len());
        let longest = span.start.values.len().max(span.end.values.len());
        let columns = &table.columns[table.clustering()];
        let mut kinds = columns[reached..reached + longest].iter().map(|it| it.kind);
        let first = kinds.next();
        let is_uniform = kinds.all(|kind| Some(kind) == first);
        // A level that holds the whole edge, and has a place before and after each value.
        let (outer, inner) = table.is_composite;
        let is_inner = reached >= table.in_super_name;
        let fits = is_inner || reached + longest <= table.in_super_name;
        let is_composite = if is_inner { inner } else { outer };
        let is_closed = span.start.is_inclusive && span.end.is_inclusive;
        let is_exact = fits && (is_composite || is_closed);
        if !fits {
            for edge in [&mut span.start, &mut span.end] {
                edge.values.truncate(1);
                edge.is_inclusive = true;
            }
        }
        let mut parts = Parts::with_capacity(prefixes.len());
        for prefix in prefixes {
            if fits && !is_uniform {
                split(table, &prefix, &span, &mut parts);
            } else {
                parts.push((prefix, span.clone()));
            }
        }
        Self { parts, is_exact, fits }
    }

    /// The whole partition.
    pub(super) fn all(table: &Table) -> Self {
        Self::new(table, smallvec![Prefix::new()], Span { start: Edge::OPEN, end: Edge::OPEN })
    }

    /// One row.
    pub(super) fn one(table: &Table, values: Prefix<'v>) -> Self {
        Self::new(table, smallvec![values], Span { start: Edge::OPEN, end: Edge::OPEN })
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The names of the super column and the column of each row, where all rows are named.
    pub(super) fn places(&self, table: &Table) -> MostlyOne<(Vec<u8>, Vec<u8>)> {
        self.parts.iter().map(|(values, _)| place(table, values)).collect()
    }

    /// The names of the super column and the column of the only row; `None` for a set of any
    /// number of rows. The name of a cell may have only the first of several components.
    pub(super) fn row(&self, table: &Table) -> Option<(Vec<u8>, Vec<u8>)> {
        match &self.parts[..] {
            [(values, _)]
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
        for (prefix, span) in &self.parts {
            let is_sliced = !span.is_open();
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
                _ => self.delete_range(table, (prefix, span), deletion, builder)?,
            }
        }
        Ok(())
    }

    /// Deletes the rows of a prefix that are no whole super column and no whole partition.
    fn delete_range(
        &self,
        table: &Table,
        (prefix, span): (&[Cow<'v, [u8]>], &Span<'v>),
        deletion: Deletion,
        builder: &mut MutationBuilder<'_>,
    ) -> Result<(), CqlError> {
        if !self.fits {
            return Err(CqlError::unsupported(
                "deletions of ranges of super columns and of columns within them",
            ));
        }
        let (outer, inner) = table.is_composite;
        let is_composite = if table.in_super_name > 0 { outer } else { inner };
        let ends = span.ordered(table, prefix.len());
        let (low, high) = range(prefix, ends, is_composite);
        if low.len().max(high.len()) > MAX_BOUND_LENGTH {
            return Err(CqlError::invalid(format!(
                "The values of one end of a range to delete have more than {MAX_BOUND_LENGTH} bytes"
            )));
        }
        let start = match bound(&low, ends.0, is_composite) {
            // The static columns of the partition stay.
            Bound::Unbounded if table.in_super_name > 0 && outer => Bound::Excluded(STATIC),
            start => start,
        };
        builder.delete_range((start, bound(&high, ends.1, is_composite)), deletion);
        Ok(())
    }

    /// The rows as windows in the order of the family.
    pub(super) fn windows(&self, table: &Table, family: &ColumnFamilySchema) -> Vec<Window> {
        let mut windows: Vec<Window> = Vec::new();
        for (prefix, span) in &self.parts {
            let window = window(table, prefix, span);
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
}

/// Splits a span over several columns into those of one column each: where the columns are not all
/// in one order, its rows do not lie side by side.
fn split<'v>(
    table: &Table,
    prefix: &[Cow<'v, [u8]>],
    Span { start, end }: &Span<'v>,
    parts: &mut Parts<'v>,
) {
    let below = |edge: &Edge<'v>| Edge { values: edge.values[1..].to_vec(), ..*edge };
    let longer = |value: &Cow<'v, [u8]>| [prefix, std::slice::from_ref(value)].concat();
    if let ([from, ..], [to, ..]) = (&start.values[..], &end.values[..]) {
        let of_type = &table.columns[table.clustering().start + prefix.len()].of_type;
        let order = of_type.compare(from, to);
        // An end that excludes the whole value leaves nothing of it.
        if order.is_eq()
            && [start, end].into_iter().all(|it| it.values.len() > 1 || it.is_inclusive)
        {
            let span = Span { start: below(start), end: below(end) };
            split(table, &longer(from), &span, parts);
        }
        if order.is_ge() {
            return;
        }
    }
    let outer = |edge: &Edge<'v>| Edge {
        values: edge.values.iter().take(1).cloned().collect(),
        is_inclusive: edge.is_inclusive && edge.values.len() < 2,
    };
    parts.push((Prefix::from(prefix), Span { start: outer(start), end: outer(end) }));
    if let [from, _, ..] = &start.values[..] {
        let span = Span { start: below(start), end: Edge::OPEN };
        split(table, &longer(from), &span, parts);
    }
    if let [to, _, ..] = &end.values[..] {
        split(table, &longer(to), &Span { start: Edge::OPEN, end: below(end) }, parts);
    }
}

fn window<'v>(table: &Table, prefix: &[Cow<'v, [u8]>], span: &Span<'v>) -> Window {
    let count = table.clustering().len();
    let (outer, inner) = table.is_composite;
    let ends = span.ordered(table, prefix.len());
    let level = |values: &[Cow<'v, [u8]>], wanted, is_composite| {
        if values.len() == wanted {
            return Part::Names(vec![name(values, is_composite)]);
        }
        let (low, high) = range(values, ends, is_composite);
        Part::Range(low, high)
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
    if rest.is_empty() && span.is_open() {
        let part = Part::Range(Vec::new(), Vec::new());
        return Window { super_name: Some(super_name), part };
    }
    let part = level(rest, count - table.in_super_name, inner);
    Window { super_name: Some(super_name), part }
}

/// The first and the last name of one level that begin with these values and lie between the ends;
/// empty for an open end. Of composites both are bounds, that no column has.
fn range<'v>(
    values: &[Cow<'v, [u8]>],
    (low, high): (&Edge<'v>, &Edge<'v>),
    is_composite: bool,
) -> (Vec<u8>, Vec<u8>) {
    let bound = |edge: &Edge<'v>, inclusive: End, exclusive: End| {
        if values.is_empty() && edge.is_open() {
            return Vec::new();
        }
        let all: Prefix<'v> = values.iter().chain(&edge.values).cloned().collect();
        if !is_composite {
            return name(&all, false);
        }
        let end = if edge.is_inclusive { inclusive } else { exclusive };
        composite::encode(all.iter().map(|it| &**it), end as u8)
    };
    (bound(low, End::Before, End::After), bound(high, End::After, End::Before))
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

    /// The slice of at most this many names after the last row that was read; `None` if none are
    /// left. In a range that row comes again.
    pub(super) fn slice(
        &self,
        (table, family): (&Table, &ColumnFamilySchema),
        after: Option<&Place>,
        is_reversed: bool,
        limit: usize,
    ) -> Option<Slice> {
        let super_name = self.super_name.as_deref();
        let after = match (super_name, after) {
            (_, None) => None,
            (None, Some(place)) => Some(place.outer_name(table)),
            (Some(own), Some(place)) => {
                match directed(family.comparator().compare(own, &place.super_name), is_reversed) {
                    Ordering::Less => return None,
                    Ordering::Equal => Some(&place.name),
                    Ordering::Greater => None,
                }
            }
        };
        let order = family.comparator_below(super_name);
        let is_before = |a: &[u8], b: &[u8]| directed(order.compare(a, b), is_reversed).is_lt();
        match &self.part {
            Part::Row => after.is_none().then(|| Slice::all(None)),
            Part::Names(names) => {
                let is_left = |name: &&Vec<u8>| after.is_none_or(|after| is_before(after, name));
                let left = names.iter().filter(is_left);
                let count = left.clone().count();
                let skipped = if is_reversed { count.saturating_sub(limit) } else { 0 };
                let names = left.skip(skipped).take(limit).map(Vec::as_slice);
                (count > 0).then(|| Slice::names(family, super_name, names))
            }
            Part::Range(low, high) => {
                let (first, last) = if is_reversed { (high, low) } else { (low, high) };
                if after.is_some_and(|after| !last.is_empty() && is_before(last, after)) {
                    return None;
                }
                let is_within = |after: &&Vec<u8>| first.is_empty() || !is_before(after, first);
                let after = after.filter(is_within);
                let limit = limit.saturating_add(usize::from(after.is_some()));
                Some(Slice::range(super_name, after.unwrap_or(first), last, is_reversed, limit))
            }
        }
    }

    pub(super) fn is_range(&self) -> bool {
        matches!(self.part, Part::Range(..))
    }

    /// Whether it begins at the beginning of a partition.
    pub(super) fn is_open(&self) -> bool {
        self.super_name.is_none() && matches!(&self.part, Part::Range(start, _) if start.is_empty())
    }

    /// The place up to which an answer to a slice has all; `None` if that is the end of the window.
    pub(super) fn end_of(
        &self,
        table: &Table,
        slice: &Slice,
        found: &RowSlice,
        is_reversed: bool,
    ) -> Option<Place> {
        let (Part::Names(names), Some(asked)) = (&self.part, slice.asked_names()) else {
            let last = found.cells.last().filter(|_| found.count >= slice.limit());
            return last.map(Place::of);
        };
        let (last, reached) = if is_reversed {
            (names.first()?, asked.first()?)
        } else {
            (names.last()?, asked.last()?)
        };
        (**reached != **last).then(|| match &self.super_name {
            Some(own) => Place { super_name: own.clone(), name: reached.to_vec() },
            None if table.in_super_name > 0 => {
                Place { super_name: reached.to_vec(), name: Vec::new() }
            }
            None => Place { super_name: Vec::new(), name: reached.to_vec() },
        })
    }
}

/// An order in the direction of a reader.
pub(super) fn directed(order: Ordering, is_reversed: bool) -> Ordering {
    if is_reversed { order.reverse() } else { order }
}
