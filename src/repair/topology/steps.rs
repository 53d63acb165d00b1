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

use crate::base::lock::{Mutex, rank};
use crate::gossip::RING_DELAY;
use crate::net::caller::Caller;
use crate::repair::calls::{
    AskError, Collect, HasHeard, Heard, HowFar, JobStatus, WantedRange, Withdraw, ask,
};
use crate::repair::error::OperationError;
use crate::repair::host::{Announced, Host, Place, RingSnapshot};
use crate::repair::legacy::{Load, PushError, is_pushed};
use crate::repair::progress::{Fetched, Progress};
use crate::repair::transfer::fetch::{FetchError, Fetcher};
use crate::repair::transfer::plan;
use crate::ring::{Partitioner, ReplicaPlacement, Token, TokenMetadata, TokenRange};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often others are asked whether they have heard of something, or how far they are.
const POLL: Duration = Duration::from_millis(200);

/// How long all may take to hear of a change, and to end what they began before.
const HEARD_PATIENCE: Duration = Duration::from_secs(90);

/// How long an receiver may be away that was started anew, or is cut off.
const HEIR_PATIENCE: Duration = Duration::from_secs(120);

/// What a change of the ring is made with.
#[derive(Debug)]
pub(in crate::repair) struct Steps {
    pub(in crate::repair) local: IpAddr,
    pub(in crate::repair) partitioner: Partitioner,
    pub(in crate::repair) placements: BTreeMap<String, ReplicaPlacement>,
    pub(in crate::repair) caller: Caller,
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

/// How far each node is that collects data.
#[derive(Debug, Default)]
pub(in crate::repair) struct HandOver {
    receivers: Mutex<rank::RepairProgress, BTreeMap<IpAddr, Arc<Progress>>>,
    others: Mutex<rank::RepairProgress, BTreeMap<IpAddr, Fetched>>,
}

impl HandOver {
    /// By the node that collects.
    pub(in crate::repair) fn now(&self) -> BTreeMap<IpAddr, Fetched> {
        let mut all: BTreeMap<IpAddr, Fetched> = self
            .receivers
            .lock()
            .iter()
            .map(|(receiver, progress)| (*receiver, progress.now()))
            .collect();
        all.extend(self.others.lock().iter());
        all
    }

    fn own(&self, local: IpAddr) -> Arc<Progress> {
        let mut receivers = self.receivers.lock();
        Arc::clone(receivers.entry(local).or_default())
    }

