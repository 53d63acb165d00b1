//! The choice between the ways in which a node starts.

use crate::gossip::NodePlace;
use crate::ring::Token;
use crate::storage::system::Identity;
use crate::storage::system::local_placement::SavedPlace;
use std::net::IpAddr;

/// How a node starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartMode {
    /// It is a member, and has its data.
    Member,
    /// It takes a first place without any data, as the nodes of a new ring do.
    First {
        /// At this token, or at a random one.
        token: Option<Token>,
        /// Whether an earlier start has taken the token already: its data are here, also if the
        /// address of the node is another now.
        is_taken: bool,
        /// Whether also if others know it as a member, whose data are not here.
        accepts_loss: bool,
    },
    /// It collects the data of a range, and joins.
    Join {
        /// At this token, or at one that is to be chosen.
        token: Option<Token>,
        /// Whether an earlier start has saved the token, and the operator does not name it: if
        /// another node has taken it since, another one is chosen.
        is_saved: bool,
        /// The token that it has left, or was about to leave.
        former: Option<Token>,
    },
    /// The last start had handed the data of this token over, and may have told others that it has
    /// left.
    Depart(Token),
    /// The last start had the data for this token, in the place of a dead node or in none, and may
    /// have told others.
    Arrive(Token, Option<IpAddr>),
    /// It takes the place of the dead owner of this token, which may be itself without its data.
    Replace(Token),
}

/// How an operator wants a node to start that has no place yet.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// `InitialToken`.
    pub token: Option<Token>,
    /// Whether it collects data before it becomes a member: `AutoBootstrap`, unless it is a seed.
    pub bootstraps: bool,
    /// `-Dcassandra.replace_token`.
    pub replaces: Option<Token>,
    /// `-Dcassandra.accept_data_loss`.
    pub accepts_loss: bool,
}

impl StartOptions {
    /// Whether the node begins without data, and gets them from others.
    pub fn joins(&self) -> bool {
        self.bootstraps || self.replaces.is_some()
    }
}

impl StartMode {
    /// Chooses by the identity of a node, from the place that its last start has saved, and
    /// from the wish of its operator. A node with a token is a member, whatever is wished.
    pub fn new(identity: &Identity, place: SavedPlace, wish: StartOptions) -> Self {
        if identity.token.is_some() {
            return Self::Member;
        }
        match (place, wish.replaces, identity.former.clone()) {
            (SavedPlace::Arriving { token, replaced }, _, _) => Self::Arrive(token, replaced),
            (SavedPlace::Departing, _, Some(token)) => Self::Depart(token),
            // The last start found nobody there any more.
            (SavedPlace::Joining(Some(saved)), Some(token), _) if saved == token => {
                Self::Arrive(token, None)
            }
            (_, Some(token), _) => Self::Replace(token),
            (SavedPlace::First, None, token) => {
                Self::First { token, is_taken: true, accepts_loss: wish.accepts_loss }
            }
            (SavedPlace::Joining(token @ Some(_)), None, former) => {
                Self::Join { is_saved: token != wish.token, token, former }
            }
            // It was about to go to where the most is to be done.
            (SavedPlace::Joining(None), None, former @ Some(_)) => {
                Self::Join { token: None, is_saved: false, former }
            }
            (_, None, former) if wish.bootstraps => {
                Self::Join { token: wish.token, is_saved: false, former }
            }
            _ => {
                let StartOptions { token, accepts_loss, .. } = wish;
                Self::First { token, is_taken: false, accepts_loss }
            }
        }
    }

    /// The dead member whose place the last start was about to take.
    pub fn replaced(&self) -> Option<NodePlace> {
        match self {
            Self::Arrive(token, Some(endpoint)) => {
                Some(NodePlace { endpoint: *endpoint, token: token.clone() })
            }
            _ => None,
        }
    }

    /// Whether what others remember of the address of this node decides how it goes on.
    pub fn depends_on_memory(&self) -> bool {
        !matches!(self, Self::Member | Self::First { accepts_loss: true, .. })
    }

    /// Whether clients may connect before the node is a member.
    pub fn takes_connections(&self) -> bool {
        matches!(self, Self::Member | Self::First { .. })
    }
}
