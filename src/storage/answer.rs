//! How large the answer to one request may become, however many reads it takes.

use super::error::ReadError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most bytes that any answer may have: a client that asks for a whole column family by one call is
/// told to ask for less, instead of taking all memory. A message cannot be larger than 2 GB anyway.
pub const MAX_ANSWER_BYTES: usize = 512 << 20;

/// What a cell of an answer takes besides its names and value, about, in memory and in the message.
const CELL_OVERHEAD: usize = 64;

/// What a row takes besides its key and cells, about, also if nothing of it is visible.
const ROW_OVERHEAD: usize = 128;

/// What a read takes at a time, in bytes, since others take from the same room.
const PIECE: usize = 16 << 10;

/// What cells of an answer take, in bytes.
pub fn cells_cost(cells: usize, encoded: usize) -> usize {
    encoded + cells * CELL_OVERHEAD
}

/// What a row takes before its cells, in bytes.
pub fn row_cost(key: &[u8]) -> usize {
    key.len() + ROW_OVERHEAD
}

/// Bytes that the answer to one request may still grow by: shared by all its reads.
#[derive(Debug)]
pub struct AnswerRoom {
    limit: usize,
    left: AtomicUsize,
    /// What it takes its bytes from, and gives them back to when it is dropped.
    whole: Option<Arc<AnswerRoom>>,
}

impl AnswerRoom {
    /// Room for an answer of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, left: AtomicUsize::new(limit), whole: None }
    }

    /// Room for what is in memory only for a while: all that was taken of it goes back to the whole
    /// room when this is dropped.
    pub fn passing(whole: &Arc<Self>) -> Self {
        let (limit, left) = (whole.limit, AtomicUsize::new(whole.limit));
        Self { limit, left, whole: Some(Arc::clone(whole)) }
    }

    /// The room of which this is a passing part.
    pub fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref()
    }

    /// Takes so many bytes, or none.
    pub fn take(&self, bytes: usize) -> Result<(), ReadError> {
        if let Some(whole) = &self.whole {
            whole.take(bytes)?;
        }
        let (relaxed, less) = (Ordering::Relaxed, |left: usize| left.checked_sub(bytes));
        let taken = self.left.fetch_update(relaxed, relaxed, less);
        taken.map(drop).map_err(|_| ReadError::TooLarge { limit: self.limit })
    }

    fn give_back(&self, bytes: usize) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        if let Some(whole) = &self.whole {
            whole.give_back(self.limit - *self.left.get_mut());
        }
    }
}

impl Default for AnswerRoom {
    fn default() -> Self {
        Self::new(MAX_ANSWER_BYTES)
    }
}

/// What one read has taken of the room. It goes back when this is dropped, unless it was kept: a
/// read that fails may begin anew on another thread.
#[derive(Debug)]
pub struct AnswerShare<'a> {
    room: &'a AnswerRoom,
    taken: usize,
    used: usize,
}

impl<'a> AnswerShare<'a> {
    /// Nothing so far.
    pub fn of(room: &'a AnswerRoom) -> Self {
        Self { room, taken: 0, used: 0 }
    }

    /// Notes that the answer has grown.
    pub fn grow(&mut self, bytes: usize) -> Result<(), ReadError> {
        let used = self.used + bytes;
        if used > self.taken {
            let missing = used - self.taken;
            let piece = missing.max(PIECE);
            if self.room.take(piece).is_ok() {
                self.taken += piece;
            } else {
                self.room.take(missing)?;
                self.taken += missing;
            }
        }
        self.used = used;
        Ok(())
    }

    /// Notes that what was to be in the answer is not.
    pub fn shrink(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Keeps what was used, because it was answered.
    pub fn keep(mut self) {
        self.room.give_back(self.taken - self.used);
        self.taken = 0;
    }
}

impl Drop for AnswerShare<'_> {
    fn drop(&mut self) {
        self.room.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_one_request_share_its_room() {
        let room = AnswerRoom::new(3 * PIECE);
        let (mut first, mut second) = (AnswerShare::of(&room), AnswerShare::of(&room));
        first.grow(2 * PIECE).unwrap();
        second.grow(PIECE / 2).unwrap();
        let refused = second.grow(PIECE).unwrap_err();
        assert!(refused.to_string().contains("ask for fewer columns or rows"), "{refused}");
        second.grow(PIECE / 2).unwrap();
        second.shrink(PIECE / 4);
        second.keep();
        assert!(first.grow(PIECE).is_err());
        first.grow(PIECE / 4).unwrap();
        drop(first);
        assert_eq!(room.left.load(Ordering::Relaxed), 3 * PIECE - 3 * PIECE / 4);
    }

    #[test]
    fn what_was_taken_for_a_while_goes_back() {
        let whole = Arc::new(AnswerRoom::new(10));
        let first = Arc::new(AnswerRoom::passing(&whole));
        let second = AnswerRoom::passing(&first);
        whole.take(2).unwrap();
        first.take(3).unwrap();
        second.take(4).unwrap();
        assert!(second.take(2).is_err() && whole.take(2).is_err());
        drop(second);
        first.take(2).unwrap();
        drop(first);
        whole.take(8).unwrap();
        assert!(whole.take(1).is_err());
    }
}
