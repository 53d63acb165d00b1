//! The ring as gossip tells it: who owns which token, who joins and who leaves.

use super::claims::{Claim, Claims, Purpose};
use super::endpoint_state::EndpointState;
use super::event::GossipEvent;
use super::membership_change::{MembershipChange, MembershipNotice, RemovedNode};
use super::move_state::Move;
use super::plan_state::{NodePlace, Plan};
use super::{MOVE_STATE, PLAN_STATE, REMOVED_STATE, removed_state};
use crate::ring::{Partitioner, Token, TokenMetadata};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How many removed nodes are remembered at most. No cluster removes as many.
const MAX_REMOVED: usize = 1024;

/// The nodes of the ring, and those on their way in or out of it. A value: readers keep a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Who owns which token; those who are leaving are in here until they have left.
    pub ring: TokenMetadata,
    /// Who collects the data for which token, and gets its writes already.
    pub bootstrapping: BTreeMap<IpAddr, Token>,
    /// Who of the ring hands its data over.
    pub leaving: BTreeSet<IpAddr>,
    /// What nodes say of places besides.
    pub plans: BTreeMap<IpAddr, Plan>,
}

/// What is remembered of a removal.
#[derive(Debug, Clone, Copy)]
struct Removal {
    /// The generation of the node at that time.
    generation: i32,
    /// The last start at which it claimed the place again, and did not get it.
    refused: i32,
    /// The last start by which it has had another place.
    placed: Option<i32>,
    /// Whether an operator wants it back.
    may_return: bool,
}

impl Removal {
    fn new(generation: i32, may_return: bool) -> Self {
        Self { generation, refused: generation, placed: None, may_return }
    }
}

/// Follows what nodes say of their places.
///
/// When two nodes claim a token the one that started later has it, on whichever node and in
/// whatever order their claims are heard. When that one goes elsewhere the other has it again, for
/// it still says so. That goes for this node as for all others.
///
/// A removed node is remembered, for its data are old: deletions that it missed may have been
/// collected everywhere else. If it comes back at its old place it is no member until an operator
/// says so, or until it has bootstrapped. The original took it back at once.
#[derive(Debug)]
pub struct Membership {
    partitioner: Partitioner,
    local: IpAddr,
    /// What all say, this node included.
    claims: Claims,
    /// What follows from the claims.
    members: Members,
    /// The generations of all who were heard of, this node included.
    generations: BTreeMap<IpAddr, i32>,
    /// Who of the others is alive.
    alive: BTreeSet<IpAddr>,
    /// Removed nodes, by the tokens that they had.
    removed: BTreeMap<(IpAddr, Token), Removal>,
    /// Removals that were not done because the node seemed alive: which node, at which token, with
    /// who said so and at which count of it. It may have been dead, and not be convicted yet.
    ignored: BTreeMap<(IpAddr, Token), (IpAddr, i32)>,
    /// The values of [`super::REMOVED_STATE`], by the nodes that say so.
    named: BTreeMap<IpAddr, String>,
    given_up: u64,
}

impl Members {
    /// Whether an endpoint owns a token.
    pub fn is_member(&self, endpoint: IpAddr) -> bool {
        self.ring.token(endpoint).is_some()
    }

    /// The ring with all that is pending: who joins it, leaves it, or takes the place of a dead
    /// member. Who has come or gone a moment ago, and is dead now, changes nothing: nobody reads
    /// from it, and what the others have acknowledged each quorum of them has.
    pub fn with_pending(&self, is_alive: impl Fn(IpAddr) -> bool) -> TokenMetadata {
        let mut ring = self.ring.clone();
        for endpoint in &self.leaving {
            ring.begin_leave(*endpoint);
        }
        for (endpoint, token) in &self.bootstrapping {
            // Claims have at most one node join at a token, and none where there is an owner.
            let _ = ring.begin_bootstrap(token.clone(), *endpoint);
        }
        let mut former = self.ring.clone();
        for (by, plan) in &self.plans {
            match plan {
                Plan::Arrived(_) | Plan::Gone(_) if !is_alive(*by) => {}
                Plan::Arrived(node) if node.endpoint == *by && self.is_there(node) => {
                    former.remove(*by);
                }
                Plan::Gone(node)
                    if node.endpoint == *by
                        && !self.is_member(*by)
                        && self.ring.owner(&node.token).is_none() =>
                {
                    former.insert(node.token.clone(), *by);
                }
                Plan::Remove(node) if self.is_there(node) => {
                    ring.begin_leave(node.endpoint);
                }
                Plan::Replace(node) if self.is_there(node) => {
                    ring.begin_replace(node.token.clone(), *by);
                }
                _ => {}
            }
        }
        ring.set_former(&former);
        ring
    }

