//! Division of ranges into leaves, where replicas compare them, and the hashes of leaves.

use crate::ring::{Partitioner, RowRange, Token, TokenRange};
use crate::storage::compaction::GcSpan;
use std::fmt;

/// Most leaves of one comparison, as in 0.6.
pub(super) const MOST_LEAVES: usize = 1 << 15;

/// Most halvings of a range.
pub(super) const MOST_DEPTH: u8 = 15;

/// Most bytes of a hash: those of SHA-256.
const MOST_HASH_BYTES: usize = 32;

/// The hash of the rows of a range: empty without rows, else usually 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TreeHash {
    length: u8,
    /// Zeroes after the length.
    bytes: [u8; MOST_HASH_BYTES],
}

impl TreeHash {
    /// A hash of these bytes; `None` if there are more than 32.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let mut hash = Self { length: u8::try_from(bytes.len()).ok()?, ..Self::default() };
        hash.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(hash)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length).min(MOST_HASH_BYTES)]
    }

    /// Adds the rows of another range, or takes them out again. The longer hash keeps its end, as
    /// in 0.6.
    pub(crate) fn combine(&mut self, other: &Self) {
        self.length = self.length.max(other.length);
        for (byte, other) in self.bytes.iter_mut().zip(other.bytes) {
            *byte ^= other;
        }
    }
}

impl From<[u8; MOST_HASH_BYTES]> for TreeHash {
    fn from(bytes: [u8; MOST_HASH_BYTES]) -> Self {
        Self { length: MOST_HASH_BYTES as u8, bytes }
    }
}

impl fmt::Debug for TreeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Division of ranges into leaves, the same on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each range is halved this often: for hashed tokens.
    Even(u8),
    /// Ranges are cut at these ascending tokens.
    At(Vec<Token>),
}

/// A range that does not wrap, with the hash of its rows. The minimum as its end is the end of the
/// ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) range: TokenRange,
    pub(crate) hash: TreeHash,
    /// Times for which the hash is valid; none if it is not known.
    pub(crate) span: GcSpan,
}

/// Leaves that do not overlap, in the order of their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaves(pub(crate) Vec<Leaf>);

impl Leaves {
    /// Divides ranges into leaves without rows.
    pub(super) fn new(
        partitioner: Partitioner,
        ranges: &[TokenRange],
        shape: &Shape,
    ) -> Result<Self, String> {
        let pieces = straight(ranges);
        let too_many = || format!("more than {MOST_LEAVES} leaves are asked for");
        let ranges = match shape {
            Shape::Even(depth) => {
                let leaves = 1_usize.checked_shl(u32::from(*depth));
                let leaves = leaves.and_then(|it| it.checked_mul(pieces.len()));
                if leaves.is_none_or(|leaves| leaves > MOST_LEAVES.max(pieces.len())) {
                    return Err(too_many());
                }
                pieces.into_iter().flat_map(|piece| halved(partitioner, piece, *depth)).collect()
            }
            Shape::At(tokens) if tokens.len() > MOST_LEAVES => return Err(too_many()),
            Shape::At(tokens) if !tokens.is_sorted() => {
                let why = "the tokens at which the ranges are to be divided do not ascend";
                return Err(why.to_owned());
            }
            Shape::At(tokens) => pieces.into_iter().flat_map(|it| cut(it, tokens)).collect(),
        };
        Ok(Self::of_ranges(ranges))
    }

    /// Leaves without rows, of ordered ranges that do not wrap.
    pub(crate) fn of_ranges(ranges: Vec<TokenRange>) -> Self {
        let (hash, span) = Default::default();
        Self(ranges.into_iter().map(|range| Leaf { range, hash, span }).collect())
    }

    pub(crate) fn hashes(&self) -> Vec<TreeHash> {
        self.0.iter().map(|leaf| leaf.hash).collect()
    }

    /// The same ranges with these hashes; `None` if their numbers differ.
    pub(crate) fn with_hashes(
        mut self,
        hashes: impl ExactSizeIterator<Item = (TreeHash, GcSpan)>,
    ) -> Option<Self> {
        if hashes.len() != self.0.len() {
            return None;
        }
        for (leaf, (hash, span)) in self.0.iter_mut().zip(hashes) {
            (leaf.hash, leaf.span) = (hash, span);
        }
        Some(self)
    }

    /// Adds a row to its leaf, if there is one. Of a row there may be nothing left but its
    /// deletion.
    pub(crate) fn add(&mut self, token: &Token, hash: Option<&TreeHash>, span: GcSpan) {
        let Some(at) = self.leaf_of(token) else { return };
        let leaf = &mut self.0[at];
        if let Some(hash) = hash {
            leaf.hash.combine(hash);
        }
        leaf.span.join(span);
    }

