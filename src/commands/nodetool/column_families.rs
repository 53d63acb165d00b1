//! Column families as text: what `cfstats`, `cfhistograms`, `compactionstats` and
//! `getcompactionthreshold` print.

use crate::admin::report::{
    Cache, Caches, Compaction, Compactions, Family, FamilyReport, KeyspaceReport, Latency,
    LatencyHistogram, LatencyReport, Thresholds,
};
use crate::storage::compaction::CompactionTotals;
use std::fmt::{Display, Write};

/// The lines of 0.6.
pub(super) fn render_keyspaces(keyspaces: &[KeyspaceReport]) -> String {
    keyspaces.iter().map(render_keyspace).collect()
}

fn render_keyspace(keyspace: &KeyspaceReport) -> String {
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
    let Caches { key_cache, row_cache } = &family.caches;
    for (name, cache) in [("Key cache", key_cache), ("Row cache", row_cache)] {
        match cache {
            Some(cache) => {
                line(&format!("{name} capacity"), &cache.stats.capacity);
                line(&format!("{name} size"), &cache.stats.size);
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

/// The layout of 0.6.
pub(super) fn render_histograms(reports: &[LatencyReport], since_start: bool) -> String {
    reports.iter().map(|report| render_histogram(report, since_start)).collect()
}

fn render_histogram(report: &LatencyReport, since_start: bool) -> String {
    let LatencyReport { family, offsets_micros, reads, writes, .. } = report;
    let Family { keyspace, column_family } = family;
    let mut text = format!("{keyspace}/{column_family} read/write latency histogram:\n");
    let _ = writeln!(text, "{:<10}{:>18}{:>18}", "Bucket", "Read", "Write");
    let chosen = |histogram: &LatencyHistogram| {
        if since_start { histogram.all.clone() } else { histogram.recent.clone() }
    };
    // As of old, what took longer than all offsets is not shown.
    for ((offset, read), write) in offsets_micros.iter().zip(chosen(reads)).zip(chosen(writes)) {
        let _ = writeln!(text, "{offset:<10}{read:>18}{write:>18}");
    }
    text
}

/// Running and due compactions.
pub(super) fn render_compactions(compactions: &Compactions) -> String {
    let pending: usize = compactions.pending.iter().map(|pending| pending.count).sum();
    let mut text = format!("pending tasks: {pending}\n");
    for waiting in &compactions.pending {
        let _ = writeln!(text, "  {}: {}", waiting.family, waiting.count);
    }
    let CompactionTotals { completed, failed, bytes_in, bytes_out } = compactions.totals;
    let _ = writeln!(
        text,
        "completed: {completed} ({bytes_in} bytes to {bytes_out}), failed: {failed}"
    );
    if compactions.running.is_empty() {
        return text;
    }
    let mut line = |cells: [&str; 7]| {
        let [kind, family, read, total, progress, files, seconds] = cells;
        let _ = writeln!(
            text,
            "{kind:<10} {family:<32} {read:>15} {total:>15} {progress:>9} {files:>6} {seconds:>8}"
        );
    };
    line(["type", "column family", "bytes read", "bytes total", "progress", "files", "seconds"]);
    for running in &compactions.running {
        line([
            &running.kind,
            &running.family.to_string(),
            &running.bytes_read.to_string(),
            &running.bytes_total.to_string(),
            &progress(running),
            &running.inputs.len().to_string(),
            &running.running_seconds.to_string(),
        ]);
    }
    text
}

/// Part of the inputs that was read.
fn progress(running: &Compaction) -> String {
    let share = running.bytes_read as f64 / running.bytes_total.max(1) as f64;
    format!("{:.2}%", share.min(1.0) * 100.0)
}

/// The line of 0.6 for the thresholds of most column families, and one for each that differs.
pub(super) fn render_thresholds(thresholds: &[Thresholds]) -> String {
    let usual = thresholds.iter().max_by_key(|one| {
        thresholds.iter().filter(|other| (other.min, other.max) == (one.min, one.max)).count()
    });
    let Some(usual) = usual else { return String::new() };
    let mut text = format!("Current compaction threshold: Min={}, Max={}\n", usual.min, usual.max);
    for Thresholds { family, min, max } in thresholds {
        if (*min, *max) != (usual.min, usual.max) {
            let _ = writeln!(text, "{family}: Min={min}, Max={max}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::PendingCompactions;
    use crate::storage::caches::CacheStats;

    fn family(keyspace: &str, name: &str) -> Family {
        Family { keyspace: keyspace.into(), column_family: name.into() }
    }

    #[test]
    fn statistics_have_the_layout_of_0_6() {
        let of =
            |count, mean, recent| Latency { count, mean_micros: mean, recent_mean_micros: recent };
        let stats = CacheStats { capacity: 10_000, size: 1, bytes: 100, hits: 5, requests: 9 };
        let super2 = FamilyReport {
            column_family: "Super2".into(),
            sstables: 1,
            space_used_live_bytes: 383,
            space_used_total_bytes: 383,
            memtable_switches: 1,
            reads: of(4, Some(1.0), Some(1297.0)),
            writes: of(2, Some(1.0), None),
            caches: Caches {
                key_cache: None,
                row_cache: Some(Cache { stats, recent_hit_rate: Some(0.75) }),
            },
            row_max_bytes: 7,
            row_mean_bytes: 3,
            ..FamilyReport::default()
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
        assert_eq!(render_keyspace(&keyspace), expected);
    }

    #[test]
    fn histograms_have_the_layout_of_0_6() {
        let histogram =
            |recent: [u64; 4], all| LatencyHistogram { recent: recent.into(), all: vec![all; 4] };
        let report = LatencyReport {
            family: family("Keyspace1", "Standard1"),
            offsets_micros: vec![1, 2, 33_282_686],
            reads: histogram([0, 12, 3, 99], 7),
            range_reads: histogram([5; 4], 5),
            writes: histogram([4, 0, 0, 0], 8),
        };
        let expected = "\
            Keyspace1/Standard1 read/write latency histogram:\n\
            Bucket                  Read             Write\n\
            1                          0                 4\n\
            2                         12                 0\n\
            33282686                   3                 0\n";
        assert_eq!(render_histogram(&report, false), expected);
        let all = render_histogram(&report, true);
        assert!(all.ends_with("33282686                   7                 8\n"), "{all}");
    }

    #[test]
    fn running_compactions_are_a_table() {
        let running = Compaction {
            kind: "minor".into(),
            family: family("Keyspace1", "Standard1"),
            inputs: vec!["a".into(), "b".into()],
            bytes_total: 3000,
            bytes_read: 1000,
            running_seconds: 12,
            ..Compaction::default()
        };
        let mut compactions = Compactions {
            running: vec![running],
            pending: vec![PendingCompactions { family: family("Keyspace1", "Super1"), count: 2 }],
            totals: CompactionTotals { completed: 3, failed: 1, bytes_in: 400, bytes_out: 300 },
        };
        let head = "pending tasks: 2\n  Keyspace1.Super1: 2\n\
                    completed: 3 (400 bytes to 300), failed: 1\n";
        let text = render_compactions(&compactions);
        let (told, table) = text.split_at(head.len());
        assert_eq!(told, head);
        let cells: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[1], ["minor", "Keyspace1.Standard1", "1000", "3000", "33.33%", "2", "12"]);
        assert_eq!(table.lines().map(str::len).collect::<Vec<_>>(), [101, 101]);
        compactions.running.clear();
        assert_eq!(render_compactions(&compactions), head);
    }

    #[test]
    fn the_usual_thresholds_come_first() {
        let of = |name: &str, min, max| Thresholds { family: family("K", name), min, max };
        let all = [of("a", 2, 8), of("b", 4, 32), of("c", 4, 32)];
        let expected = "Current compaction threshold: Min=4, Max=32\nK.a: Min=2, Max=8\n";
        assert_eq!(render_thresholds(&all), expected);
    }
}
