use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::Level;

use super::{
    CacheEvent, CacheKind, CommitLogEvent, CompactionEvent, CompactionKind, DiskEvent,
    DiskOperation, Event, Events, Family, FlushCause, FlushEvent, Memtable, Recorder, SSTableEvent,
};

const LONG: Duration = Duration::from_secs(30);

fn standard1() -> Family {
    Family::new("Keyspace1", "Standard1")
}

fn memtable() -> Memtable {
    Memtable { family: standard1(), id: 7, bytes: 1234, operations: 5 }
}

fn deleted(name: &str) -> Event {
    SSTableEvent::Deleted { file: name.into() }.into()
}

#[track_caller]
fn check(event: impl Into<Event>, level: Level, target: &str, line: &str) {
    let event = event.into();
    assert_eq!((event.level(), event.target()), (level, target));
    assert_eq!(event.to_string(), line);
}

#[test]
fn cache_lines_name_the_family_and_the_cache() {
    let (family, took) = (standard1(), Duration::from_millis(12));
    let target = "alexandra::cache";
    let cache = CacheKind::Rows;
    check(
        CacheEvent::Loaded { family: family.clone(), cache, keys: 7, took },
        Level::Info,
        target,
        "completed loading (12 ms; 7 keys) row cache for Standard1 of Keyspace1",
    );
    let cache = CacheKind::Keys;
    check(
        CacheEvent::Saved { family: family.clone(), cache, keys: 7, took },
        Level::Debug,
        target,
        "saved 7 keys of the key cache of Keyspace1.Standard1 in 12 ms",
    );
    let reason = "cannot create x: no space".to_owned();
    check(
        CacheEvent::NotSaved { family: family.clone(), cache, reason: reason.clone() },
        Level::Warn,
        target,
        "the key cache of Keyspace1.Standard1 is not saved: cannot create x: no space",
    );
    check(
        CacheEvent::Unreadable { family, cache, reason },
        Level::Warn,
        target,
        "error reading saved key cache of Keyspace1.Standard1: cannot create x: no space",
    );
}

#[test]
fn flush_lines_are_those_that_operators_know() {
    let target = "alexandra::flush";
    check(
        FlushEvent::Switched {
            memtable: memtable(),
            cause: FlushCause::Throughput,
            log_file: "log/CommitLog-1.alog".into(),
            log_position: 99,
        },
        Level::Info,
        target,
        "Standard1 has reached its threshold of bytes; switching in a fresh Memtable at \
         CommitLogContext(file='log/CommitLog-1.alog', position=99). \
         Enqueuing flush of Memtable-Standard1@7(1234 bytes, 5 operations)",
    );
    check(
        FlushEvent::Begin { memtable: memtable() },
        Level::Info,
        target,
        "Writing Memtable-Standard1@7(1234 bytes, 5 operations)",
    );
    check(
        FlushEvent::End {
            family: standard1(),
            file: "data/Standard1-3-Data.db".into(),
            bytes: 800,
            rows: 4,
            took: Duration::from_millis(12),
        },
        Level::Info,
        target,
        "Completed flushing data/Standard1-3-Data.db (800 bytes)  4 rows.  Time: 12ms",
    );
}

#[test]
fn compaction_lines_are_those_that_operators_know() {
    let target = "alexandra::compaction";
    let family = standard1();
    check(
        CompactionEvent::Begin {
            family: family.clone(),
            kind: CompactionKind::Minor,
            inputs: vec!["a".into(), "b".into()],
        },
        Level::Info,
        target,
        "Compacting [a, b] (minor compaction of Keyspace1.Standard1)",
    );
    let end = |outputs| CompactionEvent::End {
        family: standard1(),
        kind: CompactionKind::Major,
        outputs,
        bytes_in: 100,
        bytes_out: 60,
        keys: 3,
        took: Duration::from_millis(1500),
    };
    let line = "Compacted to c.  100/60 bytes for 3 keys.  Time: 1500ms";
    check(end(vec!["c".into()]), Level::Info, target, line);
    let line = "Compacted to nothing.  100/60 bytes for 3 keys.  Time: 1500ms";
    check(end(vec![]), Level::Info, target, line);
    check(
        CompactionEvent::LargeRow { family: family.clone(), key: "k".into(), bytes: 9 },
        Level::Warn,
        target,
        "Large row k in Standard1 9 bytes",
    );
    let (kind, family_of) = (CompactionKind::Tombstones, standard1);
    check(
        CompactionEvent::Progress { family: family_of(), kind, bytes_read: 30, bytes_total: 99 },
        Level::Info,
        target,
        "Compacting Keyspace1.Standard1 (tombstone): 30/99 bytes, 30%",
    );
    check(
        CompactionEvent::LeftOut { family: family_of(), left_out: vec!["c".into()] },
        Level::Warn,
        target,
        "insufficient space to compact all requested files of Keyspace1.Standard1: left out are c",
    );
    check(
        CompactionEvent::NoRoom { family: family_of(), needed: 7 },
        Level::Warn,
        target,
        "insufficient space to compact Keyspace1.Standard1: 7 bytes have to be free in a data \
         directory. It is tried again by itself",
    );
    check(
        CompactionEvent::Failed { family, reason: "no space".into() },
        Level::Error,
        target,
        "Compaction of Keyspace1.Standard1 failed, its SSTables stay as they are: no space",
    );
}

