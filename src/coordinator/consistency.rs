//! Consistency levels, and which replicas have to answer for them.

use smallvec::SmallVec;
use std::net::IpAddr;

/// Number of replicas that must take part before a call is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConsistencyLevel {
    /// None: a write is sent without waiting.
    Zero,
    /// One node, even if it only holds a hint. As `One` for range queries.
    Any,
    /// One replica.
    One,
    /// Two replicas.
    Two,
    /// Three replicas.
    Three,
    /// More than half of the replicas.
    Quorum,
    /// As `All` with the strategies that are not aware of data centres.
    DcQuorum,
    /// As `DcQuorum`.
    DcQuorumSync,
    /// Every replica.
    All,
}

impl ConsistencyLevel {
    /// Acknowledgements that a write needs from its replicas and from endpoints that are about to
    /// become some. Writes count the endpoints that exist, so that a ring smaller than the
    /// replication factor takes them; without any endpoint there are too few.
    ///
    /// With several pending endpoints more than half of all, as in 0.6, might be few replicas, and
    /// a read at `Quorum` would miss them. Here half of the final replicas have acknowledged,
    /// whichever endpoints these are.
    pub fn block_for_write(self, natural: usize, pending: usize) -> usize {
        let endpoints = natural + pending;
        match self {
            Self::Zero => 0,
            Self::Any | Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Quorum => (endpoints / 2 + 1).max(natural.div_ceil(2) + pending),
            Self::DcQuorum | Self::DcQuorumSync | Self::All => endpoints.max(1),
        }
    }

    /// Replies that a read needs. Reads count the configured replication factor, whatever the size
    /// of the ring.
    pub fn block_for_read(self, replication_factor: usize) -> usize {
        match self {
            Self::Zero | Self::Any | Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
            Self::Quorum => replication_factor / 2 + 1,
            Self::DcQuorum | Self::DcQuorumSync | Self::All => replication_factor.max(1),
        }
    }
}

/// Replicas that a request needed, and those that it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Replicas that had to take part.
    pub required: usize,
    /// Replicas that were alive or, when time is over, those that have answered.
    pub present: usize,
    /// Whether one of them has answered with data.
    pub has_data: bool,
}

impl ReplicaCounts {
    /// None of one: for requests that fail without a look at their replicas, and for those that one
    /// node serves alone.
    pub const NONE: Self = Self { required: 1, present: 0, has_data: false };
}

/// Number of answers needed from each of some groups of replicas. Mostly there is one group of all;
/// levels that know of data centres have one for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requirement {
    groups: SmallVec<[Group; 1]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    /// `None` for all replicas.
    members: Option<Vec<IpAddr>>,
    needed: usize,
}

impl Group {
    fn has(&self, endpoint: IpAddr) -> bool {
        self.members.as_ref().is_none_or(|members| members.contains(&endpoint))
    }
}

impl Requirement {
    /// Any `needed` replicas.
    pub(super) fn any(needed: usize) -> Self {
        Self { groups: SmallVec::from_iter([Group { members: None, needed }]) }
    }

    /// The given number from each of these groups.
    pub(super) fn of_each(groups: impl IntoIterator<Item = (Vec<IpAddr>, usize)>) -> Self {
        let group = |(members, needed)| Group { members: Some(members), needed };
        Self { groups: groups.into_iter().map(group).collect() }
    }

    /// Adds another one: both have to be met.
    pub(super) fn add(&mut self, other: &Self) {
        self.groups.extend(other.groups.iter().cloned());
    }

    /// Whether answers of this replica count.
    pub(super) fn counts(&self, endpoint: IpAddr) -> bool {
        self.groups.iter().any(|group| group.has(endpoint))
    }

    /// Whether these replicas are enough.
    pub(super) fn is_met_by(&self, present: impl Iterator<Item = IpAddr>) -> bool {
        self.check(present).is_ok()
    }

    /// Fails with the counts of the first group of which these replicas are too few.
    pub(super) fn check(
        &self,
        replicas: impl Iterator<Item = IpAddr>,
    ) -> Result<(), ReplicaCounts> {
        let mut counts: SmallVec<[usize; 1]> = self.groups.iter().map(|_| 0).collect();
        for endpoint in replicas {
            for (group, count) in self.groups.iter().zip(&mut counts) {
                *count += usize::from(group.has(endpoint));
            }
        }
        let mut groups = self.groups.iter().zip(counts);
        groups.find(|(group, count)| *count < group.needed).map_or(Ok(()), |(group, present)| {
            Err(ReplicaCounts { required: group.needed, present, has_data: false })
        })
    }

