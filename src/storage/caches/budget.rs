//! The bytes that all caches of one kind may take together.

use crate::base::lock::{Mutex, rank};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Part of the budget, as a divisor, that is freed at once when it is used up: many insertions
/// share the work of finding the largest caches.
const FREED_SHARE: u64 = 16;

/// Free part of the budget, as a divisor, from which on caches that had to shrink may grow again.
const SLACK_SHARE: u64 = 8;

/// A cache that lives on a budget.
pub(super) trait Member: Send + Sync + Debug {
    /// Bytes that it takes.
    fn bytes(&self) -> u64;

    /// Drops entries until it takes no more than about this, and keeps to that size.
    fn shrink_to(&self, bytes: u64);

    /// Lets it grow a little beyond the size it had to shrink to. Returns whether it is still held
    /// back.
    fn relax(&self) -> bool;
}

/// A number of bytes that several caches share. A cache may use all that the others leave; when
/// there is too little for all, the largest caches shrink.
#[derive(Debug)]
pub struct ByteBudget {
    limit: u64,
    used: AtomicU64,
    /// Whether a cache is smaller than its operator allows.
    squeezed: AtomicBool,
    members: Mutex<rank::View, Vec<Weak<dyn Member>>>,
}

impl ByteBudget {
    /// A budget of this many bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            squeezed: AtomicBool::new(false),
            members: Mutex::default(),
        }
    }

    /// Most bytes that its caches should take.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that they take, dropped entries with readers included.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a further entry would push out another.
    pub fn is_used_up(&self) -> bool {
        self.used() > self.limit - self.limit / FREED_SHARE
    }

    pub(super) fn join(&self, member: Weak<dyn Member>) {
        let mut members = self.members.lock();
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    pub(super) fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Enforces the bound after an insertion. The caller holds no lock of a cache.
    pub(super) fn enforce(&self) {
        let used = self.used();
        if used > self.limit {
            self.shrink();
        } else if self.squeezed.load(Ordering::Relaxed)
            && used < self.limit - self.limit / SLACK_SHARE
        {
            self.relax();
        }
    }

    /// The members, unless another thread is already enforcing the bound.
    fn members(&self) -> Option<(impl Sized, Vec<Arc<dyn Member>>)> {
        let guard = self.members.try_lock()?;
        let members = guard.iter().filter_map(Weak::upgrade).collect();
        Some((guard, members))
    }

    fn shrink(&self) {
        let Some((_guard, members)) = self.members() else { return };
        let bytes: Vec<u64> = members.iter().map(|member| member.bytes()).collect();
        let level = level(bytes.clone(), self.limit - self.limit / FREED_SHARE);
        self.squeezed.store(true, Ordering::Relaxed);
        for (member, bytes) in members.iter().zip(bytes) {
            if bytes > level {
                member.shrink_to(level);
            }
        }
    }

    fn relax(&self) {
        let Some((_guard, members)) = self.members() else { return };
        let held_back = members.iter().filter(|member| member.relax()).count();
        self.squeezed.store(held_back > 0, Ordering::Relaxed);
    }
}

/// The size to which the largest have to come down, so that all are within `target` together.
fn level(mut sizes: Vec<u64>, target: u64) -> u64 {
    sizes.sort_unstable();
    let mut left = target;
    let mut level = u64::MAX;
    for (at, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - at) as u64;
        level = share;
        if *size > share {
            break;
        }
        left -= size;
        level = u64::MAX;
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_down_to_one_level() {
        assert_eq!(level(vec![10, 20, 30], 60), u64::MAX);
        assert_eq!(level(vec![10, 20, 30], 50), 20);
        assert_eq!(level(vec![100, 10, 100], 60), 25);
        assert_eq!(level(vec![100], 60), 60);
        assert_eq!(level(vec![0, 5, 5], 0), 0);
        assert_eq!(level(Vec::new(), 0), u64::MAX);
    }
}
