//! The counters as Prometheus reads them, in the text form of OpenMetrics or in the older one.
//!
//! Nothing is registered when it is counted: each scrape looks at the node anew.

use super::context::AdminContext;
use super::health;
use super::report::{Compactions, Family, Info};
use super::ring_report::{Hints, Messages, PeerMessages, RingEndpoint, Status};
use crate::storage::family::{FamilyStatistics, Totals};
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
    /// Without the suffix `_total` of counters, which the encoder adds.
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> Value,
}

/// A measured value.
enum Value {
    /// Only grows, until a restart.
    Counter(u64),
    /// The same, in seconds.
    Seconds(f64),
    /// Grows and shrinks.
    Gauge(u64),
}

use Value::{Counter, Gauge};

/// Of the node.
const NODE: [Measure<Info>; 16] = [
    measure("failed", "1 if writes are refused, other than after a drain: info says why", |i| {
        Gauge(u64::from(health::has_failed(&i.troubles)))
    }),
    measure("drained", "1 if the node was drained", |i| {
        Gauge(u64::from(health::is_drained(&i.troubles)))
    }),
    measure("troubles", "Why the node does not serve as it should: info says more", |i| {
        Gauge(i.troubles.len() as u64)
    }),
    measure("uptime_seconds", "Time since the start", |i| Gauge(i.uptime_seconds)),
    measure("load_bytes", "SSTables of all column families", |i| Gauge(i.load_bytes)),
    measure("resident_bytes", "Physical memory of the process", |i| {
        Gauge(i.memory.resident_bytes.unwrap_or(0))
    }),
    measure("memtables_bytes", "Memory of all memtables", |i| Gauge(i.memory.memtables_bytes)),
    measure("memtables_budget_bytes", "Memory that they may take", |i| {
        Gauge(i.memory.memtables_budget_bytes)
    }),
    measure("block_cache_bytes", "Blocks in the block cache", |i| Gauge(i.block_cache.stats.size)),
    measure("block_cache_capacity_bytes", "Blocks that it may hold", |i| {
        Gauge(i.block_cache.stats.capacity)
    }),
    measure("key_caches_bytes", "Memory of all key caches", |i| Gauge(i.memory.key_caches_bytes)),
    measure("row_caches_bytes", "Memory of all row caches", |i| Gauge(i.memory.row_caches_bytes)),
    measure("requests_bytes", "Memory of requests and answers under way", |i| {
        Gauge(i.memory.requests_bytes)
    }),
    measure("requests_budget_bytes", "Memory that they may take", |i| {
        Gauge(i.memory.requests_budget_bytes)
    }),
    measure("block_cache_hits", "Blocks found in the block cache", |i| {
        Counter(i.block_cache.stats.hits)
    }),
    measure("block_cache_requests", "Blocks looked for in the block cache", |i| {
        Counter(i.block_cache.stats.requests)
    }),
];

/// Of compactions.
const COMPACTIONS: [Measure<Compactions>; 6] = [
    measure("compactions_running", "Compactions that are running", |c| {
        Gauge(c.running.len() as u64)
    }),
    measure("compactions_pending", "Minor compactions that are due, estimated", |c| {
        Gauge(c.pending.iter().map(|pending| pending.count as u64).sum())
    }),
    measure("compactions_completed", "Compactions that came to their end", |c| {
        Counter(c.totals.completed)
    }),
    measure("compactions_failed", "Compactions that were given up", |c| Counter(c.totals.failed)),
    measure("compactions_input_bytes", "Inputs of completed compactions", |c| {
        Counter(c.totals.bytes_in)
    }),
    measure("compactions_output_bytes", "Outputs of completed compactions", |c| {
        Counter(c.totals.bytes_out)
    }),
];

/// Of each column family. One operation of about sixteen is timed: its mean time is the seconds
/// divided by how many were timed.
const FAMILIES: [Measure<FamilyStatistics>; 21] = [
    measure("reads", "Slices of single rows", |s| Counter(s.reads.count)),
    measure("reads_timed", "Slices of single rows that were timed", |s| Counter(s.reads.timed)),
    measure("reads_timed_seconds", "Time of these", |s| seconds(&s.reads)),
    measure("range_reads", "Slices of the rows of a range", |s| Counter(s.range_reads.count)),
    measure("range_reads_timed", "Slices of the rows of a range that were timed", |s| {
        Counter(s.range_reads.timed)
    }),
    measure("range_reads_timed_seconds", "Time of these", |s| seconds(&s.range_reads)),
    measure("writes", "Mutations", |s| Counter(s.writes.count)),
    measure("writes_timed", "Mutations that were timed", |s| Counter(s.writes.timed)),
    measure("writes_timed_seconds", "Time of these", |s| seconds(&s.writes)),
    measure("sstables", "SSTables that count", |s| Gauge(s.sstables as u64)),
    measure("live_bytes", "Size of the SSTables that count", |s| Gauge(s.live_bytes)),
    measure("disk_bytes", "Size of all its SSTables", |s| Gauge(s.total_bytes)),
    measure("memtable_operations", "Columns in the active memtable", |s| {
        Gauge(s.memtable_operations)
    }),
    measure("memtable_bytes", "Memory of its memtables", |s| Gauge(s.memtable_memory_bytes)),
    measure("memtables_flushing", "Full memtables that are not on disk yet", |s| {
        Gauge(s.memtables_flushing as u64)
    }),
    measure("memtable_switches", "Full memtables so far", |s| Counter(s.memtable_switches)),
    measure("key_cache_hits", "Row positions found in the key cache", |s| {
        Counter(s.caches.keys.unwrap_or_default().hits)
    }),
    measure("key_cache_requests", "Row positions looked for there", |s| {
        Counter(s.caches.keys.unwrap_or_default().requests)
    }),
    measure("row_cache_hits", "Rows found in the row cache", |s| {
        Counter(s.caches.rows.unwrap_or_default().hits)
    }),
    measure("row_cache_requests", "Rows looked for there", |s| {
        Counter(s.caches.rows.unwrap_or_default().requests)
    }),
    measure("failed", "1 if it takes no more writes", |s| Gauge(u64::from(s.failure.is_some()))),
];

