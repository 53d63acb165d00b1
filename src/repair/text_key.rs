//! Row keys in calls, whose bodies are JSON.

use crate::model::key::RowKey;
use crate::storage::json::{key_text, parse_key};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most bytes of a row key.
const MAX_KEY_BYTES: usize = 65535;

/// Longest text that an error repeats, in characters.
const MOST_CHARACTERS: usize = 100;

/// A row key that travels as text: as it is if it is UTF-8, else in the form that exports have for
/// keys of other bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextKey(pub(super) RowKey);

impl TextKey {
    /// Bytes of the text, not escaped yet.
    pub(super) fn text_bytes(&self) -> usize {
        key_text(self.0.as_bytes()).len()
    }
}

impl Serialize for TextKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&key_text(self.0.as_bytes()))
    }
}

impl<'de> Deserialize<'de> for TextKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let key = parse_key(&text).filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len()));
        let key = key.ok_or_else(|| {
            let beginning: String = text.chars().take(MOST_CHARACTERS).collect();
            D::Error::custom(format_args!("no row can have the key {beginning:?}"))
        })?;
        Ok(Self(RowKey::new(&key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_come_back_and_texts_stay_readable() {
        for (key, json) in [
            (&b"caf\xc3\xa9"[..], "\"café\""),
            (b"\xff\0", "\"\\u0000hex:ff00\""),
            (b"\0hex:ff00", "\"\\u0000hex:006865783a66663030\""),
        ] {
            let key = TextKey(RowKey::new(key));
            assert_eq!(serde_json::to_string(&key).unwrap(), json);
            assert_eq!(serde_json::from_str::<TextKey>(json).unwrap(), key);
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let refused = |json: &str| serde_json::from_str::<TextKey>(json).unwrap_err().to_string();
        let why = refused("\"\\u0000hex:fg\"");
        assert!(why.starts_with("no row can have the key \"\\0hex:fg\""), "{why}");
        refused("\"\"");
        refused("5");
        let long = refused(&format!("\"{}\"", "k".repeat(65536)));
        assert!(long.len() < 200, "{long}");
    }
}
