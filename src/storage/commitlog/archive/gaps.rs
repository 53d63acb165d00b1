//! Whether all segments are there that a replay needs.

use super::super::Position;
use super::super::survey::{Survey, Surveyed};
use super::timeline::Wanted;
use std::collections::BTreeSet;

/// More segments than anybody would look for: a bound on what a segment from elsewhere could make
/// us list.
const MAX_LISTED: usize = 1000;

/// Ids of the segments that should be there and are not, up to the place where a replay stops.
pub(super) fn missing(
    surveyed: &[(u64, Surveyed)],
    wanted: &Wanted,
    stop: Option<Position>,
) -> BTreeSet<u64> {
    let stop = stop.unwrap_or(Position::MAX);
    let mut missing = BTreeSet::new();
    let parts = wanted.timelines().iter().flat_map(|timeline| timeline.parts());
    for (from, to) in parts.filter(|(from, to)| from < to && *from < stop) {
        let mut chain = Chain::begin(*from);
        for (id, found) in surveyed {
            if *id < from.segment || *id > to.segment.min(stop.segment) {
                continue;
            }
            chain.add(*id, found, &mut missing);
        }
        chain.end((*to).min(stop), &mut missing);
        if missing.len() >= MAX_LISTED {
            break;
        }
    }
    let there: BTreeSet<u64> = surveyed.iter().map(|(id, _)| *id).collect();
    missing.difference(&there).copied().take(MAX_LISTED).collect()
}

/// A part of the log from its beginning on.
#[derive(Debug)]
struct Chain {
    /// Everything up to the end of this segment is accounted for.
    covered: u64,
    /// The first segment, if the part begins within one.
    first: Option<u64>,
    run: Option<u64>,
    /// The segment that the last one names as its successor.
    next: Option<u64>,
}

impl Chain {
    fn begin(from: Position) -> Self {
        let is_within = from.segment > 0 && from.offset < u64::MAX;
        let first = is_within.then_some(from.segment);
        Self { covered: from.segment, first, run: None, next: None }
    }

    fn add(&mut self, id: u64, found: &Surveyed, missing: &mut BTreeSet<u64>) {
        let Surveyed::Segment(survey) = found else {
            // It is damaged, which is reported as such.
            self.covered = id;
            self.first = None;
            self.run = None;
            self.next = None;
            return;
        };
        match self.first.take() {
            Some(first) if first == id => {}
            first => {
                missing.extend(first);
                if id > self.covered {
                    self.follow(id, survey, missing);
                }
            }
        }
        self.covered = self.covered.max(id);
        self.run = Some(survey.header.run);
        self.next = survey.next();
    }

    fn follow(&self, id: u64, survey: &Survey, missing: &mut BTreeSet<u64>) {
        let (run, previous) = (survey.header.run, survey.header.previous);
        let from = if self.run == Some(run) {
            self.covered + 1
        } else {
            // What the segment before names was made durable before it was named.
            missing.extend(self.next);
            if previous > self.covered {
                missing.insert(previous);
            }
            run
        };
        missing.extend((from..id).take(MAX_LISTED));
    }

    fn end(self, to: Position, missing: &mut BTreeSet<u64>) {
        missing.extend(self.first);
        if to == Position::MAX {
            missing.extend(self.next);
        } else if to.segment > self.covered {
            missing.insert(to.segment);
        }
    }
}
