//! Log lines that a client or a peer can cause, limited in number.

use super::clock::Clock;
use crate::base::lock::{Mutex, rank};
use log::Level;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::sync::Arc;
use std::time::Duration;

/// Most subjects that are remembered. Lines about others have only the limit for all.
const MOST_SUBJECTS: usize = 1024;

/// The limit for all subjects together. The start of a large ring has two lines for each node.
const OF_ALL: Limit = Limit { burst: 2048, interval: Duration::from_millis(100) };

/// Writes few lines about a subject, such as a reason or an address.
#[derive(Debug)]
pub struct LimitedLog<S> {
    /// Target of the lines, by which an operator filters.
    target: &'static str,
    clock: Arc<dyn Clock>,
    /// The limit for one subject.
    limit: Limit,
    allowances: Mutex<rank::Last, Allowances<S>>,
}

/// The number of lines that may be written at once, and the time until one more may be.
#[derive(Debug)]
struct Limit {
    burst: u32,
    interval: Duration,
}

#[derive(Debug)]
struct Allowances<S> {
    by_subject: BTreeMap<S, Allowance>,
    of_all: Allowance,
    /// Time of the next search for subjects whose burst is whole again.
    tidy_at: Duration,
}

/// The lines that may be written under a limit.
#[derive(Debug, Default)]
struct Allowance {
    /// Time at which a whole burst may be written again.
    full_at: Duration,
    /// Lines left out since the last one that was written.
    left_out: u64,
}

impl<S: Ord> LimitedLog<S> {
    /// A log with the target of its lines, and the shortest time between two about one subject.
    pub fn new(target: &'static str, clock: Arc<dyn Clock>, interval: Duration) -> Self {
        let (by_subject, of_all, tidy_at) = (BTreeMap::new(), Allowance::default(), Duration::ZERO);
        let allowances = Mutex::new(Allowances { by_subject, of_all, tidy_at });
        Self { target, clock, limit: Limit { burst: 1, interval }, allowances }
    }

    /// Allows this many lines about a subject at once.
    #[must_use]
    pub fn with_burst(self, burst: u32) -> Self {
        Self { limit: Limit { burst, ..self.limit }, ..self }
    }

    /// Logs a warning, unless there were too many lines about this subject. Says how many lines it
    /// left out.
    pub fn warn(&self, about: S, line: Arguments<'_>) {
        self.log(Level::Warn, about, line);
    }

    /// Logs a line under the same rule.
    pub fn log(&self, level: Level, about: S, line: Arguments<'_>) {
        let target = self.target;
        if !log::log_enabled!(target: target, level) {
            return;
        }
        match self.due(about) {
            Some(0) => log::log!(target: target, level, "{line}"),
            Some(left_out) => {
                log::log!(target: target, level, "{line} ({left_out} more of this kind before)");
            }
            None => {}
        }
    }

    /// The number of lines that were left out before this one; `None` if it is to be as well.
    fn due(&self, about: S) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut allowances = self.allowances.lock();
        let Allowances { by_subject, of_all, tidy_at } = &mut *allowances;
        if by_subject.len() >= MOST_SUBJECTS && now >= *tidy_at {
            by_subject.retain(|_, allowance| allowance.full_at > now);
            *tidy_at = now + self.limit.interval;
        }
        if by_subject.len() >= MOST_SUBJECTS && !by_subject.contains_key(&about) {
            return of_all.take(now, &OF_ALL);
        }
        let left_out = by_subject.entry(about).or_default().take(now, &self.limit)?;
        Some(left_out + of_all.take(now, &OF_ALL)?)
    }
}

impl Allowance {
    fn take(&mut self, now: Duration, limit: &Limit) -> Option<u64> {
        let full_at = self.full_at.max(now) + limit.interval;
        if full_at > now + limit.interval * limit.burst {
            self.left_out += 1;
            return None;
        }
        self.full_at = full_at;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::clock::ManualClock;

    const INTERVAL: Duration = Duration::from_secs(5);

    fn limited(burst: u32) -> (Arc<ManualClock>, LimitedLog<u32>) {
        let clock = Arc::new(ManualClock::default());
        let log = LimitedLog::new("test", Arc::<ManualClock>::clone(&clock) as _, INTERVAL);
        (clock, log.with_burst(burst))
    }

    #[test]
    fn lines_about_one_subject_are_rare() {
        let (clock, log) = limited(1);
        assert_eq!(log.due(1), Some(0));
        assert_eq!((log.due(1), log.due(1), log.due(2)), (None, None, Some(0)));
        clock.advance(INTERVAL);
        assert_eq!((log.due(1), log.due(1)), (Some(2), None));
    }

    #[test]
    fn a_burst_is_written_at_once() {
        let (clock, log) = limited(16);
        assert!((0..16).all(|_| log.due(1) == Some(0)));
        assert_eq!((log.due(1), log.due(1), log.due(2)), (None, None, Some(0)));
        clock.advance(INTERVAL);
        assert_eq!((log.due(1), log.due(1)), (Some(2), None));
        clock.advance(INTERVAL * 16);
        assert_eq!((log.due(1), log.due(1)), (Some(1), Some(0)));
    }

    #[test]
    fn lines_about_many_subjects_are_few_as_well() {
        let (clock, log) = limited(1);
        let lines = || (0..100_000).filter(|subject| log.due(*subject).is_some()).count();
        assert_eq!(lines(), OF_ALL.burst as usize);
        assert!(log.allowances.lock().by_subject.len() <= MOST_SUBJECTS);
        clock.advance(OF_ALL.interval * 10);
        assert_eq!(lines(), 10);
    }
}
