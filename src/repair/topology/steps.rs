//! The steps that all changes of the ring are made of.
//!
//! ```text
//! announce    this node says what is about to be: writes go to the replicas to be as well
//! be heard    all live nodes know it, and have ended what they began before
//! hand over   each node that becomes a replica collects its data
//! switch      this node saves the new place and says that it is so
//! ```
//!
//! Who collects after all were quiet misses nothing: a write was either acknowledged by those that
//! data are collected from, or went to who collects as well. The original waits thirty seconds
//! instead, and hopes.

use super::lifecycle::Lifecycle;
use crate::base::lock::{Mutex, rank};
use crate::gossip::RING_DELAY;
use crate::repair::calls::{HasHeard, Heard};
use crate::repair::client::ReplicaClient;
use crate::repair::error::OperationError;
use crate::repair::host::{Announced, Host, RingSnapshot};
use crate::repair::job::{JobError, RemoteJob, Task};
use crate::repair::legacy::{Load, PushError, is_pushed};
use crate::repair::progress::{Progress, ProgressByNode};
use crate::repair::transfer::plan::{ranges_by_receiver, sources};
use crate::repair::transfer::{Fetcher, WantedRange};
use crate::ring::{Partitioner, ReplicaPlacement, Token, TokenMetadata, TokenRange};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often others are asked whether they have heard of something.
const POLL: Duration = Duration::from_millis(200);

/// How long all may take to hear of a change, and to end what they began before.
const HEARD_PATIENCE: Duration = Duration::from_secs(90);

/// How long a receiver may be down.
const DOWN_PATIENCE: Duration = Duration::from_secs(120);

/// What a change of the ring is made with.
#[derive(Debug)]
pub(in crate::repair) struct Steps {
    pub(in crate::repair) local: IpAddr,
    pub(in crate::repair) partitioner: Partitioner,
    pub(in crate::repair) placements: BTreeMap<String, ReplicaPlacement>,
    pub(in crate::repair) client: Arc<ReplicaClient>,
    pub(in crate::repair) fetcher: Arc<Fetcher>,
    pub(in crate::repair) rng: Mutex<rank::Random, fastrand::Rng>,
}

/// What each node collects that becomes a replica.
pub(in crate::repair) type RangesByReceiver = BTreeMap<IpAddr, Vec<WantedRange>>;

/// Who has heard an announcement.
#[derive(Debug)]
pub(in crate::repair) struct Audience {
    /// The starts of all nodes, when it was made.
    known: BTreeMap<IpAddr, i32>,
    /// Those who have heard it, with their starts.
    heard: BTreeMap<IpAddr, (i32, Heard)>,
}

impl Audience {
    /// Who of these has not heard it yet, or is alive to one who has. Who is dead to this node and
    /// alive to others may write by what it knows of the ring.
    fn missing(
        &mut self,
        others: impl Iterator<Item = IpAddr>,
        look: &RingSnapshot,
    ) -> BTreeSet<IpAddr> {
        let have_heard: BTreeSet<IpAddr> = self.heard.keys().copied().chain(look.local).collect();
        let has_not = |it: &IpAddr| look.callable.contains(it) && !have_heard.contains(it);
        // They may be dead to those as well by now, who are asked again.
        let strangers: BTreeSet<IpAddr> = self
            .heard
            .extract_if(.., |_, (_, heard)| {
                heard.live.iter().any(|it| has_not(it) && !look.live.contains(it))
            })
            .map(|(endpoint, _)| endpoint)
            .collect();
        others.filter(has_not).chain(strangers).collect()
    }

    /// Who may have forgotten, between this and a later look, what this node has announced, or had
    /// not heard it though it was there.
    pub(in crate::repair) fn forgetful(&self, later: &Self) -> Option<IpAddr> {
        let mut now = later.heard.iter();
        let has_missed = |(endpoint, (generation, heard)): &(&IpAddr, &(i32, Heard))| {
            match self.heard.get(*endpoint) {
                Some((start, then)) => start == generation && then.given_up != heard.given_up,
                // Who has been started since has heard it before it wrote anything.
                None => self.known.get(*endpoint) == Some(generation),
            }
        };
        now.find(has_missed).map(|(endpoint, _)| *endpoint)
    }
}

impl Steps {
    /// Says something to all.
    pub(in crate::repair) async fn tell(
        &self,
        host: &Arc<dyn Host>,
        place: &Lifecycle,
    ) -> Announced {
        host.announce(place);
        let announced = host.said();
        let look = host.look();
        if look.live.difference(&look.callable).next().is_some() {
            // A node of 0.6 cannot be asked whether it has heard.
            tokio::time::sleep(RING_DELAY).await;
        }
        announced
    }

