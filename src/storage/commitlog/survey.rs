//! Survey of the segments, before anything is replayed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use crate::base::fs::FileSystem;

use super::Position;
use super::error::{Damage, ReplayError};
use super::files;
use super::flipped::has_flipped_bit;
use super::format::{BadHeader, Control, HEADER_BYTES, HEADER_NUMBERS, Header};
use super::replay::KnownLog;
use crate::storage::error::FileContext;
use crate::storage::log::{Reason, SegmentReader};

/// Bound on the number of segments of one run that a header from elsewhere could make us expect.
const MAX_SEGMENTS: u64 = 1 << 20;

/// Content of a segment.
#[derive(Debug)]
pub(in crate::storage) struct Survey {
    pub(in crate::storage) header: Header,
    pub(super) path: PathBuf,
    /// Size of the file.
    size: u64,
    /// End of the last valid record.
    pub(super) end: u64,
    /// Unreadable parts with valid records after them.
    pub(super) gaps: Vec<Unreadable>,
    /// Content after the last valid record, unless a seal ends the records. Empty if there is none.
    tail: Option<Unreadable>,
    /// The segment that the seal names as the next one.
    pub(in crate::storage) next: Option<u64>,
    /// The greatest position that is said to have been synced.
    synced: Option<Position>,
    /// The last list of needed segments.
    needed: Option<Vec<u64>>,
}

/// A part of a segment that holds no valid record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unreadable {
    pub(super) from: u64,
    pub(super) to: u64,
    reason: Reason,
}

/// A segment; else the damage of a file that has the name of a segment and no valid header. It had
/// one when it got its name.
pub(in crate::storage) type Surveyed = Result<Survey, Damage>;

impl Survey {
    /// Reads the whole segment of this id. `on_time` gets the offset of each note of the time, in
    /// milliseconds since the Unix epoch, and of each unreadable place, after which the time is
    /// unknown.
    pub(in crate::storage) fn of<E>(
        fs: &dyn FileSystem,
        path: &Path,
        id: u64,
        on_time: &mut dyn FnMut(u64, Option<u64>),
    ) -> Result<Surveyed, ReplayError<E>> {
        let mut reader = fs.open(path).and_then(SegmentReader::new).context("read", path)?;
        let header = match Header::decode(reader.header(HEADER_NUMBERS).context("read", path)?) {
            Ok(header) if header.id == id => header,
            Err(BadHeader::Version(version)) => {
                return Err(ReplayError::Version { file: path.to_owned(), version });
            }
            // The name is wrong, or there is no header.
            _ => {
                let (file, bytes) = (path.to_owned(), reader.size());
                let is_whole = bytes >= HEADER_BYTES;
                let reason = if is_whole { Reason::Header } else { Reason::Truncated };
                return Ok(Err(Damage { file, offset: 0, bytes, reason }));
            }
        };
        let mut survey = Self {
            header,
            path: path.to_path_buf(),
            size: reader.size(),
            end: HEADER_BYTES,
            gaps: Vec::new(),
            tail: None,
            next: None,
            synced: None,
            needed: None,
        };
        survey.walk(&mut reader, on_time).context("read", path)?;
        Ok(Ok(survey))
    }

    fn walk(
        &mut self,
        reader: &mut SegmentReader,
        on_time: &mut dyn FnMut(u64, Option<u64>),
    ) -> io::Result<()> {
        let salt = self.header.salt();
        loop {
            let (reason, from) = match reader.read(self.end, salt)? {
                Ok(record) if !record.is_control => {
                    self.end = record.end;
                    continue;
                }
                Ok(record) => match Control::decode(reader.body(record)) {
                    Some(control) => {
                        let at = std::mem::replace(&mut self.end, record.end);
                        match control {
                            Control::Synced { segment, offset } => {
                                self.synced = self.synced.max(Some(Position { segment, offset }));
                            }
                            Control::Needed(ids) => self.needed = Some(ids),
                            Control::Time { millis } => on_time(at, Some(millis)),
                            Control::Sealed { next } => {
                                self.next = next;
                                return Ok(());
                            }
                        }
                        continue;
                    }
                    None => (Reason::UnknownRecord, record.end),
                },
                Err(reason) => (reason, self.end),
            };
            let is_flipped = has_flipped_bit(reader, self.end, salt)?;
            let reason = if is_flipped { Reason::FlippedBit } else { reason };
            let found = reader.find_next(from, salt)?;
            let to = found.start.unwrap_or(found.used_end);
            let part = Unreadable { from: self.end, to, reason };
            if found.start.is_none() {
                self.tail = Some(part);
                return Ok(());
            }
            on_time(self.end, None);
            self.gaps.push(part);
            self.end = to;
        }
    }

    fn damage(&self, Unreadable { from, to, reason }: Unreadable) -> Damage {
        Damage { file: self.path.clone(), offset: from, bytes: to.saturating_sub(from), reason }
    }

