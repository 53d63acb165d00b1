//! Key and row caches: what they answer, what they forget in time, and what is saved of them.

use crate::kit::disk::{Fault, Operation, Survival};
use crate::storage_model::rig::{KEYSPACE, Rig, SAVED_CACHES, Setup, wait_until};
use alexandra::base::context::RequestContext;
use alexandra::base::fs::FileSystem;
use alexandra::config::settings::CacheSize;
use alexandra::model::key::RowKey;
use alexandra::model::schema::FamilyId;
use alexandra::model::slice::{RowSlice, Slice};
use alexandra::storage::caches::CacheStats;
use alexandra::storage::error::ReadError;
use alexandra::storage::sstable::Access;
use fastrand::Rng;
use rustix::io::Errno;
use std::time::Duration;

const FAMILY: FamilyId = FamilyId(0);

/// Long enough for anything that the threads in the background do.
const PATIENCE: Duration = Duration::from_secs(10);

/// A row cache, and next to no block cache: it holds no block, and none can be pinned.
fn setup() -> Setup {
    Setup {
        memtable_operations: 1_000_000,
        min_compaction_threshold: 0,
        block_cache_bytes: 64,
        rows_cached: CacheSize::Entries(100),
        ..Setup::default()
    }
}

fn rig(setup: Setup) -> Rig {
    Rig::new(setup, 1)
}

/// Reads a whole row of the family, or from memory alone.
fn read(rig: &Rig, key: &str, access: Access) -> Result<RowSlice, ReadError> {
    rig.storage().family(FAMILY).read(
        &RowKey::from(key),
        &Slice::all(None),
        &RequestContext::default(),
        access,
    )
}

fn flush(rig: &Rig) {
    rig.storage().flush(FAMILY).unwrap();
}

fn rows(rig: &Rig) -> CacheStats {
    rig.storage().family(FAMILY).cache_stats().rows.unwrap()
}

fn keys(rig: &Rig) -> CacheStats {
    rig.storage().family(FAMILY).cache_stats().keys.unwrap()
}

/// Waits for a line of the cache thread.
#[track_caller]
fn wait_for(rig: &Rig, parts: &[&str]) {
    rig.heard.wait_for(PATIENCE, parts);
}

/// The same for a line that is due after hours.
#[track_caller]
fn wait_for_hours(rig: &Rig, parts: &[&str]) {
    rig.clock.advance(Duration::from_hours(2));
    wait_for(rig, parts);
}

fn fill(rig: &Rig, count: usize) {
    for number in 0..count {
        rig.insert(0, &format!("row {number}"), ("column", 1), &LARGE);
    }
    flush(rig);
}

/// A value of a row that is too large to stand in the row index, so that the key cache knows it.
const LARGE: [u8; 2000] = [b'v'; 2000];

#[test]
fn a_row_is_answered_from_memory_once_it_was_read() {
    let rig = rig(setup());
    fill(&rig, 3);
    assert!(matches!(read(&rig, "row 1", Access::CachedOnly), Err(ReadError::WouldBlock)));
    let row = read(&rig, "row 1", Access::Cached).unwrap();
    assert_eq!(read(&rig, "row 1", Access::CachedOnly).unwrap(), row);
    assert!(read(&rig, "no row", Access::CachedOnly).unwrap().cells.is_empty());
    let stats = rows(&rig);
    // What begins anew where it may wait for the disk is one request.
    assert_eq!((stats.capacity, stats.size, stats.hits, stats.requests), (100, 1, 1, 3));
    assert!(stats.bytes > 100, "{stats:?}");
}

#[test]
fn a_row_in_the_page_cache_is_answered_without_a_wait() {
    let rig = rig(setup());
    fill(&rig, 3);
    assert!(matches!(read(&rig, "row 1", Access::CachedOnly), Err(ReadError::WouldBlock)));
    rig.disk.keep_in_page_cache(true);
    let row = read(&rig, "row 1", Access::CachedOnly).unwrap();
    assert_eq!(row, read(&rig, "row 1", Access::Cached).unwrap());
    // Its blocks are in the block cache now.
    rig.disk.keep_in_page_cache(false);
    assert_eq!(read(&rig, "row 1", Access::CachedOnly).unwrap(), row);
}

