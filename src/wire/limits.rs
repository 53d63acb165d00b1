//! What the border may take of the machine.

use std::time::Duration;

/// Every limit of the border. Nesting and the length of method names are limited by constants,
/// since no client has a reason to change them: [`super::scan::MAX_DEPTH`],
/// [`super::message::MAX_METHOD_NAME_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request (`ThriftMaxMessageInMB`); a longer one closes its connection.
    pub max_message_bytes: usize,
    /// Most connections at a time (`ThriftMaxConnections`); further ones wait to be accepted.
    pub max_connections: usize,
    /// Memory for unfinished requests in the whole server (`ThriftReceiveBudgetInMB`); a
    /// connection that would need more is closed.
    pub receive_budget_bytes: usize,
    /// Replies in the whole server that wait for clients to read. When there are so many, a client
    /// that does not read its reply at once is cut off. The last that fits may be larger than what
    /// is left.
    pub unsent_budget_bytes: usize,
    /// Replies to pipelined requests that are collected before they are written.
    pub write_batch_bytes: usize,
    /// A client that reads nothing for so long while a reply waits for it is cut off.
    pub write_stall: Duration,
    /// How long calls under way may go on after the server has been told to stop.
    pub drain: Duration,
    /// Pause after the machine refused to accept a connection, as when file descriptors run out.
    pub accept_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 64 << 20,
            max_connections: 10_000,
            receive_budget_bytes: 256 << 20,
            unsent_budget_bytes: 256 << 20,
            write_batch_bytes: 64 << 10,
            write_stall: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            accept_pause: Duration::from_millis(100),
        }
    }
}
