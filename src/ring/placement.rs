//! Placement of the replicas of a token.

use super::per_data_center;
use super::range::TokenRange;
use super::snitch::Snitch;
use super::token::Token;
use super::token_metadata::TokenMetadata;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Choice of the replicas after the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicationStrategy {
    /// `RackUnawareStrategy`: the next nodes of the ring.
    RackUnaware,
    /// `RackAwareStrategy`: one node of another data centre and one of another rack come before
    /// other nodes.
    RackAware,
    /// `DatacenterShardStategy`: a number of replicas for each data centre, by its name. A data
    /// centre without a number gets none.
    PerDataCenter(Arc<BTreeMap<String, usize>>),
}

/// The replica placement of a keyspace.
#[derive(Debug, Clone)]
pub struct ReplicaPlacement {
    /// Choice of replicas.
    pub strategy: ReplicationStrategy,
    /// Number of replicas of a row; a smaller ring has fewer. The sum over all data centres if each
    /// has its own number.
    pub replication_factor: usize,
    /// Source of racks and data centres.
    pub snitch: Snitch,
}

/// A range of the ring with the endpoints that hold it, as `describe_ring` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRange {
    /// The primary range of the first endpoint.
    pub range: TokenRange,
    /// All replicas in the order of the strategy.
    pub endpoints: Vec<IpAddr>,
}

impl ReplicaPlacement {
    /// One of the data-centre strategy: its replication factor is that of all data centres
    /// together.
    pub fn per_data_center(factors: BTreeMap<String, usize>, snitch: Snitch) -> Self {
        let replication_factor = factors.values().sum();
        let strategy = ReplicationStrategy::PerDataCenter(Arc::new(factors));
        Self { strategy, replication_factor, snitch }
    }

    /// The replicas of a token, the owner first. As many as the replication factor says, or all
    /// nodes if there are fewer. With replicas per data centre the first is the owner only if its
    /// data centre has some.
    pub fn natural_endpoints(&self, ring: &TokenMetadata, token: &Token) -> Vec<IpAddr> {
        match &self.strategy {
            ReplicationStrategy::RackUnaware => {
                ring.endpoints_from(token).take(self.replication_factor).collect()
            }
            ReplicationStrategy::RackAware => self.rack_aware_endpoints(ring, token),
            ReplicationStrategy::PerDataCenter(factors) => {
                per_data_center::endpoints(&self.snitch.topology(), factors, ring, token)
            }
        }
    }

    /// Every primary range with its replicas, in the order of the tokens.
    pub fn describe_ring(&self, ring: &TokenMetadata) -> Vec<EndpointRange> {
        let ranges = ring.primary_ranges();
        ranges
            .map(|(range, _)| {
                let endpoints = self.natural_endpoints(ring, &range.end);
                EndpointRange { range, endpoints }
            })
            .collect()
    }

