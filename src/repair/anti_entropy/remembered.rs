//! Hashes of leaves that were worked out before: what has not changed is not read again.

use super::leaves::Leaves;
use crate::model::schema::FamilyId;
use crate::storage::compaction::GcSpan;
use std::collections::VecDeque;

/// Most leaves that are kept, of all column families together: some 30 MB.
const MOST_KEPT: usize = 1 << 18;

/// The leaves that were worked out last.
#[derive(Debug, Default)]
pub(super) struct Remembered(VecDeque<Entry>);

#[derive(Debug)]
struct Entry {
    family: FamilyId,
    /// Of the SSTables that were read.
    generations: Vec<u64>,
    span: GcSpan,
    leaves: Leaves,
}

impl Remembered {
    /// The hashes of these leaves, if they follow from what is known of the same SSTables, and the
    /// time before which deletions do not count makes no difference.
    pub(super) fn find(
        &self,
        family: FamilyId,
        generations: &[u64],
        gc_before: i32,
        leaves: &Leaves,
    ) -> Option<Leaves> {
        let is_of_it = |entry: &&Entry| {
            entry.family == family
                && entry.generations == generations
                && entry.span.contains(gc_before)
        };
        let mut entries = self.0.iter().filter(is_of_it);
        entries.find_map(|entry| leaves.gathered_from(&entry.leaves))
    }

    /// Keeps leaves. Those of other SSTables of the family are of no use any more.
    pub(super) fn keep(
        &mut self,
        family: FamilyId,
        generations: Vec<u64>,
        span: GcSpan,
        leaves: Leaves,
    ) {
        self.0.retain(|entry| entry.family != family || entry.generations == generations);
        self.0.push_back(Entry { family, generations, span, leaves });
        let kept = |entries: &VecDeque<Entry>| {
            entries.iter().map(|entry| entry.leaves.ranges().len()).sum::<usize>()
        };
        while kept(&self.0) > MOST_KEPT {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaves::Shape;
    use super::*;
    use crate::repair::merkle::TreeHash;
    use crate::ring::{Partitioner, Token, TokenRange};

    const FAMILY: FamilyId = FamilyId(0);

    fn leaves(end: u128, depth: u8) -> Leaves {
        let range = TokenRange { start: Token::Random(0), end: Token::Random(end) };
        Leaves::new(Partitioner::Random, &[range], &Shape::Even(depth)).unwrap()
    }

    #[test]
    fn what_is_known_serves_as_long_as_nothing_has_changed() {
        let (span, mut filled) = (GcSpan { latest_dropped: 10, earliest_kept: 20 }, leaves(64, 4));
        filled.add(&Token::Random(5), &TreeHash::from([7; 32]));
        let mut remembered = Remembered::default();
        remembered.keep(FAMILY, vec![1, 2], span, filled.clone());
        let find = |generations: &[u64], gc_before, leaves: Leaves| {
            remembered.find(FAMILY, generations, gc_before, &leaves)
        };
        assert_eq!(find(&[1, 2], 15, leaves(64, 4)), Some(filled.clone()));
        let wider = find(&[1, 2], 10, leaves(64, 2)).unwrap();
        assert_eq!(wider.hashes()[0], TreeHash::from([7; 32]));
        assert_eq!(find(&[1, 2, 3], 15, leaves(64, 4)), None, "another SSTable");
        assert_eq!(find(&[1, 2], 9, leaves(64, 4)), None, "a deletion would count again");
        assert_eq!(find(&[1, 2], 20, leaves(64, 4)), None, "a deletion counts no more");
        assert_eq!(find(&[1, 2], 15, leaves(64, 5)), None, "narrower than what is known");
        assert_eq!(find(&[1, 2], 15, leaves(128, 4)), None, "more than what is known");
        // What is of other SSTables goes.
        remembered.keep(FAMILY, vec![3], span, filled.clone());
        assert_eq!(remembered.find(FAMILY, &[1, 2], 15, &filled), None);
    }

    #[test]
    fn there_is_a_bound() {
        let mut remembered = Remembered::default();
        for family in 0..20 {
            remembered.keep(FamilyId(family), vec![1], GcSpan::default(), leaves(1 << 40, 15));
        }
        assert_eq!(remembered.0.len(), 8);
        assert_eq!(remembered.0[0].family, FamilyId(12));
    }
}
