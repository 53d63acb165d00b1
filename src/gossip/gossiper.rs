//! The gossiper: what a node knows of itself and all others, and how it tells and learns.

mod catch_up;
mod own_generation;
mod peer;
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
use super::forgotten::Forgotten;
use super::message::{Digest, GossipMessage};
use super::unheard::Unheard;
use super::{EXTENSIONS_STATE, LOAD_STATE, MOVE_STATE, RING_DELAY};
use crate::base::java::TooLong;
use crate::ring::{Partitioner, Token};
use catch_up::CatchUp;
use own_generation::{Acceptance, CLOCK_DIFFERENCE_SECS};
use peer::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// After this silence an endpoint that has no place on the ring is forgotten. Half of the time for
/// which forgotten ones are ignored, so that all nodes have forgotten before one may learn anew.
const FAT_CLIENT_SILENCE: Duration = RING_DELAY.checked_div(2).expect("two is not zero");

/// For so many rounds a starting node talks to everybody it expects and has not heard of.
const QUICK_ROUNDS: u32 = 5;

/// How far ahead of its clock a node accepts the generations of others. It is deaf to a node of
/// which it has accepted a greater one than that node has. Clocks may be wrong by much, and a
/// generation that was once taken from a wrong one stays; a year is what later versions of the
/// original allow. Whatever others may have accepted a node exceeds with its own generation.
const MAX_AHEAD_SECS: i64 = 365 * 24 * 3600;

/// What a gossiper has to be told at its start.
#[derive(Debug, Clone)]
pub struct GossiperOptions {
    /// The address of this node.
    pub local: IpAddr,
    /// Nodes of other clusters get no answer.
    pub cluster_name: String,
    /// By what tokens in states are judged.
    pub partitioner: Partitioner,
    /// The nodes that a node without friends turns to. The own address among them does not count.
    pub seeds: Vec<IpAddr>,
    /// The generation of this node, greater than at its last start.
    pub generation: i32,
    /// Endpoints are convicted above this phi.
    pub phi_convict_threshold: f64,
    /// The time, in seconds since 1970.
    pub now_secs: i64,
}

/// What comes of an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// What was found out, in order. To be acted on before the messages are sent.
    pub events: Vec<GossipEvent>,
    /// What is to be sent, and to whom.
    pub messages: Vec<(IpAddr, GossipMessage)>,
}

/// What a node knows of itself and all others. [`Self::tick`] has to be called once a second,
/// [`Self::receive`] for each message; `now` is the time since any fixed moment and never goes
/// back.
///
/// No endpoint is ever forgotten that has a place on the ring, however long it is dead: who has
/// one, the caller says with [`Self::set_members`].
#[derive(Debug)]
pub struct Gossiper {
    local: IpAddr,
    cluster_name: String,
    seeds: Vec<IpAddr>,
    own: EndpointState,
    question: FirstQuestion,
    peers: BTreeMap<IpAddr, Peer>,
    /// Members of the saved ring of which nothing was heard since the start.
    unheard: Unheard,
    members: BTreeSet<IpAddr>,
    forgotten: Forgotten,
    detector: FailureDetector,
    admission: Admission,
    rng: fastrand::Rng,
    /// The time of the start, in `now` and in seconds since 1970.
    started: (Duration, i64),
    /// The generation of this node at its start.
    start_generation: i32,
    acceptance: Acceptance,
    /// How many more rounds are those of a start.
    quick_rounds: u32,
    /// When the last round was.
    last_round: Option<Duration>,
    /// Questions since this node stood still; none if its ring is the present one.
    catch_up: Option<CatchUp>,
    /// Who was told everything in this round because it seems to have just started.
    greeted: BTreeSet<IpAddr>,
    /// Who has said since the start which nodes it knows, and whether all that it knew better has
    /// come.
    briefings: BTreeMap<IpAddr, bool>,
    /// Unknown endpoints, by the sender whose next ACK2 is to tell all of them.
    asked: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// Messages that came from others.
    received: u64,
    /// Whether one of them was of this cluster.
    is_answered: bool,
}

