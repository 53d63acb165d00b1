//! Tables as column families, with the settings of those of a configuration.

use super::definitions::{Definitions, KeyspaceDefinition, Replication, TableDefinition};
use crate::config::Settings;
use crate::config::classes::SnitchName;
use crate::config::settings::{
    CacheSize, ColumnFamilySettings, CompactionStrategy, Compression,
    DEFAULT_MAX_COMPACTION_THRESHOLD, DEFAULT_MIN_COMPACTION_THRESHOLD, KeyspaceSettings, Labels,
};
use crate::model::comparator::{CLASS_PREFIX, Comparator, ComparatorRegistry};
use crate::model::schema::{ColumnFamilyKind, ColumnFamilySchema};
use crate::model::table::{ColumnKind, Form, Table};
use std::sync::Arc;
use std::time::Duration;

/// Grace period of tables, in seconds, as in the original.
const GC_GRACE: u64 = 864_000;
/// Share of reads whose replicas in the data centre of the node are compared.
const READ_REPAIR_CHANCE: f64 = 0.1;
/// Number of keys that are cached.
const KEYS_CACHED: u64 = 200_000;

/// Reason why the configuration and the schema that was made over CQL do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaConflict {
    /// Both define a keyspace.
    #[error(
        "keyspace {0} was made over CQL: take it out of storage-conf.xml, or drop it over CQL first"
    )]
    Keyspace(String),
    /// Both define a table.
    #[error(
        "{0}.{1} is a table that was made over CQL: take the column family of this name out of \
         storage-conf.xml, or drop the table over CQL first"
    )]
    Table(String, String),
    /// A keyspace with tables is gone from the configuration.
    #[error(
        "keyspace {0} has tables or types that were made over CQL: put it back into \
         storage-conf.xml, or drop them over CQL first"
    )]
    MissingKeyspace(String),
    /// A table needs a comparator that this version does not know.
    #[error(
        "table {0}.{1} was made over CQL by a later version: its columns cannot be sorted here"
    )]
    Unsortable(String, String),
}

/// Adds what was made over CQL to the settings, so that the database of the node can be opened.
pub(super) fn complete(
    settings: &mut Settings,
    definitions: &Definitions,
) -> Result<(), SchemaConflict> {
    let snitch = settings.keyspaces.first().map_or(SnitchName::EndPoint, |it| it.snitch);
    for (name, definition) in &definitions.keyspaces {
        let configured = settings.keyspaces.iter().position(|it| it.name == *name);
        let at = match (configured, &definition.replication) {
            (Some(_), Some(_)) => return Err(SchemaConflict::Keyspace(name.clone())),
            (None, None) => return Err(SchemaConflict::MissingKeyspace(name.clone())),
            (Some(at), None) => at,
            (None, Some(replication)) => {
                settings.keyspaces.push(replication.keyspace(name, snitch));
                settings.keyspaces.len() - 1
            }
        };
        let families = definition.families(name)?;
        let known = &mut settings.keyspaces[at].column_families;
        if let Some(table) = definition
            .tables
            .keys()
            .find(|table| known.iter().any(|family| family.schema.name == **table))
        {
            return Err(SchemaConflict::Table(name.clone(), table.clone()));
        }
        known.extend(families);
    }
    Ok(())
}

impl Replication {
    /// A keyspace without column families.
    pub fn keyspace(&self, name: &str, snitch: SnitchName) -> KeyspaceSettings {
        KeyspaceSettings {
            name: name.to_owned(),
            line: 0,
            strategy: self.strategy,
            replication_factor: self.factor,
            snitch,
            datacenter_replication_factors: self.data_centers.clone(),
            column_families: Vec::new(),
        }
    }
}

impl KeyspaceDefinition {
    /// The tables as column families.
    pub fn families(&self, keyspace: &str) -> Result<Vec<ColumnFamilySettings>, SchemaConflict> {
        let family = |(name, table): (&String, &Arc<TableDefinition>)| {
            let unsortable = || SchemaConflict::Unsortable(keyspace.to_owned(), name.clone());
            table.settings(keyspace, name).ok_or_else(unsortable)
        };
        self.tables.iter().map(family).collect()
    }
}

impl TableDefinition {
    /// The table as a column family; `None` if no comparator sorts its columns.
    pub fn settings(&self, keyspace: &str, name: &str) -> Option<ColumnFamilySettings> {
        let chance = self.number("dclocal_read_repair_chance", READ_REPAIR_CHANCE);
        let schema = ColumnFamilySchema {
            keyspace: keyspace.to_owned(),
            name: self.stored_name(name),
            kind: kind(&self.table)?,
            comment: self.text("comment").map(str::to_owned),
            gc_grace: Duration::from_secs(self.number("gc_grace_seconds", GC_GRACE)),
            read_repair_chance: chance.max(self.number("read_repair_chance", 0.0)),
            table: Arc::clone(&self.table),
        };
        let (min, max) = self.thresholds();
        Some(ColumnFamilySettings {
            schema: Arc::new(schema),
            line: 0,
            keys_cached: match self.option("caching", "keys") {
                Some(keys) if keys.eq_ignore_ascii_case("none") => CacheSize::Off,
                _ => CacheSize::Entries(KEYS_CACHED),
            },
            rows_cached: CacheSize::Off,
            key_cache_save_period: None,
            row_cache_save_period: None,
            compaction_strategy: match self.option("compaction", "class") {
                Some(class) if class.ends_with("LeveledCompactionStrategy") => {
                    CompactionStrategy::Leveled
                }
                _ => CompactionStrategy::SizeTiered,
            },
            min_compaction_threshold: min,
            max_compaction_threshold: max,
            compression: if self.is_compressed() { Compression::Lz4 } else { Compression::None },
            flush_period: None,
            labels: Labels::default(),
        })
    }

