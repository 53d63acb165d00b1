//! The log of one target: where its hints lie, how a hint is appended, and how it becomes durable.

use super::format::{
    self, HEADER_BYTES, Header, MAX_MUTATION_BYTES, Progress, SEAL_BYTES, Seal, encode_hint,
    hint_bytes,
};
use super::owner::HintOwner;
use super::store::{HintError, Shared};
use crate::base::fs::{File, FileSystem, is_disk_full};
use crate::base::lock::{Mutex, MutexGuard, rank};
use crate::storage::checked_file;
use crate::storage::error::FileError;
use crate::storage::log::Salt;
use log::warn;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A place in the hints of one target. That of a hint is where it ends. Places of one target grow
/// in the order in which its hints were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Display)]
#[display("{target} {segment}:{offset}")]
pub struct HintPosition {
    /// Whom the hints are for.
    pub target: IpAddr,
    /// The number of the segment.
    pub segment: u64,
    /// The offset in the segment, in bytes.
    pub offset: u64,
}

/// A place within one log: number of the segment, offset in it.
pub(super) type Place = (u64, u64);

/// All hints for one target. Appending goes on while it is read and synced.
#[derive(Debug)]
pub(super) struct TargetLog {
    pub(super) shared: Arc<Shared>,
    pub(super) target: IpAddr,
    pub(super) folder: PathBuf,
    /// Held while files are synced or removed; taken before the state. Threads that must not wait
    /// for a disk must not take it.
    pub(super) upkeep: Mutex<rank::Job, ()>,
    state: Mutex<rank::Files, State>,
}

/// Content of one file of hints.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) number: u64,
    pub(super) salt: Salt,
    /// End of the written records.
    pub(super) end: u64,
    /// Whether a seal ends the records.
    pub(super) is_sealed: bool,
    /// Whether all bytes up to the end are known to have been written. Otherwise unreadable ones
    /// at the end are what a crash leaves.
    pub(super) is_whole: bool,
    /// Number of hints.
    pub(super) hints: u64,
    /// Times of the oldest and the newest hint, in milliseconds since the Unix epoch. After a start
    /// the first one counts as the oldest.
    pub(super) oldest_ms: u64,
    pub(super) newest_ms: u64,
}

/// One file of hints.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) extent: Extent,
    /// There while something in the file of this run may not be durable.
    pub(super) file: Option<Arc<dyn File>>,
    /// Everything before this is durable.
    pub(super) synced: u64,
    /// Why nothing more of it will be durable.
    pub(super) failed: Option<HintError>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// In the order of their numbers. Each has hints.
    pub(super) segments: Vec<Segment>,
    /// Numbers of segments that are no part of the log any more, but whose files are there yet.
    pub(super) gone: Vec<u64>,
    /// Sum of the ends of the segments.
    pub(super) bytes: u64,
    /// Whether the last segment takes hints.
    pub(super) is_open: bool,
    pub(super) next_number: u64,
    pub(super) has_folder: bool,
    /// Segments that were made, and how many of these the directories are known to name durably.
    pub(super) names_made: u64,
    pub(super) names_synced: u64,
    /// Everything before this was delivered.
    pub(super) delivered: Place,
    /// End of the hints that were put aside last. Until they are durable there, nothing before
    /// `delivered` may be removed from the disk.
    pub(super) aside: Option<Place>,
    /// Whether the progress of the delivery is not on disk.
    pub(super) is_progress_new: bool,
    pub(super) owner: HintOwner,
    /// Hints before this were counted, and warned about, when they were read.
    pub(super) judged: Place,
    pub(super) waiters: Vec<Waiter>,
}

