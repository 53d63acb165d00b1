//! Partitioners: from row keys to tokens, and between tokens and their texts and bytes.

use super::collation::collation_key;
use super::decorated_key::DecoratedKey;
use super::midpoint::{midpoint_of_bytes, midpoint_of_strings};
use super::token::Token;
use crate::base::hex::hex;
use crate::model::key::RowKey;
use md5::{Digest, Md5};

/// Mapping of keys to tokens. The same for the whole cluster, and for the life of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Partitioner {
    /// `RandomPartitioner`: by a hash of the key.
    Random,
    /// `OrderPreservingPartitioner`: in the order of the keys.
    OrderPreserving,
    /// `CollatingOrderPreservingPartitioner`: as a dictionary of US English orders the keys.
    CollatingOrderPreserving,
}

/// A token that cannot be: nothing of the partitioner's, or too short.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A token of `RandomPartitioner` is a decimal integer.
    #[error("token \"{0}\" is not a decimal integer")]
    NotANumber(String),
    /// A token of `RandomPartitioner` is -1, or from 0 to 2^128 - 1.
    #[error("token {0} is outside of the ring")]
    OutOfRange(String),
    /// A token of `CollatingOrderPreservingPartitioner` is written as bytes in hexadecimal digits.
    #[error("token \"{0}\" is not a string of hexadecimal byte values")]
    NotHex(String),
    /// A token of `OrderPreservingPartitioner` is a string.
    #[error("token is not UTF-8")]
    NotUtf8,
    /// No bytes where every possible token has some.
    #[error("token is empty")]
    Empty,
    /// The bytes end within the token.
    #[error("token is cut short")]
    Truncated,
}

/// The package of the partitioners of 0.6.
const CLASS_PREFIX: &str = "org.apache.cassandra.dht.";

/// The display form of a token of `CollatingOrderPreservingPartitioner` in 0.6.
const COLLATED_DISPLAY: (&str, &str) = ("Token(bytes[", "])");

/// Size of the ring of `RandomPartitioner`.
const RING_SIZE: u128 = 1 << 127;

