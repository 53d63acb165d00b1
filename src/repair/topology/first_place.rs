//! The first place of a node without data, as the nodes of a new ring take it.

use super::lifecycle::Lifecycle;
use crate::repair::error::{OperationError, Result};
use crate::repair::operations::Operations;
use crate::ring::Token;
use crate::storage::system::local_placement::SavedPlace;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Pause before others are asked again whether they know this node.
const POLL: Duration = Duration::from_millis(500);

/// Longest wait of a new member for other new ones, and the pause between looks.
const FIRST_PLACES_PATIENCE: Duration = Duration::from_secs(4);
const FIRST_PLACES_POLL: Duration = Duration::from_millis(20);

impl Operations {
    /// Becomes a member without any data, unless others know this node as one that has some.
    pub(super) async fn take_first_place(
        &self,
        token: Option<Token>,
        is_taken: bool,
        accepts_loss: bool,
    ) -> Result<()> {
        let host = self.node.host()?;
        let text = |token: &Token| self.node.display(token);
        let is_agreed = match self.find_memory().await {
            // Others may come that remember its token.
            Err(OperationError::NobodySeen) => accepts_loss,
            Err(error) => return Err(error),
            Ok(None) => true,
            Ok(Some((by, token))) if !accepts_loss => return Err(self.known_at(by, &token)),
            Ok(Some((by, token))) => {
                log::warn!(
                    "{by} knows this node as the owner of token {}, whose data are not here: it \
                     goes on without them, as -Dcassandra.accept_data_loss says. Run `nodetool \
                     repair` here",
                    text(&token)
                );
                true
            }
        };
        let token = token.unwrap_or_else(|| self.node.random_token());
        let owner = host.look().members.ring.owner(&token);
        if let Some(owner) = owner.filter(|owner| *owner != self.node.local())
            && !is_taken
            && !accepts_loss
        {
            let token = text(&token);
            return Err(OperationError::Failed(format!(
                "{owner} has the token {token}, whose data are not here: give this node another \
                 InitialToken or, if {owner} is gone for good, start it with \
                 -Dcassandra.replace_token={token} to collect them from the other replicas. If \
                 they are given up, -Dcassandra.accept_data_loss=true starts it without them"
            )));
        }
        if is_agreed {
            host.be_placed();
        }
        log::info!("Using token {}", text(&token));
        let place = if is_agreed { SavedPlace::Member } else { SavedPlace::First };
        self.save(place, Some(token.clone())).await?;
        host.announce(&Lifecycle::First(token));
        if is_agreed {
            host.serve_reads();
        }
        self.wait_for_first_places().await
    }

    /// Asks nodes that appear whether they know this node as the owner of data, if it has taken its
    /// first place alone, and notes that nobody does. Until then each start asks. Returns an error
    /// if somebody knows it: it has to end.
    pub async fn confirm_first_place(&self) -> Result<()> {
        let storage = Arc::clone(&self.node.storage);
        let saved = self.node.run(move || SavedPlace::read(&storage)).await;
        if !matches!(saved, Ok(SavedPlace::First)) {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL).await;
            let host = self.node.host()?;
            let look = host.look();
            if let Some((by, token)) = look.remembered {
                return Err(self.known_at(by, &token));
            }
            // Others that are as new have heard of this node, and it of them.
            let is_confirmed = !look.is_hidden
                || match self.find_memory().await {
                    Ok(Some((by, token))) => return Err(self.known_at(by, &token)),
                    Ok(None) => true,
                    Err(_) => false,
                };
            if is_confirmed {
                // First, since what others hear of this start is what they know at the next one.
                match self.save(SavedPlace::Member, None).await {
                    Ok(()) => {
                        host.be_placed();
                        host.serve_reads();
                        return Ok(());
                    }
                    Err(error) => log::warn!("the place of this node is not saved: {error}"),
                }
            }
        }
    }

    /// Waits a while for others that have no place yet. The nodes of a new ring start together, and
    /// a write that only knows some of them would go to the wrong replicas.
    async fn wait_for_first_places(&self) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < FIRST_PLACES_PATIENCE {
            let look = self.node.look()?;
            let mut others = look.live.intersection(&look.callable);
            let has_no_place =
                |it: &IpAddr| look.incomplete.contains(it) && !look.members.is_member(*it);
            if !others.any(has_no_place) {
                break;
            }
            tokio::time::sleep(FIRST_PLACES_POLL).await;
        }
        Ok(())
    }
}
