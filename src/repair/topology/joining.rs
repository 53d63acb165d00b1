//! Joining: at a free token, or in the place of a dead node.

use super::changes::Change;
use super::lifecycle::Lifecycle;
use super::start_mode::StartMode;
use crate::gossip::NodePlace;
use crate::model::schema::FamilyId;
use crate::repair::error::{OperationError, Result};
use crate::repair::operation::{OperationKind, OperationRun};
use crate::repair::operations::Operations;
use crate::ring::Token;
use crate::storage::system::local_placement::SavedPlace;
use std::net::IpAddr;
use std::sync::Arc;

/// Former holders of the data of this node's place.
#[derive(Debug, Clone, Copy)]
enum Former {
    /// Its replicas before this node joined.
    Others,
    /// This dead node.
    Dead(IpAddr),
    /// This node, before it lost its disk.
    Itself,
}

impl Operations {
    /// Starts the node in its mode. Returns when it is a member with all its data, or when all know
    /// that it has left: then [`SavedPlace::Left`] is saved.
    pub async fn become_member(&self, start: &StartMode) -> Result<()> {
        match start {
            StartMode::Member => Ok(()),
            StartMode::First { token, is_taken, accepts_loss } => {
                self.take_first_place(token.clone(), *is_taken, *accepts_loss).await
            }
            StartMode::Join { token, is_saved, former } => {
                if let Some(former) = former
                    && self.is_known_at(former).await?
                {
                    return self.stay(former).await;
                }
                let token = match token {
                    Some(token) if *is_saved => self.unless_taken(token).await?,
                    token => token.clone(),
                };
                self.bootstrap(token).await
            }
            StartMode::Depart(token) => self.depart(token).await,
            StartMode::Arrive(token, replaced) => self.arrive(token, *replaced).await,
            StartMode::Replace(token) => self.replace(token).await,
        }
    }

    /// Joins the ring at this token, or at one that halves the load of the busiest member, with the
    /// data of the range before it. Data of an earlier start are dropped: they may lack writes.
    async fn bootstrap(&self, token: Option<Token>) -> Result<()> {
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let joined = self.join(token, true, &operation).await;
        let text = |token| format!("joined the ring at token {}", self.node.display(&token));
        self.end(&operation, joined.map(text))
    }

    /// The token that an earlier start has chosen; `None` if another node has taken it since.
    async fn unless_taken(&self, token: &Token) -> Result<Option<Token>> {
        let look = self.settled(None).await?;
        let owner = look.members.ring.owner(token).filter(|owner| *owner != self.node.local());
        if let Some(owner) = owner {
            let text = self.node.display(token);
            log::warn!(
                "{owner} has taken the token {text}, at which this node was to join: another one \
                 is chosen"
            );
        }
        Ok(owner.is_none().then(|| token.clone()))
    }

    /// Takes the place of the dead owner of a token, with its data. The owner may be this node,
    /// which has lost its data.
    async fn replace(&self, token: &Token) -> Result<()> {
        let operation = self.enlist(OperationKind::Replace)?;
        let replaced = async {
            if self.is_known_at(token).await? {
                self.discard(&operation).await?;
                return self.regain(token, Former::Itself, &operation).await;
            }
            self.take_place(token, &operation).await
        };
        let replaced = replaced.await;
        let text = |()| format!("has the token {} now", self.node.display(token));
        self.end(&operation, replaced.map(text))
    }

    /// Continues the last start, which had all data for this token, that of a dead node or a new
    /// one, and may have announced it. If others know this node as a member it is one, and collects
    /// what it may have missed before it is read from. Else it collects all data again.
    async fn arrive(&self, token: &Token, replaced: Option<IpAddr>) -> Result<()> {
        if !self.is_known_at(token).await? {
            if self.dead_owner(token, &self.node.look()?).is_ok() {
                // It was about to replace that one.
                return self.replace(token).await;
            }
            let token = self.unless_taken(token).await?;
            return self.bootstrap(token).await;
        }
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let former = replaced.map_or(Former::Others, Former::Dead);
        let regained = self.regain(token, former, &operation).await;
        self.end(&operation, regained.map(|()| "goes on as a member".to_owned()))
    }

    /// Stays at a token that this node was about to leave: no live node has heard that it has left,
    /// and the receivers of its data may have missed writes since.
    pub(super) async fn stay(&self, token: &Token) -> Result<()> {
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let stayed = self.regain(token, Former::Others, &operation).await;
        let text = self.node.display(token);
        if stayed.is_ok() {
            log::warn!(
                "this node was about to leave token {text}, and was stopped before others knew: \
                 it has stayed there. Do it again"
            );
        }
        self.end(&operation, stayed.map(|()| format!("stays at token {text}")))
    }

