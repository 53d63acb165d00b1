//! Requests for ranges of nodes of 0.6, and to them.

use super::inbound::{InboundSessions, Session};
use super::send::Load;
use super::{LegacyPeers, Peer};
use crate::net::Verb;
use crate::net::bodies::StreamRequest;
use crate::net::message::Message;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::transfer::WantedRange;
use crate::storage::database::TakenIn;
use log::Level;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest silence of a live source: it is silent while it looks for the rows, which takes hours if
/// there are many.
const PATIENCE: Duration = Duration::from_hours(6);

/// Pause between two log lines about a silent source.
const REMINDER: Duration = Duration::from_mins(10);

/// Most requests to a source that restarts meanwhile, and forgets each.
const RESTARTS: u32 = 5;

impl LegacyPeers {
    /// Answers a request for ranges, by a session for each keyspace that it names.
    pub(super) fn on_request(self: &Arc<Self>, message: &Message<'_>) -> Result<()> {
        let from = message.from;
        let requests = StreamRequest::decode(message.body, self.node.partitioner())?;
        let Ok(slot) = Arc::clone(&self.asked).try_acquire_owned() else {
            return fail("too many ask for ranges at once");
        };
        // Before a target restarts.
        let targets = requests.iter().map(|it| self.peer(it.target));
        let targets: Vec<Peer> = targets.collect::<Result<_, _>>()?;
        let this = Arc::clone(self);
        self.spawn(async move {
            for (request, target) in requests.into_iter().zip(targets) {
                if let Err(error) = this.answer_request(from, request, target).await {
                    this.complain(from, &error);
                }
            }
            drop(slot);
        });
        Ok(())
    }

    async fn answer_request(
        &self,
        from: IpAddr,
        StreamRequest { target, keyspace, ranges }: StreamRequest,
        to: Peer,
    ) -> Result<()> {
        if !self.is_live(target)? {
            return fail(format!(
                "it asks for ranges for {target}, which is not known to be alive"
            ));
        }
        let mut families = self.node.storage.schema().families();
        if !families.any(|(_, family)| family.keyspace == keyspace) {
            let why = format!("it asks for ranges of keyspace {keyspace}, which has no families");
            return fail(why);
        }
        let count = ranges.len();
        let line = format!("{from} asks for {count} ranges of keyspace {keyspace} for {target}");
        self.log(Level::Info, from, line);
        let load = Load { keyspace: &keyspace, ranges: &ranges, family: None };
        match self.push_to(to, load).await {
            Ok(_) => {}
            Err(error @ OperationError::Restarted) => {
                let line = format_args!("{target} does not get what {from} has asked for: {error}");
                self.log(Level::Warn, from, line);
            }
            Err(error) => {
                let line = format_args!(
                    "{target} has not got the ranges of keyspace {keyspace} that {from} has asked \
                     for: {error}. A node of 0.6 waits for them until it is started again"
                );
                self.log(Level::Error, from, line);
            }
        }
        Ok(())
    }

    /// Requests ranges of a keyspace, and waits until they are here, in live SSTables.
    pub(crate) async fn fetch_from(
        &self,
        source: IpAddr,
        keyspace: &str,
        wanted: &[WantedRange],
    ) -> Result<TakenIn> {
        let ranges = wanted.iter().map(|wanted| wanted.range.clone()).collect();
        let target = self.node.local();
        let request = StreamRequest { target, keyspace: keyspace.to_owned(), ranges };
        let body = StreamRequest::encode(&[request], self.node.partitioner())?;
        for _ in 0..RESTARTS {
            log::info!("asking {source} for {} ranges of keyspace {keyspace}", wanted.len());
            match self.ask_once(source, keyspace, &body).await {
                Err(OperationError::Restarted) => {
                    log::warn!("{source} was started anew while it was to send ranges");
                }
                answer => return answer,
            }
        }
        fail(format!("{source} was started anew meanwhile, {RESTARTS} times"))
    }

    /// Requests ranges once, and waits until the source restarts.
    async fn ask_once(&self, source: IpAddr, keyspace: &str, body: &[u8]) -> Result<TakenIn> {
        let (peer, clock) = (self.peer(source)?, &self.node.clock);
        let session = self.inbound.await_one(source, keyspace, clock.monotonic());
        // Also if this future is dropped, or the next answer would be taken for this one.
        let _given_up = GiveUp { sessions: &self.inbound, session: &session };
        self.node.messenger.send(Verb::StreamRequest, body, source)?;
        let mut told = Instant::now();
        let find = || {
            if let Some(outcome) = session.outcome() {
                return Ok(Some(outcome));
            }
            self.check(peer)?;
            let silence = session.silence(clock.monotonic());
            if silence >= PATIENCE {
                return fail(format!(
                    "{source} does not send the ranges of keyspace {keyspace} that it was asked for"
                ));
            }
            if silence >= REMINDER && told.elapsed() >= REMINDER {
                told = Instant::now();
                log::warn!(
                    "nothing of keyspace {keyspace} has come from {source} for {} min. It looks \
                     for the rows; or it waits for a node that was stopped while it sent it \
                     something, until it is started anew: then it is asked again",
                    silence.as_secs() / 60
                );
            }
            Ok(None)
        };
        match self.wait_for(source, Duration::MAX, find).await? {
            Some(Ok(taken)) => Ok(taken),
            Some(Err(why)) => {
                fail(format!("what {source} sends of keyspace {keyspace} cannot be taken: {why}"))
            }
            None => Err(OperationError::GivenUp),
        }
    }
}

/// Gives a session up when dropped, unless it has ended.
struct GiveUp<'a> {
    sessions: &'a InboundSessions,
    session: &'a Arc<Session>,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        if self.session.outcome().is_none() {
            self.sessions.give_up(self.session);
        }
    }
}
