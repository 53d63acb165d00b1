//! The start: directories, locks, column families, commit log and workers.

use super::super::archive::{ArchiveError, History};
use super::super::caches::{BlockCache, ByteBudget};
use super::super::commitlog::{CommitLog, LogError, Replayed};
use super::super::compaction::Compactor;
use super::super::directory::{self, DirectorySync};
use super::super::error::{FileContext, FileError, ReadError};
use super::super::family::{ColumnFamily, Environment, OpenError, Originals};
use super::super::files;
use super::super::flush_queue::{FlushCause, FlushQueue};
use super::super::legacy::takeover::{self, Takeover, TakeoverError};
use super::super::memtable::Memtable;
use super::super::options::{FamilyOptions, Options};
use super::super::snapshot;
use super::super::system::log_guard::{LogGuard, LostLog};
use super::super::system::node_id::NodeId;
use super::compactions::{CompactionQueue, LONG};
use super::exchange;
use super::health::Shortages;
use super::known_families;
use super::replay::Opening;
use super::unconfigured::{Records, find_unconfigured};
use super::{Components, Core, Database};
use crate::base::clock::Clock;
use crate::base::fs::{FileSystem, Lock};
use crate::base::lock::{Condvar, Mutex};
use crate::base::operations::Transfers;
use crate::base::worker::{Gauge, Spawner, Workers};
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::ring::Partitioner;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};

/// Least and most threads that write memtables to disk: one for each data directory, as in 0.6, but
/// two for one, so that a large family does not hold up a small one.
const FLUSH_THREADS: (usize, usize) = (2, 4);

/// One thread for short compactions, and one for any.
const MIN_COMPACTION_THREADS: usize = 2;

/// Reason why the storage cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Another server uses the directory.
    #[error("{path} is used by another server: stop it first", path = .0.display())]
    Locked(PathBuf),
    /// A directory or file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A column family cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The commit log cannot be replayed.
    #[error(
        "the commit log cannot be replayed: {0}. Start with --accept-commitlog-loss to go on \
         without what cannot be read"
    )]
    Replay(String),
    /// The commit log holds writes of a column family that is not configured.
    #[error(
        "the commit log cannot be replayed: {place}: column family {family} is not configured. Put \
         it back into storage-conf.xml. If it is not wanted any more, start with \
         --accept-commitlog-loss to go on without all mutations that hold something of it, and \
         without what cannot be read"
    )]
    Unconfigured {
        /// Place of the first of them in the commit log.
        place: String,
        /// Keyspace and column family.
        family: String,
    },
    /// Segments of another server are in the directory of the commit log.
    #[error("the commit log cannot be replayed: {0}")]
    OtherLog(String),
    /// The commit log that the data say there is cannot be found.
    #[error(
        "{0}. Mount the directory, or set CommitLogDirectory back. If the log is lost for good, \
         start with --accept-commitlog-loss to go on without it"
    )]
    NoLog(LostLog),
    /// The data that the commit log shows to have been there cannot be found.
    #[error(
        "the data directories hold nothing, though the commit log in {log} was written by a server \
         that had data: they may not be mounted, or DataFileDirectories name others. Mount them, \
         or set DataFileDirectories back. If the data are lost, move the commit log away and start \
         with -Dcassandra.replace_token=TOKEN, which collects them from the other replicas. \
         -Dcassandra.accept_data_loss=true goes on with what the commit log holds",
        log = .0.display()
    )]
    NoData(PathBuf),
    /// The data of a column family cannot be found.
    #[error(
        "column family {family} has had data, and the data directories hold nothing of it{others}: \
         one may not be mounted, or DataFileDirectories name others. Mount it, or set \
         DataFileDirectories back. If the data are lost, empty all directories and start with \
         -Dcassandra.replace_token=TOKEN, which collects them from the other replicas. \
         -Dcassandra.accept_data_loss=true goes on without them",
        others = if *count > 1 { format!(", nor of {} others", count - 1) } else { String::new() }
    )]
    LostFamily {
        /// Keyspace and column family.
        family: String,
        /// Number of missing column families.
        count: usize,
    },
    /// The state that the node keeps about itself cannot be found.
    #[error(
        "the data directories hold nothing of keyspace system, which says who this node is, though \
         it has written {family}: the folder system may be elsewhere, or on a disk that is not \
         mounted. Put it back. If it is lost, empty all directories and start with \
         -Dcassandra.replace_token=TOKEN, which collects the data from the other replicas. \
         -Dcassandra.accept_data_loss=true goes on with the data that are there, as a node that \
         starts for the first time: set AutoBootstrap to false and InitialToken to the token that \
         it had"
    )]
    LostSystem {
        /// A column family that the node has written.
        family: String,
    },
    /// The names of column families that have had data cannot be read.
    #[error("which column families have had data cannot be told: {0}")]
    Families(#[source] ReadError),
    /// Directories of the original cannot be taken over.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
    /// A restore was begun and is not complete.
    #[error(
        "{path} says that a restore was not finished: repeat the command that is written there",
        path = .0.display()
    )]
    Restoring(PathBuf),
    /// The commit log cannot be opened.
    #[error("the commit log cannot be opened: {0}")]
    Log(#[from] LogError),
    /// Replayed data have to be flushed, and cannot be.
    #[error(
        "what the commit log holds has to be written to SSTables, about {bytes} bytes, and cannot \
         be: {source}"
    )]
    Flush {
        /// Memory that it takes.
        bytes: u64,
        /// The failure.
        source: ReadError,
    },
    /// The archive is not there; or the commit log has no room and cannot be archived.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

