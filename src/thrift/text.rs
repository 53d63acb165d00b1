//! Lossy UTF-8 as the original decodes a Thrift `string`.

use std::borrow::Cow;

const REPLACEMENT: &str = "\u{FFFD}";

/// Decodes text; each maximal malformed sequence becomes one U+FFFD.
///
/// An encoded surrogate (`ED A0 80` to `ED BF BF`, also cut short after two bytes) is one such
/// sequence. The standard library takes each of its bytes for one, and row keys would then differ
/// from those that the original stored.
pub(super) fn decode_lossy(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(replace_malformed(bytes)),
    }
}

fn replace_malformed(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + REPLACEMENT.len());
    loop {
        let error = match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                return text;
            }
            Err(error) => error,
        };
        let (valid, rest) = bytes.split_at(error.valid_up_to());
        text.push_str(std::str::from_utf8(valid).expect("checked up to here just before"));
        text.push_str(REPLACEMENT);
        let bad = match rest {
            [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..] => 3,
            [0xED, 0xA0..=0xBF, ..] => 2,
            _ => error.error_len().unwrap_or(rest.len()),
        };
        bytes = rest.get(bad..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_malformed_sequence_is_replaced_once() {
        let cases: [(&[u8], &str); 11] = [
            (b"plain", "plain"),
            ("Żółw \u{10348}".as_bytes(), "Żółw \u{10348}"),
            (b"\xFF\xFEk", "\u{FFFD}\u{FFFD}k"),
            (b"a\xED\xA0\x80b", "a\u{FFFD}b"),
            (b"\xED\xA0\x80\xED\xB0\x80", "\u{FFFD}\u{FFFD}"),
            (b"\xED\xA0", "\u{FFFD}"),
            (b"\xED\xA0x", "\u{FFFD}x"),
            (b"\xE2\x82", "\u{FFFD}"),
            (b"\xE0\x80\x80", "\u{FFFD}\u{FFFD}\u{FFFD}"),
            (b"\xF0\x90\x8Dz", "\u{FFFD}z"),
            (b"\xC0\xAF", "\u{FFFD}\u{FFFD}"),
        ];
        for (bytes, text) in cases {
            assert_eq!(decode_lossy(bytes), text, "{bytes:02X?}");
        }
    }

    #[test]
    fn valid_text_is_borrowed() {
        assert!(matches!(decode_lossy(b"Keyspace1"), Cow::Borrowed(_)));
    }
}
