//! Memory budgets that many holders share. A holder is refused when the budget is used up.

use crate::base::lock::{Mutex, rank};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Bytes that a lender gives or gets back at a time.
const LOAN_STEP: usize = 4 << 20;

/// Bytes that holders may have together. Bytes taken from a part count in the whole as well.
#[derive(Debug)]
pub struct Budget {
    used: AtomicUsize,
    limit: usize,
    whole: Option<Whole>,
    /// Wakes holders that wait for memory of this budget or of a part; unused in a part.
    freed: Notify,
    /// Memory of a lender, if there is one; unused in a part.
    loan: OnceLock<Loan>,
}

/// A holder of memory, such as a cache, that gives some up while others need it.
pub trait Lender: Send + Sync + Debug {
    /// Lends this many bytes from now on, in place of the bytes lent before.
    fn lend(&self, bytes: usize);
}

/// The last bytes of a budget, which a lender uses while they are free.
#[derive(Debug)]
struct Loan {
    lender: Arc<dyn Lender>,
    /// Bytes of the budget that are not lent.
    own: usize,
    lent: AtomicUsize,
    /// Held while the lender changes its size.
    changes: Mutex<rank::State, ()>,
}

/// The whole of a part.
#[derive(Debug)]
struct Whole {
    budget: Arc<Budget>,
    /// Bytes of the part that do not count in the whole.
    uncounted: usize,
    /// Bytes that do.
    counted: AtomicUsize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self::with(limit, None))
    }

    fn with(limit: usize, whole: Option<Whole>) -> Self {
        let (used, freed, loan) = (AtomicUsize::new(0), Notify::new(), OnceLock::new());
        Self { used, limit, whole, freed, loan }
    }

    /// Gives the last `bytes` of this budget to a lender while they are free. To be called once,
    /// for a budget that is no part.
    pub fn borrow_from(&self, lender: Arc<dyn Lender>, bytes: usize) {
        let own = self.limit.saturating_sub(bytes);
        let (lent, changes) = (AtomicUsize::new(0), Mutex::new(()));
        self.loan.get_or_init(|| Loan { lender, own, lent, changes });
    }

    /// A part of this budget, of which no more than `limit` bytes may be used. They are given back
    /// when it is dropped.
    pub fn part(self: &Arc<Self>, limit: usize) -> Arc<Self> {
        Arc::new(self.part_beyond(0, limit))
    }

    /// A part for one request. Its first `uncounted` bytes do not count in the whole, so that small
    /// requests do not compete for a counter. The others count until the part is dropped: until
    /// then the most that it ever had.
    pub fn part_beyond(self: &Arc<Self>, uncounted: usize, limit: usize) -> Self {
        let budget = Arc::clone(self);
        let whole = Some(Whole { budget, uncounted, counted: AtomicUsize::new(0) });
        Self::with(limit.min(self.limit), whole)
    }

    /// The budget of which this is a part.
    pub fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref().map(|whole| &whole.budget)
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

    /// Takes bytes, if there are enough.
    #[must_use = "bytes that were not taken must not be used"]
    pub fn try_take(&self, bytes: usize) -> bool {
        let used = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let is_taken = used <= self.limit
            && self.whole.as_ref().is_none_or(|whole| whole.count(used, bytes, Self::try_take));
        if is_taken {
            self.settle_loan();
        } else {
            self.used.fetch_sub(bytes, Ordering::AcqRel);
        }
        is_taken
    }

    /// Takes bytes, also beyond the limit: for data that are in memory already.
    pub fn take(&self, bytes: usize) {
        let used = self.used.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if let Some(whole) = &self.whole {
            whole.count(used, bytes, |budget, bytes| {
                budget.take(bytes);
                true
            });
        }
        self.settle_loan();
    }

    /// Gives back bytes that were taken.
    pub fn give_back(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.used.fetch_sub(bytes, Ordering::AcqRel);
        self.settle_loan();
        match &self.whole {
            Some(Whole { budget, uncounted: 0, .. }) => budget.give_back(bytes),
            Some(_) => {}
            None => self.freed.notify_waiters(),
        }
    }

    /// Has the lender lend the used bytes beyond the own ones.
    fn settle_loan(&self) {
        let Some(Loan { lender, own, lent, changes }) = self.loan.get() else { return };
        let wanted = || self.used().saturating_sub(*own).next_multiple_of(LOAN_STEP);
        if wanted() == lent.load(Ordering::Relaxed) {
            return;
        }
        let _changing = changes.lock();
        let bytes = wanted();
        if lent.swap(bytes, Ordering::Relaxed) != bytes {
            lender.lend(bytes);
        }
    }

    /// Takes bytes, and waits for them no longer than `patience`. False also if the limit is
    /// smaller.
    pub async fn wait_for(&self, bytes: usize, patience: Duration) -> bool {
        if self.try_take(bytes) {
            return true;
        }
        if bytes > self.limit {
            return false;
        }
        let mut root = self;
        while let Some(whole) = root.whole() {
            root = whole;
        }
        let taking = async {
            loop {
                let freed = root.freed.notified();
                if self.try_take(bytes) {
                    return;
                }
                freed.await;
            }
        };
        tokio::time::timeout(patience, taking).await.is_ok()
    }
}

