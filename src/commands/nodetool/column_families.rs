//! Column families as text: what `cfstats`, `cfhistograms`, `compactionstats`,
//! `getcompactionthreshold`, `toppartitions` and `widestrows` print.

use crate::admin::report::{
    BusyRow, BusyRows, Cache, Caches, Compaction, Compactions, Family, FamilyReport,
    KeyspaceReport, Latency, LatencyHistogram, LatencyReport, Sampled, Thresholds, WideRow,
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
    // As in 0.6, operations above all offsets are not shown.
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
    let mut line = |cells: [&str; 8]| {
        let [kind, family, read, total, progress, files, seconds, number] = cells;
        let _ = writeln!(
            text,
            "{kind:<10} {family:<32} {read:>15} {total:>15} {progress:>9} {files:>6} {seconds:>8} \
             {number:>6}"
        );
    };
    let [read, total, share] = ["bytes read", "bytes total", "progress"];
    line(["type", "column family", read, total, share, "files", "seconds", "number"]);
    for running in &compactions.running {
        line([
            &running.kind,
            &running.family.to_string(),
            &running.bytes_read.to_string(),
            &running.bytes_total.to_string(),
            &progress(running),
            &running.inputs.len().to_string(),
            &running.running_seconds.to_string(),
            &running.id.to_string(),
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

/// The busiest rows of each kind of operation.
pub(super) fn render_busy_rows(rows: &BusyRows) -> String {
    let BusyRows { duration_millis, reads, writes } = rows;
    let kinds = [("Reads", reads), ("Writes", writes)];
    let counted = kinds.into_iter().filter_map(|(name, rows)| Some((name, rows.as_ref()?)));
    let mut text = String::new();
    for (name, Sampled { operations, rows }) in counted {
        let _ = writeln!(text, "{name} in {duration_millis} ms: {operations}");
        if !rows.is_empty() {
            let [count, error, share] = ["count", "+/-", "share"];
            let _ =
                writeln!(text, "{count:>10} {error:>8} {share:>7}  {:<32} row", "column family");
        }
        for BusyRow { family, key, count, error } in rows {
            let share = *count as f64 / (*operations).max(1) as f64 * 100.0;
            let (family, key) = (family.to_string(), in_one_line(key));
            let _ = writeln!(text, "{count:>10} {error:>8} {share:>6.1}%  {family:<32} {key}");
        }
    }
    text
}

/// The rows that take the most room.
pub(super) fn render_widest_rows(rows: &[WideRow]) -> String {
    if rows.is_empty() {
        return "no row takes more than a kilobyte in SSTables\n".to_owned();
    }
    let [bytes, cells, sstables] = ["bytes", "columns", "sstables"];
    let mut text = format!("{bytes:>15} {cells:>12} {sstables:>8}  {:<32} row\n", "column family");
    for WideRow { family, key, bytes, cells, sstables } in rows {
        let cells = if *cells == 0 { "?".to_owned() } else { cells.to_string() };
        let (family, key) = (family.to_string(), in_one_line(key));
        let _ = writeln!(text, "{bytes:>15} {cells:>12} {sstables:>8}  {family:<32} {key}");
    }
    text
}

/// A key whose control characters do nothing to a terminal.
fn in_one_line(key: &str) -> String {
    let shown =
        |it: char| if it.is_control() { it.escape_default().to_string() } else { it.into() };
    key.chars().map(shown).collect()
}
