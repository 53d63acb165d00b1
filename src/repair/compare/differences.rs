//! Differences between replicas, and the rows that each has to collect.

use super::leaves::{Leaf, Leaves};
use crate::model::key::RowKey;
use crate::repair::compare::{ListedRow, TreeHash};
use crate::repair::job::Output;
use crate::ring::{Partitioner, TokenRange};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

/// The ranges of leaves with differing hashes, in order. All replicas have the same leaves.
pub(super) fn differing(leaves: &BTreeMap<IpAddr, Leaves>) -> Vec<TokenRange> {
    let Some(first) = leaves.values().next() else { return Vec::new() };
    let differs = |(at, leaf): &(usize, &Leaf)| {
        leaves.values().any(|other| other.0.get(*at).is_none_or(|it| it.hash != leaf.hash))
    };
    let ranges = first.0.iter().enumerate().filter(differs);
    ranges.map(|(_, leaf)| leaf.range.clone()).collect()
}

/// A row in which replicas differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) key: RowKey,
    pub(super) missing: Missing,
    /// Bytes of its largest version.
    pub(super) bytes: u64,
}

/// The rows of a replica that it has listed so far.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Rows that are not compared yet, in order.
    pub(super) rows: VecDeque<ListedRow>,
    /// The key after which there may be more.
    pub(super) next: Option<RowKey>,
    /// Whether these are the last.
    pub(super) is_complete: bool,
}

impl Listing {
    /// Whether the comparison needs more rows of the replica.
    pub(super) fn is_wanted(&self) -> bool {
        self.rows.is_empty() && !self.is_complete
    }

    /// Adds a list of the replica. False if it makes no sense.
    pub(super) fn extend(&mut self, output: Output, partitioner: Partitioner) -> bool {
        let Output::Rows { rows, next } = output else { return false };
        let decorate = |key: &RowKey| partitioner.decorate(key.clone());
        let after = self.next.as_ref().map(decorate);
        let keys = rows.iter().map(|row| &row.key);
        let is_in_order = after.iter().chain(keys).is_sorted_by(|a, b| a < b);
        // Or the comparison would never end.
        let goes_on = next.as_ref().map(decorate).is_none_or(|next| after < Some(next));
        self.rows.extend(rows);
        self.is_complete = next.is_none();
        self.next = next;
        is_in_order && goes_on
    }
}

/// Pairs of the collector of a row and its source.
pub(super) type Missing = Vec<(IpAddr, IpAddr)>;

/// Compares the listed rows as far as all replicas have listed. Returns the differing rows, in
/// order. Afterwards an incomplete listing is empty, or all are.
pub(super) fn compare_rows(listings: &mut BTreeMap<IpAddr, Listing>) -> Vec<Differing> {
    let mut found = Vec::new();
    loop {
        if listings.values().any(Listing::is_wanted) {
            return found;
        }
        let heads = listings.values().filter_map(|it| it.rows.front());
        let Some(least) = heads.map(|row| &row.key).min().cloned() else { return found };
        let mut bytes = 0;
        let mut take = |it: &mut Listing| {
            let row = it.rows.pop_front_if(|row| row.key == least)?;
            bytes = bytes.max(row.bytes);
            Some(row.hash)
        };
        let known: Vec<(IpAddr, Option<TreeHash>)> =
            listings.iter_mut().map(|(replica, it)| (*replica, take(it))).collect();
        let missing = missing(&known);
        if !missing.is_empty() {
            found.push(Differing { key: least.key().clone(), missing, bytes });
        }
    }
}

/// Collectors of a row with their sources, so that all get every version. Of replicas with equal
/// versions one is the source.
fn missing(known: &[(IpAddr, Option<TreeHash>)]) -> Missing {
    let mut versions: Vec<(TreeHash, IpAddr)> = Vec::new();
    for (replica, hash) in known {
        if let Some(hash) = hash
            && !versions.iter().any(|(version, _)| version == hash)
        {
            versions.push((*hash, *replica));
        }
    }
    let of_replica = |(replica, own): &(IpAddr, Option<TreeHash>)| {
        let (replica, own) = (*replica, *own);
        let others = versions.iter().filter(move |(version, _)| Some(*version) != own);
        others.map(move |(_, source)| (replica, *source)).collect::<Vec<_>>()
    };
    known.iter().flat_map(of_replica).collect()
}

