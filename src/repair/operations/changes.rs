//! What all changes of the ring do: prepare what is about to be, then switch to it.

use super::Operations;
use crate::repair::error::OperationError;
use crate::repair::host::{Host, Place};
use crate::repair::operation::Operation;
use crate::ring::{Token, TokenMetadata};
use crate::storage::own_place::SavedPlace;
use std::sync::Arc;

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
    pub(super) fn arriving(token: &Token) -> Self {
        let before = SavedPlace::Arriving(token.clone());
        Self { before, token: Some(token.clone()), after: SavedPlace::Member }
    }
}

impl Operations {
    /// Announces what is about to be, and has the data handed over. If that fails this node says
    /// that it is where it was.
    pub(super) async fn prepare(
        &self,
        announcement: &Place,
        (before, after): (&TokenMetadata, &TokenMetadata),
        back: Option<&Place>,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<(), OperationError> {
        let prepared = async {
            self.steps.announce(host, announcement).await?;
            // Another node may have begun something before it heard of this, or ended it.
            let look = host.look();
            let gone = match announcement {
                Place::Removing(_, dead) | Place::Replacing(dead) => Some(dead.endpoint),
                _ => None,
            };
            self.check_nobody_else(&look, gone)?;
            if look.members.ring != *before {
                return Err(OperationError::RingChanged);
            }
            operation.enter(match announcement {
                Place::Leaving(_) => "Leaving: streaming data to other nodes",
                Place::Removing(..) => "Removing: streaming data to other nodes",
                _ => "Bootstrapping",
            });
            self.steps.hand_over(host, before, after, &operation.hand_over).await
        };
        let prepared = prepared.await;
        if prepared.is_err()
            && let Some(back) = back
        {
            host.announce(back);
        }
        prepared
    }

    /// Saves a new place, tells all of it, and waits until they know.
    pub(super) async fn switch(
        &self,
        place: &Place,
        saved: Saved,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let Saved { before, token, after } = saved;
        self.save(before, token).await?;
        if let Err(error) = self.steps.announce(host, place).await {
            // They will, sooner or later: it is said for good.
            log::warn!("{error}");
        }
        self.save(after, None).await?;
        // Until all have heard that as well, who is stopped now would be missed.
        if let Err(error) = self.steps.be_heard(host, host.settle()).await {
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
