//! `alexandra sstable verify`.

use super::target::{ConfigArguments, Configured, Files, ToolError, families};
use crate::base::fs::FileSystem;
use crate::commands::progress::Progress;
use crate::config::settings::ColumnFamilySettings;
use crate::model::comparator::ComparatorRegistry;
use crate::storage::check::{Expected, Report, verify};
use crate::storage::offline::TableState;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// SSTables or folders of them; or a keyspace of the configuration and column families of it;
    /// else all
    #[arg(value_name = "FILE | KEYSPACE [FAMILY]")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let Arguments { config, targets } = arguments;
    if config.takes_files(targets) {
        let files = Files::open(targets)?;
        let mut is_sound = true;
        for path in &files.paths {
            let report = verify_file(&*files.fs, path, &Expected::default())?;
            is_sound &= print(&report);
        }
        return Ok(is_sound);
    }
    let configured = config.open()?;
    let mut is_sound = true;
    for family in families(&configured.settings, targets)? {
        is_sound &= verify_family(&configured, &family)?;
    }
    configured.tell_of_commit_log();
    Ok(is_sound)
}

fn verify_family(
    configured: &Configured,
    family: &ColumnFamilySettings,
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
    let expected = configured.expected(schema);
    let mut is_sound = true;
    for table in offline.tables() {
        table.check_converted()?;
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
            let report = verify_file(&*configured.fs, &table.path, &expected)?;
            is_sound &= print(&report);
        }
    }
    Ok(is_sound)
}

/// Text about a file that the manifest does not mean.
pub(super) const OTHER_FILE: &str = "the manifest means another file of this name: an older one \
    may have been copied here, or one of another column family";

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
    let Report { file, size, blocks, .. } = report;
    let file = file.display();
    if report.is_sound() {
        let (rows, cells) = report.found.unwrap_or_default();
        say!("{file}: sound, {rows} rows, {cells} cells, {blocks} blocks, {size} bytes");
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
        say!("  {rows} rows and {cells} cells are in sound data blocks");
    } else {
        say!(
            "  rows and cells were not checked: without its properties a file does not say how \
             they sort. `scrub --config CONF FILE KEYSPACE FAMILY --output NEW` saves them"
        );
    }
    false
}
