//! Snapshots of a running node: everything up to one moment of the commit log.

use super::super::background::FlushCause;
use super::super::commitlog::archive::History;
use super::super::error::{FileError, ReadError};
use super::super::family::ColumnFamily;
use super::super::memtable::Memtable;
use super::super::options::Options;
use super::super::snapshot::{self, Captured, Snapshot, SnapshotError, SnapshotName, Tag};
use super::Core;
use crate::base::fs::FileSystem;
use crate::base::lock::{Mutex, MutexGuard, rank};
use log::Level;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a snapshot that was taken before a compaction is called, before the column family, as in
/// 0.6.
const TARGET: &str = "alexandra::snapshot";

const BEFORE_COMPACTION: &str = "compact-";

/// Where snapshots are, and when they are taken without being asked for.
#[derive(Debug)]
pub(super) struct Snapshots {
    data_directories: Vec<PathBuf>,
    before_compaction: bool,
    /// Held by an operator's call: snapshots are taken and cleared, and column families added and
    /// dropped, one after the other.
    one_at_a_time: Mutex<rank::Job, ()>,
    /// Time of the newest one, in milliseconds: no two have the same.
    newest: AtomicU64,
}

impl Snapshots {
    /// Looks after the snapshots in the data directories, and removes what a crash has left.
    pub(super) fn open(fs: &dyn FileSystem, options: &Options) -> Result<Self, FileError> {
        let data_directories = options.data_directories.clone();
        let newest = snapshot::tidy(fs, &data_directories)?;
        Ok(Self {
            data_directories,
            before_compaction: options.snapshot_before_compaction,
            one_at_a_time: Mutex::default(),
            newest: AtomicU64::new(newest),
        })
    }
}

impl Snapshots {
    /// Waits for the calls of other operators.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.one_at_a_time.lock()
    }
}

