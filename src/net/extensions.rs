//! What nodes of this program say to each other beyond the wire of 0.6. A node announces by gossip
//! what it understands; one that announces nothing is spoken to as 0.6.13.

use super::message::Header;
use std::borrow::Cow;

/// Frames may end with a checksum.
pub const CHECKSUMS: &str = "checksums";

/// Digests may cover the deletions of rows and super columns.
pub const FULL_DIGESTS: &str = "full-digests";

/// All that this version understands.
pub const ALL: [&str; 2] = [CHECKSUMS, FULL_DIGESTS];

/// The header of a read command that wants a digest which covers deletions.
pub const FULL_DIGEST: Header<'static> =
    Header { name: Cow::Borrowed("X-FULL-DIGEST"), value: b"" };
