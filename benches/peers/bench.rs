//! Measures lines: one kind of work, done by one engine after the other, several times around.

use super::arguments::Arguments;
use super::engine::{Engine, Kind, Settings};
use super::machine;
use super::records::Records;
use super::report::{Report, Sample, Unit};
use alexandra::base::clock::{Clock, SystemClock};
use std::path::PathBuf;
use std::time::Duration;

/// A store that stays open for several lines.
pub(crate) struct Open {
    pub(crate) kind: Kind,
    pub(crate) engine: Box<dyn Engine>,
}

/// All that a line needs.
pub(crate) struct Bench {
    pub(crate) arguments: Arguments,
    pub(crate) records: Records,
    pub(crate) report: Report,
    clock: SystemClock,
    root: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new(arguments: Arguments) -> Self {
        let root = tempfile::tempdir_in(&arguments.directory).expect("a directory for the stores");
        Self {
            records: Records::new(arguments.records),
            report: Report::new(&arguments.engines),
            clock: SystemClock::new(),
            root,
            arguments,
        }
    }

    /// Whether the line was asked for.
    pub(crate) fn wants(&self, line: &str) -> bool {
        line.contains(&self.arguments.filter)
    }

    /// The engines in the order of a round: each is the first once, so that none profits.
    pub(crate) fn engines(&self, round: usize) -> Vec<Kind> {
        let mut engines = self.arguments.engines.clone();
        let first = round % engines.len();
        engines.rotate_left(first);
        engines
    }

    pub(crate) fn directory(&self, kind: Kind, purpose: &str) -> PathBuf {
        self.root.path().join(purpose).join(kind.name())
    }

    pub(crate) fn settings(&self, directory: PathBuf) -> Settings {
        Settings {
            directory,
            cache_bytes: 1 << 30,
            memtable_bytes: self.arguments.memtable_bytes,
            block_bytes: self.arguments.block_bytes,
            syncs: false,
        }
    }

    /// Time on the clock and CPU time of a piece of work, that in the background included which it
    /// left behind.
    pub(crate) fn time(&self, settles: bool, work: impl FnOnce()) -> (Duration, Duration) {
        let (began, cpu) = (self.clock.monotonic(), machine::cpu_time());
        work();
        let wall = self.clock.monotonic().saturating_sub(began);
        if settles {
            machine::wait_until_idle();
        }
        (wall, machine::cpu_time().saturating_sub(cpu))
    }

    /// A line of writes, each time into a fresh store.
    pub(crate) fn writes(
        &mut self,
        line: &str,
        syncs: bool,
        operations: u64,
        work: impl Fn(&dyn Engine, &Records),
    ) {
        if !self.wants(line) {
            return;
        }
        for round in 0..self.arguments.rounds {
            for kind in self.engines(round) {
                let directory = self.directory(kind, "writes");
                let settings = Settings { syncs, ..self.settings(directory.clone()) };
                let engine = kind.open(&settings);
                machine::wait_until_idle();
                let (wall, cpu) = self.time(true, || work(&*engine, &self.records));
                self.report.add(line, Unit::Time, kind, Sample::of(wall, cpu, operations));
                drop(engine);
                remove(&directory);
            }
        }
        eprintln!("{line}: done");
    }

    /// A line of reads from stores that are there. The work gets the number of the round.
    pub(crate) fn reads(
        &mut self,
        stores: &[Open],
        line: &str,
        operations: u64,
        work: impl Fn(&dyn Engine, &Records, u64),
    ) {
        if !self.wants(line) {
            return;
        }
        for round in 0..self.arguments.rounds {
            for kind in self.engines(round) {
                let Some(open) = stores.iter().find(|open| open.kind == kind) else { continue };
                let (wall, cpu) =
                    self.time(false, || work(&*open.engine, &self.records, round as u64));
                self.report.add(line, Unit::Time, kind, Sample::of(wall, cpu, operations));
            }
        }
        eprintln!("{line}: done");
    }
}

/// Removes the files of a store that was closed.
pub(crate) fn remove(directory: &std::path::Path) {
    std::fs::remove_dir_all(directory).expect("the directory is ours");
}
