//! Ranges of the ring, and the pieces in which they are scanned.

use super::token::Token;
use std::ops::{Bound, RangeBounds};

/// The tokens after `start`, up to and with `end`. Wraps over the end of the ring unless `start` is
/// less than `end`; equal ends are the whole ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TokenRange {
    /// The last token before the range.
    pub start: Token,
    /// The last token of the range.
    pub end: Token,
}

/// The tokens from `start` to `end`, both of them within. Never wraps: the minimum token as `end`
/// is the end of the ring.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyBounds {
    start: Token,
    end: Token,
}

/// The start key of a query sorts after its end key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the start of the range sorts after its end")]
pub struct StartAfterEnd;

/// A range of rows in the order of their tokens, as a store scans it: it does not wrap, and holds
/// no minimum token as a bound that means the end of the ring.
///
/// The start is never an excluded minimum but unbounded, since no row has that token. As
/// [`RangeBounds`] it selects from sorted maps and says whether it contains a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    /// The first bound.
    pub start: Bound<Token>,
    /// The last bound.
    pub end: Bound<Token>,
}

impl TokenRange {
    /// Whether the token lies in the range.
    pub fn contains(&self, token: &Token) -> bool {
        if self.wraps() {
            *token > self.start || *token <= self.end
        } else {
            *token > self.start && *token <= self.end
        }
    }

    /// Whether the range reaches the end of the ring.
    pub fn wraps(&self) -> bool {
        self.start >= self.end
    }

    /// Whether every token lies in it.
    pub fn is_whole_ring(&self) -> bool {
        self.start == self.end
    }

    /// The pieces that do not wrap, in the order of a scan: from `start` upward, then from the
    /// beginning of the ring.
    pub fn row_ranges(&self) -> Vec<RowRange> {
        let start = after(&self.start);
        if self.end.is_minimum() {
            // Only the row of the empty key, which cannot be, would follow.
            return vec![RowRange { start, end: Bound::Unbounded }];
        }
        let end = Bound::Included(self.end.clone());
        if self.wraps() {
            let head = RowRange { start, end: Bound::Unbounded };
            vec![head, RowRange { start: Bound::Unbounded, end }]
        } else {
            vec![RowRange { start, end }]
        }
    }
}

impl KeyBounds {
    /// The bounds of a query by keys, from the tokens of its first and its last key.
    pub fn new(start: Token, end: Token) -> Result<Self, StartAfterEnd> {
        if start > end && !end.is_minimum() {
            return Err(StartAfterEnd);
        }
        Ok(Self { start, end })
    }

    /// Token of the first key.
    pub fn start(&self) -> &Token {
        &self.start
    }

    /// Token of the last key; the minimum for no limit.
    pub fn end(&self) -> &Token {
        &self.end
    }

    /// The rows within.
    pub fn row_range(&self) -> RowRange {
        let bound = |token: &Token| match token {
            Token::Minimum => Bound::Unbounded,
            token => Bound::Included(token.clone()),
        };
        RowRange { start: bound(&self.start), end: bound(&self.end) }
    }
}

impl RowRange {
    /// All rows.
    pub fn all() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// Cuts the range after each of these tokens that lies in it. The tokens are sorted; the pieces
    /// come out in order and together are the range. The minimum cuts nothing off.
    pub fn split_after<'a>(&self, tokens: impl IntoIterator<Item = &'a Token>) -> Vec<Self> {
        let mut pieces = Vec::new();
        let mut rest = self.clone();
        for token in tokens {
            let is_end = rest.end.as_ref() == Bound::Included(token);
            if token.is_minimum() || is_end || !rest.contains(token) {
                continue;
            }
            let end = Bound::Included(token.clone());
            pieces.push(Self { start: rest.start, end });
            rest.start = after(token);
        }
        pieces.push(rest);
        pieces
    }

    /// The token at which the range ends: the minimum if it runs to the end of the ring. Its
    /// replicas hold all of the range, if no node's token lies further inside.
    pub fn right_token(&self) -> &Token {
        match &self.end {
            Bound::Included(token) | Bound::Excluded(token) => token,
            Bound::Unbounded => &Token::Minimum,
        }
    }
}

