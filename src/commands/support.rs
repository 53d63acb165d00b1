//! `alexandra support-bundle`: an archive of what others need to know to help with a node. It has
//! no secrets and no data of users.

use super::log_file;
use super::nodetool::{Client, ServerArguments};
use super::output::{self, Failure};
use crate::admin;
use crate::base::clock::{Clock, SystemClock};
use crate::base::utc::UtcTime;
use crate::config::{Loader, describe};
use crate::model::comparator::ComparatorRegistry;
use clap::ArgAction;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tar::{Builder, Header};

/// How long the server may take for each answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of the end of a log.
const MAX_LOG: u64 = 8 << 20;

/// Words after which a line of a log has the key of a row, or a statement. Lines of the server with
/// a key have one of them.
const MARKS: [&str; 2] = ["slow: ", " row "];

/// Files of the system that tell of the machine.
const MACHINE: [&str; 5] =
    ["/proc/version", "/proc/meminfo", "/proc/loadavg", "/proc/mounts", "/etc/os-release"];

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Arguments {
    #[command(flatten)]
    server: ServerArguments,

    /// Its storage-conf.xml, or the directory that holds it; without it the built-in one
    #[arg(long, value_name = "FILE_OR_DIR")]
    config: Option<PathBuf>,

    /// Its log, of which the end is taken, besides a LogFile of the configuration; may be repeated
    #[arg(long, value_name = "FILE")]
    log: Vec<PathBuf>,

    /// Prints help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,

    /// The archive, a new file: `alexandra-support-TIME.tar.gz` without it
    file: Option<PathBuf>,
}

/// An archive that is being written.
struct Bundle {
    archive: Builder<GzEncoder<File>>,
    /// Seconds since the Unix epoch.
    now: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let now = SystemClock::new().coarse_millis();
    let named = format!("alexandra-support-{}.tar.gz", UtcTime(now));
    let path = arguments.file.clone().unwrap_or_else(|| named.replace(':', "").into());
    let failed = |error: io::Error| Failure::new(format_args!("{}: {error}", path.display()));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let archive = Builder::new(GzEncoder::new(file.map_err(failed)?, Compression::default()));
    let mut bundle = Bundle { archive, now: now / 1000 };
    let client = arguments.server.client(TIMEOUT)?;
    let filled = bundle.fill(arguments, &client);
    let written = filled.and_then(|()| bundle.archive.into_inner()).and_then(GzEncoder::finish);
    if let Err(error) = written.and_then(|file| file.sync_all()) {
        // A part of an archive helps nobody, and would be in the way of the next one.
        let _ = fs::remove_file(&path);
        return Err(failed(error));
    }
    output::text(&format!("{}\n", path.display()));
    Ok(output::finish(ExitCode::SUCCESS))
}

impl Bundle {
    fn fill(&mut self, arguments: &Arguments, client: &Client) -> io::Result<()> {
        self.put("version.txt", concat!(env!("CARGO_PKG_VERSION"), "\n").as_bytes())?;
        let log_file = self.put_configuration(arguments.config.as_deref())?;
        for path in MACHINE {
            if let Ok(text) = fs::read(path) {
                self.put(&format!("machine{path}"), &text)?;
            }
        }
        for path in admin::looks() {
            let name = path.trim_start_matches("/api/v1/").trim_start_matches('/');
            // So that `ring` is no file where `ring/operation` needs a directory.
            let ending = if path.starts_with("/api/") { "json" } else { "txt" };
            match client.get_bytes(path) {
                Ok(answer) => self.put(&format!("{name}.{ending}"), &answer)?,
                Err(Failure { text, .. }) => {
                    complain!("{path} is left out: {text}");
                    self.put(&format!("{name}.error"), text.as_bytes())?;
                }
            }
        }
        if log_file.is_empty() && arguments.log.is_empty() {
            complain!(
                "there is no LogFile, and so no log is packed: give it by --log FILE. Where \
                 systemd keeps it, `journalctl -u alexandra --since -2d >FILE` writes it"
            );
        }
        for (number, path) in log_file.iter().chain(&arguments.log).enumerate() {
            let name = path.file_name().unwrap_or_default().display();
            match end_of(path) {
                Ok(end) => self.put(&format!("log/{number}-{name}"), &end)?,
                Err(error) => complain!("{} is left out: {error}", path.display()),
            }
        }
        Ok(())
    }

    /// The file without `AdminToken`, and the settings that follow from it. Returns the log file
    /// and the one before it, if there are such.
    fn put_configuration(&mut self, path: Option<&Path>) -> io::Result<Vec<PathBuf>> {
        let comparators = ComparatorRegistry::default();
        match Loader::for_tools(&comparators).load(path) {
            Ok(loaded) => {
                self.put("storage-conf.xml", loaded.settings.text.as_bytes())?;
                self.put("settings.txt", describe(&loaded).as_bytes())?;
                Ok(loaded.settings.admin.log_file.map_or_else(Vec::new, log_file::newest))
            }
            Err(errors) => {
                self.put("settings.error", format!("{errors}\n").as_bytes())?;
                Ok(Vec::new())
            }
        }
    }

    fn put(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.now);
        self.archive.append_data(&mut header, format!("alexandra-support/{name}"), content)
    }
}

/// The last lines of a log, without the rest of those that name rows.
fn end_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(MAX_LOG);
    file.seek(SeekFrom::Start(start))?;
    let mut end = Vec::new();
    file.take(MAX_LOG).read_to_end(&mut end)?;
    let text = String::from_utf8_lossy(&end);
    // The first line may be the end of one, without its mark.
    let whole = text.lines().skip(usize::from(start > 0));
    Ok(whole.flat_map(|line| [without_row(line), "\n"]).collect::<String>().into_bytes())
}

/// The line as far as it names no row.
fn without_row(line: &str) -> &str {
    let ends = MARKS.iter().filter_map(|mark| line.find(mark).map(|at| at + mark.len()));
    ends.min().map_or(line, |end| &line[..end])
}
