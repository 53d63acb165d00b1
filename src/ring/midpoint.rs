//! Halving of ranges whose tokens are strings.
//!
//! A string is read as a fraction of the ring, its elements as the digits after the point in some
//! even base; the shorter of two strings continues with zeros.

use std::borrow::Cow;

/// The middle of the range from `left` to `right`, which runs over the end of the ring if `wraps`.
/// If the middle falls between two fractions of that length, it gets one digit more.
///
/// Without wrapping, and with `left` before `right`, the result is after `left` and not after
/// `right`.
fn midpoint_of_digits(left: &[u32], right: &[u32], base: u32, wraps: bool) -> Vec<u32> {
    let length = left.len().max(right.len());
    let mut digits = vec![0; length];
    let mut carry = 0;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        let at = |string: &[u32]| string.get(place).copied().unwrap_or(0);
        let sum = at(left) + at(right) + carry;
        *digit = sum % base;
        carry = sum / base;
    }
    // Half of the sum, and half a ring more if it wraps. What is above the point falls away.
    let mut rest = (carry + u32::from(wraps)) % 2;
    for digit in &mut digits {
        let value = rest * base + *digit;
        *digit = value / 2;
        rest = value % 2;
    }
    if rest == 1 {
        digits.push(base / 2);
    }
    digits
}

/// The middle of two byte strings: base 256.
pub(super) fn midpoint_of_bytes(left: &[u8], right: &[u8], wraps: bool) -> Vec<u8> {
    let digits = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).collect::<Vec<u32>>();
    let middle = midpoint_of_digits(&digits(left), &digits(right), 256, wraps);
    middle.into_iter().map(|digit| digit as u8).collect()
}

/// The middle of two strings in the order of UTF-16 code units: base 65536, as in 0.6. If
/// that has an unpaired surrogate, which is no string, the middle is taken over characters instead
/// of code units.
pub(super) fn midpoint_of_strings(left: &[u8], right: &[u8], wraps: bool) -> String {
    let (left, right) = (String::from_utf8_lossy(left), String::from_utf8_lossy(right));
    let units = |string: &Cow<str>| string.encode_utf16().map(u32::from).collect::<Vec<u32>>();
    let middle = midpoint_of_digits(&units(&left), &units(&right), 0x1_0000, wraps);
    let middle: Vec<u16> = middle.into_iter().map(|digit| digit as u16).collect();
    if let Ok(string) = String::from_utf16(&middle) {
        return string;
    }
    let ranks = |string: &Cow<str>| string.chars().map(rank_of_char).collect::<Vec<u32>>();
    let middle = midpoint_of_digits(&ranks(&left), &ranks(&right), CHARACTERS, wraps);
    middle.into_iter().map(char_of_rank).collect()
}

/// Number of characters: all code points but the surrogates.
const CHARACTERS: u32 = 0x11_0000 - 0x800;

/// The place of a character in the order of UTF-16: those above U+FFFF stand where the surrogates
/// are.
fn rank_of_char(character: char) -> u32 {
    match u32::from(character) {
        code @ 0x1_0000.. => code - 0x1_0000 + 0xd800,
        code @ 0xe000.. => code - 0xe000 + 0x10_d800,
        code => code,
    }
}

fn char_of_rank(rank: u32) -> char {
    let code = match rank {
        0x10_d800.. => rank - 0x10_d800 + 0xe000,
        0xd800.. => rank - 0xd800 + 0x1_0000,
        _ => rank,
    };
    char::from_u32(code).expect("ranks below CHARACTERS map to characters only")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_odd_sum_gets_one_digit_more() {
        assert_eq!(midpoint_of_strings(b"a", b"c", false), "b");
        assert_eq!(midpoint_of_strings(b"a", b"b", false), "a\u{8000}");
        assert_eq!(midpoint_of_bytes(b"a", b"b", false), b"a\x80");
        assert_eq!(midpoint_of_bytes(b"", b"", true), b"\x80");
        assert_eq!(midpoint_of_bytes(&[0xff], &[0x01], true), [0x00]);
        assert_eq!(midpoint_of_bytes(&[0x40], &[0x40], true), [0xc0]);
    }

    #[test]
    fn unpaired_surrogates_are_avoided() {
        let (left, right) = ("\u{d7ff}", "\u{e001}");
        let middle = midpoint_of_strings(left.as_bytes(), right.as_bytes(), false);
        assert!(left.encode_utf16().lt(middle.encode_utf16()), "{middle:?}");
        assert!(middle.encode_utf16().lt(right.encode_utf16()), "{middle:?}");
    }

    proptest! {
        #[test]
        fn ranks_are_the_order_of_utf16(a: char, b: char) {
            prop_assert_eq!(char_of_rank(rank_of_char(a)), a);
            let order = a.to_string().encode_utf16().cmp(b.to_string().encode_utf16());
            prop_assert_eq!(rank_of_char(a).cmp(&rank_of_char(b)), order);
        }

        #[test]
        fn the_middle_of_strings_lies_between(a: String, b: String) {
            let units = |s: &str| s.encode_utf16().collect::<Vec<u16>>();
            let (left, right) = if units(&a) <= units(&b) { (a, b) } else { (b, a) };
            prop_assume!(left != right);
            let middle = midpoint_of_strings(left.as_bytes(), right.as_bytes(), false);
            prop_assert!(units(&left) < units(&middle), "{left:?} {middle:?}");
            prop_assert!(units(&middle) <= units(&right), "{middle:?} {right:?}");
        }

        /// Against plain numbers, for strings that fit into one.
        #[test]
        fn the_middle_of_bytes_is_that_of_numbers(a: [u8; 4], b: [u8; 4]) {
            let number = |bytes: [u8; 4]| u64::from(u32::from_be_bytes(bytes)) << 8;
            let wraps = a >= b;
            let ring = if wraps { 1u64 << 40 } else { 0 };
            let expected = ((number(a) + number(b) + ring) / 2) % (1 << 40);
            let mut middle = midpoint_of_bytes(&a, &b, wraps);
            middle.resize(5, 0);
            prop_assert_eq!(&expected.to_be_bytes()[3..], middle);
        }
    }
}
