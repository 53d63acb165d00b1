//! A Merkle tree, kept as its leaves.

use crate::repair::compare::leaves::{Leaves, TreeHash, cut, halved, merged, middle, straight};
use crate::ring::{Partitioner, Token, TokenRange};
use crate::storage::compaction::GcSpan;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Most halvings of all ranges: to a million leaves.
const MOST_EVEN_DEPTH: u8 = 20;

/// Most halvings of a range, as in 0.6.
pub(super) const MOST_DEPTH: u8 = 126;

/// The ring, divided into leaves. Only these are kept: the hash of an inner node is the XOR of
/// those below it, and its token follows from the partitioner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MerkleTree {
    pub(super) partitioner: Partitioner,
    leaves: Leaves,
}

fn whole_ring() -> TokenRange {
    TokenRange { start: Token::Minimum, end: Token::Minimum }
}

impl MerkleTree {
    /// An empty tree in which each range is halved this often, at most 20 times: for hashed tokens,
    /// or without samples. 15 times make 32768 leaves, as many as 0.6 has.
    pub(crate) fn even(partitioner: Partitioner, depth: u8) -> Self {
        let ranges = halved(partitioner, whole_ring(), depth.min(MOST_EVEN_DEPTH));
        Self { partitioner, leaves: Leaves::of_ranges(ranges) }
    }

    /// An empty tree of at most this many leaves, smaller ones where there are more samples.
    /// Without samples it is even.
    pub(crate) fn by_samples(
        partitioner: Partitioner,
        mut samples: Vec<Token>,
        most_leaves: usize,
    ) -> Self {
        if samples.is_empty() {
            let depth = most_leaves.max(1).ilog2();
            return Self::even(partitioner, depth as u8);
        }
        samples.sort_unstable();
        let count = |left: &Token, right: &Token| {
            let before = |token: &Token| samples.partition_point(|sample| sample <= token);
            let end = if right.is_minimum() { samples.len() } else { before(right) };
            end - before(left)
        };
        // By the number of samples, then by depth: the next one to be halved.
        let mut pieces = BinaryHeap::new();
        let whole = (Token::Minimum, Token::Minimum);
        pieces.push((samples.len(), Reverse(0), whole));
        let mut splits = Vec::new();
        while splits.len() + 1 < most_leaves
            && let Some((samples, Reverse(depth), (left, right))) = pieces.pop()
            && samples > 0
        {
            let Some(middle) = middle(partitioner, &left, &right) else { continue };
            splits.push(middle.clone());
            if depth + 1 < MOST_DEPTH {
                for (left, right) in [(left, middle.clone()), (middle, right)] {
                    pieces.push((count(&left, &right), Reverse(depth + 1), (left, right)));
                }
            }
        }
        splits.sort_unstable();
        Self::of_splits(partitioner, &splits)
    }

    /// An empty tree that is divided at these ascending tokens.
    fn of_splits(partitioner: Partitioner, splits: &[Token]) -> Self {
        Self { partitioner, leaves: Leaves::of_ranges(cut(whole_ring(), splits)) }
    }

    /// A tree with these leaves, and the tokens between them. `None` unless the tokens ascend, none
    /// is the minimum, and there is one leaf more.
    pub(super) fn of_leaves(
        partitioner: Partitioner,
        splits: &[Token],
        hashes: Vec<TreeHash>,
    ) -> Option<Self> {
        let ascends = [Token::Minimum].iter().chain(splits).is_sorted_by(|a, b| a < b);
        let Self { leaves, .. } = Self::of_splits(partitioner, splits);
        let hashes = hashes.into_iter().map(|hash| (hash, GcSpan::default()));
        let leaves = leaves.with_hashes(hashes)?;
        ascends.then_some(Self { partitioner, leaves })
    }

    /// The tokens that end leaves, in order. The last leaf ends with the ring.
    pub(super) fn splits(&self) -> Vec<Token> {
        let ends = self.leaves.0.iter().map(|leaf| leaf.range.end.clone());
        ends.filter(|end| !end.is_minimum()).collect()
    }

