//! Snapshots of a running node: everything up to one moment of the commit log.

use super::super::archive::History;
use super::super::error::{FileError, ReadError};
use super::super::family::ColumnFamily;
use super::super::flush_queue::FlushCause;
use super::super::memtable::Memtable;
use super::super::snapshot::{self, Captured, Snapshot, SnapshotError, SnapshotName, Tag};
use super::Core;
use log::Level;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Name of a snapshot that was taken before a compaction, before the column family, as in
/// 0.6.
const TARGET: &str = "alexandra::snapshot";

const BEFORE_COMPACTION: &str = "compact-";

impl Core {
    /// All snapshots, by keyspace and time.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>, FileError> {
        snapshot::list(&*self.environment.fs, &self.options.data_directories, None)
    }

    /// Removes the snapshots of one keyspace or of all; only those of this name or tag, if one is
    /// given. Returns which they were.
    pub fn clear_snapshots(
        &self,
        keyspace: Option<&str>,
        name: Option<&str>,
    ) -> Result<Vec<Snapshot>, FileError> {
        let _one_at_a_time = self.administration.lock();
        let directories = &self.options.data_directories;
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
        let _one_at_a_time = self.administration.lock();
        let is_meant =
            |family: &&Arc<ColumnFamily>| keyspace.is_none_or(|k| family.schema().keyspace == k);
        let families: Vec<_> = self.families().filter(is_meant).collect();
        let (millis, captured) = self.flush_and_capture(&families)?;
        let name = SnapshotName { millis, tag };
        let made = self.make_all(&name, &captured);
        if made.is_err() {
            // Those of the keyspaces before the one that failed.
            let (fs, directories) = (&*self.environment.fs, &self.options.data_directories);
            if let Err(error) = snapshot::clear(fs, directories, keyspace, Some(&name.to_string()))
            {
                log::warn!("the unfinished snapshot {name} is left: {error}");
            }
        }
        made?;
        let mut taken = snapshot::find(
            &*self.environment.fs,
            &self.options.data_directories,
            keyspace,
            Some(&name.to_string()),
        )?;
        taken.retain(|snapshot| captured.contains_key(&snapshot.keyspace));
        Ok(taken)
    }

    /// A snapshot of the keyspace of a family that is about to be compacted, if the operator wants
    /// that. Nothing is flushed: a compaction does not touch memtables, and the thread holds a lock
    /// that comes after those of flushes.
    pub(super) fn snapshot_before_compaction(
        &self,
        family: &ColumnFamily,
    ) -> Result<(), ReadError> {
        if !self.options.snapshot_before_compaction {
            return Ok(());
        }
        let (keyspace, name) = (&family.schema().keyspace, &family.schema().name);
        // A name from a configuration may be longer than a tag.
        let tag = Tag::new(&format!("{BEFORE_COMPACTION}{name}")).ok();
        let of_keyspace = self.families().filter(|other| other.schema().keyspace == *keyspace);
        let captured = of_keyspace.map(|family| family.capture()).collect();
        let name = SnapshotName { millis: self.snapshot_millis(), tag };
        Ok(self.make_all(&name, &BTreeMap::from([(keyspace.clone(), captured)]))?)
    }

    /// Takes the snapshot with which a history of the archive begins, unless it has one. After a
    /// failure the next start tries again.
    pub(super) fn begin_history(&self, history: Option<History>) {
        let Some(mut history) = history.filter(|history| !history.has_snapshot) else { return };
        let tag = history.tag();
        let earlier = self.snapshots().map_err(SnapshotError::from);
        let taken = earlier.and_then(|earlier| Ok((earlier, self.snapshot(None, Some(&tag))?)));
        match taken {
            // A crash may have come between a snapshot and its note. Two of one tag are ambiguous.
            Ok((earlier, _)) => self.clear_tagged(&earlier, &tag),
            Err(error) => {
                log::error!(
                    "the archive of the commit log lacks the snapshot it begins with: {error}"
                );
                return;
            }
        }
        history.has_snapshot = true;
        if let Err(error) = history.store(&*self.environment.fs, &self.options.data_directories) {
            log::warn!("the next start takes another snapshot: {error}");
        }
    }

    /// Removes those of the snapshots that have this tag.
    fn clear_tagged(&self, snapshots: &[Snapshot], tag: &str) {
        for Snapshot { keyspace, name, .. } in snapshots {
            if name.is_meant_by(tag)
                && let Err(error) = self.clear_snapshots(Some(keyspace), Some(&name.to_string()))
            {
                log::warn!("snapshot {name} of {keyspace} cannot be cleared: {error}");
            }
        }
    }

    /// Writes everything to SSTables that was written to these families up to one moment, and tells
    /// that moment and the SSTables.
    fn flush_and_capture(
        &self,
        families: &[&Arc<ColumnFamily>],
    ) -> Result<(u64, BTreeMap<String, Vec<Captured>>), SnapshotError> {
        // Held until the SSTables are known: what is flushed later belongs to a later moment.
        let locks: Vec<_> = families.iter().map(|family| family.flush_lock()).collect();
        for family in families {
            for memtable in family.view().flushing.clone() {
                self.write_or_retry(family, &memtable)?;
            }
        }
        let gates: Vec<_> = families.iter().map(|family| family.close_gate()).collect();
        let position = self.log.position();
        let millis = self.snapshot_millis();
        let switch =
            |family: &&Arc<ColumnFamily>| Some((Arc::clone(family), family.switch_memtable()?));
        let switched: Vec<_> = families.iter().filter_map(switch).collect();
        drop(gates);
        let log_end = self.sync_log_for(&format_args!("snapshot {millis}"), position);
        let mut flushed = Ok(());
        let mut written = Vec::new();
        for (family, memtable) in switched {
            self.tell_switched(&family, &memtable, position, FlushCause::Request);
            memtable.seal(log_end);
            // One that fails leaves the others to be written all the same: nobody else would.
            match self.write_or_retry(&family, &memtable) {
                Ok(()) => {
                    self.wake_writers();
                    written.push(family);
                }
                failed => flushed = flushed.and(failed),
            }
        }
        // Before the log lets their records go: until then they say that it was not noted yet.
        self.note_families();
        for family in &written {
            self.after_flush(family, position);
        }
        flushed?;
        let mut captured: BTreeMap<String, Vec<Captured>> = BTreeMap::new();
        for family in families {
            let mut now = family.capture();
            // Also of a family without recent writes: the snapshot has all of it.
            now.manifest.flushed = now.manifest.flushed.max(log_end);
            captured.entry(family.schema().keyspace.clone()).or_default().push(now);
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
    fn write_or_retry(
        &self,
        family: &ColumnFamily,
        memtable: &Arc<Memtable>,
    ) -> Result<(), ReadError> {
        let written = self.write_memtable(family, memtable);
        written.inspect_err(|error| self.note_failed_flush(family, FlushCause::Request, error))
    }

    /// The time, but later than that of every snapshot before.
    fn snapshot_millis(&self) -> u64 {
        let now = u64::try_from(self.environment.clock.now_micros() / 1000).unwrap_or(0);
        let later = |newest: u64| Some(now.max(newest + 1));
        let newest = &self.newest_snapshot;
        let before = newest.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        now.max(before.unwrap_or_else(|newest| newest) + 1)
    }
}
