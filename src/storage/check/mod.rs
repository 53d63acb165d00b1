//! Checks the SSTables of a stopped server, and reads what is sound of damaged ones.
//!
//! [`verify`] reads a file once and lists its faults in a [`Report`]. [`SoundRows`] streams the
//! rows that can be read, in token order, and the damage in between. [`salvage()`] writes these
//! rows to a new file and lists what is lost; tools print them.
//!
//! Reports and items of the stream do not depend on the format of a file. `blocks` is the source
//! for our own SSTables, `original` for those of 0.4 to 0.6.

mod blocks;
mod original;
mod report;
mod salvage;
#[cfg(test)]
mod tests;

/// Most damages and losses that are listed.
const MOST_LISTED: usize = 1000;

pub use blocks::{SoundRows, verify};
pub use original::{OriginalRows, verify_original};
pub use report::{Damage, NamedRows, Report};
pub use salvage::{Loss, Salvaged, salvage};

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
