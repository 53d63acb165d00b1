//! Memory that many holders share: each takes some of it, and is refused when it is used up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that holders may have together. What is taken of a part counts in the whole as well.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
    whole: Option<Arc<Budget>>,
    /// Wakes those that wait until something is given back, to this budget or to another part.
    freed: Arc<Notify>,
}

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit, whole: None, freed: Arc::default() })
    }

    /// A part of this budget, of which no more than `limit` bytes may be used.
    pub fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        let limit = limit.min(self.limit);
        let (whole, freed) = (Some(Arc::clone(self)), Arc::clone(&self.freed));
        Arc::new(Self { used: AtomicUsize::new(0), limit, whole, freed })
    }

    /// Most bytes that it gives.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether nothing is left.
    pub fn is_used_up(&self) -> bool {
        self.used() >= self.limit
    }

    /// Takes so many bytes, if there are so many.
    #[must_use = "what was not taken must not be used"]
    pub fn try_take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let is_taken =
            used <= self.limit && self.whole.as_ref().is_none_or(|whole| whole.try_take(bytes));
        if !is_taken {
            self.used.fetch_sub(bytes, Ordering::AcqRel);
        }
        is_taken
    }

    /// Takes so many bytes, also beyond the limit: for what is in memory already.
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::AcqRel);
        if let Some(whole) = &self.whole {
            whole.take(bytes);
        }
    }

    /// Gives back bytes that were taken.
    pub fn give_back(&self, bytes: usize) {
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        self.freed.notify_waiters();
    }

    /// Takes so many bytes, and waits for them no longer than `patience`. False also if there can
    /// never be so many.
    pub async fn wait_for(&self, bytes: usize, patience: Duration) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        if bytes > self.limit {
            return false;
        }
        let taking = async {
            loop {
                let freed = self.freed.notified();
                if self.try_take(bytes) {
                    return;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, taking).await.is_ok()
    }
}

/// What one holder has taken from a budget; given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    /// Nothing so far.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is taken from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Holds so many bytes from now on, if the budget allows. False, and as before, if not.
    pub fn try_set(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.budget.try_take(bytes - self.bytes) {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        self.set(bytes);
        true
    }

    /// The same, but waits for memory that others hold, no longer than `patience`.
    pub async fn set_within(&mut self, bytes: usize, patience: Duration) -> bool {
        if bytes > self.bytes && !self.budget.wait_for(bytes - self.bytes, patience).await {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        self.set(bytes);
        true
    }

    /// Holds so many bytes from now on, also beyond the budget.
    pub fn set(&mut self, bytes: usize) {
        // The usual case, of a holder of nothing: no core has to fetch the counter.
        if bytes == self.bytes {
            return;
        }
        if bytes > self.bytes {
            self.budget.take(bytes - self.bytes);
        } else {
            self.budget.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_charge_stays_within_the_budget_and_is_given_back() {
        let budget = Budget::new(100);
        let (mut a, mut b) = (Charge::new(budget.clone()), Charge::new(budget.clone()));
        assert!(a.try_set(60));
        assert!(!b.try_set(41), "beyond the budget");
        assert_eq!(budget.used(), 60, "a refused charge takes nothing");
        assert!(b.try_set(40));
        assert!(a.try_set(10));
        assert_eq!(budget.used(), 50);
        drop((a, b));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_charge_beyond_the_budget_uses_it_up_until_it_shrinks() {
        let budget = Budget::new(100);
        let mut charge = Charge::new(budget.clone());
        assert!(!budget.is_used_up());
        charge.set(150);
        assert!(budget.is_used_up());
        charge.set(99);
        assert!(!budget.is_used_up());
    }

    #[test]
    fn what_is_taken_of_a_part_counts_in_the_whole() {
        let whole = Budget::new(100);
        let (small, large) = (whole.part(30), whole.part(1000));
        assert_eq!(large.limit(), 100);
        assert!(!small.try_take(31) && small.try_take(30));
        assert!(!large.try_take(71) && large.try_take(70));
        assert_eq!((small.used(), large.used(), whole.used()), (30, 70, 100));
        large.take(5);
        small.give_back(30);
        assert_eq!((small.used(), large.used(), whole.used()), (0, 75, 75));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_that_others_give_back_is_waited_for() {
        let whole = Budget::new(100);
        let (one, other) = (whole.part(100), whole.part(100));
        let mut held = Charge::new(one);
        held.set(80);
        let mut waiting = Charge::new(other.clone());
        assert!(!waiting.set_within(30, SECOND).await, "nobody gave anything back");
        assert!(!waiting.set_within(101, Duration::MAX).await, "there is never so much");
        let (is_set, ()) = tokio::join!(waiting.set_within(30, SECOND), async { held.set(70) });
        assert!(is_set);
        assert_eq!((waiting.bytes(), whole.used()), (30, 100));
    }
}
