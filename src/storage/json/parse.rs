//! Reads rows from JSON, one cell after the other.

use super::text::parse_key;
use super::{PREFIX, RANGE};
use crate::base::hex::unhex;
use crate::model::cell::{Cell, Expiry};
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::FileError;
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use std::fmt;
use std::io::Read;

/// Most bytes of a row key or a name.
const MAX_NAME: usize = 65535;

/// Takes rows. Keys and cells may come in any order.
pub(super) trait RowSink {
    /// Begins a row.
    fn begin_row(&mut self, key: &DecoratedKey, deletion: Deletion) -> Result<(), FileError>;
    /// A cell of the row.
    fn cell(&mut self, cell: Cell) -> Result<(), FileError>;
    /// Ends the row.
    fn end_row(&mut self) -> Result<(), FileError>;
}

/// Reason why rows could not be read.
#[derive(Debug)]
pub(super) enum ParseError {
    /// The text is not what it should be.
    Text(serde_json::Error),
    /// The sink has failed.
    Sink(FileError),
}

/// Target of the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) family: &'a ColumnFamilySchema,
    pub(super) partitioner: Partitioner,
    /// The local deletion time where the text has none, in seconds since the epoch.
    pub(super) now_secs: i32,
}

/// Reads a whole text.
pub(super) fn parse(
    text: impl Read,
    context: Context<'_>,
    sink: &mut dyn RowSink,
) -> Result<(), ParseError> {
    let mut state = State { context, sink, row: None, failure: None };
    let mut deserializer = serde_json::Deserializer::from_reader(text);
    let parsed = Value { state: &mut state, level: Level::Rows }.deserialize(&mut deserializer);
    let parsed = parsed.and_then(|()| deserializer.end());
    match (parsed, state.failure) {
        (_, Some(failure)) => Err(ParseError::Sink(failure)),
        (Err(error), None) => Err(ParseError::Text(error)),
        (Ok(()), None) => Ok(()),
    }
}

struct State<'a> {
    context: Context<'a>,
    sink: &'a mut dyn RowSink,
    row: Option<OpenRow>,
    /// Error of the sink: the parser carries only texts.
    failure: Option<FileError>,
}

/// A row. Its deletion is not known until something else of it comes, and it begins then.
struct OpenRow {
    key: DecoratedKey,
    deletion: Deletion,
    is_begun: bool,
}

/// A value of the text, which is read by its level.
struct Value<'s, 'a, 'n> {
    state: &'s mut State<'a>,
    level: Level<'n>,
}

