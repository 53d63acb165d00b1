use super::*;
use crate::kit::disk::{Fault, Operation, Survival};
use crate::net::message::MAX_BODY_BYTES;
use rustix::io::Errno;
use std::sync::Mutex;

/// Collects what a callback is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn callback(&self) -> DurableCallback {
        let told = self.clone();
        Box::new(move |answer| {
            let text = answer.map_or_else(|error| error.to_string(), |()| "durable".into());
            told.0.lock().unwrap().push(text);
        })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Size of all files in the folder of a target.
fn bytes_of(rig: &Rig, target: IpAddr) -> u64 {
    rig.files(target).iter().map(|file| rig.fs.read(file).unwrap().len() as u64).sum()
}

#[test]
fn who_waits_is_told_when_a_hint_is_durable() {
    let rig = Rig::new();
    let (store, told) = (rig.open(), Told::default());
    let position = store.store(ada(), &mutation(1)).unwrap();
    store.on_durable(position, told.callback());
    assert_eq!(told.take(), [""; 0]);
    store.sync().unwrap();
    assert_eq!(told.take(), ["durable"]);
    store.on_durable(position, told.callback());
    assert_eq!(told.take(), ["durable"], "at once");

    let position = store.store(ada(), &mutation(2)).unwrap();
    store.on_durable(position, told.callback());
    assert_eq!(drain(&store, ada()), [1, 2]);
    assert_eq!(told.take(), ["durable"], "what was delivered needs no disk");

    let position = store.store(ada(), &mutation(3)).unwrap();
    store.on_durable(position, told.callback());
    store.discard(ada());
    assert_eq!(told.take(), ["the hints for 10.0.0.1 were discarded"]);
}

#[test]
fn a_sync_without_news_costs_nothing() {
    let rig = Rig::new();
    let store = rig.open();
    let position = store.store(ada(), &mutation(1)).unwrap();
    wait_durable(&store, position).unwrap();
    let changes = rig.fs.changes();
    store.sync().unwrap();
    wait_durable(&store, position).unwrap();
    assert_eq!(rig.fs.changes(), changes);
}

#[test]
fn a_log_is_bounded() {
    let mut rig = Rig::new();
    rig.options.max_bytes_per_target = 2000;
    let store = rig.open();
    let stored = (0..99).take_while(|n| store.store(ada(), &mutation(*n)).is_ok()).count() as u64;
    assert!(stored > 10, "{stored}");
    let error = store.store(ada(), &mutation(99)).unwrap_err();
    let text = "the hints for 10.0.0.1 have reached their limit of 2000 bytes (HintMaxSizeInMB)";
    assert_eq!(error.to_string(), text);
    assert_eq!(store.stats().refused_full, 2);
    assert!(store.targets()[0].bytes <= 2000);
    store_all(&store, bob(), 0..1);
    store.close().unwrap();
    let sizes = bytes_of(&rig, ada());
    assert!(sizes <= 2000, "with its seals too: {sizes}");
    let store = rig.open();
    assert!(store.store(ada(), &mutation_of("Authors", 99, 500)).is_err());
    assert_eq!(drain(&store, ada()), range(0..stored));
    store_all(&store, ada(), 100..101);
}

#[test]
fn a_full_disk_passes() {
    let mut rig = Rig::new();
    rig.options.segment_bytes = 5000;
    let store = rig.open();
    store_all(&store, ada(), 0..2);
    for room in [0, 10, 40, 90] {
        let used = bytes_of(&rig, ada());
        rig.fs.set_capacity(Some(used + room));
        let error = store.store(ada(), &mutation_of("Authors", 99, 100)).unwrap_err();
        assert!(matches!(error, HintError::NoSpace(_)), "{error}");
        assert_eq!(bytes_of(&rig, ada()), used, "no part of the hint stays");
        assert!(store.store(bob(), &mutation_of("Authors", 99, 100)).is_err());
    }
    assert_eq!(store.stats().refused_no_space, 8);
    rig.fs.set_capacity(None);
    store_all(&store, ada(), 2..4);
    store_all(&store, bob(), 7..8);
    assert_eq!(rig.files(ada()).len(), 1, "the same file goes on");
    let reopened = rig.fork().open();
    assert_eq!(drain(&reopened, ada()), range(0..4));
    assert_eq!(drain(&store, ada()), range(0..4));
    assert_eq!(drain(&store, bob()), [7]);
    assert_eq!(store.stats().damaged_bytes, 0);
}

