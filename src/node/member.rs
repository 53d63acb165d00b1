//! A node among others: gossip and its consequences, messages in and out, hints.
//!
//! ```text
//!   peers --> receive --+--> responder    requests to this node as a replica
//!                       +--> messenger    answers to this node's requests
//!                       +--> gossip       live nodes and their places
//!                              |
//!                              +--> coordinator    the present ring
//!                              +--> handoff        hints for nodes that are back
//! ```

mod gossip;
mod host;
mod receiver;
mod registers;
mod settings;
mod settle;

pub(super) use settle::JOIN_PATIENCE;

use gossip::{Gossip, is_told_of_removal, readiness_of, readiness_text};

use super::handoff::Handoff;
use crate::base::clock::Clock;
use crate::base::limited_log::LimitedLog;
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::base::worker::Spawner;
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
use crate::replica::{HintStore, OwnReadiness, Readiness, Replica, Responder, ResponderOptions};
use crate::ring::{KeyspacePlacements, ReplicaPlacement, Token};
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

/// Time between two searches for requests whose time is over.
const UPKEEP_INTERVAL: Duration = Duration::from_millis(100);

/// Target of lines about gossip.
const GOSSIP_LOG: &str = "alexandra::gossip";

/// Time between two lines about a node that is kept out.
const OUTSIDERS_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two reports of dropped messages.
const DROPS_INTERVAL: Duration = Duration::from_secs(5);

/// Time until the first announcement of the size of the data, and between further ones.
const LOAD_INTERVALS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// Longest silence of a node to which deliveries of hints begin: a node that is silent for longer
/// may be dead and not convicted yet.
const FRESH_NEWS: Duration = Duration::from_secs(3);

/// Parts and settings of a [`Member`].
#[derive(Debug)]
pub struct MemberOptions {
    /// Its address.
    pub local: IpAddr,
    /// Nodes of other clusters are ignored.
    pub cluster_name: String,
    /// Nodes that are asked for the ring.
    pub seeds: Vec<IpAddr>,
    /// Its place on the ring; `None` if it is to join, or may lack data of its place.
    pub token: Option<Token>,
    /// Whether others are asked whether they remember the address before they hear of this start.
    pub asks_first: bool,
    /// The dead member whose place the last start was about to take, maybe without announcing it.
    /// It counts as removed again when others hear of that.
    pub replaced: Option<NodePlace>,
    /// Number of this start.
    pub generation: i32,
    /// `PhiConvictThreshold`.
    pub phi_convict_threshold: f64,
    /// `RpcTimeoutInMillis`.
    pub rpc_timeout: Duration,
    /// Replica placement of each keyspace.
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
    /// Settings of reads.
    pub reads: ReadOptions,
    /// Carries messages.
    pub transport: Arc<dyn Transport>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Seed of random choices.
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
    /// Lines about gossip, by the node that caused them.
    log: LimitedLog<IpAddr>,
    /// Lines about nodes that are kept out, which try again each second.
    outsiders: LimitedLog<IpAddr>,
    /// Lines about this node itself, by kind. Lines that others cause do not crowd them out.
    own_log: LimitedLog<&'static str>,
    placements: Arc<KeyspacePlacements>,
    coordinator: Arc<Coordinator>,
    responder: Arc<Responder>,
    /// `None` with `HintedHandoffEnabled` off.
    handoff: Option<Arc<Handoff>>,
    drops: Arc<Drops>,
    operations: Arc<Operations>,
    /// Whether this node has its place and the data for it.
    readiness: Arc<OwnReadiness>,
    /// Writes hints for nodes that did not answer in time.
    spawner: Spawner,
    /// The time of the last note about the ring, in milliseconds since 1970. Held while notes are
    /// written, so that they keep their order, and taken before the lock of gossip.
    last_note: Mutex<rank::Membership, u64>,
    /// Locked while a message is handled; nothing waits under it.
    gossip: Mutex<rank::Gossip, Gossip>,
}

