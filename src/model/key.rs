//! Row keys.

use crate::base::shared_bytes::SharedBytes;
use std::fmt;

/// The key of a row: bytes, immutable, cheap to clone. A key of the 0.4-0.6 clients is a string;
/// inside it is the UTF-8 of that string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Debug)]
#[debug("RowKey({self})")]
pub struct RowKey(SharedBytes);

impl RowKey {
    /// A key that owns a copy of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Whether it is UTF-8. Nodes of 0.6 have no other keys.
    pub fn is_text(&self) -> bool {
        str::from_utf8(&self.0).is_ok()
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same bytes, to be kept elsewhere.
    pub fn shared(&self) -> SharedBytes {
        self.0.clone()
    }
}

impl From<&str> for RowKey {
    fn from(key: &str) -> Self {
        Self::new(key.as_bytes())
    }
}

impl From<SharedBytes> for RowKey {
    fn from(bytes: SharedBytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            write!(f, "{}{}", chunk.valid().escape_debug(), chunk.invalid().escape_ascii())?;
        }
        Ok(())
    }
}
