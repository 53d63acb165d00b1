//! The lines about reading, about space, and about what it costs to get there.

use super::bench::{Bench, Open, remove};
use super::engine::{Engine, Settings};
use super::machine;
use super::records::{RECORD_BYTES, ROW_COLUMNS, Records, absent_key, key};
use super::report::{Sample, Unit};
use super::writes::put_row;

/// A store is so many times larger than the small caches, before compression.
const STORE_TO_CACHE: usize = 8;

/// Records of a slice.
const SLICE: usize = 10;

/// Reads after which the operating system's cache is dropped, in the line about that.
const FROM_DISK: u32 = 2000;

/// State of the files: as the engine leaves them after writes at random, and after it was
/// told to compact.
const STATES: [&str; 2] = ["as loaded", COMPACTED];
const COMPACTED: &str = "compacted";

const LOAD: &str = "load and come to rest";
const WRITTEN: &str = "written to files by the load";
const COMPACT: &str = "compact, each record";
const GET: &str = "get";
const ABSENT: &str = "absent";
const SLICES: &str = "slice of 10";
const SCAN: &str = "scan all, each record";

/// Which caches the stores are opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// For all that there is.
    Large,
    /// For a small part of the store.
    Small,
}

pub(crate) fn run(bench: &mut Bench) {
    if lines().iter().any(|line| bench.wants(line)) {
        load(bench);
        for state in STATES {
            if state == COMPACTED {
                compact(bench);
            }
            for caches in [Caches::Large, Caches::Small] {
                let stores = open(bench, caches);
                point_reads(bench, &stores, state, caches);
                slices(bench, &stores, state, caches);
            }
        }
        remove_all(bench);
    }
    rows(bench);
}

/// All lines that need the stores of [`load`].
fn lines() -> Vec<String> {
    let mut lines = [LOAD, WRITTEN, COMPACT].map(String::from).to_vec();
    for state in STATES {
        lines.extend([space(state), from_disk_line(state)]);
        for what in [GET, ABSENT, SLICES, SCAN] {
            lines.extend([Caches::Large, Caches::Small].map(|caches| name(what, state, caches)));
        }
    }
    lines
}

fn space(state: &str) -> String {
    format!("space, {state}")
}

fn from_disk_line(state: &str) -> String {
    format!("{GET}, {state}, from disk")
}

/// Loads the stores of all later lines at random, and waits until they have come to rest.
fn load(bench: &mut Bench) {
    let user_bytes = u64::from(bench.records.count()) * RECORD_BYTES as u64;
    for kind in bench.engines(0) {
        let directory = bench.directory(kind, "reads");
        let engine = kind.open(&bench.settings(directory.clone()));
        let written = machine::written_bytes();
        let (wall, cpu) = bench.time(true, || {
            for number in bench.records.shuffled() {
                engine.put(&key(*number), &bench.records.value(*number));
            }
            engine.flush();
            machine::wait_until_idle();
        });
        let written = machine::written_bytes() - written;
        let count = u64::from(bench.records.count());
        let report = &mut bench.report;
        report.add(LOAD, Unit::Time, kind, Sample::of(wall, cpu, count));
        let amplification = Sample::factor(written, user_bytes);
        report.add(WRITTEN, Unit::Factor, kind, amplification);
        drop(engine);
        let factor = Sample::factor(machine::disk_bytes(&directory), user_bytes);
        report.add(&space(STATES[0]), Unit::Factor, kind, factor);
    }
    eprintln!("load: done");
}

fn compact(bench: &mut Bench) {
    let user_bytes = u64::from(bench.records.count()) * RECORD_BYTES as u64;
    for kind in bench.engines(0) {
        let directory = bench.directory(kind, "reads");
        let mut engine = kind.open(&bench.settings(directory.clone()));
        machine::wait_until_idle();
        let (wall, cpu) = bench.time(true, || engine.compact());
        drop(engine);
        let count = u64::from(bench.records.count());
        let report = &mut bench.report;
        report.add(COMPACT, Unit::Time, kind, Sample::of(wall, cpu, count));
        let factor = Sample::factor(machine::disk_bytes(&directory), user_bytes);
        report.add(&space(COMPACTED), Unit::Factor, kind, factor);
    }
    eprintln!("compact: done");
}

