//! Hints for a target whose place another node has taken.

use super::*;
use crate::kit::seeds;
use proptest::prelude::*;

fn carol() -> IpAddr {
    "2001:db8::3".parse().unwrap()
}

fn owner_file() -> PathBuf {
    Path::new(DIRECTORY).join("10.0.0.1").join("heir")
}

#[test]
fn the_owner_gets_them_until_the_target_is_back() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..5);
    assert_eq!(store.recipient(ada()), ada());
    store.set_owner(ada(), bob());
    assert_eq!((store.recipient(ada()), store.recipient(bob())), (bob(), bob()));
    assert_eq!(store.waiting(), [(ada(), bob())]);
    store.write_owners().unwrap();
    rig.fs.kill();
    let store = rig.open();
    assert_eq!(store.waiting(), [(ada(), bob())]);
    // The owner has an owner, too, and hints of its own.
    store_all(&store, bob(), 5..6);
    store.set_owner(bob(), carol());
    assert_eq!(store.waiting(), [(ada(), carol()), (bob(), carol())]);
    store.sync().unwrap();
    let store = rig.open();
    assert_eq!(store.waiting(), [(ada(), carol()), (bob(), carol())]);
    // It has gone back to its first address.
    store.set_owner(carol(), ada());
    assert_eq!(store.waiting(), [(ada(), ada()), (bob(), ada())]);
    store.write_owners().unwrap();
    let store = rig.open();
    assert_eq!(store.waiting(), [(ada(), ada()), (bob(), ada())]);
    assert!(store.clear_owner(bob()) && !store.clear_owner(bob()));
    store.write_owners().unwrap();
    assert_eq!(rig.open().waiting(), [(ada(), ada()), (bob(), bob())]);
    assert_eq!((drain(&store, ada()), drain(&store, bob())), (range(0..5), range(5..6)));
}

#[test]
fn late_hints_go_to_the_owner_and_no_file_is_left() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..2);
    store.set_owner(ada(), bob());
    store.sync().unwrap();
    drain(&store, ada());
    store.sync().unwrap();
    assert_eq!(rig.files(ada()), [] as [PathBuf; 0]);
    store_all(&store, ada(), 2..3);
    store.sync().unwrap();
    assert!(rig.fs.exists(&owner_file()));
    assert_eq!(rig.open().waiting(), [(ada(), bob())]);
    drain(&store, ada());
    store.close().unwrap();
    assert!(!rig.fs.exists(&Path::new(DIRECTORY).join("10.0.0.1")));
    // Of a log whose hints a crash has taken.
    rig.put(&owner_file(), b"whatever");
    assert_eq!(rig.open().waiting(), []);
    assert!(!rig.fs.exists(&Path::new(DIRECTORY).join("10.0.0.1")));
}

#[test]
fn no_changed_byte_makes_another_node_the_owner() {
    let rig = Rig::new();
    let store = rig.open();
    store_all(&store, ada(), 0..2);
    store.set_owner(ada(), carol());
    store.close().unwrap();
    let content = rig.fs.read(&owner_file()).unwrap();
    for at in 0..content.len() {
        let mut changed = content.clone();
        changed[at] ^= 1;
        rig.put(&owner_file(), &changed);
        let store = rig.open();
        assert_eq!(store.waiting(), [(ada(), ada())], "byte {at}");
        assert!(!rig.fs.exists(&owner_file()), "it is told once");
    }
    rig.put(&owner_file(), &content);
    assert_eq!(rig.open().waiting(), [(ada(), carol())]);
}

/// The power fails in the middle of some operation.
fn lose_power(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    rig.fs = SimFileSystem::new(seed);
    let store = rig.open();
    store_all(&store, ada(), 0..5);
    store.sync().unwrap();
    rig.fs.power_off_after(rng.u64(..40));
    let owners = [bob(), carol(), ada()];
    let (mut now, mut may_be) = (ada(), vec![ada()]);
    for _ in 0..8 {
        let owner = rng.choice(owners).unwrap();
        if owner == ada() {
            store.clear_owner(ada());
        } else {
            store.set_owner(ada(), owner);
        }
        may_be.push(owner);
        if rng.bool() {
            store.store(ada(), &mutation(9)).ok();
        }
        if store.write_owners().is_ok() {
            (now, may_be) = (owner, vec![owner]);
        }
    }
    rig.fs.crash(&mut rng);
    let recipient = rig.open().recipient(ada());
    assert!(may_be.contains(&recipient), "{recipient} instead of {now}, or later {may_be:?}");
    assert!(drain(&rig.open(), ada()).starts_with(&range(0..5)));
}

proptest! {
    #![proptest_config(seeds(300))]

    #[test]
    fn a_power_loss_takes_no_owner_that_is_written_down(seed: u64) {
        lose_power(seed);
    }
}
