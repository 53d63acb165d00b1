//! A fixed scenario whose power fails after each single change to the disk.

use crate::kit::disk::Survival;
use crate::storage_model::rig::{BATCH, Outcome, PERIODIC, Rig, Setup, insertion};
use crate::storage_model::scenario::{Ended, Scenario};
use fastrand::Rng;

/// Runs the scenario with a power failure after each number of changes, until it ends before.
fn fail_everywhere(setup: Setup, survival: Survival) {
    for changes in 0.. {
        assert!(changes < 5000, "the scenario does not end");
        let mut rng = Rng::with_seed(changes);
        let mut scenario = Scenario::new(setup, changes);
        scenario.rig.disk.power_off_after(changes);
        let ended = scenario.run();
        scenario.rig.crash(survival, &mut rng);
        // The recovery may be cut off as well.
        scenario.rig.disk.power_off_after(rng.u64(..60));
        let _ = scenario.rig.open();
        scenario.rig.crash(survival, &mut rng);
        scenario.check_recovered(changes);
        if ended == Ended::Complete {
            assert!(changes > 100, "only {changes} changes were visited");
            return;
        }
    }
}

#[test]
fn power_loss_that_keeps_nothing() {
    fail_everywhere(Setup { sync: BATCH, ..scenario_setup() }, Survival::Nothing);
}

#[test]
fn power_loss_that_keeps_some() {
    fail_everywhere(Setup { sync: BATCH, ..scenario_setup() }, Survival::Partly);
}

#[test]
fn power_loss_with_two_data_directories() {
    let setup = Setup { sync: BATCH, data_directories: 2, ..scenario_setup() };
    fail_everywhere(setup, Survival::Partly);
}

#[test]
fn power_loss_with_levels() {
    let strategy = alexandra::storage::CompactionStrategy::Leveled;
    fail_everywhere(Setup { sync: BATCH, strategy, ..scenario_setup() }, Survival::Partly);
}

#[test]
fn a_kill() {
    fail_everywhere(Setup { sync: PERIODIC, ..scenario_setup() }, Survival::Everything);
}

/// Only what the scenario asks for is flushed and compacted, nearly.
fn scenario_setup() -> Setup {
    Setup { memtable_operations: 60, min_compaction_threshold: 3, ..Setup::default() }
}

/// The check itself: a rig from which an acknowledged write is taken away fails it.
#[test]
#[should_panic(expected = "ada")]
fn a_lost_write_is_noticed() {
    let mut scenario = Scenario::new(Setup { sync: PERIODIC, ..scenario_setup() }, 0);
    scenario.rig.open().unwrap();
    scenario.insert(0, "ada", b"not synced");
    scenario.rig.crash(Survival::Nothing, &mut Rng::with_seed(0));
    scenario.check_recovered(0);
}

/// A write that is refused for want of power is none of the acknowledged.
#[test]
fn without_power_nothing_is_acknowledged() {
    let mut rig = Rig::unopened(Setup::default(), 0);
    rig.open().unwrap();
    rig.disk.power_off();
    let outcome = rig.write(b"ada", &[(0, vec![insertion("12345678", 1, b"")])]);
    assert!(!matches!(outcome, Outcome::Done), "{outcome:?}");
}
