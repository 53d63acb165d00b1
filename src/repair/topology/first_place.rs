//! The first place of a node without data, and other nodes' memory of its address.

use super::agreement::other_ring;
use super::lifecycle::Lifecycle;
use crate::repair::calls::WHERE_IS;
use crate::repair::error::{OperationError, Result, fail};
use crate::repair::host::RingSnapshot;
use crate::repair::operations::Operations;
use crate::ring::Token;
use crate::storage::system::local_placement::SavedPlace;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Most rounds of requests to nodes that do not answer, and the pause between them.
const MAX_ROUNDS: u32 = 20;
const POLL: Duration = Duration::from_millis(500);

/// Longest wait of a new member for other new ones, and the pause between looks.
const FIRST_PLACES_PATIENCE: Duration = Duration::from_secs(4);
const FIRST_PLACES_POLL: Duration = Duration::from_millis(20);

impl Operations {
    /// Becomes a member without any data, unless others remember this node as one with data.
    pub(super) async fn take_first_place(
        &self,
        token: Option<Token>,
        is_taken: bool,
        accepts_loss: bool,
    ) -> Result<()> {
        let host = self.node.host()?;
        let text = |token: &Token| self.node.display(token);
        let is_agreed = match self.find_memory().await {
            // Nodes that remember its token may start later.
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
            return fail(format!(
                "{owner} has the token {token}, whose data are not here: give this node another \
                 InitialToken or, if {owner} is gone for good, start it with \
                 -Dcassandra.replace_token={token} to collect them from the other replicas. If \
                 they are given up, -Dcassandra.accept_data_loss=true starts it without them"
            ));
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

    /// Asks new nodes whether they remember data of this node, if it has taken its first place
    /// alone. Saves that none does; until then each start asks. Returns an error if one does: the
    /// node has to stop.
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
            // Without hiding, other new nodes and this one have heard of each other.
            let is_confirmed = !look.is_hidden
                || match self.find_memory().await {
                    Ok(Some((by, token))) => return Err(self.known_at(by, &token)),
                    Ok(None) => true,
                    Err(_) => false,
                };
            if is_confirmed {
                // First, since others remember this start at the next one.
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

    /// Waits a while for other nodes without a place. The nodes of a new ring start together, and a
    /// coordinator that knows only some of them would write to the wrong replicas.
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

    /// Whether a live node remembers this one as the owner of this token.
    pub(super) async fn is_known_at(&self, token: &Token) -> Result<bool> {
        Ok(self.find_memory().await?.is_some_and(|(_, known)| known == *token))
    }

    /// A live node that remembers this one as a member that stays, and the token. All of them are
    /// asked until they have answered.
    pub(super) async fn find_memory(&self) -> Result<Option<(IpAddr, Token)>> {
        let local = self.node.local();
        let mut asked = BTreeSet::from([local]);
        let mut rounds = 0;
        loop {
            let look = self.node.look()?;
            let others = look.live.intersection(&look.callable).filter(|it| !asked.contains(*it));
            let answers = join_all(others.map(async |endpoint| {
                let answer = self.service.ask::<(Option<Token>, bool)>(*endpoint, WHERE_IS, &local);
                (*endpoint, answer.await)
            }));
            let answers = answers.await;
            if answers.is_empty() {
                break;
            }
            let mut silent = None;
            for (endpoint, answer) in answers {
                match answer {
                    // It is not leaving.
                    Ok((Some(token), false)) => return Ok(Some((endpoint, token))),
                    Ok(_) => _ = asked.insert(endpoint),
                    Err(error) => silent = Some((endpoint, error)),
                }
            }
            let Some((by, error)) = silent else { continue };
            if rounds == MAX_ROUNDS {
                log::warn!("{error}");
                return Err(other_ring(by, &[local]));
            }
            rounds += 1;
            tokio::time::sleep(POLL).await;
        }
        if asked.len() > 1 {
            return Ok(None);
        }
        // Nodes of 0.6 take no calls. They do not forget a node that was replaced.
        let RingSnapshot { remembered, members, live, .. } = self.node.look()?;
        let has_member = live.iter().any(|it| *it != local && members.is_member(*it));
        match remembered.filter(|(_, token)| members.ring.owner(token).is_none()) {
            None if !has_member => Err(OperationError::NobodySeen),
            remembered => Ok(remembered),
        }
    }

    /// The error of a node without data that others remember: as a member it would hide that its
    /// former data are lost.
    pub(super) fn known_at(&self, by: IpAddr, token: &Token) -> OperationError {
        let token = self.node.display(token);
        OperationError::Failed(format!(
            "{by} knows this address as the owner of token {token}, whose data are not here: start \
             it with -Dcassandra.replace_token={token} to collect them from the other replicas, or \
             have the token removed first by `nodetool removetoken`. If they are given up for \
             good, AutoBootstrap false and -Dcassandra.accept_data_loss=true start it without them"
        ))
    }
}
