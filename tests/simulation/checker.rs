//! Judges a history by rules of its own.
//!
//! What a read at a level shows of a column is never older than what was acknowledged before the
//! read began, or shown by an earlier read, if the two must have had a replica in common. Whatever
//! it shows somebody has written, and not in a call that was refused before anything was sent.
//! Which replicas those are is worked out here once more.

use crate::cluster::Setup;
use crate::history::{
    COLUMNS, Call, Event, Family, GROUPS, History, Operation, Outcome, Place, ROWS, Rank,
    RowAnswer, RowChange, Selection,
};
use alexandra::coordinator::ConsistencyLevel;
use std::collections::{BTreeMap, BTreeSet};

/// Least value that must be seen of a column.
type Floors = BTreeMap<Place, Rank>;

/// A rule that was broken.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    /// The number of the call.
    pub(crate) call: usize,
    pub(crate) row: Option<(Family, u8)>,
    pub(crate) what: String,
}

/// Counts of checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) writes: u64,
    pub(crate) acknowledged: u64,
    pub(crate) unavailable: u64,
    pub(crate) reads: u64,
    pub(crate) answered: u64,
    pub(crate) columns: u64,
}

struct Write {
    call: usize,
    rows: Vec<RowChange>,
    is_refused: bool,
    is_batch: bool,
}

struct Open {
    call: Call,
    /// Values that must be seen, by the time when the call began.
    floors: Floors,
    /// The state of the ring at that time.
    ring: Option<u64>,
}

/// Goes through a history in its order.
pub(crate) struct Checker<'a> {
    setup: &'a Setup,
    writes: Vec<Write>,
    /// By place, what was written there by calls that have begun, with the number of the write.
    effects: BTreeMap<Place, Vec<(Rank, usize)>>,
    /// By the number of replicas that have it at least, what was acknowledged or seen.
    at_replicas: Vec<Floors>,
    /// Values of a certain node.
    at_node: Vec<Floors>,
    open: BTreeMap<usize, Open>,
    /// The number of the ring, as long as all nodes know the same.
    ring: Option<u64>,
    rings: u64,
    /// Whether all is done that clients began, and what reads show of all replicas since then.
    is_settled: bool,
    shown: Floors,
    checked: Checked,
}

impl<'a> Checker<'a> {
    /// Judges the whole history.
    pub(crate) fn check(setup: &'a Setup, history: &History) -> Result<Checked, Violation> {
        let mut checker = Self {
            setup,
            writes: Vec::new(),
            effects: BTreeMap::new(),
            at_replicas: vec![Floors::new(); setup.replication_factor + 1],
            at_node: vec![Floors::new(); setup.nodes],
            open: BTreeMap::new(),
            ring: Some(0),
            rings: 0,
            is_settled: false,
            shown: Floors::new(),
            checked: Checked::default(),
        };
        // A refusal may come after somebody could have read what it should have kept from being.
        let refused = refused(history);
        for (_, event) in &history.events {
            match event {
                Event::Begin(number, call) => checker.begin(*number, call, &refused),
                Event::End(number, outcome) => checker.end(*number, outcome)?,
                Event::Fault(_) => {}
                Event::Ring { is_settled } => checker.follow_ring(*is_settled),
                Event::Settled => checker.settle(),
            }
        }
        checker.check_batches()?;
        Ok(checker.checked)
    }

    fn begin(&mut self, number: usize, call: &Call, refused: &BTreeSet<usize>) {
        if let Operation::Write(rows) = &call.operation {
            let write = self.writes.len();
            let is_refused = refused.contains(&number);
            for (place, rank) in rows.iter().flat_map(RowChange::effects) {
                self.effects.entry(place).or_default().push((rank, write));
            }
            let is_batch = call.is_batch();
            self.writes.push(Write { call: number, rows: rows.clone(), is_refused, is_batch });
        }
        let floors = self.floors(call);
        self.open.insert(number, Open { call: call.clone(), floors, ring: self.ring });
    }

    fn follow_ring(&mut self, is_settled: bool) {
        self.rings += 1;
        self.ring = is_settled.then_some(self.rings);
    }

    /// Values that a read must see that begins now.
    fn floors(&self, call: &Call) -> Floors {
        let mut floors = Floors::new();
        if matches!(call.operation, Operation::Write(_)) {
            return floors;
        }
        let asked = self.replicas_of(call.level);
        let mut least = self.setup.replication_factor - asked + 1;
        if self.setup.changes_ring() {
            // One replica may be down when it ceases to be one, or lose its disk.
            least = least.max(2);
        }
        for have in least..=self.setup.replication_factor {
            for (place, rank) in &self.at_replicas[have] {
                raise(&mut floors, *place, *rank);
            }
        }
        if call.level == ConsistencyLevel::One && !self.setup.changes_ring() {
            for (place, rank) in &self.at_node[call.node] {
                raise(&mut floors, *place, *rank);
            }
        }
        floors
    }

