//! Ranges of tokens in the order of the ring, as comparisons divide and join them.

use crate::ring::{Partitioner, Token, TokenRange};

/// The token that halves a range; none if the range is too narrow for that.
pub(crate) fn middle(partitioner: Partitioner, left: &Token, right: &Token) -> Option<Token> {
    let middle = partitioner.midpoint(left, right);
    (middle > *left && (right.is_minimum() || middle < *right)).then_some(middle)
}

/// Whether the end of a range, of which the minimum is the end of the ring, lies before a token.
pub(crate) fn ends_before(end: &Token, token: &Token) -> bool {
    !end.is_minimum() && end < token
}

/// The same ranges in order, none of which reaches over the end of the ring or touches another.
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
