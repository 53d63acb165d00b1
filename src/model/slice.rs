//! The part of a row that a read wants, and how that turns cells into an answer.
//!
//! A [`Slice`] says which columns; a [`SliceWalk`] says which cells of a row must be looked at for
//! that; a [`Resolver`] takes those cells, merged and in order, and keeps what is visible.

use super::cell::{Cell, prefix_of};
use super::comparator::Comparator;
use super::range_deletion::{NameRange, decode_range, overlap};
use super::schema::ColumnFamilySchema;
use super::visibility::Visibility;
use crate::base::clock::Now;
use crate::base::shared_bytes::SharedBytes;
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

/// The columns that a read wants of each row: a checked SlicePredicate with its parent. Clones
/// share the names, of which there may be a million.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Columns of this super column; `None` for columns of a standard family and for super columns.
    super_name: Option<Box<[u8]>>,
    filter: Filter,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    Name(SharedBytes),
    /// Sorted by their comparator, without repetition.
    Names(Arc<[SharedBytes]>),
    Range {
        start: Box<[u8]>,
        finish: Box<[u8]>,
        reversed: bool,
        limit: usize,
    },
}

impl Slice {
    /// The columns (or super columns) of these names, answered in the order of their comparator
    /// and each once, whatever the order of the request.
    pub fn names<'a>(
        family: &ColumnFamilySchema,
        super_name: Option<&[u8]>,
        names: impl IntoIterator<Item = &'a [u8]>,
    ) -> Self {
        let mut names: SmallVec<[SharedBytes; 1]> =
            names.into_iter().map(SharedBytes::from).collect();
        let comparator = family.comparator_below(super_name);
        names.sort_by(|a, b| comparator.compare(a, b));
        names.dedup_by(|a, b| comparator.compare(a, b) == Ordering::Equal);
        let filter = match &mut names[..] {
            // The usual case needs no allocation.
            [only] => Filter::Name(only.clone()),
            _ => Filter::Names(names.into_vec().into()),
        };
        Self { super_name: super_name.map(Box::from), filter }
    }

    /// Columns (or super columns) from `start` to `finish`, both included, empty for an open end;
    /// at most `limit` visible ones. When `reversed`, `start` is the greater of the two.
    pub fn range(
        super_name: Option<&[u8]>,
        start: &[u8],
        finish: &[u8],
        reversed: bool,
        limit: usize,
    ) -> Self {
        let filter = Filter::Range { start: start.into(), finish: finish.into(), reversed, limit };
        Self { super_name: super_name.map(Box::from), filter }
    }

    /// Everything below the parent.
    pub fn all(super_name: Option<&[u8]>) -> Self {
        Self::range(super_name, b"", b"", false, usize::MAX)
    }

    /// The super column whose columns are wanted.
    pub fn super_name(&self) -> Option<&[u8]> {
        self.super_name.as_deref()
    }

    /// Whether the answer is in descending order.
    pub fn is_reversed(&self) -> bool {
        matches!(self.filter, Filter::Range { reversed: true, .. })
    }

    /// How many columns or super columns may be answered.
    pub fn limit(&self) -> usize {
        match self.filter {
            Filter::Range { limit, .. } => limit,
            _ => usize::MAX,
        }
    }

    /// The names that are asked for, in the order of their comparator; `None` for a range.
    pub fn asked_names(&self) -> Option<&[SharedBytes]> {
        match &self.filter {
            Filter::Name(name) => Some(std::slice::from_ref(name)),
            Filter::Names(names) => Some(names),
            Filter::Range { .. } => None,
        }
    }

    /// Start and finish as [`Slice::range`] took them; `None` if names are asked for.
    pub fn bounds(&self) -> Option<(&[u8], &[u8])> {
        match &self.filter {
            Filter::Range { start, finish, .. } => Some((start, finish)),
            _ => None,
        }
    }

    /// The range of names, of columns or of super columns in a super column family, in which all of
    /// the slice lies.
    fn name_range(&self, family: &ColumnFamilySchema) -> NameRange<'_> {
        let names = match (self.super_name(), self.asked_names(), self.bounds()) {
            (Some(name), ..) if family.is_super() => Some((name, name)),
            (_, Some([first, .., last]), _) => Some((&**first, &**last)),
            (_, Some([only]), _) => Some((&**only, &**only)),
            (_, None, Some((start, finish))) => {
                let is_reversed = self.is_reversed();
                let (least, greatest) = if is_reversed { (finish, start) } else { (start, finish) };
                return (open_or_included(least), open_or_included(greatest));
            }
            _ => None,
        };
        names.map_or((Bound::Unbounded, Bound::Excluded(b"")), |(first, last)| {
            (Bound::Included(first), Bound::Included(last))
        })
    }

    /// Whether a range deletion may delete something of the slice.
    pub fn is_in_range_of(&self, family: &ColumnFamilySchema, deletion: &Cell) -> bool {
        decode_range(deletion.name())
            .is_some_and(|range| overlap(family.comparator(), range, self.name_range(family)))
    }

    /// The column names at which deletions of prefixes may stand that delete columns of the slice,
    /// but lie before it or between its names. Where super columns are asked for, none do.
    pub fn prefixes(&self, family: &ColumnFamilySchema) -> Vec<&[u8]> {
        let least: &[u8] = match &self.filter {
            _ if family.is_super() && self.super_name.is_none() => return Vec::new(),
            Filter::Range { finish, reversed: true, .. } => finish,
            Filter::Range { start, .. } => start,
            Filter::Name(name) => name,
            Filter::Names(names) => {
                let mut prefixes: Vec<_> = names.iter().filter_map(|it| prefix_of(it)).collect();
                prefixes.dedup();
                return prefixes;
            }
        };
        prefix_of(least).into_iter().collect()
    }

    /// The same with another limit; names have none.
    #[must_use]
    pub fn with_limit(&self, limit: usize) -> Self {
        let mut slice = self.clone();
        if let Filter::Range { limit: slot, .. } = &mut slice.filter {
            *slot = limit;
        }
        slice
    }

    /// A walk over a row of the family that finds the cells of the slice.
    pub fn walk<'a>(&'a self, family: &'a ColumnFamilySchema) -> SliceWalk<'a> {
        let level = match (&self.super_name, family.is_super()) {
            (Some(super_name), _) => Level::Within(super_name),
            (None, true) => Level::SuperColumns,
            (None, false) => Level::Within(b""),
        };
        let comparator = family.comparator_below(self.super_name());
        let sought = match &self.filter {
            Filter::Name(name) => Sought::Names { names: std::slice::from_ref(name), comparator },
            Filter::Names(names) => Sought::Names { names, comparator },
            Filter::Range { start, finish, reversed, .. } => {
                let (least, greatest) = if *reversed { (finish, start) } else { (start, finish) };
                let from = if least.is_empty() { level.beginning() } else { level.before(least) };
                let to = if greatest.is_empty() { level.end() } else { level.after(greatest) };
                Sought::Range(CellRange { from, to })
            }
        };
        SliceWalk { level, sought }
    }
}

