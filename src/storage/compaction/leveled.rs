//! Chooses SSTables of a leveled column family to merge.
//!
//! Flushed SSTables are level 0 and overlap. Enough of them are merged with those of level 1 that
//! they overlap, into SSTables of one size that do not overlap. A level holds ten times as much as
//! the one above; if it holds more, the SSTable that overlaps least of the level below for its size
//! is merged into that.
//!
//! Only speed depends on levels not overlapping: a read asks every SSTable that may hold its row.
//! So files may be put in by hand, and the strategy may be changed back and forth.

use super::job::CompactionKind;
use super::pressure::Backlog;
use super::strategy::{Described, Pick, due_buckets};
use super::thresholds::Thresholds;

/// Size of a level as a multiple of the one above it.
const GROWTH: u64 = 10;

/// More levels than any disk could fill.
const MAX_LEVEL: u32 = 10;

/// Flushed SSTables, as a multiple of the minimum threshold, that are merged among each other if a
/// merge into level 1 cannot begin.
const TOO_MANY_FLUSHED: usize = 2;

/// Bytes that a level may hold.
fn capacity(level: u32, table_bytes: u64) -> u64 {
    table_bytes.saturating_mul(GROWTH.saturating_pow(level))
}

/// The level that holds this many bytes, all of the column family.
pub(super) fn level_for(bytes: u64, table_bytes: u64) -> u32 {
    (1..MAX_LEVEL).find(|level| bytes <= capacity(*level, table_bytes)).unwrap_or(MAX_LEVEL)
}

