//! Rows that operations write and read: what they are called and hold follows from their numbers,
//! so that a later run finds and checks them.

use super::trouble::{Trouble, TroubleKind};
use crate::thrift::idl::{Column, ColumnOrSuperColumn, SuperColumn};
use std::ops::Range;

/// Most rows: products with them fit into 64 bits.
const MAX_ROWS: u64 = 1_000_000_000;

const HEX: &[u8; 16] = b"0123456789abcdef";

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Rows {
    /// Rows of the column family
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..=MAX_ROWS))]
    pub(super) count: u64,

    /// Columns of a row or, with --super-columns, of a super column
    #[arg(short = 'c', long, value_name = "N", default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=MAX_ROWS))]
    pub(super) columns: u64,

    /// Bytes of a value
    #[arg(short = 'S', long, value_name = "BYTES", default_value_t = 32)]
    pub(super) column_size: usize,

    /// Super columns of a row, in a super column family
    #[arg(short = 'u', long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(super) super_columns: u64,

    /// Whether names of columns and timestamps are those of `stress.py`.
    #[arg(skip)]
    pub(super) of_old: bool,
}

impl Rows {
    /// The key of a row, with as many digits as the number of rows has.
    pub(super) fn key(&self, row: u64) -> String {
        format!("{row:0width$}", width = digits(self.count))
    }

    /// The row of a key, unless it belongs to other rows.
    pub(super) fn row_of(&self, key: &str) -> Option<u64> {
        let row = key.parse().ok()?;
        (key.len() == digits(self.count) && row < self.count).then_some(row)
    }

    /// The name of a column. Names sort by number, which those of `stress.py` did not.
    pub(super) fn name(&self, column: u64) -> String {
        let width = if self.of_old { 0 } else { digits(self.columns - 1) };
        format!("C{column:0width$}")
    }

    /// The value of a column: digits, as those of `stress.py`.
    fn value(&self, row: u64, super_column: u64, column: u64) -> Vec<u8> {
        let mut state = [row, super_column, column]
            .into_iter()
            .fold(0_u64, |it, part| mixed(it.wrapping_add(part)));
        let mut value = Vec::with_capacity(self.column_size + 16);
        while value.len() < self.column_size {
            state = mixed(state);
            value.extend((0..16).map(|at| HEX[(state >> (4 * at)) as usize & 15]));
        }
        value.truncate(self.column_size);
        value
    }

    /// A row as it is written, with these columns.
    pub(super) fn draft(&self, row: u64, columns: &Range<u64>) -> Draft {
        let values = (0..self.super_columns.max(1))
            .flat_map(|group| columns.clone().map(move |column| self.value(row, group, column)));
        Draft {
            key: self.key(row),
            super_names: (0..self.super_columns).map(super_name).collect(),
            names: columns.clone().map(|column| self.name(column)).collect(),
            values: values.collect(),
        }
    }

    /// Checks that columns of a row, or of one of its super columns, are all there and hold what
    /// they should.
    pub(super) fn check(
        &self,
        (row, super_column): (u64, u64),
        columns: &Range<u64>,
        found: &[ColumnOrSuperColumn<'_>],
    ) -> Result<(), Trouble> {
        let due = columns.end - columns.start;
        if (found.len() as u64) < due {
            let text = format!("row {} has {} of {due} columns", self.key(row), found.len());
            return Err(Trouble::new(TroubleKind::Missing, text));
        }
        for column in found.iter().filter_map(|cell| cell.column.as_ref()) {
            let number = std::str::from_utf8(column.name).ok();
            let number = number.and_then(|name| name.strip_prefix('C')?.parse().ok());
            let is_right = number.is_some_and(|number| {
                columns.contains(&number) && self.value(row, super_column, number) == column.value
            });
            if !is_right {
                let name = String::from_utf8_lossy(column.name);
                let text = format!("row {}, column {name}", self.key(row));
                return Err(Trouble::new(TroubleKind::WrongValue, text));
            }
        }
        Ok(())
    }
}

/// The name of a super column.
pub(super) fn super_name(number: u64) -> String {
    format!("S{number}")
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |it| it as usize + 1)
}