impl Effects {
    fn send(&mut self, to: IpAddr, message: GossipMessage) {
        self.messages.push((to, message));
    }
}

impl Gossiper {
    /// A gossiper that knows only itself.
    pub fn new(options: GossiperOptions, rng: fastrand::Rng, now: Duration) -> Self {
        let GossiperOptions { local, mut seeds, .. } = options;
        seeds.sort_unstable();
        seeds.dedup();
        seeds.retain(|&seed| seed != local);
        Self {
            local,
            cluster_name: options.cluster_name,
            seeds,
            own: EndpointState::new(options.generation),
            question: FirstQuestion::new(options.partitioner),
            peers: BTreeMap::new(),
            unheard: Unheard::default(),
            members: BTreeSet::new(),
            forgotten: Forgotten::default(),
            detector: FailureDetector::new(options.phi_convict_threshold, now),
            admission: Admission::new(options.partitioner),
            rng,
            started: (now, options.now_secs),
            start_generation: options.generation,
            acceptance: Acceptance::default(),
            quick_rounds: 0,
            last_round: None,
            catch_up: None,
            greeted: BTreeSet::new(),
            briefings: BTreeMap::new(),
            asked: BTreeMap::new(),
            received: 0,
            is_answered: false,
        }
    }

    /// Makes these members of a saved ring known, before anything was heard of them: they count as
    /// dead, are turned to at the start, and are members until [`Self::set_members`] says
    /// otherwise.
    pub fn preload(&mut self, saved: impl IntoIterator<Item = IpAddr>) {
        let others = saved.into_iter().filter(|&endpoint| endpoint != self.local);
        for endpoint in others.take(MAX_ENDPOINTS) {
            self.unheard.insert(endpoint);
            self.members.insert(endpoint);
        }
    }

    /// Whether anything was heard of an endpoint, also if it was forgotten since.
    pub fn has_heard_of(&self, endpoint: IpAddr) -> bool {
        self.state(endpoint).is_some() || self.forgotten.contains(endpoint)
    }

    /// The first round, at the start: to all seeds and saved members at once, so that the ring is
    /// known after one round trip.
    pub fn start(&mut self, now: Duration) -> Effects {
        self.quick_rounds = QUICK_ROUNDS;
        self.tick(now)
    }

    /// Asks others what they remember of this address before they hear of this start, see
    /// [`Self::remembered`]. To be called before [`Self::start`]. Ends by itself when another node
    /// has answered that it remembers no token: a
    /// seed, or one that has a place, can be asked by calls, or asks the same.
    pub fn ask_first(&mut self) {
        self.question.ask();
    }

    /// Lets others hear of this start, whatever they remember.
    pub fn show(&mut self) {
        self.question.close();
    }

    /// Goes on asking although this node takes a place, since nobody was there to answer. Only
    /// [`Self::show`] ends it then, or another node that hides its start as well.
    pub fn keep_asking(&mut self) {
        self.question.keep_asking();
    }

    /// Whether others have not heard of this start yet.
    pub fn is_hidden(&self) -> bool {
        self.question.is_open()
    }

    /// The token that this address owned before this start, and the node that remembers it. None
    /// once others may hear of this start.
    pub fn remembered(&self) -> Option<&(IpAddr, Token)> {
        self.question.remembered()
    }

    /// A round: a new heartbeat, a SYN to some others, and a look at who seems dead.
    pub fn tick(&mut self, now: Duration) -> Effects {
        let mut effects = Effects::default();
        self.detector.observe(now);
        self.greeted.clear();
        self.own.beat();
        for peer in self.peers.values_mut() {
            peer.end_round();
        }
        self.review_pause(now, &mut effects);
        let targets = self.targets(now);
        if !targets.is_empty() {
            let syn = self.syn();
            for target in targets {
                effects.send(target, syn.clone());
            }
        }
        self.check_status(now, &mut effects);
        self.review_generation(now, &mut effects);
        effects
    }

