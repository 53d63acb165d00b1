//! The storage core against a model that is too simple to be wrong: a list of all writes, from
//! which every answer is worked out anew by the rules of reconciliation.
//!
//! * `random`: random writes, reads, flushes, compactions, restarts and crashes. A failure prints
//!   its seed; `ALEXANDRA_SEED=n` repeats it, `ALEXANDRA_CASES=n` asks for more than the default.
//! * `later_cells`: values that expire, and deletions of prefixes and ranges.
//! * `regressions`: what was found, one test for each bug.
//! * `caches`: key and row caches, and what is saved of them.
//! * `crash`: power fails after each single change to the disk of a fixed scenario.
//! * `compactions`: several at once, without room, behind the writers; what they purge.
//! * `faults`: each write, sync and rename fails once; the disk is full; a bit flips.
//! * `full`: the partition of the commit log or that of the data is full, also at the start.
//! * `bits`: every bit of every file is flipped.
//! * `manifests`: manifests that are not those of the files beside them.
//! * `other_logs`: segments of another server, and segments that lack what was synced.
//! * `mutated`: files with nonsense under right checksums.
//! * `families`: a thousand column families within one budget of memory.
//! * `snapshots`: snapshots, restores, and restores to a point in time, each cut off everywhere.
//! * `threads`: many threads on the same rows, on the real file system.

mod bits;
mod caches;
mod compactions;
mod crash;
mod families;
mod faults;
mod full;
mod later_cells;
mod manifests;
pub(crate) mod model;
mod mutated;
mod other_logs;
mod random;
mod regressions;
pub(crate) mod rig;
mod scenario;
mod snapshots;
mod threads;
mod uneven;
