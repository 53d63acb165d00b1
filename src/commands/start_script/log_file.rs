//! The log file of the original: its place, rotation and level from `log4j.properties`, and its
//! layout of lines.

use super::super::output::Failure;
use super::super::serve::{START_FAILED, start_logging};
use crate::base::log_levels;
use crate::config::java_properties;
use env_logger::Target;
use env_logger::fmt::Formatter;
use jiff::Zoned;
use log::Record;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Names of the file with the settings, beside the configuration.
const SETTINGS_FILES: [&str; 2] = ["log4j.properties", "log4j-server.properties"];

/// The settings that count.
struct LogSettings {
    file: PathBuf,
    max_size: u64,
    backups: u32,
    filter: String,
    unused: Vec<String>,
}

/// Starts logging to standard error and to the file. In the foreground there is a file only where
/// the settings name it, and a server goes on without it.
pub(super) fn start(configuration: &Path, in_foreground: bool) -> Result<(), Failure> {
    let parent = configuration.parent().filter(|_| !configuration.is_dir());
    let places = SETTINGS_FILES.map(|name| parent.unwrap_or(configuration).join(name));
    let failed = |text| Failure::with(START_FAILED, text);
    let settings = match places.iter().find(|path| path.is_file()) {
        Some(path) => LogSettings::read(path)
            .map_err(|error| failed(format!("cannot read {}: {error}", path.display())))?,
        // The start will say that there is no configuration.
        None if in_foreground || !configuration.exists() => {
            start_logging("info");
            return Ok(());
        }
        None => LogSettings::of(BTreeMap::new()),
    };
    let path = settings.file.display();
    match RollingFile::open(&settings) {
        Ok(file) => {
            start_file(file, &settings.filter);
            log::info!("log file: {path}");
        }
        Err(error) if in_foreground => {
            start_logging(&settings.filter);
            log::warn!("the log goes to the terminal alone: cannot open {path}: {error}");
        }
        Err(error) => {
            return Err(failed(format!(
                "cannot open the log file {path}: {error}. Let this user write there, or name \
                 another file as log4j.appender.R.File in {}",
                places[0].display()
            )));
        }
    }
    if !settings.unused.is_empty() {
        log::info!("log4j: without effect: {}", settings.unused.join(", "));
    }
    Ok(())
}

fn start_file(file: RollingFile, filter: &str) {
    let mut builder = env_logger::Builder::new();
    builder.format(print_line).target(Target::Pipe(Box::new(file)));
    log_levels::start(builder, filter);
    // The standard error output may be closed then.
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

/// Prints a line as `%5p [%t] %d{ISO8601} %F (line %L) %m%n` does.
fn print_line(to: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    let file = record.file().unwrap_or("?");
    writeln!(
        to,
        "{:>5} [{}] {} {} (line {}) {}",
        record.level(),
        thread.name().unwrap_or("?"),
        Zoned::now().strftime("%Y-%m-%d %H:%M:%S,%3f"),
        file.strip_prefix("src/").unwrap_or(file),
        record.line().unwrap_or_default(),
        record.args()
    )
}

impl LogSettings {
    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self::of(java_properties::parse(&fs::read(path)?)?))
    }

    fn of(properties: BTreeMap<String, String>) -> Self {
        let mut settings = Self {
            file: "/var/log/cassandra/system.log".into(),
            max_size: 20 << 20,
            backups: 50,
            filter: "info".into(),
            unused: Vec::new(),
        };
        for (key, value) in properties {
            let value = value.trim();
            let used = match key.to_ascii_lowercase().as_str() {
                "log4j.appender.r.file" => Some(value).map(|value| settings.file = value.into()),
                "log4j.appender.r.maxfilesize" => size(value).map(|it| settings.max_size = it),
                "log4j.appender.r.maxbackupindex" => {
                    value.parse().ok().map(|it| settings.backups = it)
                }
                "log4j.rootlogger" => filter(value).map(|it| settings.filter = it),
                _ => None,
            };
            if used.is_none() {
                settings.unused.push(format!("{key}={value}"));
            }
        }
        settings
    }
}

