//! Definitions of column families, as far as their data are concerned.

use super::cell::CellState;
use super::comparator::Comparator;
use super::range_deletion;
use super::table::{Declared, Table};
use crate::base::latest::Latest;
use crate::base::lock::{RwLock, rank};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// Bytes of the id at the end of the name of a table that was made over CQL, in hexadecimal digits
/// after a hyphen.
const ID_BYTES: usize = 33;

/// The definition of a column family. Column type and comparators do not change while the server
/// runs.
#[derive(Debug, Clone, derive_more::Display)]
#[display("{keyspace}.{name}")]
pub struct ColumnFamilySchema {
    /// The keyspace it belongs to.
    pub keyspace: String,
    /// Name of its files, and in records and messages, unique within the keyspace; case matters.
    /// That of a table that was made over CQL ends in an id, so that nothing that was meant for an
    /// earlier table of its name reaches it: see [`ColumnFamilySchema::table_name`].
    pub name: String,
    /// Standard or super, and how names sort.
    pub kind: ColumnFamilyKind,
    /// Text that `describe_keyspace` tells of it; `None` when the configuration has no `<Comment>`.
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

    /// The name of the files of a table that is made over CQL, whose rows have this id.
    pub fn stored_name(table: &str, rows: Uuid) -> String {
        format!("{table}-{}", rows.simple())
    }

    /// Whether this is the name of the files of a table that was made over CQL.
    pub fn is_of_cql(name: &str) -> bool {
        without_id(name).is_some()
    }

    /// The name in requests, and for people.
    pub fn table_name(&self) -> &str {
        without_id(&self.name).unwrap_or(&self.name)
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

/// The name of a table, from that of its files.
fn without_id(name: &str) -> Option<&str> {
    let (table, id) = name.split_at_checked(name.len().checked_sub(ID_BYTES)?)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    id.strip_prefix('-')?.bytes().all(is_digit).then_some(table)
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
    families: boxcar::Vec<Latest<Arc<ColumnFamilySchema>>>,
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
        let id = FamilyId(self.families.push(Latest::new(family)) as u32);
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

    /// Replaces the definition of a column family by one that differs in nothing that decides about
    /// its files.
    pub fn alter(&self, id: FamilyId, family: Arc<ColumnFamilySchema>) {
        let _one_at_a_time = self.keyspaces.write();
        self.families[id.0 as usize].set(family);
    }

    /// Makes a keyspace unknown, whose column families were removed.
    pub fn remove_keyspace(&self, name: &str) {
        self.keyspaces.write().remove(name);
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

    /// The number of the column family that requests name so.
    pub fn find(&self, keyspace: &str, table: &str) -> Option<FamilyId> {
        let keyspaces = self.keyspaces.read();
        let from =
            keyspaces.get(keyspace)?.range::<str, _>((Bound::Included(table), Bound::Unbounded));
        let mut same_start = from.map_while(|(name, id)| Some((name.strip_prefix(table)?, id)));
        let is_it = |rest: &str| rest.is_empty() || without_id(rest) == Some("");
        same_start.find(|(rest, _)| is_it(rest)).map(|(_, id)| *id)
    }

    /// The number of the column family of a name in files, records and messages.
    pub fn family_id(&self, keyspace: &str, name: &str) -> Option<FamilyId> {
        self.keyspaces.read().get(keyspace)?.get(name).copied()
    }

    /// The column family with this number, be it dropped, as it is defined now.
    ///
    /// # Panics
    /// If the number is of another schema.
    pub fn family(&self, id: FamilyId) -> &Arc<ColumnFamilySchema> {
        &self.families[id.0 as usize]
    }

    /// Whether the column family with this number was not dropped.
    pub fn exists(&self, id: FamilyId) -> bool {
        let family = self.family(id);
        self.family_id(&family.keyspace, &family.name) == Some(id)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn family(name: &str) -> Arc<ColumnFamilySchema> {
        let kind = ColumnFamilyKind::Standard { columns: Comparator::Bytes };
        Arc::new(ColumnFamilySchema::new("k".to_owned(), name.to_owned(), kind))
    }

    #[test]
    fn tables_are_found_by_the_name_before_the_id() {
        let [first, second] = [1, 2].map(Uuid::from_u128);
        let names = [ColumnFamilySchema::stored_name("t", first), "t-0".into(), "ta".into()];
        let schema = Schema::new(names.iter().map(|name| family(name)));
        let id = schema.find("k", "t").unwrap();
        assert_eq!(schema.family(id).table_name(), "t");
        assert_eq!(schema.family_id("k", &names[0]), Some(id));
        assert_eq!((schema.family_id("k", "t"), schema.find("k", "")), (None, None));
        let found = schema.find("k", "t-0").map(|id| schema.family(id).table_name());
        assert_eq!(found, Some("t-0"), "the hyphen of an old configuration is no id");
        schema.remove(id);
        assert_eq!(schema.find("k", "t"), None);
        let again = schema.insert(family(&ColumnFamilySchema::stored_name("t", second)));
        assert_eq!(schema.find("k", "t"), Some(again));
        assert_eq!(schema.family_id("k", &names[0]), None, "the earlier one is another");
    }

    #[test]
    fn an_altered_family_keeps_its_number() {
        let schema = Schema::new([family("t")]);
        let id = schema.find("k", "t").unwrap();
        let altered = ColumnFamilySchema { comment: Some("new".into()), ..(*family("t")).clone() };
        schema.alter(id, Arc::new(altered));
        assert_eq!(schema.family(id).comment.as_deref(), Some("new"));
    }
}
