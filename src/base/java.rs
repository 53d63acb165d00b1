//! The encodings of Java's data streams, which the node wire and the files of 0.6 are made of.
//!
//! ```text
//! UTF     u16 number of bytes, then the text in modified UTF-8
//! BYTES   i32 number of bytes, then these
//! ADDR    u8 number of bytes (4 or 16), then the address
//! ```
//!
//! Modified UTF-8 encodes UTF-16 code units: zero takes two bytes, and a character beyond the basic
//! plane is two surrogates of three bytes each.

use super::bytes::{ByteReader, Malformed};
use std::borrow::Cow;
use std::net::IpAddr;

/// Longest text of a UTF field, in bytes of modified UTF-8.
pub const MAX_UTF_LENGTH: usize = 65535;

/// A text is too long for a UTF field; the value is its length in modified UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a text of {0} bytes is longer than the {MAX_UTF_LENGTH} that a message can hold")]
pub struct TooLong(pub usize);

/// Appends values in the encodings of Java.
pub trait JavaWriter {
    /// Appends a UTF field with the text that these bytes are in UTF-8. What is not UTF-8 becomes
    /// U+FFFD.
    fn put_utf(&mut self, text: &[u8]) -> Result<(), TooLong>;

    /// Appends a BYTES field.
    ///
    /// # Panics
    /// If there are more than 2 GB: requests are bounded far below.
    fn put_bytes(&mut self, bytes: &[u8]);

    /// Appends an ADDR field.
    fn put_address(&mut self, address: IpAddr);
}

impl JavaWriter for Vec<u8> {
    fn put_utf(&mut self, text: &[u8]) -> Result<(), TooLong> {
        let text: Cow<'_, [u8]> = if text.iter().all(|&byte| matches!(byte, 1..=0x7f)) {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(modified_utf8(&String::from_utf8_lossy(text)))
        };
        let length = u16::try_from(text.len()).map_err(|_| TooLong(text.len()))?;
        self.extend_from_slice(&length.to_be_bytes());
        self.extend_from_slice(&text);
        Ok(())
    }

    fn put_bytes(&mut self, bytes: &[u8]) {
        let length = i32::try_from(bytes.len()).expect("requests are bounded far below 2 GB");
        self.extend_from_slice(&length.to_be_bytes());
        self.extend_from_slice(bytes);
    }

    fn put_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => {
                self.push(4);
                self.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                self.push(16);
                self.extend_from_slice(&address.octets());
            }
        }
    }
}

/// Reads the encodings of Java. Whatever the bytes are, nothing is allocated for a length that the
/// bytes do not have.
pub trait JavaReader<'a> {
    /// A UTF field, as UTF-8. An unpaired surrogate, which no key of ours can hold, becomes U+FFFD.
    fn utf(&mut self) -> Result<Cow<'a, str>, Malformed>;

    /// A UTF field, as UTF-8; `None` if it has an unpaired surrogate.
    fn sound_utf(&mut self) -> Result<Option<String>, Malformed>;

    /// A BYTES field; a negative length is malformed.
    fn bytes(&mut self) -> Result<&'a [u8], Malformed>;

    /// An ADDR field.
    fn address(&mut self) -> Result<IpAddr, Malformed>;

    /// A truth value: everything but zero is true.
    fn bool(&mut self) -> Result<bool, Malformed>;

    /// A number of elements that each take at least `least` bytes of what is left.
    fn count(&mut self, least: usize) -> Result<usize, Malformed>;

    /// The same, where more than `most` elements are an error.
    fn count_at_most(&mut self, least: usize, most: usize) -> Result<usize, Malformed>;
}

impl<'a> JavaReader<'a> for ByteReader<'a> {
    fn utf(&mut self) -> Result<Cow<'a, str>, Malformed> {
        let start = self.position();
        let bytes = self.prefixed()?;
        // Nearly all text is of this kind, and much of it is read when old files are opened.
        if bytes.is_ascii() && !bytes.contains(&0) {
            return str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| Malformed(start));
        }
        let units = utf16_units(bytes).ok_or(Malformed(start))?;
        Ok(Cow::Owned(String::from_utf16_lossy(&units)))
    }

    fn sound_utf(&mut self) -> Result<Option<String>, Malformed> {
        let start = self.position();
        let bytes = self.prefixed()?;
        let units = utf16_units(bytes).ok_or(Malformed(start))?;
        Ok(String::from_utf16(&units).ok())
    }

    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.position();
        let length = usize::try_from(self.i32()?).map_err(|_| Malformed(start))?;
        self.take(length)
    }

    fn address(&mut self) -> Result<IpAddr, Malformed> {
        let start = self.position();
        match self.u8()? {
            4 => Ok(IpAddr::from(self.array::<4>()?)),
            16 => Ok(IpAddr::from(self.array::<16>()?).to_canonical()),
            _ => Err(Malformed(start)),
        }
    }

    fn bool(&mut self) -> Result<bool, Malformed> {
        Ok(self.u8()? != 0)
    }

    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let start = self.position();
        let count = usize::try_from(self.i32()?).map_err(|_| Malformed(start))?;
        let fits = count.checked_mul(least).is_some_and(|bytes| bytes <= self.rest().len());
        if fits { Ok(count) } else { Err(Malformed(start)) }
    }

    fn count_at_most(&mut self, least: usize, most: usize) -> Result<usize, Malformed> {
        let start = self.position();
        self.count(least).and_then(|it| if it > most { Err(Malformed(start)) } else { Ok(it) })
    }
}

