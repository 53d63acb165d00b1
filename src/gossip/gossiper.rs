//! The gossiper: a node's knowledge of itself and all others, and its exchange with them.

mod catch_up;
mod own_generation;
mod targets;

pub use own_generation::GenerationConflict;

use super::admission::{
    Admission, MAX_ENDPOINTS, MAX_NAME_LENGTH, MAX_STRANGERS, MAX_VALUE_LENGTH, Refusal,
    is_of_a_node, parse_load,
};
use super::endpoint_state::{EndpointState, VersionedValue};
use super::event::GossipEvent;
use super::failure_detector::FailureDetector;
use super::first_question::{Answerer, FirstQuestion};
use super::message::{Digest, GossipMessage};
use super::peers::{Forgotten, Peer, Unheard};
use super::{EXTENSIONS_STATE, LOAD_STATE, MOVE_STATE, RING_DELAY};
use crate::base::java::TooLong;
use crate::ring::Partitioner;
use catch_up::CatchUp;
use own_generation::{Acceptance, CLOCK_DIFFERENCE_SECS};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// Version in a request for a hidden start that tells its node that it is a member of the saved
/// ring. 0.6 saves no ring, and requests version 0 of every endpoint that it does not know.
const VERSION_OF_MEMBER: i32 = 1;

/// Silence after which an endpoint without a place on the ring is forgotten. Half of the time for
/// which forgotten ones are ignored, so that all nodes have forgotten it before one may learn it
/// again.
const FAT_CLIENT_SILENCE: Duration = RING_DELAY.checked_div(2).expect("two is not zero");

/// Rounds in which a starting node contacts all expected nodes that are unheard.
const QUICK_ROUNDS: u32 = 5;

/// Seconds that a generation of another node may be ahead of this node's clock. A node ignores
/// every generation below one that it has accepted, so an accepted wrong one makes it deaf. Clocks
/// may be wrong by much, and a generation that was taken from a wrong clock stays; later versions
/// of the original allow a year. A node raises its own generation above any that others accepted.
const MAX_AHEAD_SECS: i64 = 365 * 24 * 3600;

/// Settings of a gossiper.
#[derive(Debug, Clone)]
pub struct GossiperOptions {
    /// The address of this node.
    pub local: IpAddr,
    /// Nodes of other clusters get no answer.
    pub cluster_name: String,
    /// The partitioner that tokens in states must fit.
    pub partitioner: Partitioner,
    /// Nodes that are contacted when no others are known. The own address is left out.
    pub seeds: Vec<IpAddr>,
    /// The generation of this node, greater than at its last start.
    pub generation: i32,
    /// Endpoints are convicted above this phi.
    pub phi_convict_threshold: f64,
    /// The time, in seconds since 1970.
    pub now_secs: i64,
}

/// Results of an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// Findings in order. To be handled before the messages are sent.
    pub events: Vec<GossipEvent>,
    /// Messages with their recipients.
    pub messages: Vec<(IpAddr, GossipMessage)>,
}

/// A node's knowledge of itself and all others. [`Self::tick`] has to be called once a second,
/// [`Self::receive`] for each message; `now` is the time since any fixed moment and never goes
/// back.
///
/// An endpoint with a place on the ring is never forgotten, however long it is dead. The caller
/// names those endpoints with [`Self::set_members`].
#[derive(Debug)]
pub struct Gossiper {
    /// The question whether this address had a place before.
    pub question: FirstQuestion,
    /// Rates the silence of endpoints.
    pub detector: FailureDetector,
    /// Number of messages from others.
    pub(crate) received: u64,
    /// Whether a message came from a node of this cluster.
    pub(crate) is_answered: bool,
    local: IpAddr,
    cluster_name: String,
    seeds: Vec<IpAddr>,
    own: EndpointState,
    peers: BTreeMap<IpAddr, Peer>,
    unheard: Unheard,
    members: BTreeSet<IpAddr>,
    forgotten: Forgotten,
    admission: Admission,
    rng: fastrand::Rng,
    /// Time of the present input.
    now: Duration,
    /// Results of the present input.
    effects: Effects,
    /// Time of the start, in `now` and in seconds since 1970.
    started: (Duration, i64),
    /// The generation of this node at its start.
    start_generation: i32,
    acceptance: Acceptance,
    /// Remaining rounds of a start.
    quick_rounds: u32,
    last_round: Option<Duration>,
    /// Requests since this node paused; `None` if its ring is up to date.
    catch_up: Option<CatchUp>,
    /// Nodes that got a SYN in this round because they seem to have just started.
    greeted: BTreeSet<IpAddr>,
    /// Nodes that have sent a SYN since the start, and whether everything they knew better came.
    briefings: BTreeMap<IpAddr, bool>,
    /// Unknown endpoints, by the sender whose next ACK2 has all their states.
    asked: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
}

