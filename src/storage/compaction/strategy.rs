//! Which SSTables to merge. Only chooses; [`super::merge`] does the work.

use super::super::options::FamilyOptions;
use crate::storage::sstable::SsTable;
use std::sync::Arc;

/// SSTables below this size are all of similar size, in bytes.
const SMALL: u64 = 50 << 20;

/// The SSTables of the next minor compaction, if one is due: size-tiered, as in 0.6.
///
/// SSTables are put into buckets of similar size: between half and one and a half of the average,
/// or both small. The first bucket that has enough of them is merged, the oldest first.
pub fn next_minor(tables: &[Arc<SsTable>], options: &FamilyOptions) -> Option<Vec<Arc<SsTable>>> {
    let sound = tables.iter().filter(|table| !table.is_damaged());
    let sizes: Vec<_> = sound.map(|table| (table.generation(), table.size())).collect();
    let (least, most) = (options.min_compaction_threshold, options.max_compaction_threshold);
    let chosen = choose(&sizes, least, most)?;
    Some(tables.iter().filter(|t| chosen.contains(&t.generation())).cloned().collect())
}

/// The generations to merge out of (generation, size) pairs.
fn choose(sizes: &[(u64, u64)], least: usize, most: usize) -> Option<Vec<u64>> {
    if least == 0 || most == 0 {
        return None;
    }
    let bucket = buckets(sizes).into_iter().find(|bucket| bucket.len() >= least.max(2))?;
    let mut generations: Vec<_> = bucket.into_iter().map(|(generation, _)| generation).collect();
    generations.sort_unstable();
    generations.truncate(most);
    Some(generations)
}

fn buckets(sizes: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
    let mut sorted = sizes.to_vec();
    sorted.sort_by_key(|&(generation, size)| (size, generation));
    let mut buckets: Vec<(u64, Vec<(u64, u64)>)> = Vec::new();
    for (generation, size) in sorted {
        let similar = buckets.iter_mut().find(|(average, _)| {
            size > *average / 2 && size < *average * 3 / 2 || size < SMALL && *average < SMALL
        });
        if let Some((average, bucket)) = similar {
            bucket.push((generation, size));
            let total: u64 = bucket.iter().map(|(_, size)| size).sum();
            *average = total / bucket.len() as u64;
        } else {
            buckets.push((size, vec![(generation, size)]));
        }
    }
    buckets.into_iter().map(|(_, bucket)| bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn four_of_similar_size_are_merged() {
        let sizes = [(1, 100 * MB), (2, 110 * MB), (3, 400 * MB), (4, 95 * MB), (5, 105 * MB)];
        assert_eq!(choose(&sizes, 4, 32), Some(vec![1, 2, 4, 5]));
        assert_eq!(choose(&sizes, 5, 32), None);
        assert_eq!(choose(&sizes[..4], 4, 32), None);
    }

    #[test]
    fn small_ones_are_alike_whatever_their_size() {
        let sizes = [(1, 1), (2, 40 * MB), (3, MB), (4, 10)];
        assert_eq!(choose(&sizes, 4, 32), Some(vec![1, 2, 3, 4]));
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many() {
        let sizes: Vec<_> = (1..=40).rev().map(|generation| (generation, MB)).collect();
        assert_eq!(choose(&sizes, 4, 32), Some((1..=32).collect()));
    }

    #[test]
    fn zero_switches_minor_compaction_off() {
        let sizes: Vec<_> = (1..=40).map(|generation| (generation, MB)).collect();
        assert_eq!(choose(&sizes, 0, 32), None);
        assert_eq!(choose(&sizes, 4, 0), None);
    }
}
