//! The log of the original: its place, rotation and level from `log4j.properties`, and its layout
//! of lines.

use super::super::log_file::{LogPlan, NamedFile};
use super::super::output::Failure;
use super::super::serve::START_FAILED;
use crate::base::audit;
use crate::config::{LogFile, java_properties};
use env_logger::fmt::Formatter;
use jiff::Zoned;
use log::Record;
use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Names of the file with the settings, beside the configuration.
const SETTINGS_FILES: [&str; 2] = ["log4j.properties", "log4j-server.properties"];

/// The settings that count.
struct LogSettings {
    file: LogFile,
    filter: String,
    unused: Vec<String>,
}

/// Returns the log that the settings beside a configuration ask for. In the foreground there is a
/// file only where they name it.
pub(super) fn plan(configuration: &Path, in_foreground: bool) -> Result<LogPlan, Failure> {
    let parent = configuration.parent().filter(|_| !configuration.is_dir());
    let places = SETTINGS_FILES.map(|name| parent.unwrap_or(configuration).join(name));
    let settings = match places.iter().find(|path| path.is_file()) {
        Some(path) => LogSettings::read(path).map_err(|error| {
            let text = format!("cannot read {}: {error}", path.display());
            Failure::with(START_FAILED, text)
        })?,
        // The start will say that there is no configuration.
        None if in_foreground || !configuration.exists() => {
            return Ok(LogPlan::usual(in_foreground));
        }
        None => LogSettings::of(BTreeMap::new()),
    };
    let LogSettings { file, filter: levels, unused } = settings;
    let unused = (!unused.is_empty()).then(|| unused.join(", "));
    let notes = unused.map(|unused| format!("log4j: without effect: {unused}"));
    let setting = format!("log4j.appender.R.File in {}", places[0].display());
    Ok(LogPlan {
        levels,
        format: Some(print_line),
        file: Some(NamedFile { file, setting }),
        in_foreground,
        notes: notes.into_iter().collect(),
    })
}

/// Prints a line as `%5p [%t] %d{ISO8601} %F (line %L) %m%n` does. An audit line has its target
/// before the message.
fn print_line(to: &mut Formatter, record: &Record<'_>) -> io::Result<()> {
    let thread = std::thread::current();
    let file = record.file().unwrap_or("?");
    let is_audit = record.target() == audit::TARGET;
    writeln!(
        to,
        "{:>5} [{}] {} {} (line {}) {}{}{}",
        record.level(),
        thread.name().unwrap_or("?"),
        Zoned::now().strftime("%Y-%m-%d %H:%M:%S,%3f"),
        file.strip_prefix("src/").unwrap_or(file),
        record.line().unwrap_or_default(),
        if is_audit { audit::TARGET } else { "" },
        if is_audit { ": " } else { "" },
        record.args()
    )
}

impl LogSettings {
    fn read(path: &Path) -> Result<Self, Box<dyn Error>> {
        Ok(Self::of(java_properties::parse(&fs::read(path)?)?))
    }

    fn of(properties: BTreeMap<String, String>) -> Self {
        let mut settings = Self {
            file: LogFile {
                path: "/var/log/cassandra/system.log".into(),
                max_bytes: 20 << 20,
                backups: 50,
            },
            filter: "info".into(),
            unused: Vec::new(),
        };
        for (key, value) in properties {
            let value = value.trim();
            let used = match key.to_ascii_lowercase().as_str() {
                "log4j.appender.r.file" => Some(value).map(|it| settings.file.path = it.into()),
                "log4j.appender.r.maxfilesize" => {
                    size(value).map(|it| settings.file.max_bytes = it)
                }
                "log4j.appender.r.maxbackupindex" => {
                    value.parse().ok().map(|it| settings.file.backups = it)
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
        assert_eq!(
            (read.file.max_bytes, read.file.backups, read.filter.as_str()),
            (3072, 50, "warn")
        );
        assert_eq!(settings("log4j.rootLogger=DEBUG,stdout,R").filter, "info,alexandra=debug");
        let unused = ["log4j.appender.R=RollingFileAppender", "log4j.appender.R.MaxBackupIndex=x"];
        assert_eq!(read.unused, unused);
    }
}
