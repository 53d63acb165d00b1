//! Writes the rows of SSTables as JSON, one cell after the other.

use super::text::key_text;
use super::{PREFIX, RANGE};
use crate::model::cell::{Cell, CellState, Expiry};
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::model::slice::CellRange;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::ReadError;
use crate::storage::row::{FoundRow, RowReader, RowSources};
use crate::storage::rows::MergedRows;
use crate::storage::sstable::{Access, Blocks, SsTable, filter};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// Bytes of a value that are turned into digits at a time.
const HEX_CHUNK: usize = 4096;

/// The rows to be exported.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Only these; all if there are none.
    pub keys: BTreeSet<RowKey>,
    /// But not these.
    pub excluded: BTreeSet<RowKey>,
}

/// Contents of a row in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Everything.
    Full,
    /// The contents that `sstable2json` of 0.6 writes: neither deletions of rows nor the local
    /// deletion times of super columns.
    Original,
}

/// Exported rows.
#[derive(Debug, Default)]
pub struct Exported {
    /// Rows.
    pub rows: u64,
    /// Deletions of rows and super columns, and cells that 0.6 does not have, that the shape has no
    /// place for.
    pub left_out: u64,
    /// Rows of which something could not be read, with the reason.
    pub damaged: Vec<(RowKey, ReadError)>,
}

/// Reason why an export ended early.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The rows after those that were written cannot be found.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output cannot be written.
    #[error("cannot write the output: {0}")]
    Write(#[from] io::Error),
}

/// Exports the rows of these SSTables of one column family, merged, as one JSON object. A row that
/// cannot be read to its end is written as far as it can. `progress` hears of each row.
pub fn export(
    tables: &[SsTable],
    (family, partitioner): (&ColumnFamilySchema, Partitioner),
    (selection, shape): (&Selection, Shape),
    out: &mut dyn Write,
    progress: &mut dyn FnMut(&Exported),
) -> Result<Exported, ExportError> {
    let mut run = Run { family, shape, out, result: Exported::default() };
    run.out.write_all(b"{\n")?;
    let wanted = |key: &RowKey| !selection.excluded.contains(key);
    if selection.keys.is_empty() {
        let mut rows = MergedRows::of_whole(tables)?;
        while let Some((key, sources)) = rows.advance()? {
            if wanted(key.key()) {
                run.row(key.key(), sources)?;
                progress(&run.result);
            }
        }
    } else {
        let keys = selection.keys.iter().filter(|key| wanted(key));
        let mut keys: Vec<DecoratedKey> =
            keys.map(|key| partitioner.decorate(key.clone())).collect();
        keys.sort();
        for key in keys {
            let hash = filter::hash(key.key().as_bytes());
            let holders = tables.iter().filter(|table| table.may_contain(&key, hash));
            let blocks: Vec<_> = holders.map(|t| Blocks::new(t, Access::Bypass)).collect();
            let found = FoundRow::find_all(&blocks, &key, hash)?;
            if !found.is_empty() {
                run.row(key.key(), found.iter().map(FoundRow::source).collect())?;
                progress(&run.result);
            }
        }
    }
    let end: &[u8] = if run.result.rows == 0 { b"}\n" } else { b"\n}\n" };
    run.out.write_all(end)?;
    run.out.flush()?;
    Ok(run.result)
}

struct Run<'a> {
    family: &'a ColumnFamilySchema,
    shape: Shape,
    out: &'a mut dyn Write,
    result: Exported,
}

