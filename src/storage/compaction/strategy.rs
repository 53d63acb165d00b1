//! Chooses SSTables to merge.
//!
//! Size-tiered, as in 0.6: SSTables are put into buckets of similar size, and a bucket that has
//! enough of them is merged, the oldest first. The bucket that spares reads most files for the
//! fewest bytes goes first. Leveled: see [`super::leveled`].
//!
//! Besides, deleted data must not take up disk forever in a family that is hardly written to,
//! whose files are never enough for a merge. An SSTable with many deletions whose grace period is
//! over is therefore merged with the older ones that it could cover, or rewritten alone if there
//! are none. Whether that pays is estimated, and each SSTable gets one attempt a day.

use super::job::CompactionKind;
use super::leveled;
use super::pressure::Backlog;
use super::thresholds::Thresholds;
use crate::ring::DecoratedKey;
use crate::storage::family::Choosable;
use crate::storage::options::{CompactionStrategy, FamilyOptions};
use crate::storage::sstable::{Properties, SsTable};
use std::sync::Arc;
use std::time::Duration;

/// SSTables below this size are all of similar size, in bytes.
const SMALL: u64 = 50 << 20;

/// Fixed cost of a compaction, in bytes that could be read meanwhile.
const FIXED_COST: u64 = 1 << 20;

/// Part of the cells, as a divisor, that must be deletions for a rewrite to pay.
const TOMBSTONE_SHARE: u64 = 5;

/// Least age of an SSTable that is rewritten for its deletions. A further attempt comes after as
/// long, for the rewritten file is new.
const TOMBSTONE_INTERVAL: Duration = Duration::from_hours(24);

/// Conditions of the choice besides the SSTables.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// Size-tiered or leveled.
    pub strategy: CompactionStrategy,
    /// Numbers of SSTables that are merged.
    pub thresholds: Thresholds,
    /// About the size of the SSTables of a level.
    pub leveled_table_bytes: u64,
    /// Deletions made at or before this second may be dropped.
    pub gc_before: i32,
    /// The time, in microseconds since the Unix epoch.
    pub now_micros: i64,
}

/// Purpose and output of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Purpose.
    pub kind: CompactionKind,
    /// Level of the output; 0 for none.
    pub level: u32,
    /// Bytes after which another SSTable is begun.
    pub split_bytes: u64,
}

impl Plan {
    fn new(kind: CompactionKind, level: u32, table_bytes: u64) -> Self {
        Self { kind, level, split_bytes: if level == 0 { u64::MAX } else { table_bytes } }
    }

    /// Merges all SSTables into one, or into a level of its own.
    pub fn major(options: &FamilyOptions, bytes: u64) -> Self {
        let table_bytes = options.leveled_table_bytes;
        let level = match options.compaction_strategy {
            CompactionStrategy::SizeTiered => 0,
            CompactionStrategy::Leveled => leveled::level_for(bytes, table_bytes),
        };
        Self::new(CompactionKind::Major, level, table_bytes)
    }

    /// Rewrites one SSTable within its level.
    pub fn cleanup(level: u32) -> Self {
        Self { kind: CompactionKind::Cleanup, level, split_bytes: u64::MAX }
    }
}

/// A due compaction.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Inputs.
    pub tables: Vec<Arc<SsTable>>,
    /// Purpose and output.
    pub plan: Plan,
    /// About how many files fewer a read would have to look at.
    spares: f64,
}

impl Candidate {
    /// Bytes of the inputs.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.size()).sum()
    }

    /// Benefit for reads: files that they need not look at any more, for each byte of cost.
    /// Comparable between families.
    pub fn urgency(&self) -> f64 {
        self.spares / (self.bytes() + FIXED_COST) as f64
    }
}

