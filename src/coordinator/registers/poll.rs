//! One question to all participants of a register, until a quorum has granted it or cannot any
//! more.

use crate::base::context::{RequestContext, TooLarge};
use crate::coordinator::CoordinatorError;
use crate::coordinator::consistency::Requirement;
use crate::coordinator::latencies::Latencies;
use crate::coordinator::quorum::{Exchange, Outgoing, Question, Request};
use crate::coordinator::view::{Endpoints, View};
use crate::model::register::{Ballot, Decision, Proposal, Vote};
use crate::net::Verb;
use crate::net::bodies::{RegisterCall, decode_vote};
use crate::net::extensions::{CALL, REGISTER};
use crate::net::message::Header;
use crate::replica::{Replica, ReplicaError};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Asks participants, all of them at once.
pub(super) struct Poll {
    asked: Endpoints,
    requirement: Requirement,
    granted: Endpoints,
    /// Those that have promised, and what they told.
    promises: Vec<Promise>,
    /// Participants that have refused or failed.
    lost: Endpoints,
    /// The newest ballot for which one has refused.
    newest: Option<Ballot>,
}

/// What is settled, and what was accepted since.
pub(super) type Promise = (Decision, Option<Proposal>);

/// Outcome of a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// A quorum has granted it.
    Granted(Vec<Promise>),
    /// No quorum can, since others have promised this ballot or an older one.
    Refused(Ballot),
}

impl Poll {
    pub(super) fn new(asked: Endpoints, requirement: Requirement) -> Self {
        let (granted, lost) = (Endpoints::new(), Endpoints::new());
        Self { asked, requirement, granted, promises: Vec::new(), lost, newest: None }
    }

    fn can_be_granted(&self) -> bool {
        let left = self.asked.iter().filter(|it| !self.lost.contains(it));
        self.requirement.is_met_by(left.copied())
    }
}

impl Question for Poll {
    type What = ();
    type Reply = Vote;
    type Answer = Polled;

    fn begin(&mut self) -> Vec<Request<()>> {
        self.asked.iter().map(|to| Request { to: *to, round: 0, what: () }).collect()
    }

    fn on_reply(&mut self, from: IpAddr, vote: Vote) -> Vec<Request<()>> {
        match vote {
            Vote::Refused(ballot) => {
                self.lost.push(from);
                self.newest = self.newest.max(Some(ballot));
            }
            Vote::Accepted => self.granted.push(from),
            Vote::Promised { settled, accepted } => {
                self.granted.push(from);
                self.promises.push((settled, accepted));
            }
        }
        Vec::new()
    }

    fn on_slow(&mut self) -> Vec<Request<()>> {
        Vec::new()
    }

    fn on_failure(&mut self, from: IpAddr) -> Option<Vec<Request<()>>> {
        self.lost.push(from);
        (self.can_be_granted() || self.newest.is_some()).then(Vec::new)
    }

    fn take_answer(&mut self) -> Option<Polled> {
        if self.requirement.is_met_by(self.granted.iter().copied()) {
            return Some(Polled::Granted(std::mem::take(&mut self.promises)));
        }
        self.newest.filter(|_| !self.can_be_granted()).map(Polled::Refused)
    }
}

/// Carries the question of a poll.
pub(super) struct PollExchange {
    call: RegisterCall,
    body: Vec<u8>,
}

impl PollExchange {
    pub(super) fn new(call: RegisterCall) -> Result<Self, CoordinatorError> {
        let body = call.encode()?;
        Ok(Self { call, body })
    }

    /// Length of the body.
    pub(super) fn bytes(&self) -> usize {
        self.body.len()
    }
}

/// The header of a call to a participant.
pub(super) fn call_header() -> Header<'static> {
    Header { name: CALL.into(), value: REGISTER.as_bytes() }
}

impl Exchange for PollExchange {
    type What = ();
    type Reply = Vote;

    const ACTION: &'static str = "vote on";
    const IS_READ: bool = false;

    fn encode<'a>(
        &'a self,
        _view: &View,
        _request: &'a Request<()>,
    ) -> Result<Outgoing<'a>, CoordinatorError> {
        let (verb, headers) = (Verb::StreamRequest, vec![call_header()]);
        Ok(Outgoing { verb, headers, body: Cow::Borrowed(&self.body) })
    }

    fn decode(&self, from: IpAddr, body: &[u8]) -> Result<Vote, String> {
        decode_vote(body).map_err(|error| format!("a vote of {from} is not sound: {error}"))
    }

    async fn do_here(
        self: Arc<Self>,
        replica: Arc<Replica>,
        _what: (),
        _context: RequestContext,
    ) -> Result<Vote, ReplicaError> {
        let RegisterCall { name, ask } = self.call.clone();
        replica.vote(name, ask).await.wait().await
    }

    fn take_memory(&self, vote: &Vote, context: &RequestContext) -> Result<(), TooLarge> {
        match vote {
            Vote::Promised { accepted: Some(proposal), .. } => context.take(proposal.value.len()),
            _ => Ok(()),
        }
    }

    /// A vote waits for the disk, and says nothing of reads.
    fn record(&self, _latencies: &Latencies, _from: IpAddr, _took: Duration) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(last: &[u8]) -> Endpoints {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn poll() -> (Poll, Endpoints) {
        let all = nodes(&[1, 2, 3]);
        let mut poll = Poll::new(all.clone(), Requirement::any(2));
        assert_eq!(poll.begin().len(), 3);
        (poll, all)
    }

    fn refused(micros: i64) -> Vote {
        Vote::Refused(Ballot { micros, number: 0 })
    }

    #[test]
    fn a_quorum_grants_though_one_refuses() {
        let (mut poll, all) = poll();
        poll.on_reply(all[1], refused(7));
        poll.on_reply(all[0], Vote::Promised { settled: Decision::default(), accepted: None });
        assert_eq!(poll.take_answer(), None);
        let settled = Decision { ballot: Ballot { micros: 1, number: 0 }, ..Decision::default() };
        poll.on_reply(all[2], Vote::Promised { settled, accepted: None });
        let promises = vec![(Decision::default(), None), (settled, None)];
        assert_eq!(poll.take_answer(), Some(Polled::Granted(promises)));
    }

    #[test]
    fn it_ends_as_soon_as_no_quorum_is_left() {
        let (mut poll, all) = poll();
        poll.on_reply(all[1], refused(7));
        assert_eq!(poll.take_answer(), None);
        assert!(poll.on_failure(all[0]).is_some());
        let newest = Ballot { micros: 7, number: 0 };
        assert_eq!(poll.take_answer(), Some(Polled::Refused(newest)));
    }

    #[test]
    fn failures_alone_are_a_failure() {
        let (mut poll, all) = poll();
        assert!(poll.on_failure(all[0]).is_some());
        assert!(poll.on_failure(all[1]).is_none());
    }
}
