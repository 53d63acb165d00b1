//! Work for the threads behind a [`super::Database`] that write memtables to disk.
//!
//! They take it from a queue in which each column family stands at most once, so that it does not
//! grow without bound. What writers wait for goes before what only has to be done some day: a
//! thousand small families that grow old at the same moment must not stand in the way of the one
//! that is written to. Nor does a large one take more than one thread: what comes for it while it
//! is written waits until that is done.

use crate::base::lock::{Condvar, Mutex, MutexGuard, rank};
use crate::model::schema::FamilyId;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Reason for the flush of a memtable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushCause {
    /// `MemtableThroughputInMB` is reached.
    Throughput,
    /// `MemtableOperationsInMillions` is reached.
    Operations,
    /// `MemtableFlushAfterMinutes` have passed.
    Age,
    /// All memtables and caches together outgrew `MemoryBudgetInMB`.
    Memory,
    /// It pins the oldest commit log segment, and the log is at its bound.
    CommitLogSize,
    /// The operator asked, or a snapshot, drain or repair did on the operator's behalf.
    Request,
    /// The commit log has been replayed.
    Replay,
    /// The node stops.
    Shutdown,
}

impl fmt::Display for FlushCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throughput => "has reached its threshold of bytes",
            Self::Operations => "has reached its threshold of operations",
            Self::Age => "has reached its threshold of age",
            Self::Memory => "is flushed to free memory",
            Self::CommitLogSize => "is flushed to free commit log segments",
            Self::Request => "is flushed on request",
            Self::Replay => "is flushed after the commit log replay",
            Self::Shutdown => "is flushed before shutdown",
        })
    }
}

/// What the flush thread is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Write the memtable of this family.
    Flush(FamilyId, FlushCause),
    /// Everything that the log held at the start is on disk: its old segments may go.
    ReplayIsFlushed,
}

impl Work {
    /// Whether writers wait for it, or soon will.
    fn is_urgent(self) -> bool {
        match self {
            Self::Flush(_, cause) => match cause {
                FlushCause::Memory | FlushCause::Throughput | FlushCause::Operations => true,
                FlushCause::Age
                | FlushCause::CommitLogSize
                | FlushCause::Replay
                | FlushCause::Request
                | FlushCause::Shutdown => false,
            },
            Self::ReplayIsFlushed => false,
        }
    }

    /// Whether one of the two makes the other superfluous.
    fn is_same(self, other: Self) -> bool {
        match (self, other) {
            (Self::Flush(a, _), Self::Flush(b, _)) => a == b,
            (a, b) => a == b,
        }
    }
}

/// What a thread finds when it asks for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Something to do.
    Work(Work),
    /// Nothing for as long as it waited.
    Idle,
    /// The storage is closed.
    Closed,
}

/// Work that waits for a thread.
#[derive(Debug, Default)]
pub struct WorkQueue {
    state: Mutex<rank::State, State>,
    changed: Condvar,
}

/// Work that was handed out, and ends with this.
#[derive(Debug)]
pub struct Running<'a> {
    queue: &'a WorkQueue,
    work: Work,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.queue.end(self.work);
    }
}

/// Pieces of work after which those that were put off are tried again, if a queue never runs dry.
const RETRY_AFTER: usize = 16;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Work>,
    /// What could not be done for now.
    put_off: Vec<Work>,
    /// What threads are at.
    running: Vec<Work>,
    /// Pieces handed out since the last ones were put off.
    handed_out: usize,
    closed: bool,
}

impl State {
    fn add(&mut self, work: Work) {
        match self.waiting.iter_mut().find(|other| other.is_same(work)) {
            Some(other) if work.is_urgent() => *other = work,
            Some(_) => {}
            None => self.waiting.push_back(work),
        }
    }

    fn is_put_off(&self, work: Work) -> bool {
        self.put_off.iter().any(|other| other.is_same(work))
    }

    /// Whether a thread could begin with it. A second one would only wait for the first.
    fn is_free(&self, work: Work) -> bool {
        !self.running.iter().any(|other| other.is_same(work))
    }

    /// Whether there is something that a thread could begin with.
    fn has_free(&self) -> bool {
        self.waiting.iter().any(|work| self.is_free(*work))
    }

    fn take(&mut self) -> Option<Work> {
        if self.handed_out >= RETRY_AFTER {
            self.retry();
        }
        let free = || self.waiting.iter().enumerate().filter(|(_, work)| self.is_free(**work));
        let next = free().find(|(_, work)| work.is_urgent()).or_else(|| free().next());
        let work = self.waiting.remove(next?.0)?;
        self.running.push(work);
        self.handed_out += 1;
        Some(work)
    }

