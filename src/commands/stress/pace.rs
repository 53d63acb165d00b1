//! Pace of a run: when its operations are due, which of them count, and when it ends.

use super::workload::positive;
use crate::base::clock::Clock;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Longest sleep without a look at whether the run has been ended.
const STEP: Duration = Duration::from_millis(50);

/// Length of a run without another limit.
const USUAL: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Pace {
    /// Threads, each with a connection
    #[arg(short = 't', long, value_name = "N", default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(super) threads: u64,

    /// Operations that are due each second, whether or not earlier ones are answered; without
    /// it each thread begins an operation when its last one is answered
    #[arg(short = 'r', long, value_name = "PER_SECOND", value_parser = positive)]
    pub(super) rate: Option<f64>,

    /// Ends after this time; 10 without --operations, except that inserts in sequence end when all
    /// rows are written
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) duration: Option<Duration>,

    /// Ends after this many operations
    #[arg(short = 'o', long, value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) operations: Option<u64>,

    /// Runs for this time before anything counts
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub(super) warmup: Duration,

    /// Turns that another run has done.
    #[arg(skip)]
    pub(super) skipped: u64,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    let bounded = number.filter(|it| *it <= Duration::from_hours(24 * 365));
    bounded.ok_or_else(|| "it must be a number of seconds, at most a year".to_owned())
}

impl Pace {
    /// Limits a run that has no limit, given the operations that write all rows.
    pub(super) fn limited(mut self, pass: Option<u64>) -> Self {
        if self.duration.is_none() && self.operations.is_none() {
            match pass {
                Some(pass) => self.operations = Some(pass),
                None => self.duration = Some(USUAL),
            }
        }
        self
    }
}

/// Hands out turns to threads.
#[derive(Debug)]
pub(super) struct Schedule {
    pace: Pace,
    /// Begins with the first turn.
    start: OnceLock<Duration>,
    turns: AtomicU64,
    counted: AtomicU64,
    is_over: AtomicBool,
}

/// A turn: an operation is due.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) number: u64,
    /// If operations have times.
    pub(super) due: Option<Duration>,
    /// Whether it comes after the warm-up.
    pub(super) counts: bool,
}

impl Schedule {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            pace,
            start: OnceLock::new(),
            turns: AtomicU64::new(0),
            counted: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Waits for the next turn; `None` at the end of the run.
    pub(super) fn next(&self, clock: &dyn Clock) -> Option<Turn> {
        let start = *self.start.get_or_init(|| clock.monotonic());
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let due = self.pace.rate.map(|rate| {
            let offset = Duration::try_from_secs_f64(turn as f64 / rate);
            start.saturating_add(offset.unwrap_or(Duration::MAX))
        });
        let counting = start + self.pace.warmup;
        let end = self.pace.duration.map(|duration| counting + duration);
        let now = loop {
            let now = clock.monotonic();
            if self.is_over() || end.is_some_and(|end| now.max(due.unwrap_or(now)) >= end) {
                return None;
            }
            match due.and_then(|due| due.checked_sub(now)) {
                Some(wait) if !wait.is_zero() => thread::sleep(wait.min(STEP)),
                _ => break now,
            }
        };
        let counts = due.unwrap_or(now) >= counting;
        let mut number = turn;
        if counts {
            // Turns that count have numbers of their own: a thread that is late misses none.
            number = self.counted.fetch_add(1, Ordering::Relaxed);
            if self.pace.operations.is_some_and(|operations| number >= operations) {
                return None;
            }
        }
        Some(Turn { number: self.pace.skipped + number, due, counts })
    }

    /// Waits, unless the run ends.
    pub(super) fn pause(&self, clock: &dyn Clock, pause: Duration) {
        let until = clock.monotonic() + pause;
        while let Some(rest) = until.checked_sub(clock.monotonic())
            && !rest.is_zero()
            && !self.is_over()
        {
            thread::sleep(rest.min(STEP));
        }
    }

    /// Ends the run.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Whether the run has been ended, or has lasted as long as it should.
    pub(super) fn is_at_end(&self, clock: &dyn Clock) -> bool {
        self.is_over() || self.pace.duration.is_some_and(|it| self.counted_time(clock) >= it)
    }

    /// The time for which the run has counted operations, without what comes after its end.
    pub(super) fn counted_time(&self, clock: &dyn Clock) -> Duration {
        let Some(start) = self.start.get() else { return Duration::ZERO };
        let time = clock.monotonic().saturating_sub(*start + self.pace.warmup);
        self.pace.duration.map_or(time, |duration| time.min(duration))
    }

    /// Operations that were due in this time and had no turn.
    pub(super) fn left_out(&self, counted_time: Duration) -> u64 {
        let due = self.pace.rate.map_or(0.0, |rate| rate * counted_time.as_secs_f64()) as u64;
        let wanted = self.pace.operations.map_or(due, |operations| due.min(operations));
        wanted.saturating_sub(self.counted.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    fn pace() -> Pace {
        let warmup = Duration::ZERO;
        Pace { threads: 1, rate: None, duration: None, operations: None, warmup, skipped: 0 }
    }

    fn numbers(schedule: &Schedule, clock: &ManualClock) -> Vec<u64> {
        std::iter::from_fn(|| schedule.next(clock)).map(|turn| turn.number).collect()
    }

    #[test]
    fn a_run_has_as_many_operations_as_are_asked_for() {
        let clock = ManualClock::default();
        let schedule = Schedule::new(Pace { operations: Some(3), skipped: 5, ..pace() });
        assert_eq!(numbers(&schedule, &clock), [5, 6, 7]);
        let usual = |pass| pace().limited(pass);
        assert_eq!((usual(Some(7)).operations, usual(Some(7)).duration), (Some(7), None));
        assert_eq!((usual(None).operations, usual(None).duration), (None, Some(USUAL)));
    }

    #[test]
    fn operations_are_due_at_a_rate_however_late_they_begin() {
        let clock = ManualClock::default();
        let second = Duration::from_secs(1);
        let schedule = Schedule::new(Pace { rate: Some(4.0), duration: Some(second), ..pace() });
        assert_eq!(schedule.next(&clock).unwrap().due, Some(Duration::ZERO));
        clock.advance(Duration::from_millis(700));
        for millis in [250, 500] {
            let turn = schedule.next(&clock).unwrap();
            assert_eq!(turn.due, Some(Duration::from_millis(millis)));
        }
        clock.advance(Duration::from_millis(300));
        assert!(schedule.next(&clock).is_none());
        let counted_time = schedule.counted_time(&clock);
        assert_eq!((counted_time, schedule.left_out(counted_time)), (second, 1));
    }

    #[test]
    fn what_is_due_in_the_warmup_does_not_count() {
        let clock = ManualClock::default();
        let warmup = Duration::from_secs(1);
        let schedule = Schedule::new(Pace { operations: Some(1), warmup, ..pace() });
        assert!(!schedule.next(&clock).unwrap().counts);
        clock.advance(warmup);
        let turn = schedule.next(&clock).unwrap();
        assert_eq!((turn.number, turn.counts), (0, true));
        assert!(schedule.next(&clock).is_none());
    }

    #[test]
    fn a_run_that_is_ended_has_no_more_turns() {
        let clock = ManualClock::default();
        let schedule = Schedule::new(Pace { rate: Some(1e-300), ..pace() });
        assert!(schedule.next(&clock).is_some());
        schedule.end();
        assert!(schedule.next(&clock).is_none());
    }
}
