//! One column family on this node: its memtables, its SSTables, and what is done with them.
//!
//! Readers take the [`View`] and are not disturbed by anything that follows: a flush or compaction
//! publishes a new view. Whatever changes the set of SSTables does so under the lock of the
//! manifest: first on disk, then in the view.
//!
//! Locks: flushing before the manifest, the manifest before the merges, the replaced SSTables and
//! the view, the claims of compactions before the view.

mod caches;
mod claims;
mod flush;
mod histogram;
mod merges;
mod open;
mod operations;
mod outputs;
mod pieces;
mod read;
mod room;
mod statistics;

pub use claims::{Choosable, Claim};
pub use flush::{FLUSH_TARGET, discard};
pub use histogram::{BUCKET_OFFSETS, Histogram};
pub use merges::{Merge, MergeNotes, TablesNow};
pub use open::OpenError;
pub(in crate::storage) use open::{Found, check_node, find};
pub use operations::{Begun, Operation, Operations, Totals};
pub use outputs::{OutputShape, Outputs};
pub use pieces::Piece;
pub use statistics::{FamilyStatistics, RowSizes};

use super::background::FlushCause;
use super::caches::{BlockCache, ByteBudget, FamilyCaches};
use super::commitlog::Position;
use super::compaction::{AtomicThresholds, Pressure, Thresholds};
use super::directory::DirectorySync;
use super::error::{FileError, ReadError};
use super::files;
use super::manifest::Manifest;
use super::memtable::Memtable;
use super::options::FamilyOptions;
use super::snapshot::Captured;
use super::sstable::{SsTable, WriterOptions};
use super::system::node_id::NodeId;
use crate::base::clock::Clock;
use crate::base::events::Events;
use crate::base::fs::FileSystem;
use crate::base::lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, rank};
use crate::model::mutation::FamilyMutation;
use crate::model::schema::{ColumnFamilySchema, FamilyId};
use crate::ring::{DecoratedKey, Partitioner};
use caches::CacheSizes;
use claims::Claims;
use merges::Merges;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What all stores of a node share.
#[derive(Debug)]
pub struct Environment {
    /// The file system.
    pub fs: Arc<dyn FileSystem>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where events go.
    pub events: Events,
    /// The blocks of all SSTables.
    pub cache: Arc<BlockCache>,
    /// The bytes of all key caches.
    pub key_cache_budget: Arc<ByteBudget>,
    /// The bytes of all row caches.
    pub row_cache_budget: Arc<ByteBudget>,
    /// Whether key caches are told where a compaction has put the rows that they knew.
    pub preheats_keys: bool,
    /// Decides on the order of rows.
    pub partitioner: Partitioner,
    /// Memory of all memtables, those being flushed included, in bytes.
    pub memtable_memory: AtomicU64,
    /// Number of the node, which its manifests carry.
    pub node: NodeId,
    /// Makes new files durable by name.
    pub directory_sync: DirectorySync,
}

/// Everything that a reader of a column family has to look at, at one moment. Each write is in
/// one of the three parts; while rows are cached, for a moment in a memtable and in the SSTable to
/// which it was written.
#[derive(Debug, Clone)]
pub struct View {
    /// Takes the writes.
    pub active: Arc<Memtable>,
    /// Full memtables on their way to disk, the oldest first.
    pub flushing: Vec<Arc<Memtable>>,
    /// The SSTables that count, by generation.
    pub tables: Vec<Arc<SsTable>>,
    /// What is kept of the SSTables in memory.
    pub caches: FamilyCaches,
    /// Greater whenever the SSTables hold something that they did not hold before, or deletions or
    /// rows were dropped: what was read from them before must not go into the row cache any more.
    pub epoch: u64,
}

impl View {
    /// All memtables.
    pub fn memtables(&self) -> impl Iterator<Item = &Arc<Memtable>> {
        self.flushing.iter().chain([&self.active])
    }

    /// Memory of all memtables, in bytes.
    pub fn memory(&self) -> u64 {
        self.memtables().map(|memtable| memtable.memory()).sum()
    }
}

