//! Doubles of what a node gets from outside: a disk, a clock, a network; and the smallest node. The
//! unit tests of the library and the test binaries share them.

#![allow(dead_code, reason = "each of them needs a part")]

use proptest::prelude::ProptestConfig;

pub(crate) mod clock;
pub(crate) mod disk;
pub(crate) mod events;
pub(crate) mod lone_node;
pub(crate) mod manual;
pub(crate) mod network;
pub(crate) mod storage;

/// So many cases whose input is only a seed, which does not shrink; each prints its own.
pub(crate) fn seeds(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 0, ..default }
}
