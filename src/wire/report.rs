//! Log lines about misbehaving clients and failing calls.

use std::time::Duration;

use crate::base::limited_log::LimitedLog;

/// Shortest time between two lines for the same reason.
pub(super) const INTERVAL: Duration = Duration::from_secs(1);

/// Log of a server.
pub(super) type Reporter = LimitedLog<Reason>;

/// Subject of a log line. Each one has its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Bytes that are no message.
    Malformed,
    /// A client of another protocol.
    Foreign,
    /// A message above the limit.
    TooLong,
    /// A call that came after the generation of the port.
    LaterCall,
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
    /// A call that failed for a reason that its client is not told.
    Internal,
    /// A call that panicked.
    Panic,
    /// A result that no message can hold.
    ResultTooLong,
}
