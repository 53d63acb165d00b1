//! Agreement of all nodes on the ring, and exclusion of other changes.

use crate::gossip::{NodePlace, Plan};
use crate::repair::calls::WHICH_RING;
use crate::repair::error::{OperationError, Result};
use crate::repair::host::RingSnapshot;
use crate::repair::operations::Operations;
use crate::ring::Token;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for other nodes that just arrived or left.
const SETTLING_PATIENCE: Duration = Duration::from_secs(120);

/// Longest wait of a node with a smaller address for others that began at the same time: they have
/// to hear of it and give way, and it has to hear that.
const RIVAL_PATIENCE: Duration = Duration::from_secs(30);

/// Pause between two looks at the ring.
const POLL: Duration = Duration::from_millis(200);

impl Operations {
    /// Fails if another node changes the ring at the moment. Changes by `gone`, a dead node that
    /// this one removes, do not count.
    pub(in crate::repair) fn check_no_rival(
        &self,
        look: &RingSnapshot,
        gone: Option<IpAddr>,
    ) -> Result<()> {
        match self.rivals(look, gone).first() {
            Some((endpoint, doing)) => Err(other_change(*endpoint, doing)),
            None => Ok(()),
        }
    }

    /// Waits until no other node changes the ring, or gives way to one. Of nodes that began at the
    /// same time, and have all heard of each other, the one with the least address continues, and
    /// the others go back. A node that `insists` cannot go back: it waits until the others have.
    pub(super) async fn outlast(&self, gone: Option<IpAddr>, insists: bool) -> Result<()> {
        let began = Instant::now();
        loop {
            let look = self.node.look()?;
            let rivals = self.rivals(&look, gone);
            // A member that collects its data again cannot go back either.
            let goes_first = |rival: IpAddr| {
                rival < self.node.local()
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
                Some(_) => return self.check_no_rival(&look, gone),
            }
        }
    }

    /// The other nodes that change the ring, each with its change.
    fn rivals(&self, look: &RingSnapshot, gone: Option<IpAddr>) -> Vec<(IpAddr, &'static str)> {
        let members = &look.members;
        let joining = members.bootstrapping.keys().map(|it| (*it, "joining"));
        let leaving = members.leaving.iter().map(|it| (*it, "leaving"));
        let plans = members.plans.iter().filter_map(|(by, plan)| match plan {
            // A plan of a dead node comes to nothing.
            _ if !look.live.contains(by) => None,
            Plan::Remove(_) => Some((*by, "removing a dead node")),
            Plan::Replace(_) => Some((*by, "taking the place of a dead node")),
            // Over in a moment, see `settled`.
            Plan::Arrived(_) | Plan::Gone(_) | Plan::Replaced(_) => None,
        });
        // Until they have their data, or have announced to all that they have joined, it is not
        // known which node has which data.
        let incomplete = look.incomplete.iter().filter(|it| members.is_member(**it));
        let incomplete = incomplete.map(|it| (*it, "collecting the data of its place again"));
        let halfway = members.plans.iter().filter_map(|(by, plan)| {
            let is_halfway = matches!(plan, Plan::Arrived(_)) && !look.live.contains(by);
            is_halfway.then_some((*by, "down, and had not told all that it has joined"))
        });
        let all = joining.chain(leaving).chain(plans).chain(incomplete).chain(halfway);
        let local = self.node.local();
        let is_other = |it: IpAddr| it != local && (Some(it) != gone || look.live.contains(&it));
        all.filter(|(endpoint, _)| is_other(*endpoint)).collect()
    }

    /// Waits until all nodes know the same members, also those that just arrived or left, and this
    /// node the schema of the others. A dead node that is to be removed does not count: some may
    /// have removed it already.
    pub(super) async fn settled(&self, gone: Option<IpAddr>) -> Result<RingSnapshot> {
        self.service.catch_up().await?;
        let began = Instant::now();
        loop {
            let look = self.node.look()?;
            let is_settling = |(by, plan): &(&IpAddr, &Plan)| {
                **by != self.node.local()
                    && look.live.contains(*by)
                    && matches!(plan, Plan::Arrived(_) | Plan::Gone(_))
            };
            let why = match look.members.plans.iter().find(is_settling) {
                Some((by, _)) => other_change(*by, "only just joining or leaving"),
                None => match self.disagreement(gone, &look).await? {
                    None => return Ok(look),
                    Some((by, about)) => other_ring(by, &about),
                },
            };
            if began.elapsed() >= SETTLING_PATIENCE {
                return Err(why);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// A live node that knows other members than this one, with the members that only one of both
    /// knows; none if it does not answer. This node learns unknown members: if it started when a
    /// member was dead, nodes that started since could not tell it.
    async fn disagreement(
        &self,
        gone: Option<IpAddr>,
        look: &RingSnapshot,
    ) -> Result<Option<(IpAddr, Vec<IpAddr>)>> {
        let (host, local) = (self.node.host()?, self.node.local());
        let ring = &look.members.ring;
        // Its own place it knows better: it may be about to join again.
        let counts = |it: IpAddr| Some(it) != gone && (it != local || ring.token(it).is_some());
        let own = ring.members().filter(|(_, it)| counts(*it));
        let own: BTreeSet<(IpAddr, Token)> = own.map(|(token, it)| (it, token.clone())).collect();
        let mut disagrees = None;
        for endpoint in look.live.intersection(&look.callable) {
            if *endpoint == local {
                continue;
            }
            let answer = self.service.ask::<Vec<_>>(*endpoint, WHICH_RING, &()).await;
            let Ok(members) = answer else { return Ok(Some((*endpoint, Vec::new()))) };
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
        Ok(disagrees)
    }
}

/// The error for two changes at once: each could rely on data that the other takes away.
fn other_change(endpoint: IpAddr, doing: &str) -> OperationError {
    OperationError::Failed(format!(
        "{endpoint} is {doing}: one change of the ring at a time, since what is safe for each may \
         not be so for both. Wait until it is done"
    ))
}

/// The error for two different rings: a change may be safe in one only. `about` are nodes that only
/// one side knows, or at another token; none if `by` does not answer.
pub(super) fn other_ring(by: IpAddr, about: &[IpAddr]) -> OperationError {
    OperationError::Failed(match about {
        [] => format!(
            "{by} counts as alive, and does not say which members it knows: see that it can be \
             reached, or wait until it counts as down, and do it again"
        ),
        about => format!(
            "{by} does not agree with this node on {about:?}: do it again, and if that does not \
             help remove who is dead of them at the node that still knows it"
        ),
    })
}
