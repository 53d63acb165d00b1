//! Costs and gains of compaction strategies on typical data: a simulation without disk, whose
//! figures are the same on every machine. `cargo bench --bench compaction`
//!
//! Memtables, SSTables and merges are those of the storage core in small: a table is a sorted list
//! of cells with their sizes, a read touches each table that holds something of its row, since
//! filters leave out the others. After each flush all merges that are due are done.
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use std::collections::HashMap;

/// Bytes of a memtable when it is flushed. Everything else is relative to this.
const FLUSH: u64 = 100_000;

/// Memtables of a run.
const FLUSHES: u64 = 1000;

/// Bytes of a cell, as on disk.
const CELL: u64 = 100;

/// Writes between two reads.
const READ_EVERY: u64 = 50;

/// A column of a row as one write left it; a greater number is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    row: u32,
    column: u32,
    number: u32,
}

#[derive(Debug, Clone)]
struct Table {
    /// Sorted; one for each column.
    cells: Vec<Cell>,
    level: usize,
    /// The newest cell.
    newest: u32,
}

impl Table {
    fn new(mut cells: Vec<Cell>, level: usize) -> Self {
        cells.sort_unstable_by_key(|c| (c.row, c.column, u32::MAX - c.number));
        cells.dedup_by_key(|c| (c.row, c.column));
        let newest = cells.iter().map(|c| c.number).max().unwrap_or(0);
        Self { cells, level, newest }
    }

    fn bytes(&self) -> u64 {
        self.cells.len() as u64 * CELL
    }

    fn row(&self, row: u32) -> &[Cell] {
        let start = self.cells.partition_point(|c| c.row < row);
        let end = self.cells.partition_point(|c| c.row <= row);
        &self.cells[start..end]
    }

