//! States of a node on the ring, as it announces them and saves them for its next start.

use crate::gossip::{Move, NodePlace, Plan};
use crate::ring::Token;
use crate::storage::system::local_placement::SavedPlace;
use std::net::IpAddr;

/// A place that a node takes, or is about to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lifecycle {
    /// It owns the token.
    Normal(Token),
    /// It owns the token, and has no data. Others may remember data of its address.
    First(Token),
    /// It owns the token, and had it before: its data are lost.
    Again(Token),
    /// It collects the data for the token.
    Joining(Token),
    /// It owns the token, and others collect the data.
    Leaving(Token),
    /// It owned the token, and owns none any more.
    Left(Token),
    /// It owned the token, and is to join at another one.
    Moving {
        /// The token that it owned.
        from: Token,
        /// The token at which it is to join; `None` if it is not chosen yet.
        to: Option<Token>,
    },
    /// It has no place, and has given up joining at this token, or replacing a node.
    GivenUp(Option<Token>),
    /// It has no place, and collects the data of a dead member.
    Replacing(NodePlace),
    /// It got the token of a dead member.
    Replaced(NodePlace),
    /// It owns the first token, while others collect the data of a dead member.
    Removing(Token, NodePlace),
    /// It owns the first token, and a dead member is removed.
    Removed(Token, Token),
}

impl Lifecycle {
    /// The state to save before the announcement, with the node's token if it is new. `None` if
    /// nothing is saved.
    pub(super) fn saved(&self) -> Option<(SavedPlace, Option<Token>)> {
        let arriving = |token: &Token, replaced| {
            (SavedPlace::Arriving { token: token.clone(), replaced }, Some(token.clone()))
        };
        match self {
            Self::Normal(token) => Some(arriving(token, None)),
            Self::Replaced(dead) => Some(arriving(&dead.token, Some(dead.endpoint))),
            Self::Joining(token) => Some((SavedPlace::Joining(Some(token.clone())), None)),
            Self::Left(_) => Some((SavedPlace::Departing, None)),
            Self::Moving { to, .. } => Some((SavedPlace::Joining(to.clone()), None)),
            _ => None,
        }
    }

    /// The state to save when all others know.
    pub(super) fn settled(&self) -> SavedPlace {
        match self {
            Self::Left(_) => SavedPlace::Left,
            Self::Moving { to, .. } => SavedPlace::Joining(to.clone()),
            _ => SavedPlace::Member,
        }
    }

    /// Its form in gossip: the place of the node, and its plan.
    pub fn announced(&self, node: IpAddr, was_member: bool) -> (Option<Move>, Option<Plan>) {
        let own = |token: &Token| NodePlace { endpoint: node, token: token.clone() };
        let normal = |token: &Token, removed| Some(Move::Normal { token: token.clone(), removed });
        match self {
            Self::Normal(token) => {
                (normal(token, None), (!was_member).then(|| Plan::Arrived(own(token))))
            }
            Self::First(token) | Self::Again(token) => (normal(token, None), None),
            Self::Joining(token) => (Some(Move::Boot(token.clone())), None),
            Self::Leaving(token) => (Some(Move::Leaving(token.clone())), None),
            Self::Left(token) | Self::Moving { from: token, .. } => {
                (Some(Move::Left(token.clone())), Some(Plan::Gone(own(token))))
            }
            // Like one that has left, which nodes of 0.6 understand as well.
            Self::GivenUp(token) => (token.clone().map(Move::Left), None),
            Self::Replacing(dead) => (None, Some(Plan::Replace(dead.clone()))),
            Self::Replaced(dead) => (normal(&dead.token, None), Some(Plan::Replaced(dead.clone()))),
            Self::Removing(token, dead) => (normal(token, None), Some(Plan::Remove(dead.clone()))),
            Self::Removed(token, removed) => (normal(token, Some(removed.clone())), None),
        }
    }
}
