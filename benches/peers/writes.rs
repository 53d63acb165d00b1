//! The lines about writing.

use super::bench::Bench;
use super::engine::Engine;
use super::records::{ROW_COLUMNS, Records, key};

const WRITERS: usize = 4;

/// Writes with a sync of each.
const SYNCED: u32 = 2000;

/// Batches with a sync of each, and their size.
const BATCHES: u32 = 100;
const BATCH: u32 = 100;

/// Names of the columns in the lines about rows.
pub(crate) const NAMES: [&[u8]; ROW_COLUMNS] = [b"c0", b"c1", b"c2", b"c3", b"c4"];

fn put(engine: &dyn Engine, records: &Records, number: u32) {
    engine.put(&key(number), &records.value(number));
}

/// Writes a row of five columns. The values are those of five records.
pub(crate) fn put_row(engine: &dyn Engine, records: &Records, number: u32) {
    let columns = ROW_COLUMNS as u32;
    let values: Vec<_> = (0..columns).map(|i| records.value(number * columns + i)).collect();
    let columns = NAMES.into_iter().zip(values.iter().map(|value| value.as_slice()));
    engine.put_row(&key(number), &columns.collect::<Vec<_>>());
}

fn put_durably(engine: &dyn Engine, records: &Records, numbers: &[u32]) {
    let batch: Vec<_> = numbers.iter().map(|n| (key(*n), records.value(*n))).collect();
    let batch: Vec<_> = batch.iter().map(|(k, v)| (k.as_slice(), v.as_slice())).collect();
    engine.put_durably(&batch);
}

/// Splits the work among threads, and waits for all.
fn by_writers(numbers: &[u32], work: impl Fn(u32) + Sync) {
    std::thread::scope(|scope| {
        for part in numbers.chunks(numbers.len().div_ceil(WRITERS)) {
            let work = &work;
            scope.spawn(move || part.iter().for_each(|number| work(*number)));
        }
    });
}

pub(crate) fn run(bench: &mut Bench) {
    let count = bench.records.count();
    let all = u64::from(count);
    bench.writes("write, in order", false, all, |engine, records| {
        (0..count).for_each(|number| put(engine, records, number));
    });
    bench.writes("write, at random", false, all, |engine, records| {
        records.shuffled().iter().for_each(|number| put(engine, records, *number));
    });
    bench.writes("write, at random, 4 threads", false, all, |engine, records| {
        by_writers(records.shuffled(), |number| put(engine, records, number));
    });
    bench.writes("overwrite a tenth of the keys", false, all, |engine, records| {
        let numbers = records.shuffled().iter().map(|number| number % (count / 10));
        numbers.for_each(|number| put(engine, records, number));
    });
    let rows = count / ROW_COLUMNS as u32;
    bench.writes("write rows of 5 columns", false, u64::from(rows), |engine, records| {
        let numbers = records.shuffled().iter().filter(|number| **number < rows);
        numbers.for_each(|number| put_row(engine, records, *number));
    });
    let synced = u64::from(SYNCED);
    bench.writes("write and sync, in order", true, synced, |engine, records| {
        (0..SYNCED).for_each(|number| put_durably(engine, records, &[number]));
    });
    bench.writes("write and sync, at random", true, synced, |engine, records| {
        for number in &records.shuffled()[..SYNCED as usize] {
            put_durably(engine, records, &[*number]);
        }
    });
    bench.writes("write and sync, 4 threads", true, synced, |engine, records| {
        let numbers = &records.shuffled()[..SYNCED as usize];
        by_writers(numbers, |number| put_durably(engine, records, &[number]));
    });
    let batched = u64::from(BATCHES * BATCH);
    bench.writes("write by 100 and sync, each record", true, batched, |engine, records| {
        let numbers = &records.shuffled()[..(BATCHES * BATCH) as usize];
        numbers.chunks(BATCH as usize).for_each(|batch| put_durably(engine, records, batch));
    });
}