impl Member {
    /// A node with the saved ring. Nothing is sent before [`Member::run`].
    pub fn new(options: MemberOptions) -> Result<Arc<Self>, IdentityError> {
        options.replica.look_for_later_data()?;
        let (gossip, noted_millis) = Gossip::new(&options)?;
        Ok(Arc::new_cyclic(|me| Self::assemble(options, gossip, noted_millis, me)))
    }

    fn assemble(options: MemberOptions, gossip: Gossip, noted: u64, me: &Weak<Self>) -> Self {
        let spawner = options.replica.spawner();
        let MemberOptions { local, seeds, storage, clock, transport, hints, .. } = options;
        let placements = Arc::new(KeyspacePlacements::from(options.placements));
        let (schema, drops) = (storage.schema(), Arc::<Drops>::default());
        let messenger =
            Messenger::new(local, options.rpc_timeout, Arc::clone(&clock), Arc::clone(&transport));
        let messenger = Arc::new(messenger.starting_at(options.generation));
        let hinting =
            |it: &Arc<_>| Arc::new(Hinting::new(Arc::clone(it), options.hints_wait_for_sync));
        let coordinator = Coordinator::new(CoordinatorOptions {
            schema: Arc::clone(schema),
            partitioner: storage.partitioner(),
            placements: Arc::clone(&placements),
            ring: gossip.membership.members().ring.clone(),
            peers: Peers::default(),
            local,
            replica: Arc::clone(&options.replica),
            messenger: Arc::clone(&messenger),
            hinting: hints.as_ref().map(hinting),
            reads: options.reads,
            seed: options.seed,
        });
        let readiness = Arc::new(OwnReadiness::new(readiness_at_start(options.token.is_some())));
        let responder = Responder::new(ResponderOptions {
            replica: options.replica,
            schema: Arc::clone(schema),
            partitioner: storage.partitioner(),
            messenger: Arc::clone(&messenger),
            hints: hints.clone(),
            local,
            drops: Arc::clone(&drops),
            readiness: Arc::clone(&readiness),
        });
        let handoff = hints.map(|hints| {
            let (schema, messenger) = (Arc::clone(schema), Arc::clone(&messenger));
            Handoff::new(hints, schema, messenger, options.handoff_pause, spawner)
        });
        let operations = Operations::new(OperationsOptions {
            storage: Arc::clone(&storage),
            messenger: Arc::clone(&messenger),
            placements: Arc::clone(&placements),
            clock: Arc::clone(&clock),
            host: me.clone(),
            spawner,
            bytes_per_second: options.stream_bytes_per_second,
            seed: options.seed,
        });
        Self {
            local,
            seeds,
            storage,
            log: gossip_log(&clock),
            outsiders: LimitedLog::new(GOSSIP_LOG, Arc::clone(&clock), OUTSIDERS_INTERVAL),
            own_log: gossip_log(&clock),
            clock,
            transport,
            messenger,
            placements,
            coordinator,
            responder,
            handoff,
            drops,
            operations,
            readiness,
            spawner,
            last_note: Mutex::new(noted),
            gossip: Mutex::new(gossip),
        }
    }

    /// Serves the requests of clients.
    pub fn coordinator(&self) -> &Arc<Coordinator> {
        &self.coordinator
    }

    /// Where the rows of each keyspace are. After a change the node has to
    /// [refresh](Self::refresh).
    pub fn placements(&self) -> &Arc<KeyspacePlacements> {
        &self.placements
    }

    /// Counts of messages that were not handled.
    pub fn drops(&self) -> &Arc<Drops> {
        &self.drops
    }

    /// The address by which other nodes know it.
    pub fn local(&self) -> IpAddr {
        self.local
    }

    /// Changes of the ring, and repair.
    pub fn operations(&self) -> &Arc<Operations> {
        &self.operations
    }

    /// Hints for nodes that are down; `None` with `HintedHandoffEnabled` off.
    pub fn hints(&self) -> Option<&Arc<HintStore>> {
        self.handoff.as_ref().map(|handoff| &handoff.hints)
    }

