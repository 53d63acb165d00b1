//! fjall: an LSM tree with a journal. Closest to us in shape.

use super::engine::{Engine, Settings, column_key};
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode};

pub(crate) struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Fjall {
    pub(crate) fn open(settings: &Settings) -> Self {
        let database = Database::builder(&settings.directory)
            .cache_size(settings.cache_bytes as u64)
            .open()
            .expect("the store can be opened");
        let (memtable, block) = (settings.memtable_bytes as u64, settings.block_bytes as u32);
        let options = move || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .data_block_size_policy(BlockSizePolicy::all(block))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
        };
        let keyspace = database.keyspace("records", options).expect("the store can be opened");
        Self { database, keyspace }
    }
}

impl Engine for Fjall {
    fn put(&self, key: &[u8], value: &[u8]) {
        self.keyspace.insert(key, value).expect("writes work");
    }

    fn put_durably(&self, records: &[(&[u8], &[u8])]) {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in records {
            batch.insert(&self.keyspace, *key, *value);
        }
        batch.commit().expect("writes work");
    }

    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        let mut batch = self.database.batch().durability(Some(PersistMode::Buffer));
        for (name, value) in columns {
            batch.insert(&self.keyspace, column_key(key, name), *value);
        }
        batch.commit().expect("writes work");
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.keyspace.get(key).expect("reads work").map(|value| value.len())
    }

    fn get_row(&self, key: &[u8]) -> usize {
        read(self.keyspace.prefix(column_key(key, b"")))
    }

    fn scan(&self, from: &[u8], limit: usize) -> usize {
        read(self.keyspace.range(from..).take(limit))
    }

    fn scan_all(&self) -> usize {
        read(self.keyspace.iter())
    }

    fn flush(&self) {
        self.keyspace.rotate_memtable_and_wait().expect("flushing works");
    }

    fn compact(&mut self) {
        self.keyspace.major_compact().expect("compacting works");
    }
}

/// Reads keys and values; returns how many have any bytes.
fn read(records: impl Iterator<Item = Guard>) -> usize {
    let length = |record: Guard| {
        let (key, value) = record.into_inner().expect("reads work");
        usize::from(key.len() + value.len() > 0)
    };
    records.map(length).sum()
}
