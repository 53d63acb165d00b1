//! Calls of clients and their answers, in terms that have nothing to do with the product.

use alexandra::coordinator::ConsistencyLevel;
use std::fmt;

/// Rows of each family.
pub(crate) const ROWS: u8 = 6;
/// Columns of a row of the standard family, and of each super column.
pub(crate) const COLUMNS: u8 = 5;
/// Super columns of a row of the super family.
pub(crate) const GROUPS: u8 = 3;

/// Which column family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Standard,
    Super,
}

impl Family {
    pub(crate) const ALL: [Self; 2] = [Self::Standard, Self::Super];

    /// The numbers of its super columns; a standard family has one that goes without saying.
    pub(crate) fn groups(self) -> std::ops::Range<u8> {
        0..if self == Self::Super { GROUPS } else { 1 }
    }
}

/// The place of one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) family: Family,
    pub(crate) row: u8,
    pub(crate) group: u8,
    pub(crate) column: u8,
}

impl Place {
    /// All places of a row, in the order of an answer.
    pub(crate) fn of_row(family: Family, row: u8) -> impl Iterator<Item = Self> {
        family.groups().flat_map(move |group| Self::of_group(family, row, group))
    }

    /// All places of a super column.
    pub(crate) fn of_group(family: Family, row: u8, group: u8) -> impl Iterator<Item = Self> {
        (0..COLUMNS).map(move |column| Self { family, row, group, column })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, row, group, column } = self;
        match family {
            Family::Standard => write!(f, "r{row}/c{column}"),
            Family::Super => write!(f, "R{row}/s{group}/c{column}"),
        }
    }
}

/// Value of a column as it was written. The greatest counts: that of the latest timestamp, at a tie
/// a deletion, and else the greater value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Rank {
    pub(crate) timestamp: i64,
    /// `None` for a deletion.
    pub(crate) value: Option<u64>,
}

impl Rank {
    pub(crate) fn is_deletion(&self) -> bool {
        self.value.is_none()
    }

    fn key(&self) -> (i64, bool, u64) {
        (self.timestamp, self.value.is_none(), self.value.unwrap_or(0))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(value) => write!(f, "{value}@{}", self.timestamp),
            None => write!(f, "deleted@{}", self.timestamp),
        }
    }
}

/// A part of a mutation.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change {
    Insert { group: u8, column: u8, rank: Rank },
    DeleteColumn { group: u8, column: u8, timestamp: i64 },
    DeleteGroup { group: u8, timestamp: i64 },
    DeleteRow { timestamp: i64 },
}

/// A mutation of one row of one family.
#[derive(Debug, Clone)]
pub(crate) struct RowChange {
    pub(crate) family: Family,
    pub(crate) row: u8,
    pub(crate) changes: Vec<Change>,
}

impl RowChange {
    /// Its effect on each column, of several changes the one that counts.
    pub(crate) fn effects(&self) -> Vec<(Place, Rank)> {
        let deletion = |timestamp| Rank { timestamp, value: None };
        let effect = |place: Place| {
            let ranks = self.changes.iter().filter_map(|change| match *change {
                Change::Insert { group, column, rank } => {
                    (place.group == group && place.column == column).then_some(rank)
                }
                Change::DeleteColumn { group, column, timestamp } => {
                    (place.group == group && place.column == column).then_some(deletion(timestamp))
                }
                Change::DeleteGroup { group, timestamp } => {
                    (place.group == group).then_some(deletion(timestamp))
                }
                Change::DeleteRow { timestamp } => Some(deletion(timestamp)),
            });
            Some((place, ranks.max()?))
        };
        Place::of_row(self.family, self.row).filter_map(effect).collect()
    }
}

/// Which columns of a row a read wants.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    Whole,
    /// Columns of the standard family, or whole super columns, by name.
    Names(Vec<u8>),
    /// Columns of the standard family or of a super column, or super columns.
    Range {
        group: Option<u8>,
        start: Option<u8>,
        finish: Option<u8>,
        reversed: bool,
        limit: usize,
    },
    /// The columns of one super column.
    Group(u8),
}

