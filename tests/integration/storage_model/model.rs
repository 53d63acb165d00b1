//! The model: all writes that were acknowledged, and what follows from them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How names sort.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// As unsigned bytes.
    Bytes,
    /// As signed numbers of eight bytes.
    Long,
}

impl Order {
    fn compare(self, a: &[u8], b: &[u8]) -> Ordering {
        let number = |name: &[u8]| i64::from_be_bytes(name.try_into().expect("eight bytes"));
        match self {
            Self::Bytes => a.cmp(b),
            Self::Long => number(a).cmp(&number(b)),
        }
    }
}

/// Subject of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// The whole row; can only be deleted.
    Row,
    /// A super column; can only be deleted.
    SuperColumn(Vec<u8>),
    /// A column; the super column name is empty in a standard family.
    Column(Vec<u8>, Vec<u8>),
}

/// One change to one row of one column family.
#[derive(Clone)]
pub(crate) struct Write {
    pub(crate) target: Target,
    /// `None` deletes.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) timestamp: i64,
    /// Seconds at which a deletion was made.
    pub(crate) deleted_at: i32,
    /// Tells writes apart.
    pub(crate) number: u64,
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            Target::Row => write!(f, "row")?,
            Target::SuperColumn(name) => write!(f, "{}:*", name.escape_ascii())?,
            Target::Column(super_name, name) => {
                write!(f, "{}:{}", super_name.escape_ascii(), name.escape_ascii())?;
            }
        }
        match &self.value {
            Some(value) => write!(f, "={}", value.escape_ascii())?,
            None => write!(f, " deleted in second {}", self.deleted_at)?,
        }
        write!(f, " @{} #{}", self.timestamp, self.number)
    }
}

/// A visible column: super column name, name, value, timestamp.
pub(crate) type Visible = (Vec<u8>, Vec<u8>, Vec<u8>, i64);

/// Question about a row.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) super_name: Option<Vec<u8>>,
    pub(crate) filter: Filter,
}

#[derive(Debug, Clone)]
pub(crate) enum Filter {
    Names(Vec<Vec<u8>>),
    Range { start: Vec<u8>, finish: Vec<u8>, reversed: bool, limit: usize },
}

/// The writes to one row of one column family, in the order in which they were acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) writes: Vec<Write>,
}

/// Timestamp that no deletion has.
const NEVER: i64 = i64::MIN;

impl Row {
    /// Timestamp and local time of the deletion that counts for a target: the one that deletes
    /// most, and of those the latest.
    fn deletion(&self, target: &Target) -> Option<(i64, i32)> {
        let of = self.writes.iter().filter(|w| w.target == *target && w.value.is_none());
        of.map(|w| (w.timestamp, w.deleted_at)).max()
    }

    fn deleted_up_to(&self, target: &Target) -> i64 {
        self.deletion(target).map_or(NEVER, |(timestamp, _)| timestamp)
    }

    /// Up to which timestamp a column of this super column is deleted from above.
    fn covered_up_to(&self, super_name: &[u8]) -> i64 {
        let above = Target::SuperColumn(super_name.to_vec());
        self.deleted_up_to(&Target::Row).max(self.deleted_up_to(&above))
    }

    fn columns(&self) -> BTreeSet<(&[u8], &[u8])> {
        let names = self.writes.iter().filter_map(|w| match &w.target {
            Target::Column(super_name, name) => Some((super_name.as_slice(), name.as_slice())),
            _ => None,
        });
        names.collect()
    }

    /// The write that counts for a column: the newest; on a tie a deletion, the greatest value,
    /// the latest deletion.
    fn winner(&self, super_name: &[u8], name: &[u8]) -> &Write {
        let target = Target::Column(super_name.to_vec(), name.to_vec());
        let all = self.writes.iter().filter(|w| w.target == target);
        let rank = |w: &Write| (w.timestamp, w.value.is_none(), w.value.clone(), w.deleted_at);
        all.max_by_key(|w| rank(w)).expect("the column was written")
    }

    /// All visible columns, by super column name and name as bytes.
    fn visible(&self) -> Vec<Visible> {
        let mut visible = Vec::new();
        for (super_name, name) in self.columns() {
            let winner = self.winner(super_name, name);
            let Some(value) = &winner.value else { continue };
            if winner.timestamp > self.covered_up_to(super_name) {
                let column = (super_name.to_vec(), name.to_vec(), value.clone(), winner.timestamp);
                visible.push(column);
            }
        }
        visible
    }

