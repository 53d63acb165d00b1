//! The Thrift border: binary protocol, framed and unframed connections, the types of the IDL and
//! the dispatch to whatever implements [`Cassandra`]. All knowledge of Thrift ends here.
//!
//! ```text
//!   server        ports, worker threads, drain
//!     accept      new connections, and those that make room for them
//!     connection  reads, finds messages, answers in order, writes
//!       foreign   clients of other protocols
//!       message   the four forms in which a message may begin
//!       buffers, limits, report    memory, bounds, and log lines about them
//!       service   methods: decode arguments -> Cassandra -> Reply
//!         types   the structs of the IDL, made by macros from a copy of its lines
//!         codec, encode, scan, text, dump    the protocol itself
//! ```

mod accept;
mod buffers;
pub mod codec;
mod connection;
pub mod dump;
pub mod encode;
mod foreign;
pub mod limits;
mod macros;
pub mod message;
pub mod reply;
mod report;
pub mod scan;
pub mod schema;
pub mod server;
pub mod service;
#[cfg(test)]
mod tests;
pub mod text;
pub mod types;

pub use codec::{Binary, List, Map, Set, Text};
pub use encode::{Each, Encode, Fields};
pub use limits::Limits;
pub use reply::{Failure, Replied, Reply};
pub use server::{Server, ServerOptions};
pub use service::{Cassandra, METHODS};

use std::fmt;

/// Generation of the API that a server speaks, where the generations differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ApiVersion {
    /// 0.4.x
    V04,
    /// 0.5.x
    V05,
    /// 0.6.x
    #[default]
    V06,
}

/// What the clients of a port are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Clients {
    /// Whose methods and exceptions they know.
    pub version: ApiVersion,
    /// `ThriftFramedTransport`: decides about connections whose first bytes say nothing.
    pub prefer_framed: bool,
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V04 => "0.4",
            Self::V05 => "0.5",
            Self::V06 => "0.6",
        })
    }
}