impl Partitioner {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::Random, Self::OrderPreserving, Self::CollatingOrderPreserving];

    /// The partitioner of this class name, full or, as in 0.6, without its package.
    pub fn from_class_name(class: &str) -> Option<Self> {
        let short = class.strip_prefix(CLASS_PREFIX).unwrap_or(class);
        Self::ALL.into_iter().find(|p| p.class_name().strip_prefix(CLASS_PREFIX) == Some(short))
    }

    /// The full class name, as clients see it.
    pub fn class_name(self) -> &'static str {
        match self {
            Self::Random => "org.apache.cassandra.dht.RandomPartitioner",
            Self::OrderPreserving => "org.apache.cassandra.dht.OrderPreservingPartitioner",
            Self::CollatingOrderPreserving => {
                "org.apache.cassandra.dht.CollatingOrderPreservingPartitioner"
            }
        }
    }

    /// Whether rows sort by their keys.
    pub fn preserves_order(self) -> bool {
        self != Self::Random
    }

    /// The token of a key; the minimum for the empty key. Under `CollatingOrderPreserving` bytes
    /// that are not UTF-8 count as replacement characters.
    pub fn token(self, key: &[u8]) -> Token {
        if key.is_empty() {
            return Token::Minimum;
        }
        match self {
            Self::Random => {
                // 0.6 reads the digest as a signed number and drops the sign.
                let digest: [u8; 16] = Md5::digest(key).into();
                Token::Random(i128::from_be_bytes(digest).unsigned_abs())
            }
            Self::OrderPreserving => Token::ordered(key.into()),
            Self::CollatingOrderPreserving => {
                Token::collated(collation_key(&String::from_utf8_lossy(key)).into())
            }
        }
    }

    /// The key with its token. Under `OrderPreserving` that is the key itself.
    pub fn decorate(self, key: RowKey) -> DecoratedKey {
        let token = match self {
            Self::OrderPreserving => Token::ordered(key.shared()),
            Self::Random | Self::CollatingOrderPreserving => self.token(key.as_bytes()),
        };
        DecoratedKey::from_parts(token, key)
    }

    /// A token for a node that was given none.
    pub fn random_token(self, rng: &mut fastrand::Rng) -> Token {
        match self {
            Self::Random => Token::Random(rng.i128(..).unsigned_abs()),
            Self::OrderPreserving => {
                Token::ordered((0..16).map(|_| rng.alphanumeric() as u8).collect())
            }
            Self::CollatingOrderPreserving => {
                Token::collated((0..16).map(|_| rng.u8(..)).collect())
            }
        }
    }

    /// Reads the text of a token: of `InitialToken`, of clients, of gossip. A decimal integer, the
    /// string itself, or bytes in hexadecimal digits.
    pub fn parse_token(self, text: &str) -> Result<Token, TokenError> {
        match self {
            Self::Random => parse_number(text),
            Self::OrderPreserving => Ok(Token::ordered(text.as_bytes().into())),
            Self::CollatingOrderPreserving => {
                // 0.6 itself sends the display form in gossip when a node leaves.
                let (prefix, suffix) = COLLATED_DISPLAY;
                let bare = text.strip_prefix(prefix).and_then(|t| t.strip_suffix(suffix));
                let bytes = parse_hex(bare.unwrap_or(text));
                let bytes = bytes.ok_or_else(|| TokenError::NotHex(text.to_owned()))?;
                Ok(Token::collated(bytes.into()))
            }
        }
    }

    /// The text of a token, as `describe_ring` and gossip have it; `parse_token` reads it.
    pub fn format_token(self, token: &Token) -> String {
        match token {
            Token::Minimum if self == Self::Random => "-1".to_owned(),
            Token::Minimum => String::new(),
            Token::Random(number) => number.to_string(),
            Token::Ordered(string) => String::from_utf8_lossy(string.as_bytes()).into_owned(),
            Token::Collated(key) => hex(key.as_bytes()),
        }
    }

    /// The text of a token for people, as the property `token map` and nodetool have it.
    pub fn display_token(self, token: &Token) -> String {
        let text = self.format_token(token);
        match self {
            Self::Random | Self::OrderPreserving => text,
            Self::CollatingOrderPreserving => {
                let (prefix, suffix) = COLLATED_DISPLAY;
                format!("{prefix}{text}{suffix}")
            }
        }
    }

    /// The bytes of a token, as nodes send it to each other and the system keyspace stores it: the
    /// shortest big-endian two's complement, the UTF-8 of the string, or the bytes themselves.
    pub fn token_to_bytes(self, token: &Token) -> Vec<u8> {
        match token {
            Token::Minimum if self == Self::Random => vec![0xff],
            Token::Minimum => Vec::new(),
            Token::Random(number) => {
                let bytes = number.to_be_bytes();
                let first = bytes.iter().position(|&byte| byte != 0).unwrap_or(15);
                let digits = bytes[first..].iter().copied();
                // A set first bit would make it negative.
                let sign = (bytes[first] >= 0x80).then_some(0);
                sign.into_iter().chain(digits).collect()
            }
            Token::Ordered(string) => string.as_bytes().to_vec(),
            Token::Collated(key) => key.as_bytes().to_vec(),
        }
    }

    /// Reads the bytes that [`Self::token_to_bytes`] gives.
    pub fn token_from_bytes(self, bytes: &[u8]) -> Result<Token, TokenError> {
        match self {
            Self::Random => number_from_bytes(bytes),
            Self::OrderPreserving if str::from_utf8(bytes).is_err() => Err(TokenError::NotUtf8),
            Self::OrderPreserving => Ok(Token::ordered(bytes.into())),
            Self::CollatingOrderPreserving => Ok(Token::collated(bytes.into())),
        }
    }

    /// The token in the middle of the range (left, right], which wraps unless left is less. Where
    /// the exact middle of two strings is not a string (it has an unpaired surrogate), another
    /// between them.
    ///
    /// # Panics
    /// If a token is of another partitioner.
    pub fn midpoint(self, left: &Token, right: &Token) -> Token {
        match self {
            Self::Random => {
                let (left, right) = (ring_number(left), ring_number(right));
                let middle = left.midpoint(right);
                if left < right {
                    return Token::Random(middle);
                }
                Token::Random(middle.wrapping_add(RING_SIZE / 2) % RING_SIZE)
            }
            Self::OrderPreserving => {
                let wraps = left >= right;
                let middle = midpoint_of_strings(string_bytes(left), string_bytes(right), wraps);
                Token::ordered(middle.into_bytes().into())
            }
            Self::CollatingOrderPreserving => {
                let wraps = left >= right;
                let middle = midpoint_of_bytes(string_bytes(left), string_bytes(right), wraps);
                Token::collated(middle.into())
            }
        }
    }

    /// The share of the ring of each of these tokens, 0 to 1, given all tokens of the ring
    /// in order. `None` if shares depend on the data: with the order-preserving partitioners.
    ///
    /// # Panics
    /// If a token is of another partitioner.
    pub fn ownership(self, tokens: &[Token]) -> Option<Vec<f64>> {
        if self.preserves_order() {
            return None;
        }
        let [.., last] = tokens else { return Some(Vec::new()) };
        if tokens.len() == 1 {
            return Some(vec![1.0]);
        }
        let predecessors = std::iter::once(last).chain(tokens);
        let share = |(token, predecessor): (&Token, &Token)| {
            let size = ring_number(token).wrapping_sub(ring_number(predecessor)) % RING_SIZE;
            size as f64 / RING_SIZE as f64
        };
        Some(tokens.iter().zip(predecessors).map(share).collect())
    }
}

