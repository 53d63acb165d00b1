//! The texts of scripts: keys, columns, levels, and how rows are printed.

use alexandra::coordinator::ConsistencyLevel;
use alexandra::model::cell::Cell;
use alexandra::model::schema::ColumnFamilySchema;
use alexandra::model::version::RowVersion;
use std::time::Duration;

/// Longest list of rows that is printed whole.
const MAX_ROWS: usize = 12;

/// Bytes of a key, name or value: its text, `600B` for so many bytes, `0xff` for a byte.
pub(super) fn bytes(text: &str) -> Vec<u8> {
    if let Some(byte) = text.strip_prefix("0x").and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        return vec![byte];
    }
    match text.strip_suffix('B').and_then(|count| count.parse().ok()) {
        Some(count) => vec![b'v'; count],
        None => text.as_bytes().to_vec(),
    }
}

fn text(bytes: &[u8]) -> String {
    if bytes.len() > 9 && bytes.iter().all(|byte| *byte == b'v') {
        return format!("{}B", bytes.len());
    }
    String::from_utf8_lossy(bytes).into_owned()
}

/// The keys of an expression: one, or all from `a00..a19`.
pub(super) fn keys(expression: &str) -> Vec<String> {
    let Some((first, last)) = expression.split_once("..") else {
        return vec![expression.to_owned()];
    };
    let digits = first.trim_start_matches(|it: char| !it.is_ascii_digit());
    let prefix = &first[..first.len() - digits.len()];
    let range = (digits.parse::<usize>(), last[prefix.len()..].parse::<usize>());
    let (Ok(from), Ok(to)) = range else { return vec![expression.to_owned()] };
    (from..=to).map(|number| format!("{prefix}{number:0width$}", width = digits.len())).collect()
}

/// A value and its timestamp from `value@timestamp`.
pub(super) fn stamped(value: &str) -> Result<(Vec<u8>, i64), String> {
    let (value, at) = value.rsplit_once('@').unwrap_or((value, "1"));
    Ok((bytes(value), at.parse().map_err(|_| format!("{at} is no timestamp"))?))
}

/// The place of a column: `group/name` in a super column family.
pub(super) fn place<'n>(
    family: &ColumnFamilySchema,
    name: &'n str,
) -> Result<(&'n str, &'n str), String> {
    if family.is_super() {
        return name.split_once('/').ok_or_else(|| format!("{name} has no super column"));
    }
    Ok(("", name))
}

fn name(cell: &Cell) -> String {
    match text(cell.super_name()) {
        group if group.is_empty() => text(cell.name()),
        group => format!("{group}/{}", text(cell.name())),
    }
}

/// The columns that a client gets.
pub(super) fn columns<'c>(cells: impl IntoIterator<Item = &'c Cell>) -> String {
    let column = |cell: &Cell| format!("{}={}", name(cell), text(cell.value()));
    let columns: Vec<String> = cells.into_iter().map(column).collect();
    if columns.is_empty() { "no columns".to_owned() } else { shorten(&columns, " ") }
}

/// All that is stored of a row, with timestamps.
pub(super) fn version(version: &RowVersion) -> String {
    let row = (!version.deletion.is_none())
        .then(|| format!("row deleted @{}", version.deletion.marked_for_delete_at));
    let cell = |cell: &Cell| match cell.deletion() {
        Some(deletion) => format!("{} deleted @{}", name(cell), deletion.marked_for_delete_at),
        None => format!("{}={}@{}", name(cell), text(cell.value()), cell.timestamp()),
    };
    let all: Vec<String> = row.into_iter().chain(version.cells.iter().map(cell)).collect();
    if all.is_empty() { "nothing".to_owned() } else { shorten(&all, ", ") }
}

/// The lines, or how many there are and which come first and last.
pub(super) fn shorten(lines: &[String], separator: &str) -> String {
    match lines {
        [first, .., last] if lines.len() > MAX_ROWS => {
            format!("{} from {first} to {last}", lines.len())
        }
        _ => lines.join(separator),
    }
}

/// The end of a line about something that took this long.
pub(super) fn after(took: Duration) -> String {
    let millis = Duration::from_millis(took.as_millis() as u64);
    if millis.is_zero() { String::new() } else { format!(" (after {millis:?})") }
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let parse = |(unit, millis): (&str, u64)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_millis(count * millis))
    };
    units.into_iter().find_map(parse).ok_or_else(|| format!("{text} is no duration"))
}

pub(super) fn level(text: &str) -> Result<ConsistencyLevel, String> {
    Ok(match text {
        "ZERO" => ConsistencyLevel::Zero,
        "ANY" => ConsistencyLevel::Any,
        "ONE" => ConsistencyLevel::One,
        "TWO" => ConsistencyLevel::Two,
        "QUORUM" => ConsistencyLevel::Quorum,
        "DCQUORUM" => ConsistencyLevel::DcQuorum,
        "DCQUORUMSYNC" => ConsistencyLevel::DcQuorumSync,
        "ALL" => ConsistencyLevel::All,
        _ => return Err(format!("{text} is no consistency level")),
    })
}
