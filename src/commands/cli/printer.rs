//! Layouts of results: that of the original, a table, and JSON, one object a line.

use super::families::Types;
use super::literals::{json_name, json_text, json_value, shown_value};
use super::screen::{Screen, Stopped};
use crate::model::comparator::Comparator;
use crate::thrift::idl::Column;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write;

/// A layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Original,
    Table,
    Json,
}

type Printed = Result<(), Stopped>;

/// Prints results.
#[derive(Debug)]
pub(super) struct Printer {
    pub(super) layout: Layout,
    pub(super) screen: Screen,
    /// Rows of a table that is not printed yet, the head first.
    table: Vec<Vec<String>>,
}

impl Printer {
    pub(super) fn new(layout: Layout, screen: Screen) -> Self {
        Self { layout, screen, table: Vec::new() }
    }

    /// Prints a text, which in JSON is the value of a name.
    pub(super) fn fact(&mut self, name: &str, text: &str) -> Printed {
        match self.layout {
            Layout::Json => self.object([(name, text.into())]),
            _ => self.screen.print(&format!("{text}\n")),
        }
    }

    /// Prints a number of things.
    pub(super) fn count(&mut self, number: i32, things: &str) -> Printed {
        match self.layout {
            Layout::Json => self.object([(things, number.into())]),
            _ => self.screen.print(&format!("{number} {things}\n")),
        }
    }

    /// Prints lines, or what they say as JSON.
    pub(super) fn lines(&mut self, text: &str, json: impl FnOnce() -> Value) -> Printed {
        match self.layout {
            Layout::Json => self.screen.print(&format!("{}\n", json())),
            _ => self.screen.print(text),
        }
    }

    fn object<const N: usize>(&mut self, fields: [(&str, Value); N]) -> Printed {
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.screen.print(&format!("{}\n", Value::Object(fields.collect())))
    }

    /// Prints the key of a row. Columns follow, which show it in other layouts, or none.
    pub(super) fn row(&mut self, key: &str, is_alone: bool) -> Printed {
        match self.layout {
            Layout::Original => self.screen.print(&format!("RowKey: {}\n", escaped(key, BREAKS))),
            Layout::Table if is_alone => {
                if self.table.is_empty() {
                    self.table.push(vec!["key".to_owned()]);
                }
                self.table.push(vec![key.to_owned()]);
                Ok(())
            }
            Layout::Json if is_alone => self.object([("key", key.into())]),
            Layout::Table | Layout::Json => Ok(()),
        }
    }

    /// Prints columns.
    pub(super) fn columns(&mut self, place: &Place<'_>, columns: &[Column<'_>]) -> Printed {
        match self.layout {
            Layout::Original => self.screen.print(&original(place, columns)),
            Layout::Table => {
                for column in columns {
                    let row = place.fields(column);
                    if self.table.is_empty() {
                        self.table.push(row.iter().map(|(title, _)| (*title).to_owned()).collect());
                    }
                    self.table.push(row.into_iter().map(|(_, text)| text).collect());
                }
                Ok(())
            }
            Layout::Json => {
                let objects = columns.iter().map(|column| format!("{}\n", place.object(column)));
                self.screen.print(&objects.collect::<String>())
            }
        }
    }

    /// Fails if somebody has stopped the output.
    pub(super) fn check(&mut self) -> Printed {
        self.screen.print("")
    }

    /// Ends columns or rows and tells their number.
    pub(super) fn end(&mut self, number: usize, things: &str) -> Printed {
        if self.layout == Layout::Json {
            return Ok(());
        }
        let table = std::mem::take(&mut self.table);
        self.screen.print(&aligned(&table))?;
        self.screen.print(&format!("Returned {number} {things}.\n"))
    }
}

/// The row, and in it the super column, that columns belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) types: &'a Types,
    /// If there may be several rows.
    pub(super) key: Option<&'a str>,
    pub(super) super_name: Option<&'a [u8]>,
    /// Whether the statement asks for super columns, so that each shows its name.
    pub(super) is_group: bool,
}

