//! redb: a copy-on-write B-tree with neither log nor compression. The contrast to all others.

use super::engine::{Engine, Settings, column_key};
use redb::{Database, Durability, ReadOnlyTable, ReadableDatabase, TableDefinition};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

pub(crate) struct Redb(Database);

impl Redb {
    pub(crate) fn open(settings: &Settings) -> Self {
        let path = settings.directory.join("records.redb");
        let database = Database::builder().set_cache_size(settings.cache_bytes).create(path);
        let redb = Self(database.expect("the store can be opened"));
        redb.write(&[], Durability::Immediate);
        redb
    }

    /// A transaction of its own for each call, as an answer to a client needs one.
    fn write(&self, records: &[(&[u8], &[u8])], durability: Durability) {
        let mut transaction = self.0.begin_write().expect("writes work");
        transaction.set_durability(durability).expect("it has no savepoint");
        let mut table = transaction.open_table(TABLE).expect("writes work");
        for (key, value) in records {
            table.insert(key, value).expect("writes work");
        }
        drop(table);
        transaction.commit().expect("writes work");
    }

    fn table(&self) -> ReadOnlyTable<&'static [u8], &'static [u8]> {
        let transaction = self.0.begin_read().expect("reads work");
        transaction.open_table(TABLE).expect("reads work")
    }

    fn count(&self, from: &[u8], until: Option<&[u8]>, limit: usize) -> usize {
        let table = self.table();
        let range = match until {
            Some(until) => table.range::<&[u8]>(from..until),
            None => table.range::<&[u8]>(from..),
        };
        let records = range.expect("reads work").take(limit);
        let touch = |record: Result<_, _>| {
            let (key, value): (redb::AccessGuard<'_, &[u8]>, redb::AccessGuard<'_, &[u8]>) =
                record.expect("reads work");
            usize::from(key.value().len() + value.value().len() > 0)
        };
        records.map(touch).sum()
    }
}

impl Engine for Redb {
    fn put(&self, key: &[u8], value: &[u8]) {
        self.write(&[(key, value)], Durability::None);
    }

    fn put_durably(&self, records: &[(&[u8], &[u8])]) {
        self.write(records, Durability::Immediate);
    }

    fn put_row(&self, key: &[u8], columns: &[(&[u8], &[u8])]) {
        let keys: Vec<_> = columns.iter().map(|(name, _)| column_key(key, name)).collect();
        let records = keys.iter().zip(columns).map(|(key, (_, value))| (key.as_slice(), *value));
        self.write(&records.collect::<Vec<_>>(), Durability::None);
    }

    fn get(&self, key: &[u8]) -> Option<usize> {
        self.table().get(key).expect("reads work").map(|value| value.value().len())
    }

    fn get_row(&self, key: &[u8]) -> usize {
        // The byte behind the slash.
        let until = [key, b"0"].concat();
        self.count(&column_key(key, b""), Some(&until), usize::MAX)
    }

    fn scan(&self, from: &[u8], limit: usize) -> usize {
        self.count(from, None, limit)
    }

    fn scan_all(&self) -> usize {
        self.count(b"", None, usize::MAX)
    }

    fn flush(&self) {
        self.write(&[], Durability::Immediate);
    }

    fn compact(&mut self) {
        self.0.compact().expect("compacting works");
    }
}
