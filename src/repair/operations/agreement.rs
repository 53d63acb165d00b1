//! Whether the others agree on the ring, and nobody else changes it.

use super::Operations;
use crate::gossip::{NodePlace, Plan};
use crate::repair::calls::{KnownRing, WhichRing, ask};
use crate::repair::error::OperationError;
use crate::repair::host::{Host, RingLook};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long others may take to make known that they have come or gone.
const SETTLING_PATIENCE: Duration = Duration::from_secs(120);

/// How often that is looked at.
const POLL: Duration = Duration::from_millis(200);

impl Operations {
    /// Whether no other node changes the ring at the moment. What the dead node was about that this
    /// one takes out does not count.
    pub(super) fn check_nobody_else(
        &self,
        look: &RingLook,
        gone: Option<IpAddr>,
    ) -> Result<(), OperationError> {
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
        let mut others = joining.chain(leaving).chain(plans);
        let is_other =
            |it: IpAddr| it != self.steps.local && (Some(it) != gone || look.live.contains(&it));
        match others.find(|(endpoint, _)| is_other(*endpoint)) {
            Some((endpoint, doing)) => Err(OperationError::Other { endpoint, doing }),
            None => Ok(()),
        }
    }

    /// Waits until all know who has come or gone only just now.
    pub(super) async fn settled(&self, host: &Arc<dyn Host>) -> Result<RingLook, OperationError> {
        let began = Instant::now();
        loop {
            let look = host.look();
            let others = look.members.plans.iter().filter(|(by, _)| look.live.contains(*by));
            let is_settling = |plan: &Plan| matches!(plan, Plan::Arrived(_) | Plan::Gone(_));
            match others.clone().find(|(by, plan)| **by != self.steps.local && is_settling(plan)) {
                None => match self.disagreement(&look, host).await {
                    None => return Ok(look),
                    Some(other) if began.elapsed() >= SETTLING_PATIENCE => {
                        return Err(OperationError::OtherRing(other));
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

    /// A live node that knows other members than this one, or does not say which. What it knows
    /// more this node learns, if it could not: who started when a member was dead has not heard of
    /// that one from others who have been started since.
    pub(super) async fn disagreement(
        &self,
        look: &RingLook,
        host: &Arc<dyn Host>,
    ) -> Option<IpAddr> {
        let partitioner = self.steps.partitioner;
        let members = look.members.ring.members();
        let own = members.map(|(token, it)| (it, partitioner.format_token(token)));
        let own: BTreeSet<(IpAddr, String)> = own.collect();
        let mut disagrees = None;
        for endpoint in look.live.intersection(&look.callable) {
            if *endpoint == self.steps.local {
                continue;
            }
            let answer = ask(&self.steps.caller, *endpoint, &WhichRing {}).await;
            let Ok(KnownRing { members }) = answer else { return Some(*endpoint) };
            // Where this node itself is, it knows better: it may be about to join once more.
            let is_own =
                |it: IpAddr| it == self.steps.local && look.members.ring.token(it).is_none();
            let theirs = members.into_iter().filter(|(it, _)| !is_own(*it));
            let theirs: BTreeSet<(IpAddr, String)> = theirs.collect();
            let place = |(endpoint, token): &(IpAddr, String)| {
                let token = partitioner.parse_token(token).ok()?;
                Some(NodePlace { endpoint: *endpoint, token })
            };
            let unknown: Vec<NodePlace> = theirs.difference(&own).filter_map(place).collect();
            if theirs != own {
                host.learn(&unknown);
                disagrees = Some(*endpoint);
            }
        }
        disagrees
    }
}
