//! The ring as gossip tells it: who owns which token, who joins and who leaves.

use super::MOVE_STATE;
use super::endpoint_state::EndpointState;
use super::event::GossipEvent;
use super::membership_change::{MembershipChange, MembershipNotice};
use super::move_state::Move;
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
}

/// A node that an operator removed because it was dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedNode {
    /// Who.
    pub endpoint: IpAddr,
    /// The token that it owned.
    pub token: Token,
    /// Its generation at that time, as far as it was known.
    pub generation: i32,
    /// Whether it may come back with the data that it has.
    pub may_return: bool,
}

/// What is remembered of a removal.
#[derive(Debug, Clone, Copy)]
struct Removal {
    /// The generation of the node at that time.
    generation: i32,
    /// Whether an operator wants it back.
    may_return: bool,
}

/// Follows what nodes say of their places.
///
/// When two nodes claim a token the one that started later has it, on whichever node and in
/// whatever order their claims are heard.
///
/// A removed node is remembered, for its data are old: deletions that it missed may have been
/// collected everywhere else. If it comes back at its old place it is no member until an operator
/// says so, or until it has bootstrapped. The original took it back at once.
#[derive(Debug)]
pub struct Membership {
    partitioner: Partitioner,
    local: IpAddr,
    members: Members,
    /// The generations of all who were heard of, this node included.
    generations: BTreeMap<IpAddr, i32>,
    /// Who of the others is alive.
    alive: BTreeSet<IpAddr>,
    /// Removed nodes, by the tokens that they had.
    removed: BTreeMap<(IpAddr, Token), Removal>,
}

impl Members {
    /// Whether an endpoint owns a token.
    pub fn is_member(&self, endpoint: IpAddr) -> bool {
        self.ring.token(endpoint).is_some()
    }

    /// All who own a token.
    pub fn endpoints(&self) -> BTreeSet<IpAddr> {
        self.ring.members().map(|(_, endpoint)| endpoint).collect()
    }

