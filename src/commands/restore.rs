//! `alexandra restore`: brings a stopped server's data back to a snapshot, and on to a time.

use super::offline::{
    ConfigArguments, check_keyspace, check_user, components, load_settings, quote, quoted,
};
use super::output::{self, FAILED, Failure};
use super::serve::start_logging;
use crate::base::fs::OsFileSystem;
use crate::base::utc::UtcTime;
use crate::config::Settings;
use crate::model::schema::ColumnFamilySchema;
use crate::node::{NodeOptions, StorageSetup};
use crate::schema;
use crate::storage::archive::ArchiveReplay;
use crate::storage::restore::{Report, Request, Setup, logged_values, restore};
use crate::storage::snapshot;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,

    /// Name or tag of the snapshot
    #[arg(long)]
    snapshot: String,

    /// One keyspace instead of all of which there is such a snapshot
    #[arg(long)]
    keyspace: Option<String>,

    /// Replays the commit log segments of this archive upon the snapshot: of its newest folder, or
    /// of the folder that is named
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,

    /// Replays up to this time, such as 2010-11-20T08:32:43Z or milliseconds since 1970; without
    /// --archive from CommitLogArchiveDirectory
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    until: Option<UtcTime>,

    /// Tells what would be done, and changes nothing
    #[arg(long)]
    dry_run: bool,

    /// Goes on although a part of the archive or of the commit log is missing or damaged
    #[arg(long)]
    accept_commitlog_loss: bool,
}

fn parse_time(text: &str) -> Result<UtcTime, String> {
    UtcTime::parse(text).ok_or_else(|| "not a time in UTC such as 2010-11-20T08:32:43Z".to_owned())
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    start_logging("warn");
    let configured = load_settings(arguments.config.config.as_deref())?;
    if !arguments.dry_run {
        check_user(&configured)?;
    }
    let (directories, name) = (&configured.directories.data, Some(&*arguments.snapshot));
    let keyspace = arguments.keyspace.as_deref();
    let snapshots = snapshot::find(&OsFileSystem, directories, keyspace, name);
    let snapshots = snapshots.map_err(Failure::new)?;
    let recall = |noted: &[Vec<u8>]| -> Result<_, Failure> {
        let mut settings = configured.clone();
        let (fs, is_whole) = (&OsFileSystem, keyspace.is_none());
        let recalled = schema::read_for_restore(&mut settings, fs, &snapshots, noted, is_whole);
        Ok((settings, recalled.map_err(Failure::new)?))
    };
    let (mut settings, mut recalled) = recall(&[])?;
    check_keyspace(&settings, keyspace)?;
    let mut request = request(arguments, &settings)?;
    let mut setup = setup(arguments, &settings)?;
    if request.archive.is_some() {
        let noted = logged_values(&setup, &request, schema::REGISTER_NAME);
        (settings, recalled) = recall(&noted.map_err(Failure::new)?)?;
        setup = self::setup(arguments, &settings)?;
        request.made_since = std::mem::take(&mut recalled.made_since);
    }
    let report = restore(&setup, &request).map_err(Failure::new)?;
    if let Some(saved) = recalled.saved.filter(|_| !arguments.dry_run) {
        schema::store(&settings, &OsFileSystem, &saved).map_err(Failure::new)?;
    }
    output::text(&describe(&report, arguments.dry_run));
    Ok(if arguments.dry_run {
        output::finish_telling(ExitCode::SUCCESS, FAILED)
    } else {
        output::finish(ExitCode::SUCCESS)
    })
}

fn setup(arguments: &Arguments, settings: &Settings) -> Result<Setup, Failure> {
    let options = NodeOptions {
        accept_commitlog_loss: arguments.accept_commitlog_loss,
        seed: fastrand::u64(..),
        ..NodeOptions::default()
    };
    let setup = StorageSetup::new(settings, &options).map_err(Failure::new)?;
    Ok(setup.to_restore(components()))
}

