//! The memory that the answer to one request takes, however many reads it needs.

use crate::base::context::{RequestContext, TooLarge};

/// What a cell of an answer takes besides its names and value, about, in memory and in the message.
const CELL_OVERHEAD: usize = 64;

/// What a row takes besides its key and cells, about, also if nothing of it is visible.
const ROW_OVERHEAD: usize = 128;

/// What a read takes at a time, in bytes, since others take from the same request.
const PIECE: usize = 16 << 10;

/// What cells of an answer take, in bytes.
pub fn cells_cost(cells: usize, encoded: usize) -> usize {
    encoded + cells * CELL_OVERHEAD
}

/// What a row takes before its cells, in bytes.
pub fn row_cost(key: &[u8]) -> usize {
    key.len() + ROW_OVERHEAD
}

/// Memory that one read has taken for its answer. It is given back when this is dropped, unless it
/// was kept: a read that fails may begin again on another thread.
#[derive(Debug)]
pub struct AnswerShare<'a> {
    context: &'a RequestContext,
    taken: usize,
    used: usize,
}

impl<'a> AnswerShare<'a> {
    /// Nothing so far.
    pub fn of(context: &'a RequestContext) -> Self {
        Self { context, taken: 0, used: 0 }
    }

    /// Notes that the answer has grown.
    pub fn grow(&mut self, bytes: usize) -> Result<(), TooLarge> {
        let used = self.used + bytes;
        if used > self.taken {
            let missing = used - self.taken;
            let piece = missing.max(PIECE);
            if self.context.take(piece).is_ok() {
                self.taken += piece;
            } else {
                self.context.take(missing)?;
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
        self.context.give_back(self.taken - self.used);
        self.taken = 0;
    }
}

impl Drop for AnswerShare<'_> {
    fn drop(&mut self) {
        self.context.give_back(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_of_one_request_share_its_memory() {
        let context = RequestContext::new(3 * PIECE);
        let (mut first, mut second) = (AnswerShare::of(&context), AnswerShare::of(&context));
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
        context.take(3 * PIECE - 3 * PIECE / 4).unwrap();
        assert!(context.take(1).is_err());
    }
}