    fn end(&mut self, number: usize, outcome: &Outcome) -> Result<(), Violation> {
        let Some(Open { call, floors, ring }) = self.open.remove(&number) else { return Ok(()) };
        let fail = |row, what: String| Violation { call: number, row, what };
        if let Outcome::Nonsense(what) | Outcome::Failed(what) = outcome {
            return Err(fail(None, what.clone()));
        }
        self.checked.unavailable += u64::from(matches!(outcome, Outcome::Unavailable));
        match &call.operation {
            Operation::Write(rows) => {
                self.checked.writes += 1;
                if matches!(outcome, Outcome::Written) {
                    self.checked.acknowledged += 1;
                    self.acknowledge(&call, rows);
                }
                return Ok(());
            }
            Operation::Count { family, row, group } => {
                self.checked.reads += 1;
                let Outcome::Counted(count) = outcome else { return Ok(()) };
                self.checked.answered += 1;
                let bounds = self.count_bounds(*family, *row, *group, &floors);
                if !bounds.contains(count) {
                    let what = format!("counted {count}, of {bounds:?}");
                    return Err(fail(Some((*family, *row)), what));
                }
            }
            Operation::Read { family, rows, selection } => {
                self.checked.reads += 1;
                let Outcome::Rows(answers) = outcome else { return Ok(()) };
                self.checked.answered += 1;
                if !answers.iter().map(|(row, _)| row).eq(rows) {
                    return Err(fail(None, "other rows than were asked for".into()));
                }
                for answer in answers {
                    let seen = self
                        .check_row(*family, answer, selection, &floors)
                        .map_err(|what| fail(Some((*family, answer.0)), what))?;
                    self.remember(&call, answer.0, seen, ring);
                }
            }
            Operation::Scan { family, behind, wraps, max_rows, selection } => {
                self.checked.reads += 1;
                let Outcome::Rows(answers) = outcome else { return Ok(()) };
                self.checked.answered += 1;
                let rows = self
                    .scanned((*behind, *wraps), *max_rows, answers)
                    .map_err(|it| fail(None, it))?;
                for row in rows {
                    let empty = (row, Vec::new());
                    let answer = answers.iter().find(|it| it.0 == row).unwrap_or(&empty);
                    let seen = self
                        .check_row(*family, answer, selection, &floors)
                        .map_err(|what| fail(Some((*family, row)), what))?;
                    self.remember(&call, row, seen, ring);
                }
            }
        }
        Ok(())
    }

    /// A value that only a hint may have held has reached a replica.
    fn settle(&mut self) {
        self.is_settled = true;
        for (place, rank) in std::mem::take(&mut self.at_replicas[0]) {
            raise(&mut self.at_replicas[1], place, rank);
        }
    }

    fn replicas_of(&self, level: ConsistencyLevel) -> usize {
        match level {
            ConsistencyLevel::Zero | ConsistencyLevel::Any => 0,
            ConsistencyLevel::One => 1,
            ConsistencyLevel::Quorum => self.setup.replication_factor / 2 + 1,
            _ => self.setup.replication_factor,
        }
    }

    fn acknowledge(&mut self, call: &Call, rows: &[RowChange]) {
        // Nobody promises anything at ZERO.
        if call.level == ConsistencyLevel::Zero {
            return;
        }
        let have = self.replicas_of(call.level);
        for (place, rank) in rows.iter().flat_map(RowChange::effects) {
            raise(&mut self.at_replicas[have], place, rank);
            let is_own = matches!(call.level, ConsistencyLevel::One | ConsistencyLevel::Any);
            if is_own
                && call.node < self.setup.nodes
                && self.setup.replicas(place.row).contains(&call.node)
            {
                raise(&mut self.at_node[call.node], place, rank);
            }
        }
    }

    /// The rows that a scan has told of, be it by leaving them out.
    fn scanned(
        &self,
        (behind, wraps): (Option<u8>, bool),
        max_rows: usize,
        answers: &[RowAnswer],
    ) -> Result<Vec<u8>, String> {
        let mut in_order: Vec<u8> = (0..ROWS).collect();
        in_order.sort_by_key(|row| self.setup.row_token(*row));
        let start = behind.and_then(|behind| in_order.iter().position(|row| *row == behind));
        let before: Vec<u8> = in_order.drain(..start.map_or(0, |start| start + 1)).collect();
        in_order.extend(before.into_iter().filter(|_| wraps));
        let mut rest = in_order.iter();
        for (row, _) in answers {
            if !rest.any(|it| it == row) {
                return Err(format!("row {row} is out of order, or there twice"));
            }
        }
        if answers.len() > max_rows {
            return Err("more rows than were asked for".into());
        }
        if answers.len() == max_rows
            && let Some((last, _)) = answers.last()
        {
            let end = in_order.iter().position(|row| row == last).map_or(0, |at| at + 1);
            in_order.truncate(end);
        }
        Ok(in_order)
    }