/// Mixes the bits of a number, as `SplitMix64` does: values must stay the same in later versions.
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// A row that is written.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) key: String,
    /// Of its super columns, if it has any.
    super_names: Vec<String>,
    names: Vec<String>,
    /// Those of a super column after those of another.
    values: Vec<Vec<u8>>,
}

impl Draft {
    /// Name and value of its first column.
    pub(super) fn first(&self) -> (&[u8], &[u8]) {
        let name = self.names.first().map_or("", String::as_str);
        (name.as_bytes(), self.values.first().map_or(&[], Vec::as_slice))
    }

    /// Its columns or super columns.
    pub(super) fn cells(&self, timestamp: i64) -> Vec<ColumnOrSuperColumn<'_>> {
        let mut groups = self.values.chunks(self.names.len()).map(|values| {
            let cells = self.names.iter().zip(values);
            cells.map(move |(name, value)| Column { name: name.as_bytes(), value, timestamp })
        });
        if self.super_names.is_empty() {
            return groups.next().into_iter().flatten().map(Into::into).collect();
        }
        let supers = self.super_names.iter().zip(groups).map(|(name, columns)| {
            SuperColumn { name: name.as_bytes(), columns: columns.collect() }.into()
        });
        supers.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: u64, columns: u64, column_size: usize) -> Rows {
        Rows { count, columns, column_size, super_columns: 0, of_old: false }
    }

    #[test]
    fn keys_and_names_are_those_of_the_original() {
        let mut rows = rows(1000, 5, 32);
        assert_eq!((rows.key(7), rows.key(999)), ("0007".into(), "0999".into()));
        assert_eq!(
            (rows.row_of("0007"), rows.row_of("1000"), rows.row_of("7")),
            (Some(7), None, None)
        );
        assert_eq!(rows.name(4), "C4");
        rows.columns = 11;
        assert_eq!(rows.name(4), "C04");
        rows.of_old = true;
        assert_eq!(rows.name(4), "C4");
    }

    #[test]
    fn values_never_change() {
        let short = rows(10, 5, 20).value(1, 2, 3);
        assert_eq!(short, b"5caaefce70c4d4125755");
        let long = rows(10, 5, 100).value(1, 2, 3);
        assert_eq!(long.len(), 100);
        assert!(long.starts_with(&rows(10, 5, 20).value(1, 2, 3)));
        assert_ne!(rows(10, 5, 20).value(1, 2, 3), rows(10, 5, 20).value(1, 3, 2));
    }

    #[test]
    fn a_wrong_row_is_told_from_a_right_one() {
        let rows = rows(1000, 5, 20);
        let draft = rows.draft(7, &(1..4));
        let cells = draft.cells(1);
        let check = |row, columns: Range<u64>, found: &[ColumnOrSuperColumn<'_>]| {
            rows.check((row, 0), &columns, found).map_err(|it| (it.kind, it.text))
        };
        assert_eq!(check(7, 1..4, &cells), Ok(()));
        let missing = (TroubleKind::Missing, "row 0007 has 3 of 4 columns".to_owned());
        assert_eq!(check(7, 1..5, &cells), Err(missing));
        let wrong = |text: &str| Err((TroubleKind::WrongValue, text.to_owned()));
        assert_eq!(check(8, 1..4, &cells), wrong("row 0008, column C1"));
        assert_eq!(check(7, 2..4, &cells), wrong("row 0007, column C1"));
        let strange = Column { name: b"\xff", value: b"", timestamp: 1 };
        assert_eq!(check(7, 1..2, &[strange.into()]), wrong("row 0007, column \u{FFFD}"));
    }
}
