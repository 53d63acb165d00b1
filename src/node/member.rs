//! A node among others: gossip, what follows from it, messages in and out, hints.
//!
//! ```text
//!   peers --> receive --+--> responder    what they ask of this node as a replica
//!                       +--> messenger    their answers to what this node has asked
//!                       +--> gossip       who is there, and where
//!                              |
//!                              +--> coordinator    the ring as it is now
//!                              +--> handoff        somebody is back who has hints waiting
//! ```

mod host;
mod known;
mod readiness;
mod receiver;
mod removal;
mod settle;

pub use receiver::Receiver;

use known::Gossip;

use super::handoff::{Handoff, HandoffOptions, HandoffState};
use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::coordinator::{Coordinator, CoordinatorOptions, Hinting, Peers, ReadOptions};
use crate::gossip::{
    EXTENSIONS_STATE, Effects, GOSSIP_INTERVAL, GossipEvent, GossipMessage, Gossiper, LOAD_STATE,
    Membership, MembershipChange, MessageKind, Move, NodePlace, READS_STATE, REMOVED_STATE,
    RING_DELAY, RemovedNode, SCHEMA_STATE, VERSION_STATE,
};
use crate::net::message::Message;
use crate::net::messenger::Messenger;
use crate::net::{Drops, LOG_BURST, LOG_INTERVAL, Transport, Verb, extensions};
use crate::repair::{Operations, OperationsOptions};
use crate::replica::{
    Blocking, HintStore, OwnReadiness, Readiness, Replica, Responder, ResponderOptions,
};
use crate::ring::{ReplicaPlacement, Token};
use crate::storage::Database;
use crate::storage::system::saved_ring::RingNote;
use crate::storage::system::{self, IdentityError};
use log::Level;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often requests are given up whose time is over.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

/// How often dropped messages are told of.
const DROPS_INTERVAL: Duration = Duration::from_secs(5);

/// When a node says for the first time how much data it has, and how often then.
const LOAD_INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Hints are delivered to nodes of which there were news as short a time ago: one that is silent
/// for longer may be dead, and not be convicted yet.
const FRESH_NEWS: Duration = Duration::from_secs(3);

/// What a member of a ring needs to know.
#[derive(Debug)]
pub struct MemberOptions {
    /// Its address.
    pub local: IpAddr,
    /// Nodes of other clusters are ignored.
    pub cluster_name: String,
    /// Who is asked for the ring.
    pub seeds: Vec<IpAddr>,
    /// Its place on the ring; none if it is to join, or may lack data of its place.
    pub token: Option<Token>,
    /// Whether others are asked what they remember of the address before they hear of this start.
    pub asks_first: bool,
    /// The dead member whose place the last start was about to take, and may not have told others
    /// of. It counts as removed again when they hear of it.
    pub replaced: Option<NodePlace>,
    /// Number of this start.
    pub generation: i32,
    /// `PhiConvictThreshold`.
    pub phi_convict_threshold: f64,
    /// `RpcTimeoutInMillis`.
    pub rpc_timeout: Duration,
    /// Where the replicas of each keyspace live.
    pub placements: BTreeMap<String, ReplicaPlacement>,
    /// Its data.
    pub storage: Arc<Database>,
    /// Itself as a replica.
    pub replica: Arc<Replica>,
    /// `StreamThroughputInMBPerSecond`, in bytes per second; `None` for no limit.
    pub stream_bytes_per_second: Option<u64>,
    /// Keeps hints; `None` with `HintedHandoffEnabled` off.
    pub hints: Option<Arc<HintStore>>,
    /// Whether a hint that counts as an acknowledgement has to be on disk before.
    pub hints_wait_for_sync: bool,
    /// `hinted_handoff_throttle`: the pause after each hint that is delivered.
    pub handoff_pause: Duration,
    /// How reads are made.
    pub reads: ReadOptions,
    /// What carries messages.
    pub transport: Arc<dyn Transport>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Seed of whatever is left to chance.
    pub seed: u64,
}

