//! Endpoints that were known once, and must not come back by old news.

use super::RING_DELAY;
use super::admission::MAX_ENDPOINTS;
use super::endpoint_state::EndpointState;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// How long a forgotten endpoint is remembered: longer than a part of the cluster is likely to be
/// cut off, which then comes back with old news.
const MEMORY: Duration = Duration::from_secs(3 * 24 * 3600);

/// Forgotten endpoints. News of one that was removed are ignored for [`RING_DELAY`], while all
/// nodes forget it. After that a node of 0.6 takes it back from any other that has not forgotten
/// it; here it needs news of its own, newer than what was forgotten. A peer that knows less than
/// was forgotten is told: a part of the cluster may have missed that the endpoint left.
///
/// An endpoint that was only silent comes back with its next news, from any peer: perhaps it was
/// this node that was cut off, and a coordinator that does not know of a joining node writes past
/// it.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    endpoints: BTreeMap<IpAddr, Entry>,
}

#[derive(Debug)]
struct Entry {
    at: Duration,
    was_removed: bool,
    known: Option<EndpointState>,
}

impl Forgotten {
    /// Remembers that this endpoint was forgotten, whether since it was removed, and what was known
    /// of it. If there are too many, the one longest forgotten is dropped, those that never had a
    /// place first.
    pub(super) fn insert(
        &mut self,
        endpoint: IpAddr,
        was_removed: bool,
        known: Option<EndpointState>,
        at: Duration,
    ) {
        if self.endpoints.len() >= MAX_ENDPOINTS
            && let Some(dropped) = self.first_to_drop()
        {
            self.endpoints.remove(&dropped);
        }
        self.endpoints.insert(endpoint, Entry { at, was_removed, known });
    }

    fn first_to_drop(&self) -> Option<IpAddr> {
        let had_place = |known: &Option<EndpointState>| {
            known.as_ref().is_some_and(EndpointState::tells_of_place)
        };
        let oldest = self.endpoints.iter().min_by_key(|(_, it)| (had_place(&it.known), it.at));
        oldest.map(|(endpoint, _)| *endpoint)
    }

    /// Whether an endpoint was forgotten.
    pub(super) fn contains(&self, endpoint: IpAddr) -> bool {
        self.endpoints.contains_key(&endpoint)
    }

    /// The endpoint is known again.
    pub(super) fn remove(&mut self, endpoint: IpAddr) {
        self.endpoints.remove(&endpoint);
    }

    /// Whether an endpoint may become known with news of this age; without an age, whether it may
    /// with any.
    pub(super) fn may_return(
        &self,
        endpoint: IpAddr,
        age: Option<(i32, i32)>,
        now: Duration,
    ) -> bool {
        let Some(Entry { at, was_removed, known }) = self.endpoints.get(&endpoint) else {
            return true;
        };
        let is_news = match (age, known) {
            (Some(age), Some(known)) => age > known.age(),
            _ => true,
        };
        let is_over = !was_removed || now.saturating_sub(*at) > RING_DELAY;
        is_over && is_news
    }

    /// What was known of an endpoint beyond this age.
    pub(super) fn newer_than(&self, endpoint: IpAddr, age: (i32, i32)) -> Option<EndpointState> {
        let known = &self.endpoints.get(&endpoint)?.known;
        known.as_ref().filter(|known| known.age() > age)?.newer_than_age(age)
    }

    /// Drops what was forgotten long ago.
    pub(super) fn expire(&mut self, now: Duration) {
        self.endpoints.retain(|_, it| now.saturating_sub(it.at) <= MEMORY);
    }
}
