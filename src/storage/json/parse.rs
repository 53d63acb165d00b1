//! Reads rows from JSON, one cell after the other.

use super::key_text::{parse_key, unhex};
use crate::model::cell::Cell;
use crate::model::comparator::Comparator;
use crate::model::deletion::Deletion;
use crate::model::key::RowKey;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::{DecoratedKey, Partitioner};
use crate::storage::error::FileError;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
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
    let mut state = State { context, sink, failure: None };
    let mut deserializer = serde_json::Deserializer::from_reader(text);
    let parsed = Object(Rows(&mut state)).deserialize(&mut deserializer);
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
    /// Error of the sink: the parser carries only texts.
    failure: Option<FileError>,
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

    fn cell<E: Error>(&mut self, cell: Cell) -> Result<(), E> {
        if !self.context.family.can_hold(cell.state(), cell.place()) {
            return Err(E::custom("a column cannot have this name in this column family"));
        }
        self.sink(|sink| sink.cell(cell))
    }
}

/// An object, which a visitor reads.
struct Object<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Object<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_map(self.0)
    }
}

/// An array, which a visitor reads.
struct Array<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Array<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_seq(self.0)
    }
}

/// Anything, which a visitor reads.
struct Either<V>(V);

impl<'de, V: Visitor<'de>> DeserializeSeed<'de> for Either<V> {
    type Value = V::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        deserializer.deserialize_any(self.0)
    }
}

/// The outermost object.
struct Rows<'a, 'b>(&'a mut State<'b>);

impl<'de> Visitor<'de> for Rows<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(text) = map.next_key::<String>()? {
            let key = parse_key(&text).filter(|key| (1..=MAX_NAME).contains(&key.len()));
            let key = key.ok_or_else(|| A::Error::custom("a row cannot have this key"))?;
            let key = self.0.context.partitioner.decorate(RowKey::new(&key));
            let row = OpenRow { key: &key, deletion: Deletion::NONE, is_begun: false };
            if self.0.context.family.is_super() {
                map.next_value_seed(Object(SuperRow { state: self.0, row }))?;
            } else {
                map.next_value_seed(Array(StandardRow { state: self.0, row }))?;
            }
        }
        Ok(())
    }
}

/// A row of which the deletion is not known until something else of it comes.
struct OpenRow<'a> {
    key: &'a DecoratedKey,
    deletion: Deletion,
    is_begun: bool,
}

impl OpenRow<'_> {
    fn begin<E: Error>(&mut self, state: &mut State<'_>) -> Result<(), E> {
        if self.is_begun {
            return Ok(());
        }
        self.is_begun = true;
        state.sink(|sink| sink.begin_row(self.key, self.deletion))
    }

    fn delete<E: Error>(&mut self, deletion: Deletion) -> Result<(), E> {
        if self.is_begun {
            return Err(E::custom("the deletion of a row stands before its columns"));
        }
        self.deletion = self.deletion.merge(deletion);
        Ok(())
    }

    fn end<E: Error>(mut self, state: &mut State<'_>) -> Result<(), E> {
        self.begin(state)?;
        state.sink(|sink| sink.end_row())
    }
}

/// A row of a standard column family: an array of columns, perhaps with its deletion in front.
struct StandardRow<'a, 'b, 'k> {
    state: &'a mut State<'b>,
    row: OpenRow<'k>,
}

impl<'de> Visitor<'de> for StandardRow<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of columns")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<(), A::Error> {
        let columns = self.state.context.family.comparator().clone();
        while let Some(element) =
            seq.next_element_seed(Either(Element { super_name: b"", columns: &columns }))?
        {
            match element {
                Column::Cell(cell) => {
                    self.row.begin(self.state)?;
                    self.state.cell(cell)?;
                }
                Column::Deletion(deletion) => self.row.delete(deletion)?,
            }
        }
        self.row.end(self.state)
    }
}

/// A row of a super column family: an object of super columns, perhaps with its deletion in front.
struct SuperRow<'a, 'b, 'k> {
    state: &'a mut State<'b>,
    row: OpenRow<'k>,
}