/// A node that takes part in a ring.
#[derive(Debug)]
pub struct Member {
    local: IpAddr,
    seeds: Vec<IpAddr>,
    storage: Arc<Database>,
    clock: Arc<dyn Clock>,
    transport: Arc<dyn Transport>,
    messenger: Arc<Messenger>,
    /// What gossip finds out, as others give reason for it.
    log: LimitedLog<IpAddr>,
    /// Changes of this node itself, by their kind. Lines about what others send never crowd them
    /// out.
    own_log: LimitedLog<&'static str>,
    coordinator: Arc<Coordinator>,
    responder: Arc<Responder>,
    hints: Option<Arc<HintStore>>,
    handoff: Option<Arc<Handoff>>,
    drops: Arc<Drops>,
    operations: Arc<Operations>,
    /// How far this node has its place and the data for it, or had them when it left.
    readiness: Arc<OwnReadiness>,
    /// Where hints are written for who has not answered in time.
    blocking: Blocking,
    /// The time of what was noted last of the ring, in milliseconds since 1970. Held while notes
    /// are written, so that they keep their order, and taken before that of gossip.
    last_note: Mutex<rank::Membership, u64>,
    /// One lock for all, held while a message is worked on; nothing waits under it.
    gossip: Mutex<rank::Gossip, Gossip>,
}

