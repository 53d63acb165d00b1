//! Options and output of `stress.py` of 0.6.

use super::nodes::{Nodes, Place};
use super::pace::Pace;
use super::rows::Rows;
use super::workload::{Access, Kind, Mix};
use super::{Load, Output, keys::Shape};
use crate::commands::output::Failure;
use crate::thrift::idl::ConsistencyLevel;
use clap::{CommandFactory, Parser, ValueEnum};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Puts load on servers, as the script of that name did
#[derive(Debug, Parser)]
#[command(name = "stress.py")]
struct Arguments {
    #[command(flatten)]
    data: Data,

    #[command(flatten)]
    work: Work,

    #[command(flatten)]
    servers: Servers,
}

#[derive(Debug, clap::Args)]
struct Data {
    /// Number of keys
    #[arg(short = 'n', long = "num-keys", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: u64,

    /// Fraction of keys to skip initially
    #[arg(short = 'N', long = "skip-keys", default_value_t = 0.0, value_parser = fraction)]
    skipped: f64,

    /// Number of columns per key
    #[arg(short = 'c', long, default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    columns: u64,

    /// Size of column values in bytes
    #[arg(short = 'S', long, default_value_t = 32)]
    column_size: usize,

    /// Number of super columns per key
    #[arg(short = 'u', long = "supercolumns", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    supers: u64,

    /// Column family type
    #[arg(short = 'y', long, value_enum, default_value_t = FamilyType::Regular)]
    family_type: FamilyType,
}

#[derive(Debug, clap::Args)]
struct Work {
    /// Operation to perform
    #[arg(short = 'o', long, value_enum, default_value_t = Operation::Insert)]
    operation: Operation,

    /// Number of threads to use
    #[arg(short = 't', long, default_value_t = 50,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    threads: u64,

    /// Standard deviation factor
    #[arg(short = 's', long, default_value_t = 0.1, value_parser = super::workload::positive)]
    stdev: f64,

    /// Use random key generator (stdev will have no effect)
    #[arg(short = 'r', long)]
    random: bool,

    /// Ignore errors inserting or reading
    #[arg(short = 'k', long = "keep-going")]
    ignores_errors: bool,

    /// Amount of keys to get_range_slice or multiget_slice per call
    #[arg(short = 'g', long = "get-range-slice-count", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    range_count: u64,
}

#[derive(Debug, clap::Args)]
struct Servers {
    /// Host nodes (comma separated)
    #[arg(short = 'd', long, default_value = "localhost")]
    nodes: Nodes,

    /// Thrift port
    #[arg(short = 'p', long, default_value_t = 9160)]
    port: u16,

    /// Use framed transport
    #[arg(short = 'm', long)]
    framed: bool,

    /// Write output to file
    #[arg(short = 'f', long)]
    file: Option<PathBuf>,

