//! Row keys.

use super::invalid_request::InvalidRequest;

/// Longest row key, in bytes of Java's modified UTF-8.
pub(super) const MAX_KEY_LENGTH: usize = 65535;

/// A row key must have a length that the original can store.
pub(super) fn check_key(key: &str) -> Result<(), InvalidRequest> {
    if key.is_empty() {
        return Err(InvalidRequest::EmptyKey);
    }
    // Modified UTF-8 takes at most twice as many bytes as UTF-8.
    if key.len() > MAX_KEY_LENGTH / 2 {
        let length = modified_utf8_length(key);
        if length > MAX_KEY_LENGTH {
            return Err(InvalidRequest::KeyTooLong(length));
        }
    }
    Ok(())
}

/// Length in Java's modified UTF-8: zero takes two bytes, and characters beyond the basic plane
/// are two surrogates of three bytes each.
fn modified_utf8_length(text: &str) -> usize {
    let length = |c| match c {
        '\u{1}'..='\u{7f}' => 1,
        '\0' | '\u{80}'..='\u{7ff}' => 2,
        '\u{800}'..='\u{ffff}' => 3,
        '\u{10000}'.. => 6,
    };
    text.chars().map(length).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_modified_utf8() {
        assert_eq!(check_key(""), Err(InvalidRequest::EmptyKey));
        for (character, length) in [("a", 1), ("\0", 2), ("é", 2), ("日", 3), ("😀", 6)] {
            assert_eq!(modified_utf8_length(character), length, "{character:?}");
            let most = MAX_KEY_LENGTH / length;
            assert_eq!(check_key(&character.repeat(most)), Ok(()), "{character:?}");
            let too_long = Err(InvalidRequest::KeyTooLong((most + 1) * length));
            assert_eq!(check_key(&character.repeat(most + 1)), too_long, "{character:?}");
        }
    }
}
