//! `alexandra stress`: puts load on servers over Thrift and reports throughput, latencies and
//! failures. Called `stress.py` it takes the options of that script of 0.6.
//!
//! ```text
//!   compare, of_old      two servers in turns; options and output of stress.py
//!     report             live lines, tables, JSON
//!       run              threads that take turns; tally: histograms and failures
//!         pace           when an operation is due, and the end
//!         workload       which operation it is; keys: distributions of rows
//!         calls          operations as Thrift calls; rows: names and values, and their check
//!         nodes          connections
//! ```

mod calls;
mod compare;
mod keys;
mod nodes;
mod of_old;
mod pace;
mod report;
mod rows;
mod run;
mod tally;
mod trouble;
mod workload;

use super::interrupt::stop_at_interrupt;
use super::output::{self, FAILED, Failure};
use calls::Calls;
use nodes::{Nodes, Place};
pub(super) use of_old::{command as command_of_old, run as run_of_old};
use pace::Pace;
use report::Report;
use rows::Rows;
use run::{Outcome, Watch};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use workload::{Access, Mix, Workload};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(super) struct Arguments {
    /// Operations: insert, read, get or range, or a mix of them with weights, as in
    /// read=9,insert=1
    #[arg(required = true, value_name = "SCENARIO")]
    scenario: Option<Mix>,

    /// Servers, with commas between them
    #[arg(short = 'd', long, value_name = "HOST[:PORT],...", default_value = "127.0.0.1")]
    nodes: Nodes,

    #[command(flatten)]
    load: Load,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Runs a scenario on two servers in turns and compares medians
    Compare(compare::Arguments),
}

/// An interval too short for a live line.
const SHORT: Duration = Duration::from_millis(10);

/// Options of a load, whatever it is put on.
#[derive(Debug, clap::Args)]
struct Load {
    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    rows: Rows,

    #[command(flatten)]
    access: Access,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    output: Output,
}

#[derive(Debug, clap::Args)]
struct Output {
    /// Compares what is read with what was written
    #[arg(long)]
    check: bool,

    /// Succeeds although operations fail
    #[arg(long)]
    ignore_errors: bool,

    /// Seconds between live lines on the standard error; 0 for none
    #[arg(short = 'i', long, value_name = "SECONDS", default_value_t = 1)]
    interval: u32,

    /// Prints the report as JSON
    #[arg(long)]
    json: bool,
}

/// A load that can be put on nodes.
struct Prepared {
    calls: Arc<Calls>,
    pace: Pace,
    output: Output,
    interrupted: Arc<AtomicBool>,
    ends_at_failure: bool,
}

impl Load {
    fn prepare(self, mix: Mix) -> Prepared {
        let Self { place, rows, access, pace, output } = self;
        let usual = if rows.super_columns > 0 { "Super1" } else { "Standard1" };
        let family = place.family.clone().unwrap_or_else(|| usual.to_owned());
        let workload = Workload::new(mix, rows, access);
        let pace = pace.limited(workload.pass());
        let calls = Arc::new(Calls { workload, place, family, checks: output.check });
        let interrupted = Arc::default();
        Prepared { calls, pace, output, interrupted, ends_at_failure: false }
    }
}

impl Prepared {
    /// Fails unless one of the nodes of each side answers and has the column family. Until then
    /// there is nothing to report, and Ctrl-C ends the program; then it ends the run.
    fn look(&self, sides: &[&Nodes]) -> Result<(), Failure> {
        let Calls { workload, place, family, .. } = &*self.calls;
        for nodes in sides {
            place.look(nodes, family, workload.rows.super_columns > 0)?;
        }
        stop_at_interrupt(Arc::clone(&self.interrupted));
        Ok(())
    }

    /// Runs the load, and tells of each interval and when it ended.
    fn run(
        &self,
        nodes: &Nodes,
        tell: &mut dyn FnMut(&Outcome, Duration),
    ) -> Result<Report, Failure> {
        let watch = Watch {
            interval: Duration::from_secs(self.output.interval.max(1).into()),
            tell,
            interrupted: &self.interrupted,
            ends_at_failure: self.ends_at_failure,
        };
        let outcome = run::run(&self.calls, nodes, &self.pace, watch)?;
        Ok(Report::new(&self.calls, nodes, &self.pace, &outcome))
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

fn exit_code(is_well: bool, output: &Output) -> ExitCode {
    let is_well = is_well || output.ignore_errors;
    let exit_code = if is_well { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    output::finish_telling(exit_code, FAILED)
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { scenario, nodes, load, command } = arguments;
    if let Some(Command::Compare(arguments)) = command {
        return compare::run(arguments);
    }
    let mix = scenario.ok_or_else(|| Failure::new("name a scenario, such as insert or read"))?;
    let load = load.prepare(mix);
    load.look(&[&nodes])?;
    let shows = load.output.interval > 0;
    let (mut operations, mut is_first) = (0, true);
    let report = load.run(&nodes, &mut |interval, end| {
        // There is nothing to tell of the warm-up, and of the rest after a full interval.
        if !shows || interval.time < SHORT {
            return;
        }
        if std::mem::take(&mut is_first) {
            complain!("{}", report::live_head());
        }
        operations += interval.tally.succeeded();
        complain!("{}", report::live_line(interval, end, operations));
    })?;
    if load.output.json {
        let json = serde_json::to_string_pretty(&report).map_err(Failure::new)?;
        say!("{json}");
    } else {
        output::text(&report.text());
    }
    Ok(exit_code(report.is_well(), &load.output))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;
    use clap::{Args, Command};

    #[test]
    fn the_manual_has_the_options() {
        let command = Arguments::augment_args(Command::new("stress"));
        let rows = command.get_arguments().filter(|it| !it.is_positional()).map(|option| {
            let short = option.get_short().map_or_else(String::new, |it| format!("`-{it}`, "));
            let takes_value = option.get_action().takes_values();
            let value = option.get_value_names().filter(|_| takes_value);
            let value = value.map_or_else(String::new, |names| format!(" {}", names[0]));
            let (long, help) = (option.get_long().unwrap(), option.get_help().unwrap());
            let defaults = option.get_default_values().iter().filter(|_| takes_value);
            let defaults: Vec<_> = defaults.map(|it| it.to_string_lossy()).collect();
            format!("| {short}`--{long}{value}` | {help} | {} |\n", defaults.join(" "))
        });
        let text = format!("| option | | default |\n|---|---|---|\n{}", rows.collect::<String>());
        check_part("docs/stress.md", "options", &text);
    }
}
