//! What all changes of the ring do: prepare what is about to be, then switch to it.

use crate::repair::error::OperationError;
use crate::repair::host::{Announced, Host, Place};
use crate::repair::operation::OperationRun;
use crate::repair::operations::Operations;
use crate::repair::topology::steps::{Audience, RangesByReceiver};
use crate::ring::{Token, TokenMetadata};
use crate::storage::own_place::SavedPlace;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often data are collected at most, before an operation is given up.
const MAX_COLLECTIONS: usize = 4;

/// A change of the ring that is prepared.
pub(super) struct Change<'a> {
    /// What this node says that is about to be.
    pub(super) announcement: &'a Place,
    /// What it says if that comes to nothing.
    pub(super) back: &'a Place,
    /// The ring that is changed.
    pub(super) before: &'a TokenMetadata,
    /// What nodes have to collect.
    pub(super) receivers: &'a RangesByReceiver,
    /// Whether it cannot give way to a change by another node.
    pub(super) insists: bool,
}

/// How long others may take to hear that a change was given up.
const BACK_PATIENCE: Duration = Duration::from_secs(15);

/// What is noted of a place for the next start.
pub(super) struct Saved {
    /// Before it is told to others.
    pub(super) before: SavedPlace,
    /// The token, if it is new.
    pub(super) token: Option<Token>,
    /// When all know.
    pub(super) after: SavedPlace,
}

impl Saved {
    pub(super) fn arriving(token: &Token, replaced: Option<IpAddr>) -> Self {
        let before = SavedPlace::Arriving { token: token.clone(), replaced };
        Self { before, token: Some(token.clone()), after: SavedPlace::Member }
    }

    pub(super) fn departing() -> Self {
        Self { before: SavedPlace::Departing, token: None, after: SavedPlace::Left }
    }

    /// To this token, or to one that is to be chosen.
    pub(super) fn moving(to: Option<&Token>) -> Self {
        let joining = SavedPlace::Joining(to.cloned());
        Self { before: joining.clone(), token: None, after: joining }
    }
}

impl Operations {
    /// Announces what is about to be, and has the data handed over. If that fails this node says
    /// that it is where it was.
    pub(super) async fn prepare(
        &self,
        change: Change<'_>,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<(), OperationError> {
        let Change { announcement, back, before, receivers, insists } = change;
        // Before others give way to it.
        self.steps.check(receivers, &host.look())?;
        let prepared = async {
            let announced = self.steps.tell(host, announcement).await;
            let audience = self.steps.be_heard(host, announced).await?;
            // Another node may have begun something before it heard of this, or ended it.
            let gone = match announcement {
                Place::Removing(_, dead) | Place::Replacing(dead) => Some(dead.endpoint),
                _ => None,
            };
            self.outlast(gone, insists, host).await?;
            if host.look().members.ring != *before {
                return Err(OperationError::RingChanged);
            }
            operation.enter(match announcement {
                Place::Leaving(_) => "Leaving: streaming data to other nodes",
                Place::Removing(..) => "Removing: streaming data to other nodes",
                _ => "Bootstrapping",
            });
            self.collect(announced, audience, receivers, host, operation).await?;
            let look = host.look();
            // It takes writes again. Nodes that take it for alive would not act on the removal now,
            // but later, when it is silent for a moment.
            if let Some(endpoint) = gone.filter(|it| *it != self.steps.local)
                && look.live.contains(&endpoint)
            {
                return Err(OperationError::Alive(endpoint));
            }
            let is_same = look.members.ring == *before;
            if is_same { Ok(()) } else { Err(OperationError::RingChanged) }
        };
        let prepared = prepared.await;
        if prepared.is_err() {
            host.announce(back);
            // Another node may wait for that, and this process may end now.
            let heard = self.steps.be_heard(host, host.said());
            if !matches!(tokio::time::timeout(BACK_PATIENCE, heard).await, Ok(Ok(_))) {
                log::warn!("not all nodes have heard that this node is where it was");
            }
        }
        prepared
    }

    /// Has nodes collect their data: once more if a node wrote meanwhile that had forgotten what
    /// this one has announced, since it was silent for too long, or had not heard it.
    pub(super) async fn collect(
        &self,
        announced: Announced,
        mut audience: Audience,
        receivers: &RangesByReceiver,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<(), OperationError> {
        let mut times = 0;
        loop {
            self.steps.hand_over(host, receivers, &operation.hand_over).await?;
            let later = self.steps.be_heard(host, announced).await?;
            let Some(endpoint) = audience.forgetful(&later) else { return Ok(()) };
            times += 1;
            if times == MAX_COLLECTIONS {
                return Err(OperationError::Forgotten(endpoint));
            }
            log::warn!(
                "{endpoint} did not know for a while what this node was about, since one did not \
                 hear of the other: the data are collected once more, as some may be missing"
            );
            audience = later;
        }
    }

    /// Saves a new place, tells all of it, and waits until they know.
    pub(super) async fn switch(
        &self,
        place: &Place,
        saved: Saved,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<(), OperationError> {
        let Saved { before, token, after } = saved;
        self.save(before, token).await?;
        operation.enter("Telling all nodes");
        if after == SavedPlace::Member {
            host.serve_reads();
        }
        let mut announced = self.steps.tell(host, place).await;
        // It is said for good. But as long as some may write by the ring of before, all others do
        // so as well.
        while let Err(error) = self.steps.be_heard(host, announced).await {
            log::warn!("not all know the new place of this node: {error}");
            operation.enter(&format!("Telling all nodes: {error}"));
            // This node may have had to count as started anew since.
            announced = host.said();
        }
        self.settle(after, host).await
    }

    /// Notes where this node is, which all know now, and tells that they do.
    pub(super) async fn settle(
        &self,
        place: SavedPlace,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let goes_on = matches!(place, SavedPlace::Joining(_));
        self.save(place, None).await?;
        if goes_on {
            // It says so until it says where it goes to: no other change may begin in between.
            return Ok(());
        }
        // Until all have heard that as well, who is stopped now would be missed.
        host.settle();
        if let Err(error) = self.steps.be_heard(host, host.said()).await {
            log::warn!("{error}");
        }
        Ok(())
    }

    pub(super) async fn save(
        &self,
        place: SavedPlace,
        token: Option<Token>,
    ) -> Result<(), OperationError> {
        let storage = Arc::clone(&self.storage);
        let saved = self.blocking.run(move || place.save(&storage, token.as_ref())).await;
        Ok(saved.map_err(|_| OperationError::Stopping)??)
    }
}
