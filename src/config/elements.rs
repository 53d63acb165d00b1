//! The table of elements and attributes, and what of a file it has something to say about.

use super::error::{Notes, nearest as nearest_name};
use super::settings::Release;
use super::xml::Element;
use std::sync::LazyLock;

/// An element or attribute that some release of the original, or this server, knows: a row of
/// `elements.txt`, which describes the columns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// The heading above it.
    pub(super) section: &'static str,
    pub(super) path: &'static str,
    kind: &'static str,
    default: &'static str,
    effect: Effect,
}

/// Treatment of an element or attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// It is a setting.
    Honoured,
    /// It is a setting, which changes without a restart.
    Reloaded,
    /// It is a setting under an old name, in files before 0.6 only.
    Renamed(&'static str),
    /// It is a setting, but there is a better one.
    Deprecated(&'static str),
    /// It is accepted and changes nothing, for this reason.
    Ignored(&'static str),
    /// It is refused.
    Refused,
}

const TABLE: &str = include_str!("elements.txt");

/// All rows, in the order of docs/configuration.md.
pub(super) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| parse(TABLE));

fn parse(table: &'static str) -> Vec<Row> {
    let mut section = "";
    let lines = table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows = lines.filter_map(|line| {
        if let Some(heading) = line.strip_prefix('[') {
            section = heading.trim_end_matches(']');
            return None;
        }
        let [path, _, kind, default, word, _] = cells(line);
        Some(Row { section, path, kind, default, effect: effect(word) })
    });
    rows.collect()
}

fn cells(line: &'static str) -> [&'static str; 6] {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    cells.try_into().expect("a row has six cells")
}

fn effect(cell: &'static str) -> Effect {
    match cell.split_once(": ") {
        Some(("renamed", instead)) => Effect::Renamed(instead),
        Some(("deprecated", instead)) => Effect::Deprecated(instead),
        Some(("no effect", reason)) => Effect::Ignored(reason),
        _ if cell == "refused" => Effect::Refused,
        _ if cell == "reload" => Effect::Reloaded,
        _ => Effect::Honoured,
    }
}

/// Whether an element of this name means something in some place.
pub(super) fn is_name(name: &str) -> bool {
    name == "Storage" || ROWS.iter().any(|row| row.path.rsplit('/').next() == Some(name))
}

/// The row of an element that is a setting.
pub(super) fn row(path: &str) -> &'static Row {
    ROWS.iter().find(|row| row.path == path).expect("an element that is read has a row")
}

/// The default of an element that holds a label.
pub(super) fn usual_label(element: &str) -> &'static str {
    let is_it = |row: &&Row| row.path.rsplit('/').next() == Some(element);
    let row = ROWS.iter().find(is_it).expect("a label has a row");
    row.default.trim_matches('`')
}

impl Row {
    /// The least number that makes sense.
    pub(super) fn least(&self) -> u32 {
        let least = self.kind.split_once("at least ").map_or("0", |(_, least)| least);
        least.parse().expect("`at least` ends the type, with a number")
    }

    /// The number that the default begins with.
    pub(super) fn default_number(&self) -> u32 {
        let digits = self.default.split(|c: char| !c.is_ascii_digit()).next();
        digits.and_then(|digits| digits.parse().ok()).expect("the default begins with a number")
    }

    #[cfg(test)]
    pub(super) fn is_setting(&self) -> bool {
        matches!(self.effect, Effect::Honoured | Effect::Reloaded)
    }

    /// Whether it changes without a restart.
    pub(super) fn is_reloaded(&self) -> bool {
        self.effect == Effect::Reloaded
    }

    /// Whether the default is `true`.
    pub(super) fn default_boolean(&self) -> bool {
        self.default == "true"
    }
}

/// Notes what the file holds that is unknown, outdated or without effect. The original says
/// nothing about any of these but one, and a misspelt name then means the default.
pub(super) fn review(root: &Element, release: Release, notes: &mut Notes) {
    let mut pending: Vec<(String, &Element)> = vec![(String::new(), root)];
    while let Some((path, element)) = pending.pop() {
        if notes.is_full() {
            return;
        }
        for attribute in &element.attributes {
            // Declarations of name spaces and schemas are about the document, not the server.
            if !attribute.name.starts_with("xml") && !attribute.name.starts_with("xsi:") {
                let name = format!("@{}", attribute.name);
                review_one(&join(&path, &name), attribute.line, release, notes);
            }
        }
        let children = element.children.iter().filter_map(|child| {
            let path = join(&path, &child.name);
            // The content of an unknown element is not worth further notes.
            review_one(&path, child.line, release, notes).then_some((path, child))
        });
        pending.extend(children);
    }
}

fn join(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") }
}

