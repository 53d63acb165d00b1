//! Restoring keyspaces from a snapshot, and from the archive of the commit log up to a time. For a
//! server that is stopped.
//!
//! 1. Everything is looked at first: the files of the snapshot, and the segments that are to be
//!    replayed. Up to here nothing has changed, and a dry run ends.
//! 2. What the commit log holds for keyspaces that are not restored goes to their SSTables, and the
//!    segments go to the archive.
//! 3. A file in each data directory says that a restore is under way. No server starts while it is
//!    there.
//! 4. Present files and segments are moved aside, never removed; those of the snapshot are linked
//!    into their place.
//! 5. The archive is replayed into memtables, which are flushed.
//! 6. The archive's history notes what was left behind, and the file of step 3 goes.
//!
//! A restore that was cut off is repeated as a whole: what it finds is moved aside once more.

mod check;
mod left_out;
mod place;
mod replay;

use super::archive_owner::{self, OwnerError};
use super::commitlog::archive::{self, ArchiveError, ArchiveReplay, Restored};
use super::commitlog::{Damage, Position, ReplayError};
use super::engine::{
    Components, StorageError, lock, lock_present, lock_present_directories, prepare_directories,
};
use super::error::{FileError, ReadError};
use super::foreign;
use super::options::{FamilyOptions, Options};
use super::snapshot::SnapshotName;
use super::store::OpenError;
use super::system::log_guard::LostLog;
use crate::base::fs::Lock;
use crate::model::schema::{FamilyId, Schema};
use crate::ring::Partitioner;
use check::{ArchivePlan, FamilyPlan, Plan};
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A storage core as it would be opened.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The outer world.
    pub components: Components,
    /// Its settings. Loss in the commit log is accepted as they say, and loss in the archive.
    pub options: Options,
    /// Decides on the order of rows.
    pub partitioner: Partitioner,
    /// The column families.
    pub schema: Arc<Schema>,
    /// The settings of each, in the order of their numbers.
    pub families: Vec<FamilyOptions>,
}

impl Setup {
    fn family_options(&self, family: FamilyId) -> FamilyOptions {
        self.families[family.0 as usize].clone()
    }
}

/// What an operator wants.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name or tag of the snapshot.
    pub snapshot: String,
    /// The keyspace; `None` for all of which there is such a snapshot.
    pub keyspace: Option<String>,
    /// Where commit log segments are that are replayed upon the snapshot; `None` for the snapshot
    /// as it is.
    pub archive: Option<PathBuf>,
    /// Replay stops where the log first notes a later time, in milliseconds since the Unix epoch.
    pub until_millis: Option<u64>,
    /// What earlier restores have left behind since the snapshot is replayed as well: all that the
    /// archive holds, in the order in which it was written.
    pub forget_restores: bool,
    /// Only tells what would be done.
    pub dry_run: bool,
    /// The command line, for who finds a restore that was cut off.
    pub command: String,
}

/// What was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The keyspaces that were restored.
    pub keyspaces: Vec<RestoredKeyspace>,
    /// Column families of these that the snapshot has and the configuration has not.
    pub unconfigured: Vec<String>,
    /// Where present files were moved, or would be.
    pub moved_to: Vec<PathBuf>,
    /// Segments that were brought from the commit log into the archive, or would be.
    pub archived_segments: usize,
    /// What was replayed; `None` if nothing was to be.
    pub replay: Option<ReplayReport>,
}

/// A keyspace that was restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredKeyspace {
    /// Its name.
    pub keyspace: String,
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// Its column families.
    pub families: usize,
    /// SSTables that were linked.
    pub tables: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// What a replay of the archive did, or would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayReport {
    /// Segments that were read.
    pub segments: usize,
    /// Mutations that were applied, in whole or in part; 0 in a dry run.
    pub mutations: u64,
    /// Where it stopped.
    pub stop: Position,
    /// Whether it stopped because the time was reached, not because the log ended.
    pub reaches_time: bool,
    /// The last time that the log noted before, in milliseconds since the Unix epoch.
    pub last_millis: Option<u64>,
    /// Segments that were missing. Empty unless loss was accepted.
    pub missing: Vec<PathBuf>,
    /// Parts that could not be read. Empty unless loss was accepted.
    pub lost: Vec<Damage>,
    /// Parts that a crash had left unfinished, which is normal.
    pub torn: Vec<Damage>,
    /// What was written in time and left out, since earlier restores have left it behind.
    pub left_out: Vec<LeftOut>,
}

