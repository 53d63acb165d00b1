//! Collation keys as Java's collator for US English makes them: tertiary strength, no
//! decomposition. The tokens of `CollatingOrderPreservingPartitioner` are these bytes, so they
//! have to be the same to the last bit.
//!
//! Every character stands for some collation elements of three weights. The key has a section for
//! each weight, two zero bytes between them, and in a section two bytes for each element. So
//! letters decide first, then accents, then case.

use std::sync::LazyLock;

/// In the primary section this marks a character that no rule names; such characters sort after
/// all others, by their UTF-16 code units.
const NO_RULE: u16 = 0x7fff;

/// Added to a weight of an element that has a primary weight: zero ends a section.
const OFFSET: u16 = 1;

/// Added to the secondary weight of an element without a primary one (an accent, a space),
/// which puts it after all secondary weights of letters.
const ACCENT_OFFSET: u16 = 118;

/// Added to the tertiary weight of an element without a primary one.
const ACCENT_CASE_OFFSET: u16 = 2;

/// The only two characters that together have other elements than one after the other: combining
/// diaeresis and acute, equal to the Greek dialytika tonos (U+0344).
const CONTRACTION: (u32, u32) = (0x308, 0x301);

/// The character that `CONTRACTION` equals.
const CONTRACTED: u32 = 0x344;

/// The collation elements of characters, sorted by code point.
static RULES: LazyLock<Vec<(u16, Vec<u32>)>> = LazyLock::new(|| {
    let lines = include_str!("collation.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(read_rule).collect()
});

/// The collation key of a text. Not empty, even if the text is.
pub(super) fn collation_key(text: &str) -> Vec<u8> {
    let mut sections = Sections::default();
    let mut characters = text.chars().map(u32::from).peekable();
    while let Some(mut code) = characters.next() {
        let (first, second) = CONTRACTION;
        if code == first && characters.next_if_eq(&second).is_some() {
            code = CONTRACTED;
        }
        match rule(code) {
            Some(elements) => elements.iter().for_each(|&element| sections.push(element)),
            None => sections.push_unknown(code),
        }
    }
    sections.into_key()
}

/// A line of the table: a code point and its elements.
fn read_rule(line: &str) -> Option<(u16, Vec<u32>)> {
    let (code, elements) = line.split_once(' ').unwrap_or((line, ""));
    let elements = elements.split_whitespace().map(|it| u32::from_str_radix(it, 16).ok());
    Some((u16::from_str_radix(code, 16).ok()?, elements.collect::<Option<_>>()?))
}

/// The elements of a character; `None` if no rule names it.
fn rule(code: u32) -> Option<&'static [u32]> {
    // Java looks characters up by their last eighteen bits, so that planes 4, 8, 12 and 16 count
    // as plane 0. Nothing is assigned there but private use.
    let code = u16::try_from(code & 0x3_ffff).ok()?;
    let place = RULES.binary_search_by_key(&code, |(listed, _)| *listed).ok()?;
    RULES.get(place).map(|(_, elements)| elements.as_slice())
}

/// The key under construction.
#[derive(Default)]
struct Sections {
    primary: Vec<u8>,
    secondary: Vec<u8>,
    tertiary: Vec<u8>,
}

impl Sections {
    fn push(&mut self, element: u32) {
        let primary = (element >> 16) as u16;
        let (secondary, tertiary) = (element >> 8 & 0xff, element & 0xff);
        self.push_weights(primary, secondary as u16, tertiary as u16);
    }

    fn push_weights(&mut self, primary: u16, secondary: u16, tertiary: u16) {
        if primary != 0 {
            // Java's weights are 16 bits wide here: that of U+FFFF becomes zero.
            append(&mut self.primary, primary.wrapping_add(OFFSET));
            append(&mut self.secondary, secondary + OFFSET);
            append(&mut self.tertiary, tertiary + OFFSET);
            return;
        }
        if secondary != 0 {
            append(&mut self.secondary, secondary + ACCENT_OFFSET);
        }
        if tertiary != 0 {
            append(&mut self.tertiary, tertiary + ACCENT_CASE_OFFSET);
        }
    }

