//! Replay at the start.

use std::io;
use std::path::{Path, PathBuf};

use log::{error, info, warn};

use crate::base::fs::FileSystem;
use crate::storage::error::FileContext;
use crate::storage::files::{BEFORE_RESTORE, LOCK_FILE};
use crate::storage::log::SegmentReader;

use super::Position;
use super::error::{Damage, ReplayError};
use super::files;
use super::format::HEADER_BYTES;
use super::survey::{Survey, Surveyed, Verdict};

/// Result of a replay; [`super::CommitLog::open`] goes on from here.
#[derive(Debug, Clone, Default)]
pub struct Replayed {
    /// The segments that hold what was replayed. They stay until the caller says that it is
    /// flushed.
    pub segments: Vec<ReplayedSegment>,
    /// Records replayed.
    pub records: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Parts that a crash has left unfinished, which is normal: they had never been synced.
    pub torn: Vec<Damage>,
    /// Parts that had been synced and are lost. Empty unless loss was accepted.
    pub lost: Vec<Damage>,
    /// Files that are not needed: segments that were discarded before, never used, or not even
    /// finished. The next open removes them.
    pub leftovers: Vec<PathBuf>,
    /// Other files in the directory; left alone. Segments of 0.6 are here, too.
    pub foreign: Vec<PathBuf>,
    /// Greatest id that a file has.
    pub(super) newest_id: u64,
    /// Number that all segments of this log carry, and those of no other.
    pub(super) identity: Option<u64>,
}

impl Replayed {
    /// Position after everything that was replayed.
    pub fn end(&self) -> Position {
        Position { segment: self.newest_id, offset: u64::MAX }
    }

    /// Removes the segments for which there is no room. The caller has flushed what is in them, has
    /// durably noted that everything is flushed up to [`Replayed::end`], and will tell the next
    /// [`replay()`] so.
    pub fn remove_segments(&mut self, fs: &dyn FileSystem) -> io::Result<()> {
        for segment in std::mem::take(&mut self.segments) {
            info!("Discarding flushed commit log segment {}", segment.path.display());
            fs.remove_file(&segment.path)?;
        }
        Ok(())
    }
}

/// A segment of an earlier run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedSegment {
    /// Its id.
    pub id: u64,
    /// Its path.
    pub path: PathBuf,
    /// Bytes written.
    pub bytes: u64,
}

/// Knowledge of the data directories about the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownLog {
    /// All column families are flushed up to here: a segment that ends before it may be missing.
    pub flushed: Position,
    /// One of them is flushed up to here, for which the log was synced first: what cannot be read
    /// before it was not torn by a crash.
    pub synced: Position,
    /// Number that all of its segments carry, and those of no other log.
    pub identity: Option<u64>,
}

/// Takes a record and its position.
pub type Apply<'a, E> = dyn FnMut(Position, &[u8]) -> Result<(), E> + 'a;

/// Hands every record of the log to `apply`, in ascending order, with the position that
/// [`super::CommitLog::append_all`] gave it.
///
/// All segments are examined first, so that `apply` is not called at all if something that had
/// been synced cannot be read. With `accept_loss` such parts are reported in [`Replayed::lost`]
/// instead, and everything around them is replayed. A directory that does not exist is empty.
///
/// Segments of another log are refused in any case: the newest list of needed segments would
/// declare the others discarded.
///
/// Records are durable before `apply` gets them: after a kill of the process they may be in the
/// page cache only, and `apply` may make a part of a record durable elsewhere, which after a power
/// loss would be all that is left of it.
pub fn replay<E>(
    dir: &Path,
    fs: &dyn FileSystem,
    accept_loss: bool,
    known: KnownLog,
    apply: &mut Apply<'_, E>,
) -> Result<Replayed, ReplayError<E>> {
    let mut replayed = Replayed { identity: known.identity, ..Replayed::default() };
    let ids = list(dir, fs, &mut replayed)?;
    replayed.newest_id = ids.last().copied().unwrap_or(0);
    if ids.is_empty() {
        return Ok(replayed);
    }
    let names: Vec<_> =
        ids.iter().map(|id| files::segment_path(dir, *id).display().to_string()).collect();
    info!("Replaying {}", names.join(", "));

    let survey = |id| Ok((id, Survey::of(fs, &files::segment_path(dir, id), id, &mut |_, _| {})?));
    let surveyed: Vec<_> = ids.into_iter().map(survey).collect::<Result<_, ReplayError<E>>>()?;
    replayed.identity = identity(&surveyed, known.identity)?;
    let verdict = Verdict::of(dir, surveyed, known);
    if let Some(first) = verdict.damaged.first()
        && !accept_loss
    {
        for damage in verdict.damaged.iter().skip(1) {
            error!("commit log damaged: {damage}");
        }
        return Err(ReplayError::Damaged(first.clone()));
    }
    for lost in &verdict.damaged {
        error!("commit log damaged, loss accepted: {lost}");
    }
    for torn in &verdict.torn {
        warn!("commit log torn by a crash, not known to be synced: {torn}");
    }
    for segment in &verdict.replay {
        let synced = fs.open(&segment.path).and_then(|file| file.sync());
        synced.context("sync", &segment.path)?;
    }
    for segment in &verdict.replay {
        let mut counted = |position: Position, body: &[u8]| {
            apply(position, body)?;
            replayed.records += 1;
            replayed.bytes += body.len() as u64;
            Ok(())
        };
        deliver(segment, &segment.path, fs, &mut counted)?;
        info!("Finished reading {}", segment.path.display());
    }
    replayed.lost = verdict.damaged;
    replayed.torn = verdict.torn;
    replayed.leftovers.extend(verdict.leftovers);
    let kept = |it: Survey| ReplayedSegment { id: it.header.id, path: it.path, bytes: it.end };
    replayed.segments = verdict.replay.into_iter().map(kept).collect();
    Ok(replayed)
}