/// Notes what there is to say about one path; false if the path is unknown.
fn review_one(path: &str, line: u32, release: Release, notes: &mut Notes) -> bool {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let shown = match name.strip_prefix('@') {
        Some(attribute) => format!("attribute {attribute}"),
        None => format!("element <{name}>"),
    };
    let Some(found) = ROWS.iter().find(|row| row.path == path) else {
        let place = if parent.is_empty() { "Storage" } else { parent };
        let hint = match nearest(parent, name) {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => "it has no effect".to_owned(),
        };
        notes.warn(line, format!("unknown {shown} in {place}: {hint}"));
        return false;
    };
    match found.effect {
        Effect::Honoured | Effect::Reloaded | Effect::Refused => {}
        Effect::Renamed(instead) if release == Release::V06 => {
            let text = format!("{shown} has no effect from 0.6 on: use {instead} instead");
            notes.warn(line, text);
        }
        Effect::Renamed(_) => {}
        Effect::Deprecated(instead) => {
            let name = name.trim_start_matches('@');
            notes.warn(line, format!("{name} is deprecated: {instead}"));
        }
        Effect::Ignored(reason) => notes.info(line, format!("{shown} has no effect: {reason}")),
    }
    true
}

/// The known name in that place that is most like this one, if any is like it.
fn nearest(parent: &str, name: &str) -> Option<&'static str> {
    let in_place = ROWS.iter().filter_map(|row| {
        let (place, candidate) = row.path.rsplit_once('/').unwrap_or(("", row.path));
        let same_kind = candidate.starts_with('@') == name.starts_with('@');
        (place == parent && same_kind).then_some(candidate)
    });
    nearest_name(name, in_place).map(|found| found.trim_start_matches('@'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;
    use std::collections::BTreeSet;

    fn notes_of(text: &str, release: Release) -> Vec<String> {
        let mut notes = Notes::default();
        review(&Element::parse(text, "a test").unwrap(), release, &mut notes);
        notes.into_sorted().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn paths_are_unique_and_hang_together() {
        let paths: BTreeSet<_> = ROWS.iter().map(|row| row.path).collect();
        assert_eq!(paths.len(), ROWS.len());
        for path in &paths {
            if let Some((parent, _)) = path.rsplit_once('/') {
                assert!(paths.contains(parent), "{path} has no parent");
            }
        }
    }

    #[test]
    fn the_manual_has_the_rows_of_the_table() {
        let row = |line: &'static str| {
            let [path, generation, kind, default, effect, meaning] = cells(line);
            let generation = match generation {
                "" => String::new(),
                "ours" => "Ours. ".to_owned(),
                older => format!("{older}. "),
            };
            let cell =
                |cell: &str| if cell.is_empty() { String::new() } else { format!("{cell} ") };
            let (kind, default) = (cell(kind), cell(default));
            let mark = if effect == "reload" { " ↻" } else { "" };
            format!("| `{path}`{mark} | {kind}| {default}| {generation}{meaning} |\n")
        };
        let lines = TABLE.lines().filter(|line| line.contains('|') && !line.starts_with('#'));
        let rows: String = lines.map(row).collect();
        let head = "| element or attribute | type, unit | default | what becomes of it |\n";
        let text = format!("{head}|---|---|---|---|\n{rows}");
        check_part("docs/configuration.md", "elements", &text);
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest() {
        for (written, meant) in [
            ("ThriftPrt", Some("ThriftPort")),
            ("clustername", Some("ClusterName")),
            ("KeysCached", None),
            ("GCGraceSecond", Some("GCGraceSeconds")),
            ("Xyzzy", None),
        ] {
            assert_eq!(nearest("", written), meant, "{written}");
        }
        let family = "Keyspaces/Keyspace/ColumnFamily";
        assert_eq!(nearest(family, "@ComparedWith"), Some("CompareWith"));
        assert_eq!(nearest(family, "Comments"), Some("Comment"));
        assert_eq!(nearest(family, &format!("@{}", "x".repeat(1000))), None);
    }

    #[test]
    fn notes_say_what_becomes_of_it() {
        let text = "<Storage xmlns:xsi='x' xsi:schemaLocation='y'>\n\
                    <ControlPort>7001</ControlPort>\n\
                    <Sedes>\n<Seed>h</Seed></Sedes>\n<MemtableSizeInMB>1</MemtableSizeInMB>\n\
                    <Keyspaces><Keyspace Name='k' Nam='x'>\n\
                    <ColumnFamily KeysCachedFraction='0.1'/>\n</Keyspace></Keyspaces>\n</Storage>";
        let notes = notes_of(text, Release::V06);
        assert_eq!(
            notes,
            [
                "line 2: info: element <ControlPort> has no effect: \
                 gossip uses StoragePort, as from 0.6 on",
                "line 3: warning: unknown element <Sedes> in Storage: did you mean Seeds?",
                "line 5: warning: element <MemtableSizeInMB> has no effect from 0.6 on: \
                 use MemtableThroughputInMB instead",
                "line 6: warning: unknown attribute Nam in Keyspaces/Keyspace: did you mean Name?",
                "line 7: warning: KeysCachedFraction is deprecated: use KeysCached instead.",
            ]
        );
        assert!(!notes_of(text, Release::V05).iter().any(|n| n.contains("MemtableSizeInMB")));
    }

    #[test]
    fn notes_are_bounded() {
        let text = format!("<Storage>{}</Storage>", "<x/>".repeat(10_000));
        let notes = notes_of(&text, Release::V06);
        assert_eq!(notes.len(), crate::config::error::MAX_NOTES + 1);
    }
}
