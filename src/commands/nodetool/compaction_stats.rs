//! `nodetool compactionstats`: what is running, what is due. 0.6 had no such command.

use super::client::Client;
use super::{NodetoolError, Output};
use crate::admin::report::{Compaction, Compactions};
use std::fmt::Write;

pub(super) fn run(client: &Client) -> Result<Output, NodetoolError> {
    let compactions: Compactions = client.get("/api/v1/compactions")?;
    Ok(Output::new(&compactions, render(&compactions)))
}

fn render(compactions: &Compactions) -> String {
    let pending: usize = compactions.pending.iter().map(|pending| pending.count).sum();
    let mut text = format!("pending tasks: {pending}\n");
    for waiting in &compactions.pending {
        let (keyspace, family) = (&waiting.keyspace, &waiting.column_family);
        let _ = writeln!(text, "  {keyspace}.{family}: {}", waiting.count);
    }
    let Compactions { completed, failed, bytes_in, bytes_out, .. } = compactions;
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
            &format!("{}.{}", running.keyspace, running.column_family),
            &running.bytes_read.to_string(),
            &running.bytes_total.to_string(),
            &progress(running),
            &running.inputs.len().to_string(),
            &running.running_seconds.to_string(),
        ]);
    }
    text
}

/// What of the inputs was read.
fn progress(running: &Compaction) -> String {
    let share = running.bytes_read as f64 / running.bytes_total.max(1) as f64;
    format!("{:.2}%", share.min(1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::report::PendingCompactions;

    #[test]
    fn running_compactions_are_a_table() {
        let running = Compaction {
            id: 7,
            kind: "minor".into(),
            keyspace: "Keyspace1".into(),
            column_family: "Standard1".into(),
            inputs: vec!["a".into(), "b".into()],
            bytes_total: 3000,
            bytes_read: 1000,
            bytes_written: 800,
            rows: 5,
            running_seconds: 12,
        };
        let (keyspace, column_family) = ("Keyspace1".into(), "Super1".into());
        let mut compactions = Compactions {
            running: vec![running],
            pending: vec![PendingCompactions { keyspace, column_family, count: 2 }],
            completed: 3,
            failed: 1,
            bytes_in: 400,
            bytes_out: 300,
        };
        let head = "pending tasks: 2\n  Keyspace1.Super1: 2\n\
                    completed: 3 (400 bytes to 300), failed: 1\n";
        let text = render(&compactions);
        let (told, table) = text.split_at(head.len());
        assert_eq!(told, head);
        let cells: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells[1], ["minor", "Keyspace1.Standard1", "1000", "3000", "33.33%", "2", "12"]);
        assert_eq!(table.lines().map(str::len).collect::<Vec<_>>(), [101, 101]);
        compactions.running.clear();
        assert_eq!(render(&compactions), head);
    }
}