/// A bound of a slice: the empty name is an open end.
fn open_or_included(name: &[u8]) -> Bound<&[u8]> {
    if name.is_empty() { Bound::Unbounded } else { Bound::Included(name) }
}

/// Walks through the names of a slice beside the cells of a row, both in ascending order, so that
/// a row costs no more than the fewer of the two. A range wants all cells between its bounds.
#[derive(Debug)]
pub struct SliceWalk<'a> {
    level: Level<'a>,
    sought: Sought<'a>,
}

/// The part that a walk has still to find.
#[derive(Debug)]
enum Sought<'a> {
    Range(CellRange<'a>),
    /// In the order of their comparator.
    Names {
        names: &'a [SharedBytes],
        comparator: &'a Comparator,
    },
}

impl<'a> SliceWalk<'a> {
    /// The stretch in which all further cells of the slice lie; `None` if there can be none.
    pub fn rest(&self) -> Option<CellRange<'a>> {
        match &self.sought {
            Sought::Range(range) => Some(*range),
            Sought::Names { names, .. } => {
                let (first, last) = (names.first()?, names.last()?);
                Some(CellRange { from: self.level.before(first), to: self.level.after(last) })
            }
        }
    }

    /// Whether no cell can belong to the slice any more.
    pub fn is_done(&self) -> bool {
        matches!(self.sought, Sought::Names { names: [], .. })
    }

    /// Whether a cell of [`SliceWalk::rest`] belongs to the slice. With each call the walk goes on
    /// to its cell: those before it must not be asked for any more.
    pub fn wants(&mut self, (super_name, name): (&[u8], &[u8])) -> bool {
        let Sought::Names { names, comparator } = &mut self.sought else { return true };
        let name = match self.level {
            Level::Within(_) => name,
            Level::SuperColumns => super_name,
        };
        *names = from_name(names, name, comparator);
        let is_next =
            names.first().is_some_and(|next| comparator.compare(next, name) == Ordering::Equal);
        // A super column has further cells of its name.
        if is_next && matches!(self.level, Level::Within(_)) {
            *names = &names[1..];
        }
        is_next
    }
}