    /// Progress report interval (seconds)
    #[arg(short = 'i', long = "progress-interval", default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..))]
    interval: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FamilyType {
    Regular,
    Super,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Operation {
    Insert,
    Read,
    Rangeslice,
    /// Came with a later version of the script
    Multiget,
}

fn fraction(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it| (0.0..1.0).contains(it));
    number.ok_or_else(|| "it must be a number from 0 to below 1".to_owned())
}

/// The options of the script.
pub(in crate::commands) fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program under the name of the script.
pub(in crate::commands) fn run(arguments: Vec<OsString>) -> ExitCode {
    let parsed = match Arguments::try_parse_from(arguments) {
        Ok(parsed) => parsed,
        Err(error) => {
            // A failure of printing has no place to be reported.
            let _ = error.print();
            return ExitCode::from(error.exit_code() as u8);
        }
    };
    run_load(parsed).unwrap_or_else(|failure| failure.tell())
}

fn run_load(Arguments { data, work, servers }: Arguments) -> Result<ExitCode, Failure> {
    let Servers { nodes, port, framed, file, interval } = servers;
    let mut table = Table::open(file)?;
    let place = Place {
        port,
        framed,
        trust: None,
        keyspace: "Keyspace1".to_owned(),
        family: None,
        level: ConsistencyLevel::One,
        username: None,
        password: None,
    };
    let ignores_errors = work.ignores_errors;
    let output = Output { check: false, ignore_errors: ignores_errors, interval, json: false };
    let (mix, load) = load(&data, &work, place, output);
    let mut load = load.prepare(mix);
    load.ends_at_failure = !ignores_errors;
    load.look(&[&nodes])?;
    table.line("total,interval_op_rate,avg_latency,elapsed_time");
    let mut total = 0;
    let report = load.run(&nodes, &mut |part, end| {
        let all = part.tally.all();
        let operations = all.service.len() + all.failed;
        total += operations;
        let latency = match all.service.len() {
            0 => "NAN".to_owned(),
            _ => (all.service.mean() / 1e9).to_string(),
        };
        let rate = operations / u64::from(interval);
        table.line(&format!("{total},{rate},{latency},{}", end.as_secs()));
    })?;
    report.failures().lines().for_each(|line| complain!("{line}"));
    table.finish()?;
    Ok(super::exit_code(report.is_well(), &load.output))
}

/// The same load in the options of this program.
fn load(data: &Data, work: &Work, place: Place, output: Output) -> (Mix, Load) {
    let super_columns = if data.family_type == FamilyType::Super { data.supers } else { 0 };
    let (keys, columns, column_size) = (data.keys, data.columns, data.column_size);
    let rows = Rows { count: keys, columns, column_size, super_columns, of_old: true };
    let random = if work.random { Shape::Uniform } else { Shape::Gauss };
    let (kind, shape, batch, calls) = match work.operation {
        Operation::Insert => (Kind::Insert, Shape::Sequential, 1, keys),
        Operation::Read => (Kind::Read, random, 1, keys),
        Operation::Rangeslice => {
            (Kind::Range, Shape::Sequential, 1, keys.div_ceil(work.range_count))
        }
        Operation::Multiget => {
            (Kind::Read, random, work.range_count, keys.div_ceil(work.range_count))
        }
    };
    let skips = matches!(work.operation, Operation::Insert | Operation::Rangeslice);
    let skipped = if skips { (calls as f64 * data.skipped) as u64 } else { 0 };
    // A call reads one super column; inserts write all of them.
    let each = if kind == Kind::Insert { 1 } else { super_columns.max(1) };
    let access = Access {
        keys: Some(shape),
        stdev: work.stdev,
        exponent: 1.0,
        batch,
        slice: columns,
        range_rows: work.range_count,
        seed: 0,
    };
    let schedule = Pace {
        threads: work.threads,
        rate: None,
        duration: None,
        operations: Some((calls - skipped) * each),
        warmup: Duration::ZERO,
        skipped,
    };
    (Mix::of(kind), Load { place, rows, access, pace: schedule, output })
}

/// Where lines go: the standard output or a file.
struct Table {
    file: Option<(PathBuf, File)>,
    failure: Option<io::Error>,
}

impl Table {
    fn open(path: Option<PathBuf>) -> Result<Self, Failure> {
        let create = |path: PathBuf| match File::create(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => {
                Err(Failure::new(format_args!("cannot write to {}: {error}", path.display())))
            }
        };
        Ok(Self { file: path.map(create).transpose()?, failure: None })
    }

    fn line(&mut self, line: &str) {
        let Some((_, file)) = &mut self.file else {
            say!("{line}");
            return;
        };
        if let Err(error) = writeln!(file, "{line}") {
            self.failure.get_or_insert(error);
        }
    }

    /// Fails if a line could not be written.
    fn finish(self) -> Result<(), Failure> {
        let (Some((path, _)), Some(error)) = (self.file, self.failure) else { return Ok(()) };
        Err(Failure::new(format_args!("cannot write to {}: {error}", path.display())))
    }
}