fn request(arguments: &Arguments, settings: &Settings) -> Result<Request, Failure> {
    let configured = settings.directories.commit_log_archive.as_deref();
    let archive = match (&arguments.archive, arguments.until) {
        (Some(archive), _) => Some(archive_of(archive, configured)),
        (None, Some(_)) => Some(configured.map(Path::to_owned).ok_or_else(|| {
            Failure::new(
                "--until needs an archive: there is no CommitLogArchiveDirectory, and no --archive",
            )
        })?),
        (None, None) => None,
    };
    Ok(Request {
        snapshot: arguments.snapshot.clone(),
        keyspace: arguments.keyspace.clone(),
        archive,
        until_millis: arguments.until.map(|until| until.0),
        made_since: Vec::new(),
        dry_run: arguments.dry_run,
        command: command(arguments),
    })
}

/// The archive or one of its folders by the name that the configuration gives it, if it is that
/// archive: the commit log continues one of its folders.
fn archive_of(archive: &Path, configured: Option<&Path>) -> PathBuf {
    let inner = || {
        let (configured, real) = (configured?, archive.canonicalize().ok()?);
        Some(configured.join(real.strip_prefix(configured.canonicalize().ok()?).ok()?))
    };
    inner().unwrap_or_else(|| archive.to_owned())
}

/// The command line, as it would be typed again.
fn command(arguments: &Arguments) -> String {
    let mut text = format!(
        "alexandra restore{} --snapshot {}",
        arguments.config.shown(),
        quote(&arguments.snapshot)
    );
    if let Some(keyspace) = &arguments.keyspace {
        let _ = write!(text, " --keyspace {}", quote(keyspace));
    }
    if let Some(archive) = &arguments.archive {
        let _ = write!(text, " --archive {}", quoted(archive));
    }
    if let Some(until) = arguments.until {
        let _ = write!(text, " --until {until}");
    }
    if arguments.accept_commitlog_loss {
        text.push_str(" --accept-commitlog-loss");
    }
    text
}

fn describe(report: &Report, dry_run: bool) -> String {
    let mut text = String::new();
    let mut line = |line: String| text.push_str(&(line + "\n"));
    let (restored, moved, archived) = if dry_run {
        line("Dry run: nothing was changed.".to_owned());
        ("Would restore", "Would move present files to", "Would archive")
    } else {
        ("Restored", "Present files were moved to", "Archived")
    };
    for it in &report.keyspaces {
        line(format!(
            "{restored} keyspace {} from snapshot {} ({}): {} column families, {} SSTables, {} \
             bytes",
            it.keyspace,
            it.snapshot,
            UtcTime(it.snapshot.millis),
            it.families,
            it.tables,
            it.bytes
        ));
    }
    for family in &report.unconfigured {
        let why = if ColumnFamilySchema::is_of_cql(family) {
            "it was emptied later, before the time to which the log is replayed"
        } else {
            "it is not configured"
        };
        line(format!("Left out column family {family}: {why}"));
    }
    for folder in &report.moved_to {
        line(format!("{moved} {}", folder.display()));
    }
    if report.archived_segments > 0 {
        line(format!("{archived} {} segments of the commit log", report.archived_segments));
    }
    match &report.replay {
        None => line("The commit log archive was not asked for.".to_owned()),
        Some(replay) => describe_replay(replay, dry_run, &mut line),
    }
    if !dry_run {
        line("The server can be started.".to_owned());
    }
    text
}

fn describe_replay(replay: &ArchiveReplay, dry_run: bool, line: &mut dyn FnMut(String)) {
    let last = replay.last_millis.map_or_else(
        || "no time is noted there".to_owned(),
        |millis| format!("the last time noted there is {}", UtcTime(millis)),
    );
    line(format!("Folder of the archive: {}", replay.folder.display()));
    let end = if replay.reaches_time { "the time that was asked for" } else { "the end" };
    if dry_run {
        let segments = replay.segments();
        line(format!("Would replay {segments} commit log segments up to {end}; {last}"));
    } else {
        line(format!(
            "Replayed {} mutations of {} commit log segments up to {end}; {last}",
            replay.mutations,
            replay.segments()
        ));
    }
    for path in &replay.missing {
        line(format!("LOST: {} is missing", path.display()));
    }
    for damage in &replay.lost {
        line(format!("LOST: {damage}"));
    }
    for damage in &replay.torn {
        line(format!("Never finished, by a crash: {damage}"));
    }
}
