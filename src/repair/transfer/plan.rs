//! Data that a future replica needs, and their sources.

use crate::model::key::RowKey;
use crate::model::position::RowPosition;
use crate::model::schema::FamilyId;
use crate::net::bodies::{BodyContext, PageRows};
use crate::repair::error::{OperationError, Result};
use crate::repair::host::RingSnapshot;
use crate::ring::{
    KeyspacePlacements, Partitioner, RowRange, Token, TokenMetadata, TokenRange, range_changes,
};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// A range of which a node is to become a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WantedRange {
    pub(crate) keyspace: String,
    pub(crate) range: TokenRange,
    /// Nodes that cease to be replicas.
    pub(crate) lost: Vec<IpAddr>,
    /// Nodes that stay replicas.
    pub(crate) kept: Vec<IpAddr>,
    /// Whether the ceasing replicas are not enough as sources, since the receiver may have been a
    /// replica for a while.
    pub(crate) from_all: bool,
    /// Whether an operator gives up data that only dead nodes have.
    pub(crate) accepts_loss: bool,
}

/// Rows of a column family to fetch from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchTask {
    pub(crate) rows: PageRows,
    /// The position after which to continue; `None` at the start.
    pub(crate) after: Option<RowPosition>,
    pub(crate) source: IpAddr,
    /// The range that the rows are part of; `None` for single rows, which have one source.
    pub(crate) wanted: Option<Arc<WantedRange>>,
}

/// Tasks of a column family, done one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchQueue {
    pub(crate) family: FamilyId,
    pub(crate) tasks: VecDeque<FetchTask>,
}

/// Most keys of one call, and most bytes of them, which is the length of the longest key.
const MAX_KEYS: usize = 1024;
const MAX_KEY_BYTES: usize = 64 << 10;

/// Ranges that each node has to fetch when one ring becomes another.
pub(crate) fn ranges_by_receiver(
    placements: &KeyspacePlacements,
    before: &TokenMetadata,
    after: &TokenMetadata,
) -> BTreeMap<IpAddr, Vec<WantedRange>> {
    let mut wanted: BTreeMap<IpAddr, Vec<WantedRange>> = BTreeMap::new();
    for (keyspace, placement) in placements.iter() {
        for change in range_changes(placement, before, after) {
            for receiver in &change.gained {
                wanted.entry(*receiver).or_default().push(WantedRange {
                    keyspace: keyspace.to_owned(),
                    range: change.range.clone(),
                    lost: change.lost.clone(),
                    kept: change.kept.clone(),
                    from_all: false,
                    accepts_loss: false,
                });
            }
        }
    }
    wanted
}

/// The live nodes from which the receiver fetches a range. All of them are read. `None` if too few
/// are alive.
///
/// A ceasing replica hands over all its data: its acknowledgements count as those of the receiver,
/// so that no read at QUORUM finds less than before. If it is dead, or if no replica ceases, all
/// others together have what was acknowledged at QUORUM, unless a quorum of them may be dead. An
/// operator may accept that loss: then the remaining nodes are the sources, or none.
pub(crate) fn sources(
    wanted: &WantedRange,
    receiver: Option<IpAddr>,
    look: &RingSnapshot,
) -> Option<Vec<IpAddr>> {
    // The receiver may have had the range before, and have lost its disk.
    let is_live = |it: &&IpAddr| look.live.contains(*it) && Some(**it) != receiver;
    let lost: Vec<IpAddr> = wanted.lost.iter().filter(is_live).copied().collect();
    if !wanted.from_all && !lost.is_empty() && lost.len() == wanted.lost.len() {
        return Some(lost);
    }
    let mut holders: Vec<IpAddr> = wanted.kept.iter().filter(is_live).copied().collect();
    holders.extend(lost);
    let fewest = (wanted.kept.len() + wanted.lost.len()).div_ceil(2);
    (holders.len() >= fewest || wanted.accepts_loss).then_some(holders)
}

