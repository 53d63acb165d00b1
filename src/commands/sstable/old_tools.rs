//! The program under the names of tools of 0.6: `sstable2json`, `sstablekeys`, `json2sstable`.
//! Their options and outputs are those of 0.6; the names of files tell their forms.

use super::exit;
use super::export;
use super::import;
use super::target::{ConfigArguments, ToolError, family_of};
use crate::commands::output;
use crate::commands::serve::start_logging;
use clap::{Arg, Command, CommandFactory, Parser};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of `sstable2json` and `json2sstable` for arguments that make no sense.
const USAGE: u8 = 1;

/// Exit code of `sstablekeys` for arguments that make no sense.
const KEYS_USAGE: u8 = 2;

const TO_JSON_USAGE: &str = "sstable2json [-f outfile] [-e] <sstable> \
    [-k key [-k key [...]] -x key [-x key [...]]]";

/// A tool of 0.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum OldTool {
    SstableToJson,
    SstableKeys,
    JsonToSstable,
}

/// Prints the rows of an SSTable as JSON, as the tool of that name did
#[derive(Debug, Parser)]
#[command(name = "sstable2json", override_usage = TO_JSON_USAGE)]
struct ToJson {
    /// Row key
    #[arg(short = 'k')]
    keys: Vec<OsString>,
    /// Excluded row key
    #[arg(short = 'x')]
    excluded: Vec<OsString>,
    /// Enumerate keys only
    #[arg(short = 'e')]
    keys_only: bool,
    /// Output file
    #[arg(short = 'f')]
    output: Option<PathBuf>,
    /// System property
    #[arg(short = 'D')]
    properties: Vec<String>,
    sstables: Vec<PathBuf>,
}

/// Makes an SSTable of JSON, as the tool of that name did
#[derive(Debug, Parser)]
#[command(
    name = "json2sstable",
    override_usage = "json2sstable -K keyspace -c column_family <json> <sstable>"
)]
struct FromJson {
    /// Keyspace name
    #[arg(short = 'K')]
    keyspace: String,
    /// Column family
    #[arg(short = 'c')]
    family: String,
    /// System property
    #[arg(short = 'D')]
    properties: Vec<String>,
    json: PathBuf,
    sstable: PathBuf,
}

/// The options of all of them.
pub(in crate::commands) fn commands() -> [Command; 3] {
    let keys = Command::new("sstablekeys").about("Prints the row keys of an SSTable");
    [ToJson::command(), FromJson::command(), keys.arg(Arg::new("sstable").required(true))]
}

impl OldTool {
    /// The tool that a program of this name is.
    pub(in crate::commands) fn of_name(name: &OsStr) -> Option<Self> {
        match name.to_str()? {
            "sstable2json" => Some(Self::SstableToJson),
            "sstablekeys" => Some(Self::SstableKeys),
            "json2sstable" => Some(Self::JsonToSstable),
            _ => None,
        }
    }

    /// Runs it; the name of the program stands before its arguments.
    pub(in crate::commands) fn run(self, mut arguments: Vec<OsString>) -> ExitCode {
        start_logging("warn");
        if self == Self::SstableKeys {
            if arguments.len() != 2 {
                complain!("Usage: sstablekeys <sstable>");
                return ExitCode::from(KEYS_USAGE);
            }
            arguments.push("-e".into());
        }
        let done = match self {
            Self::SstableToJson | Self::SstableKeys => {
                ToJson::try_parse_from(arguments).map(to_json)
            }
            Self::JsonToSstable => FromJson::try_parse_from(arguments)
                .map(|parsed| output::finish(exit(from_json(parsed)))),
        };
        done.unwrap_or_else(|error| refuse(&error))
    }
}

fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

fn to_json(parsed: ToJson) -> ExitCode {
    if parsed.sstables.len() != 1 {
        complain!("You must supply exactly one sstable");
        complain!("Usage: {TO_JSON_USAGE}");
        return ExitCode::from(USAGE);
    }
    exit(export::run(&export::Arguments {
        config: ConfigArguments { config: None, properties: parsed.properties },
        keys: parsed.keys,
        excluded: parsed.excluded,
        keys_only: parsed.keys_only,
        original_shape: true,
        output: parsed.output,
        targets: parsed.sstables,
        ..export::Arguments::default()
    }))
}

/// An SSTable in the folder of its keyspace counts only through the manifest: it becomes one of
/// the column family, with a number of its own. Anywhere else it is a file of the given name.
fn from_json(parsed: FromJson) -> Result<bool, ToolError> {
    let FromJson { keyspace, family, properties, json, sstable } = parsed;
    let config = ConfigArguments { config: None, properties };
    let settings = config.load()?;
    family_of(&settings, &keyspace, &family)?;
    let folder = sstable.parent().and_then(|folder| folder.canonicalize().ok());
    let is_in_store = settings.directories.data.iter().any(|directory| {
        let own = directory.join(&keyspace).canonicalize().ok();
        own.is_some() && own == folder
    });
    let output = if is_in_store { None } else { Some(sstable) };
    import::run(&import::Arguments { config, keyspace, family, output, source: json })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn tool_of(path: &str) -> Option<OldTool> {
        Path::new(path).file_stem().and_then(OldTool::of_name)
    }

    #[test]
    fn programs_are_known_by_their_names() {
        assert_eq!(tool_of("/usr/bin/sstable2json"), Some(OldTool::SstableToJson));
        assert_eq!(tool_of("json2sstable"), Some(OldTool::JsonToSstable));
        assert_eq!(tool_of("bin/sstablekeys"), Some(OldTool::SstableKeys));
        assert_eq!(tool_of("alexandra"), None);
    }
}
