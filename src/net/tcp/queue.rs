//! The queue of one channel to a peer, the right to send from it, and the batch that is being sent.

use crate::base::budget::{Budget, Charge};
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::base::tls::Stream;
use crate::net::frame::put_frame;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Bytes of a queue that take nothing of the budget.
const FREE_BYTES: usize = 64 << 10;

/// Bytes that a queue takes of the budget at a time.
const CHARGE_STEP: usize = 1 << 20;

/// A message that waits.
#[derive(Debug, Clone)]
pub(super) struct Queued {
    pub(super) message: Arc<[u8]>,
    /// After this it need not be sent any more.
    pub(super) deadline: Duration,
}

/// Limits of a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// The only right to send from a queue, until it is given back.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) stream: Arc<Stream>,
    pub(super) batch: Batch,
}

/// Outcome of queueing a message.
#[derive(Debug)]
pub(super) enum Pushed {
    /// It waits, and another task sends.
    Queued,
    /// It waits, and the caller has to start the writer.
    First,
    /// It waits, and the caller has to send it.
    Yours(Turn),
    /// There was no room.
    Full,
}

/// A bounded queue with one writer, which dials and sends. While a connection is idle, the task
/// that queues a message may send it: that saves waking the writer.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<rank::State, State>,
    /// Wakes the writer.
    wake: Notify,
    /// Number of requests to close the connection.
    disconnects: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    messages: VecDeque<Queued>,
    bytes: usize,
    /// Bytes of the messages that are being written.
    taken: usize,
    /// Memory for both, in steps.
    charge: Charge,
    phase: Phase,
    /// The connection, as long as there is one.
    stream: Option<Arc<Stream>>,
    /// The batch being written, while no task holds the turn.
    batch: Option<Batch>,
    /// Whether the writer waits for something to do.
    is_waiting: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No writer has been started.
    New,
    /// A writer runs.
    Open,
    /// No more messages are taken.
    Closed,
}

impl Queue {
    /// An empty queue whose messages take their memory from this budget.
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        let state = State {
            messages: VecDeque::new(),
            bytes: 0,
            taken: 0,
            charge: Charge::new(Arc::clone(budget)),
            phase: Phase::New,
            stream: None,
            batch: Some(Batch::default()),
            is_waiting: false,
        };
        let (disconnects, _) = watch::channel(0);
        Self { state: Mutex::new(state), wake: Notify::new(), disconnects }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
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
        while is_full(&state) || !state.has_memory_for(length) {
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
        if std::mem::replace(&mut state.phase, Phase::Open) == Phase::New {
            return (Pushed::First, late);
        }
        if state.batch.as_ref().is_some_and(Batch::is_empty)
            && let Some(turn) = state.take_turn()
        {
            return (Pushed::Yours(turn), late);
        }
        // The holder of the turn looks for more messages before it gives the turn back.
        if state.batch.is_some() {
            self.wake_writer(state);
        }
        (Pushed::Queued, late)
    }

    /// Wakes the writer if it waits, and not under the lock, which it needs at once.
    fn wake_writer(&self, mut state: MutexGuard<'_, State>) {
        if std::mem::take(&mut state.is_waiting) {
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Waits until there is something to dial for. False when there will be nothing any more.
    pub(super) async fn wait(&self) -> bool {
        let something = self.wait_for(|state| {
            let is_closed = state.phase == Phase::Closed;
            (is_closed || !state.messages.is_empty()).then_some(!is_closed)
        });
        something.await
    }

    /// Waits for something to send on the connection and for the turn. `None` when the queue is
    /// closed or disconnected.
    pub(super) async fn turn(&self) -> Option<Turn> {
        let turn = self.wait_for(|state| {
            if state.phase == Phase::Closed || state.stream.is_none() {
                return Some(None);
            }
            let unsent = state.batch.as_ref().is_some_and(|batch| !batch.is_empty());
            let something = unsent || !state.messages.is_empty();
            if something { state.take_turn().map(Some) } else { None }
        });
        turn.await
    }

    /// Waits until a question about the state has an answer.
    async fn wait_for<T>(&self, mut question: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            {
                let mut state = self.state();
                if let Some(answer) = question(&mut state) {
                    return answer;
                }
                state.is_waiting = true;
            }
            self.wake.notified().await;
        }
    }

    /// Gives a turn back, unless the batch is written, more messages wait and the caller may go on:
    /// then it keeps the turn. Otherwise the writer sends the rest.
    pub(super) fn give_back(&self, turn: Turn, may_go_on: bool) -> Option<Turn> {
        let mut state = self.state();
        let is_sent = turn.batch.is_empty();
        if is_sent {
            state.set_taken(0);
        }
        if is_sent && may_go_on && !state.messages.is_empty() && state.stream.is_some() {
            return Some(turn);
        }
        state.batch = Some(turn.batch);
        if !is_sent || !state.messages.is_empty() || state.stream.is_none() {
            self.wake_writer(state);
        }
        None
    }

    /// From now on there is a connection.
    pub(super) fn connected(&self, stream: Arc<Stream>) {
        self.state().stream = Some(stream);
    }

    /// Forgets the connection. Waits until no task writes on it; unwritten messages come first
    /// again. Their bytes were in memory all the time, so no limit applies.
    pub(super) async fn disconnected(&self) {
        self.state().stream = None;
        let ended = self.wait_for(|state| {
            let batch = state.batch.as_mut()?;
            for queued in batch.unsent().rev() {
                state.bytes += queued.message.len();
                state.messages.push_front(queued);
            }
            state.set_taken(0);
            Some(())
        });
        ended.await;
    }

    /// Takes messages from the front, about as many as a batch should have and at least one. Those
    /// whose time is over are left out; how many is the second value.
    pub(super) fn take(&self, now: Duration) -> (Vec<Queued>, u64) {
        let (mut taken, mut taken_bytes, mut late) = (Vec::new(), 0, 0);
        let mut state = self.state();
        while taken_bytes < BATCH_BYTES
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
        state.set_taken(taken_bytes);
        (taken, late)
    }

    /// Drops the messages whose time is over, and says how many these were.
    pub(super) fn expire(&self, now: Duration) -> u64 {
        let mut state = self.state();
        let before = state.messages.len();
        state.messages.retain(|queued| queued.deadline >= now);
        state.bytes = state.messages.iter().map(|queued| queued.message.len()).sum();
        let taken = state.taken;
        state.set_taken(taken);
        (before - state.messages.len()) as u64
    }

    /// Number and bytes of the messages that wait.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state();
        (state.messages.len(), state.bytes)
    }

