//! The elements that only this server has. All are optional; Java nodes ignore them.

use super::document::{Document, MIB, Value};
use super::error::{ConfigError, Problem};
use super::settings::{
    CompactionStrategy, Compression, Release, ReplicationSettings, SpeculativeRetry,
};
use std::time::Duration;

/// `ThriftApiVersion`: by default that of the file.
pub(super) fn api_version(doc: &mut Document<'_>) -> Result<Release, ConfigError> {
    doc.find("ThriftApiVersion").map_or(Ok(doc.release), |value| release(&value))
}

/// The generation that a value names.
pub(super) fn release(value: &Value<'_>) -> Result<Release, ConfigError> {
    let release = Release::ALL.into_iter().find(|release| release.to_string() == value.text);
    let (element, allowed) = ("ThriftApiVersion", "0.4, 0.5, 0.6");
    release.ok_or_else(|| value.refuse(Problem::UnknownWord { element, allowed }))
}

/// `ThriftMaxMessageInMB` and `ThriftReceiveBudgetInMB`, in bytes. The budget holds at least one
/// message, or the largest could never arrive.
pub(super) fn message_limits(doc: &mut Document<'_>) -> Result<(u64, u64), ConfigError> {
    // Thrift counts the bytes of a frame in 31 bits.
    const MOST_MEGABYTES: u32 = 2047;
    const DEFAULT_BUDGET: u32 = 256;
    let message = match doc.find("ThriftMaxMessageInMB") {
        Some(value) => match doc.at_least(&value, 1)? {
            megabytes if megabytes <= MOST_MEGABYTES => megabytes,
            _ => return Err(value.refuse(Problem::OutOfBounds("at most 2047"))),
        },
        None => 64,
    };
    let budget = match doc.find("ThriftReceiveBudgetInMB") {
        Some(value) => match doc.at_least(&value, 1)? {
            megabytes if megabytes >= message => megabytes,
            _ => return Err(value.refuse(Problem::OutOfBounds("at least ThriftMaxMessageInMB"))),
        },
        None => DEFAULT_BUDGET.max(message),
    };
    Ok((u64::from(message) * MIB, u64::from(budget) * MIB))
}

/// `Compression` of the whole server.
pub(super) fn compression(doc: &mut Document<'_>) -> Result<Compression, ConfigError> {
    doc.find("Compression").map_or(Ok(Compression::Lz4), |value| compression_of(&value))
}

/// The compression that a value names.
pub(super) fn compression_of(value: &Value<'_>) -> Result<Compression, ConfigError> {
    let known = [Compression::Lz4, Compression::None];
    let found = known.into_iter().find(|c| c.to_string().eq_ignore_ascii_case(value.text));
    let (element, allowed) = ("Compression", "LZ4, None");
    found.ok_or_else(|| value.refuse(Problem::UnknownWord { element, allowed }))
}

/// `CompactionStrategy` of a column family.
pub(super) fn compaction_strategy(
    value: Option<Value<'_>>,
) -> Result<CompactionStrategy, ConfigError> {
    let Some(value) = value else { return Ok(CompactionStrategy::SizeTiered) };
    let known = [CompactionStrategy::SizeTiered, CompactionStrategy::Leveled];
    let found = known.into_iter().find(|c| c.to_string().eq_ignore_ascii_case(value.text));
    let (element, allowed) = ("CompactionStrategy", "SizeTiered, Leveled");
    found.ok_or_else(|| value.refuse(Problem::UnknownWord { element, allowed }))
}

/// Bytes per second of an element in MB per second; `None` for no limit, written 0.
pub(super) fn throughput(
    doc: &mut Document<'_>,
    name: &'static str,
    default: u32,
) -> Result<Option<u64>, ConfigError> {
    let megabytes = doc.integer(name, default, 0)?;
    Ok((megabytes > 0).then(|| u64::from(megabytes) * MIB))
}

/// Hints and speculative reads.
pub(super) fn replication(
    doc: &mut Document<'_>,
    do_consistency_checks: bool,
    hinted_handoff_enabled: bool,
) -> Result<ReplicationSettings, ConfigError> {
    const HOUR: u64 = 3600;
    let hint_max_hours = doc.integer("HintMaxAgeHours", 72, 1)?;
    let hint_max_megabytes = doc.integer("HintMaxSizeInMB", 10_240, 1)?;
    Ok(ReplicationSettings {
        do_consistency_checks,
        speculative_retry: speculative_retry(doc)?,
        hinted_handoff_enabled,
        hint_max_age: Duration::from_secs(u64::from(hint_max_hours) * HOUR),
        hint_max_bytes: u64::from(hint_max_megabytes) * MIB,
    })
}

fn speculative_retry(doc: &mut Document<'_>) -> Result<SpeculativeRetry, ConfigError> {
    let Some(value) = doc.find("SpeculativeRetry") else {
        return Ok(SpeculativeRetry::Percentile(99.0));
    };
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
            allowed: "none, or a percentile above p0 and below p100 such as p99",
        })),
    }
}
