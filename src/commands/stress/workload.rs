//! Choice of operations: the kind by a mix, rows by a distribution, columns in slices.

use super::keys::{Keys, Shape, Zipf};
use super::rows::{Draft, Rows};
use fastrand::Rng;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Read,
    Get,
    Range,
}

const KINDS: [(&str, Kind); 4] =
    [("insert", Kind::Insert), ("read", Kind::Read), ("get", Kind::Get), ("range", Kind::Range)];

/// Kinds of operations and their weights.
#[derive(Debug, Clone)]
pub(super) struct Mix(Vec<(Kind, u32)>);

impl Mix {
    pub(super) fn of(kind: Kind) -> Self {
        Self(vec![(kind, 1)])
    }

    pub(super) fn kinds(&self) -> impl ExactSizeIterator<Item = Kind> {
        self.0.iter().map(|(kind, _)| *kind)
    }

    /// The place of a kind in the mix, by chance.
    fn choose(&self, rng: &mut Rng) -> usize {
        if self.0.len() == 1 {
            return 0;
        }
        let all: u32 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut point = rng.u32(..all);
        let is_there = |(_, weight): &(Kind, u32)| {
            let is_there = point < *weight;
            point = point.wrapping_sub(*weight);
            is_there
        };
        self.0.iter().position(is_there).unwrap_or(0)
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mix: Vec<(Kind, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
            let Some((_, kind)) = KINDS.iter().find(|(it, _)| *it == name) else {
                let known = KINDS.map(|(name, _)| name).join(", ");
                return Err(format!("there is no operation '{name}': the operations are {known}"));
            };
            let weight = weight.parse().ok().filter(|it| (1..=1_000_000).contains(it));
            let Some(weight) = weight else {
                return Err(format!("the weight of {name} must be a number from 1 to 1000000"));
            };
            if mix.iter().any(|(it, _)| it == kind) {
                return Err(format!("{name} has two weights"));
            }
            mix.push((*kind, weight));
        }
        Ok(Self(mix))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, weight)) in self.0.iter().enumerate() {
            let name = KINDS.iter().find(|(_, it)| it == kind).map_or("", |(name, _)| name);
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}")?;
            if self.0.len() > 1 {
                write!(f, "={weight}")?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Access {
    /// Distribution of the rows; sequential if there are only inserts, else uniform
    #[arg(short = 'k', long, value_enum, value_name = "DISTRIBUTION")]
    pub(super) keys: Option<Shape>,

    /// Standard deviation of gauss, as a share of all rows
    #[arg(short = 's', long, value_name = "SHARE", default_value_t = 0.1,
        value_parser = positive)]
    pub(super) stdev: f64,

    /// Exponent of zipf
    #[arg(long, value_name = "EXPONENT", default_value_t = 0.99, value_parser = positive)]
    pub(super) exponent: f64,

    /// Rows of an insert or read, with batch_mutate or multiget_slice if there are several
    #[arg(short = 'b', long, value_name = "ROWS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(super) batch: u64,

    /// Columns of each row that an operation writes or reads; rows with more are wide, and
    /// operations touch different parts of them
    #[arg(short = 'l', long, value_name = "COLUMNS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) slice: u64,

    /// Rows that a range reads
    #[arg(short = 'g', long, value_name = "ROWS", default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) range_rows: u64,

    /// Seed of all choices
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) seed: u64,
}

pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|it: &f64| it.is_finite() && *it > 0.0);
    number.ok_or_else(|| "it must be a number above 0".to_owned())
}

/// The operations of a run.
#[derive(Debug)]
pub(super) struct Workload {
    pub(super) mix: Mix,
    pub(super) rows: Rows,
    pub(super) access: Access,
    keys: Keys,
}

/// An operation.
#[derive(Debug)]
pub(super) struct Operation {
    /// The place of its kind in the mix.
    pub(super) place: usize,
    pub(super) kind: Kind,
    /// Those that it names.
    pub(super) rows: Vec<u64>,
    /// Of an insert: the same rows.
    pub(super) drafts: Vec<Draft>,
    pub(super) columns: Range<u64>,
    /// One of each row, for operations that touch but one.
    pub(super) super_column: u64,
}

impl Operation {
    pub(super) fn first_row(&self) -> u64 {
        self.rows.first().copied().unwrap_or_default()
    }
}

impl Workload {
    pub(super) fn new(mix: Mix, rows: Rows, access: Access) -> Self {
        let only_inserts = mix.kinds().all(|kind| kind == Kind::Insert);
        let usual = if only_inserts { Shape::Sequential } else { Shape::Uniform };
        let keys = match access.keys.unwrap_or(usual) {
            Shape::Sequential => Keys::Sequential,
            Shape::Uniform => Keys::Uniform,
            Shape::Gauss => Keys::Gauss(access.stdev),
            Shape::Zipf => Keys::Zipf(Zipf::new(rows.count, access.exponent)),
        };
        Self { mix, rows, access, keys }
    }

    /// Operations that write each row once; `None` if this is not what the workload does.
    pub(super) fn pass(&self) -> Option<u64> {
        let only_inserts = self.mix.kinds().all(|kind| kind == Kind::Insert);
        let is_pass = only_inserts && matches!(self.keys, Keys::Sequential);
        is_pass.then(|| self.steps(Kind::Insert) * self.slices())
    }

    /// The operation of a turn.
    pub(super) fn operation(&self, turn: u64, rng: &mut Rng) -> Operation {
        let place = self.mix.choose(rng);
        let kind = self.mix.0[place].0;
        let (count, slices) = (self.rows.count, self.slices());
        let named = if kind == Kind::Range { 1 } else { self.step(kind) };
        let (rows, slice): (Vec<u64>, u64) = if let Keys::Sequential = self.keys {
            let first = turn / slices % self.steps(kind) * self.step(kind);
            ((first..(first + named).min(count)).collect(), turn % slices)
        } else {
            let mut rows: Vec<u64> = (0..named).map(|_| self.keys.choose(count, rng)).collect();
            // A batch names a row once.
            rows.sort_unstable();
            rows.dedup();
            (rows, rng.u64(..slices))
        };
        let first = slice * self.access.slice;
        let mut columns = first..(first + self.access.slice).min(self.rows.columns);
        if kind == Kind::Get {
            columns.start = rng.u64(columns.clone());
            columns.end = columns.start + 1;
        }
        let super_column = rng.u64(..self.rows.super_columns.max(1));
        let drafted: &[u64] = if kind == Kind::Insert { &rows } else { &[] };
        let drafts = drafted.iter().map(|row| self.rows.draft(*row, &columns)).collect();
        Operation { place, kind, rows, drafts, columns, super_column }
    }

    /// Rows that an operation passes in their order.
    fn step(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Insert | Kind::Read => self.access.batch,
            Kind::Get => 1,
            Kind::Range => self.access.range_rows,
        }
    }

    fn steps(&self, kind: Kind) -> u64 {
        self.rows.count.div_ceil(self.step(kind))
    }

    /// Slices of a row.
    fn slices(&self) -> u64 {
        self.rows.columns.div_ceil(self.access.slice)
    }
}