    /// The hashes of the leaves, in order.
    pub(super) fn hashes(&self) -> Vec<TreeHash> {
        self.leaves.hashes()
    }

    /// Adds a row. Each is added once; the order does not matter.
    pub(crate) fn add(&mut self, token: &Token, hash: &TreeHash) {
        self.leaves.add(token, Some(hash), GcSpan::default());
    }

    /// The ranges in which two trees differ, within these ranges: as narrow as the leaves of both
    /// allow, in the order of the ring, and as few as possible. One that wraps comes last.
    ///
    /// # Panics
    /// If the trees are of different partitioners.
    pub(crate) fn differences(&self, other: &Self, within: &[TokenRange]) -> Vec<TokenRange> {
        assert_eq!(self.partitioner, other.partitioner, "the tokens of one ring are of one kind");
        let mut found = Vec::new();
        let (mut mine, mut theirs) =
            (self.leaves.0.iter().peekable(), other.leaves.0.iter().peekable());
        let mut start = Token::Minimum;
        // Hashes of the rows after `start`, in both trees.
        let mut sum = [TreeHash::default(); 2];
        while let (Some(my), Some(their)) = (mine.peek().copied(), theirs.peek().copied()) {
            // The minimum as an end comes after all others.
            let order = |end: &Token| (end.is_minimum(), end.clone());
            let (my_order, their_order) = (order(&my.range.end), order(&their.range.end));
            if my_order <= their_order {
                sum[0].combine(&my.hash);
                mine.next();
            }
            if their_order <= my_order {
                sum[1].combine(&their.hash);
                theirs.next();
            }
            if my_order == their_order {
                if sum[0] != sum[1] {
                    found.push(TokenRange { start, end: my.range.end.clone() });
                }
                (start, sum) = (my.range.end.clone(), [TreeHash::default(); 2]);
            }
        }
        around(intersect(&found, &straight(within)))
    }
}

fn lesser_end<'a>(a: &'a Token, b: &'a Token) -> &'a Token {
    if b.is_minimum() || !a.is_minimum() && a < b { a } else { b }
}

/// The intersection of ordered ranges that do not wrap.
fn intersect(a: &[TokenRange], b: &[TokenRange]) -> Vec<TokenRange> {
    let common = |(x, y): (&TokenRange, &TokenRange)| {
        let (start, end) = ((&x.start).max(&y.start), lesser_end(&x.end, &y.end));
        let is_any = end.is_minimum() || start < end;
        is_any.then(|| TokenRange { start: start.clone(), end: end.clone() })
    };
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x, y)));
    merged(pairs.filter_map(common).collect())
}

