//! How a node becomes a member: at a token that nobody has, or in the place of a dead one.

use super::changes::Change;
use super::lifecycle::Lifecycle;
use super::start_mode::StartMode;
use crate::gossip::NodePlace;
use crate::model::schema::FamilyId;
use crate::repair::calls::{Halving, TokenOf, WhereIs, WhichToken};
use crate::repair::client::AskError;
use crate::repair::error::OperationError;
use crate::repair::host::{Host, RingSnapshot};
use crate::repair::operation::{OperationKind, OperationRun};
use crate::repair::operations::Operations;
use crate::ring::Token;
use crate::storage::system::local_placement::SavedPlace;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How often others that are silent are asked once more where they take this node to be, and after
/// how long.
const MAX_ROUNDS: u32 = 20;
const POLL: Duration = Duration::from_millis(500);

/// How long a new member waits for other new ones, and how often it looks for them.
const FIRST_PLACES_PATIENCE: Duration = Duration::from_secs(4);
const FIRST_PLACES_POLL: Duration = Duration::from_millis(20);

/// Who had the data of a place that this node has already.
#[derive(Debug, Clone, Copy)]
enum Former {
    /// Those who had been its replicas, until this node joined.
    Others,
    /// This dead node.
    Dead(IpAddr),
    /// This node, before its disk was lost.
    Itself,
}

impl Operations {
    /// Becomes what a node starts as. Returns when it is a member with all its data, or when all
    /// know that it has left, if that is what it was about: then [`SavedPlace::Left`] is saved.
    pub async fn become_member(
        &self,
        start: &StartMode,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        match start {
            StartMode::Member => Ok(()),
            StartMode::First { token, is_taken, accepts_loss } => {
                self.take_first_place(token.clone(), *is_taken, *accepts_loss, host).await
            }
            StartMode::Join { token, is_saved, former } => {
                if let Some(former) = former
                    && self.who_knows_it_at(former, host).await?.is_some()
                {
                    return self.stay(former, host).await;
                }
                let token = match token {
                    Some(token) if *is_saved => self.unless_taken(token, host).await?,
                    token => token.clone(),
                };
                self.bootstrap(token, host).await
            }
            StartMode::Depart(token) => self.depart(token, host).await,
            StartMode::Arrive(token, replaced) => self.arrive(token, *replaced, host).await,
            StartMode::Replace(token) => self.replace(token, host).await,
        }
    }

