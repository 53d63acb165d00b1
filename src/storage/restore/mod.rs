//! Restoring keyspaces from a snapshot, and from the archive of the commit log up to a time. For a
//! server that is stopped.
//!
//! 1. Everything is looked at first: the files of the snapshot, and the segments that are to be
//!    replayed. Up to here nothing has changed, and a dry run ends.
//! 2. The segments of the commit log go to the folder of the archive that is in use.
//! 3. A file in each data directory says that a restore is under way. No server starts while it is
//!    there.
//! 4. Present files are moved aside, never removed; those of the snapshot are linked into their
//!    place. The commit log stays if a keyspace needs it that is not restored: nothing of it is
//!    replayed for those that are. Else it is moved aside as well.
//! 5. The folder of the archive that is asked for is replayed into memtables, which are flushed.
//! 6. The history of the archive ends, and the file of step 3 goes.
//!
//! A restore that was cut off is repeated as a whole: what it finds is moved aside once more.

mod place;
mod plan;

use super::archive::{self, ArchiveError, ArchiveReplay, History};
use super::commitlog::{Damage, ReplayError, segment_ids};
use super::database::{
    Components, StorageError, Unapplied, lock_present_directories, prepare_directories,
};
use super::error::{FileContext, FileError, ReadError};
use super::family::OpenError;
use super::files::{ARCHIVE_FILE, RESTORING_FILE};
use super::legacy::takeover;
use super::options::{FamilyOptions, Options};
use super::snapshot::SnapshotName;
use super::system::log_guard::LostLog;
use super::system::registers;
use crate::model::schema::{FamilyId, Schema};
use crate::ring::Partitioner;
use place::RestoreMark;
use plan::Plan;
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

/// Order of an operator.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Name or tag of the snapshot.
    pub snapshot: String,
    /// The keyspace; `None` for all of which there is such a snapshot.
    pub keyspace: Option<String>,
    /// Archive, or one of its folders, whose segments are replayed upon the snapshot; `None` for
    /// the snapshot as it is.
    pub archive: Option<PathBuf>,
    /// Replay stops where the log first notes a later time, in milliseconds since the Unix epoch.
    pub until_millis: Option<u64>,
    /// Keyspaces that were made after the snapshot, and of which nothing is there: all of them is
    /// in the archive.
    pub made_since: Vec<String>,
    /// Only tells what would be done.
    pub dry_run: bool,
    /// The command line, for repeating a restore that was cut off.
    pub command: String,
}

/// Report of what was done, or would be.
#[derive(Debug)]
pub struct Report {
    /// The keyspaces that were restored.
    pub keyspaces: Vec<RestoredKeyspace>,
    /// Column families of these that the snapshot has and the configuration has not.
    pub unconfigured: Vec<String>,
    /// Folders to which present files were moved, or would be.
    pub moved_to: Vec<PathBuf>,
    /// Segments that were brought from the commit log into the archive, or would be.
    pub archived_segments: usize,
    /// Replay of the archive, if one was requested. Nothing is missing or lost unless loss was
    /// accepted.
    pub replay: Option<ArchiveReplay>,
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

/// Why a restore was refused, or was not completed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directories cannot be used. Nothing has changed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// No such snapshot. Nothing has changed.
    #[error("there is no snapshot {name}{}", others(.known))]
    NoSnapshot {
        /// The requested name.
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
    /// The snapshot cannot be opened. Nothing has changed.
    #[error("the snapshot cannot be used: {0}")]
    Snapshot(#[from] OpenError),
    /// The snapshot was made by a takeover. Nothing has changed.
    #[error(
        "the snapshot {0} has the files of Apache Cassandra as they were before the takeover, for \
         the way back to it: \"Quicker\" in docs/takeover.md"
    )]
    OfOriginal(SnapshotName),
    /// The snapshot is later than the time that is wanted. Nothing has changed.
    #[error("the snapshot {0} was taken after the time that is wanted: take an older one")]
    TooYoung(SnapshotName),
    /// There is no archive. Nothing has changed.
    #[error("{} is not a directory: where is the archive?", .0.display())]
    NoArchive(PathBuf),
    /// The archive is not complete. Nothing has changed.
    #[error(
        "the archive lacks segments that are needed: {}. If the snapshot was taken before the last \
         restore, name the folder of the archive from that time with --archive. With \
         --accept-commitlog-loss the restore goes on without what they held",
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
        "a restore of keyspace {0} was not finished: repeat it first (the file {RESTORING_FILE} in \
         the data directories tells how)"
    )]
    OtherRestore(String),
    /// The commit log that the data say there is cannot be found. Nothing has changed.
    #[error(
        "{0}. Mount the directory, or set CommitLogDirectory back. If the log is lost for good, \
         the restore goes on without it with --accept-commitlog-loss"
    )]
    NoLog(LostLog),
    /// It is not known which folder of the archive the commit log continues. Nothing has changed.
    #[error(
        "{log} holds a commit log, and no file {ARCHIVE_FILE} in the data directories tells which \
         folder of the archive it continues: put the file back, or start the server and stop it \
         again, which flushes what the log holds. With --accept-commitlog-loss the restore goes on \
         without it",
        log = .0.display()
    )]
    UnknownHistory(PathBuf),
    /// A segment of the commit log cannot be archived. Nothing was restored.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A record of the archive cannot be applied. Repeat the restore when the cause is mended.
    #[error("the archive cannot be replayed: {0}")]
    Replay(String),
    /// A file of a store cannot be read or written.
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

