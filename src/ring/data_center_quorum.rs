//! Quorums of `DCQUORUM` and `DCQUORUMSYNC`: a majority of one data centre, or of each. They are
//! numbers of needed answers by name of data centre, at least one each.

use super::placement::{ReplicaPlacement, ReplicationStrategy};
use super::snitch::Topology;
use std::collections::BTreeMap;
use std::net::IpAddr;

impl ReplicaPlacement {
    /// `DCQUORUMSYNC`: a majority of each data centre that has replicas. `endpoints` are those
    /// that hold the row: for a write also the pending ones, which may make a majority larger.
    ///
    /// `None` if replicas are not placed by data centre: the level then asks for all of them.
    pub fn quorum_of_each_data_center(
        &self,
        endpoints: &[IpAddr],
    ) -> Option<BTreeMap<String, usize>> {
        let ReplicationStrategy::PerDataCenter(factors) = &self.strategy else { return None };
        let topology = self.snitch.topology();
        let replicated = factors.iter().filter(|&(_, &factor)| factor > 0);
        let needed = replicated.map(|(name, &factor)| {
            (name.clone(), majority(factor, endpoints_in(&topology, name, endpoints)))
        });
        Some(needed.collect())
    }

    /// `DCQUORUM`: a majority of the data centre of this node. Answers from others do not count.
    /// If it has no replicas it cannot be met.
    ///
    /// `None` if replicas are not placed by data centre: the level then asks for all of them.
    pub fn quorum_of_data_center(
        &self,
        local: IpAddr,
        endpoints: &[IpAddr],
    ) -> Option<BTreeMap<String, usize>> {
        let ReplicationStrategy::PerDataCenter(factors) = &self.strategy else { return None };
        let topology = self.snitch.topology();
        let name = topology.data_center(local).into_owned();
        let factor = factors.get(&name).copied().unwrap_or(0);
        let needed = majority(factor, endpoints_in(&topology, &name, endpoints));
        Some(BTreeMap::from([(name, needed)]))
    }
}

/// More than half of the endpoints, or of the replicas that there are to be. With several pending
/// ones more than that: half of the replicas, whichever of the endpoints these are in the end.
fn majority(factor: usize, endpoints: usize) -> usize {
    let pending = endpoints.saturating_sub(factor);
    let all = factor + pending;
    (all / 2 + 1).max(factor.div_ceil(2) + pending)
}

fn endpoints_in(topology: &Topology, data_center: &str, endpoints: &[IpAddr]) -> usize {
    endpoints.iter().filter(|&&endpoint| topology.data_center(endpoint) == data_center).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Snitch;
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    fn node(data_center: u8, host: u8) -> IpAddr {
        [10, data_center, host, host].into()
    }

    fn placement(factors: &[(&str, usize)]) -> ReplicaPlacement {
        let factors = factors.iter().map(|&(name, factor)| (name.to_owned(), factor));
        ReplicaPlacement::per_data_center(factors.collect(), Snitch::EndPoint)
    }

    /// Whether these distinct endpoints are enough: live ones before requests are sent, and
    /// answering ones afterwards.
    fn are_met_by(quorums: &BTreeMap<String, usize>, endpoints: &[IpAddr]) -> bool {
        let mut needs = quorums.iter();
        needs.all(|(name, &needed)| endpoints_in(&Topology::Octets, name, endpoints) >= needed)
    }

    fn block_for(quorums: &BTreeMap<String, usize>) -> usize {
        quorums.values().sum()
    }

    #[test]
    fn majorities_are_those_of_the_configured_replicas() {
        for (factor, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)] {
            let placement = placement(&[("1", factor), ("2", 0)]);
            let quorums = placement.quorum_of_each_data_center(&[node(1, 1)]).unwrap();
            assert_eq!(quorums, BTreeMap::from([("1".to_owned(), quorum)]));
            let local = placement.quorum_of_data_center(node(1, 9), &[]).unwrap();
            assert_eq!(local, quorums);
            // Pending endpoints make a majority larger: of any replicas there are half in it.
            let endpoints: Vec<IpAddr> = (0..9).map(|host| node(1, host)).collect();
            let with_pending = placement.quorum_of_each_data_center(&endpoints).unwrap();
            assert_eq!(block_for(&with_pending), 9 - factor / 2);
        }
    }

    #[test]
    fn answers_from_elsewhere_do_not_count() {
        let placement = placement(&[("1", 3), ("2", 1)]);
        let all = [node(1, 1), node(1, 2), node(1, 3), node(2, 1)];
        let [a, b, c, x] = all;
        let local = placement.quorum_of_data_center(node(1, 7), &all).unwrap();
        assert!(are_met_by(&local, &[a, c]) && !are_met_by(&local, &[a, x]));
        let each = placement.quorum_of_each_data_center(&all).unwrap();
        assert!(are_met_by(&each, &[a, b, x]) && !are_met_by(&each, &[a, b, c]));
        assert_eq!((block_for(&local), block_for(&each)), (2, 3));
        let without_replicas = placement.quorum_of_data_center(node(3, 1), &all).unwrap();
        assert!(!are_met_by(&without_replicas, &all));
        let by_rack = ReplicaPlacement { strategy: ReplicationStrategy::RackAware, ..placement };
        assert!(by_rack.quorum_of_each_data_center(&all).is_none());
        assert!(by_rack.quorum_of_data_center(a, &all).is_none());
    }

    proptest! {
        /// Reads at this level see writes at it, in every data centre with replicas.
        #[test]
        fn two_quorums_share_a_replica_of_each_data_center(
            factors in btree_map("[0-3]", 0..5usize, 0..4),
            (written, read) in {
                let all: Vec<IpAddr> = (0..16).map(|n| node(n % 4, n)).collect();
                (subsequence(all.clone(), 0..=16), subsequence(all, 0..=16))
            },
        ) {
            let placement = ReplicaPlacement::per_data_center(factors.clone(), Snitch::EndPoint);
            // The first nodes of each data centre are the replicas.
            let replicas: Vec<IpAddr> = factors
                .iter()
                .flat_map(|(name, &factor)| {
                    let center: u8 = name.parse().unwrap();
                    (0..4).take(factor).map(move |n| node(center, center + 4 * n))
                })
                .collect();
            let among = |endpoints: &[IpAddr]| {
                let mut endpoints = endpoints.to_vec();
                endpoints.retain(|endpoint| replicas.contains(endpoint));
                endpoints
            };
            let (written, read) = (among(&written), among(&read));
            let quorums = placement.quorum_of_each_data_center(&replicas).unwrap();
            if are_met_by(&quorums, &written) && are_met_by(&quorums, &read) {
                for name in quorums.keys() {
                    let here = |e: &&IpAddr| Topology::Octets.data_center(**e) == name.as_str();
                    prop_assert!(written.iter().filter(here).any(|e| read.contains(e)));
                }
            }
            for local in 0..4 {
                let local = placement.quorum_of_data_center(node(local, 0), &replicas).unwrap();
                let (name, needed) = local.first_key_value().unwrap();
                prop_assert!(quorums.get(name).is_none_or(|each| each == needed));
            }
        }
    }
}
