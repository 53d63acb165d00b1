//! Decisions on registers: a call is carried from one attempt to the next until a quorum has
//! decided.
//!
//! ```text
//!   attempt   prepare    ask all participants for promises; go on when a quorum has promised
//!             finish     propose and apply what an earlier proposer left open; next attempt
//!             next       who uses the register reads it, and says what to propose
//!             propose    the change, or nothing, so that no older change can come any more
//!             apply      until a quorum shows the change
//!             settle     tell the participants, without waiting
//!
//!   poll      one question to all participants
//!   rows      conditional writes to rows, and reads that see all of them
//!   values    registers whose value all members of the ring keep
//! ```
//!
//! [`crate::model::register`] has the rules. An attempt that others overtake is followed by the
//! next after a pause by chance.

mod poll;
mod rows;
mod values;

pub use rows::{CasOutcome, SerialConsistency};
pub use values::{Missing, RegisterError};

use super::CoordinatorError;
use super::consistency::{ReplicaCounts, Requirement};
use super::coordinator::Coordinator;
use super::view::{Endpoints, View};
use crate::base::context::RequestContext;
use crate::model::key::RowKey;
use crate::model::register::{Ask, Ballot, Decision, Next, Proposal, Proposer};
use crate::net::Verb;
use crate::net::bodies::RegisterCall;
use poll::{Poll, PollExchange, Polled, Told, call_header};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout_at};

/// Longest pause after the first attempt that was overtaken, in microseconds. It doubles some
/// times.
const LONGEST_PAUSE: u64 = 20_000;
const DOUBLINGS: u32 = 3;

/// The participants of a register.
pub(super) struct Electorate {
    /// The ring that this follows from.
    view: Arc<View>,
    /// Those that seem alive, which may be this node as well.
    live: Endpoints,
    /// Those that are a quorum.
    requirement: Requirement,
}

impl Electorate {
    /// Leaves out nodes that do not announce that they know registers: those of other versions, and
    /// those that have just started. Fails if the others are too few.
    fn new(
        view: &Arc<View>,
        live: Endpoints,
        requirement: Requirement,
        local: IpAddr,
    ) -> Result<Self, CoordinatorError> {
        let knows_registers = |it: &IpAddr| *it == local || view.peers.registers.contains(it);
        let live: Endpoints = live.into_iter().filter(knows_registers).collect();
        requirement.check(live.iter().copied()).map_err(CoordinatorError::Unavailable)?;
        Ok(Self { view: Arc::clone(view), live, requirement })
    }
}

/// Use of a register.
pub(super) trait RegisterUse: Send {
    type Error: From<CoordinatorError> + Send;

    /// Name of the register.
    fn name(&self) -> &RowKey;

    /// The participants by this view of the ring. Fails if too few are alive.
    fn electorate(&mut self, view: &Arc<View>) -> Result<Electorate, CoordinatorError>;

    /// Reads the effects of all changes so far, and decides on the next. Its date may be this one,
    /// which is above those of all earlier changes.
    fn next(
        &mut self,
        electorate: &Electorate,
        micros: i64,
    ) -> impl Future<Output = Result<Intent, Self::Error>> + Send;

    /// Applies a change, of this call or of another, until a quorum shows its effect. It may have
    /// been applied before.
    fn apply(
        &mut self,
        electorate: &Electorate,
        proposal: &Proposal,
        is_own: bool,
    ) -> impl Future<Output = Result<(), CoordinatorError>> + Send;

    /// Fate of the changes that this call has proposed, where the participants cannot tell any
    /// more: too many others came after them. True if one is known to be applied. False if the call
    /// is to begin again: none will be decided from now on, and it sees whether one has an effect.
    fn resolve(&mut self) -> Result<bool, CoordinatorError> {
        Err(CoordinatorError::TimedOut(self.counts()))
    }

    /// Notes that these have not answered in time, and too few others.
    fn note_silent(&mut self, _members: Endpoints, _counts: ReplicaCounts) {}

    /// Answers to the last question, for a call whose outcome is not known.
    fn counts(&self) -> ReplicaCounts {
        ReplicaCounts::NONE
    }
}

/// The wish of a call.
pub(super) enum Intent {
    /// This change; none if it is empty.
    Propose(Vec<u8>),
    /// A change of a later date than this one.
    After(i64),
}

/// Result of an attempt.
enum Attempt {
    /// The change of the call was decided.
    Changed,
    /// The call wants no change, and has seen all that were decided before.
    Unchanged,
    /// Nothing was decided for the call, and nobody is in the way.
    Again,
    Overtaken,
}