fn open(bench: &Bench, caches: Caches) -> Vec<Open> {
    let store_bytes = bench.records.count() as usize * RECORD_BYTES;
    let stores = bench.arguments.engines.iter().map(|kind| {
        let settings = bench.settings(bench.directory(*kind, "reads"));
        let cache_bytes = match caches {
            Caches::Large => settings.cache_bytes,
            Caches::Small => store_bytes / STORE_TO_CACHE,
        };
        Open { kind: *kind, engine: kind.open(&Settings { cache_bytes, ..settings }) }
    });
    let stores: Vec<_> = stores.collect();
    for open in &stores {
        // Shows that all records are there, and warms caches.
        assert_eq!(open.engine.scan_all(), bench.records.count() as usize);
        if caches == Caches::Large {
            (0..bench.records.count()).for_each(|number| get(&*open.engine, number));
        }
    }
    machine::wait_until_idle();
    stores
}

fn get(engine: &dyn Engine, number: u32) {
    assert!(engine.get(&key(number)).is_some());
}

/// Calls with random numbers of records, as many as asked for.
fn at_random(records: &Records, seed: u64, times: u32, call: impl Fn(u32)) {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..times).for_each(|_| call(rng.u32(..records.count())));
}

fn name(what: &str, state: &str, caches: Caches) -> String {
    let caches = if caches == Caches::Large { "in cache" } else { "cache of an eighth" };
    format!("{what}, {state}, {caches}")
}

fn point_reads(bench: &mut Bench, stores: &[Open], state: &str, caches: Caches) {
    let times = bench.records.count() / 5;
    let line = name(GET, state, caches);
    bench.reads(stores, &line, u64::from(times), |engine, records, seed| {
        at_random(records, seed, times, |number| get(engine, number));
    });
    let line = name(ABSENT, state, caches);
    bench.reads(stores, &line, u64::from(times), |engine, records, seed| {
        at_random(records, seed, times, |number| {
            assert_eq!(engine.get(&absent_key(number)), None);
        });
    });
    if caches == Caches::Small {
        from_disk(bench, stores, state);
    }
}

/// Point reads when the operating system has cached nothing either.
fn from_disk(bench: &mut Bench, stores: &[Open], state: &str) {
    let line = from_disk_line(state);
    if !bench.wants(&line) {
        return;
    }
    for round in 0..bench.arguments.rounds {
        for kind in bench.engines(round) {
            let Some(open) = stores.iter().find(|open| open.kind == kind) else { continue };
            machine::drop_page_cache(&bench.directory(kind, "reads"));
            let seed = 1000 + round as u64;
            let (wall, cpu) = bench.time(false, || {
                at_random(&bench.records, seed, FROM_DISK, |number| get(&*open.engine, number));
            });
            let sample = Sample::of(wall, cpu, u64::from(FROM_DISK));
            bench.report.add(&line, Unit::Time, kind, sample);
        }
    }
    eprintln!("{line}: done");
}

fn slices(bench: &mut Bench, stores: &[Open], state: &str, caches: Caches) {
    let times = bench.records.count() / 25;
    let line = name(SLICES, state, caches);
    bench.reads(stores, &line, u64::from(times), |engine, records, seed| {
        at_random(records, seed, times, |number| {
            let first = number.min(records.count() - SLICE as u32);
            assert_eq!(engine.scan(&key(first), SLICE), SLICE);
        });
    });
    let line = name(SCAN, state, caches);
    let count = bench.records.count();
    bench.reads(stores, &line, u64::from(count), |engine, _, _| {
        assert_eq!(engine.scan_all(), count as usize);
    });
}

/// Rows of five columns, for which other engines need a key for each column.
fn rows(bench: &mut Bench) {
    let line = "get a row of 5 columns, compacted, in cache";
    if !bench.wants(line) {
        return;
    }
    let rows = bench.records.count() / ROW_COLUMNS as u32;
    let mut stores = Vec::new();
    for kind in bench.engines(0) {
        let mut engine = kind.open(&bench.settings(bench.directory(kind, "reads")));
        let numbers = bench.records.shuffled().iter().filter(|number| **number < rows);
        numbers.for_each(|number| put_row(&*engine, &bench.records, *number));
        engine.flush();
        machine::wait_until_idle();
        engine.compact();
        (0..rows).for_each(|number| assert_eq!(engine.get_row(&key(number)), ROW_COLUMNS));
        stores.push(Open { kind, engine });
    }
    machine::wait_until_idle();
    bench.reads(&stores, line, u64::from(rows), |engine, records, seed| {
        at_random(records, seed, rows, |number| {
            assert_eq!(engine.get_row(&key(number % rows)), ROW_COLUMNS);
        });
    });
    drop(stores);
    remove_all(bench);
}

fn remove_all(bench: &Bench) {
    for kind in bench.engines(0) {
        remove(&bench.directory(kind, "reads"));
    }
}
