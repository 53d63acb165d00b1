//! Abilities of every engine of the comparison, and how it is set up.

use std::path::{Path, PathBuf};

/// A store of key-value records, ordered by key. A failure of an engine ends the bench, so that
/// nothing here returns errors.
pub(crate) trait Engine: Send + Sync {
    /// Writes one record so that it survives the end of the process, if the engine can do that
    /// without a sync.
    fn put(&self, key: &[u8], value: &[u8]);

    /// Writes records, all or none if the engine can, and returns when they are durable.
    fn put_durably(&self, records: &[(&[u8], &[u8])]);

    /// Writes the columns of one row, all or none, as [`Engine::put`] writes one record.
    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]);

    /// Length of the value; `None` if there is none.
    fn get(&self, key: &[u8]) -> Option<usize>;

    /// How many columns the row has.
    fn get_row(&self, key: &[u8]) -> usize;

    /// Reads at most `limit` records from this key on, and returns how many there were.
    fn scan(&self, from: &[u8], limit: usize) -> usize;

    /// Reads all records and returns how many there are.
    fn scan_all(&self) -> usize;

    /// Brings what is only in memory and in the log to where it stays.
    fn flush(&self);

    /// Makes the store as small as the engine can on demand.
    fn compact(&mut self);
}

/// Settings that all engines are told alike.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    /// Memory for blocks or pages.
    pub(crate) cache_bytes: usize,
    /// Memory for what was written last. An engine without such a buffer ignores it.
    pub(crate) memtable_bytes: usize,
    /// Uncompressed size of a block. An engine of pages ignores it.
    pub(crate) block_bytes: usize,
    /// Whether [`Engine::put_durably`] will be called.
    pub(crate) syncs: bool,
}

/// The engines that take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A record is a row of one column.
    Alexandra,
    /// A record is a column of the only row.
    AlexandraWide,
    Fjall,
    Redb,
    #[cfg(feature = "rocksdb")]
    RocksDb,
}

impl Kind {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Alexandra,
        Self::AlexandraWide,
        Self::Fjall,
        Self::Redb,
        #[cfg(feature = "rocksdb")]
        Self::RocksDb,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alexandra => "alexandra",
            Self::AlexandraWide => "alexandra-wide",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => "rocksdb",
        }
    }

    /// The engine of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Whether it is somebody else's.
    pub(crate) fn is_peer(self) -> bool {
        !matches!(self, Self::Alexandra | Self::AlexandraWide)
    }

    /// Opens the store in the directory of the settings, which is created if need be.
    pub(crate) fn open(self, settings: &Settings) -> Box<dyn Engine> {
        create_directory(&settings.directory);
        match self {
            Self::Alexandra => Box::new(crate::alexandra::Rows::open(settings)),
            Self::AlexandraWide => Box::new(crate::alexandra::WideRow::open(settings)),
            Self::Fjall => Box::new(crate::fjall::Fjall::open(settings)),
            Self::Redb => Box::new(crate::redb::Redb::open(settings)),
            #[cfg(feature = "rocksdb")]
            Self::RocksDb => Box::new(crate::rocksdb::RocksDb::open(settings)),
        }
    }
}

fn create_directory(path: &Path) {
    std::fs::create_dir_all(path).expect("the directory of the bench is writable");
}

/// The key of a column in an engine that knows no columns.
pub(crate) fn column_key(key: &[u8], name: &[u8]) -> Vec<u8> {
    [key, b"/", name].concat()
}