    fn overlaps(&self, other: &Self) -> bool {
        let ends = |table: &Self| Some((table.cells.first()?.row, table.cells.last()?.row));
        match (ends(self), ends(other)) {
            (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
            _ => false,
        }
    }
}

/// Files to merge, and into what.
#[derive(Debug)]
struct Merge {
    inputs: Vec<usize>,
    level: usize,
    /// Bytes after which another table is begun.
    split: u64,
}

#[derive(Debug, Clone, Copy)]
enum Strategy {
    /// So many or more of similar size.
    SizeTiered(usize),
    /// Levels of tables that do not overlap, each ten times as large as the one above.
    Leveled,
    /// Size-tiered among those of one window of time, into one when the window is over.
    TimeWindow,
}

/// Flushed tables that are merged into the first level, or within a window.
const MIN_THRESHOLD: usize = 4;

/// Bytes of a table of a level, and of the first level.
const LEVELED_TABLE: u64 = 2 * FLUSH;
const FIRST_LEVEL: u64 = 10 * LEVELED_TABLE;

/// Cells of a window: a run has 25 of them.
const WINDOW: u32 = (FLUSHES * FLUSH / CELL / 25) as u32;

impl Strategy {
    fn next(self, tables: &[Table], now: u32) -> Option<Merge> {
        match self {
            Self::SizeTiered(least) => tier(tables, &(0..tables.len()).collect::<Vec<_>>(), least),
            Self::Leveled => level(tables),
            Self::TimeWindow => window(tables, now),
        }
    }
}

/// As the storage core does: between half and one and a half of the average.
fn tier(tables: &[Table], among: &[usize], least: usize) -> Option<Merge> {
    let mut sorted = among.to_vec();
    sorted.sort_by_key(|at| tables[*at].bytes());
    let mut buckets: Vec<Vec<usize>> = Vec::new();
    for at in sorted {
        let size = tables[at].bytes();
        let similar = buckets.last_mut().filter(|bucket| {
            let total: u64 = bucket.iter().map(|at| tables[*at].bytes()).sum();
            let average = total / bucket.len() as u64;
            size * 2 < average * 3 || size < FLUSH
        });
        match similar {
            Some(bucket) => bucket.push(at),
            None => buckets.push(vec![at]),
        }
    }
    let inputs = buckets.into_iter().find(|bucket| bucket.len() >= least)?;
    Some(Merge { inputs, level: 0, split: u64::MAX })
}

fn level(tables: &[Table]) -> Option<Merge> {
    let of = |level: usize| (0..tables.len()).filter(move |at| tables[*at].level == level);
    let mut inputs: Vec<usize> = of(0).collect();
    let mut target = 1;
    if inputs.len() < MIN_THRESHOLD {
        let bytes = |level| of(level).map(|at| tables[at].bytes()).sum::<u64>();
        let most = |level: usize| FIRST_LEVEL * 10_u64.pow(level as u32 - 1);
        let full = (1..8).find(|level| bytes(*level) > most(*level))?;
        // The one that meets least of the next level for its size.
        let met = |at: usize| of(full + 1).filter(|o| tables[at].overlaps(&tables[*o])).count();
        inputs = vec![of(full).min_by_key(|at| met(*at))?];
        target = full + 1;
    }
    let next = of(target).filter(|o| inputs.iter().any(|at| tables[*at].overlaps(&tables[*o])));
    let below: Vec<usize> = next.collect();
    inputs.extend(below);
    Some(Merge { inputs, level: target, split: LEVELED_TABLE })
}

fn window(tables: &[Table], now: u32) -> Option<Merge> {
    let mut windows: HashMap<u32, Vec<usize>> = HashMap::new();
    for (at, table) in tables.iter().enumerate() {
        windows.entry(table.newest / WINDOW).or_default().push(at);
    }
    let mut windows: Vec<_> = windows.into_iter().collect();
    windows.sort_unstable();
    windows.into_iter().find_map(|(window, inputs)| {
        if window == now / WINDOW {
            return tier(tables, &inputs, MIN_THRESHOLD);
        }
        (inputs.len() > 1).then_some(Merge { inputs, level: 0, split: u64::MAX })
    })
}

/// Data and how they are read.
#[derive(Debug, Clone, Copy)]
enum Workload {
    /// Rows of ten columns, written once; every third write goes to a row that is there already,
    /// mostly a young one. Read mostly young rows, whole.
    Blog,
    /// Two thousand rows that columns are appended to, some rows far more than others. Read: the
    /// ten newest columns of a row.
    TimeSeries,
    /// A hundred thousand columns that are written again and again. Read: any.
    Overwrites,
}

impl Workload {
    /// The next column that is written.
    fn write(self, number: u32, rng: &mut fastrand::Rng) -> (u32, u32) {
        let newest = number / 15;
        match self {
            Self::Blog if number % 3 == 2 => (young(newest, rng), 10 + rng.u32(..50)),
            Self::Blog => (scatter(newest), number % 15),
            Self::TimeSeries => ((2000.0 * rng.f64().powi(3)) as u32, number),
            Self::Overwrites => (rng.u32(..20_000), rng.u32(..5)),
        }
    }

    /// The row that is read.
    fn read(self, number: u32, rng: &mut fastrand::Rng) -> u32 {
        match self {
            Self::Blog => young(number / 15, rng),
            Self::TimeSeries => (2000.0 * rng.f64().powi(3)) as u32,
            Self::Overwrites => rng.u32(..20_000),
        }
    }
}

/// One of the rows up to the newest; half of the time one of the newest tenth.
fn young(newest: u32, rng: &mut fastrand::Rng) -> u32 {
    let oldest = if rng.bool() { newest - newest / 10 } else { 0 };
    scatter(rng.u32(oldest..=newest))
}

/// Rows lie in the order of their tokens.
fn scatter(row: u32) -> u32 {
    row.wrapping_mul(0x9e37_79b1)
}

#[derive(Debug, Default)]
struct Figures {
    written: u64,
    touched: Vec<usize>,
    needed: Vec<usize>,
    /// Bytes on disk and of what is not overwritten, at the worst moment.
    space: f64,
    largest_merge: u64,
}

fn run(workload: Workload, strategy: Strategy) -> Figures {
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut tables, mut memtable): (Vec<Table>, Vec<Cell>) = (Vec::new(), Vec::new());
    let mut live = std::collections::HashSet::new();
    let mut figures = Figures::default();
    for number in 0..(FLUSHES * FLUSH / CELL) as u32 {
        let (row, column) = workload.write(number, &mut rng);
        live.insert((row, column));
        memtable.push(Cell { row, column, number });
        // The beginning, when there is little, says little.
        let is_measured = u64::from(number) > FLUSHES * FLUSH / CELL / 4;
        if u64::from(number) % READ_EVERY == 0 && is_measured {
            read(&tables, workload.read(number, &mut rng), &mut figures);
        }
        if memtable.len() as u64 * CELL < FLUSH {
            continue;
        }
        let flushed = Table::new(std::mem::take(&mut memtable), 0);
        figures.written += flushed.bytes();
        tables.push(flushed);
        while let Some(merge) = strategy.next(&tables, number) {
            let space = merge_tables(&mut tables, merge, &mut figures);
            if is_measured {
                let live = live.len() as u64 * CELL;
                figures.space = figures.space.max(space as f64 / live as f64);
            }
        }
    }
    figures
}

