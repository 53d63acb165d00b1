//! Requested trees, trees that wait for their counterpart, and awaited outcomes.

use super::Outcome;
use super::tree::MerkleTree;
use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Age at which a tree is dropped: newer rows are missing. Its counterpart may take hours.
const STALE: Duration = Duration::from_hours(6);

/// Origin of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Own,
    Neighbour,
}

/// A neighbour, and a column family that it shares with this node.
pub(super) type Pair = (FamilyId, IpAddr);

/// A tree that waits for its counterpart.
#[derive(Debug)]
struct Waiting {
    side: Side,
    tree: Arc<MerkleTree>,
    since: Duration,
}

/// Receivers of the next tree of a column family.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    pub(super) all: bool,
    pub(super) some: BTreeSet<IpAddr>,
}

#[derive(Debug, Default)]
pub(crate) struct TreeTable(Mutex<rank::State, Tables>);

#[derive(Debug, Default)]
struct Tables {
    /// Families with requested trees, and with trees under construction, which have no receivers.
    builds: BTreeMap<FamilyId, Receivers>,
    waiting: BTreeMap<Pair, Waiting>,
    /// Comparisons that a repair awaits.
    outcomes: BTreeMap<Pair, Option<Outcome>>,
}

impl TreeTable {
    /// Adds a receiver of a tree, or all neighbours. Returns whether no build is under way.
    pub(super) fn want(&self, family: FamilyId, by: Option<IpAddr>) -> bool {
        let mut tables = self.0.lock();
        let is_new = !tables.builds.contains_key(&family);
        let receivers = tables.builds.entry(family).or_default();
        receivers.some.extend(by);
        receivers.all |= by.is_none();
        is_new
    }

    pub(super) fn is_wanted_by_all(&self, family: FamilyId) -> bool {
        self.0.lock().builds.get(&family).is_some_and(|receivers| receivers.all)
    }

    /// The receivers of the tree to build now. `None` ends the build.
    pub(super) fn take_receivers(&self, family: FamilyId) -> Option<Receivers> {
        let mut tables = self.0.lock();
        let receivers = std::mem::take(tables.builds.get_mut(&family)?);
        if receivers.all || !receivers.some.is_empty() {
            return Some(receivers);
        }
        tables.builds.remove(&family);
        None
    }

    /// Returns the waiting counterpart of a tree. Without one this tree waits.
    pub(super) fn pair(
        &self,
        pair: Pair,
        side: Side,
        tree: &Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        let waiting = &mut self.0.lock().waiting;
        waiting.retain(|_, it| now.saturating_sub(it.since) < STALE);
        if let Some(other) = waiting.remove(&pair).filter(|other| other.side != side) {
            return Some(other.tree);
        }
        waiting.insert(pair, Waiting { side, tree: Arc::clone(tree), since: now });
        None
    }

    /// Whether the tree of a neighbour waits.
    pub(super) fn waits(&self, pair: Pair, now: Duration) -> bool {
        self.0
            .lock()
            .waiting
            .get(&pair)
            .is_some_and(|it| it.side == Side::Neighbour && now.saturating_sub(it.since) < STALE)
    }

    /// Drops waiting trees of a column family.
    pub(super) fn forget(&self, family: FamilyId) {
        self.0.lock().waiting.retain(|(waiting, _), _| *waiting != family);
    }

    /// Awaits the outcome of the next comparison.
    pub(super) fn expect(&self, pair: Pair) {
        self.0.lock().outcomes.insert(pair, None);
    }

    /// Takes the outcome of a comparison.
    pub(super) fn end(&self, pair: Pair, outcome: Outcome) {
        if let Some(expected) = self.0.lock().outcomes.get_mut(&pair) {
            expected.get_or_insert(outcome);
        }
    }

    /// The outcome of an awaited comparison, once it is known.
    pub(super) fn outcome(&self, pair: Pair) -> Option<Outcome> {
        self.0.lock().outcomes.get(&pair).cloned().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Partitioner;

    #[test]
    fn a_tree_of_before_is_not_compared_with_one_of_now() {
        let (table, family, now) = (TreeTable::default(), FamilyId(0), Duration::ZERO);
        let (one, two): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let pair = |neighbour, side| {
            let tree = Arc::new(MerkleTree::even(Partitioner::Random, 2));
            table.pair((family, neighbour), side, &tree, now)
        };
        assert!(pair(one, Side::Own).is_none());
        assert!(pair(two, Side::Neighbour).is_none() && table.waits((family, two), now));
        table.forget(family);
        assert!(!table.waits((family, two), now));
        assert!(pair(one, Side::Neighbour).is_none());
        assert!(pair(one, Side::Own).is_some(), "these two belong together");
    }
}