/// Mutations in the archive that a restore leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// When the restore happened that left them behind, in milliseconds since the Unix epoch.
    pub restored_millis: u64,
    /// The keyspaces concerned.
    pub keyspaces: BTreeSet<String>,
    /// How many there are.
    pub mutations: u64,
    /// When the first was written, in milliseconds since the Unix epoch, as far as the log tells.
    pub first_millis: Option<u64>,
    /// When the last was written.
    pub last_millis: Option<u64>,
}

/// Why a restore was refused, or was not completed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directories cannot be used. Nothing has changed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// No such snapshot. Nothing has changed.
    #[error("there is no snapshot {name}{}", others(.known))]
    NoSnapshot {
        /// What was asked for.
        name: String,
        /// The snapshots that there are.
        known: Vec<String>,
    },
    /// Several snapshots of one keyspace have the tag. Nothing has changed.
    #[error("several snapshots are meant: {}. Give the whole name of one", .0.join(", "))]
    Ambiguous(Vec<String>),
    /// The keyspaces of the snapshot are not configured. Nothing has changed.
    #[error("the snapshot is of keyspace {0}, which is not configured")]
    UnknownKeyspace(String),
    /// The snapshot is not complete. Nothing has changed.
    #[error("the snapshot lacks {file}, or it has another size", file = .0.display())]
    Incomplete(PathBuf),
    /// The snapshot cannot be opened. Nothing has changed.
    #[error("the snapshot cannot be used: {0}")]
    Snapshot(#[from] OpenError),
    /// The snapshot is later than the time that is wanted. Nothing has changed.
    #[error("the snapshot {0} was taken after the time that is wanted: take an older one")]
    TooYoung(SnapshotName),
    /// There is no archive. Nothing has changed.
    #[error("{} is not a directory: where is the archive?", .0.display())]
    NoArchive(PathBuf),
    /// The snapshot is of a past that was left. Nothing has changed.
    #[error(
        "the snapshot {snapshot} of {keyspace} was taken before a restore that led back behind it, \
         so that what the archive holds does not follow upon it. Restore it without the archive, \
         or with --forget-restores, or take another one"
    )]
    LeftBehind {
        /// The snapshot.
        snapshot: SnapshotName,
        /// The keyspace.
        keyspace: String,
    },
    /// The archive is not complete. Nothing has changed.
    #[error(
        "the archive lacks segments that are needed: {}. With --accept-commitlog-loss the restore \
         goes on without what they held",
        paths(.0)
    )]
    Missing(Vec<PathBuf>),
    /// The archive is damaged. Nothing has changed.
    #[error(
        "the archive is damaged: {0}. With --accept-commitlog-loss the restore goes on without \
         what cannot be read"
    )]
    Damaged(Damage),
    /// Another restore was cut off, of keyspaces that this one leaves out. Nothing has changed.
    #[error(
        "a restore of keyspace {keyspace} was not finished: repeat it first ({mark} tells how)",
        mark = mark.display()
    )]
    OtherRestore {
        /// A keyspace that is half restored.
        keyspace: String,
        /// The file that tells of it.
        mark: PathBuf,
    },
    /// The commit log that the data say there is cannot be found. Nothing has changed.
    #[error(
        "{0}. Mount the directory, or set CommitLogDirectory back. If the log is lost for good, \
         the restore goes on without it with --accept-commitlog-loss"
    )]
    NoLog(LostLog),
    /// The commit log holds data of other keyspaces, and cannot be replayed. Nothing has changed.
    #[error(
        "the commit log holds data of keyspaces that are not restored, and cannot be replayed: \
         {0}. With --accept-commitlog-loss the restore goes on without what cannot be read"
    )]
    Log(String),
    /// The archive is that of another server. Nothing has changed.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A segment of the commit log cannot be archived. Nothing was restored.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A record of the archive cannot be applied. Repeat the restore when the cause is mended.
    #[error("the archive cannot be replayed: {0}")]
    Replay(String),
    /// The archive's history or a file of a store cannot be read or written.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

fn others(names: &[String]) -> String {
    if names.is_empty() {
        ", and no other".to_owned()
    } else {
        format!("; there are: {}", names.join(", "))
    }
}

