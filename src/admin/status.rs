//! All nodes at a glance, and whether they agree.

use super::context::AdminContext;
use super::ring_report::{
    ClusterDescription, ClusterStatus, NodeStatus, RemovedEndpoint, Ring, RingEndpoint, RingState,
    SchemaGroup, Software, Status,
};
use crate::gossip::{EXTENSIONS_STATE, EndpointState, Gossiper, SCHEMA_STATE, VERSION_STATE};
use crate::net::extensions;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

impl AdminContext {
    /// All nodes at a glance, those that were removed included.
    pub(super) fn status(&self) -> ClusterStatus {
        let Ring { local, endpoints, mut removed, .. } = self.ring();
        let now_millis = self.clock.coarse_millis();
        let own_start = self.started_millis();
        let now = self.clock.monotonic();
        let heard: BTreeMap<IpAddr, Heard> = self.member.with_gossip(|gossiper, _| {
            let mut heard: BTreeMap<IpAddr, Heard> = gossiper
                .endpoints()
                .map(|(address, state)| (address, Heard::of(gossiper, address, state, now)))
                .collect();
            if let Some(own) = heard.get_mut(&local) {
                own.started_millis = own_start;
            }
            heard
        });
        let mut nodes = Vec::with_capacity(endpoints.len() + removed.len());
        for endpoint in endpoints {
            let heard = heard.get(&endpoint.address);
            let mut node = node_status(endpoint, local, heard, now_millis);
            let is_it = |it: &mut RemovedEndpoint| it.address == node.address;
            // A node that runs on although it was removed is listed once.
            if let Some(it) = removed.extract_if(.., is_it).next()
                && node.state == RingState::Outside
            {
                node.state = RingState::Removed;
                node.healthy = node.status == Status::Down;
                node.token = Some(it.token);
            }
            if node.address == local && self.member.coordinator().peers().is_self_removed {
                (node.state, node.healthy) = (RingState::Removed, false);
            }
            nodes.push(node);
        }
        nodes.extend(removed.into_iter().map(removed_status));
        let troubles = self.health().troubles;
        let healthy = troubles.is_empty() && nodes.iter().all(|node| node.healthy);
        let cluster_name = self.settings.cluster_name.clone();
        ClusterStatus { cluster_name, local, healthy, troubles, nodes }
    }

    /// Agreement of the nodes, and those that differ.
    pub(super) fn description(&self) -> ClusterDescription {
        let (nodes, held_back_by) = self.member.with_gossip(|gossiper, membership| {
            // Members that have not gossiped since the start count as dead.
            let members = membership.members().endpoints().into_iter();
            let mut nodes: BTreeMap<_, _> = members.map(|it| (it, (false, None))).collect();
            nodes.extend(gossiper.endpoints().map(|(address, state)| {
                let fingerprint = state.value(SCHEMA_STATE).map(str::to_owned);
                (address, (gossiper.is_alive(address), fingerprint))
            }));
            let lacks = |it: &&IpAddr| !extensions::ALL.iter().all(|e| gossiper.announces(**it, e));
            let held_back_by = nodes.keys().filter(lacks).copied().collect();
            (nodes, held_back_by)
        });
        ClusterDescription {
            cluster_name: self.settings.cluster_name.clone(),
            partitioner: self.storage.partitioner().class_name().to_owned(),
            snitches: self.snitches(),
            held_back_by,
            ..describe(nodes)
        }
    }
}

