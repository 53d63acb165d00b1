//! Rows as a person wants to read them.

use alexandra::model::cell::{Cell, CellState};
use alexandra::model::deletion::Deletion;
use alexandra::model::range_deletion::decode_range;
use alexandra::model::version::RowVersion;
use std::ops::Bound;

/// Longer values are shown by their length.
const SHOWN_BYTES: usize = 30;

/// One thing a line; a word in their place if there are none.
pub(super) fn lines(things: impl Iterator<Item = String>, if_none: &str) -> String {
    let lines: Vec<String> = things.map(|thing| thing + "\n").collect();
    if lines.is_empty() { format!("{if_none}\n") } else { lines.concat() }
}

/// A name or key as text.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

/// A column with its timestamp, `super/name=value@5`; a minus stands before what is deleted.
fn cell(cell: &Cell) -> String {
    let (super_name, name) = cell.place();
    let slash = if super_name.is_empty() { "" } else { "/" };
    let place = format!("{}{slash}{}", text(super_name), text(name));
    match cell.state() {
        CellState::Live if cell.value().len() > SHOWN_BYTES => {
            format!("{place}=({} bytes)@{}", cell.value().len(), cell.timestamp())
        }
        CellState::Live => format!("{place}={}@{}", text(cell.value()), cell.timestamp()),
        CellState::Expiring => {
            let end = cell.expiry().map_or(0, |expiry| expiry.at);
            format!("{place}={}@{} until {end}", text(cell.value()), cell.timestamp())
        }
        CellState::PrefixTombstone => format!("-{place}/*@{}", cell.timestamp()),
        CellState::RangeTombstone => {
            let (start, end) = decode_range(name).unwrap();
            let bound = |bound, open| match bound {
                Bound::Unbounded => String::new(),
                Bound::Included(name) => text(name),
                Bound::Excluded(name) => format!("{open}{}", text(name)),
            };
            format!("-[{}..{}]@{}", bound(start, ">"), bound(end, "<"), cell.timestamp())
        }
        _ => format!("-{place}@{}", cell.timestamp()),
    }
}

/// A row with its columns on one line.
pub(super) fn row(key: &[u8], cells: &[Cell]) -> String {
    version(key, &RowVersion { deletion: Deletion::NONE, cells: cells.to_vec() })
}

/// The same of a row that may be deleted as a whole.
pub(super) fn version(key: &[u8], version: &RowVersion) -> String {
    let deletion = (!version.deletion.is_none())
        .then(|| format!("-row@{}", version.deletion.marked_for_delete_at));
    let parts: Vec<String> = deletion.into_iter().chain(version.cells.iter().map(cell)).collect();
    let parts = if parts.is_empty() { "nothing".to_owned() } else { parts.join(" ") };
    format!("{}: {parts}", text(key))
}
