//! What the other tests have found, each in the fewest steps that show it.

use crate::rig::{BATCH, Rig, Setup};
use alexandra::base::sim_fs::Survival;
use fastrand::Rng;

/// A family that is flushed only on request.
const FLUSHED: u32 = 0;

fn rig(setup: Setup) -> Rig {
    Rig::new(Setup { memtable_operations: 1_000_000, min_compaction_threshold: 0, ..setup }, 1)
}

/// The directories themselves are new, and their names have to be durable as well.
#[test]
fn the_first_start_makes_its_directories_durable() {
    let mut rig = rig(Setup { sync: BATCH, ..Setup::default() });
    rig.insert(FLUSHED, "ada", ("email", 5), b"ada@example.com");
    rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert!(rig.get(FLUSHED, "ada", "email").is_some());
}
