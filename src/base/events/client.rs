//! Connections of Thrift clients.

use std::fmt;
use std::net::SocketAddr;

use log::Level;

/// Why the server closed the connection of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloseReason {
    /// A message is longer than `ThriftMaxMessageInMB` allows.
    MessageTooLong {
        /// Bytes that the client announced or sent.
        bytes: u64,
        /// Bytes that are allowed.
        limit: u64,
    },
    /// The bytes are no message of the protocol.
    Malformed {
        /// What is wrong.
        reason: String,
    },
    /// Unfinished requests of all clients together exceed `ThriftReceiveBudgetInMB`.
    ReceiveBudget {
        /// Bytes that are allowed.
        limit: u64,
    },
    /// The client does not read its answers.
    NotReading,
    /// The node stops.
    Shutdown,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageTooLong { bytes, limit } => {
                write!(f, "a message of {bytes} bytes is above the limit of {limit}")
            }
            Self::Malformed { reason } => write!(f, "malformed message: {reason}"),
            Self::ReceiveBudget { limit } => {
                write!(f, "unfinished requests exceed {limit} bytes in the whole server")
            }
            Self::NotReading => f.write_str("the client does not read its answers"),
            Self::Shutdown => f.write_str("the server stops"),
        }
    }
}

/// A connection of a Thrift client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// The server accepts connections.
    Listening {
        /// Where.
        address: SocketAddr,
    },
    /// `ThriftMaxConnections` are open; further ones wait to be accepted.
    ConnectionLimit {
        /// Connections that are allowed.
        limit: usize,
    },
    /// The server closed a connection, not the client.
    Closed {
        /// The client.
        peer: SocketAddr,
        /// Why.
        reason: CloseReason,
    },
}

impl ClientEvent {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Listening { .. } => Level::Info,
            Self::Closed { reason: CloseReason::Shutdown, .. } => Level::Debug,
            Self::ConnectionLimit { .. } | Self::Closed { .. } => Level::Warn,
        }
    }
}

impl fmt::Display for ClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listening { address } => write!(f, "Listening for thrift clients on {address}"),
            Self::ConnectionLimit { limit } => {
                write!(f, "{limit} Thrift connections are open; further ones wait")
            }
            Self::Closed { peer, reason } => write!(f, "Closed the connection of {peer}: {reason}"),
        }
    }
}
