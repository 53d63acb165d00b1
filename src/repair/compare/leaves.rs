//! How ranges are divided where replicas compare them: all in the same way.

use super::TreeHash;
use super::ranges::{ends_before, middle, straight};
use crate::ring::{Partitioner, RowRange, Token, TokenRange};
use crate::storage::compaction::GcSpan;
use std::ops::Bound;

/// Most leaves of one comparison, as in 0.6.
pub(super) const MOST_LEAVES: usize = 1 << 15;

/// Most halvings of a range.
pub(super) const MOST_DEPTH: u8 = 15;

/// Division of ranges into leaves, the same on all nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Each range is halved this often: for hashed tokens.
    Even(u8),
    /// At these tokens, which ascend.
    At(Vec<Token>),
}

/// Ranges that do not overlap, in the order of their tokens, each with the hash of its rows. None
/// reaches over the end of the ring: the minimum as an end is that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaves {
    ranges: Vec<TokenRange>,
    hashes: Vec<TreeHash>,
    /// For which times the hashes are right; for none where they are not known.
    spans: Vec<GcSpan>,
}

impl Leaves {
    /// Divides ranges.
    pub(super) fn new(
        partitioner: Partitioner,
        ranges: &[TokenRange],
        shape: &Shape,
    ) -> Result<Self, String> {
        let pieces = straight(ranges);
        let ranges = match shape {
            Shape::Even(depth) => {
                let leaves = u32::from(*depth);
                let leaves =
                    1_usize.checked_shl(leaves).and_then(|it| it.checked_mul(pieces.len()));
                if leaves.is_none_or(|leaves| leaves > MOST_LEAVES.max(pieces.len())) {
                    return Err(format!("more than {MOST_LEAVES} leaves are asked for"));
                }
                pieces.into_iter().flat_map(|piece| halved(partitioner, piece, *depth)).collect()
            }
            Shape::At(tokens) => {
                if tokens.len() > MOST_LEAVES {
                    return Err(format!("more than {MOST_LEAVES} leaves are asked for"));
                }
                if !tokens.is_sorted() {
                    let why = "the tokens at which the ranges are to be divided do not ascend";
                    return Err(why.to_owned());
                }
                pieces.into_iter().flat_map(|piece| cut(piece, tokens)).collect()
            }
        };
        Ok(Self::of_ranges(ranges))
    }

    /// Leaves without rows of ranges that are in order, and reach over no end of the ring.
    pub(crate) fn of_ranges(ranges: Vec<TokenRange>) -> Self {
        let hashes = vec![TreeHash::default(); ranges.len()];
        let spans = vec![GcSpan::default(); ranges.len()];
        Self { ranges, hashes, spans }
    }

    /// The ranges.
    pub(crate) fn ranges(&self) -> &[TokenRange] {
        &self.ranges
    }

    /// The hashes, in the same order.
    pub(crate) fn hashes(&self) -> &[TreeHash] {
        &self.hashes
    }

    /// The times for which they are right, in the same order.
    pub(super) fn spans(&self) -> &[GcSpan] {
        &self.spans
    }

    /// The same ranges with these hashes, of which there is one for each.
    pub(crate) fn with_hashes(self, hashes: Vec<TreeHash>) -> Option<Self> {
        (hashes.len() == self.ranges.len()).then_some(Self { hashes, ..self })
    }

    /// The same with the times for which the hashes are right.
    pub(super) fn with_spans(self, spans: Vec<GcSpan>) -> Option<Self> {
        (spans.len() == self.ranges.len()).then_some(Self { spans, ..self })
    }

    /// Adds a row, if it lies in any. There may be nothing left of it but that it was deleted.
    pub(crate) fn add(&mut self, token: &Token, hash: Option<&TreeHash>, span: GcSpan) {
        let Some(at) = self.leaf_of(token) else { return };
        if let (Some(sum), Some(hash)) = (self.hashes.get_mut(at), hash) {
            sum.combine(hash);
        }
        if let Some(sum) = self.spans.get_mut(at) {
            sum.join(span);
        }
    }

    /// The number of the leaf in which a row lies.
    fn leaf_of(&self, token: &Token) -> Option<usize> {
        let at = self.ranges.partition_point(|range| ends_before(&range.end, token));
        self.ranges.get(at).filter(|range| range.start < *token).map(|_| at)
    }

    /// Whether a row with this token lies in any.
    pub(super) fn contain(&self, token: &Token) -> bool {
        self.leaf_of(token).is_some()
    }

    /// The hash of the leaf of this row is not known any more.
    pub(super) fn lose(&mut self, token: &Token) {
        if let Some(span) = self.leaf_of(token).and_then(|at| self.spans.get_mut(at)) {
            *span = GcSpan::NONE;
        }
    }