type Locks = Arc<Vec<Box<dyn Lock>>>;

impl Database {
    /// Opens all column families, replays the commit log, and starts the workers.
    pub fn open(
        components: Components,
        options: Options,
        partitioner: Partitioner,
        schema: Arc<Schema>,
        family_options: impl Fn(FamilyId) -> FamilyOptions,
    ) -> Result<Self, StorageError> {
        let by_disks = options.data_directories.len().clamp(FLUSH_THREADS.0, FLUSH_THREADS.1);
        let flush_threads = options.flush_threads.map_or(by_disks, NonZeroUsize::get);
        let compaction_threads = options.compaction.threads.max(MIN_COMPACTION_THREADS);
        let (fs, niceness) = (Arc::clone(&components.fs), options.compaction.niceness);
        let spawner = components.spawner;
        let missing = missing_places(&*fs, &options, &schema)?;
        let locks: Locks = Arc::new(prepare_directories(&*fs, &options, &schema)?);
        let environment = (components, partitioner, Arc::clone(&locks));
        let opened = Self::open_locked(environment, options, schema, family_options);
        if opened.is_err() {
            // Still locked: no other server uses these. A directory with content stays.
            for path in missing.iter().rev() {
                let _ = fs.remove_file(path).or_else(|_| fs.remove_dir(path));
            }
        }
        let database = opened?;
        // If a thread cannot be had, dropping the database ends the others.
        let started = database.start_workers(spawner, flush_threads, compaction_threads, niceness);
        started.map_err(StorageError::Thread)?;
        Ok(database)
    }

    /// Opens everything in directories that exist and are locked.
    fn open_locked(
        (components, partitioner, locks): (Components, Partitioner, Locks),
        mut options: Options,
        schema: Arc<Schema>,
        family_options: impl Fn(FamilyId) -> FamilyOptions,
    ) -> Result<Self, StorageError> {
        check_no_restore(&*components.fs, &options)?;
        let newest_snapshot = snapshot::tidy(&*components.fs, &options.data_directories)?;
        let node = NodeId::find(&*components.fs, &options.data_directories, options.seed);
        let node = node.map_err(OpenError::from)?;
        let (takeover, originals) = begin_takeover(&components, &options)?;
        let environment = new_environment(&components, &options, partitioner, (node, originals));
        let Components { fs, clock, .. } = components;
        let families = open_families(&environment, &options, &schema, family_options)?;
        let unconfigured = find_unconfigured(&*fs, &options.data_directories, &schema);
        let records = Records { schema: &schema, unconfigured };
        check_log(&*fs, &options)?;
        let without_files = known_families::without_files(&families);
        let mut opening =
            Opening { environment: &environment, options: &options, families: &families };
        let mut replayed = opening.replay(&records, takeover.is_some())?;
        let accepts_loss = options.accept_data_loss;
        let noted = known_families::noted(&families)?;
        known_families::check_own(&families, &noted, &replayed, accepts_loss)?;
        let lost = known_families::check(&families, &noted, &without_files, accepts_loss)?;
        let newest_segment = newest_segment(&opening, &replayed)?;
        let history = open_archive(&*fs, &*clock, &mut options, newest_segment)?;
        opening = Opening { environment: &environment, options: &options, families: &families };
        let (rate, stopping) = (options.compaction.bytes_per_second, Arc::default());
        let compactor = Compactor::new(Arc::clone(&clock), rate, Arc::clone(&stopping));
        let log = opening.open_log(&mut replayed)?;
        mark_log(&opening, &log)?;
        let replayed_into: Vec<_> = families.iter().map(filled_memtables).collect();
        let core = Arc::new(Core {
            schema,
            families: families.into_iter().collect(),
            environment,
            opened_at: clock.monotonic(),
            log,
            options,
            workers: Workers::default(),
            flushes: FlushQueue::default(),
            replayed_into,
            has_replayed: AtomicBool::new(!replayed.segments.is_empty()),
            writing: Gauge::default(),
            compactions: CompactionQueue::default(),
            compactor,
            saving_caches: Mutex::default(),
            are_caches_filled: AtomicBool::new(false),
            administration: Mutex::default(),
            newest_snapshot: AtomicU64::new(newest_snapshot),
            memory_freed: (Mutex::new(()), Condvar::default()),
            shortages: Shortages::default(),
            stopping,
            noted_families: Mutex::new(noted),
            takeover: Mutex::new(takeover),
            _locks: locks,
        });
        for family in core.families() {
            if !filled_memtables(family).is_empty() {
                core.flushes.push(family.id(), FlushCause::Replay);
            }
            core.request_compaction(family);
        }
        core.forget_families(&lost);
        core.note_families();
        core.begin_history(history);
        Ok(Self { core, is_closed: AtomicBool::new(false) })
    }

