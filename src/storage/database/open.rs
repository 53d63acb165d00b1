//! The start: directories, locks, column families, and what the commit log holds.

use super::super::background::{FlushCause, Work, WorkQueue};
use super::super::caches::{BlockCache, ByteBudget};
use super::super::commitlog::archive::{ArchiveError, History};
use super::super::commitlog::{CommitLog, LogError, SyncPolicy};
use super::super::compaction::Compactor;
use super::super::directory::{self, DirectorySync};
use super::super::error::{FileContext, FileError, ReadError};
use super::super::family::{ColumnFamily, Environment, OpenError};
use super::super::files;
use super::super::foreign::{self, ForeignError};
use super::super::memtable::Memtable;
use super::super::options::{FamilyOptions, Options};
use super::super::system::log_guard::{LogGuard, LostLog};
use super::super::system::node_id::NodeId;
use super::caches::SavedCaches;
use super::compactions::CompactionQueue;
use super::exchange;
use super::flushes::is_shortage;
use super::health::Shortages;
use super::known_families;
use super::replay::{is_expected, open_log, replay};
use super::snapshots::Snapshots;
use super::unconfigured::{Records, find_unconfigured};
use super::{Components, Core, Database};
use crate::base::clock::Clock;
use crate::base::fs::{FileSystem, Lock};
use crate::base::lock::{Condvar, Mutex};
use crate::base::machine;
use crate::model::schema::{ColumnFamilySchema, FamilyId, Schema};
use crate::ring::Partitioner;
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Least and most threads that write memtables to disk: one for each data directory, as in 0.6, but
/// two for one, so that what one large family has to write does not hold up a small one.
const FLUSH_THREADS: (usize, usize) = (2, 4);

/// One that takes only short compactions, and one that takes any.
const MIN_COMPACTION_THREADS: usize = 2;

/// What panics again and again must not fill the log.
const PAUSE_AFTER_PANIC: Duration = Duration::from_secs(1);

/// Why the storage cannot be opened.
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
        /// Where the commit log holds the first of them.
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
    /// What a column family has had cannot be found.
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
        /// How many column families are missing.
        count: usize,
    },
    /// What the node keeps about itself cannot be found.
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
    /// The note of column families that have had data cannot be read.
    #[error("which column families have had data cannot be told: {0}")]
    Families(#[source] ReadError),
    /// A directory holds data of the original, which would seem to be lost.
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    /// A restore was begun and is not complete.
    #[error(
        "{path} says that a restore was not finished: repeat the command that is written there",
        path = .0.display()
    )]
    Restoring(PathBuf),
    /// The commit log cannot be opened.
    #[error("the commit log cannot be opened: {0}")]
    Log(#[from] LogError),
    /// What was replayed has to be flushed, and cannot be.
    #[error(
        "what the commit log holds has to be written to SSTables, about {bytes} bytes, and cannot \
         be: {source}"
    )]
    Flush {
        /// Memory that it takes.
        bytes: u64,
        /// What went wrong.
        source: ReadError,
    },
    /// There is no room for the commit log, and what it holds cannot be archived.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The operating system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[source] io::Error),
}

