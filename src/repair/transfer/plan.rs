//! What data a node needs to become a replica, and from whom.

use crate::model::position::RowPosition;
use crate::model::schema::{FamilyId, Schema};
use crate::repair::calls::WantedRange;
use crate::repair::host::RingSnapshot;
use crate::ring::{
    Partitioner, RangeChange, ReplicaPlacement, RowRange, Token, TokenError, TokenMetadata,
    TokenRange, range_changes,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// A range of a keyspace that gets new replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repair) struct Change {
    pub(in crate::repair) keyspace: String,
    pub(in crate::repair) change: RangeChange,
}

/// A range of a column family that is to be fetched from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repair) struct Unit {
    pub(in crate::repair) range: RowRange,
    /// Behind what of the range it goes on; at its start if there is none.
    pub(in crate::repair) after: Option<RowPosition>,
    pub(in crate::repair) source: IpAddr,
    /// What it is a part of.
    pub(in crate::repair) wanted: Arc<WantedRange>,
}

/// What is fetched of a column family, one unit after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::repair) struct Lane {
    pub(in crate::repair) family: FamilyId,
    pub(in crate::repair) units: VecDeque<Unit>,
}

/// So few are alive who have a range that something may be missing which was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "too few live nodes have the range ({start},{end}] of keyspace {keyspace} to say what was \
     acknowledged: it is on {holders:?}. Bring more of them up first; `nodetool removetoken \
     --accept-loss` gives up what only dead ones have"
)]
pub struct NoSource {
    keyspace: String,
    start: String,
    end: String,
    holders: Vec<IpAddr>,
}

/// All ranges of all keyspaces that have a new replica when one ring becomes another.
pub(in crate::repair) fn changes(
    placements: &BTreeMap<String, ReplicaPlacement>,
    before: &TokenMetadata,
    after: &TokenMetadata,
) -> Vec<Change> {
    let of_keyspace = |(keyspace, placement): (&String, &ReplicaPlacement)| {
        let changes = range_changes(placement, before, after).into_iter();
        let keyspace = keyspace.clone();
        changes.map(move |change| Change { keyspace: keyspace.clone(), change }).collect::<Vec<_>>()
    };
    placements.iter().flat_map(of_keyspace).collect()
}

/// What each node has to fetch.
pub(in crate::repair) fn by_receiver(
    changes: &[Change],
    partitioner: Partitioner,
) -> BTreeMap<IpAddr, Vec<WantedRange>> {
    let mut wanted: BTreeMap<IpAddr, Vec<WantedRange>> = BTreeMap::new();
    for Change { keyspace, change } in changes {
        for receiver in &change.gained {
            wanted.entry(*receiver).or_default().push(WantedRange {
                keyspace: keyspace.clone(),
                start: partitioner.format_token(&change.range.start),
                end: partitioner.format_token(&change.range.end),
                lost: change.lost.clone(),
                kept: change.kept.clone(),
                from_all: false,
                accepts_loss: false,
            });
        }
    }
    wanted
}

/// From whom its receiver fetches a range, with what is known of who is alive; several have to be read
/// altogether.
///
/// Who ceases to be a replica hands over all that it has: what it acknowledged counts as
/// acknowledged by its receiver, so that no read at QUORUM finds less than before. If it is dead, or if
/// nobody ceases to be one, all others have, together, what was acknowledged at QUORUM: unless so
/// many of them are dead that a quorum may be among these. That is an error, or what an operator
/// has accepted: then those who are left are the sources, or nobody.
pub(in crate::repair) fn sources(
    wanted: &WantedRange,
    receiver: Option<IpAddr>,
    look: &RingSnapshot,
) -> Result<Vec<IpAddr>, NoSource> {
    // Who had it before, and has lost its disk, may collect it again.
    let is_live = |it: &&IpAddr| look.live.contains(*it) && Some(**it) != receiver;
    let lost: Vec<IpAddr> = wanted.lost.iter().filter(is_live).copied().collect();
    if !wanted.from_all && !lost.is_empty() && lost.len() == wanted.lost.len() {
        return Ok(lost);
    }
    let mut holders: Vec<IpAddr> = wanted.kept.iter().filter(is_live).copied().collect();
    holders.extend(lost);
    let fewest = (wanted.kept.len() + wanted.lost.len()).div_ceil(2);
    if holders.len() < fewest && !wanted.accepts_loss {
        return Err(wanted.without_source());
    }
    Ok(holders)
}