impl RangeBounds<Token> for RowRange {
    fn start_bound(&self) -> Bound<&Token> {
        self.start.as_ref()
    }

    fn end_bound(&self) -> Bound<&Token> {
        self.end.as_ref()
    }
}

/// The bound before the tokens after this one.
fn after(token: &Token) -> Bound<Token> {
    match token {
        Token::Minimum => Bound::Unbounded,
        token => Bound::Excluded(token.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    const SIZE: u128 = 8;

    /// -1 is the minimum.
    fn token(place: i8) -> Token {
        if place < 0 { Token::Minimum } else { Token::Random(place as u128) }
    }

    /// All tokens that a row can have, on a very small ring.
    fn ring() -> impl Iterator<Item = Token> {
        (0..SIZE).map(Token::Random)
    }

    fn scan(ranges: &[RowRange]) -> Vec<Token> {
        ranges.iter().flat_map(|range| ring().filter(|token| range.contains(token))).collect()
    }

    #[test]
    fn a_range_to_the_minimum_is_one_piece() {
        let range = TokenRange { start: token(3), end: Token::Minimum };
        let expected = RowRange { start: Bound::Excluded(token(3)), end: Bound::Unbounded };
        assert_eq!(range.row_ranges(), [expected]);
        let ring = TokenRange { start: Token::Minimum, end: Token::Minimum };
        assert_eq!(ring.row_ranges(), [RowRange::all()]);
    }

    #[test]
    fn bounds_by_keys_do_not_wrap() {
        assert_eq!(KeyBounds::new(token(4), token(3)), Err(StartAfterEnd));
        let tail = KeyBounds::new(token(6), Token::Minimum).unwrap();
        assert_eq!(scan(&[tail.row_range()]), [token(6), token(7)]);
        let one = KeyBounds::new(token(6), token(6)).unwrap();
        assert_eq!(scan(&[one.row_range()]), [token(6)]);
        let all = KeyBounds::new(Token::Minimum, Token::Minimum).unwrap();
        assert_eq!(all.row_range(), RowRange::all());
    }

    proptest! {
        /// The model walks around the ring, token by token.
        #[test]
        fn pieces_are_a_walk_from_start_to_end(start in -1..8i8, end in -1..8i8) {
            let range = TokenRange { start: token(start), end: token(end) };
            let mut walk = Vec::new();
            let mut place = start;
            loop {
                place = if place == 7 { -1 } else { place + 1 };
                if place >= 0 {
                    walk.push(token(place));
                }
                if place == end {
                    break;
                }
            }
            prop_assert_eq!(scan(&range.row_ranges()), walk.clone());
            for token in ring() {
                prop_assert_eq!(range.contains(&token), walk.contains(&token));
            }
        }

        #[test]
        fn a_split_range_is_the_same_range(
            start in -1..8i8,
            end in -1..8i8,
            by_keys: bool,
            cuts in btree_set(-1..8i8, 0..5),
        ) {
            let cuts: Vec<Token> = cuts.into_iter().map(token).collect();
            let whole = match KeyBounds::new(token(start), token(end)) {
                Ok(bounds) if by_keys => vec![bounds.row_range()],
                _ => TokenRange { start: token(start), end: token(end) }.row_ranges(),
            };
            for range in whole {
                let pieces = range.split_after(&cuts);
                prop_assert_eq!(scan(&pieces), scan(std::slice::from_ref(&range)));
                let last = pieces.len() - 1;
                for (place, piece) in pieces.into_iter().enumerate() {
                    prop_assert!(place == last || ring().any(|token| piece.contains(&token)));
                    let mut inside = cuts.iter().filter(|cut| piece.contains(*cut));
                    prop_assert!(inside.all(|cut| cut.is_minimum() || cut == piece.right_token()));
                }
            }
        }
    }
}