/// Ids of the segments in the directory, ascending. Notes what else is there.
fn list<E>(
    dir: &Path,
    fs: &dyn FileSystem,
    replayed: &mut Replayed,
) -> Result<Vec<u64>, ReplayError<E>> {
    if !fs.exists(dir) {
        return Ok(Vec::new());
    }
    let mut ids = Vec::new();
    for entry in fs.list(dir).context("read", dir)? {
        match files::segment_id(&entry.name) {
            Some(id) if !entry.is_dir => ids.push(id),
            _ if entry.name == LOCK_FILE => {}
            // What a restore has moved aside.
            _ if entry.is_dir && entry.name.starts_with(BEFORE_RESTORE) => {}
            _ if files::is_unfinished(&entry.name) && !entry.is_dir => {
                replayed.leftovers.push(dir.join(entry.name));
            }
            _ => replayed.foreign.push(dir.join(entry.name)),
        }
    }
    ids.sort_unstable();
    replayed.foreign.sort_unstable();
    for path in &replayed.foreign {
        info!("Not a commit log segment of this program, left alone: {}", path.display());
    }
    Ok(ids)
}

/// The identity of the log: the one that is known, or that of its segments.
fn identity<E>(
    surveyed: &[(u64, Surveyed)],
    known: Option<u64>,
) -> Result<Option<u64>, ReplayError<E>> {
    let mut identity = known;
    for survey in surveyed.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        let Some(log) = survey.header.log() else { continue };
        if *identity.get_or_insert(log) != log {
            return Err(ReplayError::OtherLog { file: survey.path.clone() });
        }
    }
    Ok(identity)
}

/// Hands the records of a segment to `apply`. The segment lies at `path` by now.
pub(in crate::storage) fn deliver<E>(
    segment: &Survey,
    path: &Path,
    fs: &dyn FileSystem,
    apply: &mut Apply<'_, E>,
) -> Result<(), ReplayError<E>> {
    let mut reader = fs.open(path).and_then(SegmentReader::new).context("read", path)?;
    let mut gaps = segment.gaps.iter().peekable();
    let mut offset = HEADER_BYTES;
    while offset < segment.end {
        if let Some(gap) = gaps.next_if(|gap| gap.from == offset) {
            offset = gap.to;
            continue;
        }
        match reader.read(offset, segment.header.salt()).context("read", path)? {
            Ok(record) => {
                offset = record.end;
                if !record.is_control {
                    let position = Position { segment: segment.header.id, offset };
                    let applied = apply(position, reader.body(record));
                    applied.map_err(|source| ReplayError::Apply { position, source })?;
                }
            }
            Err(reason) => {
                // It was valid in the survey: the disk does not give the same answer twice.
                let file = path.to_owned();
                let bytes = segment.end - offset;
                return Err(ReplayError::Damaged(Damage { file, offset, bytes, reason }));
            }
        }
    }
    Ok(())
}
