//! `alexandra stress compare`: the same load on two servers in turns, so that what disturbs the
//! machine for a while disturbs both.

use super::nodes::Nodes;
use super::report::Report;
use super::workload::Mix;
use super::{Load, Prepared, exit_code};
use crate::commands::output::Failure;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Length of a turn without a limit.
const TURN: Duration = Duration::from_secs(2);

/// Figures that are compared.
const NAMES: [&str; 3] = ["operations_per_second", "p50_ms", "p99_ms"];

type Figures = [f64; NAMES.len()];

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A server, or several of a cluster with commas between them
    #[arg(value_name = "A")]
    a: Nodes,

    /// The other server or cluster
    #[arg(value_name = "B")]
    b: Nodes,

    /// Operations, as without compare
    #[arg(value_name = "SCENARIO")]
    scenario: Mix,

    /// Turns of each server; a turn lasts 2 seconds without --duration and --operations
    #[arg(long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    rounds: u64,

    #[command(flatten)]
    load: Load,
}

pub(super) fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments { a, b, scenario, rounds, mut load } = arguments;
    if load.pace.operations.is_none() {
        load.pace.duration.get_or_insert(TURN);
    }
    let load = load.prepare(scenario);
    let nodes = [&a, &b];
    load.look(&nodes)?;
    if !load.output.json {
        say!("{}", head());
    }
    let mut figures: Vec<[Figures; 2]> = Vec::new();
    let mut is_well = true;
    for round in 0..rounds {
        let Some(reports) = run_round(&load, nodes, round)? else { break };
        for report in &reports {
            is_well &= report.is_well();
            report.failures().lines().for_each(|line| complain!("{line}"));
        }
        let pair = reports.each_ref().map(figures_of);
        if !load.output.json {
            say!("{}", line(&(round + 1).to_string(), &pair));
        }
        figures.push(pair);
    }
    if figures.is_empty() {
        return Err(Failure::new("no round has ended"));
    }
    let medians = [0, 1].map(|side| median(&figures, side));
    if load.output.json {
        let rounds: Vec<Value> = figures.iter().map(pair_json).collect();
        let [a, b] = nodes.map(Nodes::to_string);
        say!("{:#}", json!({ "a": a, "b": b, "rounds": rounds, "median": pair_json(&medians) }));
    } else {
        say!("{}", line("median", &medians));
    }
    Ok(exit_code(is_well, &load.output))
}

/// Runs the load on both, the one that was last in the round before first; `None` if the run was
/// interrupted.
fn run_round(
    load: &Prepared,
    nodes: [&Nodes; 2],
    round: u64,
) -> Result<Option<[Report; 2]>, Failure> {
    let turn = |nodes| load.run(nodes, &mut |_, _| ());
    let reports = if round.is_multiple_of(2) {
        let a = turn(nodes[0])?;
        [a, turn(nodes[1])?]
    } else {
        let b = turn(nodes[1])?;
        [turn(nodes[0])?, b]
    };
    Ok((!load.is_interrupted()).then_some(reports))
}

fn figures_of(report: &Report) -> Figures {
    let latency = report.latency();
    [report.operations_per_second, latency.p50, latency.p99]
}

/// Medians of the figures of one side.
fn median(rounds: &[[Figures; 2]], side: usize) -> Figures {
    std::array::from_fn(|figure| {
        let mut values: Vec<f64> = rounds.iter().map(|pair| pair[side][figure]).collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    })
}

/// Figures of B in multiples of those of A.
fn ratios([a, b]: &[Figures; 2]) -> Figures {
    std::array::from_fn(|figure| if a[figure] == 0.0 { 0.0 } else { b[figure] / a[figure] })
}

fn pair_json(pair: &[Figures; 2]) -> Value {
    let object = |figures: Figures| -> Value {
        let fields = NAMES.iter().zip(figures);
        fields.map(|(name, figure)| ((*name).to_owned(), Value::from(figure))).collect()
    };
    let [a, b] = *pair;
    json!({ "a": object(a), "b": object(b), "ratio": object(ratios(pair)) })
}

fn head() -> String {
    let titles = ["each second", "p50 ms", "p99 ms"];
    titles.iter().fold(format!("{:<6}", "round"), |text, title| {
        let [a, b] = ["A", "B"].map(|side| format!("{side} {title}"));
        format!("{text}{a:>14}{b:>14}{:>7}", "B/A")
    })
}

fn line(name: &str, pair: &[Figures; 2]) -> String {
    let figures = pair[0].iter().zip(pair[1]).zip(ratios(pair));
    figures.fold(format!("{name:<6}"), |text, ((a, b), ratio)| {
        format!("{text}{a:>14.3}{b:>14.3}{ratio:>7.2}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_round_does_not_change_the_ratio_of_medians() {
        let round = |a: f64, b: f64| [[a, 1.0, 0.0], [b, 2.0, 0.0]];
        let rounds = [round(100.0, 200.0), round(1.0, 200.0), round(100.0, 3.0)];
        let shown = |rounds: &[[Figures; 2]]| {
            let line = line("median", &[0, 1].map(|side| median(rounds, side)));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let text = "median 100.000 200.000 2.00 1.000 2.000 2.00 0.000 0.000 0.00";
        assert_eq!(shown(&rounds), text);
        assert!(shown(&rounds[..2]).starts_with("median 50.500 200.000 3.96 "));
    }
}
