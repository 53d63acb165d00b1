//! Faults of a file, and their texts.

use super::Loss;
use crate::model::key::RowKey;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// Most rows that are named for one damage.
const MAX_NAMED_ROWS: usize = 20;

/// Contents and faults of a file.
#[derive(Debug)]
pub struct Report {
    /// The file.
    pub file: PathBuf,
    /// Its size in bytes.
    pub size: u64,
    /// Numbers of rows and cells that the file states, if that can be read.
    pub stated: Option<(u64, u64)>,
    /// Numbers of rows and cells in sound blocks; `None` if the column family is not known.
    pub found: Option<(u64, u64)>,
    /// Tombstones of cells and super columns, in sound blocks.
    pub tombstones: u64,
    /// Sound blocks; `None` for an SSTable of the original, which has none.
    pub blocks: Option<u64>,
    /// Whether it was written for another column family than is expected, or with another
    /// comparator or partitioner: then it may be whole, but it does not belong here.
    pub is_foreign: bool,
    /// Faults, in the order in which they were found.
    pub damages: Vec<Damage>,
    /// Number of faults that are not in the list.
    pub more_damages: u64,
    /// Places where rows may be lost, each with the rows around it.
    pub(super) gaps: Vec<Loss>,
    /// Number of gaps that are not in the list.
    pub(super) more_gaps: u64,
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
    /// The damaged bytes, or those that make a wrong statement.
    pub range: Range<u64>,
    /// Name of the part of the file that stands there, if that is known; or another file of the
    /// SSTable, whose bytes these are.
    pub part: Option<&'static str>,
    /// The fault.
    pub reason: Cow<'static, str>,
    /// Rows that may have lost something, if they are known.
    pub named: NamedRows,
    /// Rows that the index has lost, and the data have.
    pub unindexed: NamedRows,
    /// If the rows are not known: the last row before the damage and the first after it.
    pub between: Option<(Option<RowKey>, Option<RowKey>)>,
    /// Whether small rows are lost whole, and how many if that is known.
    pub small: Option<Option<u64>>,
}

impl Damage {
    /// Damage of which no row is known.
    pub fn new(
        range: Range<u64>,
        part: Option<&'static str>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (named, unindexed) = (NamedRows::default(), NamedRows::default());
        let reason = reason.into();
        Self { range, part, reason, named, unindexed, between: None, small: None }
    }
}

/// Rows, of which not too many are named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedRows {
    /// Some of them.
    pub keys: Vec<RowKey>,
    /// Number of the others.
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

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.range;
        write!(f, "byte {start}, {} bytes", end - start)?;
        if let Some(part) = self.part {
            let kind = if part.contains('.') { "" } else { " block" };
            write!(f, " ({part}{kind})")?;
        }
        write!(f, ": {}", self.reason)?;
        if let Some(lost) = self.small {
            // Nothing names the small rows that stood there.
            self.write_small(lost, f)?;
            return self.write_unindexed(f);
        }
        if !self.named.keys.is_empty() {
            let is_one = self.named.keys.len() == 1 && self.named.more == 0;
            write!(f, "; {} {}", if is_one { "row" } else { "rows" }, self.named)?;
        }
        // Where a part of the index stood as well, the small rows in it have no names.
        if self.named.keys.is_empty() || !self.unindexed.keys.is_empty() {
            self.write_between(f)?;
        }
        self.write_unindexed(f)
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

impl Damage {
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

    fn write_small(&self, lost: Option<u64>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if lost == Some(0) {
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
        lost.map_or(Ok(()), |lost| write!(f, ": {lost}"))
    }

    fn write_unindexed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unindexed.keys.is_empty() {
            return Ok(());
        }
        let rows = &self.unindexed;
        write!(f, "; missing in the index, and saved by scrub from sound data blocks: {rows}")
    }
}