impl Coordinator {
    /// Changes a register as its user wants. Returns whether there was a change.
    pub(super) async fn agree<U: RegisterUse>(
        self: &Arc<Self>,
        register: &mut U,
        context: &mut RequestContext,
    ) -> Result<bool, U::Error> {
        let (deadline, mut proposer) = (context.deadline(), Proposer::default());
        let work = async {
            let mut overtaken = 0;
            loop {
                match self.attempt(register, &mut proposer, context).await? {
                    Attempt::Changed => return Ok(true),
                    Attempt::Unchanged => return Ok(false),
                    Attempt::Again => {}
                    Attempt::Overtaken => {
                        let longest = LONGEST_PAUSE << overtaken.min(DOUBLINGS);
                        let pause = self.chance.lock().u64(..longest);
                        sleep(Duration::from_micros(pause)).await;
                        overtaken += 1;
                    }
                }
            }
        };
        match timeout_at(deadline, work).await {
            // Its change may be decided all the same.
            Ok(Err(_)) if proposer.has_proposed() => {}
            Ok(ended) => return ended,
            Err(_) => {}
        }
        Err(CoordinatorError::TimedOut(register.counts()).into())
    }

    async fn attempt<U: RegisterUse>(
        self: &Arc<Self>,
        register: &mut U,
        proposer: &mut Proposer,
        context: &mut RequestContext,
    ) -> Result<Attempt, U::Error> {
        let view = self.trusted_view()?;
        // Changes of the ring wait for what began before them, as for writes.
        let _under_way = Arc::clone(&view.writes);
        let electorate = register.electorate(&view)?;
        let number = self.chance.lock().u64(..);
        let ballot = proposer.begin(self.messenger.now_micros(), number);
        let prepare = Ask::Prepare(ballot);
        let told = match self.poll_for(register, &electorate, prepare, context).await? {
            Ok(told) => told,
            Err(newest) => {
                proposer.see(newest);
                return Ok(Attempt::Overtaken);
            }
        };
        let proposal = match proposer.on_promises(told.promises) {
            Next::Finish(proposal) => proposal,
            Next::Done => return Ok(Attempt::Changed),
            Next::Unknown if register.resolve()? => return Ok(Attempt::Changed),
            Next::Unknown => {
                proposer.begin_anew();
                return Ok(Attempt::Overtaken);
            }
            Next::Propose => match register.next(&electorate, ballot.micros).await? {
                Intent::Propose(value) => proposer.propose(value),
                Intent::After(micros) => {
                    proposer.see(Ballot { micros, number: 0 });
                    return Ok(Attempt::Again);
                }
            },
        };
        let ask = Ask::Propose(proposal.clone());
        if let Err(newest) = self.poll_for(register, &electorate, ask, context).await? {
            proposer.see(newest);
            return Ok(Attempt::Overtaken);
        }
        let is_own = proposer.is_own(&proposal.decision);
        let is_change = !proposal.value.is_empty();
        if is_change {
            register.apply(&electorate, &proposal, is_own).await?;
        }
        self.settle(register.name().clone(), &electorate, proposal.decision)?;
        Ok(match (is_change, is_own) {
            (false, _) => Attempt::Unchanged,
            (true, true) => Attempt::Changed,
            (true, false) => Attempt::Again,
        })
    }

    /// Asks the participants; fails if they do not answer in time. The inner error is the ballot
    /// for which they refuse.
    async fn poll_for<U: RegisterUse>(
        self: &Arc<Self>,
        register: &mut U,
        electorate: &Electorate,
        ask: Ask,
        context: &mut RequestContext,
    ) -> Result<Result<Told, Ballot>, CoordinatorError> {
        match self.poll(&register.name().clone(), electorate, ask, context).await? {
            Polled::Granted(told) => Ok(Ok(told)),
            Polled::Refused(newest) => Ok(Err(newest)),
            Polled::Silent(members, counts) => {
                register.note_silent(members, counts);
                Err(CoordinatorError::TimedOut(counts))
            }
        }
    }

    async fn poll(
        self: &Arc<Self>,
        name: &RowKey,
        electorate: &Electorate,
        ask: Ask,
        context: &mut RequestContext,
    ) -> Result<Polled, CoordinatorError> {
        let exchange = PollExchange::new(RegisterCall { name: name.clone(), ask })?;
        self.messenger
            .check_body(exchange.bytes())
            .map_err(|error| CoordinatorError::Unsendable(error.to_string()))?;
        let Electorate { view, live, requirement } = electorate;
        let poll = Poll::new(live.clone(), requirement.clone());
        self.drive(view, poll, exchange, None, &mut context.scratch()).await
    }

    /// Tells the participants that a decision is applied. Who does not hear it has the next
    /// proposer apply it once more.
    fn settle(
        self: &Arc<Self>,
        name: RowKey,
        electorate: &Electorate,
        decision: Decision,
    ) -> Result<(), CoordinatorError> {
        let call = RegisterCall { name, ask: Ask::Settle(decision) };
        let body = call.encode()?;
        for to in electorate.live.iter().filter(|to| **to != self.local) {
            self.messenger.send_with(Verb::StreamRequest, vec![call_header()], &body, *to)?;
        }
        if electorate.live.contains(&self.local) {
            let this = Arc::clone(self);
            self.begin(async move {
                let RegisterCall { name, ask } = call;
                if let Err(error) = this.replica.vote(name, ask).await.wait().await {
                    this.warn_of_own("settle", &error);
                }
            });
        }
        Ok(())
    }
}
