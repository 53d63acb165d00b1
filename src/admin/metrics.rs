//! The counters as Prometheus reads them, in the text form of OpenMetrics or in the older one.
//!
//! No counter is registered: each scrape reads the node again.

use super::context::AdminContext;
use super::report::{Compactions, Family, Info};
use super::ring_report::{Hints, Messages, PeerMessages, RingEndpoint, Status};
use crate::storage::database::TroubleKind;
use crate::storage::family::FamilyStatistics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::borrow::Borrow;
use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The text forms of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// That of OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Prometheus,
}

impl Format {
    /// The format that a client prefers by its header `Accept`: OpenMetrics, unless it names the
    /// older one before it.
    pub(super) fn preferred(accept: &str) -> Self {
        let openmetrics = quality(accept, "application/openmetrics-text");
        if quality(accept, "text/plain") > openmetrics {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Weight of a media type in `Accept`, from 0 to 1; 0 if it is not named.
fn quality(accept: &str, media: &str) -> f32 {
    let weight = |range: &str| {
        let mut parameters = range.split(';').map(str::trim);
        let named = parameters.next()?;
        let (kind, _) = media.split_once('/')?;
        let is_it = named.eq_ignore_ascii_case(media)
            || named.strip_suffix("/*").is_some_and(|named| named.eq_ignore_ascii_case(kind));
        let quality = parameters.find_map(|parameter| parameter.strip_prefix("q=")?.parse().ok());
        is_it.then(|| quality.unwrap_or(1.0))
    };
    accept.split(',').filter_map(weight).fold(0.0, f32::max)
}

/// Prefix of all names.
const PREFIX: &str = "alexandra";

/// Something that is measured of each `T`.
struct Measure<T> {
    kind: Kind,
    /// Without the suffix `_total` of counters, which the encoder adds.
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> u64,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Grows until a restart.
    Counter,
    /// A counter of nanoseconds, shown in seconds.
    Time,
    Gauge,
}

const fn gauge<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Measure<T> {
    Measure { kind: Kind::Gauge, name, help, value }
}

const fn count<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Measure<T> {
    Measure { kind: Kind::Counter, name, help, value }
}

const fn time<T>(name: &'static str, help: &'static str, value: fn(&T) -> u64) -> Measure<T> {
    Measure { kind: Kind::Time, name, help, value }
}

/// Of the node.
const NODE: [Measure<Info>; 16] = [
    gauge("failed", "1 if writes are refused, other than after a drain: info says why", |i| {
        let mut kinds = i.troubles.iter().map(|trouble| trouble.kind);
        u64::from(kinds.any(|kind| kind != TroubleKind::Drained && kind.refuses_writes()))
    }),
    gauge("drained", "1 if the node was drained", |i| {
        u64::from(i.troubles.iter().any(|it| it.kind == TroubleKind::Drained))
    }),
    gauge("troubles", "Why the node does not serve as it should: info says more", |i| {
        i.troubles.len() as u64
    }),
    gauge("uptime_seconds", "Time since the start", |i| i.uptime_seconds),
    gauge("load_bytes", "SSTables of all column families", |i| i.load_bytes),
    gauge("resident_bytes", "Physical memory of the process", |i| {
        i.memory.resident_bytes.unwrap_or(0)
    }),
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

/// Of compactions.
const COMPACTIONS: [Measure<Compactions>; 6] = [
    gauge("compactions_running", "Compactions that are running", |c| c.running.len() as u64),
    gauge("compactions_pending", "Minor compactions that are due, estimated", |c| {
        c.pending.iter().map(|pending| pending.count as u64).sum()
    }),
    count("compactions_completed", "Compactions that came to their end", |c| c.totals.completed),
    count("compactions_failed", "Compactions that were given up", |c| c.totals.failed),
    count("compactions_input_bytes", "Inputs of completed compactions", |c| c.totals.bytes_in),
    count("compactions_output_bytes", "Outputs of completed compactions", |c| c.totals.bytes_out),
];

/// Of each column family. One operation of about sixteen is timed: its mean time is the seconds
/// divided by how many were timed.
const FAMILIES: [Measure<FamilyStatistics>; 21] = [
    count("reads", "Slices of single rows", |s| s.reads.count),
    count("reads_timed", "Slices of single rows that were timed", |s| s.reads.timed),
    time("reads_timed_seconds", "Time of these", |s| s.reads.timed_nanos),
    count("range_reads", "Slices of the rows of a range", |s| s.range_reads.count),
    count("range_reads_timed", "Slices of the rows of a range that were timed", |s| {
        s.range_reads.timed
    }),
    time("range_reads_timed_seconds", "Time of these", |s| s.range_reads.timed_nanos),
    count("writes", "Mutations", |s| s.writes.count),
    count("writes_timed", "Mutations that were timed", |s| s.writes.timed),
    time("writes_timed_seconds", "Time of these", |s| s.writes.timed_nanos),
    gauge("sstables", "SSTables that count", |s| s.sstables as u64),
    gauge("live_bytes", "Size of the SSTables that count", |s| s.live_bytes),
    gauge("disk_bytes", "Size of all its SSTables", |s| s.total_bytes),
    gauge("memtable_operations", "Columns in the active memtable", |s| s.memtable_operations),
    gauge("memtable_bytes", "Memory of its memtables", |s| s.memtable_memory_bytes),
    gauge("memtables_flushing", "Full memtables that are not on disk yet", |s| {
        s.memtables_flushing as u64
    }),
    count("memtable_switches", "Full memtables so far", |s| s.memtable_switches),
    count("key_cache_hits", "Row positions found in the key cache", |s| {
        s.caches.keys.unwrap_or_default().hits
    }),
    count("key_cache_requests", "Row positions looked for there", |s| {
        s.caches.keys.unwrap_or_default().requests
    }),
    count("row_cache_hits", "Rows found in the row cache", |s| {
        s.caches.rows.unwrap_or_default().hits
    }),
    count("row_cache_requests", "Rows looked for there", |s| {
        s.caches.rows.unwrap_or_default().requests
    }),
    gauge("failed", "1 if it takes no more writes", |s| u64::from(s.failure.is_some())),
];

/// Of what this node asks others.
const MESSAGES: [Measure<Messages>; 3] = [
    gauge("requests_pending", "Requests to other nodes that wait for answers", |m| {
        m.pending_requests
    }),
    count("speculations", "Further replicas asked because others were slow", |m| m.speculations),
    count("read_repairs", "Replicas that got what a read found them to lack", |m| m.read_repairs),
];

/// Of messages of other nodes, with their verb as label.
const DROPPED: [Measure<u64>; 1] = [count(
    "dropped",
    "Messages of other nodes that were not acted on, being too late or too many",
    |n| *n,
)];

/// Of what is kept for others.
const HINTS: [Measure<Hints>; 6] = [
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
const ENDPOINTS: [Measure<RingEndpoint>; 3] = [
    gauge("up", "1 if the node seems alive", |e| u64::from(e.status == Status::Up)),
    gauge("hints", "Hints that wait for the node, about", |e| e.hints),
    gauge("hints_bytes", "Size of these hints", |e| e.hint_bytes),
];

/// Of each other node that there was a connection with, the same way.
const PEERS: [Measure<PeerMessages>; 9] = [
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

impl Kind {
    fn metric(self) -> MetricType {
        match self {
            Self::Counter | Self::Time => MetricType::Counter,
            Self::Gauge => MetricType::Gauge,
        }
    }

    fn encode(self, value: u64, encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter => ConstCounter::new(value).encode(encoder),
            Self::Time => ConstCounter::new(value as f64 / 1e9).encode(encoder),
            Self::Gauge => ConstGauge::new(value).encode(encoder),
        }
    }
}

/// All counters of a node, at this moment.
pub(super) fn render(context: Arc<AdminContext>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(NodeCollector(context)));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Prometheus => in_old_format(&text),
    })
}

/// The text format of Prometheus for a text of OpenMetrics: it names a counter with the suffix
/// everywhere, and knows neither units nor an end.
fn in_old_format(openmetrics: &str) -> String {
    let types = openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let counters: HashSet<&str> =
        types.filter_map(|family| family.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let family = line.strip_prefix("# HELP ").or(line.strip_prefix("# TYPE "));
        let family = family.and_then(|rest| rest.split_once(' '));
        if let Some((name, rest)) = family.filter(|(name, _)| counters.contains(name)) {
            let keyword = if line.starts_with("# HELP") { "HELP" } else { "TYPE" };
            text.extend(["# ", keyword, " ", name, "_total ", rest, "\n"]);
        } else if line != "# EOF" && !line.starts_with("# UNIT ") {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[derive(Debug)]
struct NodeCollector(Arc<AdminContext>);

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(context) = self;
        encode_each(&mut encoder, &NODE, &context.info())?;
        encode_each(&mut encoder, &COMPACTIONS, &context.compactions())?;
        let messages = context.messages();
        encode_each(&mut encoder, &MESSAGES, &messages)?;
        encode_each(&mut encoder, &HINTS, &context.hints())?;
        let dropped = |(verb, count)| (vec![("verb", String::clone(verb))], count);
        let dropped: Vec<_> = messages.dropped.iter().map(dropped).collect();
        encode_all(&mut encoder, "messages", &DROPPED, &dropped)?;
        let endpoints = context.ring().endpoints;
        let endpoints: Vec<_> = endpoints.iter().map(|it| (peer(it.address), it)).collect();
        encode_all(&mut encoder, "peer", &ENDPOINTS, &endpoints)?;
        let peers: Vec<_> = messages.peers.iter().map(|it| (peer(it.address), it)).collect();
        encode_all(&mut encoder, "peer", &PEERS, &peers)?;
        let families = context.storage.families().map(|store| {
            let Family { keyspace, column_family } = store.schema().as_ref().into();
            let labels = vec![("keyspace", keyspace), ("column_family", column_family)];
            (labels, store.statistics())
        });
        encode_all(&mut encoder, "column_family", &FAMILIES, &families.collect::<Vec<_>>())
    }
}

/// Labels that distinguish things of a kind.
type Labels = Vec<(&'static str, String)>;

fn peer(address: IpAddr) -> Labels {
    vec![("peer", address.to_string())]
}

/// Each measure of each of these.
fn encode_all<T: Borrow<M>, M>(
    encoder: &mut DescriptorEncoder<'_>,
    group: &str,
    measures: &[Measure<M>],
    all: &[(Labels, T)],
) -> fmt::Result {
    for Measure { kind, name, help, value } in measures.iter().filter(|_| !all.is_empty()) {
        let name = format!("{group}_{name}");
        let mut encoder = encoder.encode_descriptor(&name, help, None, kind.metric())?;
        for (labels, it) in all {
            kind.encode(value(it.borrow()), encoder.encode_family(labels)?)?;
        }
    }
    Ok(())
}

/// Each measure of the one that there is.
fn encode_each<T>(
    encoder: &mut DescriptorEncoder<'_>,
    measures: &[Measure<T>],
    of: &T,
) -> fmt::Result {
    for Measure { kind, name, help, value } in measures {
        let descriptor = encoder.encode_descriptor(name, help, None, kind.metric())?;
        kind.encode(value(of), descriptor)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::{check_part, part};

    const MANUAL: &str = "docs/operations.md";

    /// Rows of the manual for measures whose names begin with that of a group.
    fn rows<T>(group: &str, measures: &[Measure<T>]) -> String {
        let row = |Measure { kind, name, help, .. }: &Measure<T>| {
            let suffix = if matches!(kind, Kind::Gauge) { "" } else { "_total" };
            format!("| `{PREFIX}_{group}{name}{suffix}` | {help} |\n")
        };
        measures.iter().map(row).collect()
    }

    #[test]
    fn the_manual_has_the_metrics_and_names_no_others() {
        let rows = [
            rows("", &NODE),
            rows("", &COMPACTIONS),
            rows("", &MESSAGES),
            rows("messages_", &DROPPED),
            rows("", &HINTS),
            rows("peer_", &ENDPOINTS),
            rows("peer_", &PEERS),
            rows("column_family_", &FAMILIES),
        ];
        let table = format!("| metric | |\n|---|---|\n{}", rows.concat());
        check_part(MANUAL, "metrics", &table);
        let [before, _, after] = part(MANUAL, "metrics");
        let is_name = |word: &&str| word.starts_with(PREFIX) && word.contains('_');
        let text = before + &after;
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        for name in words.filter(is_name) {
            assert!(table.contains(&format!("`{name}`")), "{MANUAL} names {name}");
        }
    }

    #[test]
    fn the_format_is_the_one_that_a_client_prefers() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0;q=0.5,\
                            text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in ["", "*/*", prometheus_2, "text/html, */*;q=0.8"] {
            assert_eq!(Format::preferred(accept), Format::OpenMetrics, "{accept}");
        }
        let prometheus_1 = "application/vnd.google.protobuf;proto=x;q=0.7, \
                            text/plain;version=0.0.4;q=0.3";
        let other = "application/openmetrics-text;q=0.2, text/plain; q=0.9";
        let plain =
            ["text/plain", "Text/Plain; version=0.0.4", "text/*", "text/html, text/*;q=0.1"];
        for accept in plain.into_iter().chain([prometheus_1, other]) {
            assert_eq!(Format::preferred(accept), Format::Prometheus, "{accept}");
        }
    }

    #[test]
    fn the_old_format_has_the_suffix_of_counters_in_their_comments() {
        let openmetrics = "# HELP a_reads Reads.\n# TYPE a_reads counter\n\
                           a_reads_total{x=\"# EOF\"} 3\n\
                           # HELP a_size Size.\n# TYPE a_size gauge\n# UNIT a_size bytes\n\
                           a_size 7\n# EOF\n";
        let old = "# HELP a_reads_total Reads.\n# TYPE a_reads_total counter\n\
                   a_reads_total{x=\"# EOF\"} 3\n\
                   # HELP a_size Size.\n# TYPE a_size gauge\na_size 7\n";
        assert_eq!(in_old_format(openmetrics), old);
    }
}