    /// Index of the leaf of a row.
    pub(super) fn leaf_of(&self, token: &Token) -> Option<usize> {
        let at = self.0.partition_point(|leaf| ends_before(&leaf.range.end, token));
        self.0.get(at).filter(|leaf| leaf.range.start < *token).map(|_| at)
    }

    /// Invalidates the hash of the leaf of a row.
    pub(super) fn lose(&mut self, token: &Token) {
        if let Some(at) = self.leaf_of(token) {
            self.0[at].span = GcSpan::NONE;
        }
    }

    /// Invalidates hashes by their times of validity.
    pub(super) fn lose_if(&mut self, is_lost: impl Fn(&GcSpan) -> bool) {
        for leaf in self.0.iter_mut().filter(|leaf| is_lost(&leaf.span)) {
            leaf.span = GcSpan::NONE;
        }
    }

    /// Empties the leaves whose hashes are not valid at a time. Returns their ranges.
    pub(super) fn empty_unknown(&mut self, gc_before: i32) -> Vec<TokenRange> {
        let unknown = self.0.iter_mut().filter(|leaf| !leaf.span.contains(gc_before));
        let empty = |leaf: &mut Leaf| {
            (leaf.hash, leaf.span) = Default::default();
            leaf.range.clone()
        };
        unknown.map(empty).collect()
    }

    /// These leaves with hashes combined from narrower ones; `None` if one of the others crosses
    /// the bounds of these, or if they do not cover them.
    pub(super) fn gathered_from(&self, finer: &Self) -> Option<Self> {
        let mut gathered = Self::of_ranges(self.0.iter().map(|leaf| leaf.range.clone()).collect());
        for Leaf { range, hash, span } in &mut gathered.0 {
            let first = finer.0.partition_point(|leaf| leaf.range.start < range.start);
            let mut rest = finer.0[first..].iter();
            let mut reached = &range.start;
            loop {
                let next = rest.next()?;
                let end = &next.range.end;
                let is_within =
                    !ends_before(&range.end, end) && (range.end.is_minimum() || !end.is_minimum());
                if next.range.start != *reached || !is_within {
                    return None;
                }
                hash.combine(&next.hash);
                span.join(next.span);
                reached = end;
                if *reached == range.end {
                    break;
                }
            }
        }
        Some(gathered)
    }
}

/// The ranges to scan, in order.
pub(crate) fn row_ranges(ranges: &[TokenRange]) -> Vec<RowRange> {
    straight(ranges).iter().flat_map(TokenRange::row_ranges).collect()
}

/// The token that halves a range; `None` if the range is too narrow.
pub(crate) fn middle(partitioner: Partitioner, left: &Token, right: &Token) -> Option<Token> {
    let middle = partitioner.midpoint(left, right);
    (middle > *left && (right.is_minimum() || middle < *right)).then_some(middle)
}

/// Whether the end of a range lies before a token. The minimum is the end of the ring.
fn ends_before(end: &Token, token: &Token) -> bool {
    !end.is_minimum() && end < token
}

/// The same ranges in order. None of the result wraps or touches another.
pub(crate) fn straight(ranges: &[TokenRange]) -> Vec<TokenRange> {
    let mut pieces: Vec<TokenRange> = Vec::new();
    for range in ranges {
        let TokenRange { start, end } = range.clone();
        if range.wraps() && !end.is_minimum() {
            pieces.push(TokenRange { start: Token::Minimum, end });
            pieces.push(TokenRange { start, end: Token::Minimum });
        } else {
            pieces.push(TokenRange { start, end });
        }
    }
    pieces.sort_by(|a, b| a.start.cmp(&b.start));
    merged(pieces)
}

/// Joins ranges that touch. They are in the order of their starts.
pub(crate) fn merged(pieces: Vec<TokenRange>) -> Vec<TokenRange> {
    let mut joined: Vec<TokenRange> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last) if !ends_before(&last.end, &piece.start) => {
                if ends_before(&last.end, &piece.end) || piece.end.is_minimum() {
                    last.end = piece.end;
                }
            }
            _ => joined.push(piece),
        }
    }
    joined
}

/// Halves a range this often, unless it gets too narrow.
pub(crate) fn halved(partitioner: Partitioner, range: TokenRange, depth: u8) -> Vec<TokenRange> {
    let mut pieces = vec![range];
    for _ in 0..depth {
        let mut halves = Vec::with_capacity(2 * pieces.len());
        for TokenRange { start, end } in pieces {
            match middle(partitioner, &start, &end) {
                Some(middle) => {
                    halves.push(TokenRange { start, end: middle.clone() });
                    halves.push(TokenRange { start: middle, end });
                }
                None => halves.push(TokenRange { start, end }),
            }
        }
        pieces = halves;
    }
    pieces
}

