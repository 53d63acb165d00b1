//! Announcements, and the nodes that have heard them.

use super::lifecycle::Lifecycle;
use crate::gossip::RING_DELAY;
use crate::repair::calls::{HAS_HEARD, Heard};
use crate::repair::error::{OperationError, Result};
use crate::repair::host::{Announced, RingSnapshot};
use crate::repair::operations::Operations;
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two requests whether a node has heard an announcement.
const POLL: Duration = Duration::from_millis(200);

/// Longest wait until all know of a change, and have ended earlier writes.
const HEARD_PATIENCE: Duration = Duration::from_secs(90);

/// Nodes that have heard an announcement.
#[derive(Debug)]
pub(crate) struct Audience {
    /// The starts of all nodes at the time of the announcement.
    known: BTreeMap<IpAddr, i32>,
    /// Nodes that have heard it, with their starts.
    heard: BTreeMap<IpAddr, (i32, Heard)>,
}

impl Audience {
    /// Nodes that have not heard it yet, and nodes that see such a one alive: a node that is dead
    /// to this one and alive to others may write by the old ring.
    fn missing(
        &mut self,
        others: impl Iterator<Item = IpAddr>,
        look: &RingSnapshot,
    ) -> BTreeSet<IpAddr> {
        let have_heard: BTreeSet<IpAddr> = self.heard.keys().copied().chain(look.local).collect();
        let has_not = |it: &IpAddr| look.callable.contains(it) && !have_heard.contains(it);
        // These are asked again: by now the strangers may be dead to them as well.
        let strangers: BTreeSet<IpAddr> = self
            .heard
            .extract_if(.., |_, (_, heard)| {
                heard.live.iter().any(|it| has_not(it) && !look.live.contains(it))
            })
            .map(|(endpoint, _)| endpoint)
            .collect();
        others.filter(has_not).chain(strangers).collect()
    }

    /// A node that may have forgotten the announcement between this and a later look, or had not
    /// heard it though it was running.
    pub(crate) fn forgetful(&self, later: &Self) -> Option<IpAddr> {
        let mut now = later.heard.iter();
        let has_missed = |(endpoint, (generation, heard)): &(&IpAddr, &(i32, Heard))| {
            match self.heard.get(*endpoint) {
                Some((start, then)) => start == generation && then.given_up != heard.given_up,
                // A node that started since has heard it before it wrote anything.
                None => self.known.get(*endpoint) == Some(generation),
            }
        };
        now.find(has_missed).map(|(endpoint, _)| *endpoint)
    }
}

impl Operations {
    /// Announces a place to all.
    pub(super) async fn tell(&self, place: &Lifecycle) -> Result<Announced> {
        let host = self.node.host()?;
        host.announce(place);
        let announced = host.said();
        let look = host.look();
        if look.live.difference(&look.callable).next().is_some() {
            // Nodes of 0.6 take no calls.
            tokio::time::sleep(RING_DELAY).await;
        }
        Ok(announced)
    }

    /// Waits until all live nodes have heard an announcement and have ended earlier writes.
    pub(super) async fn be_heard(&self, announced: Announced) -> Result<Audience> {
        let began = Instant::now();
        let (host, local) = (self.node.host()?, self.node.local());
        let mut audience = Audience { known: host.look().generations, heard: BTreeMap::new() };
        loop {
            let look = host.look();
            let others = look.live.intersection(&look.callable);
            let others = others.copied().filter(|it| *it != local);
            let missing = audience.missing(others, &look);
            if missing.is_empty() && host.is_quiet() {
                return Ok(audience);
            }
            if began.elapsed() >= HEARD_PATIENCE {
                let missing: Vec<IpAddr> = missing.into_iter().collect();
                return Err(OperationError::Failed(format!(
                    "{missing:?} have not heard of it in time, or have not ended the writes that \
                     they began before"
                )));
            }
            let question = (announced.generation, announced.version);
            let asked = join_all(missing.iter().map(async |endpoint| {
                (*endpoint, self.service.ask::<Heard>(*endpoint, HAS_HEARD, &question).await)
            }));
            for (endpoint, answer) in asked.await {
                if let Ok(heard) = answer
                    && heard.knows_it
                    && heard.is_quiet
                {
                    let generation = host.look().generations.get(&endpoint).copied();
                    audience.heard.insert(endpoint, (generation.unwrap_or_default(), heard));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    fn nodes(hosts: &[u8]) -> BTreeSet<IpAddr> {
        hosts.iter().copied().map(node).collect()
    }

    /// Nodes with their starts, how often they have given up, and what is alive to them.
    fn audience(known: &[(u8, i32)], heard: &[(u8, i32, u64, &[u8])]) -> Audience {
        let heard = heard.iter().map(|(host, generation, given_up, live)| {
            let (given_up, live) = (*given_up, nodes(live).into_iter().collect());
            let heard = Heard { knows_it: true, is_quiet: true, given_up, live };
            (node(*host), (*generation, heard))
        });
        let known = known.iter().map(|(host, generation)| (node(*host), *generation));
        Audience { known: known.collect(), heard: heard.collect() }
    }

    #[test]
    fn nodes_that_are_alive_to_others_have_to_hear_it_as_well() {
        let look = RingSnapshot {
            live: nodes(&[1, 2]),
            callable: nodes(&[1, 2, 3]),
            local: Some(node(1)),
            ..RingSnapshot::default()
        };
        let missing = |audience: &mut Audience| audience.missing([node(2)].into_iter(), &look);
        assert_eq!(missing(&mut audience(&[], &[])), nodes(&[2]));
        assert_eq!(missing(&mut audience(&[], &[(2, 5, 0, &[1, 2])])), nodes(&[]));
        // The second is asked again until the third is dead to it as well.
        let mut early = audience(&[], &[(2, 5, 0, &[1, 2, 3])]);
        assert_eq!(missing(&mut early), nodes(&[2]));
        assert!(early.heard.is_empty());
    }

    #[test]
    fn a_node_that_had_forgotten_or_not_heard_is_noticed() {
        let then = audience(&[(2, 5), (3, 6)], &[(2, 5, 0, &[])]);
        let forgetful =
            |heard: &[(u8, i32, u64, &[u8])]| then.forgetful(&audience(&[(2, 5), (3, 6)], heard));
        assert_eq!(forgetful(&[(2, 5, 0, &[])]), None);
        assert_eq!(forgetful(&[(2, 5, 1, &[])]), Some(node(2)));
        // Restarted, or started for the first time.
        assert_eq!(forgetful(&[(2, 9, 1, &[]), (3, 9, 0, &[]), (4, 9, 0, &[])]), None);
        // It ran all the time, and could not be asked.
        assert_eq!(forgetful(&[(2, 5, 0, &[]), (3, 6, 0, &[])]), Some(node(3)));
    }
}
