//! The four forms in which a client may send messages.

use super::codec::{DecodeError, Malformed, Reader};

/// Longest method name. The longest of the IDL has 24 bytes.
pub(super) const MAX_METHOD_NAME_BYTES: usize = 1024;

/// High half of the first number of a message with a version.
const VERSION_1: u32 = 0x8001;

/// How a connection separates its messages. The first bytes of a connection tell; then it stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Back to back.
    Unframed,
    /// Each behind its length.
    Framed,
}

impl Form {
    /// Recognises the form by the first bytes of a connection; `None` if they are too few.
    ///
    /// `80 01` begins an unframed message. A length is that of a frame if `80 01` or `00` follows,
    /// which is how messages begin with and without a version, or if no method has so long a name.
    /// A small length and a letter are an unframed message without a version. `prefer_framed`
    /// decides about the rest, which no known client sends.
    pub(super) fn recognise(
        bytes: &[u8],
        prefer_framed: bool,
    ) -> Result<Option<Self>, DecodeError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let first = u32::from_be_bytes(*length);
        if first >> 31 == 1 {
            return check_version(first).map(|()| Some(Self::Unframed)).map_err(Into::into);
        }
        if first as usize > MAX_METHOD_NAME_BYTES {
            return Ok(Some(Self::Framed));
        }
        let preferred = if prefer_framed { Self::Framed } else { Self::Unframed };
        if first == 0 {
            return Ok(Some(preferred));
        }
        Ok(match rest {
            [] => None,
            [0x80, 0x01, ..] | [0, ..] => Some(Self::Framed),
            [0x80] => None,
            [letter, ..] if letter.is_ascii_alphanumeric() || *letter == b'_' => {
                Some(Self::Unframed)
            }
            _ => Some(preferred),
        })
    }
}

/// The beginning of a request. The message type is not looked at: the original did not either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// Method.
    pub(super) name: &'a [u8],
    /// Any number; the reply repeats it.
    pub(super) seqid: i32,
    /// Bytes up to the arguments.
    pub(super) length: usize,
}

impl<'a> Header<'a> {
    /// Reads a header with or without a version.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let first = reader.i32()?;
        let has_version = first < 0;
        let name_length = if has_version {
            check_version(first as u32)?;
            reader.i32()?
        } else {
            first
        };
        let name_bytes =
            usize::try_from(name_length).map_err(|_| Malformed::NegativeLength(name_length))?;
        if name_bytes > MAX_METHOD_NAME_BYTES {
            return Err(Malformed::MethodName(name_bytes).into());
        }
        let name = reader.take(name_bytes)?;
        if !has_version {
            reader.byte()?;
        }
        let seqid = reader.i32()?;
        Ok(Self { name, seqid, length: reader.position() })
    }
}

fn check_version(first: u32) -> Result<(), Malformed> {
    if first >> 16 == VERSION_1 { Ok(()) } else { Err(Malformed::Version(first)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_tell_the_form() {
        let cases: [(&[u8], Option<Form>); 12] = [
            (b"", None),
            (b"\x80\x01\x00", None),
            (b"\x80\x01\x00\x01", Some(Form::Unframed)),
            (b"\x00\x00\x00\x03", None),
            (b"\x00\x00\x00\x03get", Some(Form::Unframed)),
            (b"\x00\x00\x00\x21\x80", None),
            (b"\x00\x00\x00\x21\x80\x01", Some(Form::Framed)),
            (b"\x00\x00\x00\x21\x00", Some(Form::Framed)),
            (b"\x00\x10\x00\x00", Some(Form::Framed)),
            (b"\x00\x00\x00\x05\x07", Some(Form::Unframed)),
            (b"\x00\x00\x00\x05\x80\x02", Some(Form::Unframed)),
            (b"\x00\x00\x00\x00", Some(Form::Unframed)),
        ];
        for (bytes, form) in cases {
            assert_eq!(Form::recognise(bytes, false), Ok(form), "{bytes:02X?}");
        }
    }

    #[test]
    fn the_preference_decides_only_what_nothing_else_can() {
        for undecided in [b"\x00\x00\x00\x05\x07".as_slice(), b"\x00\x00\x00\x00"] {
            assert_eq!(Form::recognise(undecided, true), Ok(Some(Form::Framed)));
        }
        for decided in [b"\x80\x01\x00\x01".as_slice(), b"\x00\x00\x00\x03get"] {
            assert_eq!(Form::recognise(decided, true), Ok(Some(Form::Unframed)));
        }
        let other = Form::recognise(b"\x80\x02\x00\x01", true);
        assert_eq!(other, Err(Malformed::Version(0x8002_0001).into()));
    }

    #[test]
    fn headers_with_and_without_a_version() {
        let versioned = b"\x80\x01\x00\x01\x00\x00\x00\x03get\xFF\xFF\xFF\xFErest";
        let expected = Header { name: b"get", seqid: -2, length: 15 };
        assert_eq!(Header::decode(versioned), Ok(expected));
        let old = b"\x00\x00\x00\x03get\x01\x00\x00\x00\x09rest";
        assert_eq!(Header::decode(old), Ok(Header { name: b"get", seqid: 9, length: 12 }));
        for end in 0..15 {
            assert_eq!(Header::decode(&versioned[..end]), Err(DecodeError::Incomplete));
        }
        let long = Header::decode(b"\x00\x00\x04\x01g");
        assert_eq!(long, Err(Malformed::MethodName(1025).into()));
    }
}