impl Database {
    /// Opens all column families and replays the commit log.
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
        let storage =
            Self::open_without_threads(components, options, partitioner, schema, family_options)?;
        // If one cannot be had, the drop of the storage ends the others.
        storage.start_threads(flush_threads, compaction_threads, &spawn)?;
        Ok(storage)
    }

    /// A storage in which nothing happens by itself yet.
    pub(super) fn open_without_threads(
        components: Components,
        options: Options,
        partitioner: Partitioner,
        schema: Arc<Schema>,
        family_options: impl Fn(FamilyId) -> FamilyOptions,
    ) -> Result<Self, StorageError> {
        let fs = Arc::clone(&components.fs);
        let missing = missing_places(&*fs, &options, &schema)?;
        let locks = prepare_directories(&*fs, &options, &schema)?;
        let opened = Self::open_prepared(components, options, partitioner, schema, family_options);
        match opened {
            Ok(storage) => {
                let _ = storage.locks.set(locks);
                Ok(storage)
            }
            Err(error) => {
                // Still locked: nobody else uses what is removed. What has content stays.
                for path in missing.iter().rev() {
                    let _ = fs.remove_file(path).or_else(|_| fs.remove_dir(path));
                }
                Err(error)
            }
        }
    }

    /// Opens everything in directories that are there and locked.
    fn open_prepared(
        components: Components,
        mut options: Options,
        partitioner: Partitioner,
        schema: Arc<Schema>,
        family_options: impl Fn(FamilyId) -> FamilyOptions,
    ) -> Result<Self, StorageError> {
        check_no_restore(&*components.fs, &options)?;
        let snapshots = Snapshots::open(&*components.fs, &options)?;
        let node = NodeId::find(&*components.fs, &options.data_directories, options.seed);
        let node = node.map_err(OpenError::from)?;
        let environment = new_environment(&components, &options, partitioner, node);
        let Components { fs, clock, .. } = components;
        let stores = open_stores(&environment, &options, &schema, family_options)?;
        let unconfigured = find_unconfigured(&*fs, &options.data_directories, &schema);
        let records = Records { schema: &schema, unconfigured };
        check_log(&*fs, &options)?;
        let without_files = known_families::without_files(&stores);
        let mut replayed = replay(&*fs, &options, &records, &environment, &stores)?;
        let accepts_loss = options.accept_data_loss;
        let noted = known_families::noted(&stores)?;
        if !accepts_loss {
            known_families::check_own(&stores, &noted, &replayed)?;
        }
        let lost = known_families::check(&stores, &noted, &without_files, accepts_loss)?;
        let history = open_archive(&*fs, &*clock, &mut options)?;
        let throughput = options.compaction.bytes_per_second;
        let compactor = Compactor::new(Arc::clone(&clock), throughput);
        let log = open_log(&fs, &clock, &options, &stores, &mut replayed)?;
        mark_log(&*fs, &options, &stores, &log)?;
        let has_replayed = !replayed.segments.is_empty();
        let replayed_into = stores.iter().map(filled_memtables).collect();
        let core = Arc::new(Core {
            schema,
            stores: stores.into_iter().collect(),
            environment,
            opened_at: clock.monotonic(),
            log,
            log_directory: options.commit_log_directory,
            data_directories: options.data_directories,
            segment_bytes: options.segment_bytes,
            waits_for_sync: matches!(options.sync, SyncPolicy::Batch { .. }),
            flushes: WorkQueue::default(),
            replayed_into,
            flushing: AtomicUsize::new(0),
            writing: AtomicUsize::new(0),
            compactions: CompactionQueue::default(),
            compactor,
            compaction_niceness: machine::thread_niceness() + options.compaction.niceness,
            caches: SavedCaches::new(options.caches.saved_directory),
            memtable_budget: options.memtable_budget_bytes,
            snapshots,
            memory_freed: (Mutex::new(()), Condvar::default()),
            shortages: Shortages::default(),
            stopping: AtomicBool::new(false),
            noted_families: Mutex::new(noted),
            locks: OnceLock::new(),
        });
        if has_replayed {
            core.request_all(FlushCause::Replay);
            core.flushes.push(Work::ReplayIsFlushed);
        }
        for store in core.families() {
            core.request_compaction(store);
        }
        core.forget_families(&lost);
        core.note_families();
        core.begin_history(history);
        Ok(Self { core, threads: Mutex::default(), closed: AtomicBool::new(false) })
    }

    /// Starts the threads, each by `spawn`.
    pub(super) fn start_threads(
        &self,
        flush_threads: usize,
        compaction_threads: usize,
        spawn: &Spawn<'_>,
    ) -> Result<(), StorageError> {
        let start = |name: &'static str, run: fn(&Core)| {
            let core = Arc::clone(&self.core);
            let body = move || {
                let rest = || core.compactions.rest(PAUSE_AFTER_PANIC);
                keep_going(name, || run(&core), rest);
            };
            let thread = spawn(name, Box::new(body)).map_err(StorageError::Thread)?;
            self.threads.lock().push(thread);
            Ok::<_, StorageError>(())
        };
        start("housekeeper", Core::keep_house)?;
        for _ in 0..flush_threads {
            start("flush", Core::run_flushes)?;
        }
        for number in 0..compaction_threads {
            let run = match number {
                0 => Core::run_short_compactions,
                _ => Core::run_all_compactions,
            };
            start("compaction", run)?;
        }
        start("block-memory", |core| core.environment.cache.buffers().fill())?;
        if self.caches.are_wanted() {
            start("caches", Core::run_caches)?;
        }
        Ok(())
    }
}

/// Memtables into which the replay may have put something.
fn filled_memtables(store: &Arc<ColumnFamily>) -> Vec<Weak<Memtable>> {
    let view = store.view();
    view.memtables().filter(|it| !it.is_empty()).map(Arc::downgrade).collect()
}

/// What the stores of a storage core share.
pub(in crate::storage) fn new_environment(
    components: &Components,
    options: &Options,
    partitioner: Partitioner,
    node: NodeId,
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
        node,
        directory_sync: DirectorySync::default(),
    })
}

/// What a restore has left half done must not be served: files may be missing that nobody misses.
fn check_no_restore(fs: &dyn FileSystem, options: &Options) -> Result<(), StorageError> {
    let marks = options.data_directories.iter().map(|it| it.join(files::RESTORING_FILE));
    for mark in marks {
        if fs.try_exists(&mark).context("look for", &mark)? {
            return Err(StorageError::Restoring(mark));
        }
    }
    Ok(())
}

/// What was acknowledged must not vanish with the directory that it is in.
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