/// Of what this node asks others.
const MESSAGES: [Measure<Messages>; 3] = [
    measure("requests_pending", "Requests to other nodes that wait for answers", |m| {
        Gauge(m.pending_requests)
    }),
    measure("speculations", "Further replicas asked because others were slow", |m| {
        Counter(m.speculations)
    }),
    measure("read_repairs", "Replicas that got what a read found them to lack", |m| {
        Counter(m.read_repairs)
    }),
];

/// Of what is kept for others.
const HINTS: [Measure<Hints>; 6] = [
    measure("hints_stored", "Hints stored for other nodes", |h| Counter(h.stats.stored)),
    measure("hints_stored_bytes", "Size of these hints", |h| Counter(h.stats.stored_bytes)),
    measure("hints_not_stored", "Hints for which there was no room, or that failed", |h| {
        Counter(h.stats.refused_full + h.stats.refused_no_space + h.stats.failed)
    }),
    measure("hints_delivered", "Hints handed out for delivery", |h| Counter(h.stats.read)),
    measure("hints_expired", "Hints too old to be delivered", |h| Counter(h.stats.expired)),
    measure("hints_damaged_bytes", "Damaged parts of hint logs", |h| {
        Counter(h.stats.damaged_bytes)
    }),
];

/// Of each node of the ring, with its address as label `peer`.
const ENDPOINTS: [Measure<RingEndpoint>; 3] = [
    measure("up", "1 if the node seems alive", |e| Gauge(u64::from(e.status == Status::Up))),
    measure("hints", "Hints that wait for the node, about", |e| Gauge(e.hints)),
    measure("hints_bytes", "Size of these hints", |e| Gauge(e.hint_bytes)),
];

/// Of each other node that there was a connection with, the same way.
const PEERS: [Measure<PeerMessages>; 9] = [
    measure("sent", "Messages sent", |p| Counter(p.stats.sent)),
    measure("sent_bytes", "Size of these", |p| Counter(p.stats.sent_bytes)),
    measure("received", "Messages received", |p| Counter(p.stats.received)),
    measure("received_bytes", "Size of these", |p| Counter(p.stats.received_bytes)),
    measure("connects", "Connections made", |p| Counter(p.stats.connects)),
    measure("failed_connects", "Connections that could not be made", |p| {
        Counter(p.stats.failed_connects)
    }),
    measure("unsent", "Messages that were too late, too many or too large to be sent", |p| {
        Counter(p.stats.dropped_late + p.stats.dropped_full + p.stats.dropped_large)
    }),
    measure("queued", "Messages that wait to be sent", |p| Gauge(p.stats.queued)),
    measure("queued_bytes", "Size of these", |p| Gauge(p.stats.queued_bytes)),
];

const fn measure<T>(name: &'static str, help: &'static str, value: fn(&T) -> Value) -> Measure<T> {
    Measure { name, help, value }
}

fn seconds(totals: &Totals) -> Value {
    Value::Seconds(totals.timed_nanos as f64 / 1e9)
}

impl Value {
    fn kind(&self) -> MetricType {
        match self {
            Self::Counter(_) | Self::Seconds(_) => MetricType::Counter,
            Self::Gauge(_) => MetricType::Gauge,
        }
    }

    fn encode(self, encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(count) => ConstCounter::new(count).encode(encoder),
            Self::Seconds(seconds) => ConstCounter::new(seconds).encode(encoder),
            Self::Gauge(value) => ConstGauge::new(value).encode(encoder),
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
        let help = "Messages of other nodes that were not acted on, being too late or too many";
        let dropped = |(verb, count)| (vec![("verb", String::clone(verb))], count);
        let dropped: Vec<_> = messages.dropped.iter().map(dropped).collect();
        let measure = [measure("dropped", help, |count: &u64| Counter(*count))];
        encode_all(&mut encoder, "messages", &measure, &dropped)?;
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
    kind: &str,
    measures: &[Measure<M>],
    all: &[(Labels, T)],
) -> fmt::Result {
    let Some((_, first)) = all.first() else { return Ok(()) };
    for Measure { name, help, value } in measures {
        let (name, metric) = (format!("{kind}_{name}"), value(first.borrow()).kind());
        let mut encoder = encoder.encode_descriptor(&name, help, None, metric)?;
        for (labels, it) in all {
            value(it.borrow()).encode(encoder.encode_family(labels)?)?;
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
    for Measure { name, help, value } in measures {
        let value = value(of);
        let descriptor = encoder.encode_descriptor(name, help, None, value.kind())?;
        value.encode(descriptor)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