    /// Takes a message in. `from` is the address that its sender gives.
    pub fn receive(&mut self, from: IpAddr, message: GossipMessage, now: Duration) -> Effects {
        let mut effects = Effects::default();
        if from == self.local || !is_of_a_node(from) {
            return effects;
        }
        self.received += 1;
        self.detector.observe(now);
        let is_foreign = matches!(
            &message,
            GossipMessage::Syn { cluster_name, .. } if *cluster_name != self.cluster_name
        );
        self.is_answered |= !is_foreign;
        match message {
            GossipMessage::Syn { cluster_name, .. } if is_foreign => {
                let ours = self.cluster_name.clone();
                let event = GossipEvent::ClusterNameMismatch { from, theirs: cluster_name, ours };
                effects.events.push(event);
            }
            GossipMessage::Syn { digests, .. } => {
                if self.members.contains(&from) {
                    self.unheard.hear_digests(from, &digests);
                }
                self.question.hear_digests(from, &digests, self.local);
                let is_hidden = |it: &Digest| it.endpoint == from && it.generation == 0;
                let hidden = digests.iter().any(is_hidden).then_some(Answerer::Hidden);
                self.end_answer(from, hidden);
                let lacks_one = self.is_new_start(from, &digests) || self.misses_one(&digests);
                let (wanted, states) = self.compare(from, &digests, now, &mut effects);
                if self.has_room(self.briefings.len(), from) {
                    *self.briefings.entry(from).or_default() |= wanted.is_empty();
                }
                self.note_asked(from, &wanted);
                effects.send(from, GossipMessage::Ack { wanted, states });
                if lacks_one || !self.is_alive(from) {
                    self.greet(from, &mut effects);
                }
            }
            GossipMessage::Ack { wanted, states } => {
                let is_own =
                    |it: &Digest| (it.endpoint, it.generation) == (self.local, self.own.generation);
                if wanted.iter().any(is_own) {
                    self.accept_self(from, now);
                }
                if wanted.iter().any(|it| (it.endpoint, it.generation) == (self.local, 0)) {
                    self.question.hear_of_member(from);
                }
                self.catch_up.iter_mut().for_each(|it| it.hear(from));
                let told = self.told(&states);
                // The SYN has asked for all of each saved member. An answer to a SYN of an earlier
                // start lacks the place.
                let is_whole = |(endpoint, state): &&(IpAddr, EndpointState)| {
                    self.unheard.contains(*endpoint) && state.value(MOVE_STATE).is_some()
                };
                let whole = states.iter().filter(is_whole).map(|(endpoint, _)| *endpoint).collect();
                self.apply(from, states, &whole, now, &mut effects);
                self.end_answer(from, told);
                let states = self.wanted_states(&wanted);
                effects.send(from, GossipMessage::Ack2 { states });
            }
            GossipMessage::Ack2 { states } => {
                let told = self.told(&states);
                let asked = self.asked.remove(&from).unwrap_or_default();
                self.apply(from, states, &asked, now, &mut effects);
                self.end_answer(from, told);
                self.briefings.entry(from).and_modify(|is_over| *is_over = true);
            }
        }
        effects
    }

    /// This node says something of itself, from the next round on.
    pub fn set_state(&mut self, name: &str, value: &str) -> Result<(), TooLong> {
        if name.len() > MAX_NAME_LENGTH || value.len() > MAX_VALUE_LENGTH {
            return Err(TooLong(name.len().max(value.len())));
        }
        self.own.set(name, value);
        Ok(())
    }

    /// Says who has a place on the ring, whenever that changes. Others are forgotten when they are
    /// silent.
    pub fn set_members(&mut self, members: BTreeSet<IpAddr>) {
        self.unheard.retain(&members);
        self.members = members;
    }

    /// Forgets an endpoint that was removed from the ring. For 30 s it is not taken back, and after
    /// that only with news of itself.
    pub fn forget(&mut self, endpoint: IpAddr, now: Duration) {
        self.drop_peer(endpoint, true, now);
    }

