//! The mode of a start.

use crate::gossip::NodePlace;
use crate::ring::Token;
use crate::storage::system::Identity;
use crate::storage::system::local_placement::SavedPlace;
use std::net::IpAddr;

/// Mode of a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartMode {
    /// A member with its data.
    Member,
    /// A node that takes a first place without any data, as in a new ring.
    First {
        /// At this token, or at a random one.
        token: Option<Token>,
        /// Whether an earlier start has taken the token already: its data are here, also if the
        /// address of the node has changed.
        is_taken: bool,
        /// Whether also if others remember data of it, which are not here.
        accepts_loss: bool,
    },
    /// A node that collects the data of a range, and joins.
    Join {
        /// At this token, or at one that it chooses.
        token: Option<Token>,
        /// Whether an earlier start has chosen the token, and not the operator: if another node has
        /// taken it since, the node chooses another one.
        is_saved: bool,
        /// The token that it has left, or was about to leave.
        former: Option<Token>,
    },
    /// A node that had handed the data of this token over, and may have announced that it left.
    Depart(Token),
    /// A node that had collected the data for this token, maybe that of a dead node, and may have
    /// announced its place.
    Arrive(Token, Option<IpAddr>),
    /// A node that replaces the dead owner of this token, which may be itself without its data.
    Replace(Token),
}

/// The operator's options for the start of a node without a place.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// `InitialToken`.
    pub token: Option<Token>,
    /// Whether the node collects data before it becomes a member: `AutoBootstrap`, unless it is a
    /// seed.
    pub bootstraps: bool,
    /// `-Dcassandra.replace_token`.
    pub replaces: Option<Token>,
    /// `-Dcassandra.accept_data_loss`.
    pub accepts_loss: bool,
}

impl StartOptions {
    /// Whether the node starts without data, and collects them from others.
    pub fn joins(&self) -> bool {
        self.bootstraps || self.replaces.is_some()
    }
}

impl StartMode {
    /// Chooses by the identity of a node, the place that its last start has saved, and the options
    /// of its operator. A node with a token is a member, whatever the options.
    pub fn new(identity: &Identity, place: SavedPlace, options: StartOptions) -> Self {
        if identity.token.is_some() {
            return Self::Member;
        }
        match (place, options.replaces, identity.former.clone()) {
            (SavedPlace::Arriving { token, replaced }, _, _) => Self::Arrive(token, replaced),
            (SavedPlace::Departing, _, Some(token)) => Self::Depart(token),
            // The last start replaced a node that no other node remembered.
            (SavedPlace::Joining(Some(saved)), Some(token), _) if saved == token => {
                Self::Arrive(token, None)
            }
            (_, Some(token), _) => Self::Replace(token),
            (SavedPlace::First, None, token) => {
                Self::First { token, is_taken: true, accepts_loss: options.accepts_loss }
            }
            (SavedPlace::Joining(token @ Some(_)), None, former) => {
                Self::Join { is_saved: token != options.token, token, former }
            }
            // It was about to move to a token of its choice.
            (SavedPlace::Joining(None), None, former @ Some(_)) => {
                Self::Join { token: None, is_saved: false, former }
            }
            (_, None, former) if options.bootstraps => {
                Self::Join { token: options.token, is_saved: false, former }
            }
            _ => {
                let StartOptions { token, accepts_loss, .. } = options;
                Self::First { token, is_taken: false, accepts_loss }
            }
        }
    }

    /// The dead member that the last start was about to replace.
    pub fn replaced(&self) -> Option<NodePlace> {
        match self {
            Self::Arrive(token, Some(endpoint)) => {
                Some(NodePlace { endpoint: *endpoint, token: token.clone() })
            }
            _ => None,
        }
    }

    /// Whether the start depends on other nodes' memory of this address.
    pub fn depends_on_memory(&self) -> bool {
        !matches!(self, Self::Member | Self::First { accepts_loss: true, .. })
    }

    /// Whether clients may connect before the node is a member.
    pub fn takes_connections(&self) -> bool {
        matches!(self, Self::Member | Self::First { .. })
    }
}
