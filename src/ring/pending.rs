//! Future replicas of a token, when joining and leaving nodes have done so.
//!
//! They get writes before they are replicas. So the data that they fetch from others meanwhile are
//! complete together with these writes.

use super::placement::ReplicaPlacement;
use super::token::Token;
use super::token_metadata::TokenMetadata;
use std::net::IpAddr;

/// Future rings, for the lookup of many tokens.
#[derive(Debug)]
pub(super) struct PendingRings {
    /// The ring without leaving nodes.
    after_all_left: Option<TokenMetadata>,
    /// For each endpoint that joins or replaces a dead one the ring with it, after all leaving ones
    /// have left. Each joins on its own, as in 0.6: when the first has joined, the pending
    /// endpoints are computed again.
    with_joined: Vec<TokenMetadata>,
    /// The former ring, as some nodes may still know it.
    former: Option<TokenMetadata>,
}

impl PendingRings {
    /// The future rings of a ring.
    pub(super) fn of(ring: &TokenMetadata) -> Self {
        let after_all_left = ring.after_all_left();
        let joining = ring.bootstrapping().chain(ring.replacing());
        let with_joined = joining.map(|(token, endpoint)| {
            let mut with_joined = after_all_left.clone();
            with_joined.insert(token.clone(), endpoint);
            with_joined
        });
        let with_joined = with_joined.collect();
        let somebody_leaves = ring.leaving().next().is_some();
        let former = ring.former().cloned();
        Self { after_all_left: somebody_leaves.then_some(after_all_left), with_joined, former }
    }

    /// The endpoints to which writes of a token go besides its natural ones: first those that
    /// take over from leaving nodes, in the order of the strategy, then joining nodes, by token.
    ///
    /// With racks a joining node can make another one a replica, which was on the same rack as the
    /// former first replica. That one gets writes as well; in 0.6 it did not.
    pub(super) fn endpoints(
        &self,
        placement: &ReplicaPlacement,
        natural: &[IpAddr],
        token: &Token,
    ) -> Vec<IpAddr> {
        let rings = self.after_all_left.iter().chain(&self.with_joined).chain(&self.former);
        let mut pending: Vec<IpAddr> = Vec::new();
        for endpoint in rings.flat_map(|ring| placement.natural_endpoints(ring, token)) {
            if !natural.contains(&endpoint) && !pending.contains(&endpoint) {
                pending.push(endpoint);
            }
        }
        pending
    }
}