    /// Checks what was shown of a row, and returns it.
    fn check_row(
        &mut self,
        family: Family,
        (row, shown): &RowAnswer,
        selection: &Selection,
        floors: &Floors,
    ) -> Result<Floors, String> {
        let told = told(family, *row, selection, shown)?;
        let shown: BTreeMap<Place, Rank> = shown.iter().copied().collect();
        let mut seen = Floors::new();
        for place in &told {
            self.checked.columns += 1;
            let floor = floors.get(place).copied();
            match shown.get(place) {
                Some(rank) => {
                    self.check_shown(*place, *rank, floor)?;
                    seen.insert(*place, *rank);
                    if self.is_settled {
                        self.shown.insert(*place, *rank);
                    }
                }
                None => {
                    seen.extend(self.check_absent(*place, floor)?.map(|rank| (*place, rank)));
                }
            }
        }
        if self.setup.profile.keeps_rows_whole() {
            self.check_whole(&told, &shown)?;
        }
        Ok(seen)
    }

    /// Remembers values that were shown: later reads show them as well. `ring` is the state of the
    /// ring when the call began.
    fn remember(&mut self, call: &Call, row: u8, seen: Floors, ring: Option<u64>) {
        if self.setup.profile.loses_power() {
            // Reads show what is not on disk yet, and with several machines that can go again.
            return;
        }
        if ring.is_none() || ring != self.ring {
            // What nobody has acknowledged a new replica may have missed.
            return;
        }
        let have = self.replicas_of(call.level);
        let is_own =
            call.level == ConsistencyLevel::One && self.setup.replicas(row).contains(&call.node);
        for (place, rank) in seen {
            raise(&mut self.at_replicas[have], place, rank);
            if is_own {
                raise(&mut self.at_node[call.node], place, rank);
            }
        }
    }

    fn check_shown(&self, place: Place, rank: Rank, floor: Option<Rank>) -> Result<(), String> {
        let effects = self.effects.get(&place).map_or(&[][..], Vec::as_slice);
        let Some((_, write)) = effects.iter().find(|(it, _)| *it == rank) else {
            return Err(format!("{place} shows {rank}, which nobody has written"));
        };
        let write = &self.writes[*write];
        if write.is_refused {
            let call = write.call;
            return Err(format!("{place} shows {rank}, of call #{call}, which was refused"));
        }
        if let Some(floor) = floor.filter(|floor| rank < *floor) {
            return Err(format!("{place} shows {rank}, which is older than {floor}"));
        }
        Ok(())
    }

    /// Whether a column may be absent. Returns what must be there then at least.
    fn check_absent(&self, place: Place, floor: Option<Rank>) -> Result<Option<Rank>, String> {
        let Some(floor) = floor else { return Ok(None) };
        if floor.is_deletion() {
            return Ok(Some(floor));
        }
        let deletion = self.deletions_after(place, floor).min();
        deletion.map(Some).ok_or_else(|| format!("{place} is absent, which was {floor}"))
    }

    fn deletions_after(&self, place: Place, floor: Rank) -> impl Iterator<Item = Rank> {
        let effects = self.effects.get(&place).into_iter().flatten();
        let counts = move |rank: &Rank, write: usize| {
            rank.is_deletion() && *rank >= floor && !self.writes[write].is_refused
        };
        effects.filter(move |(rank, write)| counts(rank, *write)).map(|(rank, _)| *rank)
    }

    /// Where one column of a mutation is shown, none of its other columns is older.
    fn check_whole(&self, told: &[Place], shown: &BTreeMap<Place, Rank>) -> Result<(), String> {
        for (place, rank) in shown {
            let Some((_, write)) = self.effects[place].iter().find(|(it, _)| it == rank) else {
                continue;
            };
            let rows = self.writes[*write].rows.iter();
            let same_row = rows.filter(|row| (row.family, row.row) == (place.family, place.row));
            for (other, least) in same_row.flat_map(RowChange::effects) {
                if !told.contains(&other) {
                    continue;
                }
                let is_older = match shown.get(&other) {
                    Some(rank) => *rank < least,
                    None => self.check_absent(other, Some(least)).is_err(),
                };
                if is_older {
                    let what = "a row mutation by half";
                    return Err(format!("{what}: {place}={rank}, but {other} is not {least}"));
                }
            }
        }
        Ok(())
    }

