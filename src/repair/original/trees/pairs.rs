//! Which trees wait for which.

use crate::model::schema::FamilyId;
use crate::repair::merkle::MerkleTree;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A tree says nothing any more of rows that were written since. The other one may take hours.
const STALE: Duration = Duration::from_hours(6);

/// One of the two trees of a pair, while the other one is not there.
#[derive(Debug)]
enum Waiting {
    Own(Arc<MerkleTree>),
    Theirs(Arc<MerkleTree>),
}

/// The trees that wait, at most one for each neighbour and column family.
#[derive(Debug, Default)]
pub(in crate::repair::original) struct Pairs(
    Mutex<BTreeMap<(FamilyId, IpAddr), (Waiting, Duration)>>,
);

impl Pairs {
    /// This node has its tree: that of a neighbour, if it has waited.
    pub(super) fn own(
        &self,
        family: FamilyId,
        other: IpAddr,
        tree: Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        let mut pairs = self.lock(now);
        if let Some((Waiting::Theirs(theirs), _)) = pairs.remove(&(family, other)) {
            return Some(theirs);
        }
        pairs.insert((family, other), (Waiting::Own(tree), now));
        None
    }

    /// A neighbour has sent its tree: that of this node, if it has waited.
    pub(super) fn theirs(
        &self,
        family: FamilyId,
        other: IpAddr,
        tree: Arc<MerkleTree>,
        now: Duration,
    ) -> Option<Arc<MerkleTree>> {
        let mut pairs = self.lock(now);
        if let Some((Waiting::Own(own), _)) = pairs.remove(&(family, other)) {
            return Some(own);
        }
        pairs.insert((family, other), (Waiting::Theirs(tree), now));
        None
    }

    /// Whether the tree of a neighbour waits.
    pub(super) fn waits(&self, family: FamilyId, other: IpAddr, now: Duration) -> bool {
        matches!(self.lock(now).get(&(family, other)), Some((Waiting::Theirs(_), _)))
    }

    fn lock(
        &self,
        now: Duration,
    ) -> MutexGuard<'_, BTreeMap<(FamilyId, IpAddr), (Waiting, Duration)>> {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|_, (_, since)| now.saturating_sub(*since) < STALE);
        pairs
    }
}
