use super::*;
use crate::base::fs::OsFileSystem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

#[test]
fn hints_are_delivered_in_order_and_leave_nothing_behind() {
    for max_bytes in [1, 200, 10_000] {
        let rig = Rig::new();
        let store = rig.open();
        store_all(&store, ada(), 0..40);
        store_all(&store, bob(), 100..103);
        assert!(rig.files(ada()).len() > 3, "several segments");
        let targets = store.targets();
        assert_eq!(targets.iter().map(|t| t.target).collect::<Vec<_>>(), [ada(), bob()]);
        assert_eq!((targets[0].hints, targets[1].hints), (40, 3));
        assert_eq!(targets[0].oldest_ms, Some(1_290_000_000_000));
        assert_eq!(drain_by(&store, ada(), max_bytes), range(0..40));
        assert_eq!(store.targets().len(), 1);
        store.sync().unwrap();
        assert!(!rig.fs.exists(&Path::new(DIRECTORY).join("10.0.0.1")));
        assert_eq!(drain(&store, bob()), range(100..103));
        assert_eq!((store.stats().stored, store.stats().read), (43, 43));
        store_all(&store, ada(), 40..42);
        assert_eq!(drain(&store, ada()), range(40..42));
    }
}

#[test]
fn a_real_disk_does_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let mut rig = Rig::new();
    rig.options.directory = directory.path().join("hints");
    let open = || {
        let (fs, clock) = (Arc::new(OsFileSystem), rig.clock.clone());
        HintStore::open(fs, clock, fastrand::Rng::with_seed(1), rig.options.clone()).unwrap()
    };
    let store = open();
    store_all(&store, ada(), 0..20);
    let v6: IpAddr = "2001:db8::7".parse().unwrap();
    wait_durable(&store, store.store(v6, &mutation(7)).unwrap()).unwrap();
    store.acknowledge(store.read_batch(ada(), 1).unwrap().unwrap().end);
    store.close().unwrap();
    let store = open();
    assert_eq!(drain(&store, ada()), range(1..20));
    assert_eq!(drain(&store, v6), [7]);
    store.sync().unwrap();
    assert_eq!(std::fs::read_dir(&rig.options.directory).unwrap().count(), 0);
}

#[test]
fn whether_there_are_hints_for_a_target_is_known_at_once() {
    let store = Rig::new().open();
    assert!(!store.has(ada()));
    store_all(&store, ada(), 0..20);
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    assert_eq!((store.has(ada()), store.has(mapped), store.has(bob())), (true, true, false));
    drain(&store, ada());
    assert!(!store.has(ada()));
}

#[test]
fn an_acknowledgement_waits_for_no_sync() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..40);
    let log = store.log(ada()).unwrap();
    let syncing = log.upkeep.lock();
    thread::scope(|scope| {
        let (sender, done) = mpsc::channel();
        let store = &store;
        scope.spawn(move || {
            let delivered = drain(store, ada());
            store_all(store, ada(), 40..42);
            store.discard(ada());
            sender.send(delivered).unwrap();
        });
        let delivered = done.recv_timeout(Duration::from_secs(60));
        drop(syncing);
        assert_eq!(delivered, Ok(range(0..40)));
    });
    assert!(!store.has(ada()));
    assert!(!rig.files(ada()).is_empty(), "who syncs removes them");
    store.sync().unwrap();
    assert!(!rig.fs.exists(&Path::new(DIRECTORY).join("10.0.0.1")));
}

#[test]
fn an_address_is_one_target_however_it_is_written() {
    let store = Rig::new().open();
    let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
    let position = store.store(mapped, &mutation(1)).unwrap();
    assert_eq!(position.target, ada());
    assert_eq!(store.read_batch(mapped, 100).unwrap().unwrap().hints.len(), 1);
}

#[test]
fn what_is_not_acknowledged_comes_again_and_is_counted_once() {
    let store = Rig::new().open();
    store_all(&store, ada(), 0..5);
    let first = store.read_batch(ada(), 1).unwrap().unwrap();
    assert_eq!(first.hints.iter().map(number_of).collect::<Vec<_>>(), [0]);
    let again = store.read_batch(ada(), 1).unwrap().unwrap();
    assert_eq!((again.end, number_of(&again.hints[0])), (first.end, 0));
    assert_eq!(store.stats().read, 1);
    store.acknowledge(first.end);
    store.acknowledge(first.end);
    assert_eq!(store.targets()[0].hints, 4);
    assert_eq!(drain(&store, ada()), range(1..5));
    assert_eq!(store.stats().read, 5);
}

#[test]
fn delivery_goes_on_after_a_restart_where_it_was() {
    for closed in [true, false] {
        let rig = Rig::new();
        let store = rig.open();
        store_all(&store, ada(), 0..20);
        for _ in 0..7 {
            store.acknowledge(store.read_batch(ada(), 1).unwrap().unwrap().end);
        }
        let before = store.targets();
        if closed {
            store.close().unwrap();
        } else {
            store.sync().unwrap();
        }
        let rig = rig.fork();
        let store = rig.open();
        if !closed {
            assert_eq!(store.targets(), before);
        }
        store_all(&store, ada(), 20..23);
        assert_eq!(drain_by(&store, ada(), 1), range(7..23));
        store.sync().unwrap();
        assert_eq!(rig.open().targets(), []);
    }
}

