//! `nodetool cfhistograms`: the layout of 0.6.

use super::client::{Client, query};
use super::{NodetoolError, Output};
use crate::admin::report::{LatencyHistogram, LatencyReport};
use std::fmt::Write;

/// What 0.6 says to too few or too many arguments.
const USAGE: &str = "Usage of cfhistograms: <keyspace> <column_family>.";

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Counts all since the start, instead of those of about the last minute
    #[arg(long)]
    since_start: bool,

    /// The keyspace and the column family
    #[arg(value_name = "KEYSPACE COLUMN_FAMILY")]
    names: Vec<String>,
}

pub(super) fn run(client: &Client, arguments: &Arguments) -> Result<Output, NodetoolError> {
    let [keyspace, family] = &arguments.names[..] else {
        return Err(NodetoolError::Usage(USAGE));
    };
    let parameters = [("keyspace", Some(&**keyspace)), ("column_family", Some(&**family))];
    let reports: Vec<LatencyReport> = client.get(&query("/api/v1/cfhistograms", &parameters))?;
    let text = reports.iter().map(|report| render(report, arguments.since_start)).collect();
    Ok(Output::new(&reports, text))
}

fn render(report: &LatencyReport, since_start: bool) -> String {
    let LatencyReport { keyspace, column_family, offsets_micros, reads, writes, .. } = report;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_0_6() {
        let histogram =
            |recent: [u64; 4], all| LatencyHistogram { recent: recent.into(), all: vec![all; 4] };
        let report = LatencyReport {
            keyspace: "Keyspace1".into(),
            column_family: "Standard1".into(),
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
        assert_eq!(render(&report, false), expected);
        let all = render(&report, true);
        assert!(all.ends_with("33282686                   7                 8\n"), "{all}");
    }
}
