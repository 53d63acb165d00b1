//! `nodetool info`: the lines of 0.6, and behind them what the memory of this server consists of.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::Info;
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let info: Info = client.get("/api/v1/info")?;
    Ok(Output::new(&info, render(&info)))
}

fn render(info: &Info) -> String {
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
    line("Block Cache (MB)", &of(block_cache.size, block_cache.capacity));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::{Cache, Memory};
    use crate::storage::engine::{Trouble, TroubleKind};

    #[test]
    fn the_lines_of_old_come_first() {
        let mut info = Info {
            version: "1".into(),
            cluster_name: "Test".into(),
            partitioner: "RandomPartitioner".into(),
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
                row_caches_bytes: 0,
                row_caches_budget_bytes: 8 << 20,
                requests_bytes: 3 << 20,
                requests_budget_bytes: 112 << 20,
            },
            block_cache: Cache {
                capacity: 32 << 20,
                size: 0,
                bytes: 0,
                hits: 0,
                requests: 0,
                recent_hit_rate: None,
            },
            troubles: Vec::new(),
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
        assert_eq!(render(&info), expected);
        let text = "takes no writes: the commit log has stopped".to_owned();
        info.troubles = vec![Trouble { kind: TroubleKind::LogStopped, text }];
        let expected =
            format!("{expected}Trouble          : takes no writes: the commit log has stopped\n");
        assert_eq!(render(&info), expected);
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
}
