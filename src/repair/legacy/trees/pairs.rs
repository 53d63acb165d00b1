//! Which trees wait for which.

use super::tree::MerkleTree;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::model::schema::FamilyId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A tree says nothing any more of rows that were written since. The other one may take hours.
const STALE: Duration = Duration::from_hours(6);

/// Whose tree it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Of this node.
    Own,
    /// Of the neighbour.
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
pub(in crate::repair::legacy) struct Pairs(Mutex<rank::LegacyPeers, ByPair>);

impl Pairs {
    /// There is a tree of one side: that of the other, if it has waited; else this one waits.
    pub(super) fn pair(
        &self,
        (family, neighbour): (FamilyId, IpAddr),
        side: Side,
        tree: Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        let (mut pairs, key) = (self.lock(now), (family, neighbour));
        if let Some(other) = pairs.remove(&key).filter(|other| other.side != side) {
            return Some(other.tree);
        }
        pairs.insert(key, Waiting { side, tree, since: now });
        None
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

    fn lock(&self, now: Duration) -> MutexGuard<'_, ByPair> {
        let mut pairs = self.0.lock();
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
        let pair = |neighbour, side| {
            let tree = Arc::new(MerkleTree::even(Partitioner::Random, 2));
            pairs.pair((family, neighbour), side, tree, now)
        };
        assert!(pair(one, Side::Own).is_none());
        assert!(pair(two, Side::Theirs).is_none() && pairs.waits(family, two, now));
        pairs.forget(family, now);
        assert!(!pairs.waits(family, two, now));
        assert!(pair(one, Side::Theirs).is_none());
        assert!(pair(one, Side::Own).is_some(), "these two belong together");
    }
}