#[test]
fn after_a_failed_write_hints_go_to_another_file() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..2);
    rig.fs.inject(Fault::next(Operation::Write, Errno::IO));
    let error = store.store(ada(), &mutation(9)).unwrap_err();
    assert!(error.to_string().starts_with("hints: cannot write /data/hints/10.0.0.1/1.hints"));
    store_all(&store, ada(), 2..4);
    assert_eq!(rig.files(ada()).len(), 2);
    assert_eq!(drain(&rig.fork().open(), ada()), range(0..4));
    store.sync().unwrap();
    assert_eq!(drain(&store, ada()), range(0..4));
    assert_eq!((store.stats().failed, store.stats().damaged_bytes), (1, 0));
}

#[test]
fn a_file_that_could_not_be_made_is_none() {
    let rig = Rig::new();
    let store = rig.open();
    for operation in [Operation::CreateDir, Operation::Create, Operation::Write] {
        rig.fs.inject(Fault::next(operation, Errno::IO));
        assert!(store.store(ada(), &mutation(9)).is_err());
        assert_eq!(store.targets(), []);
    }
    store_all(&store, ada(), 0..2);
    assert_eq!(drain(&rig.fork().open(), ada()), [0, 1]);
}

#[test]
fn a_failed_sync_is_not_repeated() {
    let rig = Rig::new();
    let (store, told) = (rig.open(), Told::default());
    store_all(&store, ada(), 0..1);
    store.sync().unwrap();
    let lost = store.store(ada(), &mutation(1)).unwrap();
    store.on_durable(lost, told.callback());
    rig.fs.inject(Fault::next(Operation::Sync, Errno::IO));
    let error = wait_durable(&store, lost).unwrap_err();
    assert!(error.to_string().contains("cannot sync"), "{error}");
    assert_eq!(told.take(), [error.to_string()]);
    let syncs = rig.fs.count(Operation::Sync);
    store.sync().unwrap();
    assert!(wait_durable(&store, lost).is_err());
    assert_eq!(rig.fs.count(Operation::Sync), syncs);
    // Further hints are durable, in another file.
    let position = store.store(ada(), &mutation(2)).unwrap();
    assert!(position.segment > lost.segment);
    wait_durable(&store, position).unwrap();
    assert_eq!(drain(&store, ada()), range(0..3), "what can be read is delivered");
}

/// A process that is killed leaves to the system what it had not synced; the next one syncs it.
#[test]
fn what_an_earlier_run_has_left_gets_durable() {
    let rig = Rig::new();
    store_all(&rig.open(), ada(), 0..20);
    rig.fs.kill();
    let store = rig.open();
    rig.fs.inject(Fault::next(Operation::Open, Errno::MFILE));
    assert!(store.sync().is_err(), "without a handle nothing happened, which may be tried again");
    store.sync().unwrap();
    rig.fs.crash_keeping(Survival::Nothing, &mut fastrand::Rng::with_seed(1));
    assert_eq!(drain(&rig.open(), ada()), range(0..20));
}

#[test]
fn nothing_new_is_durable_after_names_were_lost() {
    let rig = Rig::new();
    let (store, told) = (rig.open(), Told::default());
    let position = store.store(ada(), &mutation(1)).unwrap();
    store.on_durable(position, told.callback());
    rig.fs.inject(Fault::next(Operation::SyncDir, Errno::IO));
    assert!(store.sync().is_err());
    assert_eq!(told.take().len(), 1);
    assert!(wait_durable(&store, position).is_err());
    let other = store.store(bob(), &mutation(2)).unwrap();
    assert!(wait_durable(&store, other).is_err());
    assert_eq!(drain(&store, ada()), [1]);
}

#[test]
fn a_hint_that_cannot_be_read_now_is_not_passed_over() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..20);
    rig.fs.inject(Fault::next(Operation::Read, Errno::IO));
    assert!(store.read_batch(ada(), 100).is_err());
    rig.fs.inject(Fault::nth(Operation::Read, 1, Errno::IO));
    let batch = store.read_batch(ada(), 10_000).unwrap().unwrap();
    assert!((1..20).contains(&batch.hints.len()), "what could be read is delivered first");
    assert_eq!(drain(&store, ada()), range(0..20));
}

#[test]
fn what_no_message_holds_is_not_kept_and_holds_up_nothing() {
    let mut rig = Rig::new();
    rig.options.max_bytes_per_target = 1 << 30;
    let store = rig.open();
    let large = mutation_of("Authors", 1, MAX_BODY_BYTES);
    let error = store.store(ada(), &large).unwrap_err();
    assert!(matches!(error, HintError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains(&format!("the {MAX_BODY_BYTES} that a message")), "{error}");
    assert_eq!((store.stats().failed, rig.files(ada()).len()), (1, 0));
    store.store(ada(), &mutation(2)).unwrap();
    assert_eq!(drain(&store, ada()), [2]);
    assert!(store.store(ada(), &mutation_of("Authors", 3, MAX_BODY_BYTES - (1 << 10))).is_ok());
}