/// The endpoints to which writes of a token go besides its natural ones, see
/// [`ReplicaSets`](super::ReplicaSets) for the lookup of many.
pub fn pending_endpoints(
    placement: &ReplicaPlacement,
    ring: &TokenMetadata,
    token: &Token,
) -> Vec<IpAddr> {
    let natural = placement.natural_endpoints(ring, token);
    PendingRings::of(ring).endpoints(placement, &natural, token)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ring::{ReplicationStrategy, Snitch, range_changes};
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Tokens in these tests are below.
    pub(in crate::ring) const TOKENS: u128 = 40;

    fn node(host: u8) -> IpAddr {
        [10, host % 3, host % 2, host].into()
    }

    /// Rings in which some members leave and some nodes join.
    pub(in crate::ring) fn rings() -> impl Strategy<Value = TokenMetadata> {
        let members = btree_map(0..TOKENS, any::<bool>(), 0..9);
        let former = proptest::option::of((0..TOKENS, 0..9u8));
        (members, vec(0..TOKENS, 0..4), former).prop_map(|(members, joining, former)| {
            let mut ring = TokenMetadata::default();
            for (host, (token, leaves)) in (0..).zip(members) {
                ring.insert(Token::Random(token), node(host));
                if leaves {
                    ring.begin_leave(node(host));
                }
            }
            for (host, token) in (100..).zip(joining) {
                let _ = ring.begin_bootstrap(Token::Random(token), node(host));
                ring.begin_replace(Token::Random(token), node(host));
            }
            // One has left, or has come, a moment ago.
            if let Some((token, host)) = former {
                let mut before = ring.clone();
                if before.remove(node(host)).is_none() {
                    before.insert(Token::Random(token), node(host));
                }
                ring.set_former(&before);
            }
            ring
        })
    }

    /// All strategies.
    pub(in crate::ring) fn placements() -> impl Strategy<Value = ReplicaPlacement> {
        let by_rack = |strategy: ReplicationStrategy| {
            (0..5usize).prop_map(move |replication_factor| ReplicaPlacement {
                strategy: strategy.clone(),
                replication_factor,
                snitch: Snitch::EndPoint,
            })
        };
        prop_oneof![
            by_rack(ReplicationStrategy::RackUnaware),
            by_rack(ReplicationStrategy::RackAware),
            btree_map("[0-3]", 0..4usize, 0..4)
                .prop_map(|factors| ReplicaPlacement::per_data_center(factors, Snitch::EndPoint)),
        ]
    }

    #[test]
    fn future_replicas_get_writes() {
        let mut ring = TokenMetadata::default();
        for (host, token) in (1..).zip([10, 20, 30, 40]) {
            ring.insert(Token::Random(token), node(host));
        }
        let placement = ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: 2,
            snitch: Snitch::EndPoint,
        };
        let pending = |ring: &TokenMetadata, token| {
            pending_endpoints(&placement, ring, &Token::Random(token))
        };
        assert_eq!(pending(&ring, 5), [] as [IpAddr; 0]);
        ring.begin_leave(node(2));
        assert_eq!(pending(&ring, 5), [node(3)]);
        assert_eq!(pending(&ring, 15), [node(4)]);
        assert_eq!(pending(&ring, 25), [] as [IpAddr; 0]);
        ring.begin_bootstrap(Token::Random(12), node(9)).unwrap();
        assert_eq!(pending(&ring, 5), [node(3), node(9)]);
        assert_eq!(pending(&ring, 11), [node(4), node(9)]);
        assert_eq!(pending(&ring, 12), [node(4), node(9)]);
        assert_eq!(pending(&ring, 13), [node(4)]);
        assert_eq!(pending(&ring, 35), [] as [IpAddr; 0]);
    }

    #[test]
    fn former_replicas_get_writes_for_a_while() {
        let mut ring = TokenMetadata::default();
        for (host, token) in (1..).zip([10, 20, 30]) {
            ring.insert(Token::Random(token), node(host));
        }
        let former = ring.clone();
        let placement = ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor: 2,
            snitch: Snitch::EndPoint,
        };
        ring.set_former(&former);
        assert!(ring.is_settled(), "nothing is different");
        ring.insert(Token::Random(15), node(4));
        ring.set_former(&former);
        let pending = pending_endpoints(&placement, &ring, &Token::Random(12));
        assert_eq!(pending, [node(3)]);
        assert!(!ring.is_settled());
    }

    proptest! {
        /// The model works with ranges, as 0.6 does: those of leaving members go to their new
        /// replicas, and a joining node makes others gain ranges.
        #[test]
        fn pending_endpoints_are_those_of_pending_ranges(
            ring in rings(),
            placement in placements(),
        ) {
            let mut ranges = Vec::new();
            let after = ring.after_all_left();
            for described in placement.describe_ring(&ring) {
                if !described.endpoints.iter().any(|&endpoint| ring.is_leaving(endpoint)) {
                    continue;
                }
                for heir in placement.natural_endpoints(&after, &described.range.end) {
                    if !described.endpoints.contains(&heir) {
                        ranges.push((described.range.clone(), heir));
                    }
                }
            }
            for change in ring.former().iter().flat_map(|it| range_changes(&placement, &ring, it)) {
                for gains in change.gained {
                    ranges.push((change.range.clone(), gains));
                }
            }
            for (token, endpoint) in ring.bootstrapping().chain(ring.replacing()) {
                let mut joined = after.clone();
                joined.insert(token.clone(), endpoint);
                for change in range_changes(&placement, &ring, &joined) {
                    for gains in change.gained {
                        ranges.push((change.range.clone(), gains));
                    }
                }
            }
            for token in (0..=TOKENS).map(Token::Random).chain([Token::Minimum]) {
                let holding = ranges.iter().filter(|(range, _)| range.contains(&token));
                let expected: BTreeSet<IpAddr> = holding.map(|&(_, endpoint)| endpoint).collect();
                let pending = pending_endpoints(&placement, &ring, &token);
                prop_assert_eq!(pending.len(), expected.len());
                prop_assert_eq!(BTreeSet::from_iter(pending), expected);
            }
        }

        /// When all leaving nodes have left, all replicas have got writes before.
        #[test]
        fn no_node_becomes_a_replica_without_writes(ring in rings(), placement in placements()) {
            let after = ring.after_all_left();
            for token in (0..=TOKENS).map(Token::Random) {
                let mut written = placement.natural_endpoints(&ring, &token);
                written.extend(pending_endpoints(&placement, &ring, &token));
                for replica in placement.natural_endpoints(&after, &token) {
                    prop_assert!(written.contains(&replica));
                }
                // Each joining node, and each node that becomes a replica by that.
                for (at, endpoint) in ring.bootstrapping().chain(ring.replacing()) {
                    let mut joined = after.clone();
                    joined.insert(at.clone(), endpoint);
                    for replica in placement.natural_endpoints(&joined, &token) {
                        prop_assert!(written.contains(&replica));
                    }
                }
                let mut times: BTreeMap<IpAddr, usize> = BTreeMap::new();
                for endpoint in written {
                    *times.entry(endpoint).or_default() += 1;
                }
                prop_assert!(times.values().all(|&times| times == 1));
            }
        }
    }
}
