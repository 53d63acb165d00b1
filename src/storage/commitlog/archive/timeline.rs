//! Replay from an archive: over many runs, along the way that leads to the present, up to a time.

use super::super::Position;
use super::super::error::{Damage, ReplayError};
use super::super::files;
use super::super::format::TIME_BYTES;
use super::super::replay::{Apply, deliver};
use super::super::survey::{Survey, Surveyed, Unread, durable_positions};
use super::{gaps, segment_ids};
use crate::base::fs::FileSystem;
use crate::storage::error::FileContext;
use crate::storage::log::HEAD_BYTES;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The parts of the log that lead to the present of a column family: each from behind its first
/// position up to its second, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline(Vec<(Position, Position)>);

impl Timeline {
    /// A way of these parts. An empty one is a place from which the way goes on.
    pub(super) fn new(parts: Vec<(Position, Position)>) -> Self {
        Self(parts)
    }

    /// What is on the way behind a position; `None` if the position itself is not on it.
    pub fn behind(&self, base: Position) -> Option<Self> {
        let (from, to) = self.0.iter().rfind(|(from, _)| *from <= base)?;
        if base > *to {
            return None;
        }
        let rest = self.0.iter().filter(|part| part.0 > *from).copied();
        Some(Self::new([(base, *to)].into_iter().chain(rest).collect()))
    }

    /// How far who goes along it up to a position comes: to that position, or to the end of the
    /// last part before it if it was left behind. Its own beginning if nothing comes before.
    pub fn up_to(&self, position: Position) -> Position {
        let begun = self.0.iter().rfind(|(from, _)| *from < position);
        let first = self.0.first().map_or(position, |(from, _)| *from);
        begun.map_or(first, |(_, to)| position.min(*to))
    }

    /// What was left behind between its parts: each from behind its first position up to its
    /// second, ascending.
    pub fn gaps(&self) -> impl Iterator<Item = (Position, Position)> {
        self.0.windows(2).map(|parts| (parts[0].1, parts[1].0))
    }

    /// Its parts.
    pub(super) fn parts(&self) -> &[(Position, Position)] {
        &self.0
    }

    /// Whether a record that ends here is on the way.
    pub fn contains(&self, position: Position) -> bool {
        self.0.iter().any(|(from, to)| *from < position && position <= *to)
    }

    /// Whether records of a segment can be on the way.
    fn touches(&self, segment: u64) -> bool {
        self.meets(Position { segment, offset: 0 }, Position { segment, offset: u64::MAX })
    }

    /// Whether the way begins behind this place, in the same segment.
    fn leads_over(&self, position: Position) -> bool {
        self.0.first().is_some_and(|(from, _)| {
            from.segment == position.segment && from.offset < u64::MAX && position < *from
        })
    }

    /// Whether a record can be on the way of which something is between these positions.
    fn meets(&self, start: Position, end: Position) -> bool {
        self.0.iter().any(|(from, to)| from < to && *from < end && start < *to)
    }
}

/// What is wanted of an archive: the ways of some column families, from where their data are.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    timelines: Vec<Timeline>,
}

impl Wanted {
    /// Adds the way of a column family.
    pub fn add(&mut self, timeline: Timeline) {
        // A snapshot mostly is at one position for all families.
        if !self.timelines.contains(&timeline) {
            self.timelines.push(timeline);
        }
    }

    /// The different ways.
    pub(super) fn timelines(&self) -> &[Timeline] {
        &self.timelines
    }

    fn contains(&self, position: Position) -> bool {
        self.timelines.iter().any(|timeline| timeline.contains(position))
    }

    fn leads_over(&self, position: Position) -> bool {
        self.timelines.iter().any(|timeline| timeline.leads_over(position))
    }

    fn meets(&self, start: Position, end: Position) -> bool {
        self.timelines.iter().any(|timeline| timeline.meets(start, end))
    }

    fn touches(&self, segment: u64) -> bool {
        self.timelines.iter().any(|timeline| timeline.touches(segment))
    }
}

