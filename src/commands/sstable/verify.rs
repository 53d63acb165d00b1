//! `alexandra sstable verify`.

use super::dump::place;
use super::target::{
    ConfigArguments, Configured, Files, ToolError, describe_itself, families, family_of,
    is_original,
};
use crate::base::fs::FileSystem;
use crate::commands::progress::Progress;
use crate::config::settings::ColumnFamilySettings;
use crate::model::comparator::ComparatorRegistry;
use crate::model::schema::ColumnFamilySchema;
use crate::ring::Partitioner;
use crate::storage::check::{
    Expected, Misfit, Misfits, Report, find_misfits, verify, verify_original,
};
use crate::storage::offline::{OfflineTable, TableState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// Also lists keys and values that do not fit the types of the configuration
    #[arg(long)]
    types: bool,

    /// SSTables or folders of them; or a keyspace of the configuration and column families of it;
    /// else all
    #[arg(value_name = "FILE | KEYSPACE [FAMILY]")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let Arguments { config, types, targets } = arguments;
    if config.takes_files(targets) {
        let files = Files::open(targets)?;
        let mut is_sound = true;
        for path in &files.paths {
            let fs = &*files.fs;
            let (report, of) = if is_original(path) {
                let (family, settings) = config.of_original(path)?;
                let of = (family.schema, settings.partitioner);
                (verify_original_file(fs, path, &of.0, of.1)?, Some(of))
            } else {
                (verify_file(fs, path, &Expected::default())?, None)
            };
            is_sound &= print(&report);
            if *types && report.found.is_some() {
                let (family, partitioner) = of.map_or_else(|| declared(fs, path, config), Ok)?;
                is_sound &= print_misfits(fs, &report, (&family, partitioner))?;
            }
        }
        return Ok(is_sound);
    }
    let configured = config.open()?;
    let mut is_sound = true;
    for family in families(&configured.settings, targets)? {
        is_sound &= verify_family(&configured, &family, *types)?;
    }
    configured.tell_of_commit_log();
    Ok(is_sound)
}

fn verify_family(
    configured: &Configured,
    family: &ColumnFamilySettings,
    types: bool,
) -> Result<bool, ToolError> {
    let schema = &family.schema;
    let offline = match configured.server.family(&schema.keyspace, &schema.name) {
        Ok(offline) => offline,
        Err(error) => {
            say!("{schema}: DAMAGED");
            say!("  {error}");
            return Ok(false);
        }
    };
    let mut is_sound = true;
    for table in offline.tables() {
        let fault = match table.state {
            TableState::Present => None,
            TableState::WrongSize { found, expected } => {
                Some(format!("it has {found} bytes, and the manifest says {expected}"))
            }
            TableState::Other => Some(OTHER_FILE.to_owned()),
            TableState::Missing => Some(format!("it is missing, and {schema} has rows in it")),
        };
        if let Some(fault) = fault {
            say!("{}: DAMAGED\n  {fault}", table.path.display());
            is_sound = false;
        }
        if table.state != TableState::Missing {
            let report = verify_table(configured, family, &table)?;
            is_sound &= print(&report);
            if types && report.found.is_some() {
                let of = (schema, configured.settings.partitioner);
                is_sound &= print_misfits(&*configured.fs, &report, of)?;
            }
            if report.is_sound() && table.identity.is_legacy && table.state == TableState::Present {
                // Only this compares an old file with the manifest.
                configured.open_table(family, &table)?;
            }
        }
    }
    Ok(is_sound)
}

/// The column family of a file, by what the file says of itself, as the configuration has it.
fn declared(
    fs: &dyn FileSystem,
    path: &Path,
    config: &ConfigArguments,
) -> Result<(Arc<ColumnFamilySchema>, Partitioner), ToolError> {
    let (_, family, partitioner) = describe_itself(fs, path)?;
    let family = family_of(&config.load()?, &family.keyspace, &family.name)?;
    Ok((family.schema, partitioner))
}