    /// Whether a node owns the token that a plan is about.
    fn is_there(&self, node: &NodePlace) -> bool {
        self.ring.owner(&node.token) == Some(node.endpoint)
    }

    /// All who own a token.
    pub fn endpoints(&self) -> BTreeSet<IpAddr> {
        self.ring.members().map(|(_, endpoint)| endpoint).collect()
    }
}

impl Membership {
    /// A ring without nodes, as this one sees it.
    pub fn new(
        partitioner: Partitioner,
        local: IpAddr,
        generation: i32,
        removed: impl IntoIterator<Item = RemovedNode>,
    ) -> Self {
        let removed = removed.into_iter().map(|node| {
            let RemovedNode { endpoint, token, generation, may_return } = node;
            ((endpoint, token), Removal::new(generation, may_return))
        });
        Self {
            partitioner,
            local,
            claims: Claims::default(),
            members: Members::default(),
            generations: BTreeMap::from([(local, generation)]),
            alive: BTreeSet::new(),
            removed: removed.collect(),
            ignored: BTreeMap::new(),
            named: BTreeMap::new(),
            given_up: 0,
        }
    }

    /// Removed nodes that came back before this start, with their generations at that time: who
    /// still tells of their removal means an earlier life of theirs.
    pub fn remember_returned(&mut self, returned: impl IntoIterator<Item = (IpAddr, i32)>) {
        for (endpoint, generation) in returned {
            let known = self.generations.entry(endpoint).or_insert(generation);
            *known = generation.max(*known);
        }
    }

    /// Puts the saved ring in place, before anything was heard. Removed nodes and this one, which
    /// says itself where it is, are left out.
    pub fn preload(&mut self, saved: impl IntoIterator<Item = (IpAddr, Token)>) {
        for (endpoint, token) in saved {
            let is_removed = self.removed.contains_key(&(endpoint, token.clone()));
            if endpoint != self.local && !is_removed {
                let claim = Claim { token, purpose: Purpose::Own, generation: None };
                self.update(endpoint, Some(claim), &mut Vec::new());
            }
        }
    }

    /// Others know a member of which this node has never heard. If that says something itself, or
    /// was removed, this does not count.
    pub fn learn(&mut self, endpoint: IpAddr, token: &Token) -> Vec<MembershipChange> {
        let mut changes = Vec::new();
        let is_removed = self.removed.contains_key(&(endpoint, token.clone()));
        if endpoint != self.local && !is_removed && self.claims.get(endpoint).is_none() {
            let claim = Claim { token: token.clone(), purpose: Purpose::Own, generation: None };
            self.update(endpoint, Some(claim), &mut changes);
        }
        changes
    }

    /// How often a node was forgotten, since it was silent, that was about to join or to take the
    /// place of another. From then on it got no writes: whether that was so while it collected data
    /// it can tell by this number alone.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The ring now.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The removed nodes that are remembered.
    pub fn removed(&self) -> impl Iterator<Item = RemovedNode> {
        self.removed.iter().map(|((endpoint, token), removal)| RemovedNode {
            endpoint: *endpoint,
            token: token.clone(),
            generation: removal.generation,
            may_return: removal.may_return,
        })
    }

    /// Removed nodes that have no place and are not to come back with their data: nothing that they
    /// ask for is done.
    pub fn turned_away(&self) -> impl Iterator<Item = IpAddr> {
        self.without_place().map(|(endpoint, _)| endpoint)
    }

    /// The value of [`super::REMOVED_STATE`]: these nodes, each with its last start that has no
    /// place.
    pub fn removed_state(&self) -> String {
        let last = self.without_place();
        removed_state::format(
            last.map(|(endpoint, it)| (endpoint, it.generation.max(it.refused))).collect(),
        )
    }

