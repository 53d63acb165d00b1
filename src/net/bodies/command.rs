//! READ and RANGE_SLICE: requests for a slice of one row, or of each row of a range.
//!
//! ```text
//! READ
//!   u8    1: by names, 2: a range of columns
//!   BOOL  only the digest
//!   UTF   keyspace, UTF row key, UTF column family
//!   NAME  super column, or empty
//!   NAME  always empty
//!   by names: i32 count, count × NAME
//!   range:    NAME start, NAME finish, BOOL reversed, i32 limit
//!
//! RANGE_SLICE
//!   UTF   keyspace, UTF column family
//!   BYTES super column, or none
//!   BYTES SlicePredicate of the Thrift interface, in the binary protocol without a message:
//!             names:  0f 0001 0b, i32 count, count × BYTES, 00
//!             range:  0c 0002, [0b 0001 BYTES start] [0b 0002 BYTES finish]
//!                     [02 0003 BOOL reversed] [08 0004 i32 limit], 00 00
//!   BOUNDS
//!   i32   most rows
//!
//! BOUNDS
//!   i32   0: without the left token, 1: with it; the right token is always within
//!   BYTES left token, BYTES right token
//! ```
//!
//! The range of a predicate counts if names are there as well. The minimum token on the right
//! stands for the end of the ring; a node of 0.6 answers nothing if the range wraps otherwise.
//!
//! Up to 0.6.8 the minimum token of `RandomPartitioner` is 0, later it is -1. No key has either. So
//! this server sends neither of them as the right token, and takes both for the end of the ring.

use super::body::{put_family_name, put_key, read_family_name};
use super::error::{BodyError, EncodeError};
use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::comparator::Comparator;
use crate::model::key::RowKey;
use crate::model::mutation::DecodeError;
use crate::model::original_mutation::{check_end, family_named, read_key};
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::model::slice::Slice;
use crate::ring::{KeyBounds, Partitioner, RowRange, Token, TokenRange};
use std::cmp::Ordering;
use std::ops::Bound;

const BY_NAMES: u8 = 1;
const BY_RANGE: u8 = 2;

/// Asks a replica for a slice of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadCommand {
    /// The column family.
    pub family: FamilyId,
    /// The row.
    pub key: RowKey,
    /// Which columns.
    pub slice: Slice,
    /// Whether the digest of the answer is enough.
    pub digest_only: bool,
}

impl ReadCommand {
    /// The body that [`ReadCommand::decode`] reads.
    pub fn encode(&self, schema: &Schema) -> Result<Vec<u8>, EncodeError> {
        let family = schema.family(self.family);
        let mut out = Vec::with_capacity(96);
        out.push(if self.slice.asked_names().is_some() { BY_NAMES } else { BY_RANGE });
        out.push(u8::from(self.digest_only));
        out.put_utf(family.keyspace.as_bytes())?;
        put_key(&mut out, &self.key)?;
        out.put_utf(family.name.as_bytes())?;
        out.put_prefixed(self.slice.super_name().unwrap_or_default());
        out.put_prefixed(b"");
        if let Some(names) = self.slice.asked_names() {
            out.extend_from_slice(&(names.len() as u32).to_be_bytes());
            for name in names {
                out.put_prefixed(name);
            }
        } else if let Some((start, finish)) = self.slice.bounds() {
            out.put_prefixed(start);
            out.put_prefixed(finish);
            out.push(u8::from(self.slice.is_reversed()));
            out.extend_from_slice(&limit_to_wire(self.slice.limit()).to_be_bytes());
        }
        Ok(out)
    }

