//! What the other tests have found, each in the fewest steps that show it.

use crate::rig::{BATCH, PERIODIC, Rig, Setup, insertion};
use alexandra::base::sim_fs::Survival;
use alexandra::model::schema::FamilyId;
use fastrand::Rng;

/// Two families that are flushed only on request.
const FLUSHED: u32 = 0;
const PINNING: u32 = 2;

/// Name of a column of the second: eight bytes.
const NUMBER: &str = "12345678";

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

/// One family's part of a mutation gets durable by a flush, the other's only by the log.
#[test]
fn a_flush_does_not_save_half_of_a_mutation() {
    let mut rig = rig(Setup { sync: PERIODIC, ..Setup::default() });
    let parts = [FLUSHED, PINNING].map(|family| (family, vec![insertion(NUMBER, 1, b"whole")]));
    rig.write(b"ada", &parts);
    rig.storage().flush(FamilyId(FLUSHED)).unwrap();
    rig.crash(Survival::Nothing, &mut Rng::with_seed(1));
    rig.open().unwrap();
    assert_eq!(rig.get(FLUSHED, "ada", NUMBER), rig.get(PINNING, "ada", NUMBER));
}
