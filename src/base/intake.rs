//! Memory for messages that have arrived in part.
//!
//! Many connections may hold the beginning of a message. If each of them waited for memory of the
//! others, no message would ever be complete. So room for one message of the greatest length is set
//! apart from the shared memory, of which large messages leave a part to small ones. One connection
//! at a time may use that room, in the order in which they asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::budget::{Budget, Charge};

/// Messages of up to this many bytes are small.
const SMALL_BYTES: usize = 256 << 10;

/// Memory for the unfinished messages of all connections of a port.
#[derive(Debug)]
pub struct Intake {
    all: Arc<Budget>,
    /// The part of `all` that messages share.
    shared: Arc<Budget>,
    /// The part of `shared` for large messages.
    large: Arc<Budget>,
    turn: Arc<Semaphore>,
    patience: Duration,
}

impl Intake {
    /// Takes its memory from `all`, for messages of at most `longest` bytes. A message waits for
    /// memory no longer than `patience` at a time.
    pub fn new(all: Arc<Budget>, longest: usize, patience: Duration) -> Arc<Self> {
        let room = longest.min(all.limit() / 4 * 3);
        let shared = all.part(all.limit() - room);
        let large = shared.part(shared.limit() / 4 * 3);
        Arc::new(Self { all, shared, large, turn: Arc::new(Semaphore::new(1)), patience })
    }

    /// Most bytes that unfinished messages may hold.
    pub fn limit(&self) -> usize {
        self.all.limit()
    }
}

/// Memory of one connection for an unfinished message. It is given back when dropped.
#[derive(Debug)]
pub struct Unfinished {
    intake: Arc<Intake>,
    charge: Charge,
    turn: Option<OwnedSemaphorePermit>,
}

impl Unfinished {
    /// No message yet.
    pub fn new(intake: Arc<Intake>) -> Self {
        let charge = Charge::new(Arc::clone(&intake.shared));
        Self { intake, charge, turn: None }
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// Holds this many bytes from now on. Waits while others hold too much. False, and as before,
    /// if the memory does not come in time or is more than there is. Fewer bytes than before mean
    /// that a message is complete: the turn goes to the next.
    pub async fn hold(&mut self, bytes: usize) -> bool {
        if bytes > self.intake.limit() {
            return false;
        }
        if bytes < self.charge.bytes() {
            self.turn = None;
        }
        self.choose_budget(bytes);
        if self.charge.try_set(bytes) {
            return true;
        }
        let (patience, had_turn) = (self.intake.patience, self.turn.is_some());
        let is_held = tokio::time::timeout(patience, self.wait(bytes)).await.unwrap_or(false);
        if !is_held && !had_turn {
            self.turn = None;
        }
        is_held
    }

    async fn wait(&mut self, bytes: usize) -> bool {
        if self.turn.is_none() {
            let turn = Arc::clone(&self.intake.turn).acquire_owned();
            tokio::select! {
                biased;
                true = self.charge.set_within(bytes, Duration::MAX) => return true,
                // The semaphore is never closed.
                turn = turn => self.turn = turn.ok(),
            }
            self.choose_budget(bytes);
        }
        self.charge.set_within(bytes, Duration::MAX).await
    }

    /// Moves the charge to the budget that a message of this length may use.
    fn choose_budget(&mut self, bytes: usize) {
        let Intake { all, shared, large, .. } = &*self.intake;
        let budget = match self.turn {
            Some(_) => all,
            None if bytes <= SMALL_BYTES => shared,
            None => large,
        };
        if bytes > self.charge.bytes() && !Arc::ptr_eq(budget, self.charge.budget()) {
            let mut moved = Charge::new(Arc::clone(budget));
            moved.set(self.charge.bytes());
            self.charge = moved;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: usize = 1 << 20;
    const PATIENCE: Duration = Duration::from_secs(10);

    /// Memory for 12 MB, of which messages share eight, large ones six.
    fn intake() -> (Arc<Budget>, Arc<Intake>) {
        let all = Budget::new(12 * MB);
        (all.clone(), Intake::new(all, 4 * MB, PATIENCE))
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_many_half_received_messages_can_always_be_completed() {
        let (all, intake) = intake();
        let [mut first, mut second, mut third] = [(); 3].map(|()| Unfinished::new(intake.clone()));
        for message in [&mut first, &mut second, &mut third] {
            assert!(message.hold(2 * MB).await);
        }
        // What they share is used up: the first that asks gets the turn.
        assert!(first.hold(4 * MB).await);
        assert!(second.hold(4 * MB).await, "what the first held was of the share");
        assert!(!third.hold(4 * MB).await, "the first has the turn all the time");
        assert_eq!(all.used(), 10 * MB, "what was refused is held as before");
        let complete = async {
            tokio::time::sleep(PATIENCE / 2).await;
            first.hold(0).await
        };
        assert_eq!(tokio::join!(third.hold(4 * MB), complete), (true, true));
        drop((first, second, third));
        assert_eq!(all.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_others_give_back_needs_no_turn() {
        let (all, intake) = intake();
        let [mut stalled, mut held, mut waiting] =
            [(); 3].map(|()| Unfinished::new(intake.clone()));
        assert!(held.hold(5 * MB).await && stalled.hold(3 * MB).await, "the second has the turn");
        let give_back = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(held);
        };
        let (is_held, ()) = tokio::join!(waiting.hold(2 * MB), give_back);
        assert!(is_held);
        assert_eq!(all.used(), 5 * MB);
    }

    #[tokio::test(start_paused = true)]
    async fn small_messages_go_on_while_large_ones_wait() {
        let (all, intake) = intake();
        let [mut large, mut small, mut longest] = [(); 3].map(|()| Unfinished::new(intake.clone()));
        assert!(large.hold(6 * MB).await);
        assert!(small.hold(SMALL_BYTES).await, "beside large ones that hold their share");
        assert!(!longest.hold(13 * MB).await, "there is never so much");
        assert_eq!(all.used(), 6 * MB + SMALL_BYTES);
        let mut others: Vec<_> = (0..8).map(|_| Unfinished::new(intake.clone())).collect();
        for other in &mut others[1..] {
            assert!(other.hold(SMALL_BYTES).await);
        }
        assert!(others[0].hold(SMALL_BYTES).await, "the share is used up: it has the turn");
        assert!(others[0].hold(4 * MB).await, "small messages take nothing of its room");
    }
}
