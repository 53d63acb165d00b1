//! What a column family is, as far as its data are concerned.

use super::cell::CellState;
use super::comparator::Comparator;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

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

    /// The comparator of the columns of a super column if one is given, else of the columns or
    /// super columns of a row.
    pub fn comparator_below(&self, super_name: Option<&[u8]>) -> &Comparator {
        let subcolumns = super_name.and(self.subcolumn_comparator());
        subcolumns.unwrap_or(self.comparator())
    }

    /// Whether two names are those of one super column: some orders know several names for the
    /// same.
    pub fn is_one_super_column(&self, one: &[u8], other: &[u8]) -> bool {
        one == other || self.is_super() && self.comparator().compare(one, other).is_eq()
    }

    /// Whether a cell can stand at this place. One that was written under another type or
    /// comparator cannot: it would be another column than it was, or unreachable.
    pub fn can_hold(&self, state: CellState, (super_name, name): (&[u8], &[u8])) -> bool {
        let deletes_super_column = state == CellState::SuperTombstone;
        match &self.kind {
            ColumnFamilyKind::Standard { columns } => {
                super_name.is_empty() && !deletes_super_column && columns.can_sort(name)
            }
            // A super column without a name can be deleted, as in 0.6, though it cannot exist.
            ColumnFamilyKind::Super { super_columns, columns } => {
                (deletes_super_column || !super_name.is_empty())
                    && super_columns.can_sort(super_name)
                    && columns.can_sort(name)
            }
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

/// Number of a column family within one [`Schema`]. Not stable across restarts: never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId(pub u32);

/// All column families of a node, by name and by number.
#[derive(Debug, Default)]
pub struct Schema {
    families: Vec<Arc<ColumnFamilySchema>>,
    keyspaces: BTreeMap<String, HashMap<String, FamilyId>>,
}

impl Schema {
    /// A schema of these column families. Of two with one name the last counts.
    pub fn new(families: impl IntoIterator<Item = Arc<ColumnFamilySchema>>) -> Self {
        let mut schema = Self::default();
        for family in families {
            let id = FamilyId(schema.families.len() as u32);
            let keyspace = schema.keyspaces.entry(family.keyspace.clone()).or_default();
            keyspace.insert(family.name.clone(), id);
            schema.families.push(family);
        }
        schema
    }

    /// Makes a keyspace known that has no column families.
    pub fn add_keyspace(&mut self, name: &str) {
        self.keyspaces.entry(name.to_owned()).or_default();
    }

    /// Whether a keyspace of this name exists; names are case-sensitive.
    pub fn has_keyspace(&self, name: &str) -> bool {
        self.keyspaces.contains_key(name)
    }

    /// Names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> impl Iterator<Item = &str> {
        self.keyspaces.keys().map(String::as_str)
    }

    /// The number of a column family.
    pub fn family_id(&self, keyspace: &str, name: &str) -> Option<FamilyId> {
        self.keyspaces.get(keyspace)?.get(name).copied()
    }

    /// The column family with this number.
    ///
    /// # Panics
    /// If the number is of another schema.
    pub fn family(&self, id: FamilyId) -> &Arc<ColumnFamilySchema> {
        &self.families[id.0 as usize]
    }

    /// All column families with their numbers, in the order of the numbers.
    pub fn families(&self) -> impl Iterator<Item = (FamilyId, &Arc<ColumnFamilySchema>)> {
        self.families.iter().enumerate().map(|(i, family)| (FamilyId(i as u32), family))
    }

    /// The column families of one keyspace, sorted by name.
    pub fn families_of(&self, keyspace: &str) -> Vec<&Arc<ColumnFamilySchema>> {
        let ids = self.keyspaces.get(keyspace).into_iter().flat_map(|families| families.values());
        let mut found: Vec<_> = ids.map(|id| self.family(*id)).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }
}
