//! Properties of tables.

use super::super::ast::{Properties, Property};
use super::super::error::CqlError;
use crate::schema::PropertyValue;
use std::collections::BTreeMap;

/// The greatest time to live, in seconds: twenty years.
const MAX_TTL: i64 = 630_720_000;

/// The greatest `int`.
const MAX_INT: i64 = 2_147_483_647;

/// Properties that are one constant, with their values if they are not set.
pub(in crate::cql) const DEFAULTS: &[(&str, Kind, &str)] = &[
    ("bloom_filter_fp_chance", Kind::Chance, "0.01"),
    ("cdc", Kind::Flag, "false"),
    ("comment", Kind::Text, ""),
    ("crc_check_chance", Kind::Chance, "1.0"),
    ("dclocal_read_repair_chance", Kind::Chance, "0.1"),
    ("default_time_to_live", Kind::Seconds { most: MAX_TTL }, "0"),
    ("gc_grace_seconds", Kind::Seconds { most: MAX_INT }, "864000"),
    ("max_index_interval", Kind::Interval, "2048"),
    ("memtable_flush_period_in_ms", Kind::Seconds { most: MAX_INT }, "0"),
    ("min_index_interval", Kind::Interval, "128"),
    ("read_repair_chance", Kind::Chance, "0.0"),
    ("speculative_retry", Kind::Retry, "99PERCENTILE"),
];

/// Properties that are maps, with their entries if they are not set. Those of the compaction are
/// shown beside others that are set.
pub(in crate::cql) const MAPS: [(&str, &[(&str, &str)]); 3] = [
    ("caching", &[("keys", "ALL"), ("rows_per_partition", "NONE")]),
    (
        "compaction",
        &[
            ("class", "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"),
            ("max_threshold", "32"),
            ("min_threshold", "4"),
        ],
    ),
    (
        "compression",
        &[
            ("chunk_length_in_kb", "64"),
            ("class", "org.apache.cassandra.io.compress.LZ4Compressor"),
        ],
    ),
];

/// Values that a property can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cql) enum Kind {
    Text,
    Flag,
    /// From 0 to 1.
    Chance,
    /// A whole number from 0.
    Seconds {
        most: i64,
    },
    /// A whole number from 1.
    Interval,
    Retry,
}

impl Kind {
    /// The value of a column of `system_schema.tables`.
    pub(in crate::cql) fn encode(self, text: &str) -> Vec<u8> {
        match self {
            Self::Text | Self::Retry => text.as_bytes().to_vec(),
            Self::Flag => vec![u8::from(is_true(text))],
            Self::Chance => text.parse::<f64>().unwrap_or_default().to_be_bytes().to_vec(),
            Self::Seconds { .. } | Self::Interval => {
                text.parse::<i32>().unwrap_or_default().to_be_bytes().to_vec()
            }
        }
    }
}

/// Sets properties, which replace those of the same names.
pub(super) fn set(
    given: &Properties,
    properties: &mut BTreeMap<String, PropertyValue>,
) -> Result<(), CqlError> {
    for (name, value) in given {
        let value = match value {
            Property::Text(text) => PropertyValue::Text(constant(name, text)?),
            Property::Map(entries) => PropertyValue::Map(map(name, entries)?),
        };
        properties.insert(name.clone(), value);
    }
    let interval = |name: &str, default: i64| match properties.get(name) {
        Some(PropertyValue::Text(text)) => text.parse().unwrap_or(default),
        _ => default,
    };
    let (min, max) = (interval("min_index_interval", 128), interval("max_index_interval", 2048));
    if max < min {
        return Err(CqlError::config(format!(
            "max_index_interval must be greater than or equal to min_index_interval ({min}) \
             (got {max})."
        )));
    }
    Ok(())
}

/// Whether a text means true.
pub(super) fn is_true(text: &str) -> bool {
    ["true", "1", "yes"].contains(&text.to_ascii_lowercase().as_str())
}

fn unknown(name: &str) -> CqlError {
    CqlError::syntax(format!("Unknown property '{name}'"))
}