#[derive(Clone, Copy)]
enum Level<'n> {
    /// The outermost object.
    Rows,
    /// An object of super columns, perhaps with the deletion of the row in front.
    SuperRow,
    /// The deletion and the columns of a super column of this name.
    SuperColumn(&'n [u8]),
    /// The columns of a super column of this name, or those of a standard row, perhaps with its
    /// deletion in front.
    Columns(&'n [u8]),
    /// An element of these.
    Column(&'n [u8]),
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.level {
            Level::Rows | Level::SuperRow | Level::SuperColumn(_) => {
                deserializer.deserialize_map(self)
            }
            Level::Columns(_) => deserializer.deserialize_seq(self),
            Level::Column(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Value<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Level::Rows => "an object of rows",
            Level::SuperRow => "an object of super columns",
            Level::SuperColumn(_) => "a super column with the members deletedAt and subColumns",
            Level::Columns(_) => "an array of columns",
            Level::Column(_) => "a column [name, value, timestamp, deleted]",
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        match self.level {
            Level::Rows => self.state.rows(map),
            Level::SuperRow => self.state.super_row(map),
            Level::SuperColumn(name) => self.state.super_column(name, map),
            Level::Columns(_) | Level::Column(_) => self.state.row_deletion(map),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let name = match self.level {
            Level::Columns(name) => name,
            Level::Column(name) => return self.state.column(name, seq),
            _ => return Err(A::Error::invalid_type(Unexpected::Seq, &self)),
        };
        let level = Level::Column(name);
        while seq.next_element_seed(Value { state: &mut *self.state, level })?.is_some() {}
        Ok(())
    }
}

impl State<'_> {
    fn sink<E: Error>(
        &mut self,
        call: impl FnOnce(&mut dyn RowSink) -> Result<(), FileError>,
    ) -> Result<(), E> {
        call(self.sink).map_err(|failure| {
            let error = E::custom(&failure);
            self.failure = Some(failure);
            error
        })
    }

    fn begin_row<E: Error>(&mut self) -> Result<(), E> {
        let Some(row) = self.row.as_mut().filter(|row| !row.is_begun) else { return Ok(()) };
        row.is_begun = true;
        let (key, deletion) = (row.key.clone(), row.deletion);
        self.sink(|sink| sink.begin_row(&key, deletion))
    }

    fn delete_row<E: Error>(&mut self, deletion: Option<Deletion>) -> Result<(), E> {
        let (Some(deletion), Some(row)) = (deletion, &mut self.row) else { return Ok(()) };
        if row.is_begun {
            return Err(E::custom("the deletion of a row stands before its columns"));
        }
        row.deletion = row.deletion.merge(deletion);
        Ok(())
    }

    fn cell<E: Error>(&mut self, cell: Cell) -> Result<(), E> {
        self.begin_row()?;
        if !self.context.family.can_hold(cell.state(), cell.place()) {
            return Err(E::custom("a column cannot have this name in this column family"));
        }
        self.sink(|sink| sink.cell(cell))
    }

    fn rows<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let is_super = self.context.family.is_super();
        let level = if is_super { Level::SuperRow } else { Level::Columns(b"") };
        while let Some(text) = map.next_key::<String>()? {
            let key = parse_key(&text).filter(|key| (1..=MAX_NAME).contains(&key.len()));
            let key = key.ok_or_else(|| A::Error::custom("a row cannot have this key"))?;
            let key = self.context.partitioner.decorate(RowKey::new(&key));
            self.row = Some(OpenRow { key, deletion: Deletion::NONE, is_begun: false });
            map.next_value_seed(Value { state: &mut *self, level })?;
            self.begin_row()?;
            self.sink(|sink| sink.end_row())?;
        }
        Ok(())
    }

    fn super_row<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let now_secs = self.context.now_secs;
        let mut deletion = HalfDeletion::default();
        while let Some(name) = map.next_key::<String>()? {
            if deletion.take(&name, &mut map)? {
                continue;
            }
            self.delete_row(deletion.finish(now_secs))?;
            self.begin_row()?;
            let name = hex_name(&name, self.context.family.comparator())?;
            let level = Level::SuperColumn(&name);
            map.next_value_seed(Value { state: &mut *self, level })?;
        }
        self.delete_row(deletion.finish(now_secs))
    }

    fn super_column<'de, A: MapAccess<'de>>(
        &mut self,
        name: &[u8],
        mut map: A,
    ) -> Result<(), A::Error> {
        let now_secs = self.context.now_secs;
        let mut deletion = HalfDeletion::default();
        while let Some(member) = map.next_key::<String>()? {
            if deletion.take(&member, &mut map)? {
                continue;
            }
            if member != "subColumns" {
                return Err(A::Error::unknown_field(&member, &["deletedAt", "subColumns"]));
            }
            // The deletion sorts before the columns.
            if let Some(deletion) = deletion.finish(now_secs) {
                self.cell(Cell::super_tombstone(name, deletion))?;
            }
            map.next_value_seed(Value { state: &mut *self, level: Level::Columns(name) })?;
        }
        match deletion.finish(now_secs) {
            Some(deletion) => self.cell(Cell::super_tombstone(name, deletion)),
            None => Ok(()),
        }
    }

    /// Reads the deletion of a row among columns.
    fn row_deletion<'de, A: MapAccess<'de>>(&mut self, mut map: A) -> Result<(), A::Error> {
        let mut deletion = HalfDeletion::default();
        while let Some(name) = map.next_key::<String>()? {
            if !deletion.take(&name, &mut map)? {
                let known = &["deletedAt", "localDeletionTime"];
                return Err(A::Error::unknown_field(&name, known));
            }
        }
        let (Some(at), Some(time)) = (deletion.at, deletion.time) else {
            return Err(A::Error::custom("a deletion has deletedAt and localDeletionTime"));
        };
        if self.context.family.is_super() {
            return Err(A::Error::custom("a column is an array"));
        }
        self.delete_row(Some(Deletion::at(at, time)))
    }

    fn column<'de, A: SeqAccess<'de>>(
        &mut self,
        super_name: &[u8],
        mut seq: A,
    ) -> Result<(), A::Error> {
        let missing = || A::Error::custom("a column is [name, value, timestamp, deleted]");
        let family = self.context.family;
        let digits = seq.next_element::<String>()?.ok_or_else(missing)?;
        let value = seq.next_element::<String>()?.ok_or_else(missing)?;
        let value = unhex(&value).ok_or_else(|| A::Error::custom("a value is hexadecimal"))?;
        let timestamp: i64 = seq.next_element()?.ok_or_else(missing)?;
        let kind: Kind = seq.next_element()?.ok_or_else(missing)?;
        let ttl: Option<u32> = seq.next_element()?;
        let end: Option<i64> = seq.next_element()?;
        if end.is_some() && seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(missing());
        }
        let is_range = matches!(&kind, Kind::Other(kind) if kind == RANGE);
        let name = if is_range {
            unhex(&digits).ok_or_else(|| A::Error::custom("a range is hexadecimal"))?
        } else {
            hex_name(&digits, family.subcolumn_comparator().unwrap_or(family.comparator()))?
        };
        match (&kind, ttl, end) {
            (Kind::Deleted(false), None, None) => {
                return self.cell(Cell::live(super_name, &name, &value, timestamp));
            }
            (Kind::Deleted(false), Some(ttl), Some(at)) => {
                let expiry = Expiry { ttl, at };
                return self.cell(Cell::expiring((super_name, &name), &value, timestamp, expiry));
            }
            (_, None, None) => {}
            _ => return Err(missing()),
        }
        let time = <[u8; 4]>::try_from(&value[..]).map_err(|_| {
            A::Error::custom("the value of a deleted column is its local deletion time, 4 bytes")
        })?;
        let deletion = Deletion::at(timestamp, i32::from_be_bytes(time));
        self.cell(match &kind {
            Kind::Deleted(_) => Cell::tombstone(super_name, &name, deletion),
            Kind::Other(kind) if kind == PREFIX => {
                Cell::prefix_tombstone((super_name, &name), deletion)
            }
            Kind::Other(kind) if kind == RANGE && super_name.is_empty() => {
                Cell::range_tombstone((family.range_super_name(), &name), deletion)
            }
            Kind::Other(_) => return Err(missing()),
        })
    }
}