    fn drop_peer(&mut self, endpoint: IpAddr, was_removed: bool, now: Duration) {
        self.unheard.remove(endpoint);
        self.detector.forget(endpoint);
        let known = self.peers.remove(&endpoint).map(|peer| peer.state);
        self.forgotten.insert(endpoint, was_removed, known, now);
    }

    /// Convicts endpoints above this phi from now on.
    pub fn set_phi_convict_threshold(&mut self, threshold: f64) {
        self.detector.set_threshold(threshold);
    }

    /// Endpoints are convicted above this phi.
    pub fn phi_convict_threshold(&self) -> f64 {
        self.detector.threshold()
    }

    /// How suspicious the silence of an endpoint is.
    pub fn phi(&self, endpoint: IpAddr, now: Duration) -> Option<f64> {
        self.detector.phi(endpoint, now)
    }

    /// The generation of this node.
    pub fn generation(&self) -> i32 {
        self.own.generation
    }

    /// Whether a node of this cluster has sent anything.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// How many messages of other nodes it has taken in.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Whether an endpoint is alive, as far as this node can tell. It is so itself; who is not
    /// known is not.
    pub fn is_alive(&self, endpoint: IpAddr) -> bool {
        endpoint == self.local || self.peers.get(&endpoint).is_some_and(|peer| peer.is_alive)
    }

    /// Whether another node of this program has told this one since its start all that it knew.
    /// Originals do so when chance will have it.
    pub fn is_briefed_by(&self, endpoint: IpAddr) -> bool {
        self.briefings.get(&endpoint) == Some(&true)
    }

    /// For how long there have been no news of an endpoint, heartbeats included; none if nothing
    /// was ever heard of it. Of itself a node always knows the newest.
    pub fn silence(&self, endpoint: IpAddr, now: Duration) -> Option<Duration> {
        if endpoint == self.local {
            return Some(Duration::ZERO);
        }
        self.peers.get(&endpoint).map(|peer| now.saturating_sub(peer.updated))
    }

    /// What is known of an endpoint, this node included.
    pub fn state(&self, endpoint: IpAddr) -> Option<&EndpointState> {
        if endpoint == self.local {
            return Some(&self.own);
        }
        self.peers.get(&endpoint).map(|peer| &peer.state)
    }

    /// All endpoints that were heard of, this node included, with what is known of them.
    pub fn endpoints(&self) -> impl Iterator<Item = (IpAddr, &EndpointState)> {
        let peers = self.peers.iter().map(|(&endpoint, peer)| (endpoint, &peer.state));
        std::iter::once((self.local, &self.own)).chain(peers)
    }

    /// The bytes that an endpoint says to have on its disks.
    pub fn load(&self, endpoint: IpAddr) -> Option<f64> {
        parse_load(self.state(endpoint)?.value(LOAD_STATE)?)
    }

    /// Whether an endpoint understands an extension of ours, by its state `X-ALEXANDRA`.
    pub fn announces(&self, endpoint: IpAddr, extension: &str) -> bool {
        let list = self.state(endpoint).and_then(|state| state.value(EXTENSIONS_STATE));
        list.is_some_and(|list| list.split(',').any(|word| word.trim() == extension))
    }

    /// Whoever tells an earlier start of this node has told the token as well, if there was one.
    fn told(&self, states: &[(IpAddr, EndpointState)]) -> Option<Answerer> {
        let is_own = |(endpoint, state): &(IpAddr, EndpointState)| {
            *endpoint == self.local && state.max_version() > 0
        };
        states.iter().any(is_own).then_some(Answerer::OfRing)
    }

    /// Another node has said all that it remembers of this address.
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

    /// A SYN with all that is known. Saved members of whom nothing was heard are in it as well, at
    /// generation zero: whoever knows them sends all that it knows.
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

    /// Whether the sender of a SYN has been started since this node heard of it.
    fn is_new_start(&self, from: IpAddr, digests: &[Digest]) -> bool {
        let known = self.state(from).map(|state| state.generation);
        let own = digests.iter().filter(|digest| digest.endpoint == from);
        known.is_some_and(|known| own.clone().any(|digest| digest.generation > known))
    }

