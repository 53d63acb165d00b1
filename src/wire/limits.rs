//! What the border may take of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Bytes that the connections of a server may hold together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    limit: usize,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.used() >= self.limit
    }
}

/// What one holder has taken from a budget; given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Holds so many bytes from now on, if the budget allows. False, and as before, if not.
    pub(super) fn try_set(&mut self, bytes: usize) -> bool {
        // The usual case, of a connection that holds nothing: no core has to fetch the counter.
        if bytes == self.bytes {
            return true;
        }
        if let Some(more) = bytes.checked_sub(self.bytes).filter(|more| *more > 0) {
            let used = self.budget.used.fetch_add(more, Ordering::AcqRel) + more;
            if used > self.budget.limit {
                self.budget.used.fetch_sub(more, Ordering::AcqRel);
                return false;
            }
            self.bytes = bytes;
        } else {
            self.set(bytes);
        }
        true
    }

    /// Holds so many bytes from now on, also beyond the budget.
    pub(super) fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        if bytes > self.bytes {
            self.budget.used.fetch_add(bytes - self.bytes, Ordering::AcqRel);
        } else {
            self.budget.used.fetch_sub(self.bytes - bytes, Ordering::AcqRel);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_stays_within_the_budget_and_is_given_back() {
        let budget = Budget::new(100);
        let (mut a, mut b) = (Charge::new(budget.clone()), Charge::new(budget.clone()));
        assert!(a.try_set(60));
        assert!(!b.try_set(41), "beyond the budget");
        assert_eq!(budget.used(), 60, "a refused charge takes nothing");
        assert!(b.try_set(40));
        assert!(a.try_set(10));
        assert_eq!(budget.used(), 50);
        drop((a, b));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_beyond_the_budget_uses_it_up_until_it_shrinks() {
        let budget = Budget::new(100);
        let mut charge = Charge::new(budget.clone());
        assert!(!budget.is_used_up());
        charge.set(150);
        assert!(budget.is_used_up());
        charge.set(99);
        assert!(!budget.is_used_up());
    }
}
