//! Earlier looks at the counters, for the means of about the last minute.
//!
//! (0.6 reports the mean since somebody asked last, so that two who ask take it from each other.)

use crate::base::lock::{Mutex, rank};
use crate::model::schema::FamilyId;
use crate::storage::caches::CacheStats;
use crate::storage::family::{FamilyStatistics, Histogram, Operation, Operations};
use std::collections::VecDeque;

/// Looks that are kept. The recent operations are those since the oldest of them.
const LOOKS: usize = 2;

/// Earlier looks at the counters.
#[derive(Debug, Default)]
pub struct Recent(Mutex<rank::State, VecDeque<Look>>);

/// The counters at one moment.
#[derive(Debug)]
struct Look {
    /// Of all column families, by their numbers.
    families: Vec<FamilyStatistics>,
    /// Times of their operations, the same way.
    histograms: Vec<Histograms>,
    /// Of the block cache.
    blocks: CacheStats,
}

/// Times of reads, reads of ranges and writes of a column family.
pub(super) type Histograms = [Histogram; 3];

/// Those of a column family now.
pub(super) fn histograms(operations: &Operations) -> Histograms {
    [Operation::Read, Operation::RangeRead, Operation::Write].map(|it| operations.histogram(it))
}

impl Recent {
    /// Keeps one more look; the oldest may go.
    pub(super) fn remember(
        &self,
        families: Vec<FamilyStatistics>,
        histograms: Vec<Histograms>,
        blocks: CacheStats,
    ) {
        let mut looks = self.0.lock();
        looks.truncate(LOOKS - 1);
        looks.push_front(Look { families, histograms, blocks });
    }

    /// Times of the operations of the column family at the oldest look; all is new
    /// before the first.
    pub(super) fn earlier_histograms(&self, family: FamilyId) -> Histograms {
        let looks = self.0.lock();
        let found = looks.back().and_then(|look| look.histograms.get(family.0 as usize));
        found.cloned().unwrap_or_default()
    }

    /// The column family at the oldest look; `None` before the first.
    pub(super) fn earlier(&self, family: FamilyId) -> Option<FamilyStatistics> {
        let looks = self.0.lock();
        looks.back()?.families.get(family.0 as usize).cloned()
    }

    /// The block cache at the oldest look.
    pub(super) fn earlier_blocks(&self) -> CacheStats {
        let looks = self.0.lock();
        looks.back().map(|look| look.blocks).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::caches::FamilyCacheStats;
    use crate::storage::family::{RowSizes, Totals};

    fn look(reads: u64) -> Vec<FamilyStatistics> {
        vec![FamilyStatistics {
            sstables: 0,
            live_bytes: 0,
            total_bytes: 0,
            memtable_operations: 0,
            memtable_bytes: 0,
            memtable_memory_bytes: 0,
            memtables_flushing: 0,
            memtable_switches: 0,
            reads: Totals { count: reads, ..Totals::default() },
            range_reads: Totals::default(),
            writes: Totals::default(),
            caches: FamilyCacheStats::default(),
            rows: RowSizes::default(),
            failure: None,
        }]
    }

    #[test]
    fn recent_is_since_the_oldest_look_that_is_kept() {
        let recent = Recent::default();
        let earlier = || recent.earlier(FamilyId(0)).map(|look| look.reads.count);
        assert_eq!(earlier(), None);
        let expected = [(0, Some(0)), (10, Some(0)), (30, Some(10)), (70, Some(30))];
        for (reads, oldest) in expected {
            recent.remember(
                look(reads),
                Vec::new(),
                CacheStats { hits: reads, ..CacheStats::default() },
            );
            assert_eq!(earlier(), oldest);
            assert_eq!(Some(recent.earlier_blocks().hits), oldest);
        }
        assert_eq!(recent.earlier(FamilyId(1)), None);
    }
}
