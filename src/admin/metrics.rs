//! The counters as Prometheus reads them, in the text form of OpenMetrics or in the older one.
//!
//! No counter is registered: each scrape reads the node again. `measures` says what there is.

use super::context::AdminContext;
use super::measures::{
    BUILD, CLIENTS, COMMIT_LOG, COMPACTIONS, DISKS, DROPPED, ENDPOINTS, FAILURES, FAMILIES,
    FLUSHES, FamilyNow, HINTS, MESSAGES, Measure, Moved, NODE, PEERS, POOLS, PROCESS, Process,
    REQUESTS, STATE, State, TLS, TROUBLES, Times, Value,
};
use super::report::Family;
use crate::base::histogram::{BUCKET_OFFSETS, Histogram};
use crate::base::machine;
use crate::net::Verb;
use crate::storage::database::TroubleKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::borrow::Borrow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
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

/// Buckets of a histogram that are one in metrics.
const JOINED_BUCKETS: usize = 4;

/// All counters of a node, at this moment.
pub(super) fn render(context: Arc<AdminContext>, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ProcessCollector(Arc::clone(&context))));
    let own = registry.sub_registry_with_prefix(PREFIX);
    own.register_collector(Box::new(NodeCollector(context)));
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

/// The process, under the names that all programs have for it.
#[derive(Debug)]
struct ProcessCollector(Arc<AdminContext>);

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let process = Process {
            processor_seconds: machine::processor_seconds(),
            resident_bytes: machine::resident_bytes().unwrap_or(0),
            open_files: machine::open_files(),
            file_limit: machine::file_limit().unwrap_or(u64::MAX),
            started_seconds: self.0.started_millis() / 1000,
        };
        encode_each(&mut encoder, &PROCESS, &process)
    }
}

#[derive(Debug)]
struct NodeCollector(Arc<AdminContext>);

impl Collector for NodeCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(context) = self;
        let encoder = &mut encoder;
        self.encode_node(encoder)?;
        self.encode_disk(encoder)?;
        encode_each(encoder, &CLIENTS, &context.traffic.totals())?;
        let end = context.tls.certificate_end().map(|(file, end)| (vec![("file", file)], end));
        encode_all(encoder, "tls", &TLS, end.as_slice())?;
        self.encode_requests(encoder)?;
        let messages = context.messages();
        encode_each(encoder, &MESSAGES, &messages)?;
        encode_each(encoder, &HINTS, &context.hints())?;
        let drops = context.member.drops();
        let dropped = Verb::all().map(|verb| (vec![("verb", verb.to_string())], drops.total(verb)));
        encode_all(encoder, "messages", &DROPPED, &dropped.collect::<Vec<_>>())?;
        let endpoints = context.ring().endpoints;
        let endpoints: Vec<_> = endpoints.iter().map(|it| (peer(it.address), it)).collect();
        encode_all(encoder, "peer", &ENDPOINTS, &endpoints)?;
        let peers: Vec<_> = messages.peers.iter().map(|it| (peer(it.address), it)).collect();
        encode_all(encoder, "peer", &PEERS, &peers)?;
        let families = context.storage.families().map(|store| {
            let Family { keyspace, column_family } = store.schema().as_ref().into();
            let labels = vec![("keyspace", keyspace), ("column_family", column_family)];
            (labels, FamilyNow::of(store))
        });
        encode_all(encoder, "column_family", &FAMILIES, &families.collect::<Vec<_>>())
    }
}

impl NodeCollector {
    fn encode_node(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self(context) = self;
        let info = context.info();
        let labels = vec![
            ("version", info.version.clone()),
            ("cluster_name", info.cluster_name.clone()),
            ("partitioner", info.partitioner.clone()),
        ];
        encode_all(encoder, "build", &BUILD, &[(labels, ())])?;
        let troubles = TroubleKind::ALL.map(|kind| {
            let count = info.troubles.iter().filter(|trouble| trouble.kind == kind).count();
            (vec![("kind", format!("{kind:?}"))], count as u64)
        });
        encode_each(encoder, &NODE, &info)?;
        encode_all(encoder, "", &TROUBLES, &troubles)?;
        encode_each(encoder, &STATE, &State::of(context))?;
        let pools = context.pools().into_iter().map(|it| (vec![("pool", it.pool.clone())], it));
        encode_all(encoder, "pool", &POOLS, &pools.collect::<Vec<_>>())
    }

