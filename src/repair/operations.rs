//! The operations by which the ring grows, shrinks and heals, one at a time on each node.

use super::anti_entropy::{AntiEntropy, RepairScope, Validations};
use super::calls::{Halving, KnownRing, WhereIs, Whereabouts, WhichRing, WhichToken, ask};
use super::error::OperationError;
use super::fetch::Fetcher;
use super::host::{Host, Place, RingLook};
use super::operation::{Operation, OperationKind, OperationReport};
use super::orders::Orders;
use super::service::Service;
use super::traffic::Stream;
use super::transition::Steps;
use crate::base::clock::Clock;
use crate::gossip::{NodePlace, Plan};
use crate::model::schema::FamilyId;
use crate::net::caller::Caller;
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::replica::Blocking;
use crate::ring::{ReplicaPlacement, RowRange, Token, TokenMetadata, ranges_of};
use crate::storage::Storage;
use crate::storage::own_place::SavedPlace;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long others may take to make known that they have come or gone.
const SETTLING_PATIENCE: Duration = Duration::from_secs(120);

/// How often that is looked at.
const POLL: Duration = Duration::from_millis(200);

/// What operations work with.
#[derive(Debug)]
pub struct OperationsOptions {
    /// The address of this node.
    pub local: IpAddr,
    /// Its data.
    pub storage: Arc<Storage>,
    /// The way to the others.
    pub messenger: Arc<Messenger>,
    /// Where the replicas of each keyspace live.
    pub placements: BTreeMap<String, ReplicaPlacement>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where work is done that waits for the disk.
    pub blocking: Blocking,
    /// `StreamThroughputInMBPerSecond`, in bytes per second; none for no limit.
    pub bytes_per_second: Option<u64>,
    /// Seed of whatever is left to chance.
    pub seed: u64,
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// This node shall leave the ring.
    Decommission,
    /// This node shall go to another token.
    Move(Token),
    /// This node shall go to where the most is to be done.
    Loadbalance,
    /// The dead owner of this token shall be removed.
    Remove(Token),
    /// Data of ranges that this node is no replica of shall be dropped; of one keyspace, or of all.
    Cleanup(Option<String>),
    /// Replicas shall compare these column families, and get what they lack.
    Repair(Vec<FamilyId>, RepairScope),
}

/// What is noted of a place for the next start.
struct Saved {
    /// Before it is told to others.
    before: SavedPlace,
    /// The token, if it is new.
    token: Option<Token>,
    /// When all know.
    after: SavedPlace,
}

impl Saved {
    fn arriving(token: &Token) -> Self {
        let before = SavedPlace::Arriving(token.clone());
        Self { before, token: Some(token.clone()), after: SavedPlace::Member }
    }
}

/// What a node is about, and which data move between it and others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamsNow {
    /// What it is doing, in words of 0.6 where it had any.
    pub mode: String,
    /// What others collect from it.
    pub sending: Vec<Stream>,
    /// What it collects from others.
    pub receiving: Vec<Stream>,
}

/// Changes the ring, answers the calls of other nodes that do, and gives them data.
#[derive(Debug)]
pub struct Operations {
    storage: Arc<Storage>,
    clock: Arc<dyn Clock>,
    blocking: Blocking,
    steps: Arc<Steps>,
    service: Arc<Service>,
    orders: Arc<Orders>,
    validations: Arc<Validations>,
    anti_entropy: Arc<AntiEntropy>,
    /// The last one that was begun.
    last: Mutex<Option<Arc<Operation>>>,
}

impl Operations {
    /// None is under way.
    pub fn new(options: OperationsOptions) -> Arc<Self> {
        let OperationsOptions { local, storage, messenger, placements, clock, .. } = options;
        let (partitioner, caller) = (storage.partitioner(), Caller::new(Arc::clone(&messenger)));
        let fetcher = Arc::new(Fetcher::new(
            Arc::clone(&storage),
            caller.clone(),
            options.blocking,
            Arc::clone(&clock),
            options.bytes_per_second,
        ));
        let orders = Orders::new(Arc::clone(&clock));
        let validations =
            Validations::new(Arc::clone(&storage), options.blocking, Arc::clone(&clock));
        let service = Arc::new(Service::new(
            Arc::clone(&storage),
            messenger,
            options.blocking,
            Arc::clone(&fetcher),
            Arc::clone(&orders),
            Arc::clone(&clock),
            Arc::clone(&validations),
        ));
        let anti_entropy = AntiEntropy::new(
            (local, Arc::clone(&storage), options.blocking),
            placements.clone(),
            caller.clone(),
            Arc::clone(&service),
            options.seed,
        );
        let rng = Mutex::new(fastrand::Rng::with_seed(options.seed));
        let steps = Arc::new(Steps { local, partitioner, placements, caller, fetcher, rng });
        let last = Mutex::default();
        Arc::new(Self {
            storage,
            clock,
            blocking: options.blocking,
            steps,
            service,
            orders,
            validations,
            anti_entropy,
            last,
        })
    }