impl TargetLog {
    /// A log that is in this state.
    pub(super) fn new(shared: Arc<Shared>, target: IpAddr, state: State) -> Self {
        let folder = format::target_folder(&shared.options.directory, target);
        Self { shared, target, folder, upkeep: Mutex::default(), state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn fs(&self) -> &dyn FileSystem {
        &*self.shared.fs
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        format::segment_path(&self.folder, number)
    }

    pub(super) fn position(&self, (segment, offset): Place) -> HintPosition {
        HintPosition { target: self.target, segment, offset }
    }

    /// Appends a hint, by one write, unless the log would become larger than `limit`.
    pub(super) fn append(
        &self,
        mutation: &[u8],
        created_ms: u64,
        limit: u64,
    ) -> Result<HintPosition, HintError> {
        if mutation.len() as u64 > MAX_MUTATION_BYTES {
            let bytes = mutation.len() as u64;
            return Err(HintError::TooLarge { bytes, limit: MAX_MUTATION_BYTES });
        }
        let bytes = hint_bytes(mutation);
        let mut state = self.lock();
        let is_fitting = |segment: &Segment| {
            segment.extent.hints == 0
                || segment.extent.end + bytes + SEAL_BYTES <= self.shared.options.segment_bytes
        };
        if state.is_open && !state.segments.last().is_some_and(is_fitting) {
            self.seal(&mut state);
        }
        let header_bytes = if state.is_open { 0 } else { HEADER_BYTES };
        if state.bytes + header_bytes + bytes + SEAL_BYTES > limit {
            return Err(HintError::Full { target: self.target, limit });
        }
        if !state.is_open {
            let segment = self.begin(&mut state, HEADER_BYTES + bytes)?;
            state.bytes += segment.extent.end;
            state.segments.push(segment);
            state.is_open = true;
        }
        let (number, start) = self.write(&mut state, |segment| {
            encode_hint(segment.extent.salt, segment.extent.end, created_ms, mutation)
        })?;
        let segment = state.segments.last_mut().expect("the hint was written to the last one");
        segment.extent.add(created_ms);
        Ok(self.position((number, start + bytes)))
    }

    /// Appends a record to the open segment. Returns where it begins. After a failure other than
    /// that of a full disk the segment takes nothing more.
    fn write(
        &self,
        state: &mut State,
        record: impl FnOnce(&Segment) -> Vec<u8>,
    ) -> Result<Place, HintError> {
        let segment = state.segments.last_mut().expect("an open log has a segment");
        let file = segment.file.as_ref().expect("an open segment has its file");
        let record = record(segment);
        let start = segment.extent.end;
        let Err(source) = file.write_all_at(&record, start) else {
            segment.extent.end += record.len() as u64;
            state.bytes += record.len() as u64;
            return Ok((segment.extent.number, start));
        };
        // Cut off the partly written record, so that readers need not search after it.
        let is_as_before = is_disk_full(&source) && file.set_size(start).is_ok();
        let error = HintError::of("write", &self.path(segment.extent.number), source);
        if !is_as_before {
            warn!("{error}. Further hints for {} go to another file", self.target);
            state.close();
        }
        Err(error)
    }

    /// Ends the open segment in order. Without a seal it can be read just as well.
    pub(super) fn seal(&self, state: &mut State) {
        let sealed = self.write(state, |segment| {
            let seal = Seal { hints: segment.extent.hints, newest_ms: segment.extent.newest_ms };
            seal.encode(segment.extent.salt, segment.extent.end)
        });
        match (sealed, state.segments.last_mut()) {
            (Ok(_), Some(segment)) => segment.extent.is_sealed = true,
            (Err(error), _) => warn!("hints for {} were not sealed: {error}", self.target),
            (Ok(_), None) => {}
        }
        state.close();
    }

    /// Makes the file of the next segment, which is to take this many bytes. Nothing of it is
    /// durable before the next sync.
    fn begin(&self, state: &mut State, bytes: u64) -> Result<Segment, HintError> {
        // Asked first, so that on a full disk not every hint makes and removes a file.
        let room = self.fs().available_space(&self.shared.options.directory).unwrap_or(u64::MAX);
        if room < bytes {
            return Err(self.failed("write to", std::io::ErrorKind::StorageFull.into()));
        }
        if !state.has_folder {
            self.fs().create_dir_all(&self.folder).map_err(|e| self.failed("create", e))?;
            state.has_folder = true;
        }
        let number = state.next_number.max(1);
        let path = self.path(number);
        // Whatever happens now, no number is given twice.
        state.next_number = number + 1;
        let file = self.fs().create(&path).map_err(|e| HintError::of("create", &path, e))?;
        state.names_made += 1;
        let (header, bytes) = Header::new(number, self.shared.draw());
        if let Err(source) = file.write_all_at(&bytes, 0) {
            remove(self.fs(), &path);
            return Err(HintError::of("write", &path, source));
        }
        let extent = Extent::new(header, HEADER_BYTES);
        Ok(Segment { extent, file: Some(file), synced: 0, failed: None })
    }

    fn failed(&self, action: &'static str, source: std::io::Error) -> HintError {
        HintError::of(action, &self.folder, source)
    }
}

impl Extent {
    /// A file without hints that was written up to `end`.
    pub(super) fn new(Header { number, salt }: Header, end: u64) -> Self {
        let (is_sealed, is_whole) = (false, true);
        Self { number, salt, end, is_sealed, is_whole, hints: 0, oldest_ms: 0, newest_ms: 0 }
    }

    /// Counts one more hint.
    pub(super) fn add(&mut self, created_ms: u64) {
        if self.hints == 0 || created_ms < self.oldest_ms {
            self.oldest_ms = created_ms;
        }
        self.newest_ms = self.newest_ms.max(created_ms);
        self.hints += 1;
    }

    /// End of the hints.
    pub(super) fn hints_end(&self) -> u64 {
        self.end - if self.is_sealed { SEAL_BYTES } else { 0 }
    }

    /// About how many hints stand from this offset on.
    pub(super) fn hints_from(&self, offset: u64) -> u64 {
        let left = self.hints_end().saturating_sub(offset.max(HEADER_BYTES));
        let all = self.hints_end().saturating_sub(HEADER_BYTES).max(1);
        (u128::from(self.hints) * u128::from(left)).div_ceil(u128::from(all)) as u64
    }
}

impl State {
    /// The last segment takes nothing more. Its file stays until it is synced.
    pub(super) fn close(&mut self) {
        self.is_open = false;
    }

    pub(super) fn segment(&self, number: u64) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&number, |it| it.extent.number).ok()?;
        self.segments.get(at)
    }

