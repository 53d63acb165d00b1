//! Row keys with their tokens.

use super::partitioner::{Partitioner, TokenError};
use super::token::{CollationKey, OrderedString, Token};
use crate::model::key::RowKey;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A row key and its token: the place of a row in the order of all rows. Sorts by token, keys of
/// equal tokens by their bytes (0.6 treats those as one row).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecoratedKey {
    token: Token,
    key: RowKey,
}

impl DecoratedKey {
    /// Rebuilds a decorated key whose token is already known. The token must be the one that the
    /// partitioner gives the key; see [`Partitioner::decorate`] for a key alone.
    #[inline]
    pub fn from_parts(token: Token, key: RowKey) -> Self {
        if let Token::Ordered(string) = &token {
            debug_assert_eq!(string.as_bytes(), key.as_bytes(), "the token is the key");
        }
        Self { token, key }
    }

    /// The token.
    #[inline]
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// The row key.
    #[inline]
    pub fn key(&self) -> &RowKey {
        &self.key
    }

    /// The row key, without its token.
    pub fn into_key(self) -> RowKey {
        self.key
    }

    /// Appends the stored form of the token, which stands beside the key. Frozen:
    ///
    /// * empty key: nothing, its token is the minimum
    /// * `RandomPartitioner`: 16 bytes, big-endian, unsigned; their order is that of the tokens
    /// * `OrderPreservingPartitioner`: nothing, the token is the key
    /// * `CollatingOrderPreservingPartitioner`: u32 big-endian length, then the collation key. It
    ///   is stored rather than computed again, so that the order of a file never depends on the
    ///   collation table of the program that reads it.
    pub fn encode_token(&self, out: &mut Vec<u8>) {
        match &self.token {
            Token::Minimum | Token::Ordered(_) => {}
            Token::Random(number) => out.extend_from_slice(&number.to_be_bytes()),
            Token::Collated(key) => {
                let bytes = key.as_bytes();
                let length = u32::try_from(bytes.len()).expect("row keys are far below 4 GiB");
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(bytes);
            }
        }
    }

    /// Reads the token that [`Self::encode_token`] wrote for this key, and moves `input` past it.
    /// On an error `input` is unspecified.
    pub fn decode(
        partitioner: Partitioner,
        key: RowKey,
        input: &mut &[u8],
    ) -> Result<Self, TokenError> {
        if key.as_bytes().is_empty() {
            return Ok(Self { token: Token::Minimum, key });
        }
        let token = match partitioner {
            Partitioner::OrderPreserving => Token::ordered(key.shared()),
            Partitioner::Random => {
                let number = input.split_off(..16).ok_or(TokenError::Truncated)?;
                let number = number.try_into().expect("16 bytes were split off");
                Token::Random(u128::from_be_bytes(number))
            }
            Partitioner::CollatingOrderPreserving => {
                let length = input.split_off(..4).ok_or(TokenError::Truncated)?;
                let length = length.try_into().expect("4 bytes were split off");
                let length = u32::from_be_bytes(length) as usize;
                let bytes = input.split_off(..length).ok_or(TokenError::Truncated)?;
                if bytes.is_empty() {
                    return Err(TokenError::Empty);
                }
                Token::collated(bytes.into())
            }
        };
        Ok(Self { token, key })
    }

    /// Compares this key with a stored one: `key`, and `rest`, which begins with its stored token.
    /// Allocates nothing.
    #[inline]
    pub fn compare_stored(
        &self,
        partitioner: Partitioner,
        key: &[u8],
        rest: &[u8],
    ) -> Result<Ordering, TokenError> {
        if key.is_empty() {
            return Ok(self.cmp(&Self::from_parts(Token::Minimum, RowKey::new(b""))));
        }
        match (self.token(), partitioner) {
            (Token::Minimum, _) => Ok(Ordering::Less),
            (Token::Random(mine), Partitioner::Random) => {
                let stored = rest.first_chunk().ok_or(TokenError::Truncated)?;
                let by_token = mine.cmp(&u128::from_be_bytes(*stored));
                Ok(by_token.then_with(|| self.key().as_bytes().cmp(key)))
            }
            (Token::Ordered(mine), Partitioner::OrderPreserving) => {
                Ok(OrderedString::compare_bytes(mine.as_bytes(), key))
            }
            (Token::Collated(mine), Partitioner::CollatingOrderPreserving) => {
                let length = rest.first_chunk().ok_or(TokenError::Truncated)?;
                let end = 4 + u32::from_be_bytes(*length) as usize;
                let stored = rest.get(4..end).ok_or(TokenError::Truncated)?;
                let by_token = CollationKey::as_bytes(mine).cmp(stored);
                Ok(by_token.then_with(|| self.key().as_bytes().cmp(key)))
            }
            // A token of another partitioner: no data can be found by it.
            _ => Err(TokenError::Truncated),
        }
    }

