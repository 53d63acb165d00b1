//! `alexandra sstable scrub`.

use super::target::{
    ConfigArguments, Configured, Files, ToolError, check_output, describe_itself, families,
    is_original, writer_options,
};
use super::verify::{OTHER_FILE, print, verify_file, verify_original_file, verify_table};
use crate::base::clock::{Clock, SystemClock};
use crate::base::fs::FileSystem;
use crate::commands::offline::check_user;
use crate::commands::progress::Progress;
use crate::config::settings::ColumnFamilySettings;
use crate::model::schema::ColumnFamilySchema;
use crate::storage::check::{Expected, Report, Salvaged, salvage};
use crate::storage::error::FileError;
use crate::storage::offline::TableState;
use crate::storage::sstable::{
    Compression, OutputOptions, Outputs, SplitWriter, WriterOptions, WrittenFile,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Raw bytes of a data block, where no configuration says otherwise.
const BLOCK_BYTES: usize = 16 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// Goes on although something of a file is lost. Deletions may be among it, and what they have
    /// deleted may come back
    #[arg(long)]
    accept_loss: bool,

    /// Saves the one file that is named into this one, and changes nothing else
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// A keyspace and column families of it, else all; with --output: an SSTable, and the keyspace
    /// and column family that the new file is of, if not those of the old one
    #[arg(value_name = "KEYSPACE [FAMILY] | FILE [KEYSPACE FAMILY]")]
    targets: Vec<PathBuf>,
}

