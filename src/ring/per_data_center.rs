//! The data-centre strategy: a number of replicas in each data centre, on different racks if
//! possible.
//!
//! The strategy of this name in 0.6 was never finished. It takes neighbours of one rack although
//! there are nodes of others, and fails in data centres with one replica. This does what later
//! releases do.

use super::snitch::Topology;
use super::token::Token;
use super::token_metadata::TokenMetadata;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Needs of a data centre.
struct Need<'a> {
    /// Number of missing replicas.
    missing: usize,
    /// The racks that have one.
    racks: BTreeSet<Cow<'a, str>>,
}

/// The replicas of a token: of each data centre the number in `factors`, or all its nodes if there
/// are fewer; none of a data centre without a number.
///
/// One walk around the ring takes each node that is on a rack without a replica. Nodes that were
/// passed over fill up what is missing then, in the order of the walk.
pub(super) fn endpoints(
    topology: &Topology,
    factors: &BTreeMap<String, usize>,
    ring: &TokenMetadata,
    token: &Token,
) -> Vec<IpAddr> {
    let need = |&missing| Need { missing, racks: BTreeSet::new() };
    let mut needs: BTreeMap<&str, Need<'_>> =
        factors.iter().map(|(name, factor)| (name.as_str(), need(factor))).collect();
    let mut missing: usize = factors.values().sum();
    let mut chosen = Vec::new();
    let mut passed_over = Vec::new();
    for endpoint in ring.endpoints_from(token) {
        if missing == 0 {
            return chosen;
        }
        let data_center = topology.data_center(endpoint);
        let Some(need) = needs.get_mut(&*data_center).filter(|need| need.missing > 0) else {
            continue;
        };
        if need.racks.insert(topology.rack(endpoint)) {
            need.missing -= 1;
            missing -= 1;
            chosen.push(endpoint);
        } else {
            passed_over.push((endpoint, data_center));
        }
    }
    for (endpoint, data_center) in passed_over {
        if let Some(need) = needs.get_mut(&*data_center).filter(|need| need.missing > 0) {
            need.missing -= 1;
            chosen.push(endpoint);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{RackFile, ReplicaPlacement, Snitch};
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use std::sync::Arc;

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

    fn factors(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
        of.iter().map(|&(name, factor)| (name.to_owned(), factor)).collect()
    }

    #[test]
    fn racks_come_first_and_the_walk_decides_the_order() {
        let nodes = [
            node(1, 1, 1),
            node(1, 1, 2),
            node(2, 1, 1),
            node(1, 2, 1),
            node(3, 1, 1),
            node(2, 1, 2),
            node(1, 1, 3),
        ];
        let ring = ring(&nodes);
        let replicas = |token, of: &[(&str, usize)]| {
            endpoints(&Topology::Octets, &factors(of), &ring, &Token::Random(token))
        };
        let [a, b, x, c, _, y, d] = nodes;
        assert_eq!(replicas(10, &[("1", 2)]), [a, c]);
        assert_eq!(replicas(10, &[("1", 3), ("2", 1)]), [a, x, c, b]);
        assert_eq!(replicas(11, &[("1", 3), ("2", 2)]), [b, x, c, y, d]);
        assert_eq!(replicas(30, &[("1", 1), ("2", 1)]), [x, c]);
        assert_eq!(replicas(10, &[("2", 5), ("4", 2), ("1", 0)]), [x, y]);
        assert_eq!(replicas(10, &[]), [] as [IpAddr; 0]);
    }

    proptest! {
        #[test]
        fn each_data_center_gets_its_replicas_on_different_racks(
            members in btree_map(0..60u128, (0..4u8, 0..4u8), 0..16),
            of in btree_map("DC[0-3]", 0..5usize, 0..4),
            token in 0..60u128,
        ) {
            let mut ring = TokenMetadata::default();
            let mut lines = BTreeMap::new();
            for (host, (&token, &(data_center, rack))) in (0..).zip(&members) {
                let address: IpAddr = [10, 0, 0, host].into();
                ring.insert(Token::Random(token), address);
                lines.insert(address.to_string(), format!("DC{data_center}:R{rack}"));
            }
            let racks = crate::ring::Racks::new(Some(RackFile::parse(&lines)));
            let snitch = Snitch::PropertyFile(Arc::new(racks));
            let topology = snitch.topology();
            let placement = ReplicaPlacement::per_data_center(of.clone(), snitch);
            prop_assert_eq!(placement.replication_factor, of.values().sum::<usize>());
            let token = Token::Random(token);
            let replicas = placement.natural_endpoints(&ring, &token);
            let names = |endpoints: &[IpAddr], center: &str| {
                let here = endpoints.iter().filter(|&&e| topology.data_center(e) == center);
                here.map(|&e| topology.rack(e).into_owned()).collect::<Vec<_>>()
            };
            let nodes: Vec<IpAddr> = ring.endpoints_from(&token).collect();
            for center in ["DC0", "DC1", "DC2", "DC3"] {
                let factor = of.get(center).copied().unwrap_or(0);
                let (there, chosen) = (names(&nodes, center), names(&replicas, center));
                prop_assert_eq!(chosen.len(), factor.min(there.len()));
                let racks = |of: &[String]| of.iter().collect::<BTreeSet<_>>().len();
                prop_assert_eq!(racks(&chosen), factor.min(racks(&there)));
            }
            // The first node of the walk whose data centre has replicas leads.
            let has_replicas = |e: &&IpAddr| of.get(&*topology.data_center(**e)) > Some(&0);
            prop_assert_eq!(replicas.first(), nodes.iter().find(has_replicas));
            // No node is chosen twice, and those for their racks are in the order of the walk.
            let place = |e: &IpAddr| nodes.iter().position(|n| n == e);
            let mut places: Vec<_> = replicas.iter().map(place).collect();
            let descents = places.windows(2).filter(|pair| pair[0] > pair[1]).count();
            prop_assert!(descents <= 1);
            places.sort_unstable();
            prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
