//! Texts that commands print: the node itself, operations and snapshots.

use crate::admin::report::{
    Collected, Info, OperationState, Pool, Slow, Snapshot, Stopped, Throughputs,
};
use crate::base::utc::UtcTime;
use crate::node::{Drained, Reloaded};
use crate::repair::{Progress, Received};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Error, Value, json};
use std::fmt::Write;

/// Text that a command prints.
#[derive(Debug)]
pub(super) struct Printed {
    /// Whole lines.
    pub(super) text: String,
    /// With `--json`; `None` for the answer as it is.
    pub(super) json: Option<Value>,
    /// Whether the answer is no failure: the exit code says so to scripts.
    pub(super) is_well: bool,
}

impl From<String> for Printed {
    fn from(text: String) -> Self {
        Self { text, json: None, is_well: true }
    }
}

/// Turns an answer into what is printed. It fails if the resource does not answer so.
pub(super) type Print = Box<dyn Fn(&Value) -> Result<Printed, Error>>;

/// The answer as this text.
pub(super) fn text<T: DeserializeOwned>(render: impl Fn(&T) -> String + 'static) -> Print {
    judged(render, |_| true)
}

/// The same for an answer that is a list.
pub(super) fn list<T: DeserializeOwned>(render: impl Fn(&[T]) -> String + 'static) -> Print {
    text(move |all: &Vec<T>| render(all))
}

/// The answer as this text, with the exit code of a failure unless it is well.
pub(super) fn judged<T: DeserializeOwned>(
    render: impl Fn(&T) -> String + 'static,
    is_well: impl Fn(&T) -> bool + 'static,
) -> Print {
    Box::new(move |answer| {
        let typed = T::deserialize(answer)?;
        Ok(Printed { is_well: is_well(&typed), ..render(&typed).into() })
    })
}

/// The compactions that were stopped.
pub(super) fn render_stopped(Stopped { stopped }: &Stopped) -> String {
    if stopped.is_empty() {
        return "no compaction was running\n".to_owned();
    }
    let numbers: Vec<String> = stopped.iter().map(ToString::to_string).collect();
    format!("stopped: {}\n", numbers.join(", "))
}

/// Nothing, as in 0.6.
pub(super) fn nothing() -> Print {
    Box::new(|_| Ok(String::new().into()))
}

/// The limit of compactions or streams.
pub(super) fn render_throughput(of: &str, throughputs: &Throughputs) -> String {
    let Throughputs { compaction, streams } = throughputs;
    match if of == "stream" { *streams } else { *compaction } {
        0 => format!("Current {of} throughput: no limit\n"),
        megabytes => format!("Current {of} throughput: {megabytes} MB/s\n"),
    }
}

/// Requests that took long, a line each, the last first.
pub(super) fn render_slow(slow: &Slow) -> String {
    let mut text = match slow.threshold_millis {
        Some(millis) => format!("Requests that took {millis} ms or more:\n"),
        None => "No slow requests are kept: see setslowthreshold\n".to_owned(),
    };
    for it in &slow.requests {
        let ended = UtcTime(it.ended_millis);
        let level = if it.level.is_empty() { String::new() } else { format!(" at {}", it.level) };
        let outcome = it.failure.as_ref().map_or_else(String::new, |why| format!(", {why}"));
        let _ = writeln!(
            text,
            "{ended} {} ms{outcome} {} {} {}{level} {}",
            it.took_millis, it.client, it.protocol, it.call, it.subject
        );
    }
    text
}

/// Changes by a reload.
pub(super) fn render_reloaded(reloaded: &Reloaded) -> String {
    let Reloaded { changed, added, altered, removed, needs_restart, notes } = reloaded;
    let parts = [
        ("changed", changed),
        ("added", added),
        ("altered", altered),
        ("removed", removed),
        ("changes with the next start", needs_restart),
        ("note", notes),
    ];
    let lines = parts.iter().flat_map(|(what, all)| all.iter().map(move |it| (what, it)));
    let mut text = String::new();
    for (what, it) in lines {
        let _ = writeln!(text, "{what}: {it}");
    }
    if text.is_empty() { "nothing has changed\n".to_owned() } else { text }
}

/// The lines of 0.6, and after them what the memory of this server consists of.
pub(super) fn render_info(info: &Info) -> String {
    let Info { token, generation, uptime_seconds, memory, block_cache, .. } = info;
    let resident = memory.resident_bytes.map_or_else(|| "?".to_owned(), megabytes);
    let mut text = format!("{token}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<17}: {value}");
    };
    let of = |used: u64, most: u64| format!("{} / {}", megabytes(used), megabytes(most));
    line("Load", &load(info.load_bytes));
    line("Generation No", &generation.to_string());
    line("Uptime (seconds)", &uptime_seconds.to_string());
    line("Heap Memory (MB)", &format!("{resident} / {}", megabytes(memory.limit_bytes)));
    line("Memtables (MB)", &of(memory.memtables_bytes, memory.memtables_budget_bytes));
    line("Key Caches (MB)", &of(memory.key_caches_bytes, memory.key_caches_budget_bytes));
    line("Row Caches (MB)", &of(memory.row_caches_bytes, memory.row_caches_budget_bytes));
    line("Requests (MB)", &of(memory.requests_bytes, memory.requests_budget_bytes));
    line("Block Cache (MB)", &of(block_cache.stats.size, block_cache.stats.capacity));
    for trouble in &info.troubles {
        line("Trouble", &trouble.text);
    }
    text
}

