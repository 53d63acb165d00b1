//! What comes of news about the places of nodes.

use crate::ring::Token;
use log::Level;
use std::fmt;
use std::net::IpAddr;

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

/// What a caller has to do because the ring changed, in the order in which it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipChange {
    /// Members, joining or leaving nodes changed: to be published, and the ranges that they are to
    /// get computed anew.
    Ring,
    /// The token of an endpoint has to be saved for the next start.
    SaveToken {
        /// Whose. This node itself is among them.
        endpoint: IpAddr,
        /// The token.
        token: Token,
    },
    /// The saved token of an endpoint does not count any more.
    ForgetToken {
        /// Whose.
        endpoint: IpAddr,
    },
    /// A dead node was removed by an operator. To be saved; gossip has to forget it, and the
    /// others have to take over what it held.
    Removed(RemovedNode),
    /// An operator wants a removed node back. To be saved: it may come back after the next start.
    MayReturn(RemovedNode),
    /// A removal counts no more. To be saved, with the generation: some may tell of the removal
    /// for long.
    Readmitted {
        /// Who was removed.
        endpoint: IpAddr,
        /// From which token it was removed.
        token: Token,
        /// Its generation now.
        generation: i32,
    },
    /// This node has its token again, which another had for a while. To be said anew: originals go
    /// by what they hear last, and have forgotten that this node claims it.
    Reannounce,
    /// Something for the log.
    Notice(MembershipNotice),
}

/// Something about the ring that an operator may want to know. `Display` is the log line, in the
/// words of 0.6 where it had any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipNotice {
    /// A node is in a state that does not follow from the one before; some news were missed.
    Jump {
        /// Who.
        endpoint: IpAddr,
        /// To which state.
        to: &'static str,
    },
    /// A node leaves from another token than it had.
    Mismatch {
        /// Who.
        endpoint: IpAddr,
        /// `leaving` or `left`.
        word: &'static str,
    },
    /// Two nodes claim a token.
    SameToken {
        /// Who claims it now.
        endpoint: IpAddr,
        /// Who had it.
        owner: IpAddr,
        /// The token.
        token: String,
        /// Whether the former has it now.
        wins: bool,
    },
    /// This node lost its token, and so its place.
    PlaceLost {
        /// The token.
        token: String,
        /// Who has it now.
        owner: IpAddr,
    },
    /// Who had a token went elsewhere, and another had claimed it all the time.
    Reclaimed {
        /// Who has it now.
        owner: IpAddr,
        /// The token.
        token: String,
    },
    /// A node bootstraps at a token that another has or bootstraps at. Writes go to the
    /// first of them.
    Collision {
        /// Who bootstraps.
        endpoint: IpAddr,
        /// Who has the token.
        other: IpAddr,
        /// The token.
        token: String,
    },
    /// Somebody says that a node was removed which is alive, or was started since.
    RemovalIgnored {
        /// Which node.
        endpoint: IpAddr,
        /// Who says so.
        by: IpAddr,
    },
    /// Somebody says that the owner of this node's token was removed.
    RemovalOfSelf,
    /// A removed node is back with its old data.
    ReturnRefused {
        /// Who.
        endpoint: IpAddr,
        /// Its token.
        token: String,
    },
    /// A removed node that may come back was not started since.
    ReturnAwaitsStart {
        /// Who.
        endpoint: IpAddr,
        /// Its token.
        token: String,
    },
}

impl MembershipNotice {
    /// How loudly the log says it.
    pub fn level(&self) -> Level {
        match self {
            Self::Jump { .. } | Self::RemovalOfSelf => Level::Info,
            Self::Mismatch { .. }
            | Self::SameToken { .. }
            | Self::Reclaimed { .. }
            | Self::RemovalIgnored { .. }
            | Self::ReturnAwaitsStart { .. } => Level::Warn,
            Self::PlaceLost { .. } | Self::Collision { .. } | Self::ReturnRefused { .. } => {
                Level::Error
            }
        }
    }
}

impl fmt::Display for MembershipNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Jump { endpoint, to } => write!(f, "Node /{endpoint} state jump to {to}"),
            Self::Mismatch { endpoint, word } => {
                write!(f, "Node /{endpoint} '{word}' token mismatch. Long network partition?")
            }
            Self::SameToken { endpoint, owner, token, wins } => {
                write!(f, "Nodes /{endpoint} and /{owner} have the same token {token}.  ")?;
                if *wins {
                    write!(f, "/{endpoint} is the new owner")
                } else {
                    write!(f, "Ignoring /{endpoint}")
                }
            }
            Self::PlaceLost { token, owner } => write!(
                f,
                "This node has no place on the ring: /{owner} has its token {token}, as it claims \
                 the same one and has started later. If that is a mistake, stop /{owner}, empty \
                 its directories and give it another InitialToken: this node then has its place \
                 again. If /{owner} is to replace this node, stop this one"
            ),
            Self::Reclaimed { owner, token } => write!(
                f,
                "Node /{owner} owns token {token} again, which it still claims and whose owner \
                 went elsewhere"
            ),
            // The missing bracket is what the original's line looks like.
            Self::Collision { endpoint, other, token } => write!(
                f,
                "Bootstrap Token collision between /{other} and /{endpoint} (token {token}"
            ),
            Self::RemovalIgnored { endpoint, by } => write!(
                f,
                "Node /{by} says that the node of /{endpoint}'s token was removed. That is not \
                 done, as /{endpoint} is alive or was started since"
            ),
            Self::RemovalOfSelf => f.write_str(
                "Received removeToken gossip about myself. \
                 Is this node a replacement for a removed one?",
            ),
            Self::ReturnRefused { endpoint, token } => write!(
                f,
                "Node /{endpoint} was removed from token {token} and is back with its old data: \
                 it is not taken into the ring. Deletions that it missed may be forgotten by now. \
                 Let it bootstrap with empty directories, or take it back as it is by `alexandra \
                 nodetool allowreturn {endpoint}` at every node of the ring"
            ),
            Self::ReturnAwaitsStart { endpoint, token } => write!(
                f,
                "Node /{endpoint} was removed from token {token} and may come back: it is not \
                 taken into the ring before it has been started anew"
            ),
        }
    }
}