/// Prints keys and values that do not fit the types of their table; true if there are none.
fn print_misfits(
    fs: &dyn FileSystem,
    report: &Report,
    (family, partitioner): (&Arc<ColumnFamilySchema>, Partitioner),
) -> Result<bool, ToolError> {
    let progress = Progress::new("Checking types", &report.file, report.size);
    let mut tell = |bytes| progress.set(bytes);
    let Misfits { listed, more } = find_misfits(fs, report, (family, partitioner), &mut tell)?;
    drop(progress);
    for Misfit { key, cell, of_type, reason } in &listed {
        let place = cell.as_ref().map(|cell| format!("column {}", place(family, cell.place())));
        let place = place.as_deref().unwrap_or("key");
        say!("  {family} row \"{key}\", {place}: no {of_type}: {reason}");
    }
    if more > 0 {
        say!("  and {more} more");
    }
    match listed.len() as u64 + more {
        0 => say!("  keys and values fit the types of {family}"),
        misfits => say!("  {misfits} keys and values do not fit the types of {family}"),
    }
    Ok(listed.is_empty())
}

/// Text about a file that the manifest does not mean.
pub(super) const OTHER_FILE: &str = "the manifest means another file of this name: an older one \
    may have been copied here, or one of another column family";

/// Verifies a live SSTable.
pub(super) fn verify_table(
    configured: &Configured,
    family: &ColumnFamilySettings,
    table: &OfflineTable,
) -> Result<Report, ToolError> {
    let (fs, schema) = (&*configured.fs, &family.schema);
    if table.identity.is_legacy {
        return verify_original_file(fs, &table.path, schema, configured.settings.partitioner);
    }
    verify_file(fs, &table.path, &configured.expected(schema))
}

/// Verifies an SSTable of the original, with a bar of progress.
pub(in crate::commands) fn verify_original_file(
    fs: &dyn FileSystem,
    path: &Path,
    family: &Arc<ColumnFamilySchema>,
    partitioner: Partitioner,
) -> Result<Report, ToolError> {
    let size = path.metadata().map_or(0, |metadata| metadata.len());
    let progress = Progress::new("Verifying", path, size);
    let mut tell = |bytes| progress.set(bytes);
    Ok(verify_original(fs, path, family, partitioner, &mut tell)?)
}

/// Verifies a file, with a bar of progress.
pub(super) fn verify_file(
    fs: &dyn FileSystem,
    path: &Path,
    expected: &Expected,
) -> Result<Report, ToolError> {
    let size = path.metadata().map_or(0, |metadata| metadata.len());
    let progress = Progress::new("Verifying", path, size);
    let mut tell = |bytes| progress.set(bytes);
    Ok(verify(fs, path, expected, &ComparatorRegistry::default(), &mut tell)?)
}

/// Prints a report; true if the file is sound.
pub(super) fn print(report: &Report) -> bool {
    let Report { file, size, tombstones, .. } = report;
    let file = file.display();
    if report.is_sound() {
        let (rows, cells) = report.found.unwrap_or_default();
        let third = match report.blocks {
            Some(blocks) => format!("{blocks} blocks"),
            None => format!("{tombstones} tombstones"),
        };
        say!("{file}: sound, {rows} rows, {cells} cells, {third}, {size} bytes");
        return true;
    }
    say!("{file}: DAMAGED");
    for damage in &report.damages {
        say!("  {damage}");
    }
    if report.more_damages > 0 {
        say!("  and {} more", report.more_damages);
    }
    if let Some((rows, cells)) = report.found {
        let place = report.blocks.map_or("can be read", |_| "are in sound data blocks");
        say!("  {rows} rows and {cells} cells {place}");
    } else {
        say!(
            "  rows and cells were not checked: without its properties a file does not say how \
             they sort. `scrub --config CONF FILE KEYSPACE FAMILY --output NEW` saves them"
        );
    }
    false
}