    pub(super) fn start_workers(
        &self,
        spawner: Spawner,
        flush_threads: usize,
        compaction_threads: usize,
        compaction_niceness: i32,
    ) -> io::Result<()> {
        let start = |name, niceness, run: fn(&Core)| {
            let core = Arc::clone(&self.core);
            self.workers.start(spawner, name, niceness, move || run(&core))
        };
        start("housekeeper", 0, Core::keep_house)?;
        (0..flush_threads).try_for_each(|_| start("flush", 0, Core::run_flushes))?;
        for number in 0..compaction_threads {
            let run: fn(&Core) = match number {
                0 => |core| core.run_compactions(LONG),
                _ => |core| core.run_compactions(u64::MAX),
            };
            start("compaction", compaction_niceness, run)?;
        }
        start("block-memory", 0, |core| core.environment.cache.buffers().fill())?;
        if self.options.caches.saved_directory.is_some() {
            start("caches", 0, Core::run_caches)?;
        }
        Ok(())
    }
}

/// Begins to take over directories of the original, if they are that.
fn begin_takeover(
    components: &Components,
    options: &Options,
) -> Result<(Option<Takeover>, Originals), StorageError> {
    let Options { data_directories, commit_log_directory, .. } = options;
    let (fs, clock) = (&*components.fs, &*components.clock);
    let takeover = Takeover::begin(fs, clock, data_directories, commit_log_directory)?;
    let skips_damaged = options.accept_data_loss;
    let adopts = Originals::Adopt { skips_damaged };
    let originals = takeover.as_ref().map_or(Originals::Refuse, |_| adopts);
    Ok((takeover, originals))
}

/// Memtables with replayed records, right after the replay.
fn filled_memtables(family: &Arc<ColumnFamily>) -> Vec<Weak<Memtable>> {
    let view = family.view();
    view.memtables().filter(|it| !it.is_empty()).map(Arc::downgrade).collect()
}

/// The environment that all column families share.
pub(in crate::storage) fn new_environment(
    components: &Components,
    options: &Options,
    partitioner: Partitioner,
    (node, originals): (NodeId, Originals),
) -> Arc<Environment> {
    Arc::new(Environment {
        fs: Arc::clone(&components.fs),
        clock: Arc::clone(&components.clock),
        events: components.events.clone(),
        cache: Arc::new(BlockCache::new(options.block_cache_bytes)),
        key_cache_budget: Arc::new(ByteBudget::new(options.caches.key_bytes)),
        row_cache_budget: Arc::new(ByteBudget::new(options.caches.row_bytes)),
        preheats_keys: options.caches.preheats_keys,
        partitioner,
        memtable_memory: AtomicU64::new(0),
        flushes: Transfers::default(),
        sampler: Arc::default(),
        node,
        directory_sync: DirectorySync::default(),
        originals,
    })
}

