//! Row keys and hexadecimal digits as text.

use crate::model::comparator::hex;
use std::borrow::Cow;

/// Beginning of the text of a key that is not UTF-8.
const HEX_MARK: &str = "\0hex:";

/// The text that stands for a key, which [`parse_key`] reads; not escaped yet.
pub fn key_text(key: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with(HEX_MARK) => Cow::Borrowed(text),
        _ => Cow::Owned(format!("{HEX_MARK}{}", hex(key))),
    }
}

/// The key that a text stands for; `None` if it begins like hexadecimal digits and has others.
pub fn parse_key(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix(HEX_MARK) {
        Some(digits) => unhex(digits),
        None => Some(text.as_bytes().to_vec()),
    }
}

/// The bytes of hexadecimal digits, upper or lower case; `None` if there is anything else.
pub fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
    rest.is_empty().then(|| bytes.collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_key_comes_back(key: Vec<u8>, marked: bool) {
            let key = if marked { [HEX_MARK.as_bytes(), &key].concat() } else { key };
            prop_assert_eq!(parse_key(&key_text(&key)), Some(key));
        }
    }

    #[test]
    fn text_stays_as_it_is() {
        assert_eq!(key_text("caf\u{e9}:\"x\"".as_bytes()), "caf\u{e9}:\"x\"");
        assert_eq!(key_text(b"\xff\x00"), "\0hex:ff00");
        assert_eq!(parse_key("\0hex:fg"), None);
        assert_eq!(unhex("aBc"), None);
        assert_eq!(unhex("aB0c"), Some(vec![0xab, 0x0c]));
        assert_eq!(unhex(""), Some(Vec::new()));
    }
}