    /// Becomes a member without any data, unless others know this node as one that has some.
    async fn take_first_place(
        &self,
        token: Option<Token>,
        is_taken: bool,
        accepts_loss: bool,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let partitioner = self.steps.partitioner;
        let text = |token: &Token| partitioner.display_token(token);
        let is_agreed = match self.who_knows_it(host).await {
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
        let token = token.unwrap_or_else(|| self.steps.random_token());
        let owner = host.look().members.ring.owner(&token);
        if let Some(owner) = owner.filter(|owner| *owner != self.steps.local)
            && !is_taken
            && !accepts_loss
        {
            return Err(OperationError::ForeignToken { token: text(&token), owner });
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
        self.wait_for_first_places(host).await;
        Ok(())
    }

    /// Asks those who come whether they know this node as the owner of data, if it has taken its
    /// first place alone, and notes that nobody does. Until then each start asks. Returns an error
    /// if somebody knows it: it has to end.
    pub async fn confirm_first_place(&self, host: &Arc<dyn Host>) -> Result<(), OperationError> {
        let storage = Arc::clone(&self.storage);
        let saved = self.blocking.run(move || SavedPlace::read(&storage)).await;
        if !matches!(saved, Ok(Ok(SavedPlace::First))) {
            return Ok(());
        }
        loop {
            tokio::time::sleep(POLL).await;
            let look = host.look();
            if let Some((by, token)) = look.remembered {
                return Err(self.known_at(by, &token));
            }
            // Others that are as new have heard of this node, and it of them.
            let is_confirmed = !look.is_hidden
                || match self.who_knows_it(host).await {
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

    /// Why a node without data does not become a member: `by` knows it as the owner of a token.
    fn known_at(&self, by: IpAddr, token: &Token) -> OperationError {
        OperationError::KnownAt { by, token: self.steps.partitioner.display_token(token) }
    }

    /// Waits a while for others that have no place yet. The nodes of a new ring start together, and
    /// a write that only knows some of them would go to the wrong replicas.
    async fn wait_for_first_places(&self, host: &Arc<dyn Host>) {
        let began = Instant::now();
        while began.elapsed() < FIRST_PLACES_PATIENCE {
            let look = host.look();
            let mut others = look.live.intersection(&look.callable);
            let has_no_place =
                |it: &IpAddr| look.incomplete.contains(it) && !look.members.is_member(*it);
            if !others.any(has_no_place) {
                return;
            }
            tokio::time::sleep(FIRST_PLACES_POLL).await;
        }
    }

    /// Joins the ring with the data of the range before a token: this one, or one that halves the
    /// load of the busiest member. What an earlier start has collected is dropped: it may have
    /// missed writes.
    async fn bootstrap(
        &self,
        token: Option<Token>,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let joined = async { self.join(token, true, host, &operation).await };
        let joined = joined.await;
        self.end(&operation, joined, |token| {
            format!("joined the ring at token {}", self.steps.partitioner.display_token(token))
        })
        .map(|_| ())
    }

    /// Returns a token that an earlier start has chosen; none if another node has taken it since.
    async fn unless_taken(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
    ) -> Result<Option<Token>, OperationError> {
        let look = self.settled(None, host).await?;
        let owner = look.members.ring.owner(token).filter(|owner| *owner != self.steps.local);
        if let Some(owner) = owner {
            let text = self.steps.partitioner.display_token(token);
            log::warn!(
                "{owner} has taken the token {text}, at which this node was to join: another one \
                 is chosen"
            );
        }
        Ok(owner.is_none().then(|| token.clone()))
    }

    /// Takes the place of the dead owner of a token, with the data that it had. That may be this
    /// node itself, whose data are lost.
    async fn replace(&self, token: &Token, host: &Arc<dyn Host>) -> Result<(), OperationError> {
        let operation = self.enlist(OperationKind::Replace)?;
        let replaced = async {
            if self.who_knows_it_at(token, host).await?.is_some() {
                self.discard(&operation).await?;
                return self.regain(token, Former::Itself, host, &operation).await;
            }
            self.take_place(token, host, &operation).await
        };
        let replaced = replaced.await;
        self.end(&operation, replaced, |()| {
            format!("has the token {} now", self.steps.partitioner.display_token(token))
        })
    }

    /// Goes on where the last start ended that had all data for this token, that of a dead node or
    /// a new one, and may or may not have said so. If others know this node as a member it is one,
    /// and collects what it may have missed before it is read from. Else it collects all data anew.
    async fn arrive(
        &self,
        token: &Token,
        replaced: Option<IpAddr>,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        if self.who_knows_it_at(token, host).await?.is_none() {
            if self.dead_owner(token, &host.look()).is_ok() {
                // It was about to take the place of that one.
                return self.replace(token, host).await;
            }
            let token = self.unless_taken(token, host).await?;
            return self.bootstrap(token, host).await;
        }
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let former = replaced.map_or(Former::Others, Former::Dead);
        let regained = self.regain(token, former, host, &operation).await;
        self.end(&operation, regained, |()| "goes on as a member".to_owned())
    }

    /// This node was about to leave this token, and nobody who is there has heard that it has: it
    /// is still a member, and those who are to have its data may have missed writes since.
    pub(super) async fn stay(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
    ) -> Result<(), OperationError> {
        let operation = self.enlist(OperationKind::Bootstrap)?;
        let stayed = self.regain(token, Former::Others, host, &operation).await;
        let text = self.steps.partitioner.display_token(token);
        if stayed.is_ok() {
            log::warn!(
                "this node was about to leave token {text}, and was stopped before others knew: \
                 it has stayed there. Do it again"
            );
        }
        self.end(&operation, stayed, |()| format!("stays at token {text}"))
    }

    /// Is a member again, as which some know this node, and collects the data that it may lack.
    /// Nobody reads from it until then.
    async fn regain(
        &self,
        token: &Token,
        former: Former,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<(), OperationError> {
        let (text, local) = (self.steps.partitioner.display_token(token), self.steps.local);
        operation.enter(&format!("Rejoining at token {text}: waiting until all nodes know"));
        let place = match former {
            Former::Others => Lifecycle::Normal(token.clone()),
            Former::Dead(endpoint) => {
                Lifecycle::Replaced(NodePlace { endpoint, token: token.clone() })
            }
            Former::Itself => Lifecycle::Again(token.clone()),
        };
        let announced = self.steps.tell(host, &place).await;
        let audience = self.steps.be_heard(host, announced).await?;
        self.outlast(None, true, host).await?;
        let look = self.settled(None, host).await?;
        let after = &look.members.ring;
        if after.token(local) != Some(token) {
            let owner = after.owner(token).ok_or(OperationError::RingChanged)?;
            return Err(OperationError::ExistingToken { token: text, owner });
        }
        host.be_placed();
        let mut before = after.clone();
        before.remove(local);
        if let Former::Dead(endpoint) = former {
            before.insert(token.clone(), endpoint);
        }
        let mut receivers = self.steps.receivers(&before, after);
        receivers.retain(|receiver, _| *receiver == local);
        for wanted in receivers.values_mut().flatten() {
            wanted.from_all = true;
            if let Former::Itself = former {
                wanted.lost = vec![local];
            }
        }
        operation.enter("Bootstrapping");
        self.collect(announced, audience, &receivers, host, operation).await?;
        self.save(SavedPlace::Member, Some(token.clone())).await?;
        host.serve_reads();
        self.settle(SavedPlace::Member, host).await
    }

    /// Drops all data of the keyspaces that are replicated.
    async fn discard(&self, operation: &OperationRun) -> Result<(), OperationError> {
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

    /// Joins the ring; `is_anew` if what is here is to be dropped before, as soon as it is sure
    /// that nobody counts on it.
    pub(super) async fn join(
        &self,
        token: Option<Token>,
        is_anew: bool,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<Token, OperationError> {
        if !is_anew {
            self.outlast(None, true, host).await?;
        }
        let look = self.settled(None, host).await?;
        let ring = &look.members.ring;
        if ring.token(self.steps.local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        if let Some((by, token)) = self.who_knows_it(host).await? {
            return Err(self.known_at(by, &token));
        }
        if ring.is_empty() {
            return Err(OperationError::NobodySeen);
        }
        if is_anew {
            self.check_nobody_else(&look, None)?;
        }
        operation.enter("Joining: getting bootstrap token");
        let token = match token {
            Some(token) => token,
            None => self.balanced_token(&look, host).await?,
        };
        let text = self.steps.partitioner.display_token(&token);
        if let Some(owner) = ring.owner(&token) {
            return Err(OperationError::ExistingToken { token: text, owner });
        }
        if is_anew {
            self.discard(operation).await?;
        }
        operation.enter(&format!("Joining at token {text}: waiting until all nodes know"));
        let mut after = ring.clone();
        after.insert(token.clone(), self.steps.local);
        let receivers = self.steps.receivers(ring, &after);
        // Whoever joins at a token that was chosen chooses no other one at the next start.
        let joining = Lifecycle::Joining(token.clone());
        self.note(&joining).await?;
        let change = Change {
            announcement: &joining,
            back: &Lifecycle::GivenUp(Some(token.clone())),
            before: ring,
            receivers: &receivers,
            insists: !is_anew,
        };
        self.prepare(change, host, operation).await?;
        self.switch(&Lifecycle::Normal(token.clone()), host, operation).await?;
        log::info!("Bootstrap/move completed! Now serving reads.");
        Ok(token)
    }

    async fn take_place(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
        operation: &OperationRun,
    ) -> Result<(), OperationError> {
        let look = self.settled(None, host).await?;
        let ring = &look.members.ring;
        if ring.token(self.steps.local).is_some() {
            return Err(OperationError::AlreadyMember);
        }
        let dead = self.dead_owner(token, &look)?;
        self.check_nobody_else(&look, Some(dead.endpoint))?;
        self.discard(operation).await?;
        operation.enter(&format!("Replacing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.insert(token.clone(), self.steps.local);
        let receivers = self.steps.receivers(ring, &after);
        let change = Change {
            announcement: &Lifecycle::Replacing(dead.clone()),
            back: &Lifecycle::GivenUp(None),
            before: ring,
            receivers: &receivers,
            insists: false,
        };
        self.prepare(change, host, operation).await?;
        self.switch(&Lifecycle::Replaced(dead), host, operation).await
    }

    /// The token at which the busiest member gives half of its load away.
    async fn balanced_token(
        &self,
        look: &RingSnapshot,
        host: &Arc<dyn Host>,
    ) -> Result<Token, OperationError> {
        let mut best: Option<(IpAddr, Halving)> = None;
        let mut why = String::new();
        for (_, endpoint) in look.members.ring.members() {
            if !look.live.contains(&endpoint) || !look.callable.contains(&endpoint) {
                continue;
            }
            match self.steps.client.ask(endpoint, &WhichToken, host).await {
                Ok(halving) if best.as_ref().is_none_or(|(_, it)| halving.load > it.load) => {
                    best = Some((endpoint, halving));
                }
                Ok(_) => {}
                Err(error) => why = error.to_string(),
            }
        }
        let load = best.as_ref().map(|(_, halving)| halving.load);
        let busier = self.legacy.busier(look, load).await;
        let Some((endpoint, Halving { token, .. })) = busier.or(best) else {
            return Err(OperationError::NoToken(why));
        };
        let text = self.steps.partitioner.format_token(&token);
        log::info!("New token will be {text} to assume load from /{endpoint}");
        Ok(token)
    }

    /// A live node that takes this one for the owner of this token.
    pub(super) async fn who_knows_it_at(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
    ) -> Result<Option<IpAddr>, OperationError> {
        let known = self.who_knows_it(host).await?;
        Ok(known.filter(|(_, known)| known == token).map(|(by, _)| by))
    }

    /// A live node that takes this one for a member that stays, and at which token. All of them are
    /// asked until they have answered.
    async fn who_knows_it(
        &self,
        host: &Arc<dyn Host>,
    ) -> Result<Option<(IpAddr, Token)>, OperationError> {
        let mut asked = BTreeSet::from([self.steps.local]);
        let mut rounds = 0;
        loop {
            let look = host.look();
            let others = look.live.intersection(&look.callable);
            let others: Vec<IpAddr> = others.filter(|it| !asked.contains(*it)).copied().collect();
            if others.is_empty() {
                break;
            }
            let mut silent = None;
            for (endpoint, answer) in self.ask_where_it_is(others, host).await {
                match answer {
                    Ok(TokenOf { token: Some(token), is_leaving: false }) => {
                        return Ok(Some((endpoint, token)));
                    }
                    Ok(_) => _ = asked.insert(endpoint),
                    Err(error) => silent = Some((endpoint, error)),
                }
            }
            let Some((by, error)) = silent else { continue };
            if rounds == MAX_ROUNDS {
                log::warn!("{error}");
                return Err(OperationError::OtherRing { by, about: vec![self.steps.local] });
            }
            rounds += 1;
            tokio::time::sleep(POLL).await;
        }
        if asked.len() > 1 {
            return Ok(None);
        }
        // Nodes of 0.6 cannot be asked. They do not forget who was replaced at another address.
        let RingSnapshot { remembered, members, live, .. } = host.look();
        let has_member = live.iter().any(|it| *it != self.steps.local && members.is_member(*it));
        match remembered.filter(|(_, token)| members.ring.owner(token).is_none()) {
            None if !has_member => Err(OperationError::NobodySeen),
            remembered => Ok(remembered),
        }
    }

    async fn ask_where_it_is(
        &self,
        endpoints: Vec<IpAddr>,
        host: &Arc<dyn Host>,
    ) -> Vec<(IpAddr, Result<TokenOf, AskError>)> {
        let local = self.steps.local;
        let mut asked = JoinSet::new();
        for endpoint in endpoints {
            let (client, host) = (Arc::clone(&self.steps.client), Arc::clone(host));
            asked.spawn(
                async move { (endpoint, client.ask(endpoint, &WhereIs(local), &host).await) },
            );
        }
        asked.join_all().await
    }
}
