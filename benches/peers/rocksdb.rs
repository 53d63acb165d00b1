//! RocksDB, with the options that its authors suggest for tables of blocks.

use super::engine::{Engine, Settings, column_key};
use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType,
    Direction, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

/// Bits of the bloom filter for each key, about as many as the other engines take.
const FILTER_BITS: f64 = 10.0;

pub(crate) struct RocksDb(DB);

impl RocksDb {
    pub(crate) fn open(settings: &Settings) -> Self {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&Cache::new_lru_cache(settings.cache_bytes));
        table.set_block_size(settings.block_bytes);
        table.set_bloom_filter(FILTER_BITS, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(settings.memtable_bytes);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_max_background_jobs(2);
        options.set_block_based_table_factory(&table);
        Self(DB::open(&options, &settings.directory).expect("the store can be opened"))
    }

    fn write(&self, records: impl Iterator<Item = (Vec<u8>, Vec<u8>)>, sync: bool) {
        let mut batch = WriteBatch::default();
        records.for_each(|(key, value)| batch.put(key, value));
        let mut options = WriteOptions::default();
        options.set_sync(sync);
        self.0.write_opt(batch, &options).expect("writes work");
    }
}

impl Engine for RocksDb {
    fn put(&self, key: &[u8], value: &[u8]) {
        self.0.put(key, value).expect("writes work");
    }

    fn put_durably(&self, records: &[(&[u8], &[u8])]) {
        self.write(records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())), true);
    }

    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        let columns = columns.iter();
        self.write(columns.map(|(name, value)| (column_key(key, name), value.to_vec())), false);
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.0.get_pinned(key).expect("reads work").map(|value| value.len())
    }

    fn get_row(&self, key: &[u8]) -> usize {
        let prefix = column_key(key, b"");
        let mut bounds = ReadOptions::default();
        // The byte behind the slash.
        bounds.set_iterate_upper_bound([key, b"0"].concat());
        let mode = IteratorMode::From(&prefix, Direction::Forward);
        let columns = self.0.iterator_opt(mode, bounds);
        columns.map(|column| usize::from(!column.expect("reads work").0.is_empty())).sum()
    }

    fn scan(&self, from: &[u8], limit: usize) -> usize {
        let mut records = self.0.raw_iterator();
        records.seek(from);
        let mut count = 0;
        while count < limit && records.item().is_some() {
            count += 1;
            records.next();
        }
        records.status().expect("reads work");
        count
    }

    fn scan_all(&self) -> usize {
        self.scan(b"", usize::MAX)
    }

    fn flush(&self) {
        self.0.flush().expect("flushing works");
    }

    fn compact(&mut self) {
        let mut options = CompactOptions::default();
        options.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        self.0.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
    }
}