/// The most urgent due minor compaction of those that read at most this many bytes.
pub fn next_minor(
    tables: &Choosable,
    circumstances: &Circumstances,
    max_bytes: u64,
) -> Option<Candidate> {
    let Circumstances { strategy, thresholds, leveled_table_bytes, .. } = *circumstances;
    if !thresholds.are_on() {
        return None;
    }
    let all = tables.free.iter().map(|table| (table, true));
    let all = all.chain(tables.claimed.iter().map(|table| (table, false)));
    let (free, busy): (Vec<_>, Vec<_>) = all
        .map(|(table, is_free)| (Described::of(table), is_free))
        .partition(|(table, is_free)| *is_free && !table.is_damaged);
    let free: Vec<_> = free.into_iter().map(|(table, _)| table).collect();
    let busy: Vec<_> = busy.into_iter().map(|(table, _)| table).collect();
    let candidate = |pick: Pick| {
        let is_picked = |table: &&Arc<SsTable>| pick.generations.contains(&table.generation());
        Candidate {
            tables: tables.free.iter().filter(is_picked).cloned().collect(),
            plan: Plan::new(pick.kind, pick.level, leveled_table_bytes),
            spares: pick.spares,
        }
    };
    let fits = |candidate: &Candidate| candidate.bytes() <= max_bytes;
    let due = match strategy {
        CompactionStrategy::SizeTiered => {
            let due = due_buckets(&free, thresholds).into_iter().map(candidate);
            due.filter(fits).max_by(|a, b| a.urgency().total_cmp(&b.urgency()))
        }
        CompactionStrategy::Leveled => {
            let due = leveled::due(&free, &busy, thresholds, leveled_table_bytes);
            due.into_iter().map(candidate).find(fits)
        }
    };
    due.or_else(|| outlived(&free, circumstances).map(candidate).filter(fits))
}

/// Due work.
pub fn backlog(
    tables: &[Arc<SsTable>],
    thresholds: Thresholds,
    options: &FamilyOptions,
) -> Backlog {
    if !thresholds.are_on() {
        return Backlog::default();
    }
    let described = tables.iter().map(|table| Described::of(table));
    let sound: Vec<_> = described.filter(|table| !table.is_damaged).collect();
    if options.compaction_strategy == CompactionStrategy::Leveled {
        return leveled::backlog(&sound, thresholds, options.leveled_table_bytes);
    }
    let least = thresholds.min.max(2);
    let buckets = buckets(&sound).into_iter().map(|bucket| bucket.len());
    buckets.filter(|length| *length >= least).fold(Backlog::default(), |sum, length| Backlog {
        waiting: sum.waiting + length - (least - 1),
        compactions: sum.compactions + length.div_ceil(thresholds.max.max(2)),
    })
}

/// SSTables that should be merged.
#[derive(Debug, Clone)]
pub(super) struct Pick {
    /// By their generations.
    pub(super) generations: Vec<u64>,
    /// Purpose.
    pub(super) kind: CompactionKind,
    /// Level of the output; 0 for none.
    pub(super) level: u32,
    /// About how many files fewer a read would have to look at.
    pub(super) spares: f64,
}

/// Description of an SSTable for the choice.
#[derive(Debug, Clone)]
pub(super) struct Described<'a> {
    pub(super) generation: u64,
    pub(super) size: u64,
    pub(super) level: u32,
    /// Keys of the first and the last row, as far as they are known.
    pub(super) first: Option<&'a DecoratedKey>,
    pub(super) last: Option<&'a DecoratedKey>,
    pub(super) is_damaged: bool,
    pub(super) properties: &'a Properties,
}

impl<'a> Described<'a> {
    fn of(table: &'a SsTable) -> Self {
        Self {
            generation: table.generation(),
            size: table.size(),
            level: table.level(),
            first: table.first_key(),
            last: table.last_key(),
            is_damaged: table.is_damaged(),
            properties: table.properties(),
        }
    }

    /// Whether the two may hold rows between the same keys.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let is_behind =
            |a: &Self, b: &Self| matches!((a.first, b.last), (Some(a), Some(b)) if a > b);
        !is_behind(self, other) && !is_behind(other, self)
    }

    /// A description of one SSTable in place of both and the rows between them.
    pub(super) fn hull(mut self, other: &Self) -> Self {
        self.first = self.first.min(other.first);
        self.last = match (self.last, other.last) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => None,
        };
        self
    }

    /// All deletions if any may be dropped: the file does not tell them apart.
    fn expired_tombstones(&self, gc_before: i32) -> u64 {
        let any = self.properties.min_local_deletion_time <= gc_before;
        if any { self.properties.tombstones } else { 0 }
    }

    /// Cells, including deletions of rows without cells.
    fn cells(&self) -> u64 {
        self.properties.cells.max(self.properties.tombstones)
    }

    /// Whether a deletion of the other could cover one of its cells.
    fn may_be_covered_by(&self, other: &Self) -> bool {
        self.properties.min_timestamp <= other.properties.max_timestamp && self.overlaps(other)
    }
}