    fn without_place(&self) -> impl Iterator<Item = (IpAddr, &Removal)> {
        let removals = self.removed.iter().map(|((endpoint, _), removal)| (*endpoint, removal));
        removals.filter(|(endpoint, removal)| {
            !removal.may_return
                && self.claims.get(*endpoint).is_none()
                && removal.placed != Some(self.generation(*endpoint))
                && !self.replaces_since(*endpoint, removal)
        })
    }

    /// Whether a removed node has started since, and collects all data of another place.
    fn replaces_since(&self, endpoint: IpAddr, removal: &Removal) -> bool {
        let is_new_start = self.generation(endpoint) > removal.generation.max(removal.refused);
        is_new_start && matches!(self.members.plans.get(&endpoint), Some(Plan::Replace(_)))
    }

    /// An operator wants a removed node back with the data that it has. It is taken back when it
    /// has started anew, which `known`, what gossip knows of it, may already tell. `None` if no
    /// such node was removed.
    pub fn allow_return(
        &mut self,
        endpoint: IpAddr,
        known: Option<&EndpointState>,
    ) -> Option<Vec<MembershipChange>> {
        let mut changes = Vec::new();
        for ((removed, token), removal) in &mut self.removed {
            if *removed == endpoint {
                removal.may_return = true;
                let (token, generation) = (token.clone(), removal.generation);
                let node = RemovedNode { endpoint, token, generation, may_return: true };
                changes.push(MembershipChange::MayReturn(node));
            }
        }
        if changes.is_empty() {
            return None;
        }
        if let Some(known) = known
            && let Some(state) = known.states.get(MOVE_STATE)
        {
            changes.extend(self.follow(&GossipEvent::StateChanged {
                endpoint,
                generation: known.generation,
                name: MOVE_STATE.to_owned(),
                state: state.clone(),
            }));
        }
        Some(changes)
    }

    /// This node takes its place, before it tells the others. A saved ring may still have its
    /// former address there, which loses it.
    pub fn announce(&mut self, own: &Move) -> Vec<MembershipChange> {
        let mut changes = Vec::new();
        self.place(self.local, own, 0, &mut changes);
        changes
    }

    /// This node says something of a place besides its own one, or nothing any more.
    pub fn announce_plan(&mut self, plan: Option<&Plan>) -> Vec<MembershipChange> {
        let mut changes = Vec::new();
        self.plan(self.local, plan, 0, &mut changes);
        changes
    }

    /// Follows what a gossiper found out.
    pub fn follow(&mut self, event: &GossipEvent) -> Vec<MembershipChange> {
        let mut changes = Vec::new();
        match event {
            GossipEvent::Appeared { endpoint, generation } => {
                self.generations.insert(*endpoint, *generation);
            }
            GossipEvent::Restarted { endpoint, generation } => {
                self.generations.insert(*endpoint, *generation);
                self.alive.insert(*endpoint);
                // If it still has a plan it says so anew.
                self.plan(*endpoint, None, 0, &mut changes);
            }
            GossipEvent::Up { endpoint } => {
                self.alive.insert(*endpoint);
            }
            GossipEvent::Down { endpoint } => {
                self.alive.remove(endpoint);
                self.reconsider(*endpoint, &mut changes);
            }
            GossipEvent::OwnGenerationRaised { generation }
            | GossipEvent::OwnGenerationLowered { generation } => {
                self.generations.insert(self.local, *generation);
                let renewed =
                    |claim: &Claim| Claim { generation: Some(*generation), ..claim.clone() };
                if let Some(claim) = self.claims.get(self.local).map(renewed) {
                    self.update(self.local, Some(claim), &mut changes);
                }
            }
            GossipEvent::StateChanged { endpoint, generation, name, state }
                if name == MOVE_STATE && *endpoint != self.local =>
            {
                self.generations.insert(*endpoint, *generation);
                // A gossiper has refused, and told of, what does not parse.
                if let Ok(Some(place)) = Move::parse(self.partitioner, &state.value) {
                    self.place(*endpoint, &place, state.version, &mut changes);
                }
            }
            GossipEvent::StateChanged { endpoint, generation, name, state }
                if name == PLAN_STATE && *endpoint != self.local =>
            {
                self.generations.insert(*endpoint, *generation);
                let plan = Plan::parse(self.partitioner, &state.value);
                self.plan(*endpoint, plan.as_ref(), state.version, &mut changes);
            }
            GossipEvent::StateChanged { endpoint, name, state, .. }
                if name == REMOVED_STATE && *endpoint != self.local =>
            {
                self.named.insert(*endpoint, state.value.clone());
                self.reconsider_named(*endpoint, &mut changes);
            }
            GossipEvent::Forgotten { endpoint, .. } | GossipEvent::Disowned { endpoint } => {
                self.named.remove(endpoint);
                let replaces = matches!(self.members.plans.get(endpoint), Some(Plan::Replace(_)));
                if replaces || self.members.bootstrapping.contains_key(endpoint) {
                    self.given_up += 1;
                }
                self.plan(*endpoint, None, 0, &mut changes);
                self.generations.remove(endpoint);
                self.alive.remove(endpoint);
                self.update(*endpoint, None, &mut changes);
            }
            _ => {}
        }
        changes
    }

