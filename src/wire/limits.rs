//! What the border may take of the machine.

use std::time::Duration;

/// Every limit of the border. Nesting and the length of method names are limited by constants,
/// since no client has a reason to change them: [`super::scan::MAX_DEPTH`],
/// [`super::message::MAX_METHOD_NAME_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest request (`ThriftMaxMessageInMB`); a longer one closes its connection.
    pub max_message_bytes: usize,
    /// Most connections at a time (`ThriftMaxConnections`); a further one takes the place of the
    /// one that has been idle the longest.
    pub max_connections: usize,
    /// A connection that has been idle for so long is closed (`ThriftIdleTimeoutInSeconds`); `None`
    /// for no limit.
    pub idle_timeout: Option<Duration>,
    /// Memory for unfinished requests in the whole server (`ThriftReceiveBudgetInMB`). Those that
    /// need more wait.
    pub receive_budget_bytes: usize,
    /// How long a request may wait for memory that others hold, before it is refused.
    pub memory_wait: Duration,
    /// A client that sends nothing for so long in the middle of a request is cut off.
    pub read_stall: Duration,
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
    /// The same for calls that change nothing, and so can be given up.
    pub drain_reads: Duration,
    /// Pause after the machine refused to accept a connection, as when file descriptors run out.
    pub accept_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 64 << 20,
            max_connections: 10_000,
            idle_timeout: None,
            receive_budget_bytes: 256 << 20,
            memory_wait: Duration::from_secs(10),
            read_stall: Duration::from_secs(30),
            unsent_budget_bytes: 256 << 20,
            write_batch_bytes: 64 << 10,
            write_stall: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            drain_reads: Duration::from_millis(500),
            accept_pause: Duration::from_millis(100),
        }
    }
}
