//! `alexandra snapshot`: snapshots of a server without its admin side.

use super::nodetool::render_snapshots;
use super::offline::{ConfigArguments, check_keyspace, check_user, components};
use super::output::{self, FAILED, Failure};
use super::serve::start_logging;
use crate::base::fs::OsFileSystem;
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

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    start_logging("warn");
    let (Action::Take { config, keyspace, .. }
    | Action::List { config, keyspace }
    | Action::Clear { config, keyspace, .. }) = &arguments.action;
    let settings = config.load()?;
    let (directories, keyspace) = (&settings.directories.data, keyspace.as_deref());
    let (snapshots, done) = match &arguments.action {
        Action::Take { tag, .. } => (take(&settings, keyspace, tag.as_deref())?, "taken"),
        Action::List { .. } => {
            let found = snapshot::list(&OsFileSystem, directories, keyspace);
            (found.map_err(Failure::new)?, "found")
        }
        Action::Clear { name, .. } => {
            let cleared = snapshot::clear(&OsFileSystem, directories, keyspace, name.as_deref());
            let cleared = cleared.map_err(Failure::new)?;
            if let (true, Some(name)) = (cleared.is_empty(), name) {
                return Err(Failure::new(format_args!("no snapshot {name} was found")));
            }
            (cleared, "cleared")
        }
    };
    if snapshots.is_empty() {
        // A keyspace that is configured no more may still have snapshots.
        check_keyspace(&settings, keyspace)?;
        say!("no snapshot {done}");
    } else {
        let snapshots: Vec<_> = snapshots.into_iter().map(Into::into).collect();
        output::text(&render_snapshots(&snapshots));
    }
    Ok(match arguments.action {
        Action::List { .. } => output::finish_telling(ExitCode::SUCCESS, FAILED),
        Action::Take { .. } | Action::Clear { .. } => output::finish(ExitCode::SUCCESS),
    })
}

fn take(
    settings: &Settings,
    keyspace: Option<&str>,
    tag: Option<&str>,
) -> Result<Vec<Snapshot>, Failure> {
    check_user(settings)?;
    let options = NodeOptions { seed: fastrand::u64(..), ..NodeOptions::default() };
    let setup = StorageSetup::new(settings, &options).map_err(Failure::new)?;
    let storage = setup.open(components()).map_err(Failure::new)?;
    let taken = storage.snapshot(keyspace, tag).map_err(Failure::new);
    storage.close();
    taken
}
