//! Which replicas have to answer before a request is done.

use smallvec::SmallVec;
use std::net::IpAddr;

/// So many answers of each of some groups of replicas. Mostly there is one group of all; levels
/// that know of data centres have one for each.
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
    /// So many replicas, whichever.
    pub(super) fn any(needed: usize) -> Self {
        Self { groups: SmallVec::from_iter([Group { members: None, needed }]) }
    }

    /// So many of each of these groups.
    pub(super) fn of_each(groups: impl IntoIterator<Item = (Vec<IpAddr>, usize)>) -> Self {
        let group = |(members, needed)| Group { members: Some(members), needed };
        Self { groups: groups.into_iter().map(group).collect() }
    }

    /// Whether these replicas are enough.
    pub(super) fn is_met_by(&self, answered: impl Iterator<Item = IpAddr>) -> bool {
        let mut counts: SmallVec<[usize; 1]> = self.groups.iter().map(|_| 0).collect();
        for endpoint in answered {
            for (group, count) in self.groups.iter().zip(&mut counts) {
                *count += usize::from(group.has(endpoint));
            }
        }
        self.groups.iter().zip(counts).all(|(group, count)| count >= group.needed)
    }

    /// The fewest replicas that are enough, as early in this order as may be; all if there are too
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
    use super::*;

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
        let local = Requirement::of_each([(nodes(&[1, 2, 3]), 2)]);
        assert!(!local.is_met_by(nodes(&[4, 5, 1]).into_iter()));
        assert_eq!(local.choose(&nodes(&[4, 1, 2])), nodes(&[1, 2]));
    }
}
