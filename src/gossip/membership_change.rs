//! Results of news about the places of nodes.

use crate::ring::Token;
use log::Level;
use std::net::IpAddr;

/// A node that an operator removed because it was dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedNode {
    /// Its address.
    pub endpoint: IpAddr,
    /// The token that it owned.
    pub token: Token,
    /// Its last known generation at that time.
    pub generation: i32,
    /// Whether it may come back with its old data.
    pub may_return: bool,
}

/// An action that a change of the ring asks of the caller. Actions are in order.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipChange {
    /// Members, joining or leaving nodes changed: publish the ring.
    Ring,
    /// Save the token of an endpoint, which may be this node, for the next start.
    SaveToken { endpoint: IpAddr, token: Token },
    /// Drop the saved token of an endpoint.
    ForgetToken { endpoint: IpAddr },
    /// An operator removed a dead node: save that. Gossip has to forget the node.
    Removed(RemovedNode),
    /// An operator allows a removed node to return: save that.
    MayReturn(RemovedNode),
    /// A removal is void: save that with the present generation, since others may announce the
    /// removal for a long time.
    Readmitted { endpoint: IpAddr, token: Token, generation: i32 },
    /// This node regained its token, which another node had for a while: announce it again.
    /// Nodes of 0.6 obey the last announcement that they heard, which is the other node's.
    Reannounce,
    /// Log a line.
    Notice(MembershipNotice),
}

/// A line about the ring for operators, in the words of 0.6 where it had any.
#[expect(missing_docs, reason = "the names of the fields say it")]
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum MembershipNotice {
    /// The state of a node does not follow from the one before: news were missed.
    #[display("Node /{endpoint} state jump to {to}")]
    Jump { endpoint: IpAddr, to: &'static str },
    /// A node leaves a token that it did not own. `word` is `leaving` or `left`.
    #[display("Node /{endpoint} '{word}' token mismatch. Long network partition?")]
    Mismatch { endpoint: IpAddr, word: &'static str },
    /// A node claims the token of another one.
    #[display(
        "Nodes /{endpoint} and /{owner} have the same token {token}.  {}",
        if *wins {
            format!("/{endpoint} is the new owner")
        } else {
            format!("Ignoring /{endpoint}")
        }
    )]
    SameToken { endpoint: IpAddr, owner: IpAddr, token: String, wins: bool },
    /// This node lost its token, and so its place.
    #[display(
        "This node has no place on the ring: /{owner} has its token {token}, as it claims the same \
         one and has started later. If that is a mistake, stop /{owner}, empty its directories and \
         give it another InitialToken: this node then has its place again. If /{owner} is to \
         replace this node, stop this one"
    )]
    PlaceLost { token: String, owner: IpAddr },
    /// The owner of a token went elsewhere, and a former claimant owns it again.
    #[display(
        "Node /{owner} owns token {token} again, which it still claims and whose owner went \
         elsewhere"
    )]
    Reclaimed { owner: IpAddr, token: String },
    /// A node bootstraps at a token that `other` owns or bootstraps at. Writes go to the first.
    // The missing bracket is what the original's line looks like.
    #[display("Bootstrap Token collision between /{other} and /{endpoint} (token {token}")]
    Collision { endpoint: IpAddr, other: IpAddr, token: String },
    /// A node was removed that is alive or was restarted since.
    #[display(
        "Node /{by} says that the node of /{endpoint}'s token was removed. That is not done, as \
         /{endpoint} is alive or was started since"
    )]
    RemovalIgnored { endpoint: IpAddr, by: IpAddr },
    /// The owner of this node's token was removed.
    #[display(
        "Received removeToken gossip about myself. Is this node a replacement for a removed one?"
    )]
    RemovalOfSelf,
    /// A removed node is back with its old data.
    #[display(
        "Node /{endpoint} was removed from token {token} and is back with its old data: it is not \
         taken into the ring. Deletions that it missed may be forgotten by now. Let it bootstrap \
         with empty directories, or take it back as it is by `alexandra nodetool allowreturn \
         {endpoint}` at every node of the ring"
    )]
    ReturnRefused { endpoint: IpAddr, token: String },
    /// A removed node that may come back was not restarted yet.
    #[display(
        "Node /{endpoint} was removed from token {token} and may come back: it is not taken into \
         the ring before it has been started anew"
    )]
    ReturnAwaitsStart { endpoint: IpAddr, token: String },
}

impl MembershipNotice {
    /// Level of the log line.
    pub fn level(&self) -> Level {
        match self {
            Self::Jump { .. } | Self::RemovalOfSelf => Level::Info,
            Self::PlaceLost { .. } | Self::Collision { .. } | Self::ReturnRefused { .. } => {
                Level::Error
            }
            _ => Level::Warn,
        }
    }
}