impl Place<'_> {
    fn names(&self) -> &Comparator {
        if self.super_name.is_some() { self.types.column_names() } else { &self.types.names }
    }

    /// A column as titles and texts.
    fn fields(&self, column: &Column<'_>) -> Vec<(&'static str, String)> {
        let Self { types, key, super_name, .. } = self;
        let declared = types.declared_name(column.name).map(str::to_owned);
        let name = declared.unwrap_or_else(|| self.names().show(column.name));
        let value = shown_value(types.value_type(column.name), column.value).into_owned();
        let time = types.names.time_of(super_name.unwrap_or(column.name));
        let fields = [
            ("key", key.map(str::to_owned)),
            ("super column", super_name.map(|name| types.names.show(name))),
            ("column", Some(name)),
            ("time", time),
            ("value", Some(value)),
            ("timestamp", Some(column.timestamp.to_string())),
        ];
        fields.into_iter().filter_map(|(title, text)| Some((title, text?))).collect()
    }

    /// A column as JSON, the fields from the outermost to the innermost.
    fn object(&self, column: &Column<'_>) -> String {
        let Self { types, key, super_name, .. } = self;
        let declared = types.declared_name(column.name).map(json_text);
        let name = declared.unwrap_or_else(|| json_name(self.names(), column.name));
        let fields = [
            ("key", key.map(json_text)),
            ("super_column", super_name.map(|name| json_name(&types.names, name))),
            ("column", Some(name)),
            ("value", Some(json_value(types.value_type(column.name), column.value))),
            ("timestamp", Some(column.timestamp.to_string())),
        ];
        let there = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let there = there.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", there.collect::<Vec<_>>().join(","))
    }
}

/// Columns in the layout of the original.
fn original(place: &Place<'_>, columns: &[Column<'_>]) -> String {
    let types = place.types;
    let (start, end) = if place.is_group { ("\n     ", "") } else { ("=> ", "\n") };
    let mut text = String::new();
    if let Some(name) = place.super_name.filter(|_| place.is_group) {
        let name = types.names.render(name);
        let _ = write!(text, "=> (super_column={},", escaped(&name, BREAKS));
    }
    for column in columns {
        let declared = types.declared_name(column.name).map(str::to_owned);
        let name = declared.unwrap_or_else(|| place.names().render(column.name));
        let value = shown_value(types.value_type(column.name), column.value);
        let (name, value) = (escaped(&name, BREAKS), escaped(&value, BREAKS));
        let Column { timestamp, .. } = column;
        let _ = write!(text, "{start}(column={name}, value={value}, timestamp={timestamp}){end}");
    }
    text.push_str(if place.is_group { ")\n" } else { "" });
    text
}

/// Characters that break no more than the layout.
const BREAKS: &[char] = &['\n', '\t'];

/// A text for a terminal: others than these control characters are shown as escapes.
fn escaped<'t>(text: &'t str, kept: &[char]) -> Cow<'t, str> {
    let is_escaped = |c: char| c.is_control() && !kept.contains(&c);
    if !text.contains(is_escaped) {
        return text.into();
    }
    let escape = |c| if is_escaped(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Rows below each other, their head underlined.
fn aligned(rows: &[Vec<String>]) -> String {
    let shown = |text: &String| escaped(text, &[]).into_owned();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|it| it.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let line = |cells: &mut dyn Iterator<Item = String>| {
        // Widths in formats end at 65,535.
        let padded = |(cell, width): (String, &usize)| {
            let missing = width - cell.chars().count();
            cell + &" ".repeat(missing)
        };
        let cells = cells.zip(&widths).map(padded);
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text += &line(&mut row.iter().cloned());
        if at == 0 {
            text += &line(&mut widths.iter().map(|width| "-".repeat(*width)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_as_wide_as_their_texts() {
        let wide = "w".repeat(70_000);
        let rows = [["a", "b"], [&wide, "c"], ["é\u{1b}", "d"]];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let text = aligned(&rows);
        let blanks = |number: usize| " ".repeat(number);
        let expected = [
            format!("a{}  b", blanks(69_999)),
            format!("{}  -", "-".repeat(70_000)),
            format!("{wide}  c"),
            format!("é\\u{{1b}}{}  d", blanks(69_993)),
        ];
        assert!(text.lines().eq(expected), "{}", text.replace(&wide, "w…"));
    }
}
