use super::rank::{Files, Flush, Gate};
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

/// The message of the panic, if there is one.
fn panic_of<T>(take: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(take()))).err()?;
    Some(*panic.downcast::<String>().expect("the order of locks panics with a text"))
}

#[test]
fn an_inversion_names_both_locks() {
    let (gate, manifest) = (RwLock::<Gate, _>::default(), Mutex::<Files, _>::new(1));
    let locked = manifest.lock();
    let message = panic_of(|| gate.read() as RwLockReadGuard<'_, u8>).unwrap();
    assert!(message.contains("`gate` is taken under the lock `files`"), "{message}");
    assert!(message.contains(file!()), "it tells where: {message}");
    drop(locked);
    let read = gate.read();
    assert_eq!(*manifest.lock(), 1, "in order, and free again after a panic");
    assert!(panic_of(|| gate.read()).is_some(), "a writer may wait between two reads");
    drop(read);
    drop(gate.write());
}

#[test]
fn guards_are_dropped_in_any_order() {
    let (gate, manifest) = (RwLock::<Gate, ()>::default(), Mutex::<Files, ()>::default());
    let (writing, locked) = (gate.write(), manifest.lock());
    drop(writing);
    assert!(panic_of(|| gate.write()).is_some());
    drop(locked);
    drop(gate.write());
}

#[test]
fn numbered_locks_of_one_rank_are_taken_by_ascending_number() {
    let [first, second, same] = [1, 2, 2].map(|number| Mutex::<Flush, ()>::numbered(number, ()));
    let (one, two) = (first.lock(), second.lock());
    assert!(panic_of(|| same.lock()).is_some());
    drop(one);
    let message = panic_of(|| first.lock()).unwrap();
    assert!(message.contains("`flush` is taken under the lock `flush`"), "{message}");
    drop(two);
}

#[test]
fn a_tried_lock_counts_as_held() {
    let (gate, manifest) = (RwLock::<Gate, ()>::default(), Mutex::<Files, ()>::default());
    let locked = manifest.lock();
    assert!(manifest.try_lock().is_none());
    let reading = gate.try_read().expect("nobody waits, so that the order does not matter");
    drop(locked);
    assert!(panic_of(|| gate.read()).is_some());
    drop(reading);
    let tried = manifest.try_lock();
    assert!(panic_of(|| gate.read()).is_some());
    drop(tried);
    drop(gate.read());
}

#[test]
fn a_wait_gives_its_rank_back() {
    let (is_open, opened) = (Mutex::<Files, _>::new(false), Condvar::default());
    let gate = RwLock::<Gate, ()>::default();
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let (is_open, opened, gate) = (&is_open, &opened, &gate);
        scope.spawn(move || {
            let mut open = is_open.lock();
            tell.send(()).unwrap();
            opened.wait_while(&mut open, |open| {
                // While it waits, the thread does not hold the lock.
                drop(gate.read());
                !*open
            });
            assert!(panic_of(|| gate.read()).is_some(), "it holds the lock again");
        });
        told.recv().unwrap();
        *is_open.lock() = true;
        opened.notify_all();
    });
    let mut open = is_open.lock();
    assert!(!opened.wait_for(&mut open, Duration::ZERO), "nobody notifies");
    drop(open);
    drop(gate.read());
}

#[test]
fn no_wait_under_a_lock_that_comes_after() {
    let (outer, changed) = (Mutex::<Gate, ()>::default(), Condvar::default());
    let inner = Mutex::<Files, ()>::default();
    let (mut waiting, held) = (outer.lock(), inner.lock());
    let message = panic_of(|| changed.wait(&mut waiting)).unwrap();
    assert!(message.contains("`gate` is taken under the lock `files`"), "{message}");
    drop((waiting, held));
    drop(outer.lock());
}
