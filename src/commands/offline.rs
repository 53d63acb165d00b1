//! Common parts of commands that work on the directories of a stopped server.

use super::output::Failure;
use crate::base::clock::SystemClock;
use crate::base::events::Events;
use crate::base::fs::OsFileSystem;
use crate::config::settings::SYSTEM_KEYSPACE;
use crate::config::{ConfigErrors, Loader, Settings};
use crate::model::comparator::ComparatorRegistry;
use crate::schema;
use crate::storage::database::Components;
use std::fs;
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

/// Refuses root what makes files beside those of another user, whose server could not read them.
pub(super) fn check_user(settings: &Settings) -> Result<(), Failure> {
    let found = settings.directories.data.iter().find_map(|it| it.metadata().ok());
    let owner = found.map_or(0, |it| it.uid());
    if owner == 0 || !is_root() {
        return Ok(());
    }
    let user = user_name(owner, &fs::read_to_string("/etc/passwd").unwrap_or_default());
    let command: Vec<_> = std::env::args_os().map(|it| quote(&it.to_string_lossy())).collect();
    Err(Failure::new(format_args!(
        "the data belong to another user, whose server could not read new files of root. Run: \
         runuser -u {user} -- {}",
        command.join(" ")
    )))
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The name of a user in the text of `/etc/passwd`; the number if it is not there.
fn user_name(uid: u32, users: &str) -> String {
    let name = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    users.lines().find_map(name).unwrap_or_else(|| uid.to_string())
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
    fn a_user_has_a_name_or_a_number() {
        let users = "root:x:0:0:root:/:/bin/sh\nbroken\ncassandra:x:107:113::/:/bin/false\n";
        assert_eq!(user_name(107, users), "cassandra");
        assert_eq!(user_name(113, users), "113");
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        assert_eq!(quote("Blog-1.x"), "Blog-1.x");
        assert_eq!(quote("it's a tag"), r"'it'\''s a tag'");
        assert_eq!(quote(""), "''");
        assert_eq!(quoted(Path::new("/a b/c")), "'/a b/c'");
    }
}
