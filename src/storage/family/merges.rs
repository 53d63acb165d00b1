//! Which SSTables were made of which: who has worked something out of some of them may find that it
//! still holds.

use super::{ColumnFamily, NewTable};
use crate::base::lock::MutexGuard;
use crate::ring::{DecoratedKey, Token};
use crate::storage::error::{FileContext, FileError};
use crate::storage::manifest::TableIdentity;
use crate::storage::row::{RowSource, RowSources};
use crate::storage::sstable::SsTable;
use crate::storage::{checked_file, files};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Most merges that are kept in mind, and most rows that they name.
const MOST_KEPT: usize = 256;
const MOST_KEYS_KEPT: usize = 256 << 10;

/// Most rows that one merge names, and most bytes of their keys.
const MOST_KEYS: u64 = 64 << 10;
const MOST_KEY_BYTES: usize = 4 << 20;

/// A compaction since the start of the node. The new SSTables hold the rows of the old ones,
/// without what deletions cover and without deletions whose time was over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merge {
    /// Generations of the SSTables that were merged.
    pub old: Vec<u64>,
    /// Generations of those that have taken their place.
    pub new: Vec<u64>,
    /// What it has noted of the rows.
    pub notes: MergeNotes,
}

/// What a compaction notes of rows on their way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeNotes {
    /// When the latest of the deletions was made that were dropped, in seconds; `None` if none was:
    /// then each row of the old SSTables is in one of the new ones.
    pub latest_dropped: Option<i32>,
    /// The tokens of all rows of those old SSTables that have few, by generation, if somebody wants
    /// to know.
    pub keys: BTreeMap<u64, Vec<Token>>,
    /// Bytes of the keys of these.
    pub key_bytes: usize,
}

impl MergeNotes {
    /// Nothing, of a merge of these SSTables.
    pub(in crate::storage) fn new(store: &ColumnFamily, inputs: &[Arc<SsTable>]) -> Self {
        let mut notes = Self::default();
        if !store.lock_merges().are_keys_wanted {
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

    /// A row comes by, of which these SSTables have a part.
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

    /// Deletions of it are dropped, of which the latest was made then.
    pub(in crate::storage) fn add_dropped(&mut self, latest: Option<i32>) {
        self.latest_dropped = self.latest_dropped.max(latest);
    }

    fn key_count(&self) -> usize {
        self.keys.values().map(Vec::len).sum()
    }
}

/// The SSTables of a store at one moment.
#[derive(Debug, Clone)]
pub struct TablesNow {
    /// By generation.
    pub tables: Vec<Arc<SsTable>>,
    /// How the last of them came to be, the oldest first.
    pub merges: Vec<Arc<Merge>>,
}

/// The last merges of a store.
#[derive(Debug, Default)]
pub(super) struct Merges {
    last: VecDeque<Arc<Merge>>,
    are_keys_wanted: bool,
}

impl ColumnFamily {
    /// The SSTables that count.
    pub fn tables_now(&self) -> TablesNow {
        // Whoever changes either holds this lock until both have changed.
        let _manifest = self.manifest.lock();
        let merges = self.lock_merges().last.iter().cloned().collect();
        TablesNow { tables: self.view().tables.clone(), merges }
    }

    /// Replaces what is kept of hashes of rows. Who reads it checks that it is what was written.
    pub fn keep_hashes(&self, content: &[u8]) -> Result<(), FileError> {
        let path = files::hashes(&self.folders[0], &self.schema.name);
        checked_file::replace(&*self.environment.fs, &path, content)
    }

    /// What is kept of hashes of rows, if it has no more than so many bytes.
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
    pub(super) fn note_merge(&self, old: &[Arc<SsTable>], new: &[NewTable], notes: &MergeNotes) {
        let merge = Merge {
            old: old.iter().map(|table| table.generation()).collect(),
            new: new.iter().map(|table| table.generation).collect(),
            notes: notes.clone(),
        };
        let mut merges = self.lock_merges();
        merges.last.push_back(Arc::new(merge));
        let keys = |last: &VecDeque<Arc<Merge>>| {
            last.iter().map(|merge| merge.notes.key_count()).sum::<usize>()
        };
        while merges.last.len() > MOST_KEPT || keys(&merges.last) > MOST_KEYS_KEPT {
            merges.last.pop_front();
        }
    }

    /// From now on merges are to name the rows of small SSTables.
    pub fn want_merged_keys(&self) {
        self.lock_merges().are_keys_wanted = true;
    }

    fn lock_merges(&self) -> MutexGuard<'_, Merges> {
        self.merges.lock()
    }
}

impl TablesNow {
    /// What tells the SSTables from all others, by generation.
    pub fn identities(&self) -> BTreeMap<u64, TableIdentity> {
        self.tables.iter().map(|table| (table.generation(), table.identity())).collect()
    }
}
