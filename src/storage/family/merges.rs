//! Notes of the last merges: results that were derived from SSTables may hold for their
//! replacements.

use super::ColumnFamily;
use crate::ring::{DecoratedKey, Token};
use crate::storage::error::{FileContext, FileError};
use crate::storage::manifest::TableIdentity;
use crate::storage::row::{RowSource, RowSources};
use crate::storage::sstable::{SsTable, WrittenFile};
use crate::storage::{checked_file, files};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most merges that are noted, and most rows that they name.
const MOST_KEPT: usize = 256;
const MOST_KEYS_KEPT: usize = 256 << 10;

/// Most rows that one merge names, and most bytes of their keys.
const MOST_KEYS: u64 = 64 << 10;
const MOST_KEY_BYTES: usize = 4 << 20;

/// A compaction since the start of the node. The new SSTables hold the rows of the old ones,
/// without deleted cells and without deletions whose time was over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merge {
    /// Generations of the merged SSTables.
    pub old: Vec<u64>,
    /// Generations of their replacements.
    pub new: Vec<u64>,
    /// Notes of the rows.
    pub notes: MergeNotes,
}

/// Notes of a compaction about its rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeNotes {
    /// Time of the latest dropped deletion, in seconds; `None` if none was dropped: then each row
    /// of the old SSTables is in one of the new ones.
    pub latest_dropped: Option<i32>,
    /// Tokens of all rows of small old SSTables, by generation, if they are wanted.
    pub keys: BTreeMap<u64, Vec<Token>>,
    /// Bytes of the keys of these.
    pub key_bytes: usize,
}

impl MergeNotes {
    /// Empty notes of a merge of these SSTables.
    pub(in crate::storage) fn new(family: &ColumnFamily, inputs: &[Arc<SsTable>]) -> Self {
        let mut notes = Self::default();
        if !family.merges.lock().are_keys_wanted {
            return notes;
        }
        let mut by_rows: Vec<_> = inputs.iter().map(|it| (it.rows(), it.generation())).collect();
        by_rows.sort_unstable();
        let mut sum = 0_u64;
        for (rows, generation) in by_rows {
            sum = sum.saturating_add(rows);
            if sum > MOST_KEYS {
                break;
            }
            notes.keys.insert(generation, Vec::new());
        }
        notes
    }

    /// Notes a row of these sources.
    pub(in crate::storage) fn add_row(&mut self, key: &DecoratedKey, sources: &RowSources<'_>) {
        if self.keys.is_empty() {
            return;
        }
        for source in sources {
            let RowSource::SsTable { blocks, .. } = source else { continue };
            if let Some(keys) = self.keys.get_mut(&blocks.table().generation()) {
                keys.push(key.token().clone());
                self.key_bytes += key.key().as_bytes().len();
            }
        }
        if self.key_bytes > MOST_KEY_BYTES {
            self.keys.clear();
        }
    }

    fn key_count(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }
}

/// The SSTables of a family at one moment.
#[derive(Debug, Clone)]
pub struct TablesNow {
    /// By generation.
    pub tables: Vec<Arc<SsTable>>,
    /// The last merges, the oldest first.
    pub merges: Vec<Arc<Merge>>,
}

/// The last merges of a family.
#[derive(Debug, Default)]
pub(super) struct Merges {
    last: VecDeque<Arc<Merge>>,
    are_keys_wanted: bool,
}

impl ColumnFamily {
    /// The live SSTables.
    pub fn tables_now(&self) -> TablesNow {
        // Both change under this lock.
        let _manifest = self.manifest.lock();
        let merges = self.merges.lock().last.iter().cloned().collect();
        TablesNow { tables: self.view().tables.clone(), merges }
    }

    /// Replaces the file of row hashes. Its reader checks that it is sound.
    pub fn keep_hashes(&self, content: &[u8]) -> Result<(), FileError> {
        let path = files::hashes(&self.folders[0], &self.schema.name);
        checked_file::replace(&*self.environment.fs, &path, content)
    }

    /// The file of row hashes, if it has at most this many bytes.
    pub fn kept_hashes(&self, max_bytes: u64) -> Result<Option<Vec<u8>>, FileError> {
        let fs = &*self.environment.fs;
        let path = files::hashes(&self.folders[0], &self.schema.name);
        if !fs.try_exists(&path).context("look for", &path)? {
            return Ok(None);
        }
        let size = fs.open(&path).and_then(|file| file.size()).context("open", &path)?;
        if size > max_bytes {
            return Ok(None);
        }
        fs.read(&path).context("read", &path).map(Some)
    }

    /// Notes that these SSTables were merged. The caller holds the lock of the manifest.
    pub(super) fn note_merge(&self, old: &[Arc<SsTable>], new: &[WrittenFile], notes: &MergeNotes) {
        let merge = Merge {
            old: old.iter().map(|table| table.generation()).collect(),
            new: new.iter().map(WrittenFile::generation).collect(),
            notes: notes.clone(),
        };
        let mut merges = self.merges.lock();
        merges.last.push_back(Arc::new(merge));
        let keys = |last: &VecDeque<Arc<Merge>>| {
            last.iter().map(|merge| merge.notes.key_count()).sum::<usize>()
        };
        while merges.last.len() > MOST_KEPT || keys(&merges.last) > MOST_KEYS_KEPT {
            merges.last.pop_front();
        }
    }

    /// Has merges name the rows of small SSTables from now on.
    pub fn want_merged_keys(&self) {
        self.merges.lock().are_keys_wanted = true;
    }
}

impl TablesNow {
    /// Identities of the SSTables, by generation: as long as they are the same, their rows are.
    pub fn identities(&self) -> BTreeMap<u64, TableIdentity> {
        self.tables.iter().map(|table| (table.generation(), table.identity())).collect()
    }
}