fn read(tables: &[Table], row: u32, figures: &mut Figures) {
    let holders: Vec<&[Cell]> =
        tables.iter().map(|t| t.row(row)).filter(|r| !r.is_empty()).collect();
    let mut columns: Vec<u32> = holders.iter().flat_map(|row| *row).map(|c| c.column).collect();
    columns.sort_unstable();
    columns.dedup();
    let tenth = columns.len().saturating_sub(10);
    let from = columns.get(tenth).copied().unwrap_or(0);
    let needed = holders.iter().filter(|row| row.last().is_some_and(|c| c.column >= from)).count();
    figures.touched.push(holders.len());
    figures.needed.push(needed);
}

/// Returns the bytes on disk before the inputs are removed.
fn merge_tables(tables: &mut Vec<Table>, merge: Merge, figures: &mut Figures) -> u64 {
    let Merge { mut inputs, level, split } = merge;
    inputs.sort_unstable();
    let before: u64 = tables.iter().map(Table::bytes).sum();
    let taken: Vec<Table> = inputs.into_iter().rev().map(|at| tables.remove(at)).collect();
    let read: u64 = taken.iter().map(Table::bytes).sum();
    let merged = Table::new(taken.into_iter().flat_map(|table| table.cells).collect(), level);
    figures.written += merged.bytes();
    figures.largest_merge = figures.largest_merge.max(read);
    let space = before + merged.bytes();
    let mut cells = merged.cells.into_iter().peekable();
    while cells.peek().is_some() {
        let mut part: Vec<Cell> = Vec::new();
        while let Some(cell) = cells.next_if(|cell| {
            // A row is never divided.
            part.len() as u64 * CELL < split || part.last().is_some_and(|l| l.row == cell.row)
        }) {
            part.push(cell);
        }
        tables.push(Table::new(part, level));
    }
    space
}

fn mean_and_p99(mut counts: Vec<usize>) -> (f64, usize) {
    counts.sort_unstable();
    let mean = counts.iter().sum::<usize>() as f64 / counts.len() as f64;
    (mean, counts[counts.len() * 99 / 100])
}

/// The default, the same with the least threshold there is, and two others.
const STRATEGIES: [Strategy; 4] =
    [Strategy::SizeTiered(4), Strategy::SizeTiered(2), Strategy::Leveled, Strategy::TimeWindow];

fn main() {
    println!(
        "| data | strategy | written | touched | p99 | needed | p99 | space | largest merge |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for workload in [Workload::Blog, Workload::TimeSeries, Workload::Overwrites] {
        for strategy in STRATEGIES {
            let figures = run(workload, strategy);
            let written = figures.written as f64 / (FLUSHES * FLUSH) as f64;
            let (touched, needed) = (mean_and_p99(figures.touched), mean_and_p99(figures.needed));
            let reads =
                format!("{:.1} | {} | {:.1} | {}", touched.0, touched.1, needed.0, needed.1);
            let (space, largest) = (figures.space, figures.largest_merge / FLUSH);
            println!(
                "| {workload:?} | {strategy:?} | {written:.1} | {reads} | {space:.1} | {largest} |"
            );
        }
    }
}
