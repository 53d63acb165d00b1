//! Registers whose value all members of the ring keep, such as the schema. A majority of all
//! members decides, and keeps a new value before its change counts as done.
//!
//! A node that misses a value learns it from others: by gossip it hears that they keep a newer one.
//! As only one node at a time joins or leaves a ring, majorities before and after have a member in
//! common, and it keeps the newest value.

use super::poll::Polled;
use super::{Electorate, Intent, RegisterUse};
use crate::base::context::RequestContext;
use crate::coordinator::CoordinatorError;
use crate::coordinator::consistency::{ReplicaCounts, Requirement};
use crate::coordinator::coordinator::Coordinator;
use crate::coordinator::view::{Endpoints, View};
use crate::model::key::RowKey;
use crate::model::register::{Ask, Kept, Proposal, Vote};
use crate::replica::{Follower, ReplicaError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Longest value, in bytes. Messages and the memory of nodes hold some copies of it.
const LONGEST_VALUE: usize = 16 << 20;

/// Reason why a register was not changed or read.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError<E> {
    /// The change makes no sense.
    #[error("{0}")]
    Change(E),
    /// These members are not alive, and the others are no majority. Nothing was changed.
    #[error("no majority of the nodes of the ring is alive; these are not: {0}")]
    Dead(Missing),
    /// These members have not answered in time. The change may be done or not.
    #[error(
        "no majority of the nodes of the ring has answered in time, and the change may be done or \
         not; these have not: {0}"
    )]
    Silent(Missing),
    /// Something else.
    #[error(transparent)]
    Other(#[from] CoordinatorError),
}

/// Members that would have been needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub Vec<IpAddr>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, member) in self.0.iter().enumerate() {
            write!(f, "{}{member}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl Coordinator {
    /// Changes the value of a register that all members keep. Returns whether there was something
    /// to change, and the value now, which this node keeps and has followed.
    ///
    /// `change` gets the value after all changes before, which is empty at first, and returns the
    /// next one, or none if there is nothing to do. It may be called again with a newer one. Where
    /// many change the register at once that may have its effect already. No value may be empty, or
    /// longer than 16 MB.
    ///
    /// After [`RegisterError::Silent`] and [`CoordinatorError::TimedOut`] the change may be done or
    /// not; a further call that changes nothing tells.
    pub async fn change_register<E: Send>(
        self: &Arc<Self>,
        name: &str,
        change: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, E> + Send,
        context: &mut RequestContext,
    ) -> Result<(bool, Kept), RegisterError<E>> {
        let register = ValueRegister {
            coordinator: self,
            name: RowKey::from(name),
            change,
            memory: context.child(),
            newest: Kept::default(),
            proposed: Vec::new(),
            is_applied: false,
            only_reads: false,
            missing: Vec::new(),
        };
        // Large beside other requests.
        Box::pin(register.change(context)).await
    }

    /// Follows such a register from now on, beginning with the value that this node keeps, if there
    /// is one. To be called before the node takes part in the ring.
    pub fn follow_register(
        &self,
        name: &str,
        follower: Arc<dyn Follower>,
    ) -> Result<(), ReplicaError> {
        self.replica.follow_register(&RowKey::from(name), follower)
    }

    /// The registers that this node follows, and the versions that it has followed.
    pub fn register_versions(&self) -> BTreeMap<RowKey, i64> {
        self.replica.register_versions()
    }

    /// The versions that this node has followed, as it announces them.
    pub fn announced_registers(&self) -> String {
        let own = self.register_versions();
        let texts = own.iter().map(|(name, version)| {
            format!("{} {version}", String::from_utf8_lossy(name.as_bytes()))
        });
        texts.collect::<Vec<_>>().join(",")
    }

    /// Takes note of the versions that other nodes announce.
    pub fn note_registers(&self, announced: BTreeMap<IpAddr, String>) {
        *self.announced.write() = announced;
    }

    /// Whether another node announces the versions that this node has followed.
    pub fn agrees_on_registers(&self, other: IpAddr) -> bool {
        let announced = self.announced.read().get(&other).cloned();
        announced.unwrap_or_default() == self.announced_registers()
    }

    /// Asks another node for a newer value of a register, without waiting.
    pub fn learn_register(self: &Arc<Self>, name: RowKey, version: i64, from: IpAddr) {
        let Ok(only) = Arc::clone(&self.learning).try_acquire_owned() else { return };
        let (this, view) = (Arc::clone(self), self.view());
        self.begin(async move {
            let _only = only;
            let (live, requirement) = (Endpoints::from_iter([from]), Requirement::any(1));
            let electorate = Electorate { view, live, requirement };
            let (ask, mut context) = (Ask::Tell(version), this.request());
            let polled = this.poll(&name, &electorate, ask, &mut context).await;
            if let Ok(Polled::Granted(told)) = polled
                && let Some(kept) = told.kept
                && let Err(error) = this.keep_value(name, kept).await
            {
                this.warn_of_own("keep", &error);
            }
        });
    }

    /// Keeps a value on this node.
    async fn keep_value(&self, name: RowKey, kept: Kept) -> Result<(), ReplicaError> {
        self.replica.vote(name, Ask::Keep(kept)).await.wait().await.map(drop)
    }
}