/// The names from this one on, found by steps that double, so that near ones take few looks.
fn from_name<'a>(
    names: &'a [SharedBytes],
    name: &[u8],
    comparator: &Comparator,
) -> &'a [SharedBytes] {
    let is_before = |other: &[u8]| comparator.compare(other, name) == Ordering::Less;
    let mut reach = 1;
    while names.get(reach - 1).is_some_and(|other| is_before(other)) {
        reach *= 2;
    }
    let near = &names[reach / 2..names.len().min(reach - 1)];
    &names[reach / 2 + near.partition_point(|other| is_before(other))..]
}

/// Where the names of a slice stand.
#[derive(Debug, Clone, Copy)]
enum Level<'a> {
    /// They are column names of this super column; empty for a standard family.
    Within(&'a [u8]),
    /// They are names of super columns.
    SuperColumns,
}

impl<'a> Level<'a> {
    fn before(self, name: &'a [u8]) -> CellBound<'a> {
        match self {
            Self::Within(super_name) => CellBound::Before(super_name, name),
            Self::SuperColumns => CellBound::Before(name, b""),
        }
    }

    fn after(self, name: &'a [u8]) -> CellBound<'a> {
        match self {
            Self::Within(super_name) => CellBound::After(super_name, name),
            Self::SuperColumns => CellBound::AfterSuperColumn(name),
        }
    }

    fn beginning(self) -> CellBound<'a> {
        match self {
            // Behind the deletion of the super column, which is no column.
            Self::Within(super_name) if !super_name.is_empty() => CellBound::After(super_name, b""),
            _ => CellBound::First,
        }
    }

    fn end(self) -> CellBound<'a> {
        match self {
            Self::Within(super_name) if !super_name.is_empty() => {
                CellBound::AfterSuperColumn(super_name)
            }
            _ => CellBound::Last,
        }
    }
}

/// A stretch of cells of one row. The bounds never coincide with a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellRange<'a> {
    /// The lower bound.
    pub from: CellBound<'a>,
    /// The upper bound.
    pub to: CellBound<'a>,
}

impl CellRange<'_> {
    /// Whether a cell at this place lies in it.
    pub fn contains(&self, family: &ColumnFamilySchema, place: (&[u8], &[u8])) -> bool {
        self.from.is_before(family, place) && !self.to.is_before(family, place)
    }

    /// The whole row.
    pub const ALL: CellRange<'static> = CellRange { from: CellBound::First, to: CellBound::Last };

    /// The range deletions of the row: no column has the place that this ends with.
    pub const RANGE_DELETIONS: CellRange<'static> =
        CellRange { from: CellBound::First, to: CellBound::Before(b"", b"") };

    /// The one cell that deletes a super column, if there is one.
    pub fn super_tombstone(super_name: &[u8]) -> CellRange<'_> {
        CellRange::of((super_name, b""))
    }

    /// The one cell at a place, if there is one.
    pub fn of<'a>((super_name, name): (&'a [u8], &'a [u8])) -> CellRange<'a> {
        CellRange {
            from: CellBound::Before(super_name, name),
            to: CellBound::After(super_name, name),
        }
    }
}

/// A place between the cells of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellBound<'a> {
    /// Before all cells.
    First,
    /// Just before the place (super column name, column name).
    Before(&'a [u8], &'a [u8]),
    /// Just behind the place (super column name, column name).
    After(&'a [u8], &'a [u8]),
    /// Behind everything in the super column.
    AfterSuperColumn(&'a [u8]),
    /// Behind all cells.
    Last,
}

impl CellBound<'_> {
    /// Whether the bound lies before a cell at this place.
    pub fn is_before(&self, family: &ColumnFamilySchema, place: (&[u8], &[u8])) -> bool {
        match *self {
            Self::First => true,
            Self::Before(super_name, name) => {
                family.compare((super_name, name), place) != Ordering::Greater
            }
            Self::After(super_name, name) => {
                family.compare((super_name, name), place) == Ordering::Less
            }
            Self::AfterSuperColumn(super_name) => {
                family.comparator().compare(super_name, place.0) == Ordering::Less
            }
            Self::Last => false,
        }
    }
}

