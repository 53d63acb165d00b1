//! The question of a node without a place: did its address have a place before?

use super::MOVE_STATE;
use super::endpoint_state::EndpointState;
use super::message::Digest;
use super::place_states::Move;
use crate::ring::{Partitioner, Token};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// State of the question.
///
/// A node that has lost its disk does not know that its address owned a token. Others do, until
/// they hear of its new start, which replaces the old one in their memory. So the node hides this
/// start until another node has answered: it asks for itself as for an unknown endpoint, and
/// announces nothing.
#[derive(Debug)]
pub struct FirstQuestion {
    partitioner: Partitioner,
    is_open: bool,
    /// Whether the node has taken a place without an answer.
    is_placed: bool,
    /// Nodes that know the address, and have not sent all that they remember of it. After an outage
    /// of all nodes they may know it from their saved rings only.
    aware: BTreeSet<IpAddr>,
    /// The token that the address owned, and a node that remembers it.
    remembered: Option<(IpAddr, Token)>,
}

/// Kinds of answering nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answerer {
    /// A seed, or a node that has a place, takes calls, or remembers an earlier start.
    OfRing,
    /// A node that asks the same question.
    Hidden,
    /// A node that gossips without a place. It knows no more than a client does.
    Stranger,
}

impl FirstQuestion {
    /// A closed question.
    pub(super) fn new(partitioner: Partitioner) -> Self {
        let (is_open, is_placed) = (false, false);
        Self { partitioner, is_open, is_placed, aware: BTreeSet::new(), remembered: None }
    }

    /// Opens the question, before the first message is sent. It closes when another node has
    /// answered that it remembers no token: a seed, or a node that has a place, takes calls or asks
    /// the same.
    pub fn ask(&mut self) {
        self.is_open = true;
    }

    /// Keeps the question open although the node takes a place without an answer. From now on only
    /// [`Self::close`] ends it, or another node that hides its start: neither would show itself to
    /// the other.
    pub fn keep_asking(&mut self) {
        self.is_placed = true;
    }

    /// Whether this start is hidden from others.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The token that the address owned before this start, and a node that remembers it. `None`
    /// once the question is closed.
    pub fn remembered(&self) -> Option<&(IpAddr, Token)> {
        self.remembered.as_ref()
    }

    /// Lets others hear of this start.
    pub fn close(&mut self) {
        (self.is_open, self.remembered) = (false, None);
        self.aware.clear();
    }

    /// Notes whether a SYN lists the address.
    pub(super) fn hear_digests(&mut self, from: IpAddr, digests: &[Digest], local: IpAddr) {
        if !self.is_open {
            return;
        }
        if digests.iter().any(|digest| digest.endpoint == local) {
            self.aware.insert(from);
        } else {
            self.aware.remove(&from);
        }
    }

    /// Notes that another node has the address in its saved ring.
    pub(super) fn hear_of_member(&mut self, from: IpAddr) {
        if self.is_open {
            self.aware.insert(from);
        }
    }

    /// Takes what another node remembers of the address.
    pub(super) fn hear(&mut self, from: IpAddr, state: &EndpointState) {
        if !self.is_open {
            return;
        }
        self.aware.remove(&from);
        self.remembered = self.place(state).map(|token| (from, token)).or(self.remembered.take());
    }

    /// Notes that another node has sent all that it remembers. Without a token there is nothing to
    /// hide.
    pub(super) fn end_answer(&mut self, from: IpAddr, answerer: Answerer) {
        let counts = match answerer {
            Answerer::OfRing => !self.is_placed,
            Answerer::Hidden => true,
            Answerer::Stranger => false,
        };
        if counts && self.remembered.is_none() && !self.aware.contains(&from) {
            self.close();
        }
    }

    /// The token that a node owns by its state.
    pub(super) fn place(&self, state: &EndpointState) -> Option<Token> {
        match Move::parse(self.partitioner, state.value(MOVE_STATE)?) {
            Ok(Some(Move::Normal { token, .. } | Move::Leaving(token))) => Some(token),
            _ => None,
        }
    }
}
