//! The ring as gossip announces it: owners of tokens, joining and leaving nodes.

use super::claims::{Claim, Claims, Purpose};
use super::endpoint_state::EndpointState;
use super::event::GossipEvent;
use super::membership_change::{MembershipChange, MembershipNotice, RemovedNode};
use super::place_states::{Move, NodePlace, Plan, format_removals, names_removal};
use super::{MOVE_STATE, PLAN_STATE, REMOVED_STATE};
use crate::ring::{Partitioner, Token, TokenMetadata};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most removed nodes that are remembered. No cluster removes as many.
const MAX_REMOVED: usize = 1024;

/// The members of the ring, and the nodes that join or leave it. A value: readers keep a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members {
    /// Owners of tokens, leaving ones included.
    pub ring: TokenMetadata,
    /// Nodes that collect the data for a token, and get its writes already.
    pub bootstrapping: BTreeMap<IpAddr, Token>,
    /// Members that hand their data over.
    pub leaving: BTreeSet<IpAddr>,
    /// Further changes, by the nodes that announce them.
    pub plans: BTreeMap<IpAddr, Plan>,
}

/// A remembered removal.
#[derive(Debug, Clone, Copy)]
struct Removal {
    /// The generation of the node at that time.
    generation: i32,
    /// The last start with a refused claim to the place.
    refused: i32,
    /// The last start with another place.
    placed: Option<i32>,
    /// Whether an operator allows the return.
    may_return: bool,
}

impl Removal {
    fn new(generation: i32, may_return: bool) -> Self {
        Self { generation, refused: generation, placed: None, may_return }
    }
}

/// Derives the ring from the announcements of all nodes.
///
/// When two nodes claim a token the one that started later owns it, on every node and in whatever
/// order their claims come. When that one goes elsewhere the other owns it again, since it still
/// claims it. This node is treated like all others.
///
/// Removed nodes are remembered because their data are old: deletions that they missed may have
/// been purged everywhere else. One that comes back at its old place is no member until an operator
/// allows it, or until it has bootstrapped. 0.6 took it back at once.
#[derive(Debug)]
pub struct Membership {
    partitioner: Partitioner,
    local: IpAddr,
    claims: Claims,
    members: Members,
    /// The generations of all known nodes, this one included.
    generations: BTreeMap<IpAddr, i32>,
    /// Live nodes other than this one.
    alive: BTreeSet<IpAddr>,
    /// Removed nodes with the tokens that they had.
    removed: BTreeMap<(IpAddr, Token), Removal>,
    /// Removals that were ignored because the node seemed alive, by node and token: the announcing
    /// node and the version of its announcement. The node may have been dead but not yet convicted.
    ignored: BTreeMap<(IpAddr, Token), (IpAddr, i32)>,
    /// The values of [`super::REMOVED_STATE`], by announcing node.
    named: BTreeMap<IpAddr, String>,
    given_up: u64,
    /// Results of the present input.
    changes: Vec<MembershipChange>,
}

impl Members {
    /// Whether an endpoint owns a token.
    pub fn is_member(&self, endpoint: IpAddr) -> bool {
        self.ring.token(endpoint).is_some()
    }

    /// The ring with all pending changes: joining, leaving and replacing nodes. A dead node that
    /// just arrived or left changes nothing: it is not read from, and each quorum of the others has
    /// all acknowledged writes.
    pub fn with_pending(&self, is_alive: impl Fn(IpAddr) -> bool) -> TokenMetadata {
        let mut ring = self.ring.clone();
        for endpoint in &self.leaving {
            ring.begin_leave(*endpoint);
        }
        for (endpoint, token) in &self.bootstrapping {
            // At most one node joins at a token, and none at one with an owner.
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

    /// Whether the node of a plan owns its token.
    fn is_there(&self, node: &NodePlace) -> bool {
        self.ring.owner(&node.token) == Some(node.endpoint)
    }

    /// The owners of tokens.
    pub fn endpoints(&self) -> BTreeSet<IpAddr> {
        self.ring.members().map(|(_, endpoint)| endpoint).collect()
    }
}

impl Membership {
    /// A ring without nodes.
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
            changes: Vec::new(),
        }
    }

