//! Deletions of all names between two bounds: of columns in a standard column family, of super
//! columns in a super column family.
//!
//! They are cells that stand before all others of their row, in the order of their bytes: in a
//! standard column family under a super column name of one zero byte, in a super column family
//! under the empty one; no column can stand there. The column name has the bounds:
//!
//! ```text
//! u8   kind of the start, plus 4 times that of the end: 0 open, 1 included, 2 excluded
//! u16  length of the start, the start, the end; empty where it is open
//! ```

use super::cell::Cell;
use super::comparator::Comparator;
use crate::base::bytes::{ByteReader, ByteWriter};
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Longest bound, in bytes.
pub const MAX_BOUND_LENGTH: usize = 32_000;

/// The super column name of range deletions in a standard column family.
pub(super) const STANDARD_SUPER_NAME: &[u8] = &[0];

/// Start and end of a range of names.
pub type NameRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// The column name of the cell that deletes a range.
///
/// # Panics
/// If a bound is longer than [`MAX_BOUND_LENGTH`].
pub fn encode_range((start, end): NameRange<'_>) -> Vec<u8> {
    let part = |bound| match bound {
        Bound::Unbounded => (0, &b""[..]),
        Bound::Included(name) => (1, name),
        Bound::Excluded(name) => (2, name),
    };
    let ((start_kind, start), (end_kind, end)) = (part(start), part(end));
    assert!(start.len().max(end.len()) <= MAX_BOUND_LENGTH, "bounds are checked before");
    let mut name = vec![start_kind | end_kind << 2];
    name.put_prefixed(start);
    name.extend_from_slice(end);
    name
}

/// Reads such a name; `None` if it is none.
pub fn decode_range(name: &[u8]) -> Option<NameRange<'_>> {
    let mut reader = ByteReader::new(name);
    let kinds = reader.u8().ok()?;
    let (start, end) = (reader.prefixed().ok()?, reader.rest());
    Some((bound(kinds & 3, start)?, bound(kinds >> 2, end)?))
}

fn bound(kind: u8, name: &[u8]) -> Option<Bound<&[u8]>> {
    match kind {
        0 if name.is_empty() => Some(Bound::Unbounded),
        1 if name.len() <= MAX_BOUND_LENGTH => Some(Bound::Included(name)),
        2 if name.len() <= MAX_BOUND_LENGTH => Some(Bound::Excluded(name)),
        _ => None,
    }
}

/// Whether the range can be one of names of this order.
pub(super) fn is_range_of(comparator: &Comparator, name: &[u8]) -> bool {
    let can_sort = |bound| match bound {
        Bound::Unbounded => true,
        Bound::Included(name) | Bound::Excluded(name) => comparator.can_sort(name),
    };
    decode_range(name)
        .is_some_and(|range| can_sort(range.0) && can_sort(range.1) && !is_empty(comparator, range))
}

/// Whether the range ends before it begins.
pub(super) fn is_empty(comparator: &Comparator, (start, end): NameRange<'_>) -> bool {
    is_before(comparator, end, start)
}

/// Whether two ranges have a place in common.
pub(super) fn overlap(comparator: &Comparator, a: NameRange<'_>, b: NameRange<'_>) -> bool {
    !is_before(comparator, a.1, b.0) && !is_before(comparator, b.1, a.0)
}

/// Whether a range that ends here has ended where one that starts there has not begun.
fn is_before(comparator: &Comparator, end: Bound<&[u8]>, start: Bound<&[u8]>) -> bool {
    match (end, start) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(end), Bound::Included(start)) => comparator.compare(end, start).is_lt(),
        (
            Bound::Included(end) | Bound::Excluded(end),
            Bound::Included(start) | Bound::Excluded(start),
        ) => comparator.compare(end, start).is_le(),
    }
}

/// The range deletions of a row, cut into pieces that do not overlap when the first name is looked
/// for.
#[derive(Debug, Default)]
pub(super) struct RangeDeletions {
    cells: Vec<Cell>,
    steps: OnceCell<Vec<Step>>,
}

/// A place between names. `None` comes before all.
type Edge = Option<(Box<[u8]>, Side)>;

/// The side of the name on which an edge lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Before,
    After,
}

/// An edge, and the deletion that holds from it to the next one.
#[derive(Debug)]
struct Step {
    edge: Edge,
    /// Up to which timestamp; `None` for nothing.
    until: Option<i64>,
}

impl RangeDeletions {
    /// Adds one.
    pub(super) fn push(&mut self, cell: &Cell) {
        self.cells.push(cell.clone());
        self.steps.take();
    }

    /// Whether a name of this timestamp is deleted.
    #[inline]
    pub(super) fn cover(&self, comparator: &Comparator, name: &[u8], timestamp: i64) -> bool {
        !self.cells.is_empty() && self.look_up(comparator, name, timestamp)
    }