/// Due merges, the most urgent first. `busy` SSTables cannot be merged now.
pub(super) fn due<'a>(
    free: &[Described<'a>],
    busy: &[Described<'a>],
    thresholds: Thresholds,
    table_bytes: u64,
) -> Vec<Pick> {
    let mut due: Vec<(f64, Pick)> = Vec::new();
    let flushed: Vec<_> = free.iter().filter(|table| table.level == 0).cloned().collect();
    if flushed.len() >= thresholds.min.max(2) {
        let score = flushed.len() as f64 / thresholds.min as f64;
        if let Some(pick) = into_first_level(&flushed, free, busy, thresholds) {
            due.push((score, pick));
        } else if flushed.len() >= thresholds.min.saturating_mul(TOO_MANY_FLUSHED) {
            due.extend(due_buckets(&flushed, thresholds).into_iter().map(|pick| (score, pick)));
        }
    }
    for level in 1..MAX_LEVEL {
        let score = fullness(level, free.iter().chain(busy), table_bytes);
        if score > 1.0 {
            due.extend(into_next_level(level, free, busy).map(|pick| (score, pick)));
        }
    }
    due.sort_by(|a, b| b.0.total_cmp(&a.0));
    due.into_iter().map(|(_, pick)| pick).collect()
}

/// Due work. Only flushed SSTables make reads look at more and more files.
pub(super) fn backlog(
    tables: &[Described<'_>],
    thresholds: Thresholds,
    table_bytes: u64,
) -> Backlog {
    let flushed = tables.iter().filter(|table| table.level == 0).count();
    let too_many = (flushed + 1).saturating_sub(thresholds.min.max(2));
    let overfull = |level: u32| {
        let held: u64 = tables.iter().filter(|t| t.level == level).map(|t| t.size).sum();
        held.saturating_sub(capacity(level, table_bytes)).div_ceil(table_bytes.max(1)) as usize
    };
    let moves: usize = (1..MAX_LEVEL).map(overfull).sum();
    Backlog { waiting: too_many, compactions: usize::from(too_many > 0) + moves }
}

/// Size of a level as a multiple of its capacity.
fn fullness<'a, 'b: 'a>(
    level: u32,
    tables: impl Iterator<Item = &'a Described<'b>>,
    table_bytes: u64,
) -> f64 {
    let held: u64 = tables.filter(|table| table.level == level).map(|table| table.size).sum();
    held as f64 / capacity(level, table_bytes).max(1) as f64
}

/// The flushed SSTables with those of level 1 that they overlap. One merge at a time: two could
/// write the same rows into level 1.
fn into_first_level(
    flushed: &[Described<'_>],
    free: &[Described<'_>],
    busy: &[Described<'_>],
    thresholds: Thresholds,
) -> Option<Pick> {
    if busy.iter().any(|table| table.level == 0 && !table.is_damaged) {
        return None;
    }
    let mut oldest = flushed.to_vec();
    oldest.sort_by_key(|table| table.generation);
    oldest.truncate(thresholds.max.max(2));
    let hull = oldest.iter().cloned().reduce(|a, b| a.hull(&b))?;
    if busy.iter().any(|table| table.level == 1 && table.overlaps(&hull)) {
        return None;
    }
    let met = free.iter().filter(|table| table.level == 1 && table.overlaps(&hull));
    let spares = oldest.len() as f64;
    let generations = oldest.iter().chain(met).map(|table| table.generation).collect();
    Some(Pick { generations, kind: CompactionKind::Minor, level: 1, spares })
}

/// The SSTable of a level that overlaps least of the next for its size, with those it overlaps.
fn into_next_level(level: u32, free: &[Described<'_>], busy: &[Described<'_>]) -> Option<Pick> {
    let candidates = free.iter().filter(|table| table.level == level).filter_map(|table| {
        let is_met = |other: &&Described<'_>| other.level == level + 1 && other.overlaps(table);
        if busy.iter().any(|other| is_met(&other)) {
            return None;
        }
        let met: Vec<_> = free.iter().filter(is_met).collect();
        let bytes: u64 = met.iter().map(|other| other.size).sum();
        Some((bytes as f64 / table.size.max(1) as f64, table, met))
    });
    let (_, table, met) = candidates.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let generations = met.into_iter().chain([table]).map(|table| table.generation).collect();
    // Reads gain little, but the merges into the level would get larger and larger.
    Some(Pick { generations, kind: CompactionKind::Minor, level: level + 1, spares: 0.5 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::key::RowKey;
    use crate::ring::{DecoratedKey, Partitioner};
    use crate::storage::sstable::Properties;

    const USUAL: Thresholds = Thresholds { min: 4, max: 32 };

    /// Level, first and last key; the generation is the place in the list, from 1 on.
    fn tables(spec: &[(u32, &str, &str)], act: impl FnOnce(&[Described<'_>])) {
        let key = |text: &str| Partitioner::OrderPreserving.decorate(RowKey::from(text));
        let keys: Vec<(DecoratedKey, DecoratedKey)> =
            spec.iter().map(|(_, first, last)| (key(first), key(last))).collect();
        let properties = Properties::default();
        let described = spec.iter().zip(&keys).zip(1..).map(|(((level, ..), ends), generation)| {
            let (first, last) = (Some(&ends.0), Some(&ends.1));
            let (level, properties) = (*level, &properties);
            Described { generation, size: 10, level, first, last, is_damaged: false, properties }
        });
        act(&described.collect::<Vec<_>>());
    }

    fn picked(free: &[Described<'_>], busy: &[Described<'_>]) -> Option<(Vec<u64>, u32)> {
        let mut pick = due(free, busy, USUAL, 10).into_iter().next()?;
        pick.generations.sort_unstable();
        Some((pick.generations, pick.level))
    }

    #[test]
    fn flushed_files_are_merged_with_what_they_meet_in_the_first_level() {
        let flushed = [(0, "c", "f"), (0, "d", "k"), (0, "c", "e"), (0, "e", "i")];
        let level = [(1, "a", "b"), (1, "c", "c"), (1, "k", "m"), (1, "n", "z")];
        tables(&[&flushed[..], &level].concat(), |all| {
            assert_eq!(picked(all, &[]), Some((vec![1, 2, 3, 4, 6, 7], 1)));
            assert_eq!(picked(&all[1..], &[]), None, "three are not enough");
            let (first, busy) = (&all[..4], &all[5..6]);
            assert_eq!(picked(first, busy), None, "what they meet is being merged");
        });
        let gap = [(0, "a", "b"), (0, "a", "b"), (0, "y", "z"), (0, "y", "z"), (1, "m", "m")];
        tables(&gap, |all| {
            assert_eq!(picked(all, &[]).unwrap().0.len(), 5, "its output could span the gap");
        });
    }

    #[test]
    fn only_one_merge_goes_into_the_first_level() {
        let flushed = [(0, "a", "z"); 9];
        tables(&flushed, |all| {
            assert_eq!(picked(&all[1..5], &all[..1]), None);
            assert_eq!(picked(&all[1..], &all[..1]), Some(((2..=9).collect(), 0)), "too many");
        });
    }

    #[test]
    fn a_full_level_gives_the_one_that_meets_least_to_the_next() {
        let keys: Vec<String> = (0..11).map(|i| format!("{i:02}")).collect();
        let mut spec: Vec<_> = keys.iter().map(|key| (1, key.as_str(), key.as_str())).collect();
        tables(&spec[1..], |all| assert_eq!(picked(all, &[]), None, "it is full, not too full"));
        spec.extend([(2, "00", "06"), (2, "08", "08"), (2, "09", "10")]);
        tables(&spec, |all| {
            assert_eq!(picked(all, &[]), Some((vec![8], 2)), "it meets nothing");
            let (with_it, without) = (&all[7..8], [&all[..7], &all[8..]].concat());
            assert_eq!(picked(&without, with_it).map(|(tables, _)| tables.len()), Some(2));
            assert_eq!(backlog(all, USUAL, 10), Backlog { waiting: 0, compactions: 1 });
        });
    }

    #[test]
    fn levels_grow_tenfold() {
        assert_eq!([1, 100, 101, 1000, 1001].map(|bytes| level_for(bytes, 10)), [1, 1, 2, 2, 3]);
        assert_eq!(level_for(u64::MAX, 1), MAX_LEVEL);
    }
}