impl Core {
    /// All snapshots, by keyspace and time.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, FileError> {
        snapshot::list(&*self.environment.fs, &self.snapshots.data_directories, None)
    }

    /// Removes the snapshots of one keyspace or of all; only those of this name or tag, if one is
    /// given. Returns which they were.
    pub fn clear_snapshots(
        &self,
        keyspace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Vec<Snapshot>, FileError> {
        let _one_at_a_time = self.snapshots.lock();
        let directories = &self.snapshots.data_directories;
        let cleared = snapshot::clear(&*self.environment.fs, directories, keyspace, name)?;
        for Snapshot { keyspace, name, .. } in &cleared {
            let line = format_args!("Cleared snapshot {name} of {keyspace}");
            self.environment.events.tell(Level::Info, TARGET, line);
        }
        Ok(cleared)
    }

    /// Takes a snapshot of one keyspace or of all, durable when this returns: everything that was
    /// written before, and nothing that is written after one moment, the same for all column
    /// families. Its name is that moment, with the tag if there is one.
    pub fn snapshot(
        &self,
        keyspace: Option<&str>,
        tag: Option<&str>,
    ) -> Result<Vec<Snapshot>, SnapshotError> {
        let tag = tag.map(Tag::new).transpose()?;
        if let Some(unknown) = keyspace.filter(|name| !self.schema.has_keyspace(name)) {
            return Err(SnapshotError::UnknownKeyspace(unknown.to_owned()));
        }
        let _one_at_a_time = self.snapshots.lock();
        let is_meant =
            |store: &&Arc<ColumnFamily>| keyspace.is_none_or(|k| store.schema().keyspace == k);
        let stores: Vec<_> = self.families().filter(is_meant).collect();
        let (millis, captured) = self.flush_and_capture(&stores)?;
        let name = SnapshotName { millis, tag };
        let made = self.make_all(&name, &captured);
        if made.is_err() {
            // Those of the keyspaces before the one that failed.
            let (fs, directories) = (&*self.environment.fs, &self.snapshots.data_directories);
            if let Err(error) = snapshot::clear(fs, directories, keyspace, Some(&name.to_string()))
            {
                log::warn!("the unfinished snapshot {name} is left: {error}");
            }
        }
        made?;
        let mut taken = snapshot::find(
            &*self.environment.fs,
            &self.snapshots.data_directories,
            keyspace,
            Some(&name.to_string()),
        )?;
        taken.retain(|snapshot| captured.contains_key(&snapshot.keyspace));
        Ok(taken)
    }

    /// A snapshot of the keyspace of a store that is about to be compacted, if the operator wants
    /// that. Nothing is flushed: a compaction does not touch memtables, and the thread holds a lock
    /// that comes after those of flushes.
    pub(super) fn snapshot_before_compaction(&self, store: &ColumnFamily) -> Result<(), ReadError> {
        if !self.snapshots.before_compaction {
            return Ok(());
        }
        let (keyspace, family) = (&store.schema().keyspace, &store.schema().name);
        // A name from a configuration may be longer than a tag.
        let tag = Tag::new(&format!("{BEFORE_COMPACTION}{family}")).ok();
        let of_keyspace = self.families().filter(|other| other.schema().keyspace == *keyspace);
        let captured = of_keyspace.map(|store| store.capture()).collect();
        let name = SnapshotName { millis: self.snapshot_millis(), tag };
        Ok(self.make_all(&name, &BTreeMap::from([(keyspace.clone(), captured)]))?)
    }

    /// Takes the snapshot with which a history of the archive begins, unless it has one. After a
    /// failure the next start tries again.
    pub(super) fn begin_history(&self, history: Option<History>) {
        let Some(history) = history.filter(|history| !history.has_snapshot) else { return };
        if let Err(error) = self.snapshot(None, Some(&history.tag())) {
            log::error!("the archive of the commit log lacks the snapshot it begins with: {error}");
            return;
        }
        if let Err(error) =
            history.with_snapshot().store(&*self.environment.fs, &self.data_directories)
        {
            log::warn!("the next start takes another snapshot: {error}");
        }
    }

    /// Writes everything to SSTables that was written to these stores up to one moment, and tells
    /// that moment and the SSTables.
    fn flush_and_capture(
        &self,
        stores: &[&Arc<ColumnFamily>],
    ) -> Result<(u64, BTreeMap<String, Vec<Captured>>), SnapshotError> {
        // Held until the SSTables are known: what is flushed later belongs to a later moment.
        let locks: Vec<_> = stores.iter().map(|store| store.flush_lock()).collect();
        for store in stores {
            for memtable in store.view().flushing.clone() {
                self.flush_for_snapshot(store, &memtable)?;
            }
        }
        let gates: Vec<_> = stores.iter().map(|store| store.close_gate()).collect();
        let position = self.log.position();
        let millis = self.snapshot_millis();
        let switch =
            |store: &&Arc<ColumnFamily>| Some((Arc::clone(store), store.switch_memtable()?));
        let switched: Vec<_> = stores.iter().filter_map(switch).collect();
        drop(gates);
        let log_end = self.sync_log_for(&format_args!("snapshot {millis}"), position);
        let mut flushed = Ok(());
        for (store, memtable) in switched {
            self.tell_switched(&store, &memtable, position, FlushCause::Request);
            memtable.seal(log_end);
            // One that fails leaves the others to be written all the same: nobody else would.
            let written = self.flush_for_snapshot(&store, &memtable);
            if written.is_ok() {
                self.after_flush(&store, position);
            }
            flushed = flushed.and(written);
        }
        flushed?;
        let mut captured: BTreeMap<String, Vec<Captured>> = BTreeMap::new();
        for store in stores {
            let mut family = store.capture();
            // Also of a family that nobody has written to for long: nothing of it is missing.
            family.manifest.flushed = family.manifest.flushed.max(log_end);
            captured.entry(store.schema().keyspace.clone()).or_default().push(family);
        }
        drop(locks);
        Ok((millis, captured))
    }

    fn make_all(
        &self,
        name: &SnapshotName,
        captured: &BTreeMap<String, Vec<Captured>>,
    ) -> Result<(), FileError> {
        for (keyspace, families) in captured {
            snapshot::make(&self.environment, name, families)?;
            let tables: usize = families.iter().map(|family| family.tables.len()).sum();
            let line = format_args!("Snapshot {name} of {keyspace} holds {tables} SSTables");
            self.environment.events.tell(Level::Info, TARGET, line);
        }
        Ok(())
    }

    /// Writes a memtable. What fails is tried again later, or stops writing to the family.
    fn flush_for_snapshot(
        &self,
        store: &ColumnFamily,
        memtable: &Arc<Memtable>,
    ) -> Result<(), ReadError> {
        let written = store.flush(memtable);
        written.inspect_err(|error| self.note_failed_flush(store, FlushCause::Request, error))
    }

    /// The time, but later than that of every snapshot before.
    fn snapshot_millis(&self) -> u64 {
        let now = u64::try_from(self.environment.clock.now_micros() / 1000).unwrap_or(0);
        let later = |newest: u64| Some(now.max(newest + 1));
        let newest = &self.snapshots.newest;
        let before = newest.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        now.max(before.unwrap_or_else(|newest| newest) + 1)
    }
}
