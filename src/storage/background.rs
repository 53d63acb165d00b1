//! The threads behind a [`super::Storage`]: one writes memtables to disk, one merges SSTables.
//!
//! Both take their work from a queue of column families in which each stands at most once, so that
//! neither queue grows without bound. Flushes of one family never overtake each other: only then
//! may the commit log forget what a flush has written.

use crate::base::events::FlushCause;
use crate::model::schema::FamilyId;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What the flush thread is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Write the memtable of this family.
    Flush(FamilyId, FlushCause),
    /// Everything that the log held at the start is on disk: its old segments may go.
    ReplayIsFlushed,
    /// Look whether this family has SSTables to merge.
    Compact(FamilyId),
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
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Work>,
    closed: bool,
}

impl WorkQueue {
    /// Adds work, unless the same is waiting already.
    pub fn push(&self, work: Work) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = state.waiting.iter().any(|other| match (other, &work) {
            (Work::Flush(a, _), Work::Flush(b, _)) => a == b,
            (a, b) => a == b,
        });
        if !waits && !state.closed {
            state.waiting.push_back(work);
            self.changed.notify_one();
        }
    }

    /// The next piece of work; waits at most this long for it.
    pub fn next(&self, patience: Duration) -> Next {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.waiting.is_empty() && !state.closed {
            let waited = self.changed.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.waiting.pop_front() {
            _ if state.closed => Next::Closed,
            Some(work) => Next::Work(work),
            None => Next::Idle,
        }
    }

    /// Number of pieces that wait.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands out no more work and wakes who waits.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.closed = true;
        state.waiting.clear();
        self.changed.notify_all();
    }
}