    fn look_up(&self, comparator: &Comparator, name: &[u8], timestamp: i64) -> bool {
        let steps = self.steps.get_or_init(|| steps(comparator, &self.cells));
        let behind = steps.partition_point(|step| match &step.edge {
            None => true,
            Some((at, Side::Before)) => comparator.compare(at, name).is_le(),
            Some((at, Side::After)) => comparator.compare(at, name).is_lt(),
        });
        let last = behind.checked_sub(1).and_then(|at| steps[at].until);
        last.is_some_and(|until| timestamp <= until)
    }
}

fn compare_edges(comparator: &Comparator, a: &Edge, b: &Edge) -> Ordering {
    match (a, b) {
        (Some((a, one)), Some((b, other))) => comparator.compare(a, b).then(one.cmp(other)),
        _ => a.is_some().cmp(&b.is_some()),
    }
}

/// Goes through the edges of all ranges, with those that are open at each.
fn steps(comparator: &Comparator, cells: &[Cell]) -> Vec<Step> {
    // Each edge with a timestamp, and whether its range begins there.
    let mut edges: Vec<(Edge, i64, bool)> = Vec::new();
    for cell in cells {
        let Some((start, end)) = decode_range(cell.name()) else { continue };
        let start = match start {
            Bound::Unbounded => None,
            Bound::Included(name) => Some((name.into(), Side::Before)),
            Bound::Excluded(name) => Some((name.into(), Side::After)),
        };
        let end = match end {
            Bound::Unbounded => None,
            Bound::Included(name) => Some((name.into(), Side::After)),
            Bound::Excluded(name) => Some((name.into(), Side::Before)),
        };
        if end.is_some() {
            if compare_edges(comparator, &start, &end).is_ge() {
                continue;
            }
            edges.push((end, cell.timestamp(), false));
        }
        edges.push((start, cell.timestamp(), true));
    }
    edges.sort_by(|a, b| compare_edges(comparator, &a.0, &b.0));
    let (mut open, mut steps): (BTreeMap<i64, usize>, Vec<Step>) = (BTreeMap::new(), Vec::new());
    // Of ranges that meet, one may end before the other begins: the count is of those at the edge.
    for same in edges.chunk_by(|a, b| compare_edges(comparator, &a.0, &b.0).is_eq()) {
        for (_, timestamp, _) in same.iter().filter(|(.., begins)| *begins) {
            *open.entry(*timestamp).or_default() += 1;
        }
        for (_, timestamp, _) in same.iter().filter(|(.., begins)| !*begins) {
            if let Some(count) = open.get_mut(timestamp) {
                *count -= 1;
                if *count == 0 {
                    open.remove(timestamp);
                }
            }
        }
        let until = open.last_key_value().map(|(timestamp, _)| *timestamp);
        steps.push(Step { edge: same[0].0.clone(), until });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::deletion::Deletion;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::ops::RangeBounds;

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        let name = vec(0u8..3, 0..3);
        prop_oneof![
            1 => Just(Bound::Unbounded),
            2 => name.clone().prop_map(Bound::Included),
            2 => name.prop_map(Bound::Excluded),
        ]
    }

    fn borrowed(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
        bound.as_ref().map(Vec::as_slice)
    }

    proptest! {
        #[test]
        fn a_range_is_read_back(start in bound(), end in bound()) {
            let range = (borrowed(&start), borrowed(&end));
            let name = encode_range(range);
            prop_assert_eq!(decode_range(&name), Some(range));
        }

        #[test]
        fn what_is_no_range_is_refused_or_another(bytes in vec(0u8..12, 0..8)) {
            if let Some(range) = decode_range(&bytes) {
                prop_assert_eq!(encode_range(range), bytes);
            }
        }

        #[test]
        fn a_name_is_deleted_by_the_greatest_of_its_ranges(
            ranges in vec((bound(), bound(), 0i64..4), 0..6),
            name in vec(0u8..3, 0..3),
            at in 0i64..4,
        ) {
            let mut deletions = RangeDeletions::default();
            for (start, end, timestamp) in &ranges {
                let name = encode_range((borrowed(start), borrowed(end)));
                deletions.push(&Cell::tombstone(b"", &name, Deletion::at(*timestamp, 0)));
            }
            let is_deleted = ranges.iter().any(|(start, end, timestamp)| {
                let range = (borrowed(start), borrowed(end));
                RangeBounds::<[u8]>::contains(&range, &name[..]) && at <= *timestamp
            });
            prop_assert_eq!(deletions.cover(&Comparator::Bytes, &name, at), is_deleted);
        }

        #[test]
        fn ranges_overlap_where_a_name_may_be_in_both(
            a in (bound(), bound()), b in (bound(), bound()), name in vec(0u8..3, 0..3),
        ) {
            let [a, b] = [&a, &b].map(|(start, end)| (borrowed(start), borrowed(end)));
            let is_in = |range: NameRange<'_>| RangeBounds::<[u8]>::contains(&range, &name[..]);
            prop_assert!(overlap(&Comparator::Bytes, a, b) || !(is_in(a) && is_in(b)));
            prop_assert_eq!(
                overlap(&Comparator::Bytes, a, b), overlap(&Comparator::Bytes, b, a)
            );
        }
    }
}
