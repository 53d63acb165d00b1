//! Extensions of the wire of 0.6 between nodes of this program. A node announces by gossip what it
//! understands; one that announces nothing gets messages as 0.6.13.

use super::message::{Header, Message};
use std::borrow::Cow;

/// Frames may end with a checksum.
pub const CHECKSUMS: &str = "checksums";

/// Digests may cover the deletions of rows and super columns.
pub const FULL_DIGESTS: &str = "full-digests";

/// Reads that are refused may be answered by why, instead of not at all.
pub const REFUSALS: &str = "refusals";

/// Nodes may be asked for more than any verb says, by calls.
pub const CALLS: &str = "job-calls";

/// Rows may have cells that 0.6 does not have: values that expire, and deletions of ranges and of
/// collections.
pub const CELLS: &str = "cql-cells";

/// Nodes take part in decisions on registers, by the call [`REGISTER`].
pub const REGISTERS: &str = "registers";

/// Nodes keep logged batches, as rows of `system.Batches`.
pub const BATCHES: &str = "batches";

/// All that this version understands.
pub const ALL: [&str; 7] = [CHECKSUMS, FULL_DIGESTS, REFUSALS, CALLS, CELLS, REGISTERS, BATCHES];

/// The header of a call, whose value says which it is. It goes by the verb STREAM_REQUEST, because
/// there must be no verb that an original does not know, to nodes that announce [`CALLS`].
pub const CALL: &str = "X-ALEXANDRA-CALL";

/// The call of a proposer to a participant of a register.
pub const REGISTER: &str = "register";

/// Whether a message is a call to a participant of a register.
pub fn is_register_call(message: &Message<'_>) -> bool {
    message.header(CALL) == Some(REGISTER.as_bytes())
}

/// The header of all gossip. It tells a node of this program that has not announced anything yet
/// from one of 0.6.
pub const OF_OURS: Header<'static> = Header { name: Cow::Borrowed("X-ALEXANDRA"), value: b"" };

/// The header of a read command that wants a digest which covers deletions.
pub const FULL_DIGEST: Header<'static> =
    Header { name: Cow::Borrowed("X-FULL-DIGEST"), value: b"" };

/// The header of a command to read whose sender understands refusals.
pub const TAKES_REFUSAL: Header<'static> =
    Header { name: Cow::Borrowed("X-ALEXANDRA-REFUSALS"), value: b"" };

/// The header of an answer without a body, because none can hold the data that were asked for; its
/// value is a text for the client.
pub const REFUSED: &str = "X-ALEXANDRA-REFUSED";