/// Joins the last range with the first one where the ring closes.
fn around(mut ranges: Vec<TokenRange>) -> Vec<TokenRange> {
    if let [first, .., last] = &mut ranges[..]
        && first.start.is_minimum()
        && last.end.is_minimum()
    {
        last.end = first.end.clone();
        ranges.remove(0);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const RANDOM: Partitioner = Partitioner::Random;

    fn hash(of: u8) -> TreeHash {
        TreeHash::from([of; 32])
    }

    fn all() -> Vec<TokenRange> {
        vec![TokenRange { start: Token::Minimum, end: Token::Minimum }]
    }

    #[test]
    fn ranges_are_halved() {
        let tree = MerkleTree::even(RANDOM, 2);
        let quarter = |i: u128| Token::Random(i << 125);
        assert_eq!(tree.splits(), [quarter(1), quarter(2), quarter(3)]);
        assert_eq!(tree.hashes().len(), 4);
        for partitioner in Partitioner::ALL {
            let tree = MerkleTree::even(partitioner, 10);
            assert_eq!(tree.splits().len(), (1 << 10) - 1, "{partitioner:?}");
            assert!(tree.splits().is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn leaves_are_small_where_the_rows_are() {
        let ordered = Partitioner::OrderPreserving;
        let samples: Vec<Token> = (0..100).map(|i| ordered.token(&[b'a' + i % 26])).collect();
        let tree = MerkleTree::by_samples(ordered, samples.clone(), 64);
        assert_eq!(tree.hashes().len(), 64);
        let splits = tree.splits();
        let leaves = |token: &Token| splits.partition_point(|split| split < token);
        let mut used: Vec<usize> = samples.iter().map(leaves).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), 26, "each letter has a leaf of its own");
        // However many samples are alike, there is an end.
        let same = vec![ordered.token(b"key"); 100];
        assert!(MerkleTree::by_samples(ordered, same, 1 << 15).hashes().len() <= 127);
        assert_eq!(MerkleTree::by_samples(RANDOM, Vec::new(), 32), MerkleTree::even(RANDOM, 5));
    }

    #[test]
    fn differences_reach_over_the_end_of_the_ring() {
        let empty = MerkleTree::even(RANDOM, 2);
        let quarter = |i: u128| Token::Random(i << 125);
        let mut other = empty.clone();
        assert_eq!(other.differences(&empty, &all()), []);
        other.add(&Token::Random(5), &hash(1));
        other.add(&quarter(4), &hash(2));
        let around = TokenRange { start: quarter(3), end: quarter(1) };
        let found = other.differences(&empty, &all());
        assert_eq!(found, std::slice::from_ref(&around));
        assert_eq!(empty.differences(&other, &found), [around]);
        let within = TokenRange { start: Token::Random(3), end: quarter(2) };
        let cut = TokenRange { start: Token::Random(3), end: quarter(1) };
        assert_eq!(empty.differences(&other, &[within]), [cut]);
        assert_eq!(empty.differences(&other, &[]), []);
        other.add(&quarter(2), &hash(2));
        other.add(&quarter(3), &hash(2));
        assert_eq!(other.differences(&empty, &all()), all());
    }

    /// Splits of a ring of so few tokens that all can be looked at.
    fn tree() -> impl Strategy<Value = (MerkleTree, BTreeMap<u8, u8>)> {
        let splits = proptest::collection::btree_set(0u8..16, 0..8);
        (splits, btree_map(0u8..16, 0u8..3, 0..12)).prop_map(|(splits, rows)| {
            let splits: Vec<Token> =
                splits.into_iter().map(|at| Token::Random(at.into())).collect();
            let mut tree = MerkleTree::of_splits(RANDOM, &splits);
            for (at, row) in &rows {
                tree.add(&Token::Random((*at).into()), &hash(1 << row));
            }
            (tree, rows)
        })
    }

    fn range() -> impl Strategy<Value = TokenRange> {
        let token = || proptest::option::of(0u128..16);
        (token(), token()).prop_map(|(start, end)| {
            let token = |at: Option<u128>| at.map_or(Token::Minimum, Token::Random);
            TokenRange { start: token(start), end: token(end) }
        })
    }

    proptest! {
        #[test]
        fn all_that_differs_is_found_and_nothing_outside(
            (mine, my_rows) in tree(),
            (theirs, their_rows) in tree(),
            within in vec(range(), 0..4),
        ) {
            let found = mine.differences(&theirs, &within);
            prop_assert_eq!(&found, &theirs.differences(&mine, &within));
            let has = |ranges: &[TokenRange], at: u8| {
                ranges.iter().filter(|range| range.contains(&Token::Random(at.into()))).count()
            };
            // Ends that both trees have: between these the rows of both are held together.
            let is_end = |at: u8| {
                let token = Token::Random(at.into());
                mine.splits().contains(&token) && theirs.splits().contains(&token)
            };
            let mut from = 0u8;
            for end in (0..16).filter(|&at| is_end(at) || at == 15) {
                let sum = |rows: &BTreeMap<u8, u8>| {
                    let mut sum = TreeHash::default();
                    rows.range(from..=end).for_each(|(_, row)| sum.combine(&hash(1 << row)));
                    sum
                };
                let differs = sum(&my_rows) != sum(&their_rows);
                for at in from..=end {
                    let expected = usize::from(differs && has(&within, at) > 0);
                    prop_assert_eq!(has(&found, at), expected, "{}", at);
                }
                from = end + 1;
            }
            for pair in found.windows(2) {
                prop_assert_ne!(&pair[0].end, &pair[1].start, "neighbours are one range");
            }
        }
    }
}