    /// Takes removed nodes that came back before this start, with their generations at that time:
    /// announcements of their removal are about an earlier life.
    pub fn remember_returned(&mut self, returned: impl IntoIterator<Item = (IpAddr, i32)>) {
        for (endpoint, generation) in returned {
            let known = self.generations.entry(endpoint).or_insert(generation);
            *known = generation.max(*known);
        }
    }

    /// Takes the saved ring before there are any news. Removed nodes and this one, which announces
    /// its place itself, are left out.
    pub fn preload(&mut self, saved: impl IntoIterator<Item = (IpAddr, Token)>) {
        for (endpoint, token) in saved {
            self.add_unheard(endpoint, token);
        }
        self.changes.clear();
    }

    /// Adds a member that others know and this node does not. Ignored if it
    /// announces a place itself, or was removed.
    pub fn learn(&mut self, endpoint: IpAddr, token: &Token) -> Vec<MembershipChange> {
        if self.claims.get(endpoint).is_none() {
            self.add_unheard(endpoint, token.clone());
        }
        std::mem::take(&mut self.changes)
    }

    fn add_unheard(&mut self, endpoint: IpAddr, token: Token) {
        let is_removed = self.removed.contains_key(&(endpoint, token.clone()));
        if endpoint != self.local && !is_removed {
            let claim = Claim { token, purpose: Purpose::Own, generation: None };
            self.update(endpoint, Some(claim));
        }
    }

    /// Number of joining or replacing nodes that were forgotten because they were silent. A
    /// forgotten node gets no writes; a change of this number tells it that it may have missed
    /// some.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// The present ring.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The remembered removals.
    pub fn removed(&self) -> impl Iterator<Item = RemovedNode> {
        self.removed.iter().map(|((endpoint, token), removal)| RemovedNode {
            endpoint: *endpoint,
            token: token.clone(),
            generation: removal.generation,
            may_return: removal.may_return,
        })
    }

    /// Removed nodes without a place that must not return with their data: their requests are
    /// refused.
    pub fn turned_away(&self) -> impl Iterator<Item = IpAddr> {
        self.without_place().map(|(endpoint, _)| endpoint)
    }

