//! The cells of one row in memory: a B-tree of copy-on-write chunks.
//!
//! A clone shares all chunks and is a snapshot: a later insertion copies shared chunks on its path,
//! and changes others in place. A row of any width is therefore written at the cost of one path,
//! and a reader never sees half of a mutation. The only cell of a row, and many rows have but one,
//! needs no chunk.

use crate::model::cell::{Cell, CellState};
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::{CellBound, CellRange};
use std::cmp::Ordering;
use std::sync::Arc;

/// Most cells of a chunk, and most children of an inner node.
const MAX_FANOUT: usize = 128;

/// The cells of a row, sorted, at most one for each place.
#[derive(Debug, Clone, Default)]
pub struct CellTree {
    root: Root,
    /// The states that cells of it have or had, each by its flag.
    states: u8,
}

#[derive(Debug, Clone, Default)]
enum Root {
    #[default]
    Empty,
    One(Cell),
    Many(Arc<Node>),
}

#[derive(Debug, Clone)]
enum Node {
    Chunk(Vec<Cell>),
    Inner(Vec<Child>),
}

#[derive(Debug, Clone)]
struct Child {
    /// The cell that was first in the child when it was split off; only its place counts.
    first: Cell,
    node: Arc<Node>,
}

impl CellTree {
    /// At least how many cells there are.
    pub fn len_hint(&self) -> usize {
        match &self.root {
            Root::Empty => 0,
            Root::One(_) => 1,
            Root::Many(root) => match &**root {
                Node::Chunk(cells) => cells.len(),
                Node::Inner(children) => children.len(),
            },
        }
    }

    /// The tree of cells that are in order, one for each place. Its chunks are full, and take no
    /// more memory than they need.
    pub fn from_sorted(mut cells: Vec<Cell>) -> Self {
        let states = cells.iter().fold(0, |states, cell| states | cell.state().flag());
        if cells.len() <= 1 {
            return Self { root: cells.pop().map_or(Root::Empty, Root::One), states };
        }
        if cells.len() <= MAX_FANOUT {
            cells.shrink_to_fit();
            return Self { root: Root::Many(Arc::new(Node::Chunk(cells))), states };
        }
        let mut level: Vec<Child> = cells
            .chunks(MAX_FANOUT)
            .map(|chunk| Child {
                first: chunk[0].clone(),
                node: Arc::new(Node::Chunk(chunk.into())),
            })
            .collect();
        while level.len() > 1 {
            let above = level.chunks(MAX_FANOUT).map(|children| {
                let first = children[0].first.clone();
                Child { first, node: Arc::new(Node::Inner(children.into())) }
            });
            level = above.collect();
        }
        Self { root: Root::Many(level.swap_remove(0).node), states }
    }

    /// Adds a cell. With one that stands at its place already it is reconciled.
    pub fn insert(&mut self, family: &ColumnFamilySchema, cell: Cell) {
        self.states |= cell.state().flag();
        match &mut self.root {
            Root::Empty => self.root = Root::One(cell),
            Root::One(only) => {
                let only = only.clone();
                self.root = match family.compare(only.place(), cell.place()) {
                    Ordering::Less => Root::of([only, cell]),
                    Ordering::Equal => Root::One(only.reconcile(cell)),
                    Ordering::Greater => Root::of([cell, only]),
                };
            }
            Root::Many(root) => {
                if let Some(right) = insert(root, family, cell) {
                    let left = Arc::clone(root);
                    let first = first_cell(&left).expect("a node that was split has cells").clone();
                    *root = Arc::new(Node::Inner(vec![Child { first, node: left }, right]));
                }
            }
        }
    }

    /// Whether a cell may have this state.
    pub fn may_hold(&self, state: CellState) -> bool {
        self.states & state.flag() != 0
    }

    /// Whether there are no cells.
    pub fn is_empty(&self) -> bool {
        matches!(self.root, Root::Empty)
    }

    /// The cells within the range, ascending or descending.
    pub fn range<'a>(
        &'a self,
        family: &'a ColumnFamilySchema,
        range: CellRange<'a>,
        reversed: bool,
    ) -> TreeCursor<'a> {
        let mut cursor =
            TreeCursor { family, range, reversed, path: Vec::new(), chunk: &[], next: 0 };
        match &self.root {
            Root::Empty => {}
            Root::One(only) => cursor.seek_in(std::slice::from_ref(only)),
            Root::Many(root) => cursor.seek(root),
        }
        cursor
    }
}