    /// Whether anything is not with the system yet.
    pub(super) fn has_unsent(&self) -> bool {
        let state = self.state();
        !state.messages.is_empty() || !state.batch.as_ref().is_some_and(Batch::is_empty)
    }

    /// Whether nothing waits and nothing is open.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.state();
        state.messages.is_empty() && state.stream.is_none()
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

impl State {
    /// Takes memory for a further message of this length, if there is any.
    fn has_memory_for(&mut self, length: usize) -> bool {
        let bytes = charged_bytes(self.bytes + length, self.taken);
        bytes <= self.charge.bytes() || self.charge.try_set(bytes)
    }

    /// Notes how many bytes are being written, and gives back memory that is not needed any more.
    fn set_taken(&mut self, bytes: usize) {
        self.taken = bytes;
        self.charge.set(charged_bytes(self.bytes, bytes));
    }

    /// Takes the turn, if there is a connection and no task holds it.
    fn take_turn(&mut self) -> Option<Turn> {
        let stream = Arc::clone(self.stream.as_ref()?);
        Some(Turn { stream, batch: self.batch.take()? })
    }
}

/// Memory for waiting messages and for those being written, which exist twice. Few bytes count as
/// none, and others in steps, so that few messages change the budget.
fn charged_bytes(waiting: usize, taken: usize) -> usize {
    let bytes = waiting + 2 * taken;
    if bytes <= FREE_BYTES { 0 } else { bytes.next_multiple_of(CHARGE_STEP) }
}

/// About how many bytes are written at a time.
const BATCH_BYTES: usize = 256 << 10;

/// A buffer larger than this is given back when it has been written.
const KEPT_BYTES: usize = 4 * BATCH_BYTES;

/// Messages in their frames, and how far they are written. Each queue has one, and only its holder
/// writes.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The messages, each with the place where its frame ends.
    messages: Vec<(Queued, usize)>,
    written: usize,
}

impl Batch {
    /// Whether there is nothing left to write or to count.
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether the system has all of it.
    pub(super) fn is_written(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// Takes further messages, when all before are written.
    pub(super) fn fill(&mut self, messages: Vec<Queued>, checksums: bool) {
        self.clear();
        for queued in messages {
            // Messages that no frame can hold are not queued.
            if put_frame(&mut self.bytes, &queued.message, checksums) {
                self.messages.push((queued, self.bytes.len()));
            }
        }
    }

    /// Number of messages and bytes of a batch that is written. It is empty then.
    pub(super) fn finish(&mut self) -> (usize, usize) {
        let counts = (self.messages.len(), self.bytes.len());
        self.clear();
        counts
    }

    /// The messages that were not written, or not to their end. The batch is empty then.
    pub(super) fn unsent(&mut self) -> std::vec::IntoIter<Queued> {
        let written = self.written;
        let unsent = self.messages.drain(..).filter(|(_, end)| *end > written);
        let unsent: Vec<Queued> = unsent.map(|(queued, _)| queued).collect();
        self.clear();
        unsent.into_iter()
    }

    /// Pretends that this many bytes were written.
    #[cfg(test)]
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.written += bytes;
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        self.written = 0;
    }

