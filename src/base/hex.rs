//! Bytes as hexadecimal digits, two for each.

use std::fmt::Write;

/// Lower-case digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of digits, upper or lower case; `None` if there is anything else.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(hex(&[0xab, 0x0c]), "ab0c");
        assert_eq!(unhex("aBc"), None);
        assert_eq!(unhex("aB0c"), Some(vec![0xab, 0x0c]));
        assert_eq!(unhex(""), Some(Vec::new()));
    }
}
