//! `alexandra sstable scrub`.

use super::Outcome;
use super::import::family_of;
use super::target::{
    ConfigArguments, Configured, Files, ToolError, check_output, describe_itself, writer_options,
};
use super::verify::{OTHER_FILE, families, print, verify_file};
use crate::base::clock::{Clock, SystemClock};
use crate::base::fs::FileSystem;
use crate::commands::progress::Progress;
use crate::config::settings::ColumnFamilySettings;
use crate::model::schema::ColumnFamilySchema;
use crate::storage::error::{FileContext, FileError};
use crate::storage::sstable::salvage::{Salvaged, Source, salvage};
use crate::storage::sstable::split_writer::Paths;
use crate::storage::sstable::verify::{Expected, Report};
use crate::storage::sstable::{Compression, SplitWriter, WriterOptions, WrittenFile};
use crate::storage::stopped::{Named, StoppedFamily};
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

pub(super) fn run(arguments: &Arguments) -> Result<Outcome, ToolError> {
    let Arguments { config, accept_loss, output, targets } = arguments;
    if let Some(output) = output {
        return match &targets[..] {
            [file] => scrub_file(file, None, output, *accept_loss),
            [file, keyspace, family] => {
                let settings = config.load()?;
                let names = [keyspace, family].map(|name| name.display().to_string());
                let family = family_of(&settings, &names[0], &names[1])?;
                let into = NewFamily { options: writer_options(&settings, &family), family };
                scrub_file(file, Some(into), output, *accept_loss)
            }
            _ => Err(ToolError::Usage(
                "--output takes what is saved of one SSTable: name it, and a keyspace and column \
                 family behind it if the new file is to be of these"
                    .into(),
            )),
        };
    }
    if config.takes_files(targets) {
        let text = "an SSTable is replaced in its column family: name the configuration by \
                    --config and the column family, or another file by --output";
        return Err(ToolError::Usage(text.into()));
    }
    let configured = config.open()?;
    let mut outcome = Outcome::Sound;
    for family in families(&configured, targets)? {
        outcome = outcome.and(scrub_family(&configured, &family, *accept_loss)?);
    }
    Ok(outcome)
}

fn scrub_family(
    configured: &Configured,
    family: &ColumnFamilySettings,
    accept_loss: bool,
) -> Result<Outcome, ToolError> {
    let schema = &family.schema;
    let partitioner = configured.partitioner();
    let expected = Expected { family: Some(Arc::clone(schema)), partitioner: Some(partitioner) };
    let (stopped, mut outcome) = open_family(configured, schema, &expected, accept_loss)?;
    let Some(mut stopped) = stopped else { return Ok(outcome) };
    for named in stopped.named() {
        let is_meant = matches!(named, Named::Present { .. });
        let (generation, file) = match named {
            Named::Present { generation, file }
            | Named::WrongSize { generation, file, .. }
            | Named::Other { generation, file } => (generation, file),
            Named::Missing { generation, file } => {
                outcome = Outcome::Damaged;
                say!("{} of {schema} is missing: put it back", file.display());
                if accept_loss {
                    stopped.replace(&[], &[generation])?;
                    say!("  the manifest does not name it any more: what it held is lost");
                } else {
                    say!("  left as it is: --accept-loss goes on without it");
                }
                continue;
            }
        };
        let report = verify_file(&*configured.fs, &file, &expected)?;
        if report.is_sound() && !is_meant {
            say!("{}: {OTHER_FILE}", file.display());
            if accept_loss {
                name_anew(configured, schema, &expected)?;
                return Ok(scrub_family(configured, family, false)?.and(Outcome::Damaged));
            }
            say!("  left as it is: put the right one back. --accept-loss makes a new manifest");
            outcome = Outcome::Damaged;
            continue;
        }
        outcome = outcome.and(print_briefly(&report));
        if report.is_sound() {
            continue;
        }
        if report.is_foreign {
            say!("  left as it is: the file or the configuration is a wrong one");
            continue;
        }
        let source = Source { family: Arc::clone(schema), partitioner };
        let options = configured.writer_options(family);
        let is_done = replace(
            (&*configured.fs, &mut stopped),
            (generation, &report),
            &source,
            options,
            accept_loss,
        )?;
        if !is_done {
            say!("  left as it is: --accept-loss goes on without what is lost");
        }
    }
    Ok(outcome)
}

/// The column family, and whether its manifest is sound; none if it is of no use and there is to
/// be no new one.
fn open_family(
    configured: &Configured,
    schema: &ColumnFamilySchema,
    expected: &Expected,
    accept_loss: bool,
) -> Result<(Option<StoppedFamily>, Outcome), ToolError> {
    let open = || configured.server.family(&schema.keyspace, &schema.name);
    match open() {
        Err(error) if error.is_of_manifest() => {
            say!("{schema}: DAMAGED\n  {error}");
            if !accept_loss {
                return Ok((None, Outcome::Damaged));
            }
            name_anew(configured, schema, expected)?;
            Ok((Some(open()?), Outcome::Damaged))
        }
        opened => Ok((Some(opened?), Outcome::Sound)),
    }
}