#[test]
fn progress_that_was_not_written_down_means_once_more() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..2);
    store.acknowledge(store.read_batch(ada(), 1).unwrap().unwrap().end);
    let rig = rig.fork();
    assert_eq!(drain(&rig.open(), ada()), range(0..2));
}

#[test]
fn old_hints_are_not_delivered() {
    let mut rig = Rig::new();
    rig.options.schema =
        Arc::new(Schema::new([family_of("Authors", 240), family_of("Entries", 10)]));
    let store = rig.open();
    store.store(ada(), &mutation_of("Authors", 1, 3)).unwrap();
    store.store(ada(), &mutation_of("Entries", 2, 3)).unwrap();
    rig.clock.advance(Duration::from_hours(11));
    store.store(ada(), &mutation_of("Entries", 3, 3)).unwrap();
    assert_eq!(drain(&store, ada()), [1, 3], "the grace period of one family is over");
    assert_eq!(store.stats().expired, 1);

    store_all(&store, ada(), 4..5);
    rig.clock.advance(Duration::from_hours(73));
    store_all(&store, ada(), 5..6);
    assert_eq!(drain(&store, ada()), [5]);
    assert_eq!(store.stats().expired, 2);
}

#[test]
fn what_nobody_asks_for_goes_when_it_is_too_old() {
    let mut rig = Rig::new();
    // The longest grace period bounds what no single one does.
    rig.options.schema =
        Arc::new(Schema::new([family_of("Authors", 10), family_of("Entries", 20)]));
    let store = rig.open();
    store_all(&store, ada(), 0..20);
    rig.clock.advance(Duration::from_hours(15));
    store_all(&store, ada(), 20..30);
    store.sync().unwrap();
    assert_eq!(store.targets()[0].hints, 30);
    rig.clock.advance(Duration::from_hours(6));
    store.sync().unwrap();
    let expired = store.stats().expired;
    assert!((15..=20).contains(&expired), "{expired}");
    rig.clock.advance(Duration::from_hours(30));
    store.sync().unwrap();
    assert_eq!((store.targets(), store.stats().expired), (vec![], 30));
    assert!(rig.files(ada()).is_empty());
}

#[test]
fn hints_of_families_that_are_gone_are_passed_over() {
    let mut rig = Rig::new();
    let store = rig.open();
    store.store(ada(), &mutation_of("Entries", 1, 3)).unwrap();
    store.store(ada(), &mutation_of("Authors", 2, 3)).unwrap();
    store.store(ada(), &mutation_of("Entries", 3, 3)).unwrap();
    store.close().unwrap();
    rig.options.schema = Arc::new(schema_of(&["Authors"]));
    let store = rig.open();
    assert_eq!(drain_by(&store, ada(), 1), [2]);
    assert_eq!((store.stats().unconfigured, store.targets()), (2, vec![]));
}

#[test]
fn hints_are_discarded_for_who_does_not_come_back() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..20);
    store_all(&store, bob(), 0..2);
    let batch = store.read_batch(ada(), 1).unwrap().unwrap();
    store.discard(ada());
    store.discard(ada());
    assert!(store.stats().discarded_bytes > 1000);
    store_all(&store, ada(), 20..22);
    // A delivery that was under way does not take away what came later.
    store.acknowledge(batch.end);
    assert_eq!(drain(&store, ada()), [20, 21]);
    assert_eq!(drain(&store, bob()), [0, 1]);
}

#[test]
fn hints_come_in_from_many_threads_while_they_are_delivered() {
    const THREADS: u64 = 4;
    const EACH: u64 = 300;
    let store = Rig::new().open();
    let is_done = AtomicBool::new(false);
    let delivered = thread::scope(|scope| {
        let deliverer = scope.spawn(|| {
            let mut delivered = Vec::new();
            loop {
                let was_done = is_done.load(Ordering::SeqCst);
                delivered.extend(drain(&store, ada()));
                if was_done {
                    return delivered;
                }
                thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    for number in thread * EACH..(thread + 1) * EACH {
                        let position = store.store(ada(), &mutation(number)).unwrap();
                        if number % 10 == 0 {
                            wait_durable(store, position).unwrap();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        is_done.store(true, Ordering::SeqCst);
        deliverer.join().unwrap()
    });
    for thread in 0..THREADS {
        let numbers = thread * EACH..(thread + 1) * EACH;
        let own: Vec<u64> = delivered.iter().copied().filter(|n| numbers.contains(n)).collect();
        assert_eq!(own, range(numbers), "each thread's hints in its order");
    }
    assert_eq!(store.targets(), []);
}

#[test]
fn a_family_that_is_added_gets_no_hints_of_an_earlier_one() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..3);
    store.store(ada(), &mutation_of("Entries", 3, 10)).unwrap();
    let schema = schema();
    store.note_added(schema.family(schema.family_id("Blog", "Authors").unwrap())).unwrap();
    rig.clock.advance(Duration::from_millis(1));
    store_all(&store, ada(), 4..6);
    store.close().unwrap();
    assert_eq!(drain(&rig.open(), ada()), [3, 4, 5]);
}