impl Root {
    fn of(cells: [Cell; 2]) -> Self {
        Self::Many(Arc::new(Node::Chunk(cells.into())))
    }
}

fn first_cell(node: &Node) -> Option<&Cell> {
    match node {
        Node::Chunk(cells) => cells.first(),
        Node::Inner(children) => children.first().map(|child| &child.first),
    }
}

/// Inserts below a node. If it had to be split, the right half is returned.
fn insert(node: &mut Arc<Node>, family: &ColumnFamilySchema, cell: Cell) -> Option<Child> {
    match Arc::make_mut(node) {
        Node::Chunk(cells) => insert_into_chunk(cells, family, cell),
        Node::Inner(children) => {
            let place = cell.place();
            let behind = children
                .partition_point(|c| family.compare(c.first.place(), place) != Ordering::Greater);
            let at = behind.saturating_sub(1);
            let right = insert(&mut children[at].node, family, cell)?;
            children.insert(at + 1, right);
            let half = split(children, at + 2 == children.len())?;
            let first = half[0].first.clone();
            Some(Child { first, node: Arc::new(Node::Inner(half)) })
        }
    }
}

fn insert_into_chunk(
    cells: &mut Vec<Cell>,
    family: &ColumnFamilySchema,
    cell: Cell,
) -> Option<Child> {
    // Rows are mostly written in order of their names, so the end is looked at first.
    let at = match cells.last().map(|last| family.compare(last.place(), cell.place())) {
        None | Some(Ordering::Less) => Err(cells.len()),
        Some(Ordering::Equal) => Ok(cells.len() - 1),
        Some(Ordering::Greater) => {
            cells.binary_search_by(|c| family.compare(c.place(), cell.place()))
        }
    };
    match at {
        Ok(at) => {
            let present = cells[at].clone();
            cells[at] = present.reconcile(cell);
            None
        }
        Err(at) => {
            cells.insert(at, cell);
            let half = split(cells, at + 1 == cells.len())?;
            let first = half[0].clone();
            Some(Child { first, node: Arc::new(Node::Chunk(half)) })
        }
    }
}

/// Cuts off the right half of what has become too long. After an append nearly all stays on the
/// left, so that rows written in order have full chunks.
fn split<T>(items: &mut Vec<T>, appended: bool) -> Option<Vec<T>> {
    if items.len() <= MAX_FANOUT {
        return None;
    }
    let at = if appended { items.len() - 1 } else { items.len() / 2 };
    let half = items.split_off(at);
    items.shrink_to_fit();
    Some(half)
}

/// Walks over the cells of a range.
#[derive(Debug)]
pub struct TreeCursor<'a> {
    family: &'a ColumnFamilySchema,
    range: CellRange<'a>,
    reversed: bool,
    /// Inner nodes above the chunk, each with the index of the child that is being walked.
    path: Vec<(&'a [Child], usize)>,
    chunk: &'a [Cell],
    /// Forward: index of the next cell. Reversed: one more than that.
    next: usize,
}

impl<'a> TreeCursor<'a> {
    /// The number of sorted items before the edge where the walk begins.
    fn before_edge<T>(&self, items: &[T], place: impl Fn(&T) -> (&[u8], &[u8])) -> usize {
        let edge: CellBound<'_> = if self.reversed { self.range.to } else { self.range.from };
        items.partition_point(|item| !edge.is_before(self.family, place(item)))
    }

    fn seek(&mut self, mut node: &'a Node) {
        loop {
            match node {
                Node::Inner(children) => {
                    let at = self.before_edge(children, |c| c.first.place()).saturating_sub(1);
                    self.path.push((children, at));
                    node = &children[at].node;
                }
                Node::Chunk(cells) => return self.seek_in(cells),
            }
        }
    }

    fn seek_in(&mut self, cells: &'a [Cell]) {
        self.chunk = cells;
        self.next = self.before_edge(cells, Cell::place);
    }

    /// Moves to the neighbouring chunk; false at the end of the row.
    fn step_chunk(&mut self) -> bool {
        while let Some((children, at)) = self.path.pop() {
            let neighbour = if self.reversed { at.checked_sub(1) } else { Some(at + 1) };
            let Some((at, child)) = neighbour.and_then(|at| Some((at, children.get(at)?))) else {
                continue;
            };
            self.path.push((children, at));
            let mut node: &'a Node = &child.node;
            while let Node::Inner(children) = node {
                let at = if self.reversed { children.len() - 1 } else { 0 };
                self.path.push((children, at));
                node = &children[at].node;
            }
            if let Node::Chunk(cells) = node {
                self.chunk = cells;
                self.next = if self.reversed { cells.len() } else { 0 };
            }
            return true;
        }
        false
    }
}

