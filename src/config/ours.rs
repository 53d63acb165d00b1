//! The elements that only this server has. All are optional; Java nodes ignore them.

use super::document::{Document, MIB, Value, joined};
use super::error::{ConfigError, Problem};
use super::networks::{Network, PeerNetworks};
use super::settings::{
    CompactionStrategy, Compression, NetworkSettings, Release, ReplicationSettings,
    SpeculativeRetry,
};
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

/// `ThriftApiVersion`: by default that of the file.
pub(super) fn api_version(doc: &mut Document<'_>) -> Release {
    doc.setting("ThriftApiVersion", doc.release, release)
}

/// The generation that a value names.
pub(super) fn release(value: &Value<'_>) -> Result<Release, ConfigError> {
    one_of(value, Release::ALL, "ThriftApiVersion", &["0.4", "0.5", "0.6"])
}

/// The member of a set that a value names, in any letter case.
fn one_of<T: Display, const N: usize>(
    value: &Value<'_>,
    known: [T; N],
    element: &'static str,
    allowed: &'static [&'static str],
) -> Result<T, ConfigError> {
    let found = known.into_iter().find(|it| it.to_string().eq_ignore_ascii_case(value.text));
    found.ok_or_else(|| value.refuse(Problem::UnknownWord { element, allowed }))
}

/// `ThriftMaxMessageInMB` and `ThriftReceiveBudgetInMB`, in bytes, on a machine with as many bytes
/// of memory. The budget holds at least one message, or the largest could never arrive.
pub(super) fn message_limits(doc: &mut Document<'_>, machine: u64) -> (u64, u64) {
    // Thrift counts the bytes of a frame in 31 bits.
    const MOST_MEGABYTES: u32 = 2047;
    const DEFAULT_BUDGET: u32 = 256;
    let mut message = 64;
    if let Some(value) = doc.find("ThriftMaxMessageInMB") {
        message = doc.at_least(&value, 1).unwrap_or(message);
        if message > MOST_MEGABYTES {
            doc.refuse(value.refuse(Problem::OutOfBounds("at most 2047")));
        }
    }
    let mut budget = DEFAULT_BUDGET.max(message);
    if let Some(value) = doc.find("ThriftReceiveBudgetInMB") {
        budget = doc.at_least(&value, 1).unwrap_or(budget);
        if budget < message {
            doc.refuse(value.refuse(Problem::OutOfBounds("at least ThriftMaxMessageInMB")));
        }
        if u64::from(budget) * MIB > machine {
            doc.refuse(value.refuse(Problem::BeyondMemory(machine / MIB)));
        }
    }
    doc.show("ThriftMaxMessageInMB", message);
    doc.show("ThriftReceiveBudgetInMB", budget);
    (u64::from(message) * MIB, u64::from(budget) * MIB)
}

/// `PeerNetworks`: all if the element is absent.
pub(super) fn peer_networks(doc: &mut Document<'_>) -> PeerNetworks {
    let mut networks = Vec::new();
    for value in doc.list("PeerNetworks", "PeerNetwork") {
        let unknown = || {
            value.refuse(Problem::UnknownWord {
                element: "PeerNetwork",
                allowed: &["an address, or a network such as 10.1.0.0/16"],
            })
        };
        networks.extend(doc.accept(Network::parse(value.text).ok_or_else(unknown)));
    }
    doc.show("PeerNetworks", joined(&networks, "(all)"));
    PeerNetworks(networks)
}

/// Warns of seeds that `PeerNetworks` shuts out.
pub(super) fn check_peers(doc: &mut Document<'_>, network: &NetworkSettings, seeds: &[IpAddr]) {
    let Some(source) = doc.sources.get("PeerNetworks").copied() else { return };
    let is_out =
        |seed: &&IpAddr| **seed != network.listen_address && !network.peer_networks.admit(**seed);
    for seed in seeds.iter().filter(is_out) {
        let text = format!("the seed {seed} is in none of PeerNetworks, and may not connect");
        doc.notes.warn(source.line, text);
    }
}

/// `Compression` of the whole server.
pub(super) fn compression(doc: &mut Document<'_>) -> Compression {
    doc.setting("Compression", Compression::Lz4, compression_of)
}

/// The compression that a value names.
pub(super) fn compression_of(value: &Value<'_>) -> Result<Compression, ConfigError> {
    one_of(value, [Compression::Lz4, Compression::None], "Compression", &["LZ4", "None"])
}

/// The `CompactionStrategy` that a value names.
pub(super) fn compaction_strategy(value: &Value<'_>) -> Result<CompactionStrategy, ConfigError> {
    let known = [CompactionStrategy::SizeTiered, CompactionStrategy::Leveled];
    one_of(value, known, "CompactionStrategy", &["SizeTiered", "Leveled"])
}

/// Hints and speculative reads.
pub(super) fn replication(
    doc: &mut Document<'_>,
    do_consistency_checks: bool,
    hinted_handoff_enabled: bool,
) -> ReplicationSettings {
    const HOUR: u64 = 3600;
    let percentile = SpeculativeRetry::Percentile(99.0);
    ReplicationSettings {
        do_consistency_checks,
        speculative_retry: doc.setting("SpeculativeRetry", percentile, speculative_retry),
        hinted_handoff_enabled,
        hint_max_age: Duration::from_secs(u64::from(doc.integer("HintMaxAgeHours")) * HOUR),
        hint_max_bytes: doc.megabytes("HintMaxSizeInMB"),
    }
}

fn speculative_retry(value: &Value<'_>) -> Result<SpeculativeRetry, ConfigError> {
    if value.text.eq_ignore_ascii_case("none") {
        return Ok(SpeculativeRetry::Never);
    }
    let percentile = value.text.strip_prefix(['p', 'P']).and_then(super::document::parse_double);
    match percentile {
        Some(percentile) if percentile > 0.0 && percentile < 100.0 => {
            Ok(SpeculativeRetry::Percentile(percentile))
        }
        _ => Err(value.refuse(Problem::UnknownWord {
            element: "SpeculativeRetry",
            allowed: &["none", "a percentile above p0 and below p100 such as p99"],
        })),
    }
}