fn parse_number(text: &str) -> Result<Token, TokenError> {
    if text == "-1" {
        return Ok(Token::Minimum);
    }
    if let Ok(number) = text.parse::<u128>() {
        return Ok(Token::Random(number));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && digits.bytes().all(|byte| byte == b'0') {
        return Ok(Token::Random(0));
    }
    let error = if is_number { TokenError::OutOfRange } else { TokenError::NotANumber };
    Err(error(text.to_owned()))
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|&[high, low]| Some((digit(high)? * 16 + digit(low)?) as u8)).collect()
}

/// A two's complement number of any length. Longer ones than needed are accepted, as in 0.6.
fn number_from_bytes(bytes: &[u8]) -> Result<Token, TokenError> {
    let [first, ..] = bytes else { return Err(TokenError::Empty) };
    if bytes.iter().all(|&byte| byte == 0xff) {
        return Ok(Token::Minimum);
    }
    let digits = &bytes[bytes.iter().take_while(|&&byte| byte == 0).count()..];
    if *first >= 0x80 || digits.len() > 16 {
        return Err(TokenError::OutOfRange(format!("0x{}", hex(bytes))));
    }
    Ok(Token::Random(digits.iter().fold(0, |number, &byte| number << 8 | u128::from(byte))))
}

/// The number of a token of `RandomPartitioner`, where the minimum is the beginning of the ring.
fn ring_number(token: &Token) -> u128 {
    match token {
        Token::Minimum => 0,
        Token::Random(number) => *number,
        Token::Ordered(_) | Token::Collated(_) => panic!("{token:?} is of another partitioner"),
    }
}

