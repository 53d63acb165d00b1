//! What a verification has found.

use crate::model::key::RowKey;
use crate::storage::sstable::Properties;
use crate::storage::sstable::block::BlockKind;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// Most damages that are told one by one.
const MAX_DAMAGES: usize = 1000;

/// Most rows that are named for one damage.
const MAX_NAMED_ROWS: usize = 20;

/// What is in a file, and what is wrong with it.
#[derive(Debug)]
pub struct Report {
    /// The file.
    pub file: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// What it says of itself, if that can be read.
    pub properties: Option<Properties>,
    /// Rows in sound blocks.
    pub rows: u64,
    /// Cells in sound blocks.
    pub cells: u64,
    /// Whether rows and cells were looked at: for that the column family has to be known.
    pub has_rows: bool,
    /// Sound blocks.
    pub blocks: u64,
    /// Whether it was written for another column family than is expected, or with another
    /// comparator or partitioner: then it may be whole, but it is not for here.
    pub is_foreign: bool,
    /// What is wrong, in the order in which it was found.
    pub damages: Vec<Damage>,
    /// So many more are not told one by one.
    pub more_damages: u64,
}

impl Report {
    /// Whether the file is exactly what was written.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty()
    }
}

/// A damaged place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The bytes that are damaged, or that say something which is not so.
    pub range: Range<u64>,
    /// What block stands there, if that can be told.
    pub kind: Option<BlockKind>,
    /// What is wrong.
    pub fault: Fault,
    /// The rows that it concerns.
    pub rows: DamagedRows,
}

/// What is wrong with a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not what was written, or do not agree with others.
    Bytes(&'static str),
    /// Something is told of the whole file that is not so.
    Stated {
        /// What.
        what: &'static str,
        /// What the file says.
        stated: String,
        /// What is so.
        found: String,
    },
}

/// Rows that a damage concerns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DamagedRows {
    /// Those that may have lost something, if they can be told.
    pub named: NamedRows,
    /// Those that the row index has lost, while data blocks have them.
    pub unindexed: NamedRows,
    /// How many small rows are lost that stood here, if that can be told.
    pub small: Option<u64>,
    /// If the rows cannot be told: the last row before the damage and the first behind it.
    pub between: Option<(Option<RowKey>, Option<RowKey>)>,
}

/// Rows, of which not too many are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedRows {
    /// Some of them.
    pub keys: Vec<RowKey>,
    /// So many more.
    pub more: u64,
}

impl NamedRows {
    /// Adds a row, once.
    pub(super) fn add(&mut self, key: &RowKey) {
        if self.keys.last() == Some(key) {
            return;
        }
        if self.keys.len() < MAX_NAMED_ROWS {
            self.keys.push(key.clone());
        } else {
            self.more += 1;
        }
    }
}

/// Collects damages.
#[derive(Debug, Default)]
pub(super) struct Damages {
    pub(super) list: Vec<Damage>,
    pub(super) more: u64,
}

impl Damages {
    /// Adds one; its number, unless there are too many already.
    pub(super) fn add(
        &mut self,
        range: Range<u64>,
        kind: Option<BlockKind>,
        fault: Fault,
    ) -> Option<usize> {
        if self.list.len() >= MAX_DAMAGES {
            self.more += 1;
            return None;
        }
        self.list.push(Damage { range, kind, fault, rows: DamagedRows::default() });
        Some(self.list.len() - 1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// So many rows are not there that were written. If nothing but the row index is damaged, they
    /// are small ones that stood in it.
    pub(super) fn count_small(&mut self, lost: u64) {
        let is_of_index = |damage: &Damage| damage.kind == Some(BlockKind::RowIndex);
        // With several damages nobody can tell how many stood in each.
        let is_clear = lost == 0 || self.list.len() == 1;
        if is_clear && self.more == 0 && self.list.iter().all(is_of_index) {
            self.list.iter_mut().for_each(|damage| damage.rows.small = Some(lost));
        }
    }

    /// Notes that a row has something in these bytes; false if they are not damaged.
    pub(super) fn concern(&mut self, range: &Range<u64>, key: &RowKey) -> bool {
        let mut any = false;
        for damage in &mut self.list {
            if damage.range.start < range.end && range.start < damage.range.end {
                damage.rows.named.add(key);
                any = true;
            }
        }
        any
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(f, "byte {start}, {} bytes", end - start)?;
        if let Some(kind) = self.kind {
            write!(f, " ({} block)", kind.name())?;
        }
        match &self.fault {
            Fault::Bytes(reason) => write!(f, ": {reason}")?,
            Fault::Stated { what, stated, found } => {
                write!(f, ": {what} is {found}, not {stated}")?;
            }
        }
        match self.kind {
            // The small rows that stood there are not among those that can be named.
            Some(BlockKind::RowIndex) if self.rows.between.is_some() => {
                self.rows.write_small(f)?;
                self.rows.write_unindexed(f)
            }
            Some(BlockKind::Data | BlockKind::RowIndex) | None => write!(f, "{}", self.rows),
            // What these have told can be told from other blocks as well.
            Some(_) if self.rows.named.keys.is_empty() => Ok(()),
            Some(_) => write!(f, "{}", self.rows),
        }
    }
}

impl fmt::Display for NamedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, key) in self.keys.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}\"{key}\"")?;
        }
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

impl fmt::Display for DamagedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.named.keys.is_empty() {
            let is_one = self.named.keys.len() == 1 && self.named.more == 0;
            write!(f, "; {} {}", if is_one { "row" } else { "rows" }, self.named)?;
        }
        // Where a part of the row index stood as well, nothing names the small rows in it.
        if self.named.keys.is_empty() || !self.unindexed.keys.is_empty() {
            self.write_between(f)?;
        }
        self.write_unindexed(f)
    }
}

impl DamagedRows {
    fn write_between(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.between.as_ref() {
            Some((Some(before), Some(behind))) => {
                write!(f, "; rows from \"{before}\" to \"{behind}\" may have lost something")
            }
            Some((Some(before), None)) => {
                write!(f, "; row \"{before}\" and rows behind it may have lost something")
            }
            Some((None, Some(behind))) => {
                write!(f, "; rows before \"{behind}\" and it may have lost something")
            }
            Some((None, None)) => write!(f, "; any row may have lost something"),
            None => Ok(()),
        }
    }

    /// The small rows that stood in a block of the row index, all of each.
    fn write_small(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.small == Some(0) {
            return write!(f, "; no row is lost");
        }
        write!(f, "; small rows that stood there")?;
        match self.between.as_ref() {
            Some((Some(before), Some(behind))) => {
                write!(f, ", between \"{before}\" and \"{behind}\",")?;
            }
            Some((Some(before), None)) => write!(f, ", behind \"{before}\",")?,
            Some((None, Some(behind))) => write!(f, ", before \"{behind}\",")?,
            Some((None, None)) | None => {}
        }
        write!(f, " are lost")?;
        self.small.map_or(Ok(()), |small| write!(f, ": {small}"))
    }

    fn write_unindexed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unindexed.keys.is_empty() {
            return Ok(());
        }
        let rows = &self.unindexed;
        write!(f, "; missing in the index, and saved by scrub from sound data blocks: {rows}")
    }
}
