//! A cluster in one process: the same coordinators, replicas, storage, hints and gossip that a
//! server runs, on disks, clocks and a network that a seed decides about. Clients work on it while
//! things go wrong, and what they were told is judged by rules of its own.
//!
//! * `simulation`: one run, from the seed to the verdict.
//! * `cluster`, `node`, `clock`, `network`: what the nodes live on.
//! * `client`, `history`: what clients do, and what they are told.
//! * `faults`: what goes wrong, and when.
//! * `operator`: how the ring grows and shrinks meanwhile.
//! * `at_once`: changes of the ring that are begun at the same time, and nothing else.
//! * `checker`: the judge.
//! * `registers`, `line`: clients that write under conditions, and their judge.
//! * `defects`, `tampering`: what the harness can build into nodes, so that it is known to find it.
//!
//! A failure prints its seed. `ALEXANDRA_SEED=n` repeats it, `ALEXANDRA_SEEDS=n` asks for more runs
//! than the default.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]
#![allow(clippy::print_stderr, reason = "a failing case says which it is")]

mod at_once;
mod checker;
mod client;
mod clock;
mod cluster;
mod defects;
mod faults;
mod history;
#[path = "../kit/mod.rs"]
mod kit;
mod line;
mod local_family;
mod network;
mod node;
mod operator;
mod registers;
mod simulation;
mod tampering;

use cluster::{Profile, Setup};
use defects::Defect;
use simulation::{Failure, Simulation, Summary};

/// Runs that are made when nobody asks for more.
const SEEDS: u64 = 150;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number"))
}

/// The profile of a seed, so that all are met.
fn profile(seed: u64) -> Profile {
    Profile::ALL[(seed % Profile::ALL.len() as u64) as usize]
}

fn run(seed: u64) -> Summary {
    let setup = Setup::new(seed, profile(seed), None);
    match Simulation::run(setup) {
        Ok(summary) => summary,
        Err(failure) => panic!("ALEXANDRA_SEED={seed}\n{failure}"),
    }
}

#[test]
fn clusters_keep_what_they_promise() {
    if let Some(seed) = number("ALEXANDRA_SEED") {
        eprintln!("{}", run(seed));
        return;
    }
    let seeds = number("ALEXANDRA_SEEDS").unwrap_or(SEEDS);
    let runs = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let own = move || (0..seeds).filter(|seed| seed / 5 % 2 == half).map(run).collect();
            scope.spawn(own)
        });
        let join = |half: std::thread::ScopedJoinHandle<'_, Vec<Summary>>| half.join();
        halves.map(|half| join(half).unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let runs: Vec<Summary> = runs.into_iter().flatten().collect();
    eprintln!("{} runs: {}", runs.len(), Summary::sum(&runs));
}

/// Each defect, a profile in which clients can see it, and the seed that found it last: the search
/// begins there, and goes on where a change of the code has moved it.
const DEFECTS: [(Defect, Profile, u64); 20] = [
    (Defect::AcknowledgedBeforeWritten, Profile::Kills, 0),
    (Defect::WritesForgotten, Profile::Kills, 1),
    (Defect::SyncSkipped, Profile::PowerLosses, 5),
    (Defect::RowsTorn, Profile::WholeRows, 1),
    (Defect::ReadsOfNothing, Profile::Kills, 0),
    (Defect::DeletionsUntold, Profile::Kills, 2),
    (Defect::PagesCutShort, Profile::Kills, 0),
    (Defect::HintsOff, Profile::HintsAlone, 0),
    (Defect::RepairsOff, Profile::Kills, 0),
    (Defect::ReplicationFactorWrong, Profile::Kills, 0),
    (Defect::GraceOfNothing, Profile::Kills, 0),
    (Defect::MessageIdsRepeat, Profile::Restarts, 8),
    (Defect::ChecksumsIgnored, Profile::Kills, 0),
    (Defect::HeirsIdle, Profile::Kills, 4),
    (Defect::PendingForgotten, Profile::Kills, 1),
    (Defect::PiecesIncomplete, Profile::Kills, 2),
    (Defect::HearingSkipped, Profile::Kills, 29),
    (Defect::RemovalsForgotten, Profile::Kills, 4),
    (Defect::PromisesForgotten, Profile::Kills, 1),
    (Defect::ProposalsUnfinished, Profile::Kills, 34),
];

/// By so many seeds each of them has to be found.
const SEEDS_FOR_A_DEFECT: u64 = 200;

#[test]
fn every_defect_is_found() {
    let mut missed = Vec::new();
    for (defect, profile, first) in DEFECTS {
        // Without hints nothing is wrong for clients, but replicas stay different.
        let shows = |failure: &Failure| failure.is_seen || defect == Defect::HintsOff;
        let found = (first..first + SEEDS_FOR_A_DEFECT).find_map(|seed| {
            let failure = Simulation::run(Setup::new(seed, profile, Some(defect))).err()?;
            shows(&failure).then_some((seed, failure))
        });
        match found {
            Some((seed, failure)) => {
                let what: String = failure.what.lines().next().unwrap_or_default().into();
                eprintln!("{defect:?} is found by seed {seed}: {what}");
            }
            None => missed.push(defect),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn a_seed_decides_everything() {
    // In each profile. In seed 11 power is lost soon after a start that replayed a log.
    for seed in (0..5).chain([11]) {
        let traces = [run(seed), run(seed)].map(|summary| summary.trace);
        assert_eq!(traces[0], traces[1], "of seed {seed}");
    }
}
