//! A run: threads that take turns, and the one that watches them.

use super::calls::Calls;
use super::nodes::{Connection, Nodes};
use super::pace::{Pace, Schedule};
use super::tally::{Tally, Times};
use super::trouble::{Trouble, TroubleKind};
use crate::base::clock::{Clock, SystemClock};
use crate::base::lock::{Mutex, rank};
use crate::commands::output::Failure;
use fastrand::Rng;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// How long the last answers may take after the end.
const GRACE: Duration = Duration::from_secs(15);

/// The same after Ctrl-C: somebody waits.
const INTERRUPTED_GRACE: Duration = Duration::from_secs(2);

/// A run in which nothing has succeeded for this time, and something failed, is ended.
const HOPELESS: Duration = Duration::from_secs(30);

/// How often the watching thread looks whether the run is to end.
const STEP: Duration = Duration::from_millis(50);

/// State that threads share.
struct Run {
    calls: Arc<Calls>,
    nodes: Nodes,
    schedule: Schedule,
    /// Of each thread, since they were drained last.
    tallies: Vec<Mutex<rank::State, Tally>>,
    clock: SystemClock,
    ends_at_failure: bool,
}

/// A part of a run, or all of it.
pub(super) struct Outcome {
    pub(super) tally: Tally,
    /// The time for which operations counted.
    pub(super) time: Duration,
    /// Operations that were due and had no turn.
    pub(super) left_out: u64,
}

/// How a run is watched.
pub(super) struct Watch<'w> {
    /// Time between calls of `tell`.
    pub(super) interval: Duration,
    /// Tells of an interval and of its end.
    pub(super) tell: &'w mut dyn FnMut(&Outcome, Duration),
    pub(super) interrupted: &'w AtomicBool,
    pub(super) ends_at_failure: bool,
}

/// Runs a workload on nodes.
pub(super) fn run(
    calls: &Arc<Calls>,
    nodes: &Nodes,
    pace: &Pace,
    watch: Watch<'_>,
) -> Result<Outcome, Failure> {
    let kinds = calls.workload.mix.kinds().len();
    let run = Arc::new(Run {
        calls: Arc::clone(calls),
        nodes: nodes.clone(),
        schedule: Schedule::new(pace.clone()),
        tallies: (0..pace.threads).map(|_| Mutex::new(Tally::new(kinds))).collect(),
        clock: SystemClock::new(),
        ends_at_failure: watch.ends_at_failure,
    });
    let barrier = Arc::new(Barrier::new(run.tallies.len()));
    let (running, ended) = mpsc::channel::<()>();
    for number in 0..run.tallies.len() {
        let (run, barrier, running) = (Arc::clone(&run), Arc::clone(&barrier), running.clone());
        let work = move || run.work(number, &barrier, &running);
        let spawned = thread::Builder::new().name(format!("stress {number}")).spawn(work);
        spawned.map_err(|error| {
            Failure::new(format_args!("cannot start thread {number}: {error}; try fewer --threads"))
        })?;
    }
    drop(running);
    Ok(run.watch(watch, &ended))
}

impl Run {
    /// Takes turns to the end.
    fn work(&self, number: usize, barrier: &Barrier, ended: &Sender<()>) {
        let mut rng = Rng::with_seed(self.calls.workload.access.seed.wrapping_add(number as u64));
        let mut connection = Connection::new(&self.nodes, &self.calls.place, number);
        // The first operation goes to the next node.
        if let Err(trouble) = connection.client() {
            self.tallies[number].lock().fail(trouble, 1);
        }
        barrier.wait();
        while let Some(turn) = self.schedule.next(&self.clock) {
            let operation = self.calls.workload.operation(turn.number, &mut rng);
            let of_old = self.calls.workload.rows.of_old;
            let timestamp = if of_old { 0 } else { self.clock.now_micros() };
            let sent = self.clock.monotonic();
            let outcome = connection
                .client()
                .and_then(|client| self.calls.perform(client, &operation, timestamp));
            let answered = self.clock.monotonic();
            if outcome.is_err() && self.ends_at_failure {
                self.schedule.end();
            }
            if turn.counts {
                let times = Times { due: turn.due, sent, answered };
                self.tallies[number].lock().record(operation.place, times, outcome);
            }
            self.schedule.pause(&self.clock, connection.pause());
        }
        // Nobody waits for it if it comes too late.
        let _ = ended.send(());
    }

    /// Collects what the threads record, until all of them have ended.
    fn watch(&self, watch: Watch<'_>, ended: &Receiver<()>) -> Outcome {
        let Watch { interval, tell, interrupted, .. } = watch;
        let kinds = self.calls.workload.mix.kinds().len();
        let (mut total, mut part, mut spare) =
            (Tally::new(kinds), Tally::new(kinds), Tally::new(kinds));
        let mut running = self.tallies.len() as u64;
        let (mut told, mut succeeded) = (Duration::ZERO, self.clock.monotonic());
        let mut end = None;
        loop {
            match ended.recv_timeout(STEP) {
                Ok(()) => running -= 1,
                // A thread that panicked has said so.
                Err(RecvTimeoutError::Disconnected) => running = 0,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let mut grace = GRACE;
            if interrupted.load(Ordering::Relaxed) {
                self.schedule.end();
                grace = INTERRUPTED_GRACE;
            }
            let now = self.clock.monotonic();
            if self.schedule.is_at_end(&self.clock) {
                end = end.or(Some(now));
            }
            let is_last = running == 0 || end.is_some_and(|end| now > end + grace);
            let time = self.schedule.counted_time(&self.clock);
            if !is_last && time < told + interval {
                continue;
            }
            part.clear();
            for tally in &self.tallies {
                std::mem::swap(&mut *tally.lock(), &mut spare);
                part.add(&spare);
                spare.clear();
            }
            total.add(&part);
            let outcome = Outcome { tally: part, time: time.saturating_sub(told), left_out: 0 };
            tell(&outcome, time);
            part = outcome.tally;
            told = time;
            if part.succeeded() > 0 {
                succeeded = now;
            } else if total.failed() > 0 && now > succeeded + HOPELESS && end.is_none() {
                complain!("the run ends: nothing has succeeded for {} seconds", HOPELESS.as_secs());
                self.schedule.end();
            }
            if is_last {
                if running > 0 {
                    let text = format!("no answer came within {} s of the end", grace.as_secs());
                    total.fail(Trouble::new(TroubleKind::Unanswered, text), running);
                }
                return Outcome { tally: total, time, left_out: self.schedule.left_out(time) };
            }
        }
    }
}
