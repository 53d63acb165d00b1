//! Every bit of every file of a small store is flipped in its turn. The start or a read that meets
//! it names the file, or nothing of what was written is touched: no wrong answer, no crash.
//!
//! By default every so many-th bit of the larger files; `ALEXANDRA_STRIDE=1` takes all.

use crate::storage_model::model::{Filter, Query, Visible};
use crate::storage_model::rig::{BATCH, FLUSHABLE, KEYSPACE, PERIODIC, Rig, Setup, visible};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::FileSystem;
use alexandra::model::deletion::Deletion;
use alexandra::model::key::RowKey;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::ring::{Partitioner, RowRange};
use alexandra::storage::commitlog::SyncPolicy;
use alexandra::storage::compaction::CompactionError;
use alexandra::storage::database::Applied;
use alexandra::storage::error::ReadError;
use alexandra::storage::sstable::{Access, Compression};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Bits between two that are flipped, in files of more than so many bits.
const STRIDE: usize = 29;
const SMALL_FILE: usize = 3000;

pub(crate) const KEYS: [&str; 6] = ["ada", "bob", "cyd", "dan", "eve", "wide"];

/// All rows of all families, as they are visible; `None` for what could not be read.
type Content = Vec<Option<Vec<Visible>>>;

const SETUP: Setup = Setup {
    sync: BATCH,
    memtable_operations: u64::MAX,
    min_compaction_threshold: 0,
    partitioner: Partitioner::OrderPreserving,
    ..Setup::DEFAULT
};

/// The folder of the keyspace.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(format!("/var/data0/{KEYSPACE}"))
}

/// A rig that opens what [`store_without_compression`] has made.
pub(crate) fn unopened() -> Rig {
    Rig::unopened(Setup { compression: Compression::None, ..SETUP }, 1)
}

/// [`store`], in which every byte of a block can be changed without breaking the block.
pub(crate) fn store_without_compression() -> Rig {
    let mut rig = unopened();
    rig.open().unwrap();
    fill(&rig);
    rig
}

/// A store with SSTables of all families and, behind them, writes that are only in the log.
fn store(sync: SyncPolicy) -> Rig {
    let rig = Rig::new(Setup { sync, ..SETUP }, 1);
    fill(&rig);
    rig
}

fn fill(rig: &Rig) {
    for (round, keys) in [&KEYS[..], &KEYS[1..4]].into_iter().enumerate() {
        let timestamp = round as i64 + 1;
        for key in keys {
            let columns = if *key == "wide" { 60 } else { 2 };
            apply(rig, key, |builder| {
                for family in FLUSHABLE {
                    builder.family(FamilyId(family));
                    for i in 0..columns {
                        let name = format!("column{i:02}");
                        builder.insert((b"", name.as_bytes()), b"some value", timestamp);
                    }
                }
                builder.family(FamilyId(1));
                for i in 0..columns {
                    let super_name = [0, 0, 0, 0, 0, 0, 0, i as u8];
                    builder.insert((&super_name, b"name"), b"another value", timestamp);
                }
            });
        }
        apply(rig, "bob", |builder| {
            builder.family(FamilyId(0)).delete_row(Deletion::at(timestamp, rig.now()));
        });
        apply(rig, "cyd", |builder| {
            let deletion = Deletion::at(timestamp, rig.now());
            builder.family(FamilyId(0)).delete_column((b"", b"column01"), deletion);
            builder.family(FamilyId(1)).delete_super_column(&[0; 8], deletion);
        });
        if round == 0 {
            for family in 0..3 {
                rig.storage().flush(FamilyId(family)).unwrap();
            }
        }
    }
}

fn apply(rig: &Rig, key: &str, build: impl FnOnce(&mut MutationBuilder)) {
    let mut builder = MutationBuilder::new(&rig.schema, KEYSPACE, key.as_bytes());
    build(&mut builder);
    if let Applied::Pending(position) = rig.storage().apply(&builder.finish(), true).unwrap() {
        let (tell, told) = mpsc::channel();
        rig.storage().on_durable(position, Box::new(move |result| tell.send(result).unwrap()));
        told.recv().unwrap().unwrap();
    }
}

