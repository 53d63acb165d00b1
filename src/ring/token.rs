//! Tokens: the places on the ring.

use crate::base::shared_bytes::SharedBytes;
use std::cmp::Ordering;
use std::fmt;

/// A place on the ring. All tokens of a cluster come from one partitioner; the order between
/// tokens of different partitioners means nothing.
///
/// Comparing is the most frequent operation of the whole server and never allocates; cloning
/// copies a few words and counts at most one reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Token {
    /// Before every other token, and as the right end of a range also after all of them. It is
    /// the token of the empty key, which no row has.
    Minimum,
    /// Of `RandomPartitioner`. Keys have 0 to 2^127; a node may have been given a greater one.
    Random(u128),
    /// Of `OrderPreservingPartitioner`: the key itself, never empty.
    Ordered(OrderedString),
    /// Of `CollatingOrderPreservingPartitioner`, never empty.
    Collated(CollationKey),
}

/// The bytes of a string, in the order in which 0.6 compares strings: by UTF-16 code
/// units, where characters above U+FFFF come before U+E000. For bytes that are not UTF-8 the order
/// is arbitrary but total. Never empty.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{:?}", String::from_utf8_lossy(_0))]
pub struct OrderedString(SharedBytes);

/// The bytes of a collation key, unsigned, a prefix before what it begins. Never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollationKey(SharedBytes);

impl Token {
    /// The token of this string under `OrderPreservingPartitioner`.
    pub fn ordered(string: SharedBytes) -> Self {
        if string.is_empty() { Self::Minimum } else { Self::Ordered(OrderedString(string)) }
    }

    /// The token with these bytes under `CollatingOrderPreservingPartitioner`.
    pub fn collated(bytes: SharedBytes) -> Self {
        if bytes.is_empty() { Self::Minimum } else { Self::Collated(CollationKey(bytes)) }
    }

    /// Whether this is the minimum token.
    pub fn is_minimum(&self) -> bool {
        matches!(self, Self::Minimum)
    }
}

impl OrderedString {
    /// The order of two strings that are given as their bytes.
    #[inline]
    pub fn compare_bytes(a: &[u8], b: &[u8]) -> Ordering {
        match first_difference(a, b) {
            Some((a, b)) => utf16_rank(a).cmp(&utf16_rank(b)),
            None => a.len().cmp(&b.len()),
        }
    }

    /// The bytes of the string.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl CollationKey {
    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Ord for OrderedString {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        Self::compare_bytes(&self.0, &other.0)
    }
}

impl PartialOrd for OrderedString {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for CollationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The first place where the slices differ, within the length of the shorter one. Eight bytes at a
/// time, because keys of one application tend to begin alike.
#[inline]
fn first_difference(a: &[u8], b: &[u8]) -> Option<(u8, u8)> {
    let (a_words, b_words) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    for (x, y) in a_words.iter().zip(b_words) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            let place = (difference.trailing_zeros() / 8) as usize;
            return Some((x[place], y[place]));
        }
    }
    let length = a.len().min(b.len());
    // The last eight bytes, of which some are known to be alike, are as quick as one more word.
    let tails = length.checked_sub(8).map(|at| (&a[at..length], &b[at..length]));
    if let Some((x, y)) = tails.and_then(|(x, y)| x.first_chunk::<8>().zip(y.first_chunk::<8>())) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        let place = (difference.trailing_zeros() / 8) as usize;
        return (difference != 0).then(|| (x[place], y[place]));
    }
    let rest = a[..length].iter().zip(&b[..length]);
    rest.map(|(&x, &y)| (x, y)).find(|(x, y)| x != y)
}

/// Rank of a byte of UTF-8 in the order of UTF-16. Two strings first differ in two lead bytes
/// or in two continuation bytes. Lead bytes F0 and above begin surrogate pairs (D800 to DFFF), so
/// they belong between ED (up to D7FF) and EE (from E000); all else keeps its place. This is a
/// permutation of the bytes, so the order stays total whatever the bytes are.
#[inline]
fn utf16_rank(byte: u8) -> u8 {
    match byte {
        0xf0.. => byte - 2,
        0xee | 0xef => byte + 0x10,
        _ => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ordered(bytes: &[u8]) -> Token {
        Token::ordered(bytes.into())
    }

    fn utf16_order(a: &str, b: &str) -> Ordering {
        a.encode_utf16().cmp(b.encode_utf16())
    }

    /// Strings that share prefixes and have characters on both sides of the surrogates.
    fn strings() -> impl Strategy<Value = String> {
        let near = prop_oneof![
            Just('\u{d7ff}'),
            Just('\u{e000}'),
            Just('\u{ffff}'),
            Just('\u{10000}'),
            Just('\u{10ffff}'),
            Just('a'),
            any::<char>(),
        ];
        ("(|longer than eight)", vec(near, 0..6))
            .prop_map(|(prefix, tail)| prefix + &String::from_iter(tail))
    }

    #[test]
    fn every_byte_has_its_own_rank() {
        let mut ranks: Vec<u8> = (0..=255).map(utf16_rank).collect();
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..=255));
    }

    #[test]
    fn supplementary_characters_sort_before_e000() {
        assert!(ordered("\u{d7ff}".as_bytes()) < ordered("\u{10000}".as_bytes()));
        assert!(ordered("\u{10ffff}".as_bytes()) < ordered("\u{e000}".as_bytes()));
        assert!(Token::Minimum < ordered(b"\0"));
        assert_eq!(ordered(b""), Token::Minimum);
        assert_eq!(Token::collated(SharedBytes::from(Vec::new())), Token::Minimum);
    }

    proptest! {
        #[test]
        fn ordered_tokens_compare_as_utf16(a in strings(), b in strings()) {
            let order = ordered(a.as_bytes()).cmp(&ordered(b.as_bytes()));
            prop_assert_eq!(order, utf16_order(&a, &b));
        }

        #[test]
        fn any_bytes_have_a_total_order(
            mut names in vec(vec(prop_oneof![Just(0xedu8), Just(0xee), any::<u8>()], 0..20), 0..12)
        ) {
            // The model: lexicographic order of the ranks of all bytes.
            names.sort_by_key(|n| n.iter().map(|&b| utf16_rank(b)).collect::<Vec<u8>>());
            for (i, a) in names.iter().enumerate() {
                for b in &names[i..] {
                    let (x, y) = (ordered(a), ordered(b));
                    prop_assert_ne!(x.cmp(&y), Ordering::Greater);
                    prop_assert_ne!(y.cmp(&x), Ordering::Less);
                    prop_assert_eq!(x == y, a == b);
                    prop_assert_eq!(x.cmp(&y) == Ordering::Equal, a == b);
                }
            }
        }

        #[test]
        fn collated_tokens_compare_as_bytes(a in vec(0u8.., 0..5), b in vec(0u8.., 0..5)) {
            let token = |bytes: &[u8]| Token::collated(bytes.into());
            prop_assert_eq!(token(&a).cmp(&token(&b)), a.cmp(&b));
        }
    }
}
