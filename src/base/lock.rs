//! Locks with a rank: a thread takes them in the order of [`rank`] only, so that threads never
//! wait for each other in a circle.
//!
//! The rank is part of a lock's type. Debug builds keep what each thread holds, and panic where a
//! lock is taken out of order; release builds pay nothing. There is no poisoning: what a lock
//! protects is whole after each step, or has its own mark of a step that was broken off.
//!
//! Guards stay on their thread and are not held across an `.await`. Locks inside of other crates
//! have no rank, so that nothing of ours may be locked by what these call back.

#![expect(clippy::disallowed_types, reason = "locks get their ranks here")]

pub mod rank;
#[cfg(test)]
mod tests;

use rank::{Numbered, Rank};
use std::time::Duration;

/// A mutual exclusion lock of rank `R`.
#[derive(derive_more::Debug)]
#[debug("{value:?}")]
pub struct Mutex<R, T> {
    order: Order<R>,
    value: parking_lot::Mutex<T>,
}

impl<R: Rank, T> Mutex<R, T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { order: Order::new(0), value: parking_lot::Mutex::new(value) }
    }

    /// A mutex that may be held together with others of its rank, by ascending number.
    pub const fn numbered(number: u64, value: T) -> Self
    where
        R: Numbered,
    {
        Self { order: Order::new(number), value: parking_lot::Mutex::new(value) }
    }

    /// Waits for the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.order.hold();
        MutexGuard { value: self.value.lock(), held }
    }

    /// Takes the lock if it is free. As nothing waits, the order does not matter.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let value = self.value.try_lock()?;
        Some(MutexGuard { value, held: self.order.hold_unchecked() })
    }
}

impl<R: Rank, T: Default> Default for Mutex<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Access to what a [`Mutex`] protects; unlocks it when dropped.
#[must_use = "the lock is held as long as this lives"]
#[derive(derive_more::Deref, derive_more::DerefMut)]
pub struct MutexGuard<'a, T> {
    #[deref(forward)]
    #[deref_mut(forward)]
    value: parking_lot::MutexGuard<'a, T>,
    held: Held,
}

/// A lock of rank `R` for many readers or one writer. A thread must not read it twice at a time: it
/// deadlocks if a writer waits in between.
#[derive(derive_more::Debug)]
#[debug("{value:?}")]
pub struct RwLock<R, T> {
    order: Order<R>,
    value: parking_lot::RwLock<T>,
}

impl<R: Rank, T> RwLock<R, T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { order: Order::new(0), value: parking_lot::RwLock::new(value) }
    }

    /// A lock that may be held together with others of its rank, by ascending number.
    pub const fn numbered(number: u64, value: T) -> Self
    where
        R: Numbered,
    {
        Self { order: Order::new(number), value: parking_lot::RwLock::new(value) }
    }

    /// Waits for the end of writes.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = self.order.hold();
        RwLockReadGuard { value: self.value.read(), _held: held }
    }

    /// Reads if no thread writes or waits to write. As nothing waits, the order does not matter.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let value = self.value.try_read()?;
        Some(RwLockReadGuard { value, _held: self.order.hold_unchecked() })
    }

    /// Waits for the end of reads and writes.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = self.order.hold();
        RwLockWriteGuard { value: self.value.write(), _held: held }
    }
}

impl<R: Rank, T: Default> Default for RwLock<R, T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Shared access to what a [`RwLock`] protects.
#[must_use = "the lock is held as long as this lives"]
#[derive(derive_more::Deref)]
pub struct RwLockReadGuard<'a, T> {
    #[deref(forward)]
    value: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Sole access to what a [`RwLock`] protects.
#[must_use = "the lock is held as long as this lives"]
#[derive(derive_more::Deref, derive_more::DerefMut)]
pub struct RwLockWriteGuard<'a, T> {
    #[deref(forward)]
    #[deref_mut(forward)]
    value: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held,
}

