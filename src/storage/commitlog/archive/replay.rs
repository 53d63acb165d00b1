//! Replay from the folder of a history: over many runs, from a snapshot on, up to a time.

use super::super::Position;
use super::super::error::{Damage, ReplayError};
use super::super::files;
use super::super::format::TIME_BYTES;
use super::super::replay::{Apply, deliver};
use super::super::survey::{Survey, Surveyed, durable_positions};
use super::segment_ids;
use crate::base::fs::FileSystem;
use crate::storage::error::FileContext;
use crate::storage::log::HEAD_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// More segments than anybody would look for: a bound on what a segment from elsewhere could make
/// us list.
const MAX_LISTED: usize = 1000;

/// A replay that was looked into and has not begun.
#[derive(Debug)]
pub struct ArchiveReplay {
    /// The segments that hold something of it.
    segments: Vec<Survey>,
    /// Nothing after this is applied.
    pub stop: Position,
    /// Whether it stops because the time is reached, not because the log ends.
    pub reaches_time: bool,
    /// The last time that the log notes before it stops, in milliseconds since the Unix epoch.
    pub last_millis: Option<u64>,
    /// Segments that should be there and are not.
    pub missing: Vec<PathBuf>,
    /// Parts that had been durable and cannot be read.
    pub damaged: Vec<Damage>,
    /// Parts that a crash had left unfinished.
    pub torn: Vec<Damage>,
}

impl ArchiveReplay {
    /// Looks into the segments of these directories, the first of which is the folder of the
    /// history. `base` is up to where all is in SSTables; the replay stops where the log first
    /// notes a time later than `until`, in milliseconds since the Unix epoch.
    pub fn survey<E>(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        base: Position,
        until: Option<u64>,
    ) -> Result<Self, ReplayError<E>> {
        let mut there = BTreeMap::new();
        for dir in dirs.iter().rev() {
            for id in segment_ids(fs, dir).context("read", dir)? {
                there.insert(id, files::segment_path(dir, id));
            }
        }
        let mut search = Search { base, until, stop: None, unknown: None, last_millis: None };
        let mut surveyed: Vec<(u64, Surveyed)> = Vec::new();
        let is_wanted = |id: u64| base < Position { segment: id, offset: u64::MAX };
        for (id, path) in there.into_iter().filter(|(id, _)| is_wanted(*id)) {
            if search.stop.is_some_and(|stop| is_known_to_be_durable(&surveyed, stop, id)) {
                break;
            }
            let found = Survey::of(fs, &path, id, &mut |offset, millis| {
                search.look(Position { segment: id, offset }, millis);
            })?;
            surveyed.push((id, found));
        }
        let end = surveyed.last().map_or(0, |(id, _)| *id);
        let stop = search.stop.unwrap_or(Position { segment: end, offset: u64::MAX });
        let dir = dirs.first().map_or(Path::new(""), PathBuf::as_path);
        let missing = missing(&surveyed, base, search.stop);
        let mut replay = Self {
            segments: Vec::new(),
            stop,
            reaches_time: search.stop.is_some(),
            last_millis: search.last_millis,
            missing: missing.into_iter().map(|id| files::segment_path(dir, id)).collect(),
            damaged: Vec::new(),
            torn: Vec::new(),
        };
        replay.judge(surveyed, base);
        Ok(replay)
    }

    fn judge(&mut self, surveyed: Vec<(u64, Surveyed)>, base: Position) {
        let durable = durable_positions(&surveyed);
        for (id, found) in surveyed {
            let (mut damaged, mut torn) = (Vec::new(), Vec::new());
            match found {
                Surveyed::Segment(survey) => {
                    let durable = durable.get(&survey.header.run).copied().unwrap_or_default();
                    survey.judge(durable, &mut damaged, &mut torn);
                    self.segments.push(*survey);
                }
                Surveyed::Headless(damage) => damaged.push(damage),
            }
            // What is wrong elsewhere in the segment does not concern this replay.
            let concerns = |damage: &Damage| {
                let start = Position { segment: id, offset: damage.offset };
                let end = Position { segment: id, offset: damage.offset + damage.bytes };
                start < self.stop && base < end.min(self.stop)
            };
            self.damaged.extend(damaged.into_iter().filter(concerns));
            self.torn.extend(torn.into_iter().filter(concerns));
        }
    }