    /// Reads a command, which then may be executed as it is.
    pub fn decode(body: &[u8], schema: &Schema) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let form = reader.u8()?;
        let digest_only = reader.bool()?;
        let keyspace = reader.utf()?;
        let key = read_key(&mut reader)?;
        let name = reader.utf()?;
        let family = family_named(schema, &keyspace, &name)?;
        let parent = Parent::new(schema.family(family), reader.prefixed()?)?;
        let at = reader.position();
        if !reader.prefixed()?.is_empty() {
            return Err(BodyError::Malformed(at));
        }
        let slice = match form {
            BY_NAMES => read_names(&mut reader, parent)?,
            BY_RANGE => read_range(&mut reader, parent)?,
            _ => return Err(BodyError::Malformed(0)),
        };
        check_end(&reader)?;
        Ok(Self { family, key, slice, digest_only })
    }
}

fn read_names(reader: &mut ByteReader<'_>, parent: Parent<'_>) -> Result<Slice, BodyError> {
    let count = count_names(reader, 2)?;
    let names = (0..count).map(|_| reader.prefixed()).collect::<Result<Vec<_>, _>>()?;
    parent.names(&names)
}

fn read_range(reader: &mut ByteReader<'_>, parent: Parent<'_>) -> Result<Slice, BodyError> {
    let (start, finish, reversed) = (reader.prefixed()?, reader.prefixed()?, reader.bool()?);
    let at = reader.position();
    let limit = limit_from_wire(reader.i32()?).ok_or(BodyError::Malformed(at))?;
    parent.range(WireRange { start, finish, reversed, limit })
}

/// Asks a replica for a slice of each row of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeCommand {
    /// The column family.
    pub family: FamilyId,
    /// Which columns of each row.
    pub slice: Slice,
    /// Which rows. A range that no node's token lies inside of.
    pub range: RowRange,
    /// Most rows of the answer, whether or not anything of them is visible.
    pub max_rows: usize,
}

impl RangeCommand {
    /// The body that [`RangeCommand::decode`] reads.
    pub fn encode(
        &self,
        schema: &Schema,
        partitioner: Partitioner,
    ) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::with_capacity(160);
        put_family_name(&mut out, self.family, schema)?;
        out.put_bytes(self.slice.super_name().unwrap_or_default());
        out.put_bytes(&predicate(&self.slice));
        put_bounds(&mut out, &self.range, partitioner)?;
        out.extend_from_slice(&limit_to_wire(self.max_rows).to_be_bytes());
        Ok(out)
    }

    /// Reads a command, which then may be executed as it is.
    pub fn decode(
        body: &[u8],
        schema: &Schema,
        partitioner: Partitioner,
    ) -> Result<Self, BodyError> {
        let mut reader = ByteReader::new(body);
        let family = read_family_name(&mut reader, schema)?;
        let parent = Parent::new(schema.family(family), reader.bytes()?)?;
        let slice = read_predicate(reader.bytes()?, parent)?;
        let range = read_bounds(&mut reader, partitioner)?;
        let at = reader.position();
        let max_rows = limit_from_wire(reader.i32()?).ok_or(BodyError::Malformed(at))?;
        check_end(&reader)?;
        Ok(Self { family, slice, range, max_rows })
    }
}

/// The number that is sent for a limit; the largest one means no limit.
fn limit_to_wire(limit: usize) -> i32 {
    i32::try_from(limit).unwrap_or(i32::MAX)
}

/// The limit that was sent; `None` for a negative one.
fn limit_from_wire(limit: i32) -> Option<usize> {
    if limit == i32::MAX { Some(usize::MAX) } else { usize::try_from(limit).ok() }
}

/// Most names of one command: a name takes several times its bytes in memory.
const MAX_NAMES: usize = 1 << 22;

/// Reads the number of names, each of which takes at least `least` bytes.
fn count_names(reader: &mut ByteReader<'_>, least: usize) -> Result<usize, Malformed> {
    reader.count_at_most(least, MAX_NAMES)
}

/// Parent of the columns of a slice: a row or a super column.
#[derive(Debug, Clone, Copy)]
struct Parent<'a> {
    family: &'a ColumnFamilySchema,
    super_name: Option<&'a [u8]>,
}

