//! Other endpoints as a gossiper knows them: present ones, forgotten ones, and members of the saved
//! ring that are unheard.

use super::admission::MAX_ENDPOINTS;
use super::endpoint_state::{EndpointState, VersionedValue};
use super::message::Digest;
use super::{EXTENSIONS_STATE, RING_DELAY};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Rounds in which all states are requested of an endpoint that announces no extensions. It is of
/// 0.6, or became known by an answer to an earlier start of this node.
const DOUBTFUL_ROUNDS: u32 = 10;

/// Time for which a forgotten endpoint is remembered: longer than a part of the cluster is likely
/// to be cut off, which then comes back with old news.
const MEMORY: Duration = Duration::from_secs(3 * 24 * 3600);

/// A known endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) state: EndpointState,
    pub(super) is_alive: bool,
    /// The newest generation and version that a digest has listed.
    pub(super) listed: (i32, i32),
    /// Time of the last news.
    pub(super) updated: Duration,
    /// Rounds in which all states are requested again.
    doubts: u32,
}

impl Peer {
    pub(super) fn new(state: EndpointState, is_alive: bool, now: Duration) -> Self {
        let doubts = if state.value(EXTENSIONS_STATE).is_some() { 0 } else { DOUBTFUL_ROUNDS };
        Self { listed: state.age(), state, is_alive, updated: now, doubts }
    }

    pub(super) fn end_round(&mut self) {
        self.doubts = self.doubts.saturating_sub(1);
    }

    /// The generation and version up to which everything is known.
    pub(super) fn known_age(&self) -> (i32, i32) {
        if self.doubts > 0 { (self.state.generation, 0) } else { self.state.age() }
    }

    /// Whether news may have something unknown. As long as there is doubt, news of the same age
    /// may.
    pub(super) fn lacks(&self, news: &EndpointState) -> bool {
        let (known, news) = (self.state.age(), news.age());
        news > known || self.doubts > 0 && news == known
    }

    /// Merges news of the same generation, see [`EndpointState::merge`].
    pub(super) fn merge(&mut self, news: &EndpointState) -> Vec<(String, VersionedValue)> {
        let changed = self.state.merge(news);
        if self.state.value(EXTENSIONS_STATE).is_some() {
            self.doubts = 0;
        }
        changed
    }
}

/// Forgotten endpoints, which old news must not bring back.
///
/// News of a removed endpoint are ignored for [`RING_DELAY`], while all nodes forget it, unless it
/// has started again: it believes in its place until others refuse that. After that time a node of
/// 0.6 takes it back from any peer that has not forgotten it; here it needs news of its own, newer
/// than what was forgotten. Peers that know less than was forgotten are informed: a part of the
/// cluster may have missed that the endpoint left.
///
/// An endpoint that was only silent comes back with its next news, from any peer: it may be this
/// node that was cut off, and a coordinator that does not know of a joining node writes past it.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    endpoints: BTreeMap<IpAddr, ForgottenEndpoint>,
}

#[derive(Debug)]
struct ForgottenEndpoint {
    at: Duration,
    was_removed: bool,
    known: Option<EndpointState>,
}

impl Forgotten {
    /// Remembers a forgotten endpoint with its last known state. A full table drops the entry that
    /// is the oldest, of endpoints that never had a place first.
    pub(super) fn insert(
        &mut self,
        endpoint: IpAddr,
        was_removed: bool,
        known: Option<EndpointState>,
        at: Duration,
    ) {
        if self.endpoints.len() >= MAX_ENDPOINTS {
            let had_place = |it: &ForgottenEndpoint| {
                it.known.as_ref().is_some_and(EndpointState::tells_of_place)
            };
            let oldest = self.endpoints.iter().min_by_key(|(_, it)| (had_place(it), it.at));
            if let Some((&dropped, _)) = oldest {
                self.endpoints.remove(&dropped);
            }
        }
        self.endpoints.insert(endpoint, ForgottenEndpoint { at, was_removed, known });
    }

    pub(super) fn contains(&self, endpoint: IpAddr) -> bool {
        self.endpoints.contains_key(&endpoint)
    }

    /// Drops an endpoint that is known again.
    pub(super) fn remove(&mut self, endpoint: IpAddr) {
        self.endpoints.remove(&endpoint);
    }

    /// Whether an endpoint may become known by news of this age, or by any if there is none.
    pub(super) fn may_return(
        &self,
        endpoint: IpAddr,
        age: Option<(i32, i32)>,
        now: Duration,
    ) -> bool {
        let Some(it) = self.endpoints.get(&endpoint) else { return true };
        let (is_news, is_new_start) = match (age, &it.known) {
            (Some(age), Some(known)) => (age > known.age(), age.0 > known.generation),
            _ => (true, false),
        };
        let is_over = now.saturating_sub(it.at) > RING_DELAY;
        is_news && (!it.was_removed || is_new_start || is_over)
    }

    /// The part of a forgotten state that is newer than this age.
    pub(super) fn newer_than(&self, endpoint: IpAddr, age: (i32, i32)) -> Option<EndpointState> {
        let known = &self.endpoints.get(&endpoint)?.known;
        known.as_ref().filter(|known| known.age() > age)?.newer_than_age(age)
    }

    pub(super) fn expire(&mut self, now: Duration) {
        self.endpoints.retain(|_, it| now.saturating_sub(it.at) <= MEMORY);
    }
}

/// Members of the saved ring without news since the start, each with the other members that do not
/// know it either.
///
/// They may be dead, and then are members as before. Or they left while this node was down, and the
/// nodes that knew it have been restarted since. So the others decide: their SYNs list all
/// endpoints that they know, saved members included. Nodes of 0.6 have no saved ring, and do not
/// know members that were dead when they started.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    /// With the senders whose last SYN did not list it.
    endpoints: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
}

impl Unheard {
    pub(super) fn insert(&mut self, endpoint: IpAddr) {
        self.endpoints.entry(endpoint).or_default();
    }

    /// Drops an endpoint with news, or one that is no member any more.
    pub(super) fn remove(&mut self, endpoint: IpAddr) {
        self.endpoints.remove(&endpoint);
    }

    /// Drops endpoints that are not members.
    pub(super) fn retain(&mut self, members: &BTreeSet<IpAddr>) {
        self.endpoints.retain(|endpoint, _| members.contains(endpoint));
    }

    pub(super) fn contains(&self, endpoint: IpAddr) -> bool {
        self.endpoints.contains_key(&endpoint)
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.keys().copied()
    }

    /// Notes which endpoints a SYN lists.
    pub(super) fn hear_digests(&mut self, from: IpAddr, digests: &[Digest]) {
        if self.endpoints.is_empty() {
            return;
        }
        let listed: BTreeSet<IpAddr> = digests.iter().map(|digest| digest.endpoint).collect();
        for (endpoint, without) in &mut self.endpoints {
            if listed.contains(endpoint) {
                without.remove(&from);
            } else {
                without.insert(from);
            }
        }
    }

    /// The endpoints that a majority of the other members does not know. Silent members count as
    /// knowing them: a few that start first after an outage keep the ring as it was.
    pub(super) fn disowned(&self, local: IpAddr, members: &BTreeSet<IpAddr>) -> Vec<IpAddr> {
        let is_disowned = |(&endpoint, without): (&IpAddr, &BTreeSet<IpAddr>)| {
            let is_other = |member: &&IpAddr| **member != local && **member != endpoint;
            let others = members.iter().filter(is_other).count();
            let against = without.intersection(members).count();
            (against * 2 > others).then_some(endpoint)
        };
        self.endpoints.iter().filter_map(is_disowned).collect()
    }
}