    fn retry(&mut self) {
        self.handed_out = 0;
        for work in std::mem::take(&mut self.put_off) {
            self.add(work);
        }
    }
}

impl WorkQueue {
    /// Adds work, unless the same is waiting already or was put off.
    pub fn push(&self, work: Work) {
        let mut state = self.lock();
        if !state.closed && !state.is_put_off(work) {
            state.add(work);
            self.changed.notify_one();
        }
    }

    /// Adds work that cannot be done at this moment: it comes again when the queue has been idle.
    pub fn put_off(&self, work: Work) {
        let mut state = self.lock();
        if !state.closed && !state.is_put_off(work) {
            state.waiting.retain(|other| !other.is_same(work));
            state.put_off.push(work);
        }
    }

    /// Whether the same was put off.
    pub fn is_put_off(&self, work: Work) -> bool {
        self.lock().is_put_off(work)
    }

    /// The next piece of work; waits at most this long for it. Nobody else is given the same before
    /// it is [ended](Running).
    pub fn next(&self, patience: Duration) -> Next {
        let mut state = self.lock();
        if !state.has_free() && !state.closed {
            let is_notified = self.changed.wait_for(&mut state, patience);
            if !is_notified {
                state.retry();
            }
        }
        if state.closed {
            return Next::Closed;
        }
        state.take().map_or(Next::Idle, Next::Work)
    }

    /// To be held by who was given this work, for as long as it takes.
    pub fn running(&self, work: Work) -> Running<'_> {
        Running { queue: self, work }
    }

    fn end(&self, work: Work) {
        let mut state = self.lock();
        state.running.retain(|other| !other.is_same(work));
        // Some of the same may have come meanwhile.
        self.changed.notify_one();
    }

    /// Whether something waits that writers wait for.
    pub fn has_urgent(&self) -> bool {
        self.lock().waiting.iter().any(|work| work.is_urgent())
    }

    /// Number of pieces that wait.
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.waiting.len() + state.put_off.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out no more work and wakes who waits.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.waiting.clear();
        state.put_off.clear();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flush(family: u32, cause: FlushCause) -> Work {
        Work::Flush(FamilyId(family), cause)
    }

    #[test]
    fn what_writers_wait_for_goes_first() {
        let queue = WorkQueue::default();
        for family in 0..3 {
            queue.push(flush(family, FlushCause::Age));
        }
        queue.push(flush(7, FlushCause::Memory));
        queue.push(flush(2, FlushCause::Throughput));
        queue.push(flush(0, FlushCause::CommitLogSize));
        assert_eq!(queue.len(), 4);
        let order: Vec<_> = (0..4).map(|_| queue.next(Duration::ZERO)).collect();
        let expected = [
            flush(2, FlushCause::Throughput),
            flush(7, FlushCause::Memory),
            flush(0, FlushCause::Age),
            flush(1, FlushCause::Age),
        ];
        assert_eq!(order, expected.map(Next::Work));
        assert_eq!(queue.next(Duration::ZERO), Next::Idle);
    }

    #[test]
    fn what_was_put_off_comes_again_and_keeps_nobody_waiting() {
        let queue = WorkQueue::default();
        let (stuck, other) = (flush(1, FlushCause::Memory), flush(2, FlushCause::Age));
        queue.put_off(stuck);
        queue.push(stuck);
        queue.push(other);
        assert!(queue.is_put_off(stuck) && !queue.is_put_off(other));
        let next = || {
            let next = queue.next(Duration::ZERO);
            if let Next::Work(work) = next {
                drop(queue.running(work));
            }
            next
        };
        assert_eq!(next(), Next::Work(other));
        assert_eq!(next(), Next::Work(stuck), "after a pause");
        queue.put_off(stuck);
        let mut others = 0;
        loop {
            queue.push(other);
            match next() {
                Next::Work(work) if work == stuck => break,
                _ => others += 1,
            }
        }
        assert!(others <= RETRY_AFTER, "{others}");
    }

    #[test]
    fn a_family_takes_one_thread_at_a_time() {
        let queue = WorkQueue::default();
        let (large, small) = (flush(1, FlushCause::Throughput), flush(2, FlushCause::Age));
        queue.push(large);
        assert_eq!(queue.next(Duration::ZERO), Next::Work(large));
        let running = queue.running(large);
        queue.push(flush(1, FlushCause::Memory));
        assert_eq!(queue.next(Duration::ZERO), Next::Idle, "another thread is at it");
        queue.push(small);
        assert_eq!(queue.next(Duration::ZERO), Next::Work(small));
        drop(queue.running(small));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.next(Duration::from_secs(60)));
            drop(running);
            assert_eq!(waiting.join().unwrap(), Next::Work(flush(1, FlushCause::Memory)));
        });
    }
}
