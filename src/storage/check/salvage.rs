//! Saves the sound rows of a damaged file, and tells what is lost.

use super::{Item, MOST_LISTED, Report, each_item};
use crate::base::fs::FileSystem;
use crate::model::cell::Cell;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::{FileError, ReadError};
use crate::storage::sstable::SplitWriter;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Saved and lost contents of a file.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// Rows that were saved, whole or in part.
    pub rows: u64,
    /// Cells that were saved.
    pub cells: u64,
    /// Losses; empty if everything that was written is saved.
    pub losses: Vec<Loss>,
    /// Number of losses that are not in the list.
    pub more_losses: u64,
}

/// Something that could not be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Cells of a row.
    Cells {
        /// The row.
        key: RowKey,
        /// Number of its cells that are lost.
        lost: u64,
        /// Number of cells that it had.
        of: u64,
    },
    /// Unknown cells and deletions of rows, between two rows.
    Unknown {
        /// Their place in the file.
        range: Range<u64>,
        /// The fault of that place.
        reason: &'static str,
        /// The last row that is there before it.
        after: Option<RowKey>,
        /// The first that is there after it.
        before: Option<RowKey>,
    },
    /// Rows and cells altogether, by the numbers that the file states.
    Counted {
        /// Rows.
        rows: u64,
        /// Cells.
        cells: u64,
    },
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cells { key, lost, of } => {
                write!(f, "row \"{key}\" has lost {lost} of its {of} cells")
            }
            Self::Unknown { range, reason, after, before } => {
                write!(f, "byte {}, {} bytes: {reason}", range.start, range.end - range.start)?;
                match (after, before) {
                    (Some(after), Some(before)) => {
                        write!(f, "; what was there of rows from \"{after}\" to \"{before}\"")
                    }
                    (Some(after), None) => {
                        write!(f, "; what was there of \"{after}\" and rows behind it")
                    }
                    (None, Some(before)) => {
                        write!(f, "; what was there of \"{before}\" and rows before it")
                    }
                    (None, None) => write!(f, "; whatever was there"),
                }
            }
            Self::Counted { rows, cells } => {
                write!(f, "{rows} rows and {cells} cells altogether")
            }
        }
    }
}

/// Writes the rows of a verified file that can be read to `sink`, which the caller finishes.
/// `progress` gets the number of bytes that are read.
pub fn salvage(
    fs: &dyn FileSystem,
    report: &Report,
    (family, partitioner): (&Arc<ColumnFamilySchema>, Partitioner),
    sink: &mut SplitWriter<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<Salvaged, ReadError> {
    let mut run = Run { family, sink, row: None, result: Salvaged::default() };
    each_item(fs, report, (family, partitioner), |item, position| {
        progress(position);
        run.save(item)
    })?;
    run.end_row()?;
    for gap in &report.gaps {
        run.lose(gap.clone());
    }
    run.result.more_losses += report.more_gaps;
    if report.found.is_none() {
        let (range, reason) = (0..report.size, "its rows were not checked");
        run.lose(Loss::Unknown { range, reason, after: None, before: None });
    }
    Ok(settle(run.result, report))
}

/// Drops losses of which nothing is missing: the file states how much was written.
fn settle(mut result: Salvaged, report: &Report) -> Salvaged {
    let Some((rows, cells)) = report.stated else { return result };
    let (rows, cells) = (rows.saturating_sub(result.rows), cells.saturating_sub(result.cells));
    if rows == 0 && cells == 0 {
        result.losses.clear();
        result.more_losses = 0;
        return result;
    }
    let named = result.losses.iter().filter_map(|loss| match loss {
        Loss::Cells { lost, of, .. } => Some((*lost, u64::from(lost == of))),
        Loss::Unknown { .. } | Loss::Counted { .. } => None,
    });
    let (named_cells, named_rows) =
        named.fold((0, 0), |sum, (cells, row)| (sum.0 + cells, sum.1 + row));
    if result.more_losses == 0 && named_cells == cells && rows <= named_rows {
        // The index tells exactly what has stood there.
        result.losses.retain(|loss| !matches!(loss, Loss::Unknown { .. }));
    }
    result.losses.push(Loss::Counted { rows, cells });
    result
}

/// The row that is being saved. One with neither a deletion nor cells is not begun.
struct SavedRow {
    key: DecoratedKey,
    deletion: Deletion,
    /// Number of cells that it had.
    of: u64,
    cells: u64,
    is_begun: bool,
}

struct Run<'a, 'b> {
    family: &'a ColumnFamilySchema,
    sink: &'a mut SplitWriter<'b>,
    row: Option<SavedRow>,
    result: Salvaged,
}

impl Run<'_, '_> {
    fn save(&mut self, item: Item) -> Result<(), FileError> {
        match item {
            Item::Row { key, deletion, stated } => {
                self.end_row()?;
                let of = stated.map_or(0, |(cells, _)| cells);
                self.begin_row(SavedRow { key, deletion, of, cells: 0, is_begun: false })
            }
            Item::Cell(cell) => self.cell(&cell),
            // The report has its gaps, each with the rows around it.
            Item::Damage(_) => Ok(()),
        }
    }

    fn begin_row(&mut self, mut row: SavedRow) -> Result<(), FileError> {
        if !row.deletion.is_none() {
            self.sink.begin_row(&row.key, row.deletion)?;
            row.is_begun = true;
        }
        self.row = Some(row);
        Ok(())
    }

    fn cell(&mut self, cell: &Cell) -> Result<(), FileError> {
        // A cell whose name has no place in the order of names could not be found again.
        if let Some(row) = &mut self.row
            && self.family.can_hold(cell.state(), cell.place())
        {
            if !std::mem::replace(&mut row.is_begun, true) {
                self.sink.begin_row(&row.key, row.deletion)?;
            }
            self.sink.push(cell)?;
            row.cells += 1;
        }
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), FileError> {
        let Some(SavedRow { key, of, cells, is_begun, .. }) = self.row.take() else {
            return Ok(());
        };
        if is_begun {
            self.sink.end_row()?;
            self.result.rows += 1;
            self.result.cells += cells;
        }
        let lost = of.saturating_sub(cells);
        if lost > 0 {
            self.lose(Loss::Cells { key: key.into_key(), lost, of });
        }
        Ok(())
    }

    fn lose(&mut self, loss: Loss) {
        if self.result.losses.len() < MOST_LISTED {
            self.result.losses.push(loss);
        } else {
            self.result.more_losses += 1;
        }
    }
}
