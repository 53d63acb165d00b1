//! Keys and tokens in the stored form of [`DecoratedKey::encode_token`], used without decoding.

use super::decorated_key::DecoratedKey;
use super::partitioner::{Partitioner, TokenError};
use super::token::{CollationKey, OrderedString, Token};
use crate::model::key::RowKey;
use std::cmp::Ordering;

impl DecoratedKey {
    /// How this key compares with a stored one: `key` and what stands behind it, which begins with
    /// its token. Searching an index this way allocates nothing.
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

    /// How many bytes the token of a stored key takes; `None` if they are not there.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
