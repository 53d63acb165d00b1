//! Appending, syncing and failing.

use std::sync::mpsc;
use std::thread;

use crate::kit::disk::Operation;

use super::*;

#[test]
fn a_closed_log_is_sealed_cut_and_refuses_appends() {
    let disk = disk::disk();
    let log = open(&disk, BATCH, 1 << 20);
    let records = fill(&log, 1, 3);
    log.close().unwrap();
    log.close().unwrap();
    assert!(matches!(log.append(b"late", &[1]), Err(LogError::Closed)));
    assert!(matches!(log.discard_completed(1, log.position()), Err(LogError::Closed)));
    log.sync_now().unwrap();
    drop(log);
    let sizes: Vec<_> = disk.files().iter().map(|path| disk.content(path).len()).collect();
    assert_eq!(sizes.len(), 1, "the segment made ahead of need is gone");
    assert!(sizes[0] < 1000, "the unused space is given back");
    assert_eq!(read_back(&disk.after_power_loss(&mut fastrand::Rng::with_seed(1))).1, records);
}

#[test]
fn many_threads_lose_nothing_and_agree_on_the_order() {
    let disk = disk::disk();
    let log = open(&disk, BATCH, 2000);
    let mut records: Records = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|family| {
                scope.spawn({
                    let log = &log;
                    move || fill(log, family, 60)
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| {
                let records = thread.join().unwrap();
                assert!(records.is_sorted_by(|a, b| a.0 < b.0), "each thread's positions ascend");
                records
            })
            .collect()
    });
    records.sort();
    assert_eq!(read_back(&disk.after_kill()).1, records);
    log.sync_now().unwrap();
    let (replayed, found) = read_back(&disk.after_power_loss(&mut fastrand::Rng::with_seed(3)));
    assert_eq!(found, records);
    assert!(replayed.segments.len() > 5, "rotated on the way");
}

#[test]
fn whoever_writes_writes_for_all_who_wait() {
    let disk = disk::disk();
    let log = open(&disk, ON_DEMAND, 1 << 20);
    let before = disk.count(Operation::Write);
    let start = log.position();
    disk.stall(Some(Operation::Write), "");
    thread::scope(|scope| {
        let first = scope.spawn(|| log.append(&[1; 100], &[1]).unwrap());
        // The first is in its write when the others queue.
        wait_until(|| disk.stalled_threads() == 1);
        let others: Vec<_> =
            (0..8).map(|_| scope.spawn(|| log.append(&[2; 100], &[1]).unwrap())).collect();
        wait_until(|| log.position().offset == start.offset + 9 * 112);
        assert_eq!(disk.stalled_threads(), 1);
        disk.go_on();
        first.join().unwrap();
        for other in others {
            other.join().unwrap();
        }
    });
    assert_eq!(disk.count(Operation::Write), before + 2, "one write for all eight");
    assert_eq!(read_back(&disk.after_kill()).1.len(), 9);
}

#[test]
fn one_sync_serves_all_who_wait_for_it() {
    let disk = disk::disk();
    let log = open(&disk, BATCH, 1 << 20);
    let (tell, told) = mpsc::channel();
    let wait_for = |position: Position| {
        let tell = tell.clone();
        log.on_synced(position, Box::new(move |result| tell.send((position, result)).unwrap()));
    };
    let first = log.append(b"first", &[1]).unwrap();
    disk.stall(Some(Operation::Sync), "");
    wait_for(first);
    wait_until(|| disk.stalled_threads() == 1);
    disk.go_on();
    assert!(told.recv().unwrap().1.is_ok());
    assert!(log.synced_position() >= first);

    wait_for(first);
    assert!(told.try_recv().unwrap().1.is_ok(), "known to be durable: called at once");

    let later: Records = fill(&log, 1, 50);
    let synced_before = disk.count(Operation::Sync);
    log.on_synced(later[49].0, Box::new(|_| ()));
    log.wait_synced(later[49].0).unwrap();
    for (position, _) in &later {
        wait_for(*position);
        assert!(told.try_recv().unwrap().1.is_ok());
    }
    assert!(disk.count(Operation::Sync) <= synced_before + 2);
    let lossy = disk.after_power_loss(&mut fastrand::Rng::with_seed(9));
    assert_eq!(read_back(&lossy).1.len(), 51);
}

#[test]
fn the_window_gathers_and_an_urgent_sync_ends_it() {
    let disk = disk::disk();
    let window = Duration::from_hours(1);
    let log = open(&disk, SyncPolicy::Batch { window }, 1 << 20);
    let (tell, told) = mpsc::channel();
    let before = disk.count(Operation::Sync);
    for (position, _) in fill(&log, 1, 10) {
        let tell = tell.clone();
        log.on_synced(position, Box::new(move |result| tell.send(result).unwrap()));
    }
    assert!(told.try_recv().is_err(), "the window is still open");
    log.sync_now().unwrap();
    assert_eq!(told.try_iter().flatten().count(), 10);
    assert_eq!(disk.count(Operation::Sync), before + 1);
}

#[test]
fn a_callback_that_panics_stops_the_log_and_leaves_nobody_waiting() {
    let log = open(&disk::disk(), ON_DEMAND, 1 << 20);
    let first = log.append(b"x", &[1]).unwrap();
    log.on_synced(first, Box::new(|_| panic!("on purpose")));
    let second = log.append(b"y", &[1]).unwrap();
    let (tell, told) = mpsc::channel();
    log.on_synced(second, Box::new(move |result| drop(tell.send(result))));
    assert!(matches!(log.sync_now(), Err(LogError::Closed)));
    assert!(told.recv().is_err(), "dropped with the thread");
    wait_until(|| matches!(log.append(b"z", &[1]), Err(LogError::Closed)));
    assert!(matches!(log.close(), Err(LogError::Closed)));
}

#[test]
fn waiting_for_a_position_that_was_never_handed_out_ends() {
    let log = open(&disk::disk(), BATCH, 1 << 20);
    log.append(b"x", &[1]).unwrap();
    log.wait_synced(Position { segment: u64::MAX, offset: 0 }).unwrap();
}

#[test]
fn periodic_sync_happens_when_there_is_something_new_and_not_else() {
    let disk = disk::disk();
    let every = Duration::from_millis(1);
    let log = open(&disk, SyncPolicy::Periodic { every }, 1 << 20);
    let position = log.append(b"x", &[1]).unwrap();
    wait_until(|| log.synced_position() >= position);
    log.wait_synced(position).unwrap();
    let syncs = disk.count(Operation::Sync);
    // Many periods pass meanwhile; the mark that the sync has left is nothing new. On a slow
    // machine this can see too little, but not fail without cause.
    thread::sleep(Duration::from_millis(30));
    assert_eq!(disk.count(Operation::Sync), syncs);
}

/// Waits for what another thread is about to do, and not forever.
pub(super) fn wait_until(condition: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_micros(500));
    }
    panic!("waited in vain");
}