/// Start, finish, order and limit as they were sent.
#[derive(Debug, Clone, Copy)]
struct WireRange<'a> {
    start: &'a [u8],
    finish: &'a [u8],
    reversed: bool,
    limit: usize,
}

impl<'a> Parent<'a> {
    /// An empty name stands for no super column.
    fn new(family: &'a ColumnFamilySchema, super_name: &'a [u8]) -> Result<Self, BodyError> {
        if super_name.is_empty() {
            return Ok(Self { family, super_name: None });
        }
        if !family.is_super() || !family.comparator().can_sort(super_name) {
            return Err(DecodeError::name(family, None, super_name).into());
        }
        Ok(Self { family, super_name: Some(super_name) })
    }

    fn comparator(self) -> &'a Comparator {
        let columns = self.super_name.and_then(|_| self.family.subcolumn_comparator());
        columns.unwrap_or(self.family.comparator())
    }

    fn check(self, name: &[u8], may_be_empty: bool) -> Result<(), BodyError> {
        if name.is_empty() && !may_be_empty || !self.comparator().can_sort(name) {
            return Err(DecodeError::name(self.family, self.super_name, name).into());
        }
        Ok(())
    }

    /// The columns of these names.
    fn names(self, names: &[&[u8]]) -> Result<Slice, BodyError> {
        names.iter().try_for_each(|name| self.check(name, false))?;
        Ok(Slice::names(self.family, self.super_name, names.iter().copied()))
    }

    /// The columns of this range.
    fn range(self, range: WireRange<'_>) -> Result<Slice, BodyError> {
        let WireRange { start, finish, reversed, limit } = range;
        self.check(start, true)?;
        self.check(finish, true)?;
        let (least, greatest) = if reversed { (finish, start) } else { (start, finish) };
        let is_open = least.is_empty() || greatest.is_empty();
        if !is_open && self.comparator().compare(least, greatest) == Ordering::Greater {
            return Err(BodyError::EmptySlice { family: self.family.to_string() });
        }
        Ok(Slice::range(self.super_name, start, finish, reversed, limit))
    }
}

const STOP: u8 = 0x00;
const BOOL: u8 = 0x02;
const I32: u8 = 0x08;
const STRING: u8 = 0x0b;
const STRUCT: u8 = 0x0c;
const LIST: u8 = 0x0f;

/// The bytes that [`read_predicate`] reads.
fn predicate(slice: &Slice) -> Vec<u8> {
    let mut out = Vec::with_capacity(48);
    if let Some(names) = slice.asked_names() {
        put_field(&mut out, LIST, 1);
        out.push(STRING);
        out.extend_from_slice(&(names.len() as u32).to_be_bytes());
        for name in names {
            out.put_bytes(name);
        }
    } else if let Some((start, finish)) = slice.bounds() {
        put_field(&mut out, STRUCT, 2);
        put_field(&mut out, STRING, 1);
        out.put_bytes(start);
        put_field(&mut out, STRING, 2);
        out.put_bytes(finish);
        put_field(&mut out, BOOL, 3);
        out.push(u8::from(slice.is_reversed()));
        put_field(&mut out, I32, 4);
        out.extend_from_slice(&limit_to_wire(slice.limit()).to_be_bytes());
        out.push(STOP);
    }
    out.push(STOP);
    out
}

fn put_field(out: &mut Vec<u8>, kind: u8, id: u8) {
    out.extend_from_slice(&[kind, 0, id]);
}

/// Type and number of the next field; `None` at the end of the struct.
fn read_field(reader: &mut ByteReader<'_>) -> Result<Option<(u8, u16)>, Malformed> {
    match reader.u8()? {
        STOP => Ok(None),
        kind => Ok(Some((kind, reader.u16()?))),
    }
}

