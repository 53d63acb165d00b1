//! Typed access to the elements of one document, with the rules that hold for all of them.
//!
//! The first of several elements counts, an empty one counts as absent, and blanks around a value
//! do not count; the original is stricter only in the last.

use super::elements;
use super::error::{ConfigError, Notes, Place, Problem};
use super::settings::Release;
use super::xml::Element;
use std::collections::BTreeMap;
use std::fmt::Display;

/// Bytes of a megabyte, as all elements count them.
pub(super) const MIB: u64 = 1 << 20;

/// The most seeds or data directories of one file.
const MAX_LIST_ENTRIES: usize = 1000;

/// Origin of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The line of its element.
    pub line: u32,
    /// The name of the element as the file has it; older files use older names.
    pub element: &'static str,
}

/// The most errors that are kept of one file.
const MAX_ERRORS: usize = 100;

/// A document that is being read: its settings by element, its errors and its notes.
///
/// Reading goes on after an error, so that all of them are reported together. A setting that is
/// refused has its default meanwhile; the document as a whole is refused at the end.
pub(super) struct Document<'a> {
    pub(super) root: &'a Element,
    pub(super) origin: &'a str,
    pub(super) release: Release,
    pub(super) notes: Notes,
    pub(super) sources: BTreeMap<&'static str, Source>,
    /// The settings below `/Storage` as `check-config` shows them.
    pub(super) shown: BTreeMap<&'static str, String>,
    /// In the order of evaluation.
    pub(super) errors: Vec<ConfigError>,
}

/// A value that is there, without blanks around it.
#[derive(Debug, Clone)]
pub(super) struct Value<'a> {
    pub(super) text: &'a str,
    pub(super) place: Place<'a>,
}

impl<'a> Value<'a> {
    /// The text of an element, `None` if it is empty.
    pub(super) fn of_element(element: &'a Element, place: Place<'a>) -> Option<Self> {
        let text = element.text.trim();
        (!text.is_empty()).then_some(Self { text, place })
    }

    /// The value of an attribute, `None` if it is absent or empty.
    pub(super) fn of_attribute(
        element: &'a Element,
        place: &Place<'a>,
        name: &'static str,
    ) -> Option<Self> {
        let attribute = element.attribute(name)?;
        let text = attribute.value.trim();
        let path = format!("{}/@{name}", place.element);
        let place = Place { origin: place.origin, line: attribute.line, element: path };
        (!text.is_empty()).then_some(Self { text, place })
    }

    pub(super) fn refuse(&self, problem: impl Into<Problem>) -> ConfigError {
        self.place.error(Some(self.text), problem)
    }

    /// The error for a value that the original cannot read as a number.
    pub(super) fn refuse_as_no(&self, kind: &str) -> ConfigError {
        self.refuse(Problem::startup(format!("not {kind}")))
    }

    /// A whole number of 32 bits, as Java reads it.
    pub(super) fn integer(&self) -> Result<i32, ConfigError> {
        self.text.parse().map_err(|_| self.refuse_as_no("a whole number of 32 bits"))
    }

    /// A whole number above zero, for which the original has words of its own.
    pub(super) fn positive(&self, problem: &str) -> Result<u32, ConfigError> {
        let number = u32::try_from(self.integer()?).ok().filter(|number| *number > 0);
        number.ok_or_else(|| self.refuse(problem))
    }

    /// A finite number, as Java reads it: a type suffix is allowed.
    pub(super) fn double(&self) -> Result<f64, ConfigError> {
        parse_double(self.text).ok_or_else(|| self.refuse_as_no("a finite number"))
    }

    pub(super) fn port(&self) -> Result<u16, ConfigError> {
        u16::try_from(self.integer()?).map_err(|_| self.refuse_as_no("a port from 0 to 65535"))
    }

    pub(super) fn boolean(&self, what: &str) -> Result<bool, ConfigError> {
        self.text.to_ascii_lowercase().parse().map_err(|_| {
            let text = format!("Unrecognized value for {what}.  Use 'true' or 'false'.");
            self.refuse(Problem::from(text).allowing(["true", "false"]))
        })
    }

    /// The member of a set that the value names, in any letter case.
    pub(super) fn one_of<T: Display + Copy>(
        &self,
        element: &str,
        known: &[T],
    ) -> Result<T, ConfigError> {
        let found = known.iter().find(|it| it.to_string().eq_ignore_ascii_case(self.text));
        found.copied().ok_or_else(|| self.refuse(Problem::unknown_word(element).allowing(known)))
    }

