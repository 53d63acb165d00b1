//! `alexandra sstable verify`.

use super::Outcome;
use super::target::{ConfigArguments, Configured, Files, ToolError};
use crate::base::fs::FileSystem;
use crate::commands::progress::Progress;
use crate::config::settings::ColumnFamilySettings;
use crate::model::comparator::ComparatorRegistry;
use crate::storage::sstable::verify::{Expected, Report, verify};
use crate::storage::stopped::Named;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// SSTables or folders of them; or a keyspace of the configuration and column families of it;
    /// else all
    #[arg(value_name = "FILE | KEYSPACE [FAMILY]")]
    targets: Vec<PathBuf>,
}

pub(super) fn run(arguments: &Arguments) -> Result<Outcome, ToolError> {
    let Arguments { config, targets } = arguments;
    if config.takes_files(targets) {
        let files = Files::open(targets)?;
        let mut outcome = Outcome::Sound;
        for path in &files.paths {
            let report = verify_file(&*files.fs, path, &Expected::default())?;
            outcome = outcome.and(print(&report));
        }
        return Ok(outcome);
    }
    let configured = config.open()?;
    let mut outcome = Outcome::Sound;
    for family in families(&configured, targets)? {
        outcome = outcome.and(verify_family(&configured, &family)?);
    }
    configured.tell_of_commit_log();
    Ok(outcome)
}

/// The column families that stand behind `--config`.
pub(super) fn families(
    configured: &Configured,
    names: &[PathBuf],
) -> Result<Vec<ColumnFamilySettings>, ToolError> {
    let names: Vec<String> = names.iter().map(|name| name.display().to_string()).collect();
    match names.split_first() {
        None => configured.families(None, &[]),
        Some((keyspace, families)) => configured.families(Some(keyspace), families),
    }
}

fn verify_family(
    configured: &Configured,
    family: &ColumnFamilySettings,
) -> Result<Outcome, ToolError> {
    let schema = &family.schema;
    let stopped = match configured.server.family(&schema.keyspace, &schema.name) {
        Ok(stopped) => stopped,
        Err(error) => {
            say!("{schema}: DAMAGED");
            say!("  {error}");
            return Ok(Outcome::Damaged);
        }
    };
    let expected =
        Expected { family: Some(Arc::clone(schema)), partitioner: Some(configured.partitioner()) };
    let mut outcome = Outcome::Sound;
    for named in stopped.named() {
        let file = match named {
            Named::Present { file, .. } => file,
            Named::WrongSize { file, found, expected, .. } => {
                say!(
                    "{}: DAMAGED\n  it has {found} bytes, and the manifest says {expected}",
                    file.display()
                );
                outcome = Outcome::Damaged;
                file
            }
            Named::Other { file, .. } => {
                say!("{}: DAMAGED\n  {OTHER_FILE}", file.display());
                outcome = Outcome::Damaged;
                file
            }
            Named::Missing { file, .. } => {
                say!("{}: DAMAGED\n  it is missing, and {schema} has rows in it", file.display());
                outcome = Outcome::Damaged;
                continue;
            }
        };
        let report = verify_file(&*configured.fs, &file, &expected)?;
        outcome = outcome.and(print(&report));
    }
    Ok(outcome)
}

/// What is told of a file that the manifest does not mean.
pub(super) const OTHER_FILE: &str = "the manifest means another file of this name: an older one \
    may have been copied here, or one of another column family";

/// Verifies a file and shows how far it is.
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

/// Prints what was found.
pub(super) fn print(report: &Report) -> Outcome {
    let Report { file, size, rows, cells, blocks, .. } = report;
    let file = file.display();
    if report.is_sound() {
        say!("{file}: sound, {rows} rows, {cells} cells, {blocks} blocks, {size} bytes");
        return Outcome::Sound;
    }
    say!("{file}: DAMAGED");
    for damage in &report.damages {
        say!("  {damage}");
    }
    if report.more_damages > 0 {
        say!("  and {} more", report.more_damages);
    }
    if report.has_rows {
        say!("  {rows} rows and {cells} cells are in sound data blocks");
    } else {
        say!(
            "  rows and cells were not checked: without its properties a file does not say how \
             they sort. `scrub --config CONF FILE KEYSPACE FAMILY --output NEW` saves them"
        );
    }
    Outcome::Damaged
}