/// Makes a manifest of the SSTables that are there: those with their final names, be they damaged,
/// and sound ones whose last step may only have been cut off.
fn name_anew(
    configured: &Configured,
    schema: &ColumnFamilySchema,
    expected: &Expected,
) -> Result<(), ToolError> {
    let unnamed = configured.server.unnamed(&schema.keyspace, &schema.name)?;
    let mut counting = Vec::new();
    for file in unnamed.files() {
        let report = verify_file(&*configured.fs, &file.path, expected)?;
        if report.is_foreign || !(file.is_finished || report.is_sound()) {
            say!("  {}: it is left out", file.path.display());
        } else {
            counting.push(file.clone());
        }
    }
    for kept in unnamed.name(&counting)? {
        say!("  what does not count is kept as {}", kept.display());
    }
    say!(
        "  a new manifest names {} SSTables. Some may have been replaced already, and what was \
         deleted in them may come back",
        counting.len()
    );
    Ok(())
}

/// Puts what can be saved in place of a damaged file; false if something is lost and that is not
/// accepted.
fn replace(
    (fs, stopped): (&dyn FileSystem, &mut StoppedFamily),
    (generation, report): (u64, &Report),
    source: &Source,
    options: WriterOptions,
    accept_loss: bool,
) -> Result<bool, ToolError> {
    let (written, salvaged) = {
        let mut next = || stopped.new_path();
        save(fs, report, source, options, &mut next)?
    };
    if !tell(&salvaged) && !accept_loss {
        discard(fs, &written);
        return Ok(false);
    }
    let (names, kept) = stopped.replace(&written, &[generation])?;
    for name in names {
        say!("  saved as {}", name.display());
    }
    for path in kept {
        say!("  the damaged file is kept as {}", path.display());
    }
    Ok(true)
}

fn save(
    fs: &dyn FileSystem,
    report: &Report,
    source: &Source,
    options: WriterOptions,
    next_path: &mut dyn FnMut() -> Result<PathBuf, FileError>,
) -> Result<(Vec<WrittenFile>, Salvaged), ToolError> {
    let rows = report.properties.as_ref().map_or(0, |properties| properties.rows);
    // Each row takes more than a byte, whatever a file claims.
    let rows = rows.min(report.size);
    let now = SystemClock::new().now_micros();
    let expected_rows = rows.max(report.rows);
    let paths = Paths::new(next_path);
    let mut sink = SplitWriter::new(fs, &source.family, options, expected_rows, now, paths);
    let progress = Progress::new("Saving", &report.file, report.size);
    let mut told = |bytes| progress.set(bytes);
    let salvaged = salvage(fs, &report.file, source, &mut sink, &mut told)?;
    let (written, empty): (Vec<_>, Vec<_>) =
        sink.finish()?.into_iter().partition(|file| file.properties.rows > 0);
    discard(fs, &empty);
    Ok((written, salvaged))
}

/// The column family that a new file is of, which may be another one than the old file was of.
struct NewFamily {
    family: ColumnFamilySettings,
    options: WriterOptions,
}

/// What the new file is of, what the old one is expected to be of, and how the new one is written.
fn aims(
    fs: &dyn FileSystem,
    file: &Path,
    into: Option<NewFamily>,
) -> Result<(Source, Expected, WriterOptions), ToolError> {
    let itself = describe_itself(fs, file);
    let Some(NewFamily { family, options }) = into else {
        let (properties, family, partitioner) = itself?;
        let options = WriterOptions {
            block_bytes: BLOCK_BYTES,
            index_interval: properties.index_interval.max(1) as usize,
            compression: Compression::default(),
            partitioner,
        };
        return Ok((Source { family, partitioner }, Expected::default(), options));
    };
    let (family, partitioner) = (family.schema, options.partitioner);
    // The names may be others, and only they.
    let expected = match itself {
        Ok((properties, _, _)) => {
            let (keyspace, name) = (properties.keyspace, properties.family);
            Arc::new(ColumnFamilySchema { keyspace, name, ..ColumnFamilySchema::clone(&family) })
        }
        Err(_) => Arc::clone(&family),
    };
    let expected = Expected { family: Some(expected), partitioner: Some(partitioner) };
    Ok((Source { family, partitioner }, expected, options))
}

/// Saves a file that is in no column family.
fn scrub_file(
    file: &Path,
    into: Option<NewFamily>,
    output: &Path,
    accept_loss: bool,
) -> Result<Outcome, ToolError> {
    let files = Files::open(&[file.to_owned()])?;
    check_output(&*files.fs, output)?;
    if files.fs.try_exists(output).context("look for", output)? {
        return Err(ToolError::Usage(format!("{} is there already", output.display())));
    }
    let (source, expected, options) = aims(&*files.fs, file, into)?;
    let report = verify_file(&*files.fs, file, &expected)?;
    let outcome = print_briefly(&report);
    if report.is_foreign {
        let text = "its rows sort otherwise than those of that column family: export them, and \
                    import them there";
        return Err(ToolError::Usage(text.into()));
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
    let (written, salvaged) = save(&*files.fs, &report, &source, options, &mut next_path)?;
    if !tell(&salvaged) && !accept_loss {
        discard(&*files.fs, &written);
        say!("  nothing is written: --accept-loss goes on without what is lost");
        return Ok(Outcome::Damaged);
    }
    for file in written {
        say!("  saved as {}", file.path.display());
    }
    Ok(outcome)
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

fn print_briefly(report: &Report) -> Outcome {
    if report.is_sound() {
        say!("{}: sound, left as it is", report.file.display());
        return Outcome::Sound;
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