    /// Length of the token of a stored key; `None` if the bytes are missing.
    pub fn stored_token_length(
        partitioner: Partitioner,
        key_length: usize,
        rest: &[u8],
    ) -> Option<usize> {
        let length = match partitioner {
            _ if key_length == 0 => 0,
            Partitioner::Random => 16,
            Partitioner::OrderPreserving => 0,
            Partitioner::CollatingOrderPreserving => {
                4 + u32::from_be_bytes(*rest.first_chunk()?) as usize
            }
        };
        (rest.len() >= length).then_some(length)
    }

    /// The least key that can have this token: where a range that includes the token begins.
    pub fn least_of(token: Token) -> Self {
        let key = match &token {
            Token::Ordered(string) => RowKey::new(string.as_bytes()),
            _ => RowKey::new(b""),
        };
        Self::from_parts(token, key)
    }
}

impl Ord for DecoratedKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.token, &other.token) {
            (Token::Random(a), Token::Random(b)) => a.cmp(b).then_with(|| self.key.cmp(&other.key)),
            // The token is the key, so that equal tokens leave nothing to compare.
            (Token::Ordered(a), Token::Ordered(b)) => a.cmp(b),
            (a, b) => a.cmp(b).then_with(|| self.key.cmp(&other.key)),
        }
    }
}

impl PartialOrd for DecoratedKey {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for DecoratedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.token {
            // Already a hash of the key.
            Token::Random(number) => number.hash(state),
            _ => self.key.hash(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::partitioner::tests::partitioners;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn decorated(key: &[u8], token: u128) -> DecoratedKey {
        DecoratedKey::from_parts(Token::Random(token), RowKey::new(key))
    }

    #[test]
    fn tokens_decide_and_keys_break_ties() {
        assert!(decorated(b"z", 1) < decorated(b"a", 2));
        assert!(decorated(b"a", 2) < decorated(b"b", 2));
        assert_ne!(decorated(b"a", 2), decorated(b"b", 2));
    }

    #[test]
    fn damaged_tokens_are_errors() {
        let decode = |partitioner, mut bytes: &[u8]| {
            DecoratedKey::decode(partitioner, RowKey::from("k"), &mut bytes)
        };
        assert_eq!(decode(Partitioner::Random, &[0; 15]), Err(TokenError::Truncated));
        let collating = Partitioner::CollatingOrderPreserving;
        assert_eq!(decode(collating, &[0, 0, 0]), Err(TokenError::Truncated));
        assert_eq!(decode(collating, &[0xff; 40]), Err(TokenError::Truncated));
        assert_eq!(decode(collating, &[0; 4]), Err(TokenError::Empty));
    }

    proptest! {
        #[test]
        fn stored_tokens_come_back(p in partitioners(), key in vec(0u8.., 0..20)) {
            let decorated = p.decorate(RowKey::new(&key));
            let mut stored = Vec::new();
            decorated.encode_token(&mut stored);
            stored.push(7);
            let mut input = stored.as_slice();
            let back = DecoratedKey::decode(p, RowKey::new(&key), &mut input);
            prop_assert_eq!(back, Ok(decorated));
            prop_assert_eq!(input, [7]);
        }

        #[test]
        fn order_agrees_with_equality(
            p in partitioners(),
            a in "[ab\u{1}]{0,3}",
            b in "[ab\u{1}]{0,3}",
        ) {
            let (x, y) = (p.decorate(a.as_str().into()), p.decorate(b.as_str().into()));
            prop_assert_eq!(x.cmp(&y) == Ordering::Equal, a == b);
            prop_assert_eq!(x == y, a == b);
            prop_assert_eq!(x.cmp(&y), y.cmp(&x).reverse());
            prop_assert_eq!(x.cmp(&y), (x.token(), x.key()).cmp(&(y.token(), y.key())));
        }
    }

    proptest! {
        #[test]
        fn stored_keys_compare_as_decoded_ones(a: String, b: String) {
            for partitioner in [
                Partitioner::Random,
                Partitioner::OrderPreserving,
                Partitioner::CollatingOrderPreserving,
            ] {
                let [x, y] = [&a, &b].map(|k| partitioner.decorate(RowKey::from(k.as_str())));
                let mut stored = Vec::new();
                y.encode_token(&mut stored);
                let length = DecoratedKey::stored_token_length(partitioner, b.len(), &stored);
                prop_assert_eq!(length, Some(stored.len()));
                let found = x.compare_stored(partitioner, y.key().as_bytes(), &stored);
                prop_assert_eq!(found.unwrap(), x.cmp(&y));
                prop_assert!(DecoratedKey::least_of(x.token().clone()) <= x);
            }
        }
    }
}
