//! Steps of all changes of the ring: prepare the new place, then switch to it.

use super::audience::Audience;
use super::handover::RangesByReceiver;
use super::lifecycle::Lifecycle;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::host::Announced;
use crate::repair::operation::OperationRun;
use crate::repair::operations::Operations;
use crate::ring::{ReplicationStrategy, Token, TokenMetadata};
use crate::storage::system::local_placement::SavedPlace;
use std::sync::Arc;
use std::time::Duration;

/// Most collections of data before an operation is given up.
const MAX_COLLECTIONS: usize = 4;

/// A change of the ring that is prepared.
pub(super) struct Change<'a> {
    /// Announcement of the change.
    pub(super) announcement: Lifecycle,
    /// Announcement if the change is given up.
    pub(super) back: Lifecycle,
    /// The ring that is changed.
    pub(super) before: &'a TokenMetadata,
    /// Ranges that nodes have to collect.
    pub(super) receivers: RangesByReceiver,
    /// Whether it cannot give way to another change.
    pub(super) insists: bool,
}

/// Longest wait until others have heard that a change was given up.
const BACK_PATIENCE: Duration = Duration::from_secs(15);

impl Operations {
    /// Announces a change, and has the data handed over. If that fails, this node announces its
    /// former state.
    pub(super) async fn prepare(&self, change: Change<'_>, operation: &OperationRun) -> Result<()> {
        let Change { announcement, back, before, receivers, insists } = change;
        // Before others give way to it.
        let host = self.node.host()?;
        self.check_receivers(&receivers, &host.look())?;
        let keyspaces = self.replication();
        let prepared = async {
            let announced = self.tell(&announcement).await?;
            let audience = self.be_heard(announced).await?;
            // Another node may have begun or ended a change before it heard of this.
            let gone = match &announcement {
                Lifecycle::Removing(_, dead) | Lifecycle::Replacing(dead) => Some(dead.endpoint),
                _ => None,
            };
            self.outlast(gone, insists).await?;
            self.service.catch_up().await?;
            if self.replication() != keyspaces {
                // Some of its rows may have been written before all knew of this change.
                return fail("a keyspace was created, altered or dropped meanwhile: do it again");
            }
            if host.look().members.ring != *before {
                return Err(OperationError::RingChanged);
            }
            operation.enter(match &announcement {
                Lifecycle::Leaving(_) => "Leaving: streaming data to other nodes",
                Lifecycle::Removing(..) => "Removing: streaming data to other nodes",
                _ => "Bootstrapping",
            });
            self.collect(announced, audience, &receivers, operation).await?;
            let look = host.look();
            // It takes writes again. Nodes that see it alive would ignore the removal now, and obey
            // it later, when it is silent for a moment.
            if let Some(endpoint) = gone.filter(|it| *it != self.node.local())
                && look.live.contains(&endpoint)
            {
                return Err(OperationError::alive(endpoint));
            }
            let is_same = look.members.ring == *before;
            if is_same { Ok(()) } else { Err(OperationError::RingChanged) }
        };
        let prepared = prepared.await;
        if prepared.is_err() {
            host.announce(&back);
            // Another node may wait for that, and this process may stop now.
            let heard = self.be_heard(host.said());
            if !matches!(tokio::time::timeout(BACK_PATIENCE, heard).await, Ok(Ok(_))) {
                log::warn!("not all nodes have heard that this node is where it was");
            }
        }
        prepared
    }

    /// The keyspaces, with the choice and number of their replicas.
    fn replication(&self) -> Vec<(String, ReplicationStrategy, usize)> {
        let all = self.node.placements.iter();
        let shown =
            all.map(|(name, it)| (name.to_owned(), it.strategy.clone(), it.replication_factor));
        shown.collect()
    }

    /// Has nodes collect their data: again if a node wrote meanwhile that had forgotten or not
    /// heard the announcement of this one.
    pub(super) async fn collect(
        &self,
        announced: Announced,
        mut audience: Audience,
        receivers: &RangesByReceiver,
        operation: &OperationRun,
    ) -> Result<()> {
        let mut times = 0;
        loop {
            self.hand_over(receivers, &operation.fetching).await?;
            let later = self.be_heard(announced).await?;
            let Some(endpoint) = audience.forgetful(&later) else { return Ok(()) };
            times += 1;
            if times == MAX_COLLECTIONS {
                return fail(format!(
                    "{endpoint} forgets again and again what this node is about, as they do not \
                     hear of each other for a while: see that the network is sound, and do it again"
                ));
            }
            log::warn!(
                "{endpoint} did not know for a while what this node was about, since one did not \
                 hear of the other: the data are collected once more, as some may be missing"
            );
            audience = later;
        }
    }

    /// Saves and announces a new place, and waits until all know it.
    pub(super) async fn switch(&self, place: &Lifecycle, operation: &OperationRun) -> Result<()> {
        let host = self.node.host()?;
        self.note(place).await?;
        let after = place.settled();
        operation.enter("Telling all nodes");
        if after == SavedPlace::Member {
            host.serve_reads();
        }
        let mut announced = self.tell(place).await?;
        // The place is final. But as long as some nodes may write by the former ring, all others
        // have to write there as well.
        while let Err(error) = self.be_heard(announced).await {
            log::warn!("not all know the new place of this node: {error}");
            operation.enter(&format!("Telling all nodes: {error}"));
            // This node may have had to raise its generation since.
            announced = host.said();
        }
        self.settle(after).await
    }

    /// Saves a place that all nodes know, and announces that they do.
    pub(super) async fn settle(&self, place: SavedPlace) -> Result<()> {
        let host = self.node.host()?;
        let goes_on = matches!(place, SavedPlace::Joining(_));
        self.save(place, None).await?;
        if goes_on {
            // The state stays announced until the next place: no other change may begin in between.
            return Ok(());
        }
        // Until all have heard that as well, others would wait for this node if it stopped.
        host.settle();
        if let Err(error) = self.be_heard(host.said()).await {
            log::warn!("{error}");
        }
        Ok(())
    }

    /// Saves a place for the next start, before it is announced.
    pub(super) async fn note(&self, place: &Lifecycle) -> Result<()> {
        let Some((saved, token)) = place.saved() else { return Ok(()) };
        self.save(saved, token).await
    }

    pub(super) async fn save(&self, place: SavedPlace, token: Option<Token>) -> Result<()> {
        let storage = Arc::clone(&self.node.storage);
        self.node.run(move || place.save(&storage, token.as_ref())).await
    }
}