    /// Whether compaction must keep something of the row, whichever files it merges: a visible
    /// column, or a deletion in its grace period that no greater deletion makes superfluous.
    pub(crate) fn must_be_stored(&self, gc_before: i32) -> bool {
        let fresh = |deleted_at: i32| deleted_at > gc_before;
        let row = self.deletion(&Target::Row);
        if row.is_some_and(|(_, deleted_at)| fresh(deleted_at)) || !self.visible().is_empty() {
            return true;
        }
        let row_timestamp = row.map_or(NEVER, |(timestamp, _)| timestamp);
        let supers = self.writes.iter().filter_map(|w| match &w.target {
            Target::SuperColumn(name) => Some(name.as_slice()),
            _ => None,
        });
        let super_counts = |name: &[u8]| {
            let deletion = self.deletion(&Target::SuperColumn(name.to_vec()));
            // One at the least timestamp deletes nothing that could be visible.
            deletion.is_some_and(|(ts, at)| fresh(at) && ts > row_timestamp)
        };
        let mut columns = self.columns().into_iter().map(|(s, n)| (self.winner(s, n), s));
        supers.collect::<BTreeSet<_>>().into_iter().any(super_counts)
            || columns.any(|(winner, super_name)| {
                winner.value.is_none()
                    && fresh(winner.deleted_at)
                    && winner.timestamp > self.covered_up_to(super_name)
            })
    }

    /// The answer to a query: the visible columns, and how many columns or super columns it is.
    pub(crate) fn answer(&self, family: Family, query: &Query) -> (Vec<Visible>, usize) {
        let groups = query.super_name.is_none() && family.is_super;
        let order = if groups || !family.is_super { family.order } else { family.suborder };
        let mut elements: Vec<(Vec<u8>, Vec<Visible>)> = Vec::new();
        let mut visible = self.visible();
        visible.sort_by(|a, b| family.compare(a, b));
        for column in visible {
            if query.super_name.as_ref().is_some_and(|name| *name != column.0) {
                continue;
            }
            let name = if groups { column.0.clone() } else { column.1.clone() };
            match elements.last_mut() {
                Some((last, columns)) if groups && *last == name => columns.push(column),
                _ => elements.push((name, vec![column])),
            }
        }
        match &query.filter {
            Filter::Names(names) => elements.retain(|(name, _)| names.contains(name)),
            Filter::Range { start, finish, reversed, limit } => {
                let (least, greatest) = if *reversed { (finish, start) } else { (start, finish) };
                elements.retain(|(name, _)| {
                    (least.is_empty() || order.compare(least, name).is_le())
                        && (greatest.is_empty() || order.compare(name, greatest).is_le())
                });
                if *reversed {
                    elements.reverse();
                }
                elements.truncate(*limit);
            }
        }
        let count = elements.len();
        (elements.into_iter().flat_map(|(_, columns)| columns).collect(), count)
    }
}

/// Facts that the model has to know of a column family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) is_super: bool,
    /// Of columns in a standard family, of super columns in a super family.
    pub(crate) order: Order,
    /// Of columns in a super family.
    pub(crate) suborder: Order,
}

impl Family {
    fn compare(self, a: &Visible, b: &Visible) -> Ordering {
        if self.is_super {
            self.order.compare(&a.0, &b.0).then_with(|| self.suborder.compare(&a.1, &b.1))
        } else {
            self.order.compare(&a.1, &b.1)
        }
    }
}

/// All rows, by number of the family and key.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub(crate) rows: BTreeMap<(u32, Vec<u8>), Row>,
}

impl Model {
    /// Notes an acknowledged write.
    pub(crate) fn write(&mut self, family: u32, key: &[u8], write: Write) {
        self.rows.entry((family, key.to_vec())).or_default().writes.push(write);
    }

    /// The rows of a family.
    pub(crate) fn family(&self, family: u32) -> impl Iterator<Item = (&[u8], &Row)> {
        let rows = self.rows.iter().filter(move |((id, _), _)| *id == family);
        rows.map(|((_, key), row)| (key.as_slice(), row))
    }
}
