//! Whether the others agree on the ring, and nobody else changes it.

use crate::gossip::{NodePlace, Plan};
use crate::repair::calls::WhichRing;
use crate::repair::error::OperationError;
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::operations::Operations;
use crate::ring::Token;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long others may take to make known that they have come or gone.
const SETTLING_PATIENCE: Duration = Duration::from_secs(120);

/// How long a node with a smaller address waits for others that began at the same time: they have
/// to hear of it, and it has to hear that they have given way.
const RIVAL_PATIENCE: Duration = Duration::from_secs(30);

/// How often that is looked at.
const POLL: Duration = Duration::from_millis(200);

impl Operations {
    /// Fails if another node changes the ring at the moment. Changes by `gone`, a dead node that
    /// this one takes out, do not count.
    pub(in crate::repair) fn check_nobody_else(
        &self,
        look: &RingSnapshot,
        gone: Option<IpAddr>,
    ) -> Result<(), OperationError> {
        match self.rivals(look, gone).first() {
            Some((endpoint, doing)) => Err(OperationError::Other { endpoint: *endpoint, doing }),
            None => Ok(()),
        }
    }

    /// Waits until no other node changes the ring, or gives way to one. Of nodes that began at the
    /// same time, and have all heard of each other, the one with the least address goes on, and the
    /// others say that they are where they were. A node that `insists` cannot go back: it waits
    /// until the others have.
    pub(super) async fn outlast(
        &self,
        gone: Option<IpAddr>,
        insists: bool,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let began = Instant::now();
        loop {
            let look = host.look();
            let rivals = self.rivals(&look, gone);
            // A member that collects its data again cannot go back either.
            let goes_first = |rival: IpAddr| {
                rival < self.steps.local
                    || look.incomplete.contains(&rival) && look.members.is_member(rival)
            };
            let patience = match insists {
                true => SETTLING_PATIENCE,
                false if rivals.iter().any(|(rival, _)| goes_first(*rival)) => Duration::ZERO,
                false => RIVAL_PATIENCE,
            };
            match rivals.first() {
                None => return Ok(()),
                Some(_) if began.elapsed() < patience => tokio::time::sleep(POLL).await,
                Some(_) => return self.check_nobody_else(&look, gone),
            }
        }
    }

    /// The other nodes that change the ring, each with what it does.
    fn rivals(&self, look: &RingSnapshot, gone: Option<IpAddr>) -> Vec<(IpAddr, &'static str)> {
        let members = &look.members;
        let joining = members.bootstrapping.keys().map(|it| (*it, "joining"));
        let leaving = members.leaving.iter().map(|it| (*it, "leaving"));
        let plans = members.plans.iter().filter_map(|(by, plan)| match plan {
            // A plan of who is dead comes to nothing.
            _ if !look.live.contains(by) => None,
            Plan::Remove(_) => Some((*by, "removing a dead node")),
            Plan::Replace(_) => Some((*by, "taking the place of a dead node")),
            // That is over in a moment, which is waited for.
            Plan::Arrived(_) | Plan::Gone(_) | Plan::Replaced(_) => None,
        });
        // Until they have their data, or have told all that they have joined, nobody can say who
        // has what.
        let incomplete = look.incomplete.iter().filter(|it| members.is_member(**it));
        let incomplete = incomplete.map(|it| (*it, "collecting the data of its place again"));
        let halfway = members.plans.iter().filter_map(|(by, plan)| {
            let is_halfway = matches!(plan, Plan::Arrived(_)) && !look.live.contains(by);
            is_halfway.then_some((*by, "down, and had not told all that it has joined"))
        });
        let all = joining.chain(leaving).chain(plans).chain(incomplete).chain(halfway);
        let is_other =
            |it: IpAddr| it != self.steps.local && (Some(it) != gone || look.live.contains(&it));
        all.filter(|(endpoint, _)| is_other(*endpoint)).collect()
    }

    /// Waits until all know who has come or gone only just now, and the same members; but for one
    /// that is dead and to be taken out, which some may have done before.
    pub(super) async fn settled(
        &self,
        gone: Option<IpAddr>,
        host: &Arc<dyn Host>,
    ) -> Result<RingSnapshot, OperationError> {
        let began = Instant::now();
        loop {
            let look = host.look();
            let others = look.members.plans.iter().filter(|(by, _)| look.live.contains(*by));
            let is_settling = |plan: &Plan| matches!(plan, Plan::Arrived(_) | Plan::Gone(_));
            match others.clone().find(|(by, plan)| **by != self.steps.local && is_settling(plan)) {
                None => match self.disagreement(gone, &look, host).await {
                    None => return Ok(look),
                    Some((by, about)) if began.elapsed() >= SETTLING_PATIENCE => {
                        return Err(OperationError::OtherRing { by, about });
                    }
                    Some(_) => tokio::time::sleep(POLL).await,
                },
                Some((by, _)) if began.elapsed() >= SETTLING_PATIENCE => {
                    let (endpoint, doing) = (*by, "only just joining or leaving");
                    return Err(OperationError::Other { endpoint, doing });
                }
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// A live node that knows other members than this one, or does not say which, with those that
    /// only one of both knows. What it knows more this node learns, if it could not: who started
    /// when a member was dead has not heard of that one from others who have been started since.
    async fn disagreement(
        &self,
        gone: Option<IpAddr>,
        look: &RingSnapshot,
        host: &Arc<dyn Host>,
    ) -> Option<(IpAddr, Vec<IpAddr>)> {
        let ring = &look.members.ring;
        // Where this node itself is, it knows better: it may be about to join once more.
        let counts =
            |it: IpAddr| Some(it) != gone && (it != self.steps.local || ring.token(it).is_some());
        let own = ring.members().filter(|(_, it)| counts(*it));
        let own: BTreeSet<(IpAddr, Token)> = own.map(|(token, it)| (it, token.clone())).collect();
        let mut disagrees = None;
        for endpoint in look.live.intersection(&look.callable) {
            if *endpoint == self.steps.local {
                continue;
            }
            let answer = self.steps.client.ask(*endpoint, &WhichRing, host).await;
            let Ok(members) = answer else { return Some((*endpoint, Vec::new())) };
            let theirs = members.into_iter().filter(|(it, _)| counts(*it));
            let theirs: BTreeSet<(IpAddr, Token)> = theirs.collect();
            let place = |(endpoint, token): &(IpAddr, Token)| NodePlace {
                endpoint: *endpoint,
                token: token.clone(),
            };
            let unknown: Vec<NodePlace> = theirs.difference(&own).map(place).collect();
            if theirs != own {
                host.learn(&unknown);
                let about = theirs.symmetric_difference(&own).map(|(it, _)| *it);
                disagrees = Some((*endpoint, about.collect()));
            }
        }
        disagrees
    }
}
