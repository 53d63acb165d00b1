//! SSTables of the original: makes them live when directories are taken over, and opens them at
//! each start.

use super::{ColumnFamily, Environment, OpenError};
use crate::storage::error::{FileContext, FileError, ReadError};
use crate::storage::files::{self, OriginalPart};
use crate::storage::manifest::TableIdentity;
use crate::storage::offline::move_aside;
use crate::storage::sstable::SsTable;
use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Data files of the original, by generation. Several data directories may have one of a number.
pub(in crate::storage) type OriginalFiles = BTreeMap<u64, Vec<PathBuf>>;

/// Handling of SSTables of the original that no manifest names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Originals {
    /// They do not belong here.
    Refuse,
    /// The directories are being taken over: they become live.
    Adopt {
        /// Whether damaged ones are left out.
        skips_damaged: bool,
    },
}

impl ColumnFamily {
    /// Makes these SSTables of the original live. The manifest that names them is the first of the
    /// family, and is not stored before [`ColumnFamily::keep_adopted`] or a flush: a server of the
    /// original does not start beside it.
    pub(super) fn adopt(&self, found: &OriginalFiles) -> Result<(), OpenError> {
        let Originals::Adopt { skips_damaged } = self.environment.originals else {
            let file = found.values().flatten().next().cloned().unwrap_or_default();
            return Err(OpenError::NotTakenOver { family: self.schema.to_string(), file });
        };
        if let Some(files) = found.values().find(|files| files.len() > 1) {
            let free = found.keys().next_back().unwrap_or(&0) + 1;
            return Err(OpenError::SameNumber { files: files.clone(), free });
        }
        let files = found.iter().flat_map(|(at, files)| files.iter().map(|file| (*at, &**file)));
        let mut tables = Vec::new();
        for opened in self.open_originals(files.collect()) {
            match opened {
                Ok(table) => tables.push(Arc::new(table)),
                Err(ReadError::Corrupt(damage)) if skips_damaged => {
                    log::error!("{damage}. This loss is accepted: the file goes to `damaged`");
                    self.put_aside(&damage.file)?;
                }
                Err(ReadError::Corrupt(damage)) => {
                    let family = self.schema.to_string();
                    return Err(OpenError::DamagedOriginal { damage, family });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let identities = tables.iter().map(|table| (table.generation(), table.identity()));
        self.manifest.lock().sstables.extend(identities);
        self.publish(|view| view.tables = tables);
        Ok(())
    }

    /// Makes it durable that adopted SSTables are live.
    pub fn keep_adopted(&self) -> Result<(), FileError> {
        let mut manifest = self.manifest.lock();
        if manifest.sequence == 0 && !manifest.sstables.is_empty() {
            let next = self.next_version(&manifest);
            self.store_manifest(&next)?;
            *manifest = next;
        }
        Ok(())
    }

    /// Moves the files of an SSTable of the original out of the way.
    fn put_aside(&self, data: &Path) -> Result<(), FileError> {
        let fs = &*self.environment.fs;
        for path in files::parts(data) {
            if fs.try_exists(&path).context("look for", &path)? {
                move_aside(fs, &path)?;
            }
        }
        Ok(())
    }

    /// Opens SSTables of the original, several at once: their indexes have to be read.
    pub(super) fn open_originals(
        &self,
        files: Vec<(u64, &Path)>,
    ) -> Vec<Result<SsTable, ReadError>> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(files.len());
        let open = |(generation, path)| self.open_original(path, generation);
        if threads < 2 {
            return files.into_iter().map(open).collect();
        }
        let share = |first: usize| {
            let own = files.iter().copied().enumerate().skip(first).step_by(threads);
            own.map(|(at, file)| (at, open(file))).collect::<Vec<_>>()
        };
        let mut opened: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads)
                .map(|at| {
                    scope.spawn({
                        let share = &share;
                        move || share(at)
                    })
                })
                .collect();
            let joined =
                threads.into_iter().map(|it| it.join().unwrap_or_else(|it| resume_unwind(it)));
            joined.flatten().collect()
        });
        opened.sort_by_key(|(at, _)| *at);
        opened.into_iter().map(|(_, table)| table).collect()
    }

    fn open_original(&self, path: &Path, generation: u64) -> Result<SsTable, ReadError> {
        let Environment { fs, partitioner, cache, .. } = &*self.environment;
        let layout = (self.schema(), self.options.index_interval);
        SsTable::open_legacy(fs, path, generation, *partitioner, cache, layout)
    }

    /// The data file of this number that the manifest names.
    pub(super) fn take_original(
        &self,
        found: &mut OriginalFiles,
        generation: u64,
        expected: TableIdentity,
    ) -> Result<PathBuf, OpenError> {
        let mut files = found.remove(&generation).unwrap_or_default();
        if files.len() > 1 {
            let is_meant = |path: &PathBuf| {
                let opened = self.open_original(path, generation);
                opened.is_ok_and(|table| table.identity() == expected)
            };
            let meant: Vec<_> = files.iter().filter(|path| is_meant(path)).cloned().collect();
            if meant.len() != 1 {
                return Err(OpenError::TwoFiles { files });
            }
            files = meant;
        }
        let name = &self.schema.name;
        let file = files::original(&self.folders[0], name, generation, OriginalPart::Data);
        let (family, manifest) = (self.schema.to_string(), self.manifest_path());
        files.pop().ok_or(OpenError::Missing { family, file, manifest })
    }
}
