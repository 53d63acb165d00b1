//! Replica placements of keyspaces, which come and go while the node runs.

use super::placement::ReplicaPlacement;
use crate::base::latest::Latest;
use crate::base::lock::{Mutex, rank};
use std::collections::BTreeMap;

/// Replica placements by keyspace. A name keeps its number, also if its keyspace is dropped and
/// made again. All parts of a node share one, and read it without a lock.
#[derive(Debug, Default)]
pub struct KeyspacePlacements {
    /// By number; `None` for a keyspace that was dropped.
    all: boxcar::Vec<(String, Latest<Option<ReplicaPlacement>>)>,
    /// Held while one is set.
    setting: Mutex<rank::Last, ()>,
}

impl From<BTreeMap<String, ReplicaPlacement>> for KeyspacePlacements {
    fn from(placements: BTreeMap<String, ReplicaPlacement>) -> Self {
        let all = placements.into_iter().map(|(name, it)| (name, Latest::new(Some(it))));
        Self { all: all.collect(), setting: Mutex::default() }
    }
}

impl KeyspacePlacements {
    /// Sets the placement of a keyspace; `None` for one that is dropped.
    pub fn set(&self, keyspace: &str, placement: Option<ReplicaPlacement>) {
        let _one_at_a_time = self.setting.lock();
        match self.number(keyspace).and_then(|number| self.all.get(number)) {
            Some((_, latest)) => latest.set(placement),
            None => {
                self.all.push((keyspace.to_owned(), Latest::new(placement)));
            }
        }
    }

    /// The number of a keyspace; `None` if each node keeps it for itself.
    pub fn number(&self, keyspace: &str) -> Option<usize> {
        self.all.iter().find(|(_, (name, _))| name == keyspace).map(|(number, _)| number)
    }

    /// The placement of a keyspace.
    pub fn get(&self, keyspace: &str) -> Option<&ReplicaPlacement> {
        self.iter().find(|(name, _)| *name == keyspace).map(|(_, placement)| placement)
    }

    /// The keyspaces that exist, with their placements.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ReplicaPlacement)> {
        self.by_number().filter_map(|(name, placement)| Some((name, placement?)))
    }

    /// All keyspaces in the order of their numbers; those that were dropped without a placement.
    pub fn by_number(&self) -> impl Iterator<Item = (&str, Option<&ReplicaPlacement>)> {
        self.all.iter().map(|(_, (name, latest))| (name.as_str(), latest.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{ReplicationStrategy, Snitch};

    fn of(factor: usize) -> ReplicaPlacement {
        let (strategy, snitch) = (ReplicationStrategy::RackUnaware, Snitch::EndPoint);
        ReplicaPlacement { strategy, replication_factor: factor, snitch }
    }

    #[test]
    fn a_keyspace_keeps_its_number() {
        let placements = KeyspacePlacements::from(BTreeMap::from([("b".to_owned(), of(1))]));
        placements.set("a", Some(of(2)));
        placements.set("b", None);
        assert_eq!((placements.number("b"), placements.number("a")), (Some(0), Some(1)));
        assert!(placements.get("b").is_none() && placements.iter().count() == 1);
        placements.set("b", Some(of(3)));
        assert_eq!(placements.get("b").map(|it| it.replication_factor), Some(3));
        assert_eq!(placements.by_number().count(), 2);
    }
}
