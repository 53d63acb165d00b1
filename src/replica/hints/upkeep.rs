//! What makes the hints for a target durable, and who waits for that.

use std::fmt;
use std::sync::mpsc;

use log::warn;

use crate::storage::checked_file;
use crate::storage::error::FileError;

use super::error::HintError;
use super::files;
use super::progress::Progress;
use super::target::{Place, Segment, State, TargetLog};

/// Called once, when a hint is durable or never will be: at once, or by who syncs.
pub type DurableCallback = Box<dyn FnOnce(Result<(), HintError>) + Send>;

/// Somebody who waits for a hint to be durable.
pub(super) struct Waiter {
    /// Where the hint ends.
    pub(super) place: Place,
    pub(super) callback: DurableCallback,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("place", &self.place).finish_non_exhaustive()
    }
}

/// What became of one file.
enum FileSync {
    Durable,
    /// It could not be opened: nothing happened to it.
    NotTried(FileError),
    /// What was not durable before may be lost. A second sync would report a success that is none.
    Failed(FileError),
}

/// A segment, what is written of it, and what became of that.
type Synced = (u64, u64, FileSync);

/// Those who need not wait any longer, and what they are told. They are told when no lock is held.
#[derive(Default)]
pub(super) struct Answers(Vec<(DurableCallback, Result<(), HintError>)>);

impl Answers {
    /// All of them are told the same.
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
    /// Makes everything durable that is there now, tells who waited, and removes what was
    /// delivered. Returns the first failure and does the rest all the same.
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

    /// Waits until everything before this place is durable. Who comes first syncs for all who came
    /// until then.
    pub(super) fn wait_durable(&self, place: Place) -> Result<(), HintError> {
        let (sender, receiver) = mpsc::channel();
        let callback = move |answer| {
            // Nobody listens if the sync below has failed.
            let _ = sender.send(answer);
        };
        self.on_durable(place, Box::new(callback));
        if let Ok(answer) = receiver.try_recv() {
            return answer;
        }
        let synced = self.sync();
        // The turn of another one may have answered, or that of this call has.
        receiver.try_recv().unwrap_or(synced)
    }

    /// Segments of which something is not durable, with what is written of them; and how many names
    /// were made.
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

    /// Makes the names of so many segments durable, and that of the folder.
    fn sync_names(&self, made: u64) -> Result<(), FileError> {
        if self.lock().names_synced >= made {
            return Ok(());
        }
        let names = &self.shared.names;
        names.sync(self.fs(), &self.folder)?;
        names.sync(self.fs(), &self.shared.directory)?;
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
        let path = files::progress(&self.folder);
        if let Err(error) = checked_file::store(self.fs(), &path, &progress) {
            warn!("the progress of hints for {} is not written down: {error}", self.target);
        }
    }
}

impl State {
    /// Whether everything before this place is durable; none if that is not known yet. What is not
    /// there any more was delivered.
    fn durability(&self, (number, offset): Place) -> Option<Result<(), HintError>> {
        let Some(segment) = self.segment(number) else { return Some(Ok(())) };
        if segment.synced >= offset {
            return Some(Ok(()));
        }
        segment.failed.clone().map(Err)
    }

    /// Whether what was delivered may go from the disk. A failed sync has told already that hints
    /// may be lost.
    pub(super) fn may_forget(&self) -> bool {
        self.aside.is_none_or(|place| self.durability(place).is_some())
    }

    /// Takes out those who need not wait any longer. Nobody does if names cannot be made durable.
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
