//! Facts about a whole SSTable.
//!
//! Stored as fields of varint id, varint length and bytes; ids that are not known are passed over.
//! The ids are written down here: do not change them.

use crate::base::bytes::{ByteReader, ByteWriter, Malformed};
use crate::model::cell::{Cell, CellState};
use crate::model::comparator::ComparatorRegistry;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::ring::{DecoratedKey, Partitioner};

/// Rows that [`Properties::widest_rows`] has at most.
const MAX_WIDEST: usize = 10;

/// A row that takes much room in an SSTable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WideRow {
    /// Its key.
    pub key: RowKey,
    /// Its size before compression.
    pub bytes: u64,
    /// Its cells; 0 in a file of the original, which does not say it.
    pub cells: u64,
}

/// Facts about a whole SSTable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Properties {
    /// Keyspace and column family it was written for.
    pub keyspace: String,
    /// See `keyspace`.
    pub family: String,
    /// Full class name of the partitioner, which decides on the order of rows.
    pub partitioner: String,
    /// Full class name of `CompareWith`, which decides on the order within rows.
    pub comparator: String,
    /// Full class name of `CompareSubcolumnsWith`; empty for a standard column family.
    pub subcolumn_comparator: String,
    /// Number of rows.
    pub rows: u64,
    /// Number of cells, tombstones included.
    pub cells: u64,
    /// Number of tombstones, of columns, super columns and rows, and of values that expire.
    pub tombstones: u64,
    /// Least local deletion time of a tombstone, in seconds; `i32::MAX` without any.
    pub min_local_deletion_time: i32,
    /// Least and greatest timestamp of cells and row deletions; reversed if there are none.
    pub min_timestamp: i64,
    /// See `min_timestamp`.
    pub max_timestamp: i64,
    /// Bytes of all data blocks before compression.
    pub raw_bytes: u64,
    /// Size of the largest row before compression, in bytes.
    pub largest_row_bytes: u64,
    /// Size of the smallest row before compression, in bytes; 0 in a file that does not say it.
    pub smallest_row_bytes: u64,
    /// Rows between two entries of the summary.
    pub index_interval: u64,
    /// Time of its creation, in microseconds since the Unix epoch.
    pub created_at_micros: u64,
    /// The level that it was written for; 0 for none, and for what was flushed.
    pub level: u64,
    /// States of its cells that 0.6 does not have, each by its flag.
    pub states: u8,
    /// The last row key as the row index stores it: u16 length, key, token. Empty without rows.
    pub last_key: Vec<u8>,
    /// The widest rows, the widest first, of those that are too large to stand in the row index.
    pub widest_rows: Vec<WideRow>,
}

impl Properties {
    /// Facts about a file that has no rows yet.
    pub fn without_rows() -> Self {
        Self {
            min_local_deletion_time: i32::MAX,
            min_timestamp: i64::MAX,
            max_timestamp: i64::MIN,
            ..Self::default()
        }
    }

    /// Takes the timestamp of a cell or a row deletion.
    #[inline]
    pub fn note_timestamp(&mut self, timestamp: i64) {
        self.min_timestamp = self.min_timestamp.min(timestamp);
        self.max_timestamp = self.max_timestamp.max(timestamp);
    }

    /// Counts a tombstone.
    pub fn note_tombstone(&mut self, deletion: Deletion) {
        self.tombstones += 1;
        self.min_local_deletion_time =
            self.min_local_deletion_time.min(deletion.local_deletion_time);
    }

    /// Counts a cell if it is a tombstone, or becomes one.
    pub fn note_deletion(&mut self, cell: &Cell) {
        if let Some(deletion) = cell.deletion() {
            self.note_tombstone(deletion);
            self.states |= cell.state().flag() & CellState::LATER;
        }
    }

    /// Counts the deletion of a row, if there is one.
    pub fn note_row_deletion(&mut self, deletion: Deletion) {
        if !deletion.is_none() {
            self.note_timestamp(deletion.marked_for_delete_at);
            self.note_tombstone(deletion);
        }
    }

    /// Takes a row that is too large to stand in the row index.
    pub fn note_wide_row(&mut self, key: &RowKey, bytes: u64, cells: u64) {
        let at = self.widest_rows.partition_point(|row| row.bytes >= bytes);
        if at < MAX_WIDEST {
            self.widest_rows.truncate(MAX_WIDEST - 1);
            self.widest_rows.insert(at, WideRow { key: key.clone(), bytes, cells });
        }
    }

    /// Sets the key of the last row.
    pub fn set_last_key(&mut self, last: &DecoratedKey) {
        self.last_key.clear();
        self.last_key.put_prefixed(last.key().as_bytes());
        last.encode_token(&mut self.last_key);
    }

    /// CRC32 of the stored form.
    pub fn crc(&self) -> u32 {
        crc32fast::hash(&self.encode())
    }

