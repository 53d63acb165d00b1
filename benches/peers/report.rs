//! Gathers measurements and prints them as tables.

use super::engine::Kind;
use std::fmt::Write as _;
use std::time::Duration;

/// Unit of a figure. Less is better for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Time,
    /// Bytes for each byte that the client gave.
    Factor,
}

/// One measurement of one engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Time on the clock for each operation, in nanoseconds; or the factor.
    pub(crate) figure: f64,
    /// CPU time of all threads for each operation, in nanoseconds.
    pub(crate) cpu: Option<f64>,
}

impl Sample {
    /// So much time for so many operations.
    pub(crate) fn of(wall: Duration, cpu: Duration, operations: u64) -> Self {
        let each = |time: Duration| time.as_nanos() as f64 / operations.max(1) as f64;
        Self { figure: each(wall), cpu: Some(each(cpu)) }
    }

    /// A factor.
    pub(crate) fn factor(bytes: u64, user_bytes: u64) -> Self {
        Self { figure: bytes as f64 / user_bytes as f64, cpu: None }
    }
}

#[derive(Debug)]
struct Line {
    name: String,
    unit: Unit,
    /// For each engine, in the order of the report.
    samples: Vec<Vec<Sample>>,
}

/// All lines so far.
#[derive(Debug)]
pub(crate) struct Report {
    engines: Vec<Kind>,
    lines: Vec<Line>,
}

impl Report {
    pub(crate) fn new(engines: &[Kind]) -> Self {
        Self { engines: engines.to_vec(), lines: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, unit: Unit, kind: Kind, sample: Sample) {
        let engine = self.engines.iter().position(|other| *other == kind);
        let engine = engine.expect("only engines of the report are measured");
        let line = self.lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
            let samples = vec![Vec::new(); self.engines.len()];
            self.lines.push(Line { name: name.to_owned(), unit, samples });
            self.lines.len() - 1
        });
        self.lines[line].samples[engine].push(sample);
    }

    /// The tables, in Markdown.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        let best = |samples: &[Sample]| least(samples.iter().map(|sample| sample.figure));
        let median = |samples: &[Sample]| middle(samples.iter().map(|sample| sample.figure));
        let cpu = |samples: &[Sample]| least(samples.iter().filter_map(|sample| sample.cpu));
        self.table(&mut out, "Time on the clock, best round", &best);
        self.table(&mut out, "Time on the clock, median round", &median);
        self.table(&mut out, "CPU time of all threads, best round", &cpu);
        out
    }

    fn table(&self, out: &mut String, title: &str, figure: &dyn Fn(&[Sample]) -> Option<f64>) {
        let names: Vec<_> = self.engines.iter().map(|kind| kind.name()).collect();
        let ours = self.engines.iter().position(|kind| *kind == Kind::Alexandra);
        let peers: Vec<_> = (0..names.len()).filter(|i| self.engines[*i].is_peer()).collect();
        let ratios = peers.iter().map(|i| format!("× {}", names[*i]));
        let heads: Vec<_> = names.iter().map(|name| (*name).to_owned()).chain(ratios).collect();
        let _ = writeln!(out, "\n{title}\n\n| | {} |", heads.join(" | "));
        let _ = writeln!(out, "|---{}|", "|---:".repeat(heads.len()));
        for line in &self.lines {
            let figures: Vec<_> = line.samples.iter().map(|samples| figure(samples)).collect();
            if figures.iter().all(Option::is_none) {
                continue;
            }
            let shown = figures.iter().map(|f| f.map_or("–".into(), |f| show(line.unit, f)));
            let ratios = peers.iter().map(|peer| {
                let ours = ours.and_then(|ours| figures[ours]);
                match (ours, figures[*peer]) {
                    (Some(ours), Some(theirs)) => format!("{:.2}", theirs / ours),
                    _ => "–".into(),
                }
            });
            let cells: Vec<_> = shown.chain(ratios).collect();
            let _ = writeln!(out, "| {} | {} |", line.name, cells.join(" | "));
        }
    }
}

fn least(figures: impl Iterator<Item = f64>) -> Option<f64> {
    figures.min_by(f64::total_cmp)
}

fn middle(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn show(unit: Unit, figure: f64) -> String {
    match unit {
        Unit::Factor => format!("{figure:.2}"),
        Unit::Time if figure < 1e3 => format!("{figure:.0} ns"),
        Unit::Time if figure < 1e5 => format!("{:.2} µs", figure / 1e3),
        Unit::Time if figure < 1e6 => format!("{:.0} µs", figure / 1e3),
        Unit::Time => format!("{:.1} ms", figure / 1e6),
    }
}
