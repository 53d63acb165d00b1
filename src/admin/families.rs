//! Reports on column families. Means of about the last minute come from earlier looks at the
//! counters.
//!
//! (0.6 reports the mean since the last call, so that two callers take it from each other.)

use super::context::AdminContext;
use super::report::{
    Cache, Caches, ColumnType, FamilyReport, FamilyTypes, KeyspaceReport, Latency,
    LatencyHistogram, LatencyReport, Thresholds,
};
use crate::base::hex::hex;
use crate::base::histogram::{BUCKET_OFFSETS, Histogram};
use crate::base::lock::{Mutex, rank};
use crate::base::operations::Totals;
use crate::model::comparator::Comparator;
use crate::model::schema::FamilyId;
use crate::model::table::Form;
use crate::model::types::Native;
use crate::storage::caches::{CacheStats, FamilyCacheStats};
use crate::storage::compaction;
use crate::storage::family::{ColumnFamily, FamilyStatistics, Operation};
use std::collections::{HashMap, VecDeque};

/// Looks that are kept. The recent operations are those since the oldest of them.
const LOOKS: usize = 2;

/// The latest looks at the counters.
#[derive(Debug, Default)]
pub struct Recent(Mutex<rank::State, VecDeque<Look>>);

/// The counters at one moment.
#[derive(Debug)]
struct Look {
    /// Of all column families.
    families: HashMap<FamilyId, FamilyStatistics>,
    /// Times of their operations.
    histograms: HashMap<FamilyId, Histograms>,
    /// Of the block cache.
    blocks: CacheStats,
}

/// Times of reads, reads of ranges and writes of a column family.
type Histograms = [Histogram; 3];

fn histograms(family: &ColumnFamily) -> Histograms {
    [Operation::Read, Operation::RangeRead, Operation::Write]
        .map(|it| family.operations(it).histogram())
}

impl Recent {
    fn remember(&self, look: Look) {
        let mut looks = self.0.lock();
        looks.truncate(LOOKS - 1);
        looks.push_front(look);
    }

    /// A part of the oldest look; `None` before the first.
    fn oldest<T>(&self, of: impl FnOnce(&Look) -> Option<T>) -> Option<T> {
        self.0.lock().back().and_then(of)
    }

    fn earlier(&self, family: FamilyId) -> Option<FamilyStatistics> {
        self.oldest(|look| look.families.get(&family).cloned())
    }

    /// The block cache at the oldest look.
    pub(super) fn earlier_blocks(&self) -> CacheStats {
        self.oldest(|look| Some(look.blocks)).unwrap_or_default()
    }
}

impl AdminContext {
    /// Takes a look at the counters.
    pub(super) fn remember(&self) {
        let stores = || self.storage.families();
        self.recent.remember(Look {
            families: stores().map(|store| (store.id(), store.statistics())).collect(),
            histograms: stores().map(|store| (store.id(), histograms(store))).collect(),
            blocks: self.storage.block_cache_stats(),
        });
    }

    /// The column families that pass, by keyspace.
    pub(super) fn keyspaces(&self, families: &[FamilyId]) -> Vec<KeyspaceReport> {
        let schema = self.storage.schema();
        let mut keyspaces: Vec<KeyspaceReport> = Vec::new();
        let mut sorted = families.to_vec();
        sorted.sort_by_key(|id| {
            let family = schema.family(*id);
            (&family.keyspace, &family.name)
        });
        for id in sorted {
            let family = schema.family(id);
            let statistics = self.storage.family(id).statistics();
            if keyspaces.last().is_none_or(|last| last.keyspace != family.keyspace) {
                let keyspace = family.keyspace.clone();
                keyspaces.push(KeyspaceReport { keyspace, ..KeyspaceReport::default() });
            }
            let keyspace = keyspaces.last_mut().expect("one was pushed if there was none");
            keyspace.add(self.family_report(id, family.table_name(), &statistics));
        }
        keyspaces
    }

    fn family_report(&self, id: FamilyId, name: &str, now: &FamilyStatistics) -> FamilyReport {
        let earlier = self.recent.earlier(id);
        let latency = |of: fn(&FamilyStatistics) -> &Totals| {
            let recent = earlier.as_ref().map_or(*of(now), |earlier| of(now).since(of(earlier)));
            Latency::new(*of(now), recent)
        };
        FamilyReport {
            column_family: name.to_owned(),
            sstables: now.sstables,
            space_used_live_bytes: now.live_bytes,
            space_used_total_bytes: now.total_bytes,
            memtable_columns: now.memtable_operations,
            memtable_bytes: now.memtable_bytes,
            memtable_memory_bytes: now.memtable_memory_bytes,
            memtable_switches: now.memtable_switches,
            reads: latency(|statistics| &statistics.reads),
            range_reads: latency(|statistics| &statistics.range_reads),
            writes: latency(|statistics| &statistics.writes),
            pending_flushes: now.memtables_flushing,
            caches: Self::caches_since(now.caches, earlier.as_ref()),
            rows: now.rows.count,
            row_min_bytes: now.rows.min_bytes,
            row_max_bytes: now.rows.max_bytes,
            row_mean_bytes: now.rows.mean_bytes(),
            failure: now.failure.clone(),
        }
    }