    /// Writes as much as the system takes at once. False if that was not all.
    pub(super) fn try_write(&mut self, stream: &Stream) -> io::Result<bool> {
        loop {
            let written = match &self.bytes[self.written..] {
                [] => stream.try_flush().map(|()| None),
                bytes => stream.try_write(bytes).map(Some),
            };
            match written {
                Ok(None) => return Ok(true),
                Ok(Some(count)) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes all of it.
    pub(super) async fn write(&mut self, stream: &Stream) -> io::Result<()> {
        while !self.try_write(stream)? {
            stream.socket().writable().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpStream;

    const MB: usize = 1 << 20;

    fn queue() -> Queue {
        Queue::new(&Budget::new(10 * MB))
    }

    fn queued(length: usize, deadline: u64) -> Queued {
        Queued { message: vec![0; length].into(), deadline: Duration::from_secs(deadline) }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn push(queue: &Queue, queued: Queued, now: u64) -> (&'static str, u64) {
        let limits = QueueLimits { messages: 3, bytes: 10 };
        let (pushed, late) = queue.push(queued, at(now), limits);
        let pushed = match pushed {
            Pushed::Queued => "queued",
            Pushed::First => "first",
            Pushed::Yours(_) => "yours",
            Pushed::Full => "full",
        };
        (pushed, late)
    }

    fn lengths(taken: &[Queued]) -> Vec<usize> {
        taken.iter().map(|queued| queued.message.len()).collect()
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_late_makes_room() {
        let queue = queue();
        // One that is too large may go alone.
        assert_eq!(push(&queue, queued(50, 1), 0), ("first", 0));
        assert_eq!(push(&queue, queued(1, 9), 1), ("full", 0));
        assert_eq!(push(&queue, queued(1, 9), 2), ("queued", 1));
        assert_eq!(push(&queue, queued(9, 2), 2), ("queued", 0));
        assert_eq!(push(&queue, queued(1, 9), 3), ("full", 0));
        assert_eq!(queue.waiting(), (2, 10));
        assert_eq!(queue.expire(at(3)), 1);
        for _ in 0..2 {
            assert_eq!(push(&queue, queued(1, 9), 3), ("queued", 0));
        }
        assert_eq!(push(&queue, queued(1, 9), 3), ("full", 0));
        queue.close();
        let (taken, late) = queue.take(at(3));
        assert_eq!((taken.len(), late, queue.waiting()), (3, 0, (0, 0)));
        assert_eq!(push(&queue, queued(1, 9), 3), ("full", 0));
    }

    #[test]
    fn queues_hold_no_more_together_than_the_budget_gives() {
        let budget = Budget::new(10 * MB);
        let [one, other] = [(); 2].map(|()| Queue::new(&budget));
        let limits = QueueLimits { messages: 9, bytes: 9 * MB };
        let push = |queue: &Queue, length| {
            !matches!(queue.push(queued(length, 9), at(0), limits).0, Pushed::Full)
        };
        assert!(push(&one, 6 * MB) && !push(&other, 5 * MB) && push(&other, 4 * MB));
        assert_eq!(budget.used(), 10 * MB);
        let (taken, _) = other.take(at(0));
        assert_eq!(budget.used(), 14 * MB, "what is written is there twice");
        assert!(push(&one, 0) && !push(&one, MB));
        drop((taken, other));
        assert_eq!(budget.used(), 6 * MB);
    }

    #[tokio::test]
    async fn one_at_a_time_sends_and_what_was_not_sent_comes_first_again() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let limits = QueueLimits { messages: 9, bytes: 99 };
        let push = |queue: &Queue, length: usize| {
            queue.push(queued(length, length as u64), at(0), limits).0
        };
        let queue = queue();
        assert!(matches!(push(&queue, 1), Pushed::First));
        assert!(matches!(push(&queue, 2), Pushed::Queued), "nothing is connected yet");
        queue.connected(Arc::new(Stream::new(stream)));
        let Pushed::Yours(mut turn) = push(&queue, 3) else { panic!("nobody sends") };
        assert!(matches!(push(&queue, 4), Pushed::Queued), "somebody sends");
        let (taken, _) = queue.take(at(0));
        assert_eq!(lengths(&taken), [1, 2, 3, 4]);
        turn.batch.fill(taken, false);
        // The first was written, the second in part.
        turn.batch.note_written(12 + 1 + 12 + 1);
        assert!(matches!(push(&queue, 5), Pushed::Queued));
        assert!(queue.give_back(turn, true).is_none(), "the rest is the writer's");
        assert!(matches!(push(&queue, 6), Pushed::Queued));
        let turn = queue.turn().await.unwrap();
        assert!(queue.give_back(turn, true).is_none());
        queue.disconnected().await;
        let (taken, late) = queue.take(at(4));
        assert_eq!((lengths(&taken), late), (vec![4, 5, 6], 2));
        assert!(queue.is_idle() && !queue.has_unsent());
    }

    #[tokio::test]
    async fn whoever_has_the_turn_sends_what_others_queue_meanwhile() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let queue = queue();
        assert_eq!(push(&queue, queued(1, 1), 0).0, "first");
        queue.take(at(0));
        queue.connected(Arc::new(Stream::new(stream)));
        let limits = QueueLimits { messages: 9, bytes: 99 };
        let (Pushed::Yours(turn), _) = queue.push(queued(1, 1), at(0), limits) else {
            panic!("nobody sends")
        };
        let turn = queue.give_back(turn, true).expect("it still waits");
        queue.take(at(0));
        assert!(queue.give_back(turn, true).is_none());
        assert_eq!(push(&queue, queued(1, 1), 0).0, "yours");
    }
}