fn constant(name: &str, text: &str) -> Result<String, CqlError> {
    let known = DEFAULTS.iter().find(|(known, ..)| *known == name);
    let Some((_, kind, _)) = known else {
        return Err(if MAPS.iter().any(|(map, _)| *map == name) {
            CqlError::syntax(format!("Invalid value for property '{name}'. It should be a map."))
        } else {
            unknown(name)
        });
    };
    match kind {
        Kind::Text => Ok(text.to_owned()),
        Kind::Flag => Ok(is_true(text).to_string()),
        Kind::Retry => retry(text),
        Kind::Chance => chance(name, text),
        Kind::Seconds { most } => {
            let number = whole(name, text)?;
            let bound = |what: &str, bound: i64| {
                CqlError::config(format!(
                    "{name} must be {what} than or equal to {bound} (got {number})"
                ))
            };
            if number < 0 {
                return Err(bound("greater", 0));
            }
            if number > *most { Err(bound("less", *most)) } else { Ok(number.to_string()) }
        }
        Kind::Interval => match whole(name, text)? {
            number if number >= 1 => Ok(number.to_string()),
            number => Err(CqlError::config(format!(
                "{name} must be greater than or equal to 1 (got {number})"
            ))),
        },
    }
}

fn whole(name: &str, text: &str) -> Result<i64, CqlError> {
    let number = text.parse::<i32>().map(i64::from);
    number.map_err(|_| CqlError::syntax(format!("Invalid integer value {text} for '{name}'")))
}

fn chance(name: &str, text: &str) -> Result<String, CqlError> {
    let number = text.parse::<f64>().ok().filter(|it| it.is_finite());
    let invalid = || CqlError::syntax(format!("Invalid double value {text} for '{name}'"));
    let number = number.ok_or_else(invalid)?;
    if (0.0..=1.0).contains(&number) {
        return Ok(format!("{number:?}"));
    }
    Err(CqlError::config(format!(
        "{name} must be larger than or equal to 0 and smaller than or equal to 1.0 (got {number:?})"
    )))
}

/// `ALWAYS`, `NONE`, a percentile or milliseconds, which are only kept: SpeculativeRetry of the
/// configuration counts.
fn retry(text: &str) -> Result<String, CqlError> {
    let upper = text.to_ascii_uppercase();
    let number = |suffix: &str| {
        let digits = upper.strip_suffix(suffix)?;
        digits.parse::<f64>().ok().filter(|it| *it >= 0.0)
    };
    let percentile = number("PERCENTILE").or_else(|| number("P"));
    let is_valid = ["ALWAYS", "NONE"].contains(&upper.as_str())
        || percentile.is_some_and(|it| it <= 100.0)
        || number("MS").is_some();
    if is_valid {
        return Ok(upper.replace("MS", "ms"));
    }
    Err(CqlError::config(format!("Invalid value {text} for option 'speculative_retry'")))
}

fn map(name: &str, entries: &[(String, String)]) -> Result<BTreeMap<String, String>, CqlError> {
    let entries: BTreeMap<String, String> = entries.iter().cloned().collect();
    match name {
        "compaction" => compaction(entries),
        "compression" => compression(entries),
        "caching" => caching(entries),
        _ if DEFAULTS.iter().any(|(known, ..)| *known == name) => Err(CqlError::syntax(format!(
            "Invalid value for property '{name}'. It should be a string"
        ))),
        _ => Err(unknown(name)),
    }
}

/// Options of all compaction strategies.
const COMPACTION_OPTIONS: [&str; 8] = [
    "enabled",
    "log_all",
    "max_threshold",
    "min_threshold",
    "only_purge_repaired_tombstones",
    "tombstone_compaction_interval",
    "tombstone_threshold",
    "unchecked_tombstone_compaction",
];

/// Compaction strategies with options of their own. The last one works as the first here.
const COMPACTIONS: [(&str, &[&str]); 3] = [
    ("SizeTieredCompactionStrategy", &["bucket_high", "bucket_low", "min_sstable_size"]),
    ("LeveledCompactionStrategy", &["fanout_size", "single_sstable_uplevel", "sstable_size_in_mb"]),
    (
        "TimeWindowCompactionStrategy",
        &[
            "compaction_window_size",
            "compaction_window_unit",
            "timestamp_resolution",
            "unsafe_aggressive_sstable_expiration",
        ],
    ),
];

