//! The question with which a node without a place begins: what do others remember of its address?

use super::MOVE_STATE;
use super::endpoint_state::EndpointState;
use super::move_state::Move;
use crate::ring::{Partitioner, Token};
use std::net::IpAddr;

/// A node that has lost its disk does not know that its address owned a token. Others do, until
/// they hear of its new start, which takes the place of the old one in their memory. So the node
/// hides this start: it asks for itself as for an endpoint of which it knows nothing, and tells
/// nothing, until another node has answered.
#[derive(Debug)]
pub(super) struct FirstQuestion {
    partitioner: Partitioner,
    is_open: bool,
    /// The token that the address owned, and who remembers it.
    remembered: Option<(IpAddr, Token)>,
}

impl FirstQuestion {
    /// A question that is not asked.
    pub(super) fn new(partitioner: Partitioner) -> Self {
        Self { partitioner, is_open: false, remembered: None }
    }

    /// Asks it. To be called before the first message is sent.
    pub(super) fn ask(&mut self) {
        self.is_open = true;
    }

    /// Whether this start is hidden from others.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Others may hear of this start now.
    pub(super) fn close(&mut self) {
        (self.is_open, self.remembered) = (false, None);
    }

    /// Another node tells what it remembers of this address.
    pub(super) fn hear(&mut self, from: IpAddr, state: &EndpointState) {
        let place = state.value(MOVE_STATE).map(|value| Move::parse(self.partitioner, value));
        if let Some(Ok(Some(Move::Normal { token, .. } | Move::Leaving(token)))) = place
            && self.is_open
        {
            self.remembered = Some((from, token));
        }
    }

    /// Another node has said all that it remembers. Without a token there is nothing to hide.
    pub(super) fn end_answer(&mut self) {
        if self.remembered.is_none() {
            self.close();
        }
    }

    /// The token that the address owned, and who remembers it.
    pub(super) fn remembered(&self) -> Option<&(IpAddr, Token)> {
        self.remembered.as_ref()
    }
}