/// A register, and what a call wants to do to it.
struct ValueRegister<'a, F> {
    coordinator: &'a Arc<Coordinator>,
    name: RowKey,
    change: F,
    memory: RequestContext,
    /// The newest value that was seen.
    newest: Kept,
    /// Values that the call has proposed.
    proposed: Vec<Kept>,
    /// Whether this node has applied the change of the call.
    is_applied: bool,
    only_reads: bool,
    /// Members that were dead, or did not answer.
    missing: Vec<IpAddr>,
}

impl<E, F> ValueRegister<'_, F>
where
    E: Send,
    F: FnMut(&[u8]) -> Result<Option<Vec<u8>>, E> + Send,
{
    async fn change(
        mut self,
        context: &mut RequestContext,
    ) -> Result<(bool, Kept), RegisterError<E>> {
        let coordinator = self.coordinator;
        let mut done = coordinator.agree(&mut self, context).await;
        if matches!(done, Ok(true)) && !self.is_applied {
            // Another node has finished it.
            self.only_reads = true;
            done = coordinator.agree(&mut self, context).await.map(|_| true);
        }
        match done {
            Ok(is_changed) => Ok((is_changed, self.newest)),
            Err(RegisterError::Other(error)) if !self.missing.is_empty() => Err(match error {
                CoordinatorError::Unavailable(_) => RegisterError::Dead(Missing(self.missing)),
                CoordinatorError::TimedOut(_) => RegisterError::Silent(Missing(self.missing)),
                other => other.into(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Keeps a value here, so that this node has followed it when the call ends.
    async fn see(&mut self, kept: Kept) -> Result<(), CoordinatorError> {
        self.coordinator.keep_value(self.name.clone(), kept.clone()).await?;
        if kept.version > self.newest.version {
            self.newest = kept;
        }
        Ok(())
    }
}

impl<E, F> RegisterUse for ValueRegister<'_, F>
where
    E: Send,
    F: FnMut(&[u8]) -> Result<Option<Vec<u8>>, E> + Send,
{
    type Error = RegisterError<E>;

    fn name(&self) -> &RowKey {
        &self.name
    }

    fn electorate(&mut self, view: &Arc<View>) -> Result<Electorate, CoordinatorError> {
        let local = self.coordinator.local;
        if view.peers.is_self_removed {
            return Err(CoordinatorError::Unavailable(ReplicaCounts::NONE));
        }
        let members: BTreeSet<IpAddr> = view.ring.members().map(|(_, member)| member).collect();
        let needed = members.len() / 2 + 1;
        let is_there = |it: &IpAddr| *it == local || view.takes_part(*it);
        let (live, missing): (Vec<IpAddr>, Vec<IpAddr>) = members.into_iter().partition(is_there);
        if live.len() < needed {
            self.missing = missing;
        }
        Electorate::new(view, live.into(), Requirement::any(needed), local)
    }

    async fn next(
        &mut self,
        electorate: &Electorate,
        micros: i64,
    ) -> Result<Intent, RegisterError<E>> {
        let (coordinator, mut memory) = (self.coordinator, self.memory.scratch());
        let tell = Ask::Tell(self.newest.version);
        let own = coordinator.replica.vote(self.name.clone(), tell).await.wait().await;
        if let Vote::Told(Some(kept)) = own.map_err(CoordinatorError::from)? {
            self.newest = kept;
        }
        let tell = Ask::Tell(self.newest.version);
        let told = coordinator.poll_for(self, electorate, tell, &mut memory).await?;
        let newer = told.ok().and_then(|told| told.kept);
        self.see(newer.unwrap_or_else(|| self.newest.clone())).await?;
        if self.newest.version >= micros {
            return Ok(Intent::After(self.newest.version));
        }
        if self.only_reads {
            return Ok(Intent::Propose(Vec::new()));
        }
        let next = (self.change)(&self.newest.value).map_err(RegisterError::Change)?;
        let next = next.unwrap_or_default();
        if next.len() > LONGEST_VALUE {
            let what = format!("the new value has {} bytes, and at most", next.len());
            let error = CoordinatorError::TooLarge(format!("{what} {LONGEST_VALUE} may be"));
            return Err(error.into());
        }
        if !next.is_empty() {
            self.proposed.push(Kept { version: micros, value: next.clone() });
        }
        Ok(Intent::Propose(next))
    }

    async fn apply(
        &mut self,
        electorate: &Electorate,
        proposal: &Proposal,
        is_own: bool,
    ) -> Result<(), CoordinatorError> {
        let (coordinator, mut memory) = (self.coordinator, self.memory.scratch());
        let (version, value) = (proposal.decision.origin.micros, proposal.value.clone());
        let kept = Kept { version, value };
        let keep = Ask::Keep(kept.clone());
        // Nobody refuses that.
        let _ = coordinator.poll_for(self, electorate, keep, &mut memory).await?;
        self.see(kept).await?;
        self.is_applied |= is_own;
        Ok(())
    }

    fn resolve(&mut self) -> Result<bool, CoordinatorError> {
        let replica = &self.coordinator.replica;
        // A node that applies a change tells all participants.
        let is_applied =
            self.proposed.iter().any(|kept| replica.was_told_to_keep(&self.name, kept));
        Ok(is_applied)
    }

    fn note_silent(&mut self, members: Endpoints, _counts: ReplicaCounts) {
        self.missing = members.into_vec();
    }
}