impl Gossiper {
    /// A gossiper that knows only itself.
    pub fn new(options: GossiperOptions, rng: fastrand::Rng, now: Duration) -> Self {
        let GossiperOptions { local, mut seeds, .. } = options;
        seeds.sort_unstable();
        seeds.dedup();
        seeds.retain(|&seed| seed != local);
        Self {
            question: FirstQuestion::new(options.partitioner),
            detector: FailureDetector::new(options.phi_convict_threshold, now),
            received: 0,
            is_answered: false,
            local,
            cluster_name: options.cluster_name,
            seeds,
            own: EndpointState::new(options.generation),
            peers: BTreeMap::new(),
            unheard: Unheard::default(),
            members: BTreeSet::new(),
            forgotten: Forgotten::default(),
            admission: Admission::new(options.partitioner),
            rng,
            now,
            effects: Effects::default(),
            started: (now, options.now_secs),
            start_generation: options.generation,
            acceptance: Acceptance::default(),
            quick_rounds: 0,
            last_round: None,
            catch_up: None,
            greeted: BTreeSet::new(),
            briefings: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Adds the members of a saved ring: they count as dead, are contacted at the start, and are
    /// members until [`Self::set_members`] says otherwise.
    pub fn preload(&mut self, saved: impl IntoIterator<Item = IpAddr>) {
        let others = saved.into_iter().filter(|&endpoint| endpoint != self.local);
        for endpoint in others.take(MAX_ENDPOINTS) {
            self.unheard.insert(endpoint);
            self.members.insert(endpoint);
        }
    }

    /// Whether there were ever news of an endpoint, also if it was forgotten since.
    pub fn has_heard_of(&self, endpoint: IpAddr) -> bool {
        self.state(endpoint).is_some() || self.forgotten.contains(endpoint)
    }

    /// The first round: to all seeds and saved members at once, so that the ring is known after one
    /// round trip.
    pub fn start(&mut self, now: Duration) -> Effects {
        self.quick_rounds = QUICK_ROUNDS;
        self.tick(now)
    }

    /// A round: a new heartbeat, a SYN to some others, and convictions.
    pub fn tick(&mut self, now: Duration) -> Effects {
        self.now = now;
        self.detector.observe(now);
        self.greeted.clear();
        self.own.beat();
        self.peers.values_mut().for_each(Peer::end_round);
        self.review_pause();
        let targets = self.targets();
        if !targets.is_empty() {
            let syn = self.syn();
            self.effects.messages.extend(targets.into_iter().map(|it| (it, syn.clone())));
        }
        self.check_status();
        self.review_generation();
        std::mem::take(&mut self.effects)
    }

    /// Takes a message. `from` is the address that its sender gives.
    pub fn receive(&mut self, from: IpAddr, message: GossipMessage, now: Duration) -> Effects {
        if from == self.local || !is_of_a_node(from) {
            return Effects::default();
        }
        self.now = now;
        self.received += 1;
        self.detector.observe(now);
        match message {
            GossipMessage::Syn { cluster_name: theirs, .. } if theirs != self.cluster_name => {
                let ours = self.cluster_name.clone();
                let event = GossipEvent::ClusterNameMismatch { from, theirs, ours };
                self.effects.events.push(event);
                return std::mem::take(&mut self.effects);
            }
            GossipMessage::Syn { digests, .. } => self.on_syn(from, &digests),
            GossipMessage::Ack { wanted, states } => self.on_ack(from, &wanted, states),
            GossipMessage::Ack2 { states } => self.on_ack2(from, states),
        }
        self.is_answered = true;
        std::mem::take(&mut self.effects)
    }

    fn on_syn(&mut self, from: IpAddr, digests: &[Digest]) {
        if self.members.contains(&from) {
            self.unheard.hear_digests(from, digests);
        }
        self.question.hear_digests(from, digests, self.local);
        let is_hidden = |it: &Digest| it.endpoint == from && it.generation == 0;
        let hidden = digests.iter().any(is_hidden).then_some(Answerer::Hidden);
        self.end_answer(from, hidden);
        let lacks_one = self.is_new_start(from, digests) || self.misses_one(digests);
        let (wanted, states) = self.compare(from, digests);
        if self.has_room(self.briefings.len(), from) {
            *self.briefings.entry(from).or_default() |= wanted.is_empty();
        }
        self.note_asked(from, &wanted);
        self.effects.messages.push((from, GossipMessage::Ack { wanted, states }));
        if lacks_one || !self.is_alive(from) {
            self.greet(from);
        }
    }

    fn on_ack(&mut self, from: IpAddr, wanted: &[Digest], states: Vec<(IpAddr, EndpointState)>) {
        let mut own = wanted.iter().filter(|it| it.endpoint == self.local);
        let is_accepted = own.clone().any(|it| it.generation == self.own.generation);
        let is_member = own.any(|it| (it.generation, it.max_version) == (0, VERSION_OF_MEMBER));
        if is_accepted {
            self.accept_self(from);
        }
        if is_member {
            self.question.hear_of_member(from);
        }
        self.catch_up.iter_mut().for_each(|it| it.hear(from));
        let answerer = self.answerer(&states);
        // The SYN requested all states of each saved member. An answer to a SYN of an earlier start
        // lacks the place.
        let is_whole = |(endpoint, state): &&(IpAddr, EndpointState)| {
            self.unheard.contains(*endpoint) && state.value(MOVE_STATE).is_some()
        };
        let whole = states.iter().filter(is_whole).map(|(endpoint, _)| *endpoint).collect();
        self.apply(from, states, &whole);
        self.end_answer(from, answerer);
        let states = self.wanted_states(wanted);
        self.effects.messages.push((from, GossipMessage::Ack2 { states }));
    }

    fn on_ack2(&mut self, from: IpAddr, states: Vec<(IpAddr, EndpointState)>) {
        let answerer = self.answerer(&states);
        let asked = self.asked.remove(&from).unwrap_or_default();
        self.apply(from, states, &asked);
        self.end_answer(from, answerer);
        self.briefings.entry(from).and_modify(|is_over| *is_over = true);
    }

    /// Sets an application state of this node, from the next round on.
    pub fn set_state(&mut self, name: &str, value: &str) -> Result<(), TooLong> {
        if name.len() > MAX_NAME_LENGTH || value.len() > MAX_VALUE_LENGTH {
            return Err(TooLong(name.len().max(value.len())));
        }
        self.own.set(name, value);
        Ok(())
    }

    /// Sets the endpoints with a place on the ring, whenever they change. Others are forgotten when
    /// they are silent.
    pub fn set_members(&mut self, members: BTreeSet<IpAddr>) {
        self.unheard.retain(&members);
        self.members = members;
    }

    /// Forgets an endpoint that was removed from the ring. For 30 s it is not taken back unless it
    /// has started again, and after that only with news of itself.
    pub fn forget(&mut self, endpoint: IpAddr, now: Duration) {
        self.now = now;
        self.drop_peer(endpoint, true);
    }

    fn drop_peer(&mut self, endpoint: IpAddr, was_removed: bool) {
        self.unheard.remove(endpoint);
        self.detector.forget(endpoint);
        let known = self.peers.remove(&endpoint).map(|peer| peer.state);
        self.forgotten.insert(endpoint, was_removed, known, self.now);
    }

    /// The generation of this node.
    pub fn generation(&self) -> i32 {
        self.own.generation
    }

    /// Whether an endpoint is known and alive. This node itself is.
    pub fn is_alive(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local || self.peers.get(&endpoint).is_some_and(|peer| peer.is_alive)
    }

    /// Whether an endpoint has sent everything that it knew since this start. Nodes of this program
    /// do so at once, those of 0.6 by chance.
    pub fn is_briefed_by(&self, endpoint: IpAddr) -> bool {
        self.briefings.get(&endpoint) == Some(&true)
    }

    /// Time since the last news of an endpoint, heartbeats included; `None` if it is unknown.
    pub fn silence(&self, endpoint: IpAddr, now: Duration) -> Option<Duration> {
        if endpoint == self.local {
            return Some(Duration::ZERO);
        }
        self.peers.get(&endpoint).map(|peer| now.saturating_sub(peer.updated))
    }

    /// The known state of an endpoint, this node included.
    pub fn state(&self, endpoint: IpAddr) -> Option<&EndpointState> {
        if endpoint == self.local {
            return Some(&self.own);
        }
        self.peers.get(&endpoint).map(|peer| &peer.state)
    }

    /// All known endpoints with their states, this node first.
    pub fn endpoints(&self) -> impl Iterator<Item = (IpAddr, &EndpointState)> {
        let peers = self.peers.iter().map(|(&endpoint, peer)| (endpoint, &peer.state));
        std::iter::once((self.local, &self.own)).chain(peers)
    }

    /// The announced bytes on an endpoint's disks.
    pub fn load(&self, endpoint: IpAddr) -> Option<f64> {
        parse_load(self.state(endpoint)?.value(LOAD_STATE)?)
    }

    /// Whether an endpoint announces one of our extensions in its state `X-ALEXANDRA`.
    pub fn announces(&self, endpoint: IpAddr, extension: &str) -> bool {
        let list = self.state(endpoint).and_then(|state| state.value(EXTENSIONS_STATE));
        list.is_some_and(|list| list.split(',').any(|word| word.trim() == extension))
    }

    /// The kind of a sender that remembers an earlier start of this node: it has sent the token as
    /// well, if there was one.
    fn answerer(&self, states: &[(IpAddr, EndpointState)]) -> Option<Answerer> {
        let is_own = |(endpoint, state): &(IpAddr, EndpointState)| {
            *endpoint == self.local && state.max_version() > 0
        };
        states.iter().any(is_own).then_some(Answerer::OfRing)
    }

    /// Notes that another node has sent all that it remembers of this address.
    fn end_answer(&mut self, from: IpAddr, answerer: Option<Answerer>) {
        if !self.question.is_open() {
            return;
        }
        let is_of_ring = |state: &EndpointState| {
            state.value(EXTENSIONS_STATE).is_some() || self.question.place(state).is_some()
        };
        let is_known = self.seeds.contains(&from) || self.state(from).is_some_and(is_of_ring);
        let known = if is_known { Answerer::OfRing } else { Answerer::Stranger };
        self.question.end_answer(from, answerer.unwrap_or(known));
    }

    /// A SYN with all known endpoints. Unheard saved members have generation zero in it, so that
    /// the receiver sends all their states.
    fn syn(&mut self) -> GossipMessage {
        let digest =
            |endpoint, (generation, max_version)| Digest { endpoint, generation, max_version };
        let heard = self.peers.iter().map(|(&endpoint, peer)| digest(endpoint, peer.known_age()));
        let unheard = self.unheard.endpoints().map(|endpoint| digest(endpoint, (0, 0)));
        let mut digests: Vec<Digest> = heard.chain(unheard).collect();
        self.rng.shuffle(&mut digests);
        let own = if self.question.is_open() { (0, 0) } else { self.own.age() };
        digests.insert(0, digest(self.local, own));
        GossipMessage::Syn { cluster_name: self.cluster_name.clone(), digests }
    }

    /// Whether the sender of a SYN has been restarted since the last news of it.
    fn is_new_start(&self, from: IpAddr, digests: &[Digest]) -> bool {
        let Some(known) = self.state(from) else { return false };
        digests.iter().any(|it| it.endpoint == from && it.generation > known.generation)
    }

    /// Sends a SYN to a node that was dead until a moment ago. It may have just started and know
    /// only its saved ring, and learns all endpoints at once by this. One SYN for each round, so
    /// that two nodes that start together do not greet each other forever.
    fn greet(&mut self, from: IpAddr) {
        if self.forgotten.may_return(from, None, self.now)
            && self.has_room(self.greeted.len(), from)
            && self.greeted.insert(from)
        {
            let syn = self.syn();
            self.effects.messages.push((from, syn));
        }
    }

    /// Compares the sender's knowledge with this node's. Returns digests of what the sender knows
    /// better, and states that it does not know.
    fn compare(
        &mut self,
        from: IpAddr,
        digests: &[Digest],
    ) -> (Vec<Digest>, Vec<(IpAddr, EndpointState)>) {
        let mut theirs: BTreeMap<IpAddr, (i32, i32)> = BTreeMap::new();
        for digest in digests.iter().filter(|digest| is_of_a_node(digest.endpoint)) {
            let age = (digest.generation, digest.max_version);
            let known = theirs.entry(digest.endpoint).or_insert(age);
            *known = age.max(*known);
        }
        let mut room = (MAX_ENDPOINTS + MAX_STRANGERS).saturating_sub(self.peers.len());
        let (mut wanted, mut states) = (Vec::new(), Vec::new());
        for (endpoint, age) in theirs {
            let generation = age.0;
            if endpoint == self.local {
                self.hear_of_self(from, age);
            } else if self.is_plausible(generation) {
                self.hear_digest(endpoint, age);
            } else {
                if endpoint == from {
                    // An older generation without anything else tells it that it is refused.
                    let known = self.state(from).map_or(0, |known| known.generation);
                    states.push((from, EndpointState::new(known)));
                    let refused = self.admission.generation(from, generation);
                    self.refuse(from, from, refused);
                }
                continue;
            }
            let want = |max_version| Digest { endpoint, generation, max_version };
            if endpoint == self.local && self.question.is_open() {
                wanted.extend((generation > 0).then(|| want(0)));
                continue;
            }
            match self.state(endpoint) {
                Some(known) if age > known.age() && endpoint != self.local => {
                    let (last, version) = self.peers.get(&endpoint).map_or((0, 0), Peer::known_age);
                    wanted.push(want(if generation == last { version } else { 0 }));
                }
                Some(known) => {
                    states.extend(known.newer_than_age(age).map(|state| (endpoint, state)));
                }
                // The sender asks whether its place is remembered.
                None if endpoint == from && generation == 0 => {
                    let is_member = self.members.contains(&from);
                    wanted.extend(is_member.then(|| want(VERSION_OF_MEMBER)));
                }
                None if self.forgotten.may_return(endpoint, Some(age), self.now)
                    && (room > 0 || endpoint == from || self.members.contains(&endpoint)) =>
                {
                    room = room.saturating_sub(1);
                    wanted.push(want(0));
                }
                None => {
                    let known = self.forgotten.newer_than(endpoint, age);
                    states.extend(known.map(|state| (endpoint, state)));
                }
            }
        }
        (wanted, states)
    }

    /// The requested states, each endpoint once.
    fn wanted_states(&self, wanted: &[Digest]) -> Vec<(IpAddr, EndpointState)> {
        let mut least: BTreeMap<IpAddr, i32> = BTreeMap::new();
        for digest in wanted {
            let version = least.entry(digest.endpoint).or_insert(digest.max_version);
            *version = digest.max_version.min(*version);
        }
        let newer =
            |(endpoint, version)| Some((endpoint, self.state(endpoint)?.newer_than(version)?));
        if self.question.is_open() {
            least.remove(&self.local);
        }
        least.into_iter().filter_map(newer).collect()
    }

    /// Reports a digest with news of a known endpoint to the detector. Only the first digest with
    /// the news counts: the more nodes gossip, the more digests list the same heartbeat, and if
    /// all counted, a member would seem silent for long when they stop.
    fn hear_digest(&mut self, endpoint: IpAddr, age: (i32, i32)) {
        let Some(peer) = self.peers.get_mut(&endpoint) else { return };
        if age > peer.state.age().max(peer.listed) {
            peer.listed = age;
            self.hear(endpoint);
        }
    }

    /// Reports news of a known endpoint to the detector.
    fn hear(&mut self, endpoint: IpAddr) {
        if !self.is_alive(endpoint) {
            // The time that it was dead is no interval between two of its heartbeats.
            self.detector.forget(endpoint);
        }
        self.detector.report(endpoint, self.now);
    }

    /// Whether a node may have started at this generation.
    fn is_plausible(&self, generation: i32) -> bool {
        i64::from(generation) <= self.time_secs().saturating_add(MAX_AHEAD_SECS)
    }

    /// The time by this node's clock or, if the clock is far behind, by the generation of its
    /// start: a clock that stands at 1970 must not make a node deaf to all. A raised generation
    /// does not count, or forged ones could lead it ever further ahead.
    fn time_secs(&self) -> i64 {
        let (clock, start) = (self.clock_secs(), i64::from(self.start_generation));
        let is_far_behind = start > clock + MAX_AHEAD_SECS + CLOCK_DIFFERENCE_SECS;
        if is_far_behind { start } else { clock }
    }

    /// Seconds since 1970 by the clock of this node.
    fn clock_secs(&self) -> i64 {
        let (started, secs) = self.started;
        let running = self.now.saturating_sub(started).as_secs();
        secs.saturating_add(i64::try_from(running).unwrap_or(i64::MAX))
    }

    /// Notes the unknown endpoints whose states a node is asked for.
    fn note_asked(&mut self, from: IpAddr, wanted: &[Digest]) {
        self.asked.remove(&from);
        let unknown = wanted.iter().filter(|it| self.state(it.endpoint).is_none());
        let unknown: BTreeSet<IpAddr> = unknown.map(|it| it.endpoint).collect();
        let noted = self.asked.values().map(BTreeSet::len).sum();
        if !unknown.is_empty() && self.has_room(noted, from) {
            self.asked.insert(from, unknown);
        }
    }

    /// Takes states from a message. An unknown endpoint becomes known only if it is in `whole`, the
    /// endpoints of which the message has all states.
    fn apply(
        &mut self,
        from: IpAddr,
        states: Vec<(IpAddr, EndpointState)>,
        whole: &BTreeSet<IpAddr>,
    ) {
        for (endpoint, mut news) in states {
            if endpoint == self.local {
                self.hear_of_self(from, news.age());
                if news.max_version() == 0 {
                    self.refuse_self(from, news.generation);
                }
                self.question.hear(from, &news);
                continue;
            }
            if !self.is_plausible(news.generation) {
                let refused = self.admission.generation(endpoint, news.generation);
                self.refuse(endpoint, from, refused);
                continue;
            }
            let known = self.peers.get(&endpoint);
            let is_known = known.is_some();
            if known.is_some_and(|known| !known.lacks(&news)) {
                continue;
            }
            let is_new = known.is_none_or(|known| news.age() > known.state.age());
            if !is_known && let Err(refused) = self.admit(endpoint, &news) {
                self.refuse(endpoint, from, refused);
                continue;
            }
            // A delta for an endpoint that was forgotten meanwhile may lack its place, which would
            // never be sent again.
            if !is_known && !whole.contains(&endpoint) {
                continue;
            }
            let known = self.peers.get(&endpoint).map(|peer| &peer.state);
            let refusals = self.admission.states(endpoint, &mut news, known);
            self.refuse(endpoint, from, refusals);
            if !is_known {
                self.insert(endpoint, from, news);
            } else if is_new {
                self.hear(endpoint);
                self.apply_to_known(endpoint, news);
            } else if let Some(peer) = self.peers.get_mut(&endpoint) {
                let filled = peer.merge(&news);
                self.report_states(endpoint, news.generation, filled);
            }
        }
    }

    /// Decides whether an unknown endpoint may become known. An error is `None` if it was reported
    /// before.
    fn admit(&mut self, endpoint: IpAddr, news: &EndpointState) -> Result<(), Option<Refusal>> {
        if !self.forgotten.may_return(endpoint, Some(news.age()), self.now) {
            return Err(None);
        }
        self.admission.address(endpoint)?;
        // Members are those of a saved ring, or were admitted with a place.
        if self.members.contains(&endpoint) {
            return Ok(());
        }
        let strangers = self.peers.len().saturating_sub(self.members.len());
        if !news.tells_of_place() && strangers >= MAX_STRANGERS {
            return Err(self.admission.no_room(Refusal::TooManyStrangers));
        }
        if self.peers.len() >= MAX_ENDPOINTS + MAX_STRANGERS {
            return Err(self.admission.no_room(Refusal::TooManyEndpoints));
        }
        Ok(())
    }

    /// Whether a list of this length has room for an endpoint: for members always, so that others
    /// cannot lock them out.
    fn has_room(&self, length: usize, endpoint: IpAddr) -> bool {
        length < MAX_ENDPOINTS || self.members.contains(&endpoint)
    }

    /// Adds an endpoint. Its news may be old, so it counts as dead until there are further ones,
    /// unless it sent them itself.
    fn insert(&mut self, endpoint: IpAddr, from: IpAddr, state: EndpointState) {
        let is_alive = from == endpoint;
        let generation = state.generation;
        self.effects.events.push(GossipEvent::Appeared { endpoint, generation });
        self.report_states(endpoint, generation, state.in_version_order());
        if is_alive {
            self.detector.report(endpoint, self.now);
            self.effects.events.push(GossipEvent::Up(endpoint));
        }
        self.forgotten.remove(endpoint);
        self.unheard.remove(endpoint);
        self.peers.insert(endpoint, Peer::new(state, is_alive, self.now));
    }

    /// Takes news of a known endpoint, which is alive by that.
    fn apply_to_known(&mut self, endpoint: IpAddr, news: EndpointState) {
        let Some(peer) = self.peers.get_mut(&endpoint) else { return };
        peer.updated = self.now;
        let was_alive = std::mem::replace(&mut peer.is_alive, true);
        let generation = news.generation;
        if generation > peer.state.generation {
            self.effects.events.push(GossipEvent::Restarted { endpoint, generation });
            let states = news.in_version_order();
            peer.state = news;
            self.report_states(endpoint, generation, states);
            return;
        }
        let changed = peer.merge(&news);
        self.report_states(endpoint, generation, changed);
        if !was_alive {
            self.effects.events.push(GossipEvent::Up(endpoint));
        }
    }

    /// Convicts silent endpoints, and forgets silent ones without a place on the ring.
    fn check_status(&mut self) {
        let mut silent = Vec::new();
        for (&endpoint, peer) in &mut self.peers {
            if peer.is_alive && self.detector.convicts(endpoint, self.now) {
                peer.is_alive = false;
                self.effects.events.push(GossipEvent::Down(endpoint));
            }
            let silence = self.now.saturating_sub(peer.updated);
            if !peer.is_alive && silence > FAT_CLIENT_SILENCE && !self.members.contains(&endpoint) {
                silent.push(endpoint);
            }
        }
        for endpoint in silent {
            self.drop_peer(endpoint, false);
            let silence = FAT_CLIENT_SILENCE;
            self.effects.events.push(GossipEvent::Forgotten { endpoint, silence });
        }
        self.forgotten.expire(self.now);
        if self.now.saturating_sub(self.started.0) > RING_DELAY {
            for endpoint in self.unheard.disowned(self.local, &self.members) {
                self.unheard.remove(endpoint);
                self.effects.events.push(GossipEvent::Disowned(endpoint));
            }
        }
    }

    fn report_states(
        &mut self,
        endpoint: IpAddr,
        generation: i32,
        states: Vec<(String, VersionedValue)>,
    ) {
        let changed =
            |(name, state)| GossipEvent::StateChanged { endpoint, generation, name, state };
        self.effects.events.extend(states.into_iter().map(changed));
    }

    fn refuse(
        &mut self,
        endpoint: IpAddr,
        from: IpAddr,
        refusals: impl IntoIterator<Item = Refusal>,
    ) {
        let refused = |refusal| GossipEvent::Refused { endpoint, from, refusal };
        self.effects.events.extend(refusals.into_iter().map(refused));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gossip::message::tests::arb_message;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    proptest! {
        #[test]
        fn any_messages_of_peers_are_survived(
            messages in vec((1..5u8, arb_message(), 0..40u64), 0..30),
        ) {
            let options = GossiperOptions {
                local: ip(1),
                cluster_name: "Test Cluster".to_owned(),
                partitioner: Partitioner::Random,
                seeds: vec![ip(2)],
                generation: 100,
                phi_convict_threshold: 8.0,
                now_secs: 1_000_000,
            };
            let rng = fastrand::Rng::with_seed(1);
            let mut gossiper = Gossiper::new(options, rng, Duration::ZERO);
            let mut now = Duration::ZERO;
            for (from, message, seconds) in messages {
                now += Duration::from_secs(seconds);
                gossiper.tick(now);
                let answers = gossiper.receive(ip(from), message, now);
                for (_, message) in answers.messages {
                    prop_assert!(message.encode().is_ok());
                }
                prop_assert_eq!(gossiper.endpoints().next().unwrap().0, ip(1));
            }
        }
    }
}
