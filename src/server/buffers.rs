//! Memory for bytes under way. Connections hold it only while there are any.

use std::sync::Arc;

use crate::base::intake::{Intake, Unfinished};
use crate::base::lock::{Mutex, rank};

/// Capacity of a buffer of the pool: the most that one read takes from a connection at rest.
const BUFFER_BYTES: usize = 16 << 10;

/// A buffer that grew beyond this is freed instead of going back to the pool.
const MAX_POOLED_BYTES: usize = 128 << 10;

/// Buffers that a pool keeps. One is in use per call under way.
const MAX_POOLED: usize = 64;

/// The beginning of a request up to this size is kept outside of the pool's buffers.
const SMALL_BYTES: usize = 4 << 10;

/// Buffers of one worker. The lock is never contended: only the worker's own tasks take it.
#[derive(Debug, Default)]
pub(super) struct Pool {
    free: Mutex<rank::State, Vec<Vec<u8>>>,
}

impl Pool {
    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        let free = self.free.lock().pop();
        free.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Takes a buffer back.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        if !(BUFFER_BYTES..=MAX_POOLED_BYTES).contains(&buffer.capacity()) {
            return;
        }
        buffer.clear();
        let mut free = self.free.lock();
        if free.len() < MAX_POOLED {
            free.push(buffer);
        }
    }
}

/// Bytes that a connection has received and not yet executed.
///
/// At rest it holds nothing, or the beginning of a request in memory of about that size, which is
/// charged to the budget. The memory doubles when it is full of bytes that arrived; a declared
/// length moves nothing.
#[derive(Debug)]
pub(super) struct Input {
    /// Further bytes may be appended after [`Input::make_room`].
    pub(super) bytes: Vec<u8>,
    held: Unfinished,
}

impl Input {
    pub(super) fn new(intake: Arc<Intake>) -> Self {
        Self { bytes: Vec::new(), held: Unfinished::new(intake) }
    }

    /// Bytes of memory that are held.
    pub(super) fn held(&self) -> usize {
        self.held.bytes()
    }

    /// Memory for a request that is longer than the buffer.
    pub(super) fn grown(&self, max_message_bytes: usize) -> usize {
        let full = self.bytes.len();
        (full * 2).min(max_message_bytes).max(full + BUFFER_BYTES)
    }

    /// Makes room for more bytes, and waits for memory if others hold too much. The buffer does not
    /// grow far beyond the longest message. False if the memory does not come in time.
    pub(super) async fn make_room(&mut self, pool: &Pool, max_message_bytes: usize) -> bool {
        if self.bytes.capacity() < BUFFER_BYTES {
            let mut buffer = pool.take();
            buffer.extend_from_slice(&self.bytes);
            self.bytes = buffer;
        } else if self.bytes.len() == self.bytes.capacity() {
            let grown = self.grown(max_message_bytes);
            if !self.held.hold(grown).await {
                return false;
            }
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        true
    }

    /// Forgets the first bytes, which have been executed, and keeps the rest in memory of its size.
    /// False if there is none for that.
    pub(super) async fn consume(&mut self, count: usize, pool: &Pool) -> bool {
        let rest = self.bytes.get(count..).unwrap_or_default();
        if rest.len() <= SMALL_BYTES {
            let small = rest.to_vec();
            pool.give(std::mem::replace(&mut self.bytes, small));
        } else if count > 0 {
            self.bytes.drain(..count);
            if self.bytes.len() < self.bytes.capacity() / 4 {
                self.bytes.shrink_to(self.bytes.len().max(BUFFER_BYTES));
            }
        }
        self.held.hold(self.bytes.capacity()).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::budget::Budget;

    const MAX: usize = 1 << 20;

    fn input(budget: &Arc<Budget>) -> Input {
        Input::new(Intake::new(budget.clone(), 0, Duration::from_secs(1)))
    }

    #[tokio::test]
    async fn nothing_is_held_at_rest() {
        let (budget, pool) = (Budget::new(1 << 20), Pool::default());
        let mut input = input(&budget);
        assert!(input.make_room(&pool, MAX).await);
        input.bytes.extend_from_slice(b"one request");
        assert_eq!(input.bytes, b"one request");
        assert!(input.consume(11, &pool).await);
        assert_eq!((input.bytes.capacity(), budget.used()), (0, 0));
        assert_eq!(pool.take().capacity(), BUFFER_BYTES, "the buffer went back");
    }

    #[tokio::test]
    async fn the_beginning_of_a_request_costs_about_its_size() {
        let (budget, pool) = (Budget::new(1 << 20), Pool::default());
        let mut input = input(&budget);
        assert!(input.make_room(&pool, MAX).await);
        input.bytes.extend_from_slice(b"doneunfinished");
        assert!(input.consume(4, &pool).await);
        assert_eq!((input.bytes.as_slice(), budget.used()), (b"unfinished".as_slice(), 10));
        assert!(input.make_room(&pool, MAX).await);
        input.bytes.extend_from_slice(b" no more");
        assert_eq!(input.bytes, b"unfinished no more");
        assert!(input.consume(18, &pool).await);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_doubles_with_what_arrived_until_the_budget_ends() {
        let (budget, pool) = (Budget::new(100 << 10), Pool::default());
        let mut input = input(&budget);
        for expected in [16, 32, 64] {
            assert!(input.make_room(&pool, MAX).await);
            assert_eq!(input.bytes.capacity(), expected << 10);
            input.bytes.resize(expected << 10, b'x');
            assert!(input.consume(0, &pool).await);
            assert_eq!(budget.used(), expected << 10);
        }
        assert!(!input.make_room(&pool, MAX).await);
        assert!(input.make_room(&pool, 70 << 10).await);
        assert_eq!(input.bytes.capacity(), 80 << 10, "a little more than the longest message");
        assert!(input.consume((64 << 10) - (8 << 10), &pool).await);
        assert_eq!((input.bytes.len(), budget.used()), (8 << 10, 16 << 10), "shrunk");
        drop(input);
        assert_eq!(budget.used(), 0);
    }
}
