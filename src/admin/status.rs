//! All nodes at a glance.

use super::context::AdminContext;
use super::ring_report::{
    ClusterStatus, NodeStatus, RemovedEndpoint, Ring, RingEndpoint, RingState, Software, Status,
};
use crate::gossip::{EXTENSIONS_STATE, EndpointState, Gossiper, VERSION_STATE};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

impl AdminContext {
    /// All nodes at a glance, those that were removed included.
    pub(super) fn status(&self) -> ClusterStatus {
        let Ring { local, endpoints, mut removed, .. } = self.ring();
        let now_millis = self.clock.coarse_millis();
        let uptime = self.clock.monotonic().saturating_sub(self.started);
        let own_start = now_millis.saturating_sub(uptime.as_millis() as u64);
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
            // One that runs on although it was removed is told once.
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
        ClusterStatus { cluster_name: self.cluster_name.clone(), local, healthy, troubles, nodes }
    }
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
}