    /// Waits until all live nodes have heard something and are quiet.
    pub(in crate::repair) async fn be_heard(
        &self,
        host: &Arc<dyn Host>,
        announced: Announced,
    ) -> Result<Audience, OperationError> {
        let began = Instant::now();
        let mut audience = Audience { known: host.look().generations, heard: BTreeMap::new() };
        loop {
            let look = host.look();
            let others = look.live.intersection(&look.callable);
            let others = others.copied().filter(|it| *it != self.local);
            let missing = audience.missing(others, &look);
            if missing.is_empty() && host.is_quiet() {
                return Ok(audience);
            }
            if began.elapsed() >= HEARD_PATIENCE {
                return Err(OperationError::NotHeard(missing.into_iter().collect()));
            }
            for (endpoint, heard) in self.ask_who_has_heard(host, missing, announced).await {
                let generation = host.look().generations.get(&endpoint).copied();
                audience.heard.insert(endpoint, (generation.unwrap_or_default(), heard));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn ask_who_has_heard(
        &self,
        host: &Arc<dyn Host>,
        endpoints: BTreeSet<IpAddr>,
        announced: Announced,
    ) -> Vec<(IpAddr, Heard)> {
        let mut asked = JoinSet::new();
        for endpoint in endpoints {
            let (client, host) = (Arc::clone(&self.client), Arc::clone(host));
            asked.spawn(async move {
                let answer = client.ask(endpoint, &HasHeard(announced), &host).await;
                answer.ok().filter(|it| it.knows_it && it.is_quiet).map(|it| (endpoint, it))
            });
        }
        asked.join_all().await.into_iter().flatten().collect()
    }

    /// A token of a node that does not care which.
    pub(in crate::repair) fn random_token(&self) -> Token {
        let mut rng = self.rng.lock();
        self.partitioner.random_token(&mut rng)
    }

    /// What nodes have to collect when one ring becomes another.
    pub(in crate::repair) fn receivers(
        &self,
        before: &TokenMetadata,
        after: &TokenMetadata,
    ) -> RangesByReceiver {
        ranges_by_receiver(&self.placements, before, after)
    }

    /// Has nodes collect the data of which they become replicas, this one among them.
    pub(in crate::repair) async fn hand_over(
        self: &Arc<Self>,
        host: &Arc<dyn Host>,
        receivers: &RangesByReceiver,
        progress: &Arc<ProgressByNode>,
    ) -> Result<(), OperationError> {
        let look = host.look();
        self.check(receivers, &look)?;
        let mut handed = JoinSet::new();
        for (receiver, wanted) in receivers.clone() {
            let (steps, host) = (Arc::clone(self), Arc::clone(host));
            let progress = Arc::clone(progress);
            let is_legacy = look.is_legacy(receiver);
            handed.spawn(async move {
                if is_legacy {
                    return steps.push(&host, receiver, wanted, &progress).await;
                }
                steps.order(host, receiver, wanted, &progress).await
            });
        }
        // With the first failure the others are given up, and notice that nobody polls any more.
        while let Some(done) = handed.join_next().await {
            done.map_err(|_| OperationError::Stopping)??;
        }
        Ok(())
    }

    /// Whether all are there that are needed.
    pub(in crate::repair) fn check(
        &self,
        receivers: &RangesByReceiver,
        look: &RingSnapshot,
    ) -> Result<(), OperationError> {
        for (receiver, wanted) in receivers {
            if *receiver != self.local && !look.live.contains(receiver) {
                return Err(OperationError::ReceiverDown(*receiver));
            }
            for range in wanted {
                sources(range, Some(*receiver), look)
                    .ok_or_else(|| range.without_source(self.partitioner))?;
            }
            if look.is_legacy(*receiver) && !is_pushed(*receiver, wanted, look) {
                return Err(OperationError::Original(*receiver));
            }
        }
        Ok(())
    }

    /// Sends a node of 0.6 the data that it takes over from this one.
    async fn push(
        &self,
        host: &Arc<dyn Host>,
        receiver: IpAddr,
        wanted: Vec<WantedRange>,
        progress: &ProgressByNode,
    ) -> Result<(), OperationError> {
        let mut done = Progress { ranges: wanted.len() as u64, ..Progress::default() };
        progress.note(receiver, done);
        let by_keyspace = wanted.chunk_by(|a, b| a.keyspace == b.keyspace);
        for wanted in by_keyspace {
            let ranges: Vec<TokenRange> = wanted.iter().map(|it| it.range.clone()).collect();
            let load = Load { keyspace: &wanted[0].keyspace, ranges: &ranges, family: None };
            let pushed = self.fetcher.legacy.push(receiver, load, &**host).await;
            let sent = pushed.map_err(|error| match error {
                PushError::Dead => OperationError::ReceiverDown(receiver),
                error => OperationError::Push { to: receiver, why: error.to_string() },
            })?;
            done.ranges_done += wanted.len() as u64;
            (done.bytes, done.rows) = (done.bytes + sent.bytes, done.rows + sent.rows);
            progress.note(receiver, done);
        }
        Ok(())
    }

    /// Has a node collect its data, also if it is started anew meanwhile.
    async fn order(
        &self,
        host: Arc<dyn Host>,
        at: IpAddr,
        ranges: Vec<WantedRange>,
        progress: &ProgressByNode,
    ) -> Result<(), OperationError> {
        let client = Arc::clone(&self.client);
        let job = RemoteJob { client, host, at, down_patience: DOWN_PATIENCE };
        let done = job.run(Task::Ranges(ranges), |done| progress.note(at, done)).await;
        done.map(|_| ()).map_err(|error| match error {
            JobError::Down => OperationError::ReceiverDown(at),
            error => OperationError::Fetch { by: at, why: error.to_string() },
        })
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

    /// Who, started when, has given up how often, and takes whom for alive.
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
    fn who_is_alive_to_others_has_to_hear_it_as_well() {
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
    fn who_had_forgotten_or_not_heard_is_noticed() {
        let then = audience(&[(2, 5), (3, 6)], &[(2, 5, 0, &[])]);
        let forgetful =
            |heard: &[(u8, i32, u64, &[u8])]| then.forgetful(&audience(&[(2, 5), (3, 6)], heard));
        assert_eq!(forgetful(&[(2, 5, 0, &[])]), None);
        assert_eq!(forgetful(&[(2, 5, 1, &[])]), Some(node(2)));
        // Started anew, at first or for the first time.
        assert_eq!(forgetful(&[(2, 9, 1, &[]), (3, 9, 0, &[]), (4, 9, 0, &[])]), None);
        // It ran all the time, and could not be asked.
        assert_eq!(forgetful(&[(2, 5, 0, &[]), (3, 6, 0, &[])]), Some(node(3)));
    }
}
