//! `alexandra snapshot`: snapshots of a server without its admin side.

use super::offline::{ConfigArguments, FAILED, check_keyspace, components};
use super::output;
use super::serve::start_logging;
use crate::base::fs::OsFileSystem;
use crate::base::utc::UtcTime;
use crate::config::Settings;
use crate::node::{NodeOptions, StorageSetup};
use crate::storage::snapshot::{self, Snapshot};
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Takes a snapshot of a stopped server's data; a running server takes its own
    Take {
        #[command(flatten)]
        config: ConfigArguments,
        /// One keyspace instead of all
        #[arg(long)]
        keyspace: Option<String>,
        /// A name for it, besides the time
        tag: Option<String>,
    },
    /// Lists snapshots and what space they take
    List {
        #[command(flatten)]
        config: ConfigArguments,
        /// Those of one keyspace
        #[arg(long)]
        keyspace: Option<String>,
    },
    /// Removes snapshots, also those of a running server
    Clear {
        #[command(flatten)]
        config: ConfigArguments,
        /// Those of one keyspace
        #[arg(long)]
        keyspace: Option<String>,
        /// Those of this name or tag
        #[arg(long, required_unless_present = "all")]
        name: Option<String>,
        /// Those of any name
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    start_logging("warn");
    let (Action::Take { config, keyspace, .. }
    | Action::List { config, keyspace }
    | Action::Clear { config, keyspace, .. }) = &arguments.action;
    let settings = match config.load() {
        Ok(settings) => settings,
        Err(exit_code) => return exit_code,
    };
    let (directories, keyspace) = (&settings.directories.data, keyspace.as_deref());
    let result = match &arguments.action {
        Action::Take { tag, .. } => take(&settings, keyspace, tag.as_deref()),
        Action::List { .. } => {
            let found = snapshot::list(&OsFileSystem, directories, keyspace);
            found.map_err(|error| error.to_string())
        }
        Action::Clear { name, .. } => {
            let name = name.as_deref();
            let cleared = snapshot::clear(&OsFileSystem, directories, keyspace, name);
            match (cleared, name) {
                (Ok(none), Some(name)) if none.is_empty() => {
                    Err(format!("no snapshot {name} was found"))
                }
                (cleared, _) => cleared.map_err(|error| error.to_string()),
            }
        }
    };
    // A keyspace that is configured no more may still have snapshots.
    let result = result.and_then(|snapshots| {
        let is_known =
            if snapshots.is_empty() { check_keyspace(&settings, keyspace) } else { Ok(()) };
        is_known.map(|()| snapshots)
    });
    match result {
        Ok(snapshots) => {
            print(&arguments.action, &snapshots);
            match arguments.action {
                Action::List { .. } => output::finish_telling(ExitCode::SUCCESS, FAILED),
                Action::Take { .. } | Action::Clear { .. } => output::finish(ExitCode::SUCCESS),
            }
        }
        Err(error) => {
            complain!("{error}");
            ExitCode::from(FAILED)
        }
    }
}

fn take(
    settings: &Settings,
    keyspace: Option<&str>,
    tag: Option<&str>,
) -> Result<Vec<Snapshot>, String> {
    let options = NodeOptions { seed: fastrand::u64(..), ..NodeOptions::default() };
    let setup = StorageSetup::new(settings, &options);
    let setup = setup.map_err(|error| error.to_string())?;
    let storage = setup.open(components()).map_err(|error| error.to_string())?;
    let taken = storage.snapshot(keyspace, tag).map_err(|error| error.to_string());
    storage.close();
    taken
}

fn print(action: &Action, snapshots: &[Snapshot]) {
    let what = match action {
        Action::Take { .. } => "taken",
        Action::List { .. } => "found",
        Action::Clear { .. } => "cleared",
    };
    if snapshots.is_empty() {
        say!("no snapshot {what}");
        return;
    }
    say!("{:<20} {:<40} {:<24} {:>12} {:>12}", "Keyspace", "Snapshot", "Taken", "Own KB", "KB");
    for Snapshot { keyspace, name, total_bytes, exclusive_bytes, .. } in snapshots {
        let (name, time) = (name.to_string(), UtcTime(name.millis).to_string());
        let [own, all] = [exclusive_bytes, total_bytes].map(|bytes| bytes.div_ceil(1024));
        say!("{keyspace:<20} {name:<40} {time:<24} {own:>12} {all:>12}");
    }
}