impl<'de> Visitor<'de> for SuperRow<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of super columns")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let mut deletion = HalfDeletion::default();
        while let Some(name) = map.next_key::<String>()? {
            if deletion.take(&name, &mut map)? {
                continue;
            }
            if let Some(deletion) = deletion.finish(self.state.context.now_secs) {
                self.row.delete(deletion)?;
            }
            self.row.begin(self.state)?;
            let name = hex_name(&name, self.state.context.family.comparator())?;
            map.next_value_seed(Object(SuperColumn { state: self.state, name }))?;
        }
        if let Some(deletion) = deletion.finish(self.state.context.now_secs) {
            self.row.delete(deletion)?;
        }
        self.row.end(self.state)
    }
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

/// A super column: its deletion and its columns.
struct SuperColumn<'a, 'b> {
    state: &'a mut State<'b>,
    name: Vec<u8>,
}

impl<'de> Visitor<'de> for SuperColumn<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a super column with the members deletedAt and subColumns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { state, name } = self;
        let mut deletion = HalfDeletion::default();
        let delete = |deletion: &mut HalfDeletion, state: &mut State<'_>| match deletion
            .finish(state.context.now_secs)
        {
            Some(deletion) => state.cell(Cell::super_tombstone(&name, deletion)),
            None => Ok(()),
        };
        while let Some(member) = map.next_key::<String>()? {
            if deletion.take(&member, &mut map)? {
                continue;
            }
            if member != "subColumns" {
                return Err(A::Error::unknown_field(&member, &["deletedAt", "subColumns"]));
            }
            // It sorts before its columns.
            delete(&mut deletion, state)?;
            map.next_value_seed(Array(SubColumns { state, name: &name }))?;
        }
        delete(&mut deletion, state)
    }
}

/// The columns of a super column.
struct SubColumns<'a, 'b> {
    state: &'a mut State<'b>,
    name: &'a [u8],
}

impl<'de> Visitor<'de> for SubColumns<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of columns")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let family = self.state.context.family;
        let columns = family.subcolumn_comparator().unwrap_or(family.comparator());
        while let Some(element) =
            seq.next_element_seed(Either(Element { super_name: self.name, columns }))?
        {
            match element {
                Column::Cell(cell) => self.state.cell(cell)?,
                Column::Deletion(_) => return Err(A::Error::custom("a column is an array")),
            }
        }
        Ok(())
    }
}

/// An element of an array of columns.
enum Column {
    Cell(Cell),
    /// The deletion of the row.
    Deletion(Deletion),
}

struct Element<'a> {
    super_name: &'a [u8],
    columns: &'a Comparator,
}

impl<'de> Visitor<'de> for Element<'_> {
    type Value = Column;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column [name, value, timestamp, deleted]")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Column, A::Error> {
        let missing = || A::Error::custom("a column is [name, value, timestamp, deleted]");
        let name = seq.next_element::<String>()?.ok_or_else(missing)?;
        let name = hex_name(&name, self.columns)?;
        let value = seq.next_element::<String>()?.ok_or_else(missing)?;
        let value = unhex(&value).ok_or_else(|| A::Error::custom("a value is hexadecimal"))?;
        let timestamp: i64 = seq.next_element()?.ok_or_else(missing)?;
        let deleted: bool = seq.next_element()?.ok_or_else(missing)?;
        if seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(missing());
        }
        if !deleted {
            return Ok(Column::Cell(Cell::live(self.super_name, &name, &value, timestamp)));
        }
        let time = <[u8; 4]>::try_from(&value[..]).map_err(|_| {
            A::Error::custom("the value of a deleted column is its local deletion time, 4 bytes")
        })?;
        let deletion = Deletion::at(timestamp, i32::from_be_bytes(time));
        Ok(Column::Cell(Cell::tombstone(self.super_name, &name, deletion)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Column, A::Error> {
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
        Ok(Column::Deletion(Deletion::at(at, time)))
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