    /// Number of segments to read.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Hands the records to `apply`, in ascending order, also those that are in SSTables. `dir` is
    /// the folder of the history, in which all segments are by now.
    pub fn deliver<E>(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        apply: &mut Apply<'_, E>,
    ) -> Result<(), ReplayError<E>> {
        for segment in &self.segments {
            let path = files::segment_path(dir, segment.header.id);
            deliver(segment, &path, fs, &mut |position, body| {
                if position <= self.stop { apply(position, body) } else { Ok(()) }
            })?;
            log::info!("Finished reading {}", path.display());
        }
        Ok(())
    }
}

/// Returns the ids of segments that are not there, of those with something after `base` and before
/// `stop`. Each segment tells which one came before it, and most of them which one comes next.
fn missing(surveyed: &[(u64, Surveyed)], base: Position, stop: Option<Position>) -> BTreeSet<u64> {
    let mut missing = BTreeSet::new();
    if base.segment > 0 && base.offset < u64::MAX {
        missing.insert(base.segment);
    }
    // All up to this segment is accounted for.
    let mut covered = base.segment;
    let mut next = None;
    let last = stop.map_or(u64::MAX, |stop| stop.segment);
    for (id, found) in surveyed.iter().filter(|(id, _)| *id <= last) {
        let Surveyed::Segment(survey) = found else {
            // It is damaged, which is reported as such.
            (covered, next) = (*id, None);
            continue;
        };
        if *id > covered {
            let (run, previous) = (survey.header.run, survey.header.previous);
            missing.extend(next);
            missing.extend((previous > covered).then_some(previous));
            missing.extend((run.max(covered + 1)..*id).take(MAX_LISTED));
        }
        (covered, next) = (*id, survey.next());
    }
    if stop.is_none() {
        missing.extend(next);
    }
    let there: BTreeSet<u64> = surveyed.iter().map(|(id, _)| *id).collect();
    missing.difference(&there).copied().take(MAX_LISTED).collect()
}

/// Search for the place where the replay stops.
struct Search {
    base: Position,
    until: Option<u64>,
    stop: Option<Position>,
    /// After this the time is not known, since a part is unreadable.
    unknown: Option<Position>,
    last_millis: Option<u64>,
}

impl Search {
    /// The log notes the time at this position, or what stands there cannot be read.
    fn look(&mut self, position: Position, millis: Option<u64>) {
        if self.stop.is_some() {
            return;
        }
        // What is written next ends here at the earliest.
        let next = Position { offset: position.offset + TIME_BYTES + HEAD_BYTES, ..position };
        let is_wanted = self.base < next;
        match millis {
            None if is_wanted => self.unknown = self.unknown.or(Some(position)),
            None => {}
            // A time that a crash has torn out may have been later as well: what survived after it
            // was never promised to anybody.
            Some(millis) if is_wanted && self.until.is_some_and(|until| millis > until) => {
                self.stop = Some(self.unknown.unwrap_or(position));
            }
            Some(millis) => {
                self.unknown = None;
                self.last_millis = Some(millis);
            }
        }
    }
}

/// Whether the segments that were looked into tell that their run was durable up to the stop. Then
/// no further one is needed to tell damage from what a crash has torn. `next` is the next segment.
fn is_known_to_be_durable(surveyed: &[(u64, Surveyed)], stop: Position, next: u64) -> bool {
    let run = surveyed.iter().rev().find_map(|(_, found)| Some(found.segment()?.header.run));
    let Some(run) = run else { return true };
    let is_of_the_run = surveyed.last().is_some_and(|(last, _)| last + 1 == next);
    !is_of_the_run || durable_positions(surveyed).get(&run).is_some_and(|known| *known >= stop)
}