    /// The class that the value names; short names are refused as in the original.
    pub(super) fn class<T: Copy>(
        &self,
        kind: &str,
        known: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<T, ConfigError> {
        let found = known.iter().find(|class| name(**class) == self.text);
        found.copied().ok_or_else(|| {
            let text = format!("Invalid {kind} class {}", self.text);
            self.refuse(Problem::from(text).allowing(known.iter().map(|class| name(*class))))
        })
    }
}

/// A finite number as Java writes them.
pub(super) fn parse_double(text: &str) -> Option<f64> {
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    // Rust also reads words such as "infinity"; "inf" minus its suffix is one of them.
    let is_number = digits.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    digits.parse().ok().filter(|number: &f64| is_number && number.is_finite())
}

impl<'a> Document<'a> {
    pub(super) fn new(root: &'a Element, origin: &'a str, release: Release) -> Self {
        let (notes, sources, shown) = (Notes::default(), BTreeMap::new(), BTreeMap::new());
        Self { root, origin, release, notes, sources, shown, errors: Vec::new() }
    }

    /// Records an error, once: several keyspaces may lack the same element.
    pub(super) fn refuse(&mut self, error: ConfigError) {
        if self.errors.len() == MAX_ERRORS || self.errors.contains(&error) {
            return;
        }
        self.errors.push(error);
        if self.errors.len() == MAX_ERRORS {
            let text = format!("only {MAX_ERRORS} errors of this file are told");
            self.notes.warn(self.root.line, text);
        }
    }

    /// The value, or `None` after recording its error.
    pub(super) fn accept<T>(&mut self, result: Result<T, ConfigError>) -> Option<T> {
        result.map_err(|error| self.refuse(error)).ok()
    }

    /// Has `check-config` show a setting like this.
    pub(super) fn show(&mut self, name: &'static str, value: impl Display) {
        // A line each.
        let value = value.to_string().replace(['\r', '\n'], " ");
        self.shown.insert(name, value);
    }

    /// A setting below `/Storage`, or its default if the element is absent or refused.
    pub(super) fn setting<T: Display>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> T {
        let setting = self.optional(name, read).unwrap_or(default);
        self.show(name, &setting);
        setting
    }

    /// A setting that may be absent. The caller shows it. Also for an element without effect of
    /// which the original refuses some values.
    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Option<T> {
        let value = self.find(name)?;
        self.accept(read(&value))
    }

    /// The setting that a value stands for, or its default without a value and for a refused one.
    pub(super) fn read_or<T>(
        &mut self,
        value: Option<Value<'a>>,
        default: T,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> T {
        value.and_then(|value| self.accept(read(&value))).unwrap_or(default)
    }

    /// A setting that must be there; `missing` is the problem if it is not.
    pub(super) fn required<T>(
        &mut self,
        name: &'static str,
        missing: impl Into<Problem>,
        read: impl FnOnce(&Value<'a>) -> Result<T, ConfigError>,
    ) -> Option<T> {
        let read = match self.find(name) {
            Some(value) => read(&value),
            None => Err(self.absent(name, missing)),
        };
        self.accept(read)
    }

    /// The value of the first element of that name below `/Storage`.
    pub(super) fn find(&mut self, name: &'static str) -> Option<Value<'a>> {
        self.find_as(name, name)
    }

    /// The same under the name that it has in files before 0.6.
    pub(super) fn find_renamed(
        &mut self,
        name: &'static str,
        old: &'static str,
    ) -> Option<Value<'a>> {
        let found = if self.release < Release::V06 { self.find_as(name, old) } else { None };
        found.or_else(|| self.find(name))
    }

    fn find_as(&mut self, name: &'static str, written: &'static str) -> Option<Value<'a>> {
        let mut elements = self.root.children_named(written);
        let element = elements.next()?;
        for other in elements {
            let first = element.line;
            let text = format!("<{written}> is given on line {first} already; that one counts");
            self.notes.warn(other.line, text);
        }
        let value = Value::of_element(element, self.place(written, element.line))?;
        self.sources.insert(name, Source { line: element.line, element: written });
        Some(value)
    }

    /// The values of a list, as `/Storage/Seeds/Seed`. An empty entry is an error.
    pub(super) fn list(&mut self, list: &'static str, entry: &'static str) -> Vec<Value<'a>> {
        let mut values = Vec::new();
        for (element, place) in self.entries(list, entry) {
            let empty = place.refuse(Problem::startup("the element is empty"));
            values.extend(self.accept(Value::of_element(element, place).ok_or(empty)));
        }
        values
    }