    /// `version` is the count of the endpoint at which it said this.
    fn place(
        &mut self,
        endpoint: IpAddr,
        place: &Move,
        version: i32,
        changes: &mut Vec<MembershipChange>,
    ) {
        match place {
            Move::Boot(token) => self.boot(endpoint, token, changes),
            Move::Normal { token, removed } => {
                self.normal(endpoint, token, changes);
                match removed {
                    Some(token) => self.remove(token, endpoint, version, changes),
                    None => self.take_back(endpoint, token),
                }
            }
            Move::Leaving(token) => self.leaving(endpoint, token, changes),
            Move::Left(token) => {
                let known = self.members.ring.token(endpoint);
                if known.is_some_and(|known| known != token) {
                    let notice = MembershipNotice::Mismatch { endpoint, word: "left" };
                    changes.push(MembershipChange::Notice(notice));
                }
                self.note_place(endpoint);
                self.update(endpoint, None, changes);
            }
        }
    }

    /// A node has a place, or has left one as it should. Started after it was removed from another
    /// one it is not what was removed, also when it has left.
    fn note_place(&mut self, endpoint: IpAddr) {
        let own = self.generation(endpoint);
        for ((removed, _), removal) in &mut self.removed {
            if *removed == endpoint && own > removal.generation.max(removal.refused) {
                removal.placed = Some(own);
            }
        }
    }

    /// `version` is the count of the endpoint at which it said this.
    fn plan(
        &mut self,
        by: IpAddr,
        plan: Option<&Plan>,
        version: i32,
        changes: &mut Vec<MembershipChange>,
    ) {
        if let Some(Plan::Replaced(NodePlace { endpoint, token })) = plan {
            self.replaced(*endpoint, token, by, version, changes);
        }
        // A replacement collects all its data, as a bootstrapping node does.
        if let Some(Plan::Replace(NodePlace { token, .. })) = plan
            && let Some(removal) = self.removed.get(&(by, token.clone()))
            && self.generation(by) > removal.generation
        {
            self.readmit(by, token, changes);
        }
        let before = match plan {
            Some(plan) => self.members.plans.insert(by, plan.clone()),
            None => self.members.plans.remove(&by),
        };
        changes.extend((before.as_ref() != plan).then_some(MembershipChange::Ring));
    }

    /// A node has got the token of a dead one, which must not come back to it: it would take it
    /// away again, since it had started later.
    fn replaced(
        &mut self,
        endpoint: IpAddr,
        token: &Token,
        by: IpAddr,
        version: i32,
        changes: &mut Vec<MembershipChange>,
    ) {
        let claims = self.claims.get(endpoint).is_some_and(|claim| claim.token == *token);
        if endpoint == by || !claims || self.removed.contains_key(&(endpoint, token.clone())) {
            return;
        }
        if endpoint == self.local {
            changes.push(MembershipChange::Notice(MembershipNotice::RemovalOfSelf));
        } else if self.is_removable(endpoint, by, version) {
            self.remove_owner(endpoint, token, changes);
        } else {
            self.ignore(endpoint, token, (by, version));
            let notice = MembershipNotice::RemovalIgnored { endpoint, by };
            changes.push(MembershipChange::Notice(notice));
        }
    }

    fn ignore(&mut self, endpoint: IpAddr, token: &Token, said: (IpAddr, i32)) {
        if self.ignored.len() >= MAX_REMOVED {
            self.ignored.pop_first();
        }
        self.ignored.insert((endpoint, token.clone()), said);
    }

