//! Checked reading and writing of byte formats. Numbers are big-endian, varints are LEB128.

/// The bytes end too early or hold a number that is out of range; the value is the offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unexpected end or number out of range at byte {0}")]
pub struct Malformed(pub usize);

/// Reads values from the front of a slice. Never panics, whatever the bytes are.
#[derive(Debug, Clone)]
pub struct ByteReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> ByteReader<'a> {
    /// A reader at the beginning of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// A reader at this offset, which may lie beyond the end.
    pub fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Number of bytes read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Everything that was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The next `length` bytes.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed(self.at))?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed(self.at))?;
        self.at = end;
        Ok(taken)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(*self.take(N)?.first_chunk().expect("take returned N bytes"))
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Four bytes, signed.
    pub fn i32(&mut self) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A varint.
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let start = self.at;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed(start))
    }

    /// Two bytes of length, then that many bytes.
    pub fn prefixed(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u16()?;
        self.take(length as usize)
    }
}

/// Appends values to a buffer, in the forms that [`ByteReader`] reads.
pub trait ByteWriter {
    /// Appends a varint.
    fn put_varint(&mut self, value: u64);

    /// Appends two bytes of length, then the bytes.
    ///
    /// # Panics
    /// If there are more than 65535: the caller has validated the length.
    fn put_prefixed(&mut self, bytes: &[u8]);
}

impl ByteWriter for Vec<u8> {
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn put_prefixed(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).expect("names and keys have at most 65535 bytes");
        self.extend_from_slice(&length.to_be_bytes());
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_are_read_back(value: u64, small in 0u64..1000) {
            for value in [value, small, u64::MAX, 0] {
                let mut bytes = Vec::new();
                bytes.put_varint(value);
                let mut reader = ByteReader::new(&bytes);
                prop_assert_eq!(reader.varint(), Ok(value));
                prop_assert!(reader.is_empty());
            }
        }

        #[test]
        fn reading_arbitrary_bytes_never_panics(bytes: Vec<u8>, at in 0usize..100) {
            let mut reader = ByteReader::at(&bytes, at);
            while reader.varint().is_ok() {}
            let _ = (reader.prefixed(), reader.u64(), reader.take(usize::MAX));
        }
    }

    #[test]
    fn a_varint_that_does_not_fit_is_refused() {
        let mut bytes = vec![0xff; 9];
        bytes.push(0x02);
        assert_eq!(ByteReader::new(&bytes).varint(), Err(Malformed(0)));
    }
}
