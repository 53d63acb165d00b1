//! Replay from the folder of a history: over many runs, from a snapshot on, up to a time.

use crate::base::fs::FileSystem;
use crate::storage::commitlog::{
    Apply, Damage, Position, ReplayError, Survey, Surveyed, TIME_BYTES, deliver, durable_positions,
    segment_ids, segment_path,
};
use crate::storage::error::FileContext;
use crate::storage::log::HEAD_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bound on the number of missing segments that a header from elsewhere could make us list.
const MAX_LISTED: usize = 1000;

/// A replay of a folder of an archive: the result of a survey.
#[derive(Debug)]
pub struct ArchiveReplay {
    /// The folder.
    pub folder: PathBuf,
    /// The segments to read.
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
    pub lost: Vec<Damage>,
    /// Parts that a crash had left unfinished, which is normal.
    pub torn: Vec<Damage>,
    /// Mutations that were applied, in whole or in part; 0 in a dry run.
    pub mutations: u64,
}

impl ArchiveReplay {
    /// Surveys the segments of a folder, and of a log that continues it. Everything before `base`
    /// is in SSTables. The replay stops where the log first notes a time later than `until`, in
    /// milliseconds since the Unix epoch.
    pub fn survey<E>(
        fs: &dyn FileSystem,
        folder: &Path,
        log: Option<&Path>,
        base: Position,
        until: Option<u64>,
    ) -> Result<Self, ReplayError<E>> {
        let mut there = BTreeMap::new();
        for dir in log.into_iter().chain([folder]) {
            for id in segment_ids(fs, dir).context("read", dir)? {
                there.insert(id, segment_path(dir, id));
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
        let missing = missing(&surveyed, base, search.stop);
        let mut replay = Self {
            folder: folder.to_owned(),
            segments: Vec::new(),
            stop,
            reaches_time: search.stop.is_some(),
            last_millis: search.last_millis,
            missing: missing.into_iter().map(|id| segment_path(folder, id)).collect(),
            lost: Vec::new(),
            torn: Vec::new(),
            mutations: 0,
        };
        replay.judge(surveyed, base);
        Ok(replay)
    }

    fn judge(&mut self, surveyed: Vec<(u64, Surveyed)>, base: Position) {
        let durable = durable_positions(&surveyed);
        for (id, found) in surveyed {
            let (mut lost, mut torn) = (Vec::new(), Vec::new());
            match found {
                Ok(survey) => {
                    let durable = durable.get(&survey.header.run).copied().unwrap_or_default();
                    survey.judge(durable, &mut lost, &mut torn);
                    self.segments.push(survey);
                }
                Err(damage) => lost.push(damage),
            }
            // Damage elsewhere in the segment does not concern this replay.
            let concerns = |damage: &Damage| {
                let start = Position { segment: id, offset: damage.offset };
                let end = Position { segment: id, offset: damage.offset + damage.bytes };
                start < self.stop && base < end.min(self.stop)
            };
            self.lost.extend(lost.into_iter().filter(concerns));
            self.torn.extend(torn.into_iter().filter(concerns));
        }
    }

    /// Returns the number of segments to read.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Hands the records to `apply`, in ascending order, also those that are in SSTables. Segments
    /// are in the folder, or in a log that continues it.
    pub fn deliver<E>(
        &self,
        fs: &dyn FileSystem,
        log: Option<&Path>,
        apply: &mut Apply<'_, E>,
    ) -> Result<(), ReplayError<E>> {
        for segment in &self.segments {
            let mut path = segment_path(&self.folder, segment.header.id);
            if let Some(log) = log.filter(|_| !fs.exists(&path)) {
                path = segment_path(log, segment.header.id);
            }
            deliver(segment, &path, fs, &mut |position, body| {
                if position <= self.stop { apply(position, body) } else { Ok(()) }
            })?;
            log::info!("Finished reading {}", path.display());
        }
        Ok(())
    }
}

/// Returns the ids of missing segments between `base` and `stop`. Each segment names the one before
/// it, and most of them the next one.
fn missing(surveyed: &[(u64, Surveyed)], base: Position, stop: Option<Position>) -> BTreeSet<u64> {
    let mut missing = BTreeSet::new();
    if base.segment > 0 && base.offset < u64::MAX {
        missing.insert(base.segment);
    }
    // All segments up to this one are accounted for.
    let mut covered = base.segment;
    let mut next = None;
    let last = stop.map_or(u64::MAX, |stop| stop.segment);
    for (id, found) in surveyed.iter().filter(|(id, _)| *id <= last) {
        let Ok(survey) = found else {
            // Its damage is reported as such.
            (covered, next) = (*id, None);
            continue;
        };
        if *id > covered {
            let (run, previous) = (survey.header.run, survey.header.previous);
            missing.extend(next);
            missing.extend((previous > covered).then_some(previous));
            missing.extend((run.max(covered + 1)..*id).take(MAX_LISTED));
        }
        (covered, next) = (*id, survey.next);
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
    /// After this the time is unknown, since a part is unreadable.
    unknown: Option<Position>,
    last_millis: Option<u64>,
}

impl Search {
    /// Takes the time that the log notes at this position; `None` for an unreadable place.
    fn look(&mut self, position: Position, millis: Option<u64>) {
        if self.stop.is_some() {
            return;
        }
        // The next record ends here at the earliest.
        let next = Position { offset: position.offset + TIME_BYTES + HEAD_BYTES, ..position };
        let is_wanted = self.base < next;
        match millis {
            None if is_wanted => self.unknown = self.unknown.or(Some(position)),
            None => {}
            // A note of the time that a crash has torn out may have been too late as well. The
            // records that survived after it were never acknowledged as durable.
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

/// Whether the surveyed segments show that their run was durable up to the stop. Then no further
/// segment is needed to tell damage from a torn end. `next` is the next segment.
fn is_known_to_be_durable(surveyed: &[(u64, Surveyed)], stop: Position, next: u64) -> bool {
    let run = surveyed.iter().rev().find_map(|(_, found)| Some(found.as_ref().ok()?.header.run));
    let Some(run) = run else { return true };
    let is_of_the_run = surveyed.last().is_some_and(|(last, _)| last + 1 == next);
    !is_of_the_run || durable_positions(surveyed).get(&run).is_some_and(|known| *known >= stop)
}