    fn note(&self, receiver: IpAddr, fetched: Fetched) {
        let mut others = self.others.lock();
        others.insert(receiver, fetched);
    }
}

impl Steps {
    /// Says something to all.
    pub(in crate::repair) async fn tell(&self, host: &Arc<dyn Host>, place: &Place) -> Announced {
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
            for (endpoint, heard) in self.ask_who_has_heard(missing, announced).await {
                let generation = host.look().generations.get(&endpoint).copied();
                audience.heard.insert(endpoint, (generation.unwrap_or_default(), heard));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn ask_who_has_heard(
        &self,
        endpoints: BTreeSet<IpAddr>,
        announced: Announced,
    ) -> Vec<(IpAddr, Heard)> {
        let Announced { generation, version } = announced;
        let mut asked = JoinSet::new();
        for endpoint in endpoints {
            let caller = self.caller.clone();
            asked.spawn(async move {
                let answer = ask(&caller, endpoint, &HasHeard { generation, version }).await;
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
        plan::by_receiver(&plan::changes(&self.placements, before, after), self.partitioner)
    }

    /// Has nodes collect the data of which they become replicas.
    pub(in crate::repair) async fn hand_over(
        self: &Arc<Self>,
        host: &Arc<dyn Host>,
        receivers: &RangesByReceiver,
        progress: &Arc<HandOver>,
    ) -> Result<(), OperationError> {
        let mut receivers = receivers.clone();
        let look = host.look();
        self.check(&receivers, &look)?;
        let own = receivers.remove(&self.local);
        let fetch_own = async {
            let Some(wanted) = own else { return Ok(()) };
            let progress = progress.own(self.local);
            // A large future, which would make all that wait for it large.
            let fetched = Box::pin(self.fetcher.fetch(&wanted, &**host, &progress)).await;
            fetched.map_err(|error| self.fetch_error(error))
        };
        let order_others = async {
            let mut orders = JoinSet::new();
            for (receiver, wanted) in receivers {
                let (steps, host) = (Arc::clone(self), Arc::clone(host));
                let progress = Arc::clone(progress);
                let is_legacy = look.is_legacy(receiver);
                let order = async move {
                    if is_legacy {
                        return steps.push(&host, receiver, wanted, &progress).await;
                    }
                    steps.order(&host, receiver, wanted, &progress).await
                };
                orders.spawn(order);
            }
            // With the first failure the others are given up, and those who carry them out notice
            // that nobody asks any more.
            while let Some(done) = orders.join_next().await {
                done.map_err(|_| OperationError::Stopping)??;
            }
            Ok(())
        };
        tokio::try_join!(fetch_own, order_others).map(|_| ())
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
                plan::sources(range, Some(*receiver), look)?;
            }
            if look.is_legacy(*receiver) && !is_pushed(*receiver, wanted, look) {
                return Err(OperationError::Original(*receiver));
            }
        }
        Ok(())
    }

    fn fetch_error(&self, error: FetchError) -> OperationError {
        match error {
            FetchError::NoSource(error) => error.into(),
            error => OperationError::Fetch { by: self.local, why: error.to_string() },
        }
    }

    /// Sends a node of 0.6 the data that it takes over from this one.
    async fn push(
        &self,
        host: &Arc<dyn Host>,
        receiver: IpAddr,
        wanted: Vec<WantedRange>,
        progress: &HandOver,
    ) -> Result<(), OperationError> {
        let mut done = Fetched { ranges: wanted.len(), ..Fetched::default() };
        progress.note(receiver, done);
        let by_keyspace = wanted.chunk_by(|a, b| a.keyspace == b.keyspace);
        for wanted in by_keyspace {
            let ranges = wanted.iter().map(|range| range.range(self.partitioner));
            let ranges: Vec<TokenRange> = ranges.collect::<Result<_, _>>()?;
            let load = Load { keyspace: &wanted[0].keyspace, ranges: &ranges, family: None };
            let pushed = self.fetcher.legacy.push(receiver, load, &**host).await;
            let sent = pushed.map_err(|error| match error {
                PushError::Dead => OperationError::ReceiverDown(receiver),
                error => OperationError::Push { to: receiver, why: error.to_string() },
            })?;
            done.ranges_done += wanted.len();
            (done.bytes, done.rows) = (done.bytes + sent.bytes, done.rows + sent.rows);
            progress.note(receiver, done);
        }
        Ok(())
    }

    /// Has another node collect its data, also if it is started anew meanwhile.
    async fn order(
        &self,
        host: &Arc<dyn Host>,
        receiver: IpAddr,
        ranges: Vec<WantedRange>,
        progress: &HandOver,
    ) -> Result<(), OperationError> {
        let order = self.rng.lock().u64(..);
        let collect = Collect { order, ranges };
        let mut heard = Instant::now();
        let mut is_known = false;
        let outcome = loop {
            let standing = if is_known {
                ask(&self.caller, receiver, &HowFar { order }).await
            } else {
                let accepted = ask(&self.caller, receiver, &collect).await;
                accepted.map(|_| JobStatus::Running {
                    bytes: 0,
                    rows: 0,
                    ranges_done: 0,
                    ranges: 0,
                })
            };
            if standing.is_ok() {
                heard = Instant::now();
            }
            match standing {
                Ok(JobStatus::Unknown) => is_known = false,
                Ok(JobStatus::Running { bytes, rows, ranges_done, ranges }) => {
                    is_known = true;
                    progress.note(receiver, Fetched { ranges, ranges_done, bytes, rows });
                }
                Ok(JobStatus::Done { bytes, rows }) => {
                    let ranges = collect.ranges.len();
                    let done = Fetched { ranges, ranges_done: ranges, bytes, rows };
                    progress.note(receiver, done);
                    break Ok(());
                }
                Ok(JobStatus::Failed { why }) => {
                    break Err(OperationError::Fetch { by: receiver, why });
                }
                Err(error) => {
                    let is_dead = !host.look().live.contains(&receiver);
                    if heard.elapsed() >= HEIR_PATIENCE {
                        break Err(if is_dead {
                            OperationError::ReceiverDown(receiver)
                        } else {
                            OperationError::Fetch { by: receiver, why: error.to_string() }
                        });
                    }
                }
            }
            tokio::time::sleep(POLL).await;
        };
        // Whether it hears that or forgets the order by itself makes no difference.
        let _: Result<_, AskError> = ask(&self.caller, receiver, &Withdraw { order }).await;
        outcome
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
            let (given_up, live) = (*given_up, nodes(live));
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