fn modified_utf8(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 8);
    for unit in text.encode_utf16() {
        let [high, low] = unit.to_be_bytes();
        match unit {
            1..=0x7f => out.push(low),
            0 | 0x80..=0x7ff => out.extend([0xc0 | high << 2 | low >> 6, 0x80 | low & 0x3f]),
            0x800.. => {
                let middle = 0x80 | (high & 0x0f) << 2 | low >> 6;
                out.extend([0xe0 | high >> 4, middle, 0x80 | low & 0x3f]);
            }
        }
    }
    out
}

/// `None` for what Java refuses: a byte of four-byte sequences, or a sequence that is cut short.
fn utf16_units(bytes: &[u8]) -> Option<Vec<u16>> {
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied();
    while let Some(first) = rest.next() {
        let mut next =
            || rest.next().filter(|byte| byte & 0xc0 == 0x80).map(|b| u16::from(b & 0x3f));
        units.push(match first {
            0..=0x7f => u16::from(first),
            0xc0..=0xdf => u16::from(first & 0x1f) << 6 | next()?,
            0xe0..=0xef => u16::from(first & 0x0f) << 12 | next()? << 6 | next()?,
            _ => return None,
        });
    }
    Some(units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn utf(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_utf(text.as_bytes()).unwrap();
        out
    }

    #[test]
    fn characters_take_the_bytes_that_java_gives_them() {
        assert_eq!(utf("a"), [0, 1, 0x61]);
        assert_eq!(utf("\0"), [0, 2, 0xc0, 0x80]);
        assert_eq!(utf("é"), [0, 2, 0xc3, 0xa9]);
        assert_eq!(utf("日"), [0, 3, 0xe6, 0x97, 0xa5]);
        assert_eq!(utf("\u{1f600}"), [0, 6, 0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]);
        assert_eq!(Vec::new().put_utf(&vec![b'a'; 65536]), Err(TooLong(65536)));
        assert_eq!(Vec::new().put_utf("é".repeat(40_000).as_bytes()), Err(TooLong(80_000)));
    }

    #[test]
    fn text_that_java_refuses_is_malformed() {
        for bytes in
            [&[0xf0u8, 0x9f, 0x98, 0x80][..], &[0xc3], &[0xe6, 0x97], &[0x80], &[0xc3, 0x41]]
        {
            let mut field = (bytes.len() as u16).to_be_bytes().to_vec();
            field.extend_from_slice(bytes);
            assert_eq!(ByteReader::new(&field).utf(), Err(Malformed(0)), "{bytes:x?}");
        }
        // Half a surrogate pair.
        assert_eq!(ByteReader::new(&[0, 3, 0xed, 0xa0, 0xbd]).utf().unwrap(), "\u{fffd}");
        assert_eq!(ByteReader::new(&[0, 3, 0xed, 0xa0, 0xbd]).sound_utf(), Ok(None));
        assert_eq!(ByteReader::new(&[0xff; 4]).bytes(), Err(Malformed(0)));
        assert_eq!(ByteReader::new(&[5, 1, 2, 3, 4, 5]).address(), Err(Malformed(0)));
    }

    #[test]
    fn a_count_is_held_against_the_bytes_that_are_there() {
        assert_eq!(ByteReader::new(&[0, 0, 0, 2, 1, 1, 1, 1]).count(2), Ok(2));
        assert_eq!(ByteReader::new(&[0, 0, 0, 3, 1, 1, 1, 1]).count(2), Err(Malformed(0)));
        assert_eq!(ByteReader::new(&[0x7f, 0xff, 0xff, 0xff]).count(usize::MAX), Err(Malformed(0)));
    }

    #[test]
    fn addresses_are_read_back() {
        // As in Java, an IPv4 address is one, whatever its form.
        let mapped = [&[16][..], &[0; 10], &[0xff, 0xff, 127, 0, 10, 2]].concat();
        assert_eq!(ByteReader::new(&mapped).address(), Ok([127, 0, 10, 2].into()));
        for address in ["127.0.10.2", "2001:db8::1"] {
            let (address, mut out) = (address.parse::<IpAddr>().unwrap(), Vec::new());
            out.put_address(address);
            assert_eq!(ByteReader::new(&out).address(), Ok(address));
        }
    }

    proptest! {
        #[test]
        fn texts_and_bytes_are_read_back(text: String, bytes: Vec<u8>) {
            let mut out = utf(&text);
            out.put_bytes(&bytes);
            let mut reader = ByteReader::new(&out);
            prop_assert_eq!(reader.clone().sound_utf().unwrap().unwrap(), text.as_str());
            prop_assert_eq!(reader.utf().unwrap(), text);
            prop_assert_eq!(reader.bytes().unwrap(), bytes);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            let mut reader = ByteReader::new(&bytes);
            let _ = (reader.clone().utf(), reader.clone().bytes(), reader.clone().address());
            let _ = (reader.bool(), reader.count(3));
        }
    }
}
