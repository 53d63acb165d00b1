//! Keys and values that do not fit the types of their table.

use super::{Item, MOST_LISTED, Report, each_item};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
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
    fn check(&mut self, of_type: Option<&CqlType>, key: &RowKey, cell: Option<&Cell>) {
        let Some(of_type) = of_type else { return };
        let value = cell.map_or(key.as_bytes(), Cell::value);
        let Err(reason) = of_type.validate(value) else { return };
        if self.listed.len() == MOST_LISTED {
            self.more += 1;
            return;
        }
        let (key, cell) = (key.clone(), cell.cloned());
        self.listed.push(Misfit { key, cell, of_type: of_type.clone(), reason });
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
    let key_type = family.table.columns.first().map(|column| &column.of_type);
    each_item(fs, report, (family, partitioner), |item, position| {
        progress(position);
        match item {
            Item::Row { key, .. } => {
                row = key.into_key();
                found.check(key_type, &row, None);
            }
            Item::Cell(cell) if cell.is_live() || cell.expiry().is_some() => {
                found.check(family.table.value_type(cell.name()), &row, Some(&cell));
            }
            Item::Cell(_) | Item::Damage(_) => {}
        }
        Ok(())
    })?;
    Ok(found)
}