    fn push_unknown(&mut self, code: u32) {
        self.push_weights(NO_RULE, 0, 0);
        let character = char::from_u32(code).expect("the code is that of a character of a text");
        for &mut unit in character.encode_utf16(&mut [0; 2]) {
            self.push_weights(unit, 0, 0);
        }
    }

    fn into_key(self) -> Vec<u8> {
        [self.primary, self.secondary, self.tertiary].join(&[0, 0][..])
    }
}

fn append(section: &mut Vec<u8>, weight: u16) {
    section.extend_from_slice(&weight.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::hex::hex;

    fn key(text: &str) -> String {
        hex(&collation_key(text))
    }

    /// Seen with the collator of JDK 17; blanks added between the sections.
    #[test]
    fn keys_are_those_of_java() {
        let known = [
            ("", "0000 0000"),
            ("a", "0053 0000 0001 0000 0001"),
            ("A", "0053 0000 0001 0000 0002"),
            ("é", "0058 0000 00010089 0000 0001"),
            ("abc", "005300540055 0000 000100010001 0000 000100010001"),
            ("10", "00470046 0000 00010001 0000 00010001"),
            ("\u{1}\u{7f}", "0000 0000"),
            ("\u{431}", "80000432 0000 00010001 0000 00010001"),
            ("a\u{301}b", "00530054 0000 000100890001 0000 00010001"),
            ("x - y", "006b006c 0000 0001007700e300770001 0000 000100030001"),
            ("\u{20ac}u", "002a0068 0000 00010001 0000 00010001"),
            ("\t-\u{ad} ", "0000 008500e300e40077 0000 0003"),
            ("\u{1d5}b", "00680054 0000 0001009000940001 0000 00020001"),
            ("\u{df}", "00660066 0000 00010001 0000 00030002"),
            ("\u{1e00}", "0053 0000 000100b2 0000 0002"),
            ("\u{1f600} o", "8000d83ede010062 0000 00010001000100770001 0000 0001000100010001"),
            ("\u{ffff}", "80000000 0000 00010001 0000 00010001"),
            ("\u{40041}", "0053 0000 0001 0000 0002"),
            ("\u{308}\u{301}\u{301}", "0000 00ca0089 0000"),
            ("\u{344}", "0000 00ca 0000"),
            ("\u{e4}\u{301}", "0053 0000 000100900089 0000 0001"),
            ("日本", "800065e68000672d 0000 0001000100010001 0000 0001000100010001"),
        ];
        for (text, expected) in known {
            assert_eq!(key(text), expected.replace(' ', ""), "{text:?}");
        }
    }

    #[test]
    fn letters_then_accents_then_case() {
        let order = ["", "-", "_", "0", "9", "a", "A", "á", "-a", "b", "ß", "z", "б", "日"];
        let mut sorted = order;
        sorted.reverse();
        sorted.sort_by_cached_key(|text| collation_key(text));
        assert_eq!(sorted, order);
    }

    /// The checksum is that of the keys that JDK 17 gives, one after the other.
    #[test]
    fn the_keys_of_all_characters_are_those_of_java() {
        let mut crc = crc32fast::Hasher::new();
        for character in '\0'..=char::MAX {
            crc.update(&collation_key(character.encode_utf8(&mut [0; 4])));
        }
        assert_eq!(crc.finalize(), 0x3337_11ad);
    }

    #[test]
    fn the_table_is_sorted_and_names_no_surrogate() {
        let lines = include_str!("collation.txt").lines().filter(|line| !line.starts_with('#'));
        assert_eq!(RULES.len(), lines.count(), "all lines are read");
        assert!(RULES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(RULES.iter().all(|(code, _)| char::from_u32(u32::from(*code)).is_some()));
    }
}