/// Call of a client.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Write(Vec<RowChange>),
    Read {
        family: Family,
        rows: Vec<u8>,
        selection: Selection,
    },
    Count {
        family: Family,
        row: u8,
        group: Option<u8>,
    },
    /// The first rows behind the token of this one, and perhaps on from the beginning of the ring.
    Scan {
        family: Family,
        behind: Option<u8>,
        wraps: bool,
        max_rows: usize,
        selection: Selection,
    },
}

/// One call of a client.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) client: usize,
    pub(crate) node: usize,
    pub(crate) level: ConsistencyLevel,
    pub(crate) operation: Operation,
}

impl Call {
    /// Whether it is a write whose rows are all written in the end if one is. Some clients make
    /// such of all that they write to several rows.
    pub(crate) fn is_batch(&self) -> bool {
        let rows = match &self.operation {
            Operation::Write(rows) => rows.len(),
            _ => 0,
        };
        rows > 1 && self.client % 2 == 1 && self.level != ConsistencyLevel::Zero
    }
}

/// The columns of a row that an answer shows, in its order.
pub(crate) type RowAnswer = (u8, Vec<(Place, Rank)>);

/// Answer to a client.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Outcome {
    Written,
    Rows(Vec<RowAnswer>),
    Counted(usize),
    Unavailable,
    TimedOut,
    Failed(String),
    /// Something that nobody can have written.
    Nonsense(String),
    /// The node went down.
    Lost,
}

/// Events in the order in which they happened.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Begin(usize, Call),
    End(usize, Outcome),
    /// A node went down, paused, was cut off: for people who read the history.
    Fault(String),
    /// Whether from now on all nodes know the same ring, in which nobody comes or goes.
    Ring {
        is_settled: bool,
    },
    /// All hints have been delivered.
    Settled,
}

/// All that happened, with the times in milliseconds.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) events: Vec<(u64, Event)>,
}

impl History {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.events.push((at, event));
    }

    /// The last faults, and what was done with a row.
    pub(crate) fn tell(&self, row: Option<(Family, u8)>) -> String {
        let mut text = String::new();
        let mut shown = std::collections::BTreeSet::new();
        for (at, event) in &self.events {
            let line = match event {
                Event::Fault(what) => format!("{at:>7} ---- {what}\n"),
                Event::Ring { is_settled } => format!("{at:>7} ---- ring settled: {is_settled}\n"),
                Event::Begin(number, call) if row.is_none_or(|row| call.touches(row)) => {
                    shown.insert(*number);
                    format!("{at:>7} #{number} {call}\n")
                }
                Event::End(number, outcome) if shown.contains(number) => {
                    format!("{at:>7} #{number} => {}\n", outcome.tell(row))
                }
                _ => continue,
            };
            text.push_str(&line);
        }
        text
    }
}

impl Call {
    fn touches(&self, (family, row): (Family, u8)) -> bool {
        match &self.operation {
            Operation::Write(rows) => rows.iter().any(|it| (it.family, it.row) == (family, row)),
            Operation::Read { family: read, rows, .. } => *read == family && rows.contains(&row),
            Operation::Count { family: read, row: counted, .. } => {
                (*read, *counted) == (family, row)
            }
            Operation::Scan { family: read, .. } => *read == family,
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client {} at node {} {:?}: ", self.client, self.node, self.level)?;
        match &self.operation {
            Operation::Write(rows) => {
                f.write_str("write")?;
                for row in rows {
                    write!(f, " {:?}/{}{:?}", row.family, row.row, row.changes)?;
                }
                Ok(())
            }
            other => write!(f, "{other:?}"),
        }
    }
}

impl Outcome {
    fn tell(&self, row: Option<(Family, u8)>) -> String {
        let Self::Rows(rows) = self else { return format!("{self:?}") };
        let told = rows.iter().filter(|(number, _)| row.is_none_or(|(_, row)| row == *number));
        let texts = told.map(|(number, cells)| {
            let cells = cells.iter().map(|(place, rank)| format!("{place}={rank}"));
            format!("[{number}: {}]", cells.collect::<Vec<_>>().join(", "))
        });
        texts.collect::<Vec<_>>().join(" ")
    }
}
