//! How long a start takes after a process that did not end well.

use super::bench::{Bench, remove};
use super::engine::{Kind, Settings};
use super::machine;
use super::records::{Records, key};
use super::report::{Sample, Unit};
use std::path::Path;
use std::process::{Command, Stdio};

/// Tells the program that it is the process that will not end well.
pub(crate) const CHILD: &str = "--write-and-abort";

const LINE: &str = "start after a crash, each record in the log";

/// Large enough that no memtable is written to disk: all that is found again was in the log.
const MEMTABLE_BYTES: usize = 256 << 20;

/// Records in the log; few enough that our segment need not be replaced by another.
const RECORDS: u32 = 300_000;

fn settings(directory: &Path) -> Settings {
    Settings {
        directory: directory.to_owned(),
        cache_bytes: 64 << 20,
        memtable_bytes: MEMTABLE_BYTES,
        block_bytes: 4 << 10,
        syncs: false,
    }
}

pub(crate) fn run(bench: &mut Bench) {
    if !bench.wants(LINE) {
        return;
    }
    for round in 0..bench.arguments.rounds {
        for kind in bench.engines(round) {
            let directory = bench.directory(kind, "crash");
            let program = std::env::current_exe().expect("the program knows where it is");
            let mut child = Command::new(program);
            child.args([CHILD, kind.name()]).arg(&directory).stderr(Stdio::null());
            let status = child.status().expect("the program can be run again");
            assert!(!status.success(), "the child aborts");
            machine::wait_until_idle();
            let mut engine = None;
            let (wall, cpu) = bench.time(false, || engine = Some(kind.open(&settings(&directory))));
            let found = engine.as_ref().map(|engine| engine.scan_all());
            assert_eq!(found, Some(RECORDS as usize), "{}", kind.name());
            let sample = Sample::of(wall, cpu, u64::from(RECORDS));
            bench.report.add(LINE, Unit::Time, kind, sample);
            drop(engine);
            remove(&directory);
        }
    }
    eprintln!("{LINE}: done");
}

/// The child: writes, makes the last record durable and so all before it, and dies.
pub(crate) fn write_and_abort(mut arguments: impl Iterator<Item = String>) -> ! {
    let kind = arguments.next().and_then(|name| Kind::named(&name)).expect("an engine");
    let directory = arguments.next().expect("a directory");
    let engine = kind.open(&settings(Path::new(&directory)));
    let records = Records::new(RECORDS);
    let (last, others) = records.shuffled().split_last().expect("there are records");
    for number in others {
        engine.put(&key(*number), &records.value(*number));
    }
    engine.put_durably(&[(key(*last).as_slice(), records.value(*last).as_slice())]);
    std::process::abort();
}
