//! The question with which a node without a place begins: did its address have one before?

use super::MOVE_STATE;
use super::endpoint_state::EndpointState;
use super::message::Digest;
use super::move_state::Move;
use crate::ring::{Partitioner, Token};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// A node that has lost its disk does not know that its address owned a token. Others do, until
/// they hear of its new start, which takes the place of the old one in their memory. So the node
/// hides this start: it asks for itself as for an endpoint of which it knows nothing, and tells
/// nothing, until another node has answered.
#[derive(Debug)]
pub(super) struct FirstQuestion {
    partitioner: Partitioner,
    is_open: bool,
    /// Whether the node has taken a place without an answer.
    is_placed: bool,
    /// Nodes that know the address, and have not told all that they remember of it. After an outage
    /// of all they may know it from their saved rings only.
    aware: BTreeSet<IpAddr>,
    /// The token that the address owned, and the node that remembers it.
    remembered: Option<(IpAddr, Token)>,
}

/// A node that answers, by what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answerer {
    /// It is a seed, has a place, can be asked by calls, or has told of an earlier start.
    OfRing,
    /// It asks the same of its own address: it is as new.
    Hidden,
    /// It gossips without a place. It knows no more than a client does.
    Stranger,
}

impl FirstQuestion {
    /// A question that is not asked.
    pub(super) fn new(partitioner: Partitioner) -> Self {
        let (is_open, is_placed) = (false, false);
        Self { partitioner, is_open, is_placed, aware: BTreeSet::new(), remembered: None }
    }

    /// Asks it. To be called before the first message is sent.
    pub(super) fn ask(&mut self) {
        self.is_open = true;
    }

    /// The node takes a place without an answer. From now on only the node itself ends the
    /// question, or another one that is as new: neither would show itself to the other.
    pub(super) fn keep_asking(&mut self) {
        self.is_placed = true;
    }

    /// Whether this start is hidden from others.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Others may hear of this start now.
    pub(super) fn close(&mut self) {
        (self.is_open, self.remembered) = (false, None);
        self.aware.clear();
    }

    /// Another node lists all endpoints that it knows.
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

    /// Another node knows this address as a member of its saved ring.
    pub(super) fn hear_of_member(&mut self, from: IpAddr) {
        if self.is_open {
            self.aware.insert(from);
        }
    }

    /// Another node tells what it remembers of this address.
    pub(super) fn hear(&mut self, from: IpAddr, state: &EndpointState) {
        if !self.is_open {
            return;
        }
        self.aware.remove(&from);
        self.remembered = self.place(state).map(|token| (from, token)).or(self.remembered.take());
    }

    /// Another node has said all that it remembers. Without a token there is nothing to hide.
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

    /// The token that the address owned, and the node that remembers it.
    pub(super) fn remembered(&self) -> Option<&(IpAddr, Token)> {
        self.remembered.as_ref()
    }
}
