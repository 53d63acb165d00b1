//! Hints that are put aside: they come last, as old as they were, and are on disk all the time.

use super::*;
use crate::kit::disk::{Fault, Operation};
use crate::kit::seeds;
use proptest::prelude::*;
use rustix::io::Errno;

/// Puts the hints of the next batch aside.
fn put_next_aside(store: &HintStore, max_bytes: u64) -> Vec<u64> {
    let batch = store.read_batch(ada(), max_bytes).unwrap().unwrap();
    let first = store.put_aside(ada(), &batch.hints).unwrap();
    assert!(first >= batch.end, "they stand behind all others");
    store.acknowledge(batch.end);
    batch.hints.iter().map(number_of).collect()
}

#[test]
fn they_come_after_all_others() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..20);
    assert_eq!(put_next_aside(&store, 1), [0]);
    assert_eq!(put_next_aside(&store, 150), [1, 2]);
    store_all(&store, ada(), 20..22);
    assert_eq!(store.targets()[0].hints, 22);
    store.close().unwrap();
    let store = rig.open();
    assert_eq!(drain(&store, ada()), [range(3..20), vec![0, 1, 2], range(20..22)].concat());
}

#[test]
fn they_get_no_younger() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..1);
    rig.clock.advance(Duration::from_hours(71));
    store_all(&store, ada(), 1..2);
    assert_eq!(put_next_aside(&store, 1), [0]);
    assert_eq!(store.targets()[0].oldest_ms, Some(1_290_000_000_000));
    rig.clock.advance(Duration::from_hours(2));
    assert_eq!(drain(&store, ada()), [1]);
    assert_eq!(store.stats().expired, 1);
}

#[test]
fn a_full_log_has_room_for_them() {
    let mut rig = Rig::new();
    rig.options.max_bytes_per_target = 1000;
    let store = rig.open();
    let stored = (0..99).take_while(|n| store.store(ada(), &mutation(*n)).is_ok()).count() as u64;
    assert_eq!(put_next_aside(&store, 1), [0]);
    assert!(store.store(ada(), &mutation(99)).is_err());
    assert_eq!(drain(&store, ada()), [range(1..stored), vec![0]].concat());
}

/// Hints that are put aside are nowhere but in the system for a moment, and must not be missing
/// then.
fn lose_power(seed: u64) {
    const HINTS: u64 = 30;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    rig.fs = SimFileSystem::new(seed);
    rig.options.segment_bytes = rng.choice([100, 300, 2000]).unwrap();
    let store = rig.open();
    store_all(&store, ada(), 0..HINTS);
    store.sync().unwrap();
    rig.fs.power_off_after(rng.u64(..60));
    let mut delivered = Vec::new();
    for _ in 0..30 {
        if rng.u8(..4) == 0 {
            if rng.u8(..4) == 0 {
                // Their names may be lost then, at once and for good.
                rig.fs.inject(Fault::next(Operation::SyncDir, Errno::IO));
            }
            let _ = store.sync();
        }
        let Ok(Some(batch)) = store.read_batch(ada(), rng.u64(1..300)) else { continue };
        if rng.bool() {
            delivered.extend(batch.hints.iter().map(number_of));
            store.acknowledge(batch.end);
        } else if store.put_aside(ada(), &batch.hints).is_ok() {
            store.acknowledge(batch.end);
        }
    }
    rig.fs.crash(&mut rng);
    let found = drain_by(&rig.open(), ada(), 1000);
    for number in (0..HINTS).filter(|number| !delivered.contains(number)) {
        assert!(found.contains(&number), "{number} is lost: {found:?}");
    }
}

proptest! {
    #![proptest_config(seeds(300))]

    #[test]
    fn a_power_loss_takes_none_of_them(seed: u64) {
        lose_power(seed);
    }
}
