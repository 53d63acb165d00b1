//! What waits to be sent to one peer on one channel.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// A message that waits.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) message: Arc<[u8]>,
    /// After this it need not be sent any more.
    pub(super) deadline: Duration,
}

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// What became of a message that was to be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pushed {
    /// It waits, and somebody sends.
    Queued,
    /// It waits, and nobody sends yet: the caller has to start a writer.
    First,
    /// There was no room.
    Full,
}

/// A bounded queue with one writer, who takes from its front.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer.
    wake: Notify,
    /// How often the connection was to be closed.
    disconnects: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Queued>,
    bytes: usize,
    phase: Phase,
    is_connected: bool,
    /// Whether the writer waits for the first message.
    is_waiting: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nobody sends yet.
    #[default]
    New,
    /// Somebody sends.
    Open,
    /// No more messages are taken.
    Closed,
}

impl Queue {
    pub(super) fn new() -> Self {
        let (disconnects, _) = watch::channel(0);
        Self { state: Mutex::default(), wake: Notify::new(), disconnects }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message. When there is no room, first those at the front go whose time is over;
    /// the second value is how many.
    pub(super) fn push(&self, queued: Queued, now: Duration, limits: QueueLimits) -> (Pushed, u64) {
        let mut state = self.state();
        let length = queued.message.len();
        let is_full = |state: &State| {
            !state.messages.is_empty()
                && (state.messages.len() >= limits.messages
                    || state.bytes.saturating_add(length) > limits.bytes)
        };
        let mut late = 0;
        while is_full(&state) {
            match state.messages.pop_front_if(|front| front.deadline < now) {
                Some(front) => state.bytes -= front.message.len(),
                None => return (Pushed::Full, late),
            }
            late += 1;
        }
        if state.phase == Phase::Closed {
            return (Pushed::Full, late);
        }
        state.bytes += length;
        state.messages.push_back(queued);
        let is_first = std::mem::replace(&mut state.phase, Phase::Open) == Phase::New;
        if std::mem::take(&mut state.is_waiting) {
            self.wake.notify_one();
        }
        (if is_first { Pushed::First } else { Pushed::Queued }, late)
    }

    /// Waits until there is a message. False when there will be none any more.
    pub(super) async fn wait(&self) -> bool {
        loop {
            {
                let mut state = self.state();
                if state.phase == Phase::Closed {
                    return false;
                }
                if !state.messages.is_empty() {
                    return true;
                }
                state.is_waiting = true;
            }
            self.wake.notified().await;
        }
    }

    /// Takes messages from the front, up to about so many bytes and at least one. Those whose time
    /// is over are left out; how many is the second value.
    pub(super) fn take(&self, now: Duration, bytes: usize) -> (Vec<Queued>, u64) {
        let (mut taken, mut taken_bytes, mut late) = (Vec::new(), 0, 0);
        let mut state = self.state();
        while taken_bytes < bytes
            && let Some(front) = state.messages.pop_front()
        {
            state.bytes -= front.message.len();
            if front.deadline < now {
                late += 1;
            } else {
                taken_bytes += front.message.len();
                taken.push(front);
            }
        }
        (taken, late)
    }

    /// Puts messages back to the front, which were taken and not sent. Their bytes were in memory
    /// all the time, so that no limit is asked.
    pub(super) fn put_back(&self, unsent: impl DoubleEndedIterator<Item = Queued>) {
        let mut state = self.state();
        for queued in unsent.rev() {
            state.bytes += queued.message.len();
            state.messages.push_front(queued);
        }
    }

    /// Drops the messages whose time is over, and says how many these were.
    pub(super) fn expire(&self, now: Duration) -> u64 {
        let mut state = self.state();
        let before = state.messages.len();
        state.messages.retain(|queued| queued.deadline >= now);
        state.bytes = state.messages.iter().map(|queued| queued.message.len()).sum();
        (before - state.messages.len()) as u64
    }

    /// Number and bytes of the messages that wait.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state();
        (state.messages.len(), state.bytes)
    }

    /// Whether nothing waits and nothing is open.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.messages.is_empty() && !state.is_connected
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.state().is_connected = is_connected;
    }

    /// Takes no more messages, and lets the writer end.
    pub(super) fn close(&self) {
        self.state().phase = Phase::Closed;
        self.wake.notify_one();
    }

    /// Makes the writer close its connection.
    pub(super) fn disconnect(&self) {
        self.disconnects.send_modify(|count| *count += 1);
    }

    /// Tells the writer of disconnects from now on.
    pub(super) fn disconnects(&self) -> watch::Receiver<u64> {
        self.disconnects.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(length: usize, deadline: u64) -> Queued {
        Queued { message: vec![0; length].into(), deadline: Duration::from_secs(deadline) }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_late_makes_room() {
        let limits = QueueLimits { messages: 3, bytes: 10 };
        let queue = Queue::new();
        // One that is too large may go alone.
        assert_eq!(queue.push(queued(50, 1), at(0), limits), (Pushed::First, 0));
        assert_eq!(queue.push(queued(1, 9), at(1), limits), (Pushed::Full, 0));
        assert_eq!(queue.push(queued(1, 9), at(2), limits), (Pushed::Queued, 1));
        assert_eq!(queue.push(queued(9, 2), at(2), limits), (Pushed::Queued, 0));
        assert_eq!(queue.push(queued(1, 9), at(3), limits), (Pushed::Full, 0));
        assert_eq!(queue.waiting(), (2, 10));
        assert_eq!(queue.expire(at(3)), 1);
        for _ in 0..2 {
            assert_eq!(queue.push(queued(1, 9), at(3), limits), (Pushed::Queued, 0));
        }
        assert_eq!(queue.push(queued(1, 9), at(3), limits), (Pushed::Full, 0));
        queue.close();
        let (taken, late) = queue.take(at(3), 100);
        assert_eq!((taken.len(), late, queue.waiting()), (3, 0, (0, 0)));
        assert_eq!(queue.push(queued(1, 9), at(3), limits), (Pushed::Full, 0));
    }

    #[test]
    fn what_was_not_sent_comes_first_again() {
        let limits = QueueLimits { messages: 9, bytes: 99 };
        let queue = Queue::new();
        for length in 1..=4 {
            queue.push(queued(length, length as u64), at(0), limits);
        }
        let lengths = |taken: &[Queued]| -> Vec<usize> {
            taken.iter().map(|queued| queued.message.len()).collect()
        };
        let (taken, _) = queue.take(at(0), 3);
        assert_eq!(lengths(&taken), [1, 2]);
        queue.put_back(taken.into_iter());
        assert_eq!(queue.waiting(), (4, 10));
        let (taken, late) = queue.take(at(2), 100);
        assert_eq!((lengths(&taken), late), (vec![2, 3, 4], 1));
        assert!(queue.is_idle());
    }
}