    /// A node says no more that another one was removed, and owns this token.
    fn take_back(&mut self, by: IpAddr, own: &Token) {
        let is_taken_back = |endpoint: IpAddr, token: &Token, said: &(IpAddr, i32)| {
            said.0 == by && token != own && !self.names(by, endpoint)
        };
        let ignored = self.ignored.iter();
        let taken_back: Vec<(IpAddr, Token)> = ignored
            .filter(|((endpoint, token), said)| is_taken_back(*endpoint, token, said))
            .map(|(removal, _)| removal.clone())
            .collect();
        for removal in taken_back {
            self.ignored.remove(&removal);
        }
    }

    /// A node is dead that others took for dead before: what they had it removed for is done now,
    /// unless it was started since.
    fn reconsider(&mut self, endpoint: IpAddr, changes: &mut Vec<MembershipChange>) {
        let of_it = self.ignored.iter().filter(|((ignored, _), _)| *ignored == endpoint);
        let of_it: Vec<(Token, (IpAddr, i32))> =
            of_it.map(|((_, token), said)| (token.clone(), *said)).collect();
        for (token, (by, version)) in of_it {
            self.ignored.remove(&(endpoint, token.clone()));
            let claims = self.claims.get(endpoint).is_some_and(|claim| claim.token == token);
            if claims && self.is_removable(endpoint, by, version) {
                self.remove_owner(endpoint, &token, changes);
            }
        }
    }

    /// A node names the starts that were removed: what it had others removed for is done now.
    fn reconsider_named(&mut self, by: IpAddr, changes: &mut Vec<MembershipChange>) {
        let said = self.ignored.iter().filter(|(_, said)| said.0 == by);
        let ignored: BTreeSet<IpAddr> = said.map(|((endpoint, _), _)| *endpoint).collect();
        for endpoint in ignored {
            if !self.alive.contains(&endpoint) && self.names(by, endpoint) {
                self.reconsider(endpoint, changes);
            }
        }
    }

    /// Whether a node says that the last start of an endpoint was removed.
    fn names(&self, by: IpAddr, endpoint: IpAddr) -> bool {
        let named = self.named.get(&by);
        named.is_some_and(|it| removed_state::names(it, endpoint, self.generation(endpoint)))
    }