#[test]
fn a_huge_value_in_the_page_cache_is_left_to_the_threads_that_read() {
    let rig = rig(setup());
    let mut rng = fastrand::Rng::with_seed(1);
    let value: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(100 << 10).collect();
    rig.insert(0, "huge", ("column", 1), &value);
    flush(&rig);
    rig.disk.keep_in_page_cache(true);
    assert!(matches!(read(&rig, "huge", Access::CachedOnly), Err(ReadError::WouldBlock)));
    assert!(read(&rig, "huge", Access::Cached).is_ok());
}

#[test]
fn writes_flushes_and_compactions_show() {
    let rig = rig(setup());
    let get = || rig.get(0, "ada", "email").map(|value| String::from_utf8(value).unwrap());
    for round in 1..=4 {
        let value = format!("{round}@example.com");
        rig.insert(0, "ada", ("email", round), value.as_bytes());
        assert_eq!(get().as_ref(), Some(&value), "written");
        flush(&rig);
        assert_eq!(get().as_ref(), Some(&value), "flushed");
        assert_eq!(get().as_ref(), Some(&value), "cached");
        if round % 2 == 0 {
            rig.storage().compact(FAMILY).unwrap();
            assert_eq!(get().as_ref(), Some(&value), "compacted");
        }
    }
    rig.delete(0, "ada", "email", 9);
    assert_eq!(get(), None);
    flush(&rig);
    assert_eq!(get(), None);
    assert!(rows(&rig).hits > 4, "{:?}", rows(&rig));
}

/// Rows that a compaction has dropped must not live on in the cache.
#[test]
fn a_purged_deletion_does_not_hide_what_is_written_later() {
    for cached in [CacheSize::Off, CacheSize::Entries(10)] {
        let rig = rig(Setup { rows_cached: cached, ..setup() });
        rig.insert(0, "ada", ("email", 5), b"ada@example.com");
        rig.insert(0, "ada", ("name", 5), b"Ada");
        rig.delete(0, "ada", "email", 6);
        flush(&rig);
        assert_eq!(rig.get(0, "ada", "email"), None);
        rig.clock.advance(Duration::from_secs(100));
        rig.storage().compact(FAMILY).unwrap();
        rig.insert(0, "ada", ("email", 4), b"late@example.com");
        let late = rig.get(0, "ada", "email");
        assert_eq!(late.as_deref(), Some(&b"late@example.com"[..]), "{cached:?}");
        assert!(rig.get(0, "ada", "name").is_some());
    }
}

/// A row that was read by a reader who began before a flush must not be kept after it.
#[test]
fn the_cache_of_a_family_that_is_switched_on_begins_empty() {
    let rig = rig(Setup { rows_cached: CacheSize::Off, ..setup() });
    fill(&rig, 1);
    assert_eq!(rig.storage().family(FAMILY).cache_stats().rows, None);
    rig.storage().family(FAMILY).set_cache_capacity(10, 10);
    rig.get(0, "row 0", "column").unwrap();
    assert_eq!(rows(&rig).size, 1);
    rig.storage().family(FAMILY).set_cache_capacity(0, 0);
    assert_eq!(rig.storage().family(FAMILY).cache_stats().keys, None);
    rig.insert(0, "row 0", ("column", 2), b"newer");
    flush(&rig);
    rig.storage().family(FAMILY).set_cache_capacity(10, 10);
    assert_eq!(rig.get(0, "row 0", "column").as_deref(), Some(&b"newer"[..]));
}

#[test]
fn a_row_that_is_too_large_is_refused_once_and_read_as_ever() {
    let rig = rig(Setup { row_cache_bytes: 1 << 14, ..setup() });
    for number in 0..40 {
        rig.insert(0, "wide", (&format!("{number}"), 1), &[b'x'; 100]);
    }
    flush(&rig);
    let reads = || rig.disk.count(Operation::Read);
    assert!(rig.get(0, "wide", "7").is_some());
    let before = reads();
    assert!(rig.get(0, "wide", "7").is_some());
    let cost = reads() - before;
    assert!(cost < 8, "a slice costs {cost} reads of the disk");
    let stats = rows(&rig);
    assert_eq!((stats.size, stats.hits), (1, 0));
}