impl Whole {
    /// Counts in the whole a part that has taken `bytes` and uses `used` now.
    fn count(&self, used: usize, bytes: usize, take: impl Fn(&Budget, usize) -> bool) -> bool {
        if self.uncounted == 0 {
            return take(&self.budget, bytes);
        }
        let wanted = used.saturating_sub(self.uncounted);
        let mut counted = self.counted.load(Ordering::Acquire);
        while counted < wanted {
            if !take(&self.budget, wanted - counted) {
                return false;
            }
            let (acq_rel, acquire) = (Ordering::AcqRel, Ordering::Acquire);
            match self.counted.compare_exchange(counted, wanted, acq_rel, acquire) {
                Ok(_) => return true,
                Err(now) => {
                    self.budget.give_back(wanted - counted);
                    counted = now;
                }
            }
        }
        true
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if let Some(Whole { budget, uncounted, counted }) = &mut self.whole {
            let counted = if *uncounted == 0 { &mut self.used } else { counted };
            budget.give_back(*counted.get_mut());
        }
    }
}

/// Bytes that one holder has taken from a budget. They are given back when dropped.
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

    /// The budget of the bytes.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Changes the held bytes, if the budget allows. False, and unchanged, if not.
    pub fn try_set(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes && !self.budget.try_take(bytes - self.bytes) {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        self.set(bytes);
        true
    }

    /// The same, but waits for memory of others, no longer than `patience`.
    pub async fn set_within(&mut self, bytes: usize, patience: Duration) -> bool {
        if bytes > self.bytes {
            // Held bytes count as well.
            let is_possible = bytes <= self.budget.limit();
            if !is_possible || !self.budget.wait_for(bytes - self.bytes, patience).await {
                return false;
            }
        }
        self.bytes = self.bytes.max(bytes);
        self.set(bytes);
        true
    }

    /// Changes the held bytes, also beyond the budget.
    pub fn set(&mut self, bytes: usize) {
        // The usual case of an empty holder, which leaves the shared counter alone.
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
    fn bytes_of_a_part_count_in_the_whole() {
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

    #[test]
    fn the_first_bytes_of_a_request_do_not_count_in_the_whole() {
        let whole = Budget::new(100);
        let (one, other) = (whole.part_beyond(30, 90), whole.part_beyond(30, 90));
        assert!(one.try_take(20) && one.try_take(30) && other.try_take(90));
        assert_eq!((one.used(), other.used(), whole.used()), (50, 90, 80));
        assert!(!one.try_take(51), "beyond its limit");
        assert!(!one.try_take(40), "beyond what the other leaves");
        assert!(one.try_take(20));
        one.give_back(70);
        assert_eq!((one.used(), whole.used()), (0, 100));
        drop(one);
        assert_eq!(whole.used(), 60);
    }

    #[derive(Debug, Default)]
    struct Cache(AtomicUsize);

    impl Lender for Cache {
        fn lend(&self, bytes: usize) {
            self.0.store(bytes, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_lender_lends_used_bytes_and_gets_them_back() {
        let (whole, cache) = (Budget::new(20 << 20), Arc::<Cache>::default());
        whole.borrow_from(Arc::clone(&cache) as _, 10 << 20);
        let lent = || cache.0.load(Ordering::Relaxed) >> 20;
        let part = whole.part(20 << 20);
        assert!(part.try_take(10 << 20));
        assert_eq!(lent(), 0);
        assert!(part.try_take(1 << 20));
        assert_eq!(lent(), 4, "a step");
        assert!(part.try_take(4 << 20) && !part.try_take(6 << 20));
        assert_eq!(lent(), 8, "what was refused is not lent");
        drop(part);
        assert_eq!(lent(), 0);
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