    pub(super) fn segment_mut(&mut self, number: u64) -> Option<&mut Segment> {
        let at = self.segments.binary_search_by_key(&number, |it| it.extent.number).ok()?;
        self.segments.get_mut(at)
    }
}

/// Removes a file. A failure costs space, and at worst that hints are delivered once more.
pub(super) fn remove(fs: &dyn FileSystem, path: &Path) {
    if let Err(error) = fs.remove_file(path) {
        warn!("cannot remove {}: {error}", path.display());
    }
}

/// Called once, when a hint is durable or never will be.
pub type DurableCallback = Box<dyn FnOnce(Result<(), HintError>) + Send>;

/// A waiter for the durability of a hint.
#[derive(derive_more::Debug)]
#[debug("Waiter {{ place: {place:?}, .. }}")]
pub(super) struct Waiter {
    /// End of the hint.
    pub(super) place: Place,
    pub(super) callback: DurableCallback,
}

/// Outcome of a sync of one file.
enum FileSync {
    Durable,
    /// The file could not be opened.
    NotTried(FileError),
    /// Data that were not durable may be lost. A second sync would report a false success.
    Failed(FileError),
}

/// Number of a segment, end of its written bytes, and outcome of its sync.
type Synced = (u64, u64, FileSync);

/// Callbacks with their answers, to be called when no lock is held.
#[derive(Default)]
pub(super) struct Answers(Vec<(DurableCallback, Result<(), HintError>)>);

impl Answers {
    /// Gives all waiters the same answer.
    pub(super) fn all(
        waiters: impl Iterator<Item = Waiter>,
        answer: &Result<(), HintError>,
    ) -> Self {
        Self(waiters.map(|waiter| (waiter.callback, answer.clone())).collect())
    }

    /// Calls them back.
    pub(super) fn tell(self) {
        self.0.into_iter().for_each(|(callback, answer)| callback(answer));
    }
}

impl TargetLog {
    /// Makes everything durable that is there now, calls waiters back, and removes delivered files.
    /// Returns the first failure and does the rest all the same.
    pub(super) fn sync(&self) -> Result<(), HintError> {
        let turn = self.upkeep.lock();
        let owner = self.write_owner();
        let (unsynced, names_made) = self.unsynced();
        let (mut result, mut answers) = (Ok(()), Answers::default());
        if !unsynced.is_empty() {
            let files: Vec<Synced> = unsynced
                .into_iter()
                .map(|(number, end)| (number, end, self.sync_file(number)))
                .collect();
            let names = self.sync_names(names_made);
            (result, answers) = self.note_synced(files, names);
        }
        self.write_progress();
        self.remove_gone();
        drop(turn);
        answers.tell();
        result.and(owner)
    }

    /// Calls back when everything before this place is durable.
    pub(super) fn on_durable(&self, place: Place, callback: DurableCallback) {
        let mut state = self.lock();
        let Some(answer) = state.durability(place) else {
            state.waiters.push(Waiter { place, callback });
            return;
        };
        drop(state);
        callback(answer);
    }