/// One column family.
#[derive(Debug)]
pub struct ColumnFamily {
    id: FamilyId,
    schema: Arc<ColumnFamilySchema>,
    options: FamilyOptions,
    environment: Arc<Environment>,
    /// The folder of the keyspace in each data directory.
    folders: Vec<PathBuf>,
    manifest: Mutex<rank::Files, Manifest>,
    view: RwLock<rank::View, Arc<View>>,
    next_generation: AtomicU64,
    flushing: Mutex<rank::Flush, ()>,
    /// Shared by writers, exclusive for a switch of the memtable: a position of the log then tells
    /// what the old memtable holds.
    gate: RwLock<rank::Gate, ()>,
    claims: Claims,
    thresholds: AtomicThresholds,
    /// How far compaction is behind.
    pressure: Pressure,
    /// SSTables that were replaced. Whoever lets go of one last removes its file, which takes
    /// time; a reader never is the last, since they stay here until nobody else has them.
    replaced: Mutex<rank::State, Vec<Arc<SsTable>>>,
    merges: Mutex<rank::State, Merges>,
    cache_sizes: Mutex<rank::Files, CacheSizes>,
    /// Set once, when something went wrong after which writing on could lose data.
    failure: OnceLock<String>,
    /// Set while the family is being dropped, and after that.
    refuses_writes: AtomicBool,
    is_dropped: AtomicBool,
    operations: Operations,
    memtable_switches: AtomicU64,
}

impl ColumnFamily {
    /// Number of the column family.
    pub fn id(&self) -> FamilyId {
        self.id
    }

    /// The column family.
    pub fn schema(&self) -> &Arc<ColumnFamilySchema> {
        &self.schema
    }

    /// Its settings.
    pub fn options(&self) -> &FamilyOptions {
        &self.options
    }

    /// What it shares with the others.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Where reads and writes are counted.
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Everything that there is to read, at this moment.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    fn publish(&self, change: impl FnOnce(&mut View)) {
        let mut slot = self.view.write();
        let mut view = View::clone(&slot);
        change(&mut view);
        *slot = Arc::new(view);
    }

    /// Writes to the active memtable. The caller holds the gate that keeps it active.
    pub fn apply(&self, key: &DecoratedKey, mutation: &FamilyMutation) {
        let view = self.view.read();
        let memory = view.active.apply(key, mutation);
        self.environment.memtable_memory.fetch_add(memory, Ordering::Relaxed);
    }

    /// Puts a fresh memtable in place of the active one, which is returned and stays readable until
    /// it is flushed; `None` if nothing was written to it. The caller holds the gate exclusively
    /// and says how far the commit log is written.
    pub fn switch_memtable(&self) -> Option<Arc<Memtable>> {
        let full = Arc::clone(&self.view().active);
        if full.is_empty() {
            return None;
        }
        let now = self.environment.clock.monotonic();
        let fresh = Arc::new(Memtable::new(Arc::clone(&self.schema), now));
        self.publish(|view| {
            view.active = fresh;
            view.flushing.push(Arc::clone(&full));
        });
        self.memtable_switches.fetch_add(1, Ordering::Relaxed);
        Some(full)
    }