/// Cuts a range after those of these tokens that lie in it.
pub(crate) fn cut(range: TokenRange, tokens: &[Token]) -> Vec<TokenRange> {
    let TokenRange { mut start, end } = range;
    let mut pieces = Vec::new();
    for token in &tokens[tokens.partition_point(|token| *token <= start)..] {
        if !end.is_minimum() && *token >= end {
            break;
        }
        if *token > start {
            pieces.push(TokenRange { start, end: token.clone() });
            start = token.clone();
        }
    }
    pieces.push(TokenRange { start, end });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::Bound;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn ranges(leaves: &Leaves) -> Vec<TokenRange> {
        leaves.0.iter().map(|leaf| leaf.range.clone()).collect()
    }

    fn even(ranges: &[TokenRange], depth: u8) -> Leaves {
        Leaves::new(Partitioner::Random, ranges, &Shape::Even(depth)).unwrap()
    }

    fn hash(number: u128) -> TreeHash {
        TreeHash::new(&number.to_be_bytes()).unwrap()
    }

    #[test]
    fn hashes_combine_as_in_0_6() {
        let hash = |bytes: &[u8]| TreeHash::new(bytes).unwrap();
        let mut sum = TreeHash::default();
        sum.combine(&hash(&[1, 2]));
        assert_eq!(sum, hash(&[1, 2]));
        sum.combine(&hash(&[3, 3, 3, 3]));
        assert_eq!(sum, hash(&[2, 1, 3, 3]));
        assert_eq!(TreeHash::new(&[0; 33]), None);
        assert_eq!(TreeHash::new(&[7; 32]), Some(TreeHash::from([7; 32])));
    }

    #[test]
    fn ranges_are_halved() {
        let leaves = even(&[range(0, 16), range(16, 20)], 1);
        assert_eq!(ranges(&leaves), [range(0, 10), range(10, 20)], "those that touch are one");
        let leaves = even(&[range(0, 16), range(20, 21)], 2);
        let narrow = [range(0, 4), range(4, 8), range(8, 12), range(12, 16), range(20, 21)];
        assert_eq!(ranges(&leaves), narrow);
    }

    #[test]
    fn a_range_over_the_end_of_the_ring_is_two() {
        let leaves = even(&[range(100, 10)], 0);
        let minimum = || Token::Minimum;
        let first = TokenRange { start: minimum(), end: Token::Random(10) };
        let last = TokenRange { start: Token::Random(100), end: minimum() };
        assert_eq!(ranges(&leaves), [first, last]);
        let scanned = row_ranges(&ranges(&leaves));
        assert_eq!(scanned[0].start, Bound::Unbounded);
        assert_eq!(scanned[1].end, Bound::Unbounded);
    }

    #[test]
    fn ranges_are_cut_at_tokens() {
        let at = Shape::At([5, 10, 12, 40].map(Token::Random).to_vec());
        let leaves = Leaves::new(Partitioner::Random, &[range(5, 12), range(20, 30)], &at).unwrap();
        assert_eq!(ranges(&leaves), [range(5, 10), range(10, 12), range(20, 30)]);
    }

    #[test]
    fn requested_divisions_are_bounded() {
        for shape in
            [Shape::Even(16), Shape::Even(255), Shape::At([2, 1].map(Token::Random).to_vec())]
        {
            Leaves::new(Partitioner::Random, &[range(1, 2)], &shape).unwrap_err();
        }
    }

    #[test]
    fn rows_outside_are_in_no_leaf() {
        let mut leaves = even(&[range(10, 20), range(30, 40)], 0);
        for token in [10, 11, 20, 21, 30, 40, 41] {
            leaves.add(&Token::Random(token), Some(&hash(1 << token)), GcSpan::default());
        }
        assert_eq!(leaves.hashes(), [hash((1 << 11) | (1 << 20)), hash(1 << 40)]);
    }

    proptest! {
        #[test]
        fn wider_leaves_are_gathered_from_narrower_ones(
            bounds in prop::collection::btree_set(0_u128..1000, 2..6),
            tokens in prop::collection::vec(0_u128..1000, 0..50),
            (wide, narrow) in (0_u8..6, 0_u8..6),
            wraps: bool,
        ) {
            let bounds: Vec<u128> = bounds.into_iter().collect();
            let mut ranges: Vec<_> = bounds.chunks_exact(2).map(|it| range(it[0], it[1])).collect();
            if wraps {
                ranges = vec![range(bounds[1], bounds[0])];
            }
            let [mut wide_leaves, mut narrow_leaves] = [wide, narrow].map(|it| even(&ranges, it));
            let empty = wide_leaves.clone();
            for token in tokens {
                for leaves in [&mut wide_leaves, &mut narrow_leaves] {
                    let span = GcSpan { latest_dropped: token as i32, ..GcSpan::default() };
                    leaves.add(&Token::Random(token), Some(&hash(token)), span);
                }
            }
            match empty.gathered_from(&narrow_leaves) {
                Some(gathered) => prop_assert_eq!(gathered, wide_leaves),
                None => prop_assert!(narrow < wide),
            }
        }
    }
}
