//! Limits of connections, and log lines about clients that exceed them.

use crate::base::limited_log::LimitedLog;
use std::time::Duration;

/// Shortest time between two lines for the same reason.
pub(super) const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Limits of all connections of a server together, and of each. A protocol may have further ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Prefix of the settings in log lines: `Thrift` in `ThriftMaxConnections`.
    pub settings: &'static str,
    /// Longest request (`MaxMessageInMB`); a longer one closes its connection.
    pub max_message_bytes: usize,
    /// Most connections at a time (`MaxConnections`); a further one takes the place of the
    /// one that has been idle the longest.
    pub max_connections: usize,
    /// Most requests of a connection that are answered beside each other. Further ones are not
    /// read until one is done.
    pub max_requests: usize,
    /// A connection that has been idle this long is closed (`IdleTimeoutInSeconds`); `None` for no
    /// limit.
    pub idle_timeout: Option<Duration>,
    /// Memory for unfinished requests in the whole server (`ReceiveBudgetInMB`). Those that
    /// need more wait.
    pub receive_budget_bytes: usize,
    /// Longest wait of a request for memory, before it is refused.
    pub memory_wait: Duration,
    /// A client that sends nothing for this long in the middle of a request is cut off.
    pub read_stall: Duration,
    /// Replies in the whole server that wait for clients to read. When they are as many, a client
    /// that does not read its reply at once is cut off. The last that fits may be larger than what
    /// is left.
    pub unsent_budget_bytes: usize,
    /// Replies to pipelined requests that are collected before they are written.
    pub write_batch_bytes: usize,
    /// A client that reads nothing for this long while a reply waits for it is cut off.
    pub write_stall: Duration,
    /// Longest time for requests under way after the server is told to stop.
    pub drain: Duration,
    /// Longest time for requests that only read, which can be given up.
    pub drain_reads: Duration,
    /// Pause after the machine refused to accept a connection, as when file descriptors run out.
    pub accept_pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            settings: "",
            max_message_bytes: 64 << 20,
            max_connections: 10_000,
            max_requests: 1024,
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

/// Log of a server.
pub(super) type Reporter = LimitedLog<Reason>;

/// Subject of a log line. Each one has its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Bytes that are no request.
    Malformed,
    /// A client of another protocol.
    Foreign,
    /// A request above the limit.
    TooLong,
    /// No memory left for unfinished requests.
    ReceiveBudget,
    /// A request for which there is no memory.
    Refused,
    /// A client that does not complete its request.
    Unfinished,
    /// A client that does not read.
    Stalled,
    /// No memory left for replies that clients do not read.
    UnsentBudget,
    /// A connection that could not be accepted.
    Accept,
    /// An idle connection that made room for a new one.
    Displaced,
    /// A new connection without room.
    NoRoom,
    /// A connection that was idle for too long.
    Idle,
}
