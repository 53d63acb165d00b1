//! Choice of the ranges to compare, and of their division.

use super::leaves::{MOST_DEPTH, MOST_LEAVES, Shape, straight};
use crate::ring::{Partitioner, ReplicaPlacement, Token, TokenMetadata, TokenRange};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Wanted rows of a leaf. About as many are read again for a differing one.
const ROWS_PER_LEAF: u64 = 16;

/// Most leaves where tokens have to be sent, and most bytes of these.
const MOST_TOKENS: usize = 4096;
const MOST_TOKEN_BYTES: usize = 128 << 10;

/// The ranges that a node repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairScope {
    /// The range that it owns: enough if all nodes repair theirs.
    Primary,
    /// All ranges of which it is a replica.
    All,
}

/// The ranges of a repair, by their replicas.
pub(super) fn ranges_by_replicas(
    placement: &ReplicaPlacement,
    ring: &TokenMetadata,
    local: IpAddr,
    scope: RepairScope,
) -> BTreeMap<BTreeSet<IpAddr>, Vec<TokenRange>> {
    let primary = ring.primary_range(local);
    let mut found: BTreeMap<BTreeSet<IpAddr>, Vec<TokenRange>> = BTreeMap::new();
    for described in placement.describe_ring(ring) {
        let is_meant = match scope {
            RepairScope::Primary => primary.as_ref() == Some(&described.range),
            RepairScope::All => described.endpoints.contains(&local),
        };
        if is_meant && described.endpoints.len() > 1 {
            let replicas = described.endpoints.into_iter().collect();
            found.entry(replicas).or_default().push(described.range);
        }
    }
    found
}

/// Chooses the division of ranges by the estimated number of rows and by tokens of some of them.
pub(super) fn shape(
    partitioner: Partitioner,
    ranges: &[TokenRange],
    rows: u64,
    samples: &[Token],
) -> Shape {
    let within = |token: &&Token| ranges.iter().any(|range| range.contains(token));
    let mut inside: Vec<&Token> = samples.iter().filter(within).collect();
    if !partitioner.preserves_order() {
        // Without samples there are few rows.
        let rows = match samples.len() as u64 {
            0 => rows,
            all => rows.saturating_mul(inside.len() as u64) / all,
        };
        let pieces = straight(ranges).len().max(1);
        let wanted = (rows / ROWS_PER_LEAF).max(1).div_ceil(pieces as u64);
        let most = (MOST_LEAVES / pieces).max(1).ilog2() as u8;
        let depth = wanted.next_power_of_two().ilog2() as u8;
        return Shape::Even(depth.min(most).min(MOST_DEPTH));
    }
    inside.sort_unstable();
    inside.dedup();
    let mut every = inside.len().div_ceil(MOST_TOKENS).max(1);
    loop {
        let chosen = inside.iter().skip(every - 1).step_by(every);
        let tokens: Vec<Token> = chosen.copied().cloned().collect();
        let bytes = tokens.iter().map(|token| partitioner.token_to_bytes(token).len());
        if bytes.sum::<usize>() <= MOST_TOKEN_BYTES {
            return Shape::At(tokens);
        }
        every *= 2;
    }
}

/// Whether the last division may be used again, so that its hashes are still known.
pub(super) fn still_fits(before: &Shape, now: &Shape) -> bool {
    match (before, now) {
        (Shape::Even(before), Shape::Even(now)) => before.abs_diff(*now) <= 1,
        (Shape::At(before), Shape::At(now)) => {
            before.len() / 2 <= now.len() && now.len() / 2 <= before.len()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u128, end: u128) -> TokenRange {
        TokenRange { start: Token::Random(start), end: Token::Random(end) }
    }

    #[test]
    fn hashed_rows_are_divided_evenly_by_their_number() {
        let shape = |ranges: &[TokenRange], rows, samples: &[u128]| {
            let samples: Vec<Token> = samples.iter().copied().map(Token::Random).collect();
            super::shape(Partitioner::Random, ranges, rows, &samples)
        };
        assert_eq!(shape(&[range(0, 100)], 0, &[]), Shape::Even(0));
        assert_eq!(shape(&[range(0, 100)], 16 * 100, &[5, 7]), Shape::Even(7));
        // Half of the rows are in the range.
        assert_eq!(shape(&[range(0, 100)], 16 * 128, &[5, 700]), Shape::Even(6));
        assert_eq!(shape(&[range(0, 100)], u64::MAX / 16, &[5]), Shape::Even(15));
        assert_eq!(shape(&[range(0, 9), range(20, 30)], u64::MAX / 16, &[5]), Shape::Even(14));
    }

    #[test]
    fn ordered_rows_are_divided_at_some_of_them() {
        let partitioner = Partitioner::OrderPreserving;
        let token = |text: &str| partitioner.token(text.as_bytes());
        let within = [TokenRange { start: token("b"), end: token("e") }];
        let samples = ["a", "d", "c", "c", "f"].map(token);
        let tokens = Shape::At(["c", "d"].map(token).to_vec());
        assert_eq!(shape(partitioner, &within, 5, &samples), tokens);
        let many: Vec<Token> = (0..5000).map(|n| token(&format!("c{n:0100}"))).collect();
        let Shape::At(tokens) = shape(partitioner, &within, 5000, &many) else { panic!() };
        assert_eq!(tokens.len(), 1250);
    }

    #[test]
    fn a_shape_is_kept_while_it_is_about_right() {
        assert!(still_fits(&Shape::Even(5), &Shape::Even(6)));
        assert!(!still_fits(&Shape::Even(5), &Shape::Even(7)));
        let at = |count: usize| Shape::At(vec![Token::Minimum; count]);
        assert!(still_fits(&at(10), &at(19)) && still_fits(&at(19), &at(10)));
        assert!(!still_fits(&at(10), &at(30)) && !still_fits(&at(30), &at(10)));
        assert!(!still_fits(&at(1), &Shape::Even(1)));
    }
}
