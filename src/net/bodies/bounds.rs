//! Which rows a RANGE_SLICE asks for.
//!
//! ```text
//! i32   0: without the left token, 1: with it; the right token is always within
//! BYTES left token, BYTES right token
//! ```
//!
//! The minimum token on the right stands for the end of the ring. A node of 0.6 answers nothing if
//! the range wraps otherwise.

use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter};
use crate::ring::{KeyBounds, Partitioner, RowRange, Token, TokenRange};
use std::ops::Bound;

const RANGE: i32 = 0;
const BOUNDS: i32 = 1;

pub(super) fn put_bounds(
    out: &mut Vec<u8>,
    range: &RowRange,
    partitioner: Partitioner,
) -> Result<(), EncodeError> {
    let (form, left) = match &range.start {
        Bound::Unbounded => (BOUNDS, &Token::Minimum),
        Bound::Included(token) => (BOUNDS, token),
        Bound::Excluded(token) => (RANGE, token),
    };
    let right = match &range.end {
        Bound::Unbounded => &Token::Minimum,
        Bound::Included(token) if token.is_minimum() => return Err(EncodeError::Range),
        Bound::Included(token) => token,
        Bound::Excluded(_) => return Err(EncodeError::Range),
    };
    // Two equal ends without the left one would be the whole ring.
    let is_empty = left > right || form == RANGE && left == right;
    if is_empty && !right.is_minimum() {
        return Err(EncodeError::Range);
    }
    out.extend_from_slice(&form.to_be_bytes());
    out.put_bytes(&partitioner.token_to_bytes(left));
    out.put_bytes(&partitioner.token_to_bytes(right));
    Ok(())
}

pub(super) fn read_bounds(
    reader: &mut ByteReader<'_>,
    partitioner: Partitioner,
) -> Result<RowRange, BodyError> {
    let at = reader.position();
    let form = reader.i32()?;
    let start = partitioner.token_from_bytes(reader.bytes()?)?;
    let end = partitioner.token_from_bytes(reader.bytes()?)?;
    // Up to 0.6.8 the minimum of `RandomPartitioner` was 0, which no key has.
    let is_empty = if form == RANGE { start >= end } else { start > end };
    let is_old_minimum = end == Token::Random(0) && is_empty;
    let end = if is_old_minimum { Token::Minimum } else { end };
    match form {
        RANGE => {
            let range = TokenRange { start, end };
            if range.wraps() && !range.end.is_minimum() {
                return Err(BodyError::RangeWraps);
            }
            range.row_ranges().pop().ok_or(BodyError::RangeWraps)
        }
        BOUNDS => {
            let bounds = KeyBounds::new(start, end).map_err(|_| BodyError::RangeWraps)?;
            Ok(bounds.row_range())
        }
        _ => Err(BodyError::Malformed(at)),
    }
}