/// Folders of archives.
#[derive(Debug)]
struct Archive {
    /// The folder to which the commit log goes.
    own: Option<PathBuf>,
    /// The folder to replay.
    asked: Option<PathBuf>,
}

impl Archive {
    fn find(setup: &Setup, request: &Request) -> Result<Self, RestoreError> {
        let (fs, data) = (&*setup.components.fs, &setup.options.data_directories);
        let mut found = Self { own: None, asked: None };
        if let Some(path) = &request.archive {
            takeover::check_archive(fs, path).map_err(StorageError::from)?;
            if !fs.exists(path) {
                return Err(RestoreError::NoArchive(path.clone()));
            }
            found.asked = Some(archive::find_folder(fs, data, path)?);
        }
        if let Some(configured) = &setup.options.commit_log_archive_directory {
            let history = History::present(fs, data, configured)?;
            found.own = history.map(|history| history.folder(configured));
            // The log may continue the folder to replay, and would be left out.
            let log = &setup.options.commit_log_directory;
            let accepts_loss = setup.options.accept_commitlog_loss;
            let is_repeated = RestoreMark::read(fs, data)?.is_some();
            if let (Some(asked), None) = (&found.asked, &found.own)
                && !accepts_loss
                && !is_repeated
            {
                let archived = segment_ids(fs, asked).context("list", asked)?;
                let kept = segment_ids(fs, log).context("list", log)?;
                if kept.iter().any(|id| !archived.contains(id)) {
                    return Err(RestoreError::UnknownHistory(log.clone()));
                }
            }
        }
        Ok(found)
    }

    /// The commit log, if it continues what is replayed.
    fn log<'a>(&self, setup: &'a Setup) -> Option<&'a Path> {
        (self.own == self.asked).then_some(&setup.options.commit_log_directory)
    }
}

/// Values that a register got in what would be replayed of the archive, in their order: a schema
/// changes there too. Changes nothing.
pub fn logged_values(
    setup: &Setup,
    request: &Request,
    register: &str,
) -> Result<Vec<Vec<u8>>, RestoreError> {
    let Setup { components: Components { fs, .. }, options, schema, .. } = setup;
    let _locks = lock_present_directories(&**fs, options)?;
    let archive = Archive::find(setup, request)?;
    let plan = Plan::of(setup, request, &archive)?;
    let mut values = Vec::new();
    if let Some(replay) = plan.survey(setup, request, &archive)? {
        let mut take = |_, record: &[u8]| {
            values.extend(registers::logged_value(record, schema, register));
            Ok::<_, Unapplied>(())
        };
        replay.deliver(&**fs, archive.log(setup), &mut take)?;
    }
    Ok(values)
}

/// Restores what is wanted, or tells what that would be.
pub fn restore(setup: &Setup, request: &Request) -> Result<Report, RestoreError> {
    let Setup { components: Components { fs, .. }, options, schema, .. } = setup;
    let (data, log) = (&options.data_directories, &options.commit_log_directory);
    takeover::check_taken_over(&**fs, data, log).map_err(StorageError::from)?;
    let _locks = if request.dry_run {
        lock_present_directories(&**fs, options)?
    } else {
        prepare_directories(&**fs, options, schema)?
    };
    let archive = Archive::find(setup, request)?;
    let plan = Plan::of(setup, request, &archive)?;
    let replay = plan.survey(setup, request, &archive)?;
    let mut report = plan.report(setup, &archive, replay)?;
    if request.dry_run {
        return Ok(report);
    }
    if let Some(own) = &archive.own {
        archive::archive_all(&**fs, &options.commit_log_directory, own)?;
    }
    place::begin(setup, request, &plan)?;
    place::move_aside(setup, &plan)?;
    place::link(setup, &plan)?;
    plan.apply(setup, report.replay.as_mut())?;
    place::end(setup, &plan)?;
    Ok(report)
}

impl From<ReplayError<Unapplied>> for RestoreError {
    fn from(error: ReplayError<Unapplied>) -> Self {
        match error {
            ReplayError::Damaged(damage) => Self::Damaged(damage),
            ReplayError::Apply { source: Unapplied::Flush(_, error), .. } => error.into(),
            ReplayError::Apply { source, .. } => Self::Replay(source.to_string()),
            other => Self::Replay(other.to_string()),
        }
    }
}
