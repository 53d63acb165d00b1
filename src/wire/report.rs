//! Log lines about misbehaving clients and failing calls: clear, and never more than a few per
//! second, however many there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::clock::Clock;

/// Shortest time between two lines for the same reason.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a line is about. Each reason has its own interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Bytes that are no message.
    Malformed,
    /// A message above the limit.
    TooLong,
    /// A call that came after the generation of the port.
    LaterCall,
    /// No memory left for unfinished requests.
    ReceiveBudget,
    /// A client that does not read.
    Stalled,
    /// No memory left for replies that clients do not read.
    UnsentBudget,
    /// A connection that could not be accepted.
    Accept,
    /// A call that failed for a reason that its client is not told.
    Internal,
    /// A call that panicked.
    Panic,
    /// A result that no message can hold.
    ResultTooLong,
}

const REASONS: usize = Reason::ResultTooLong as usize + 1;

/// Decides whether a line is due.
#[derive(Debug)]
pub(super) struct Reporter {
    clock: Arc<dyn Clock>,
    last_micros: [AtomicI64; REASONS],
    suppressed: [AtomicU64; REASONS],
}

impl Reporter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last_micros: [const { AtomicI64::new(i64::MIN) }; REASONS],
            suppressed: [const { AtomicU64::new(0) }; REASONS],
        }
    }

    /// Logs a warning, unless there was one for this reason a moment ago. Says how many it left
    /// out.
    pub(super) fn warn(&self, reason: Reason, line: std::fmt::Arguments<'_>) {
        self.log(log::Level::Warn, reason, line);
    }

    /// Logs an error under the same rule.
    pub(super) fn error(&self, reason: Reason, line: std::fmt::Arguments<'_>) {
        self.log(log::Level::Error, reason, line);
    }

    fn log(&self, level: log::Level, reason: Reason, line: std::fmt::Arguments<'_>) {
        match self.due(reason) {
            Some(0) => log::log!(level, "{line}"),
            Some(suppressed) => log::log!(level, "{line} ({suppressed} more of this kind before)"),
            None => {}
        }
    }

    fn due(&self, reason: Reason) -> Option<u64> {
        let now = i64::try_from(self.clock.monotonic().as_micros()).unwrap_or(i64::MAX);
        let (last, suppressed) =
            self.last_micros.get(reason as usize).zip(self.suppressed.get(reason as usize))?;
        let before = last.load(Ordering::Relaxed);
        let due = before == i64::MIN || now.saturating_sub(before) >= INTERVAL.as_micros() as i64;
        // Of several threads that find the line due, the one that moves the time on writes it.
        if due && last.compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(suppressed.swap(0, Ordering::Relaxed));
        }
        suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn each_reason_is_reported_once_per_interval() {
        let clock = Arc::new(ManualClock::at_micros(5));
        let reporter = Reporter::new(clock.clone());
        assert_eq!(reporter.due(Reason::Malformed), Some(0));
        assert_eq!(reporter.due(Reason::Malformed), None);
        assert_eq!(reporter.due(Reason::Accept), Some(0));
        assert_eq!(reporter.due(Reason::Malformed), None);
        clock.advance(INTERVAL);
        assert_eq!(reporter.due(Reason::Malformed), Some(2));
    }
}