fn megabytes(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

/// A size as 0.6 writes it: in the largest unit of which there is one, with at most two decimals.
pub(super) fn load(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KB", "MB", "GB", "TB"];
    let mut size = bytes as f64;
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    let rounded = format!("{size:.2}");
    let short = rounded.trim_end_matches('0').trim_end_matches('.');
    format!("{short} {}", UNITS[unit])
}

/// 0.6 had none; later releases print the same line.
pub(super) fn version(answer: &Value) -> Result<Printed, Error> {
    let Info { version, .. } = Info::deserialize(answer)?;
    let json = Some(json!({ "version": version }));
    Ok(Printed { json, ..format!("ReleaseVersion: Alexandra {version}\n").into() })
}

/// The reasons why the node does not serve as it should.
pub(super) fn health(answer: &Value) -> Result<Printed, Error> {
    let Info { troubles, .. } = Info::deserialize(answer)?;
    let is_well = troubles.is_empty();
    let text = if is_well {
        "the node is well\n".to_owned()
    } else {
        troubles.iter().flat_map(|it| [&*it.text, "\n"]).collect()
    };
    let json = Some(json!({ "healthy": is_well, "troubles": troubles }));
    Ok(Printed { text, json, is_well })
}

/// The layout of 0.6, with those of its pools that something here corresponds to.
pub(super) fn render_pools(pools: &[Pool]) -> String {
    let mut text =
        format!("{:<25}{:>10}{:>10}{:>15}\n", "Pool Name", "Active", "Pending", "Completed");
    for Pool { pool, active, pending, completed } in pools {
        let _ = writeln!(text, "{pool:<25}{active:>10}{pending:>10}{completed:>15}");
    }
    text
}

/// Nothing, as in 0.6, if everything is on disk.
pub(super) fn render_drain(Drained { flushed, left }: &Drained) -> String {
    if *left == 0 {
        return String::new();
    }
    format!(
        "{flushed} memtables were written, but {left} could not be: the next start replays them \
         from the commit log. The log of the server says why\n"
    )
}

/// Result of an operation on the ring.
pub(super) fn render_operation(state: &OperationState) -> String {
    let mut text = String::new();
    for Collected { address, progress } in &state.collected {
        let Progress { ranges, rows, bytes, .. } = progress;
        let _ =
            writeln!(text, "{address} has collected {ranges} ranges: {rows} rows, {bytes} bytes");
    }
    for family in &state.repaired {
        let _ = writeln!(
            text,
            "{}: {} ranges compared, {} rows read, {} rows of {} bytes differed",
            family.family,
            family.ranges,
            family.rows_read,
            family.rows_differed,
            family.bytes_differed
        );
        for Received { address, rows, bytes } in &family.received {
            let _ = writeln!(text, "    {address} has got {rows} rows, {bytes} bytes");
        }
    }
    let done = state.done.as_deref().unwrap_or_default();
    let _ = writeln!(text, "{}: {done}, in {:.1} s", state.operation, state.seconds);
    text
}

/// Table of snapshots.
pub(in crate::commands) fn render_snapshots(snapshots: &[Snapshot]) -> String {
    if snapshots.is_empty() {
        return "no snapshot found\n".to_owned();
    }
    let mut text = String::new();
    let mut line = |[keyspace, name, taken, own, all]: [&str; 5]| {
        let _ = writeln!(text, "{keyspace:<20} {name:<40} {taken:<24} {own:>12} {all:>12}");
    };
    line(["Keyspace", "Snapshot", "Taken", "Own KB", "KB"]);
    for Snapshot { keyspace, name, taken_millis, exclusive_bytes, total_bytes, .. } in snapshots {
        let kilobytes = |bytes: &u64| bytes.div_ceil(1024).to_string();
        let taken = UtcTime(*taken_millis).to_string();
        line([keyspace, name, &taken, &kilobytes(exclusive_bytes), &kilobytes(total_bytes)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::load;

    #[test]
    fn loads_have_at_most_two_decimals() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KB"),
            (34_478, "33.67 KB"),
            (3 << 29, "1.5 GB"),
            (u64::MAX, "16777216 TB"),
        ] {
            assert_eq!(load(bytes), text);
        }
    }
}
