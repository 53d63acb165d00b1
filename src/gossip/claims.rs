//! Claims of nodes to tokens, and the owners that follow from them.

use crate::ring::Token;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Purpose of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The node collects the data for the token.
    Join,
    /// The node owns the token.
    Own,
    /// The node owns the token until it has handed its data over.
    Leave,
}

/// The last announced place of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) purpose: Purpose,
    /// The generation of the node at that time. `None` in a saved ring: it has announced nothing
    /// since this node started.
    pub(super) generation: Option<i32>,
}

/// The last claim of each node, lost claims included. So the owner of a token follows from the last
/// announcements alone, in whatever order they came: when an owner goes elsewhere its token falls
/// to a node that still claims it. (0.6 has forgotten that node, unless it started in between.)
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<IpAddr, Claim>);

/// Order of claims to one token. Of two nodes that started in the same second all choose the same.
type Rank = (Option<i32>, IpAddr);

impl Claim {
    fn owns(&self, token: &Token) -> bool {
        self.purpose != Purpose::Join && self.token == *token
    }
}

impl Claims {
    /// Replaces the claim of a node. Returns the one before.
    pub(super) fn replace(&mut self, endpoint: IpAddr, claim: Option<Claim>) -> Option<Claim> {
        match claim {
            Some(claim) => self.0.insert(endpoint, claim),
            None => self.0.remove(&endpoint),
        }
    }

    pub(super) fn get(&self, endpoint: IpAddr) -> Option<&Claim> {
        self.0.get(&endpoint)
    }

    /// The owner of a token: of the claimants the one that started last. Unheard members of a saved
    /// ring count as started before all others.
    pub(super) fn owner(&self, token: &Token) -> Option<IpAddr> {
        self.ranks(token, false).max().map(|(_, endpoint)| endpoint)
    }

    /// The joining node that gets the writes of a token: none if the token has an owner, and of
    /// several the first that started.
    pub(super) fn joining(&self, token: &Token) -> Option<IpAddr> {
        if self.owner(token).is_some() {
            return None;
        }
        self.all_joining(token).next()
    }

    /// All nodes that join at a token, in the order of their starts.
    pub(super) fn all_joining(&self, token: &Token) -> impl Iterator<Item = IpAddr> {
        let mut ranks: Vec<Rank> = self.ranks(token, true).collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, endpoint)| endpoint)
    }

    /// Drops lost claims to a token that only the saved ring has. They are not announced any more,
    /// and most are of former addresses of the owner.
    pub(super) fn drop_unheard_losers(&mut self, token: &Token) {
        let Some(owner) = self.owner(token) else { return };
        self.0.retain(|endpoint, claim| {
            claim.generation.is_some() || !claim.owns(token) || *endpoint == owner
        });
    }

    /// Claims to a token, of joining nodes or of owners.
    fn ranks<'a>(&'a self, token: &'a Token, joins: bool) -> impl Iterator<Item = Rank> + 'a {
        let claims = self.0.iter().filter(move |(_, claim)| {
            claim.token == *token && (claim.purpose == Purpose::Join) == joins
        });
        claims.map(|(endpoint, claim)| (claim.generation, *endpoint))
    }
}