    /// Who is not alive yet for this node, or was not a moment ago, has perhaps just started, and
    /// then knows only what it has saved. It learns everybody at once if it gets a SYN, instead of
    /// when chance will have it. One for each round, so that two who start together do not greet
    /// each other for ever.
    fn greet(&mut self, from: IpAddr, effects: &mut Effects) {
        if self.forgotten.may_return(from, None, self.detector.observed())
            && self.has_room(self.greeted.len(), from)
            && self.greeted.insert(from)
        {
            let syn = self.syn();
            effects.send(from, syn);
        }
    }

    /// Holds what the sender of a SYN knows against what is known here. Returns what it knows
    /// better, and what it does not know.
    fn compare(
        &mut self,
        from: IpAddr,
        digests: &[Digest],
        now: Duration,
        effects: &mut Effects,
    ) -> (Vec<Digest>, Vec<(IpAddr, EndpointState)>) {
        let mut theirs: BTreeMap<IpAddr, (i32, i32)> = BTreeMap::new();
        for digest in digests.iter().filter(|digest| is_of_a_node(digest.endpoint)) {
            let age = (digest.generation, digest.max_version);
            theirs
                .entry(digest.endpoint)
                .and_modify(|known| *known = age.max(*known))
                .or_insert(age);
        }
        let mut room = (MAX_ENDPOINTS + MAX_STRANGERS).saturating_sub(self.peers.len());
        let (mut wanted, mut states) = (Vec::new(), Vec::new());
        for (endpoint, age) in theirs {
            let generation = age.0;
            if endpoint == self.local {
                self.hear_of_self(from, age, now, effects);
            } else if self.is_plausible(generation) {
                self.hear_digest(endpoint, age, now);
            } else {
                if endpoint == from {
                    // An older generation without anything else tells it that it is refused.
                    let known = self.state(from).map_or(0, |known| known.generation);
                    states.push((from, EndpointState::new(known)));
                    let refused = self.admission.generation(from, generation);
                    refuse(from, from, refused, effects);
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
                    let (last, version) = self.known_age(endpoint);
                    wanted.push(want(if generation == last { version } else { 0 }));
                }
                Some(known) => {
                    states.extend(known.newer_than_age(age).map(|state| (endpoint, state)));
                }
                // It asks what is remembered of its place. To ask for its state says that it is a
                // member of the saved ring.
                None if endpoint == from && generation == 0 => {
                    wanted.extend(self.members.contains(&from).then(|| want(0)));
                }
                None if self.forgotten.may_return(endpoint, Some(age), now)
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

    /// What others asked for, each endpoint once.
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

    /// Up to which generation and version all is known of an endpoint.
    fn known_age(&self, endpoint: IpAddr) -> (i32, i32) {
        self.peers.get(&endpoint).map_or((0, 0), Peer::known_age)
    }

    /// Tells the detector that a digest lists news of a known endpoint. Only the first digest that
    /// does counts: the more nodes gossip the more digests list the same heartbeat, and when they
    /// cease to, the silence of a member that goes on must not look longer than its intervals.
    fn hear_digest(&mut self, endpoint: IpAddr, age: (i32, i32), now: Duration) {
        let Some(peer) = self.peers.get_mut(&endpoint) else { return };
        if age > peer.state.age().max(peer.listed) {
            peer.listed = age;
            self.hear(endpoint, now);
        }
    }

    /// Tells the detector of news of a known endpoint.
    fn hear(&mut self, endpoint: IpAddr, now: Duration) {
        if !self.is_alive(endpoint) {
            // The time that it was dead is no interval between two of its heartbeats.
            self.detector.forget(endpoint);
        }
        self.detector.report(endpoint, now);
    }

    /// Whether a node may have started at this generation.
    fn is_plausible(&self, generation: i32) -> bool {
        i64::from(generation) <= self.time_secs().saturating_add(MAX_AHEAD_SECS)
    }

    /// The time by the clock of this node or, if that is far behind, by the generation of its
    /// start: a clock that stood at 1970 must not make a node deaf to all. A generation to which
    /// this node was raised since does not count, or forgeries could lead it ever further ahead.
    fn time_secs(&self) -> i64 {
        let (clock, start) = (self.clock_secs(), i64::from(self.start_generation));
        let is_far_behind = start > clock + MAX_AHEAD_SECS + CLOCK_DIFFERENCE_SECS;
        if is_far_behind { start } else { clock }
    }

    /// Seconds since 1970 by the clock of this node, when something was observed last.
    fn clock_secs(&self) -> i64 {
        let (started, secs) = self.started;
        let running = self.detector.observed().saturating_sub(started).as_secs();
        secs.saturating_add(i64::try_from(running).unwrap_or(i64::MAX))
    }

    /// Remembers of which unknown endpoints a node is asked to tell all.
    fn note_asked(&mut self, from: IpAddr, wanted: &[Digest]) {
        self.asked.remove(&from);
        let unknown = wanted.iter().filter(|it| self.state(it.endpoint).is_none());
        let unknown: BTreeSet<IpAddr> = unknown.map(|it| it.endpoint).collect();
        let noted = self.asked.values().map(BTreeSet::len).sum();
        if !unknown.is_empty() && self.has_room(noted, from) {
            self.asked.insert(from, unknown);
        }
    }

    /// Takes in states that `from` has sent. An unknown endpoint becomes known only if it is among
    /// the `whole`, of which all is told.
    fn apply(
        &mut self,
        from: IpAddr,
        states: Vec<(IpAddr, EndpointState)>,
        whole: &BTreeSet<IpAddr>,
        now: Duration,
        effects: &mut Effects,
    ) {
        for (endpoint, mut news) in states {
            if endpoint == self.local {
                self.hear_of_self(from, news.age(), now, effects);
                if news.max_version() == 0 {
                    self.refuse_self(from, news.generation, now, effects);
                }
                self.question.hear(from, &news);
                continue;
            }
            if !self.is_plausible(news.generation) {
                let refused = self.admission.generation(endpoint, news.generation);
                refuse(endpoint, from, refused, effects);
                continue;
            }
            let known = self.peers.get(&endpoint);
            let is_known = known.is_some();
            if known.is_some_and(|known| !known.lacks(&news)) {
                continue;
            }
            let is_new = known.is_none_or(|known| news.age() > known.state.age());
            if !is_known && let Err(refused) = self.admit(endpoint, &news, now) {
                refuse(endpoint, from, refused, effects);
                continue;
            }
            // A delta for an endpoint that was forgotten meanwhile may lack its place, and nobody
            // would send that again.
            if !is_known && !whole.contains(&endpoint) {
                continue;
            }
            let known = self.peers.get(&endpoint).map(|peer| &peer.state);
            let refusals = self.admission.states(endpoint, &mut news, known);
            refuse(endpoint, from, refusals, effects);
            if !is_known {
                self.insert(endpoint, from, news, now, effects);
            } else if is_new {
                self.hear(endpoint, now);
                self.apply_to_known(endpoint, news, now, effects);
            } else {
                self.fill_gaps(endpoint, &news, effects);
            }
        }
    }

    /// Decides whether an endpoint that is not known may become so. An error may be one that was
    /// told before.
    fn admit(
        &mut self,
        endpoint: IpAddr,
        news: &EndpointState,
        now: Duration,
    ) -> Result<(), Option<Refusal>> {
        if !self.forgotten.may_return(endpoint, Some(news.age()), now) {
            return Err(None);
        }
        self.admission.address(endpoint)?;
        // Members are those of a saved ring, or were admitted with a place.
        if self.members.contains(&endpoint) {
            return Ok(());
        }
        let strangers = self.peers.len().saturating_sub(self.members.len());
        let is_stranger = !news.tells_of_place();
        if is_stranger && strangers >= MAX_STRANGERS {
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

    /// An endpoint becomes known. Others may have heard of it long ago, so it counts as dead until
    /// there are news; unless it was itself who spoke.
    fn insert(
        &mut self,
        endpoint: IpAddr,
        from: IpAddr,
        state: EndpointState,
        now: Duration,
        effects: &mut Effects,
    ) {
        let is_alive = from == endpoint;
        effects.events.push(GossipEvent::Appeared { endpoint, generation: state.generation });
        changes(endpoint, &state, effects);
        if is_alive {
            self.detector.report(endpoint, now);
            effects.events.push(GossipEvent::Up { endpoint });
        }
        self.forgotten.remove(endpoint);
        self.unheard.remove(endpoint);
        self.peers.insert(endpoint, Peer::new(state, is_alive, now));
    }

    /// Takes over the states that news of a known endpoint have and this node lacks.
    fn fill_gaps(&mut self, endpoint: IpAddr, news: &EndpointState, effects: &mut Effects) {
        let Some(peer) = self.peers.get_mut(&endpoint) else { return };
        state_changes(endpoint, news.generation, peer.merge(news), effects);
    }

    /// There are news of a known endpoint, which is alive by that.
    fn apply_to_known(
        &mut self,
        endpoint: IpAddr,
        news: EndpointState,
        now: Duration,
        effects: &mut Effects,
    ) {
        let Some(peer) = self.peers.get_mut(&endpoint) else { return };
        peer.updated = now;
        let was_alive = std::mem::replace(&mut peer.is_alive, true);
        let generation = news.generation;
        if generation > peer.state.generation {
            effects.events.push(GossipEvent::Restarted { endpoint, generation });
            changes(endpoint, &news, effects);
            peer.state = news;
            return;
        }
        state_changes(endpoint, generation, peer.merge(&news), effects);
        if !was_alive {
            effects.events.push(GossipEvent::Up { endpoint });
        }
    }

    /// Convicts who is silent, and forgets who is silent and has no place on the ring.
    fn check_status(&mut self, now: Duration, effects: &mut Effects) {
        let mut silent = Vec::new();
        for (&endpoint, peer) in &mut self.peers {
            if peer.is_alive && self.detector.convicts(endpoint, now) {
                peer.is_alive = false;
                effects.events.push(GossipEvent::Down { endpoint });
            }
            let silence = now.saturating_sub(peer.updated);
            if !peer.is_alive && silence > FAT_CLIENT_SILENCE && !self.members.contains(&endpoint) {
                silent.push(endpoint);
            }
        }
        for endpoint in silent {
            self.drop_peer(endpoint, false, now);
            let silence = FAT_CLIENT_SILENCE;
            effects.events.push(GossipEvent::Forgotten { endpoint, silence });
        }
        self.forgotten.expire(now);
        if now.saturating_sub(self.started.0) > RING_DELAY {
            for endpoint in self.unheard.disowned(self.local, &self.members) {
                self.unheard.remove(endpoint);
                effects.events.push(GossipEvent::Disowned { endpoint });
            }
        }
    }
}

/// All that an endpoint says, in the order in which it said it.
fn changes(endpoint: IpAddr, state: &EndpointState, effects: &mut Effects) {
    let states = state.in_version_order().into_iter();
    let states = states.map(|(name, state)| (name.to_owned(), state.clone()));
    state_changes(endpoint, state.generation, states, effects);
}

fn state_changes(
    endpoint: IpAddr,
    generation: i32,
    states: impl IntoIterator<Item = (String, VersionedValue)>,
    effects: &mut Effects,
) {
    let changed = |(name, state)| GossipEvent::StateChanged { endpoint, generation, name, state };
    effects.events.extend(states.into_iter().map(changed));
}

fn refuse(
    endpoint: IpAddr,
    from: IpAddr,
    refusals: impl IntoIterator<Item = Refusal>,
    effects: &mut Effects,
) {
    let events =
        refusals.into_iter().map(|refusal| GossipEvent::Refused { endpoint, from, refusal });
    effects.events.extend(events);
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
