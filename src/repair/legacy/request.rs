//! Ranges that nodes of 0.6 ask this one for, and that this one asks them for.

use super::LegacyPeers;
use super::inbound::{InboundSessions, Session};
use super::peer_timeout::PeerTimeout;
use super::send::{Load, PushError, Target};
use crate::base::java::TooLong;
use crate::net::Verb;
use crate::net::bodies::{EncodeError, StreamRequest};
use crate::net::message::Message;
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::transfer::WantedRange;
use crate::repair::transfer::plan;
use crate::storage::engine::TakenIn;
use log::Level;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a source may be silent, though it is alive: it says nothing while it looks for the
/// rows, which takes it hours if it has many.
const PATIENCE: Duration = Duration::from_hours(6);

/// How often it is told that a source is silent.
const REMINDER: Duration = Duration::from_mins(10);

/// How often a source is asked that is started anew meanwhile, and has forgotten what it was asked.
const RESTARTS: u32 = 5;

/// How often that is looked at.
const POLL: Duration = Duration::from_secs(1);

/// Why ranges of a node of 0.6 have not come.
#[derive(Debug, thiserror::Error)]
pub(in crate::repair) enum AskLegacyError {
    /// It may be had from others.
    #[error("{0} is down")]
    Dead(IpAddr),
    #[error("{0} was started anew meanwhile, {RESTARTS} times")]
    Restarted(IpAddr),
    #[error("{from} does not send the ranges of keyspace {keyspace} that it was asked for")]
    Silent { from: IpAddr, keyspace: String },
    #[error("what {from} sends of keyspace {keyspace} cannot be taken: {why}")]
    Failed { from: IpAddr, keyspace: String, why: String },
    #[error("the ranges cannot be asked for: {0}")]
    Encode(#[from] EncodeError),
    #[error("the ranges cannot be asked for: {0}")]
    TooLong(#[from] TooLong),
}

/// What is asked of each node of 0.6, by keyspace.
pub(in crate::repair) fn by_source(
    wanted: &[WantedRange],
    look: &RingSnapshot,
) -> BTreeMap<IpAddr, BTreeMap<String, Vec<WantedRange>>> {
    let mut asked: BTreeMap<IpAddr, BTreeMap<String, Vec<WantedRange>>> = BTreeMap::new();
    for range in wanted {
        // Where there are too few nothing is fetched at all.
        for source in plan::sources(range, look.local, look).unwrap_or_default() {
            if look.is_legacy(source) {
                let of_source = asked.entry(source).or_default();
                of_source.entry(range.keyspace.clone()).or_default().push(range.clone());
            }
        }
    }
    asked
}

/// Whether a node of 0.6 gets all of these ranges from this one, which ceases to be a replica of
/// them or is all that is left.
pub(in crate::repair) fn is_pushed(
    receiver: IpAddr,
    wanted: &[WantedRange],
    look: &RingSnapshot,
) -> bool {
    let is_local = |range: &WantedRange| {
        let sources = plan::sources(range, Some(receiver), look);
        sources.is_some_and(|sources| sources.iter().all(|it| Some(*it) == look.local))
    };
    wanted.iter().all(is_local)
}

impl LegacyPeers {
    /// A node asks for ranges: it gets a session for each keyspace that it names.
    pub(super) fn on_request(self: &Arc<Self>, message: &Message<'_>, host: &Arc<dyn Host>) {
        let from = message.from;
        let requests = match StreamRequest::decode(message.body, self.storage.partitioner()) {
            Ok(requests) => requests,
            Err(error) => return self.complain(from, &error),
        };
        let Ok(slot) = Arc::clone(&self.asked).try_acquire_owned() else {
            return self.complain(from, &"too many ask for ranges at once");
        };
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        self.spawn(async move {
            let targets: Vec<_> =
                requests.iter().map(|it| Target::new(it.target, &*host)).collect();
            for (request, target) in requests.into_iter().zip(targets) {
                this.answer_request(from, request, target).await;
            }
            drop(slot);
        });
    }

    async fn answer_request(&self, from: IpAddr, request: StreamRequest, to: Target<'_>) {
        let StreamRequest { target, keyspace, ranges } = request;
        if !to.is_live() {
            let why = format!("it asks for ranges for {target}, which is not known to be alive");
            return self.complain(from, &why);
        }
        if !self.storage.schema().families().any(|(_, family)| family.keyspace == keyspace) {
            let why = format!("it asks for ranges of keyspace {keyspace}, which has no families");
            return self.complain(from, &why);
        }
        self.messenger.log(
            Level::Info,
            from,
            format_args!(
                "{from} asks for {} ranges of keyspace {keyspace} for {target}",
                ranges.len()
            ),
        );
        let load = Load { keyspace: &keyspace, ranges: &ranges, family: None };
        match self.push_to(to, load).await {
            Ok(_) => {}
            Err(error @ PushError::Restarted) => {
                self.messenger.log(
                    Level::Warn,
                    from,
                    format_args!("{target} does not get what {from} has asked for: {error}"),
                );
            }
            Err(error) => self.messenger.log(
                Level::Error,
                from,
                format_args!(
                    "{target} has not got the ranges of keyspace {keyspace} that {from} has asked \
                 for: {error}. A node of 0.6 waits for them until it is started again"
                ),
            ),
        }
    }

    /// Asks a node for ranges of a keyspace, and waits until they are here, as SSTables that count.
    pub(in crate::repair) async fn fetch_from(
        &self,
        source: IpAddr,
        keyspace: &str,
        wanted: &[WantedRange],
        host: &dyn Host,
    ) -> Result<TakenIn, AskLegacyError> {
        let partitioner = self.storage.partitioner();
        let ranges = wanted.iter().map(|wanted| wanted.range.clone()).collect();
        let target = self.messenger.local();
        let request = StreamRequest { target, keyspace: keyspace.to_owned(), ranges };
        let body = StreamRequest::encode(&[request], partitioner)?;
        for _ in 0..RESTARTS {
            log::info!("asking {source} for {} ranges of keyspace {keyspace}", wanted.len());
            match self.ask_once((source, keyspace), &body, host).await {
                Err(AskLegacyError::Restarted(_)) => {
                    log::warn!("{source} was started anew while it was to send ranges");
                }
                answer => return answer,
            }
        }
        Err(AskLegacyError::Restarted(source))
    }

    /// Asks, and waits as long as the source runs.
    async fn ask_once(
        &self,
        (source, keyspace): (IpAddr, &str),
        body: &[u8],
        host: &dyn Host,
    ) -> Result<TakenIn, AskLegacyError> {
        let generation = || host.look().generations.get(&source).copied();
        let start = generation();
        let session = self.arrivals.await_one(source, keyspace, self.clock.monotonic());
        // Also if nobody waits for this any more, or a later answer would be taken for this one.
        let given_up = GiveUp { arrivals: &self.arrivals, session: &session };
        let arrival = async {
            self.messenger.send(Verb::StreamRequest, body, source)?;
            let mut timeout = PeerTimeout::begin();
            let mut told = Instant::now();
            loop {
                session.wait(POLL).await;
                let (from, keyspace) = (source, keyspace.to_owned());
                match session.outcome() {
                    Some(Ok(taken)) => return Ok(taken),
                    Some(Err(why)) => {
                        return Err(AskLegacyError::Failed { from, keyspace, why });
                    }
                    None => {}
                }
                if generation() != start {
                    return Err(AskLegacyError::Restarted(source));
                }
                if timeout.is_lost(source, host) {
                    return Err(AskLegacyError::Dead(source));
                }
                let silence = session.silence(self.clock.monotonic());
                if silence >= PATIENCE {
                    return Err(AskLegacyError::Silent { from, keyspace });
                }
                if silence >= REMINDER && told.elapsed() >= REMINDER {
                    told = Instant::now();
                    log::warn!(
                        "nothing of keyspace {keyspace} has come from {source} for {} min. It \
                         looks for the rows; or it waits for a node that was stopped while it \
                         sent it something, until it is started anew: then it is asked again",
                        silence.as_secs() / 60
                    );
                }
            }
        };
        let arrived = arrival.await;
        drop(given_up);
        arrived
    }
}

/// Gives a session up at the end, if it is not over.
struct GiveUp<'a> {
    arrivals: &'a InboundSessions,
    session: &'a Arc<Session>,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if self.session.outcome().is_none() {
            self.arrivals.give_up(self.session, "it is not waited for any longer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Token, TokenRange};

    fn node(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    /// The local node is 1, and 3 is one of 0.6; all are alive but 4.
    fn look() -> RingSnapshot {
        RingSnapshot {
            live: [1, 2, 3].map(node).into(),
            callable: [1, 2].map(node).into(),
            local: Some(node(1)),
            ..RingSnapshot::default()
        }
    }

    fn wanted(keyspace: &str, lost: &[u8], kept: &[u8]) -> WantedRange {
        let [lost, kept] = [lost, kept].map(|it| it.iter().copied().map(node).collect());
        let range = TokenRange { start: Token::Random(0), end: Token::Random(1) };
        let (from_all, accepts_loss, keyspace) = (false, false, keyspace.to_owned());
        WantedRange { keyspace, range, lost, kept, from_all, accepts_loss }
    }

    #[test]
    fn each_node_of_0_6_is_asked_for_what_it_has_of_each_keyspace() {
        let ranges = [
            wanted("A", &[3], &[2]),
            wanted("A", &[4], &[2, 3]),
            wanted("B", &[3], &[]),
            wanted("B", &[2], &[3]),
        ];
        let asked = by_source(&ranges, &look());
        assert_eq!(asked.keys().collect::<Vec<_>>(), [&node(3)]);
        let counts: Vec<_> =
            asked[&node(3)].iter().map(|(it, ranges)| (&**it, ranges.len())).collect();
        assert_eq!(counts, [("A", 2), ("B", 1)]);
    }

    #[test]
    fn only_what_this_node_gives_away_is_pushed() {
        assert!(is_pushed(node(3), &[wanted("A", &[1], &[2, 3])], &look()));
        assert!(!is_pushed(node(3), &[wanted("A", &[1], &[]), wanted("A", &[2], &[1])], &look()));
        assert!(!is_pushed(node(3), &[wanted("A", &[4], &[1, 2])], &look()));
    }
}