    /// The stored form.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |id: u64, bytes: &[u8]| {
            out.put_varint(id);
            out.put_varint(bytes.len() as u64);
            out.extend_from_slice(bytes);
        };
        field(1, self.keyspace.as_bytes());
        field(2, self.family.as_bytes());
        field(3, self.partitioner.as_bytes());
        field(4, self.comparator.as_bytes());
        field(5, self.subcolumn_comparator.as_bytes());
        field(6, &self.rows.to_be_bytes());
        field(7, &self.cells.to_be_bytes());
        field(8, &self.tombstones.to_be_bytes());
        field(9, &i64::from(self.min_local_deletion_time).to_be_bytes());
        field(10, &self.min_timestamp.to_be_bytes());
        field(11, &self.max_timestamp.to_be_bytes());
        field(12, &self.raw_bytes.to_be_bytes());
        field(13, &self.largest_row_bytes.to_be_bytes());
        field(14, &self.index_interval.to_be_bytes());
        field(15, &self.created_at_micros.to_be_bytes());
        field(16, &self.level.to_be_bytes());
        field(17, &self.last_key);
        field(18, &self.smallest_row_bytes.to_be_bytes());
        if self.states != 0 {
            field(19, &[self.states]);
        }
        for WideRow { key, bytes, cells } in &self.widest_rows {
            let numbers = [bytes.to_be_bytes(), cells.to_be_bytes()].concat();
            field(20, &[&numbers, key.as_bytes()].concat());
        }
        out
    }

    /// The keyspace and column family that it was written for, as messages name them.
    pub fn family_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.family)
    }

    /// The column family as it was when the file was written; `None` if a comparator is not
    /// registered.
    pub fn schema(&self, comparators: &ComparatorRegistry) -> Option<ColumnFamilySchema> {
        let columns = comparators.resolve(&self.comparator)?;
        let kind = if self.subcolumn_comparator.is_empty() {
            ColumnFamilyKind::Standard { columns }
        } else {
            let super_columns = columns;
            let columns = comparators.resolve(&self.subcolumn_comparator)?;
            ColumnFamilyKind::Super { super_columns, columns }
        };
        let (keyspace, name) = (self.keyspace.clone(), self.family.clone());
        Some(ColumnFamilySchema::new(keyspace, name, kind))
    }

    /// The partitioner that the file was written with; `None` if it is not known.
    pub fn partitioner(&self) -> Option<Partitioner> {
        Partitioner::from_class_name(&self.partitioner)
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut properties = Self::default();
        let mut reader = ByteReader::new(bytes);
        while !reader.is_empty() {
            let (id, length) = (reader.varint()?, reader.varint()?);
            let at = reader.position();
            let value = reader.take(usize::try_from(length).map_err(|_| Malformed(at))?)?;
            let text = || String::from_utf8_lossy(value).into_owned();
            let number = || ByteReader::new(value).u64();
            match id {
                1 => properties.keyspace = text(),
                2 => properties.family = text(),
                3 => properties.partitioner = text(),
                4 => properties.comparator = text(),
                5 => properties.subcolumn_comparator = text(),
                6 => properties.rows = number()?,
                7 => properties.cells = number()?,
                8 => properties.tombstones = number()?,
                9 => properties.min_local_deletion_time = number()? as i64 as i32,
                10 => properties.min_timestamp = number()? as i64,
                11 => properties.max_timestamp = number()? as i64,
                12 => properties.raw_bytes = number()?,
                13 => properties.largest_row_bytes = number()?,
                14 => properties.index_interval = number()?,
                15 => properties.created_at_micros = number()?,
                16 => properties.level = number()?,
                17 => properties.last_key = value.to_vec(),
                18 => properties.smallest_row_bytes = number()?,
                19 => properties.states = ByteReader::new(value).u8()?,
                20 => {
                    let mut row = ByteReader::new(value);
                    let (bytes, cells) = (row.u64()?, row.u64()?);
                    let key = RowKey::new(row.rest());
                    properties.widest_rows.push(WideRow { key, bytes, cells });
                }
                _ => {}
            }
        }
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_read_back_and_unknown_fields_are_passed_over() {
        let properties = Properties {
            keyspace: "Blog".into(),
            comparator: "x.BytesType".into(),
            rows: 7,
            smallest_row_bytes: 3,
            min_local_deletion_time: -3,
            min_timestamp: i64::MIN,
            level: 3,
            states: 7,
            last_key: b"zed".to_vec(),
            widest_rows: vec![WideRow { key: "ann".into(), bytes: 9000, cells: 300 }],
            ..Properties::default()
        };
        let mut stored = properties.encode();
        stored.put_varint(1000);
        stored.put_varint(2);
        stored.extend_from_slice(b"??");
        assert_eq!(Properties::decode(&stored), Ok(properties));
        stored.pop();
        assert!(Properties::decode(&stored).is_err());
    }
}
