//! How a node becomes a member: at a token that nobody has, or in the place of a dead one.

use super::Operations;
use super::changes::Saved;
use crate::model::schema::FamilyId;
use crate::repair::calls::{Halving, WhereIs, Whereabouts, WhichToken, ask};
use crate::repair::error::OperationError;
use crate::repair::host::{Host, Place, RingLook};
use crate::repair::operation::{Operation, OperationKind};
use crate::ring::Token;
use crate::storage::own_place::SavedPlace;
use std::net::IpAddr;
use std::sync::Arc;

impl Operations {
    /// Joins the ring with the data of the range before a token: this one, or one that halves the
    /// load of the busiest member. Returns the token when this node is a member. What an earlier
    /// start has collected is dropped, since it may have missed writes.
    pub async fn bootstrap(
        &self,
        token: Option<Token>,
        host: &Arc<dyn Host>,
    ) -> Result<Token, OperationError> {
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let joined = async {
            self.discard(&operation).await?;
            self.join(token, host, &operation).await
        };
        let joined = joined.await;
        self.end(&operation, joined, |token| {
            format!("joined the ring at token {}", self.steps.partitioner.display_token(token))
        })
    }

    /// Takes the place of the dead owner of a token, with the data that it had. Returns when this
    /// node is a member.
    pub async fn replace(&self, token: &Token, host: &Arc<dyn Host>) -> Result<(), OperationError> {
        let operation = self.enlist(OperationKind::Replace)?;
        let replaced = async {
            self.discard(&operation).await?;
            self.take_place(token, host, &operation).await
        };
        let replaced = replaced.await;
        self.end(&operation, replaced, |()| {
            format!("has the token {} now", self.steps.partitioner.display_token(token))
        })
    }

    /// Goes on where the last start ended that had all data for this token, and may or may not have
    /// said so: if others know this node as a member it is one, else it has missed writes since and
    /// collects all data anew.
    pub async fn arrive(
        &self,
        token: Token,
        host: &Arc<dyn Host>,
    ) -> Result<Token, OperationError> {
        if !self.is_known_at(&token, host).await {
            if self.dead_owner(&token, &host.look()).is_ok() {
                // It was about to take the place of that one.
                return self.replace(&token, host).await.map(|()| token);
            }
            return self.bootstrap(Some(token), host).await;
        }
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let place = Place::Normal(token.clone());
        let arrived = self.switch(&place, Saved::arriving(&token), host).await;
        self.end(&operation, arrived.map(|()| token), |_| "goes on as a member".to_owned())
    }

    /// Drops all data of the keyspaces that are replicated.
    async fn discard(&self, operation: &Operation) -> Result<(), OperationError> {
        let replicated = |keyspace: &str| self.steps.placements.contains_key(keyspace);
        let families = self.storage.schema().families();
        let families: Vec<_> = families.filter(|(_, it)| replicated(&it.keyspace)).collect();
        let has_data = |(id, _): &(FamilyId, _)| {
            let statistics = self.storage.store(*id).statistics();
            statistics.live_bytes > 0 || statistics.memtable_operations > 0
        };
        if !families.iter().any(has_data) {
            return Ok(());
        }
        operation.enter("Dropping what was collected before");
        for (id, _) in families {
            let storage = Arc::clone(&self.storage);
            let discarded = self.blocking.run(move || storage.discard_all(id)).await;
            let discarded = discarded.map_err(|_| OperationError::Stopping)?;
            discarded.map_err(OperationError::Discard)?;
        }
        Ok(())
    }

    pub(super) async fn join(
        &self,
        token: Option<Token>,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<Token, OperationError> {
        let look = self.settled(host).await?;
        let ring = &look.members.ring;
        if ring.token(self.steps.local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        if ring.is_empty() {
            return Err(OperationError::NobodySeen);
        }
        self.check_nobody_else(&look, None)?;
        operation.enter("Joining: getting bootstrap token");
        let token = match token {
            Some(token) => token,
            None => self.balanced_token(&look).await?,
        };
        let text = self.steps.partitioner.display_token(&token);
        if let Some(owner) = ring.owner(&token) {
            return Err(OperationError::ExistingToken { token: text, owner });
        }
        operation.enter(&format!("Joining at token {text}: waiting until all nodes know"));
        let mut after = ring.clone();
        after.insert(token.clone(), self.steps.local);
        let rings = (ring, &after);
        // Whoever joins at a token that was chosen chooses no other one at the next start.
        self.save(SavedPlace::Joining(Some(token.clone())), None).await?;
        self.prepare(&Place::Joining(token.clone()), rings, None, host, operation).await?;
        self.switch(&Place::Normal(token.clone()), Saved::arriving(&token), host).await?;
        log::info!("Bootstrap/move completed! Now serving reads.");
        Ok(token)
    }

    async fn take_place(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<(), OperationError> {
        let look = self.settled(host).await?;
        let ring = &look.members.ring;
        if ring.token(self.steps.local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        let dead = self.dead_owner(token, &look)?;
        self.check_nobody_else(&look, Some(dead.endpoint))?;
        operation.enter(&format!("Replacing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.insert(token.clone(), self.steps.local);
        let rings = (ring, &after);
        self.prepare(&Place::Replacing(dead.clone()), rings, None, host, operation).await?;
        self.switch(&Place::Replaced(dead), Saved::arriving(token), host).await
    }

    /// The token at which the busiest member gives half of its load away.
    async fn balanced_token(&self, look: &RingLook) -> Result<Token, OperationError> {
        let mut best: Option<(IpAddr, Halving)> = None;
        let mut why = String::new();
        for (_, endpoint) in look.members.ring.members() {
            if !look.live.contains(&endpoint) || !look.callable.contains(&endpoint) {
                continue;
            }
            match ask(&self.steps.caller, endpoint, &WhichToken {}).await {
                Ok(halving) if best.as_ref().is_none_or(|(_, it)| halving.load > it.load) => {
                    best = Some((endpoint, halving));
                }
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        let Some((endpoint, Halving { token, .. })) = best else {
            return Err(OperationError::NoToken(why));
        };
        log::info!("New token will be {token} to assume load from /{endpoint}");
        Ok(self.steps.partitioner.parse_token(&token)?)
    }

    /// Whether any live node takes this one for the owner of a token.
    async fn is_known_at(&self, token: &Token, host: &Arc<dyn Host>) -> bool {
        let (look, partitioner) = (host.look(), self.steps.partitioner);
        for endpoint in look.live.intersection(&look.callable) {
            if *endpoint == self.steps.local {
                continue;
            }
            let call = WhereIs { endpoint: self.steps.local };
            let answer = ask(&self.steps.caller, *endpoint, &call).await.ok();
            let place = answer.and_then(|Whereabouts { token }| token);
            let place = place.and_then(|text| partitioner.parse_token(&text).ok());
            if place.as_ref() == Some(token) {
                return true;
            }
        }
        false
    }
}