    /// Sorts the unreadable parts into those that had been durable and those that a crash has torn.
    pub(in crate::storage) fn judge(
        &self,
        durable: Position,
        damaged: &mut Vec<Damage>,
        torn: &mut Vec<Damage>,
    ) {
        let is_durable = |offset| Position { segment: self.header.id, offset } < durable;
        for part in &self.gaps {
            let is_damage = is_durable(part.from) || part.reason == Reason::FlippedBit;
            let into = if is_damage { &mut *damaged } else { &mut *torn };
            into.push(self.damage(*part));
        }
        let Some(tail) = self.tail else { return };
        let Unreadable { from, to, reason } = tail;
        if self.size < self.header.capacity {
            // No crash does that: the content of the missing part is unknown.
            let (to, reason) = (self.header.capacity, Reason::Truncated);
            damaged.push(self.damage(Unreadable { from, to, reason }));
        } else if is_durable(from) {
            // Something was durable here. How much is known only within this segment.
            let known = if durable.segment == self.header.id { durable.offset } else { to };
            let reason = if to == from { Reason::CutShort } else { reason };
            damaged.push(self.damage(Unreadable { from, to: known.max(to), reason }));
        } else if reason == Reason::FlippedBit {
            damaged.push(self.damage(tail));
        } else if to > from {
            torn.push(self.damage(tail));
        }
    }
}

/// Verdict about all segments of a log together.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// Parts that had been durable and cannot be read, in the order of segments. Missing segments
    /// come last: they may only seem to be missing, because a list of needed segments is damaged.
    pub(super) damaged: Vec<Damage>,
    /// Parts that a crash has left unfinished.
    pub(super) torn: Vec<Damage>,
    /// Segments to be replayed, by ascending id.
    pub(super) replay: Vec<Survey>,
    /// Files that are not needed: discarded, or never used.
    pub(super) leftovers: Vec<PathBuf>,
}

impl Verdict {
    /// Judges the segments of a directory; `surveyed` is in the order of ids.
    pub(super) fn of(dir: &Path, surveyed: Vec<(u64, Surveyed)>, known: KnownLog) -> Self {
        let KnownLog { flushed, synced, .. } = known;
        let mut verdict = Self::default();
        let expected = expected_segments(&surveyed);
        let mut durable = durable_positions(&surveyed);
        let mut segments = surveyed.iter().filter_map(|(_, found)| found.as_ref().ok());
        if let Some(last) = segments.find(|survey| survey.header.id == synced.segment) {
            let run = last.header.run;
            let known = durable.entry(run).or_default();
            *known = (*known).max(synced);
        }
        let mut all: BTreeMap<u64, Option<Surveyed>> =
            expected.ids.iter().map(|id| (*id, None)).collect();
        all.extend(surveyed.into_iter().map(|(id, found)| (id, Some(found))));
        for (id, found) in all {
            let file = files::segment_path(dir, id);
            let is_expected = expected.ids.contains(&id);
            let was_discarded = !is_expected && expected.listed_by.is_some_and(|kept| id < kept);
            let damage = match found {
                None if id < flushed.segment => continue,
                None if (Position { segment: id, offset: u64::MAX }) <= flushed => continue,
                None => Damage { file, offset: 0, bytes: 0, reason: Reason::Missing },
                Some(Ok(survey)) if !was_discarded => {
                    let durable = durable.get(&survey.header.run).copied().unwrap_or_default();
                    survey.judge(durable, &mut verdict.damaged, &mut verdict.torn);
                    verdict.replay.push(survey);
                    continue;
                }
                Some(Err(damage)) if !was_discarded => damage,
                Some(_) => {
                    verdict.leftovers.push(file);
                    continue;
                }
            };
            verdict.damaged.push(damage);
        }
        verdict.damaged.sort_by_key(|damage| damage.reason == Reason::Missing);
        verdict
    }
}

/// Segments that must be there.
#[derive(Debug, Default)]
struct Expected {
    ids: BTreeSet<u64>,
    /// The segment with the newest list: older segments that are not listed have been discarded.
    listed_by: Option<u64>,
}

/// The newest list of needed segments is durable before a segment that it leaves out is removed.
/// So the listed segments must be there, and within its run all later ones, up to the last segment
/// that is there or that a seal names as its successor.
fn expected_segments(surveyed: &[(u64, Surveyed)]) -> Expected {
    let segments = || surveyed.iter().filter_map(|(_, found)| found.as_ref().ok());
    let mut expected = Expected::default();
    let newest = segments().rev().find_map(|survey| Some((survey, survey.needed.as_ref()?)));
    if let Some((survey, needed)) = newest {
        expected.ids.extend(needed);
        expected.listed_by = Some(survey.header.id);
    }
    let from = expected.listed_by.unwrap_or(0);
    let mut runs: HashMap<u64, (u64, u64)> = HashMap::new();
    for survey in segments().filter(|survey| survey.header.id >= from) {
        let id = survey.header.id;
        let next = survey.next.unwrap_or(id);
        let (_, last) = runs.entry(survey.header.run).or_insert((id, id));
        *last = (*last).max(id).max(next);
    }
    for (first, last) in runs.into_values() {
        expected.ids.extend(first..=last.min(first.saturating_add(MAX_SEGMENTS)));
    }
    expected
}

/// Positions up to which the runs are known to have been durable. Marks cover their own run only:
/// a part that a crash has torn stays torn, however much later runs have synced.
pub(in crate::storage) fn durable_positions(
    surveyed: &[(u64, Surveyed)],
) -> HashMap<u64, Position> {
    let mut durable: HashMap<u64, Position> = HashMap::new();
    for survey in surveyed.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let Header { id, run, .. } = survey.header;
        let known = durable.entry(run).or_default();
        *known = (*known).max(survey.synced.unwrap_or_default());
        if id == run && survey.end > HEADER_BYTES {
            // The first record of a run is synced before anything else is written.
            *known = (*known).max(Position { segment: id, offset: HEADER_BYTES + 1 });
        }
    }
    durable
}