#[cfg(test)]
mod tests {
    use super::super::leaves::Shape;
    use super::*;
    use crate::ring::Token;
    use crate::storage::compaction::GcSpan;

    fn node(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn hash(number: u8) -> TreeHash {
        TreeHash::from([number; 32])
    }

    fn listing(rows: &[(&str, u8)], is_complete: bool) -> Listing {
        let row = |(key, number): &(&str, u8)| {
            let key = Partitioner::OrderPreserving.decorate(RowKey::from(*key));
            ListedRow { key, hash: hash(*number), bytes: u64::from(*number) }
        };
        Listing { rows: rows.iter().map(row).collect(), next: None, is_complete }
    }

    #[test]
    fn leaves_differ_if_any_replica_has_something_else() {
        let range =
            |start, end| TokenRange { start: Token::Random(start), end: Token::Random(end) };
        let leaves = |tokens: &[u128]| {
            let shape = Shape::Even(2);
            let mut leaves = Leaves::new(Partitioner::Random, &[range(0, 40)], &shape).unwrap();
            for token in tokens {
                leaves.add(&Token::Random(*token), Some(&hash(*token as u8)), GcSpan::default());
            }
            leaves
        };
        let all: BTreeMap<_, _> =
            [(1, leaves(&[5, 15])), (2, leaves(&[5, 15])), (3, leaves(&[5, 35]))]
                .map(|(last, leaves)| (node(last), leaves))
                .into();
        assert_eq!(differing(&all), [range(10, 20), range(30, 40)]);
    }

    #[test]
    fn each_replica_collects_missing_versions_from_one_source() {
        let [a, b, c] = [node(1), node(2), node(3)];
        assert_eq!(missing(&[(a, Some(hash(1))), (b, Some(hash(1)))]), []);
        // One that is missing altogether.
        let known = [(a, Some(hash(1))), (b, None), (c, Some(hash(1)))];
        assert_eq!(missing(&known), [(b, a)]);
        // Two versions: both ways.
        let known = [(a, Some(hash(1))), (b, Some(hash(2))), (c, Some(hash(1)))];
        assert_eq!(missing(&known), [(a, b), (b, a), (c, b)]);
        // Three.
        let known = [(a, Some(hash(1))), (b, Some(hash(2))), (c, Some(hash(3)))];
        assert_eq!(missing(&known), [(a, b), (a, c), (b, a), (b, c), (c, a), (c, b)]);
    }

    #[test]
    fn rows_are_compared_as_far_as_all_have_told() {
        let (a, b) = (node(1), node(2));
        let mut listings = BTreeMap::from([
            (a, listing(&[("k", 1), ("l", 1), ("n", 1)], false)),
            (b, listing(&[("k", 1), ("m", 2)], true)),
        ]);
        let found = compare_rows(&mut listings);
        let expected = [("l", vec![(b, a)]), ("m", vec![(a, b)]), ("n", vec![(b, a)])];
        let found = found.into_iter().map(|it| (it.key.to_string(), it.missing, it.bytes));
        let expected = expected.map(|(key, missing)| (key.to_owned(), missing));
        let bytes = [1, 2, 1].into_iter();
        let expected = expected.into_iter().zip(bytes).map(|((key, it), bytes)| (key, it, bytes));
        assert!(found.eq(expected));
        // What the first has after that is not known.
        assert!(listings[&a].rows.is_empty());
        listings.insert(a, listing(&[], true));
        assert_eq!(compare_rows(&mut listings), []);
    }

    #[test]
    fn nothing_is_said_of_rows_that_a_replica_may_still_tell_of() {
        let (a, b) = (node(1), node(2));
        let mut listings = BTreeMap::from([
            (a, listing(&[("k", 1), ("z", 1)], true)),
            (b, listing(&[("k", 1)], false)),
        ]);
        assert_eq!(compare_rows(&mut listings), []);
        assert_eq!(listings[&a].rows.len(), 1);
    }
}
