//! Declarations of column families: names and types with which CQL and the tools show their data.

use super::document::{Document, Value};
use super::error::{ConfigError, Place, Problem};
use super::xml::Element;
use crate::model::schema::ColumnFamilyKind;
use crate::model::table::{Declared, DeclaredColumn, Table};
use crate::model::types::{CqlType, Native};
use std::collections::{BTreeMap, BTreeSet};

const NAMESAKE: &str = "another column of the table has this name";

/// The column family as CQL sees it, with the attributes of one element and the children of the
/// other.
pub(super) fn table<'a>(
    doc: &mut Document<'a>,
    [element, parent]: [&'a Element; 2],
    place: &Place<'a>,
    kind: &ColumnFamilyKind,
) -> Table {
    let attribute = |name| Value::of_attribute(element, place, name);
    let given = ["KeyName", "ColumnName"].map(attribute);
    let [key_name, column_name] = given.each_ref().map(|it| Some(it.as_ref()?.text.to_owned()));
    let mut read = |name| doc.accept(read_type(&attribute(name)?, name));
    let (key_type, value_type) = (read("KeyType"), read("DefaultValueType"));
    let (mut columns, mut names, mut cells) = (Vec::new(), Vec::new(), BTreeSet::new());
    for child in parent.children_named("Column") {
        let Some((name, column)) = doc.accept(column(child, place, kind)) else { continue };
        if !cells.insert(column.cell_name.clone()) {
            doc.refuse(name.refuse(NAMESAKE));
        }
        names.push(name);
        columns.push(column);
    }
    let declared = Declared { key_name, key_type, column_name, value_type, columns };
    let table = Table::of_family(kind, &declared);
    if let [_, Some(name)] = &given
        && table.clustering().is_empty()
    {
        let text = "ColumnName has no effect: the names of columns are those of <Column>";
        doc.notes.warn(name.place.line, text.to_owned());
    }
    let mut namesakes: BTreeMap<&str, usize> = BTreeMap::new();
    for column in &table.columns {
        *namesakes.entry(&column.name).or_default() += 1;
    }
    for name in given.into_iter().flatten().chain(names) {
        if namesakes.get(name.text).is_some_and(|count| *count > 1) {
            doc.refuse(name.refuse(NAMESAKE));
        }
    }
    table
}

/// A `<Column>`, with the value of its name.
fn column<'a>(
    element: &'a Element,
    family: &Place<'a>,
    kind: &ColumnFamilyKind,
) -> Result<(Value<'a>, DeclaredColumn), ConfigError> {
    let mut place = family.clone();
    place.line = element.line;
    place.element.push_str("/Column");
    let name = Value::of_attribute(element, &place, "Name");
    let name = name.ok_or_else(|| place.refuse("Column name attribute is required"))?;
    place.element = format!("{}[@Name='{}']", place.element, name.text);
    let value = Value::of_attribute(element, &place, "Type");
    let value = value.ok_or_else(|| place.refuse("Column type attribute is required"))?;
    let of_type = read_type(&value, "Type")?;
    let (ColumnFamilyKind::Standard { columns } | ColumnFamilyKind::Super { columns, .. }) = kind;
    let column = DeclaredColumn::new(name.text, of_type, columns).map_err(|reason| {
        name.refuse(format!("not the name of a column in {}: {reason}", columns.class_name()))
    })?;
    Ok((name, column))
}

/// The type that an attribute names, by its class or by its name in CQL.
fn read_type(value: &Value<'_>, attribute: &str) -> Result<CqlType, ConfigError> {
    let native = Native::from_name(&value.text.to_ascii_lowercase()).map(CqlType::Native);
    let refused = |native: &Native| match native {
        Native::Counter | Native::Empty => true,
        Native::Duration => attribute == "KeyType",
        _ => false,
    };
    match native.or_else(|| CqlType::from_class(value.text)) {
        Some(of_type) if of_type.is_multicell() => {
            let frozen = of_type.frozen().class_name();
            Err(value.refuse(format!("a value is one cell: {frozen} is a type of values")))
        }
        Some(of_type) if !of_type.native().is_some_and(|it| refused(&it)) => Ok(of_type),
        _ => {
            let known = || Native::ALL.into_iter().filter(|native| !refused(native));
            let names = known().filter(|it| Native::from_name(it.name()) == Some(*it));
            let words = names.map(Native::name).chain(known().map(Native::short_class));
            Err(value.refuse(Problem::unknown_word(attribute).allowing(words)))
        }
    }
}
