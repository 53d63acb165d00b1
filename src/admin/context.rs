//! The node as the admin side knows it.

use super::recent::{Recent, histograms};
use super::report::{
    Cache, Caches, Compaction, Compactions, FamilyReport, Info, KeyspaceReport, Latency,
    LatencyHistogram, LatencyReport, Memory, PendingCompactions, Thresholds,
};
use crate::base::clock::Clock;
use crate::base::machine;
use crate::config::rack_file::RackFileSource;
use crate::model::schema::FamilyId;
use crate::net::tcp::TcpTransport;
use crate::node::{Drain, Member};
use crate::replica::Replica;
use crate::storage::caches::{CacheStats, FamilyCacheStats};
use crate::storage::family::{BUCKET_OFFSETS, FamilyStatistics, Histogram, Totals};
use crate::storage::{Database, compaction};
use std::sync::Arc;
use std::time::Duration;

/// The node as the admin side knows it.
#[derive(Debug)]
pub struct AdminContext {
    /// `ClusterName`.
    pub cluster_name: String,
    /// Its data.
    pub storage: Arc<Database>,
    /// Its part of requests.
    pub replica: Arc<Replica>,
    /// The node among others.
    pub member: Arc<Member>,
    /// The way to the others.
    pub transport: Arc<TcpTransport>,
    /// Where racks are read from, if a snitch has a file of them.
    pub rack_file: Option<Arc<RackFileSource>>,
    /// Class names of the snitches that keyspaces have.
    pub snitches: Vec<String>,
    /// The way out of its ring.
    pub drain: Arc<Drain>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// When the node was started, on the monotonic clock.
    pub started: Duration,
    /// Earlier looks at the counters.
    pub recent: Recent,
}

impl AdminContext {
    /// Looks at the counters, so that means of what comes now can be told later.
    pub(super) fn remember(&self) {
        let stores = || self.storage.families();
        let statistics = stores().map(|store| store.statistics()).collect();
        let histograms = stores().map(|store| histograms(store.operations())).collect();
        self.recent.remember(statistics, histograms, self.storage.block_cache_stats());
    }

    /// The token of the node, as its partitioner writes it; empty if it has none.
    fn own_token(&self) -> String {
        let local = self.member.local();
        let token = self
            .member
            .with_gossip(|_, membership| membership.members().ring.token(local).cloned());
        let text = token.map(|token| self.storage.partitioner().display_token(&token));
        text.unwrap_or_default()
    }

    /// The node and its memory.
    pub(super) fn info(&self) -> Info {
        let memory = self.storage.memory_use();
        Info {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster_name: self.cluster_name.clone(),
            partitioner: self.storage.partitioner().class_name().to_owned(),
            token: self.own_token(),
            // Others may have made a greater one necessary since the start.
            generation: self.member.with_gossip(|gossiper, _| gossiper.generation()),
            uptime_seconds: self.clock.monotonic().saturating_sub(self.started).as_secs(),
            load_bytes: self.load_bytes(),
            memory: Memory {
                resident_bytes: machine::resident_bytes(),
                limit_bytes: machine::memory_bytes(),
                memtables_bytes: memory.memtables,
                memtables_budget_bytes: memory.memtable_budget,
                key_caches_bytes: memory.key_caches.0,
                key_caches_budget_bytes: memory.key_caches.1,
                row_caches_bytes: memory.row_caches.0,
                row_caches_budget_bytes: memory.row_caches.1,
                requests_bytes: self.replica.memory().used() as u64,
                requests_budget_bytes: self.replica.memory().limit() as u64,
            },
            block_cache: Cache::new(memory.block_cache, self.recent.earlier_blocks()),
            troubles: self.health().troubles,
        }
    }

    /// SSTables of all column families.
    pub(super) fn load_bytes(&self) -> u64 {
        self.storage.families().map(|store| store.statistics().live_bytes).sum()
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
                keyspaces.push(KeyspaceReport::of(&family.keyspace));
            }
            let keyspace = keyspaces.last_mut().expect("one was pushed if there was none");
            keyspace.add(self.family_report(id, &family.name, &statistics));
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
        let [reads, range_reads, writes] = histograms(self.storage.family(id).operations());
        let earlier = self.recent.earlier_histograms(id);
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

    /// Compactions: those that are running, and what there was since the start.
    pub(super) fn compactions(&self) -> Compactions {
        let (storage, now) = (&self.storage, self.clock.monotonic());
        let running = storage.compactions().into_iter().map(|progress| Compaction {
            id: progress.id,
            kind: progress.kind.to_string(),
            family: (&*progress.family).into(),
            inputs: progress.inputs.iter().map(|path| path.display().to_string()).collect(),
            bytes_total: progress.bytes_total,
            bytes_read: progress.bytes_read,
            bytes_written: progress.bytes_written,
            rows: progress.rows,
            running_seconds: now.saturating_sub(progress.started).as_secs(),
        });
        let pending = storage.pending_compactions().into_iter().map(|(id, count)| {
            PendingCompactions { family: (&**storage.schema().family(id)).into(), count }
        });
        Compactions {
            running: running.collect(),
            pending: pending.collect(),
            totals: storage.compaction_totals(),
        }
    }

    /// When these column families are compacted.
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