/// Reads the struct. The interface of 0.6 is all there is: fields that it does not have are
/// malformed, so that nothing has to be skipped.
fn read_predicate(bytes: &[u8], parent: Parent<'_>) -> Result<Slice, BodyError> {
    let mut reader = ByteReader::new(bytes);
    let (mut names, mut range) = (None, None);
    loop {
        let at = reader.position();
        match read_field(&mut reader)? {
            None => break,
            Some((LIST, 1)) => names = Some(read_field_names(&mut reader)?),
            Some((STRUCT, 2)) => range = Some(read_range_fields(&mut reader)?),
            Some(_) => return Err(BodyError::Malformed(at)),
        }
    }
    match (range, names) {
        (Some(range), _) => parent.range(range),
        (None, Some(names)) => parent.names(&names),
        (None, None) => Err(BodyError::Malformed(0)),
    }
}

fn read_field_names<'a>(reader: &mut ByteReader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
    let at = reader.position();
    if reader.u8()? != STRING {
        return Err(Malformed(at));
    }
    let count = count_names(reader, 4)?;
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        names.push(read_name(reader)?);
    }
    Ok(names)
}

fn read_range_fields<'a>(reader: &mut ByteReader<'a>) -> Result<WireRange<'a>, Malformed> {
    // The limit has a default in the interface; the others are required there.
    let mut range = WireRange { start: b"", finish: b"", reversed: false, limit: 100 };
    loop {
        let at = reader.position();
        match read_field(reader)? {
            None => return Ok(range),
            Some((STRING, 1)) => range.start = read_name(reader)?,
            Some((STRING, 2)) => range.finish = read_name(reader)?,
            Some((BOOL, 3)) => range.reversed = reader.bool()?,
            Some((I32, 4)) => range.limit = limit_from_wire(reader.i32()?).ok_or(Malformed(at))?,
            Some(_) => return Err(Malformed(at)),
        }
    }
}

/// A name is never longer than a cell can have.
fn read_name<'a>(reader: &mut ByteReader<'a>) -> Result<&'a [u8], Malformed> {
    let at = reader.position();
    let name = reader.bytes()?;
    if name.len() > usize::from(u16::MAX) { Err(Malformed(at)) } else { Ok(name) }
}

const RANGE: i32 = 0;
const BOUNDS: i32 = 1;

/// The greatest token of a key under `RandomPartitioner`.
const LAST_RANDOM: Token = Token::Random(1 << 127);

/// A token that no key has, and that means nothing else to any release.
const NO_KEY: Token = Token::Random((1 << 127) + 1);

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
    let is_random = partitioner == Partitioner::Random;
    let right = match &range.end {
        Bound::Unbounded if is_random => &LAST_RANDOM,
        Bound::Unbounded => &Token::Minimum,
        Bound::Included(token) if token.is_minimum() => return Err(EncodeError::Range),
        Bound::Included(token) => token,
        Bound::Excluded(_) => return Err(EncodeError::Range),
    };
    // Two equal ends without the left one would be the whole ring.
    let is_empty = left > right || form == RANGE && left == right;
    if is_empty && range.end != Bound::Unbounded {
        return Err(EncodeError::Range);
    }
    let has_no_key = is_random && (is_empty || *right == Token::Random(0));
    let (form, left, right) =
        if has_no_key { (BOUNDS, &NO_KEY, &NO_KEY) } else { (form, left, right) };
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
    let is_old_minimum = end == Token::Random(0) && start >= end;
    let end = if is_old_minimum || end == LAST_RANDOM { Token::Minimum } else { end };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_without_number() {
        let bytes =
            |count: usize| [&(count as u32).to_be_bytes()[..], &vec![0; 2 * count]].concat();
        let count = |count: usize| count_names(&mut ByteReader::new(&bytes(count)), 2);
        assert_eq!(count(MAX_NAMES), Ok(MAX_NAMES));
        assert_eq!(count(MAX_NAMES + 1), Err(Malformed(0)));
    }
}