/// Fetches of ranges by calls, without those from nodes of 0.6. Each queue is ordered by token, as
/// far as its rows come from one source.
pub(crate) fn queues(
    wanted: &[WantedRange],
    look: &RingSnapshot,
    BodyContext { schema, partitioner }: BodyContext<'_>,
) -> Result<Vec<FetchQueue>> {
    let mut tasks: BTreeMap<FamilyId, Vec<(usize, Option<Token>, FetchTask)>> = BTreeMap::new();
    for range in wanted {
        let sources = sources(range, look.local, look);
        let sources = sources.ok_or_else(|| range.without_source(partitioner))?;
        let wanted = Arc::new(range.clone());
        let families = schema.families().filter(|(_, it)| it.keyspace == range.keyspace);
        for (family, _) in families {
            for part in range.range.row_ranges() {
                let callable = sources.iter().filter(|source| !look.is_legacy(**source));
                for (pass, source) in callable.enumerate() {
                    let task = FetchTask {
                        rows: PageRows::Range(part.clone()),
                        after: None,
                        source: *source,
                        wanted: Some(Arc::clone(&wanted)),
                    };
                    let start = start(&part).cloned();
                    tasks.entry(family).or_default().push((pass, start, task));
                }
            }
        }
    }
    let queue = |(family, mut tasks): (FamilyId, Vec<(usize, Option<Token>, FetchTask)>)| {
        tasks.sort_by(|(a_pass, a, _), (b_pass, b, _)| (a_pass, a).cmp(&(b_pass, b)));
        FetchQueue { family, tasks: tasks.into_iter().map(|(_, _, task)| task).collect() }
    };
    Ok(tasks.into_iter().map(queue).collect())
}

/// Ranges to request from each node of 0.6, by keyspace.
pub(crate) fn by_source(
    wanted: &[WantedRange],
    look: &RingSnapshot,
) -> BTreeMap<IpAddr, BTreeMap<String, Vec<WantedRange>>> {
    let mut asked: BTreeMap<IpAddr, BTreeMap<String, Vec<WantedRange>>> = BTreeMap::new();
    for range in wanted {
        // With too few sources nothing is fetched at all.
        for source in sources(range, look.local, look).unwrap_or_default() {
            if look.is_legacy(source) {
                let of_source = asked.entry(source).or_default();
                of_source.entry(range.keyspace.clone()).or_default().push(range.clone());
            }
        }
    }
    asked
}

/// Whether this node is the only source of all of these ranges for a node of 0.6.
pub(crate) fn is_pushed(receiver: IpAddr, wanted: &[WantedRange], look: &RingSnapshot) -> bool {
    let is_local = |range: &WantedRange| {
        let sources = sources(range, Some(receiver), look);
        sources.is_some_and(|sources| sources.iter().all(|it| Some(*it) == look.local))
    };
    wanted.iter().all(is_local)
}

/// A fetch of single rows, whose keys are in the order of their tokens for each source.
pub(crate) fn queue_of_rows(family: FamilyId, sources: &[(IpAddr, Vec<RowKey>)]) -> FetchQueue {
    let mut tasks = VecDeque::new();
    for (source, keys) in sources {
        let mut left = &keys[..];
        while !left.is_empty() {
            let (first, rest) = left.split_at(fitting(left));
            let (rows, source) = (PageRows::Keys(first.to_vec()), *source);
            tasks.push_back(FetchTask { rows, after: None, source, wanted: None });
            left = rest;
        }
    }
    FetchQueue { family, tasks }
}

/// The number of keys for one call, at least one.
fn fitting(keys: &[RowKey]) -> usize {
    let mut bytes = 0;
    let is_too_much = |key: &RowKey| {
        bytes += key.as_bytes().len();
        bytes > MAX_KEY_BYTES
    };
    let fitting = keys.iter().take(MAX_KEYS).position(is_too_much);
    fitting.unwrap_or(keys.len().min(MAX_KEYS)).max(1)
}

/// The token after which a range begins; `None` at the beginning of the ring.
pub(crate) fn start(range: &RowRange) -> Option<&Token> {
    match &range.start {
        Bound::Unbounded => None,
        Bound::Included(token) | Bound::Excluded(token) => Some(token),
    }
}

impl WantedRange {
    /// The error if too few holders are alive, so that acknowledged data may be missing.
    pub(crate) fn without_source(&self, partitioner: Partitioner) -> OperationError {
        let Self { keyspace, range, lost, kept, .. } = self;
        let [start, end] = [&range.start, &range.end].map(|it| partitioner.format_token(it));
        let holders: Vec<&IpAddr> = lost.iter().chain(kept).collect();
        OperationError::Failed(format!(
            "too few live nodes have the range ({start},{end}] of keyspace {keyspace} to say what \
             was acknowledged: it is on {holders:?}. Bring more of them up first; `nodetool \
             removetoken --accept-loss` gives up what only dead ones have"
        ))
    }
}

impl FetchTask {
    /// Continues after a received row or column. `None` if that is not of the task; else whether
    /// there may be more.
    pub(crate) fn advance(&mut self, to: RowPosition) -> Option<bool> {
        let PageRows::Keys(keys) = &mut self.rows else {
            self.after = Some(to);
            return Some(true);
        };
        let at = keys.iter().position(|key| *key == to.key)?;
        keys.drain(..at + usize::from(to.cell.is_none()));
        self.after = Some(to).filter(|to| to.cell.is_some());
        Some(!keys.is_empty())
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
        let range = TokenRange { start: Token::Random(0), end: Token::Random(1) };
        let keyspace = "Keyspace".to_owned();
        let (from_all, accepts_loss) = (false, false);
        WantedRange { keyspace, range, lost, kept, from_all, accepts_loss }
    }

