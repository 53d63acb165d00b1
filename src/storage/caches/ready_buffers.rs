//! Memory for blocks that is touched before reads need it.
//!
//! The first touch of fresh memory is slow: with huge pages the kernel clears 2 MB at once, which
//! takes milliseconds on a virtual machine. A background thread does that ahead of the reads that
//! fill the block cache.

use crate::base::lock::{Condvar, Mutex, rank};
use std::sync::Arc;

/// Bytes of a buffer. With the counters of the `Arc` it is 20 KiB, a size class of the allocator:
/// blocks of the usual 16 KiB would occupy as much on their own.
const BUFFER_BYTES: usize = (20 << 10) - 2 * size_of::<usize>();

/// Least bytes of a block that is put into a buffer. Smaller ones would waste most of it.
const LEAST_BYTES: usize = BUFFER_BYTES / 2;

/// Buffers that are kept ready: 5 MB, what 2,000 cache misses a second use in an eighth of a
/// second.
const READY: usize = 256;

/// Buffers of one size that are ready to be written to.
#[derive(Debug, Default)]
pub struct ReadyBuffers {
    state: Mutex<rank::State, State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    buffers: Vec<Arc<[u8]>>,
    /// Whether the thread that fills waits until half of the buffers are used.
    is_resting: bool,
    is_closed: bool,
}

impl ReadyBuffers {
    /// Takes a buffer for a block of this many bytes. It is longer than the block, and holds
    /// arbitrary bytes. `None` if no buffer is ready or none has the right size.
    pub fn take(&self, bytes: usize) -> Option<Arc<[u8]>> {
        if !(LEAST_BYTES..=BUFFER_BYTES).contains(&bytes) {
            return None;
        }
        let mut state = self.state.lock();
        let buffer = state.buffers.pop();
        if state.is_resting && state.buffers.len() < READY / 2 {
            state.is_resting = false;
            self.changed.notify_one();
        }
        buffer
    }

    /// Keeps buffers ready until [`ReadyBuffers::close`]: the body of a background thread.
    pub fn fill(&self) {
        loop {
            let mut state = self.state.lock();
            state.is_resting = state.buffers.len() >= READY;
            while state.is_resting && !state.is_closed {
                self.changed.wait(&mut state);
            }
            if state.is_closed {
                return;
            }
            drop(state);
            // Written here, and not only reserved.
            let buffer: Arc<[u8]> = std::iter::repeat_n(0, BUFFER_BYTES).collect();
            let mut state = self.state.lock();
            if !state.is_closed {
                state.buffers.push(buffer);
            }
        }
    }

    /// Ends [`ReadyBuffers::fill`] and frees what is ready.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.buffers = Vec::new();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a buffer as soon as one is ready.
    fn take(buffers: &ReadyBuffers, bytes: usize) -> Arc<[u8]> {
        loop {
            match buffers.take(bytes) {
                Some(buffer) => return buffer,
                None => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn buffers_are_ready_again_after_all_were_used() {
        let buffers = ReadyBuffers::default();
        std::thread::scope(|scope| {
            scope.spawn(|| buffers.fill());
            let taken: Vec<_> = (0..3 * READY).map(|_| take(&buffers, BUFFER_BYTES)).collect();
            assert!(taken.iter().all(|buffer| Arc::strong_count(buffer) == 1));
            buffers.close();
        });
        assert!(buffers.take(BUFFER_BYTES).is_none(), "nothing is kept after the end");
    }

    #[test]
    fn only_blocks_that_use_most_of_a_buffer_get_one() {
        let buffers = ReadyBuffers::default();
        std::thread::scope(|scope| {
            scope.spawn(|| buffers.fill());
            assert!(take(&buffers, LEAST_BYTES).len() >= LEAST_BYTES);
            assert!(buffers.take(LEAST_BYTES - 1).is_none());
            assert!(buffers.take(BUFFER_BYTES + 1).is_none());
            buffers.close();
        });
    }
}