/// Whether a [`Resolver`] wants more cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    More,
    /// The answer is complete.
    Done,
}

/// The cells of an answer. One needs no allocation: a range of rows may have one of each.
pub type AnswerCells = SmallVec<[Cell; 1]>;

/// Result of a read of one row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSlice {
    /// The visible columns in the order of the answer. Those of one super column stand together.
    pub cells: AnswerCells,
    /// How many columns, or super columns, that is. Also set when only counting.
    pub count: usize,
}

/// Most cells for which room is made before they are there.
const MAX_EXPECTED: usize = 16;

/// Turns the cells of a row, merged and in order, into what a client may see at a time: the columns
/// with a value that no deletion covers.
#[derive(Debug)]
pub struct Resolver<'a> {
    visibility: Visibility<'a>,
    family: &'a ColumnFamilySchema,
    now: Now<'a>,
    /// For answers that consist of super columns.
    group: Option<Group>,
    limit: usize,
    collects: bool,
    answer: RowSlice,
    /// Encoded bytes of the cells that it holds.
    held_bytes: usize,
}

/// The super column that the last cells belong to.
#[derive(Debug)]
struct Group {
    name: Option<Vec<u8>>,
    /// Cells of a reversed read, in which the deletion of the super column comes last.
    pending: Option<Vec<Cell>>,
    is_counted: bool,
}

impl<'a> Resolver<'a> {
    /// A resolver for one row, whose visibility knows the deletions that come before the slice.
    pub fn new(visibility: Visibility<'a>, slice: &Slice, now: Now<'a>) -> Self {
        let family = visibility.family();
        let group = (family.is_super() && slice.super_name.is_none()).then(|| Group {
            name: None,
            pending: slice.is_reversed().then(Vec::new),
            is_counted: false,
        });
        Self {
            visibility,
            family,
            now,
            group,
            limit: slice.limit(),
            collects: true,
            answer: RowSlice::default(),
            held_bytes: 0,
        }
    }

    /// Only counts: the answer will hold no cells.
    #[must_use]
    pub fn counting(mut self) -> Self {
        self.collects = false;
        self
    }

    /// Makes room for an answer from about so many cells.
    pub fn expect(&mut self, cells: usize) {
        if self.collects {
            self.answer.cells.reserve_exact(cells.min(self.limit).min(MAX_EXPECTED));
        }
    }

    /// Whether the answer is complete before any cell was seen.
    pub fn is_done(&self) -> bool {
        self.answer.count >= self.limit && self.group.is_none() || self.limit == 0
    }

    /// Whether the answer consists of super columns: then it is complete when a cell comes that is
    /// no part of it any more.
    pub fn is_grouping(&self) -> bool {
        self.group.is_some()
    }

    /// Takes the next cell.
    pub fn push(&mut self, cell: Cell) -> Flow {
        let Some(group) = &self.group else {
            let is_visible = self.show(cell);
            self.answer.count += usize::from(is_visible);
            return if self.answer.count >= self.limit { Flow::Done } else { Flow::More };
        };
        let is_same = |name: &[u8]| self.family.is_one_super_column(name, cell.super_name());
        if !group.name.as_deref().is_some_and(is_same) {
            self.end_group();
            if self.answer.count >= self.limit {
                return Flow::Done;
            }
            if let Some(group) = &mut self.group {
                group.name = Some(cell.super_name().to_vec());
                group.is_counted = false;
            }
        }
        match self.group.as_mut().and_then(|group| group.pending.as_mut()) {
            Some(pending) => {
                self.held_bytes += cell.encoded_length();
                pending.push(cell);
            }
            None => self.show_grouped(cell),
        }
        Flow::More
    }

    /// How many cells it holds, and the bytes of these when encoded: what is in the answer, and
    /// what may yet come in.
    pub fn held(&self) -> (usize, usize) {
        let pending = self.group.as_ref().and_then(|group| group.pending.as_ref());
        (self.answer.cells.len() + pending.map_or(0, Vec::len), self.held_bytes)
    }

    /// Decides on the last super column, when there are no more cells or none are wanted.
    pub fn end_group(&mut self) {
        let pending = self.group.as_mut().and_then(|group| group.pending.as_mut());
        // The columns of a super column stand in ascending order in any answer.
        for cell in pending.map(std::mem::take).unwrap_or_default().into_iter().rev() {
            self.held_bytes -= cell.encoded_length();
            self.show_grouped(cell);
        }
    }