    /// Of each batch that is shown in the end, no other column is older.
    fn check_batches(&self) -> Result<(), Violation> {
        // The nodes that keep a batch may have lost it with their power.
        if self.setup.profile.loses_power() {
            return Ok(());
        }
        for write in self.writes.iter().filter(|write| write.is_batch) {
            let effects = || write.rows.iter().flat_map(RowChange::effects);
            if !effects().any(|(place, rank)| self.shown.get(&place) == Some(&rank)) {
                continue;
            }
            let is_older = |(place, least): &(Place, Rank)| match self.shown.get(place) {
                Some(rank) => rank < least,
                None => self.check_absent(*place, Some(*least)).is_err(),
            };
            if let Some((place, _)) = effects().find(is_older) {
                let what = format!("a batch by half: {place} is missing");
                return Err(Violation { call: write.call, row: None, what });
            }
        }
        Ok(())
    }

    /// How many columns, or super columns, there may be.
    fn count_bounds(
        &self,
        family: Family,
        row: u8,
        group: Option<u8>,
        floors: &Floors,
    ) -> std::ops::RangeInclusive<usize> {
        let must = |place: &Place| {
            let floor = floors.get(place).copied();
            floor.is_some() && self.check_absent(*place, floor).is_err()
        };
        let may = |place: &Place| {
            let floor = floors.get(place).copied();
            let effects = self.effects.get(place).into_iter().flatten();
            let mut ranks = effects.map(|(rank, _)| *rank);
            ranks.any(|rank| !rank.is_deletion() && floor.is_none_or(|floor| rank >= floor))
        };
        if family == Family::Super && group.is_none() {
            let places = |group| Place::of_group(family, row, group).collect::<Vec<_>>();
            let count = |is: &dyn Fn(&Place) -> bool| {
                family.groups().filter(|group| places(*group).iter().any(is)).count()
            };
            // A super column without visible columns may still be one, and then it counts.
            return count(&must)..=count(&may);
        }
        let places: Vec<Place> = Place::of_group(family, row, group.unwrap_or(0)).collect();
        let count = |is: &dyn Fn(&Place) -> bool| places.iter().filter(|it| is(it)).count();
        count(&must)..=count(&may)
    }
}

/// The calls that were refused because too few replicas seemed alive.
fn refused(history: &History) -> BTreeSet<usize> {
    let refused = history.events.iter().filter_map(|(_, event)| match event {
        Event::End(number, Outcome::Unavailable) => Some(*number),
        _ => None,
    });
    refused.collect()
}

fn raise(floors: &mut Floors, place: Place, rank: Rank) {
    let floor = floors.entry(place).or_insert(rank);
    *floor = rank.max(*floor);
}

/// The places of which an answer tells, be it by leaving them out.
fn told(
    family: Family,
    row: u8,
    selection: &Selection,
    shown: &[(Place, Rank)],
) -> Result<Vec<Place>, String> {
    let standard = |column| Place { family, row, group: 0, column };
    let mut told: Vec<Place> = match selection {
        Selection::Whole => Place::of_row(family, row).collect(),
        Selection::Group(group) => Place::of_group(family, row, *group).collect(),
        Selection::Names(names) if family == Family::Super => {
            names.iter().flat_map(|group| Place::of_group(family, row, *group)).collect()
        }
        Selection::Names(names) => names.iter().map(|column| standard(*column)).collect(),
        Selection::Range { group, start, finish, reversed, .. } => {
            let is_of_groups = family == Family::Super && group.is_none();
            let end = if is_of_groups { GROUPS - 1 } else { COLUMNS - 1 };
            let (least, greatest) = if *reversed { (finish, start) } else { (start, finish) };
            let mut names: Vec<u8> = (least.unwrap_or(0)..=greatest.unwrap_or(end)).collect();
            if *reversed {
                names.reverse();
            }
            let places = |name| -> Vec<Place> {
                if is_of_groups {
                    return Place::of_group(family, row, name).collect();
                }
                vec![Place { family, row, group: group.unwrap_or(0), column: name }]
            };
            names.into_iter().flat_map(places).collect()
        }
    };
    let mut rest = told.iter();
    for (place, _) in shown {
        if !rest.any(|it| it == place) {
            return Err(format!("{place} is out of order, or was not asked for"));
        }
    }
    if let Selection::Range { group, limit, .. } = selection {
        let is_of_groups = family == Family::Super && group.is_none();
        let unit = |place: &Place| (place.group, (!is_of_groups).then_some(place.column));
        let mut units: Vec<_> = shown.iter().map(|(place, _)| unit(place)).collect();
        units.dedup();
        if units.len() > *limit {
            return Err("more columns than were asked for".into());
        }
        if units.len() == *limit
            && let Some(last) = units.last()
        {
            let end = told.iter().rposition(|place| unit(place) == *last).map_or(0, |at| at + 1);
            told.truncate(end);
        }
    }
    Ok(told)
}
