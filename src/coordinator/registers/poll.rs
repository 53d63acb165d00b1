//! One question to all participants of a register, until a quorum has granted it or cannot any
//! more.

use crate::base::context::{RequestContext, TooLarge};
use crate::coordinator::CoordinatorError;
use crate::coordinator::consistency::{ReplicaCounts, Requirement};
use crate::coordinator::latencies::Latencies;
use crate::coordinator::quorum::{Exchange, Outgoing, Question, Request};
use crate::coordinator::view::{Endpoints, View};
use crate::model::register::{Ballot, Decision, Kept, Proposal, Vote};
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
    /// Answers of those that have granted it.
    told: Told,
    /// Participants that have refused or failed.
    lost: Endpoints,
    /// The newest ballot for which one has refused.
    newest: Option<Ballot>,
    is_over: bool,
}

/// The last decision that is settled, and a later proposal that was accepted.
pub(super) type Promise = (Decision, Option<Proposal>);

/// Answers of participants that have granted a question.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) promises: Vec<Promise>,
    /// The newest value that they keep, if it is newer than what was known.
    pub(super) kept: Option<Kept>,
}

/// Outcome of a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Polled {
    /// A quorum has granted it.
    Granted(Told),
    /// No quorum can, since others have promised this ballot or an older one.
    Refused(Ballot),
    /// These have not answered in time, and too few have granted it.
    Silent(Endpoints, ReplicaCounts),
}

impl Poll {
    pub(super) fn new(asked: Endpoints, requirement: Requirement) -> Self {
        let (granted, lost) = (Endpoints::new(), Endpoints::new());
        let (told, newest) = (Told::default(), None);
        Self { asked, requirement, granted, told, lost, newest, is_over: false }
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
                self.told.promises.push((settled, accepted));
            }
            Vote::Told(kept) => {
                self.granted.push(from);
                let known = self.told.kept.take();
                self.told.kept = known.into_iter().chain(kept).max_by_key(|it| it.version);
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

    fn on_deadline(&mut self) -> Option<Vec<Request<()>>> {
        self.is_over = true;
        Some(Vec::new())
    }

    fn counts(&self) -> ReplicaCounts {
        let granted = self.requirement.check(self.granted.iter().copied());
        granted.err().unwrap_or(ReplicaCounts::NONE)
    }

    fn take_answer(&mut self) -> Option<Polled> {
        if self.requirement.is_met_by(self.granted.iter().copied()) {
            return Some(Polled::Granted(std::mem::take(&mut self.told)));
        }
        if self.is_over {
            let has_answered = |it: &IpAddr| self.granted.contains(it) || self.lost.contains(it);
            let silent = self.asked.iter().copied().filter(|it| !has_answered(it));
            return Some(Polled::Silent(silent.collect(), self.counts()));
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
            Vote::Told(Some(kept)) => context.take(kept.value.len()),
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
        assert_eq!(poll.take_answer(), Some(Polled::Granted(Told { promises, kept: None })));
    }

    #[test]
    fn the_newest_of_the_values_counts_that_are_told() {
        let (mut poll, all) = poll();
        let kept = |version| Some(Kept { version, value: Vec::new() });
        poll.on_reply(all[1], Vote::Told(kept(7)));
        poll.on_reply(all[0], Vote::Told(None));
        let told = |version| Told { kept: kept(version), ..Told::default() };
        assert_eq!(poll.take_answer(), Some(Polled::Granted(told(7))));
        poll.on_reply(all[0], Vote::Told(kept(6)));
        poll.on_reply(all[1], Vote::Told(kept(8)));
        assert_eq!(poll.take_answer(), Some(Polled::Granted(told(8))));
    }

    #[test]
    fn who_has_not_answered_in_time_is_told() {
        let (mut poll, all) = poll();
        poll.on_reply(all[1], Vote::Accepted);
        assert!(poll.on_deadline().is_some());
        let silent = [all[0], all[2]].into_iter().collect();
        let counts = ReplicaCounts { required: 2, present: 1, has_data: false };
        assert_eq!(poll.take_answer(), Some(Polled::Silent(silent, counts)));
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