fn compaction(mut options: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CqlError> {
    const PACKAGE: &str = "org.apache.cassandra.db.compaction.";
    let Some(class) = options.remove("class") else {
        let why = "Missing sub-option 'class' for the 'compaction' option.";
        return Err(CqlError::config(why));
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    let Some((short, own)) = COMPACTIONS.iter().find(|(known, _)| *known == short) else {
        let full = if class.contains('.') { class.clone() } else { format!("{PACKAGE}{class}") };
        let why = format!("Unable to find compaction strategy class '{full}'");
        return Err(CqlError::config(why));
    };
    let is_known = |name: &str| COMPACTION_OPTIONS.contains(&name) || own.contains(&name);
    let others: Vec<&str> =
        options.keys().map(String::as_str).filter(|name| !is_known(name)).collect();
    if !others.is_empty() {
        return Err(CqlError::config(format!(
            "Properties specified [{}] are not understood by {short}",
            others.join(", ")
        )));
    }
    let number = |name: &str, default: i64| match options.get(name) {
        None => Ok(default),
        Some(text) => text
            .parse::<i32>()
            .map(i64::from)
            .map_err(|_| CqlError::config(format!("{name} must be an integer (got {text})"))),
    };
    let (min, max) = (number("min_threshold", 4)?, number("max_threshold", 32)?);
    if min < 2 {
        return Err(CqlError::config(format!(
            "Min compaction threshold cannot be less than 2 (got {min})"
        )));
    }
    if max != 0 && max < min {
        return Err(CqlError::config(format!(
            "Max compaction threshold cannot be less than min (got {max})"
        )));
    }
    options.insert("class".to_owned(), format!("{PACKAGE}{short}"));
    Ok(options)
}

/// Classes of compression. All but none are LZ4 here.
const COMPRESSORS: [&str; 4] =
    ["DeflateCompressor", "LZ4Compressor", "SnappyCompressor", "ZstdCompressor"];

fn compression(
    mut options: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    const PACKAGE: &str = "org.apache.cassandra.io.compress.";
    let config = |why: &str| Err(CqlError::config(why));
    let is_off = options.remove("enabled").is_some_and(|enabled| !is_true(&enabled));
    let off = || BTreeMap::from([("enabled".to_owned(), "false".to_owned())]);
    if is_off {
        return if options.is_empty() {
            Ok(off())
        } else {
            config("If the 'enabled' option is set to false no other options must be specified")
        };
    }
    if options.is_empty() {
        return Ok(off());
    }
    let old = options.remove("sstable_compression");
    let class = match (options.remove("class"), old) {
        (Some(_), Some(_)) => {
            return config(
                "The 'sstable_compression' option must not be used if the compression algorithm \
                 is already specified by the 'class' option",
            );
        }
        (Some(class), None) if class.is_empty() => {
            return config(
                "The 'class' option must not be empty. To disable compression use 'enabled' : \
                 false",
            );
        }
        (None, Some(class)) if class.is_empty() => return Ok(off()),
        (Some(class), None) | (None, Some(class)) => class,
        (None, None) => return config("Missing sub-option 'class' for the 'compression' option."),
    };
    let short = class.strip_prefix(PACKAGE).unwrap_or(&class);
    if !COMPRESSORS.contains(&short) {
        let full = if class.contains('.') { class.clone() } else { format!("{PACKAGE}{class}") };
        return config(&format!("Could not create Compression for type {full}"));
    }
    if let Some(old) = options.remove("chunk_length_kb")
        && options.insert("chunk_length_in_kb".to_owned(), old).is_some()
    {
        return config(
            "The 'chunk_length_kb' option must not be used if the chunk length is already \
             specified by the 'chunk_length_in_kb' option",
        );
    }
    let length = options.entry("chunk_length_in_kb".to_owned()).or_insert("64".to_owned());
    match length.parse::<i32>() {
        Ok(length) if length <= 0 => return config("Invalid negative or null chunk_length_in_kb"),
        Ok(length) if length & (length - 1) != 0 => {
            return config("chunk_length_in_kb must be a power of 2");
        }
        Ok(_) => {}
        Err(_) => return config("Invalid value for chunk_length_in_kb"),
    }
    let known = ["chunk_length_in_kb", "crc_check_chance", "min_compress_ratio"];
    if let Some(unknown) = options.keys().find(|name| !known.contains(&name.as_str())) {
        return config(&format!("Unknown compression options {unknown}"));
    }
    options.insert("class".to_owned(), format!("{PACKAGE}{short}"));
    Ok(options)
}

fn caching(mut options: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, CqlError> {
    for (name, value) in &options {
        let upper = value.to_ascii_uppercase();
        let is_valid = match name.as_str() {
            "keys" => ["ALL", "NONE"].contains(&upper.as_str()),
            "rows_per_partition" => {
                ["ALL", "NONE"].contains(&upper.as_str()) || value.parse::<u32>().is_ok()
            }
            _ => {
                let why = format!(
                    "Invalid caching sub-options {name}: only 'keys' and \
                    'rows_per_partition' are allowed"
                );
                return Err(CqlError::config(why));
            }
        };
        if !is_valid {
            let why = format!("Invalid value for caching sub-option '{name}': {value}");
            return Err(CqlError::config(why));
        }
    }
    for value in options.values_mut() {
        value.make_ascii_uppercase();
    }
    for (name, default) in [("keys", "ALL"), ("rows_per_partition", "NONE")] {
        options.entry(name.to_owned()).or_insert(default.to_owned());
    }
    Ok(options)
}