/// A replay that was looked into and has not begun.
#[derive(Debug)]
pub struct ArchiveReplay {
    /// The segments that hold something of it.
    segments: Vec<Survey>,
    wanted: Wanted,
    /// Nothing behind this is applied.
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
    /// Looks into the segments of these directories. `until` is in milliseconds since the Unix
    /// epoch: the replay stops where the log first notes a later time.
    pub fn survey<E>(
        fs: &dyn FileSystem,
        dirs: &[PathBuf],
        wanted: Wanted,
        until: Option<u64>,
    ) -> Result<Self, ReplayError<E>> {
        let mut there = BTreeMap::new();
        for dir in dirs.iter().rev() {
            for id in segment_ids(fs, dir).context("read", dir)? {
                there.insert(id, files::segment_path(dir, id));
            }
        }
        let mut search =
            Search { wanted: &wanted, until, stop: None, unknown: None, last_millis: None };
        let mut surveyed: Vec<(u64, Surveyed)> = Vec::new();
        for (id, path) in there.into_iter().filter(|(id, _)| wanted.touches(*id)) {
            if search.stop.is_some_and(|stop| is_known_to_be_durable(&surveyed, stop, id)) {
                break;
            }
            let survey = Survey::of(fs, &path, id, &mut |offset, millis| {
                search.look(Position { segment: id, offset }, millis);
            });
            match survey {
                Ok(found) => surveyed.push((id, found)),
                Err(Unread::Version(version)) => {
                    return Err(ReplayError::Version { file: path, version });
                }
                Err(Unread::Io(error)) => return Err(error.into()),
            }
        }
        let (stop, last_millis) = (search.stop, search.last_millis);
        let dir = dirs.first().map_or(Path::new(""), PathBuf::as_path);
        let missing = gaps::missing(&surveyed, &wanted, stop);
        let end = surveyed.last().map_or(0, |(id, _)| *id);
        let mut replay = Self {
            segments: Vec::new(),
            stop: stop.unwrap_or(Position { segment: end, offset: u64::MAX }),
            reaches_time: stop.is_some(),
            last_millis,
            missing: missing.into_iter().map(|id| files::segment_path(dir, id)).collect(),
            damaged: Vec::new(),
            torn: Vec::new(),
            wanted,
        };
        replay.judge(surveyed, dir);
        Ok(replay)
    }

    fn judge(&mut self, surveyed: Vec<(u64, Surveyed)>, dir: &Path) {
        let durable = durable_positions(&surveyed);
        for (id, found) in surveyed {
            let (mut damaged, mut torn) = (Vec::new(), Vec::new());
            match found {
                Surveyed::Segment(survey) => {
                    let durable = durable.get(&survey.header.run).copied().unwrap_or_default();
                    survey.judge(durable, &mut damaged, &mut torn);
                    self.segments.push(*survey);
                }
                Surveyed::Headless { size } => {
                    damaged.push(Surveyed::headless(files::segment_path(dir, id), size));
                }
            }
            // What is wrong elsewhere in the segment does not concern this replay.
            let concerns = |damage: &Damage| {
                let start = Position { segment: id, offset: damage.offset };
                let end = Position { segment: id, offset: damage.offset + damage.bytes };
                start < self.stop && self.wanted.meets(start, end.min(self.stop))
            };
            self.damaged.extend(damaged.into_iter().filter(|it| concerns(it)));
            self.torn.extend(torn.into_iter().filter(|it| concerns(it)));
        }
    }

    /// Whether there is anything to read.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Hands the records to `apply`, in ascending order. Each may be wanted for some column
    /// families and not for others. `dir` is the archive, in which all segments are by now.
    pub fn deliver<E>(
        &self,
        fs: &dyn FileSystem,
        dir: &Path,
        apply: &mut Apply<'_, E>,
    ) -> Result<(), ReplayError<E>> {
        for segment in &self.segments {
            let path = files::segment_path(dir, segment.header.id);
            let mut apply_wanted = |position: Position, body: &[u8]| {
                if position <= self.stop && self.wanted.contains(position) {
                    apply(position, body)
                } else {
                    Ok(())
                }
            };
            deliver(segment, &path, fs, &mut apply_wanted)?;
            log::info!("Finished reading {}", path.display());
        }
        Ok(())
    }
}

/// Looks for the place where the replay stops.
struct Search<'a> {
    wanted: &'a Wanted,
    until: Option<u64>,
    stop: Option<Position>,
    /// Behind this the time is not known, since a part is unreadable.
    unknown: Option<Position>,
    last_millis: Option<u64>,
}

impl Search<'_> {
    /// The log notes the time at this position, or what stands there cannot be read.
    fn look(&mut self, position: Position, millis: Option<u64>) {
        // What is written next ends here at the earliest.
        let next = Position { offset: position.offset + TIME_BYTES + HEAD_BYTES, ..position };
        let is_wanted = self.wanted.contains(next);
        if self.stop.is_some() || !(is_wanted || self.wanted.leads_over(position)) {
            return;
        }
        match millis {
            None if is_wanted => self.unknown = self.unknown.or(Some(position)),
            None => {}
            // A time that a crash has torn out may have been later as well: what survived behind it
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
    let run = surveyed.iter().rev().find_map(|(_, found)| match found {
        Surveyed::Segment(survey) => Some(survey.header.run),
        Surveyed::Headless { .. } => None,
    });
    let Some(run) = run else { return true };
    let is_of_the_run = surveyed.last().is_some_and(|(last, _)| last + 1 == next);
    !is_of_the_run || durable_positions(surveyed).get(&run).is_some_and(|known| *known >= stop)
}