/// Lets threads wait for a change of what a mutex protects. A waiting thread does not hold the
/// mutex; when it wakes it takes the mutex again, in order.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// Waits for a notification.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let MutexGuard { value, held } = guard;
        held.release_for(|| self.0.wait(value));
    }

    /// Waits for a notification; false if none came in time.
    #[track_caller]
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> bool {
        let MutexGuard { value, held } = guard;
        !held.release_for(|| self.0.wait_for(value, timeout)).timed_out()
    }

    /// Waits as long as the condition holds.
    #[track_caller]
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) {
        let MutexGuard { value, held } = guard;
        held.release_for(|| self.0.wait_while(value, condition));
    }

    /// Waits as long as the condition holds, until the time is over.
    #[track_caller]
    pub fn wait_while_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) {
        let MutexGuard { value, held } = guard;
        held.release_for(|| self.0.wait_while_for(value, condition, timeout));
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(debug_assertions)]
use checked::{Held, Order};
#[cfg(not(debug_assertions))]
use unchecked::{Held, Order};

/// The check of the order.
#[cfg(debug_assertions)]
mod checked {
    use super::rank::{Rank, TABLE};
    use std::cell::RefCell;
    use std::marker::PhantomData;
    use std::panic::Location;

    thread_local! {
        /// Locks that this thread holds, and where it took each.
        static HELD: RefCell<Vec<(Place, &'static Location<'static>)>> =
            const { RefCell::new(Vec::new()) };
    }

    /// Rank and number of a lock: locks are taken in ascending order.
    type Place = (usize, u64);

    /// Place of a lock in the order.
    pub(super) struct Order<R> {
        number: u64,
        rank: PhantomData<fn() -> R>,
    }

    impl<R: Rank> Order<R> {
        pub(super) const fn new(number: u64) -> Self {
            Self { number, rank: PhantomData }
        }

        #[track_caller]
        pub(super) fn hold(&self) -> Held {
            check((R::INDEX, self.number));
            self.hold_unchecked()
        }

        #[track_caller]
        pub(super) fn hold_unchecked(&self) -> Held {
            let held = Held((R::INDEX, self.number), PhantomData);
            held.add();
            held
        }
    }

    /// A lock in the list of its thread. The pointer keeps the guard on that thread.
    pub(super) struct Held(Place, PhantomData<*const ()>);

    impl Held {
        /// Waits while the lock is not held.
        #[track_caller]
        pub(super) fn release_for<T>(&mut self, wait: impl FnOnce() -> T) -> T {
            self.remove();
            // Before the wait, which may never end.
            check(self.0);
            let result = wait();
            self.add();
            result
        }

        // A destructor of a thread that ends may run after the list is gone.
        #[track_caller]
        fn add(&self) {
            let at = Location::caller();
            let _ = HELD.try_with(|held| held.borrow_mut().push((self.0, at)));
        }

        fn remove(&self) {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(at) = held.iter().rposition(|(place, _)| *place == self.0) {
                    held.remove(at);
                }
            });
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            self.remove();
        }
    }

    #[track_caller]
    fn check(place: Place) {
        let find = |held: &RefCell<Vec<(Place, _)>>| {
            held.borrow().iter().copied().find(|(other, _)| *other >= place)
        };
        // A second panic would end the process before the first one is reported.
        if !std::thread::panicking()
            && let Ok(Some((other, since))) = HELD.try_with(find)
        {
            panic!(
                "the lock `{}` is taken under the lock `{}` (held since {since}), which has to \
                 come after it: take it first, or release the other one before. \
                 src/base/lock/rank.rs lists the order",
                TABLE[place.0].name, TABLE[other.0].name,
            );
        }
    }
}

/// The order without a check.
#[cfg(not(debug_assertions))]
mod unchecked {
    use std::marker::PhantomData;

    pub(super) struct Order<R>(PhantomData<fn() -> R>);

    impl<R> Order<R> {
        pub(super) const fn new(_number: u64) -> Self {
            Self(PhantomData)
        }

        #[expect(clippy::unused_self, reason = "as in debug builds")]
        pub(super) fn hold(&self) -> Held {
            Held
        }

        #[expect(clippy::unused_self, reason = "as in debug builds")]
        pub(super) fn hold_unchecked(&self) -> Held {
            Held
        }
    }

    pub(super) struct Held;

    impl Held {
        #[expect(clippy::unused_self, reason = "as in debug builds")]
        pub(super) fn release_for<T>(&mut self, wait: impl FnOnce() -> T) -> T {
            wait()
        }
    }
}