/// The fourth element of a column.
#[derive(Deserialize)]
#[serde(untagged)]
enum Kind {
    /// Whether it is deleted.
    Deleted(bool),
    /// [`PREFIX`] or [`RANGE`].
    Other(String),
}

/// A deletion whose two parts are members of an object.
#[derive(Debug, Default)]
struct HalfDeletion {
    at: Option<i64>,
    time: Option<i32>,
}

impl HalfDeletion {
    /// Takes the value of a member that is a part of a deletion; false if it is another one.
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "deletedAt" => self.at = Some(map.next_value()?),
            "localDeletionTime" => self.time = Some(map.next_value()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The deletion, once. Without a local deletion time it was made now.
    fn finish(&mut self, now_secs: i32) -> Option<Deletion> {
        let at = self.at.take().filter(|at| *at != i64::MIN)?;
        Some(Deletion::at(at, self.time.unwrap_or(now_secs)))
    }
}

fn hex_name<E: Error>(digits: &str, comparator: &Comparator) -> Result<Vec<u8>, E> {
    let name = unhex(digits).filter(|name| name.len() <= MAX_NAME);
    let name = name.ok_or_else(|| E::custom("a name is hexadecimal, of at most 65535 bytes"))?;
    comparator.validate(&name).map_err(E::custom)?;
    Ok(name)
}

/// A sink that counts rows and cells, and finds out whether they come in order.
#[derive(Debug)]
pub(super) struct Survey<'a> {
    family: &'a ColumnFamilySchema,
    pub(super) rows: u64,
    pub(super) cells: u64,
    pub(super) is_in_order: bool,
    last_key: Option<DecoratedKey>,
    last_cell: Option<Cell>,
}

impl<'a> Survey<'a> {
    pub(super) fn new(family: &'a ColumnFamilySchema) -> Self {
        let (last_key, last_cell) = (None, None);
        Self { family, rows: 0, cells: 0, is_in_order: true, last_key, last_cell }
    }
}

impl RowSink for Survey<'_> {
    fn begin_row(&mut self, key: &DecoratedKey, _: Deletion) -> Result<(), FileError> {
        self.rows += 1;
        self.is_in_order &= self.last_key.as_ref().is_none_or(|last| last < key);
        self.last_key = Some(key.clone());
        self.last_cell = None;
        Ok(())
    }

    fn cell(&mut self, cell: Cell) -> Result<(), FileError> {
        self.cells += 1;
        let is_after = |last: &Cell| self.family.compare(last.place(), cell.place()).is_lt();
        self.is_in_order &= self.last_cell.as_ref().is_none_or(is_after);
        self.last_cell = Some(cell);
        Ok(())
    }

    fn end_row(&mut self) -> Result<(), FileError> {
        Ok(())
    }
}