    /// A value in a property that is a map.
    pub fn option(&self, property: &str, key: &str) -> Option<&str> {
        self.map(property)?.get(key).map(String::as_str)
    }

    /// The numbers of SSTables that are merged at once; 0 as the greatest for no compactions.
    fn thresholds(&self) -> (u32, u32) {
        let number = |key, default| {
            self.option("compaction", key).and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let max = match self.option("compaction", "enabled") {
            Some("false") => 0,
            _ => number("max_threshold", DEFAULT_MAX_COMPACTION_THRESHOLD),
        };
        (number("min_threshold", DEFAULT_MIN_COMPACTION_THRESHOLD), max)
    }

    fn is_compressed(&self) -> bool {
        let Some(compression) = self.map("compression") else { return true };
        let class = compression.get("class").or(compression.get("sstable_compression"));
        let is_off = compression.get("enabled").is_some_and(|enabled| enabled == "false");
        !is_off && class.is_some_and(|class| !class.is_empty())
    }
}

/// The type and comparators of the column family of a table that is made over CQL; `None` if its
/// columns have no order here.
pub fn kind(table: &Table) -> Option<ColumnFamilyKind> {
    let comparators = ComparatorRegistry::default();
    let classes: Vec<String> = table.columns[table.clustering()]
        .iter()
        .map(|column| match column.kind {
            ColumnKind::Clustering { is_descending: true } => {
                format!("{CLASS_PREFIX}ReversedType({})", column.of_type.class_name())
            }
            _ => column.of_type.class_name(),
        })
        .collect();
    let composite =
        || comparators.resolve(&format!("{CLASS_PREFIX}CompositeType({})", classes.join(",")));
    Some(match (table.form, &classes[..]) {
        (Form::Dense, [only]) => ColumnFamilyKind::Standard { columns: comparators.resolve(only)? },
        (Form::Dense, _) => ColumnFamilyKind::Standard { columns: composite()? },
        (Form::Sparse { .. }, []) => ColumnFamilyKind::Standard { columns: Comparator::Bytes },
        (Form::Sparse { .. }, _) => {
            ColumnFamilyKind::Super { super_columns: composite()?, columns: Comparator::Bytes }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::encoding::tests::sample;
    use super::*;
    use crate::config::Loader;
    use std::collections::BTreeMap;

    fn settings() -> Settings {
        let comparators = ComparatorRegistry::default();
        let text = include_str!("../../storage-conf.xml");
        Loader::for_server(&comparators).parse(text, "c.xml").unwrap().settings
    }

    /// The definitions with what belongs into a keyspace of the configuration in the first one.
    fn definitions(settings: &Settings) -> Definitions {
        let mut definitions = sample();
        let configured = definitions.keyspaces.remove("Blog 1").unwrap();
        definitions.keyspaces.insert(settings.keyspaces[0].name.clone(), configured);
        definitions
    }

    #[test]
    fn tables_are_column_families_with_settings_of_their_properties() {
        let mut settings = settings();
        let definitions = definitions(&settings);
        complete(&mut settings, &definitions).unwrap();
        let made = settings.keyspace("k").unwrap();
        assert_eq!(made.datacenter_replication_factors, BTreeMap::from([("dc 1".into(), 3)]));
        let family = &made.column_families[0];
        assert_eq!(family.schema.table_name(), "t");
        assert_eq!(
            family.schema.comparator().class_name(),
            "org.apache.cassandra.db.marshal.CompositeType(org.apache.cassandra.db.marshal.\
             ReversedType(org.apache.cassandra.db.marshal.Int32Type))"
        );
        assert_eq!(family.schema.gc_grace, Duration::from_secs(GC_GRACE));
        let dense = settings.keyspaces[0].column_families.last().unwrap();
        assert_eq!((dense.schema.table_name(), dense.schema.is_super()), ("d", false));
    }

    #[test]
    fn what_both_define_stops_the_start() {
        let with = |change: &dyn Fn(&mut Definitions, &Settings)| {
            let mut settings = settings();
            let mut definitions = definitions(&settings);
            change(&mut definitions, &settings);
            complete(&mut settings, &definitions).unwrap_err().to_string()
        };
        let both = with(&|definitions, settings| {
            let made = definitions.keyspaces["k"].clone();
            definitions.keyspaces.insert(settings.keyspaces[0].name.clone(), made);
        });
        assert!(both.contains("take it out of storage-conf.xml"), "{both}");
        let gone = with(&|definitions, _| {
            definitions.keyspaces.insert("gone".into(), KeyspaceDefinition::default());
        });
        assert!(gone.starts_with("keyspace gone has tables"), "{gone}");
        let table = with(&|definitions, settings| {
            let Some(first) = settings.keyspaces.first() else { return };
            let keyspace = definitions.keyspace_mut(&first.name);
            let (_, table) = keyspace.tables.pop_first().unwrap();
            let name = first.column_families[0].schema.name.clone();
            keyspace.tables.insert(name, table);
        });
        assert!(table.contains("is a table that was made over CQL"), "{table}");
    }
}
