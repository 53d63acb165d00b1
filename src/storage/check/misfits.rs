//! Keys and values that do not fit the types of their table.

use super::{Item, MOST_LISTED, Report, each_item};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::comparator::composite;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::table::Table;
use crate::model::types::{CqlType, InvalidValue};
use crate::ring::Partitioner;
use crate::storage::error::ReadError;
use std::sync::Arc;

/// A key or value that is none of its type.
#[derive(Debug)]
pub struct Misfit {
    /// The key of the row.
    pub key: RowKey,
    /// The cell; `None` if it is the key.
    pub cell: Option<Cell>,
    /// The type.
    pub of_type: CqlType,
    /// The fault.
    pub reason: InvalidValue,
}

/// Cells and keys of a file that do not fit their types.
#[derive(Debug, Default)]
pub struct Misfits {
    /// In the order of the file.
    pub listed: Vec<Misfit>,
    /// Number of others.
    pub more: u64,
}

impl Misfits {
    /// Checks a key, each part by itself if it has several.
    fn check_key(&mut self, table: &Table, key: &RowKey) {
        let columns = &table.columns[..table.key_length()];
        let parts: Option<Vec<&[u8]>> = match columns {
            [_] => Some(vec![key.as_bytes()]),
            _ => composite::components(key.as_bytes()).collect(),
        };
        if let Some(parts) = parts.filter(|parts| parts.len() == columns.len()) {
            for (column, part) in columns.iter().zip(parts) {
                self.check(&column.of_type, part, (key, None));
            }
            return;
        }
        let of_type = CqlType::Tuple(columns.iter().map(|it| it.of_type.clone()).collect());
        let reason = InvalidValue::new("It does not have a part for each column");
        self.add(Misfit { key: key.clone(), cell: None, of_type, reason });
    }

    fn check(&mut self, of_type: &CqlType, value: &[u8], (key, cell): (&RowKey, Option<&Cell>)) {
        let Err(reason) = of_type.validate(value) else { return };
        let (key, cell) = (key.clone(), cell.cloned());
        self.add(Misfit { key, cell, of_type: of_type.clone(), reason });
    }

    fn add(&mut self, misfit: Misfit) {
        if self.listed.len() == MOST_LISTED {
            self.more += 1;
        } else {
            self.listed.push(misfit);
        }
    }
}

/// Finds what does not fit among the rows of a verified file that can be read. `progress` gets the
/// number of bytes that are read.
pub fn find_misfits(
    fs: &dyn FileSystem,
    report: &Report,
    (family, partitioner): (&Arc<ColumnFamilySchema>, Partitioner),
    progress: &mut dyn FnMut(u64),
) -> Result<Misfits, ReadError> {
    let (mut found, mut row) = (Misfits::default(), RowKey::new(b""));
    each_item(fs, report, (family, partitioner), |item, position| {
        progress(position);
        match item {
            Item::Row { key, .. } => {
                row = key.into_key();
                found.check_key(&family.table, &row);
            }
            Item::Cell(cell) if cell.is_live() || cell.expiry().is_some() => {
                if let Some(of_type) = family.table.value_type(cell.name()) {
                    found.check(of_type, cell.value(), (&row, Some(&cell)));
                }
            }
            Item::Cell(_) | Item::Damage(_) => {}
        }
        Ok(())
    })?;
    Ok(found)
}