/// What is to be fetched by calls, in lanes of which each gets rows in the order of their tokens,
/// as far as they come from one source. What comes from nodes of 0.6 is not among it.
pub(in crate::repair) fn lanes(
    wanted: &[WantedRange],
    look: &RingSnapshot,
    schema: &Schema,
    partitioner: Partitioner,
) -> Result<Vec<Lane>, PlanError> {
    let mut units: BTreeMap<FamilyId, Vec<(usize, Unit)>> = BTreeMap::new();
    for range in wanted {
        let sources = sources(range, look.local, look)?;
        let (ring_range, wanted) = (range.range(partitioner)?, Arc::new(range.clone()));
        let families = schema.families().filter(|(_, it)| it.keyspace == range.keyspace);
        for (family, _) in families {
            for piece in ring_range.row_ranges() {
                let callable = sources.iter().filter(|source| !look.is_legacy(**source));
                for (pass, source) in callable.enumerate() {
                    let (range, wanted) = (piece.clone(), Arc::clone(&wanted));
                    let unit = Unit { range, after: None, source: *source, wanted };
                    units.entry(family).or_default().push((pass, unit));
                }
            }
        }
    }
    let lane = |(family, mut units): (FamilyId, Vec<(usize, Unit)>)| {
        units.sort_by(|(a_pass, a), (b_pass, b)| {
            a_pass.cmp(b_pass).then_with(|| start(&a.range).cmp(&start(&b.range)))
        });
        Lane { family, units: units.into_iter().map(|(_, unit)| unit).collect() }
    };
    Ok(units.into_iter().map(lane).collect())
}

/// Why it cannot be said what is to be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::repair) enum PlanError {
    #[error(transparent)]
    NoSource(#[from] NoSource),
    #[error(transparent)]
    Token(#[from] TokenError),
}

/// The token behind which a range begins; none at the beginning of the ring.
pub(in crate::repair) fn start(range: &RowRange) -> Option<&Token> {
    match &range.start {
        Bound::Unbounded => None,
        Bound::Included(token) | Bound::Excluded(token) => Some(token),
    }
}

impl WantedRange {
    /// The range.
    pub(in crate::repair) fn range(
        &self,
        partitioner: Partitioner,
    ) -> Result<TokenRange, TokenError> {
        let [start, end] = [&self.start, &self.end].map(|text| partitioner.parse_token(text));
        Ok(TokenRange { start: start?, end: end? })
    }

    fn without_source(&self) -> NoSource {
        NoSource {
            keyspace: self.keyspace.clone(),
            start: self.start.clone(),
            end: self.end.clone(),
            holders: self.lost.iter().chain(&self.kept).copied().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: u8) -> IpAddr {
        [10, 0, 0, host].into()
    }

    /// A range with these former replicas.
    fn wanted(lost: &[u8], kept: &[u8]) -> WantedRange {
        let [lost, kept] = [lost, kept].map(|it| it.iter().copied().map(node).collect());
        let (start, end) = ("0".to_owned(), "1".to_owned());
        let keyspace = "Keyspace".to_owned();
        let (from_all, accepts_loss) = (false, false);
        WantedRange { keyspace, start, end, lost, kept, from_all, accepts_loss }
    }

    /// From whom the ninth node gets it when these are alive; from nobody if too few are.
    fn sources_of(wanted: &WantedRange, live: &[u8]) -> Vec<IpAddr> {
        let live = live.iter().copied().map(node).collect();
        let look = RingSnapshot { live, ..RingSnapshot::default() };
        sources(wanted, Some(node(9)), &look).unwrap_or_default()
    }

    fn from(lost: &[u8], kept: &[u8], live: &[u8]) -> Vec<IpAddr> {
        sources_of(&wanted(lost, kept), live)
    }

    #[test]
    fn who_ceases_to_be_a_replica_is_enough() {
        assert_eq!(from(&[1], &[2, 3], &[1, 2, 3]), [node(1)]);
        assert_eq!(from(&[1], &[2, 3], &[1]), [node(1)]);
    }

    #[test]
    fn of_the_others_as_many_are_needed_as_every_quorum_has_one_of() {
        assert_eq!(from(&[1], &[2, 3], &[2, 3]), [node(2), node(3)]);
        assert!(from(&[1], &[2, 3], &[2]).is_empty());
        assert_eq!(from(&[1], &[2], &[2]), [node(2)]);
        assert!(from(&[1], &[], &[]).is_empty());
    }

    #[test]
    fn who_was_a_replica_for_a_while_asks_all() {
        let wanted = WantedRange { from_all: true, ..wanted(&[1], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[1, 2, 3]), [node(2), node(3), node(1)]);
        assert_eq!(sources_of(&wanted, &[1, 3]), [node(3), node(1)]);
        assert!(sources_of(&wanted, &[1]).is_empty());
    }

    #[test]
    fn who_has_lost_its_disk_is_no_source_for_itself() {
        let wanted = WantedRange { from_all: true, ..wanted(&[9], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[2, 3, 9]), [node(2), node(3)]);
        assert!(sources_of(&wanted, &[2, 9]).is_empty());
    }

    #[test]
    fn who_accepts_a_loss_gets_what_is_left() {
        let wanted = WantedRange { accepts_loss: true, ..wanted(&[1], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[3]), [node(3)]);
        assert!(sources_of(&wanted, &[]).is_empty());
        let look = RingSnapshot::default();
        assert_eq!(sources(&wanted, None, &look), Ok(Vec::new()));
    }

    #[test]
    fn a_ring_that_was_larger_may_have_data_on_any_replica() {
        assert_eq!(from(&[], &[1, 2], &[1, 2, 3]), [node(1), node(2)]);
        assert_eq!(from(&[], &[1], &[1]), [node(1)]);
    }
}