impl AdminContext {
    /// The snitches of all keyspaces, by class name.
    fn snitches(&self) -> Vec<String> {
        let names = self.settings.keyspaces.iter().map(|it| it.snitch.class_name().to_owned());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Compares the schema fingerprints of nodes: by address, whether it is alive and its fingerprint.
fn describe(nodes: BTreeMap<IpAddr, (bool, Option<String>)>) -> ClusterDescription {
    let mut description = ClusterDescription::default();
    let mut by_fingerprint: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (address, (is_alive, fingerprint)) in nodes {
        match fingerprint {
            _ if !is_alive => description.unreachable.push(address),
            Some(fingerprint) => by_fingerprint.entry(fingerprint).or_default().push(address),
            None => description.unknown.push(address),
        }
    }
    let group = |(fingerprint, addresses)| SchemaGroup { fingerprint, addresses };
    let mut schemas: Vec<SchemaGroup> = by_fingerprint.into_iter().map(group).collect();
    schemas.sort_by_key(|group| std::cmp::Reverse(group.addresses.len()));
    let most = schemas.first().map_or(0, |group| group.addresses.len());
    let is_tie = schemas.iter().filter(|group| group.addresses.len() == most).count() > 1;
    // If no group is the largest, any of them may be wrong.
    let suspects = if is_tie { &schemas[..] } else { schemas.get(1..).unwrap_or_default() };
    description.look_at = suspects.iter().flat_map(|group| group.addresses.clone()).collect();
    description.agree = schemas.len() <= 1;
    ClusterDescription { schemas, ..description }
}

/// Gossip about a node, besides its place.
struct Heard {
    started_millis: u64,
    silence: Duration,
    software: Software,
}

impl Heard {
    fn of(gossiper: &Gossiper, address: IpAddr, state: &EndpointState, now: Duration) -> Self {
        let is_ours = state.value(EXTENSIONS_STATE).is_some();
        let version = state.value(VERSION_STATE).map(str::to_owned);
        Self {
            // The generation is the time of the start, unless that was in the same second as the
            // one before or the clock was wrong.
            started_millis: u64::try_from(state.generation).unwrap_or(0) * 1000,
            silence: gossiper.silence(address, now).unwrap_or_default(),
            software: match version {
                Some(version) => Software::Alexandra(version),
                None if is_ours => Software::Alexandra(String::new()),
                None => Software::Original,
            },
        }
    }
}

fn node_status(
    endpoint: RingEndpoint,
    local: IpAddr,
    heard: Option<&Heard>,
    now_millis: u64,
) -> NodeStatus {
    let RingEndpoint { address, status, state, load_bytes, owns, token, .. } = endpoint;
    let healthy = match state {
        RingState::Normal => status == Status::Up,
        RingState::Joining | RingState::Leaving => false,
        // A bulk loader, for one; but a node that lost its place has to be looked at.
        RingState::Outside => address != local,
        RingState::Removed => true,
    };
    let since_millis = heard.map(|heard| match status {
        Status::Up => heard.started_millis,
        Status::Down => now_millis.saturating_sub(heard.silence.as_millis() as u64),
    });
    let software = heard.map(|heard| heard.software.clone());
    NodeStatus { address, status, state, healthy, since_millis, load_bytes, owns, token, software }
}

fn removed_status(removed: RemovedEndpoint) -> NodeStatus {
    NodeStatus {
        address: removed.address,
        status: Status::Down,
        state: RingState::Removed,
        healthy: true,
        since_millis: None,
        load_bytes: None,
        owns: None,
        token: Some(removed.token),
        software: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(last: u8, status: Status, state: RingState) -> RingEndpoint {
        RingEndpoint {
            address: IpAddr::from([10, 0, 0, last]),
            status,
            state,
            load_bytes: None,
            token: None,
            owns: None,
            generation: None,
            phi: None,
            data_center: None,
            rack: None,
            hints: 0,
            hint_bytes: 0,
        }
    }

    #[test]
    fn a_node_is_healthy_that_is_up_and_has_its_place_in_peace() {
        let local = IpAddr::from([10, 0, 0, 1]);
        let healthy = |last: u8, status: Status, state: RingState| {
            node_status(endpoint(last, status, state), local, None, 0).healthy
        };
        assert!(healthy(2, Status::Up, RingState::Normal));
        assert!(!healthy(2, Status::Down, RingState::Normal));
        assert!(!healthy(2, Status::Up, RingState::Joining));
        assert!(!healthy(2, Status::Up, RingState::Leaving));
        assert!(healthy(2, Status::Down, RingState::Outside), "it never had a place");
        assert!(!healthy(1, Status::Up, RingState::Outside), "it has lost its own");
    }

    #[test]
    fn a_node_is_up_since_its_start_and_down_since_it_was_heard_last() {
        let heard = Heard {
            started_millis: 5000,
            silence: Duration::from_secs(20),
            software: Software::Original,
        };
        let since = |status: Status| {
            let endpoint = endpoint(2, status, RingState::Normal);
            node_status(endpoint, IpAddr::from([10, 0, 0, 1]), Some(&heard), 60_000).since_millis
        };
        assert_eq!((since(Status::Up), since(Status::Down)), (Some(5000), Some(40_000)));
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn described(nodes: &[(u8, bool, Option<&str>)]) -> ClusterDescription {
        let known = nodes.iter().map(|(last, is_alive, fingerprint)| {
            (address(*last), (*is_alive, fingerprint.map(str::to_owned)))
        });
        describe(known.collect())
    }

    #[test]
    fn nodes_that_differ_from_most_are_named() {
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
    fn all_nodes_are_named_where_no_side_has_more() {
        let found = described(&[(1, true, Some("a")), (2, true, Some("b"))]);
        assert_eq!((found.agree, found.look_at.len()), (false, 2));
    }

    #[test]
    fn dead_nodes_and_originals_agree_with_all() {
        let found = described(&[(1, true, Some("a")), (2, false, Some("b")), (3, true, None)]);
        assert!(found.agree && found.look_at.is_empty());
    }
}
