//! How far others may rely on a node as a replica.

use std::sync::atomic::{AtomicU8, Ordering};

/// What a node that starts may lack: first others have to agree on its place, then it collects its
/// data. Writes are applied all the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// Others may know another node at its place. It acknowledges no writes: a coordinator that
    /// takes it for a replica by a ring of long ago must not count it for one.
    Unsure,
    /// It has taken a first place, and no other node has confirmed yet that its address never owned
    /// data. It serves its own clients only.
    Alone,
    /// It has a place, or is to have it, on which all agree, and lacks data of it: it answers no
    /// reads.
    Placed,
    /// It has all data of its place, or may have no place at all.
    Complete,
}

/// The readiness of this node, which only grows.
#[derive(Debug)]
pub struct OwnReadiness(AtomicU8);

impl OwnReadiness {
    /// What it is at the start.
    pub fn new(readiness: Readiness) -> Self {
        Self(AtomicU8::new(readiness as u8))
    }

    /// What it is now.
    pub fn get(&self) -> Readiness {
        match self.0.load(Ordering::Relaxed) {
            0 => Readiness::Unsure,
            1 => Readiness::Alone,
            2 => Readiness::Placed,
            _ => Readiness::Complete,
        }
    }

    /// It is at least this from now on.
    pub fn raise(&self, to: Readiness) {
        self.0.fetch_max(to as u8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_only_grows() {
        let own = OwnReadiness::new(Readiness::Unsure);
        assert_eq!(own.get(), Readiness::Unsure);
        own.raise(Readiness::Placed);
        assert_eq!(own.get(), Readiness::Placed);
        own.raise(Readiness::Complete);
        own.raise(Readiness::Placed);
        assert_eq!(own.get(), Readiness::Complete);
    }
}