    /// Times of operations of these column families.
    pub(super) fn latencies(&self, families: &[FamilyId]) -> Vec<LatencyReport> {
        families.iter().map(|id| self.latencies_of(*id)).collect()
    }

    fn latencies_of(&self, id: FamilyId) -> LatencyReport {
        let family = self.storage.schema().family(id);
        let [reads, range_reads, writes] = histograms(self.storage.family(id));
        let earlier = self.recent.oldest(|look| look.histograms.get(&id).cloned());
        let earlier = earlier.unwrap_or_default();
        let of = |now: &Histogram, earlier: &Histogram| LatencyHistogram {
            all: now.buckets().to_vec(),
            recent: now.since(earlier).buckets().to_vec(),
        };
        LatencyReport {
            family: (&**family).into(),
            offsets_micros: BUCKET_OFFSETS.to_vec(),
            reads: of(&reads, &earlier[0]),
            range_reads: of(&range_reads, &earlier[1]),
            writes: of(&writes, &earlier[2]),
        }
    }

    /// The caches of a column family.
    pub(super) fn caches(&self, id: FamilyId) -> Caches {
        let now = self.storage.family(id).cache_stats();
        Self::caches_since(now, self.recent.earlier(id).as_ref())
    }

    fn caches_since(now: FamilyCacheStats, earlier: Option<&FamilyStatistics>) -> Caches {
        let earlier = earlier.map(|look| look.caches).unwrap_or_default();
        let cache = |now: Option<CacheStats>, earlier: Option<CacheStats>| {
            now.map(|now| Cache::new(now, earlier.unwrap_or_default()))
        };
        Caches {
            key_cache: cache(now.keys, earlier.keys),
            row_cache: cache(now.rows, earlier.rows),
        }
    }

    /// Types of these column families.
    pub(super) fn types(&self, families: &[FamilyId]) -> Vec<FamilyTypes> {
        let of = |id: &FamilyId| {
            let family = self.storage.schema().family(*id);
            let table = &family.table;
            let is_sparse = matches!(table.form, Form::Sparse { .. });
            let named = table.columns[table.statics().start..].iter();
            // The cells of a collection have names of their own, also of undeclared ones.
            let columns = named.filter(|it| is_sparse && !it.of_type.is_multicell());
            let undeclared = table.value_type(&[]).cloned().unwrap_or(Native::Blob.into());
            FamilyTypes {
                family: (&**family).into(),
                comparator: family.comparator().class_name(),
                subcomparator: family.subcolumn_comparator().map(Comparator::class_name),
                key_type: table
                    .composite_keys()
                    .map_or_else(|| table.key_type().class_name(), |it| it.class_name()),
                value_type: undeclared.class_name(),
                columns: columns
                    .map(|column| ColumnType {
                        name: column.name.clone(),
                        cell: hex(&column.cell_name),
                        value_type: column.of_type.class_name(),
                    })
                    .collect(),
            }
        };
        families.iter().map(of).collect()
    }

    /// Compaction thresholds of these column families.
    pub(super) fn thresholds(&self, families: &[FamilyId]) -> Vec<Thresholds> {
        let of = |id: &FamilyId| {
            let family = (&**self.storage.schema().family(*id)).into();
            let compaction::Thresholds { min, max } =
                self.storage.family(*id).compaction_thresholds();
            Thresholds { family, min, max }
        };
        families.iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::caches::FamilyCacheStats;
    use crate::storage::family::RowSizes;

    /// The column family that stands second when the first has been dropped.
    const FAMILY: FamilyId = FamilyId(1);

    fn families(reads: u64) -> HashMap<FamilyId, FamilyStatistics> {
        let statistics = FamilyStatistics {
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
        };
        HashMap::from([(FAMILY, statistics)])
    }

    #[test]
    fn recent_is_since_the_oldest_look_that_is_kept() {
        let recent = Recent::default();
        let earlier = || recent.earlier(FAMILY).map(|look| look.reads.count);
        assert_eq!(earlier(), None);
        let expected = [(0, Some(0)), (10, Some(0)), (30, Some(10)), (70, Some(30))];
        for (reads, oldest) in expected {
            let blocks = CacheStats { hits: reads, ..CacheStats::default() };
            recent.remember(Look { families: families(reads), histograms: HashMap::new(), blocks });
            assert_eq!(earlier(), oldest);
            assert_eq!(Some(recent.earlier_blocks().hits), oldest);
        }
        assert_eq!(recent.earlier(FamilyId(0)), None);
    }
}
