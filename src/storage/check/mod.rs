//! Checks the SSTables of a stopped server, and reads what is sound of damaged ones.
//!
//! [`verify`] reads a file once and lists its faults in a [`Report`]. [`SoundRows`] streams the
//! rows that can be read, in token order, and the damage in between. [`salvage()`] writes these
//! rows to a new file and lists what is lost; tools print them.
//!
//! Reports and items of the stream do not depend on the format of a file. `blocks` is the source
//! for our own SSTables, `original` for those of 0.4 to 0.6.

mod blocks;
mod misfits;
mod original;
mod report;
mod salvage;
#[cfg(test)]
mod tests;

/// Most damages and losses that are listed.
const MOST_LISTED: usize = 1000;

pub use blocks::{SoundRows, verify};
pub use misfits::{Misfit, Misfits, find_misfits};
pub use original::{OriginalRows, verify_original};
pub use report::{Damage, NamedRows, Report};
pub use salvage::{Loss, Salvaged, salvage};

use super::error::{FileContext, FileError, ReadError};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use std::sync::Arc;

/// The family and the order of rows that a file should have, as far as the caller knows.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The column family; else what the file says of itself.
    pub family: Option<Arc<ColumnFamilySchema>>,
    /// The partitioner; else the one that the file names.
    pub partitioner: Option<Partitioner>,
}

/// One item in the stream of what a file holds.
#[derive(Debug)]
pub enum Item {
    /// The next row. Its cells follow, as far as they can be read.
    Row {
        /// Key and token.
        key: DecoratedKey,
        /// Deletion of the whole row.
        deletion: Deletion,
        /// Number of cells and greatest timestamp that the index of the file states.
        stated: Option<(u64, Option<i64>)>,
    },
    /// The next cell of the row.
    Cell(Cell),
    /// A place that cannot be read, anywhere in the file.
    Damage(Damage),
}

/// Passes on the items of a verified file, each with the number of bytes that are read.
fn each_item(
    fs: &dyn FileSystem,
    report: &Report,
    (family, partitioner): (&Arc<ColumnFamilySchema>, Partitioner),
    mut pass: impl FnMut(Item, u64) -> Result<(), FileError>,
) -> Result<(), ReadError> {
    if report.blocks.is_none() {
        let mut rows = OriginalRows::open(fs, &report.file, family, partitioner)?;
        while let Some(item) = rows.advance() {
            pass(item, rows.position())?;
        }
        return Ok(());
    }
    let file = fs.open(&report.file).context("open", &report.file)?;
    let mut rows = SoundRows::of(&*file, &report.file, partitioner)?;
    while let Some(item) = rows.advance() {
        pass(item, rows.position())?;
    }
    Ok(())
}
