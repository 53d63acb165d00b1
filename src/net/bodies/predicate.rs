//! The columns that a RANGE_SLICE asks for: the SlicePredicate of the Thrift interface, in its
//! binary protocol and without a message around it.
//!
//! ```text
//! names:  0f 0001 0b, i32 count, count × BYTES, 00
//! range:  0c 0002, [0b 0001 BYTES start] [0b 0002 BYTES finish] [02 0003 BOOL reversed]
//!         [08 0004 i32 limit], 00 00
//! ```
//!
//! The range counts if both are there.

use super::error::BodyError;
use super::slice::{Parent, WireRange, count_names, limit_from_wire, limit_to_wire};
use crate::base::bytes::{ByteReader, Malformed};
use crate::base::java::{JavaReader, JavaWriter};
use crate::model::slice::Slice;

const STOP: u8 = 0x00;
const BOOL: u8 = 0x02;
const I32: u8 = 0x08;
const STRING: u8 = 0x0b;
const STRUCT: u8 = 0x0c;
const LIST: u8 = 0x0f;

/// The bytes that [`read_predicate`] reads.
pub(super) fn predicate(slice: &Slice) -> Vec<u8> {
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
pub(super) fn read_predicate(bytes: &[u8], parent: Parent<'_>) -> Result<Slice, BodyError> {
    let mut reader = ByteReader::new(bytes);
    let (mut names, mut range) = (None, None);
    loop {
        let at = reader.position();
        match read_field(&mut reader)? {
            None => break,
            Some((LIST, 1)) => names = Some(read_names(&mut reader)?),
            Some((STRUCT, 2)) => range = Some(read_range(&mut reader)?),
            Some(_) => return Err(BodyError::Malformed(at)),
        }
    }
    match (range, names) {
        (Some(range), _) => parent.range(range),
        (None, Some(names)) => parent.names(&names),
        (None, None) => Err(BodyError::Malformed(0)),
    }
}

fn read_names<'a>(reader: &mut ByteReader<'a>) -> Result<Vec<&'a [u8]>, Malformed> {
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

fn read_range<'a>(reader: &mut ByteReader<'a>) -> Result<WireRange<'a>, Malformed> {
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