    /// Held during a write, from its record in the log to the memtable. A switch of the memtable
    /// waits for the writers that are under way, and one of these may wait for the disk: `None` if
    /// the caller must not wait for that.
    pub fn enter(&self, may_block: bool) -> Option<RwLockReadGuard<'_, ()>> {
        if may_block { Some(self.gate.read()) } else { self.gate.try_read() }
    }

    /// Keeps writers out.
    pub fn close_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write()
    }

    /// Held during a flush: memtables are written in the order in which they became full.
    pub fn flush_lock(&self) -> MutexGuard<'_, ()> {
        self.flushing.lock()
    }

    /// How many SSTables of similar size are merged, and at most so many at once.
    pub fn compaction_thresholds(&self) -> Thresholds {
        self.thresholds.get()
    }

    /// Changes the thresholds until the next start.
    pub fn set_compaction_thresholds(&self, thresholds: Thresholds) {
        self.thresholds.set(thresholds);
    }

    /// Deletions made at or before this second may be dropped, where that is safe.
    pub fn gc_before(&self) -> i32 {
        let grace = i32::try_from(self.schema.gc_grace.as_secs()).unwrap_or(i32::MAX);
        self.environment.clock.now_secs().saturating_sub(grace)
    }

    /// How far compaction is behind.
    pub fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Everything that the commit log holds of the family up to here is in SSTables.
    pub fn flushed_position(&self) -> Position {
        self.manifest.lock().flushed
    }

    /// Whether a manifest has been stored, of format version 2 or later.
    pub fn has_manifest(&self) -> bool {
        self.manifest.lock().sequence > 0
    }

    /// Whether a node has written the manifest, and not a restore or an operator.
    pub fn is_of_node(&self) -> bool {
        self.manifest.lock().node.is_some()
    }

    /// The SSTables that count, on disk and for readers, at one moment.
    pub fn capture(&self) -> Captured {
        // Whoever changes either holds this lock until both have changed.
        let manifest = self.manifest.lock();
        Captured {
            family: self.schema.name.clone(),
            manifest_folder: self.folders[0].clone(),
            manifest: manifest.clone(),
            tables: self.view().tables.clone(),
        }
    }

    /// Why the active memtable should be flushed, if it should.
    pub fn full_cause(&self) -> Option<FlushCause> {
        let view = self.view.read();
        if view.active.weight() >= self.options.memtable_bytes {
            Some(FlushCause::Throughput)
        } else if view.active.operations() >= self.options.memtable_operations {
            Some(FlushCause::Operations)
        } else {
            None
        }
    }

    /// A number for a new SSTable.
    pub fn next_generation(&self) -> u64 {
        self.next_generation.fetch_add(1, Ordering::Relaxed)
    }

    /// How its SSTables are written.
    pub fn writer_options(&self) -> WriterOptions {
        WriterOptions {
            block_bytes: self.options.block_bytes,
            index_interval: self.options.index_interval,
            compression: self.options.compression,
            partitioner: self.environment.partitioner,
        }
    }

    fn manifest_path(&self) -> PathBuf {
        files::manifest(&self.folders[0], &self.schema.name)
    }

    /// Makes new SSTables count in place of old ones, on disk and for readers, in one step. The
    /// new ones are complete under their temporary names, and are removed if they cannot count.
    /// Also forgets memtables whose data are in the new ones.
    ///
    /// The manifest decides: before it is replaced everything is tried that can fail, after that
    /// nothing may fail any more, or disk and readers would disagree on what counts.
    pub fn replace(
        &self,
        old: &[Arc<SsTable>],
        new: &[NewTable],
        flushed: Option<&Arc<Memtable>>,
    ) -> Result<(), ReadError> {
        self.exchange(old, new, flushed.map_or(Cause::Merged(None), Cause::Flushed))
    }

    /// [`ColumnFamily::replace`] where the new SSTables hold the rows of the old ones without
    /// deletions whose time was over, with what was noted of the rows.
    pub fn replace_merged(
        &self,
        old: &[Arc<SsTable>],
        new: &[NewTable],
        notes: &MergeNotes,
    ) -> Result<(), ReadError> {
        self.exchange(old, new, Cause::Merged(Some(notes)))
    }

    /// [`ColumnFamily::replace`] where not all rows of the old SSTables are in the new ones.
    pub fn replace_dropping(
        &self,
        old: &[Arc<SsTable>],
        new: &[NewTable],
    ) -> Result<(), ReadError> {
        self.exchange(old, new, Cause::RowsDropped)
    }

    /// Drops these SSTables and all memtables but the active one. What the commit log holds up to
    /// here does not come back. The caller holds the lock of a flush.
    pub fn drop_all(&self, old: &[Arc<SsTable>], log_end: Position) -> Result<(), ReadError> {
        let memory = self.view().flushing.iter().map(|memtable| memtable.memory()).sum();
        self.exchange(old, &[], Cause::AllDropped(log_end))?;
        self.environment.memtable_memory.fetch_sub(memory, Ordering::Relaxed);
        Ok(())
    }

    fn exchange(
        &self,
        old: &[Arc<SsTable>],
        new: &[NewTable],
        cause: Cause<'_>,
    ) -> Result<(), ReadError> {
        let fs = &*self.environment.fs;
        let mut manifest = self.manifest.lock();
        let mut next = self.next_version(&manifest);
        let prepared = self.open_new(new).and_then(|opened| {
            self.forget_removed(&mut next)?;
            Ok(opened)
        });
        if prepared.is_err() {
            self.discard_new(new);
        }
        let mut opened = prepared?;
        for table in old {
            next.sstables.remove(&table.generation());
            next.obsolete.insert(table.generation());
        }
        for table in &opened {
            next.sstables.insert(table.generation(), table.identity());
        }
        next.flushed = match cause {
            Cause::Merged(_) | Cause::RowsDropped => next.flushed,
            Cause::Flushed(memtable) => next.flushed.max(memtable.log_end()),
            Cause::AllDropped(log_end) => next.flushed.max(log_end),
        };
        let stored = next.store(fs, &self.manifest_path());
        if let Err(error) = stored.and_then(|()| self.sync_folder(&self.folders[0])) {
            self.discard_uncounted(&manifest, new);
            return Err(error.into());
        }
        *manifest = next;
        for table in &mut opened {
            if let Err(error) = table.take_final_name() {
                // The next start tries again. Until then it is read under the name that it has.
                log::warn!("{error}");
            }
        }
        let change = Self::rows_change(old, &opened, cause);
        self.publish(|view| {
            view.tables.retain(|t| !old.iter().any(|o| o.generation() == t.generation()));
            view.tables.extend(opened.into_iter().map(Arc::new));
            view.tables.sort_by_key(|table| table.generation());
            if matches!(cause, Cause::AllDropped(_)) {
                view.flushing.clear();
            }
            view.note_change(change);
        });
        if let Cause::Merged(Some(notes)) = cause {
            self.note_merge(old, new, notes);
        }
        for table in old {
            table.mark_obsolete();
        }
        let mut replaced = self.replaced.lock();
        replaced.extend(old.iter().cloned());
        drop((replaced, manifest));
        self.settle_rows(change);
        self.resize_caches();
        self.preheat_keys(old);
        Ok(())
    }

    /// Notes, durably, that everything that the commit log holds up to here is in SSTables, or is
    /// not to be.
    pub fn advance_flushed(&self, position: Position) -> Result<(), FileError> {
        let mut manifest = self.manifest.lock();
        let mut next = self.next_version(&manifest);
        next.flushed = next.flushed.max(position);
        next.store(&*self.environment.fs, &self.manifest_path())?;
        self.sync_folder(&self.folders[0])?;
        *manifest = next;
        Ok(())
    }

    /// The next version of the manifest, which this node writes.
    fn next_version(&self, manifest: &Manifest) -> Manifest {
        Manifest { node: Some(self.environment.node.number), ..manifest.successor() }
    }

    /// Removes the files of SSTables that were replaced and are not read any more. Returns how many
    /// are read still.
    pub fn remove_replaced(&self) -> usize {
        let mut replaced = self.replaced.lock();
        // No view holds them: once nobody else does, nobody will.
        let unused: Vec<_> =
            replaced.extract_if(.., |table| Arc::strong_count(table) == 1).collect();
        let left = replaced.len();
        drop(replaced);
        if let Some(keys) = &self.view().caches.keys
            && !unused.is_empty()
        {
            let tables: Vec<u64> = unused.iter().map(|table| table.cache_id()).collect();
            keys.forget_tables(&tables);
        }
        drop(unused);
        left
    }

    /// Makes the names of new files in a folder durable.
    fn sync_folder(&self, folder: &Path) -> Result<(), FileError> {
        self.environment.directory_sync.sync(&*self.environment.fs, folder)
    }

    fn temporary_path(&self, table: &NewTable) -> PathBuf {
        files::temporary(&files::sstable(&table.folder, &self.schema.name, table.generation))
    }

    /// Takes those generations from the obsolete ones whose files are gone for good. The folder of
    /// the manifest itself is synced with it, later than its older names.
    fn forget_removed(&self, manifest: &mut Manifest) -> Result<(), FileError> {
        let fs = &*self.environment.fs;
        let count = manifest.obsolete.len();
        manifest.obsolete.retain(|generation| {
            let path = |folder: &PathBuf| files::sstable(folder, &self.schema.name, *generation);
            self.folders.iter().any(|folder| fs.exists(&path(folder)))
        });
        if manifest.obsolete.len() < count {
            // Else a power loss could bring them back when no manifest knows them any more.
            self.folders.iter().skip(1).try_for_each(|folder| self.sync_folder(folder))?;
        }
        Ok(())
    }

    /// Removes new SSTables whose manifest could not be stored, so that attempts do not pile up on
    /// a full disk. Only if the old manifest stands is it certain that they do not count.
    fn discard_uncounted(&self, old: &Manifest, new: &[NewTable]) {
        let fs = &*self.environment.fs;
        let present = Manifest::load(fs, &self.manifest_path());
        let present =
            present.map(|it| it.unwrap_or_else(|| Manifest::new(&self.schema.to_string())));
        if present.is_ok_and(|present| present == *old) {
            self.discard_new(new);
        }
    }

    fn discard_new(&self, new: &[NewTable]) {
        for table in new {
            discard(&*self.environment.fs, &self.temporary_path(table));
        }
    }

    /// Makes the names of new SSTables durable, and opens them.
    fn open_new(&self, new: &[NewTable]) -> Result<Vec<SsTable>, ReadError> {
        let open = |table: &NewTable| {
            self.sync_folder(&table.folder)?;
            self.open_table(&self.temporary_path(table), table.generation)
        };
        new.iter().map(open).collect()
    }

    fn open_table(&self, path: &Path, generation: u64) -> Result<SsTable, ReadError> {
        let Environment { fs, partitioner, cache, .. } = &*self.environment;
        SsTable::open(fs, path, generation, *partitioner, cache)
    }

    /// Stops all writing to this column family until the next start. Reading goes on.
    pub fn fail(&self, reason: String) {
        if self.failure.set(reason).is_ok() {
            let reason = self.failure.get().map_or("", String::as_str);
            log::error!("{} takes no more writes: {reason}", self.schema);
        }
    }

    /// Whether the family was dropped: it is empty, and takes no writes.
    pub fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Acquire)
    }

    /// Whether the family takes no writes because it was dropped, or is about to be.
    pub fn refuses_writes(&self) -> bool {
        self.refuses_writes.load(Ordering::Acquire)
    }

    /// Keeps writes out, or lets them in again.
    pub fn refuse_writes(&self, refuses: bool) {
        self.refuses_writes.store(refuses, Ordering::Release);
    }

    /// Takes the family, which is empty, from the list of those that exist.
    pub fn mark_dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Why writes are refused, if they are.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }
}

/// Why SSTables are exchanged for others.
#[derive(Debug, Clone, Copy)]
enum Cause<'a> {
    /// The rows are the same, with what was noted of them; or rows are added.
    Merged(Option<&'a MergeNotes>),
    /// This memtable was written.
    Flushed(&'a Arc<Memtable>),
    /// Some rows are dropped.
    RowsDropped,
    /// All is dropped, also what the commit log holds up to here.
    AllDropped(Position),
}

/// An SSTable that was written under its temporary name, and does not count yet.
#[derive(Debug, Clone)]
pub struct NewTable {
    /// Its number.
    pub generation: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// Where it is.
    pub folder: PathBuf,
}
