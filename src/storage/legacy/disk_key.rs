//! Row keys as they stand in the files of 0.6.
//!
//! Under `RandomPartitioner` that is the token in decimal digits, a colon and the key; under the
//! others the key alone. All of it is a UTF field.

use super::WriteError;
use crate::base::java::JavaWriter;
use crate::model::key::RowKey;
use crate::ring::{DecoratedKey, Partitioner};

/// Most bytes of a row key in a file of 0.6: what a UTF field holds, without a token in front.
const MOST_KEY_BYTES: usize = u16::MAX as usize - 64;

/// Whether a node of 0.6 can have a row with this key. Other rows stay out of what it gets.
pub fn can_have_key(key: &RowKey) -> bool {
    let Ok(text) = str::from_utf8(key.as_bytes()) else { return false };
    // As Java writes it: NUL in two bytes, and a character beyond the first 65,536 in six.
    let length = |character: char| match character {
        '\0' => 2,
        character if character.len_utf8() == 4 => 6,
        character => character.len_utf8(),
    };
    (1..=MOST_KEY_BYTES).contains(&text.chars().map(length).sum())
}

/// The disk key of a row.
pub(super) fn disk_key(key: &DecoratedKey, partitioner: Partitioner) -> Result<String, WriteError> {
    let Ok(text) = str::from_utf8(key.key().as_bytes()) else {
        return Err(WriteError::KeyNotText(key.key().clone()));
    };
    if text.is_empty() {
        return Err(WriteError::KeyNotText(key.key().clone()));
    }
    Ok(match partitioner {
        Partitioner::Random => format!("{}:{text}", partitioner.format_token(key.token())),
        Partitioner::OrderPreserving | Partitioner::CollatingOrderPreserving => text.to_owned(),
    })
}

/// Appends a disk key as a UTF field.
pub(super) fn put_disk_key(
    out: &mut Vec<u8>,
    disk_key: &str,
    key: &DecoratedKey,
) -> Result<(), WriteError> {
    let too_long = |_| WriteError::KeyTooLong(key.key().clone());
    out.put_utf(disk_key.as_bytes()).map_err(too_long)
}

/// Reads a disk key; `None` if it is none of this partitioner, or its token is not that of its key.
pub(in crate::storage) fn parse_disk_key(
    disk_key: &str,
    partitioner: Partitioner,
) -> Option<DecoratedKey> {
    let (token, key) = match partitioner {
        Partitioner::Random => {
            let (token, key) = disk_key.split_once(':')?;
            (Some(partitioner.parse_token(token).ok()?), key)
        }
        Partitioner::OrderPreserving | Partitioner::CollatingOrderPreserving => (None, disk_key),
    };
    if key.is_empty() {
        return None;
    }
    let key = partitioner.decorate(RowKey::from(key));
    token.is_none_or(|token| token == *key.token()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_stands_behind_its_token() {
        let random = Partitioner::Random;
        let text = "76838167865092648291202220064490649847:jsmith";
        let key = random.decorate("jsmith".into());
        assert_eq!(disk_key(&key, random).unwrap(), text);
        assert_eq!(parse_disk_key(text, random), Some(key));
        for wrong in
            ["1:jsmith", "jsmith", "x:jsmith", "", "76838167865092648291202220064490649847:"]
        {
            assert_eq!(parse_disk_key(wrong, random), None, "{wrong}");
        }
    }

    #[test]
    fn keys_that_0_6_cannot_have_are_refused() {
        let ordered = Partitioner::OrderPreserving;
        for key in [&b""[..], &[0xff]] {
            let refused = disk_key(&ordered.decorate(RowKey::new(key)), ordered);
            assert!(matches!(refused, Err(WriteError::KeyNotText(_))));
            assert!(!can_have_key(&RowKey::new(key)));
        }
        // In the form of Java these are longer than their bytes.
        for (text, fits) in [("\u{1f600}", 10_000), ("\0", 30_000), ("k", 60_000)] {
            assert!(can_have_key(&RowKey::from(&*text.repeat(fits))), "{text:?}");
            assert!(!can_have_key(&RowKey::from(&*text.repeat(fits + fits / 5))), "{text:?}");
        }
        let long = "k".repeat(65530);
        for (partitioner, fits) in [(ordered, true), (Partitioner::Random, false)] {
            let key = partitioner.decorate(RowKey::from(long.as_str()));
            let text = disk_key(&key, partitioner).unwrap();
            assert_eq!(put_disk_key(&mut Vec::new(), &text, &key).is_ok(), fits);
        }
    }

    proptest! {
        #[test]
        fn disk_keys_are_read_back(key in "[a-z:é😀]{1,9}") {
            for partitioner in Partitioner::ALL {
                let key = partitioner.decorate(RowKey::from(key.as_str()));
                let text = disk_key(&key, partitioner).unwrap();
                prop_assert_eq!(parse_disk_key(&text, partitioner), Some(key));
            }
        }
    }
}