impl<'a> Iterator for TreeCursor<'a> {
    type Item = &'a Cell;

    fn next(&mut self) -> Option<&'a Cell> {
        loop {
            let at = if self.reversed { self.next.checked_sub(1) } else { Some(self.next) };
            let Some(cell) = at.and_then(|at| self.chunk.get(at)) else {
                if self.step_chunk() {
                    continue;
                }
                return None;
            };
            let inside = if self.reversed {
                self.next -= 1;
                self.range.from.is_before(self.family, cell.place())
            } else {
                self.next += 1;
                !self.range.to.is_before(self.family, cell.place())
            };
            return inside.then_some(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::comparator::Comparator;
    use crate::model::schema::ColumnFamilyKind;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn family() -> ColumnFamilySchema {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        ColumnFamilySchema::new("k".into(), "c".into(), kind)
    }

    fn cell(number: u32, timestamp: i64) -> Cell {
        Cell::live(b"", &number.to_be_bytes(), b"", timestamp)
    }

    proptest! {
        #[test]
        fn it_behaves_as_a_sorted_map(
            inserts in proptest::collection::vec((0u32..2000, 0i64..4), 0..1500),
            from in 0u32..2000, to in 0u32..2000, in_order: bool,
        ) {
            let family = family();
            let mut inserts = inserts;
            if in_order {
                inserts.sort_unstable();
            }
            let (mut tree, mut model) = (CellTree::default(), BTreeMap::new());
            let mut snapshots = Vec::new();
            for (i, &(number, timestamp)) in inserts.iter().enumerate() {
                if i % 300 == 299 {
                    snapshots.push((tree.clone(), model.clone()));
                }
                tree.insert(&family, cell(number, timestamp));
                let newest = model.entry(number).or_insert(timestamp);
                *newest = timestamp.max(*newest);
            }
            snapshots.push((tree, model));
            let (low, high) = (from.min(to), from.max(to));
            let (low_name, high_name) = (low.to_be_bytes(), high.to_be_bytes());
            let range = CellRange {
                from: CellBound::Before(b"", &low_name),
                to: CellBound::After(b"", &high_name),
            };
            for (tree, model) in snapshots {
                let expected: Vec<_> = model.range(low..=high).map(|(n, t)| cell(*n, *t)).collect();
                let mut found: Vec<_> = tree.range(&family, range, false).cloned().collect();
                prop_assert_eq!(&found, &expected);
                found = tree.range(&family, range, true).cloned().collect();
                found.reverse();
                prop_assert_eq!(&found, &expected);
                let all = tree.range(&family, CellRange::ALL, false).count();
                prop_assert_eq!(all, model.len());
                prop_assert_eq!(tree.is_empty(), model.is_empty());
                let sorted = model.iter().map(|(n, t)| cell(*n, *t)).collect();
                let built = CellTree::from_sorted(sorted);
                for reversed in [false, true] {
                    let found: Vec<_> = built.range(&family, range, reversed).collect();
                    let expected: Vec<_> = tree.range(&family, range, reversed).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn a_tree_is_built_from_sorted_cells() {
        let family = family();
        for count in [0, 1, 128, 129, 128 * 128, 128 * 128 + 1] {
            let cells: Vec<_> = (0..count).map(|number| cell(number, 1)).collect();
            let mut tree = CellTree::from_sorted(cells.clone());
            let found: Vec<_> = tree.range(&family, CellRange::ALL, false).cloned().collect();
            assert_eq!(found, cells);
            tree.insert(&family, cell(count, 1));
            let last = tree.range(&family, CellRange::ALL, true).next();
            assert_eq!(last, Some(&cell(count, 1)));
        }
    }

    #[test]
    fn appending_leaves_full_chunks() {
        let family = family();
        let mut tree = CellTree::default();
        for number in 0..10_000 {
            tree.insert(&family, cell(number, 1));
        }
        let Root::Many(root) = &tree.root else { panic!("10,000 cells need a tree") };
        let Node::Inner(children) = &**root else { panic!("10,000 cells do not fit a chunk") };
        assert!(children.len() <= 10_000 / MAX_FANOUT + 2);
        assert_eq!(tree.range(&family, CellRange::ALL, false).count(), 10_000);
    }
}