/// Reads everything by row and by range, and compacts. Errors have to name the file.
fn content(rig: &Rig, file: &Path) -> (Content, usize) {
    let mut errors = 0;
    let mut note = |error: ReadError| match error {
        ReadError::Corrupt(corrupt) if corrupt.file == file => errors += 1,
        other => panic!("{}: {other}", file.display()),
    };
    let all = Filter::Range { start: Vec::new(), finish: Vec::new(), reversed: false, limit: 100 };
    let query = Query { super_name: None, filter: all };
    let mut content = Vec::new();
    for family in 0..3 {
        let slice = rig.slice(family, &query);
        for key in KEYS {
            let answer = rig.read(family, key.as_bytes(), &slice).map_err(&mut note).ok();
            content.push(answer.map(|answer| visible(&answer)));
        }
        let range = RowRange { start: Bound::Unbounded, end: Bound::Unbounded };
        let rows = rig.storage().family(FamilyId(family)).scan(
            &range,
            &slice,
            100,
            &RequestContext::default(),
            Access::Cached,
        );
        let rows = rows.map_err(&mut note).ok();
        for (at, key) in KEYS.iter().enumerate() {
            let row = rows.as_ref().map(|rows| {
                let row = rows.iter().find(|(found, _)| *found == RowKey::from(*key));
                row.map_or(Vec::new(), |(_, slice)| visible(slice))
            });
            let by_row = &content[content.len() - KEYS.len() + at];
            assert!(row.is_none() || by_row.is_none() || row == *by_row, "{key} of {family}");
        }
        match rig.storage().compact(FamilyId(family)) {
            Ok(()) | Err(CompactionError::Stopped | CompactionError::Cancelled) => {}
            Err(CompactionError::Failed(error)) => note(error),
            Err(error @ (CompactionError::NoRoom { .. } | CompactionError::Refused { .. })) => {
                panic!("{error}")
            }
        }
    }
    (content, errors)
}

/// Outcome of the flips in one file.
#[derive(Debug, Default)]
struct Outcomes {
    refused: usize,
    found: usize,
    without_effect: usize,
}

fn flip_all(base: &mut Rig, file: &Path, expected: &Content) -> Outcomes {
    let bits = base.disk.read(file).unwrap().len() * 8;
    let stride = std::env::var("ALEXANDRA_STRIDE").map(|text| text.parse().expect("a number"));
    let stride = if bits <= SMALL_FILE { 1 } else { stride.unwrap_or(STRIDE) };
    let mut outcomes = Outcomes::default();
    let (sound, name) = (base.disk.fork(), file.display().to_string());
    for bit in (0..bits).step_by(stride) {
        base.disk = sound.fork();
        base.disk.corrupt(file, (bit / 8) as u64, 1 << (bit % 8)).unwrap();
        if let Err(error) = base.open() {
            let error = error.to_string();
            assert!(error.contains(&name), "bit {bit} of {name}: {error}");
            outcomes.refused += 1;
            continue;
        }
        let (found, errors) = content(base, file);
        for (found, expected) in found.iter().zip(expected) {
            let is_right = found.is_none() || found == expected;
            assert!(is_right, "bit {bit} of {name}: {found:?} instead of {expected:?}");
        }
        outcomes.found += usize::from(errors > 0);
        outcomes.without_effect += usize::from(errors == 0);
        base.close();
    }
    base.disk = sound;
    outcomes
}

#[test]
fn every_flipped_bit_is_found_and_named() {
    flip_everything(BATCH);
}

/// Nothing of the log says how far it is durable, since it never was.
#[test]
fn every_flipped_bit_is_found_and_named_though_nothing_was_synced() {
    flip_everything(PERIODIC);
}

fn flip_everything(sync: SyncPolicy) {
    let mut rig = store(sync);
    let expected = {
        let mut sound = store(sync);
        sound.kill();
        sound.open().unwrap();
        content(&sound, Path::new("/none")).0
    };
    assert!(expected.iter().all(Option::is_some));
    rig.kill();
    for folder in [folder(), PathBuf::from("/var/commitlog")] {
        for entry in rig.disk.list(&folder).unwrap() {
            if entry.is_dir || entry.size == 0 {
                continue;
            }
            let file = folder.join(&entry.name);
            let outcomes = flip_all(&mut rig, &file, &expected);
            eprintln!("{}, {} bytes: {outcomes:?}", file.display(), entry.size);
            // Behind the end of a log there is only room for more.
            if file.extension().is_none_or(|extension| extension != "alog") {
                assert_eq!(outcomes.without_effect, 0, "{}", file.display());
            }
        }
    }
}
