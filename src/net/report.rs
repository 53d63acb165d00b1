//! Log lines about peers and whoever else connects: clear, and never more than a few.

use crate::base::clock::Clock;
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Shortest time between two lines about one address.
const INTERVAL: Duration = Duration::from_secs(5);

/// Most addresses that are remembered.
const MOST_ADDRESSES: usize = 1024;

/// Decides whether a line is due.
#[derive(Debug)]
pub(super) struct Reporter {
    clock: Arc<dyn Clock>,
    /// When the last line about an address was written, and how many were left out since.
    last: Mutex<BTreeMap<IpAddr, (Duration, u64)>>,
}

impl Reporter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, last: Mutex::default() }
    }

    /// Logs a warning, unless there was one about this address a moment ago. Says how many it left
    /// out.
    pub(super) fn warn(&self, about: IpAddr, line: Arguments<'_>) {
        match self.due(about) {
            Some(0) => log::warn!("{line}"),
            Some(left_out) => log::warn!("{line} ({left_out} more about this address before)"),
            None => {}
        }
    }

    fn due(&self, about: IpAddr) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, left_out)) = last.get_mut(&about) {
            if now.saturating_sub(*at) < INTERVAL {
                *left_out += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(left_out));
        }
        if last.len() >= MOST_ADDRESSES {
            last.retain(|_, (at, _)| now.saturating_sub(*at) < INTERVAL);
        }
        if last.len() >= MOST_ADDRESSES {
            return None;
        }
        last.insert(about, (now, 0));
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    #[test]
    fn lines_about_one_address_are_rare() {
        let clock = Arc::new(ManualClock::default());
        let reporter = Reporter::new(Arc::<ManualClock>::clone(&clock));
        let (a, b) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        assert_eq!(reporter.due(a), Some(0));
        assert_eq!((reporter.due(a), reporter.due(a), reporter.due(b)), (None, None, Some(0)));
        clock.advance(INTERVAL);
        assert_eq!((reporter.due(a), reporter.due(a)), (Some(2), None));
        for i in 0..2000u32 {
            reporter.due(std::net::Ipv4Addr::from_bits(i).into());
        }
        assert!(reporter.last.lock().unwrap().len() <= MOST_ADDRESSES);
    }
}
