//! Messages between nodes, in the protocol of 0.6.13.
//!
//! ```text
//! Transport   carries messages to peers: `send`, never waiting      (`tcp`, or one in memory)
//! frame       magic, header, length, payload                        (`frame`)
//! message     id, sender, stage, verb, headers, body                (`message`, `verb`)
//! body        content by verb: a mutation, a command, a reply       (`bodies`)
//! ```
//!
//! A file of an SSTable takes a connection of its own, which carries no name of the file.
//!
//! Connections go one way: the node that dialled only writes, and a reply takes the connection that
//! its sender has dialled to the address in the request. There is no handshake. All input is read
//! with bounds, and becomes a typed value or an error.

pub mod bodies;
pub mod caller;
pub mod extensions;
pub mod frame;
pub mod message;
pub mod messenger;
pub mod tcp;
mod transport;
mod verb;

use std::time::Duration;

pub use transport::{Doing, FileConnection, Inbound, IncomingFile, PeerStats, Transport};
pub use verb::{Channel, Drops, Verb};

/// Shortest time between two log lines about one address.
pub const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Lines about one address that are written at once.
pub const LOG_BURST: u32 = 16;
