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

/// Which caches the stores are opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Caches {
    /// For all that there is.
    Large,
    /// For a small part of the store.
    Small,
}

pub(crate) fn run(bench: &mut Bench) {
    let states = ["as loaded", "compacted"];
    let prefixes = ["load", "compact", "space", "written", "get", "absent", "slice", "scan"];
    if prefixes.iter().any(|prefix| bench.wants(prefix)) || states.iter().any(|s| bench.wants(s)) {
        load(bench);
        for state in states {
            if state == "compacted" {
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
        report.add("load and come to rest", Unit::Time, kind, Sample::of(wall, cpu, count));
        let amplification = Sample::factor(written, user_bytes);
        report.add("written to files by the load", Unit::Factor, kind, amplification);
        drop(engine);
        let space = Sample::factor(machine::disk_bytes(&directory), user_bytes);
        report.add("space, as loaded", Unit::Factor, kind, space);
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
        report.add("compact, each record", Unit::Time, kind, Sample::of(wall, cpu, count));
        let space = Sample::factor(machine::disk_bytes(&directory), user_bytes);
        report.add("space, compacted", Unit::Factor, kind, space);
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
        // Warms caches, and shows that all records are there.
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
    let line = name("get", state, caches);
    bench.reads(stores, &line, u64::from(times), |engine, records, seed| {
        at_random(records, seed, times, |number| get(engine, number));
    });
    let line = name("absent", state, caches);
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
    let line = format!("get, {state}, from disk");
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
    let line = name("slice of 10", state, caches);
    bench.reads(stores, &line, u64::from(times), |engine, records, seed| {
        at_random(records, seed, times, |number| {
            let first = number.min(records.count() - SLICE as u32);
            assert_eq!(engine.scan(&key(first), SLICE), SLICE);
        });
    });
    let line = name("scan all, each record", state, caches);
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
