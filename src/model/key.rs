//! Row keys.

use std::fmt;
use std::sync::Arc;

/// The key of a row: bytes, shared and immutable. A key of the 0.4-0.6 clients is a string; inside
/// it is the UTF-8 of that string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey(Arc<[u8]>);

impl RowKey {
    /// A key that owns a copy of these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same bytes, shared.
    pub fn shared(&self) -> Arc<[u8]> {
        Arc::clone(&self.0)
    }
}

impl From<&str> for RowKey {
    fn from(key: &str) -> Self {
        Self::new(key.as_bytes())
    }
}

impl From<Arc<[u8]>> for RowKey {
    fn from(bytes: Arc<[u8]>) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0).escape_debug())
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowKey({self})")
    }
}