/// Refuses the directories of an unfinished restore: they may lack files without a sign of it.
fn check_no_restore(fs: &dyn FileSystem, options: &Options) -> Result<(), StorageError> {
    let marks = options.data_directories.iter().map(|it| it.join(files::RESTORING_FILE));
    for mark in marks {
        if fs.try_exists(&mark).context("look for", &mark)? {
            return Err(StorageError::Restoring(mark));
        }
    }
    Ok(())
}

/// Refuses to start without a commit log that must exist: it holds acknowledged writes.
fn check_log(fs: &dyn FileSystem, options: &Options) -> Result<(), StorageError> {
    let (data, directory) = (&options.data_directories, &options.commit_log_directory);
    match LogGuard::find_loss(fs, data, directory)? {
        Some(lost) if options.accept_commitlog_loss => {
            log::error!("{lost}. This loss is accepted");
            Ok(())
        }
        Some(lost) => Err(StorageError::NoLog(lost)),
        None => Ok(()),
    }
}

/// Returns the newest segment that the data directories and the commit log know.
fn newest_segment(opening: &Opening<'_>, replayed: &Replayed) -> Result<u64, FileError> {
    let Opening { environment, options, families } = opening;
    let guard = LogGuard::find(&*environment.fs, &options.data_directories)?;
    let guard = guard.and_then(|guard| guard.segment);
    let flushed = families.iter().map(|family| family.flushed_position().segment);
    Ok(flushed.chain(guard).chain([replayed.end().segment]).max().unwrap_or(0))
}

/// Finds the folder of the archive for the present history, or begins a new one, and makes the
/// folder the archive of these options. Returns the history if its first snapshot may be due.
fn open_archive(
    fs: &dyn FileSystem,
    clock: &dyn Clock,
    options: &mut Options,
    newest_segment: u64,
) -> Result<Option<History>, StorageError> {
    let data = &options.data_directories;
    let Some(archive) = &options.commit_log_archive_directory else {
        // Records from now on are in no archive.
        History::end(fs, data).or_else(|error| ignore_shortage("the archive is left", error))?;
        return Ok(None);
    };
    let mut is_noted = true;
    let history = if let Some(history) = History::to_continue(fs, data, archive, newest_segment)? {
        history
    } else {
        let history = History::new(fs, archive, clock.coarse_millis())?;
        if let Err(error) = history.begin(fs, data, archive) {
            // Segments stay in the log until the folder can be made.
            ignore_shortage("the next start begins a new history", error)?;
            is_noted = false;
        }
        history
    };
    options.commit_log_archive_directory = Some(history.folder(archive));
    Ok(is_noted.then_some(history))
}

/// Reads are served on a full disk.
fn ignore_shortage(what: &str, error: FileError) -> Result<(), FileError> {
    if !error.is_shortage() {
        return Err(error);
    }
    log::warn!("{what}: {error}");
    Ok(())
}

/// Notes that this log must exist at the next start.
fn mark_log(opening: &Opening<'_>, log: &CommitLog) -> Result<(), FileError> {
    let Options { data_directories, commit_log_directory: directory, .. } = opening.options;
    let mark = LogGuard::new(log.identity(), log.position().segment, directory);
    match mark.store(&*opening.environment.fs, data_directories) {
        // Reads are served on a full disk. An older mark is still true; but without any the next
        // start would refuse the log.
        Err(error) if error.is_shortage() && opening.is_expected()? => {
            log::warn!("should {} get lost, nobody will notice: {error}", directory.display());
            Ok(())
        }
        stored => stored,
    }
}

fn open_families(
    environment: &Arc<Environment>,
    options: &Options,
    schema: &Schema,
    family_options: impl Fn(FamilyId) -> FamilyOptions,
) -> Result<Vec<Arc<ColumnFamily>>, OpenError> {
    let mut families = Vec::new();
    for (id, family) in schema.families() {
        assert_eq!(
            id.0 as usize,
            families.len(),
            "a start has a schema of its own, without dropped families"
        );
        families.push(open_family(environment, options, id, family, family_options(id))?);
    }
    Ok(families)
}

/// Opens a column family in all data directories.
pub(in crate::storage) fn open_family(
    environment: &Arc<Environment>,
    options: &Options,
    id: FamilyId,
    schema: &Arc<ColumnFamilySchema>,
    family_options: FamilyOptions,
) -> Result<Arc<ColumnFamily>, OpenError> {
    let directories = options.data_directories.iter();
    let folders = directories.map(|it| files::keyspace_folder(it, &schema.keyspace)).collect();
    Ok(Arc::new(ColumnFamily::open(environment, id, schema, family_options, folders)?))
}

