//! Definitions as lines of text. Fields are separated by spaces, and bytes in them that could be
//! mistaken are `%` and two hexadecimal digits.
//!
//! ```text
//! version <number>
//! keyspace <name> <durable: 0 or 1> [<strategy> <factor> (<data centre> <factor>)*]
//! type <name> (<field> <class>)*
//! table <name> <id> <id of its rows> <is compact: 0 or 1>
//! column <name> <kind> <class>
//! dropped <name> <is static: 0 or 1> <microseconds> <class>
//! text <property> <value>
//! map <property> (<key> <value>)*
//! ```
//!
//! A keyspace of the configuration has no strategy. Types and tables belong to the keyspace before
//! them, the rest to the table before it.

use super::definitions::{
    Definitions, DroppedColumn, KeyspaceDefinition, PropertyValue, Replication, TableDefinition,
};
use crate::config::classes::StrategyName;
use crate::model::table::{Column, ColumnKind, Table};
use crate::model::types::{CqlType, UserType};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use uuid::Uuid;

/// Kinds of columns by name.
const KINDS: [(&str, ColumnKind); 5] = [
    ("key", ColumnKind::PartitionKey),
    ("ascending", ColumnKind::Clustering { is_descending: false }),
    ("descending", ColumnKind::Clustering { is_descending: true }),
    ("static", ColumnKind::Static),
    ("regular", ColumnKind::Regular),
];

/// Returns the lines of the definitions.
pub(super) fn encode(definitions: &Definitions) -> String {
    let mut out = Lines::default();
    out.line("version", [&definitions.version.to_string()]);
    for (name, keyspace) in &definitions.keyspaces {
        out.keyspace(name, keyspace);
    }
    out.0
}

#[derive(Default)]
struct Lines(String);

impl Lines {
    fn line<'f>(&mut self, word: &str, fields: impl IntoIterator<Item = &'f String>) {
        self.0.push_str(word);
        for field in fields {
            self.0.push(' ');
            put_escaped(field, &mut self.0);
        }
        self.0.push('\n');
    }

    fn keyspace(&mut self, name: &str, keyspace: &KeyspaceDefinition) {
        let mut fields = vec![name.to_owned(), flag(keyspace.durable_writes)];
        if let Some(replication) = &keyspace.replication {
            let class = replication.strategy.class_name().to_owned();
            fields.extend([class, replication.factor.to_string()]);
            for (center, factor) in &replication.data_centers {
                fields.extend([center.clone(), factor.to_string()]);
            }
        }
        self.line("keyspace", &fields);
        for (name, user) in &keyspace.types {
            let fields = user.fields.iter().flat_map(|(name, of)| [name.clone(), of.class_name()]);
            let fields: Vec<String> = std::iter::once(name.clone()).chain(fields).collect();
            self.line("type", &fields);
        }
        for (name, table) in &keyspace.tables {
            self.table(name, table);
        }
    }

    fn table(&mut self, name: &str, definition: &TableDefinition) {
        let TableDefinition { id, rows, table, properties, dropped } = definition;
        let is_compact = flag(table.is_compact());
        self.line("table", &[name.to_owned(), id.to_string(), rows.to_string(), is_compact]);
        for column in &table.columns {
            let kind = KINDS.iter().find(|(_, kind)| *kind == column.kind);
            let kind = kind.map_or("regular", |(name, _)| name).to_owned();
            self.line("column", &[column.name.clone(), kind, column.of_type.class_name()]);
        }
        for (name, column) in dropped {
            let DroppedColumn { of_type, is_static, micros } = column;
            let fields = [name, &flag(*is_static), &micros.to_string(), &of_type.class_name()];
            self.line("dropped", fields);
        }
        for (name, value) in properties {
            match value {
                PropertyValue::Text(text) => self.line("text", [name, text]),
                PropertyValue::Map(map) => {
                    let entries = map.iter().flat_map(|(key, value)| [key, value]);
                    self.line("map", std::iter::once(name).chain(entries));
                }
            }
        }
    }
}

fn flag(value: bool) -> String {
    u8::from(value).to_string()
}

fn put_escaped(field: &str, out: &mut String) {
    use std::fmt::Write;
    for byte in field.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.,:()-".contains(&byte) {
            out.push(byte.into());
        } else {
            let _ = write!(out, "%{byte:02x}");
        }
    }
}