    fn encode_disk(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Self(context) = self;
        let storage = &context.storage;
        encode_each(encoder, &COMPACTIONS, &context.compactions())?;
        encode_each(encoder, &FLUSHES, &Moved::from(storage.flushes()))?;
        let log = (storage.log_size(), Moved::from(storage.log_syncs()));
        encode_each(encoder, &COMMIT_LOG, &log)?;
        let others = &context.settings.directories;
        let others = [Some(&others.hints), others.commit_log_archive.as_ref()];
        let others = others.into_iter().flatten().map(PathBuf::as_path);
        let directories: BTreeSet<&Path> = storage.directories().chain(others).collect();
        let disks = directories.into_iter().filter_map(|directory| {
            let labels = vec![("directory", directory.display().to_string())];
            Some((labels, machine::disk_bytes(directory)?))
        });
        encode_all(encoder, "disk", &DISKS, &disks.collect::<Vec<_>>())
    }

    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let (mut calls, mut failures) = (Vec::new(), Vec::new());
        for it in self.0.requests.calls() {
            let labels = vec![
                ("protocol", it.protocol.to_owned()),
                ("call", it.call.to_owned()),
                ("level", it.level.to_owned()),
            ];
            failures.extend(it.failures.iter().map(|(kind, count)| {
                ([labels.clone(), vec![("kind", (*kind).to_owned())]].concat(), *count)
            }));
            calls.push((labels, Times::from(it.operations)));
        }
        encode_all(encoder, "", &REQUESTS, &calls)?;
        encode_all(encoder, "request", &FAILURES, &failures)
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
    for measure in measures.iter().filter(|_| !all.is_empty()) {
        let name = measure.full_name(group);
        let kind = measure.value.kind();
        let mut encoder = encoder.encode_descriptor(&name, measure.help, None, kind)?;
        for (labels, it) in all.iter().filter(|(_, it)| measure.value.is_known(it.borrow())) {
            measure.value.encode(it.borrow(), encoder.encode_family(labels)?)?;
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
        value.encode(of, encoder.encode_descriptor(name, help, None, value.kind())?)?;
    }
    Ok(())
}

impl<T> Value<T> {
    /// False for the latencies of what was never done: those of many things are many series.
    fn is_known(&self, of: &T) -> bool {
        !matches!(self, Self::Times(times) if times(of).totals.recorded == 0)
    }

    fn encode(&self, of: &T, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(value) => ConstCounter::new(value(of)).encode(encoder),
            Self::Seconds(value) => ConstCounter::new(value(of)).encode(encoder),
            Self::Gauge(value) => ConstGauge::new(value(of)).encode(encoder),
            Self::Times(value) => {
                let Times { totals, histogram } = value(of);
                let seconds = totals.recorded_nanos as f64 / 1e9;
                let buckets = buckets(histogram);
                let count = buckets.iter().map(|(_, count)| count).sum();
                encoder.encode_histogram::<NoLabelSet>(seconds, count, &buckets, None)
            }
        }
    }
}

/// Upper bounds in seconds, and the operations between each of them and the one before. Four
/// buckets of the histogram are one here: bounds that double tell enough, and each is a series.
fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let all = histogram.buckets();
    let joined = all.chunks(JOINED_BUCKETS).zip(BUCKET_OFFSETS.chunks(JOINED_BUCKETS));
    let joined = joined.map(|(counts, micros)| {
        let bound = micros.last().filter(|_| counts.len() == micros.len());
        (bound.map_or(f64::INFINITY, |micros| *micros as f64 / 1e6), counts.iter().sum())
    });
    joined.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::operations::Operations;
    use std::time::Duration;

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
    fn buckets_are_joined_and_the_last_has_no_bound() {
        let operations = Operations::default();
        for micros in [3, 3, 4, 600_000, 60_000_000] {
            operations.record(Duration::from_micros(micros));
        }
        let buckets = buckets(&operations.histogram());
        let used: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).collect();
        let expected = [(0.000_004, 2), (0.000_008, 1), (1.041_776, 1), (f64::INFINITY, 1)];
        assert_eq!(used, expected.iter().collect::<Vec<_>>());
        assert!(buckets.is_sorted_by(|(one, _), (next, _)| one < next));
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