impl Run<'_> {
    fn row(&mut self, key: &RowKey, sources: RowSources<'_>) -> io::Result<()> {
        if self.result.rows > 0 {
            self.out.write_all(b",\n")?;
        }
        self.result.rows += 1;
        let reader = RowReader::of_everything(self.family, sources);
        self.out.write_all(b"  ")?;
        serde_json::to_writer(&mut *self.out, &key_text(key.as_bytes()))?;
        self.out.write_all(if self.family.is_super() { b": { " } else { b": [" })?;
        let mut row = OpenRow { super_name: None, is_empty: true };
        self.row_deletion(reader.deletion(), &mut row)?;
        let mut cells = match reader.cells(CellRange::ALL, false) {
            Ok(cells) => Some(cells),
            Err(error) => {
                self.result.damaged.push((key.clone(), error));
                None
            }
        };
        while let Some(merged) = &mut cells {
            match merged.advance() {
                Ok(Some(cell)) if self.family.is_super() => self.subcolumn(&cell, &mut row)?,
                Ok(Some(cell)) => self.column(&cell, &mut row)?,
                Ok(None) => break,
                Err(error) => {
                    self.result.damaged.push((key.clone(), error));
                    break;
                }
            }
        }
        if row.super_name.is_some() {
            self.out.write_all(b"]}")?;
        }
        self.out.write_all(if self.family.is_super() { b"}" } else { b"]" })
    }

    fn row_deletion(&mut self, deletion: Deletion, row: &mut OpenRow) -> io::Result<()> {
        if deletion.is_none() {
            return Ok(());
        }
        if self.shape == Shape::Original {
            self.result.left_out += 1;
            return Ok(());
        }
        row.is_empty = false;
        let Deletion { marked_for_delete_at: at, local_deletion_time: time } = deletion;
        let members = format!("\"deletedAt\": {at}, \"localDeletionTime\": {time}");
        if self.family.is_super() {
            write!(self.out, "{members}")
        } else {
            write!(self.out, "{{{members}}}")
        }
    }

    fn subcolumn(&mut self, cell: &Cell, row: &mut OpenRow) -> io::Result<()> {
        // Two names of a number are one super column, which a JSON object has once.
        let order = |last: &[u8]| self.family.comparator().compare(last, cell.super_name());
        let is_same = row.super_name.as_deref().is_some_and(|last| order(last).is_eq());
        // Range deletions stand before that of the super column without a name.
        if !is_same || cell.super_deletion().is_some() {
            if row.super_name.is_some() {
                self.out.write_all(b"]}, ")?;
            } else if !row.is_empty {
                self.out.write_all(b", ")?;
            }
            let deletion = cell.super_deletion().unwrap_or(Deletion::NONE);
            self.out.write_all(b"\"")?;
            write_hex(self.out, cell.super_name())?;
            write!(self.out, "\": {{\"deletedAt\": {}", deletion.marked_for_delete_at)?;
            if !deletion.is_none() && self.shape == Shape::Full {
                write!(self.out, ", \"localDeletionTime\": {}", deletion.local_deletion_time)?;
            } else if !deletion.is_none() {
                self.result.left_out += 1;
            }
            self.out.write_all(b", \"subColumns\": [")?;
            *row = OpenRow { super_name: Some(cell.super_name().into()), is_empty: true };
        }
        // The deletion of the super column was its first cell.
        if cell.super_deletion().is_some() {
            return Ok(());
        }
        self.column(cell, row)
    }

    fn column(&mut self, cell: &Cell, row: &mut OpenRow) -> io::Result<()> {
        if !cell.state().is_original() && self.shape == Shape::Original {
            self.result.left_out += 1;
            return Ok(());
        }
        self.out.write_all(if row.is_empty { b"[\"" } else { b", [\"" })?;
        row.is_empty = false;
        write_hex(self.out, cell.name())?;
        self.out.write_all(b"\", \"")?;
        write_hex(self.out, cell.value())?;
        let rest = match (cell.state(), cell.expiry()) {
            (_, Some(Expiry { ttl, at })) => format!("false, {ttl}, {at}"),
            (CellState::PrefixTombstone, _) => format!("\"{PREFIX}\""),
            (CellState::RangeTombstone, _) => format!("\"{RANGE}\""),
            _ => (!cell.is_live()).to_string(),
        };
        write!(self.out, "\", {}, {rest}]", cell.timestamp())
    }
}

/// A row that is being written.
struct OpenRow {
    super_name: Option<Box<[u8]>>,
    /// Whether the innermost array or object that is open has nothing in it.
    is_empty: bool,
}

fn write_hex(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 2 * HEX_CHUNK];
    for chunk in bytes.chunks(HEX_CHUNK) {
        for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(chunk) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        out.write_all(&digits[..2 * chunk.len()])?;
    }
    Ok(())
}