    /// The elements of a list, with their places.
    pub(super) fn entries(
        &mut self,
        list: &'static str,
        entry: &'static str,
    ) -> Vec<(&'a Element, Place<'a>)> {
        let mut entries = Vec::new();
        for element in self.root.children_named(list).flat_map(|e| e.children_named(entry)) {
            let place = self.place(&format!("{list}/{entry}"), element.line);
            if entries.len() == MAX_LIST_ENTRIES {
                let problem = Problem::startup(format!("more than {MAX_LIST_ENTRIES} entries"));
                self.refuse(place.refuse(problem));
                break;
            }
            entries.push((element, place));
            self.sources.entry(list).or_insert(Source { line: element.line, element: list });
        }
        entries
    }

    /// The place of an element below `/Storage`.
    pub(super) fn place(&self, name: &str, line: u32) -> Place<'a> {
        Place { origin: self.origin, line, element: format!("/Storage/{name}") }
    }

    /// The error for an element that is not there.
    pub(super) fn absent(&self, name: &str, problem: impl Into<Problem>) -> ConfigError {
        let line = self.root.children_named(name).next().map_or(self.root.line, |e| e.line);
        self.place(name, line).refuse(problem)
    }

    pub(super) fn boolean(&mut self, name: &'static str) -> bool {
        self.setting(name, elements::row(name).default_boolean(), |value| value.boolean(name))
    }

    /// A whole number. One below the least, which the original takes and cannot work with, is
    /// raised with a note.
    pub(super) fn integer(&mut self, name: &'static str) -> u32 {
        let (row, value) = (elements::row(name), self.find(name));
        let number = value.and_then(|value| self.at_least(&value, row.least()));
        let number = number.unwrap_or(row.default_number());
        self.show(name, number);
        number
    }

    /// A number of megabytes, in bytes.
    pub(super) fn megabytes(&mut self, name: &'static str) -> u64 {
        u64::from(self.integer(name)) * MIB
    }

    /// A number of megabytes per second, in bytes; `None` for no limit, written 0.
    pub(super) fn throughput(&mut self, name: &'static str) -> Option<u64> {
        let bytes = self.megabytes(name);
        if bytes == 0 {
            self.show(name, "0 (no limit)");
        }
        (bytes > 0).then_some(bytes)
    }

    /// The whole number of a value, raised to `least` with a note if it is smaller; `None` after
    /// recording that it is none.
    pub(super) fn at_least(&mut self, value: &Value<'a>, least: u32) -> Option<u32> {
        let number = self.accept(value.integer())?;
        match u32::try_from(number) {
            Ok(number) if number >= least => Some(number),
            _ => {
                let element = &value.place.element;
                let text = format!("{element}: {number} is taken as {least}, the least possible");
                self.notes.warn(value.place.line, text);
                Some(least)
            }
        }
    }

    pub(super) fn port(&mut self, name: &'static str) -> u16 {
        self.setting(name, elements::row(name).default_number() as u16, Value::port)
    }

    /// A whole number above zero; `problem` says otherwise.
    pub(super) fn positive(&mut self, name: &'static str, problem: &str) -> u32 {
        let default = elements::row(name).default_number();
        self.setting(name, default, |value| value.positive(problem))
    }
}

/// The items of a list as `check-config` shows them; `none` without any.
pub(super) fn joined<T: Display>(items: &[T], none: &str) -> String {
    if items.is_empty() {
        return none.to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_those_of_java() {
        for (text, number) in [("0.3", 0.3), ("1e3", 1000.0), (".5", 0.5), ("2d", 2.0), ("5.", 5.0)]
        {
            assert_eq!(parse_double(text), Some(number), "{text}");
        }
        for text in ["", "x", "NaN", "Infinity", "inf", "infd", "1e999", "1e", "0x10", "1_0", "d"] {
            assert_eq!(parse_double(text), None, "{text}");
        }
    }
}
