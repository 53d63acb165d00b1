//! Whether the nodes of a cluster agree.

use super::context::AdminContext;
use super::ring_report::{ClusterDescription, SchemaGroup};
use crate::gossip::SCHEMA_STATE;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A node, as it announces itself.
struct Known {
    address: IpAddr,
    is_alive: bool,
    fingerprint: Option<String>,
}

impl AdminContext {
    /// Agreement of the nodes, and those that differ.
    pub(super) fn description(&self) -> ClusterDescription {
        let nodes: Vec<Known> = self.member.with_gossip(|gossiper, membership| {
            let known = gossiper.endpoints().map(|(address, state)| Known {
                address,
                is_alive: gossiper.is_alive(address),
                fingerprint: state.value(SCHEMA_STATE).map(str::to_owned),
            });
            let mut nodes: Vec<Known> = known.collect();
            // Members that were not heard of since the start.
            for address in membership.members().endpoints() {
                if nodes.iter().all(|node| node.address != address) {
                    nodes.push(Known { address, is_alive: false, fingerprint: None });
                }
            }
            nodes
        });
        describe(
            self.cluster_name.clone(),
            self.storage.partitioner().class_name().to_owned(),
            self.snitches.clone(),
            nodes,
        )
    }
}

fn describe(
    cluster_name: String,
    partitioner: String,
    snitches: Vec<String>,
    mut nodes: Vec<Known>,
) -> ClusterDescription {
    nodes.sort_by_key(|node| node.address);
    let mut by_fingerprint: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    let (mut unknown, mut unreachable) = (Vec::new(), Vec::new());
    for Known { address, is_alive, fingerprint } in nodes {
        match fingerprint {
            _ if !is_alive => unreachable.push(address),
            Some(fingerprint) => by_fingerprint.entry(fingerprint).or_default().push(address),
            None => unknown.push(address),
        }
    }
    let group = |(fingerprint, addresses)| SchemaGroup { fingerprint, addresses };
    let mut schemas: Vec<SchemaGroup> = by_fingerprint.into_iter().map(group).collect();
    schemas.sort_by_key(|group| std::cmp::Reverse(group.addresses.len()));
    let most = schemas.first().map_or(0, |group| group.addresses.len());
    let is_tie = schemas.iter().filter(|group| group.addresses.len() == most).count() > 1;
    // Where no side has more nodes, any of them may be wrong.
    let suspects = if is_tie { &schemas[..] } else { schemas.get(1..).unwrap_or_default() };
    let look_at = suspects.iter().flat_map(|group| group.addresses.clone()).collect();
    let agree = schemas.len() <= 1;
    ClusterDescription {
        cluster_name,
        partitioner,
        snitches,
        agree,
        schemas,
        unknown,
        unreachable,
        look_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn described(nodes: &[(u8, bool, Option<&str>)]) -> ClusterDescription {
        let known = |(last, is_alive, fingerprint): &(u8, bool, Option<&str>)| Known {
            address: address(*last),
            is_alive: *is_alive,
            fingerprint: fingerprint.map(str::to_owned),
        };
        describe(String::new(), String::new(), vec![], nodes.iter().map(known).collect())
    }

    #[test]
    fn who_differs_from_most_has_to_be_looked_at() {
        let found = described(&[
            (1, true, Some("b")),
            (2, true, Some("a")),
            (3, true, Some("b")),
            (4, false, Some("c")),
            (5, true, None),
        ]);
        assert!(!found.agree);
        assert_eq!(found.schemas[0].addresses, [address(1), address(3)]);
        assert_eq!((found.look_at, found.unknown), (vec![address(2)], vec![address(5)]));
        assert_eq!(found.unreachable, [address(4)]);
    }

    #[test]
    fn where_no_side_has_more_nodes_all_have_to_be_looked_at() {
        let found = described(&[(1, true, Some("a")), (2, true, Some("b"))]);
        assert_eq!((found.agree, found.look_at.len()), (false, 2));
    }

    #[test]
    fn who_is_dead_or_an_original_agrees_with_everybody() {
        let found = described(&[(1, true, Some("a")), (2, false, Some("b")), (3, true, None)]);
        assert!(found.agree && found.look_at.is_empty());
    }
}
