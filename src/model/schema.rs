//! What a column family is, as far as its data are concerned.

use super::comparator::Comparator;
use std::cmp::Ordering;
use std::fmt;

/// A column family: names and order. Fixed by the configuration for the life of the process.
#[derive(Debug, Clone)]
pub struct ColumnFamilySchema {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Its name, unique within the keyspace; case matters.
    pub name: String,
    /// Standard or super, and how names sort.
    pub kind: ColumnFamilyKind,
    /// What `describe_keyspace` tells of it; `None` when the configuration has no `<Comment>`.
    pub comment: Option<String>,
}

/// The two types of column family, with their comparators.
#[derive(Debug, Clone)]
pub enum ColumnFamilyKind {
    /// Rows of columns.
    Standard {
        /// Order of the columns (`CompareWith`).
        columns: Comparator,
    },
    /// Rows of super columns, each of columns.
    Super {
        /// Order of the super columns (`CompareWith`).
        super_columns: Comparator,
        /// Order of the columns within a super column (`CompareSubcolumnsWith`).
        columns: Comparator,
    },
}

impl ColumnFamilySchema {
    /// Whether its rows hold super columns.
    pub fn is_super(&self) -> bool {
        matches!(self.kind, ColumnFamilyKind::Super { .. })
    }

    /// The comparator of `CompareWith`: of columns, or of super columns.
    pub fn comparator(&self) -> &Comparator {
        match &self.kind {
            ColumnFamilyKind::Standard { columns } => columns,
            ColumnFamilyKind::Super { super_columns, .. } => super_columns,
        }
    }

    /// The comparator of `CompareSubcolumnsWith`; `None` for a standard column family.
    pub fn subcolumn_comparator(&self) -> Option<&Comparator> {
        match &self.kind {
            ColumnFamilyKind::Standard { .. } => None,
            ColumnFamilyKind::Super { columns, .. } => Some(columns),
        }
    }

    /// Compares two places in a row: super column name first, then column name.
    /// In a standard column family the super column names are empty.
    pub fn compare(&self, a: (&[u8], &[u8]), b: (&[u8], &[u8])) -> Ordering {
        match &self.kind {
            ColumnFamilyKind::Standard { columns } => columns.compare(a.1, b.1),
            ColumnFamilyKind::Super { super_columns, columns } => {
                super_columns.compare(a.0, b.0).then_with(|| columns.compare(a.1, b.1))
            }
        }
    }
}

impl fmt::Display for ColumnFamilySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.name)
    }
}