    /// The value of [`super::REMOVED_STATE`]: these nodes, each with its last start without a
    /// place.
    pub fn removed_state(&self) -> String {
        let last = |(endpoint, it): (_, &Removal)| (endpoint, it.generation.max(it.refused));
        format_removals(self.without_place().map(last).collect())
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

    /// Whether a removed node has restarted and collects all data of another place.
    fn replaces_since(&self, endpoint: IpAddr, removal: &Removal) -> bool {
        let is_new_start = self.generation(endpoint) > removal.generation.max(removal.refused);
        is_new_start && matches!(self.members.plans.get(&endpoint), Some(Plan::Replace(_)))
    }

    /// Allows a removed node to return with its data, once it has been restarted. `known` is its
    /// state in gossip, which may have that start already. `None` if no such node was removed.
    pub fn allow_return(
        &mut self,
        endpoint: IpAddr,
        known: Option<&EndpointState>,
    ) -> Option<Vec<MembershipChange>> {
        for ((removed, token), removal) in &mut self.removed {
            if *removed == endpoint {
                removal.may_return = true;
                let (token, generation) = (token.clone(), removal.generation);
                let node = RemovedNode { endpoint, token, generation, may_return: true };
                self.changes.push(MembershipChange::MayReturn(node));
            }
        }
        if self.changes.is_empty() {
            return None;
        }
        if let Some(known) = known
            && let Some(state) = known.states.get(MOVE_STATE)
        {
            let (generation, name) = (known.generation, MOVE_STATE.to_owned());
            let state = state.clone();
            self.apply(&GossipEvent::StateChanged { endpoint, generation, name, state });
        }
        Some(std::mem::take(&mut self.changes))
    }

    /// Places this node, before it tells the others. A saved ring may still have its former address
    /// there, which loses the token.
    pub fn announce(&mut self, own: &Move) -> Vec<MembershipChange> {
        self.place(self.local, own, 0);
        std::mem::take(&mut self.changes)
    }

    /// Sets or clears the plan of this node.
    pub fn announce_plan(&mut self, plan: Option<&Plan>) -> Vec<MembershipChange> {
        self.plan(self.local, plan, 0);
        std::mem::take(&mut self.changes)
    }

    /// Takes an event of the gossiper.
    pub fn follow(&mut self, event: &GossipEvent) -> Vec<MembershipChange> {
        self.apply(event);
        std::mem::take(&mut self.changes)
    }

    fn apply(&mut self, event: &GossipEvent) {
        match event {
            GossipEvent::Appeared { endpoint, generation } => {
                self.generations.insert(*endpoint, *generation);
            }
            GossipEvent::Restarted { endpoint, generation } => {
                self.generations.insert(*endpoint, *generation);
                self.alive.insert(*endpoint);
                // If it still has a plan it announces that again.
                self.plan(*endpoint, None, 0);
            }
            GossipEvent::Up(endpoint) => {
                self.alive.insert(*endpoint);
            }
            GossipEvent::Down(endpoint) => {
                self.alive.remove(endpoint);
                self.reconsider(*endpoint);
            }
            GossipEvent::OwnGenerationRaised(generation)
            | GossipEvent::OwnGenerationLowered(generation) => {
                self.generations.insert(self.local, *generation);
                let renewed =
                    |claim: &Claim| Claim { generation: Some(*generation), ..claim.clone() };
                if let Some(claim) = self.claims.get(self.local).map(renewed) {
                    self.update(self.local, Some(claim));
                }
            }
            GossipEvent::StateChanged { endpoint, generation, name, state }
                if name == MOVE_STATE && *endpoint != self.local =>
            {
                self.generations.insert(*endpoint, *generation);
                // The gossiper has refused values that do not parse.
                if let Ok(Some(place)) = Move::parse(self.partitioner, &state.value) {
                    self.place(*endpoint, &place, state.version);
                }
            }
            GossipEvent::StateChanged { endpoint, generation, name, state }
                if name == PLAN_STATE && *endpoint != self.local =>
            {
                self.generations.insert(*endpoint, *generation);
                let plan = Plan::parse(self.partitioner, &state.value);
                self.plan(*endpoint, plan.as_ref(), state.version);
            }
            GossipEvent::StateChanged { endpoint, name, state, .. }
                if name == REMOVED_STATE && *endpoint != self.local =>
            {
                self.named.insert(*endpoint, state.value.clone());
                self.reconsider_named(*endpoint);
            }
            GossipEvent::Forgotten { endpoint, .. } | GossipEvent::Disowned(endpoint) => {
                self.named.remove(endpoint);
                let replaces = matches!(self.members.plans.get(endpoint), Some(Plan::Replace(_)));
                if replaces || self.members.bootstrapping.contains_key(endpoint) {
                    self.given_up += 1;
                }
                self.plan(*endpoint, None, 0);
                self.generations.remove(endpoint);
                self.alive.remove(endpoint);
                self.update(*endpoint, None);
            }
            _ => {}
        }
    }

    fn notice(&mut self, notice: MembershipNotice) {
        self.changes.push(MembershipChange::Notice(notice));
    }

    /// Takes an announced place. `version` is that of the announcement.
    fn place(&mut self, endpoint: IpAddr, place: &Move, version: i32) {
        match place {
            Move::Boot(token) => self.boot(endpoint, token),
            Move::Normal { token, removed } => {
                self.normal(endpoint, token);
                match removed {
                    Some(token) => self.remove(token, endpoint, version),
                    None => self.take_back(endpoint, token),
                }
            }
            Move::Leaving(token) => self.leaving(endpoint, token),
            Move::Left(token) => {
                let known = self.members.ring.token(endpoint);
                if known.is_some_and(|known| known != token) {
                    let notice = MembershipNotice::Mismatch { endpoint, word: "left" };
                    self.notice(notice);
                }
                self.note_place(endpoint);
                self.update(endpoint, None);
            }
            Move::Removed(token) => self.remove(token, endpoint, version),
        }
    }

    /// Notes that a node has a place, or has left one in order. If it started after its removal
    /// from another one, it is not the removed node, also when it has left.
    fn note_place(&mut self, endpoint: IpAddr) {
        let own = self.generation(endpoint);
        for ((removed, _), removal) in &mut self.removed {
            if *removed == endpoint && own > removal.generation.max(removal.refused) {
                removal.placed = Some(own);
            }
        }
    }

    /// Takes an announced plan. `version` is that of the announcement.
    fn plan(&mut self, by: IpAddr, plan: Option<&Plan>, version: i32) {
        if let Some(Plan::Replaced(NodePlace { endpoint, token })) = plan {
            self.replaced(*endpoint, token, by, version);
        }
        // A replacement collects all data, like a bootstrapping node.
        if let Some(Plan::Replace(NodePlace { token, .. })) = plan
            && let Some(removal) = self.removed.get(&(by, token.clone()))
            && self.generation(by) > removal.generation
        {
            self.readmit(by, token);
        }
        let before = match plan {
            Some(plan) => self.members.plans.insert(by, plan.clone()),
            None => self.members.plans.remove(&by),
        };
        self.changes.extend((before.as_ref() != plan).then_some(MembershipChange::Ring));
    }

    /// Takes the announcement that a node got the token of a dead one. That one must not come back
    /// to it: it may have started later, and would own the token again.
    fn replaced(&mut self, endpoint: IpAddr, token: &Token, by: IpAddr, version: i32) {
        let claims = self.claims.get(endpoint).is_some_and(|claim| claim.token == *token);
        if endpoint == by || !claims || self.removed.contains_key(&(endpoint, token.clone())) {
            return;
        }
        if endpoint == self.local {
            self.notice(MembershipNotice::RemovalOfSelf);
        } else if self.is_removable(endpoint, by, version) {
            self.remove_owner(endpoint, token);
        } else {
            self.ignore(endpoint, token, (by, version));
            let notice = MembershipNotice::RemovalIgnored { endpoint, by };
            self.notice(notice);
        }
    }

    fn ignore(&mut self, endpoint: IpAddr, token: &Token, said: (IpAddr, i32)) {
        if self.ignored.len() >= MAX_REMOVED {
            self.ignored.pop_first();
        }
        self.ignored.insert((endpoint, token.clone()), said);
    }

    /// Drops ignored removals that a node, which owns this token, does not announce any more.
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

    /// Carries out the ignored removals of a node that is dead now, unless it was restarted since.
    fn reconsider(&mut self, endpoint: IpAddr) {
        let of_it = self.ignored.iter().filter(|((ignored, _), _)| *ignored == endpoint);
        let of_it: Vec<(Token, (IpAddr, i32))> =
            of_it.map(|((_, token), said)| (token.clone(), *said)).collect();
        for (token, (by, version)) in of_it {
            self.ignored.remove(&(endpoint, token.clone()));
            let claims = self.claims.get(endpoint).is_some_and(|claim| claim.token == token);
            if claims && self.is_removable(endpoint, by, version) {
                self.remove_owner(endpoint, &token);
            }
        }
    }

    /// Carries out ignored removals of starts that a node names as removed, and those that this
    /// node came too late for.
    fn reconsider_named(&mut self, by: IpAddr) {
        let said = self.ignored.iter().filter(|(_, said)| said.0 == by);
        let ignored: BTreeSet<IpAddr> = said.map(|((endpoint, _), _)| *endpoint).collect();
        for endpoint in ignored {
            if !self.alive.contains(&endpoint) && self.names(by, endpoint) {
                self.reconsider(endpoint);
            }
        }
        if self.members.is_member(self.local) {
            return;
        }
        let owners = self.members.ring.members().map(|(token, owner)| (token.clone(), owner));
        for (token, owner) in owners.collect::<Vec<_>>() {
            self.remove_if_missed(owner, &token);
        }
    }

    /// Removes an owner that members name as removed, as long as this node is no member itself. The
    /// node that announced the removal may have left since.
    fn remove_if_missed(&mut self, endpoint: IpAddr, token: &Token) {
        let is_named = |by: &IpAddr| self.members.is_member(*by) && self.names(*by, endpoint);
        if !self.members.is_member(self.local)
            && !self.removed.contains_key(&(endpoint, token.clone()))
            && self.named.keys().any(is_named)
        {
            self.remove_owner(endpoint, token);
        }
    }

    /// Whether a node names the last start of an endpoint as removed.
    fn names(&self, by: IpAddr, endpoint: IpAddr) -> bool {
        let named = self.named.get(&by);
        named.is_some_and(|it| names_removal(it, endpoint, self.generation(endpoint)))
    }

    /// A bootstrapping node is no member any more. It may have been removed before, since it
    /// collects all its data again.
    fn boot(&mut self, endpoint: IpAddr, token: &Token) {
        if self.members.is_member(endpoint) && !self.members.leaving.contains(&endpoint) {
            let notice = MembershipNotice::Jump { endpoint, to: "bootstrap" };
            self.notice(notice);
        }
        self.readmit(endpoint, token);
        let joining = self.claims.all_joining(token).find(|other| *other != endpoint);
        let owner = self.members.ring.owner(token).filter(|owner| *owner != endpoint);
        if let Some(other) = joining.or(owner) {
            let text = self.partitioner.display_token(token);
            let notice = MembershipNotice::Collision { endpoint, other, token: text };
            self.notice(notice);
        }
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Join)));
    }

    fn normal(&mut self, endpoint: IpAddr, token: &Token) {
        self.remove_if_missed(endpoint, token);
        if !self.may_return(endpoint, token) {
            return;
        }
        self.note_place(endpoint);
        let known = self.members.ring.token(endpoint);
        let was_leaving = self.members.leaving.contains(&endpoint);
        if known.is_some_and(|known| known != token || was_leaving) {
            let notice = MembershipNotice::Jump { endpoint, to: "normal" };
            self.notice(notice);
        }
        let place = self.changes.len();
        let before = self.members.ring.owner(token).filter(|owner| *owner != endpoint);
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Own)));
        if let Some(owner) = before {
            let wins = self.members.ring.owner(token) == Some(endpoint);
            let token = self.partitioner.display_token(token);
            let notice = MembershipNotice::SameToken { endpoint, owner, token, wins };
            self.changes.insert(place, MembershipChange::Notice(notice));
        }
        self.reconsider_named(endpoint);
    }

    /// A leaving node must have owned the token before. Another owner has a later start, or owned
    /// it until now.
    fn leaving(&mut self, endpoint: IpAddr, token: &Token) {
        if !self.may_return(endpoint, token) {
            return;
        }
        let known = self.members.ring.token(endpoint);
        if known != Some(token) {
            let notice = if known.is_some() {
                MembershipNotice::Mismatch { endpoint, word: "leaving" }
            } else {
                MembershipNotice::Jump { endpoint, to: "leaving" }
            };
            self.notice(notice);
        }
        self.update(endpoint, Some(self.claim(endpoint, token, Purpose::Leave)));
    }

    /// Takes the announcement that the dead owner of a token was removed. It is repeated until the
    /// announcing node restarts, long after another node may have taken the place. So nodes that
    /// are alive or restarted since are not meant; 0.6 removes them as well.
    fn remove(&mut self, token: &Token, by: IpAddr, version: i32) {
        let joining: Vec<IpAddr> = self.claims.all_joining(token).collect();
        for endpoint in joining {
            if self.is_removable(endpoint, by, version) {
                self.update(endpoint, None);
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
                self.changes.extend(is_first.then_some(MembershipChange::Notice(notice)));
                return;
            }
            self.remove_owner(endpoint, token);
            // The next owner may be dead as well, such as a former address of the same node.
            is_first = false;
        }
    }

    fn remove_owner(&mut self, endpoint: IpAddr, token: &Token) {
        let generation = self.generation(endpoint);
        self.generations.remove(&endpoint);
        if self.removed.len() >= MAX_REMOVED {
            self.removed.pop_first();
        }
        let may_return = false;
        self.removed.insert((endpoint, token.clone()), Removal::new(generation, may_return));
        self.update(endpoint, None);
        let node = RemovedNode { endpoint, token: token.clone(), generation, may_return };
        self.changes.push(MembershipChange::Removed(node));
    }

    /// Whether an endpoint is dead, and has not been restarted since `by` announced this. The time
    /// of the announcement follows from its version: a counter grows by one a second, and a
    /// generation is the time of a start. Some generations are ahead of the time, so nodes of this
    /// program also name the start. An announcement of this node is of now.
    fn is_removable(&self, endpoint: IpAddr, by: IpAddr, version: i32) -> bool {
        let said_secs = i64::from(self.generation(by)) + i64::from(version);
        let is_older = i64::from(self.generation(endpoint)) <= said_secs;
        let is_meant = is_older || by == self.local || self.names(by, endpoint);
        !self.alive.contains(&endpoint) && is_meant
    }

    /// Whether a node may own this token: unless it was removed from there. Then it has no place,
    /// whatever it announced before.
    fn may_return(&mut self, endpoint: IpAddr, token: &Token) -> bool {
        let own = self.generation(endpoint);
        let Some(removal) = self.removed.get_mut(&(endpoint, token.clone())) else { return true };
        let Removal { generation, may_return, .. } = *removal;
        let is_new_start = own > generation;
        if endpoint == self.local || is_new_start && may_return {
            self.readmit(endpoint, token);
            return true;
        }
        removal.refused = own;
        // It has to hear of its removal, also if it was no member.
        self.changes.push(MembershipChange::Ring);
        let text = self.partitioner.display_token(token);
        let notice = if may_return {
            MembershipNotice::ReturnAwaitsStart { endpoint, token: text }
        } else {
            MembershipNotice::ReturnRefused { endpoint, token: text }
        };
        self.notice(notice);
        self.update(endpoint, None);
        false
    }

    /// Drops a removal.
    fn readmit(&mut self, endpoint: IpAddr, token: &Token) {
        if self.removed.remove(&(endpoint, token.clone())).is_some() {
            let (token, generation) = (token.clone(), self.generation(endpoint));
            self.changes.push(MembershipChange::Readmitted { endpoint, token, generation });
        }
    }

    fn claim(&self, endpoint: IpAddr, token: &Token, purpose: Purpose) -> Claim {
        Claim { token: token.clone(), purpose, generation: Some(self.generation(endpoint)) }
    }

    /// Replaces the claim of an endpoint. The tokens of its old and new claim go to the owners that
    /// follow from all claims.
    fn update(&mut self, endpoint: IpAddr, claim: Option<Claim>) {
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
                self.notice(notice);
            }
            if is_own_return {
                self.changes.push(MembershipChange::Reannounce);
            }
        }
        if let Some((token, owner)) = self.displaced_by()
            && !was_displaced
        {
            let token = self.partitioner.display_token(token);
            let notice = MembershipNotice::PlaceLost { token, owner };
            self.notice(notice);
        }
        let Turn { lost, gained, is_changed } = turn;
        let is_changed = is_changed || !lost.is_empty() || !gained.is_empty();
        let losers = lost.into_iter().filter(|it| !gained.contains_key(it));
        self.changes.extend(losers.map(|endpoint| MembershipChange::ForgetToken { endpoint }));
        let save = |(endpoint, token)| MembershipChange::SaveToken { endpoint, token };
        self.changes.extend(gained.into_iter().map(save));
        self.changes.extend(is_changed.then_some(MembershipChange::Ring));
    }

    /// Removes nodes that own a token, or join there, and should not.
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

    /// Adds nodes that should own a token, or join there. Their former tokens are cleared.
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

    /// The token that this node claims and another one owns, and that owner.
    fn displaced_by(&self) -> Option<(&Token, IpAddr)> {
        let claim = self.claims.get(self.local)?;
        let owner = self.members.ring.owner(&claim.token)?;
        let is_displaced = claim.purpose != Purpose::Join && owner != self.local;
        is_displaced.then_some((&claim.token, owner))
    }

    /// The last known start of an endpoint.
    fn generation(&self, endpoint: IpAddr) -> i32 {
        self.generations.get(&endpoint).copied().unwrap_or(i32::MIN)
    }
}

/// Changes by one claim.
#[derive(Debug, Default)]
struct Turn {
    lost: BTreeSet<IpAddr>,
    gained: BTreeMap<IpAddr, Token>,
    /// Whether joining or leaving nodes changed otherwise.
    is_changed: bool,
}

#[cfg(test)]
mod tests;