/// The oldest of each bucket that has enough.
pub(super) fn due_buckets(tables: &[Described<'_>], thresholds: Thresholds) -> Vec<Pick> {
    let due = buckets(tables).into_iter().filter(|bucket| bucket.len() >= thresholds.min.max(2));
    due.map(|bucket| {
        let mut generations: Vec<_> = bucket.iter().map(|table| table.generation).collect();
        generations.sort_unstable();
        generations.truncate(thresholds.max.max(2));
        let spares = (generations.len() - 1) as f64;
        Pick { generations, kind: CompactionKind::Minor, level: 0, spares }
    })
    .collect()
}

fn buckets<'a, 'b>(tables: &'a [Described<'b>]) -> Vec<Vec<&'a Described<'b>>> {
    let mut sorted: Vec<_> = tables.iter().collect();
    sorted.sort_by_key(|table| (table.size, table.generation));
    let mut buckets: Vec<(u64, Vec<&Described<'_>>)> = Vec::new();
    for table in sorted {
        let size = table.size;
        // In ascending order only the last one can be similar.
        let similar = buckets.last_mut().filter(|(average, _)| {
            size > *average / 2 && size < *average * 3 / 2 || size < SMALL && *average < SMALL
        });
        if let Some((average, bucket)) = similar {
            bucket.push(table);
            let total: u64 = bucket.iter().map(|table| table.size).sum();
            *average = total / bucket.len() as u64;
        } else {
            buckets.push((size, vec![table]));
        }
    }
    buckets.into_iter().map(|(_, bucket)| bucket).collect()
}

/// The merge by which deletions whose grace period is over can be dropped.
fn outlived(tables: &[Described<'_>], circumstances: &Circumstances) -> Option<Pick> {
    let Circumstances { strategy, thresholds, gc_before, now_micros, .. } = *circumstances;
    let interval = TOMBSTONE_INTERVAL.as_micros() as i64;
    let is_old = |table: &&Described<'_>| {
        let created = i64::try_from(table.properties.created_at_micros).unwrap_or(i64::MAX);
        now_micros.saturating_sub(created) >= interval
    };
    let worth = |tables: &[&Described<'_>]| {
        let tombstones: u64 = tables.iter().map(|t| t.expired_tombstones(gc_before)).sum();
        let cells: u64 = tables.iter().map(|table| table.cells()).sum();
        tombstones > 0 && tombstones.saturating_mul(TOMBSTONE_SHARE) >= cells
    };
    let mut begins: Vec<_> =
        tables.iter().filter(is_old).filter(|table| worth(std::slice::from_ref(table))).collect();
    begins.sort_by_key(|table| table.size);
    begins.into_iter().find_map(|table| {
        let concerned = |other: &&Described<'_>| {
            other.generation == table.generation || other.may_be_covered_by(table)
        };
        let merged: Vec<_> = tables.iter().filter(concerned).collect();
        let pays = merged.len() <= thresholds.max && merged.iter().all(is_old) && worth(&merged);
        let level = match strategy {
            CompactionStrategy::SizeTiered => 0,
            CompactionStrategy::Leveled => merged.iter().map(|table| table.level).max()?,
        };
        let generations = merged.iter().map(|table| table.generation).collect();
        let kind = CompactionKind::Tombstones;
        pays.then_some(Pick { generations, kind, level, spares: 0.0 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;
    const USUAL: Thresholds = Thresholds { min: 4, max: 32 };
    const DAY: i64 = 86_400_000_000;

    fn properties(count: usize) -> Vec<Properties> {
        vec![Properties { min_local_deletion_time: i32::MAX, ..Properties::default() }; count]
    }

    fn described<'a>(sizes: &[(u64, u64)], properties: &'a [Properties]) -> Vec<Described<'a>> {
        let each = sizes.iter().zip(properties);
        let described = each.map(|(&(generation, size), properties)| {
            let (first, last, is_damaged) = (None, None, false);
            Described { generation, size, level: 0, first, last, is_damaged, properties }
        });
        described.collect()
    }

    fn due(sizes: &[(u64, u64)], min: usize, max: usize) -> Vec<Vec<u64>> {
        let properties = properties(sizes.len());
        let due = due_buckets(&described(sizes, &properties), Thresholds { min, max });
        due.into_iter().map(|pick| pick.generations).collect()
    }

    #[test]
    fn four_of_similar_size_are_merged() {
        let sizes = [(1, 100 * MB), (2, 110 * MB), (3, 400 * MB), (4, 95 * MB), (5, 105 * MB)];
        assert_eq!(due(&sizes, 4, 32), [vec![1, 2, 4, 5]]);
        assert!(due(&sizes, 5, 32).is_empty());
        assert!(due(&sizes[..4], 4, 32).is_empty());
    }

    #[test]
    fn small_ones_are_alike_whatever_their_size() {
        let sizes = [(1, 1), (2, 40 * MB), (3, MB), (4, 10)];
        assert_eq!(due(&sizes, 4, 32), [vec![1, 2, 3, 4]]);
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many() {
        let sizes: Vec<_> = (1..=40).rev().map(|generation| (generation, MB)).collect();
        assert_eq!(due(&sizes, 4, 32), [(1..=32).collect::<Vec<_>>()]);
    }

    #[test]
    fn each_bucket_that_has_enough_is_due() {
        let small = (1..=4).map(|generation| (generation, MB));
        let large = (5..=9).map(|generation| (generation, 1000 * MB));
        let sizes: Vec<_> = small.chain(large).collect();
        assert_eq!(due(&sizes, 4, 32), [vec![1, 2, 3, 4], vec![5, 6, 7, 8, 9]]);
    }

    /// A full day after the files were written; deletions up to second 100 may go.
    fn a_day_later() -> Circumstances {
        Circumstances {
            strategy: CompactionStrategy::SizeTiered,
            thresholds: USUAL,
            leveled_table_bytes: MB,
            gc_before: 100,
            now_micros: DAY,
        }
    }

    /// Cells, deletions among them and when the first of these was made, timestamps.
    fn with(cells: u64, deletions: (u64, i32), timestamps: (i64, i64)) -> Properties {
        Properties {
            cells,
            tombstones: deletions.0,
            min_local_deletion_time: deletions.1,
            min_timestamp: timestamps.0,
            max_timestamp: timestamps.1,
            ..Properties::default()
        }
    }

    fn rewritten(properties: &[Properties], circumstances: &Circumstances) -> Option<Vec<u64>> {
        let sizes: Vec<_> =
            (1..).map(|generation| (generation, MB)).take(properties.len()).collect();
        outlived(&described(&sizes, properties), circumstances).map(|pick| pick.generations)
    }

    #[test]
    fn a_file_with_many_old_deletions_is_rewritten_alone() {
        let file = with(100, (20, 100), (50, 60));
        assert_eq!(rewritten(std::slice::from_ref(&file), &a_day_later()), Some(vec![1]));
        let newer_beside = [file, with(1000, (0, i32::MAX), (61, 99))];
        assert_eq!(rewritten(&newer_beside, &a_day_later()), Some(vec![1]));
        for useless in [
            with(100, (19, 100), (50, 60)),
            with(100, (100, 101), (50, 60)),
            Properties { created_at_micros: 1, ..newer_beside[0].clone() },
        ] {
            assert_eq!(rewritten(&[useless], &a_day_later()), None);
        }
        // Of rows that were deleted whole there are no cells.
        assert_eq!(rewritten(&[with(0, (5, 100), (1, 1))], &a_day_later()), Some(vec![1]));
    }

    #[test]
    fn it_takes_along_what_the_deletions_may_cover_if_that_pays() {
        let deletions = with(50, (50, 100), (50, 60));
        let covered = with(100, (0, i32::MAX), (1, 60));
        let newer = with(100, (0, i32::MAX), (61, 70));
        let files = [newer.clone(), covered.clone(), deletions.clone()];
        assert_eq!(rewritten(&files, &a_day_later()), Some(vec![2, 3]));
        let far_larger = Properties { cells: 10_000, ..covered.clone() };
        assert_eq!(rewritten(&[far_larger, deletions.clone()], &a_day_later()), None);
        let new = Properties { created_at_micros: 1, ..covered };
        assert_eq!(rewritten(&[new, deletions], &a_day_later()), None);
    }
}
