//! Requests to flush memtables, and their causes.
//!
//! A family waits in the queue at most once. Requests that writers wait for go first: a thousand
//! small families that reach their age at once must not delay the one that is written to. A family
//! that is being flushed is not handed out again before that ends, so that a large one takes one
//! thread.

use crate::base::worker::{Closed, Queue};
use crate::model::schema::FamilyId;
use std::collections::VecDeque;
use std::time::Duration;

/// Reason for the flush of a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum FlushCause {
    /// `MemtableThroughputInMB` is reached.
    #[display("has reached its threshold of bytes")]
    Throughput,
    /// `MemtableOperationsInMillions` is reached.
    #[display("has reached its threshold of operations")]
    Operations,
    /// `MemtableFlushAfterMinutes` have passed.
    #[display("has reached its threshold of age")]
    Age,
    /// All memtables and caches together outgrew `MemoryBudgetInMB`.
    #[display("is flushed to free memory")]
    Memory,
    /// It pins the oldest commit log segment, and the log is at its bound.
    #[display("is flushed to free commit log segments")]
    CommitLogSize,
    /// The operator asked, or a snapshot, drain or repair did on the operator's behalf.
    #[display("is flushed on request")]
    Request,
    /// The commit log has been replayed.
    #[display("is flushed after the commit log replay")]
    Replay,
    /// The node stops.
    #[display("is flushed before shutdown")]
    Shutdown,
}

impl FlushCause {
    /// Whether writers wait for the flush, or soon will.
    fn is_urgent(self) -> bool {
        matches!(self, Self::Memory | Self::Throughput | Self::Operations)
    }
}

/// Families that wait for a flush.
#[derive(Debug, Default)]
pub struct FlushQueue(Queue<State>);

/// A request that was handed out; ends when dropped.
#[derive(Debug)]
pub struct Flushing<'a> {
    queue: &'a FlushQueue,
    /// The family.
    pub family: FamilyId,
    /// Reason of the flush.
    pub cause: FlushCause,
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        // The family may have been requested again.
        self.queue.0.push(|state| state.running.retain(|family| *family != self.family));
    }
}

/// Requests after which deferred ones are retried, if the queue never runs dry.
const RETRY_AFTER: usize = 16;

type Request = (FamilyId, FlushCause);

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Could not be done for now.
    deferred: Vec<Request>,
    running: Vec<FamilyId>,
    /// Requests handed out since the last retry.
    handed_out: usize,
}

impl State {
    fn add(&mut self, (family, cause): Request) {
        match self.waiting.iter_mut().find(|(other, _)| *other == family) {
            Some(other) if cause.is_urgent() => other.1 = cause,
            Some(_) => {}
            None => self.waiting.push_back((family, cause)),
        }
    }

    fn is_deferred(&self, family: FamilyId) -> bool {
        self.deferred.iter().any(|(other, _)| *other == family)
    }

    fn take(&mut self) -> Option<Request> {
        if self.handed_out >= RETRY_AFTER {
            self.retry();
        }
        let waiting = self.waiting.iter().enumerate();
        let free = || waiting.clone().filter(|(_, (family, _))| !self.running.contains(family));
        let next = free().find(|(_, (_, cause))| cause.is_urgent()).or_else(|| free().next());
        let request = self.waiting.remove(next?.0)?;
        self.running.push(request.0);
        self.handed_out += 1;
        Some(request)
    }

    fn retry(&mut self) {
        self.handed_out = 0;
        for request in std::mem::take(&mut self.deferred) {
            self.add(request);
        }
    }
}

impl FlushQueue {
    /// Requests a flush, unless the family is waiting already or deferred.
    pub fn push(&self, family: FamilyId, cause: FlushCause) {
        self.0.push(|state| {
            if !state.is_deferred(family) {
                state.add((family, cause));
            }
        });
    }

    /// Requests a flush that cannot be done at this moment: it is retried when the queue has been
    /// idle.
    pub fn defer(&self, family: FamilyId, cause: FlushCause) {
        self.0.push(|state| {
            if !state.is_deferred(family) {
                state.waiting.retain(|(other, _)| *other != family);
                state.deferred.push((family, cause));
            }
        });
    }