/// Finds the folder of the archive for the present history, or begins a new one, and makes the
/// folder the archive of these options.
fn open_archive(
    fs: &dyn FileSystem,
    clock: &dyn Clock,
    options: &mut Options,
) -> Result<Option<History>, StorageError> {
    let data = &options.data_directories;
    let Some(archive) = &options.commit_log_archive_directory else {
        // What the log holds from now on is in no archive.
        History::end(fs, data).or_else(|error| ignore_shortage("the archive is left", error))?;
        return Ok(None);
    };
    let history = if let Some(history) = History::present(fs, data, archive)? {
        history
    } else {
        let history = History::begin(fs, archive, clock.coarse_millis())?;
        let noted = history.store(fs, data);
        noted.or_else(|error| ignore_shortage("the next start begins a new history", error))?;
        history
    };
    options.commit_log_archive_directory = Some(history.folder(archive));
    Ok(Some(history))
}

/// Reads are served on a full disk.
fn ignore_shortage(what: &str, error: FileError) -> Result<(), FileError> {
    if !is_shortage(&ReadError::Io(error.clone())) {
        return Err(error);
    }
    log::warn!("{what}: {error}");
    Ok(())
}

/// Says that from now on this log has to be there.
fn mark_log(
    fs: &dyn FileSystem,
    options: &Options,
    stores: &[Arc<ColumnFamily>],
    log: &CommitLog,
) -> Result<(), StorageError> {
    let (data, directory) = (&options.data_directories, &options.commit_log_directory);
    let mark = LogGuard::new(log.identity(), log.position().segment, directory);
    match mark.store(fs, data).map_err(ReadError::Io) {
        // Reads are served on a full disk. An older mark says less, and nothing that is wrong; but
        // without any the next start would refuse the log.
        Err(error) if is_shortage(&error) && is_expected(fs, options, stores)? => {
            log::warn!("should {} get lost, nobody will notice: {error}", directory.display());
            Ok(())
        }
        Err(ReadError::Io(error)) => Err(error.into()),
        _ => Ok(()),
    }
}

fn open_stores(
    environment: &Arc<Environment>,
    options: &Options,
    schema: &Schema,
    family_options: impl Fn(FamilyId) -> FamilyOptions,
) -> Result<Vec<Arc<ColumnFamily>>, OpenError> {
    let directories = &options.data_directories;
    let open = |(place, (id, family)): (usize, (FamilyId, &Arc<ColumnFamilySchema>))| {
        assert_eq!(
            id.0 as usize, place,
            "a start has a schema of its own, without dropped families"
        );
        let folders = directories.iter().map(|d| files::keyspace_folder(d, &family.keyspace));
        let store =
            ColumnFamily::open(environment, id, family, family_options(id), folders.collect())?;
        Ok(Arc::new(store))
    };
    schema.families().enumerate().map(open).collect()
}

/// Starts a thread of this name.
pub(super) type Spawn<'a> =
    dyn Fn(&str, Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> + 'a;

fn spawn(name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Runs the loop of a thread until it returns. When a bug makes it panic that is told at once, and
/// the loop begins anew: whatever it was at, the others of the node need what it does. `rest` waits
/// a while, and says whether there is still something to do.
pub(super) fn keep_going(name: &str, run: impl Fn(), rest: impl Fn() -> bool) {
    while catch_unwind(AssertUnwindSafe(&run)).is_err() {
        log::error!("the thread {name} panicked, and begins anew: please report the lines above");
        if !rest() {
            return;
        }
    }
}

/// Creates a directory and keeps other servers out of it.
fn lock(fs: &dyn FileSystem, directory: &Path) -> Result<Box<dyn Lock>, StorageError> {
    directory::create(fs, directory).context("create", directory)?;
    let path = directory.join(files::LOCK_FILE);
    fs.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StorageError::Locked(directory.to_owned()),
        _ => FileError::new("lock", &path, error).into(),
    })
}

/// Directories and lock files that a start makes, parents first: a refused one removes them.
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

/// Creates the directories and keeps other servers out of them. Those that hold data of the
/// original stay as they are, and so do the others then.
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
    let directories = own_directories(fs, options)?.into_iter();
    let locks = directories.map(|directory| lock_present(fs, directory));
    locks.filter_map(Result::transpose).collect()
}

/// Keeps other servers out of a directory if one has run there.
fn lock_present(
    fs: &dyn FileSystem,
    directory: &Path,
) -> Result<Option<Box<dyn Lock>>, StorageError> {
    let path = directory.join(files::LOCK_FILE);
    let has_run = fs.try_exists(&path).context("look for", &path)?;
    has_run.then(|| lock(fs, directory)).transpose()
}

/// The directories of a server, each once, unless they hold data of the original.
fn own_directories<'a>(
    fs: &dyn FileSystem,
    options: &'a Options,
) -> Result<Vec<&'a Path>, StorageError> {
    let archive = options.commit_log_archive_directory.as_deref();
    let log = options.commit_log_directory.as_path();
    archive.map_or(Ok(()), |archive| foreign::check_archive(fs, archive))?;
    foreign::check(fs, &options.data_directories, log)?;
    let data = options.data_directories.iter().map(PathBuf::as_path);
    let mut directories: Vec<_> = data.chain([log]).collect();
    // The commit log may share a directory with data, and a second lock there would be refused. The
    // archive may not share one: what is removed from there would be gone from here.
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