    /// Takes an endpoint out. Returns whether it was in.
    fn remove(&mut self, endpoint: IpAddr) -> bool {
        let was_leaving = self.leaving.remove(&endpoint);
        let was_bootstrapping = self.bootstrapping.remove(&endpoint).is_some();
        self.ring.remove(endpoint).is_some() || was_bootstrapping || was_leaving
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
            ((endpoint, token), Removal { generation, may_return })
        });
        Self {
            partitioner,
            local,
            members: Members::default(),
            generations: BTreeMap::from([(local, generation)]),
            alive: BTreeSet::new(),
            removed: removed.collect(),
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
                self.members.ring.insert(token, endpoint);
            }
        }
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

    /// This node takes its place, before it tells the others.
    pub fn announce(&mut self, own: &Move) -> Vec<MembershipChange> {
        let mut changes = Vec::new();
        if let Move::Normal { token, .. } = own
            && let Some(owner) = self.members.ring.owner(token)
            && owner != self.local
        {
            // A saved ring may still have this node's former address there. If it is somebody else
            // who is alive and started later, its next state says so.
            self.take(self.local, token.clone(), &mut changes);
        }
        self.place(self.local, own, 0, &mut changes);
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
            }
            GossipEvent::Up { endpoint } => {
                self.alive.insert(*endpoint);
            }
            GossipEvent::Down { endpoint } => {
                self.alive.remove(endpoint);
            }
            GossipEvent::OwnGenerationRaised { generation } => {
                self.generations.insert(self.local, *generation);
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
            GossipEvent::Forgotten { endpoint, .. } | GossipEvent::Disowned { endpoint } => {
                self.generations.remove(endpoint);
                self.alive.remove(endpoint);
                self.leave(*endpoint, &mut changes);
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
                if let Some(token) = removed {
                    self.remove(token, endpoint, version, changes);
                }
            }
            Move::Leaving(token) => self.leaving(endpoint, token, changes),
            Move::Left(token) => {
                let known = self.members.ring.token(endpoint);
                if known.is_some_and(|known| known != token) {
                    let notice = MembershipNotice::Mismatch { endpoint, word: "left" };
                    changes.push(MembershipChange::Notice(notice));
                }
                self.leave(endpoint, changes);
            }
        }
    }

    /// A node that bootstraps is on the ring no more, if it was. It collects all data anew, and so
    /// may have been removed before.
    fn boot(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if self.members.is_member(endpoint) && !self.members.leaving.contains(&endpoint) {
            let notice = MembershipNotice::Jump { endpoint, to: "bootstrap" };
            changes.push(MembershipChange::Notice(notice));
        }
        self.readmit(endpoint, token, changes);
        if self.members.bootstrapping.get(&endpoint) != Some(token) {
            self.leave(endpoint, changes);
        }
        let others = self.members.bootstrapping.iter().filter(|(other, _)| **other != endpoint);
        let bootstrapping = others.filter(|(_, taken)| *taken == token).map(|(other, _)| *other);
        let mut owners = bootstrapping.chain(self.members.ring.owner(token));
        if let Some(other) = owners.next() {
            let text = self.partitioner.display_token(token);
            let notice = MembershipNotice::Collision { endpoint, other, token: text };
            changes.push(MembershipChange::Notice(notice));
            return;
        }
        if self.members.bootstrapping.insert(endpoint, token.clone()).as_ref() != Some(token) {
            changes.push(MembershipChange::Ring);
        }
    }

    fn normal(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if !self.may_return(endpoint, token, changes) {
            return;
        }
        let known = self.members.ring.token(endpoint);
        let was_leaving = self.members.leaving.contains(&endpoint);
        if known.is_some_and(|known| known != token || was_leaving) {
            let notice = MembershipNotice::Jump { endpoint, to: "normal" };
            changes.push(MembershipChange::Notice(notice));
        }
        match self.members.ring.owner(token) {
            None => self.take(endpoint, token.clone(), changes),
            Some(owner) if owner == endpoint => {
                // Nothing is new, unless it has thought better of leaving.
                if was_leaving {
                    self.members.leaving.remove(&endpoint);
                    changes.push(MembershipChange::Ring);
                }
            }
            Some(owner) => {
                let wins = self.started(endpoint) > self.started(owner);
                let token_text = self.partitioner.display_token(token);
                let notice =
                    MembershipNotice::SameToken { endpoint, owner, token: token_text, wins };
                changes.push(MembershipChange::Notice(notice));
                if wins {
                    self.take(endpoint, token.clone(), changes);
                }
            }
        }
    }

    fn leaving(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if !self.may_return(endpoint, token, changes) {
            return;
        }
        match self.members.ring.token(endpoint) {
            Some(known) if known == token => {}
            known => {
                let notice = if known.is_some() {
                    MembershipNotice::Mismatch { endpoint, word: "leaving" }
                } else {
                    MembershipNotice::Jump { endpoint, to: "leaving" }
                };
                changes.push(MembershipChange::Notice(notice));
                // It must have owned this before. Who owns it now does so by a later start.
                let owner = self.members.ring.owner(token);
                if owner.is_some_and(|owner| self.started(owner) >= self.started(endpoint)) {
                    return;
                }
                self.take(endpoint, token.clone(), changes);
            }
        }
        if self.members.leaving.insert(endpoint) {
            changes.push(MembershipChange::Ring);
        }
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
        let mut joining = self.members.bootstrapping.iter();
        let joins = joining.find(|(_, taken)| *taken == token).map(|(&endpoint, _)| endpoint);
        if let Some(endpoint) = joins
            && self.is_removable(endpoint, by, version)
        {
            self.leave(endpoint, changes);
        }
        let Some(endpoint) = self.members.ring.owner(token) else { return };
        if endpoint == self.local {
            changes.push(MembershipChange::Notice(MembershipNotice::RemovalOfSelf));
            return;
        }
        if !self.is_removable(endpoint, by, version) {
            let notice = MembershipNotice::RemovalIgnored { endpoint, by };
            changes.push(MembershipChange::Notice(notice));
            return;
        }
        let generation = self.started(endpoint).0;
        self.generations.remove(&endpoint);
        if self.removed.len() >= MAX_REMOVED {
            self.removed.pop_first();
        }
        let may_return = false;
        self.removed.insert((endpoint, token.clone()), Removal { generation, may_return });
        self.leave(endpoint, changes);
        let node = RemovedNode { endpoint, token: token.clone(), generation, may_return };
        changes.push(MembershipChange::Removed(node));
    }

    /// Whether an endpoint is dead, and was started last before `by` said this. When that was
    /// follows from the version: a counter grows by one a second, and a generation is the time of a
    /// start. For what this node says itself it is now.
    fn is_removable(&self, endpoint: IpAddr, by: IpAddr, version: i32) -> bool {
        let said_secs = i64::from(self.started(by).0) + i64::from(version);
        let is_older = i64::from(self.started(endpoint).0) <= said_secs;
        !self.alive.contains(&endpoint) && (is_older || by == self.local)
    }

    /// Whether a node may be on the ring at this token: unless it was removed from there.
    fn may_return(
        &mut self,
        endpoint: IpAddr,
        token: &Token,
        changes: &mut Vec<MembershipChange>,
    ) -> bool {
        let Some(&removal) = self.removed.get(&(endpoint, token.clone())) else { return true };
        let Removal { generation, may_return } = removal;
        let is_new_start = self.started(endpoint).0 > generation;
        if endpoint == self.local || is_new_start && may_return {
            self.readmit(endpoint, token, changes);
            return true;
        }
        let text = self.partitioner.display_token(token);
        let notice = if may_return {
            MembershipNotice::ReturnAwaitsStart { endpoint, token: text }
        } else {
            MembershipNotice::ReturnRefused { endpoint, token: text }
        };
        changes.push(MembershipChange::Notice(notice));
        false
    }

    /// A removal counts no more.
    fn readmit(&mut self, endpoint: IpAddr, token: &Token, changes: &mut Vec<MembershipChange>) {
        if self.removed.remove(&(endpoint, token.clone())).is_some() {
            let (token, generation) = (token.clone(), self.started(endpoint).0);
            changes.push(MembershipChange::Readmitted { endpoint, token, generation });
        }
    }

    /// Gives a token to an endpoint, which loses the one that it had.
    fn take(&mut self, endpoint: IpAddr, token: Token, changes: &mut Vec<MembershipChange>) {
        self.members.remove(endpoint);
        let owner = self.members.ring.insert(token.clone(), endpoint);
        if let Some(owner) = owner {
            self.members.leaving.remove(&owner);
            changes.push(MembershipChange::ForgetToken { endpoint: owner });
        }
        changes.push(MembershipChange::SaveToken { endpoint, token });
        changes.push(MembershipChange::Ring);
    }

    /// Takes an endpoint out of the ring, and off its way into it.
    fn leave(&mut self, endpoint: IpAddr, changes: &mut Vec<MembershipChange>) {
        if self.members.is_member(endpoint) {
            changes.push(MembershipChange::ForgetToken { endpoint });
        }
        if self.members.remove(endpoint) {
            changes.push(MembershipChange::Ring);
        }
    }

    /// Who started later wins a token that two claim. Members of a saved ring that were not heard
    /// of started before all others, and of two that started in the same second all nodes choose
    /// the same.
    fn started(&self, endpoint: IpAddr) -> (i32, IpAddr) {
        (self.generations.get(&endpoint).copied().unwrap_or(i32::MIN), endpoint)
    }
}

#[cfg(test)]
mod tests;