fn unescaped(field: &str) -> Option<String> {
    let mut parts = field.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Reads what [`encode`] has written.
pub(super) fn decode(lines: &str) -> Option<Definitions> {
    let mut reader = Reader::default();
    lines.lines().try_for_each(|line| reader.line(line))?;
    reader.end_table()?;
    Some(reader.definitions)
}

/// A table that is being read, with its name.
struct Draft {
    name: String,
    definition: TableDefinition,
    columns: Vec<Column>,
    is_compact: bool,
}

#[derive(Default)]
struct Reader {
    definitions: Definitions,
    keyspace: Option<String>,
    table: Option<Draft>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Option<()> {
        let mut fields = line.split(' ');
        let word = fields.next()?;
        let fields: Vec<String> = fields.map(unescaped).collect::<Option<_>>()?;
        match (word, &fields[..]) {
            ("version", [version]) => self.definitions.version = version.parse().ok()?,
            ("keyspace", [name, durable, replication @ ..]) => {
                self.end_table()?;
                let definition = KeyspaceDefinition {
                    replication: match replication {
                        [] => None,
                        fields => Some(read_replication(fields)?),
                    },
                    durable_writes: read_flag(durable)?,
                    ..KeyspaceDefinition::default()
                };
                self.definitions.keyspaces.insert(name.clone(), definition);
                self.keyspace = Some(name.clone());
            }
            ("type", [name, fields @ ..]) => {
                let keyspace = self.keyspace.clone()?;
                let fields = pairs(fields, CqlType::from_class)?;
                let user = UserType { keyspace, name: name.clone(), fields };
                self.open_keyspace()?.types.insert(name.clone(), Arc::new(user));
            }
            ("table", [name, id, rows, is_compact]) => {
                self.end_table()?;
                self.table = Some(Draft {
                    name: name.clone(),
                    definition: TableDefinition {
                        id: Uuid::from_str(id).ok()?,
                        rows: Uuid::from_str(rows).ok()?,
                        table: Arc::new(Table::of_columns(Vec::new(), false)),
                        properties: BTreeMap::new(),
                        dropped: BTreeMap::new(),
                    },
                    columns: Vec::new(),
                    is_compact: read_flag(is_compact)?,
                });
            }
            (word, fields) => self.table.as_mut()?.line(word, fields)?,
        }
        Some(())
    }

    fn open_keyspace(&mut self) -> Option<&mut KeyspaceDefinition> {
        self.definitions.keyspaces.get_mut(self.keyspace.as_deref()?)
    }

    /// Adds the table that was read to its keyspace.
    fn end_table(&mut self) -> Option<()> {
        let Some(draft) = self.table.take() else { return Some(()) };
        let mut definition = draft.definition;
        let mut columns = draft.columns;
        for column in &mut columns {
            column.hidden_up_to = definition.hidden_up_to(&column.name, column.kind);
        }
        let mut table = Table::of_columns(columns, draft.is_compact);
        table.default_ttl = definition.number("default_time_to_live", 0);
        table.has_dropped = !definition.dropped.is_empty();
        definition.table = Arc::new(table);
        self.open_keyspace()?.tables.insert(draft.name, Arc::new(definition));
        Some(())
    }
}

impl Draft {
    fn line(&mut self, word: &str, fields: &[String]) -> Option<()> {
        match (word, fields) {
            ("column", [name, kind, class]) => {
                let kind = KINDS.iter().find(|(name, _)| name == kind)?.1;
                let of_type = CqlType::from_class(class)?;
                self.columns.push(Column::new(name.as_str(), of_type, kind));
            }
            ("dropped", [name, is_static, micros, class]) => {
                let column = DroppedColumn {
                    of_type: CqlType::from_class(class)?,
                    is_static: read_flag(is_static)?,
                    micros: micros.parse().ok()?,
                };
                self.definition.dropped.insert(name.clone(), column);
            }
            ("text", [name, value]) => {
                let value = PropertyValue::Text(value.clone());
                self.definition.properties.insert(name.clone(), value);
            }
            ("map", [name, entries @ ..]) => {
                let entries = pairs(entries, |value| Some(value.to_owned()))?;
                let value = PropertyValue::Map(entries.into_iter().collect());
                self.definition.properties.insert(name.clone(), value);
            }
            _ => return None,
        }
        Some(())
    }
}

fn read_flag(field: &str) -> Option<bool> {
    match field {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn read_replication(fields: &[String]) -> Option<Replication> {
    let [class, factor, centers @ ..] = fields else { return None };
    Some(Replication {
        strategy: StrategyName::ALL.into_iter().find(|it| it.class_name() == class)?,
        factor: factor.parse().ok()?,
        data_centers: pairs(centers, |factor| factor.parse().ok())?.into_iter().collect(),
    })
}

fn pairs<T>(fields: &[String], read: impl Fn(&str) -> Option<T>) -> Option<Vec<(String, T)>> {
    let (pairs, rest) = fields.as_chunks::<2>();
    let pairs = pairs.iter().map(|[name, value]| Some((name.clone(), read(value)?)));
    if rest.is_empty() { pairs.collect() } else { None }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::types::Native;

    /// Definitions with something of everything.
    pub(in crate::schema) fn sample() -> Definitions {
        let user = UserType {
            keyspace: "k".into(),
            name: "u".into(),
            fields: vec![("a b".into(), Native::Int.into()), ("c".into(), Native::Text.into())],
        };
        let user = Arc::new(user);
        let clustering = ColumnKind::Clustering { is_descending: true };
        let of_user = CqlType::List(Arc::new(CqlType::User(Arc::clone(&user)).frozen()));
        let columns = vec![
            Column::new("key", Native::Text.into(), ColumnKind::PartitionKey),
            Column::new("c", Native::Int.into(), clustering),
            Column::new("s %", Native::Blob.into(), ColumnKind::Static),
            Column { hidden_up_to: -5, ..Column::new("", of_user.clone(), ColumnKind::Regular) },
        ];
        let mut table = Table::of_columns(columns, false);
        (table.default_ttl, table.has_dropped) = (7, true);
        let text = |text: &str| PropertyValue::Text(text.into());
        let compaction = [("class".into(), "Leveled".into()), ("x".into(), String::new())];
        let definition = TableDefinition {
            id: Uuid::from_u128(1),
            rows: Uuid::from_u128(2),
            table: Arc::new(table),
            properties: BTreeMap::from([
                ("comment".into(), text("a\nb \"é\"")),
                ("default_time_to_live".into(), text("7")),
                ("compaction".into(), PropertyValue::Map(compaction.into())),
            ]),
            dropped: [("", of_user, -5), ("gone", Native::Int.into(), 9)]
                .map(|(name, of_type, micros)| {
                    (name.into(), DroppedColumn { of_type, is_static: false, micros })
                })
                .into(),
        };
        let replication = Replication {
            strategy: StrategyName::DatacenterShard,
            factor: 0,
            data_centers: [("dc 1".into(), 3)].into(),
        };
        let made = KeyspaceDefinition {
            replication: Some(replication),
            durable_writes: false,
            tables: [("t".into(), Arc::new(definition.clone()))].into(),
            types: [("u".into(), user)].into(),
        };
        let dense = vec![
            Column::new("key", Native::Text.into(), ColumnKind::PartitionKey),
            Column::new("c", Native::Int.into(), clustering),
            Column::new("value", Native::Blob.into(), ColumnKind::Regular),
        ];
        let dense = TableDefinition {
            table: Arc::new(Table::of_columns(dense, true)),
            properties: BTreeMap::new(),
            dropped: BTreeMap::new(),
            ..definition
        };
        let configured = KeyspaceDefinition {
            replication: None,
            durable_writes: true,
            tables: [("d".into(), Arc::new(dense))].into(),
            types: BTreeMap::new(),
        };
        let keyspaces = [("k".into(), made), ("Blog 1".into(), configured)].into();
        Definitions { version: 12, keyspaces }
    }

    #[test]
    fn definitions_are_read_as_they_were_written() {
        let sample = sample();
        assert_eq!(decode(&encode(&sample)), Some(sample));
    }

    #[test]
    fn lines_that_are_no_definitions_are_refused() {
        for lines in [
            "version x\n",
            "other 1\n",
            "column c key org.apache.cassandra.db.marshal.Int32Type\n",
            "keyspace k 2\n",
            "keyspace k 1 NoStrategy 1\n",
            "keyspace k 1\ntype t f\n",
            "keyspace %zz 1\n",
            "table t 1 1 0\n",
        ] {
            assert_eq!(decode(lines), None, "{lines}");
        }
    }

    #[test]
    fn the_digest_is_that_of_the_content() {
        let mut changed = sample();
        changed.version += 1;
        assert_eq!(changed.digest(), sample().digest());
        changed.keyspaces.remove("k");
        assert_ne!(changed.digest(), sample().digest());
    }
}
