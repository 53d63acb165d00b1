//! The context of a request, which goes with it from the front end down to storage.

use super::budget::Budget;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Most bytes of an answer: a client that asks for a whole column family by one call gets an error
/// instead of all memory. A message cannot be larger than 2 GB anyway.
pub const MAX_ANSWER_BYTES: usize = 512 << 20;

/// Bytes that a request may take outside of the shared budget, so that a small one touches no
/// shared counter.
const UNSHARED_BYTES: usize = 16 << 10;

/// Steps of work, such as looking at a cell, that a request may do on the threads that all requests
/// share: about 10 milliseconds.
const SHORT_STEPS: usize = 200_000;

/// Time limit of unlimited work.
const ENDLESS: Duration = Duration::from_hours(24 * 365);

/// The memory of a request, its deadline, its work so far, its cancellation, and its permit to
/// read. However many clients ask for much at a time, few large answers are in memory, and none is
/// larger than allowed.
#[derive(Debug)]
pub struct RequestContext {
    request: Arc<Request>,
    /// Counts memory that is given back before the request ends; `None` for that of the answer.
    scratch: Option<Arc<Scratch>>,
    /// Whether the work has to end when it turns out to be long.
    is_short: bool,
    /// Set when the result is not awaited any more; `None` for work that is too short to cancel.
    cancelled: Option<Arc<AtomicBool>>,
    /// Held from the moment when the request needs a thread that reads, until its answer has been
    /// written.
    pub(crate) read_permit: Option<OwnedSemaphorePermit>,
}

/// State that all contexts of one request share.
#[derive(Debug)]
struct Request {
    memory: Budget,
    /// Steps that all work of the request has taken.
    steps: AtomicUsize,
    timeout: Duration,
    /// Set when the request waits for the first time: what is at hand costs no look at a clock.
    deadline: OnceLock<Instant>,
}

/// Memory for data that are no part of the answer.
#[derive(Debug)]
struct Scratch {
    request: Arc<Request>,
    used: AtomicUsize,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.request.memory.give_back(*self.used.get_mut());
    }
}

impl RequestContext {
    /// A context for an answer of at most this many bytes.
    pub fn new(limit: usize) -> Self {
        Self::within(&Budget::new(limit), limit, ENDLESS)
    }

    /// A context for an answer of at most this many bytes, which it takes from what all requests
    /// share unless it is small. Its time begins when it waits for the first time.
    pub fn within(shared: &Arc<Budget>, limit: usize, timeout: Duration) -> Self {
        let limit = MAX_ANSWER_BYTES.min(limit);
        let memory = shared.part_beyond(UNSHARED_BYTES, limit);
        let (steps, deadline) = (AtomicUsize::new(0), OnceLock::new());
        Self {
            request: Arc::new(Request { memory, steps, timeout, deadline }),
            scratch: None,
            is_short: false,
            cancelled: None,
            read_permit: None,
        }
    }

    /// A context for a part of the same answer, which has a permit of its own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            request: Arc::clone(&self.request),
            scratch: self.scratch.clone(),
            is_short: self.is_short,
            cancelled: self.cancelled.clone(),
            read_permit: None,
        }
    }

    /// A child for data that are in memory only for a while: what they have taken is given back
    /// when this and all its children are dropped.
    #[must_use]
    pub fn scratch(&self) -> Self {
        let (request, used) = (Arc::clone(&self.request), AtomicUsize::new(0));
        Self { scratch: Some(Arc::new(Scratch { request, used })), ..self.child() }
    }

    /// Replaces a scratch context by an empty one, since its data were dropped. Reads that still
    /// use the old one hold its memory until they end.
    pub fn renew(&mut self) {
        if self.scratch.is_some() {
            self.scratch = self.scratch().scratch;
        }
    }

    /// A child for work that is given up as soon as the guard is dropped.
    pub fn cancellable(&self) -> (Self, CancelOnDrop) {
        let flag = Arc::new(AtomicBool::new(false));
        let context = Self { cancelled: Some(Arc::clone(&flag)), ..self.child() };
        (context, CancelOnDrop(flag))
    }

    /// A child for work that must end as soon as the request turns out to be long.
    #[must_use]
    pub fn short(&self) -> Self {
        Self { is_short: true, ..self.child() }
    }

    /// The end of the request, counted from the first call.
    pub fn deadline(&self) -> Instant {
        *self.request.deadline.get_or_init(|| Instant::now() + self.request.timeout)
    }

    /// Lets others read, as long as this request only waits for other nodes.
    pub fn release(&mut self) {
        self.read_permit = None;
    }

    /// Whether the request has done more work than short ones do.
    pub fn is_long(&self) -> bool {
        self.request.steps.load(Ordering::Relaxed) > SHORT_STEPS
    }

    /// Notes work that was done.
    pub fn spend(&self, steps: usize) {
        self.request.steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// Takes memory: all of the bytes, or none.
    pub fn take(&self, bytes: usize) -> Result<(), TooLarge> {
        let memory = &self.request.memory;
        if memory.try_take(bytes) {
            if let Some(scratch) = &self.scratch {
                scratch.used.fetch_add(bytes, Ordering::Relaxed);
            }
            return Ok(());
        }
        let limit = memory.limit();
        let shared = memory.whole().map_or(limit, |shared| shared.limit());
        Err(if memory.used() + bytes > limit {
            TooLarge::Alone { limit }
        } else {
            TooLarge::Together { limit: shared }
        })
    }

    /// Gives back memory that was taken.
    pub fn give_back(&self, bytes: usize) {
        if let Some(scratch) = &self.scratch {
            scratch.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.request.memory.give_back(bytes);
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
    /// The same request will fail again.
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