    /// Hashes are not known any more that are right for these times.
    pub(super) fn lose_if(&mut self, is_lost: impl Fn(&GcSpan) -> bool) {
        self.spans.iter_mut().filter(|span| is_lost(span)).for_each(|span| *span = GcSpan::NONE);
    }

    /// Empties the leaves that are not right for a time, and tells which these are.
    pub(super) fn empty_unknown(&mut self, gc_before: i32) -> Vec<TokenRange> {
        let mut emptied = Vec::new();
        let sums = self.hashes.iter_mut().zip(&mut self.spans);
        for (range, (hash, span)) in self.ranges.iter().zip(sums) {
            if !span.contains(gc_before) {
                (*hash, *span) = Default::default();
                emptied.push(range.clone());
            }
        }
        emptied
    }

    /// These leaves with hashes made of narrower ones; `None` if some of the others lie across the
    /// bounds of these, or do not cover them.
    pub(super) fn gathered_from(&self, finer: &Self) -> Option<Self> {
        let mut gathered = Self::of_ranges(self.ranges.clone());
        let mut at = 0;
        let sums = gathered.hashes.iter_mut().zip(&mut gathered.spans);
        for (range, (sum, span)) in gathered.ranges.iter().zip(sums) {
            while finer.ranges.get(at)?.start < range.start {
                at += 1;
            }
            let mut reached = &range.start;
            while *reached != range.end || at_beginning(reached, range) {
                let next = finer.ranges.get(at)?;
                let fits = next.start == *reached
                    && !ends_before(&range.end, &next.end)
                    && (range.end.is_minimum() || !next.end.is_minimum());
                if !fits {
                    return None;
                }
                sum.combine(finer.hashes.get(at)?);
                span.join(*finer.spans.get(at)?);
                reached = &next.end;
                at += 1;
                if reached.is_minimum() {
                    break;
                }
            }
        }
        Some(gathered)
    }
}

/// Whether nothing of a range is covered yet that is the whole ring.
fn at_beginning(reached: &Token, range: &TokenRange) -> bool {
    reached.is_minimum() && range.start.is_minimum()
}

/// The ranges in order, those that touch as one: what to scan.
pub(super) fn row_ranges(ranges: &[TokenRange]) -> Vec<RowRange> {
    let bound = |token: &Token, of: fn(Token) -> Bound<Token>| match token {
        Token::Minimum => Bound::Unbounded,
        token => of(token.clone()),
    };
    let row_range = |TokenRange { start, end }: TokenRange| RowRange {
        start: bound(&start, Bound::Excluded),
        end: bound(&end, Bound::Included),
    };
    straight(ranges).into_iter().map(row_range).collect()
}

/// Halves a range this often, as far as it is not too narrow.
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

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    fn even(ranges: &[TokenRange], depth: u8) -> Leaves {
        Leaves::new(Partitioner::Random, ranges, &Shape::Even(depth)).unwrap()
    }

    fn hash(number: u128) -> TreeHash {
        TreeHash::new(&number.to_be_bytes()).unwrap()
    }

    #[test]
    fn ranges_are_halved() {
        let leaves = even(&[range(0, 16), range(16, 20)], 1);
        assert_eq!(leaves.ranges(), [range(0, 10), range(10, 20)], "those that touch are one");
        let leaves = even(&[range(0, 16), range(20, 21)], 2);
        let narrow = [range(0, 4), range(4, 8), range(8, 12), range(12, 16), range(20, 21)];
        assert_eq!(leaves.ranges(), narrow);
    }

    #[test]
    fn a_range_over_the_end_of_the_ring_is_two() {
        let leaves = even(&[range(100, 10)], 0);
        let minimum = || Token::Minimum;
        let first = TokenRange { start: minimum(), end: Token::Random(10) };
        let last = TokenRange { start: Token::Random(100), end: minimum() };
        assert_eq!(leaves.ranges(), [first, last]);
        let ranges = row_ranges(leaves.ranges());
        assert_eq!(ranges[0].start, Bound::Unbounded);
        assert_eq!(ranges[1].end, Bound::Unbounded);
    }

    #[test]
    fn ranges_are_cut_at_tokens() {
        let at = Shape::At([5, 10, 12, 40].map(Token::Random).to_vec());
        let leaves = Leaves::new(Partitioner::Random, &[range(5, 12), range(20, 30)], &at).unwrap();
        assert_eq!(leaves.ranges(), [range(5, 10), range(10, 12), range(20, 30)]);
    }

    #[test]
    fn what_another_node_asks_for_is_bounded() {
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
