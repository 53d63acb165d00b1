//! Changes of replicas when one ring becomes another.

use super::placement::ReplicaPlacement;
use super::range::TokenRange;
use super::token::Token;
use super::token_metadata::TokenMetadata;
use std::net::IpAddr;

/// A range whose replicas change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeChange {
    /// The range. It may wrap.
    pub range: TokenRange,
    /// Those that become replicas, in the order of the strategy.
    pub gained: Vec<IpAddr>,
    /// Those that are replicas before and not after.
    pub lost: Vec<IpAddr>,
    /// Those that stay replicas.
    pub kept: Vec<IpAddr>,
}

/// The ranges that have a new replica when the first ring becomes the second, in the order of
/// their tokens; neighbours with the same changes are one. Joining and leaving nodes of either ring
/// do not count: who wants to know what they change says so by the second ring.
pub fn range_changes(
    placement: &ReplicaPlacement,
    before: &TokenMetadata,
    after: &TokenMetadata,
) -> Vec<RangeChange> {
    let mut ends: Vec<&Token> = before.tokens().chain(after.tokens()).collect();
    ends.sort_unstable();
    ends.dedup();
    let starts = ends.iter().cycle().skip(ends.len().saturating_sub(1));
    let mut changes: Vec<RangeChange> = Vec::new();
    for (end, start) in ends.iter().zip(starts) {
        let range = TokenRange { start: (*start).clone(), end: (*end).clone() };
        let [old, new] = [before, after].map(|ring| placement.natural_endpoints(ring, end));
        let gained: Vec<IpAddr> = new.iter().copied().filter(|it| !old.contains(it)).collect();
        if gained.is_empty() {
            continue;
        }
        let (kept, lost) = old.iter().copied().partition(|it| new.contains(it));
        let change = RangeChange { range, gained, lost, kept };
        match changes.last_mut() {
            Some(before) if before.continues_with(&change) => before.range.end = change.range.end,
            _ => changes.push(change),
        }
    }
    changes
}

/// The ranges of which a node is a replica, in the order of their tokens; neighbours are one.
pub fn ranges_of(
    placement: &ReplicaPlacement,
    ring: &TokenMetadata,
    endpoint: IpAddr,
) -> Vec<TokenRange> {
    let mut ranges: Vec<TokenRange> = Vec::new();
    for described in placement.describe_ring(ring) {
        if !described.endpoints.contains(&endpoint) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.end == described.range.start && !last.is_whole_ring() => {
                last.end = described.range.end;
            }
            _ => ranges.push(described.range),
        }
    }
    ranges
}

impl RangeChange {
    /// Whether another begins where this one ends, with the same endpoints.
    fn continues_with(&self, next: &Self) -> bool {
        self.range.end == next.range.start
            && !self.range.is_whole_ring()
            && (&self.gained, &self.lost, &self.kept) == (&next.gained, &next.lost, &next.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::super::pending::tests::{TOKENS, placements, rings};
    use super::*;
    use crate::ring::{ReplicationStrategy, Snitch};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn node(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    fn unaware(replication_factor: usize) -> ReplicaPlacement {
        ReplicaPlacement {
            strategy: ReplicationStrategy::RackUnaware,
            replication_factor,
            snitch: Snitch::EndPoint,
        }
    }

    fn ring(members: &[(u128, u8)]) -> TokenMetadata {
        let mut ring = TokenMetadata::default();
        for (token, host) in members {
            ring.insert(Token::Random(*token), node(*host));
        }
        ring
    }

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    #[test]
    fn a_joining_node_takes_ranges_from_displaced_replicas() {
        let before = ring(&[(10, 1), (20, 2), (30, 3)]);
        let after = ring(&[(10, 1), (15, 4), (20, 2), (30, 3)]);
        let changes = range_changes(&unaware(2), &before, &after);
        let change = |range, lost, kept| RangeChange {
            range,
            gained: vec![node(4)],
            lost: vec![node(lost)],
            kept: vec![node(kept)],
        };
        assert_eq!(changes, [change(range(30, 10), 2, 1), change(range(10, 15), 3, 2)]);
    }

    #[test]
    fn in_a_small_ring_no_replica_is_displaced() {
        let (before, after) = (ring(&[(10, 1)]), ring(&[(10, 1), (20, 2)]));
        let changes = range_changes(&unaware(3), &before, &after);
        let all = RangeChange {
            range: range(20, 20),
            gained: vec![node(2)],
            lost: Vec::new(),
            kept: vec![node(1)],
        };
        assert_eq!(changes, [all]);
        assert_eq!(ranges_of(&unaware(3), &after, node(2)), [range(20, 20)]);
    }

    #[test]
    fn neighbouring_ranges_of_a_node_are_one() {
        let ring = ring(&[(10, 1), (20, 2), (30, 3)]);
        assert_eq!(ranges_of(&unaware(2), &ring, node(1)), [range(30, 10), range(20, 30)]);
        assert_eq!(ranges_of(&unaware(2), &ring, node(3)), [range(10, 30)]);
    }

    proptest! {
        /// Token by token the changes are what the two rings say.
        #[test]
        fn changes_are_the_difference_of_the_rings(
            before in rings(),
            after in rings(),
            placement in placements(),
        ) {
            let changes = range_changes(&placement, &before, &after);
            for token in (0..=TOKENS).map(Token::Random) {
                let set = |ring| -> BTreeSet<IpAddr> {
                    placement.natural_endpoints(ring, &token).into_iter().collect()
                };
                let (old, new) = (set(&before), set(&after));
                let holding: Vec<_> =
                    changes.iter().filter(|it| it.range.contains(&token)).collect();
                prop_assert!(holding.len() <= 1);
                let gained: BTreeSet<IpAddr> =
                    holding.iter().flat_map(|it| it.gained.clone()).collect();
                prop_assert_eq!(&gained, &(&new - &old));
                if let Some(change) = holding.first() {
                    prop_assert_eq!(BTreeSet::from_iter(change.lost.clone()), &old - &new);
                    prop_assert_eq!(BTreeSet::from_iter(change.kept.clone()), &old & &new);
                }
            }
        }

        #[test]
        fn ranges_of_a_node_are_those_it_replicates(
            ring in rings(),
            placement in placements(),
            host in 0..9u8,
        ) {
            let endpoint = IpAddr::from([10, host % 3, host % 2, host]);
            let ranges = ranges_of(&placement, &ring, endpoint);
            for token in (0..=TOKENS).map(Token::Random) {
                let holds = placement.natural_endpoints(&ring, &token).contains(&endpoint);
                let times = ranges.iter().filter(|range| range.contains(&token)).count();
                prop_assert_eq!(times, usize::from(holds));
            }
        }
    }
}