    /// Deliveries of hints; `None` with `HintedHandoffEnabled` off.
    pub fn handoff(&self) -> Option<&Arc<Handoff>> {
        self.handoff.as_ref()
    }

    /// Number of requests to other nodes that wait for answers.
    pub fn pending_requests(&self) -> usize {
        self.messenger.pending()
    }

    /// Takes a removed node back into the ring with its old data: at once if it has been restarted
    /// since, else when it is. Only this node does so. Returns whether it is back in the ring;
    /// `None` if no such node was removed. May wait for the disk.
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

    /// Reads the state of gossip.
    pub fn with_gossip<T>(&self, look: impl FnOnce(&Gossiper, &Membership) -> T) -> T {
        let gossip = self.lock();
        look(&gossip.gossiper, &gossip.membership)
    }

    /// Takes part in the ring until `stop` is cancelled.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        self.begin();
        let replaying = stop.run_until_cancelled(self.coordinator.replay_batches());
        tokio::join!(self.take_part(&stop), self.give_up_in_time(&stop), replaying);
        self.operations.stop().await;
        if let Some(handoff) = &self.handoff {
            handoff.stop().await;
        }
    }

    /// Gives up requests whose time is over. The hints for them are written off the thread of
    /// gossip; one search after the other, so that hints keep their order and none is under way at
    /// the end.
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
            if let Err(error) = self.spawner.run(look).await {
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

    /// Ends pending requests of and to other nodes, when the connections are closed. Unacknowledged
    /// messages become hints.
    pub async fn finish(&self) {
        self.responder.drain().await;
        self.messenger.give_up_all();
    }

    /// Publishes the ring again, after a snitch or a placement has changed.
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
        let news = self.compare_registers(&mut gossip);
        self.write_notes(gossip);
        self.learn(news);
        self.operations.tidy();
    }

    /// Begins deliveries of hints to live nodes.
    fn deliver_hints(&self, gossiper: &Gossiper) {
        let Some(handoff) = &self.handoff else { return };
        let now = self.clock.monotonic();
        for (target, recipient) in handoff.hints.waiting() {
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
                if self.keeps_out(&gossip, message) {
                    drop(gossip);
                    self.turn_away(from, &decoded);
                } else if gossip.has_started {
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

    /// Whether a message is of a node of 0.6 that is no member and must not become one.
    fn keeps_out(&self, gossip: &Gossip, message: &Message<'_>) -> bool {
        let (from, gossiper) = (message.from, &gossip.gossiper);
        let is_ours = message.header(&extensions::OF_OURS.name).is_some()
            || gossiper.announces(from, extensions::CALLS);
        let is_member = || gossip.membership.members().is_member(from);
        !is_ours && !is_member() && self.coordinator.has_later_data()
    }

    /// Tells both sides that a node of 0.6 is kept out. All that such a node logs of the messages
    /// of others is the name of their cluster, where it differs from its own.
    fn turn_away(&self, from: IpAddr, message: &GossipMessage) {
        let line = format_args!(
            "{from} is a node of Apache Cassandra 0.6, and is kept out of the ring: there are \
             tables made over CQL, row keys that are not text, values that expire, or deletions \
             of ranges, which it cannot have. Start a node of this server in its place"
        );
        self.outsiders.log(Level::Error, from, line);
        if let GossipMessage::Syn { cluster_name, .. } = message {
            let cluster_name = format!(
                "{cluster_name} (KEPT OUT of the ring by {}: its data need more than 0.6 has)",
                self.local
            );
            self.send(from, &GossipMessage::Syn { cluster_name, digests: Vec::new() });
        }
    }

    /// Handles the effects of gossip.
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

    /// Announces removed nodes, if they have changed.
    fn announce_removals(&self, gossip: &mut Gossip) {
        let value = gossip.membership.removed_state();
        let own = gossip.gossiper.state(self.local);
        if own.and_then(|own| own.value(REMOVED_STATE)).unwrap_or_default() != value {
            announce(&mut gossip.gossiper, REMOVED_STATE, &value);
        }
    }

    /// Passes a changed ring, or a changed node in it, to gossip, coordinator and hints.
    fn tell_of_ring(&self, gossip: &mut Gossip) {
        self.announce_removals(gossip);
        let members = gossip.membership.members().endpoints();
        gossip.gossiper.set_members(members);
        self.publish(gossip);
        if let Some(handoff) = &self.handoff {
            handoff.follow(&gossip.membership.members().ring);
        }
    }

    /// Stops announcing that this node removed the owner of a token, as soon as another node owns
    /// it or joins there: nodes that start later would take it for the removed one.
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

    /// Warns of a node with other settings, once for each of its starts: requests through it go to
    /// other replicas.
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

    /// Handles an event apart from the ring. Returns whether the coordinator has to hear of it.
    fn notice(&self, gossiper: &Gossiper, event: &GossipEvent) -> bool {
        match event {
            GossipEvent::Up(endpoint) | GossipEvent::Restarted { endpoint, .. } => {
                if let GossipEvent::Restarted { .. } = event {
                    // Its old connections lead nowhere.
                    self.transport.disconnect(*endpoint);
                }
                if takes_writes(gossiper, *endpoint)
                    && let Some(handoff) = &self.handoff
                {
                    handoff.begin_to(*endpoint);
                }
                true
            }
            GossipEvent::Down(endpoint) => {
                self.transport.disconnect(*endpoint);
                if let Some(handoff) = &self.handoff {
                    handoff.interrupt(*endpoint);
                }
                true
            }
            GossipEvent::StateChanged { name, .. } => {
                [EXTENSIONS_STATE, READS_STATE, REMOVED_STATE].contains(&name.as_str())
            }
            GossipEvent::OwnGenerationRaised(generation)
            | GossipEvent::OwnGenerationLowered(generation) => {
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

    /// Carries out a change of the ring that a node caused. Returns whether the ring has changed.
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
                // A node that hears it before it knows that the token is free needs it again.
                gossip.announce_at = Some(self.clock.monotonic() + RING_DELAY);
                self.announce_place(gossip);
            }
            MembershipChange::Notice(notice) => {
                self.log.log(notice.level(), about, format_args!("{notice}"));
            }
        }
        false
    }

    /// Releases the lock, and saves the notes taken under it for the next start. Without them that
    /// start learns the ring from others.
    fn write_notes(&self, gossip: MutexGuard<'_, Gossip>) {
        let is_any = !gossip.notes.is_empty();
        drop(gossip);
        if !is_any {
            return;
        }
        let mut last = self.last_note.lock();
        let notes = std::mem::take(&mut self.lock().notes);
        // First, since a saved ring without a node does not say which node took its place.
        if let Some(Err(error)) = self.hints().map(|hints| hints.write_owners()) {
            let line =
                format_args!("who gets the hints of a node that has moved is not saved: {error}");
            self.messenger.warn(self.local, line);
        }
        for note in notes {
            // Of two notes about one node the later counts, also within one millisecond.
            *last = self.clock.coarse_millis().max(last.saturating_add(1));
            if let Err(error) = note.write(&self.storage, *last) {
                self.messenger.warn(self.local, format_args!("the ring is not saved: {error}"));
            }
        }
    }

    /// Discards the hints for a removed node.
    fn discard_hints(&self, endpoint: IpAddr) {
        let Some(hints) = self.hints() else { return };
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

    /// Passes the present ring to the coordinator.
    fn publish(&self, gossip: &Gossip) {
        let members = gossip.membership.members();
        // Nodes that do not acknowledge writes do not count as just arrived or left.
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
        self.messenger.set_cells(announce(extensions::CELLS));
        let live = known.iter().copied().filter(|it| gossip.gossiper.is_alive(*it)).collect();
        let peers = Peers {
            live,
            full_digests: announce(extensions::FULL_DIGESTS),
            refusals: announce(extensions::REFUSALS),
            registers: announce(extensions::REGISTERS),
            batches: announce(extensions::BATCHES),
            incomplete: self.incomplete(gossip),
            unsure: known.iter().copied().filter(|it| !takes_writes(gossiper, *it)).collect(),
            removed: gossip.membership.turned_away().collect(),
            is_self_removed: is_told_of_removal(gossiper, members, self.local),
        };
        if peers.is_self_removed != self.coordinator.peers().is_self_removed {
            self.log_removal(peers.is_self_removed);
        }
        self.coordinator.set_ring(ring, peers);
    }

    /// Nodes that must not be read from because they still collect the data of their places. So
    /// must this node if others take it for dead, and so send it no writes, or if it is not alone
    /// any more and others have not said whether it had data.
    fn incomplete(&self, gossip: &Gossip) -> BTreeSet<IpAddr> {
        let gossiper = &gossip.gossiper;
        let others = gossiper.endpoints().map(|(endpoint, _)| endpoint);
        let others = others
            .filter(|it| *it != self.local && readiness_of(gossiper, *it) < Readiness::Complete);
        let is_other = |it: &IpAddr| *it != self.local && gossiper.is_alive(*it);
        let lacks_data = match self.readiness.get() {
            Readiness::Unsure | Readiness::Placed => true,
            Readiness::Alone => gossip.membership.members().endpoints().iter().any(is_other),
            Readiness::Complete => gossiper.is_refused(),
        };
        others.chain(lacks_data.then_some(self.local)).collect()
    }

    /// Announces whether others may rely on this node.
    fn announce_readiness(&self, gossip: &mut Gossip) {
        let value = readiness_text(self.readiness.get());
        announce(&mut gossip.gossiper, READS_STATE, value);
    }

    fn send(&self, to: IpAddr, message: &GossipMessage) {
        let verb = match message.kind() {
            MessageKind::Syn => Verb::GossipDigestSyn,
            MessageKind::Ack => Verb::GossipDigestAck,
            MessageKind::Ack2 => Verb::GossipDigestAck2,
        };
        let headers = vec![extensions::OF_OURS];
        let sent =
            message.encode().and_then(|body| self.messenger.send_with(verb, headers, &body, to));
        if let Err(error) = sent {
            let line = format_args!("{to} cannot be told what this node knows: {error}");
            self.messenger.log(Level::Error, to, line);
        }
    }

    /// Logs that the others have removed this node, or have taken it back.
    fn log_removal(&self, is_removed: bool) {
        let (level, line) = if is_removed {
            let line = "this node was removed from the ring, or replaced, while it was cut off: it \
                        serves nobody any more, and clients get UnavailableException. What it has \
                        may lack writes and deletions of that time. Stop it, and let it bootstrap \
                        with empty directories; or take it back as it is by `alexandra nodetool \
                        allowreturn` at every other node, and restart it then";
            (Level::Error, line)
        } else {
            let line = "the other nodes have taken this node back into the ring: it serves again";
            (Level::Warn, line)
        };
        self.own_log.log(level, "removal", format_args!("{line}"));
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
    let log = LimitedLog::new(GOSSIP_LOG, Arc::clone(clock), LOG_INTERVAL);
    log.with_burst(LOG_BURST)
}

/// Whether a node acknowledges writes and hints. Until it knows its place they would time out.
fn takes_writes(gossiper: &Gossiper, endpoint: IpAddr) -> bool {
    readiness_of(gossiper, endpoint) > Readiness::Unsure
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    // Missed rounds are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Sets an application state of this node.
fn announce(gossiper: &mut Gossiper, name: &str, value: &str) {
    if let Err(error) = gossiper.set_state(name, value) {
        log::error!("other nodes cannot be told {name}: {error}");
    }
}

/// A node without a place has still to find out whether it has data.
fn readiness_at_start(has_place: bool) -> Readiness {
    if has_place { Readiness::Complete } else { Readiness::Unsure }
}

#[cfg(test)]
mod tests;
