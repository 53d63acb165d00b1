//! Texts that commands print: the node itself, operations and snapshots.

use crate::admin::report::{Collected, Info, OperationState, Pool, Received, Snapshot};
use crate::base::utc::UtcTime;
use crate::node::Drained;
use crate::repair::Progress;
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

/// Nothing, as in 0.6.
pub(super) fn nothing() -> Print {
    Box::new(|_| Ok(String::new().into()))
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
            family.column_family,
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

/// The table of `alexandra snapshot list`.
pub(super) fn render_snapshots(snapshots: &[Snapshot]) -> String {
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
    use super::super::progress;
    use super::*;
    use crate::admin::report::{Cache, Memory, Repaired};
    use crate::storage::caches::CacheStats;
    use crate::storage::database::{Trouble, TroubleKind};

    #[test]
    fn the_lines_of_old_come_first() {
        let mut info = Info {
            token: "131510143486491110558943625058112528951".into(),
            generation: 1_795_146_411,
            uptime_seconds: 28,
            load_bytes: 495,
            memory: Memory {
                resident_bytes: Some(12_593_397),
                limit_bytes: 512 << 20,
                memtables_bytes: 1 << 19,
                memtables_budget_bytes: 48 << 20,
                key_caches_bytes: 1 << 20,
                key_caches_budget_bytes: 2 << 20,
                row_caches_budget_bytes: 8 << 20,
                requests_bytes: 3 << 20,
                requests_budget_bytes: 112 << 20,
                ..Memory::default()
            },
            block_cache: Cache {
                stats: CacheStats { capacity: 32 << 20, ..CacheStats::default() },
                recent_hit_rate: None,
            },
            ..Info::default()
        };
        let expected = "131510143486491110558943625058112528951\n\
                        Load             : 495 bytes\n\
                        Generation No    : 1795146411\n\
                        Uptime (seconds) : 28\n\
                        Heap Memory (MB) : 12.01 / 512.00\n\
                        Memtables (MB)   : 0.50 / 48.00\n\
                        Key Caches (MB)  : 1.00 / 2.00\n\
                        Row Caches (MB)  : 0.00 / 8.00\n\
                        Requests (MB)    : 3.00 / 112.00\n\
                        Block Cache (MB) : 0.00 / 32.00\n";
        assert_eq!(render_info(&info), expected);
        let text = "takes no writes: the commit log has stopped".to_owned();
        info.troubles = vec![Trouble { kind: TroubleKind::LogStopped, text }];
        let expected =
            format!("{expected}Trouble          : takes no writes: the commit log has stopped\n");
        assert_eq!(render_info(&info), expected);
    }

    #[test]
    fn loads_have_at_most_two_decimals() {
        let cases = [(0, "0 bytes"), (1023, "1023 bytes"), (1024, "1 KB"), (34_478, "33.67 KB")];
        for (bytes, text) in cases {
            assert_eq!(load(bytes), text);
        }
        assert_eq!(load(3 << 29), "1.5 GB");
        assert_eq!(load(u64::MAX), "16777216 TB");
    }

    #[test]
    fn pools_have_the_layout_of_0_6() {
        let pool = |name: &str, completed| Pool {
            pool: name.to_owned(),
            active: 0,
            pending: 0,
            completed,
        };
        let expected = "\
            Pool Name                    Active   Pending      Completed\n\
            GMFD                              0         0              0\n\
            ROW-MUTATION-STAGE                0         0              7\n";
        assert_eq!(render_pools(&[pool("GMFD", 0), pool("ROW-MUTATION-STAGE", 7)]), expected);
    }

    #[test]
    fn what_was_done_is_told() {
        let state = OperationState {
            operation: "decommission".to_owned(),
            mode: "Decommissioned".to_owned(),
            seconds: 2.25,
            collected: vec![Collected {
                address: [10, 0, 0, 2].into(),
                progress: Progress {
                    ranges: 4,
                    ranges_done: 4,
                    rows: 7,
                    bytes: 900,
                    expected_rows: 0,
                },
            }],
            done: Some("this node has left".to_owned()),
            ..OperationState::default()
        };
        assert_eq!(
            render_operation(&state),
            "10.0.0.2 has collected 4 ranges: 7 rows, 900 bytes\n\
             decommission: this node has left, in 2.2 s\n"
        );
        assert_eq!(progress::brief(&state), "Decommissioned (4 of 4 ranges, 900 bytes)");
    }

    #[test]
    fn a_repair_tells_how_far_it_is_and_what_it_has_done() {
        let received = Received { address: [10, 0, 0, 3].into(), rows: 2, bytes: 410 };
        let mut state = OperationState {
            operation: "repair".to_owned(),
            mode: "Repairing Blog.Authors".to_owned(),
            seconds: 1.5,
            repaired: vec![Repaired {
                column_family: "Blog.Authors".to_owned(),
                ranges: 3,
                rows_read: 300,
                rows_differed: 2,
                bytes_differed: 200,
                received: vec![received],
            }],
            rows_hashed: 150,
            rows_to_hash: 300,
            done: Some("3 ranges".to_owned()),
            ..OperationState::default()
        };
        assert_eq!(
            progress::brief(&state),
            "Repairing Blog.Authors: 150 of about 300 rows read, 50 %"
        );
        (state.rows_hashed, state.rows_to_hash) = (0, 0);
        assert_eq!(progress::brief(&state), "Repairing Blog.Authors");
        assert_eq!(
            render_operation(&state),
            "Blog.Authors: 3 ranges compared, 300 rows read, 2 rows of 200 bytes differed\n\
             \u{20}   10.0.0.3 has got 2 rows, 410 bytes\n\
             repair: 3 ranges, in 1.5 s\n"
        );
    }
}
