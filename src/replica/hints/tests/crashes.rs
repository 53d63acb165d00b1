//! Random runs that end in a power loss, a kill or a clean stop, checked against a model.

use super::*;
use crate::kit::seeds;
use proptest::prelude::*;
use std::collections::BTreeSet;

const RUNS: usize = 5;

/// Hints that must, may and must not come back, for one target.
#[derive(Default)]
struct Model {
    next: u64,
    /// Stored and handed to the system.
    stored: BTreeSet<u64>,
    /// Those of them that a power loss must not take.
    durable: BTreeSet<u64>,
    /// Delivered: they may come again, or not.
    delivered: BTreeSet<u64>,
    /// The last one that was delivered in this run.
    acknowledged: Option<u64>,
}

impl Model {
    fn must_be_there(&self) -> Vec<u64> {
        self.durable.difference(&self.delivered).copied().collect()
    }

    /// Hints that a start has found; what it has not is forgotten.
    fn check(&mut self, found: &[u64]) {
        assert!(found.is_sorted_by(|a, b| a < b), "in order, each once: {found:?}");
        let found: BTreeSet<u64> = found.iter().copied().collect();
        let is_known = |number| self.stored.contains(number) || self.delivered.contains(number);
        assert!(found.iter().all(is_known), "nothing is invented");
        for number in self.must_be_there() {
            assert!(found.contains(&number), "{number} is lost");
        }
        self.stored = found;
        // It was found, which does not make it durable.
        self.durable.retain(|number| self.stored.contains(number));
    }
}

/// All hints of a log, without an acknowledgement that would outlive the look.
fn look(rig: &Rig) -> Vec<u64> {
    drain_by(&rig.fork().open(), ada(), 1000)
}

fn store_some(store: &HintStore, model: &mut Model, rng: &mut fastrand::Rng) {
    let value_bytes = if rng.u8(..) < 20 { rng.usize(..2000) } else { rng.usize(..60) };
    let mutation = mutation_of("Authors", model.next, value_bytes);
    let position = store.store(ada(), &mutation).unwrap();
    model.stored.insert(model.next);
    model.next += 1;
    if rng.u8(..10) == 0 {
        wait_durable(store, position).unwrap();
        model.durable.clone_from(&model.stored);
    }
}

fn deliver_some(store: &HintStore, model: &mut Model, rng: &mut fastrand::Rng) {
    let Some(batch) = store.read_batch(ada(), rng.u64(1..600)).unwrap() else { return };
    let numbers: Vec<u64> = batch.hints.iter().map(number_of).collect();
    for number in &numbers {
        assert!(model.stored.contains(number));
        assert!(Some(*number) > model.acknowledged, "delivery does not go back within a run");
    }
    if rng.bool() {
        store.acknowledge(batch.end);
        model.acknowledged = numbers.last().copied().or(model.acknowledged);
        model.delivered.extend(numbers);
    }
}

/// Several runs of the store on one disk, each with random work and a random end.
fn live_through(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    rig.fs = SimFileSystem::new(seed);
    rig.options.segment_bytes = rng.choice([100, 300, 2000]).unwrap();
    let mut model = Model::default();
    for _ in 0..RUNS {
        model.check(&look(&rig));
        model.acknowledged = None;
        let store = rig.open();
        for _ in 0..rng.usize(..60) {
            match rng.u8(..20) {
                0..=11 => store_some(&store, &mut model, &mut rng),
                12..=16 => deliver_some(&store, &mut model, &mut rng),
                17 => {
                    store.sync().unwrap();
                    model.durable.clone_from(&model.stored);
                }
                _ => rig.clock.advance(Duration::from_secs(1)),
            }
        }
        match rng.u8(..4) {
            0 => {
                store.close().unwrap();
                model.durable.clone_from(&model.stored);
                rig.fs.crash(&mut rng);
            }
            1 => {
                let durable = std::mem::take(&mut model.durable);
                model.durable.clone_from(&model.stored);
                rig.fs.kill();
                model.check(&look(&rig));
                model.durable = durable;
            }
            _ => rig.fs.crash(&mut rng),
        }
    }
}

/// The power fails in the middle of some operation.
fn lose_power(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut rig = Rig::new();
    rig.fs = SimFileSystem::new(seed);
    rig.options.segment_bytes = 300;
    let store = rig.open();
    rig.fs.sync_everything();
    rig.fs.power_off_after(rng.u64(..80));
    let (mut stored, mut durable, mut delivered) = (0, 0, 0);
    for number in 0..30 {
        let result = store.store(ada(), &mutation(number));
        if let Ok(position) = result {
            stored = number + 1;
            if rng.u8(..4) == 0 && wait_durable(&store, position).is_ok() {
                durable = stored;
            }
        }
        if rng.u8(..6) == 0
            && let Ok(Some(batch)) = store.read_batch(ada(), 100)
        {
            // The deliverer has it, whatever becomes of the disk.
            delivered = batch.hints.last().map_or(delivered, |hint| number_of(hint) + 1);
            store.acknowledge(batch.end);
        }
    }
    rig.fs.crash(&mut rng);
    let found = look(&rig);
    assert!(found.is_sorted_by(|a, b| a < b), "{found:?}");
    // What was refused may be there all the same: the refusal did not promise that it is not.
    assert!(found.iter().all(|number| *number <= stored), "{found:?}");
    for number in delivered..durable {
        assert!(found.contains(&number), "{number} is lost: {found:?}");
    }
}

proptest! {
    #![proptest_config(seeds(300))]

    #[test]
    fn crashes_lose_nothing_that_was_promised(seed: u64) {
        live_through(seed);
    }

    #[test]
    fn a_power_loss_at_any_moment_keeps_what_was_promised(seed: u64) {
        lose_power(seed);
    }
}