/// The bytes of a token of one of the order-preserving partitioners.
fn string_bytes(token: &Token) -> &[u8] {
    match token {
        Token::Minimum => &[],
        Token::Ordered(string) => string.as_bytes(),
        Token::Collated(key) => key.as_bytes(),
        Token::Random(_) => panic!("{token:?} is of another partitioner"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Any partitioner.
    pub(in crate::ring) fn partitioners() -> impl Strategy<Value = Partitioner> {
        proptest::sample::select(&Partitioner::ALL[..])
    }

    #[test]
    fn class_names_are_known_short_and_full() {
        for partitioner in Partitioner::ALL {
            let full = partitioner.class_name();
            assert_eq!(Partitioner::from_class_name(full), Some(partitioner));
            let short = full.rsplit('.').next().unwrap();
            assert_eq!(Partitioner::from_class_name(short), Some(partitioner));
        }
        assert_eq!(Partitioner::from_class_name("ByteOrderedPartitioner"), None);
        assert_eq!(Partitioner::from_class_name("org.example.RandomPartitioner"), None);
        assert_eq!(Partitioner::from_class_name(""), None);
    }

    /// Seen on a running 0.6.13.
    #[test]
    fn random_tokens_are_those_of_the_original() {
        let known = [
            ("a", 16_955_237_001_963_240_173_058_271_559_858_726_497),
            ("foo", 110_673_303_387_115_207_421_586_718_101_067_225_896),
            ("user1", 48_900_430_532_020_830_442_050_270_794_663_993_245),
            ("1", 78_703_492_656_118_554_854_272_571_946_195_123_045),
            ("é", 136_732_923_097_551_493_579_404_309_126_273_812_335),
            ("\u{1f600}", 55_842_721_998_748_738_903_166_261_021_950_683_062),
            ("jsmith", 76_838_167_865_092_648_291_202_220_064_490_649_847),
        ];
        for (key, token) in known {
            assert_eq!(Partitioner::Random.token(key.as_bytes()), Token::Random(token), "{key}");
        }
    }

    #[test]
    fn tokens_that_are_chosen_can_be_told_to_other_nodes() {
        let mut rng = fastrand::Rng::with_seed(1);
        for partitioner in Partitioner::ALL {
            for _ in 0..1000 {
                let token = partitioner.random_token(&mut rng);
                let text = partitioner.format_token(&token);
                assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
                assert_eq!(partitioner.parse_token(&text), Ok(token));
            }
        }
    }

    #[test]
    fn the_empty_key_has_the_minimum_token() {
        for (partitioner, text) in Partitioner::ALL.into_iter().zip(["-1", "", ""]) {
            assert_eq!(partitioner.token(b""), Token::Minimum);
            assert_eq!(partitioner.format_token(&Token::Minimum), text);
            assert_eq!(partitioner.parse_token(text), Ok(Token::Minimum));
        }
    }

    #[test]
    fn an_ordered_token_shares_a_long_key() {
        let key = "a user of whom many bytes are known";
        let decorated = Partitioner::OrderPreserving.decorate(key.into());
        let Token::Ordered(token) = decorated.token() else { panic!("{decorated:?}") };
        assert!(std::ptr::eq(token.as_bytes(), decorated.key().as_bytes()));
    }

    #[test]
    fn random_tokens_have_two_forms() {
        let p = Partitioner::Random;
        let known: [(&str, &[u8]); 6] = [
            ("-1", &[0xff]),
            ("0", &[0]),
            ("127", &[0x7f]),
            ("128", &[0, 0x80]),
            (
                "85070591730234615865843651857942052864",
                &[0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
            (
                "170141183460469231731687303715884105728",
                &[0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            ),
        ];
        for (text, bytes) in known {
            let token = p.parse_token(text).unwrap();
            assert_eq!(p.format_token(&token), text);
            assert_eq!(p.token_to_bytes(&token), bytes);
            assert_eq!(p.token_from_bytes(bytes), Ok(token));
        }
        assert_eq!(p.parse_token("+7"), Ok(Token::Random(7)));
        assert_eq!(p.parse_token("-0"), Ok(Token::Random(0)));
        assert_eq!(p.token_from_bytes(&[0xff, 0xff]), Ok(Token::Minimum));
        assert_eq!(p.token_from_bytes(&[0, 0, 5]), Ok(Token::Random(5)));
    }

    #[test]
    fn bad_tokens_are_refused() {
        let parse = |text: &str| Partitioner::Random.parse_token(text);
        for text in ["x", "", "-", "+", "--1", "1 ", "0x1", "１"] {
            assert_eq!(parse(text), Err(TokenError::NotANumber(text.to_owned())));
        }
        for text in ["-2", "340282366920938463463374607431768211456"] {
            assert_eq!(parse(text), Err(TokenError::OutOfRange(text.to_owned())));
        }
        let from_bytes = |bytes: &[u8]| Partitioner::Random.token_from_bytes(bytes);
        assert_eq!(from_bytes(&[]), Err(TokenError::Empty));
        assert_eq!(from_bytes(&[0xfe]), Err(TokenError::OutOfRange("0xfe".to_owned())));
        assert!(from_bytes(&[1; 17]).is_err());
        let ordered = Partitioner::OrderPreserving;
        assert_eq!(ordered.token_from_bytes(&[0xff]), Err(TokenError::NotUtf8));
        let collating = Partitioner::CollatingOrderPreserving;
        for text in ["abc", "0g", "+1", "é"] {
            assert_eq!(collating.parse_token(text), Err(TokenError::NotHex(text.to_owned())));
        }
    }

    #[test]
    fn collated_tokens_have_a_form_for_people() {
        let p = Partitioner::CollatingOrderPreserving;
        let token = p.token(b"a");
        assert_eq!(p.format_token(&token), "00530000000100000001");
        assert_eq!(p.display_token(&token), "Token(bytes[00530000000100000001])");
        assert_eq!(p.parse_token(&p.display_token(&token)), Ok(token));
        assert_eq!(p.parse_token("00AB"), p.parse_token("00ab"));
        assert_eq!(Partitioner::Random.display_token(&Token::Random(5)), "5");
    }

    #[test]
    fn midpoints_of_numbers_wrap() {
        let p = Partitioner::Random;
        let middle = |left: &str, right: &str| {
            let token = |text| p.parse_token(text).unwrap();
            p.format_token(&p.midpoint(&token(left), &token(right)))
        };
        assert_eq!(middle("3", "6"), "4");
        assert_eq!(middle("-1", "10"), "5");
        assert_eq!(middle("0", "0"), (RING_SIZE / 2).to_string());
        assert_eq!(middle("-1", "-1"), (RING_SIZE / 2).to_string());
        assert_eq!(middle(&(RING_SIZE - 2).to_string(), "6"), "2");
        assert_eq!(middle(&(RING_SIZE - 9).to_string(), "-1"), (RING_SIZE - 5).to_string());
        let ordered = Partitioner::OrderPreserving;
        assert_eq!(
            ordered.midpoint(&ordered.token(b"a"), &ordered.token(b"c")),
            ordered.token(b"b")
        );
        assert_eq!(
            ordered.midpoint(&Token::Minimum, &Token::Minimum),
            ordered.token("耀".as_bytes())
        );
    }

    #[test]
    fn ownership_is_the_distance_from_the_predecessor() {
        let shares = |tokens: &[u128]| {
            let tokens: Vec<Token> = tokens.iter().map(|&n| Token::Random(n)).collect();
            Partitioner::Random.ownership(&tokens).unwrap()
        };
        assert_eq!(shares(&[]), [0.0; 0]);
        assert_eq!(shares(&[7]), [1.0]);
        assert_eq!(shares(&[0, RING_SIZE / 4]), [0.75, 0.25]);
        assert_eq!(Partitioner::OrderPreserving.ownership(&[Token::Minimum]), None);
    }

    proptest! {
        #[test]
        fn texts_and_bytes_of_tokens_come_back(p in partitioners(), key: String, seed: u64) {
            let random = p.random_token(&mut fastrand::Rng::with_seed(seed));
            for token in [p.token(key.as_bytes()), random] {
                prop_assert_eq!(p.parse_token(&p.format_token(&token)), Ok(token.clone()));
                prop_assert_eq!(p.parse_token(&p.display_token(&token)), Ok(token.clone()));
                prop_assert_eq!(p.token_from_bytes(&p.token_to_bytes(&token)), Ok(token));
            }
        }

        #[test]
        fn bytes_from_outside_never_panic(
            p in partitioners(),
            bytes in vec(0u8.., 0..20),
            text: String,
        ) {
            let _ = p.token_from_bytes(&bytes);
            let _ = p.parse_token(&text);
            let _ = p.token(&bytes);
        }

        #[test]
        fn the_middle_of_a_range_is_in_it(p in partitioners(), a: String, b: String) {
            let (x, y) = (p.token(a.as_bytes()), p.token(b.as_bytes()));
            let (left, right) = if x < y { (x, y) } else { (y, x) };
            prop_assume!(left != right);
            let middle = p.midpoint(&left, &right);
            prop_assert!(left < middle || p == Partitioner::Random && left == middle);
            prop_assert!(middle <= right);
        }

        /// Against the arithmetic of the original, on a ring of 2^127 with room for the sums.
        #[test]
        fn midpoints_are_those_of_the_original(a in 0..RING_SIZE, b in 0..RING_SIZE) {
            let expected = if a < b {
                a + (b - a) / 2
            } else {
                ((RING_SIZE - (a - b)) / 2 + a) % RING_SIZE
            };
            let middle = Partitioner::Random.midpoint(&Token::Random(a), &Token::Random(b));
            prop_assert_eq!(middle, Token::Random(expected));
        }
    }
}
