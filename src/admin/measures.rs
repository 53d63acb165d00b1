//! The metrics of a node. docs/metrics.md is made of these tables.

use super::context::AdminContext;
use super::report::{Compactions, Info, Pool};
use super::ring_report::{Hints, Messages, PeerMessages, RingEndpoint, RingState, Status};
use crate::base::histogram::Histogram;
use crate::base::operations::{Operations, Totals, Transfers};
use crate::server::TrafficTotals;
use crate::storage::database::TroubleKind;
use crate::storage::family::{ColumnFamily, FamilyStatistics, Operation};
use prometheus_client::metrics::MetricType;
use std::sync::atomic::Ordering;

/// Something that is measured of each `T`.
pub(super) struct Measure<T> {
    /// Without the suffix `_total` of counters, which the encoder adds.
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) value: Value<T>,
}

/// Where the value of a metric comes from.
pub(super) enum Value<T> {
    /// Grows until a restart.
    Counter(fn(&T) -> u64),
    /// A counter of seconds.
    Seconds(fn(&T) -> f64),
    Gauge(fn(&T) -> u64),
    /// A histogram of seconds.
    Times(fn(&T) -> &Times),
}

/// Latencies of operations of one kind.
pub(super) struct Times {
    pub(super) totals: Totals,
    pub(super) histogram: Histogram,
}

impl From<&Operations> for Times {
    fn from(operations: &Operations) -> Self {
        Self { totals: operations.totals(), histogram: operations.histogram() }
    }
}

impl<T> Measure<T> {
    /// The name of a measure of many things of a group, which may have no name.
    pub(super) fn full_name(&self, group: &str) -> String {
        if group.is_empty() { self.name.to_owned() } else { format!("{group}_{}", self.name) }
    }
}