    /// Chooses the fewest replicas that are enough, the first in this order; all if there are too
    /// few.
    pub(super) fn choose(&self, candidates: &[IpAddr]) -> Vec<IpAddr> {
        let mut left: SmallVec<[usize; 1]> = self.groups.iter().map(|group| group.needed).collect();
        let mut chosen = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let mut is_wanted = false;
            for (group, left) in self.groups.iter().zip(&mut left) {
                if *left > 0 && group.has(*candidate) {
                    *left -= 1;
                    is_wanted = true;
                }
            }
            if is_wanted {
                chosen.push(*candidate);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::ConsistencyLevel::{All, Any, DcQuorum, DcQuorumSync, One, Quorum, Zero};
    use super::*;

    #[test]
    fn quorums_are_more_than_half() {
        let quorums = [1, 2, 3, 4, 5, 6].map(|n| Quorum.block_for_write(n, 0));
        assert_eq!(quorums, [1, 2, 2, 3, 3, 4]);
        assert_eq!(Quorum.block_for_read(3), 2);
    }

    #[test]
    fn a_quorum_of_those_to_be_overlaps_with_any_read() {
        for (natural, pending) in (1..8).flat_map(|n| (0..5).map(move |p| (n, p))) {
            let needed = Quorum.block_for_write(natural, pending);
            assert!(needed <= natural + pending && 2 * needed > natural + pending);
            // The fewest of any `natural` endpoints that have acknowledged.
            let fewest = needed - pending;
            assert!(fewest + Quorum.block_for_read(natural) > natural, "{natural} {pending}");
        }
        assert_eq!(Quorum.block_for_write(3, 1), 3);
    }

    #[test]
    fn other_levels_are_one_or_all() {
        for level in [All, DcQuorum, DcQuorumSync] {
            assert_eq!((level.block_for_write(3, 1), level.block_for_read(3)), (4, 3), "{level:?}");
        }
        for level in [One, Any] {
            assert_eq!((level.block_for_write(3, 1), level.block_for_read(3)), (1, 1), "{level:?}");
        }
        assert_eq!(Zero.block_for_write(4, 0), 0);
        for level in [Any, One, Quorum, DcQuorum, DcQuorumSync, All] {
            assert_eq!((level.block_for_write(0, 0), level.block_for_read(0)), (1, 1), "{level:?}");
        }
    }

    fn nodes(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| IpAddr::from([127, 0, 0, *last])).collect()
    }

    #[test]
    fn any_replicas_count_alike() {
        let two = Requirement::any(2);
        assert!(two.is_met_by(nodes(&[1, 3]).into_iter()));
        assert!(!two.is_met_by(nodes(&[1]).into_iter()));
        assert_eq!(two.choose(&nodes(&[3, 1, 2])), nodes(&[3, 1]));
        assert_eq!(two.choose(&nodes(&[3])), nodes(&[3]));
        assert_eq!(Requirement::any(0).choose(&nodes(&[3])), nodes(&[]));
    }

    #[test]
    fn each_data_centre_has_its_own_quorum() {
        let each = Requirement::of_each([(nodes(&[1, 2, 3]), 2), (nodes(&[4]), 1)]);
        assert_eq!(each.choose(&nodes(&[3, 1, 2, 4])), nodes(&[3, 1, 4]));
        assert!(!each.is_met_by(nodes(&[1, 2, 3]).into_iter()));
        assert!(each.is_met_by(nodes(&[1, 4, 3]).into_iter()));
        let few = |required, present| Err(ReplicaCounts { required, present, has_data: false });
        assert_eq!(each.check(nodes(&[4, 1]).into_iter()), few(2, 1));
        assert_eq!(each.check(nodes(&[1, 2, 3]).into_iter()), few(1, 0));
        let local = Requirement::of_each([(nodes(&[1, 2, 3]), 2)]);
        assert!(!local.is_met_by(nodes(&[4, 5, 1]).into_iter()));
        assert_eq!(local.choose(&nodes(&[4, 1, 2])), nodes(&[1, 2]));
    }
}