fn paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Restores what is wanted, or tells what that would be.
pub fn restore(setup: &Setup, request: &Request) -> Result<Report, RestoreError> {
    let _locks = lock_all(setup, request)?;
    let (fs, data) = (&*setup.components.fs, &setup.options.data_directories);
    for archive in archives(setup, request) {
        archive_owner::check(fs, data, archive)?;
    }
    let plan = Plan::of(setup, request)?;
    let archived = request.archive.as_deref();
    let archived = archived.map(|archive| plan.survey(setup, request, archive)).transpose()?;
    let mut report = plan.report(setup)?;
    if let Some(archived) = &archived {
        let left_out = left_out::find(setup, request, &plan, archived)?;
        report.replay = Some(report_replay(&archived.replay, left_out));
    }
    if request.dry_run {
        return Ok(report);
    }
    let log = &setup.options.commit_log_directory;
    if !plan.is_repeated {
        replay::flush_other_keyspaces(setup, &plan)?;
    }
    for archive in archives(setup, request) {
        report.archived_segments = archive::archive_all(&setup.components.fs, log, archive)?;
    }
    place::begin(setup, request, &plan)?;
    place::move_aside(setup, &plan)?;
    place::link(setup, &plan)?;
    let mutations = replay::apply(setup, &plan, archived.as_ref())?;
    if let Some(report) = &mut report.replay {
        report.mutations = mutations;
    }
    note_history(setup, request, &plan, archived.as_ref())?;
    for archive in archives(setup, request) {
        archive_owner::adopt(fs, data, archive)?;
    }
    place::end(setup)?;
    Ok(report)
}

fn lock_all(setup: &Setup, request: &Request) -> Result<Vec<Box<dyn Lock>>, RestoreError> {
    let fs = &*setup.components.fs;
    let archive = request.archive.as_deref();
    archive.map_or(Ok(()), |it| foreign::check_archive(fs, it)).map_err(StorageError::from)?;
    let mut locks = if request.dry_run {
        lock_present_directories(fs, &setup.options)?
    } else {
        prepare_directories(fs, &setup.options, &setup.schema)?
    };
    if let Some(archive) = &request.archive
        && setup.options.commit_log_archive_directory.as_ref() != Some(archive)
    {
        if !fs.exists(archive) {
            return Err(RestoreError::NoArchive(archive.clone()));
        }
        if request.dry_run {
            locks.extend(lock_present(fs, archive)?);
        } else {
            locks.push(lock(fs, archive)?);
        }
    }
    Ok(locks)
}

/// The archive that is replayed, and the one that goes on.
fn archives<'a>(setup: &'a Setup, request: &'a Request) -> impl Iterator<Item = &'a Path> {
    let configured = setup.options.commit_log_archive_directory.as_deref();
    let asked = request.archive.as_deref();
    asked.into_iter().chain(configured.filter(move |configured| Some(*configured) != asked))
}

fn report_replay(replay: &ArchiveReplay, left_out: Vec<LeftOut>) -> ReplayReport {
    ReplayReport {
        segments: replay.segments(),
        mutations: 0,
        stop: replay.stop,
        reaches_time: replay.reaches_time,
        last_millis: replay.last_millis,
        missing: replay.missing.clone(),
        lost: replay.damaged.clone(),
        torn: replay.torn.clone(),
        left_out,
    }
}

/// Notes in the archives what no later restore may replay.
fn note_history(
    setup: &Setup,
    request: &Request,
    plan: &Plan,
    archived: Option<&ArchivePlan>,
) -> Result<(), RestoreError> {
    let fs = &*setup.components.fs;
    let millis = setup.components.clock.coarse_millis();
    // The replay stops at one place for all. A column family may have left that behind.
    let reached = |family: &FamilyPlan| {
        let way = archived.and_then(|it| Some((it.timelines.get(&family.id)?, it.replay.stop)));
        way.map_or(family.base, |(timeline, stop)| timeline.up_to(stop))
    };
    for archive in archives(setup, request) {
        let mut history = plan.history(fs, archive)?;
        history.restored.extend(plan.families.iter().map(|family| Restored {
            millis,
            to: reached(family),
            from: plan.newest,
            keyspace: family.keyspace.clone(),
            family: family.name.clone(),
        }));
        history.store(fs, archive)?;
    }
    Ok(())
}

impl<E: fmt::Display> From<ReplayError<E>> for RestoreError {
    fn from(error: ReplayError<E>) -> Self {
        match error {
            ReplayError::Damaged(damage) => Self::Damaged(damage),
            other => Self::Replay(other.to_string()),
        }
    }
}