    /// A node that bootstraps is on the ring no more, if it was. It collects all data anew, and so
    /// may have been removed before.
    fn boot(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if self.members.is_member(endpoint) && !self.members.leaving.contains(&endpoint) {
            let notice = MembershipNotice::Jump { endpoint, to: "bootstrap" };
            changes.push(MembershipChange::Notice(notice));
        }
        self.readmit(endpoint, token, changes);
        let joining = self.claims.all_joining(token).find(|other| *other != endpoint);
        let owner = self.members.ring.owner(token).filter(|owner| *owner != endpoint);
        if let Some(other) = joining.or(owner) {
            let text = self.partitioner.display_token(token);
            let notice = MembershipNotice::Collision { endpoint, other, token: text };
            changes.push(MembershipChange::Notice(notice));
        }
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Join)), changes);
    }

    fn normal(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if !self.may_return(endpoint, token, changes) {
            return;
        }
        self.note_place(endpoint);
        let known = self.members.ring.token(endpoint);
        let was_leaving = self.members.leaving.contains(&endpoint);
        if known.is_some_and(|known| known != token || was_leaving) {
            let notice = MembershipNotice::Jump { endpoint, to: "normal" };
            changes.push(MembershipChange::Notice(notice));
        }
        let place = changes.len();
        let before = self.members.ring.owner(token).filter(|owner| *owner != endpoint);
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Own)), changes);
        if let Some(owner) = before {
            let wins = self.members.ring.owner(token) == Some(endpoint);
            let token = self.partitioner.display_token(token);
            let notice = MembershipNotice::SameToken { endpoint, owner, token, wins };
            changes.insert(place, MembershipChange::Notice(notice));
        }
    }

    /// A node that is leaving must have owned the token before. If somebody else has it, that is by
    /// a later start, or was until now.
    fn leaving(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if !self.may_return(endpoint, token, changes) {
            return;
        }
        let known = self.members.ring.token(endpoint);
        if known != Some(token) {
            let notice = if known.is_some() {
                MembershipNotice::Mismatch { endpoint, word: "leaving" }
            } else {
                MembershipNotice::Jump { endpoint, to: "leaving" }
            };
            changes.push(MembershipChange::Notice(notice));
        }
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Leave)), changes);
    }

    /// Somebody removed the dead owner of a token, and says so until its own next start, long after
    /// another node may have taken the place. So who is alive is not meant, nor who has started
    /// since; the original removes them as well.
    fn remove(
        &mut self,
        token: &Token,
        by: IpAddr,
        version: i32,
        changes: &mut Vec<MembershipChange>,
    ) {
        let joining: Vec<IpAddr> = self.claims.all_joining(token).collect();
        for endpoint in joining {
            if self.is_removable(endpoint, by, version) {
                self.update(endpoint, None, changes);
            }
        }
        let mut is_first = true;
        while let Some(endpoint) = self.members.ring.owner(token) {
            if endpoint == self.local || !self.is_removable(endpoint, by, version) {
                let notice = if endpoint == self.local {
                    MembershipNotice::RemovalOfSelf
                } else {
                    self.ignore(endpoint, token, (by, version));
                    MembershipNotice::RemovalIgnored { endpoint, by }
                };
                changes.extend(is_first.then_some(MembershipChange::Notice(notice)));
                return;
            }
            self.remove_owner(endpoint, token, changes);
            // The next one may be as dead: a former address of the same node, for one.
            is_first = false;
        }
    }

    fn remove_owner(
        &mut self,
        endpoint: IpAddr,
        token: &Token,
        changes: &mut Vec<MembershipChange>,
    ) {
        let generation = self.generation(endpoint);
        self.generations.remove(&endpoint);
        if self.removed.len() >= MAX_REMOVED {
            self.removed.pop_first();
        }
        let may_return = false;
        self.removed.insert((endpoint, token.clone()), Removal::new(generation, may_return));
        self.update(endpoint, None, changes);
        let node = RemovedNode { endpoint, token: token.clone(), generation, may_return };
        changes.push(MembershipChange::Removed(node));
    }

    /// Whether an endpoint is dead, and was started last before `by` said this. When that was
    /// follows from the version: a counter grows by one a second, and a generation is the time of a
    /// start. Some generations are ahead of the time: nodes of this program name the start as well.
    /// What this node says itself it says now.
    fn is_removable(&self, endpoint: IpAddr, by: IpAddr, version: i32) -> bool {
        let said_secs = i64::from(self.generation(by)) + i64::from(version);
        let is_older = i64::from(self.generation(endpoint)) <= said_secs;
        let is_meant = is_older || by == self.local || self.names(by, endpoint);
        !self.alive.contains(&endpoint) && is_meant
    }

    /// Whether a node may be on the ring at this token: unless it was removed from there. Then it
    /// is nowhere, whatever it said before.
    fn may_return(
        &mut self,
        endpoint: IpAddr,
        token: &Token,
        changes: &mut Vec<MembershipChange>,
    ) -> bool {
        let own = self.generation(endpoint);
        let Some(removal) = self.removed.get_mut(&(endpoint, token.clone())) else { return true };
        let Removal { generation, may_return, .. } = *removal;
        let is_new_start = own > generation;
        if endpoint == self.local || is_new_start && may_return {
            self.readmit(endpoint, token, changes);
            return true;
        }
        removal.refused = own;
        // It has to be told, whether the others knew it or not.
        changes.push(MembershipChange::Ring);
        let text = self.partitioner.display_token(token);
        let notice = if may_return {
            MembershipNotice::ReturnAwaitsStart { endpoint, token: text }
        } else {
            MembershipNotice::ReturnRefused { endpoint, token: text }
        };
        changes.push(MembershipChange::Notice(notice));
        self.update(endpoint, None, changes);
        false
    }

    /// A removal counts no more.
    fn readmit(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if self.removed.remove(&(endpoint, token.clone())).is_some() {
            let (token, generation) = (token.clone(), self.generation(endpoint));
            changes.push(MembershipChange::Readmitted { endpoint, token, generation });
        }
    }

    /// What an endpoint says now.
    fn claim(&self, endpoint: IpAddr, token: &Token, purpose: Purpose) -> Claim {
        Claim { token: token.clone(), purpose, generation: Some(self.generation(endpoint)) }
    }

    /// An endpoint says this now, or nothing any more. The tokens of its last claim and of this one
    /// go to whom they belong by all claims.
    fn update(
        &mut self,
        endpoint: IpAddr,
        claim: Option<Claim>,
        changes: &mut Vec<MembershipChange>,
    ) {
        let was_displaced = self.displaced_by().is_some();
        let before = self.claims.replace(endpoint, claim);
        let tokens = before.iter().chain(self.claims.get(endpoint));
        let tokens: BTreeSet<Token> = tokens.map(|claim| claim.token.clone()).collect();
        let mut turn = Turn::default();
        for token in &tokens {
            self.claims.drop_unheard_losers(token);
            self.clear(token, &mut turn);
        }
        for token in &tokens {
            self.fill(token, &mut turn);
        }
        let is_move = tokens.len() > 1 && endpoint == self.local;
        for (owner, token) in &turn.gained {
            let is_own_return = *owner == self.local && was_displaced && !is_move;
            if *owner != endpoint || is_own_return {
                let (owner, token) = (*owner, self.partitioner.display_token(token));
                let notice = MembershipNotice::Reclaimed { owner, token };
                changes.push(MembershipChange::Notice(notice));
            }
            if is_own_return {
                changes.push(MembershipChange::Reannounce);
            }
        }
        if let Some((token, owner)) = self.displaced_by()
            && !was_displaced
        {
            let token = self.partitioner.display_token(token);
            let notice = MembershipNotice::PlaceLost { token, owner };
            changes.push(MembershipChange::Notice(notice));
        }
        turn.tell(changes);
    }

    /// Takes those out who have a token, or join there, and should not.
    fn clear(&mut self, token: &Token, turn: &mut Turn) {
        let owner = self.claims.owner(token);
        if let Some(former) = self.members.ring.owner(token)
            && owner != Some(former)
        {
            self.members.ring.remove(former);
            self.members.leaving.remove(&former);
            turn.lost.insert(former);
        }
        let joining = self.claims.joining(token);
        let count = self.members.bootstrapping.len();
        self.members.bootstrapping.retain(|it, at| at != token || joining == Some(*it));
        turn.is_changed |= self.members.bootstrapping.len() != count;
    }

    /// Puts those in who should have a token, or join there. Where they were before is cleared.
    fn fill(&mut self, token: &Token, turn: &mut Turn) {
        if let Some(owner) = self.claims.owner(token) {
            if self.members.ring.owner(token) != Some(owner) {
                self.members.ring.insert(token.clone(), owner);
                turn.gained.insert(owner, token.clone());
            }
            let claim = self.claims.get(owner);
            turn.is_changed |= if claim.is_some_and(|it| it.purpose == Purpose::Leave) {
                self.members.leaving.insert(owner)
            } else {
                self.members.leaving.remove(&owner)
            };
        }
        if let Some(joining) = self.claims.joining(token) {
            let at = self.members.bootstrapping.insert(joining, token.clone());
            turn.is_changed |= at.as_ref() != Some(token);
        }
    }

    /// The token that this node claims in vain, and who has it.
    fn displaced_by(&self) -> Option<(&Token, IpAddr)> {
        let claim = self.claims.get(self.local)?;
        let owner = self.members.ring.owner(&claim.token)?;
        let is_displaced = claim.purpose != Purpose::Join && owner != self.local;
        is_displaced.then_some((&claim.token, owner))
    }

    /// The last start of an endpoint that was heard of.
    fn generation(&self, endpoint: IpAddr) -> i32 {
        self.generations.get(&endpoint).copied().unwrap_or(i32::MIN)
    }
}

/// What one claim changes.
#[derive(Debug, Default)]
struct Turn {
    lost: BTreeSet<IpAddr>,
    gained: BTreeMap<IpAddr, Token>,
    /// Whether something else is new about who joins or leaves.
    is_changed: bool,
}

impl Turn {
    fn tell(self, changes: &mut Vec<MembershipChange>) {
        let is_changed = self.is_changed || !self.lost.is_empty() || !self.gained.is_empty();
        let losers = self.lost.into_iter().filter(|it| !self.gained.contains_key(it));
        changes.extend(losers.map(|endpoint| MembershipChange::ForgetToken { endpoint }));
        let gained = self.gained.into_iter();
        changes.extend(
            gained.map(|(endpoint, token)| MembershipChange::SaveToken { endpoint, token }),
        );
        changes.extend(is_changed.then_some(MembershipChange::Ring));
    }
}

#[cfg(test)]
mod tests;
