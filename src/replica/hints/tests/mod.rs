//! Tests of the whole store on a disk in memory.

mod aside;
mod crashes;
mod damage;
mod delivery;
mod failures;
mod owners;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::base::fs::FileSystem;
use crate::kit::clock::ManualClock;
use crate::kit::disk::SimFileSystem;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::mutation::{MutationBuilder, RowMutation};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema, Schema};

use super::*;

const DIRECTORY: &str = "/data/hints";

/// Syncs, unless it is known already whether a hint is durable.
fn wait_durable(store: &HintStore, position: HintPosition) -> Result<(), HintError> {
    let (sender, receiver) = mpsc::channel();
    store.on_durable(position, Box::new(move |answer| drop(sender.send(answer))));
    if let Ok(answer) = receiver.try_recv() {
        return answer;
    }
    let synced = store.sync();
    receiver.try_recv().unwrap_or(synced)
}

fn ada() -> IpAddr {
    "10.0.0.1".parse().unwrap()
}

fn bob() -> IpAddr {
    "10.0.0.2".parse().unwrap()
}

fn schema_of(families: &[&str]) -> Schema {
    const DEFAULT_GRACE: u64 = 240;
    Schema::new(families.iter().map(|name| family_of(name, DEFAULT_GRACE)))
}

/// A family that keeps deletions for so many hours.
fn family_of(name: &str, grace_hours: u64) -> Arc<ColumnFamilySchema> {
    let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
    let family = ColumnFamilySchema::new("Blog".into(), name.into(), kind);
    Arc::new(ColumnFamilySchema { gc_grace: Duration::from_hours(grace_hours), ..family })
}

fn schema() -> Schema {
    schema_of(&["Authors", "Entries"])
}

/// A mutation that can be told from others, of this many bytes of value.
fn mutation_of(family: &str, number: u64, value_bytes: usize) -> RowMutation {
    let schema = schema();
    let mut builder = MutationBuilder::new(&schema, "Blog", &number.to_be_bytes());
    builder.family(schema.family_id("Blog", family).unwrap());
    builder.insert((b"", b"name"), &vec![number as u8; value_bytes], number as i64);
    builder.delete_column((b"", b"gone"), Deletion::at(number as i64, 1));
    builder.finish()
}

fn mutation(number: u64) -> RowMutation {
    mutation_of("Authors", number, 10)
}

/// Which one a mutation is, if it is one of [`mutation_of`] to the last byte.
fn number_of(hint: &Hint) -> u64 {
    let key = hint.mutation.key.as_bytes();
    let number = u64::from_be_bytes(key.try_into().unwrap());
    let value_bytes = hint.mutation.families[0].cells[0].value().len();
    let family = ["Authors", "Entries"][hint.mutation.family_numbers()[0] as usize];
    let expected = mutation_of(family, number, value_bytes);
    assert_eq!(hint.mutation.record(), expected.record());
    number
}

/// A node's disk, clock and options.
#[derive(Clone)]
struct Rig {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    options: HintOptions,
}

impl Rig {
    fn new() -> Self {
        let options = HintOptions {
            directory: DIRECTORY.into(),
            max_age: Duration::from_hours(72),
            max_bytes_per_target: 1 << 20,
            segment_bytes: 500,
            schema: Arc::new(schema()),
        };
        let clock = Arc::new(ManualClock::at_micros(1_290_000_000_000_000));
        Self { fs: SimFileSystem::new(1), clock, options }
    }

    fn open(&self) -> HintStore {
        let rng = fastrand::Rng::with_seed(self.fs.changes());
        let (fs, clock) = (Arc::new(self.fs.clone()), self.clock.clone());
        HintStore::open(fs, clock, rng, self.options.clone()).unwrap()
    }

    /// The same moment on another disk.
    fn fork(&self) -> Self {
        Self { fs: self.fs.fork(), ..self.clone() }
    }

    /// Paths of the files in the folder of a target.
    fn files(&self, target: IpAddr) -> Vec<PathBuf> {
        let folder = Path::new(DIRECTORY).join(target.to_string());
        let entries = self.fs.list(&folder).unwrap_or_default();
        let mut files: Vec<_> = entries.iter().map(|entry| folder.join(&entry.name)).collect();
        files.sort();
        files
    }

    /// A file with this content, durably.
    fn put(&self, path: &Path, content: &[u8]) {
        if self.fs.exists(path) {
            self.fs.remove_file(path).unwrap();
        }
        self.fs.create_dir_all(path.parent().unwrap()).unwrap();
        self.fs.create(path).unwrap().write_all_at(content, 0).unwrap();
        self.fs.sync_everything();
    }
}

fn store_all(store: &HintStore, target: IpAddr, numbers: std::ops::Range<u64>) {
    for number in numbers {
        store.store(target, &mutation(number)).unwrap();
    }
}

/// Delivers everything in batches of about this size.
fn drain_by(store: &HintStore, target: IpAddr, max_bytes: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Some(batch) = store.read_batch(target, max_bytes).unwrap() {
        numbers.extend(batch.hints.iter().map(number_of));
        store.acknowledge(batch.end);
    }
    numbers
}

fn drain(store: &HintStore, target: IpAddr) -> Vec<u64> {
    drain_by(store, target, 300)
}

fn range(numbers: std::ops::Range<u64>) -> Vec<u64> {
    numbers.collect()
}