#[test]
fn damage_in_one_part_of_a_row_leaves_the_others_readable() {
    let rig = rig(setup());
    for number in 10..50 {
        rig.insert(0, "wide", (&format!("{number}"), 1), &[b'x'; 100]);
    }
    flush(&rig);
    let path = rig.storage().family(FAMILY).view().tables[0].path().to_owned();
    // In the first block.
    rig.disk.corrupt(&path, 20, 0x10).unwrap();
    for _ in 0..2 {
        assert!(rig.get(0, "wide", "49").is_some());
        let damaged = read(&rig, "wide", Access::Cached);
        assert!(matches!(damaged, Err(ReadError::Corrupt(_))), "{damaged:?}");
    }
    // What was damaged on the way and not on the disk is read again.
    rig.disk.corrupt(&path, 20, 0x10).unwrap();
    assert_eq!(read(&rig, "wide", Access::Cached).unwrap().cells.len(), 40);
}

#[test]
fn a_share_of_all_keys_grows_with_them_until_a_number_is_set() {
    let share = CacheSize::Fraction(0.5);
    let rig = rig(Setup { keys_cached: share, rows_cached: share, ..setup() });
    assert_eq!((keys(&rig).capacity, rows(&rig).capacity), (1, 1));
    fill(&rig, 30);
    assert_eq!((keys(&rig).capacity, rows(&rig).capacity), (15, 15));
    fill(&rig, 30);
    assert_eq!(keys(&rig).capacity, 30, "as many as all files say");
    rig.storage().compact(FAMILY).unwrap();
    assert_eq!(keys(&rig).capacity, 15);
    rig.storage().family(FAMILY).set_cache_capacity(7, 8);
    fill(&rig, 60);
    assert_eq!((keys(&rig).capacity, rows(&rig).capacity), (7, 8));
}

/// A slice behind the last column of a row shows what finding the row costs.
#[test]
fn the_key_cache_knows_where_a_row_is() {
    let rig = rig(Setup { rows_cached: CacheSize::Off, ..setup() });
    rig.insert(0, "other", ("email", 5), b"");
    rig.insert(0, "ada", ("email", 5), &LARGE);
    flush(&rig);
    let read = |access| {
        let behind = Slice::range(None, b"later", b"", false, 1);
        rig.storage().family(FAMILY).read(
            &RowKey::from("ada"),
            &behind,
            &RequestContext::default(),
            access,
        )
    };
    let reads = || rig.disk.count(Operation::Read);
    assert!(matches!(read(Access::CachedOnly), Err(ReadError::WouldBlock)));
    read(Access::Cached).unwrap();
    let before = reads();
    assert!(read(Access::CachedOnly).unwrap().cells.is_empty());
    assert_eq!(reads() - before, 0);
    let stats = keys(&rig);
    assert_eq!((stats.size, stats.hits, stats.requests), (1, 1, 2));
    // A file that is gone is forgotten.
    rig.storage().compact(FAMILY).unwrap();
    // The housekeeper may be at it.
    wait_until("the file is forgotten", || {
        rig.storage().family(FAMILY).remove_replaced();
        keys(&rig).size == 0
    });
}

#[test]
fn the_key_cache_is_told_where_a_compaction_has_put_its_rows_if_that_is_wanted() {
    for preheats_keys in [false, true] {
        let rig = rig(Setup { rows_cached: CacheSize::Off, preheats_keys, ..setup() });
        fill(&rig, 5);
        fill(&rig, 5);
        rig.get(0, "row 1", "column").unwrap();
        rig.get(0, "row 3", "column").unwrap();
        assert_eq!(keys(&rig).size, 4, "each row is in two files");
        rig.storage().compact(FAMILY).unwrap();
        let hits = keys(&rig).hits;
        rig.get(0, "row 1", "column").unwrap();
        assert_eq!(keys(&rig).hits > hits, preheats_keys);
        if preheats_keys {
            assert_eq!(keys(&rig).size, 2);
        }
    }
}