/// A damaged file, as it should be, and the column family that its rows are saved for.
struct Aim {
    expected: Expected,
    family: Arc<ColumnFamilySchema>,
    options: WriterOptions,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool, ToolError> {
    let Arguments { config, accept_loss, output, targets } = arguments;
    if let Some(output) = output {
        return scrub_file(config, targets, output, *accept_loss);
    }
    if config.takes_files(targets) {
        let text = "an SSTable is replaced in its column family: name the configuration by \
                    --config and the column family, or another file by --output";
        return Err(text.into());
    }
    let settings = config.load()?;
    check_user(&settings).map_err(|failure| failure.text)?;
    let configured = Configured::lock(settings)?;
    let mut is_sound = true;
    for family in families(&configured.settings, targets)? {
        let options = writer_options(&configured.settings, &family);
        let expected = configured.expected(&family.schema);
        let aim = Aim { expected, family: Arc::clone(&family.schema), options };
        is_sound &= scrub_family(&configured, &family, &aim, *accept_loss)?;
    }
    Ok(is_sound)
}

fn scrub_family(
    configured: &Configured,
    settings: &ColumnFamilySettings,
    aim: &Aim,
    accept_loss: bool,
) -> Result<bool, ToolError> {
    let open = || configured.server.family(&aim.family.keyspace, &aim.family.name);
    let mut is_sound = true;
    let mut offline = match open() {
        Err(error) if error.is_of_manifest() => {
            say!("{}: DAMAGED\n  {error}", aim.family);
            is_sound = false;
            if !accept_loss {
                return Ok(is_sound);
            }
            adopt_orphans(configured, aim)?;
            open()?
        }
        opened => opened?,
    };
    for table in offline.tables() {
        let file = table.path.display();
        if table.state == TableState::Missing {
            is_sound = false;
            say!("{file} of {} is missing: put it back", aim.family);
            if accept_loss {
                offline.replace(&[], &[table.generation])?;
                say!("  the manifest does not name it any more: what it held is lost");
            } else {
                say!("  left as it is: --accept-loss goes on without it");
            }
            continue;
        }
        let report = verify_table(configured, settings, &table)?;
        if report.is_sound() && table.state != TableState::Present {
            say!("{file}: {OTHER_FILE}");
            if accept_loss {
                adopt_orphans(configured, aim)?;
                scrub_family(configured, settings, aim, false)?;
                return Ok(false);
            }
            say!("  left as it is: put the right one back. --accept-loss makes a new manifest");
            is_sound = false;
            continue;
        }
        is_sound &= print_briefly(&report);
        if report.is_sound() {
            continue;
        }
        if report.is_foreign {
            say!("  left as it is: the file or the configuration is a wrong one");
            continue;
        }
        let mut next_path = || offline.new_path();
        let Some(saved) = save(&configured.fs, &report, aim, accept_loss, &mut next_path)? else {
            say!("  left as it is: --accept-loss goes on without what is lost");
            continue;
        };
        let (names, kept) = offline.replace(&saved, &[table.generation])?;
        for name in names {
            say!("  saved as {}", name.display());
        }
        for path in kept {
            say!("  the damaged file is kept as {}", path.display());
        }
    }
    Ok(is_sound)
}

/// Makes a manifest of the SSTables that are there: those with their final names, be they damaged,
/// and sound ones whose last step may only have been cut off.
fn adopt_orphans(configured: &Configured, aim: &Aim) -> Result<(), ToolError> {
    let orphans = configured.server.orphans(&aim.family.keyspace, &aim.family.name)?;
    let mut live = Vec::new();
    for file in orphans.files() {
        let report = verify_file(&*configured.fs, &file.path, &aim.expected)?;
        if report.is_foreign || !(file.is_finished || report.is_sound()) {
            say!("  {}: it is left out", file.path.display());
        } else {
            live.push(file.clone());
        }
    }
    for kept in orphans.adopt(&live)? {
        say!("  what does not count is kept as {}", kept.display());
    }
    say!(
        "  a new manifest names {} SSTables. Some may have been replaced already, and what was \
         deleted in them may come back",
        live.len()
    );
    Ok(())
}

/// Saves what can be read of a file; `None` if something is lost and that is not accepted.
fn save(
    fs: &Arc<dyn FileSystem>,
    report: &Report,
    aim: &Aim,
    accept_loss: bool,
    next_path: &mut (dyn FnMut() -> Result<PathBuf, FileError> + Send),
) -> Result<Option<Vec<WrittenFile>>, ToolError> {
    let rows = |counts: Option<(u64, u64)>| counts.map_or(0, |(rows, _)| rows);
    // Each row takes more than a byte, whatever a file claims.
    let expected_rows = rows(report.stated).min(report.size).max(rows(report.found));
    let now = SystemClock::new().now_micros();
    let (family, partitioner) = (&aim.family, aim.options.partitioner);
    let options = OutputOptions::unsplit(aim.options.clone(), expected_rows, now);
    let mut sink = SplitWriter::new(Outputs::new(fs, &aim.family, options, next_path));
    let progress = Progress::new("Saving", &report.file, report.size);
    let mut told = |bytes| progress.set(bytes);
    let salvaged = salvage(&**fs, report, (family, partitioner), &mut sink, &mut told)?;
    drop(progress);
    let written = sink.finish()?;
    if !tell(&salvaged) && !accept_loss {
        discard(&**fs, &written);
        return Ok(None);
    }
    Ok(Some(written))
}

const OUTPUT_USAGE: &str = "--output takes what is saved of one SSTable: name it, and a keyspace \
    and column family behind it if the new file is to be of these";

/// Verifies a named file; what is saved of it is for this column family, else for its own.
fn examine(
    config: &ConfigArguments,
    fs: &dyn FileSystem,
    file: &Path,
    into: Option<(WriterOptions, Arc<ColumnFamilySchema>)>,
) -> Result<(Aim, Report), ToolError> {
    if !is_original(file) {
        let aim = aim(fs, file, into)?;
        let report = verify_file(fs, file, &aim.expected)?;
        return Ok((aim, report));
    }
    let (options, family) = if let Some(into) = into {
        into
    } else {
        let (family, settings) = config.of_original(file)?;
        (writer_options(&settings, &family), family.schema)
    };
    let report = verify_original_file(fs, file, &family, options.partitioner)?;
    Ok((Aim { expected: Expected::default(), family, options }, report))
}

/// Saves a file that is in no column family; what is saved may be for another one.
pub(super) fn scrub_file(
    config: &ConfigArguments,
    targets: &[PathBuf],
    output: &Path,
    accept_loss: bool,
) -> Result<bool, ToolError> {
    let [file, names @ ..] = targets else { return Err(OUTPUT_USAGE.into()) };
    if ![0, 2].contains(&names.len()) {
        return Err(OUTPUT_USAGE.into());
    }
    let into = if names.is_empty() {
        None
    } else {
        let settings = config.load()?;
        let family = families(&settings, names)?.swap_remove(0);
        Some((writer_options(&settings, &family), family.schema))
    };
    let files = Files::open(std::slice::from_ref(file))?;
    let fs = &*files.fs;
    check_output(fs, output)?;
    let (aim, report) = examine(config, fs, file, into)?;
    let is_sound = print_briefly(&report);
    if report.is_foreign {
        let text = "its rows sort otherwise than those of that column family: export them, and \
                    import them there";
        return Err(text.into());
    }
    let mut number = 0;
    let mut next_path = || {
        number += 1;
        let mut path = output.as_os_str().to_owned();
        if number > 1 {
            path.push(format!(".{number}"));
        }
        Ok(PathBuf::from(path))
    };
    let Some(saved) = save(&files.fs, &report, &aim, accept_loss, &mut next_path)? else {
        say!("  nothing is written: --accept-loss goes on without what is lost");
        return Ok(false);
    };
    for file in saved {
        say!("  saved as {}", file.path.display());
    }
    Ok(is_sound)
}

/// A file that is in no column family says itself which one it is of, unless that is given.
fn aim(
    fs: &dyn FileSystem,
    file: &Path,
    into: Option<(WriterOptions, Arc<ColumnFamilySchema>)>,
) -> Result<Aim, ToolError> {
    let itself = describe_itself(fs, file);
    let Some((options, family)) = into else {
        let (properties, family, partitioner) = itself?;
        let options = WriterOptions {
            block_bytes: BLOCK_BYTES,
            index_interval: properties.index_interval.max(1) as usize,
            compression: Compression::default(),
            partitioner,
        };
        return Ok(Aim { expected: Expected::default(), family, options });
    };
    let mut expected = ColumnFamilySchema::clone(&family);
    if let Ok((properties, _, _)) = itself {
        // The names may be others, and only they.
        (expected.keyspace, expected.name) = (properties.keyspace, properties.family);
    }
    let (expected, partitioner) = (Some(Arc::new(expected)), Some(options.partitioner));
    Ok(Aim { expected: Expected { family: expected, partitioner }, family, options })
}

/// Prints what is lost; whether that is nothing.
fn tell(salvaged: &Salvaged) -> bool {
    say!("  {} rows and {} cells can be saved", salvaged.rows, salvaged.cells);
    for loss in &salvaged.losses {
        say!("  lost: {loss}");
    }
    if salvaged.more_losses > 0 {
        say!("  lost: {} more", salvaged.more_losses);
    }
    let is_whole = salvaged.losses.is_empty() && salvaged.more_losses == 0;
    if is_whole {
        say!("  nothing is lost");
    } else {
        say!("  deletions may be among it, and what they have deleted may come back");
    }
    is_whole
}

fn print_briefly(report: &Report) -> bool {
    if report.is_sound() {
        say!("{}: sound, left as it is", report.file.display());
        return true;
    }
    print(report)
}

fn discard(fs: &dyn FileSystem, written: &[WrittenFile]) {
    for file in written {
        if let Err(error) = fs.remove_file(&file.path) {
            complain!("cannot remove {}: {error}", file.path.display());
        }
    }
}
