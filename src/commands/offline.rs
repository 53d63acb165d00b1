//! Common parts of commands that work on the directories of a stopped server.

use super::output::Failure;
use crate::base::clock::SystemClock;
use crate::base::events::Events;
use crate::base::fs::OsFileSystem;
use crate::config::settings::{Directories, SYSTEM_KEYSPACE};
use crate::config::{ConfigErrors, Loader, Settings};
use crate::model::comparator::ComparatorRegistry;
use crate::schema;
use crate::storage::database::Components;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Arguments that name the configuration of a server.
#[derive(Debug, clap::Args)]
pub(super) struct ConfigArguments {
    /// The server's storage-conf.xml, or the directory that holds it; without it the built-in one
    #[arg(long, value_name = "FILE_OR_DIR")]
    pub(super) config: Option<PathBuf>,
}

impl ConfigArguments {
    /// Settings of the server.
    pub(super) fn load(&self) -> Result<Settings, Failure> {
        load_with_schema(self.config.as_deref())
    }

    /// The argument as it would be typed again.
    pub(super) fn shown(&self) -> String {
        let path = self.config.as_deref();
        path.map_or_else(String::new, |path| format!(" --config {}", quoted(path)))
    }
}

/// Reads a configuration for a tool.
pub(super) fn load_settings(path: Option<&Path>) -> Result<Settings, ConfigErrors> {
    let comparators = ComparatorRegistry::default();
    Ok(Loader::for_tools(&comparators).load(path)?.settings)
}

/// The same for a tool that works on the data of the server, with what was made over CQL.
pub(super) fn load_with_schema(path: Option<&Path>) -> Result<Settings, Failure> {
    let mut settings = load_settings(path)?;
    schema::read(&mut settings, &OsFileSystem).map_err(Failure::new)?;
    Ok(settings)
}

/// Refuses the name of a keyspace that the configuration does not know.
pub(super) fn check_keyspace(settings: &Settings, keyspace: Option<&str>) -> Result<(), Failure> {
    match keyspace.filter(|name| *name != SYSTEM_KEYSPACE) {
        Some(name) if settings.keyspace(name).is_none() => {
            let text = format!("Keyspace {name} does not exist in the configuration");
            Err(Failure::new(text))
        }
        _ => Ok(()),
    }
}

/// Refuses to run as root on another user's data: the server could not read root's files.
pub(super) fn check_user(settings: &Settings) -> Result<(), Failure> {
    refuse_root(settings, |it| it.ancestors().find_map(|path| path.metadata().ok()))
}

/// The same for a server, which may have directories of anybody, as in a container, if what is in
/// them is of root.
pub(super) fn check_user_of_server(settings: &Settings) -> Result<(), Failure> {
    let of_others = |it: &Path| {
        let mut found = it.read_dir().ok()?.filter_map(|file| file.ok()?.metadata().ok());
        found.find(|it| it.uid() != 0)
    };
    refuse_root(settings, of_others)
}

fn refuse_root(
    settings: &Settings,
    owned: impl Fn(&Path) -> Option<Metadata>,
) -> Result<(), Failure> {
    let Directories { data, commit_log, .. } = &settings.directories;
    let mut found = data.iter().chain([commit_log]).filter_map(|it| owned(it));
    let other = if is_root() { found.find(|it| it.uid() != 0) } else { None };
    let Some(other) = other else { return Ok(()) };
    // The start script adds the hidden argument.
    let typed = std::env::args_os().filter(|it| it != "--detached");
    let command: Vec<_> = typed.map(|it| quote(&it.to_string_lossy())).collect();
    Err(Failure::new(format_args!(
        "the data belong to another user, whose server could not read new files of root. Run: \
         setpriv --reuid {} --regid {} --clear-groups {}",
        other.uid(),
        other.gid(),
        command.join(" ")
    )))
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The machine's files and clock; what happens is logged.
pub(super) fn components() -> Components {
    Components {
        events: Events::logging(),
        ..Components::new(Arc::new(OsFileSystem), Arc::new(SystemClock::new()))
    }
}

/// A path as a shell takes it, absolute.
pub(super) fn quoted(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    quote(&absolute.display().to_string())
}

/// A text as a shell takes it.
pub(super) fn quote(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_typed() {
        assert_eq!(quote("Blog-1.x"), "Blog-1.x");
        assert_eq!(quote("it's a tag"), r"'it'\''s a tag'");
        assert_eq!(quote(""), "''");
        assert_eq!(quoted(Path::new("/a b/c")), "'/a b/c'");
    }
}