    /// Becomes a member again, as some nodes remember it, and collects the data that it may lack.
    /// It is not read from until then.
    async fn regain(&self, token: &Token, former: Former, operation: &OperationRun) -> Result<()> {
        let (host, local) = (self.node.host()?, self.node.local());
        let text = self.node.display(token);
        operation.enter(&format!("Rejoining at token {text}: waiting until all nodes know"));
        let place = match former {
            Former::Others => Lifecycle::Normal(token.clone()),
            Former::Dead(endpoint) => {
                Lifecycle::Replaced(NodePlace { endpoint, token: token.clone() })
            }
            Former::Itself => Lifecycle::Again(token.clone()),
        };
        let announced = self.tell(&place).await?;
        let audience = self.be_heard(announced).await?;
        self.outlast(None, true).await?;
        let look = self.settled(None).await?;
        let after = &look.members.ring;
        if after.token(local) != Some(token) {
            let owner = after.owner(token).ok_or(OperationError::RingChanged)?;
            return Err(OperationError::existing_token(&text, owner));
        }
        host.be_placed();
        let mut before = after.clone();
        before.remove(local);
        if let Former::Dead(endpoint) = former {
            before.insert(token.clone(), endpoint);
        }
        let mut receivers = self.receivers(&before, after);
        receivers.retain(|receiver, _| *receiver == local);
        for wanted in receivers.values_mut().flatten() {
            wanted.from_all = true;
            if let Former::Itself = former {
                wanted.lost = vec![local];
            }
        }
        operation.enter("Bootstrapping");
        self.collect(announced, audience, &receivers, operation).await?;
        self.save(SavedPlace::Member, Some(token.clone())).await?;
        host.serve_reads();
        self.settle(SavedPlace::Member).await
    }

    /// Drops all data of the keyspaces that are replicated.
    async fn discard(&self, operation: &OperationRun) -> Result<()> {
        let replicated = |keyspace: &str| self.node.placements.get(keyspace).is_some();
        let families = self.node.storage.schema().families();
        let families: Vec<_> = families.filter(|(_, it)| replicated(&it.keyspace)).collect();
        let has_data = |(id, _): &(FamilyId, _)| {
            let statistics = self.node.storage.family(*id).statistics();
            statistics.live_bytes > 0 || statistics.memtable_operations > 0
        };
        if !families.iter().any(has_data) {
            return Ok(());
        }
        operation.enter("Dropping what was collected before");
        for (id, _) in families {
            let storage = Arc::clone(&self.node.storage);
            let discarded = self.node.run(move || storage.discard_all(id)).await;
            discarded.map_err(|error| {
                OperationError::Failed(format!(
                    "the data of a bootstrap that was not finished cannot be dropped: {error}"
                ))
            })?;
        }
        Ok(())
    }

    /// Joins the ring. With `drops_data` the data here are dropped before, as soon as it is certain
    /// that no node counts on them.
    pub(super) async fn join(
        &self,
        token: Option<Token>,
        drops_data: bool,
        operation: &OperationRun,
    ) -> Result<Token> {
        if !drops_data {
            self.outlast(None, true).await?;
        }
        let look = self.settled(None).await?;
        let (ring, local) = (&look.members.ring, self.node.local());
        if ring.token(local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        if let Some((by, token)) = self.find_memory().await? {
            return Err(self.known_at(by, &token));
        }
        if ring.is_empty() {
            return Err(OperationError::NobodySeen);
        }
        if drops_data {
            self.check_no_rival(&look, None)?;
        }
        operation.enter("Joining: getting bootstrap token");
        let token = match token {
            Some(token) => token,
            None => self.balanced_token(&look).await?,
        };
        let text = self.node.display(&token);
        if let Some(owner) = ring.owner(&token) {
            return Err(OperationError::existing_token(&text, owner));
        }
        if drops_data {
            self.discard(operation).await?;
        }
        operation.enter(&format!("Joining at token {text}: waiting until all nodes know"));
        let mut after = ring.clone();
        after.insert(token.clone(), local);
        // So that the next start does not choose another token.
        let joining = Lifecycle::Joining(token.clone());
        self.note(&joining).await?;
        let change = Change {
            announcement: joining,
            back: Lifecycle::GivenUp(Some(token.clone())),
            before: ring,
            receivers: self.receivers(ring, &after),
            insists: !drops_data,
        };
        self.prepare(change, operation).await?;
        self.switch(&Lifecycle::Normal(token.clone()), operation).await?;
        log::info!("Bootstrap/move completed! Now serving reads.");
        Ok(token)
    }

    async fn take_place(&self, token: &Token, operation: &OperationRun) -> Result<()> {
        let look = self.settled(None).await?;
        let (ring, local) = (&look.members.ring, self.node.local());
        if ring.token(local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        let dead = self.dead_owner(token, &look)?;
        self.check_no_rival(&look, Some(dead.endpoint))?;
        self.discard(operation).await?;
        operation.enter(&format!("Replacing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.insert(token.clone(), local);
        let change = Change {
            announcement: Lifecycle::Replacing(dead.clone()),
            back: Lifecycle::GivenUp(None),
            before: ring,
            receivers: self.receivers(ring, &after),
            insists: false,
        };
        self.prepare(change, operation).await?;
        self.switch(&Lifecycle::Replaced(dead), operation).await
    }
}
