//! What a column family is, as far as its data are concerned.

use super::cell::CellState;
use super::comparator::Comparator;
use super::range_deletion;
use super::table::{Declared, Table};
use crate::base::lock::{RwLock, rank};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The definition of a column family. It does not change while the server runs.
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
    /// `GCGraceSeconds` (that of the server): how long deletions are kept for replicas that have
    /// missed them.
    pub gc_grace: Duration,
    /// `ReadRepairChance` (0.1, or 0 without consistency checks): the share of reads at ONE that
    /// compare replicas in the background.
    pub read_repair_chance: f64,
    /// The family as CQL sees it.
    pub table: Arc<Table>,
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
    /// A family with the grace period of 0.6, ten days, whose reads compare no replicas.
    pub fn new(keyspace: String, name: String, kind: ColumnFamilyKind) -> Self {
        let gc_grace = Duration::from_hours(240);
        let table = Arc::new(Table::of_family(&kind, &Declared::default()));
        Self { keyspace, name, kind, comment: None, gc_grace, read_repair_chance: 0.0, table }
    }

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

    /// Whether the rows of another column family can be read as rows of this one.
    pub fn sorts_as(&self, other: &Self) -> bool {
        let columns =
            |it: &Self| it.subcolumn_comparator().map_or_else(String::new, Comparator::class_name);
        Comparator::same_order(&self.comparator().class_name(), &other.comparator().class_name())
            && Comparator::same_order(&columns(self), &columns(other))
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
        let columns = self.subcolumn_comparator().unwrap_or(self.comparator());
        match state {
            CellState::RangeTombstone => {
                return super_name == self.range_super_name()
                    && range_deletion::is_range_of(self.comparator(), name);
            }
            CellState::PrefixTombstone
                if !columns.is_of_bytes() || name.is_empty() || name.contains(&0) =>
            {
                return false;
            }
            CellState::SuperTombstone if !name.is_empty() => return false,
            _ => {}
        }
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

    /// Compares two places in a row: range deletions first, then by super column name and column
    /// name. In a standard column family the super column names of all others are empty.
    pub fn compare(&self, a: (&[u8], &[u8]), b: (&[u8], &[u8])) -> Ordering {
        match &self.kind {
            ColumnFamilyKind::Standard { columns } if a.0.len() + b.0.len() == 0 => {
                columns.compare(a.1, b.1)
            }
            ColumnFamilyKind::Super { super_columns, columns }
                if !a.0.is_empty() && !b.0.is_empty() =>
            {
                super_columns.compare(a.0, b.0).then_with(|| columns.compare(a.1, b.1))
            }
            _ => self.compare_range_deletions(a, b),
        }
    }

    /// The same where one of the places may be that of a range deletion.
    #[cold]
    fn compare_range_deletions(&self, a: (&[u8], &[u8]), b: (&[u8], &[u8])) -> Ordering {
        match (self.is_range_deletion(a), self.is_range_deletion(b)) {
            (true, true) => a.1.cmp(b.1),
            (false, false) => self.comparator().compare(a.0, b.0).then_with(|| {
                let columns = self.subcolumn_comparator().unwrap_or(self.comparator());
                columns.compare(a.1, b.1)
            }),
            (is_first, _) => {
                if is_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
        }
    }

    /// Whether this is the place of a range deletion.
    pub fn is_range_deletion(&self, (super_name, name): (&[u8], &[u8])) -> bool {
        if self.is_super() { super_name.is_empty() && !name.is_empty() } else { super_name != b"" }
    }

    /// The super column name under which range deletions stand.
    pub fn range_super_name(&self) -> &'static [u8] {
        if self.is_super() { b"" } else { range_deletion::STANDARD_SUPER_NAME }
    }
}

impl fmt::Display for ColumnFamilySchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.keyspace, self.name)
    }
}

/// Number of a column family in the [`Schema`] of a running server. It means one family as long as
/// the server runs, also after that was dropped, and is never stored: the next start numbers anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FamilyId(pub u32);

/// All column families of a node, by name and by number. All parts of a server share one, in which
/// families are added and dropped while it runs.
#[derive(Debug, Default)]
pub struct Schema {
    /// By number, also those that were dropped: requests under way may still name them.
    families: boxcar::Vec<Arc<ColumnFamilySchema>>,
    keyspaces: RwLock<rank::Last, Keyspaces>,
}

/// The families that exist, by name.
type Keyspaces = BTreeMap<String, BTreeMap<String, FamilyId>>;

impl Schema {
    /// A schema of these column families. Of two with one name the last counts.
    pub fn new(families: impl IntoIterator<Item = Arc<ColumnFamilySchema>>) -> Self {
        let schema = Self::default();
        for family in families {
            schema.insert(family);
        }
        schema
    }

    /// Makes a column family known, and its keyspace. It takes the place of one with the same name.
    pub fn insert(&self, family: Arc<ColumnFamilySchema>) -> FamilyId {
        let mut keyspaces = self.keyspaces.write();
        let (keyspace, name) = (family.keyspace.clone(), family.name.clone());
        let id = FamilyId(self.families.push(family) as u32);
        keyspaces.entry(keyspace).or_default().insert(name, id);
        id
    }

    /// Makes the name of a column family unknown. Its number keeps its meaning.
    pub fn remove(&self, id: FamilyId) {
        let family = self.family(id);
        let mut keyspaces = self.keyspaces.write();
        if let Some(families) = keyspaces.get_mut(&family.keyspace)
            && families.get(&family.name) == Some(&id)
        {
            families.remove(&family.name);
        }
    }

    /// Makes a keyspace known that has no column families.
    pub fn add_keyspace(&self, name: &str) {
        self.keyspaces.write().entry(name.to_owned()).or_default();
    }

    /// Whether a keyspace of this name exists; names are case-sensitive.
    pub fn has_keyspace(&self, name: &str) -> bool {
        self.keyspaces.read().contains_key(name)
    }

    /// Names of all keyspaces, sorted.
    pub fn keyspaces(&self) -> Vec<String> {
        self.keyspaces.read().keys().cloned().collect()
    }

    /// The number of a column family.
    pub fn family_id(&self, keyspace: &str, name: &str) -> Option<FamilyId> {
        self.keyspaces.read().get(keyspace)?.get(name).copied()
    }

    /// The column family with this number, be it dropped.
    ///
    /// # Panics
    /// If the number is of another schema.
    pub fn family(&self, id: FamilyId) -> &Arc<ColumnFamilySchema> {
        &self.families[id.0 as usize]
    }

    /// The column families that exist, in the order of their numbers.
    pub fn families(&self) -> impl Iterator<Item = (FamilyId, &Arc<ColumnFamilySchema>)> {
        let keyspaces = self.keyspaces.read();
        let ids = keyspaces.values().flat_map(BTreeMap::values).copied();
        let mut ids: Vec<FamilyId> = ids.collect();
        ids.sort_unstable();
        ids.into_iter().map(|id| (id, self.family(id)))
    }

    /// The column families of one keyspace, sorted by name.
    pub fn families_of(&self, keyspace: &str) -> Vec<&Arc<ColumnFamilySchema>> {
        let keyspaces = self.keyspaces.read();
        let ids = keyspaces.get(keyspace).into_iter().flat_map(BTreeMap::values);
        ids.map(|id| self.family(*id)).collect()
    }
}
