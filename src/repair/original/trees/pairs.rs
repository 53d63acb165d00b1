//! Which trees wait for which.

use crate::model::schema::FamilyId;
use crate::repair::merkle::MerkleTree;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A tree says nothing any more of rows that were written since. The other one may take hours.
const STALE: Duration = Duration::from_hours(6);

/// Whose tree it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Own,
    Theirs,
}

/// A tree that waits for the other one of its pair.
#[derive(Debug)]
struct Waiting {
    side: Side,
    tree: Arc<MerkleTree>,
    since: Duration,
}

type ByPair = BTreeMap<(FamilyId, IpAddr), Waiting>;

/// The trees that wait, at most one for each neighbour and column family.
#[derive(Debug, Default)]
pub(in crate::repair::original) struct Pairs(Mutex<ByPair>);

impl Pairs {
    /// This node has its tree: that of a neighbour, if it has waited.
    pub(super) fn own(
        &self,
        family: FamilyId,
        other: IpAddr,
        tree: Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        self.pair((family, other), Waiting { side: Side::Own, tree, since: now })
    }

    /// A neighbour has sent its tree: that of this node, if it has waited.
    pub(super) fn theirs(
        &self,
        family: FamilyId,
        other: IpAddr,
        tree: Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        self.pair((family, other), Waiting { side: Side::Theirs, tree, since: now })
    }

    /// Trees of a column family that wait are too old for what is begun now.
    pub(super) fn forget(&self, family: FamilyId, now: Duration) {
        self.lock(now).retain(|(waiting, _), _| *waiting != family);
    }

    /// Whether the tree of a neighbour waits.
    pub(super) fn waits(&self, family: FamilyId, other: IpAddr, now: Duration) -> bool {
        let pairs = self.lock(now);
        pairs.get(&(family, other)).is_some_and(|waiting| waiting.side == Side::Theirs)
    }

    /// The tree of the other side, if it has waited; else this one waits.
    fn pair(&self, key: (FamilyId, IpAddr), new: Waiting) -> Option<Arc<MerkleTree>> {
        let mut pairs = self.lock(new.since);
        if let Some(other) = pairs.remove(&key).filter(|other| other.side != new.side) {
            return Some(other.tree);
        }
        pairs.insert(key, new);
        None
    }

    fn lock(&self, now: Duration) -> MutexGuard<'_, ByPair> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|_, waiting| now.saturating_sub(waiting.since) < STALE);
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Partitioner;

    #[test]
    fn a_tree_of_before_is_not_compared_with_one_of_now() {
        let (pairs, family, now) = (Pairs::default(), FamilyId(0), Duration::ZERO);
        let (one, two): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let tree = || Arc::new(MerkleTree::even(Partitioner::Random, 2));
        assert!(pairs.own(family, one, tree(), now).is_none());
        assert!(pairs.theirs(family, two, tree(), now).is_none() && pairs.waits(family, two, now));
        pairs.forget(family, now);
        assert!(!pairs.waits(family, two, now));
        assert!(pairs.theirs(family, one, tree(), now).is_none());
        assert!(pairs.own(family, one, tree(), now).is_some(), "these two belong together");
    }
}
