//! Settings as text, for people.

use super::document::Source;
use super::elements;
use super::load::Loaded;
use super::settings::{ColumnFamilySettings, KeyspaceSettings};
use crate::model::schema::ColumnFamilyKind;
use std::fmt::{self, Write};
use std::time::Duration;

/// All settings with their sources, the keyspaces as an indented list, and the notes.
pub fn describe(loaded: &Loaded) -> String {
    let settings = &loaded.settings;
    let mut text = String::new();
    let mut write = || -> fmt::Result {
        writeln!(text, "{}, in the form of {}", settings.origin, settings.release)?;
        let mut section = "";
        for row in elements::ROWS.iter() {
            let Some(value) = settings.shown.get(row.path) else { continue };
            if section != row.section {
                section = row.section;
                writeln!(text, "\n{section}")?;
            }
            let source = source(loaded.sources.get(row.path), row.path);
            writeln!(text, "  {:<60} {source}", format!("{} = {value}", row.path))?;
        }
        writeln!(text, "\nKeyspaces")?;
        for keyspace in &settings.keyspaces {
            write_keyspace(&mut text, keyspace)?;
        }
        if settings.keyspaces.is_empty() {
            writeln!(text, "  none")?;
        }
        if !loaded.notes.is_empty() {
            writeln!(text, "\nNotes")?;
        }
        loaded.notes.iter().try_for_each(|note| writeln!(text, "  {note}"))
    };
    write().expect("a string can always be written to");
    text
}

fn source(source: Option<&Source>, name: &str) -> String {
    match source {
        None => "default".to_owned(),
        Some(source) if source.element == name => format!("line {}", source.line),
        Some(source) => format!("line {} ({})", source.line, source.element),
    }
}

fn write_keyspace(text: &mut String, keyspace: &KeyspaceSettings) -> fmt::Result {
    writeln!(text, "  {} (line {})", keyspace.name, keyspace.line)?;
    writeln!(text, "    ReplicaPlacementStrategy = {}", keyspace.strategy.class_name())?;
    writeln!(text, "    ReplicationFactor = {}", keyspace.replication_factor)?;
    writeln!(text, "    EndPointSnitch = {}", keyspace.snitch.class_name())?;
    for (center, factor) in &keyspace.datacenter_replication_factors {
        writeln!(text, "    DatacenterReplicationFactor {center} = {factor}")?;
    }
    keyspace.column_families.iter().try_for_each(|family| write_family(text, family))
}

fn write_family(text: &mut String, family: &ColumnFamilySettings) -> fmt::Result {
    writeln!(text, "    {} (line {})", family.schema.name, family.line)?;
    text.push_str(&family_text(family));
    Ok(())
}

/// All settings of a column family, as `check-config` shows them.
pub fn family_text(family: &ColumnFamilySettings) -> String {
    let mut text = String::new();
    write_settings(&mut text, family).expect("a string can always be written to");
    text
}

fn write_settings(text: &mut String, family: &ColumnFamilySettings) -> fmt::Result {
    let schema = &family.schema;
    match &schema.kind {
        ColumnFamilyKind::Standard { columns } => {
            writeln!(text, "      Standard, CompareWith = {}", columns.class_name())?;
        }
        ColumnFamilyKind::Super { super_columns, columns } => {
            let (outer, inner) = (super_columns.class_name(), columns.class_name());
            writeln!(text, "      Super, CompareWith = {outer}, CompareSubcolumnsWith = {inner}")?;
        }
    }
    let seconds = |period: Option<Duration>| period.map_or(0, |p| p.as_secs());
    writeln!(
        text,
        "      KeysCached = {}, KeyCacheSavePeriodInSeconds = {}, RowsCached = {}, \
         RowCacheSavePeriodInSeconds = {}",
        family.keys_cached,
        seconds(family.key_cache_save_period),
        family.rows_cached,
        seconds(family.row_cache_save_period),
    )?;
    writeln!(
        text,
        "      CompactionStrategy = {}, MinCompactionThreshold = {}, MaxCompactionThreshold = {}, \
         GCGraceSeconds = {}, Compression = {}, ReadRepairChance = {}",
        family.compaction_strategy,
        family.min_compaction_threshold,
        family.max_compaction_threshold,
        family.schema.gc_grace.as_secs(),
        family.compression,
        family.schema.read_repair_chance,
    )?;
    if let Some(period) = family.flush_period {
        writeln!(text, "      FlushPeriodInMinutes = {}", period.as_secs() / 60)?;
    }
    writeln!(text, "      Table = {}", schema.table)?;
    match &schema.comment {
        Some(comment) => writeln!(text, "      Comment = {}", comment.escape_debug()),
        None => Ok(()),
    }
}
