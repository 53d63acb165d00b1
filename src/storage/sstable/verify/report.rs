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
    /// Some of them.
    pub keys: Vec<RowKey>,
    /// So many more.
    pub more: u64,
    /// If the rows cannot be told: the last row before the damage and the first behind it.
    pub between: Option<(Option<RowKey>, Option<RowKey>)>,
}

impl DamagedRows {
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

    /// Notes that a row has something in these bytes; false if they are not damaged.
    pub(super) fn concern(&mut self, range: &Range<u64>, key: &RowKey) -> bool {
        let mut any = false;
        for damage in &mut self.list {
            if damage.range.start < range.end && range.start < damage.range.end {
                damage.rows.add(key);
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
            Some(BlockKind::RowIndex) if self.rows.between.is_some() => self.rows.write_between(f),
            Some(BlockKind::Data | BlockKind::RowIndex) | None => write!(f, "{}", self.rows),
            // What these have told can be told from other blocks as well.
            Some(_) if self.rows.keys.is_empty() => Ok(()),
            Some(_) => write!(f, "{}", self.rows),
        }
    }
}

impl fmt::Display for DamagedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((first, others)) = self.keys.split_first() {
            let rows = if others.is_empty() && self.more == 0 { "row" } else { "rows" };
            write!(f, "; {rows} \"{first}\"")?;
            others.iter().try_for_each(|key| write!(f, ", \"{key}\""))?;
            if self.more > 0 {
                write!(f, " and {} more", self.more)?;
            }
            return Ok(());
        }
        self.write_between(f)
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
}