/// Creates a directory and keeps other servers out of it.
fn lock(fs: &dyn FileSystem, directory: &Path) -> Result<Box<dyn Lock>, StorageError> {
    directory::create(fs, directory).context("create", directory)?;
    let lock = directory::lock(fs, directory)?;
    lock.ok_or_else(|| StorageError::Locked(directory.to_owned()))
}

/// Directories and lock files that a start creates, parents first: a refused start removes them.
fn missing_places(
    fs: &dyn FileSystem,
    options: &Options,
    schema: &Schema,
) -> Result<Vec<PathBuf>, StorageError> {
    let own = own_directories(fs, options)?.into_iter();
    let own = own.flat_map(|directory| [directory.to_owned(), directory.join(files::LOCK_FILE)]);
    let folders = options.data_directories.iter().flat_map(|directory| {
        let keyspaces = schema.keyspaces().into_iter();
        keyspaces.map(|keyspace| files::keyspace_folder(directory, &keyspace))
    });
    Ok(own.chain(folders).filter(|path| !fs.exists(path)).collect())
}

/// Creates the directories and keeps other servers out of them.
pub(in crate::storage) fn prepare_directories(
    fs: &dyn FileSystem,
    options: &Options,
    schema: &Schema,
) -> Result<Vec<Box<dyn Lock>>, StorageError> {
    let locks = own_directories(fs, options)?.into_iter().map(|directory| lock(fs, directory));
    let locks = locks.collect::<Result<Vec<_>, _>>()?;
    for keyspace in schema.keyspaces() {
        for folder in create_folders(fs, &options.data_directories, &keyspace)? {
            exchange::clear(fs, &folder);
        }
    }
    Ok(locks)
}

/// Creates the folders of a keyspace, durably.
pub(super) fn create_folders(
    fs: &dyn FileSystem,
    data_directories: &[PathBuf],
    keyspace: &str,
) -> Result<Vec<PathBuf>, FileError> {
    let create = |directory: &PathBuf| {
        let folder = files::keyspace_folder(directory, keyspace);
        directory::create(fs, &folder).context("create", &folder)?;
        fs.sync_dir(directory).context("sync", directory)?;
        Ok(folder)
    };
    data_directories.iter().map(create).collect()
}

/// Keeps other servers out of those directories in which one has run, and creates nothing.
pub(in crate::storage) fn lock_present_directories(
    fs: &dyn FileSystem,
    options: &Options,
) -> Result<Vec<Box<dyn Lock>>, StorageError> {
    let mut locks = Vec::new();
    for directory in own_directories(fs, options)? {
        if directory::has_served(fs, directory)? {
            locks.push(lock(fs, directory)?);
        }
    }
    Ok(locks)
}

/// The directories of a server, each once, unless they hold data of the original that cannot be
/// taken over.
fn own_directories<'a>(
    fs: &dyn FileSystem,
    options: &'a Options,
) -> Result<Vec<&'a Path>, StorageError> {
    let archive = options.commit_log_archive_directory.as_deref();
    let log = options.commit_log_directory.as_path();
    archive.map_or(Ok(()), |archive| takeover::check_archive(fs, archive))?;
    takeover::check(fs, &options.data_directories, log)?;
    let data = options.data_directories.iter().map(PathBuf::as_path);
    let mut directories: Vec<_> = data.chain([log]).collect();
    // The commit log may share a directory with data, and a second lock there would be refused. The
    // archive may not share one: segments that are removed here must stay there.
    directories.sort_unstable();
    directories.dedup();
    directories.extend(archive);
    Ok(directories)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::disk::SimFileSystem;
    use std::path::Path;

    #[test]
    fn the_commit_log_may_share_a_directory_with_data_but_not_with_another_server() {
        let fs = SimFileSystem::new(1);
        let options = Options {
            data_directories: vec!["/a".into(), "/b".into()],
            segment_bytes: 1 << 16,
            memtable_budget_bytes: 1 << 20,
            block_cache_bytes: 1 << 20,
            ..Options::new("/", "/a")
        };
        let schema = Schema::new([]);
        let locks = prepare_directories(&fs, &options, &schema).unwrap();
        assert_eq!(locks.len(), 2);
        let second = prepare_directories(&fs, &options, &schema);
        assert!(matches!(second, Err(StorageError::Locked(path)) if path == Path::new("/a")));
    }
}
