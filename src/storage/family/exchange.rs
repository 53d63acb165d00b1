//! Replaces SSTables by others, on disk and for readers, in one step.

use super::{ColumnFamily, Environment, MergeNotes};
use crate::base::lock::MutexGuard;
use crate::storage::commitlog::Position;
use crate::storage::error::{FileError, ReadError};
use crate::storage::files::{self, OriginalPart};
use crate::storage::manifest::Manifest;
use crate::storage::memtable::Memtable;
use crate::storage::sstable::{SsTable, WrittenFile, discard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Reason for an exchange of SSTables.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// The new ones hold the rows of the old ones without deletions whose time was over.
    Merged(&'a MergeNotes),
    /// The new ones hold rows from elsewhere.
    Added,
    /// The new one holds this memtable, which is dropped.
    Flushed(&'a Arc<Memtable>),
    /// Not all rows of the old ones are in the new ones.
    RowsDropped,
    /// Everything is dropped: SSTables, all memtables but the active one, and the records that the
    /// commit log has up to here. The caller holds the lock of a flush.
    AllDropped(Position),
}

impl ColumnFamily {
    /// Replaces old SSTables by new ones. The new ones are complete under their temporary names,
    /// and are removed after an error.
    ///
    /// The manifest decides: before it is replaced everything is tried that can fail, after that
    /// nothing may fail any more, or disk and readers would disagree on the live SSTables.
    pub fn exchange(
        &self,
        old: &[Arc<SsTable>],
        new: &[WrittenFile],
        cause: Cause<'_>,
    ) -> Result<(), ReadError> {
        self.exchange_locked(self.manifest.lock(), old, new, cause)
    }

    /// Adds SSTables with rows from elsewhere. If the family takes no writes they are removed, and
    /// that is false.
    pub fn add(&self, new: &[WrittenFile]) -> Result<bool, ReadError> {
        let manifest = self.manifest.lock();
        if self.check_writable().is_err() {
            self.discard_new(new);
            return Ok(false);
        }
        self.exchange_locked(manifest, &[], new, Cause::Added).map(|()| true)
    }

    fn exchange_locked(
        &self,
        mut manifest: MutexGuard<'_, Manifest>,
        old: &[Arc<SsTable>],
        new: &[WrittenFile],
        cause: Cause<'_>,
    ) -> Result<(), ReadError> {
        let mut next = self.next_version(&manifest);
        let prepared = self.open_new(new).and_then(|opened| {
            self.forget_removed(&mut next)?;
            Ok(opened)
        });
        let mut opened = prepared.inspect_err(|_| self.discard_new(new))?;
        for table in old {
            next.sstables.remove(&table.generation());
            next.obsolete.insert(table.generation());
        }
        next.sstables.extend(opened.iter().map(|table| (table.generation(), table.identity())));
        next.flushed = match cause {
            Cause::Merged(_) | Cause::Added | Cause::RowsDropped => next.flushed,
            Cause::Flushed(memtable) => next.flushed.max(memtable.log_end()),
            Cause::AllDropped(log_end) => next.flushed.max(log_end),
        };
        if let Err(error) = self.store_manifest(&next) {
            // So that attempts do not pile up on a full disk. Only if the old manifest stands is it
            // certain that the new SSTables are not live.
            let present = Manifest::load(&*self.environment.fs, &self.manifest_path());
            let first = || Manifest::new(&self.schema.to_string());
            if present.is_ok_and(|present| present.unwrap_or_else(first) == *manifest) {
                self.discard_new(new);
            }
            return Err(error.into());
        }
        *manifest = next;
        for table in &mut opened {
            if let Err(error) = table.take_final_name() {
                // The next start tries again. Until then it is read under its temporary name.
                log::warn!("{error}");
            }
        }
        let change = Self::rows_change(old, &opened, cause);
        let mut dropped_memory = 0;
        self.publish(|view| {
            view.tables.retain(|t| !old.iter().any(|o| o.generation() == t.generation()));
            view.tables.extend(opened.into_iter().map(Arc::new));
            view.tables.sort_by_key(|table| table.generation());
            if matches!(cause, Cause::AllDropped(_)) {
                dropped_memory = view.flushing.drain(..).map(|memtable| memtable.memory()).sum();
            }
            view.note_change(change);
        });
        self.environment.memtable_memory.fetch_sub(dropped_memory, Ordering::Relaxed);
        if let Cause::Merged(notes) = cause {
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

    /// Notes, durably, that the records that the commit log has up to here are in SSTables or
    /// dropped.
    pub fn advance_flushed(&self, position: Position) -> Result<(), FileError> {
        self.set_flushed(self.flushed_position().max(position))
    }

    /// [`ColumnFamily::advance_flushed`], also backwards: for a family of which the commit log has
    /// no records yet.
    pub fn set_flushed(&self, flushed: Position) -> Result<(), FileError> {
        let mut manifest = self.manifest.lock();
        let next = Manifest { flushed, ..self.next_version(&manifest) };
        self.store_manifest(&next)?;
        *manifest = next;
        Ok(())
    }

    /// The next version of the manifest, as this node writes it.
    pub(super) fn next_version(&self, manifest: &Manifest) -> Manifest {
        Manifest { node: Some(self.environment.node.number), ..manifest.successor() }
    }

    pub(super) fn manifest_path(&self) -> PathBuf {
        files::manifest(&self.folders[0], &self.schema.name)
    }

    pub(super) fn store_manifest(&self, manifest: &Manifest) -> Result<(), FileError> {
        manifest.store(&*self.environment.fs, &self.manifest_path())?;
        self.sync_folder(&self.folders[0])
    }

    /// Removes the files of replaced SSTables that have no reader. Returns the number of the
    /// others.
    pub fn remove_replaced(&self) -> usize {
        let mut replaced = self.replaced.lock();
        // No view holds them, so that no reader can come.
        let unused: Vec<_> =
            replaced.extract_if(.., |table| Arc::strong_count(table) == 1).collect();
        let left = replaced.len();
        drop(replaced);
        if let Some(keys) = &self.view().key_cache
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

    /// Removes generations from the obsolete ones whose files are gone for good. The folder of
    /// the manifest itself is synced with it, later than its older names.
    fn forget_removed(&self, manifest: &mut Manifest) -> Result<(), FileError> {
        let fs = &*self.environment.fs;
        let count = manifest.obsolete.len();
        manifest.obsolete.retain(|generation| {
            let name = &self.schema.name;
            self.folders.iter().any(|folder| {
                let parts = [OriginalPart::Data, OriginalPart::Index, OriginalPart::Filter];
                let originals = parts.map(|part| files::original(folder, name, *generation, part));
                let own = files::sstable(folder, name, *generation);
                fs.exists(&own) || originals.iter().any(|path| fs.exists(path))
            })
        });
        if manifest.obsolete.len() < count {
            // Else a power loss could bring them back when no manifest knows them any more.
            self.folders.iter().skip(1).try_for_each(|folder| self.sync_folder(folder))?;
        }
        Ok(())
    }

    fn discard_new(&self, new: &[WrittenFile]) {
        for file in new {
            discard(&*self.environment.fs, &file.path);
        }
    }

    /// Makes the names of new SSTables durable, and opens them.
    fn open_new(&self, new: &[WrittenFile]) -> Result<Vec<SsTable>, ReadError> {
        let open = |file: &WrittenFile| {
            self.sync_folder(file.folder())?;
            self.open_table(&file.path, file.generation())
        };
        new.iter().map(open).collect()
    }

    pub(super) fn open_table(&self, path: &Path, generation: u64) -> Result<SsTable, ReadError> {
        let Environment { fs, partitioner, cache, .. } = &*self.environment;
        SsTable::open(fs, path, generation, *partitioner, cache)
    }
}
