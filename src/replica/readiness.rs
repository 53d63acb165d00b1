//! How far others may rely on this node as a replica.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a node that starts may lack: first others have to agree on its place, then it collects its
/// data. Writes are applied all the time.
#[derive(Debug)]
pub struct Readiness {
    is_placed: AtomicBool,
    is_complete: AtomicBool,
}

impl Readiness {
    /// Of a node that has all data of its place, or that may have no place at all.
    pub fn new(is_complete: bool) -> Self {
        Self { is_placed: AtomicBool::new(is_complete), is_complete: AtomicBool::new(is_complete) }
    }

    /// Whether those who know this node agree on its place. Until then it acknowledges no writes: a
    /// coordinator that takes it for a replica by a ring of long ago must not count it for one.
    pub fn is_placed(&self) -> bool {
        self.is_placed.load(Ordering::Relaxed)
    }

    /// Whether it has all data of its place. Until then it answers no reads.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Relaxed)
    }

    /// They agree.
    pub fn set_placed(&self) {
        self.is_placed.store(true, Ordering::Relaxed);
    }

    /// It has, and they agree.
    pub fn set_complete(&self) {
        self.set_placed();
        self.is_complete.store(true, Ordering::Relaxed);
    }
}
