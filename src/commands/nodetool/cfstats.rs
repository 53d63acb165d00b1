//! `nodetool cfstats`: the lines of 0.6.

use super::client::{Client, query};
use super::{NodetoolError, Output};
use crate::admin::report::{Cache, FamilyReport, KeyspaceReport, Latency};
use std::fmt::{Display, Write};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// All keyspaces without it
    keyspace: Option<String>,

    /// All of the keyspace without it
    column_family: Option<String>,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let Arguments { keyspace, column_family } = arguments;
    let parameters =
        [("keyspace", keyspace.as_deref()), ("column_family", column_family.as_deref())];
    let keyspaces: Vec<KeyspaceReport> = client.get(&query("/api/v1/cfstats", &parameters))?;
    let text = keyspaces.iter().map(render).collect();
    Ok(Output::new(&keyspaces, text))
}

fn render(keyspace: &KeyspaceReport) -> String {
    let KeyspaceReport { reads, writes, pending_flushes, .. } = keyspace;
    let mut text = format!("Keyspace: {}\n", keyspace.keyspace);
    let mut line = |name: &str, value: &dyn Display| {
        let _ = writeln!(text, "\t{name}: {value}");
    };
    line("Read Count", &reads.count);
    line("Read Latency", &lifetime(reads));
    line("Write Count", &writes.count);
    line("Write Latency", &lifetime(writes));
    line("Pending Tasks", pending_flushes);
    keyspace.column_families.iter().for_each(|family| render_family(&mut text, family));
    text.push_str("----------------\n");
    text
}

fn render_family(text: &mut String, family: &FamilyReport) {
    let mut line = |name: &str, value: &dyn Display| {
        let _ = writeln!(text, "\t\t{name}: {value}");
    };
    line("Column Family", &family.column_family);
    line("SSTable count", &family.sstables);
    line("Space used (live)", &family.space_used_live_bytes);
    line("Space used (total)", &family.space_used_total_bytes);
    line("Memtable Columns Count", &family.memtable_columns);
    line("Memtable Data Size", &family.memtable_bytes);
    line("Memtable Switch Count", &family.memtable_switches);
    line("Read Count", &family.reads.count);
    line("Read Latency", &recent(&family.reads));
    line("Write Count", &family.writes.count);
    line("Write Latency", &recent(&family.writes));
    line("Pending Tasks", &family.pending_flushes);
    for (name, cache) in [("Key cache", &family.key_cache), ("Row cache", &family.row_cache)] {
        match cache {
            Some(cache) => {
                line(&format!("{name} capacity"), &cache.capacity);
                line(&format!("{name} size"), &cache.size);
                line(&format!("{name} hit rate"), &hit_rate(cache));
            }
            None => line(name, &"disabled"),
        }
    }
    line("Compacted row minimum size", &family.row_min_bytes);
    line("Compacted row maximum size", &family.row_max_bytes);
    line("Compacted row mean size", &family.row_mean_bytes);
    if let Some(failure) = &family.failure {
        line("Takes no more writes", failure);
    }
    text.push('\n');
}

/// As Java writes a double: with a decimal point, `NaN` for none.
fn hit_rate(cache: &Cache) -> String {
    format!("{:?}", cache.recent_hit_rate.unwrap_or(f64::NAN))
}

/// The mean since the start, with all digits.
fn lifetime(latency: &Latency) -> String {
    format!("{:?} ms.", latency.mean_micros.map_or(f64::NAN, |micros| micros / 1000.0))
}

/// The mean of lately.
fn recent(latency: &Latency) -> String {
    format!("{:.3} ms.", latency.recent_mean_micros.map_or(f64::NAN, |micros| micros / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_0_6() {
        let of =
            |count, mean, recent| Latency { count, mean_micros: mean, recent_mean_micros: recent };
        let super2 = FamilyReport {
            column_family: "Super2".into(),
            sstables: 1,
            space_used_live_bytes: 383,
            space_used_total_bytes: 383,
            memtable_columns: 0,
            memtable_bytes: 0,
            memtable_memory_bytes: 0,
            memtable_switches: 1,
            reads: of(4, Some(1.0), Some(1297.0)),
            range_reads: of(0, None, None),
            writes: of(2, Some(1.0), None),
            pending_flushes: 0,
            key_cache: None,
            row_cache: Some(Cache {
                capacity: 10_000,
                size: 1,
                bytes: 100,
                hits: 5,
                requests: 9,
                recent_hit_rate: Some(0.75),
            }),
            rows: 1,
            row_min_bytes: 0,
            row_max_bytes: 7,
            row_mean_bytes: 3,
            failure: None,
        };
        let keyspace = KeyspaceReport {
            keyspace: "Keyspace1".into(),
            reads: of(10, Some(964.7), None),
            writes: of(0, None, None),
            pending_flushes: 0,
            column_families: vec![super2],
        };
        let expected = "Keyspace: Keyspace1\n\
            \tRead Count: 10\n\
            \tRead Latency: 0.9647 ms.\n\
            \tWrite Count: 0\n\
            \tWrite Latency: NaN ms.\n\
            \tPending Tasks: 0\n\
            \t\tColumn Family: Super2\n\
            \t\tSSTable count: 1\n\
            \t\tSpace used (live): 383\n\
            \t\tSpace used (total): 383\n\
            \t\tMemtable Columns Count: 0\n\
            \t\tMemtable Data Size: 0\n\
            \t\tMemtable Switch Count: 1\n\
            \t\tRead Count: 4\n\
            \t\tRead Latency: 1.297 ms.\n\
            \t\tWrite Count: 2\n\
            \t\tWrite Latency: NaN ms.\n\
            \t\tPending Tasks: 0\n\
            \t\tKey cache: disabled\n\
            \t\tRow cache capacity: 10000\n\
            \t\tRow cache size: 1\n\
            \t\tRow cache hit rate: 0.75\n\
            \t\tCompacted row minimum size: 0\n\
            \t\tCompacted row maximum size: 7\n\
            \t\tCompacted row mean size: 3\n\
            \n\
            ----------------\n";
        assert_eq!(render(&keyspace), expected);
    }
}
