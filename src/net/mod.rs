//! The node wire: what nodes send each other, as nodes of 0.6.13 do.
//!
//! ```text
//! Transport   carries messages to peers: `send`, never waiting      (`tcp`, or one in memory)
//! frame       magic, header, length, payload                        (`frame`)
//! message     id, sender, stage, verb, headers, body                (`message`, `verb`)
//! body        what the verb needs: a mutation, a command, a reply   (`bodies`)
//! ```
//!
//! A file of an SSTable takes a connection of its own, on which nothing says which file it is.
//!
//! Connections go one way: who dials only writes, and a reply takes the connection that its sender
//! has dialled to the address in the request. There is no handshake. Whatever arrives is read with
//! bounds, and becomes a typed value or an error.

pub mod bodies;
pub mod caller;
mod drops;
pub mod extensions;
pub mod frame;
pub mod message;
pub mod messenger;
pub mod tcp;
mod transport;
mod verb;

use std::time::Duration;

pub use drops::Drops;
pub use transport::{Doing, FileConnection, Inbound, IncomingFile, PeerStats, Transport};
pub use verb::{Channel, Verb};

/// Shortest time between two log lines about one address.
pub const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Lines about one address that are written at once.
pub const LOG_BURST: u32 = 16;