#[test]
fn commit_log_lines_are_those_that_operators_know() {
    let target = "alexandra::commitlog";
    check(
        CommitLogEvent::SegmentDiscarded { file: "log/a".into() },
        Level::Info,
        target,
        "Discarding obsolete commit log:CommitLogSegment(log/a)",
    );
    check(
        CommitLogEvent::ReplayBegin { files: vec!["a".into(), "b".into()] },
        Level::Info,
        target,
        "Replaying a, b",
    );
    check(
        CommitLogEvent::FileReplayed { file: "a".into(), records: 2, bytes: 30 },
        Level::Info,
        target,
        "Finished reading a (2 records, 30 bytes)",
    );
    check(
        CommitLogEvent::ReplayEnd { records: 2, bytes: 30, took: Duration::ZERO },
        Level::Info,
        target,
        "Log replay complete, 2 records, 30 bytes.  Time: 0ms",
    );
    let loss = CommitLogEvent::LossAccepted {
        file: "a".into(),
        offset: 4,
        bytes: 30,
        reason: "checksum".into(),
    };
    let line = "Lost 30 bytes of a from byte 4 on, as accepted: checksum";
    check(loss, Level::Error, target, line);
}

#[test]
fn trouble_is_as_loud_as_it_should_be() {
    check(
        DiskEvent::Poisoned { store: "commit log".into(), reason: "EIO".into() },
        Level::Error,
        "alexandra::disk",
        "commit log takes no more writes until a restart: EIO",
    );
    check(
        DiskEvent::Slow { operation: DiskOperation::Sync, file: "a".into(), took: LONG },
        Level::Warn,
        "alexandra::disk",
        "Slow sync of a: 30000ms",
    );
    check(
        SSTableEvent::Damaged { file: "a".into(), offset: 3, reason: "checksum".into() },
        Level::Error,
        "alexandra::sstable",
        "Damaged SSTable a at byte 3: checksum",
    );
}

#[test]
fn a_clone_tells_the_same_listeners() {
    let (events, recorder) = Events::recording();
    events.clone().emit(deleted("a"));
    events.emit(deleted("b"));
    assert_eq!(recorder.events(), [deleted("a"), deleted("b")]);
    assert_eq!(recorder.take().len(), 2);
    assert!(recorder.events().is_empty());
}

#[test]
fn a_further_listener_leaves_the_first_handle_alone() {
    let (first, a) = Events::recording();
    let b = Arc::new(Recorder::default());
    let both = first.and(b.clone());
    first.emit(deleted("one"));
    both.emit(deleted("two"));
    assert_eq!(a.events(), [deleted("one"), deleted("two")]);
    assert_eq!(b.events(), [deleted("two")]);
}

#[test]
fn waiting_ends_with_the_event_or_with_the_time() {
    let (events, recorder) = Events::recording();
    let emitter = thread::spawn(move || {
        events.emit(deleted("a"));
        events.emit(deleted("b"));
    });
    let found = recorder.wait_for(LONG, |event| *event == deleted("b"));
    emitter.join().unwrap();
    assert_eq!(found, Some(deleted("b")));
    assert_eq!(recorder.wait_for(Duration::ZERO, |event| *event == deleted("c")), None);
}

#[test]
fn a_recorder_is_bounded() {
    let (events, recorder) = Events::recording();
    events.emit(deleted("oldest"));
    for _ in 0..Recorder::CAPACITY {
        events.emit(deleted("later"));
    }
    let heard = recorder.events();
    assert_eq!(heard.len(), Recorder::CAPACITY);
    assert!(!heard.contains(&deleted("oldest")));
}