    /// Adds the cell to the answer if it is visible, and returns whether it is.
    fn show(&mut self, cell: Cell) -> bool {
        let is_visible = !self.visibility.hides(&cell) && cell.is_live_at(&mut self.now);
        if is_visible && self.collects {
            self.held_bytes += cell.encoded_length();
            self.answer.cells.push(cell);
        }
        is_visible
    }

    fn show_grouped(&mut self, cell: Cell) {
        if self.show(cell)
            && let Some(group) = &mut self.group
        {
            self.answer.count += usize::from(!group.is_counted);
            group.is_counted = true;
        }
    }

    /// The answer, when there are no more cells or none are wanted.
    pub fn finish(mut self) -> RowSlice {
        self.end_group();
        self.answer
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::Expiry;
    use super::super::comparator::Comparator;
    use super::super::deletion::Deletion;
    use super::super::schema::ColumnFamilyKind;
    use super::*;

    fn family(is_super: bool) -> ColumnFamilySchema {
        let columns = Comparator::Bytes;
        let kind = if is_super {
            ColumnFamilyKind::Super { super_columns: Comparator::Bytes, columns }
        } else {
            ColumnFamilyKind::Standard { columns }
        };
        ColumnFamilySchema::new("k".into(), "c".into(), kind)
    }

    fn column(name: &str, timestamp: i64) -> Cell {
        Cell::live(b"", name.as_bytes(), b"", timestamp)
    }

    fn sub(super_name: &str, name: &str, timestamp: i64) -> Cell {
        Cell::live(super_name.as_bytes(), name.as_bytes(), b"", timestamp)
    }

    /// Reads the slice of a row that consists of these cells, as a store would.
    fn read(
        family: &ColumnFamilySchema,
        cells: &[Cell],
        row_deletion: Deletion,
        slice: &Slice,
    ) -> (Vec<String>, usize) {
        let super_deletion = slice.super_name().map_or(Deletion::NONE, |name| {
            let marker = cells.iter().find(|c| c.place() == (name, b"".as_slice()));
            marker.and_then(Cell::deletion).unwrap_or(Deletion::NONE)
        });
        let visibility = Visibility::new(family, row_deletion.merge(super_deletion));
        let mut resolver = Resolver::new(visibility, slice, Now::At(100));
        let mut walk = slice.walk(family);
        let within = walk.rest();
        let mut within: Vec<&Cell> = cells
            .iter()
            .filter(|cell| within.is_some_and(|range| range.contains(family, cell.place())))
            .collect();
        if slice.is_reversed() {
            within.reverse();
        }
        let mut wanted = within.into_iter().filter(|cell| walk.wants(cell.place()));
        wanted.any(|cell| resolver.push(cell.clone()) == Flow::Done);
        let answer = resolver.finish();
        let show = |c: &Cell| {
            let parts = [c.super_name(), c.name()].map(|p| String::from_utf8_lossy(p).into_owned());
            if parts[0].is_empty() { parts[1].clone() } else { parts.join("/") }
        };
        (answer.cells.iter().map(show).collect(), answer.count)
    }

    #[test]
    fn a_value_is_there_until_its_time() {
        let family = family(false);
        let until = |name: &[u8], at| Cell::expiring((b"", name), b"v", 1, Expiry { ttl: 1, at });
        let cells = [until(b"a", 100), until(b"b", 101), until(b"c", 99), column("d", 1)];
        for (reversed, seen) in [(false, ["b", "d"]), (true, ["d", "b"])] {
            let slice = Slice::range(None, b"", b"", reversed, 2);
            let answer = read(&family, &cells, Deletion::NONE, &slice);
            assert_eq!(answer, (seen.map(String::from).to_vec(), 2));
        }
    }

    #[test]
    fn limits_count_visible_columns_only() {
        let mut cells: Vec<_> = ["a", "b", "c", "d", "e"].map(|n| column(n, 5)).to_vec();
        cells[1] = Cell::tombstone(b"", b"b", Deletion::at(6, 0));
        let family = family(false);
        let read = |slice| read(&family, &cells, Deletion::NONE, &slice).0;
        assert_eq!(read(Slice::range(None, b"", b"", false, 3)), ["a", "c", "d"]);
        assert_eq!(read(Slice::range(None, b"d", b"", true, 3)), ["d", "c", "a"]);
        assert_eq!(read(Slice::range(None, b"b", b"c", false, 3)), ["c"]);
        let names = [b"e".as_slice(), b"a", b"e", b"b", b"zz"];
        assert_eq!(read(Slice::names(&family, None, names)), ["a", "e"]);
    }

    #[test]
    fn a_row_deletion_hides_what_is_not_newer() {
        let cells = [column("a", 4), column("b", 5), column("c", 6)];
        let deletion = Deletion::at(5, 0);
        let (found, count) = read(&family(false), &cells, deletion, &Slice::all(None));
        assert_eq!((found, count), (vec!["c".to_owned()], 1));
        let least = [column("a", i64::MIN)];
        assert_eq!(read(&family(false), &least, Deletion::NONE, &Slice::all(None)).1, 0);
    }

    #[test]
    fn super_columns_count_when_a_column_of_theirs_is_visible() {
        let cells = [
            sub("s1", "a", 1),
            Cell::super_tombstone(b"s2", Deletion::at(5, 0)),
            sub("s2", "a", 5),
            Cell::super_tombstone(b"s3", Deletion::at(5, 0)),
            sub("s3", "a", 4),
            sub("s3", "b", 6),
            sub("s4", "a", 1),
            sub("s4", "b", 1),
        ];
        let family = family(true);
        let read = |slice| read(&family, &cells, Deletion::NONE, &slice);
        let all = ["s1/a", "s3/b", "s4/a", "s4/b"];
        assert_eq!(read(Slice::all(None)), (all.iter().map(ToString::to_string).collect(), 3));
        let (two, count) = read(Slice::range(None, b"", b"", false, 2));
        assert_eq!((two, count), (vec!["s1/a".to_owned(), "s3/b".to_owned()], 2));
        let (two, count) = read(Slice::range(None, b"", b"", true, 2));
        let expected = ["s4/a", "s4/b", "s3/b"].map(str::to_owned).to_vec();
        assert_eq!((two, count), (expected, 2));
        let (named, _) = read(Slice::names(&family, None, [b"s4".as_slice(), b"s2"]));
        assert_eq!(named, ["s4/a", "s4/b"]);
    }

    #[test]
    fn a_slice_inside_a_super_column_knows_its_deletion() {
        let cells = [
            Cell::super_tombstone(b"s", Deletion::at(5, 0)),
            sub("s", "a", 5),
            sub("s", "b", 6),
            sub("s", "c", 7),
            sub("t", "a", 7),
        ];
        let family = family(true);
        let read = |slice| read(&family, &cells, Deletion::NONE, &slice).0;
        assert_eq!(read(Slice::all(Some(b"s"))), ["s/b", "s/c"]);
        assert_eq!(read(Slice::range(Some(b"s"), b"", b"", true, 1)), ["s/c"]);
        assert_eq!(read(Slice::range(Some(b"s"), b"", b"b", false, 9)), ["s/b"]);
        assert_eq!(read(Slice::names(&family, Some(b"s"), [b"a".as_slice(), b"c"])), ["s/c"]);
    }

    #[test]
    fn a_walk_finds_the_names_that_the_row_has() {
        let standard = family(false);
        let name = |number: usize| format!("{number:04}");
        for (names, cells) in [(1000, 7), (7, 1000), (0, 5), (5, 0), (100, 100)] {
            let names: Vec<String> = (0..names).map(|number| name(number * 2)).collect();
            let slice = Slice::names(&standard, None, names.iter().map(String::as_bytes));
            let cells: Vec<String> = (0..cells).map(|number| name(number * 3)).collect();
            let mut walk = slice.walk(&standard);
            let found: Vec<&String> =
                cells.iter().filter(|cell| walk.wants((b"", cell.as_bytes()))).collect();
            let expected: Vec<&String> = cells.iter().filter(|it| names.contains(it)).collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_walk_looks_at_few_names_for_each_cell() {
        let names: Vec<SharedBytes> =
            (0..1_000_000_u32).map(|number| number.to_be_bytes()[..].into()).collect();
        let mut rest = &names[..];
        for wanted in [0, 1, 500_000, 500_000, 999_999, 2_000_000_u32] {
            rest = from_name(rest, &wanted.to_be_bytes(), &Comparator::Bytes);
            let next = rest.first().map(|name| name.to_vec());
            assert_eq!(next, names.get(wanted as usize).map(|name| name.to_vec()));
        }
    }

    #[test]
    fn nothing_is_wanted_of_a_slice_of_none() {
        let family = family(false);
        let slice = Slice::range(None, b"", b"", false, 0);
        let visibility = Visibility::new(&family, Deletion::NONE);
        assert!(Resolver::new(visibility, &slice, Now::At(0)).is_done());
    }
}
