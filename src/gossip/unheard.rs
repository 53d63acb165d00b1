//! Members of the saved ring of which nothing was heard since the start.

use super::message::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Saved members of which nothing was heard, and who of the others does not know them either.
///
/// They may be dead, and then are members as before. Or they left while this node did not run, and
/// whoever knew has been restarted since. So the others are asked: their SYNs list all that they
/// know, saved members included. Originals have no saved ring, and a member that was dead when they
/// started is none to them.
#[derive(Debug, Default)]
pub(super) struct Unheard {
    /// With those whose last SYN did not list it.
    endpoints: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
}

impl Unheard {
    pub(super) fn insert(&mut self, endpoint: IpAddr) {
        self.endpoints.entry(endpoint).or_default();
    }

    /// Something was heard of it, or it is a member no more.
    pub(super) fn remove(&mut self, endpoint: IpAddr) {
        self.endpoints.remove(&endpoint);
    }

    /// Only members count.
    pub(super) fn retain(&mut self, members: &BTreeSet<IpAddr>) {
        self.endpoints.retain(|endpoint, _| members.contains(endpoint));
    }

    pub(super) fn contains(&self, endpoint: IpAddr) -> bool {
        self.endpoints.contains_key(&endpoint)
    }

    pub(super) fn endpoints(&self) -> impl Iterator<Item = IpAddr> {
        self.endpoints.keys().copied()
    }

    /// A node says whom it knows.
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

    /// Those whom the majority of the other members does not know. Who is not heard from, or is no
    /// member, has no say: a few that start first after an outage keep the ring as it was.
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
