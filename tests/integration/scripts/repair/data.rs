//! Data of nodes, and how scripts see them.

use super::original::keys;
use super::world::{World, families};
use super::{Command, Said, numbers};
use alexandra::base::fs::FileSystem;
use alexandra::model::cell::{Cell, CellState};
use alexandra::model::deletion::Deletion;
use alexandra::model::mutation::MutationBuilder;
use alexandra::model::schema::FamilyId;
use alexandra::model::version::RowVersion;
use alexandra::ring::RowRange;
use alexandra::storage::Database;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

pub(super) fn run(world: &mut World, command: &Command) -> Said {
    match command {
        Command::Write(nodes, key, times, family, at, columns) => {
            let key = bytes(key)?.repeat(times.unwrap_or(1));
            apply(world, (nodes.as_str(), family.as_deref()), &key, |row| {
                for (name, value) in columns {
                    row.insert(place(name), value.as_bytes(), at.unwrap_or(1));
                }
            })
        }
        Command::Delete(nodes, key, column, family, at) => {
            let now = world.now_secs();
            apply(world, (nodes.as_str(), family.as_deref()), &bytes(key)?, |row| {
                let deletion = Deletion::at(*at, now);
                match column.as_deref().map(place) {
                    None => row.delete_row(deletion),
                    Some((name, b"")) => row.delete_super_column(name, deletion),
                    Some(place) => row.delete_column(place, deletion),
                };
            })
        }
        Command::Fill(nodes, rows, prefix, columns, width) => {
            let prefix = bytes(prefix.as_deref().unwrap_or_default())?;
            for row in 0..*rows {
                // Another letter each time, so that all nodes get some.
                let letter = b'a' + (row % 26) as u8;
                let key = [&prefix[..], &[letter], row.to_string().as_bytes()].concat();
                let value = vec![b'v'; width.unwrap_or(1)];
                apply(world, (nodes.as_str(), None), &key, |cells| {
                    for column in 0..columns.unwrap_or(1) {
                        cells.insert((b"", format!("name{column}").as_bytes()), &value, 1);
                    }
                })?;
            }
            Ok(String::new())
        }
        Command::Rows(node, family, key) => {
            let mut rows = stored(world, *node, family.as_deref())?;
            rows.retain(|it, _| key.as_ref().is_none_or(|key| key.as_bytes() == it));
            let lines = rows.iter().map(|(key, row)| format!("{}: {}", text(key), spell(row)));
            Ok(lines.collect::<Vec<_>>().join("\n"))
        }
        Command::Keys(node) => {
            let storage = world.node(*node)?.storage();
            Ok(keys(&storage, "Authors")?.join(" "))
        }
        Command::Compare(nodes) => compare(world, &numbers(nodes)?),
        Command::Flush(nodes) => on_all(world, nodes, |it, family| it.flush(family).unwrap()),
        Command::Compact(nodes) => on_all(world, nodes, |it, family| it.compact(family).unwrap()),
        Command::Ls(node, path) => {
            let entries =
                world.node(*node)?.fs.list(&Path::new("/").join(path)).unwrap_or_default();
            let files = entries.into_iter().filter(|it| !it.is_dir).map(|it| it.name);
            Ok(files.collect::<Vec<_>>().join("\n"))
        }
        Command::Damage(node, path) => {
            world.node(*node)?.fs.corrupt(&Path::new("/").join(path), 20, 1)?;
            Ok(String::new())
        }
        _ => Err("there is no such command".into()),
    }
}

/// Bytes as a script writes them: a text, or digits behind `0x`.
fn bytes(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let Some(digits) = text.strip_prefix("0x") else { return Ok(text.as_bytes().to_vec()) };
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair)?;
        Ok::<_, Box<dyn Error>>(u8::from_str_radix(pair, 16)?)
    });
    pairs.collect()
}

fn text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.len() > 20 { format!("<{} bytes>", bytes.len()) } else { text.into_owned() }
}

/// The place of a column, behind that of its super column and a slash if it has one.
fn place(name: &str) -> (&[u8], &[u8]) {
    let (super_name, name) = name.split_once('/').unwrap_or(("", name));
    (super_name.as_bytes(), name.as_bytes())
}

fn apply(
    world: &mut World,
    (nodes, family): (&str, Option<&str>),
    key: &[u8],
    change: impl Fn(&mut MutationBuilder<'_>),
) -> Said {
    for node in numbers(nodes)? {
        let storage = world.node(node)?.storage();
        let id = families(&storage, Some(family.unwrap_or("Authors")))?[0];
        let keyspace = &storage.schema().family(id).keyspace;
        let mut mutation = MutationBuilder::new(storage.schema(), keyspace, key);
        change(mutation.family(id));
        storage.apply(&mutation.finish(), true)?;
    }
    Ok(String::new())
}

fn on_all(world: &mut World, nodes: &str, work: impl Fn(&Database, FamilyId)) -> Said {
    for node in numbers(nodes)? {
        let storage = world.node(node)?.storage();
        families(&storage, None)?.into_iter().for_each(|family| work(&storage, family));
    }
    Ok(String::new())
}

/// All that a node has of a family, deletions included.
fn stored(
    world: &mut World,
    node: u8,
    family: Option<&str>,
) -> Result<BTreeMap<Vec<u8>, RowVersion>, Box<dyn Error>> {
    let storage = world.node(node)?.storage();
    let id = families(&storage, Some(family.unwrap_or("Authors")))?[0];
    let piece = storage.family(id).read_piece(&RowRange::all(), None, usize::MAX)?;
    Ok(piece.rows.into_iter().map(|(key, row)| (key.as_bytes().to_vec(), row)).collect())
}

fn compare(world: &mut World, nodes: &[u8]) -> Said {
    let mut lines = Vec::new();
    for family in ["Authors", "Comments"] {
        let first = stored(world, nodes[0], Some(family))?;
        let mut differ = Vec::new();
        for node in &nodes[1..] {
            let other = stored(world, *node, Some(family))?;
            let all = first.keys().chain(other.keys().filter(|it| !first.contains_key(*it)));
            let differs = |key: &&Vec<u8>| first.get(*key) != other.get(*key);
            let count = all.filter(differs).count();
            differ.extend((count > 0).then(|| format!("{count} rows differ at {node}")));
        }
        let differ = if differ.is_empty() { "alike".to_owned() } else { differ.join(", ") };
        lines.push(format!("{family}: {} rows, {differ}", first.len()));
    }
    Ok(lines.join("\n"))
}

fn spell(row: &RowVersion) -> String {
    let deleted = (!row.deletion.is_none())
        .then(|| format!("deleted at {}", row.deletion.marked_for_delete_at));
    let cells = row.cells.iter().map(spell_cell);
    deleted.into_iter().chain(cells).collect::<Vec<_>>().join(", ")
}

fn spell_cell(cell: &Cell) -> String {
    let slash = if cell.super_name().is_empty() { "" } else { "/" };
    let name = format!("{}{slash}{}", text(cell.super_name()), text(cell.name()));
    match cell.state() {
        CellState::Live => format!("{name}={} at {}", text(cell.value()), cell.timestamp()),
        _ => format!("{name} deleted at {}", cell.timestamp()),
    }
}
