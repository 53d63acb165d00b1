//! The replicas of all tokens, computed once for each ring.

use super::pending::PendingRings;
use super::placement::ReplicaPlacement;
use super::token::Token;
use super::token_metadata::TokenMetadata;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The replicas of all tokens under one placement, in one ring. Built again when the ring or a
/// snitch changes.
///
/// The ring is cut at the tokens of all nodes, also of those that join, or left a moment ago.
/// Tokens of one stretch have the same replicas, so a lookup is one search among the cuts.
#[derive(Debug, Clone)]
pub struct ReplicaSets {
    /// The last token of each stretch, in order. What follows the last belongs to the first.
    ends: Vec<Token>,
    /// Of each stretch the natural endpoints, then the pending ones.
    sets: Vec<(Endpoints, Endpoints)>,
    /// The endpoints of every token in an empty ring.
    nobody: Endpoints,
}

/// Equal lists are shared.
type Endpoints = Arc<[IpAddr]>;

/// The endpoints of a token. To keep them beyond the ring they come from costs a reference count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaSet<'a> {
    /// The replicas in the order of the strategy.
    pub natural: &'a Arc<[IpAddr]>,
    /// Endpoints that will be replicas, and get writes already. None of them is a natural one.
    pub pending: &'a Arc<[IpAddr]>,
}

impl ReplicaSets {
    /// Computes them.
    pub fn new(placement: &ReplicaPlacement, ring: &TokenMetadata) -> Self {
        let pending_rings = PendingRings::of(ring);
        let joining = ring.bootstrapping().map(|(token, _)| token);
        let former = ring.former().into_iter().flat_map(TokenMetadata::tokens);
        let mut ends: Vec<Token> = ring.tokens().chain(joining).chain(former).cloned().collect();
        ends.sort_unstable();
        ends.dedup();
        let mut known = BTreeMap::new();
        let sets = ends.iter().map(|end| {
            let natural = placement.natural_endpoints(ring, end);
            let pending = pending_rings.endpoints(placement, &natural, end);
            (shared(&mut known, natural), shared(&mut known, pending))
        });
        let sets = sets.collect();
        Self { ends, sets, nobody: Arc::new([]) }
    }

    /// The endpoints of a token.
    pub fn of(&self, token: &Token) -> ReplicaSet<'_> {
        let stretch = self.ends.partition_point(|end| end < token);
        match self.sets.get(stretch).or(self.sets.first()) {
            Some((natural, pending)) => ReplicaSet { natural, pending },
            None => ReplicaSet { natural: &self.nobody, pending: &self.nobody },
        }
    }
}

/// The one of `known` that is equal, or this as a new one.
fn shared(known: &mut BTreeMap<Vec<IpAddr>, Endpoints>, endpoints: Vec<IpAddr>) -> Endpoints {
    if let Some(known) = known.get(&endpoints) {
        return Arc::clone(known);
    }
    let new = Endpoints::from(endpoints.as_slice());
    known.insert(endpoints, Arc::clone(&new));
    new
}

#[cfg(test)]
mod tests {
    use super::super::pending::tests::{TOKENS, placements, rings};
    use super::*;
    use crate::ring::pending_endpoints;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_follow_from_the_placement(ring in rings(), placement in placements()) {
            let sets = ReplicaSets::new(&placement, &ring);
            for token in (0..=TOKENS).map(Token::Random).chain([Token::Minimum]) {
                let set = sets.of(&token);
                prop_assert_eq!(&**set.natural, placement.natural_endpoints(&ring, &token));
                prop_assert_eq!(&**set.pending, pending_endpoints(&placement, &ring, &token));
            }
            let all: Vec<&Endpoints> =
                sets.sets.iter().flat_map(|(natural, pending)| [natural, pending]).collect();
            for a in &all {
                prop_assert!(all.iter().all(|b| (a == b) == Arc::ptr_eq(a, b)));
            }
        }
    }
}