    /// Segments with bytes that are not durable, each with its written end; and the number of names
    /// made.
    fn unsynced(&self) -> (Vec<(u64, u64)>, u64) {
        let state = self.lock();
        let is_unsynced =
            |segment: &&Segment| segment.synced < segment.extent.end && segment.failed.is_none();
        let unsynced = state.segments.iter().filter(is_unsynced);
        (
            unsynced.map(|segment| (segment.extent.number, segment.extent.end)).collect(),
            state.names_made,
        )
    }

    /// Syncs one segment, which an earlier run may have written.
    fn sync_file(&self, number: u64) -> FileSync {
        let path = self.path(number);
        let known = self.lock().segment(number).and_then(|segment| segment.file.clone());
        let file = match known.map_or_else(|| self.fs().open(&path), Ok) {
            Ok(file) => file,
            Err(source) => return FileSync::NotTried(FileError::new("open", &path, source)),
        };
        match file.sync() {
            Ok(()) => FileSync::Durable,
            Err(source) => FileSync::Failed(FileError::new("sync", &path, source)),
        }
    }

    /// Makes the names of this many segments durable, and that of the folder.
    fn sync_names(&self, made: u64) -> Result<(), FileError> {
        if self.lock().names_synced >= made {
            return Ok(());
        }
        let names = &self.shared.names;
        names.sync(self.fs(), &self.folder)?;
        names.sync(self.fs(), &self.shared.options.directory)?;
        self.lock().names_synced = made;
        Ok(())
    }

    fn note_synced(
        &self,
        files: Vec<Synced>,
        names: Result<(), FileError>,
    ) -> (Result<(), HintError>, Answers) {
        let mut state = self.lock();
        let mut result = names.clone().map_err(HintError::from);
        let last = state.segments.last().map(|segment| segment.extent.number);
        for (number, end, synced) in files {
            if matches!(synced, FileSync::Failed(_)) && last == Some(number) {
                state.close();
            }
            let is_open = state.is_open && last == Some(number);
            // Delivered and gone meanwhile, for all that anybody knows.
            let Some(segment) = state.segment_mut(number) else { continue };
            match synced {
                FileSync::Durable if names.is_ok() => {
                    segment.synced = end;
                    if !is_open && segment.synced >= segment.extent.end {
                        segment.file = None;
                    }
                }
                FileSync::Durable => {}
                FileSync::NotTried(source) => result = result.and(Err(HintError::Io(source))),
                FileSync::Failed(source) => {
                    let error = HintError::Io(source);
                    warn!(
                        "{error}. Hints for {} from there may be lost when the machine fails; \
                         further ones go to another file",
                        self.target,
                    );
                    segment.failed = Some(error.clone());
                    segment.file = None;
                    result = result.and(Err(error));
                }
            }
        }
        (result, state.take_answered(names.err().map(HintError::Io).as_ref()))
    }

    /// Writes down how far the log was delivered. A failure only means that some hints are
    /// delivered once more after a restart.
    fn write_progress(&self) {
        let progress = {
            let mut state = self.lock();
            if !state.may_forget() {
                return;
            }
            let (segment, offset) = state.delivered;
            let salt = state.segment(segment).map(|segment| segment.extent.salt.number());
            let Some(salt) = salt.filter(|_| state.is_progress_new) else { return };
            state.is_progress_new = false;
            Progress { segment, salt, offset }
        };
        let path = format::progress_path(&self.folder);
        if let Err(error) = checked_file::store(self.fs(), &path, &progress) {
            warn!("the progress of hints for {} is not written down: {error}", self.target);
        }
    }
}

impl State {
    /// Whether everything before this place is durable; `None` if not known yet. Places that are
    /// gone were delivered.
    fn durability(&self, (number, offset): Place) -> Option<Result<(), HintError>> {
        let Some(segment) = self.segment(number) else { return Some(Ok(())) };
        if segment.synced >= offset {
            return Some(Ok(()));
        }
        segment.failed.clone().map(Err)
    }

    /// Whether delivered hints may be removed from the disk. A failed sync has already logged that
    /// hints may be lost.
    pub(super) fn may_forget(&self) -> bool {
        self.aside.is_none_or(|place| self.durability(place).is_some())
    }

    /// Takes out the waiters that have an answer. All get one if names cannot be made durable.
    fn take_answered(&mut self, no_names: Option<&HintError>) -> Answers {
        let mut answered = Vec::new();
        for waiter in std::mem::take(&mut self.waiters) {
            match self.durability(waiter.place).or_else(|| no_names.cloned().map(Err)) {
                Some(answer) => answered.push((waiter.callback, answer)),
                None => self.waiters.push(waiter),
            }
        }
        Answers(answered)
    }
}
