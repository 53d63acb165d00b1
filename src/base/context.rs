//! The context of a request, which goes with it from the front end down to storage.

use super::budget::Budget;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Most bytes that any answer may have: a client that asks for a whole column family by one call is
/// told to ask for less, instead of taking all memory. A message cannot be larger than 2 GB anyway.
pub const MAX_ANSWER_BYTES: usize = 512 << 20;

/// Bytes that a request may take besides what all requests share: a small one costs no shared
/// counter.
const UNSHARED_BYTES: usize = 16 << 10;

/// Steps of work, such as looking at a cell, that a request may do on the threads that all requests
/// share: about 10 milliseconds.
const SHORT_STEPS: usize = 200_000;

/// The memory that the answer to a request may take, the work that it has done, and whether anybody
/// still waits for it. A clone belongs to the same request.
#[derive(Debug, Clone)]
pub struct RequestContext {
    memory: Arc<Budget>,
    /// Steps that all work of the request has taken.
    steps: Arc<AtomicUsize>,
    /// Whether the work has to end when it turns out to be long.
    is_short: bool,
    /// Set when nobody waits any more; `None` for work that is too short to be cancelled.
    cancelled: Option<Arc<AtomicBool>>,
}

impl RequestContext {
    /// A context for an answer of at most this many bytes.
    pub fn new(limit: usize) -> Self {
        Self::within(&Budget::new(limit), limit)
    }

    /// A context for an answer of at most this many bytes, which it takes from what all requests
    /// share unless it is small.
    pub fn within(shared: &Arc<Budget>, limit: usize) -> Self {
        let limit = MAX_ANSWER_BYTES.min(limit);
        let memory = shared.part_beyond(UNSHARED_BYTES, limit);
        Self { memory, steps: Arc::default(), is_short: false, cancelled: None }
    }

    /// A context for data that are in memory only for a while: what they have taken is given back
    /// when this and all its clones are dropped.
    #[must_use]
    pub fn scratch(&self) -> Self {
        let memory = self.memory.part(self.memory.limit());
        Self { memory, ..self.clone() }
    }

    /// Replaces a scratch context by an empty one, since its data were dropped. Reads that still
    /// use the old one hold its memory until they end.
    pub fn renew(&mut self) {
        // What a context that is not scratch is a part of is shared by all, and no part.
        if let Some(whole) = self.memory.whole()
            && whole.whole().is_some()
        {
            self.memory = whole.part(whole.limit());
        }
    }

    /// The same context for work that is given up as soon as the guard is dropped.
    pub fn cancellable(&self) -> (Self, CancelOnDrop) {
        let flag = Arc::new(AtomicBool::new(false));
        let context = Self { cancelled: Some(Arc::clone(&flag)), ..self.clone() };
        (context, CancelOnDrop(flag))
    }

    /// The same context for work that must end as soon as the request turns out to be long.
    #[must_use]
    pub fn short(&self) -> Self {
        Self { is_short: true, ..self.clone() }
    }

    /// Whether the request has done more work than short ones do.
    pub fn is_long(&self) -> bool {
        self.steps.load(Ordering::Relaxed) > SHORT_STEPS
    }

    /// Notes work that was done.
    pub fn spend(&self, steps: usize) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// Takes memory for the answer: all of the bytes, or none.
    pub fn take(&self, bytes: usize) -> Result<(), TooLarge> {
        if self.memory.try_take(bytes) {
            return Ok(());
        }
        let mut budget = &self.memory;
        while let Some(whole) = budget.whole()
            && budget.used() + bytes <= budget.limit()
        {
            budget = whole;
        }
        let limit = budget.limit();
        Err(if budget.whole().is_some() {
            TooLarge::Alone { limit }
        } else {
            TooLarge::Together { limit }
        })
    }

    /// Gives back memory that was taken.
    pub fn give_back(&self, bytes: usize) {
        self.memory.give_back(bytes);
    }

    /// Fails when the work has to end. Long work has to call it every few thousand steps.
    pub fn check(&self) -> Result<(), Halt> {
        let is_cancelled = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        if self.cancelled.as_ref().is_some_and(is_cancelled) {
            return Err(Halt::Cancelled);
        }
        if self.is_short && self.is_long() { Err(Halt::TooLong) } else { Ok(()) }
    }
}

impl Default for RequestContext {
    fn default() -> Self {
        Self::new(MAX_ANSWER_BYTES)
    }
}

/// Cancels the work of a context when it is dropped. It belongs to the future that waits for that
/// work: this is dropped when its deadline passes, its client leaves or the node stops.
#[derive(Debug)]
#[must_use = "the work is cancelled when this is dropped"]
pub struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An answer that would take more memory than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The same question will not do better.
    #[error("the answer is larger than {limit} bytes: ask for fewer columns or rows at a time")]
    Alone {
        /// Most bytes that the answer may have.
        limit: usize,
    },
    /// Other requests hold the memory.
    #[error(
        "requests and answers hold all of the {limit} bytes that MemoryBudgetInMB leaves for them: \
         ask for fewer columns or rows at a time, or try again later"
    )]
    Together {
        /// Most bytes that all requests may have.
        limit: usize,
    },
}

/// Why work has to end before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// The client has left, its time is over, or others have answered.
    #[error("nobody waits for the answer any more")]
    Cancelled,
    /// The request has to begin again where it holds up no others.
    #[error("the request takes long")]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_memory_is_given_back_when_its_context_is_dropped() {
        let whole = RequestContext::new(10);
        let first = whole.scratch();
        let second = first.scratch();
        whole.take(2).unwrap();
        first.take(3).unwrap();
        second.take(4).unwrap();
        assert_eq!(second.take(2), Err(TooLarge::Alone { limit: 10 }));
        assert!(whole.take(2).is_err());
        drop(second);
        first.take(2).unwrap();
        drop(first);
        whole.take(8).unwrap();
        assert!(whole.take(1).is_err());
    }

    #[test]
    fn a_renewed_scratch_context_is_empty() {
        let whole = RequestContext::new(10);
        let mut scratch = whole.scratch();
        scratch.take(10).unwrap();
        scratch.renew();
        scratch.take(10).unwrap();
        assert!(whole.take(1).is_err());
    }

    #[test]
    fn work_is_cancelled_when_its_guard_is_dropped() {
        let context = RequestContext::default();
        let (work, guard) = context.cancellable();
        let part = work.scratch();
        assert_eq!((work.check(), part.check()), (Ok(()), Ok(())));
        drop(guard);
        let cancelled = Err(Halt::Cancelled);
        assert_eq!((work.check(), part.check()), (cancelled, cancelled));
        assert_eq!(context.check(), Ok(()), "the request itself goes on");
    }

    #[test]
    fn short_work_ends_when_its_request_turns_out_to_be_long() {
        let context = RequestContext::default();
        let (one, other) = (context.short(), context.scratch().short());
        one.spend(SHORT_STEPS / 2);
        other.spend(SHORT_STEPS / 2);
        assert_eq!((one.check(), context.is_long()), (Ok(()), false));
        other.spend(1);
        assert_eq!((one.check(), context.is_long()), (Err(Halt::TooLong), true));
        assert_eq!(context.check(), Ok(()), "long work goes on");
    }
}