#[test]
fn the_key_cache_is_not_asked_for_rows_whose_index_block_is_pinned() {
    let rig = rig(Setup { rows_cached: CacheSize::Off, block_cache_bytes: 1 << 14, ..setup() });
    fill(&rig, 3);
    for _ in 0..3 {
        assert!(rig.get(0, "row 1", "column").is_some());
    }
    let stats = keys(&rig);
    // The first of the reads found nothing pinned yet.
    assert_eq!((stats.size, stats.hits), (0, 0), "{stats:?}");
    assert!(stats.requests <= 2, "{stats:?}");
}

#[test]
fn caches_are_filled_with_what_was_saved() {
    let mut rig = rig(Setup { saves_caches: true, ..setup() });
    fill(&rig, 20);
    for number in 0..10 {
        rig.get(0, &format!("row {number}"), "column").unwrap();
    }
    assert_eq!((rows(&rig).size, keys(&rig).size), (10, 10));
    rig.close();
    for kind in ["KeyCache", "RowCache"] {
        let path = format!("{SAVED_CACHES}/{KEYSPACE}-Authors-{kind}");
        assert!(rig.disk.exists(path.as_ref()), "{path}");
    }
    rig.heard.take();
    rig.open().unwrap();
    wait_for(&rig, &["completed loading", "10 keys) key cache"]);
    wait_for(&rig, &["completed loading", "10 keys) row cache"]);
    assert_eq!((rows(&rig).size, keys(&rig).size), (10, 10));
    assert!(read(&rig, "row 7", Access::CachedOnly).is_ok());
    assert!(read(&rig, "row 17", Access::CachedOnly).is_err());
}

#[test]
fn what_the_original_has_saved_warms_the_caches() {
    let mut rig = rig(Setup { saves_caches: true, ..setup() });
    fill(&rig, 5);
    rig.close();
    // Three keys as Java writes them, and one that is not there any more.
    let saved =
        b"\xac\xed\x00\x05\x77\x21\0\0\0\x05row 3\0\0\0\x04gone\0\0\0\x05row 1\0\0\0\x03row";
    let path = format!("{SAVED_CACHES}/{KEYSPACE}-Authors-RowCache");
    if rig.disk.exists(path.as_ref()) {
        rig.disk.remove_file(path.as_ref()).unwrap();
    }
    rig.disk.create_dir_all(SAVED_CACHES.as_ref()).unwrap();
    rig.disk.create(path.as_ref()).unwrap().write_all_at(saved, 0).unwrap();
    rig.heard.take();
    rig.open().unwrap();
    wait_for(&rig, &["completed loading", "row cache"]);
    assert_eq!(rows(&rig).size, 2);
    for key in ["row 1", "row 3"] {
        assert!(read(&rig, key, Access::CachedOnly).is_ok(), "{key}");
    }
}

#[test]
fn a_damaged_file_of_a_cache_is_a_warning() {
    let mut rig = rig(Setup { saves_caches: true, ..setup() });
    fill(&rig, 1);
    rig.close();
    let path = format!("{SAVED_CACHES}/{KEYSPACE}-Authors-RowCache");
    if rig.disk.exists(path.as_ref()) {
        rig.disk.remove_file(path.as_ref()).unwrap();
    }
    rig.disk.create_dir_all(SAVED_CACHES.as_ref()).unwrap();
    rig.disk.create(path.as_ref()).unwrap().write_all_at(b"no cache at all", 0).unwrap();
    rig.open().unwrap();
    wait_for(&rig, &["error reading saved row cache"]);
    assert!(rig.get(0, "row 0", "column").is_some());
}

#[test]
fn caches_are_saved_every_period_and_a_failure_leaves_the_last_file() {
    let mut rig = rig(Setup { saves_caches: true, ..setup() });
    fill(&rig, 3);
    rig.get(0, "row 1", "column").unwrap();
    wait_for_hours(&rig, &["saved 1 keys of the row cache"]);
    let full = Fault::next(Operation::Write, Errno::NOSPC).on("Authors-RowCache");
    rig.disk.inject(Fault { times: 100, ..full });
    rig.get(0, "row 2", "column").unwrap();
    wait_for_hours(&rig, &["the row cache of", "is not saved"]);
    rig.crash(Survival::Everything, &mut Rng::with_seed(1));
    rig.heard.take();
    rig.open().unwrap();
    wait_for(&rig, &["completed loading", "1 keys) row cache"]);
}