    /// The sources of the ninth node when these are alive; none if too few are.
    fn sources_of(wanted: &WantedRange, live: &[u8]) -> Vec<IpAddr> {
        let live = live.iter().copied().map(node).collect();
        let look = RingSnapshot { live, ..RingSnapshot::default() };
        sources(wanted, Some(node(9)), &look).unwrap_or_default()
    }

    fn from(lost: &[u8], kept: &[u8], live: &[u8]) -> Vec<IpAddr> {
        sources_of(&wanted(lost, kept), live)
    }

    #[test]
    fn former_replicas_are_enough() {
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
    fn a_node_that_was_a_replica_for_a_while_asks_all() {
        let wanted = WantedRange { from_all: true, ..wanted(&[1], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[1, 2, 3]), [node(2), node(3), node(1)]);
        assert_eq!(sources_of(&wanted, &[1, 3]), [node(3), node(1)]);
        assert!(sources_of(&wanted, &[1]).is_empty());
    }

    #[test]
    fn a_node_that_has_lost_its_disk_is_no_source_for_itself() {
        let wanted = WantedRange { from_all: true, ..wanted(&[9], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[2, 3, 9]), [node(2), node(3)]);
        assert!(sources_of(&wanted, &[2, 9]).is_empty());
    }

    #[test]
    fn an_accepted_loss_takes_the_sources_that_are_left() {
        let wanted = WantedRange { accepts_loss: true, ..wanted(&[1], &[2, 3]) };
        assert_eq!(sources_of(&wanted, &[3]), [node(3)]);
        assert!(sources_of(&wanted, &[]).is_empty());
        let look = RingSnapshot::default();
        assert_eq!(sources(&wanted, None, &look), Some(Vec::new()));
    }

    #[test]
    fn calls_have_a_bound() {
        let keys: Vec<RowKey> = (0..3000).map(|n| RowKey::from(&*format!("{n}"))).collect();
        assert_eq!(fitting(&keys), MAX_KEYS);
        assert_eq!(fitting(&keys[..5]), 5);
        let key_of = |bytes: usize| RowKey::new(&vec![b'k'; bytes]);
        let wide = vec![key_of(40 << 10); 3];
        assert_eq!(fitting(&wide), 1);
        assert_eq!(fitting(&[key_of(65_535), RowKey::from("kk")]), 1);
    }

    #[test]
    fn a_ring_that_was_larger_may_have_data_on_any_replica() {
        assert_eq!(from(&[], &[1, 2], &[1, 2, 3]), [node(1), node(2)]);
        assert_eq!(from(&[], &[1], &[1]), [node(1)]);
    }

    /// The local node is 1, and 3 is one of 0.6; all are alive but 4.
    fn look() -> RingSnapshot {
        RingSnapshot {
            live: [1, 2, 3].map(node).into(),
            callable: [1, 2].map(node).into(),
            local: Some(node(1)),
            ..RingSnapshot::default()
        }
    }

    fn of_keyspace(keyspace: &str, lost: &[u8], kept: &[u8]) -> WantedRange {
        WantedRange { keyspace: keyspace.to_owned(), ..wanted(lost, kept) }
    }

    #[test]
    fn each_node_of_0_6_is_asked_for_its_ranges_of_each_keyspace() {
        let ranges = [
            of_keyspace("A", &[3], &[2]),
            of_keyspace("A", &[4], &[2, 3]),
            of_keyspace("B", &[3], &[]),
            of_keyspace("B", &[2], &[3]),
        ];
        let asked = by_source(&ranges, &look());
        assert_eq!(asked.keys().collect::<Vec<_>>(), [&node(3)]);
        let counts: Vec<_> =
            asked[&node(3)].iter().map(|(it, ranges)| (&**it, ranges.len())).collect();
        assert_eq!(counts, [("A", 2), ("B", 1)]);
    }

    #[test]
    fn only_ranges_that_this_node_gives_away_are_pushed() {
        assert!(is_pushed(node(3), &[of_keyspace("A", &[1], &[2, 3])], &look()));
        assert!(!is_pushed(
            node(3),
            &[of_keyspace("A", &[1], &[]), of_keyspace("A", &[2], &[1])],
            &look()
        ));
        assert!(!is_pushed(node(3), &[of_keyspace("A", &[4], &[1, 2])], &look()));
    }
}