impl<T> Value<T> {
    pub(super) fn kind(&self) -> MetricType {
        match self {
            Self::Counter(_) | Self::Seconds(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
            Self::Times(_) => MetricType::Histogram,
        }
    }
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Measure<T> {
    Measure { name, help, value: Value::Gauge(value) }
}

const fn count<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Measure<T> {
    Measure { name, help, value: Value::Counter(value) }
}

const fn times<T>(name: &'static str, help: &'static str, value: fn(&T) -> &Times) -> Measure<T> {
    Measure { name, help, value: Value::Times(value) }
}

/// The process at this moment.
pub(super) struct Process {
    pub(super) processor_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) open_files: u64,
    pub(super) file_limit: u64,
    pub(super) started_seconds: u64,
}

/// Of the process, without the prefix of ours: all programs have these.
pub(super) const PROCESS: [Measure<Process>; 5] = [
    Measure {
        name: "process_cpu_seconds",
        help: "Time that the process has computed",
        value: Value::Seconds(|p| p.processor_seconds),
    },
    gauge("process_resident_memory_bytes", "Physical memory of the process", |p| p.resident_bytes),
    gauge("process_open_fds", "Open files and connections", |p| p.open_files),
    gauge("process_max_fds", "How many of them there may be", |p| p.file_limit),
    gauge("process_start_time_seconds", "Start, since the Unix epoch", |p| p.started_seconds),
];

/// Of the program, with labels that say what it is.
pub(super) const BUILD: [Measure<()>; 1] = [gauge("info", "Always 1", |()| 1)];

/// Of the node.
pub(super) const NODE: [Measure<Info>; 14] = [
    gauge("failed", "1 if writes are refused, other than by an operator: info says why", |i| {
        let is_meant = |kind| matches!(kind, TroubleKind::Drained | TroubleKind::Outside);
        let mut kinds = i.troubles.iter().map(|trouble| trouble.kind);
        u64::from(kinds.any(|kind| !is_meant(kind) && kind.refuses_writes()))
    }),
    gauge("drained", "1 if the node was drained", |i| {
        u64::from(i.troubles.iter().any(|it| it.kind == TroubleKind::Drained))
    }),
    gauge("uptime_seconds", "Time since the start", |i| i.uptime_seconds),
    gauge("load_bytes", "SSTables of all column families", |i| i.load_bytes),
    gauge("memtables_bytes", "Memory of all memtables", |i| i.memory.memtables_bytes),
    gauge("memtables_budget_bytes", "Memory that they may take", |i| {
        i.memory.memtables_budget_bytes
    }),
    gauge("block_cache_bytes", "Blocks in the block cache", |i| i.block_cache.stats.size),
    gauge("block_cache_capacity_bytes", "Blocks that it may hold", |i| {
        i.block_cache.stats.capacity
    }),
    gauge("key_caches_bytes", "Memory of all key caches", |i| i.memory.key_caches_bytes),
    gauge("row_caches_bytes", "Memory of all row caches", |i| i.memory.row_caches_bytes),
    gauge("requests_bytes", "Memory of requests and answers under way", |i| {
        i.memory.requests_bytes
    }),
    gauge("requests_budget_bytes", "Memory that they may take", |i| i.memory.requests_budget_bytes),
    count("block_cache_hits", "Blocks found in the block cache", |i| i.block_cache.stats.hits),
    count("block_cache_requests", "Blocks looked for in the block cache", |i| {
        i.block_cache.stats.requests
    }),
];

/// Of each kind of trouble.
pub(super) const TROUBLES: [Measure<u64>; 1] =
    [gauge("troubles", "Why the node does not serve as it should: info says more", |it| *it)];

/// The node among others.
pub(super) struct State {
    time_seconds: i64,
    schemas: u64,
    missed_writes: u64,
}

impl State {
    pub(super) fn of(context: &AdminContext) -> Self {
        Self {
            time_seconds: context.clock.now_micros() / 1_000_000,
            schemas: context.description().schemas.len() as u64,
            missed_writes: context.member.coordinator().stats().missed_writes,
        }
    }
}

pub(super) const STATE: [Measure<State>; 3] = [
    gauge("time_seconds", "Clock of the node, since the Unix epoch", |s| {
        u64::try_from(s.time_seconds).unwrap_or(0)
    }),
    gauge("schemas", "Different schemas of the nodes that seem alive: more than 1 is wrong", |s| {
        s.schemas
    }),
    count("missed_writes", "Writes that the node did not apply although it is a replica", |s| {
        s.missed_writes
    }),
];

/// Of each kind of work.
pub(super) const POOLS: [Measure<Pool>; 3] = [
    gauge("active", "Work that is being done, as in tpstats", |p| p.active),
    gauge("pending", "Work that waits", |p| p.pending),
    count("completed", "Work that was done", |p| p.completed),
];

/// Of compactions.
pub(super) const COMPACTIONS: [Measure<Compactions>; 6] = [
    gauge("compactions_running", "Compactions that are running", |c| c.running.len() as u64),
    gauge("compactions_pending", "Minor compactions that are due, estimated", |c| {
        c.pending.iter().map(|pending| pending.count as u64).sum()
    }),
    count("compactions_completed", "Compactions that came to their end", |c| c.totals.completed),
    count("compactions_failed", "Compactions that were given up", |c| c.totals.failed),
    count("compactions_input_bytes", "Inputs of completed compactions", |c| c.totals.bytes_in),
    count("compactions_output_bytes", "Outputs of completed compactions", |c| c.totals.bytes_out),
];

/// Operations that have moved bytes.
pub(super) struct Moved {
    bytes: u64,
    times: Times,
}

impl From<&Transfers> for Moved {
    fn from(transfers: &Transfers) -> Self {
        let bytes = transfers.bytes.load(Ordering::Relaxed);
        Self { bytes, times: Times::from(&transfers.operations) }
    }
}

/// Of flushes.
pub(super) const FLUSHES: [Measure<Moved>; 2] = [
    times("flush_duration_seconds", "Times of flushes of memtables", |f| &f.times),
    count("flush_output_bytes", "SSTables that they wrote", |f| f.bytes),
];

/// Of the commit log, with its size.
pub(super) const COMMIT_LOG: [Measure<((u64, usize), Moved)>; 4] = [
    gauge("commitlog_bytes", "Commit log that a restart would replay", |((bytes, _), _)| *bytes),
    gauge("commitlog_segments", "Files of the commit log", |((_, segments), _)| *segments as u64),
    count("commitlog_written_bytes", "Bytes written to the commit log", |(_, log)| log.bytes),
    times("commitlog_sync_duration_seconds", "Times of syncs of the commit log", |(_, log)| {
        &log.times
    }),
];

/// Of each directory of data, and those of the commit log, its archive and the hints: free bytes
/// and all.
pub(super) const DISKS: [Measure<(u64, u64)>; 2] = [
    gauge("free_bytes", "Room in the file system of a directory", |(free, _)| *free),
    gauge("size_bytes", "Size of this file system", |(_, all)| *all),
];

/// Of the certificate of this node, where a port has TLS: its end.
pub(super) const TLS: [Measure<u64>; 1] = [gauge(
    "certificate_end_seconds",
    "Time since 1970 at which a certificate of the file ends, the first one that does",
    |end| *end,
)];

/// Of connections of clients.
pub(super) const CLIENTS: [Measure<TrafficTotals>; 7] = [
    gauge("client_connections", "Open connections of clients", |c| c.open),
    count("client_connections_accepted", "Connections of clients", |c| c.connections),
    count("client_connections_refused", "Connections for which there was no room", |c| c.refused),
    count("client_connections_displaced", "Idle connections closed to make room", |c| c.displaced),
    count("client_requests_refused", "Requests for which there was no memory", |c| {
        c.refused_requests
    }),
    count("client_received_bytes", "Bytes from clients", |c| c.received_bytes),
    count("client_sent_bytes", "Bytes to clients", |c| c.sent_bytes),
];

/// Of each call of clients at each level. One of about sixteen is timed, and counts for the others.
pub(super) const REQUESTS: [Measure<Times>; 2] = [
    count("requests", "Requests of clients, those that failed included", |r| r.totals.count),
    times("request_duration_seconds", "Times until their answers", |r| r),
];

/// Of each reason for which calls failed.
pub(super) const FAILURES: [Measure<u64>; 1] =
    [count("failures", "Requests of clients that failed", |failures| *failures)];

/// A column family at this moment.
pub(super) struct FamilyNow {
    statistics: FamilyStatistics,
    times: [Times; 3],
}

impl FamilyNow {
    pub(super) fn of(family: &ColumnFamily) -> Self {
        let kinds = [Operation::Read, Operation::RangeRead, Operation::Write];
        let times = kinds.map(|kind| Times::from(family.operations(kind)));
        Self { statistics: family.statistics(), times }
    }
}

/// Of each column family: the part of this node in the requests of all.
pub(super) const FAMILIES: [Measure<FamilyNow>; 18] = [
    count("reads", "Slices of single rows", |f| f.statistics.reads.count),
    times("read_duration_seconds", "Their times", |f| &f.times[Operation::Read as usize]),
    count("range_reads", "Slices of the rows of a range", |f| f.statistics.range_reads.count),
    times("range_read_duration_seconds", "Their times", |f| {
        &f.times[Operation::RangeRead as usize]
    }),
    count("writes", "Mutations", |f| f.statistics.writes.count),
    times("write_duration_seconds", "Their times", |f| &f.times[Operation::Write as usize]),
    gauge("sstables", "SSTables that count", |f| f.statistics.sstables as u64),
    gauge("live_bytes", "Size of the SSTables that count", |f| f.statistics.live_bytes),
    gauge("disk_bytes", "Size of all its SSTables", |f| f.statistics.total_bytes),
    gauge("memtable_operations", "Columns in the active memtable", |f| {
        f.statistics.memtable_operations
    }),
    gauge("memtable_bytes", "Memory of its memtables", |f| f.statistics.memtable_memory_bytes),
    gauge("memtables_flushing", "Full memtables that are not on disk yet", |f| {
        f.statistics.memtables_flushing as u64
    }),
    count("memtable_switches", "Full memtables so far", |f| f.statistics.memtable_switches),
    count("key_cache_hits", "Row positions found in the key cache", |f| {
        f.statistics.caches.keys.unwrap_or_default().hits
    }),
    count("key_cache_requests", "Row positions looked for there", |f| {
        f.statistics.caches.keys.unwrap_or_default().requests
    }),
    count("row_cache_hits", "Rows found in the row cache", |f| {
        f.statistics.caches.rows.unwrap_or_default().hits
    }),
    count("row_cache_requests", "Rows looked for there", |f| {
        f.statistics.caches.rows.unwrap_or_default().requests
    }),
    gauge("failed", "1 if it takes no more writes", |f| u64::from(f.statistics.failure.is_some())),
];

/// Of what this node asks others.
pub(super) const MESSAGES: [Measure<Messages>; 3] = [
    gauge("requests_pending", "Requests to other nodes that wait for answers", |m| {
        m.pending_requests
    }),
    count("speculations", "Further replicas asked because others were slow", |m| m.speculations),
    count("read_repairs", "Replicas that got what a read found them to lack", |m| m.read_repairs),
];

/// Of each verb of messages.
pub(super) const DROPPED: [Measure<u64>; 1] = [count(
    "dropped",
    "Messages of other nodes that were not acted on, being too late or too many",
    |count| *count,
)];

/// Of what is kept for others.
pub(super) const HINTS: [Measure<Hints>; 6] = [
    count("hints_stored", "Hints stored for other nodes", |h| h.stats.stored),
    count("hints_stored_bytes", "Size of these hints", |h| h.stats.stored_bytes),
    count("hints_not_stored", "Hints for which there was no room, or that failed", |h| {
        h.stats.refused_full + h.stats.refused_no_space + h.stats.failed
    }),
    count("hints_delivered", "Hints handed out for delivery", |h| h.stats.read),
    count("hints_expired", "Hints too old to be delivered", |h| h.stats.expired),
    count("hints_damaged_bytes", "Damaged parts of hint logs", |h| h.stats.damaged_bytes),
];

/// Of each node of the ring, with its address as label `peer`.
pub(super) const ENDPOINTS: [Measure<RingEndpoint>; 4] = [
    gauge("up", "1 if the node seems alive", |e| u64::from(e.status == Status::Up)),
    gauge("normal", "1 unless it is joining, leaving, or outside of the ring", |e| {
        u64::from(e.state == RingState::Normal)
    }),
    gauge("hints", "Hints that wait for the node, about", |e| e.hints),
    gauge("hints_bytes", "Size of these hints", |e| e.hint_bytes),
];

/// Of each other node that there was a connection with, the same way.
pub(super) const PEERS: [Measure<PeerMessages>; 9] = [
    count("sent", "Messages sent", |p| p.stats.sent),
    count("sent_bytes", "Size of these", |p| p.stats.sent_bytes),
    count("received", "Messages received", |p| p.stats.received),
    count("received_bytes", "Size of these", |p| p.stats.received_bytes),
    count("connects", "Connections made", |p| p.stats.connects),
    count("failed_connects", "Connections that could not be made", |p| p.stats.failed_connects),
    count("unsent", "Messages that were too late, too many or too large to be sent", |p| {
        p.stats.dropped_late + p.stats.dropped_full + p.stats.dropped_large
    }),
    gauge("queued", "Messages that wait to be sent", |p| p.stats.queued),
    gauge("queued_bytes", "Size of these", |p| p.stats.queued_bytes),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;
    use std::fmt::Write;

    /// Rows of the manual for the measures of a group.
    fn rows<T>((prefix, group, labels): (&str, &str, &str), measures: &[Measure<T>]) -> String {
        let mut text = String::new();
        for measure in measures {
            let (name, help) = (measure.full_name(group), measure.help);
            let (kind, suffix) = match measure.value {
                Value::Counter(_) | Value::Seconds(_) => ("counter", "_total"),
                Value::Gauge(_) => ("gauge", ""),
                Value::Times(_) => ("histogram", ""),
            };
            let _ = writeln!(text, "| `{prefix}{name}{suffix}` | {kind} | {labels} | {help} |");
        }
        text
    }

    #[test]
    fn the_manual_has_the_metrics() {
        let own = |group, labels| ("alexandra_", group, labels);
        let family = own("column_family", "`keyspace`, `column_family`");
        let build = own("build", "`version`, `cluster_name`, `partitioner`");
        let call = "`protocol`, `call`, `level`";
        let failure = "`protocol`, `call`, `level`, `kind`";
        let text = [
            "| metric | kind | labels | what it is |\n|---|---|---|---|\n".to_owned(),
            rows(own("", call), &REQUESTS),
            rows(own("request", failure), &FAILURES),
            rows(own("", ""), &CLIENTS),
            rows(family, &FAMILIES),
            rows(own("", ""), &NODE),
            rows(own("", "`kind`"), &TROUBLES),
            rows(own("", ""), &STATE),
            rows(own("", ""), &COMMIT_LOG),
            rows(own("", ""), &FLUSHES),
            rows(own("", ""), &COMPACTIONS),
            rows(own("disk", "`directory`"), &DISKS),
            rows(own("tls", "`file`"), &TLS),
            rows(own("pool", "`pool`"), &POOLS),
            rows(own("peer", "`peer`"), &ENDPOINTS),
            rows(own("peer", "`peer`"), &PEERS),
            rows(own("", ""), &MESSAGES),
            rows(own("messages", "`verb`"), &DROPPED),
            rows(own("", ""), &HINTS),
            rows(build, &BUILD),
            rows(("", "", ""), &PROCESS),
        ];
        check_part("docs/metrics.md", "metrics", &text.concat());
    }
}