    /// Drops the requests of a family.
    pub fn forget(&self, family: FamilyId) {
        self.0.with(|state| {
            state.waiting.retain(|(other, _)| *other != family);
            state.deferred.retain(|(other, _)| *other != family);
        });
    }

    /// Whether the family was deferred.
    pub fn is_deferred(&self, family: FamilyId) -> bool {
        self.0.with(|state| state.is_deferred(family))
    }

    /// Takes the next request, whose family is not handed out again before it is dropped; `None` if
    /// there is none in time.
    pub fn next(&self, patience: Duration) -> Result<Option<Flushing<'_>>, Closed> {
        let next = self.0.take_within(patience, State::take)?;
        let next = next.or_else(|| {
            self.0.with(|state| {
                state.retry();
                state.take()
            })
        });
        Ok(next.map(|(family, cause)| Flushing { queue: self, family, cause }))
    }

    /// Whether a flush is running, or one waits that writers wait for.
    pub fn is_busy(&self) -> bool {
        self.0.with(|state| {
            !state.running.is_empty() || state.waiting.iter().any(|(_, cause)| cause.is_urgent())
        })
    }

    /// Drops all requests and wakes the threads.
    pub fn close(&self) {
        self.0.close(|state| *state = State::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [FamilyId; 4] = [FamilyId(0), FamilyId(1), FamilyId(2), FamilyId(3)];

    fn next(queue: &FlushQueue) -> Option<Flushing<'_>> {
        queue.next(Duration::ZERO).unwrap()
    }

    #[test]
    fn what_writers_wait_for_goes_first() {
        let queue = FlushQueue::default();
        let [a, b, c, d] = FAMILIES;
        for family in [a, b, c] {
            queue.push(family, FlushCause::Age);
        }
        assert!(!queue.is_busy());
        queue.push(d, FlushCause::Memory);
        queue.push(c, FlushCause::Throughput);
        queue.push(a, FlushCause::CommitLogSize);
        assert!(queue.is_busy());
        let running: Vec<_> = std::iter::from_fn(|| next(&queue)).collect();
        let order: Vec<_> = running.iter().map(|it| (it.family, it.cause)).collect();
        let urgent = [(c, FlushCause::Throughput), (d, FlushCause::Memory)];
        assert_eq!(order, [&urgent[..], &[(a, FlushCause::Age), (b, FlushCause::Age)]].concat());
        assert!(queue.is_busy());
        drop(running);
        assert!(!queue.is_busy());
        queue.close();
        queue.push(a, FlushCause::Memory);
        assert_eq!(queue.next(Duration::ZERO).err(), Some(Closed));
    }

    #[test]
    fn deferred_requests_are_retried_and_keep_none_waiting() {
        let queue = FlushQueue::default();
        let [stuck, other, ..] = FAMILIES;
        queue.defer(stuck, FlushCause::Memory);
        queue.push(stuck, FlushCause::Memory);
        queue.push(other, FlushCause::Age);
        assert!(queue.is_deferred(stuck) && !queue.is_deferred(other));
        assert_eq!(next(&queue).unwrap().family, other);
        assert_eq!(next(&queue).unwrap().family, stuck, "after a pause");
        queue.defer(stuck, FlushCause::Memory);
        let handed_out = (0..).take_while(|_| {
            queue.push(other, FlushCause::Age);
            next(&queue).unwrap().family == other
        });
        assert!(handed_out.count() <= RETRY_AFTER);
        queue.defer(stuck, FlushCause::Memory);
        queue.forget(stuck);
        assert!(!queue.is_deferred(stuck));
        assert_eq!(next(&queue).map(|it| it.family), Some(other));
        assert!(next(&queue).is_none());
    }

    #[test]
    fn a_family_takes_one_thread_at_a_time() {
        let queue = FlushQueue::default();
        let [large, small, ..] = FAMILIES;
        queue.push(large, FlushCause::Throughput);
        let running = next(&queue).unwrap();
        queue.push(large, FlushCause::Memory);
        assert!(next(&queue).is_none(), "a thread flushes it");
        queue.push(small, FlushCause::Age);
        assert_eq!(next(&queue).unwrap().family, small);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let next = queue.next(Duration::from_secs(60)).unwrap().unwrap();
                (next.family, next.cause)
            });
            drop(running);
            assert_eq!(waiting.join().unwrap(), (large, FlushCause::Memory));
        });
    }
}