    /// At most one replica is chosen for its data centre and one for its rack, in whichever order
    /// the walk meets them; then the ring is filled up from the owner on.
    fn rack_aware_endpoints(&self, ring: &TokenMetadata, token: &Token) -> Vec<IpAddr> {
        let mut walk = ring.endpoints_from(token);
        let Some(primary) = walk.next().filter(|_| self.replication_factor > 0) else {
            return Vec::new();
        };
        let topology = self.snitch.topology();
        let mut chosen = vec![primary];
        let (mut other_data_center, mut other_rack) = (false, false);
        for endpoint in walk {
            if chosen.len() >= self.replication_factor {
                return chosen;
            }
            // A node of another data centre never counts as one of another rack.
            let seen = if !topology.same_data_center(primary, endpoint) {
                &mut other_data_center
            } else if !topology.same_rack(primary, endpoint) {
                &mut other_rack
            } else {
                continue;
            };
            if !std::mem::replace(seen, true) {
                chosen.push(endpoint);
            }
        }
        for endpoint in ring.endpoints_from(token) {
            if chosen.len() >= self.replication_factor {
                break;
            }
            if !chosen.contains(&endpoint) {
                chosen.push(endpoint);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Topology;
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn placement(strategy: ReplicationStrategy, replication_factor: usize) -> ReplicaPlacement {
        ReplicaPlacement { strategy, replication_factor, snitch: Snitch::EndPoint }
    }

    fn node(data_center: u8, rack: u8, host: u8) -> IpAddr {
        [10, data_center, rack, host].into()
    }

    /// Nodes at the tokens 10, 20, 30 and so on.
    fn ring(nodes: &[IpAddr]) -> TokenMetadata {
        let mut ring = TokenMetadata::default();
        for (number, &node) in (1..).zip(nodes) {
            ring.insert(Token::Random(10 * number), node);
        }
        ring
    }

    #[test]
    fn rack_unaware_takes_the_next_nodes() {
        let [a, b, c] = [node(1, 1, 1), node(1, 1, 2), node(2, 2, 3)];
        let ring = ring(&[a, b, c]);
        let replicas = |factor, token| {
            placement(ReplicationStrategy::RackUnaware, factor)
                .natural_endpoints(&ring, &Token::Random(token))
        };
        assert_eq!(replicas(1, 10), [a]);
        assert_eq!(replicas(2, 25), [c, a]);
        assert_eq!(replicas(3, 31), [a, b, c]);
        assert_eq!(replicas(5, 11), [b, c, a]);
    }

    #[test]
    fn rack_aware_takes_one_of_each_in_the_order_met() {
        let same = node(1, 1, 2);
        let [primary, rack, center] = [node(1, 1, 1), node(1, 2, 1), node(2, 1, 1)];
        let replicas = |factor, nodes: &[IpAddr]| {
            placement(ReplicationStrategy::RackAware, factor)
                .natural_endpoints(&ring(nodes), &Token::Random(10))
        };
        let nodes = [primary, same, rack, node(1, 3, 1), center, node(3, 1, 1)];
        assert_eq!(replicas(1, &nodes), [primary]);
        assert_eq!(replicas(2, &nodes), [primary, rack]);
        assert_eq!(replicas(3, &nodes), [primary, rack, center]);
        assert_eq!(replicas(4, &nodes), [primary, rack, center, same]);
        assert_eq!(replicas(9, &nodes).len(), 6);
        assert_eq!(replicas(2, &[primary, same, center, rack]), [primary, center]);
        assert_eq!(replicas(3, &[primary, same, node(1, 1, 3)]), [primary, same, node(1, 1, 3)]);
        assert_eq!(replicas(0, &nodes), [] as [IpAddr; 0]);
        assert_eq!(replicas(3, &[]), [] as [IpAddr; 0]);
    }

    #[test]
    fn a_node_alone_is_described_from_its_token_to_its_token() {
        let ring = TokenMetadata::single(Token::Random(7), node(0, 0, 1));
        let range = TokenRange { start: Token::Random(7), end: Token::Random(7) };
        let described = EndpointRange { range, endpoints: vec![node(0, 0, 1)] };
        let placement = placement(ReplicationStrategy::RackUnaware, 3);
        assert_eq!(placement.describe_ring(&ring), [described]);
    }

    proptest! {
        #[test]
        fn replicas_are_distinct_members_led_by_the_owner(
            members in btree_map(0..50u128, (1..4u8, 1..4u8), 1..10),
            token in 0..50u128,
            factor in 1..8usize,
            aware: bool,
        ) {
            let mut ring = TokenMetadata::default();
            let mut nodes = BTreeMap::new();
            for (host, (token, (data_center, rack))) in (0..).zip(members) {
                nodes.insert(token, node(data_center, rack, host));
                ring.insert(Token::Random(token), node(data_center, rack, host));
            }
            let strategy = if aware {
                ReplicationStrategy::RackAware
            } else {
                ReplicationStrategy::RackUnaware
            };
            let placement = placement(strategy, factor);
            let replicas = placement.natural_endpoints(&ring, &Token::Random(token));
            let owner = nodes.range(token..).chain(&nodes).next().map(|(_, node)| node);
            prop_assert_eq!(replicas.first(), owner);
            prop_assert_eq!(replicas.len(), factor.min(nodes.len()));
            prop_assert!(replicas.iter().all(|r| nodes.values().any(|n| n == r)));
            prop_assert!((1..replicas.len()).all(|i| !replicas[..i].contains(&replicas[i])));
            // With three replicas, there is one in another data centre wherever one exists.
            let remote = |n: &IpAddr| !Topology::Octets.same_data_center(replicas[0], *n);
            if aware && factor >= 3 && nodes.values().any(remote) {
                prop_assert!(replicas.iter().any(remote));
            }
            // A token has the replicas of the primary range in which it lies.
            let described = placement.describe_ring(&ring);
            let mut holding = described.iter().filter(|d| d.range.contains(&Token::Random(token)));
            prop_assert_eq!(holding.next().map(|d| &d.endpoints), Some(&replicas));
            prop_assert!(holding.next().is_none());
        }
    }
}