/// Reads a number of bytes, or one with `KB`, `MB` or `GB`.
fn size(text: &str) -> Option<u64> {
    let text = text.to_ascii_uppercase();
    let units = [("KB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30)];
    let with_unit = units.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (digits, unit) = with_unit.unwrap_or((&text, 1));
    digits.trim().parse::<u64>().ok()?.checked_mul(unit)
}

/// Reads the level before the names of the appenders. The details of other crates stay out.
fn filter(root: &str) -> Option<String> {
    let level = root.split(',').next().unwrap_or_default().trim();
    Some(match level.to_ascii_uppercase().as_str() {
        "ALL" | "TRACE" => "info,alexandra=trace".into(),
        "DEBUG" => "info,alexandra=debug".into(),
        "FATAL" => "error".into(),
        "INFO" | "WARN" | "ERROR" | "OFF" => level.to_ascii_lowercase(),
        _ => return None,
    })
}

/// A log file that is renamed to `.1` when it is full, and a file `.1` to `.2`, and so on. A line
/// that cannot be written is counted.
struct RollingFile {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: u64,
    backups: u32,
    lost: u64,
}

impl RollingFile {
    fn open(settings: &LogSettings) -> io::Result<Self> {
        let path = settings.file.clone();
        if path.to_string_lossy().contains("${") {
            return Err(io::Error::other("variables have no meaning here"));
        }
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = append_to(&path)?;
        let metadata = file.metadata()?;
        // A device or a pipe stays in its place.
        let max_size = if metadata.is_file() { settings.max_size } else { u64::MAX };
        Ok(Self { path, file, size: metadata.len(), max_size, backups: settings.backups, lost: 0 })
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size >= self.max_size {
            if let Err(error) = self.roll() {
                writeln!(self.file, " WARN cannot rotate {}: {error}", self.path.display())?;
            }
            // After a failure it is tried again after as many bytes.
            self.size = 0;
        }
        if self.lost > 0 {
            // The last line may have been cut.
            writeln!(self.file, "\n WARN {} log lines could not be written here", self.lost)?;
            self.lost = 0;
        }
        self.file.write_all(line)?;
        self.size += line.len() as u64;
        Ok(())
    }

    fn roll(&mut self) -> io::Result<()> {
        if self.backups == 0 {
            return self.file.set_len(0);
        }
        for number in (1..self.backups).rev() {
            match fs::rename(self.backup(number), self.backup(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(&self.path, self.backup(1))?;
        self.file = append_to(&self.path)?;
        Ok(())
    }

    fn backup(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for RollingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // It leads nowhere once the server has left its terminal.
        let _ = io::stderr().write_all(line);
        if self.append(line).is_err() {
            self.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> LogSettings {
        LogSettings::of(java_properties::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn keys_of_the_appender_count_in_any_case_and_mistakes_leave_the_default() {
        let read = settings(
            "log4j.rootLogger=WARN, R\nlog4j.appender.R.maxFileSize=3 kb\n\
             log4j.appender.R.MaxBackupIndex=x\nlog4j.appender.R=RollingFileAppender\n",
        );
        assert_eq!((read.max_size, read.backups, read.filter.as_str()), (3072, 50, "warn"));
        assert_eq!(settings("log4j.rootLogger=DEBUG,stdout,R").filter, "info,alexandra=debug");
        let unused = ["log4j.appender.R=RollingFileAppender", "log4j.appender.R.MaxBackupIndex=x"];
        assert_eq!(read.unused, unused);
    }

    #[test]
    fn a_log_goes_on_after_a_full_disk_and_says_how_many_lines_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("logs/system.log");
        let mut log =
            RollingFile::open(&LogSettings { file: file.clone(), ..settings("") }).unwrap();
        let sound = std::mem::replace(&mut log.file, append_to(Path::new("/dev/full")).unwrap());
        log.write_all(b"one\n").unwrap();
        log.write_all(b"two\n").unwrap();
        log.file = sound;
        log.write_all(b"three\n").unwrap();
        let written = fs::read_to_string(file).unwrap();
        assert_eq!(written, "\n WARN 2 log lines could not be written here\nthree\n");
    }

    #[test]
    fn a_log_without_old_files_begins_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("system.log");
        let small = LogSettings { file: file.clone(), max_size: 4, backups: 0, ..settings("") };
        let mut log = RollingFile::open(&small).unwrap();
        for line in ["one\n", "two\n"] {
            log.write_all(line.as_bytes()).unwrap();
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "two\n");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