impl Member {
    /// A node with the ring as it was saved. Nothing is sent before [`Member::run`].
    pub fn new(options: MemberOptions) -> Result<Arc<Self>, IdentityError> {
        let MemberOptions { local, storage, clock, transport, generation, hints, .. } = &options;
        let schema = storage.schema();
        let (gossip, noted_millis) = Gossip::new(&options)?;
        let timeout = options.rpc_timeout;
        let messenger = Messenger::new(*local, timeout, Arc::clone(clock), Arc::clone(transport));
        let messenger = Arc::new(messenger.starting_at(*generation));
        let hinting = |store: &Arc<HintStore>| {
            Arc::new(Hinting::new(Arc::clone(store), options.hints_wait_for_sync))
        };
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(schema),
            partitioner: storage.partitioner(),
            placements: options.placements.clone(),
            ring: gossip.membership.members().ring.clone(),
            peers: Peers::default(),
            local: *local,
            replica: Arc::clone(&options.replica),
            messenger: Arc::clone(&messenger),
            hinting: hints.as_ref().map(hinting),
            reads: options.reads.clone(),
        });
        let drops = Arc::new(Drops::default());
        let at_start = match &options.token {
            Some(_) => Readiness::Complete,
            None => Readiness::Unsure,
        };
        let readiness = Arc::new(OwnReadiness::new(at_start));
        let responder = responder(&options, &messenger, &drops, &readiness);
        let runs_inline = options.replica.runs_inline();
        let blocking = if runs_inline { Blocking::Inline } else { Blocking::Elsewhere };
        let handoff = hints.clone().map(|hints| {
            let (schema, messenger) = (Arc::clone(schema), Arc::clone(&messenger));
            let pause = options.handoff_pause;
            Handoff::new(HandoffOptions { hints, schema, messenger, pause, blocking })
        });
        let operations = OperationsOptions {
            storage: Arc::clone(storage),
            messenger: Arc::clone(&messenger),
            placements: options.placements.clone(),
            clock: Arc::clone(clock),
            host: Weak::<Self>::new(),
            blocking,
            bytes_per_second: options.stream_bytes_per_second,
            seed: options.seed,
        };
        let gossip = Mutex::new(gossip);
        let MemberOptions { local, seeds, storage, clock, transport, hints, .. } = options;
        Ok(Arc::new_cyclic(|me: &Weak<Self>| Self {
            operations: Operations::new(OperationsOptions { host: me.clone(), ..operations }),
            local,
            seeds,
            storage,
            log: gossip_log(&clock),
            own_log: gossip_log(&clock),
            clock,
            transport,
            messenger,
            coordinator,
            responder,
            hints,
            handoff,
            drops,
            readiness,
            blocking,
            last_note: Mutex::new(noted_millis),
            gossip,
        }))
    }

    /// What serves the requests of clients.
    pub fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Messages that were not acted on.
    pub fn drops(&self) -> &Arc<Drops> {
        &self.drops
    }

    /// The address by which other nodes know it.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// What changes the ring.
    pub fn operations(&self) -> &Arc<Operations> {
        &self.operations
    }

    /// What is kept for nodes that are down; `None` with `HintedHandoffEnabled` off.
    pub fn hints(&self) -> Option<&Arc<HintStore>> {
        self.hints.as_ref()
    }

    /// Requests to other nodes that wait for answers.
    pub fn pending_requests(&self) -> usize {
        self.messenger.pending()
    }

    /// Has hints delivered at the next round of gossip to a node that is alive, although an
    /// earlier delivery failed a moment ago. Whether they had to wait for that.
    pub fn hasten_hints(&self, endpoint: IpAddr) -> bool {
        self.handoff.as_ref().is_some_and(|handoff| handoff.hasten(endpoint))
    }

    /// What is being done about the hints for a target, at this monotonic time; `None` with
    /// `HintedHandoffEnabled` off.
    pub fn handoff_state(&self, target: IpAddr, now: Duration) -> Option<HandoffState> {
        self.handoff.as_ref().map(|handoff| handoff.state_of(target, now))
    }

    /// Deliveries of hints that are under way, and how many have ended since the start; `None` with
    /// `HintedHandoffEnabled` off.
    pub fn deliveries(&self) -> Option<(usize, u64)> {
        self.handoff.as_ref().map(|handoff| handoff.deliveries())
    }

    /// Takes a node back that was removed from the ring, with the data that it has: at once if it
    /// has been started since, else when it is. Only this node does so. Returns whether it is back
    /// in the ring; `None` if no such node was removed. May wait for the disk.
    pub fn allow_return(&self, endpoint: IpAddr) -> Option<bool> {
        let mut gossip = self.lock();
        let Gossip { gossiper, membership, .. } = &mut *gossip;
        let changes = membership.allow_return(endpoint, gossiper.state(endpoint))?;
        for change in changes {
            self.follow(&mut gossip, endpoint, change);
        }
        self.tell_of_ring(&mut gossip);
        let is_back = gossip.membership.members().is_member(endpoint);
        self.write_notes(gossip);
        if let Err(error) = self.storage.sync() {
            log::warn!("that {endpoint} may come back is not saved: {error}");
        }
        Some(is_back)
    }

    /// Takes nodes for dead above this phi, from the next round of gossip on.
    pub fn set_phi_convict_threshold(&self, threshold: f64) {
        self.lock().gossiper.set_phi_convict_threshold(threshold);
    }

    /// Announces the fingerprint of what all nodes have to agree on. To be called before
    /// [`Member::run`].
    pub fn announce_schema(&self, fingerprint: &str) {
        announce(&mut self.lock().gossiper, SCHEMA_STATE, fingerprint);
    }

    /// Looks at what gossip knows.
    pub fn with_gossip<T>(&self, look: impl FnOnce(&Gossiper, &Membership) -> T) -> T {
        let gossip = self.lock();
        look(&gossip.gossiper, &gossip.membership)
    }

    /// Takes part in the ring until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        self.begin();
        tokio::join!(self.take_part(&stop), self.give_up_in_time(&stop));
        self.operations.stop().await;
        if let Some(handoff) = &self.handoff {
            handoff.stop().await;
        }
    }

    /// Gives up requests whose time is over. What becomes a hint by that is written where a slow
    /// disk does not hold up gossip; one look after the other, so that hints keep their order, and
    /// none is under way at the end.
    async fn give_up_in_time(&self, stop: &CancellationToken) {
        let mut ticks = every(UPKEEP_INTERVAL);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let (coordinator, clock) = (Arc::clone(&self.coordinator), Arc::clone(&self.clock));
            let look = move || coordinator.upkeep(clock.monotonic());
            if let Err(error) = self.blocking.run(look).await {
                log::error!("requests were not given up in time: {error}");
            }
        }
    }

    async fn take_part(&self, stop: &CancellationToken) {
        let (mut gossip, mut drops) = (every(GOSSIP_INTERVAL), every(DROPS_INTERVAL));
        let mut load = tokio::time::interval_at(
            tokio::time::Instant::now() + LOAD_INTERVALS.0,
            LOAD_INTERVALS.1,
        );
        gossip.reset();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = gossip.tick() => self.gossip_round(),
                _ = load.tick() => self.announce_load(),
                _ = drops.tick() => self.tell_of_drops(),
            }
        }
    }

    /// Ends what others wait for, or this node from others, when the connections are closed. What
    /// was not acknowledged becomes hints.
    pub async fn finish(&self) {
        self.responder.drain().await;
        self.messenger.give_up_all();
    }

    /// Draws conclusions from what a snitch says now.
    pub fn refresh(&self) {
        self.publish(&self.lock());
    }

    fn begin(&self) {
        let mut gossip = self.lock();
        let partitioner = self.storage.partitioner();
        let value = gossip.place.as_ref().map(|place| place.format(partitioner));
        let read = value.as_ref().map(|value| Move::parse(partitioner, value).ok().flatten());
        if read.flatten() != gossip.place {
            let value = value.unwrap_or_default();
            log::error!(
                "other nodes read another place out of \"{value}\" than this node has: its \
                 token must not have a comma. Start it anew with empty directories and another \
                 InitialToken"
            );
        }
        self.announce_place(&mut gossip);
        announce(&mut gossip.gossiper, EXTENSIONS_STATE, &extensions::ALL.join(","));
        if self.readiness.get() < Readiness::Complete {
            self.announce_readiness(&mut gossip);
        }
        self.announce_removals(&mut gossip);
        announce(&mut gossip.gossiper, VERSION_STATE, env!("CARGO_PKG_VERSION"));
        if let Some(handoff) = &self.handoff {
            handoff.start(&gossip.membership.members().ring);
        }
        gossip.has_started = true;
        let effects = gossip.gossiper.start(self.clock.monotonic());
        self.coordinator.trust_until(gossip.gossiper.trusted_until());
        self.act(&mut gossip, effects);
        self.write_notes(gossip);
    }

    fn gossip_round(&self) {
        let mut gossip = self.lock();
        if gossip.announce_at.is_some_and(|at| at <= self.clock.monotonic()) {
            gossip.announce_at = None;
            self.announce_place(&mut gossip);
        }
        let effects = gossip.gossiper.tick(self.clock.monotonic());
        self.act(&mut gossip, effects);
        // After the view, so that no request is served by the old one.
        self.coordinator.trust_until(gossip.gossiper.trusted_until());
        self.deliver_hints(&gossip.gossiper);
        self.write_notes(gossip);
        self.operations.tidy();
    }

    /// Begins to deliver hints to those who are there, as far as it is not under way.
    fn deliver_hints(&self, gossiper: &Gossiper) {
        let Some(handoff) = &self.handoff else { return };
        let now = self.clock.monotonic();
        for (target, recipient) in self.hints.iter().flat_map(|hints| hints.waiting()) {
            let is_fresh = |silence| silence <= FRESH_NEWS;
            let is_there = gossiper.is_alive(recipient)
                && takes_writes(gossiper, recipient)
                && gossiper.silence(recipient, now).is_some_and(is_fresh);
            if is_there && handoff.is_due(target, now) {
                handoff.begin(target);
            }
        }
    }

    fn on_gossip(&self, kind: MessageKind, message: &Message<'_>) {
        let from = message.from;
        match GossipMessage::decode(kind, message.body) {
            Ok(decoded) => {
                let mut gossip = self.lock();
                if gossip.has_started {
                    let now = self.clock.monotonic();
                    let effects = gossip.gossiper.receive(from, decoded, now);
                    self.act(&mut gossip, effects);
                    self.write_notes(gossip);
                }
            }
            Err(error) => {
                let line = format_args!("a gossip message of {from} is not sound: {error}");
                self.messenger.warn(from, line);
            }
        }
    }

    /// Does what follows from what gossip has found out.
    fn act(&self, gossip: &mut Gossip, effects: Effects) {
        let Effects { events, messages } = effects;
        let mut is_changed = false;
        for event in events {
            let about = event.about().unwrap_or(self.local);
            self.log.log(event.level(), about, format_args!("{event}"));
            let removal = Self::removal_by_original(gossip, &event);
            for change in gossip.membership.follow(&event) {
                is_changed |= self.follow(gossip, about, change);
            }
            if let Some((by, before)) = removal {
                self.restore(gossip, by, &before);
            }
            self.warn_of_other_schema(gossip, &event);
            is_changed |= self.notice(&gossip.gossiper, &event);
        }
        if is_changed {
            self.take_back_removal(gossip);
            self.tell_of_ring(gossip);
        }
        for (to, message) in messages {
            self.send(to, &message);
        }
    }

    /// Says which nodes were removed, if that is news.
    fn announce_removals(&self, gossip: &mut Gossip) {
        let value = gossip.membership.removed_state();
        let own = gossip.gossiper.state(self.local);
        if own.and_then(|own| own.value(REMOVED_STATE)).unwrap_or_default() != value {
            announce(&mut gossip.gossiper, REMOVED_STATE, &value);
        }
    }

    /// The ring is another now, or somebody in it is.
    fn tell_of_ring(&self, gossip: &mut Gossip) {
        self.announce_removals(gossip);
        let members = gossip.membership.members().endpoints();
        gossip.gossiper.set_members(members);
        self.publish(gossip);
        if let Some(handoff) = &self.handoff {
            handoff.follow(&gossip.membership.members().ring);
        }
    }

    /// This node has removed the owner of a token, and says so. As soon as another node is there,
    /// or is about to be, it says so no more: who starts later would take it for the removed one.
    fn take_back_removal(&self, gossip: &mut Gossip) {
        let Some(Move::Normal { token, removed: Some(removed) }) = &gossip.place else { return };
        let members = gossip.membership.members();
        let is_taken = members.ring.owner(removed).is_some()
            || members.bootstrapping.values().any(|token| token == removed);
        if is_taken {
            gossip.place = Some(Move::Normal { token: token.clone(), removed: None });
            self.announce_place(gossip);
        }
    }

    /// A node that is configured in another way has to be looked at, since requests through it end
    /// up elsewhere. Told whenever it announces that, which is once for each of its starts.
    fn warn_of_other_schema(&self, gossip: &Gossip, event: &GossipEvent) {
        let GossipEvent::StateChanged { endpoint, name, state, .. } = event else { return };
        let own = gossip.gossiper.state(self.local).and_then(|own| own.value(SCHEMA_STATE));
        if name == SCHEMA_STATE && own.is_some_and(|own| own != state.value) {
            let line = format_args!(
                "{endpoint} is configured with another schema, replication, partitioner or \
                 GCGraceSeconds than this node: its storage-conf.xml has to say the same. See \
                 nodetool describecluster"
            );
            self.log.warn(*endpoint, line);
        }
    }

    /// What an event means besides the ring. Whether it changes what coordinators have to know.
    fn notice(&self, gossiper: &Gossiper, event: &GossipEvent) -> bool {
        match event {
            GossipEvent::Up { endpoint } | GossipEvent::Restarted { endpoint, .. } => {
                if let GossipEvent::Restarted { .. } = event {
                    // Its old connections lead nowhere.
                    self.transport.disconnect(*endpoint);
                }
                if takes_writes(gossiper, *endpoint) {
                    self.hand_off(*endpoint);
                }
                true
            }
            GossipEvent::Down { endpoint } => {
                self.transport.disconnect(*endpoint);
                if let Some(handoff) = &self.handoff {
                    handoff.interrupt(*endpoint);
                }
                true
            }
            GossipEvent::StateChanged { name, .. } => {
                [EXTENSIONS_STATE, READS_STATE, REMOVED_STATE].contains(&name.as_str())
            }
            GossipEvent::OwnGenerationRaised { generation }
            | GossipEvent::OwnGenerationLowered { generation } => {
                let saved = system::save_generation(&self.storage, *generation);
                if let Err(error) = saved {
                    let line = format_args!("the generation {generation} is not saved: {error}");
                    self.own_log.log(Level::Error, "generation", line);
                }
                true
            }
            GossipEvent::GenerationConflict(_) | GossipEvent::OwnGenerationAccepted => true,
            _ => false,
        }
    }

    /// Does what a change of the ring asks for, for which a node gave reason. Returns whether the
    /// ring is another now.
    fn follow(&self, gossip: &mut Gossip, about: IpAddr, change: MembershipChange) -> bool {
        match change {
            MembershipChange::Ring => return true,
            MembershipChange::SaveToken { endpoint, token } => {
                gossip.notes.push(RingNote::Owns(endpoint, token));
            }
            MembershipChange::ForgetToken { endpoint } => {
                gossip.notes.push(RingNote::OwnsNothing(endpoint));
            }
            MembershipChange::Removed(RemovedNode { endpoint, token, generation, .. }) => {
                gossip.gossiper.forget(endpoint, self.clock.monotonic());
                gossip.notes.push(RingNote::Removed(endpoint, token, generation));
                self.discard_hints(endpoint);
            }
            MembershipChange::MayReturn(RemovedNode { endpoint, token, generation, .. }) => {
                gossip.notes.push(RingNote::MayReturn(endpoint, token, generation));
            }
            MembershipChange::Readmitted { endpoint, token, generation } => {
                gossip.notes.push(RingNote::Readmitted(endpoint, token, generation));
            }
            MembershipChange::Reannounce => {
                // Who hears it before it knows that the token is free needs to hear it again.
                gossip.announce_at = Some(self.clock.monotonic() + RING_DELAY);
                self.announce_place(gossip);
            }
            MembershipChange::Notice(notice) => {
                self.log.log(notice.level(), about, format_args!("{notice}"));
            }
        }
        false
    }

    /// Lets go of the lock, and writes down what was noted under it for the next start. Without it
    /// that start learns it from others.
    fn write_notes(&self, gossip: MutexGuard<'_, Gossip>) {
        let is_any = !gossip.notes.is_empty();
        drop(gossip);
        if !is_any {
            return;
        }
        let mut last = self.last_note.lock();
        let notes = std::mem::take(&mut self.lock().notes);
        // A ring that is saved without a node does not say who has taken its place: that comes
        // first.
        if let Some(Err(error)) = self.hints.as_ref().map(|hints| hints.write_owners()) {
            let line =
                format_args!("who gets the hints of a node that has moved is not saved: {error}");
            self.messenger.warn(self.local, line);
        }
        for note in notes {
            // Of two notes about one node the later one counts, also if both are of one
            // millisecond.
            *last = self.clock.coarse_millis().max(last.saturating_add(1));
            if let Err(error) = note.write(&self.storage, *last) {
                self.messenger.warn(self.local, format_args!("the ring is not saved: {error}"));
            }
        }
    }

    /// Nobody will come back for these.
    fn discard_hints(&self, endpoint: IpAddr) {
        let Some(hints) = &self.hints else { return };
        let waiting = hints.waiting().into_iter().filter(|(_, recipient)| *recipient == endpoint);
        for (target, _) in waiting {
            let line = format_args!(
                "Hints found for endpoint {target} which is not part of the gossip network.  \
                 discarding."
            );
            self.messenger.log(Level::Info, target, line);
            hints.discard(target);
        }
    }

    /// Tells the coordinator of the ring as it is now.
    fn publish(&self, gossip: &Gossip) {
        let members = gossip.membership.members();
        // Who does not acknowledge writes is not waited for, though it has come or gone just now.
        let gossiper = &gossip.gossiper;
        let ring = members.with_pending(|it| gossiper.is_alive(it) && takes_writes(gossiper, it));
        let known: Vec<IpAddr> =
            gossip.gossiper.endpoints().map(|(endpoint, _)| endpoint).collect();
        let announce = |extension: &str| -> BTreeSet<IpAddr> {
            let announces = |it: &&IpAddr| gossip.gossiper.announces(**it, extension);
            known.iter().filter(announces).copied().collect()
        };
        let checksums = announce(extensions::CHECKSUMS);
        for endpoint in known.iter().filter(|it| **it != self.local) {
            self.transport.set_checksums(*endpoint, checksums.contains(endpoint));
        }
        let live = known.iter().copied().filter(|it| gossip.gossiper.is_alive(*it)).collect();
        let peers = Peers {
            live,
            full_digests: announce(extensions::FULL_DIGESTS),
            refusals: announce(extensions::REFUSALS),
            incomplete: self.incomplete(gossip),
            unsure: known.iter().copied().filter(|it| !takes_writes(gossiper, *it)).collect(),
            removed: gossip.membership.turned_away().collect(),
            is_self_removed: removal::is_told(gossiper, members, self.local),
        };
        if peers.is_self_removed != self.coordinator.peers().is_self_removed {
            removal::log(&self.own_log, peers.is_self_removed);
        }
        self.coordinator.set_ring(ring, peers);
    }

    /// Who collects the data of its place, and is not read from meanwhile. Nor is this node if
    /// others take it for dead, and so do not send it what is written, or if it is not alone any
    /// more and others have not said whether it had data.
    fn incomplete(&self, gossip: &Gossip) -> BTreeSet<IpAddr> {
        let gossiper = &gossip.gossiper;
        let others = gossiper.endpoints().map(|(endpoint, _)| endpoint);
        let others = others
            .filter(|it| *it != self.local && readiness::of(gossiper, *it) < Readiness::Complete);
        let is_other = |it: &IpAddr| *it != self.local && gossiper.is_alive(*it);
        let lacks_data = match self.readiness.get() {
            Readiness::Unsure | Readiness::Placed => true,
            Readiness::Alone => gossip.membership.members().endpoints().iter().any(is_other),
            Readiness::Complete => gossiper.is_refused(),
        };
        others.chain(lacks_data.then_some(self.local)).collect()
    }

    /// Says how far others may rely on this node.
    fn announce_readiness(&self, gossip: &mut Gossip) {
        let value = readiness::text(self.readiness.get());
        announce(&mut gossip.gossiper, READS_STATE, value);
    }

    fn send(&self, to: IpAddr, message: &GossipMessage) {
        let verb = match message.kind() {
            MessageKind::Syn => Verb::GossipDigestSyn,
            MessageKind::Ack => Verb::GossipDigestAck,
            MessageKind::Ack2 => Verb::GossipDigestAck2,
        };
        let sent = message.encode().and_then(|body| self.messenger.send(verb, &body, to));
        if let Err(error) = sent {
            let line = format_args!("{to} cannot be told what this node knows: {error}");
            self.messenger.log(Level::Error, to, line);
        }
    }

    fn hand_off(&self, endpoint: IpAddr) {
        if let Some(handoff) = &self.handoff {
            handoff.begin_to(endpoint);
        }
    }

    fn announce_load(&self) {
        let stores = self.storage.families();
        let bytes: u64 = stores.map(|store| store.statistics().live_bytes).sum();
        announce(&mut self.lock().gossiper, LOAD_STATE, &format!("{bytes}.0"));
    }

    fn tell_of_drops(&self) {
        for (verb, count) in self.drops.news() {
            log::warn!("Dropped {count} {verb} messages in the last 5000ms");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gossip> {
        self.gossip.lock()
    }
}

fn gossip_log<S: Ord>(clock: &Arc<dyn Clock>) -> LimitedLog<S> {
    let log = LimitedLog::new("alexandra::gossip", Arc::clone(clock), LOG_INTERVAL);
    log.with_burst(LOG_BURST)
}

fn responder(
    options: &MemberOptions,
    messenger: &Arc<Messenger>,
    drops: &Arc<Drops>,
    readiness: &Arc<OwnReadiness>,
) -> Arc<Responder> {
    Responder::new(ResponderOptions {
        replica: Arc::clone(&options.replica),
        schema: Arc::clone(options.storage.schema()),
        partitioner: options.storage.partitioner(),
        messenger: Arc::clone(messenger),
        hints: options.hints.clone(),
        local: options.local,
        drops: Arc::clone(drops),
        readiness: Arc::clone(readiness),
    })
}

/// Whether a node acknowledges writes, and hints as well: until it knows its place they would only
/// time out.
fn takes_writes(gossiper: &Gossiper, endpoint: IpAddr) -> bool {
    readiness::of(gossiper, endpoint) > Readiness::Unsure
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    // What was missed is not made up for: a burst of rounds would say nothing.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// This node says something of itself.
fn announce(gossiper: &mut Gossiper, name: &str, value: &str) {
    if let Err(error) = gossiper.set_state(name, value) {
        log::error!("other nodes cannot be told {name}: {error}");
    }
}

#[cfg(test)]
mod tests;
