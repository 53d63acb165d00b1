//! What nodes say of their places, and who has a token by that.

use crate::ring::Token;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// What a node means to do with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// It collects the data for it.
    Join,
    /// It owns it.
    Own,
    /// It owns it as long as it hands the data over.
    Leave,
}

/// The last that a node said of its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) token: Token,
    pub(super) purpose: Purpose,
    /// The generation of the node when it said so. None in a saved ring: it has said nothing since
    /// this node started.
    pub(super) generation: Option<i32>,
}

/// The last claim of each node, of those as well that lost their token to another. So who has a
/// token follows from what all nodes hear in the end, whatever they heard on the way: when an owner
/// goes elsewhere its token falls to whoever still claims it. (An original has forgotten that one,
/// unless it started in between.)
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<IpAddr, Claim>);

/// Orders claims on one token. Of two that started in the same second all nodes choose the same.
type Rank = (Option<i32>, IpAddr);

impl Claim {
    fn owns(&self, token: &Token) -> bool {
        self.purpose != Purpose::Join && self.token == *token
    }

    fn joins(&self, token: &Token) -> bool {
        self.purpose == Purpose::Join && self.token == *token
    }
}

impl Claims {
    /// Takes the last word of a node, if it says anything. Returns the one before.
    pub(super) fn replace(&mut self, endpoint: IpAddr, claim: Option<Claim>) -> Option<Claim> {
        match claim {
            Some(claim) => self.0.insert(endpoint, claim),
            None => self.0.remove(&endpoint),
        }
    }

    pub(super) fn get(&self, endpoint: IpAddr) -> Option<&Claim> {
        self.0.get(&endpoint)
    }

    /// Who owns a token: of those that say so the one that started last. Members of a saved ring
    /// that were not heard of started before all others.
    pub(super) fn owner(&self, token: &Token) -> Option<IpAddr> {
        self.ranks(token, Claim::owns).max().map(|(_, endpoint)| endpoint)
    }

    /// Who gets the writes of a token because it joins there: nobody where there is an owner, and
    /// of several the first that started.
    pub(super) fn joining(&self, token: &Token) -> Option<IpAddr> {
        if self.owner(token).is_some() {
            return None;
        }
        self.all_joining(token).next()
    }

    /// All who say that they join at a token, the first that started before others.
    pub(super) fn all_joining(&self, token: &Token) -> impl Iterator<Item = IpAddr> {
        let mut ranks: Vec<Rank> = self.ranks(token, Claim::joins).collect();
        ranks.sort_unstable();
        ranks.into_iter().map(|(_, endpoint)| endpoint)
    }

    /// Drops claims on a token that only the saved ring knows and that lost. Nobody says them any
    /// more, and most are former addresses of the owner.
    pub(super) fn drop_unheard_losers(&mut self, token: &Token) {
        let Some(owner) = self.owner(token) else { return };
        self.0.retain(|endpoint, claim| {
            claim.generation.is_some() || !claim.owns(token) || *endpoint == owner
        });
    }

    fn ranks<'a>(
        &'a self,
        token: &'a Token,
        counts: impl Fn(&Claim, &Token) -> bool + 'a,
    ) -> impl Iterator<Item = Rank> + 'a {
        let claims = self.0.iter().filter(move |(_, claim)| counts(claim, token));
        claims.map(|(endpoint, claim)| (claim.generation, *endpoint))
    }
}