    /// Answers a call of another node. False if the message is none. Must be called within a tokio
    /// runtime.
    pub fn receive(&self, message: &Message<'_>, host: &Arc<dyn Host>) -> bool {
        self.service.receive(message, host)
    }

    /// Gives up what nobody waits for. To be called about once in a second.
    pub fn tidy(&self) {
        self.orders.tidy();
        self.validations.tidy();
    }

    /// Ends what is under way.
    pub async fn stop(&self) {
        self.orders.stop().await;
        self.validations.stop().await;
        self.service.drain().await;
    }

    /// The operation that was begun last.
    pub fn report(&self) -> Option<OperationReport> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().map(|operation| operation.report(self.clock.monotonic()))
    }

    /// What the node is about, and which data move between it and others.
    pub fn streams(&self, host: &dyn Host) -> StreamsNow {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let running = last.filter(|operation| operation.is_running());
        let mode = match running {
            Some(operation) => operation.report(self.clock.monotonic()).mode,
            None if host.look().members.is_member(self.steps.local) => "Normal".to_owned(),
            None => "Decommissioned".to_owned(),
        };
        let (sending, receiving) = (self.service.traffic.now(), self.steps.fetcher.streams());
        StreamsNow { mode, sending, receiving }
    }

    /// Begins what an operator asks for, if that can be done; it goes on by itself, and
    /// [`Operations::report`] tells how. Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>, wish: Wish, host: &Arc<dyn Host>) -> Result<(), OperationError> {
        let kind = match &wish {
            Wish::Decommission => OperationKind::Decommission,
            Wish::Move(_) => OperationKind::Move,
            Wish::Loadbalance => OperationKind::Loadbalance,
            Wish::Remove(_) => OperationKind::Removetoken,
            Wish::Cleanup(_) => OperationKind::Cleanup,
            Wish::Repair(..) => OperationKind::Repair,
        };
        self.check(&wish, &host.look())?;
        let operation = self.enlist(kind)?;
        let (this, host) = (Arc::clone(self), Arc::clone(host));
        tokio::spawn(async move {
            let done = match wish {
                Wish::Decommission => this.decommission(&host, &operation).await,
                Wish::Move(token) => this.move_to(Some(token), &host, &operation).await,
                Wish::Loadbalance => this.move_to(None, &host, &operation).await,
                Wish::Remove(token) => this.remove(&token, &host, &operation).await,
                Wish::Cleanup(keyspace) => this.cleanup(keyspace, &host, &operation).await,
                Wish::Repair(families, scope) => {
                    // A large future, which would make that of all others large.
                    Box::pin(this.anti_entropy.repair(&families, scope, &host, &operation)).await
                }
            };
            operation.end(this.clock.monotonic(), done.map_err(|error| error.to_string()));
        });
        Ok(())
    }

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

    fn end<T>(
        &self,
        operation: &Operation,
        result: Result<T, OperationError>,
        tell: impl FnOnce(&T) -> String,
    ) -> Result<T, OperationError> {
        let outcome = match &result {
            Ok(done) => Ok(tell(done)),
            Err(error) => Err(error.to_string()),
        };
        operation.end(self.clock.monotonic(), outcome);
        result
    }

    /// Makes a new operation the last one.
    fn enlist(&self, kind: OperationKind) -> Result<Arc<Operation>, OperationError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = last.as_ref().filter(|last| last.is_running()) {
            return Err(OperationError::Busy(running.kind.name()));
        }
        let operation = Operation::new(kind, self.clock.monotonic());
        *last = Some(Arc::clone(&operation));
        Ok(operation)
    }

    /// Whether a wish can be fulfilled, as far as this node knows.
    fn check(&self, wish: &Wish, look: &RingLook) -> Result<(), OperationError> {
        let ring = &look.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?;
        let gone = match wish {
            Wish::Remove(token) => ring.owner(token),
            _ => None,
        };
        self.check_nobody_else(look, gone)?;
        let text = |token: &Token| self.steps.partitioner.display_token(token);
        match wish {
            Wish::Decommission | Wish::Loadbalance if ring.len() == 1 => Err(OperationError::Alone),
            Wish::Move(token) => match ring.owner(token) {
                _ if own == token => Err(OperationError::SameToken(text(token))),
                Some(owner) => Err(OperationError::OwnedToken { token: text(token), owner }),
                None if ring.len() == 1 => Err(OperationError::Alone),
                None => Ok(()),
            },
            Wish::Remove(token) => self.dead_owner(token, look).map(|_| ()),
            Wish::Repair(families, scope) => self.anti_entropy.check(families, *scope, look),
            Wish::Decommission | Wish::Loadbalance | Wish::Cleanup(_) => Ok(()),
        }
    }

    /// The owner of a token, if it is dead.
    fn dead_owner(&self, token: &Token, look: &RingLook) -> Result<NodePlace, OperationError> {
        let text = || self.steps.partitioner.display_token(token);
        let Some(owner) = look.members.ring.owner(token) else {
            return Err(OperationError::NoSuchToken(text()));
        };
        if owner == self.steps.local {
            return Err(OperationError::OwnToken);
        }
        if look.live.contains(&owner) {
            return Err(OperationError::Alive(owner));
        }
        Ok(NodePlace { endpoint: owner, token: token.clone() })
    }

    /// Whether no other node changes the ring at the moment. What the dead node was about that this
    /// one takes out does not count.
    fn check_nobody_else(
        &self,
        look: &RingLook,
        gone: Option<IpAddr>,
    ) -> Result<(), OperationError> {
        let members = &look.members;
        let joining = members.bootstrapping.keys().map(|it| (*it, "joining"));
        let leaving = members.leaving.iter().map(|it| (*it, "leaving"));
        let plans = members.plans.iter().filter_map(|(by, plan)| match plan {
            // A plan of who is dead comes to nothing.
            _ if !look.live.contains(by) => None,
            Plan::Remove(_) => Some((*by, "removing a dead node")),
            Plan::Replace(_) => Some((*by, "taking the place of a dead node")),
            // That is over in a moment, which is waited for.
            Plan::Arrived(_) | Plan::Gone(_) | Plan::Replaced(_) => None,
        });
        let mut others = joining.chain(leaving).chain(plans);
        let is_other =
            |it: IpAddr| it != self.steps.local && (Some(it) != gone || look.live.contains(&it));
        match others.find(|(endpoint, _)| is_other(*endpoint)) {
            Some((endpoint, doing)) => Err(OperationError::Other { endpoint, doing }),
            None => Ok(()),
        }
    }

    /// Waits until all know who has come or gone only just now.
    async fn settled(&self, host: &Arc<dyn Host>) -> Result<RingLook, OperationError> {
        let began = Instant::now();
        loop {
            let look = host.look();
            let others = look.members.plans.iter().filter(|(by, _)| look.live.contains(*by));
            let is_settling = |plan: &Plan| matches!(plan, Plan::Arrived(_) | Plan::Gone(_));
            match others.clone().find(|(by, plan)| **by != self.steps.local && is_settling(plan)) {
                None => match self.disagreement(&look, host).await {
                    None => return Ok(look),
                    Some(other) if began.elapsed() >= SETTLING_PATIENCE => {
                        return Err(OperationError::OtherRing(other));
                    }
                    Some(_) => tokio::time::sleep(POLL).await,
                },
                Some((by, _)) if began.elapsed() >= SETTLING_PATIENCE => {
                    let (endpoint, doing) = (*by, "only just joining or leaving");
                    return Err(OperationError::Other { endpoint, doing });
                }
                Some(_) => tokio::time::sleep(POLL).await,
            }
        }
    }

    /// A live node that knows other members than this one, or does not say which. What it knows
    /// more this node learns, if it could not: who started when a member was dead has not heard of
    /// that one from others who have been started since.
    async fn disagreement(&self, look: &RingLook, host: &Arc<dyn Host>) -> Option<IpAddr> {
        let partitioner = self.steps.partitioner;
        let members = look.members.ring.members();
        let own = members.map(|(token, it)| (it, partitioner.format_token(token)));
        let own: BTreeSet<(IpAddr, String)> = own.collect();
        let mut disagrees = None;
        for endpoint in look.live.intersection(&look.callable) {
            if *endpoint == self.steps.local {
                continue;
            }
            let answer = ask(&self.steps.caller, *endpoint, &WhichRing {}).await;
            let Ok(KnownRing { members }) = answer else { return Some(*endpoint) };
            // Where this node itself is, it knows better: it may be about to join once more.
            let is_own =
                |it: IpAddr| it == self.steps.local && look.members.ring.token(it).is_none();
            let theirs = members.into_iter().filter(|(it, _)| !is_own(*it));
            let theirs: BTreeSet<(IpAddr, String)> = theirs.collect();
            let place = |(endpoint, token): &(IpAddr, String)| {
                let token = partitioner.parse_token(token).ok()?;
                Some(NodePlace { endpoint: *endpoint, token })
            };
            let unknown: Vec<NodePlace> = theirs.difference(&own).filter_map(place).collect();
            if theirs != own {
                host.learn(&unknown);
                disagrees = Some(*endpoint);
            }
        }
        disagrees
    }

    /// Announces what is about to be, and has the data handed over. If that fails this node says
    /// that it is where it was.
    async fn prepare(
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
    async fn switch(
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

    async fn save(&self, place: SavedPlace, token: Option<Token>) -> Result<(), OperationError> {
        let storage = Arc::clone(&self.storage);
        let saved = self.blocking.run(move || place.save(&storage, token.as_ref())).await;
        Ok(saved.map_err(|_| OperationError::Stopping)??)
    }

    async fn decommission(
        &self,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        self.leave(SavedPlace::Left, host, operation).await?;
        operation.enter("Decommissioned");
        Ok("this node has left the ring, and can be stopped".to_owned())
    }

    /// Hands all data over and leaves the ring.
    async fn leave(
        &self,
        next: SavedPlace,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<Token, OperationError> {
        operation.enter("Leaving: waiting until all nodes know");
        let ring = self.settled(host).await?.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?.clone();
        let mut after = ring.clone();
        after.remove(self.steps.local);
        let rings = (&ring, &after);
        let (leaving, back) = (Place::Leaving(own.clone()), Place::Normal(own.clone()));
        self.prepare(&leaving, rings, Some(&back), host, operation).await?;
        let saved = Saved { before: next.clone(), token: None, after: next };
        self.switch(&Place::Left(own.clone()), saved, host).await?;
        Ok(own)
    }

    /// Leaves the ring and joins it at this token, or at one that halves the load of the busiest
    /// member.
    async fn move_to(
        &self,
        to: Option<Token>,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        let text = |token: &Token| self.steps.partitioner.display_token(token);
        let from = self.leave(SavedPlace::Joining(to.clone()), host, operation).await?;
        let joined = self.join(to, host, operation).await;
        let to = joined.map_err(|error| OperationError::HalfMoved {
            from: text(&from),
            source: Box::new(error),
        })?;
        Ok(format!("moved from token {} to {}", text(&from), text(&to)))
    }

    async fn join(
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

    async fn remove(
        &self,
        token: &Token,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        let look = self.settled(host).await?;
        let ring = &look.members.ring;
        let own = ring.token(self.steps.local).ok_or(OperationError::NotMember)?.clone();
        let dead = self.dead_owner(token, &look)?;
        operation.enter(&format!("Removing {}: waiting until all nodes know", dead.endpoint));
        let mut after = ring.clone();
        after.remove(dead.endpoint);
        let endpoint = dead.endpoint;
        let rings = (ring, &after);
        let (removing, back) = (Place::Removing(own.clone(), dead), Place::Normal(own.clone()));
        self.prepare(&removing, rings, Some(&back), host, operation).await?;
        let removed = Place::Removed(own, token.clone());
        if let Err(error) = self.steps.announce(host, &removed).await {
            log::warn!("{error}");
        }
        Ok(format!("{endpoint} is removed from the ring"))
    }

    async fn cleanup(
        &self,
        keyspace: Option<String>,
        host: &Arc<dyn Host>,
        operation: &Operation,
    ) -> Result<String, OperationError> {
        let look = host.look();
        let (schema, local) = (Arc::clone(self.storage.schema()), self.steps.local);
        let (mut before, mut after) = (0, 0);
        for (name, placement) in &self.steps.placements {
            if keyspace.as_ref().is_some_and(|only| only != name) {
                continue;
            }
            let ranges = ranges_of(placement, &look.members.ring, local);
            let keep: Vec<RowRange> = ranges.iter().flat_map(|it| it.row_ranges()).collect();
            for (id, family) in schema.families().filter(|(_, family)| family.keyspace == *name) {
                operation.enter(&format!("Cleaning up {name}.{}", family.name));
                let (storage, keep) = (Arc::clone(&self.storage), keep.clone());
                let cleaned = self.blocking.run(move || storage.cleanup(id, &keep)).await;
                let cleaned = cleaned.map_err(|_| OperationError::Stopping)?.map_err(|source| {
                    let family = family.to_string();
                    OperationError::Cleanup { family, source }
                })?;
                before += cleaned.bytes_before;
                after += cleaned.bytes_after;
            }
        }
        Ok(format!("{before} bytes of SSTables before, {after} after"))
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
